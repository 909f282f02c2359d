// Masses of cells by their means: log M_c = log n_c + h·μ_c, and questions as they are scored: τ h / ‖h‖.
#pragma once

#include "draw.h"

namespace {

constexpr float LEAST = 1e-12f;    // the shortest norm that is divided by, as in torch

// τ h / ‖h‖ of the questions (n, d).
inline void scale(const float* h, int64_t n, int64_t d, double tau, float* out) {
    for (int64_t q = 0; q < n; ++q, h += d, out += d) {
        double square = 0;
        for (int64_t i = 0; i < d; ++i) square += double(h[i]) * h[i];
        const double by = tau / std::max(std::sqrt(square), double(LEAST));
        for (int64_t i = 0; i < d; ++i) out[i] = float(h[i] * by);
    }
}

constexpr int64_t PANEL = 16;      // means that lie side by side, each number of all of them in a row

// log M = log n_c + h·μ_c of the questions that are asked. Means come in panels, (cells / PANEL, dim, PANEL), log n padded
// as they are: so a product needs no sum across a vector. A panel is read for ROWS questions at once.
inline void log_masses(const float* panels, const float* log_size, int64_t cells, int64_t dim, const float* h,
                       const int64_t* asked, int64_t n, float* out) {
    constexpr int64_t ROWS = 4, VECS = PANEL / W;
    for (int64_t c = 0; c < cells; c += PANEL, panels += dim * PANEL)
        for (int64_t a = 0; a < n; a += ROWS) {
            const float* x[ROWS];
            for (int64_t l = 0; l < ROWS; ++l) x[l] = h + asked[std::min(a + l, n - 1)] * dim;
            vec o[ROWS][VECS];
            for (int64_t v = 0; v < VECS; ++v)
                for (int64_t l = 0; l < ROWS; ++l) o[l][v] = load(log_size + c + v * W);
            for (int64_t i = 0; i < dim; ++i)
                for (int64_t v = 0; v < VECS; ++v) {
                    const vec m = load(panels + i * PANEL + v * W);
                    for (int64_t l = 0; l < ROWS; ++l) o[l][v] += splat(x[l][i]) * m;
                }
            for (int64_t l = 0; l < ROWS && a + l < n; ++l) {
                float of[PANEL];
                for (int64_t v = 0; v < VECS; ++v) store(of + v * W, o[l][v]);
                std::copy_n(of, std::min(PANEL, cells - c), out + asked[a + l] * cells + c);
            }
        }
}

}  // namespace
