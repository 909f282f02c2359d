// Nodes of a tree for kernel-based negative sampling: their sums in float32 or 8 bits, and products with queries.
//
//     S_N = Σ_{b below N} π_b φ(b)          φ(h)·S_N = Σ_b π_b φ(h)·φ(b):  the unnormalized probability of node N
//
// Candidates are drawn in proportion to π_b φ(h)·φ(b), h a query and φ the features of a kernel. A draw walks from the
// root to a block of candidates and chooses a child by these products at each node (tree_walk.h). Level 0 holds the
// children of the root, the last level the blocks. A place is the index of a node in its level; the place of a
// candidate is its index in the order of the blocks.
#pragma once

#include "sampling/int8.h"

// The tree, and n requests: each draws a block, or requests the probability of a given one. Without requests
// (tree_sums.cpp), their fields are null or 0. The same order in embtrain/kernels/arguments/trees.py.
struct TreeTask {
    // per level, top first; never null unless noted
    const void* const* sums;       // (places, width)  S: float, or uint8_t with zero point 128 if `scale` is given
    const float* const* scale;     // (places)  s_N, the quantization scale: S = s_N (sums - 128); null: float sums
    const double* const* prior;    // (places)  P_N = Σ π_b of the candidates below
    const int64_t* const* count;   // (places)  |N|, the number of candidates below; 0: an empty node
    // per query
    const float* phi;              // (n_queries, width)  φ(h)
    const double* least;           // (n_queries)  ε(h): the weight of a node is at least ε(h) P_N
    // per request
    const int64_t* query_id;       // (n)  its query
    const int64_t* position;       // (n)  the place of its target, a candidate to exclude; null: nothing is excluded
    const double* mass;            // (n)  w: subtracted from φ(h)·S_N of each node above the target
    const double* share;           // (n)  π of the target: subtracted from their P_N. Both null if position is
    const int64_t* wanted;         // (n)  a block to walk to, or -1 to draw one
    // fan: children of a node. leaf: candidates of a full block. width: numbers in φ. candidates: in the whole tree
    int64_t levels, fan, leaf, width, candidates, n_queries, n;
    uint64_t seed;
    int64_t first;                 // the number of the first request, which selects its random numbers
};

namespace {

// Nodes with sums in float32.
struct FloatNodes {
    explicit FloatNodes(const TreeTask& t) : t_(t) {}
    bool failed() const { return false; }                  // whether an allocation failed: there is none

    // The 4 products φ(h)·S of H queries (H = 1, 2 or 4) with 4/H nodes of one level: out[i·(4/H)+j] is query i with
    // node j.
    template <int H> void four_products(const int64_t* query_id, int64_t level, const int64_t* place,
                                        double* out) const {
        const float *phi[H], *rows[4 / H];
        for (int l = 0; l < H; ++l) phi[l] = t_.phi + query_id[l] * t_.width;
        for (int l = 0; l < 4 / H; ++l) rows[l] = row(level, place[l]);
        dots<H>(phi, rows, t_.width, out);
    }

    const float* row(int64_t level, int64_t place) const { return (const float*)t_.sums[level] + place * t_.width; }
    int64_t bytes() const { return 4 * t_.width; }         // bytes of a row

    // φ·S of one query vector φ (width) and one node. `dots` always makes four products, so it gets the row four times.
    // The walk calls the same function, so both round in the same way.
    static double node_product(const TreeTask& t, const float* phi, int64_t level, int64_t place) {
        const float* const row = (const float*)t.sums[level] + place * t.width;
        const float* const rows[4] = {row, row, row, row};
        double product[4];
        dots(&phi, rows, t.width, product);
        return product[0];
    }

  private:
    const TreeTask& t_;
};

// Nodes with 8-bit sums (uint8 with zero point 128) and a scale each. Queries are quantized once, with a scale each.
struct Int8Nodes {
    explicit Int8Nodes(const TreeTask& t) : t_(t), phi_(t.phi, t.n_queries, t.width) {}
    bool failed() const { return phi_.failed(); }          // whether the allocation for the quantized queries failed

    // As in FloatNodes. The products are exact integers until the scales are applied.
    template <int H> void four_products(const int64_t* query_id, int64_t level, const int64_t* place,
                                        double* out) const {
        constexpr int R = 4 / H;
        int64_t int_sums[4] = {};
        for (int64_t from = 0; from < t_.width; from += MAX_PRODUCTS) {
            QuantizedQuery y[H];
            const uint8_t* rows[R];
            for (int l = 0; l < H; ++l) y[l] = phi_.row(query_id[l], from);
            for (int l = 0; l < R; ++l) rows[l] = row(level, place[l]) + from;
            const half_int part = products<H>(y, rows, std::min(MAX_PRODUCTS, t_.width - from));
            for (int l = 0; l < 4; ++l) int_sums[l] += part[l];
        }
        for (int l = 0; l < 4; ++l) {
            const int64_t q = query_id[l / R];
            out[l] = double(int_sums[l] - phi_.zeros(q)) * (double(phi_.scale(q)) * t_.scale[level][place[l % R]]);
        }
    }

    const uint8_t* row(int64_t level, int64_t place) const { return (const uint8_t*)t_.sums[level] + place * t_.width; }
    int64_t bytes() const { return t_.width; }

    // φ·S of one query vector φ, not quantized, and one node. It gives w of a target whose block is one candidate
    // (tree_draw.cpp): one product per draw, for which the query need not be quantized. w may differ from the walk's
    // product by the rounding of the query: the walk subtracts the same w for the draw and for the q that it reports.
    static double node_product(const TreeTask& t, const float* phi, int64_t level, int64_t place) {
        const uint8_t* const row = (const uint8_t*)t.sums[level] + place * t.width;
        double sum = 0;
        for (int64_t i = 0; i < t.width; ++i) sum += double(phi[i]) * (int64_t(row[i]) - ZERO);
        return sum * t.scale[level][place];
    }

  private:
    const TreeTask& t_;
    const QuantizedQueries phi_;
};

}  // namespace
