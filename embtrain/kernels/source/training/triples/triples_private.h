// Each row has its own K negatives; a unit is one row.
//
// Scores, slopes and q are evaluated before the unit. Then its rows are updated one after the other: target, negatives,
// entity, relation. A repeated row is updated twice. Finally the updated entities are projected onto the constraint.
#pragma once

#include "training/triples/triples_unit.h"

namespace {

template <int S>
class PrivateUpdate : public TripleUnit {
public:
    explicit PrivateUpdate(const TripleTask& task) : TripleUnit(task) {
        q = scratch.take<float>(d);   out = scratch.take<float>(d);   a = scratch.take<float>(d);
        r = scratch.take<float>(d);   grad_r = scratch.take<float>(d);
        s = scratch.take<float>(1 + t.k);   g = scratch.take<float>(t.k);   f = scratch.take<float>(1 + t.k);
        steps = scratch.take<float>(1 + t.k);
        moved = scratch.take<float*>(1 + t.k);
        rows = scratch.take<float*>(1 + t.k);   next = scratch.take<float*>(1 + t.k);
    }

    double range(int64_t first, int64_t last, double* c_grad) {
        ColumnMask mask(u, first);
        double loss = 0;
        if (first < last) list(first, next);
        for (int64_t i = first; i < last; ++i) {
            float** const current = next;
            next = rows;
            rows = current;
            list(i + 1 < last ? i + 1 : i, next);
            loss += row(i, mask, c_grad);
        }
        return loss;
    }

private:
    float *q, *out, *a, *r, *grad_r, *s, *g, *f, *steps;
    float **rows, **next, **moved;

    void list(int64_t i, float** to) const {  // target, then negatives
        const float* const entity_row = entity(t.entity[i]);
        for (int64_t offset = 0; offset < d; offset += 16) prefetch(entity_row + offset);
        to[0] = entity(t.target[i]);
        for (int64_t j = 0; j < t.k; ++j) to[1 + j] = entity(t.ids[i * t.k + j]);
    }

    double row(int64_t i, ColumnMask& mask, double* c_grad) {
        const int64_t first_id = i * t.k;
        build_query<S>(i, q, a, r);
        scores<S>(rows, next, 1 + t.k, q, d, s);
        const float* column_scores = s + 1;
        if (t.scores) std::memcpy(t.scores + first_id, column_scores, (size_t)t.k * sizeof(float));
        columns(first_id);
        float g_t;
        const double loss = row_loss(i, first_id, s[0], column_scores, &g_t, g, mask, c_grad);
        const float q_square = S == DOT && t.e_acc ? square(q, d) : 0.f;
        int64_t n = 0;
        for (int64_t j = 0; j <= t.k; ++j) {
            const float slope = j ? g[j - 1] : g_t;
            if (slope == 0.f) continue;
            moved[n] = rows[j];
            f[n] = factor<S>(slope, s[j]);
            const float mean = t.e_acc ? mean_square<S>(slope, f[n], s[j], q_square, (float)t.dim) : 0.f;
            steps[n] = f[n] * rate(u, t.e_acc, j ? t.ids[first_id + j - 1] : t.target[i], mean);
            ++n;
        }
        if (n == 0) return loss;
        std::memset(out, 0, (size_t)d * sizeof(float));
        move<S>(moved, f, steps, n, q, d, out);
        apply_query_gradient<S>(i, out, a, r, grad_r);
        if (t.constraint == FREE) return loss;
        project(entity(t.entity[i]), d, t.constraint);
        for (int64_t j = 0; j <= t.k; ++j)
            if ((j ? g[j - 1] : g_t) != 0.f) project(rows[j], d, t.constraint);
        return loss;
    }
};

}  // namespace
