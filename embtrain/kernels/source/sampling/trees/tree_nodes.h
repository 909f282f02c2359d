// Node sums of a tree in float32 or int8, and their products with queries.
#pragma once

#include "sampling/int8.h"

struct TreeTask {  // the same order in embtrain/kernels/sampling/tree_walk.py
    const void* const* sums;       // per level, top first: (places, width) float or uint8_t
    const float* const* scale;     // per level: (places)  s_N; null: the sums are float
    const double* const* prior;    // (places)
    const int64_t* const* count;   // (places)
    const float* phi;              // (n_queries, width)
    const double* least;           // (n_queries)
    const int64_t* query_id;       // (n)
    const int64_t* position;       // (n)  the target's place; or null
    const double* mass;            // (n) or null
    const double* share;           // (n) or null
    const int64_t* wanted;         // (n)  a block to walk to, or -1 to draw one
    int64_t levels, fan, leaf, width, candidates, n_queries, n;
    uint64_t seed;
    int64_t first;                 // the number of the first request
};

namespace {

struct FloatNodes {
    explicit FloatNodes(const TreeTask& t) : t_(t) {}
    bool failed() const { return false; }

    // φ(h)·S of H queries and 4 / H places of a level, ordered by query.
    template <int H> void four_products(const int64_t* query_id, int64_t level, const int64_t* place,
                                        double* out) const {
        const float *phi[H], *rows[4 / H];
        for (int l = 0; l < H; ++l) phi[l] = t_.phi + query_id[l] * t_.width;
        for (int l = 0; l < 4 / H; ++l) rows[l] = row(level, place[l]);
        dots<H>(phi, rows, t_.width, out);
    }

    const float* row(int64_t level, int64_t place) const { return (const float*)t_.sums[level] + place * t_.width; }
    int64_t bytes() const { return 4 * t_.width; }         // bytes of a row

    // Σ φ S of one query and one place.
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

struct Int8Nodes {
    explicit Int8Nodes(const TreeTask& t) : t_(t), phi_(t.phi, t.n_queries, t.width) {}
    bool failed() const { return phi_.failed(); }

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
