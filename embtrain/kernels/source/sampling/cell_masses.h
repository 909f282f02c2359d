// Weights of cells (groups of n_c candidates) from their means, log M_c = log n_c + h·μ_c, and scaled queries
// τ h / ‖h‖.
#pragma once

#include "sampling/masses.h"

namespace {

constexpr float MIN_NORM = 1e-12f;    // the smallest norm to divide by, as in torch

// τ h / ‖h‖ of the queries (n, d).
inline void scale(const float* h, int64_t n, int64_t d, double tau, float* out) {
    for (int64_t q = 0; q < n; ++q, h += d, out += d) {
        double square = 0;
        for (int64_t i = 0; i < d; ++i) square += double(h[i]) * h[i];
        const double factor = tau / std::max(std::sqrt(square), double(MIN_NORM));
        for (int64_t i = 0; i < d; ++i) out[i] = float(h[i] * factor);
    }
}

constexpr int64_t PANEL = 16;      // means interleaved in one panel: the same coordinate of all of them is contiguous

// log n_c + h·μ_c for the means of one panel and R queries, whose coordinates x (dim, R) are side by side: one pointer,
// where a row for each would not fit the registers. Each output has room for a panel.
template <int64_t R> inline void panel_products(const float* panel, const float* log_size, int64_t dim, const float* x,
                                                float* const* out) {
    constexpr int64_t N_VECS = PANEL / W;
    vec o[R][N_VECS];
    for (int64_t v = 0; v < N_VECS; ++v)
        for (int64_t l = 0; l < R; ++l) o[l][v] = load(log_size + v * W);
    for (int64_t i = 0; i < dim; ++i)
        for (int64_t v = 0; v < N_VECS; ++v) {
            const vec m = load(panel + i * PANEL + v * W);
            for (int64_t l = 0; l < R; ++l) o[l][v] += splat(x[i * R + l]) * m;
        }
    for (int64_t l = 0; l < R; ++l)
        for (int64_t v = 0; v < N_VECS; ++v) store(out[l] + v * W, o[l][v]);
}

// queries per pass over a panel: as many as the registers hold
constexpr int64_t ROWS = W == 16 ? 12 : W == 8 ? 6 : 3;

template <int64_t R> inline void panel_products(int64_t rows, const float* panel, const float* log_size, int64_t dim,
                                                const float* x, float* const* out) {
    if constexpr (R > 1) if (rows < R) return panel_products<R - 1>(rows, panel, log_size, dim, x, out);
    panel_products<R>(panel, log_size, dim, x, out);
}

// log M = log n_c + h·μ_c for the given queries. Means are stored in panels, (cells / PANEL, dim, PANEL), and log n is
// padded to match: the product needs no horizontal sum. x: scratch, (ROWS, dim).
inline void log_masses(const float* panels, const float* log_size, int64_t cells, int64_t dim, const float* h,
                       const int64_t* query_ids, int64_t n, float* x, float* out) {
    const int64_t groups = (n + ROWS - 1) / ROWS;
    for (int64_t g = 0; g < groups; ++g) {
        const int64_t from = g * n / groups, rows = (g + 1) * n / groups - from;
        float *to[ROWS], padded_row[ROWS][PANEL];
        for (int64_t l = 0; l < rows; ++l) {
            const float* const row = h + query_ids[from + l] * dim;
            for (int64_t i = 0; i < dim; ++i) x[i * rows + l] = row[i];
        }
        const float* panel = panels;
        for (int64_t c = 0; c < cells; c += PANEL, panel += dim * PANEL) {
            const bool is_whole = c + PANEL <= cells;
            for (int64_t l = 0; l < rows; ++l) to[l] = is_whole ? out + query_ids[from + l] * cells + c : padded_row[l];
            panel_products<ROWS>(rows, panel, log_size + c, dim, x, to);
            for (int64_t l = 0; !is_whole && l < rows; ++l)
                std::copy_n(padded_row[l], cells - c, out + query_ids[from + l] * cells + c);
        }
    }
}

}  // namespace
