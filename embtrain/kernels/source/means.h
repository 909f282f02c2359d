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

// h·μ of two questions and four means, (2, 4).
inline void eight(const float* const* h, const float* const* mean, int64_t n, half* out) {
    vec s[2][4] = {};
    int64_t i = 0;
    for (; i + W <= n; i += W) {
        const vec x = load(h[0] + i), y = load(h[1] + i);
        for (int l = 0; l < 4; ++l) {
            const vec m = load(mean[l] + i);
            s[0][l] += x * m;
            s[1][l] += y * m;
        }
    }
    for (int q = 0; q < 2; ++q) out[q] = sums(fold(s[q][0]), fold(s[q][1]), fold(s[q][2]), fold(s[q][3]));
    for (; i < n; ++i)
        for (int q = 0; q < 2; ++q)
            for (int l = 0; l < 4; ++l) out[q][l] += h[q][i] * mean[l][i];
}

// log M = log n_c + h·μ_c of the questions that are asked. Means are read once for SOME questions, which stay near.
inline void log_masses(const float* mean, const float* log_size, int64_t cells, int64_t dim, const float* h,
                const int64_t* asked, int64_t n, float* out) {
    constexpr int64_t SOME = 32;
    for (int64_t from = 0; from < n; from += SOME)
        for (int64_t c = 0; c < cells; c += 4) {
            const float* four[4];
            for (int64_t l = 0; l < 4; ++l) four[l] = mean + std::min(c + l, cells - 1) * dim;
            const int64_t until = std::min(n, from + SOME);
            for (int64_t a = from; a < until; a += 2) {
                const int64_t pair[2] = {asked[a], asked[std::min(a + 1, until - 1)]};
                const float* both[2] = {h + pair[0] * dim, h + pair[1] * dim};
                half o[2];
                eight(both, four, dim, o);
                for (int q = 0; q < 2; ++q)
                    for (int64_t l = 0; l < 4 && c + l < cells; ++l)
                        out[pair[q] * cells + c + l] = log_size[c + l] + o[q][l];
            }
        }
}

}  // namespace
