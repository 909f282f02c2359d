// GEMM of small matrices whose rows are padded to whole vectors: out = A · B with the columns of B along the vector,
// which needs no horizontal sum.
#pragma once

#include "core/tiles.h"
#include "training/rows.h"

namespace {

constexpr int TILE = 4;                  // `rows` of a product are a multiple of it
constexpr int WIDE = W == 16 ? 4 : 3;    // vectors of a tile at most

// V vectors of all rows of `out`, in the largest tiles that leave registers for the loop.
template <int V, class Queue>
inline void strip(const float* a, int64_t a_row, int64_t a_inner, const float* b, int64_t b_row, int64_t rows,
                  int64_t inner, float* out, int64_t out_row, bool overwrite, Queue& queue) {
    constexpr int MOST = V == 1 || (V == 2 && W == 16) ? (W < 8 ? W : 8) : TILE;
    int64_t i = 0;
    for (; i + MOST <= rows; i += MOST) {
        queue.prefetch_lines();
        tile<MOST, V>(a + i * a_row, a_row, a_inner, b, b_row, inner, out + i * out_row, out_row, overwrite);
    }
    for (; i < rows; i += TILE) {
        queue.prefetch_lines();
        tile<TILE, V>(a + i * a_row, a_row, a_inner, b, b_row, inner, out + i * out_row, out_row, overwrite);
    }
}

// out (rows, columns) = A (rows, inner) · B (inner, columns), or += unless `overwrite`. rows: a multiple of TILE;
// columns: a multiple of W. Element (i, k) of A is a[i·a_row + k·a_inner].
template <class Queue>
inline void product(const float* a, int64_t a_row, int64_t a_inner, const float* b, int64_t b_row, int64_t rows,
                    int64_t inner, int64_t columns, float* out, int64_t out_row, bool overwrite, Queue& queue) {
    const auto strips = [&](auto count, int64_t j) {
        constexpr int V = decltype(count)::value;
        strip<V>(a, a_row, a_inner, b + j, b_row, rows, inner, out + j, out_row, overwrite, queue);
        return j + V * W;
    };
    int64_t j = 0;
    for (; columns - j >= WIDE * W;) j = strips(std::integral_constant<int, WIDE>{}, j);
    if (columns - j >= 3 * W) j = strips(std::integral_constant<int, 3>{}, j);
    if (columns - j >= 2 * W) j = strips(std::integral_constant<int, 2>{}, j);
    if (columns - j >= W) strips(std::integral_constant<int, 1>{}, j);
}

}  // namespace
