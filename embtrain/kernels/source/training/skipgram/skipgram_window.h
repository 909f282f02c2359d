// PAIR and CENTRE: one window after the other. All scores, then all slopes, then each row once.
#pragma once

#include "training/skipgram/pooled_centres.h"
#include "training/skipgram/prefetch.h"

namespace {

// Rows of a window that are compared with each other. The comparisons grow with the square of the number and, among
// more rows, take longer than `correct`.
constexpr int64_t MOST_COMPARED = 16;

template <Prefetch P> class WindowUpdate {
public:
    WindowUpdate(const SkipGramTask& t, int64_t max_pairs, int64_t first, int64_t last) : t(t), shift(t) {
        per_pair = t.share == 0;
        const int64_t n = per_pair ? max_pairs * t.k : t.k, all = n + max_pairs;
        s = scratch.take<float>(all);       g = scratch.take<float>(all);     gap = scratch.take<float>(all);
        x = scratch.take<float>(max_pairs); e = scratch.take<float>(n);
        w = scratch.take<float>(max_pairs + n) + max_pairs;  // `binary_joined` reads as many floats before the weights
        w_own = scratch.take<float>(max_pairs + n) + max_pairs;
        steps = scratch.take<float>(all);   slope = scratch.take<float>(all); h = scratch.take<float>(t.dim);
        id_moved = scratch.take<int32_t>(all);
        moved = scratch.take<float*>(all);
        const int64_t pairs = t.start[last] - t.start[first];
        centres.make(scratch, t, 1, first, last);
        hot_rows.make(scratch, t, pairs + (per_pair ? pairs : last - first) * t.k, n + max_pairs);
        stream.make(scratch, t, max_pairs, n, first, last, hot_rows, P);
        hit = scratch.take<Hit>(max_pairs * t.k + 1);
        seen.make(scratch, all);
        if (!scratch.ok) return;
        for (int64_t i = 0; i < n; ++i) w[i] = t.weight && !t.weight_stride ? t.weight[i % t.k] : 1.f;
    }

    bool ok() const { return scratch.ok; }

    double range(int64_t first, int64_t last, double* c_grad) {
        ColumnMask mask(t, t.start[first]);
        double loss = 0;
        for (int64_t i = first; i < last; ++i) {
            loss += window(i, mask, c_grad);
        }
        hot_rows.flush();
        return loss;
    }

private:
    const SkipGramTask& t;
    Shift shift;
    Scratch scratch;
    Seen seen;
    HotRows hot_rows;
    RowStream stream;
    PooledCentres centres;
    bool per_pair;
    float *s, *g, *gap, *x, *w, *w_own, *e, *steps, *slope, *h;
    int32_t* id_moved;
    float** moved;
    Hit* hit;

    double window(int64_t i, ColumnMask& mask, double* c_grad) {
        const int64_t begin = t.start[i], m = t.start[i + 1] - begin, centre = t.centre[i];
        const int64_t n = per_pair ? m * t.k : t.k, first_id = (per_pair ? begin : i) * t.k, all = m + n;
        const bool is_pooled = centres.is_active();
        if (is_pooled) centres.prefetch_window(i + 1, centres.n_rows(i), 2);
        float* u = is_pooled ? centres.pool(i) : t.u + centre * t.u_stride;
        stream.fill();
        float* const* row = stream.row + 1;
        const int32_t* const id = stream.id + 1;
        float* const* const next = stream.ahead() + 1;
        dots<P>(row, next, all, u, t.dim, s);                         // targets, then negatives

        // SGD need not merge repeated rows; among many they are so frequent that it does not look for them
        const bool is_sgd = t.v_acc == nullptr;
        const bool may_repeat = (is_sgd && all > MOST_COMPARED) || !differ(id, all);
        const bool check_targets = may_repeat && t.mask_target && has_drawn_targets(id, m);
        if (t.weight_stride) std::memcpy(w, t.weight + first_id, (size_t)n * sizeof(float));
        const float c = Shift::c(t, centre);
        if (shift.drawn && !shift.target) std::memset(gap, 0, (size_t)m * sizeof(float));
        shift.targets(t, begin, m, c, gap);
        shift.columns(t, first_id, n, c, gap + m);
        Window q{m, t.k, per_pair, s, s + m, gap, gap + m, w, hit, 0, g, g + m, w_own, e, x};
        q.n_hits = mask.find(begin, begin + m, t.ids + first_id, per_pair, check_targets, hit);
        const double loss = is_binary(t) ? binary_joined(q, target_weight(t)) : slopes(t, q);
        if (c_grad) {
            double sum = 0;
            for (int64_t r = 0; r < all; ++r) sum += g[r];
            c_grad[t.c_stride ? centre : 0] -= sum;
        }
        if (may_repeat && !is_sgd) merge(id, all);

        int64_t n_moved = all;                                                 // rows with slope 0 are skipped
        while (n_moved > 0 && g[n_moved - 1] == 0) --n_moved;                  // at the end those of weight 0
        int64_t k = n_moved;
        const float* a = g;
        const int32_t* row_id = id;
        if (any_zero(g, n_moved)) {
            k = 0;
            for (int64_t r = 0; r < n_moved; ++r) {
                moved[k] = row[r];
                slope[k] = g[r];
                id_moved[k] = id[r];
                k += g[r] != 0;
            }
            row = moved, a = slope, row_id = id_moved;
        }
        const float lr = (float)t.lr;
        if (is_sgd && !is_pooled && !may_repeat) move<P, true>(row, next, a, steps, k, u, t.dim, u, lr);
        else {
            if (is_sgd) for (int64_t r = 0; r < k; r += W) store(steps + r, splat(lr) * load(a + r));
            else {
                const float mean = square(u, t.dim) / (float)t.dim;             // a row's gradient is its slope times u
                for (int64_t r = 0; r < k; ++r)
                    steps[r] = a[r] * rate(t, hot_rows.acc_of(row_id[r]), a[r] * a[r] * mean);
            }
            move<P, false>(row, next, a, steps, k, u, t.dim, h, lr);
            if (is_sgd && may_repeat) {
                vec product = {};
                for (int64_t r = 0; r < all; r += W) product += first(load(g + r) * load(s + r), all - r);
                correct(h, u, t.dim, sum(product));
            }
            if (is_pooled) centres.move(i, 1, h, t.dim, nullptr);
            else step(t, t.u, t.u_stride, t.u_acc, centre, h);
        }
        for (int64_t j = 0; t.scores && j < n; j += W)
            store_first(t.scores + first_id + j, load(s + m + j), std::min<int64_t>(n - j, W));
        stream.advance(all + 1);
        return loss;
    }

    // Whether a target equals one of its negatives; `id` has the targets, then the negatives.
    bool has_drawn_targets(const int32_t* id, int64_t m) const {
        ivec same = {};
        for (int64_t p = 0; p < m; ++p) {
            const int32_t* const column = id + m + (per_pair ? p * t.k : 0);
            for (int64_t j = 0; j < t.k; j += W)
                same |= (load(column + j) == splat(id[p])) & (lanes() < splat((int32_t)(t.k - j)));
        }
        return any(same);
    }

    static bool any_zero(const float* x, int64_t n) {
        ivec zero = {};
        for (int64_t i = 0; i < n; i += W) zero |= (load(x + i) == vec{}) & (lanes() < splat((int32_t)(n - i)));
        return any(zero);
    }

    void merge(const int32_t* id, int64_t n) {  // a repeated row is updated once, by the sum
        seen.clear();
        for (int64_t r = 0; r < n; ++r) {
            const int32_t place = seen.put(id[r], (int32_t)r);
            if (place != r) { g[place] += g[r]; g[r] = 0; }
        }
    }
};

}  // namespace
