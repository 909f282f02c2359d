// Passes over table rows: dot products with u, and updates of the rows from their slopes.
#pragma once

#include <cmath>
#include <type_traits>

#include "core/simd_math.h"

namespace {

constexpr int CHUNK = 4;    // vectors of u and of its gradient that stay in registers over all rows
constexpr int STRIP = 32;   // floats between two prefetches of one row

// While rows are processed, the rows `next` are prefetched: one cache line each per STRIP floats, the first lines by
// `dots`, the others by `move`. A single burst would fill the line-fill buffers and delay other loads.

inline void prefetch(const float* p) { __builtin_prefetch(p, 1, 3); }

// Rows prefetched during other work: some cache lines at a time.
struct PrefetchQueue {
    float* const* row = nullptr;
    int64_t rows = 0, dim = 0, quota = 0, d = 0;

    void prefetch_lines() {
        for (int64_t i = 0; i < quota && rows > 0; ++i) {
            prefetch(*row + d);
            d += 16;
            if (d >= dim) { d = 0; ++row; --rows; }
        }
    }

    void prefetch_all() {
        while (rows > 0) prefetch_lines();
    }
};

template <int N>
inline void dots_n(const float* const* row, const float* const* next, const float* u, int64_t dim, float* s) {
    vec acc[N] = {};
    int64_t d = 0;
    for (; d + STRIP <= dim; d += STRIP) {
        for (int e = 0; e < STRIP; e += W) {
            if (e % (STRIP / 4) == 0 && e / (STRIP / 4) < N) prefetch(next[e / (STRIP / 4)] + d / 2);
            vec x = load(u + d + e);
            for (int i = 0; i < N; ++i) acc[i] += x * load(row[i] + d + e);
        }
    }
    for (; d + W <= dim; d += W) {
        vec x = load(u + d);
        for (int i = 0; i < N; ++i) acc[i] += x * load(row[i] + d);
    }
    half part[4] = {};
    for (int i = 0; i < N; ++i) part[i] = fold(acc[i]);
    for (; W > 4 && d + 4 <= dim; d += 4) {
        half x = load_half(u + d);
        for (int i = 0; i < N; ++i) part[i] += x * load_half(row[i] + d);
    }
    half total = sums(part[0], part[1], part[2], part[3]);
    for (; d < dim; ++d)
        for (int i = 0; i < N; ++i) total[i] += u[d] * row[i][d];
    store_half(s, total);
}

// s_i = u · row_i. s has room for three more.
inline void dots(const float* const* row, const float* const* next, int64_t n, const float* u, int64_t dim, float* s) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) dots_n<4>(row + i, next + i, u, dim, s + i);
    switch (n - i) {
        case 3: dots_n<3>(row + i, next + i, u, dim, s + i); break;
        case 2: dots_n<2>(row + i, next + i, u, dim, s + i); break;
        case 1: dots_n<1>(row + i, next + i, u, dim, s + i); break;
    }
}

template <int C, bool PLAIN>
inline void move_chunk(float* const* row, const float* const* next, const float* g, const float* step, int64_t n,
                       const float* u, float* out, float lr, int64_t d, int64_t ahead) {
    vec x[C], y[C] = {};
    for (int c = 0; c < C; ++c) x[c] = load(u + d + c * W);
    for (int64_t i = 0; i < n; ++i) {
        float* p = row[i] + d;
        prefetch(next[i] + ahead);
        vec a = splat(g[i]), b = splat(step[i]);
        for (int c = 0; c < C; ++c) {
            vec v = load(p + c * W);
            y[c] += a * v;
            store(p + c * W, v - b * x[c]);
        }
    }
    for (int c = 0; c < C; c += 16 / W) prefetch(next[-1] + d + c * W);
    for (int c = 0; c < C; ++c) store(out + d + c * W, PLAIN ? x[c] - splat(lr) * y[c] : y[c]);
}

// With h = Σ g_i row_i at the old values: row_i -= step_i u. Then out = u - lr h if PLAIN, else out = h. Rows must
// differ.
template <bool PLAIN>
inline void move(float* const* row, const float* const* next, const float* g, const float* step, int64_t n,
                 const float* u, int64_t dim, float* out, float lr) {
    int64_t d = 0;
    const int64_t rest = dim / STRIP * (STRIP / 2);  // where the prefetches of `dots` ended
    for (; d + CHUNK * W <= dim; d += CHUNK * W)
        move_chunk<CHUNK, PLAIN>(row, next, g, step, n, u, out, lr, d, rest + d / 2);
    switch ((dim - d) / W) {
        case 3: move_chunk<3, PLAIN>(row, next, g, step, n, u, out, lr, d, rest + d / 2); d += 3 * W; break;
        case 2: move_chunk<2, PLAIN>(row, next, g, step, n, u, out, lr, d, rest + d / 2); d += 2 * W; break;
        case 1: move_chunk<1, PLAIN>(row, next, g, step, n, u, out, lr, d, rest + d / 2); d += W; break;
    }
    for (; W > 4 && d + 4 <= dim; d += 4) {
        half x = load_half(u + d), y = {};
        for (int64_t i = 0; i < n; ++i) {
            if (d % STRIP == 0) prefetch(next[i] + rest + d / 2);
            half v = load_half(row[i] + d);
            y += g[i] * v;
            store_half(row[i] + d, v - step[i] * x);
        }
        prefetch(next[-1] + d);
        store_half(out + d, PLAIN ? x - lr * y : y);
    }
    for (; d < dim; ++d) {
        float x = u[d], y = 0;
        for (int64_t i = 0; i < n; ++i) {
            float v = row[i][d];
            y += g[i] * v;
            row[i][d] = v - step[i] * x;
        }
        out[d] = PLAIN ? x - lr * y : y;
    }
}

template <int C>
inline void collect_chunk(const float* const* row, const float* g, int64_t n, float* out, int64_t d) {
    vec y[C];
    for (int c = 0; c < C; ++c) y[c] = load(out + d + c * W);
    for (int64_t i = 0; i < n; ++i) {
        const float* p = row[i] + d;
        vec a = splat(g[i]);
        for (int c = 0; c < C; ++c) y[c] += a * load(p + c * W);
    }
    for (int c = 0; c < C; ++c) store(out + d + c * W, y[c]);
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

constexpr int PART = W == 16 ? 8 : 7;  // vectors of a sum that stay in registers over all rows

// Call part(C, d, n) for C vectors from d on, of which the last has n floats and the others W.
template <class Part>
inline __attribute__((always_inline)) void in_parts(int64_t dim, Part part) {
    int64_t d = 0;
    for (; d + PART * W < dim; d += PART * W) part(std::integral_constant<int, PART>{}, d, (int64_t)W);
    const int64_t n = (dim - d - 1) % W + 1;
    switch ((dim - d - 1) / W) {
        case 7: part(std::integral_constant<int, PART>{}, d, n); break;
        case 6: part(std::integral_constant<int, 7>{}, d, n); break;
        case 5: part(std::integral_constant<int, 6>{}, d, n); break;
        case 4: part(std::integral_constant<int, 5>{}, d, n); break;
        case 3: part(std::integral_constant<int, 4>{}, d, n); break;
        case 2: part(std::integral_constant<int, 3>{}, d, n); break;
        case 1: part(std::integral_constant<int, 2>{}, d, n); break;
        case 0: part(std::integral_constant<int, 1>{}, d, n); break;
    }
}

// Read and write C vectors of a row of a table, the last with n floats.
template <int C>
inline void read(const float* p, int64_t n, vec* x) {
    for (int c = 0; c < C - 1; ++c) x[c] = load(p + c * W);
    x[C - 1] = load_first(p + (C - 1) * W, n);
}

template <int C>
inline void write(float* p, int64_t n, const vec* x) {
    for (int c = 0; c < C - 1; ++c) store(p + c * W, x[c]);
    store_first(p + (C - 1) * W, x[C - 1], n);
}

// to -= a y, for C vectors of a row of a table
template <int C>
inline void subtract(float* to, int64_t n, float a, const vec* y) {
    vec z[C];
    read<C>(to, n, z);
    for (int c = 0; c < C; ++c) z[c] -= splat(a) * y[c];
    write<C>(to, n, z);
}

// y = Σ_i a_i x_i, for C vectors of n packed rows; a and x are a_step and x_step floats apart
template <int C>
inline void combine(const float* a, int64_t a_step, const float* x, int64_t x_step, int64_t n, vec* y) {
    for (int c = 0; c < C; ++c) y[c] = vec{};
    for (int64_t i = 0; i < n; ++i)
        for (int c = 0; c < C; ++c) y[c] += splat(a[i * a_step]) * load(x + i * x_step + c * W);
}

// y += a x
inline void add(float* y, float a, const float* x, int64_t dim) {
    int64_t d = 0;
    for (; d + W <= dim; d += W) store(y + d, load(y + d) + splat(a) * load(x + d));
    for (; d < dim; ++d) y[d] += a * x[d];
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
