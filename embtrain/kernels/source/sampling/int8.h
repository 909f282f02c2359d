// int8 vectors with one scale, and their dot products.
//
//     x = s z,  s = max |x| / 127,  z = round(x / s) in -127 .. 127;      table rows store b = z + 128
//     h·x = s_h s_x (y·b - 128 Σ y)                                       y: z of a query
//
// A cache line holds four times as many values, and y·b is an exact integer: all levels and the reference agree to the
// bit.
#pragma once

#include "sampling/masses.h"

#if defined(__SSE4_1__)
#include <smmintrin.h>
#endif

namespace {

typedef int32_t half_int __attribute__((vector_size(16)));

constexpr int64_t MAX_INT8 = 127, ZERO = 128;  // b of the value 0
constexpr int64_t MAX_PRODUCTS = 1 << 16;              // int8 products whose sum fits in 32 bits

#if defined(__AVX512VNNI__)
typedef int8_t query_int;       // the type of y
typedef __m512i int_sums;
constexpr int64_t STEP = 64;       // products per instruction

// Adds STEP products y b to the partial sums.
inline int_sums add_products(int_sums to, const query_int* y, const uint8_t* b) {
    return _mm512_dpbusd_epi32(to, _mm512_loadu_si512(b), _mm512_loadu_si512(y));
}

// (Σa, Σb, Σc, Σd); sums within 128-bit lanes first.
inline half_int horizontal_sums(int_sums a, int_sums b, int_sums c, int_sums d) {
    const auto pair_sums = [](ivec x, ivec y) {  // x0 + x1, y0 + y1, x2 + x3, y2 + y3 of each 128-bit lane
        return __builtin_shufflevector(x, y, 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30) +
               __builtin_shufflevector(x, y, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
    };
    const ivec ab = pair_sums((ivec)a, (ivec)b), cd = pair_sums((ivec)c, (ivec)d);
    const ivec all = __builtin_shufflevector(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
                     __builtin_shufflevector(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    return (__builtin_shufflevector(all, all, 0, 1, 2, 3) + __builtin_shufflevector(all, all, 4, 5, 6, 7)) +
           (__builtin_shufflevector(all, all, 8, 9, 10, 11) + __builtin_shufflevector(all, all, 12, 13, 14, 15));
}
#elif defined(__AVX2__)
typedef int16_t query_int;
typedef __m256i int_sums;
constexpr int64_t STEP = 16;

inline int_sums add_products(int_sums to, const query_int* y, const uint8_t* b) {
    const int_sums wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)b));
    return _mm256_add_epi32(to, _mm256_madd_epi16(wide, _mm256_loadu_si256((const int_sums*)y)));
}

inline half_int horizontal_sums(int_sums a, int_sums b, int_sums c, int_sums d) {
    const int_sums all = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return (half_int)_mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}
#elif defined(__SSE4_1__)
typedef int16_t query_int;
typedef __m128i int_sums;
constexpr int64_t STEP = 8;

inline int_sums add_products(int_sums to, const query_int* y, const uint8_t* b) {
    const int_sums wide = _mm_cvtepu8_epi16(_mm_loadl_epi64((const int_sums*)b));
    return _mm_add_epi32(to, _mm_madd_epi16(wide, _mm_loadu_si128((const int_sums*)y)));
}

inline half_int horizontal_sums(int_sums a, int_sums b, int_sums c, int_sums d) {
    return (half_int)_mm_hadd_epi32(_mm_hadd_epi32(a, b), _mm_hadd_epi32(c, d));
}
#else
typedef int16_t query_int;
typedef half_int int_sums;
constexpr int64_t STEP = 4;

inline int_sums add_products(int_sums to, const query_int* y, const uint8_t* b) {
    return to + half_int{y[0] * b[0], y[1] * b[1], y[2] * b[2], y[3] * b[3]};
}

inline half_int horizontal_sums(int_sums a, int_sums b, int_sums c, int_sums d) {
    return half_int{a[0] + a[1], b[0] + b[1], c[0] + c[1], d[0] + d[1]} +
           half_int{a[2] + a[3], b[2] + b[3], c[2] + c[3], d[2] + d[3]};
}
#endif

#if defined(__SSE4_1__)
#define EMBTRAIN_FOURS
// Products of four values of a query with those of W rows side by side, (W, 4), as in panels of means and columns of
// members: sums are horizontal only at the end. Without products of four int8 values each row has sums of two of the
// four. They are an array, because GCC moves sums of a class from one register to another at each step.
#if defined(__AVX512VNNI__)
constexpr int PARTS = 1;
#else
constexpr int PARTS = 2;
#endif

inline void widen_fours(const uint8_t* b, ivec (&x)[PARTS]) {
#if defined(__AVX512VNNI__)
    x[0] = (ivec)_mm512_loadu_si512(b);
#elif defined(__AVX2__)
    x[0] = (ivec)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)b));
    x[1] = (ivec)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i*)(b + STEP)));
#else
    x[0] = (ivec)_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)b));
    x[1] = (ivec)_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i*)(b + STEP)));
#endif
}

inline void add_fours(ivec (&s)[PARTS], const ivec (&x)[PARTS], const query_int* y) {
#if defined(__AVX512VNNI__)
    int32_t four;
    std::memcpy(&four, y, sizeof four);
    s[0] = (ivec)_mm512_dpbusd_epi32((int_sums)s[0], (int_sums)x[0], (int_sums)splat(four));
#else
    int64_t four;
    std::memcpy(&four, y, sizeof four);
#if defined(__AVX2__)
    const int_sums all = _mm256_set1_epi64x(four);
    s[0] += (ivec)_mm256_madd_epi16((int_sums)x[0], all), s[1] += (ivec)_mm256_madd_epi16((int_sums)x[1], all);
#else
    const int_sums all = _mm_set1_epi64x(four);
    s[0] += (ivec)_mm_madd_epi16((int_sums)x[0], all), s[1] += (ivec)_mm_madd_epi16((int_sums)x[1], all);
#endif
#endif
}

inline ivec sum_fours(const ivec (&s)[PARTS]) {
#if defined(__AVX512VNNI__)
    return s[0];
#elif defined(__AVX2__)
    return (ivec)_mm256_permute4x64_epi64(_mm256_hadd_epi32((int_sums)s[0], (int_sums)s[1]), 0b11011000);
#else
    return (ivec)_mm_hadd_epi32((int_sums)s[0], (int_sums)s[1]);
#endif
}
#endif

// A quantized query. tail: its last STEP values, zeroed where a full step already covers them.
struct QuantizedQuery {
    const query_int* y;
    const query_int* tail;
};

// y·b of H vectors y and 4 / H rows b, ordered by y, for n < STEP.
template <int H> inline half_int scalar_products(const QuantizedQuery* y, const uint8_t* const* b, int64_t n) {
    constexpr int R = 4 / H;
    half_int sums = {};
    for (int l = 0; l < 4; ++l)
        for (int64_t i = 0; i < n; ++i) sums[l] += y[l / R].y[i] * b[l % R][i];
    return sums;
}

// The same for n <= MAX_PRODUCTS.
template <int H> inline half_int products(const QuantizedQuery* y, const uint8_t* const* b, int64_t n) {
    constexpr int R = 4 / H;
    if (n < STEP) return scalar_products<H>(y, b, n);
    const QuantizedQuery queries[2] = {y[0], y[H - 1]};  // for the first two products, and for the other two
    const uint8_t *const b0 = b[0], *const b1 = b[1], *const b2 = b[2 % R], *const b3 = b[3 % R];
    int_sums s0 = {}, s1 = {}, s2 = {}, s3 = {};  // four variables: the compiler kept an array of them in memory
    const auto accumulate = [&](const query_int* y0, const query_int* y1, int64_t i) {
        s0 = add_products(s0, y0, b0 + i), s1 = add_products(s1, y0, b1 + i);
        s2 = add_products(s2, y1, b2 + i), s3 = add_products(s3, y1, b3 + i);
    };
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) accumulate(queries[0].y + i, queries[1].y + i, i);
    if (i < n) accumulate(queries[0].tail, queries[1].tail, n - STEP);
    return horizontal_sums(s0, s1, s2, s3);
}

// Quantize n numbers x: calls store_int(i, z_i) and returns s, with x = s z up to s / 2. s is NaN if a number is not
// finite.
template <class Store> inline float quantize_each(const float* x, int64_t n, Store store_int) {
    const float scale = largest<true>(x, n) / MAX_INT8, divisor = scale > 0 ? scale : 1;
    for (int64_t i = 0; i < n; ++i) {  // a division: the compiler would fuse a product with the addition and round once
        // 1.5 · 2^23: adding it leaves the rounded integer in the low bits
        const float shifted = x[i] / divisor + 12582912.f;
        int32_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        store_int(i, int32_t(int8_t(bits)));
    }
    return scale;
}

// Quantize n numbers x to b; returns s.
inline float quantize_row(const float* x, int64_t n, uint8_t* b) {
    return quantize_each(x, n, [b](int64_t i, int32_t z) { b[i] = uint8_t(z + ZERO); });
}

// Vectors (n, width) quantized for products with int8 rows.
class QuantizedQueries {
  public:
    QuantizedQueries(const float* x, int64_t n, int64_t width)
        : width_(width), y_(arena_.allocate<query_int>(n * width + 4)), tail_(arena_.allocate<query_int>(n * STEP)),
          scale_(arena_.allocate<float>(n)), zeros_(arena_.allocate<int64_t>(n)) {
        for (int64_t q = 0; !failed() && q < n; ++q) {
            query_int *const to = y_ + q * width, *const tail = tail_ + q * STEP;
            int64_t sum = 0;
            scale_[q] =
                quantize_each(x + q * width, width, [&](int64_t i, int32_t y) { to[i] = query_int(y), sum += y; });
            zeros_[q] = ZERO * sum;
            const int64_t rest = width < STEP ? 0 : width % STEP;
            std::fill_n(tail, STEP, query_int(0));
            std::copy_n(to + width - rest, rest, tail + STEP - rest);
        }
    }
    bool failed() const { return arena_.failed(); }
    QuantizedQuery row(int64_t q, int64_t from = 0) const { return {y_ + q * width_ + from, tail_ + q * STEP}; }
    float scale(int64_t q) const { return scale_[q]; }
    int64_t zeros(int64_t q) const { return zeros_[q]; }   // 128 Σ y

  private:
    const int64_t width_;
    Arena arena_;
    query_int *y_, *tail_;
    float* scale_;
    int64_t* zeros_;
};

}  // namespace
