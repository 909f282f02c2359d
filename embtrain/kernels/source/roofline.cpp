// Roofline micro-benchmarks: random row updates and multiply-adds.

#include "core/core.h"
#include "core/simd.h"

namespace {

constexpr int64_t AHEAD = 16;  // rows between the current row and the prefetched one
// independent vectors: two ports with a latency of four cycles need eight; the rest is a margin
constexpr int LANES = 12;

}  // namespace

// table[id] += 1 for n rows of `dim` floats, `stride` floats apart.
extern "C" EMBTRAIN_API int embtrain_roofline_rows(float* table, int64_t n_rows, int64_t dim, int64_t stride,
                                                 const int64_t* id, int64_t n) {
    if (!all_within(id, n, n_rows)) return OUT_OF_RANGE;
    for (int64_t i = 0; i < n; ++i) {
        if (i + AHEAD < n) {
            const float* next = table + id[i + AHEAD] * stride;
            for (int64_t d = 0; d < dim; d += 16) __builtin_prefetch(next + d, 1);
        }
        float* row = table + id[i] * stride;
        for (int64_t d = 0; d < dim; ++d) row[d] += 1.0f;
    }
    return OK;
}

// x <- a x + b, n times in each of LANES vectors. Vector l starts from l, as a compiler computes equal vectors once.
// Outputs the sum of all floats and the number of vectors and of floats.
extern "C" EMBTRAIN_API int embtrain_roofline_multiply_adds(int64_t n, float a, float b, double* sum, int64_t* vectors,
                                                            int64_t* floats) {
    vec x[LANES], factor = vec{} + a, offset = vec{} + b;
    UNROLL for (int l = 0; l < LANES; ++l) x[l] = vec{} + float(l);
    for (int64_t i = 0; i < n; ++i)
        UNROLL for (int l = 0; l < LANES; ++l) x[l] = x[l] * factor + offset;
    *sum = 0.0;
    for (int l = 0; l < LANES; ++l)
        for (int j = 0; j < W; ++j) *sum += double(x[l][j]);
    *vectors = LANES;
    *floats = LANES * W;
    return OK;
}
