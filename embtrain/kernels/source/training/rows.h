// Passes over table rows: dot products with u, and updates of the rows from their slopes.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/simd_math.h"

namespace {

constexpr int LINE_FLOATS = 16;     // floats of a cache line
constexpr int STRIP = 32;   // floats between two prefetches of one row

// How the rows `next` are prefetched while others are processed:
//   EARLY  a window or more ahead, into the second cache: one cache line each per STRIP floats, the first lines by
//          `dots`, the others by the loops of `move`
//   NEAR   a few rows ahead, into the first cache, all by `dots`
// A single burst would fill the line-fill buffers and delay other loads.
enum class Prefetch { EARLY, NEAR };

inline void prefetch(const float* p) { __builtin_prefetch(p, 1, 3); }

// Into the second cache: in the first, these rows would displace the current ones.
inline void prefetch_early(const float* p) { __builtin_prefetch(p, 0, 2); }

// Rows prefetched during other work: some cache lines at a time.
struct PrefetchQueue {
    float* const* row = nullptr;
    int64_t rows = 0, dim = 0, quota = 0, d = 0;

    void prefetch_lines() {
        for (int64_t i = 0; i < quota && rows > 0; ++i) {
            prefetch_early(*row + d);
            d += LINE_FLOATS;
            if (d >= dim) { d = 0; ++row; --rows; }
        }
    }

    void prefetch_all() {
        while (rows > 0) prefetch_lines();
    }
};

constexpr int PART = W == 16 ? 8 : 7;  // vectors of a sum that stay in registers over all rows

// Call part(C, d, n) for C vectors from d on, of which the last has n floats and the others W.
template <int MOST = PART, class Part>
inline INLINE void in_parts(int64_t dim, Part part) {
    int64_t d = 0;
    for (; d + MOST * W < dim; d += MOST * W) part(std::integral_constant<int, MOST>{}, d, (int64_t)W);
    const int64_t n = (dim - d - 1) % W + 1;
    switch ((dim - d - 1) / W) {
        case 7: part(std::integral_constant<int, std::min(MOST, 8)>{}, d, n); break;
        case 6: part(std::integral_constant<int, std::min(MOST, 7)>{}, d, n); break;
        case 5: part(std::integral_constant<int, std::min(MOST, 6)>{}, d, n); break;
        case 4: part(std::integral_constant<int, std::min(MOST, 5)>{}, d, n); break;
        case 3: part(std::integral_constant<int, 4>{}, d, n); break;
        case 2: part(std::integral_constant<int, 3>{}, d, n); break;
        case 1: part(std::integral_constant<int, 2>{}, d, n); break;
        case 0: part(std::integral_constant<int, 1>{}, d, n); break;
    }
}

// Read and write C vectors of a row of a table, the last with n floats.
template <int C>
inline void read(const float* p, int64_t n, vec* x) {
    UNROLL for (int c = 0; c < C - 1; ++c) x[c] = load(p + c * W);
    x[C - 1] = load_first(p + (C - 1) * W, n);
}

template <int C>
inline void write(float* p, int64_t n, const vec* x) {
    UNROLL for (int c = 0; c < C - 1; ++c) store(p + c * W, x[c]);
    store_first(p + (C - 1) * W, x[C - 1], n);
}

// to -= a y, for C vectors of a row of a table
template <int C>
inline void subtract(float* to, int64_t n, float a, const vec* y) {
    vec z[C];
    read<C>(to, n, z);
    UNROLL for (int c = 0; c < C; ++c) z[c] -= splat(a) * y[c];
    write<C>(to, n, z);
}

// Prefetch the cache lines that begin among the W floats at place d, if the rows are prefetched NEAR.
template <Prefetch P>
inline void prefetch_vectors(float* const* next, int64_t d) {
    if (P == Prefetch::NEAR && d % LINE_FLOATS == 0) UNROLL for (int i = 0; i < 4; ++i) prefetch(next[i] + d);
}

// The products of u with four rows, and a part of the prefetches of the rows `next`.
template <Prefetch P>
inline half dots_4(float* const* row, float* const* next, const float* u, int64_t dim) {
    vec y[4] = {};
    int64_t d = 0;
    for (; d + STRIP <= dim; d += STRIP)
        UNROLL for (int e = 0; e < STRIP; e += W) {
            prefetch_vectors<P>(next, d + e);
            for (int i = e / (STRIP / 4); P == Prefetch::EARLY && i < (e + W) / (STRIP / 4); ++i)
                prefetch_early(next[i] + d / 2);
            const vec x = load(u + d + e);
            for (int i = 0; i < 4; ++i) y[i] += x * load(row[i] + d + e);
        }
    for (; d + W <= dim; d += W) {
        prefetch_vectors<P>(next, d);
        const vec x = load(u + d);
        for (int i = 0; i < 4; ++i) y[i] += x * load(row[i] + d);
    }
    if (d < dim) {
        prefetch_vectors<P>(next, d);
        const vec x = load_first(u + d, dim - d);
        for (int i = 0; i < 4; ++i) y[i] += x * load_first(row[i] + d, dim - d);
    }
    return sums(y[0], y[1], y[2], y[3]);
}

// The same for rows of C vectors, the last with `rest` floats, where u stays in registers.
template <Prefetch P, int C>
inline half dots_4(float* const* row, float* const* next, const vec* u, int64_t rest, int64_t dim) {
    const int64_t prefetched = dim / STRIP * (STRIP / 2);
    vec y[4] = {};
    UNROLL for (int c = 0; c < C - 1; ++c) {
        prefetch_vectors<P>(next, c * W);
        UNROLL for (int i = 0; i < 4; ++i) {
            if (P == Prefetch::EARLY && c * W % STRIP == 0 && c * W / 2 < prefetched)
                prefetch_early(next[i] + c * W / 2);
            y[i] += u[c] * load(row[i] + c * W);
        }
    }
    prefetch_vectors<P>(next, (C - 1) * W);
    UNROLL for (int i = 0; i < 4; ++i) y[i] += u[C - 1] * load_first(row[i] + (C - 1) * W, rest);
    return sums(y[0], y[1], y[2], y[3]);
}

// s_i = u · row_i, written in whole vectors, which the next loads can receive from the store. Up to three rows beyond
// n are read.
template <class Four>
inline INLINE void dots_by(int64_t n, float* s, Four four) {
    for (int64_t i = 0; i < n; i += W) {
        half part[W / 4];
        UNROLL for (int p = 0; p < W / 4; ++p) part[p] = i + 4 * p < n ? four(i + 4 * p) : half{};
        store(s + i, join(part));
    }
}

template <Prefetch P>
inline void dots(float* const* row, float* const* next, int64_t n, const float* u, int64_t dim, float* s) {
    for (int64_t d = 0; P == Prefetch::NEAR && d < dim; d += LINE_FLOATS) prefetch(next[-1] + d);
    if (dim > PART * W) {
        dots_by(n, s, [&](int64_t i) INLINE { return dots_4<P>(row + i, next + i, u, dim); });
        return;
    }
    in_parts(dim, [&](auto count, int64_t, int64_t rest) INLINE {
        constexpr int C = decltype(count)::value;
        vec x[C];
        read<C>(u, rest, x);
        dots_by(n, s, [&](int64_t i) INLINE { return dots_4<P, C>(row + i, next + i, x, rest, dim); });
    });
}

// Each row is read, then moved: row_i -= step_i u; out = Σ g_i row_i. If PLAIN, step_i is lr g_i and out = u - lr times
// the sum.
template <Prefetch P, bool PLAIN>
inline void move(float* const* row, float* const* next, const float* g, const float* step, int64_t n, const float* u,
                 int64_t dim, float* out, float lr) {
    const int64_t prefetched = dim / STRIP * (STRIP / 2);  // by `dots`
    in_parts<W == 16 ? PART : 4>(dim, [&](auto count, int64_t d, int64_t rest) INLINE {
        constexpr int C = decltype(count)::value, LINES = (C * W + 31) / 32;
        const int64_t begin = prefetched + round_up(d / 2, LINE_FLOATS);
        vec x[C], y[C], z[C];
        read<C>(u + d, rest, x);
        UNROLL for (int c = 0; c < C; ++c) y[c] = vec{};
        for (int64_t i = 0; i < n; ++i) {
            UNROLL for (int l = 0; P == Prefetch::EARLY && l < LINES; ++l)
                prefetch_early(next[i] + begin + LINE_FLOATS * l);
            read<C>(row[i] + d, rest, z);
            UNROLL for (int c = 0; c < C; ++c) y[c] += splat(g[i]) * z[c];
            UNROLL for (int c = 0; c < C; ++c) z[c] -= splat(PLAIN ? lr * g[i] : step[i]) * x[c];
            write<C>(row[i] + d, rest, z);
        }
        UNROLL for (int c = 0; P == Prefetch::EARLY && c < C; c += LINE_FLOATS / W)
            prefetch_early(next[-1] + d + c * W);
        UNROLL for (int c = 0; c < C; ++c) y[c] = PLAIN ? x[c] - splat(lr) * y[c] : y[c];
        write<C>(out + d, rest, y);
    });
}

// Call part(d, n) for every vector of `dim` floats, of which the last has n and the others W.
template <class Part>
inline INLINE void in_vectors(int64_t dim, Part part) {
    int64_t d = 0;
    for (; d + W <= dim; d += W) part(d, (int64_t)W);
    if (d < dim) part(d, dim - d);
}

// y += a x
inline void add(float* y, float a, const float* x, int64_t dim) {
    in_vectors(dim, [&](int64_t d, int64_t n) INLINE {
        store_first(y + d, load_first(y + d, n) + splat(a) * load_first(x + d, n), n);
    });
}

// Make h, the sum from `move` with rows that repeat, the sum of the rows at their old values. A row that repeats was
// moved along u before it was read again, so that the two differ by a multiple of u. It follows from `product`, the sum
// of slopes times scores, which is the true h times u.
inline void correct(float* h, const float* u, int64_t dim, float product) {
    vec hu = {}, uu = {};
    in_vectors(dim, [&](int64_t d, int64_t n) INLINE {
        const vec x = load_first(u + d, n);
        hu += x * load_first(h + d, n);
        uu += x * x;
    });
    const float square = sum(uu);
    if (square > std::numeric_limits<float>::min()) add(h, (product - sum(hu)) / square, u, dim);
}

template <int C>
inline void collect_chunk(const float* const* row, const float* g, int64_t n, float* out, int64_t d) {
    vec y[C];
    UNROLL for (int c = 0; c < C; ++c) y[c] = load(out + d + c * W);
    for (int64_t i = 0; i < n; ++i) {
        const float* p = row[i] + d;
        vec a = splat(g[i]);
        UNROLL for (int c = 0; c < C; ++c) y[c] += a * load(p + c * W);
    }
    UNROLL for (int c = 0; c < C; ++c) store(out + d + c * W, y[c]);
}

// out += Σ g_i row_i
inline void collect(const float* const* row, const float* g, int64_t n, float* out, int64_t dim) {
    int64_t d = 0;
    for (; d + 6 * W <= dim; d += 6 * W) collect_chunk<6>(row, g, n, out, d);
    for (; d + 2 * W <= dim; d += 2 * W) collect_chunk<2>(row, g, n, out, d);
    for (; d + W <= dim; d += W) collect_chunk<1>(row, g, n, out, d);
    if (d < dim)
        for (int64_t i = 0; i < n; ++i)
            for (int64_t e = d; e < dim; ++e) out[e] += g[i] * row[i][e];
}

// y = Σ_i a_i x_i, for C vectors of n packed rows; a and x are a_step and x_step floats apart
template <int C>
inline void combine(const float* a, int64_t a_step, const float* x, int64_t x_step, int64_t n, vec* y) {
    UNROLL for (int c = 0; c < C; ++c) y[c] = vec{};
    for (int64_t i = 0; i < n; ++i)
        UNROLL for (int c = 0; c < C; ++c) y[c] += splat(a[i * a_step]) * load(x + i * x_step + c * W);
}

inline float square(const float* x, int64_t dim) {  // |x|²
    vec acc = {};
    int64_t d = 0;
    for (; d + W <= dim; d += W) acc += load(x + d) * load(x + d);
    float s = sum(acc);
    for (; d < dim; ++d) s += x[d] * x[d];
    return s;
}

// The row-Adagrad learning rate of a row: adds the mean square of its gradient to its sum.
inline float rate(const SkipGramTask& t, float* sum, float mean_square) {
    return (float)(t.lr / (std::sqrt((double)(*sum += mean_square)) + t.eps));
}

// The same for a row of a table; lr if the table has no sums (SGD).
inline float rate(const SkipGramTask& t, float* acc, int64_t row, float mean_square) {
    return acc == nullptr ? (float)t.lr : rate(t, acc + row, mean_square);
}

// row -= rate · gradient
inline void step(const SkipGramTask& t, float* table, int64_t stride, float* acc, int64_t row, const float* gradient) {
    float mean_square = acc == nullptr ? 0.f : square(gradient, t.dim) / (float)t.dim;
    add(table + row * stride, -rate(t, acc, row, mean_square), gradient, t.dim);
}

}  // namespace
