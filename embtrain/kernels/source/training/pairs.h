// Rows of pairs of concepts, as order.cpp and hyperbolic.cpp receive them, and the check of their ids.
#pragma once

#include <cstdint>

#include "core/core.h"

namespace {

// A row predicts one end of a pair from the other: the concept g, the target and k negatives are rows of one table.
template <class Real> struct PairTask {
    Real *x, *acc;                   // rows of `dim` numbers, `stride` apart; acc: row-Adagrad's sums, null: SGD
    const int64_t *concept, *target, *slot;    // slot 0: the target is a hypernym of g; 1: a hyponym
    const int64_t *ids;              // (n_draws, k); row r reads draw r / share
    const float *weight;             // (k), or (n_draws, k) if weight_stride is k; null: 1
    const int64_t *false_negatives;            // (2, n_false_negatives) row and column, sorted by row
    float *scores;                   // (n_rows, k), or null
    int64_t n, stride, dim, n_rows, n_draws, k, share, weight_stride, n_false_negatives, mask_target;
};

// Whether all ids are rows of the table, and the false negatives ascend.
template <class Real> bool is_valid(const PairTask<Real>& t) {
    bool valid = all_within(t.concept, t.n_rows, t.n) && all_within(t.target, t.n_rows, t.n)
        && all_within(t.slot, t.n_rows, 2)
        && all_within(t.ids, t.n_draws * t.k, t.n) && all_within(t.false_negatives, t.n_false_negatives, t.n_rows)
        && all_within(t.false_negatives + t.n_false_negatives, t.n_false_negatives, t.k);
    for (int64_t i = 0; valid && i + 1 < t.n_false_negatives; ++i)
        valid = t.false_negatives[i] < t.false_negatives[i + 1]
            || (t.false_negatives[i] == t.false_negatives[i + 1]
                && t.false_negatives[t.n_false_negatives + i] < t.false_negatives[t.n_false_negatives + i + 1]);
    return valid;
}

// The negatives of the rows, in order: their ids and weights, and which are masked.
template <class Real> class PairNegatives {
public:
    PairNegatives(const PairTask<Real>& task, int64_t first) : t(task) {
        while (next_masked < t.n_false_negatives && t.false_negatives[next_masked] < first) ++next_masked;
    }

    const int64_t* ids(int64_t row) const { return t.ids + row / t.share * t.k; }

    // The weight of negative j of a row, 0 if it is masked. To be called for all j of a row, then of the next row.
    float weight(int64_t row, int64_t j) {
        const float* all = t.weight + (t.weight_stride ? row / t.share * t.k : 0);
        const bool is_masked = t.mask_target && ids(row)[j] == t.target[row];
        if (next_masked < t.n_false_negatives && t.false_negatives[next_masked] == row
            && t.false_negatives[t.n_false_negatives + next_masked] == j) { ++next_masked; return 0.f; }
        return is_masked ? 0.f : t.weight == nullptr ? 1.f : all[j];
    }

private:
    const PairTask<Real>& t;
    int64_t next_masked = 0;
};

}  // namespace
