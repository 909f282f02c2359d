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

// Before a loop over a small array of vectors. Without it GCC unrolls such a loop, if no other loop contains it, too late to
// keep the array in registers, and another loop that sums into the array then stores it in each turn.
#define UNROLL _Pragma("GCC unroll 16")

// After the parameters of a lambda that loops over rows. In a function of its own it reads what it captures again for
// each row, because a stored row might have changed it.
#define INLINE __attribute__((always_inline))

}  // namespace
