// Passes over entity rows, padded with zeros to whole vectors: scores against q, and updates.
#pragma once

#include <cmath>

#include "training/triples/triples.h"
#include "training/skipgram/skipgram.h"
#include "training/rows.h"

namespace {

inline vec sign(vec x) {  // -1, 0 or 1: the padding must stay 0
    const ivec unit_bits = (ivec)splat(1.f), bit = splat((int32_t)0x80000000);
    return (vec)((x != vec{}) & (((ivec)x & bit) | unit_bits));
}

template <int S>
inline void accumulate(vec& acc, vec q, vec b) {
    if (S == DOT) acc += q * b;
    else if (S == L1) acc += abs_of(q - b);
    else { const vec x = q - b; acc += x * x; }
}

template <int S>
inline float score_from(float total) { return S == DOT ? total : S == L1 ? -total : -std::sqrt(total); }

// While rows are scored, the rows `next` of the next unit are prefetched.
template <int S, int N>
inline void scores_n(const float* const* row, const float* const* next, const float* q, int64_t d, float* s) {
    vec acc[N] = {};
    for (int64_t i = 0; i < d; i += W) {
        if (i % 16 == 0)
            for (int n = 0; n < N; ++n) prefetch(next[n] + i);
        const vec x = load(q + i);
        for (int n = 0; n < N; ++n) accumulate<S>(acc[n], x, load(row[n] + i));
    }
    half part[4] = {};
    for (int n = 0; n < N; ++n) part[n] = fold(acc[n]);
    const half total = sums(part[0], part[1], part[2], part[3]);
    for (int n = 0; n < N; ++n) s[n] = score_from<S>(total[n]);
}

template <int S>
inline void scores(const float* const* row, const float* const* next, int64_t n, const float* q, int64_t d, float* s) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) scores_n<S, 4>(row + i, next + i, q, d, s + i);
    switch (n - i) {
        case 3: scores_n<S, 3>(row + i, next + i, q, d, s + i); break;
        case 2: scores_n<S, 2>(row + i, next + i, q, d, s + i); break;
        case 1: scores_n<S, 1>(row + i, next + i, q, d, s + i); break;
    }
}

// For a score s with slope g: out += g ∂s/∂q, row -= rate · g ∂s/∂row. L2 uses f = g / distance instead of g, also in
// the rate.
template <int S, int C>
inline void move_n(float* const* row, const float* f, const float* step, int64_t n, const float* q, float* out) {
    vec x[C], y[C];
    for (int c = 0; c < C; ++c) { x[c] = load(q + c * W); y[c] = load(out + c * W); }
    for (int64_t i = 0; i < n; ++i) {
        const vec a = splat(f[i]), b = splat(step[i]);
        float* const p = row[i];
        for (int c = 0; c < C; ++c) {
            const vec v = load(p + c * W);
            if (S == DOT) {
                y[c] += a * v;
                store(p + c * W, v - b * x[c]);
            } else {
                const vec direction = S == L1 ? sign(x[c] - v) : x[c] - v;
                y[c] -= a * direction;
                store(p + c * W, v - b * direction);
            }
        }
    }
    for (int c = 0; c < C; ++c) store(out + c * W, y[c]);
}

// Update n rows in turn; they may repeat. `row` is overwritten.
template <int S>
inline void move(float** row, const float* f, const float* step, int64_t n, const float* q, int64_t d, float* out) {
    for (int64_t offset = 0; offset < d;) {
        const int64_t left = (d - offset) / W, width = left >= 4 ? 4 : left;
        switch (width) {
            case 4: move_n<S, 4>(row, f, step, n, q + offset, out + offset); break;
            case 3: move_n<S, 3>(row, f, step, n, q + offset, out + offset); break;
            case 2: move_n<S, 2>(row, f, step, n, q + offset, out + offset); break;
            case 1: move_n<S, 1>(row, f, step, n, q + offset, out + offset); break;
        }
        for (int64_t i = 0; i < n; ++i) row[i] += width * W;
        offset += width * W;
    }
}

// The factor that `move` uses for g, and the mean square of g ∂s/∂row over the unpadded dimensions.
template <int S>
inline float factor(float g, float s) { return S != L2 ? g : s < 0.f ? -g / s : 0.f; }

template <int S>
inline float mean_square(float g, float f, float s, float q_square, float dim) {
    return S == L1 ? g * g : S == L2 ? f * f * (s * s) / dim : g * g * q_square / dim;
}

// Normalize a row to length 1, or to at most 1.
inline void project(float* row, int64_t d, int64_t constraint) {
    if (constraint == FREE) return;
    const float length = std::sqrt(square(row, d));
    if (constraint == BALL && length <= 1.f) return;
    const vec inverse = splat(1.f / (length > 1e-12f ? length : 1e-12f));
    for (int64_t i = 0; i < d; i += W) store(row + i, load(row + i) * inverse);
}

}  // namespace
