// Shared by both layouts: the task as a skip-gram task, queries, and the loss of one row.
#pragma once

#include "training/triples/triples_rows.h"
#include "training/skipgram/scratch.h"

namespace {

// The task as a SkipGramTask, to reuse its losses, corrections and rates: v are entities, u relations, and each row is
// a window of one pair.
inline SkipGramTask as_skipgram(const TripleTask& t) {
    SkipGramTask u{};
    u.u = t.r; u.v = t.e; u.u_acc = t.r_acc; u.v_acc = t.e_acc;
    u.centre = t.relation; u.target = t.target; u.ids = t.ids;
    u.log_q = t.log_q; u.log_q_table = t.log_q_table; u.log_q_target = t.log_q_target;
    u.weight = t.weight; u.false_negatives = t.false_negatives; u.c = t.c; u.scores = t.scores;
    u.n_u = t.n_r; u.n_v = t.n_e; u.u_stride = t.r_stride; u.v_stride = t.e_stride; u.dim = t.dim;
    u.n_windows = u.n_pairs = t.n; u.n_draws = t.n_draws; u.k = t.k; u.share = t.share;
    u.weight_stride = t.weight_stride; u.n_false_negatives = t.n_false_negatives; u.mask_target = t.mask_target;
    u.loss = t.loss; u.ranking = t.ranking; u.margin = t.margin; u.positive_weight = t.positive_weight;
    u.total_weight = t.total_weight; u.lr = t.lr; u.eps = t.eps;
    return u;
}

class TripleUnit {
public:
    explicit TripleUnit(const TripleTask& task)
        : t(task), u(as_skipgram(task)), shift(u), d(round_up(task.dim, W)), c(task.c == nullptr ? 0.f : *task.c) {
        w = scratch.take<float>(t.k);      w_own = scratch.take<float>(t.k);  e = scratch.take<float>(t.k);
        gap = scratch.take<float>(t.k);    hit = scratch.take<Hit>(t.k + 1);  x = scratch.take<float>(1);
        for (int64_t j = 0; scratch.ok && j < t.k; ++j) {
            w[j] = t.weight && !t.weight_stride ? t.weight[j] : 1.f;
            gap[j] = (float)-t.gamma;
        }
    }

    bool ok() const { return scratch.ok; }

protected:
    const TripleTask& t;
    const SkipGramTask u;
    Shift shift;
    Scratch scratch;
    const int64_t d;  // padded
    const float c;
    float *w, *w_own, *e, *gap, *x;
    Hit* hit;

    float* entity(int64_t b) const { return t.e + b * t.e_stride; }
    float* relation(int64_t b) const { return t.r + b * t.r_stride; }

    // q of row i, and copies of its entity and relation rows.
    template <int S>
    void build_query(int64_t i, float* q, float* a, float* r) const {
        const float *p = entity(t.entity[i]), *s = relation(t.relation[i]);
        const vec sign = splat(t.slot[i] ? -1.f : 1.f);
        for (int64_t offset = 0; offset < d; offset += W) {
            const vec a_v = load(p + offset), r_v = load(s + offset);
            store(q + offset, S == DOT ? a_v * r_v : a_v + sign * r_v);
            if (S == DOT) { store(a + offset, a_v); store(r + offset, r_v); }
        }
    }

    // Update the entity and the relation of row i from ∂L/∂q. `out` is overwritten.
    template <int S>
    void apply_query_gradient(int64_t i, float* out, const float* a, const float* r, float* grad_r) const {
        const vec sign = splat(t.slot[i] ? -1.f : 1.f);
        for (int64_t offset = 0; offset < d; offset += W) {
            const vec y = load(out + offset);
            store(grad_r + offset, S == DOT ? y * load(a + offset) : sign * y);
            if (S == DOT) store(out + offset, y * load(r + offset));
        }
        step(u, t.e, t.e_stride, t.e_acc, t.entity[i], out);
        step(u, t.r, t.r_stride, t.r_acc, t.relation[i], grad_r);
    }

    // Load the corrections and weights of the draw whose negatives begin at first_id.
    void columns(int64_t first_id) {
        if (t.weight_stride) std::memcpy(w, t.weight + first_id, (size_t)t.k * sizeof(float));
        shift.columns(u, first_id, t.k, c, gap);
    }

    // Loss of row i: from s_t and s (k) to the slopes g_t and g (k). Its negatives begin at first_id.
    double row_loss(int64_t i, int64_t first_id, float s_t, const float* s, float* g_t, float* g, ColumnMask& mask,
                     double* c_grad) {
        const int64_t hits = mask.find(i, i + 1, t.ids + first_id, true, true, hit);
        alignas(4 * W) float score_t[W] = {s_t}, gap_t[W] = {(float)-t.gamma}, slope_t[W] = {};
        shift.targets(u, i, 1, c, gap_t);
        Window q{1, t.k, false, score_t, s, gap_t, gap, w, hit, hits, slope_t, g, w_own, e, x};
        if (t.adversarial) {
            adversarial_weights(s, hits);
            q.w = x_w();
            q.n_hits = 0;
        }
        double loss = slopes(u, q);
        if (t.row_weight) {
            const float a = t.row_weight[i];
            loss *= a;
            slope_t[0] *= a;
            for (int64_t j = 0; j < t.k; ++j) g[j] *= a;
        }
        *g_t = slope_t[0];
        if (c_grad) {
            double total = slope_t[0];
            for (int64_t j = 0; j < t.k; ++j) total += g[j];
            c_grad[0] -= total;
        }
        return loss;
    }

private:
    const float* x_w() const { return e; }

    // e_j = w_j exp(α s_j) divided by their sum; 0 at hits.
    void adversarial_weights(const float* s, int64_t hits) {
        const vec alpha = splat((float)t.temperature), low = splat(-3.4e38f);
        std::memcpy(e, w, (size_t)t.k * sizeof(float));
        for (int64_t h = 0; h < hits; ++h) e[hit[h].column] = 0.f;
        vec top = low;
        for (int64_t j = 0; j < t.k; j += W)
            top = most(top, first(load(e + j), t.k - j) != vec{} ? alpha * load(s + j) : low);
        float max_score = top[0];
        for (int i = 1; i < W; ++i) max_score = top[i] > max_score ? top[i] : max_score;
        vec total = {};
        for (int64_t j = 0; j < t.k; j += W) {
            const vec m = first(load(e + j), t.k - j), x = alpha * load(s + j) - splat(max_score);
            const vec y = m == vec{} ? vec{} : m * (x == x ? exp_of(x) : x);   // NaN reaches the loss
            store(e + j, y);
            total += y;
        }
        const float weight_sum = sum(total);
        const vec factor = splat(weight_sum > 0.f ? 1.f / weight_sum : 0.f);
        for (int64_t j = 0; j < t.k; j += W) store(e + j, load(e + j) * factor);
    }
};

}  // namespace
