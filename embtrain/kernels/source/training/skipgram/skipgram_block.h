// BLOCK: n windows share K negatives. U (n, D) and the negatives' rows V (K, D) are packed, and
//
//   S = U V^T      H = C V + terms of the targets      U -= lr H      V -= lr C^T U      (C: slopes of S)
//
// All scores, and the gradients of the centres, are computed before the first row of v is written, so that all reads
// see the values before the block. Under SGD the steps of a repeated row follow each other; row-Adagrad sums its
// gradients, see repeated_rows.h.
//
// Members that a loop reads are copied to local variables, because the stores of vectors may alias them.
#pragma once

#include "training/skipgram/pooled_centres.h"
#include "training/skipgram/prefetch.h"
#include "training/skipgram/repeated_rows.h"
#include "training/skipgram/small_gemm.h"

namespace {

class BlockUpdate {
public:
    BlockUpdate(const SkipGramTask& t, int64_t max_pairs, int64_t max_block_pairs, int64_t first, int64_t last)
        : t(t), shift(t), is_sgd(t.v_acc == nullptr), has_binary_loss(is_binary(t)) {
        d = round_up(t.dim, W);
        k = round_up(t.k, W);
        const int64_t n = round_up(t.share < t.n_windows ? t.share : t.n_windows, TILE);
        u = scratch.take<float>(n * d);     h = scratch.take<float>(n * d);    s = scratch.take<float>(n * k);
        v = scratch.take<float>(k * d);     vt = scratch.take<float>(d * k);   dv = scratch.take<float>(k * d);
        gap = scratch.take<float>(k);       gap_with_c = scratch.take<float>(k);    w = scratch.take<float>(k);
        w_own = scratch.take<float>(k);     e = scratch.take<float>(k);        slope = scratch.take<float>(n * k);
        x = scratch.take<float>(max_pairs);          s_t = scratch.take<float>(max_block_pairs);
        g = scratch.take<float>(max_block_pairs);    gap_t = scratch.take<float>(max_block_pairs);
        row = scratch.take<float*>(max_block_pairs); query = scratch.take<float*>(max_block_pairs);
        negative = scratch.take<float*>(k);          centre = scratch.take<float*>(n);
        negative_id = scratch.take<int32_t>(k);      hit = scratch.take<Hit>(max_pairs * t.k + 1);
        sum_of_row = scratch.take<float>(d);
        next.make(scratch, max_block_pairs + n + t.k, t.dim);
        pooled.make(scratch, t, t.share, first, last);
        if (!is_sgd) repeated.make(scratch, t, max_block_pairs, n);
        if (!scratch.ok) return;
        for (int64_t j = 0; j < t.k; ++j) w[j] = t.weight && !t.weight_stride ? t.weight[j] : 1.f;
        for (int64_t j = t.k; j < k; ++j) negative_id[j] = -1;
    }

    bool ok() const { return scratch.ok; }

    double range(int64_t first, int64_t last, double* c_grad) {
        ColumnMask mask(t, t.start[first]);
        double loss = 0;
        for (int64_t i = first; i < last; i += t.share) {
            const int64_t end = std::min(i + t.share, last);
            list_next(end, std::min(end + t.share, last));
            loss += block(i, end - i, mask, c_grad);
        }
        return loss;
    }

private:
    const SkipGramTask& t;
    Shift shift;
    const bool is_sgd, has_binary_loss;
    Scratch scratch;
    RepeatedRows repeated;
    PooledCentres pooled;
    NextRows next;
    int64_t d, k, pairs = 0;  // d, k: padded
    float *u, *h, *s, *v, *vt, *dv, *gap, *gap_with_c, *w, *w_own, *e, *slope, *x, *s_t, *g, *gap_t, *sum_of_row;
    float **row, **query, **negative, **centre;  // of each pair: the row of its target, its packed centre
    int32_t* negative_id;
    Hit* hit;

    float* row_at(int64_t b) const { return t.v + b * t.v_stride; }

    void list_next(int64_t first, int64_t last) {
        next.clear();
        if (first == last) return;
        for (int64_t p = t.start[first]; p < t.start[last]; ++p) next.add_once(row_at(t.target[p]), t.target[p]);
        for (int64_t j = 0; j < t.k; ++j) next.add(row_at(t.ids[first / t.share * t.k + j]));
        for (int64_t i = first; i < last && !pooled.is_active(); ++i) next.add(t.u + t.centre[i] * t.u_stride);
    }

    double block(int64_t first, int64_t n, ColumnMask& mask, double* c_grad) {
        const int64_t first_id = first / t.share * t.k;
        pairs = t.start[first + n] - t.start[first];
        next.divide(pairs / 2 + n + t.k + 1);  // `score_targets` and `move_targets` call once in four pairs
        pack(first, n, first_id);
        transpose(v, d, k, d, vt, k);
        product(u, d, 1, vt, k, round_up(n, TILE), t.dim, k, s, k, true, next);
        score_targets();
        if (t.scores)
            for (int64_t j = 0; j < t.k; ++j) {
                float total = 0;
                for (int64_t i = 0; i < n; ++i) total += s[i * k + j];
                t.scores[first_id + j] = total / (float)n;
            }
        const double loss = slopes_of(first, n, first_id, mask, c_grad);
        if (!is_sgd) merge(first, n, first_id);
        move_centres(first, n);
        move_negatives(n);
        if (is_sgd) move_targets();
        else step_by_adagrad(first, n, first_id);
        if (pooled.is_active()) pooled.move(first, n, h, d, is_sgd ? nullptr : repeated.first_centre);
        return loss;
    }

    void pack(int64_t first, int64_t n, int64_t first_id) {
        for (int64_t j = 0; j < t.k; ++j) {
            negative[j] = row_at(t.ids[first_id + j]);
            negative_id[j] = (int32_t)t.ids[first_id + j];
        }
        copy(negative, t.k, v);
        if (pooled.is_active()) for (int64_t i = 0; i < n; ++i) pooled.pool(first + i, u + i * d);
        else {
            for (int64_t i = 0; i < n; ++i) centre[i] = t.u + t.centre[first + i] * t.u_stride;
            copy(centre, n, u);
        }
        for (int64_t i = n; i < round_up(n, TILE); ++i) std::memset(u + i * d, 0, (size_t)d * sizeof(float));
        const int64_t *const start = t.start + first, *const target = t.target + start[0];
        for (int64_t i = 0; i < n; ++i) {
            float** const to = query + (start[i] - start[0]);
            for (int64_t p = 0; p < start[i + 1] - start[i]; p += 16)  // past its end, as far as the next window writes
                for (int64_t e = 0; e < 16; ++e) to[p + e] = u + i * d;
        }
        for (int64_t p = 0; p < pairs; ++p) row[p] = row_at(target[p]);
        for (int64_t p = pairs; p < round_up(pairs, 4); ++p) row[p] = row[0];
        if (t.weight_stride) std::memcpy(w, t.weight + first_id, (size_t)t.k * sizeof(float));
    }

    void copy(float* const* from, int64_t n, float* to) const {
        const int64_t stride = d;
        in_parts(t.dim, [&](auto count, int64_t at, int64_t rest) INLINE {
            constexpr int C = decltype(count)::value;
            float* const out = to + at;
            for (int64_t i = 0; i < n; ++i) {
                vec y[C];
                read<C>(from[i] + at, rest, y);
                UNROLL for (int c = 0; c < C; ++c) store(out + i * stride + c * W, y[c]);
            }
        });
    }

    void score_targets() {
        float *const *const queries = query, *const *const rows = row, *const out = s_t;
        const int64_t n = pairs, dim = t.dim;
        for (int64_t p = 0; p < n; p += 4) {
            next.prefetch_lines();
            vec y[4] = {};
            int64_t at = 0;
            for (; at + W <= dim; at += W)
                UNROLL for (int c = 0; c < 4; ++c) y[c] += load(queries[p + c] + at) * load(rows[p + c] + at);
            if (at < dim)
                UNROLL for (int c = 0; c < 4; ++c)
                    y[c] += load(queries[p + c] + at) * load_first(rows[p + c] + at, dim - at);
            store_half(out + p, sums(y[0], y[1], y[2], y[3]));
        }
    }

    bool has_drawn_targets(int64_t first) const {
        const int64_t *const target = t.target + t.start[first], n = pairs;
        ivec same = {};
        for (int64_t p = 0; p < n; ++p)
            for (int64_t j = 0; j < k; j += W) same |= load(negative_id + j) == splat((int32_t)target[p]);
        return any(same);
    }

    // Slopes of all scores; returns the loss.
    double slopes_of(int64_t first, int64_t n, int64_t first_id, ColumnMask& mask, double* c_grad) {
        const int64_t *const start = t.start + first, *const ids = t.ids + first_id;
        const bool check_targets = t.mask_target && has_drawn_targets(first);
        const bool is_masked = check_targets || mask.has_before(start[n]);
        shift.columns(t, first_id, t.k, 0.f, gap);
        for (int64_t i = 0; i < n && shift.target; ++i)
            shift.targets(t, start[i], start[i + 1] - start[i], Shift::c(t, t.centre[first + i]),
                          gap_t + (start[i] - start[0]));
        vec total = has_binary_loss ? binary_targets(s_t, gap_t, pairs, target_weight(t), g) : vec{};
        double loss = 0;
        for (int64_t i = 0; i < n; ++i) {
            const int64_t m = start[i + 1] - start[i], from = start[i] - start[0], word = t.centre[first + i];
            const float c = Shift::c(t, word);
            const float* gaps = gap;
            if (c != 0) {
                for (int64_t j = 0; j < t.k; ++j) gap_with_c[j] = gap[j] + c;
                gaps = gap_with_c;
            }
            float* const own = slope + i * k;
            Window q{m, t.k, false, s_t + from, s + i * k, gap_t + from, gaps, w, hit, 0, g + from, own, w_own, e, x};
            if (is_masked) q.n_hits = mask.find(start[i], start[i + 1], ids, false, check_targets, hit);
            if (!has_binary_loss) loss += slopes(t, q);
            else if (q.n_hits) total += binary_negatives(q.s, gaps, 1.f, shared_weights(q), t.k, own);
            else total += binary_negatives(q.s, gaps, (float)m, w, t.k, own);
            if (c_grad) {
                double all = 0;
                for (int64_t p = 0; p < m; ++p) all += q.g_t[p];
                for (int64_t j = 0; j < t.k; ++j) all += own[j];
                c_grad[t.c_stride ? word : 0] -= all;
            }
        }
        return loss + sum(total);
    }

    // h_i = Σ_j c_ij v_j + Σ_p g_p row_p over the targets of each window. Under SGD u_i -= lr h_i.
    void move_centres(int64_t first, int64_t n) {
        const int64_t *const start = t.start + first, stride = d, slope_stride = k, columns = t.k;
        const bool moves = is_sgd && !pooled.is_active();
        const float lr = (float)t.lr;
        in_parts(t.dim, [&](auto count, int64_t at, int64_t rest) INLINE {
            constexpr int C = decltype(count)::value;
            float *const *const rows = row, *const *const to = centre, *const out = h + at;
            const float *const a = g, *const b = slope, *const packed = v + at;
            for (int64_t i = 0, p = 0; i < n; ++i) {
                next.prefetch_lines();
                vec y[C], z[C];
                combine<C>(b + i * slope_stride, 1, packed, stride, columns, y);
                for (const int64_t end = start[i + 1] - start[0]; p < end; ++p) {
                    read<C>(rows[p] + at, rest, z);
                    UNROLL for (int c = 0; c < C; ++c) y[c] += splat(a[p]) * z[c];
                }
                if (moves) subtract<C>(to[i] + at, rest, lr, y);
                else UNROLL for (int c = 0; c < C; ++c) store(out + i * stride + c * W, y[c]);
            }
        });
    }

    // dv_j = Σ_i c_ij u_i. Under SGD v_j -= lr dv_j.
    void move_negatives(int64_t n) {
        const int64_t stride = d, slope_stride = k, columns = t.k;
        const bool moves = is_sgd;
        const float lr = (float)t.lr;
        in_parts(t.dim, [&](auto count, int64_t at, int64_t rest) INLINE {
            constexpr int C = decltype(count)::value;
            float *const *const to = negative, *const out = dv + at;
            const float *const b = slope, *const packed = u + at;
            for (int64_t j = 0; j < columns; ++j) {
                next.prefetch_lines();
                vec y[C];
                combine<C>(b + j, slope_stride, packed, stride, n, y);
                if (moves) subtract<C>(to[j] + at, rest, lr, y);
                else UNROLL for (int c = 0; c < C; ++c) store(out + j * stride + c * W, y[c]);
            }
        });
    }

    // row_p -= lr g_p u_p for every pair
    void move_targets() {
        const int64_t n = pairs;
        const float lr = (float)t.lr;
        in_parts(t.dim, [&](auto count, int64_t at, int64_t rest) INLINE {
            constexpr int C = decltype(count)::value;
            float *const *const rows = row, *const *const queries = query;
            const float* const a = g;
            for (int64_t p = 0; p < n; ++p) {
                if (p % 4 == 0) next.prefetch_lines();
                vec y[C];
                const float* const h_p = queries[p] + at;
                UNROLL for (int c = 0; c < C; ++c) y[c] = load(h_p + c * W);
                subtract<C>(rows[p] + at, rest, lr * a[p], y);
            }
        });
    }

    // Sum the slopes of repeated negatives. A target that is also a negative gives its slope to the negative.
    void merge(int64_t first, int64_t n, int64_t first_id) {
        repeated.find(first, n, t.ids + first_id);
        for (int64_t j = 0; j < t.k; ++j)
            if (repeated.first_column[j] != j)
                for (int64_t i = 0; i < n; ++i) {
                    slope[i * k + repeated.first_column[j]] += slope[i * k + j];
                    slope[i * k + j] = 0;
                }
        for (int64_t e = 0; e < repeated.begin[t.k]; ++e) {
            const int64_t p = repeated.pair[e], i = (query[p] - u) / d;
            slope[i * k + repeated.number[p]] += g[p];
            g[p] = 0;
        }
    }

    void step_by_adagrad(int64_t first, int64_t n, int64_t first_id) {
        const int64_t *const target = t.target + t.start[first], *const ids = t.ids + first_id;
        for (int64_t b = t.k; b < repeated.end; ++b) {
            std::memset(sum_of_row, 0, (size_t)d * sizeof(float));
            for (int64_t e = repeated.begin[b]; e < repeated.begin[b + 1]; ++e)
                add(sum_of_row, g[repeated.pair[e]], query[repeated.pair[e]], d);
            step(t, t.v, t.v_stride, t.v_acc, target[repeated.pair[repeated.begin[b]]], sum_of_row);
        }
        for (int64_t j = 0; j < t.k; ++j)
            if (repeated.first_column[j] == j) step(t, t.v, t.v_stride, t.v_acc, ids[j], dv + j * d);
        for (int64_t i = 0; i < n; ++i)
            if (repeated.first_centre[i] != i) add(h + repeated.first_centre[i] * d, 1.f, h + i * d, t.dim);
        for (int64_t i = 0; i < n && !pooled.is_active(); ++i)
            if (repeated.first_centre[i] == i) step(t, t.u, t.u_stride, t.u_acc, t.centre[first + i], h + i * d);
    }
};

}  // namespace
