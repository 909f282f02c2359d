// Each row has its own K columns; a row is a unit.
//
// Scores, slopes and q are those at the values before the unit. Its rows are then moved one after the other: target,
// columns, entity, relation. One that occurs twice moves twice. At last those that moved are brought back onto the
// sphere.
#pragma once

#include "training/triples/triples_unit.h"

namespace {

template <int S>
class OwnUpdate : public Unit {
public:
    explicit OwnUpdate(const TripleTask& task) : Unit(task) {
        q = scratch.take<float>(d);   out = scratch.take<float>(d);   a = scratch.take<float>(d);
        r = scratch.take<float>(d);   of_r = scratch.take<float>(d);
        s = scratch.take<float>(1 + t.k);   g = scratch.take<float>(t.k);   f = scratch.take<float>(1 + t.k);
        steps = scratch.take<float>(1 + t.k);
        moved = scratch.take<float*>(1 + t.k);
        rows = scratch.take<float*>(1 + t.k);   next = scratch.take<float*>(1 + t.k);
    }

    double range(int64_t first, int64_t last, double* c_grad) {
        Forgiven forgiven(u, first);
        double loss = 0;
        if (first < last) list(first, next);
        for (int64_t i = first; i < last; ++i) {
            float** const now = next;
            next = rows;
            rows = now;
            list(i + 1 < last ? i + 1 : i, next);
            loss += row(i, forgiven, c_grad);
        }
        return loss;
    }

private:
    float *q, *out, *a, *r, *of_r, *s, *g, *f, *steps;
    float **rows, **next, **moved;

    void list(int64_t i, float** to) const {  // target, then columns
        const float* const given = entity(t.entity[i]);
        for (int64_t at = 0; at < d; at += 16) fetch(given + at);
        to[0] = entity(t.target[i]);
        for (int64_t j = 0; j < t.k; ++j) to[1 + j] = entity(t.ids[i * t.k + j]);
    }

    double row(int64_t i, Forgiven& forgiven, double* c_grad) {
        const int64_t at = i * t.k;
        ask<S>(i, q, a, r);
        scores<S>(rows, next, 1 + t.k, q, d, s);
        const float* own = s + 1;
        if (t.scores) std::memcpy(t.scores + at, own, (size_t)t.k * sizeof(float));
        columns(at);
        float g_t;
        const double loss = slopes_of(i, at, s[0], own, &g_t, g, forgiven, c_grad);
        const float long_q = S == DOT && t.e_acc ? square(q, d) : 0.f;
        int64_t n = 0;
        for (int64_t j = 0; j <= t.k; ++j) {
            const float slope = j ? g[j - 1] : g_t;
            if (slope == 0.f) continue;
            moved[n] = rows[j];
            f[n] = factor<S>(slope, s[j]);
            const float mean = t.e_acc ? mean_square<S>(slope, f[n], s[j], long_q, (float)t.dim) : 0.f;
            steps[n] = f[n] * rate(u, t.e_acc, j ? t.ids[at + j - 1] : t.target[i], mean);
            ++n;
        }
        if (n == 0) return loss;
        std::memset(out, 0, (size_t)d * sizeof(float));
        move<S>(moved, f, steps, n, q, d, out);
        answer<S>(i, out, a, r, of_r);
        if (t.onto == FREE) return loss;
        project(entity(t.entity[i]), d, t.onto);
        for (int64_t j = 0; j <= t.k; ++j)
            if ((j ? g[j - 1] : g_t) != 0.f) project(rows[j], d, t.onto);
        return loss;
    }
};

}  // namespace
