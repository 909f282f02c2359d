// Input structs of the generator kernels.
#pragma once

#include <cstdint>

// Classes of a block, as in embtrain/kernels/reference/sampling/generator.py; a multiple of W.
constexpr int64_t WIDTH = 16;
constexpr int64_t BUNDLE = 16;  // running sums compared at once; rows of running sums are padded to whole bundles

struct GeneratorWord {  // what a density reads of an id, within one cache line
    int32_t klass;
    float log_within, p, unused;
};

struct GeneratorTask {  // the same order in embtrain/kernels/sampling/generator.py
    const float* z;           // (n_rows, hidden)
    const float* w;           // (n_classes, hidden)
    const float* panel;       // (n_blocks, hidden, WIDTH)  w in blocks, 0 beyond n_classes
    const float* log_z;       // (n_rows)
    // (n_rows, n_ends)  running sums of g's blocks in units of 2^-32; the last one and the padding are 2^32 - 1
    const uint32_t* ends;
    const int64_t* greedy;    // (n_rows)  the most likely id
    const float* log_best;    // (n_rows)  its log g
    const GeneratorWord* word;      // (n_ids)
    const uint64_t* accept;   // (n_ids)  alias table of p
    const int64_t* alias;     // (n_ids)
    const int64_t* member;    // (n_ids)  ids sorted by class
    const int64_t* first;     // (n_classes + 1)  the begin of each class in member
    const uint64_t* keep;     // (n_ids)  alias tables of π in the order of member, one per class
    const int64_t* instead;   // (n_ids)  the alias ids of these tables
    int64_t n_rows, n_classes, n_ids, hidden, n_ends;
    double mix;               // λ
};
