// Weights of cells (groups of n_c candidates) from their means, log M_c = log n_c + h·μ_c, and scaled queries
// τ h / ‖h‖.
//
// With an int8 copy of the candidates, means and queries are quantized too. The generic level multiplies the rounded
// numbers.
#pragma once

#include "sampling/int8.h"

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

// Queries per pass over a panel: as many as the registers hold.
constexpr int64_t ROWS = W == 16 ? 12 : W == 8 ? 6 : 3;

// The means of cells in panels, padded to whole panels with zeros, as are the outputs: products need no horizontal sum.
struct MeanPanels {
    const float* mean;          // (cells / PANEL, dim, PANEL)
    const uint8_t* copy;        // (cells / PANEL, dim / 4, PANEL, 4)  int8 means, as in int8.h; null: use the means
    const float* scale;         // (cells)  scales of the copy
    const float* log_size;      // (cells)
    int64_t cells, dim;
};

// Up to ROWS queries, with their coordinates side by side: one pointer, where a row for each would not fit the
// registers.
struct QueryGroup {
    int64_t rows;
    float* x;                   // (dim, rows), or with the copy (dim / 4, rows, 4) query_int; room for (dim + 4) ROWS floats
    float scale[ROWS];
    int32_t zeros[ROWS];        // 128 Σ y, as in int8.h
};

// h·μ_c + log n_c of R queries and the means of panel p. Each output has room for a panel.
template <int64_t R> inline void panel_products(const MeanPanels& m, int64_t p, const QueryGroup& queries,
                                                float* const* out) {
    const int64_t c = p * PANEL;
#if defined(EMBTRAIN_FOURS)
    if (m.copy) {
        const int64_t fours = (m.dim + 3) / 4;
        for (int64_t v = 0; v < PANEL; v += W) {
            const uint8_t* b = m.copy + (p * fours * PANEL + v) * 4;
            const query_int* y = (const query_int*)queries.x;
            ivec s[R][PARTS] = {};
            for (int64_t i = 0; i < fours; ++i, b += PANEL * 4, y += R * 4) {
                ivec means[PARTS];
                widen_fours(b, means);
                for (int64_t l = 0; l < R; ++l) add_fours(s[l], means, y + l * 4);
            }
            for (int64_t l = 0; l < R; ++l)
                store(out[l] + v, load(m.log_size + c + v) +
                                  __builtin_convertvector(sum_fours(s[l]) - splat(queries.zeros[l]), vec) *
                                  (queries.scale[l] * load(m.scale + c + v)));
        }
        return;
    }
#endif
    constexpr int64_t N_VECS = PANEL / W;
    const float *panel = m.mean + p * m.dim * PANEL, *x = queries.x;
    vec o[R][N_VECS];
    for (int64_t v = 0; v < N_VECS; ++v)
        for (int64_t l = 0; l < R; ++l) o[l][v] = load(m.log_size + c + v * W);
    for (int64_t i = 0; i < m.dim; ++i)
        for (int64_t v = 0; v < N_VECS; ++v) {
            const vec mean = load(panel + i * PANEL + v * W);
            for (int64_t l = 0; l < R; ++l) o[l][v] += splat(x[i * R + l]) * mean;
        }
    for (int64_t l = 0; l < R; ++l)
        for (int64_t v = 0; v < N_VECS; ++v) store(out[l] + v * W, o[l][v]);
}

// The same for all panels, rows of the output `pitch` floats apart.
template <int64_t R> inline void log_masses(const MeanPanels& m, const QueryGroup& queries, float* out, int64_t pitch) {
    if constexpr (R > 1) if (queries.rows < R) return log_masses<R - 1>(m, queries, out, pitch);
    for (int64_t p = 0; p * PANEL < m.cells; ++p) {
        float* to[R];
        for (int64_t l = 0; l < R; ++l) to[l] = out + l * pitch + p * PANEL;
        panel_products<R>(m, p, queries, to);
    }
}

// Puts the queries h[0..rows-1] side by side.
inline void interleave(const MeanPanels& m, const float* const* h, QueryGroup& queries) {
    const int64_t rows = queries.rows;
    if (m.copy) std::memset(queries.x, 0, size_t((m.dim + 4) * rows) * sizeof(float));
    for (int64_t l = 0; l < rows; ++l) {
        if (!m.copy) {
            for (int64_t i = 0; i < m.dim; ++i) queries.x[i * rows + l] = h[l][i];
            continue;
        }
        int32_t sum = 0;
#if defined(EMBTRAIN_FOURS)
        query_int* const y = (query_int*)queries.x + l * 4;
        queries.scale[l] = quantize_each(h[l], m.dim, [&](int64_t i, int32_t z) {
            y[i / 4 * rows * 4 + i % 4] = query_int(z), sum += z;
        });
#else
        float* const x = queries.x + l;
        queries.scale[l] = quantize_each(h[l], m.dim, [&](int64_t i, int32_t z) { x[i * rows] = float(z); });
        for (int64_t i = 0; i < m.dim; ++i) x[i * rows] *= queries.scale[l];
#endif
        queries.zeros[l] = ZERO * sum;
    }
}

}  // namespace
