// Random Fourier features of several vectors at once, with angles in double.
//
//     φ(x) = D^{-1/2} [cos w_1·x, …, cos w_D·x, sin w_1·x, …, sin w_D·x]
#pragma once

#include "sampling/masses.h"

namespace {

typedef double wide __attribute__((vector_size(4 * W)));
typedef double wide_anywhere __attribute__((vector_size(4 * W), aligned(8), may_alias));
constexpr int64_t HALF = W / 2;  // doubles of a vector

// cos and sin of W angles, with an error of 1e-7 for angles up to about 1e9. An inf or NaN angle gives NaN.
//
//   a = n π/2 + r, |r| <= π/4; polynomials fitted to 6e-9
inline void cos_sin(const double* angle, float* cosine, float* sine) {
    // 1.5 · 2^52: adding it leaves the rounded integer in the low bits
    constexpr double MAGIC = 6755399441055744.0;
    for (int64_t i = 0; i < W; ++i) {
        const double shifted = angle[i] * 0.6366197723675814 + MAGIC, n = shifted - MAGIC;
        int64_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        const float r = float((angle[i] - n * 1.5707963267948966) - n * 6.123233995736766e-17), q = r * r;
        const float s = r
            + r * q * (-0.16666655242443085f + q * (0.008332165889441967f + q * -0.00019515953317750245f));
        const float c = 1.f - 0.5f * q +
                        q * q * (0.04166664555668831f + q * (-0.0013887342065572739f + q * 2.4435852537862957e-05f));
        const float cos_value = bits & 1 ? s : c, sin_value = bits & 1 ? c : s;
        cosine[i] = (bits + 1) & 2 ? -cos_value : cos_value;
        sine[i] = bits & 2 ? -sin_value : sin_value;
    }
}

constexpr int64_t AT_ONCE = 4;   // frequencies per pass
constexpr int64_t HALVES = 3;    // half vectors of x per pass: as many sums as the registers hold
constexpr int64_t LANES = HALVES * HALF;

// w·x for AT_ONCE vectors w (AT_ONCE, dim) and H half vectors of x. Coordinate i of x is at x + i room.
template <int64_t H> inline void angles(const double* w, int64_t dim, const double* x, int64_t padded_n,
                                        double* angle) {
    wide sum[AT_ONCE][H] = {};
    for (int64_t i = 0; i < dim; ++i, x += padded_n) {
        for (int64_t h = 0; h < H; ++h) {
            const wide a = *(const wide_anywhere*)(x + h * HALF);
            for (int64_t l = 0; l < AT_ONCE; ++l) sum[l][h] += a * w[l * dim + i];
        }
    }
    for (int64_t l = 0; l < AT_ONCE; ++l)
        for (int64_t h = 0; h < H; ++h) *(wide_anywhere*)(angle + l * LANES + h * HALF) = sum[l][h];
}

// φ of n vectors x, (n, 2 D), with w (D, d). x is stored by dimension, (d, padded_n), padded_n a multiple of W.
// w_double is scratch for AT_ONCE vectors w, converted to double once for all x.
inline void fourier(const float* w, int64_t frequencies, int64_t dim, const double* x, int64_t n, int64_t padded_n,
                    double* w_double,
                    float* phi) {
    const float norm = float(1 / std::sqrt(double(frequencies)));
    for (int64_t j = 0; j < frequencies; j += AT_ONCE) {
        for (int64_t l = 0; l < AT_ONCE; ++l) {
            const float* row = w + std::min(j + l, frequencies - 1) * dim;
            std::copy_n(row, dim, w_double + l * dim);
        }
        for (int64_t from = 0; from < n; from += LANES) {
            double angle[AT_ONCE * LANES] = {};
            float cosine[AT_ONCE * LANES], sine[AT_ONCE * LANES];
            if (n - from > 2 * HALF) angles<3>(w_double, dim, x + from, padded_n, angle);
            else if (n - from > HALF) angles<2>(w_double, dim, x + from, padded_n, angle);
            else angles<1>(w_double, dim, x + from, padded_n, angle);
            for (int64_t i = 0; i < AT_ONCE * LANES; i += W) cos_sin(angle + i, cosine + i, sine + i);
            const int64_t n_frequencies = std::min(AT_ONCE, frequencies - j);
            for (int64_t q = 0; q < std::min(LANES, n - from); ++q) {
                float* out = phi + (from + q) * 2 * frequencies + j;
                for (int64_t l = 0; l < n_frequencies; ++l) {
                    out[l] = cosine[l * LANES + q] * norm;
                    out[frequencies + l] = sine[l * LANES + q] * norm;
                }
            }
        }
    }
}

}  // namespace
