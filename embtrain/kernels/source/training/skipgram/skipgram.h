// The skip-gram update. The wrapper is embtrain/kernels/training/skipgram.py; its _SkipGramTask has the same fields in
// order.
//
//   s(a,b) = u_a · v_b      v_b -= lr (∂L/∂s_ab) u_a      u_a -= lr Σ_b (∂L/∂s_ab) v_b
//
// u_a is a row of u, or pooled from several rows: pooled_centres.h.
#pragma once

#include <cstdint>

struct SkipGramTask {
    float *u, *v;                    // rows of `dim` floats, u_stride and v_stride floats apart
    float *u_acc, *v_acc;            // row-Adagrad's sums; null: SGD
    const int64_t *centre, *start, *target;
    const int64_t *ids;              // (n_draws, k)
    const float *log_q, *log_q_table, *log_q_target;
    const float *weight;             // (k), or (n_draws, k) if weight_stride is k; null: 1
    const int64_t *false_negatives;            // (2, n_false_negatives) pair and column, sorted by pair
    const float *c;                  // log Z: one number, or one per word if c_stride is 1; null: 0
    float *scores;                   // (n_draws, k), or null
    // the rows of u of word i: pool_row[pool_start[i]] to pool_row[pool_start[i + 1] - 1]; null: row i alone
    const int64_t *pool_start, *pool_row;
    int64_t n_u, n_v, u_stride, v_stride, dim, n_windows, n_pairs, n_draws, k, share, weight_stride, n_false_negatives,
        c_stride,
        mask_target, loss, ranking, centered,
        threads,                   // that update the tables at the same time
        n_words, n_pool_rows, pool_mean,  // words that centres may be; length of pool_row; whether h is a mean
        prefetch_near;             // how rows are prefetched, see rows.h; results are the same
    double margin, positive_weight, alpha, total_weight, lr, eps;   // positive_weight: of gBCE
};

enum Loss { LOGISTIC, NCE, SAMPLED_SOFTMAX, MARGIN, GBCE, ALPHA_NCE };  // as LOSSES of the wrapper
