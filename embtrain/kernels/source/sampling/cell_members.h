// Draws candidates inside a cell (a group of candidates) by e^o, from the current vectors or from an int8 copy.
//
//     r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j},   o = h·c_i  or  h·c_i / ‖c_i‖
//
// The copy is stored cell by cell in int8 (int8.h), and h is quantized in the same way. This reads a quarter of the
// memory, contiguously, and needs integer products only.
//
// Requests are processed in order of cell and query. The members of a cell are scattered over the table, so they are
// scored for all queries of the cell while they are in the cache. The loop is bound by memory latency, so rows are
// prefetched well ahead, across cell boundaries.
#pragma once

#include "sampling/int8.h"
#include "sampling/cell_masses.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

struct CellTask {  // the same order in embtrain/kernels/sampling/cells.py
    const float* table;         // (candidates, dim), rows `pitch` floats apart
    const int64_t* order;       // (candidates)  ordered by cell
    const int64_t* start;       // (cells + 1)   the begin of each cell in order
    const uint8_t* copy;        // (candidates, dim), in the order of `order`; null: read the table
    const float* scale;         // (candidates)  scales of the copy
    const float* h;             // (n_queries, dim)
    int64_t dim, pitch, unit, cells, largest, n_queries;  // unit: candidates are c / ‖c‖, as in the copy
};

namespace {

constexpr int64_t AHEAD = 64;      // rows prefetched ahead of the one being scored
constexpr int64_t REQUESTS_AHEAD = 16;  // requests between the current one and the prefetched one; they are scattered

// Prefetches the rows of the coming requests in their order, each cell once.
template <class Rows> class RowPrefetcher {
  public:
    RowPrefetcher(const CellTask& t, const Rows& rows, const Request* requests, int64_t n)
        : t_(t), rows_(rows), requests_(requests), n_(n) {
        enter();
    }

    void prefetch_rows(int64_t n_rows) {
        for (; a_ < n_; next()) {
            const int64_t end = std::min(end_, place_ + n_rows);
            n_rows -= end - place_;
            for (; place_ < end; ++place_) prefetch(rows_.row(place_), t_.dim);
            if (place_ < end_) return;
        }
    }

  private:
    void enter() {
        if (a_ >= n_) return;
        cell_ = requests_[a_].key / t_.n_queries;
        place_ = t_.start[cell_], end_ = t_.start[cell_ + 1];
    }

    void next() {
        for (const int64_t end_of_cell = (cell_ + 1) * t_.n_queries; a_ < n_ && requests_[a_].key < end_of_cell;) ++a_;
        enter();
    }

    const CellTask& t_;
    const Rows& rows_;
    const Request* requests_;
    int64_t n_, a_ = 0, cell_ = 0, place_ = 0, end_ = 0;  // end_: the end of the cell's places
};

// Lengths of four rows from their squares.
inline half length(half squares) {
#if defined(__SSE2__)
    const half root = (half)_mm_sqrt_ps((__m128)squares);
#else
    half root;
    for (int l = 0; l < 4; ++l) root[l] = std::sqrt(squares[l]);
#endif
    const half shortest = {MIN_NORM, MIN_NORM, MIN_NORM, MIN_NORM};
    return root < shortest ? shortest : root;
}

// Scores with the current table: o of n members from place `low` for Q queries, four members at a time. The output has
// room for whole vectors. `prefetcher` is null if the cell is the previous one; else as many rows are prefetched as are
// scored.
class TableRows {
  public:
    TableRows(Arena& arena, const CellTask& t) : t_(t), lengths_(arena.allocate<float>(t.largest + W)) {}
    bool failed() const { return false; }
    const float* row(int64_t place) const { return t_.table + t_.order[place] * t_.pitch; }

    template <int Q> void scores(const int64_t* query_id, int64_t low, int64_t n, float* const* o,
                                 RowPrefetcher<TableRows>* prefetcher) {
        if (prefetcher && t_.unit) score_rows<Q, true>(query_id, low, n, o, prefetcher);
        else score_rows<Q, false>(query_id, low, n, o, prefetcher);
    }

  private:
    // Numbers i..d-1 of x, fewer than W, in the last lanes; the other lanes are 0.
    static vec load_tail(const float* x, int64_t d, int64_t i) {
        if (d >= W) return (vec)((ivec)load(x + d - W) & (lanes() >= splat(int32_t(W - (d - i)))));
        vec few = {};
        std::copy(x + i, x + d, (float*)&few);
        return few;
    }

    template <int Q, bool LENGTHS>
    void score_rows(const int64_t* query_id, int64_t low, int64_t n, float* const* o,
                    RowPrefetcher<TableRows>* prefetcher) {
        const int64_t d = t_.dim;
        const float* h[Q];
        for (int q = 0; q < Q; ++q) h[q] = t_.h + query_id[q] * d;
        for (int64_t j = 0; j < n; j += 4) {
            const float* c[4];
            if (prefetcher) prefetcher->prefetch_rows(std::min<int64_t>(4, n - j));
            for (int l = 0; l < 4; ++l) c[l] = row(low + std::min(j + l, n - 1));
            vec s[Q][4] = {}, square[4] = {};
            int64_t i = 0;
            for (; i + W <= d; i += W)
                for (int l = 0; l < 4; ++l) {
                    const vec y = load(c[l] + i);
                    for (int q = 0; q < Q; ++q) s[q][l] += load(h[q] + i) * y;
                    if constexpr (LENGTHS) square[l] += y * y;
                }
            // As vectors too: the last bits must not depend on the other queries. A condition of the loop would keep s
            // in memory.
            if (i < d) {
                vec x[Q];
                for (int q = 0; q < Q; ++q) x[q] = load_tail(h[q], d, i);
                for (int l = 0; l < 4; ++l) {
                    const vec y = load_tail(c[l], d, i);
                    for (int q = 0; q < Q; ++q) s[q][l] += x[q] * y;
                    if constexpr (LENGTHS) square[l] += y * y;
                }
            }
            if constexpr (LENGTHS)
                store_half(lengths_ + j,
                           length(sums(fold(square[0]), fold(square[1]), fold(square[2]), fold(square[3]))));
            for (int q = 0; q < Q; ++q) {
                const half dots = sums(fold(s[q][0]), fold(s[q][1]), fold(s[q][2]), fold(s[q][3]));
                store_half(o[q] + j, t_.unit ? dots / load_half(lengths_ + j) : dots);
            }
        }
    }

    const CellTask& t_;
    float* const lengths_;         // of the cell scored last
};

// Scores with the int8 copy. scale_ has room for whole vectors.
class QuantizedRows {
  public:
    QuantizedRows(Arena& arena, const CellTask& t) : t_(t), h_(t.h, t.n_queries, t.dim),
        scale_(arena.allocate<float>(t.largest + W)) {}
    bool failed() const { return h_.failed(); }
    const uint8_t* row(int64_t place) const { return t_.copy + place * t_.dim; }

    template <int Q> void scores(const int64_t* query_id, int64_t low, int64_t n, float* const* o,
                                 RowPrefetcher<QuantizedRows>* prefetcher) {
        if (prefetcher) std::copy_n(t_.scale + low, n, scale_);
        for (int64_t j = 0; j < n; j += 4) {
            const uint8_t* c[4];
            if (prefetcher) prefetcher->prefetch_rows(std::min<int64_t>(4, n - j));
            for (int l = 0; l < 4; ++l) c[l] = row(low + std::min(j + l, n - 1));
            for (int q = 0; q < Q; ++q) {
                const QuantizedQuery y = h_.row(query_id[q]);
                const int32_t zeros = int32_t(h_.zeros(query_id[q]));
                const half_int int_products = products<1>(&y, c, t_.dim) - half_int{zeros, zeros, zeros, zeros};
                const float query_scale = h_.scale(query_id[q]);
                store_half(o[q] + j,
                           __builtin_convertvector(int_products, half) * (query_scale * load_half(scale_ + j)));
            }
        }
    }

  private:
    const CellTask& t_;
    const QuantizedQueries h_;
    float* const scale_;           // of the cell scored last
};

// Scores a cell's members for two queries at a time: a row in the cache serves both.
template <class Rows> class Scores {
  public:
    Scores(Arena& arena, const CellTask& t)
        : t_(t), rows_(arena, t), current_(arena.allocate<float>(t.largest + W)),
            next_(arena.allocate<float>(t.largest + W)) {}
    bool failed() const { return rows_.failed(); }
    const Rows& rows() const { return rows_; }

    // Scores of the n members from place `low` for the query of `key`. Computes those of `next` as well, unless next ==
    // key. prefetcher: null if the cell is that of the previous key.
    const float* cell_scores(int64_t key, int64_t next, int64_t low, int64_t n, RowPrefetcher<Rows>* prefetcher) {
        if (key == ready_) {
            std::swap(current_, next_);
            return current_;
        }
        const int64_t query_id[2] = {key % t_.n_queries, next % t_.n_queries};
        float* const o[2] = {current_, next_};
        if (key == next) rows_.template scores<1>(query_id, low, n, o, prefetcher);
        else rows_.template scores<2>(query_id, low, n, o, prefetcher);
        ready_ = next;
        return current_;
    }

  private:
    const CellTask& t_;
    Rows rows_;
    float *current_, *next_;
    int64_t ready_ = -1;           // the key whose scores are in next_
};

// m_i = e^{x_i - max x}, and 0 at `skip`. Returns false if an x is not finite.
inline bool exp_masses(const float* x, int64_t skip, Masses& masses) {
    const int64_t n = masses.n;
    const float top = largest(x, n);
    if (!std::isfinite(top)) return false;
    float shift = top;
    if (skip >= 0 && x[skip] == top) {                     // the others must not underflow relative to the skipped one
        shift = -INFINITY;
        for (int64_t j = 0; j < n; ++j) if (j != skip) shift = std::max(shift, x[j]);
    }
    int64_t j = 0;
    for (; j + W <= n; j += W) store(masses.m + j, exp_of(load(x + j) - splat(shift)));
    if (j < n) {
        vec last = {};
        std::copy(x + j, x + n, (float*)&last);
        store(masses.m + j, exp_of(last - splat(shift)));
    }
    if (skip >= 0) masses.m[skip] = 0;
    masses.sum();
    return true;
}

inline double log_share(double mass, double total) { return mass > 0 ? std::log(mass / total) : -INFINITY; }

// For n requests of a query and a cell: the place wanted, or a drawn place if it is -1, never `without`. order: the
// requests by cell, query and number, or null.
template <class Rows>
inline int inside_cells(const CellTask& t, const int64_t* query_id, const int64_t* cell, const int64_t* wanted,
                     const int64_t* without, const int64_t* order, int64_t n, uint64_t seed, int64_t first,
                     int64_t* place, double* log_r, double* rest) {
    Arena arena;
    Request* requests = arena.allocate<Request>(n);
    Scores<Rows> scores(arena, t);
    Masses masses(arena, t.largest);
    if (arena.failed() || scores.failed()) return NO_MEMORY;
    for (int64_t a = 0; a < n; ++a) {
        const int64_t i = order ? order[a] : a;
        requests[a] = {cell[i] * t.n_queries + query_id[i], i};
    }
    sort(requests, n);
    RowPrefetcher<Rows> prefetcher(t, scores.rows(), requests, n);
    prefetcher.prefetch_rows(AHEAD);
    for (int64_t begin = 0, end, before = -1; begin < n; begin = end) {
        const int64_t key = requests[begin].key, c = key / t.n_queries, low = t.start[c];
        for (end = begin + 1; end < n && requests[end].key == key;) ++end;
        masses.n = t.start[c + 1] - low;
        RowPrefetcher<Rows>* const next = c == before ? nullptr : &prefetcher;
        before = c;
        if (masses.n == 1) {                               // r = 1 for any o
            if (next) next->prefetch_rows(1);
            for (int64_t a = begin; a < end; ++a) {
                const int64_t i = requests[a].i;
                const bool excluded = without && without[i] == low;
                if (excluded && wanted[i] < 0) return NOT_FINITE;
                place[i] = low, log_r[i] = excluded ? -INFINITY : 0;
                if (rest) rest[i] = excluded;
            }
            continue;
        }
        const bool has_next = end < n && requests[end].key / t.n_queries == c;
        const float* const o = scores.cell_scores(key, has_next ? requests[end].key : key, low, masses.n, next);
        int64_t skip = -2;                                 // -2: masses not computed yet
        for (int64_t a = begin; a < end; ++a) {
            const int64_t i = requests[a].i;
            if (a + REQUESTS_AHEAD < n) {
                const int64_t coming = requests[a + REQUESTS_AHEAD].i;
                __builtin_prefetch(wanted + coming);
                __builtin_prefetch(place + coming, 1);
                __builtin_prefetch(log_r + coming, 1);
                if (without) __builtin_prefetch(without + coming);
            }
            const int64_t slot = without ? without[i] - low : -1, excluded = slot >= 0 && slot < masses.n ? slot : -1;
            if (excluded != skip && !exp_masses(o, skip = excluded, masses)) return NOT_FINITE;
            const int64_t j = wanted[i] >= 0 ? wanted[i] - low
                                             : masses.find(uniform01(seed, first + i) * masses.total());
            if (j < 0) return NOT_FINITE;
            log_r[i] = log_share(masses.m[j], masses.total());
            if (rest) rest[i] = masses.rest_share(j);
            place[i] = low + j;
        }
    }
    return OK;
}

template <class... Args> inline int inside(const CellTask& t, Args... args) {
    return t.copy ? inside_cells<QuantizedRows>(t, args...) : inside_cells<TableRows>(t, args...);
}

}  // namespace
