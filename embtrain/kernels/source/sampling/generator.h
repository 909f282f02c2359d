// The tables of the adversary's kernels.
#pragma once

#include <cstdint>

// classes of a block, as in embtrain/kernels/reference/sampling/generator.py: whole vectors
constexpr int64_t WIDTH = 16;
constexpr int64_t BUNDLE = 16;  // running sums that are looked at together; rows of them are filled up to whole bundles

struct GeneratorWord {  // what a density wants of an id, in one cache line
    int32_t klass;
    float log_within, p, unused;
};

struct GeneratorTask {  // the same order in embtrain/kernels/sampling/generator.py
    const float* z;           // (n_rows, hidden)
    const float* w;           // (n_classes, hidden)
    const float* panel;       // (n_blocks, hidden, WIDTH)  w by blocks, 0 beyond n_classes
    const float* log_z;       // (n_rows)
    // (n_rows, n_ends)  running sums of g's blocks in units of 2^-32; from the last one on 2^32 - 1
    const uint32_t* ends;
    const int64_t* greedy;    // (n_rows)  the likeliest id
    const float* log_best;    // (n_rows)  its log g
    const GeneratorWord* word;      // (n_ids)
    const uint64_t* accept;   // (n_ids)  alias table of p
    const int64_t* alias;     // (n_ids)
    const int64_t* member;    // (n_ids)  ids sorted by class
    const int64_t* first;     // (n_classes + 1)  where each class begins in member
    const uint64_t* keep;     // (n_ids)  alias tables of π along member, one for each class
    const int64_t* instead;   // (n_ids)  there, id for id
    int64_t n_rows, n_classes, n_ids, hidden, n_ends;
    double mix;               // λ
};
