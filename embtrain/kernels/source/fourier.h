// Random Fourier features of several vectors at once, angles in double.
//
//     φ(x) = D^{-1/2} [cos w_1·x, …, cos w_D·x, sin w_1·x, …, sin w_D·x]
#pragma once

#include "draw.h"

namespace {

typedef double wide __attribute__((vector_size(4 * W)));
constexpr int64_t HALF = W / 2;  // doubles of a vector

// cos and sin of W angles, to 1e-7 of an angle that is no larger than about 1e9. An angle that is no number stays none.
// a = n π/2 + r, |r| <= π/4; polynomials fitted to 6e-9.
inline void cos_sin(const double* angle, float* cosine, float* sine) {
    constexpr double MAGIC = 6755399441055744.0;  // 1.5 · 2^52: adding it rounds to an integer, which stands in the low bits
    for (int64_t i = 0; i < W; ++i) {
        const double shifted = angle[i] * 0.6366197723675814 + MAGIC, n = shifted - MAGIC;
        int64_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        const float r = float((angle[i] - n * 1.5707963267948966) - n * 6.123233995736766e-17), q = r * r;
        const float s = r + r * q * (-0.16666655242443085f + q * (0.008332165889441967f + q * -0.00019515953317750245f));
        const float c = 1.f - 0.5f * q +
                        q * q * (0.04166664555668831f + q * (-0.0013887342065572739f + q * 2.4435852537862957e-05f));
        const float across = bits & 1 ? s : c, up = bits & 1 ? c : s;
        cosine[i] = (bits + 1) & 2 ? -across : across;
        sine[i] = bits & 2 ? -up : up;
    }
}

// φ of n vectors x, (n, 2 D), with w (D, d). x lies with the dimension first, (d, room), room a multiple of W.
inline void fourier(const float* w, int64_t frequencies, int64_t dim, const double* x, int64_t n, int64_t room, float* phi) {
    constexpr int64_t ROWS = 4;
    const float by = float(1 / std::sqrt(double(frequencies)));
    for (int64_t from = 0; from < n; from += W)
        for (int64_t j = 0; j < frequencies; j += ROWS) {
            const float* row[ROWS];
            for (int64_t l = 0; l < ROWS; ++l) row[l] = w + std::min(j + l, frequencies - 1) * dim;
            wide low[ROWS] = {}, high[ROWS] = {};
            for (int64_t i = 0; i < dim; ++i) {
                wide a, b;
                std::memcpy(&a, x + i * room + from, sizeof a);
                std::memcpy(&b, x + i * room + from + HALF, sizeof b);
                for (int64_t l = 0; l < ROWS; ++l) low[l] += a * double(row[l][i]), high[l] += b * double(row[l][i]);
            }
            for (int64_t l = 0; l < ROWS && j + l < frequencies; ++l) {
                double angle[W];
                float cosine[W], sine[W];
                std::memcpy(angle, &low[l], sizeof low[l]);
                std::memcpy(angle + HALF, &high[l], sizeof high[l]);
                cos_sin(angle, cosine, sine);
                for (int64_t q = 0; q < W && from + q < n; ++q) {
                    float* out = phi + (from + q) * 2 * frequencies + j + l;
                    out[0] = cosine[q] * by, out[frequencies] = sine[q] * by;
                }
            }
        }
}

}  // namespace
