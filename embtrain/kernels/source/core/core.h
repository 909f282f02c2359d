// Shared by all C++ sources: the export macro, status codes and random numbers.
//
// Exported functions are `extern "C" EMBTRAIN_API int embtrain_...(...)` over plain C types. None throws, every
// allocation is checked, and the output is valid only if the status is OK.
#pragma once

#include <cstdint>

#define EMBTRAIN_API __attribute__((visibility("default")))

// Status codes; embtrain/kernels/core/loader.py has the same numbers.
constexpr int OK = 0;
constexpr int OUT_OF_RANGE = -1;  // an id or an offset outside its table
constexpr int NO_MEMORY = -2;
constexpr int NOT_FINITE = -3;    // weights that are inf or NaN: no draw is possible

static inline bool out_of_range(int64_t x, int64_t n) { return x < 0 || x >= n; }

// Whether all n ids are in [0, size). Branch-free: the sign of id | (size-1-id) shows it.
static inline bool all_within(const int64_t* id, int64_t n, int64_t size) {
    uint64_t bad = 0;
    for (int64_t i = 0; i < n; ++i) bad |= (uint64_t)id[i] | ((uint64_t)size - 1 - (uint64_t)id[i]);
    return (int64_t)bad >= 0;
}

// SplitMix64 as a function of the position. Number i of a stream costs the same at any start, so results do not depend
// on the number of threads or chunks. Reference: splitmix64 in embtrain/kernels/reference/__init__.py.
static inline uint64_t u64_at(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
