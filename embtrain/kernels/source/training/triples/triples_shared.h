// `share` rows have the same K columns; such a block is a unit. Q (n, D) and the columns C (K, D) are packed, and
//
//   L2    S² = |q|² + |c|² - 2 Q C^T     F = G / -S     dQ = F C - (Σ_j F) q     dC = F^T Q - (Σ_i F) c
//   DOT   S = Q C^T                                     dQ = G C                 dC = G^T Q
//   L1    pair by pair
//
// Scores and slopes are those at the values before the unit. Rows are then moved one after the other: each row's
// target, the columns, each row's entity and relation. One that occurs twice moves twice. At last those that moved are brought
// back onto the sphere.
#pragma once

#include "training/triples/triples_unit.h"
#include "training/skipgram/small_gemm.h"

namespace {

template <int S>
class SharedUpdate : public Unit {
public:
    explicit SharedUpdate(const TripleTask& task) : Unit(task), k(up(task.k, W)) {
        const int64_t n = up(t.share < t.n ? t.share : t.n, TILE), columns = k;
        q = scratch.take<float>(n * d);      a = scratch.take<float>(S == DOT ? n * d : 0);
        r = scratch.take<float>(S == DOT ? n * d : 0);
        dq = scratch.take<float>(n * d);     of_r = scratch.take<float>(d);
        b = scratch.take<float>(columns * d);  bt = scratch.take<float>(S == L1 ? 0 : d * k);
        db = scratch.take<float>(columns * d); s = scratch.take<float>(n * k);  g = scratch.take<float>(n * k);
        s_t = scratch.take<float>(n);  g_t = scratch.take<float>(n);  b_square = scratch.take<float>(columns);
        sums_j = scratch.take<float>(columns);
        rows = scratch.take<float*>(columns);  coming = scratch.take<float*>(2 * n + t.k);
    }

    double range(int64_t first, int64_t last, double* c_grad) {
        Forgiven forgiven(u, first);
        double loss = 0;
        for (int64_t i = first; i < last; i += t.share) {
            const int64_t end = i + t.share < last ? i + t.share : last;
            loss += block(i, end, last, forgiven, c_grad);
        }
        return loss;
    }

private:
    const int64_t k;  // padded
    float *q, *a, *r, *dq, *of_r, *b, *bt, *db, *s, *g, *s_t, *g_t, *b_square, *sums_j;
    float **rows, **coming;

    double block(int64_t first, int64_t end, int64_t last, Forgiven& forgiven, double* c_grad) {
        const int64_t n = end - first, at = first / t.share * t.k, *ids = t.ids + at;
        for (int64_t i = 0; i < n; ++i) {
            ask<S>(first + i, q + i * d, copy(a, i), copy(r, i));
            float* const own = entity(t.target[first + i]);
            scores_of<S, 1>(&own, &own, q + i * d, d, s_t + i);
        }
        for (int64_t i = n; i < up(n, TILE); ++i) std::memset(q + i * d, 0, (size_t)d * sizeof(float));
        for (int64_t j = 0; j < t.k; ++j) std::memcpy(b + j * d, entity(ids[j]), (size_t)d * sizeof(float));
        Feed feed = upcoming(end, last, n);
        score(n, feed);
        if (t.scores)
            for (int64_t j = 0; j < t.k; ++j) {
                double total = 0;
                for (int64_t i = 0; i < n; ++i) total += s[i * k + j];
                t.scores[at + j] = (float)(total / (double)n);
            }
        columns(at);
        double loss = 0;
        for (int64_t i = 0; i < up(n, TILE); ++i) {
            float* const mine = g + i * k;
            if (i < n) loss += slopes_of(first + i, at, s_t[i], s + i * k, g_t + i, mine, forgiven, c_grad);
            const int64_t from = i < n ? t.k : 0;
            std::memset(mine + from, 0, (size_t)(k - from) * sizeof(float));
        }
        differentiate(n, feed);
        write(first, n, ids);
        return loss;
    }

    // Where q and c are near, nothing is left of the difference of the squares: such pairs are few, and scored alone.
    static constexpr float NEAR = 1e-3f;
    float apart(int64_t i, int64_t j) const {
        float* const row = b + j * d;
        float score = 0;
        if (j < t.k) scores_of<S, 1>(&row, &row, q + i * d, d, &score);
        return score;
    }

    float* copy(float* of, int64_t i) const { return S == DOT ? of + i * d : of; }

    void score(int64_t n, Feed& feed) {
        if (S == L1) {
            for (int64_t j = 0; j < t.k; ++j) rows[j] = b + j * d;
            for (int64_t i = 0; i < n; ++i) scores<S>(rows, rows, t.k, q + i * d, d, s + i * k);
            return;
        }
        transpose(b, d, k, d, bt, k);
        product(q, d, 1, bt, k, up(n, TILE), d, k, s, k, true, feed);
        if (S == DOT) return;
        for (int64_t j = 0; j < t.k; ++j) b_square[j] = square(b + j * d, d);
        for (int64_t i = 0; i < n; ++i) {
            const vec one = splat(square(q + i * d, d)), two = splat(2.f);
            float* const mine = s + i * k;
            for (int64_t j = 0; j < k; j += W) {
                const vec squares = one + load(b_square + j), x = most(squares - two * load(mine + j), vec{});
                for (int l = 0; l < W; ++l)
                    mine[j + l] = x[l] < NEAR * squares[l] ? apart(i, j + l) : -std::sqrt(x[l]);
            }
        }
    }

    // g -> dq and db.
    void differentiate(int64_t n, Feed& feed) {
        const int64_t rows_q = up(n, TILE), rows_b = up(t.k, TILE);
        if (S == L1) {
            std::memset(dq, 0, (size_t)(n * d) * sizeof(float));
            std::memset(db, 0, (size_t)(rows_b * d) * sizeof(float));
            for (int64_t j0 = 0; j0 < t.k; j0 += 8)          // 8 columns and their sums stay in the cache
                for (int64_t i = 0; i < n; ++i)
                    for (int64_t j = j0; j < t.k && j < j0 + 8; ++j) {
                        const float slope = g[i * k + j];
                        if (slope == 0.f) continue;
                        const vec y = splat(slope);
                        const float *x = q + i * d, *p = b + j * d;
                        float *to_q = dq + i * d, *to_b = db + j * d;
                        for (int64_t c = 0; c < d; c += W) {
                            const vec away = y * sign_of(load(x + c) - load(p + c));
                            store(to_q + c, load(to_q + c) - away);
                            store(to_b + c, load(to_b + c) + away);
                        }
                    }
            return;
        }
        if (S == L2) {
            std::memset(sums_j, 0, (size_t)k * sizeof(float));
            for (int64_t i = 0; i < n; ++i) {
                float* const mine = g + i * k;
                const float* const far = s + i * k;
                for (int64_t j = 0; j < k; j += W) {
                    const vec f = load(far + j) < vec{} ? -load(mine + j) / load(far + j) : vec{};
                    store(mine + j, f);
                    store(sums_j + j, load(sums_j + j) + f);
                }
            }
        }
        for (int64_t i = 0; i < rows_q; ++i) {
            vec own = {};
            if (S == L2) for (int64_t j = 0; j < k; j += W) own += load(g + i * k + j);
            const vec by = splat(-sum(own));
            for (int64_t c = 0; c < d; c += W) store(dq + i * d + c, S == L2 ? by * load(q + i * d + c) : vec{});
        }
        for (int64_t j = 0; j < rows_b; ++j) {
            const vec by = splat(S == L2 && j < t.k ? -sums_j[j] : 0.f);
            for (int64_t c = 0; c < d; c += W) store(db + j * d + c, S == L2 ? by * load(b + j * d + c) : vec{});
        }
        product(g, k, 1, b, d, rows_q, t.k, d, dq, d, false, feed);
        product(g, 1, k, q, d, rows_b, n, d, db, d, false, feed);
    }

    void write(int64_t first, int64_t n, const int64_t* ids) {
        for (int64_t i = 0; i < n; ++i) {
            if (g_t[i] == 0.f) continue;
            float* own = entity(t.target[first + i]);
            const float f = factor<S>(g_t[i], s_t[i]), *mine = q + i * d;
            const float long_q = S == DOT && t.e_acc ? square(mine, d) : 0.f;
            const float mean = t.e_acc ? mean_square<S>(g_t[i], f, s_t[i], long_q, (float)t.dim) : 0.f;
            const float step = f * rate(u, t.e_acc, t.target[first + i], mean);
            move<S>(&own, &f, &step, 1, mine, d, dq + i * d);
        }
        for (int64_t j = 0; j < t.k; ++j) step(u, t.e, t.e_stride, t.e_acc, ids[j], db + j * d);
        for (int64_t i = 0; i < n; ++i) answer<S>(first + i, dq + i * d, copy(a, i), copy(r, i), of_r);
        if (t.onto == FREE) return;
        for (int64_t j = 0; j < t.k; ++j) project(entity(ids[j]), d, t.onto);
        for (int64_t i = 0; i < n; ++i) {
            project(entity(t.entity[first + i]), d, t.onto);
            if (g_t[i] != 0.f) project(entity(t.target[first + i]), d, t.onto);
        }
    }

    // The rows of the block after, to be fetched by the products of this one.
    Feed upcoming(int64_t first, int64_t last, int64_t n) const {
        Feed feed;
        if (first >= last) return feed;
        const int64_t end = first + t.share < last ? first + t.share : last;
        for (int64_t i = first; i < end; ++i) {
            coming[feed.rows++] = entity(t.entity[i]);
            coming[feed.rows++] = entity(t.target[i]);
        }
        for (int64_t j = 0; j < t.k; ++j) coming[feed.rows++] = entity(t.ids[first / t.share * t.k + j]);
        feed.row = coming;
        feed.dim = t.dim;
        const int64_t tiles = (2 * up(n, TILE) + up(t.k, TILE)) / TILE * (d / (3 * W) + 1);
        feed.quota = feed.rows * (t.dim / 16 + 1) / tiles + 1;
        return feed;
    }
};

}  // namespace
