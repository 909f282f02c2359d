// The tables of the adversary's kernels.
#pragma once

#include <cstdint>

struct AceWord {  // what a density wants of an id, in one cache line
    int32_t klass;
    float log_within, p, unused;
};

struct AceTask {  // the same order in embtrain/kernels/ace.py
    const float* z;           // (n_rows, hidden)
    const float* w;           // (n_classes, hidden)
    const float* panel;       // (n_blocks, hidden, WIDTH)  w by blocks, 0 beyond n_classes
    const float* log_z;       // (n_rows)
    const double* ends;       // (n_rows, n_blocks)  running sums of g's blocks
    const int64_t* greedy;    // (n_rows)  the likeliest id
    const float* log_best;    // (n_rows)  its log g
    const AceWord* word;      // (n_ids)
    const uint64_t* accept;   // (n_ids)  alias table of p
    const int64_t* alias;     // (n_ids)
    const int64_t* member;    // (n_ids)  ids sorted by class
    const int64_t* first;     // (n_classes + 1)  where each class begins in member
    const double* upto;       // (n_ids)  running sums of π over member, from 0 in each class
    int64_t n_rows, n_classes, n_ids, hidden, n_blocks;
    double mix;               // λ
};
