// What every part of the core shares: how a function is exported, what it may answer, where random numbers come from.
//
// Exported functions are `extern "C" EMBTRAIN_API int embtrain_...(...)` over plain C types. None throws, none allocates
// without looking, and what one has written is of use only where it answers OK.
#pragma once

#include <cstdint>

#define EMBTRAIN_API __attribute__((visibility("default")))

// Answers; embtrain/kernels/core/library.py has the same numbers.
constexpr int OK = 0;
constexpr int OUT_OF_RANGE = -1;  // an id or an offset that does not fit its table
constexpr int NO_MEMORY = -2;
constexpr int NOT_FINITE = -3;    // masses that are no numbers: nothing can be drawn by them

// SplitMix64 as a function of the position: the i-th number of a stream costs the same wherever one starts, so a result
// does not show how many threads or chunks it was made in. Twin: splitmix64 of embtrain/kernels/reference/__init__.py.
static inline uint64_t u64_at(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
