// Draws candidates inside a cell (a group of candidates) by e^o, from the current vectors or from an int8 copy.
//
//     r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j},   o = h·c_i  or  h·c_i / ‖c_i‖
//
// The copy is stored cell by cell in int8 (int8.h), and h is quantized in the same way. This reads a quarter of the
// memory, contiguously, and needs integer products only.
//
// Requests are processed in order of cell and query: the members of a cell are scored for all of its queries while they
// are in the cache.
#pragma once

#include "sampling/cells/columns.h"

namespace {

constexpr int64_t AHEAD = 64;      // rows prefetched ahead of the one being scored
constexpr int64_t REQUESTS_AHEAD = 16;  // requests between the current one and the prefetched one; they are scattered

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
    if (j < n) store(masses.m + j, exp_of(load_first(x + j, n - j) - splat(shift)));
    if (skip >= 0) masses.m[skip] = 0;
    masses.sum();
    return true;
}

// The scores of up to Q queries: as many as there are.
template <int Q, class Rows> inline void scores(Rows& rows, int64_t n, const float* const* h, float* const* o) {
    if constexpr (Q > 1) if (n < Q) return scores<Q - 1>(rows, n, h, o);
    rows.template scores<Q>(h, o);
}

// Requests of a query and a cell, each for the place wanted, or a drawn place if that is -1, never `without`.
struct PlaceRequests {
    const int64_t *wanted, *without;   // without may be null
    uint64_t seed;
    int64_t first;
    int64_t* place;
    double *share, *rest;              // share: r(place|cell); rest may be null

    void prefetch(int64_t i) const {
        __builtin_prefetch(wanted + i);
        __builtin_prefetch(place + i, 1);
        __builtin_prefetch(share + i, 1);
        if (without) __builtin_prefetch(without + i);
    }

    // The only member of a cell, at place `low`: r = 1 for any o. Returns false if it must not be drawn.
    bool find_single(int64_t i, int64_t low) const {
        const bool excluded = without && without[i] == low;
        place[i] = low, share[i] = !excluded;
        if (rest) rest[i] = excluded;
        return !excluded || wanted[i] >= 0;
    }

    // The place of request i without the excluded one: its index among the n members from place `low`, or -1.
    int64_t excluded(int64_t i, int64_t low, int64_t n) const {
        const int64_t slot = without ? without[i] - low : -1;
        return slot >= 0 && slot < n ? slot : -1;
    }

    // Member j of the cell, whose masses are those without the excluded place.
    void set(int64_t i, int64_t low, int64_t j, const Masses& masses) const {
        share[i] = masses.m[j] / masses.total();
        if (rest) rest[i] = masses.rest_share(j);
        place[i] = low + j;
    }
};

// Requests of a cell, from place `low`, whose places are searched together.
class Searches {
  public:
    explicit Searches(const PlaceRequests& out) : out_(out) {}

    // Sets the place of request i, or adds it to those that `run` finds. Returns false if scores are not finite.
    bool add(int64_t i, int64_t low, const Masses& masses) {
        if (out_.wanted[i] >= 0) return out_.set(i, low, out_.wanted[i] - low, masses), true;
        i_[n_] = i, masses_[n_] = &masses, u_[n_] = uniform01(out_.seed, out_.first + i) * masses.total();
        return ++n_ < SEARCHES || run(low);
    }

    bool run(int64_t low) {
        int64_t j[SEARCHES];
        if (n_ == SEARCHES) Masses::find(masses_, u_, j);
        else for (int l = 0; l < n_; ++l) j[l] = masses_[l]->find(u_[l]);
        for (int l = 0; l < n_; ++l) {
            if (j[l] < 0) return false;
            out_.set(i_[l], low, j[l], *masses_[l]);
        }
        n_ = 0;
        return true;
    }

  private:
    const PlaceRequests& out_;
    int64_t i_[SEARCHES];
    const Masses* masses_[SEARCHES];
    double u_[SEARCHES];
    int n_ = 0;
};

// Outputs the requests by cell and query. order: as in inside_cells.
inline bool sort_by_cell(const CellTask& t, const int64_t* query_id, const int64_t* cell, const int64_t* order,
                         int64_t n, Request* requests) {
    const auto request = [&](int64_t i) { return Request{cell[i] * t.n_queries + query_id[i], i}; };
    if (!order || n < t.cells) {
        for (int64_t a = 0; a < n; ++a) requests[a] = request(order ? order[a] : a);
        return sort(requests, n);
    }
    Arena arena;
    int64_t* next = arena.allocate<int64_t>(t.cells + 1);  // the place of the next request of each cell
    if (arena.failed()) return false;
    std::fill_n(next, t.cells + 1, 0);
    for (int64_t i = 0; i < n; ++i) ++next[cell[i] + 1];
    for (int64_t c = 0; c < t.cells; ++c) next[c + 1] += next[c];
    for (int64_t a = 0; a < n; ++a) requests[next[cell[order[a]]]++] = request(order[a]);
    return true;
}

// order: the requests (n) in an order in which those of a cell are by query, or null.
template <class Rows>
inline int inside_cells(const CellTask& t, const int64_t* query_id, const int64_t* cell, const PlaceRequests& out,
                        const int64_t* order, int64_t n) {
    constexpr int Q = Rows::QUERIES;
    Arena arena;
    Request* requests = arena.allocate<Request>(n);
    Rows rows(arena, t);
    float* o[Q];
    Masses masses[Q];
    for (int q = 0; q < Q; ++q) o[q] = arena.allocate<float>(t.largest + W), masses[q] = Masses(arena, t.largest);
    Searches searches(out);
    if (arena.failed() || rows.failed()) return NO_MEMORY;
    if (!sort_by_cell(t, query_id, cell, order, n, requests)) return NO_MEMORY;
    RowPrefetcher<Rows> prefetcher(t, rows, requests, n);
    prefetcher.prefetch_rows(AHEAD);
    for (int64_t a = 0; a < n;) {
        const int64_t c = requests[a].key / t.n_queries, first_key = c * t.n_queries, end_key = first_key + t.n_queries;
        const int64_t low = t.start[c], members = t.start[c + 1] - low;
        if (members == 1) {
            prefetcher.prefetch_rows(1);
            for (; a < n && requests[a].key < end_key; ++a)
                if (!out.find_single(requests[a].i, low)) return NOT_FINITE;
            continue;
        }
        rows.enter(low, members, prefetcher);
        while (a < n && requests[a].key < end_key) {
            const float* h[Q];
            int64_t end[Q], n_queries = 0;
            for (int64_t b = a; n_queries < Q && b < n && requests[b].key < end_key; end[n_queries++] = b) {
                const int64_t key = requests[b].key;
                h[n_queries] = t.h + (key - first_key) * t.dim;
                while (b < n && requests[b].key == key) ++b;
            }
            scores<Q>(rows, n_queries, h, o);
            for (int64_t q = 0; q < n_queries; ++q) {
                masses[q].n = members;
                for (int64_t skip = -2; a < end[q]; ++a) { // -2: masses not computed yet
                    if (a + REQUESTS_AHEAD < n) out.prefetch(requests[a + REQUESTS_AHEAD].i);
                    if (const int64_t i = requests[a].i, excluded = out.excluded(i, low, members); excluded != skip) {
                        if (skip != -2 && !searches.run(low)) return NOT_FINITE;   // they read the masses
                        if (!exp_masses(o[q], skip = excluded, masses[q])) return NOT_FINITE;
                    }
                    if (!searches.add(requests[a].i, low, masses[q])) return NOT_FINITE;
                }
            }
            if (!searches.run(low)) return NOT_FINITE;
        }
    }
    return OK;
}

inline int inside_by_rows(const CellTask& t, const int64_t* query_id, const int64_t* cell, const PlaceRequests& out,
                          const int64_t* order, int64_t n) {
    return t.copy ? inside_cells<QuantizedRows>(t, query_id, cell, out, order, n)
                  : inside_cells<TableRows>(t, query_id, cell, out, order, n);
}

inline int inside_by_columns(const CellTask& t, const int64_t* query_id, const int64_t* cell, const PlaceRequests& out,
                             const int64_t* order, int64_t n) {
    return t.copy ? inside_cells<QuantizedColumns>(t, query_id, cell, out, order, n)
                  : inside_cells<TableColumns>(t, query_id, cell, out, order, n);
}

}  // namespace
