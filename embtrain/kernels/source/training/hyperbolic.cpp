// The update of points in hyperbolic space. The wrapper is embtrain/kernels/training/hyperbolic.py; its _HyperbolicTask
// has the same fields in order. spaces.h has the scores.
//
// A unit is one row: a concept g, its target and k negatives. Scores and gradients are evaluated before the unit, the
// gradients of a concept are summed and become Riemannian, and each concept then moves once and back into its bounds.
#include <cstring>
#include <limits>
#include <new>

#include "core/core.h"
#include "training/pairs.h"
#include "training/spaces.h"

namespace {

struct HyperbolicTask : PairTask<double> {
    const float *log_q, *log_q_table;   // (n_draws, k) or (n); sampled_softmax reads one of them
    int64_t space, loss;
    double size, low, high, margin, log_total_weight, lr, eps;
};

enum Space : int64_t { POINCARE, CONE, UMBRAL, PENUMBRAL };
enum Loss : int64_t { HINGED_SOFTMAX, ORDER, SAMPLED_SOFTMAX };

struct Candidate {
    Score score;     // slopes in the numbers of u and v
    Point point;
    double weight;   // 0: masked
    double logit;    // of a softmax
};

template <class S> class HyperbolicUpdate {
public:
    HyperbolicUpdate(const HyperbolicTask& task, const S& score, int64_t first)
        : t(task), score(score), negatives(task, first) {
        slots = 4;
        while (slots < 2 * (t.k + 2)) slots *= 2;
        candidates = new (std::nothrow) Candidate[size_t(t.k + 1)];
        rows = new (std::nothrow) Row[size_t(t.k + 2)];
        gradients = new (std::nothrow) double[size_t((t.k + 2) * t.dim)];
        seen = new (std::nothrow) Entry[size_t(slots)]();
    }
    ~HyperbolicUpdate() { delete[] candidates; delete[] rows; delete[] gradients; delete[] seen; }
    HyperbolicUpdate(const HyperbolicUpdate&) = delete;
    HyperbolicUpdate& operator=(const HyperbolicUpdate&) = delete;
    bool ok() const { return candidates && rows && gradients && seen; }

    double range(int64_t first, int64_t last) {
        double loss = 0;
        for (int64_t r = first; r < last; ++r) {
            if (r + 2 < last) prefetch(r + 2);
            loss += unit(r);
        }
        return loss;
    }

private:
    struct Row { int64_t id; Point point; };
    struct Entry { int64_t now, id, row; };

    void prefetch(int64_t r) const {
        const int64_t* ids = negatives.ids(r);
        prefetch_row(t.concept[r]);
        prefetch_row(t.target[r]);
        for (int64_t j = 0; j < t.k; ++j) prefetch_row(ids[j]);
    }

    void prefetch_row(int64_t id) const {
        const double* p = t.x + id * t.stride;
        for (int64_t d = 0; d < t.dim + 7 && d < 64; d += 8) __builtin_prefetch(p + (d < t.dim ? d : t.dim - 1), 1, 3);
    }

    static constexpr int64_t LAST = S::HAS_HEIGHT ? 1 : 0;   // coordinates that q leaves out

    void evaluate(Candidate& c, int64_t id, const double* g, Point at_g, bool is_hyponym) const {
        const double* x = t.x + id * t.stride;
        double q = 0;
        for (int64_t d = 0; d < t.dim - LAST; ++d) q += (x[d] - g[d]) * (x[d] - g[d]);
        c.point = S::point(x, t.dim);
        c.score = is_hyponym ? score(c.point, at_g, q) : score(at_g, c.point, q);
    }

    double unit(int64_t r) {
        const int64_t g = t.concept[r], to = t.target[r], *ids = negatives.ids(r);
        const bool is_hyponym = t.slot[r] != 0;
        const double* x_g = t.x + g * t.stride;
        const Point at_g = S::point(x_g, t.dim);
        evaluate(candidates[0], to, x_g, at_g, is_hyponym);
        candidates[0].weight = 1;
        for (int64_t j = 0; j < t.k; ++j) {
            Candidate& c = candidates[j + 1];
            c.weight = negatives.weight(r, j);
            if (c.weight == 0 && t.scores == nullptr) continue;
            evaluate(c, ids[j], x_g, at_g, is_hyponym);
            if (t.scores != nullptr) t.scores[r * t.k + j] = (float)c.score.s;
        }
        const double loss = slopes(r, ids);
        n_rows = 0;
        ++now;
        row_of(g, at_g);
        for (int64_t j = 0; j <= t.k; ++j) {
            const Candidate& c = candidates[j];
            if (c.weight == 0) continue;                       // now ∂L/∂s
            const int64_t id = j == 0 ? to : ids[j - 1];
            collect(c, t.x + id * t.stride, x_g, row_of(id, c.point), is_hyponym);
        }
        for (int64_t i = 0; i < n_rows; ++i) move(rows[i], gradients + i * t.dim);
        return loss;
    }

    // The loss of row r, NaN if a score is. Replaces the weights of the candidates by ∂L/∂s.
    double slopes(int64_t r, const int64_t* ids) {
        Candidate& to = candidates[0];
        const double s = to.score.s;
        if (t.loss == ORDER) {
            double loss = s >= 0 ? 0 : -s;
            to.weight = s >= 0 ? 0 : -1;
            for (int64_t j = 1; j <= t.k; ++j) {
                Candidate& c = candidates[j];
                if (c.weight == 0) continue;
                const double hinge = t.margin + c.score.s;
                if (hinge <= 0) { c.weight = 0; continue; }
                loss += c.weight * hinge;
            }
            return loss;
        }
        const bool is_hinged = t.loss == HINGED_SOFTMAX;
        double top = std::numeric_limits<double>::lowest(), total = 0;
        for (int64_t j = 1; j <= t.k; ++j) {
            Candidate& c = candidates[j];
            if (c.weight == 0) continue;
            const double hinge = t.margin + c.score.s;
            c.logit = is_hinged ? hinge <= 0 ? 0 : hinge : c.score.s - correction(r, j - 1, ids);
            top = std::fmax(top, c.logit);
        }
        for (int64_t j = 1; j <= t.k; ++j) {
            Candidate& c = candidates[j];
            if (c.weight == 0) continue;
            c.logit = c.weight * std::exp(c.logit - top);
            total += c.logit;
        }
        if (total == 0) { to.weight = 0; return 0; }
        // L = log(1 + eᶻ), and its slope in z
        const double z = top + std::log(total) - (is_hinged && s > 0 ? 0 : s), e = std::exp(-std::fabs(z));
        const double slope = z >= 0 ? 1 / (1 + e) : e / (1 + e);
        to.weight = is_hinged && s >= 0 ? 0 : -slope;
        for (int64_t j = 1; j <= t.k; ++j) {
            Candidate& c = candidates[j];
            if (c.weight == 0) continue;
            c.weight = is_hinged && t.margin + c.score.s <= 0 ? 0 : slope * c.logit / total;
        }
        return std::fmax(z, 0.) + std::log1p(e);
    }

    double correction(int64_t r, int64_t j, const int64_t* ids) const {
        const float log_q = t.log_q != nullptr ? t.log_q[r / t.share * t.k + j] : t.log_q_table[ids[j]];
        return (double)log_q + t.log_total_weight;
    }

    // The index of a concept among those of this unit; a new one gets a gradient of 0.
    int64_t row_of(int64_t id, Point point) {
        uint64_t slot = (uint64_t)id * 0x9E3779B97F4A7C15ull >> 32;
        for (;; ++slot) {
            Entry& entry = seen[slot & ((uint64_t)slots - 1)];
            if (entry.now == now && entry.id == id) return entry.row;
            if (entry.now == now) continue;
            entry = {now, id, n_rows};
            rows[n_rows] = {id, point};
            std::memset(gradients + n_rows * t.dim, 0, (size_t)t.dim * sizeof(double));
            return n_rows++;
        }
    }

    // Adds ∂L/∂x of a candidate and of g, from c.weight = ∂L/∂s.
    void collect(const Candidate& c, const double* x, const double* x_g, int64_t row, bool is_hyponym) {
        double *own = gradients + row * t.dim, *of_g = gradients;
        const double in_c = c.weight * (is_hyponym ? c.score.a : c.score.b);
        const double in_g = c.weight * (is_hyponym ? c.score.b : c.score.a), in_q = 2 * c.weight * c.score.q;
        if (S::HAS_HEIGHT) {
            for (int64_t d = 0; d < t.dim - 1; ++d) {
                const double step = in_q * (x[d] - x_g[d]);
                own[d] += step;
                of_g[d] -= step;
            }
            own[t.dim - 1] += in_c;
            of_g[t.dim - 1] += in_g;
            return;
        }
        for (int64_t d = 0; d < t.dim; ++d) {
            const double step = in_q * (x[d] - x_g[d]);
            own[d] += 2 * in_c * x[d] + step;
            of_g[d] += 2 * in_g * x_g[d] - step;
        }
    }

    // x −= rate · G⁻¹ ∂L/∂x, back into the bounds
    void move(const Row& row, double* gradient) {
        double* x = t.x + row.id * t.stride;
        const double scale = S::HAS_HEIGHT ? row.point.room * row.point.room : row.point.room * row.point.room / 4;
        double square = 0;
        for (int64_t d = 0; d < t.dim - LAST; ++d) gradient[d] *= scale;
        for (int64_t d = 0; d < t.dim; ++d) square += gradient[d] * gradient[d];
        double rate = t.lr;
        if (t.acc != nullptr) rate /= std::sqrt(t.acc[row.id] += square / (double)t.dim) + t.eps;
        for (int64_t d = 0; d < t.dim; ++d) x[d] -= rate * gradient[d];
        if (S::HAS_HEIGHT) {
            double& height = x[t.dim - 1];
            height = height < t.low ? t.low : height > t.high ? t.high : height;
            return;
        }
        double norm = 0;
        for (int64_t d = 0; d < t.dim; ++d) norm += x[d] * x[d];
        norm = std::sqrt(norm);
        if (!(norm < t.low || norm > t.high)) return;
        if (norm == 0) { x[0] = t.low; return; }   // no direction: along the first axis
        const double factor = (norm < t.low ? t.low : t.high) / norm;
        for (int64_t d = 0; d < t.dim; ++d) x[d] *= factor;
    }

    const HyperbolicTask& t;
    const S& score;
    PairNegatives<double> negatives;
    int64_t slots, now = 0, n_rows = 0;
    Candidate* candidates = nullptr;
    Row* rows = nullptr;
    double* gradients = nullptr;
    Entry* seen = nullptr;
};

template <class S> int run(const HyperbolicTask& t, const S& score, int64_t first, int64_t last, double* loss) {
    HyperbolicUpdate<S> update(t, score, first);
    if (!update.ok()) return NO_MEMORY;
    *loss = update.range(first, last);
    return OK;
}

}  // namespace

extern "C" EMBTRAIN_API int embtrain_hyperbolic_check(const HyperbolicTask* task) {
    return is_valid(*task) ? OK : OUT_OF_RANGE;
}

// Update rows [first, last). The task must have been checked.
extern "C" EMBTRAIN_API int embtrain_hyperbolic_update(const HyperbolicTask* task, int64_t first, int64_t last,
                                                       double* loss) {
    const HyperbolicTask& t = *task;
    switch (t.space) {
        case POINCARE: return run(t, Poincare{{}, t.size}, first, last, loss);
        case CONE: return run(t, Cone{{}, t.size}, first, last, loss);
        case UMBRAL: return run(t, Umbral{{}, t.size, std::sinh(t.size)}, first, last, loss);
        default: return run(t, Penumbral{{}, t.size}, first, last, loss);
    }
}
