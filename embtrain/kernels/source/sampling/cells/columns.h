// Scores of a cell's members that are first stored by columns: products then need no horizontal sum, which pays if many
// queries read a cell.
#pragma once

#include "sampling/cells/rows.h"

namespace {

// Members of a cell by columns of 32 bits: a coordinate of all members side by side, or four coordinates of int8.
class Columns {
  public:
    // For cells of at most `largest` members, whose rows have `bytes` bytes.
    Columns(Arena& arena, int64_t largest, int64_t bytes) : bytes_(bytes) {
        const int64_t n = round_up(largest, W) * round_up(bytes, 16) / 4;
        x_ = arena.allocate<float>(n);
        if (!arena.failed()) std::fill_n(x_, n, 0.f);
    }

    // Stores n members. row(j): the row of member j.
    template <class Row> void fill(int64_t n, Row row) {
        width_ = round_up(n, W);
        for (int64_t j = 0; j < n; j += 4) {
            const char* p[4];
            for (int64_t l = 0; l < 4; ++l) p[l] = (const char*)row(std::min(j + l, n - 1));
            float* to = x_ + j;
            for (int64_t i = 0; i < bytes_; i += 16) {
                half columns[4];
                transpose(four_columns(p[0] + i, bytes_ - i), four_columns(p[1] + i, bytes_ - i),
                          four_columns(p[2] + i, bytes_ - i), four_columns(p[3] + i, bytes_ - i), columns);
                for (int l = 0; l < 4; ++l, to += width_) store_half(to, columns[l]);
            }
        }
    }

    const float* at(int64_t member) const { return x_ + member; }
    int64_t width() const { return width_; }               // members, rounded up to whole vectors

    // Calls tile(V, j) for V <= VECS vectors of members from j on, as a type, until all members are done. VECS: as many
    // as let the sums of all queries fit the registers.
    template <int VECS, class Tile> void for_tiles(Tile tile) const {
        for (int64_t j = 0; j < width_;) {
            const int64_t left = (width_ - j) / W, tiles = (left + VECS - 1) / VECS, vecs = (left + tiles - 1) / tiles;
            call<VECS>(vecs, tile, j);
            j += vecs * W;
        }
    }

  private:
    template <int V, class Tile> static void call(int64_t vecs, Tile tile, int64_t j) {
        if constexpr (V > 1) if (vecs < V) return call<V - 1>(vecs, tile, j);
        tile(std::integral_constant<int, V>(), j);
    }

    // Four columns of a row with n more bytes; those beyond are 0.
    static half four_columns(const char* p, int64_t n) {
        half x = {};
        if (n >= int64_t(sizeof x)) return load_half((const float*)p);
#if defined(__AVX512BW__)
        return (half)_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), p);       // copied bytes would be read too soon
#else
        std::memcpy(&x, p, size_t(n));
        return x;
#endif
    }

    const int64_t bytes_;
    float* x_;                     // (columns, width_)
    int64_t width_ = 0;
};

// Scores with the current table.
class TableColumns {
  public:
    static constexpr int QUERIES = 4;
    TableColumns(Arena& arena, const CellTask& t)
        : t_(t), columns_(arena, t.largest, t.dim * int64_t(sizeof(float))),
          lengths_(arena.allocate<float>(t.largest + W)) {}
    bool failed() const { return false; }
    const float* row(int64_t place) const { return t_.table + t_.order[place] * t_.pitch; }

    void enter(int64_t low, int64_t n, RowPrefetcher<TableColumns>& prefetcher) {
        prefetcher.prefetch_rows(n);
        columns_.fill(n, [&](int64_t j) { return row(low + j); });
        for (int64_t j = 0; t_.unit && j < columns_.width(); j += W) {
            vec square = {};
            for (int64_t i = 0; i < t_.dim; ++i) {
                const vec x = load(columns_.at(j) + i * columns_.width());
                square += x * x;
            }
            float squares[W];
            store(squares, square);
            for (int l = 0; l < W; l += 4) store_half(lengths_ + j + l, length(load_half(squares + l)));
        }
    }

    template <int Q> void scores(const float* const* h, float* const* o) const {
        columns_.for_tiles<VECS>([&](auto vecs, int64_t j) {
            constexpr int V = decltype(vecs)::value;
            const int64_t width = columns_.width();
            const float* c = columns_.at(j);
            vec s[Q][V] = {};
            for (int64_t i = 0; i < t_.dim; ++i, c += width)
                for (int v = 0; v < V; ++v) {
                    const vec x = load(c + v * W);
                    for (int q = 0; q < Q; ++q) s[q][v] += splat(h[q][i]) * x;
                }
            for (int q = 0; q < Q; ++q)
                for (int v = 0; v < V; ++v) {
                    const int64_t to = j + v * W;
                    store(o[q] + to, t_.unit ? s[q][v] / load(lengths_ + to) : s[q][v]);
                }
        });
    }

  private:
    static constexpr int VECS = W == 16 ? 4 : 2;
    const CellTask& t_;
    Columns columns_;
    float* const lengths_;
};

#if defined(EMBTRAIN_FOURS)
// Scores with the int8 copy: the same integers as by rows, and so the same bits.
class QuantizedColumns {
  public:
    static constexpr int QUERIES = 4;
    QuantizedColumns(Arena& arena, const CellTask& t)
        : t_(t), h_(t.h, t.n_queries, t.dim), columns_(arena, t.largest, t.dim),
          scale_(arena.allocate<float>(t.largest + W)) {}
    bool failed() const { return h_.failed(); }
    const uint8_t* row(int64_t place) const { return t_.copy + place * t_.dim; }

    void enter(int64_t low, int64_t n, RowPrefetcher<QuantizedColumns>& prefetcher) {
        prefetcher.prefetch_rows(n);
        std::copy_n(t_.scale + low, n, scale_);
        columns_.fill(n, [&](int64_t j) { return row(low + j); });
    }

    // Not inlined, because in the loop over queries some of its sums would be kept in memory.
    template <int Q> __attribute__((noinline)) void scores(const float* const* h, float* const* o) const {
        const query_int* y[Q];
        float scale[Q];
        int32_t zeros[Q];
        for (int q = 0; q < Q; ++q) {
            const int64_t query = (h[q] - t_.h) / t_.dim;
            y[q] = h_.row(query).y, scale[q] = h_.scale(query), zeros[q] = int32_t(h_.zeros(query));
        }
        columns_.for_tiles<VECS>([&](auto vecs, int64_t j) {
            constexpr int V = decltype(vecs)::value;
            const int64_t width = columns_.width();
            const float* c = columns_.at(j);
            ivec s[Q][V][PARTS] = {};
            for (int64_t i = 0; i < t_.dim; i += 4, c += width)
                for (int v = 0; v < V; ++v) {
                    ivec b[PARTS];
                    widen_fours((const uint8_t*)(c + v * W), b);
                    for (int q = 0; q < Q; ++q) add_fours(s[q][v], b, y[q] + i);
                }
            for (int q = 0; q < Q; ++q)
                for (int v = 0; v < V; ++v) {
                    const int64_t to = j + v * W;
                    store(o[q] + to, __builtin_convertvector(sum_fours(s[q][v]) - splat(zeros[q]), vec) *
                                     (scale[q] * load(scale_ + to)));
                }
        });
    }

  private:
    static constexpr int VECS = W == 16 ? 4 : 1;           // without products of four int8 values a vector has two sums
    const CellTask& t_;
    const QuantizedQueries h_;
    Columns columns_;
    float* const scale_;           // of the cell scored last
};
#else
using QuantizedColumns = QuantizedRows;    // without vectors columns gain nothing
#endif

}  // namespace
