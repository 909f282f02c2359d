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

// log M = log n_c + h·μ_c of at most ROWS queries h[0..rows-1], rows of the output `pitch` floats apart. Means are stored
// in panels, (cells / PANEL, dim, PANEL), and log n is padded to match, as is the output: the product needs no horizontal
// sum. x: scratch, (dim, ROWS).
inline void log_masses(const float* panels, const float* log_size, int64_t cells, int64_t dim, const float* const* h,
                       int64_t rows, float* x, float* out, int64_t pitch) {
    float* to[ROWS];
    for (int64_t l = 0; l < rows; ++l)
        for (int64_t i = 0; i < dim; ++i) x[i * rows + l] = h[l][i];
    for (int64_t c = 0; c < cells; c += PANEL, panels += dim * PANEL) {
        for (int64_t l = 0; l < rows; ++l) to[l] = out + l * pitch + c;
        panel_products<ROWS>(rows, panels, log_size + c, dim, x, to);
    }
}

}  // namespace
