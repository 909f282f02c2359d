// Row-wise products of two tables h and e, each read once. The wrapper kernels/scoring/row_products.py checks all
// arguments.

#include <algorithm>
#include <cstring>

#include "core/core.h"
#include "core/simd.h"

namespace {

constexpr int BYTES = 4 * W;
constexpr int64_t ROWS = 256;  // rows of 300 floats that stay in the cache

template <typename T>
struct Lanes {
    typedef T vec __attribute__((vector_size(BYTES)));
    static constexpr int64_t N = BYTES / int64_t(sizeof(T));

    static vec load(const T* x) {
        vec v;
        std::memcpy(&v, x, sizeof v);
        return v;
    }
};

// Four independent sums per product, to hide the latency.
template <typename T>
void measure(const T* h, const T* e, int64_t begin, int64_t end, int64_t d, T* kappa2, T* c) {
    using L = Lanes<T>;
    using vec = typename L::vec;
    for (int64_t i = begin; i < end; ++i) {
        const T *x = h + i * d, *y = e + i * d;
        vec xx[4] = {}, xy[4] = {};
        int64_t j = 0;
        for (; j + 4 * L::N <= d; j += 4 * L::N)
            for (int u = 0; u < 4; ++u) {
                const vec v = L::load(x + j + u * L::N);
                xx[u] += v * v;
                xy[u] += v * L::load(y + j + u * L::N);
            }
        for (; j + L::N <= d; j += L::N) {
            const vec v = L::load(x + j);
            xx[0] += v * v;
            xy[0] += v * L::load(y + j);
        }
        const vec xx_sum = (xx[0] + xx[1]) + (xx[2] + xx[3]), xy_sum = (xy[0] + xy[1]) + (xy[2] + xy[3]);
        T length = 0, dot = 0;
        for (int64_t n = 0; n < L::N; ++n) length += xx_sum[n], dot += xy_sum[n];
        for (; j < d; ++j) length += x[j] * x[j], dot += x[j] * y[j];
        kappa2[i] = length, c[i] = dot;
    }
}

// Backwards, because `measure` has just read the last rows.
template <typename T>
void combine(const T* h, const T* e, const T* a, const T* b, int64_t begin, int64_t end, int64_t d, T* out) {
    for (int64_t from = end; from > begin; from -= ROWS)
        for (int64_t i = std::max(begin, from - ROWS); i < from; ++i) {
            const T *__restrict x = h + i * d, *__restrict y = e + i * d;
            T* __restrict to = out + i * d;
            const T a_i = a[i], b_i = b[i];
            for (int64_t j = 0; j < d; ++j) to[j] = a_i * x[j] + b_i * y[j];
        }
}

}  // namespace

// kappa2 = h·h and c = h·e of the rows begin..end, (n, d) each; doubles if `is_double`, else floats.
extern "C" EMBTRAIN_API int embtrain_row_products_measure(const void* h, const void* e, int64_t is_double,
                                                          int64_t begin, int64_t end,
                                                   int64_t d, void* kappa2, void* c) {
    if (is_double)
        measure((const double*)h, (const double*)e, begin, end, d, (double*)kappa2, (double*)c);
    else
        measure((const float*)h, (const float*)e, begin, end, d, (float*)kappa2, (float*)c);
    return OK;
}

// out = a h + b e of the same rows; a and b (n).
extern "C" EMBTRAIN_API int embtrain_row_products_combine(const void* h, const void* e, const void* a, const void* b,
                                                   int64_t is_double, int64_t begin, int64_t end, int64_t d,
                                                       void* out) {
    if (is_double)
        combine((const double*)h, (const double*)e, (const double*)a, (const double*)b, begin, end, d, (double*)out);
    else
        combine((const float*)h, (const float*)e, (const float*)a, (const float*)b, begin, end, d, (float*)out);
    return OK;
}
