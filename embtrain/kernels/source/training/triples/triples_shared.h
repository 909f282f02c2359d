// `share` rows have the same K negatives; this block is a unit. Q (n, D) and the negatives C (K, D) are packed, and
//
//   L2    S² = |q|² + |c|² - 2 Q C^T     F = G / -S     dQ = F C - (Σ_j F) q     dC = F^T Q - (Σ_i F) c
//   DOT   S = Q C^T                                     dQ = G C                 dC = G^T Q
//   L1    pair by pair
//
// Scores and slopes are evaluated before the unit. Then rows are updated one after the other: each row's target, the
// negatives, each row's entity and relation. A repeated row is updated twice. Finally the updated entities are
// projected onto the constraint.
#pragma once

#include "training/triples/triples_unit.h"
#include "training/skipgram/small_gemm.h"

namespace {

template <int S>
class SharedUpdate : public TripleUnit {
public:
    explicit SharedUpdate(const TripleTask& task) : TripleUnit(task), k(round_up(task.k, W)) {
        const int64_t n = round_up(t.share < t.n ? t.share : t.n, TILE), columns = k;
        q = scratch.take<float>(n * d);      a = scratch.take<float>(S == DOT ? n * d : 0);
        r = scratch.take<float>(S == DOT ? n * d : 0);
        dq = scratch.take<float>(n * d);     grad_r = scratch.take<float>(d);
        b = scratch.take<float>(columns * d);  bt = scratch.take<float>(S == L1 ? 0 : d * k);
        db = scratch.take<float>(columns * d); s = scratch.take<float>(n * k);  g = scratch.take<float>(n * k);
        s_t = scratch.take<float>(n);  g_t = scratch.take<float>(n);  b_square = scratch.take<float>(columns);
        sums_j = scratch.take<float>(columns);
        rows = scratch.take<float*>(columns);  next_rows = scratch.take<float*>(2 * n + t.k);
    }

    double range(int64_t first, int64_t last, double* c_grad) {
        ColumnMask mask(u, first);
        double loss = 0;
        for (int64_t i = first; i < last; i += t.share) {
            const int64_t end = i + t.share < last ? i + t.share : last;
            loss += block(i, end, last, mask, c_grad);
        }
        return loss;
    }

private:
    const int64_t k;  // padded
    float *q, *a, *r, *dq, *grad_r, *b, *bt, *db, *s, *g, *s_t, *g_t, *b_square, *sums_j;
    float **rows, **next_rows;

    double block(int64_t first, int64_t end, int64_t last, ColumnMask& mask, double* c_grad) {
        const int64_t n = end - first, first_id = first / t.share * t.k, *ids = t.ids + first_id;
        for (int64_t i = 0; i < n; ++i) {
            build_query<S>(first + i, q + i * d, copy(a, i), copy(r, i));
            float* const target_row = entity(t.target[first + i]);
            scores_n<S, 1>(&target_row, &target_row, q + i * d, d, s_t + i);
        }
        for (int64_t i = n; i < round_up(n, TILE); ++i) std::memset(q + i * d, 0, (size_t)d * sizeof(float));
        for (int64_t j = 0; j < t.k; ++j) std::memcpy(b + j * d, entity(ids[j]), (size_t)d * sizeof(float));
        PrefetchQueue queue = next_block(end, last, n);
        score(n, queue);
        if (t.scores)
            for (int64_t j = 0; j < t.k; ++j) {
                double total = 0;
                for (int64_t i = 0; i < n; ++i) total += s[i * k + j];
                t.scores[first_id + j] = (float)(total / (double)n);
            }
        columns(first_id);
        double loss = 0;
        for (int64_t i = 0; i < round_up(n, TILE); ++i) {
            float* const row_slopes = g + i * k;
            if (i < n) loss += row_loss(first + i, first_id, s_t[i], s + i * k, g_t + i, row_slopes, mask, c_grad);
            const int64_t from = i < n ? t.k : 0;
            std::memset(row_slopes + from, 0, (size_t)(k - from) * sizeof(float));
        }
        differentiate(n, queue);
        write(first, n, ids);
        return loss;
    }

    // If q and c are close, the difference of the squares cancels. These pairs are few and are scored directly.
    static constexpr float NEAR = 1e-3f;
    float direct_score(int64_t i, int64_t j) const {
        float* const row = b + j * d;
        float score = 0;
        if (j < t.k) scores_n<S, 1>(&row, &row, q + i * d, d, &score);
        return score;
    }

    float* copy(float* base, int64_t i) const { return S == DOT ? base + i * d : base; }

    void score(int64_t n, PrefetchQueue& queue) {
        if (S == L1) {
            for (int64_t j = 0; j < t.k; ++j) rows[j] = b + j * d;
            for (int64_t i = 0; i < n; ++i) scores<S>(rows, rows, t.k, q + i * d, d, s + i * k);
            return;
        }
        transpose(b, d, k, d, bt, k);
        product(q, d, 1, bt, k, round_up(n, TILE), d, k, s, k, true, queue);
        if (S == DOT) return;
        for (int64_t j = 0; j < t.k; ++j) b_square[j] = square(b + j * d, d);
        for (int64_t i = 0; i < n; ++i) {
            const vec q_norm = splat(square(q + i * d, d)), two = splat(2.f);
            float* const row_slopes = s + i * k;
            for (int64_t j = 0; j < k; j += W) {
                const vec squares = q_norm + load(b_square + j), x = most(vec{}, squares - two * load(row_slopes + j));
                for (int l = 0; l < W; ++l)
                    row_slopes[j + l] = x[l] < NEAR * squares[l] ? direct_score(i, j + l) : -std::sqrt(x[l]);
            }
        }
    }

    // From g to dq and db.
    void differentiate(int64_t n, PrefetchQueue& queue) {
        const int64_t rows_q = round_up(n, TILE), rows_b = round_up(t.k, TILE);
        if (S == L1) {
            std::memset(dq, 0, (size_t)(n * d) * sizeof(float));
            std::memset(db, 0, (size_t)(rows_b * d) * sizeof(float));
            for (int64_t j0 = 0; j0 < t.k; j0 += 8)          // 8 negatives and their gradients stay in the cache
                for (int64_t i = 0; i < n; ++i)
                    for (int64_t j = j0; j < t.k && j < j0 + 8; ++j) {
                        const float slope = g[i * k + j];
                        if (slope == 0.f) continue;
                        const vec y = splat(slope);
                        const float *x = q + i * d, *p = b + j * d;
                        float *to_q = dq + i * d, *to_b = db + j * d;
                        for (int64_t c = 0; c < d; c += W) {
                            const vec direction = y * sign(load(x + c) - load(p + c));
                            store(to_q + c, load(to_q + c) - direction);
                            store(to_b + c, load(to_b + c) + direction);
                        }
                    }
            return;
        }
        if (S == L2) {
            std::memset(sums_j, 0, (size_t)k * sizeof(float));
            for (int64_t i = 0; i < n; ++i) {
                float* const row_slopes = g + i * k;
                const float* const far = s + i * k;
                for (int64_t j = 0; j < k; j += W) {
                    const vec f = load(far + j) < vec{} ? -load(row_slopes + j) / load(far + j) : vec{};
                    store(row_slopes + j, f);
                    store(sums_j + j, load(sums_j + j) + f);
                }
            }
        }
        for (int64_t i = 0; i < rows_q; ++i) {
            vec target_row = {};
            if (S == L2) for (int64_t j = 0; j < k; j += W) target_row += load(g + i * k + j);
            const vec factor_v = splat(-sum(target_row));
            for (int64_t c = 0; c < d; c += W) store(dq + i * d + c, S == L2 ? factor_v * load(q + i * d + c) : vec{});
        }
        for (int64_t j = 0; j < rows_b; ++j) {
            const vec factor_v = splat(S == L2 && j < t.k ? -sums_j[j] : 0.f);
            for (int64_t c = 0; c < d; c += W) store(db + j * d + c, S == L2 ? factor_v * load(b + j * d + c) : vec{});
        }
        product(g, k, 1, b, d, rows_q, t.k, d, dq, d, false, queue);
        product(g, 1, k, q, d, rows_b, n, d, db, d, false, queue);
    }

    void write(int64_t first, int64_t n, const int64_t* ids) {
        for (int64_t i = 0; i < n; ++i) {
            if (g_t[i] == 0.f) continue;
            float* target_row = entity(t.target[first + i]);
            const float f = factor<S>(g_t[i], s_t[i]), *row_slopes = q + i * d;
            const float q_square = S == DOT && t.e_acc ? square(row_slopes, d) : 0.f;
            const float mean = t.e_acc ? mean_square<S>(g_t[i], f, s_t[i], q_square, (float)t.dim) : 0.f;
            const float step = f * rate(u, t.e_acc, t.target[first + i], mean);
            move<S>(&target_row, &f, &step, 1, row_slopes, d, dq + i * d);
        }
        for (int64_t j = 0; j < t.k; ++j) step(u, t.e, t.e_stride, t.e_acc, ids[j], db + j * d);
        for (int64_t i = 0; i < n; ++i) apply_query_gradient<S>(first + i, dq + i * d, copy(a, i), copy(r, i), grad_r);
        if (t.constraint == FREE) return;
        for (int64_t j = 0; j < t.k; ++j) project(entity(ids[j]), d, t.constraint);
        for (int64_t i = 0; i < n; ++i) {
            project(entity(t.entity[first + i]), d, t.constraint);
            if (g_t[i] != 0.f) project(entity(t.target[first + i]), d, t.constraint);
        }
    }

    // The rows of the next block, prefetched by the products of this one.
    PrefetchQueue next_block(int64_t first, int64_t last, int64_t n) const {
        PrefetchQueue queue;
        if (first >= last) return queue;
        const int64_t end = first + t.share < last ? first + t.share : last;
        for (int64_t i = first; i < end; ++i) {
            next_rows[queue.rows++] = entity(t.entity[i]);
            next_rows[queue.rows++] = entity(t.target[i]);
        }
        for (int64_t j = 0; j < t.k; ++j) next_rows[queue.rows++] = entity(t.ids[first / t.share * t.k + j]);
        queue.row = next_rows;
        queue.dim = t.dim;
        const int64_t tiles = (2 * round_up(n, TILE) + round_up(t.k, TILE)) / TILE * (d / (3 * W) + 1);
        queue.quota = queue.rows * (t.dim / 16 + 1) / tiles + 1;
        return queue;
    }
};

}  // namespace
