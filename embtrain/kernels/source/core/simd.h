// SIMD vectors at the width of the level: W floats or W int32.
#pragma once

#include <cstdint>

namespace {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif
typedef float vec __attribute__((vector_size(4 * W)));
typedef int32_t ivec __attribute__((vector_size(4 * W)));

// Before a loop over a small array of vectors. If no other loop contains it, GCC unrolls it after the pass that moves
// arrays to registers; without UNROLL the array stays in memory, and each turn of a loop that sums into it stores it.
#define UNROLL _Pragma("GCC unroll 16")

// After the parameters of a lambda that loops over rows. As a function of its own it reads its captured variables again
// for each row, because the store of a row might have changed them.
#define INLINE __attribute__((always_inline))

}  // namespace
