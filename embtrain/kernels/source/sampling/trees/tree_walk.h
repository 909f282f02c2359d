// Walks down a tree of sums.
//
//     m_N(h) = max(φ(h)·S_N - w_N, ε(h) (P_N - p_N)),  0 if |N| - [t in N] = 0;   w, p: of the request's target t, if in N
//
// Requests are kept in order of node and query, so that the weights of a node are computed once per query, and its
// sums are read once for all queries.
#pragma once

#include "sampling/trees/tree_nodes.h"

namespace {

constexpr int64_t MAX_FAN = 64;
constexpr double SMALL = 1e-100;  // smaller products are moved into the logarithm

// Weights of the children of one node for one query, minus those of a target.
template <class Sums> struct Children {
    const TreeTask& t;
    const Sums& sums;
    double raw[MAX_FAN], next_raw[2], m[MAX_FAN], total;
    int64_t level, first, under;   // under: candidates below a child
    int64_t ready_query;                 // the query whose weights are in next_raw, or -1

    Children(const TreeTask& task, const Sums& node_sums) : t(task), sums(node_sums) {}

    void enter(int64_t new_level, int64_t node, int64_t candidates) {
        level = new_level, first = node * t.fan, under = candidates, ready_query = -1;
    }

    // Compute the weights for a query. With two children those of the `next` query are computed as well, because one
    // pass yields four products. next == query_id if there is no next query.
    void score(int64_t query_id, int64_t next) {
        if (query_id == ready_query) {
            std::copy_n(next_raw, 2, raw);
        } else if (t.fan == 2) {
            const int64_t queries[2] = {query_id, next}, places[2] = {first, first + 1};
            double products[4];
            sums.template four_products<2>(queries, level, places, products);
            std::copy_n(products, 2, raw);
            std::copy_n(products + 2, 2, next_raw);
            ready_query = next;
        } else {
            for (int64_t c = 0; c < t.fan; c += 4) {
                const int64_t n = std::min<int64_t>(4, t.fan - c);
                int64_t places[4];
                for (int64_t l = 0; l < 4; ++l) places[l] = first + c + std::min(l, n - 1);
                double products[4];
                sums.template four_products<1>(&query_id, level, places, products);
                std::copy_n(products, n, raw + c);
            }
        }
    }

    bool clamp(int64_t i) {
        const double least = t.least[t.query_id[i]];
        int64_t target_child = -1;
        if (t.position) target_child = t.position[i] / under - first;
        total = 0;
        for (int64_t c = 0; c < t.fan; ++c) {
            const bool less = c == target_child;
            const double prior = t.prior[level][first + c] - (less ? t.share[i] : 0.0);
            const double floor = least * std::max(prior, 0.0), value = raw[c] - (less ? t.mass[i] : 0.0);
            m[c] = t.count[level][first + c] - less <= 0 ? 0.0 : value <= floor ? floor : value;  // NaN is kept
            total += m[c];
        }
        return std::isfinite(total);
    }

    int64_t find(double u) const {
        double upto = 0;
        int64_t last = 0;
        for (int64_t c = 0; c < t.fan; ++c) {
            if (m[c] <= 0) continue;
            last = c;
            if ((upto += m[c]) > u) return c;
        }
        return last;
    }
};

// Limits on the data prefetched ahead of the current node: nodes, and bytes of sums.
constexpr int64_t MIN_NODES_AHEAD = 2, BYTES_AHEAD = 4096;
// bytes of a node's sums; for longer rows the hardware prefetcher suffices
constexpr int64_t MAX_PREFETCH_BYTES = 8192;

// Prefetch the data of a node's children. Always inlined: the compiler takes a function that only prefetches for one
// without effects and drops its calls.
template <class Sums>
__attribute__((always_inline)) inline void prefetch_children(const TreeTask& t, const Sums& sums, int64_t level,
                                                          int64_t first) {
    for (int64_t c = 0; c < t.fan; c += LINE / 2) {
        __builtin_prefetch(t.prior[level] + first + c);
        __builtin_prefetch(t.count[level] + first + c);
    }
    if (t.scale) for (int64_t c = 0; c < t.fan; c += LINE) __builtin_prefetch(t.scale[level] + first + c);
    const int64_t bytes = t.fan * sums.bytes();
    const char* const row = (const char*)sums.row(level, first);
    for (int64_t i = 0; bytes <= MAX_PREFETCH_BYTES && i < bytes; i += 4 * LINE) __builtin_prefetch(row + i);
}

template <class Sums> inline int walk_by(const TreeTask& t, int64_t* block, double* log_q, int64_t* order) {
    Arena arena;
    const Sums sums(t);
    Request* requests = arena.allocate<Request>(t.n);                   // key: node * n_queries + query
    Request* next = arena.allocate<Request>(t.n);
    double* q = arena.allocate<double>(t.n);
    if (arena.failed() || sums.failed()) return NO_MEMORY;
    int64_t lowest = 1;                                   // blocks under a child of this level
    for (int64_t level = 1; level < t.levels; ++level) lowest *= t.fan;
    for (int64_t i = 0; i < t.n; ++i) {
        const bool drawn = t.wanted[i] == -1, is_valid =
            !out_of_range(t.wanted[i], (t.candidates + t.leaf - 1) / t.leaf);
        if (out_of_range(t.query_id[i], t.n_queries) || !(drawn || is_valid) ||
            (t.position && out_of_range(t.position[i], t.candidates)))
            return OUT_OF_RANGE;
        requests[i] = {t.query_id[i], i};
        q[i] = 1, log_q[i] = 0;
    }
    if (!sort(requests, t.n)) return NO_MEMORY;
    Children<Sums> children(t, sums);
    for (int64_t level = 0; level < t.levels; ++level, lowest /= t.fan) {
        const uint64_t stream = u64_at(t.seed, uint64_t(level));
        // The first request whose node is not prefetched; nodes prefetched; nodes processed.
        int64_t next_prefetch = 0, n_prefetched = 0, n_done = 1;
        const int64_t n_ahead = std::max(MIN_NODES_AHEAD, BYTES_AHEAD / (t.fan * sums.bytes()));
        for (int64_t begin = 0, end; begin < t.n; begin = end, ++n_done) {
            const int64_t node = requests[begin].key / t.n_queries, end_of_node = (node + 1) * t.n_queries;
            for (end = begin + 1; end < t.n && requests[end].key < end_of_node;) ++end;
            for (; next_prefetch < t.n && n_prefetched < n_done + n_ahead; ++n_prefetched) {
                const int64_t n = requests[next_prefetch].key / t.n_queries;
                prefetch_children(t, sums, level, n * t.fan);
                for (++next_prefetch; next_prefetch < t.n
                     && requests[next_prefetch].key < (n + 1) * t.n_queries;) ++next_prefetch;
            }
            int64_t child_count[MAX_FAN + 1];
            std::fill_n(child_count, t.fan + 1, 0);
            children.enter(level, node, lowest * t.leaf);
            int64_t next_request = begin;                     // the first request of the next query
            for (int64_t a = begin; a < end; ++a) {
                const int64_t i = requests[a].i;
                const bool is_new_query = a == begin || requests[a].key != requests[a - 1].key;
                if (is_new_query) {
                    while (next_request < end && requests[next_request].key == requests[a].key) ++next_request;
                    children.score(t.query_id[i], t.query_id[requests[next_request < end ? next_request : a].i]);
                }
                if ((is_new_query || t.position) && !children.clamp(i)) return NOT_FINITE;
                const int64_t c = t.wanted[i] >= 0 ? t.wanted[i] / lowest % t.fan
                                                   : children.find(uniform01(stream, t.first + i) * children.total);
                q[i] *= children.m[c] / children.total;
                if (q[i] < SMALL) log_q[i] += std::log(q[i]), q[i] = 1;
                next[a] = {c, i};
                ++child_count[c + 1];
            }
            for (int64_t c = 0; c < t.fan; ++c) child_count[c + 1] += child_count[c];
            for (int64_t a = begin; a < end; ++a)          // by child, and stable
                requests[begin + child_count[next[a].key]++] = {(node * t.fan + next[a].key) * t.n_queries +
                                                       t.query_id[next[a].i], next[a].i};
        }
    }
    for (int64_t a = 0; a < t.n; ++a) {
        const int64_t i = requests[a].i;
        log_q[i] += std::log(q[i]);
        if (!(log_q[i] <= 1e-9)) log_q[i] = -INFINITY;     // below a node of weight 0 every share is 0
        block[i] = requests[a].key / t.n_queries;
        if (order) order[a] = i;
    }
    return OK;
}

// Walk to a block for each request; outputs its log q. order: the requests by block, query and number, unless null.
inline int walk(const TreeTask& t, int64_t* block, double* log_q, int64_t* order = nullptr) {
    return t.scale ? walk_by<Int8Nodes>(t, block, log_q, order) : walk_by<FloatNodes>(t, block, log_q, order);
}

}  // namespace
