// The triples update. The wrapper is embtrain/kernels/training/triples.py; its _TripleTask has the same fields in
// order.
//
//   q = e_a ± r      L1: s = -Σ|q - b|   L2: s = -‖q - b‖           DOT: q = e_a ∘ r, s = q · b
#pragma once

#include <cstdint>

struct TripleTask {
    float *e, *r;  // rows e_stride and r_stride floats apart, multiples of 16; 0 beyond dim
    float *e_acc, *r_acc;                      // row-Adagrad's sums; null: SGD
    const int64_t *entity, *relation, *slot;   // (n)
    const int64_t *target;                     // (n)
    const float *row_weight;                   // (n) factors of the losses of rows; null: 1
    const int64_t *ids;                        // (n_draws, k)
    const float *log_q, *log_q_table, *log_q_target;
    const float *weight;                       // (k), or (n_draws, k) if weight_stride is k; null: 1
    const int64_t *false_negatives;                      // (2, n_false_negatives) row and column, sorted by row
    const float *c;                            // NCE's log Z, one number; null: 0
    float *scores;                             // (n_draws, k), or null
    int64_t n_e, n_r, e_stride, r_stride, dim, n, n_draws, k, share, weight_stride, n_false_negatives, mask_target,
        score,
        loss, ranking, adversarial, constraint;
    double margin, gamma, temperature, positive_weight, total_weight, lr, eps;   // positive_weight: of gBCE
};

enum Score { L1, L2, DOT };         // as SCORES of the wrapper
enum Constraint { FREE, SPHERE, BALL };   // as CONSTRAINTS of the wrapper
