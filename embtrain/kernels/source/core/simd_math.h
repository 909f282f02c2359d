// Loads, stores, exp, log and the logistic functions on SIMD vectors.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "core/simd.h"

namespace {

typedef float vec_anywhere __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t ivec_anywhere __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef float half __attribute__((vector_size(16)));
typedef float half_anywhere __attribute__((vector_size(16), aligned(4), may_alias));

inline vec load(const float* p) { return *(const vec_anywhere*)p; }
inline ivec load(const int32_t* p) { return *(const ivec_anywhere*)p; }
inline half load_half(const float* p) { return *(const half_anywhere*)p; }
inline void store(int32_t* p, ivec x) { *(ivec_anywhere*)p = x; }
inline void store(float* p, vec x) { *(vec_anywhere*)p = x; }
inline void store_half(float* p, half x) { *(half_anywhere*)p = x; }
inline vec splat(float x) { return x - vec{}; }
inline ivec splat(int32_t x) { return x - ivec{}; }

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

inline ivec lanes() {
    ivec x;
    for (int i = 0; i < W; ++i) x[i] = i;
    return x;
}

// The first n <= W floats at p; the other lanes are 0, and nothing beyond is read.
inline vec load_first(const float* p, int64_t n) {
#if defined(__AVX512F__)
    if (n == 4) return (vec)_mm512_zextps128_ps512((__m128)load_half(p));
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#elif defined(__AVX2__)
    return (vec)_mm256_maskload_ps(p, (__m256i)(lanes() < splat((int32_t)n)));
#else
    if (n == W) return load(p);
    return vec{p[0], n > 1 ? p[1] : 0.f, n > 2 ? p[2] : 0.f, 0.f};
#endif
}

// Write the first n <= W lanes of x to p, and nothing beyond.
inline void store_first(float* p, vec x, int64_t n) {
#if defined(__AVX512F__)
    if (n == 4) store_half(p, __builtin_shufflevector(x, x, 0, 1, 2, 3));
    else _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
#else
    if (n == W) return store(p, x);
    int64_t i = 0;
#if defined(__AVX2__)
    if (n >= 4) {  // masked stores are slow on some processors
        store_half(p, __builtin_shufflevector(x, x, 0, 1, 2, 3));
        x = __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3);
        i = 4;
    }
#endif
    if (i < n) p[i] = x[0];
    if (i + 1 < n) p[i + 1] = x[1];
    if (i + 2 < n) p[i + 2] = x[2];
#endif
}

// Lanes 0..n-1 of x; the others are 0.
inline vec first(vec x, int64_t n) { return lanes() < splat((int32_t)n) ? x : vec{}; }

inline bool any(ivec x) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)x, (__m512i)x) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)x) != 0;
#else
    return (x[0] | x[1] | x[2] | x[3]) != 0;
#endif
}

inline int64_t count(ivec x) {  // the lanes that are -1; the others must be 0
#if defined(__AVX512F__)
    return __builtin_popcount((unsigned)_mm512_movepi32_mask((__m512i)x));
#elif defined(__AVX2__)
    return __builtin_popcount((unsigned)_mm256_movemask_ps((__m256)x));
#else
    return -(int64_t)(x[0] + x[1] + x[2] + x[3]);
#endif
}

#if defined(__AVX512F__)
inline vec prefix_sums(vec x) {  // (x0, x0 + x1, ...)
    const vec none{};
    x += __builtin_shufflevector(x, none, 16, 0, 1, 2, 16, 4, 5, 6, 16, 8, 9, 10, 16, 12, 13, 14);
    x += __builtin_shufflevector(x, none, 16, 16, 0, 1, 16, 16, 4, 5, 16, 16, 8, 9, 16, 16, 12, 13);
    x += __builtin_shufflevector(x, none, 16, 16, 16, 16, 3, 3, 3, 3, 16, 16, 16, 16, 11, 11, 11, 11);
    return x + __builtin_shufflevector(x, none, 16, 16, 16, 16, 16, 16, 16, 16, 7, 7, 7, 7, 7, 7, 7, 7);
}
#elif defined(__AVX2__)
inline vec prefix_sums(vec x) {  // (x0, x0 + x1, ...)
    const vec none{};
    x += __builtin_shufflevector(x, none, 8, 0, 1, 2, 8, 4, 5, 6);
    x += __builtin_shufflevector(x, none, 8, 8, 0, 1, 8, 8, 4, 5);
    return x + __builtin_shufflevector(x, none, 8, 8, 8, 8, 3, 3, 3, 3);
}
#else
inline vec prefix_sums(vec x) {
    const vec none{};
    x += __builtin_shufflevector(x, none, 4, 0, 1, 2);
    return x + __builtin_shufflevector(x, none, 4, 4, 0, 1);
}
#endif

inline float sum(half x) { return (x[0] + x[2]) + (x[1] + x[3]); }

#if defined(__AVX2__)
inline half fold(vec x) {  // the sums of lanes i, i+4, ...
#if defined(__AVX512F__)
    const __m256 all = (__m256)(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                                __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
#else
    const __m256 all = (__m256)x;
#endif
    return (half)_mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
}

inline float sum(vec x) { return sum(fold(x)); }
#else
inline half fold(half x) { return x; }
#endif

inline half sums(half a, half b, half c, half d) {  // (Σa, Σb, Σc, Σd)
    half ab = __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
    half cd = __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
    return __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
}

#if defined(__AVX512F__)
// (a0 + a2, b0 + b2, a1 + a3, b1 + b3) in each quarter, or half, of a vector
inline vec fold_pairs(vec a, vec b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
        + __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}

inline half sums(vec a, vec b, vec c, vec d) {
    const vec ab = fold_pairs(a, b), cd = fold_pairs(c, d);
    return fold(__builtin_shufflevector(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
                + __builtin_shufflevector(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31));
}
#elif defined(__AVX2__)
inline vec fold_pairs(vec a, vec b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
        + __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}

inline half sums(vec a, vec b, vec c, vec d) {
    const vec ab = fold_pairs(a, b), cd = fold_pairs(c, d);
    return fold(__builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13)
                + __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15));
}
#endif

// The W / 4 halves in order.
inline vec join(const half* x) {
#if defined(__AVX512F__)
    const __m512 ab = _mm512_insertf32x4(_mm512_castps128_ps512((__m128)x[0]), (__m128)x[1], 1);
    return (vec)_mm512_insertf32x4(_mm512_insertf32x4(ab, (__m128)x[2], 2), (__m128)x[3], 3);
#elif defined(__AVX2__)
    return (vec)_mm256_set_m128((__m128)x[1], (__m128)x[0]);
#else
    return x[0];
#endif
}

inline vec abs_of(vec x) { return (vec)((ivec)x & splat((int32_t)0x7fffffff)); }
// Of two numbers of which one is NaN, b. Intrinsics, because GCC compares and blends if b is a constant; without a mask
// GCC 12 warns that the header of AVX-512 reads an uninitialized __Y.
template <class V> inline V most(V a, V b) { return a > b ? a : b; }
#if defined(__AVX512F__)
inline vec least(vec a, vec b) { return (vec)_mm512_maskz_min_ps(0xffff, (__m512)a, (__m512)b); }
inline vec most(vec a, vec b) { return (vec)_mm512_maskz_max_ps(0xffff, (__m512)a, (__m512)b); }
#elif defined(__AVX2__)
inline vec least(vec a, vec b) { return (vec)_mm256_min_ps((__m256)a, (__m256)b); }
inline vec most(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
#else
inline vec least(vec a, vec b) { return a < b ? a : b; }
#endif

inline float largest_lane(vec x) {
#if defined(__AVX512F__)
    const __m256 eight = most((__m256)__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7),
                              (__m256)__builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
#elif defined(__AVX2__)
    const __m256 eight = (__m256)x;
#endif
#if defined(__AVX2__)
    half y = most((half)_mm256_castps256_ps128(eight), (half)_mm256_extractf128_ps(eight, 1));
#else
    half y = x;
#endif
    y = most(y, __builtin_shufflevector(y, y, 2, 3, 0, 1));
    return y[0] > y[1] ? y[0] : y[1];
}

// e^x, with x clamped to [-87, 88]; relative error below 2e-7.
//
//   x = n log 2 + r, |r| <= log 2 / 2; e^r = 1 + r + r² p(r), p fitted to 8e-9
inline vec exp_of(vec x) {
    x = least(most(x, splat(-87.f)), splat(88.f));
    const vec magic = splat(12582912.f);  // 1.5 · 2^23: adding it leaves the rounded integer in the low bits
    vec shifted = x * splat(1.44269504f) + magic;
    vec n = shifted - magic;
    vec r = x - n * splat(0.693359375f) - n * splat(-2.12194440e-4f);
    vec p = splat(0.0013941216748207808f);
    p = p * r + splat(0.00836323481053114f);
    p = p * r + splat(0.04166637361049652f);
    p = p * r + splat(0.16666576266288757f);
    p = p * r + splat(0.5f);
    vec y = p * (r * r) + r + splat(1.f);
    return y * (vec)(((ivec)shifted << 23) + splat((int32_t)0x3f800000));
}

// (log (1+t)/(1-t)) / t as a function of t² <= 1/9; error 4e-8.
inline vec atanh_series(vec q) {
    vec p = splat(0.26883605122566223f);
    p = p * q + splat(0.28231281042099f);
    p = p * q + splat(0.40007781982421875f);
    p = p * q + splat(0.6666663885116577f);
    return p * q + splat(2.f);
}

// log x for positive normal x; absolute error below 1e-7 + 1e-7 |log x|.
inline vec log_of(vec x) {
    ivec bits = (ivec)x - splat((int32_t)0x3f3504f3);  // √½: the mantissa ends in [√½, √2)
    vec n = __builtin_convertvector(bits >> 23, vec);
    vec m = (vec)((bits & splat((int32_t)0x007fffff)) + splat((int32_t)0x3f3504f3));
    vec t = (m - splat(1.f)) / (m + splat(1.f));
    return n * splat(0.693147181f) + t * atanh_series(t * t);
}

// slope = σ(z) and soft = log(1 + e^z), from one exp and one division. The slope is at least e^-60, because denormal
// numbers would slow down everything computed from it. If z is NaN, soft is NaN.
inline void logistic_of(vec z, vec& slope, vec& soft) {
    vec e = exp_of(most(-abs_of(z), splat(-60.f)));    // in (0, 1]
    vec a = splat(1.f) + e, b = splat(2.f) + e;
    vec d = splat(1.f) / (a * b);
    vec bd = b * d;                                    // 1 / (1 + e)
    slope = z >= vec{} ? bd : e * bd;
    vec t = e * a * d;                                 // e / (2 + e): log(1 + e) = 2 artanh t
    soft = most(vec{}, z) + t * atanh_series(t * t);
}

}  // namespace
