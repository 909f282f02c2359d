// Scores of a cell's members, read row by row from the table or from the int8 copy, and prefetched in the order of the
// requests. The members of a cell are scattered over the table, and the loop waits for memory.
#pragma once

#include "sampling/cells/weights.h"
#include "sampling/int8.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

struct CellTask {  // the same order in embtrain/kernels/arguments/cells.py
    const float* table;         // (candidates, dim), rows `pitch` floats apart
    const int64_t* order;       // (candidates)  ordered by cell
    const int64_t* start;       // (cells + 1)   the begin of each cell in order
    const uint8_t* copy;        // (candidates, dim), in the order of `order`; null: read the table
    const float* scale;         // (candidates)  scales of the copy
    const float* h;             // (n_queries, dim)
    int64_t dim, pitch, unit, cells, largest, n_queries;  // unit: candidates are c / ‖c‖, as in the copy
};

namespace {

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

// Scores of a cell's members with the current table, four members and up to two queries at a time: a row in the cache
// serves both. As many rows are prefetched as are scored for the first queries of a cell.
class TableRows {
  public:
    static constexpr int QUERIES = 2;
    TableRows(Arena& arena, const CellTask& t) : t_(t), lengths_(arena.allocate<float>(t.largest + W)) {}
    bool failed() const { return false; }
    const float* row(int64_t place) const { return t_.table + t_.order[place] * t_.pitch; }

    // The n members from place `low`.
    void enter(int64_t low, int64_t n, RowPrefetcher<TableRows>& prefetcher) {
        low_ = low, n_ = n, prefetcher_ = &prefetcher;
    }

    // o of the members for Q queries. The output has room for whole vectors.
    template <int Q> void scores(const float* const* h, float* const* o) {
        if (prefetcher_ && t_.unit) score_rows<Q, true>(h, o);
        else score_rows<Q, false>(h, o);
        prefetcher_ = nullptr;
    }

  private:
    // Numbers i..d-1 of x, fewer than W, in the last lanes; the other lanes are 0.
    static vec load_tail(const float* x, int64_t d, int64_t i) {
        if (d >= W) return (vec)((ivec)load(x + d - W) & (lanes() >= splat(int32_t(W - (d - i)))));
        vec few = {};
        std::copy(x + i, x + d, (float*)&few);
        return few;
    }

    template <int Q, bool LENGTHS> void score_rows(const float* const* h, float* const* o) {
        const int64_t d = t_.dim, n = n_, low = low_;
        RowPrefetcher<TableRows>* const prefetcher = prefetcher_;
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
    int64_t low_ = 0, n_ = 0;
    RowPrefetcher<TableRows>* prefetcher_ = nullptr;   // null after the first queries of the cell
};

// Scores with the int8 copy. scale_ has room for whole vectors.
class QuantizedRows {
  public:
    static constexpr int QUERIES = 2;
    QuantizedRows(Arena& arena, const CellTask& t) : t_(t), h_(t.h, t.n_queries, t.dim),
        scale_(arena.allocate<float>(t.largest + W)) {}
    bool failed() const { return h_.failed(); }
    const uint8_t* row(int64_t place) const { return t_.copy + place * t_.dim; }

    void enter(int64_t low, int64_t n, RowPrefetcher<QuantizedRows>& prefetcher) {
        low_ = low, n_ = n, prefetcher_ = &prefetcher;
        std::copy_n(t_.scale + low, n, scale_);
    }

    template <int Q> void scores(const float* const* h, float* const* o) {
        for (int64_t j = 0; j < n_; j += 4) {
            const uint8_t* c[4];
            if (prefetcher_) prefetcher_->prefetch_rows(std::min<int64_t>(4, n_ - j));
            for (int l = 0; l < 4; ++l) c[l] = row(low_ + std::min(j + l, n_ - 1));
            for (int q = 0; q < Q; ++q) {
                const int64_t query = (h[q] - t_.h) / t_.dim;
                const QuantizedQuery y = h_.row(query);
                const int32_t zeros = int32_t(h_.zeros(query));
                const half_int int_products = products<1>(&y, c, t_.dim) - half_int{zeros, zeros, zeros, zeros};
                store_half(o[q] + j,
                           __builtin_convertvector(int_products, half) * (h_.scale(query) * load_half(scale_ + j)));
            }
        }
        prefetcher_ = nullptr;
    }

  private:
    const CellTask& t_;
    const QuantizedQueries h_;
    float* const scale_;           // of the cell scored last
    int64_t low_ = 0, n_ = 0;
    RowPrefetcher<QuantizedRows>* prefetcher_ = nullptr;
};

}  // namespace
