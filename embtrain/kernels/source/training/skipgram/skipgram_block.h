// BLOCK: n windows share K negatives. U (n, D) and the negatives' rows V (K, D) are packed, and
//
//   S = U V^T      H = C V + terms of the targets      V -= lr C^T U      U -= lr H        (C: slopes of S)
//
// Targets are processed per window, as in PAIR and CENTRE. A target that is also a negative, or that is repeated in the
// block, is handled separately, so that all reads see the values before the block.
#pragma once

#include "training/skipgram/pooled_centres.h"
#include "training/skipgram/prefetch.h"
#include "training/skipgram/small_gemm.h"

namespace {

class BlockUpdate {
public:
    BlockUpdate(const SkipGramTask& t, int64_t max_pairs, int64_t max_block_pairs, int64_t first, int64_t last)
        : t(t), shift(t) {
        d = round_up(t.dim, W);
        k = round_up(t.k, W);
        const int64_t n = round_up(t.share < t.n_windows ? t.share : t.n_windows, TILE), k4 = round_up(t.k, TILE);
        u = scratch.take<float>(n * d);     h = scratch.take<float>(n * d);    s = scratch.take<float>(n * k);
        v = scratch.take<float>(k * d);     vt = scratch.take<float>(d * k);   dv = scratch.take<float>(k4 * d);
        gap = scratch.take<float>(k);       gap_with_c = scratch.take<float>(k);    w = scratch.take<float>(k);
        w_own = scratch.take<float>(k);     e = scratch.take<float>(k);        slope = scratch.take<float>(n * k);
        x = scratch.take<float>(max_pairs);      s_t = scratch.take<float>(max_pairs);
        gap_t = scratch.take<float>(max_pairs);  g_t = scratch.take<float>(max_block_pairs);
        g = scratch.take<float>(max_pairs);      steps = scratch.take<float>(max_pairs);
        moved = scratch.take<float*>(max_pairs); next_rows = scratch.take<float*>(n + t.k);
        stream.make(scratch, t, max_pairs, 0, false, first, last, nullptr);
        id = scratch.take<int32_t>(max_pairs);   read_rows = scratch.take<float*>(max_block_pairs);
        read_slopes = scratch.take<float>(max_block_pairs);
        place = scratch.take<int32_t>(max_block_pairs);
        is_repeated = scratch.take<int32_t>(max_block_pairs); next_pair = scratch.take<int32_t>(max_block_pairs);
        window_index = scratch.take<int32_t>(max_block_pairs);
        first_column = scratch.take<int32_t>(t.k);        first_centre = scratch.take<int32_t>(n);
        sum = scratch.take<float>(d);
        hit = scratch.take<Hit>(max_pairs * t.k + 1);
        seen.make(scratch, max_block_pairs + t.k);
        centres.make(scratch, n);
        pooled.make(scratch, t, t.share, first, last);
        if (!scratch.ok) return;
        for (int64_t j = 0; j < t.k; ++j) w[j] = t.weight && !t.weight_stride ? t.weight[j] : 1.f;
    }

    bool ok() const { return scratch.ok; }

    double range(int64_t first, int64_t last, double* c_grad) {
        ColumnMask mask(t, t.start[first]);
        double loss = 0;
        for (int64_t i = first; i < last; i += t.share)
            loss += block(i, i + t.share < last ? i + t.share : last, last, mask, c_grad);
        return loss;
    }

private:
    const SkipGramTask& t;
    Shift shift;
    Scratch scratch;
    Seen seen, centres;
    PooledCentres pooled;
    int64_t d, k;  // padded
    float *u, *h, *s, *v, *vt, *dv, *gap, *gap_with_c, *w, *w_own, *e, *slope, *x, *s_t, *gap_t, *g_t, *g, *steps, *sum,
        *read_slopes;
    float **moved, **read_rows, **next_rows;
    RowStream stream;
    int32_t *id, *place, *is_repeated, *next_pair, *window_index, *first_column, *first_centre;
    Hit* hit;

    float* row_at(int64_t b) const { return t.v + b * t.v_stride; }

    // Pack the rows and find repetitions. `place` of a pair: the negative equal to its target, or K + the first pair of
    // the block with this target.
    void read(int64_t first, int64_t last, const int64_t* ids) {
        const int64_t n = last - first, begin = t.start[first], pairs = t.start[last] - begin;
        const size_t bytes = (size_t)t.dim * sizeof(float);
        centres.clear();
        for (int64_t i = 0; i < n; ++i) {
            const int64_t centre = t.centre[first + i];
            if (pooled.is_active()) pooled.pool(first + i, u + i * d);
            else std::memcpy(u + i * d, t.u + centre * t.u_stride, bytes);
            first_centre[i] = centres.put((int32_t)centre, (int32_t)i);
        }
        for (int64_t i = n; i < round_up(n, TILE); ++i) std::memset(u + i * d, 0, bytes);
        seen.clear();
        for (int64_t j = 0; j < t.k; ++j) {
            std::memcpy(v + j * d, row_at(ids[j]), bytes);
            first_column[j] = seen.put((int32_t)ids[j], (int32_t)j);
        }
        for (int64_t p = 0; p < pairs; ++p) {
            place[p] = seen.put((int32_t)t.target[begin + p], (int32_t)(t.k + p));
            is_repeated[p] = 0;
            if (place[p] >= t.k && place[p] != t.k + p) is_repeated[place[p] - t.k] = is_repeated[p] = 1;
        }
    }

    double block(int64_t first, int64_t last, int64_t end, ColumnMask& mask, double* c_grad) {
        const int64_t n = last - first, rows = round_up(n, TILE), begin = t.start[first], first_id =
            first / t.share * t.k;
        const int64_t* ids = t.ids + first_id;
        PrefetchQueue none, queue = next_block(last, end, rows);
        read(first, last, ids);
        transpose(v, d, k, d, vt, k);
        product(u, d, 1, vt, k, rows, d, k, s, k, true, none);
        if (t.scores)
            for (int64_t j = 0; j < t.k; ++j) {
                float total = 0;
                for (int64_t i = 0; i < n; ++i) total += s[i * k + j];
                t.scores[first_id + j] = total / (float)n;
            }
        if (t.weight_stride) std::memcpy(w, t.weight + first_id, (size_t)t.k * sizeof(float));
        shift.columns(t, first_id, t.k, 0.f, gap);
        double loss = 0;
        for (int64_t i = 0; i < n; ++i) loss += window(first, i, ids, mask, c_grad);
        for (int64_t i = n; i < rows; ++i) std::memset(slope + i * k, 0, (size_t)k * sizeof(float));
        for (int64_t j = 0; j < t.k; ++j)
            if (first_column[j] != j)
                for (int64_t i = 0; i < n; ++i) {
                    slope[i * k + first_column[j]] += slope[i * k + j];
                    slope[i * k + j] = 0;
                }
        product(slope, k, 1, v, d, rows, t.k, d, h, d, false, queue);
        product(slope, 1, k, u, d, round_up(t.k, TILE), n, d, dv, d, true, queue);
        write(first, n, ids, t.start[last] - begin);
        return loss;
    }

    // Scores and slopes of window i of the block. Updates the targets that occur only once.
    double window(int64_t first, int64_t i, const int64_t* ids, ColumnMask& mask, double* c_grad) {
        const int64_t begin = t.start[first + i], m = t.start[first + i + 1] - begin, from = begin - t.start[first];
        const int64_t centre = t.centre[first + i];
        bool hits = false;
        for (int64_t p = 0; p < m; ++p) hits |= place[from + p] < t.k;
        stream.fill();
        float* const* row = stream.row;
        dots(row, stream.ahead(), m, u + i * d, t.dim, s_t);
        const float c = Shift::c(t, centre);
        shift.targets(t, begin, m, c, gap_t);
        const float* gaps = gap;
        if (c != 0) {
            for (int64_t j = 0; j < t.k; ++j) gap_with_c[j] = gap[j] + c;
            gaps = gap_with_c;
        }
        float *row_slopes = slope + i * k, *slope_t = g_t + from;
        Window q{m, t.k, false, s_t, s + i * k, gap_t, gaps, w, hit, 0, g, row_slopes, w_own, e, x};
        q.n_hits = mask.find(begin, begin + m, ids, false, hits, hit);
        const double loss = slopes(t, q);
        for (int64_t j = t.k; j < k; ++j) row_slopes[j] = 0;
        if (c_grad) {
            double total = 0;
            for (int64_t p = 0; p < m; ++p) total += g[p];
            for (int64_t j = 0; j < t.k; ++j) total += row_slopes[j];
            c_grad[t.c_stride ? centre : 0] -= total;
        }
        int64_t count = 0, n_read = 0;  // rows updated now; rows that are only read
        float* const x_i = u + i * d;
        for (int64_t p = 0; p < m; ++p) {
            const float a = slope_t[p] = g[p];
            window_index[from + p] = (int32_t)i;
            if (a == 0) continue;
            if (place[from + p] < t.k) row_slopes[place[from + p]] += a;
            else if (is_repeated[from + p]) { read_rows[n_read] = row[p]; read_slopes[n_read++] = a; }
            else { moved[count] = row[p]; id[count] = (int32_t)t.target[begin + p]; g[count++] = a; }
        }
        if (t.v_acc == nullptr) for (int64_t r = 0; r < count; ++r) steps[r] = (float)t.lr * g[r];
        else {
            const float mean = square(x_i, t.dim) / (float)t.dim;
            for (int64_t r = 0; r < count; ++r) steps[r] = g[r] * rate(t, t.v_acc, id[r], g[r] * g[r] * mean);
        }
        move<false>(moved, stream.ahead(), g, steps, count, x_i, t.dim, h + i * d, 0.f);
        collect(read_rows, read_slopes, n_read, h + i * d, t.dim);
        stream.advance(m);
        return loss;
    }

    // The rows of the next block's centres and negatives, prefetched by the last products of this block.
    PrefetchQueue next_block(int64_t first, int64_t end, int64_t rows) const {
        const int64_t last = first + t.share < end ? first + t.share : end;
        PrefetchQueue queue;
        if (first >= end) return queue;
        for (int64_t i = first; i < last && !pooled.is_active(); ++i) next_rows[queue.rows++] = t.u + t.centre[i] * t.u_stride;
        for (int64_t j = 0; j < t.k; ++j) next_rows[queue.rows++] = row_at(t.ids[first / t.share * t.k + j]);
        queue.row = next_rows;
        queue.dim = t.dim;
        const int64_t tiles = (rows + round_up(t.k, TILE)) / TILE * (d / (3 * W) + 1);
        queue.quota = queue.rows * (t.dim / 16 + 1) / tiles + 1;
        return queue;
    }

    // Update the negatives, the repeated targets and the centres, each row once.
    void write(int64_t first, int64_t n, const int64_t* ids, int64_t pairs) {
        for (int64_t j = 0; j < t.k; ++j)
            if (first_column[j] == j) step(t, t.v, t.v_stride, t.v_acc, ids[j], dv + j * d);
        const int64_t* target = t.target + t.start[first];
        for (int64_t p = 0; p < pairs; ++p) next_pair[p] = -1;
        // linked lists of the pairs with the same target, from the first one
        for (int64_t p = pairs - 1; p >= 0; --p) {
            const int64_t head = place[p] - t.k;
            if (head < 0 || !is_repeated[p] || head == p) continue;
            next_pair[p] = next_pair[head];
            next_pair[head] = (int32_t)p;
        }
        for (int64_t p = 0; p < pairs; ++p) {
            if (!is_repeated[p] || place[p] - t.k != p) continue;
            std::memset(sum, 0, (size_t)d * sizeof(float));
            int64_t count = 0;
            for (int64_t r = p; r >= 0; r = next_pair[r]) { read_rows[count] = u
                + window_index[r] * d; read_slopes[count++] = g_t[r]; }
            collect(read_rows, read_slopes, count, sum, t.dim);
            step(t, t.v, t.v_stride, t.v_acc, target[p], sum);
        }
        for (int64_t i = 0; i < n; ++i)
            if (first_centre[i] != i) add(h + first_centre[i] * d, 1.f, h + i * d, t.dim);
        if (pooled.is_active()) pooled.move(first, n, h, d, first_centre);
        else for (int64_t i = 0; i < n; ++i)
            if (first_centre[i] == i) step(t, t.u, t.u_stride, t.u_acc, t.centre[first + i], h + i * d);
    }
};

}  // namespace
