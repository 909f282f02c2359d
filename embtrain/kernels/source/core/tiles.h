// Tiles of matrix products, and transposed tiles.
#pragma once

#include "core/simd_math.h"

namespace {

constexpr int64_t SIDE = W < 8 ? W : 8;  // rows and columns that `transpose` exchanges at once

// R rows and V vectors of `out`, in registers.
template <int R, int V>
inline void tile(const float* a, int64_t a_row, int64_t a_inner, const float* b, int64_t b_row, int64_t inner,
                 float* out, int64_t out_row, bool overwrite) {
    vec acc[R][V];
    for (int i = 0; i < R; ++i)
        for (int c = 0; c < V; ++c) acc[i][c] = overwrite ? vec{} : load(out + i * out_row + c * W);
    for (int64_t k = 0; k < inner; ++k) {
        vec x[V];
        for (int c = 0; c < V; ++c) x[c] = load(b + k * b_row + c * W);
        for (int i = 0; i < R; ++i) {
            vec y = splat(a[i * a_row + k * a_inner]);
            for (int c = 0; c < V; ++c) acc[i][c] += y * x[c];
        }
    }
    for (int i = 0; i < R; ++i)
        for (int c = 0; c < V; ++c) store(out + i * out_row + c * W, acc[i][c]);
}

// out (columns, rows) = in (rows, columns) transposed; rows and columns are multiples of SIDE.
inline void transpose(const float* in, int64_t in_row, int64_t rows, int64_t columns, float* out, int64_t out_row) {
    for (int64_t i = 0; i < rows; i += SIDE)
        for (int64_t j = 0; j < columns; j += SIDE) {
            const float* p = in + i * in_row + j;
            float* q = out + j * out_row + i;
#if defined(__AVX2__)
            __m256 x[8], y[8];
            for (int r = 0; r < 8; ++r) x[r] = _mm256_loadu_ps(p + r * in_row);
            for (int r = 0; r < 8; r += 2) {
                y[r] = _mm256_unpacklo_ps(x[r], x[r + 1]);
                y[r + 1] = _mm256_unpackhi_ps(x[r], x[r + 1]);
            }
            for (int r = 0; r < 8; r += 4) {
                x[r] = _mm256_shuffle_ps(y[r], y[r + 2], 0x44);
                x[r + 1] = _mm256_shuffle_ps(y[r], y[r + 2], 0xee);
                x[r + 2] = _mm256_shuffle_ps(y[r + 1], y[r + 3], 0x44);
                x[r + 3] = _mm256_shuffle_ps(y[r + 1], y[r + 3], 0xee);
            }
            for (int r = 0; r < 4; ++r) {
                _mm256_storeu_ps(q + r * out_row, _mm256_permute2f128_ps(x[r], x[r + 4], 0x20));
                _mm256_storeu_ps(q + (r + 4) * out_row, _mm256_permute2f128_ps(x[r], x[r + 4], 0x31));
            }
#else
            for (int r = 0; r < SIDE; ++r)
                for (int c = 0; c < SIDE; ++c) q[c * out_row + r] = p[r * in_row + c];
#endif
        }
}

}  // namespace
