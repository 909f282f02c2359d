// Walks down a tree of sums.
//
//     m_N(h) = max(φ(h)·S_N - w_N, ε(h) (P_N - p_N)),  0 where |N| - [t in N] = 0;   w, p: of the request's target t, if in N
//
// Requests are kept in order of node and question, so that a node's masses are made once for all that ask the same there,
// and its sums are read once for all questions.
#pragma once

#include "sampling/trees/tree_nodes.h"

namespace {

constexpr int64_t MOST_FAN = 64;
constexpr double SMALL = 1e-100;  // products below go into the logarithm

// The masses of the children of one node for one question, less those of a target.
template <class Sums> struct Children {
    const TreeTask& t;
    const Sums& sums;
    double raw[MOST_FAN], beside[2], m[MOST_FAN], total;
    int64_t level, first, under;   // under: candidates of a child
    int64_t ready;                 // the question whose masses stand in `beside`, or -1

    Children(const TreeTask& task, const Sums& of) : t(task), sums(of) {}

    void at(int64_t of_level, int64_t node, int64_t candidates) {
        level = of_level, first = node * t.fan, under = candidates, ready = -1;
    }

    // For a question. Of two children those of the question that comes next are made too: four products at once, of which
    // there would be but two. The same again where nobody comes next.
    void of(int64_t question, int64_t next) {
        if (question == ready) {
            std::copy_n(beside, 2, raw);
        } else if (t.fan == 2) {
            const int64_t asks[2] = {question, next}, places[2] = {first, first + 1};
            double four[4];
            sums.template four<2>(asks, level, places, four);
            std::copy_n(four, 2, raw);
            std::copy_n(four + 2, 2, beside);
            ready = next;
        } else {
            for (int64_t c = 0; c < t.fan; c += 4) {
                const int64_t n = std::min<int64_t>(4, t.fan - c);
                int64_t places[4];
                for (int64_t l = 0; l < 4; ++l) places[l] = first + c + std::min(l, n - 1);
                double four[4];
                sums.template four<1>(&question, level, places, four);
                std::copy_n(four, n, raw + c);
            }
        }
    }

    bool clamp(int64_t i) {
        const double least = t.least[t.question[i]];
        int64_t own = -1;
        if (t.position) own = t.position[i] / under - first;
        total = 0;
        for (int64_t c = 0; c < t.fan; ++c) {
            const bool less = c == own;
            const double prior = t.prior[level][first + c] - (less ? t.share[i] : 0.0);
            const double floor = least * std::max(prior, 0.0), value = raw[c] - (less ? t.mass[i] : 0.0);
            m[c] = t.count[level][first + c] - less <= 0 ? 0.0 : value <= floor ? floor : value;  // NaN stays
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

constexpr int64_t LEAST_COMING = 2, COMING_BYTES = 4096;  // that are on their way while one is answered at: nodes, sums
constexpr int64_t NEAR = 8192;     // bytes of sums of a node; what lies longer in a row the processor fetches itself

// What the children of a node have. Always in place: a function that does no more than this is taken for one that does
// nothing, and its calls are left out.
template <class Sums>
__attribute__((always_inline)) inline void fetch_children(const TreeTask& t, const Sums& sums, int64_t level,
                                                          int64_t first) {
    for (int64_t c = 0; c < t.fan; c += LINE / 2) {
        __builtin_prefetch(t.prior[level] + first + c);
        __builtin_prefetch(t.count[level] + first + c);
    }
    if (t.scale) for (int64_t c = 0; c < t.fan; c += LINE) __builtin_prefetch(t.scale[level] + first + c);
    const int64_t bytes = t.fan * sums.bytes();
    const char* const row = (const char*)sums.row(level, first);
    for (int64_t i = 0; bytes <= NEAR && i < bytes; i += 4 * LINE) __builtin_prefetch(row + i);
}

template <class Sums> inline int walk_by(const TreeTask& t, int64_t* block, double* log_q, int64_t* order) {
    Room room;
    const Sums sums(t);
    Asked* asked = room.of<Asked>(t.n);                   // key: node * questions + question
    Asked* next = room.of<Asked>(t.n);
    double* q = room.of<double>(t.n);
    if (room.full() || sums.full()) return NO_MEMORY;
    int64_t lowest = 1;                                   // blocks under a child at the level
    for (int64_t level = 1; level < t.levels; ++level) lowest *= t.fan;
    for (int64_t i = 0; i < t.n; ++i) {
        const bool drawn = t.wanted[i] == -1, there = !beyond(t.wanted[i], (t.candidates + t.leaf - 1) / t.leaf);
        if (beyond(t.question[i], t.questions) || !(drawn || there) ||
            (t.position && beyond(t.position[i], t.candidates)))
            return OUT_OF_RANGE;
        asked[i] = {t.question[i], i};
        q[i] = 1, log_q[i] = 0;
    }
    sort(asked, t.n);
    Children<Sums> children(t, sums);
    for (int64_t level = 0; level < t.levels; ++level, lowest /= t.fan) {
        const uint64_t stream = u64_at(t.seed, uint64_t(level));
        int64_t coming = 0, fetched = 0, answered = 1;     // the first request that is still to be fetched for; nodes
        const int64_t at_once = std::max(LEAST_COMING, COMING_BYTES / (t.fan * sums.bytes()));
        for (int64_t begin = 0, end; begin < t.n; begin = end, ++answered) {
            const int64_t node = asked[begin].key / t.questions, beyond_node = (node + 1) * t.questions;
            for (end = begin + 1; end < t.n && asked[end].key < beyond_node;) ++end;
            for (; coming < t.n && fetched < answered + at_once; ++fetched) {
                const int64_t n = asked[coming].key / t.questions;
                fetch_children(t, sums, level, n * t.fan);
                for (++coming; coming < t.n && asked[coming].key < (n + 1) * t.questions;) ++coming;
            }
            int64_t taken[MOST_FAN + 1];
            std::fill_n(taken, t.fan + 1, 0);
            children.at(level, node, lowest * t.leaf);
            int64_t next_asks = begin;                     // the first request of the question that comes next
            for (int64_t a = begin; a < end; ++a) {
                const int64_t i = asked[a].i;
                const bool asks_anew = a == begin || asked[a].key != asked[a - 1].key;
                if (asks_anew) {
                    while (next_asks < end && asked[next_asks].key == asked[a].key) ++next_asks;
                    children.of(t.question[i], t.question[asked[next_asks < end ? next_asks : a].i]);
                }
                if ((asks_anew || t.position) && !children.clamp(i)) return NOT_FINITE;
                const int64_t c = t.wanted[i] >= 0 ? t.wanted[i] / lowest % t.fan
                                                   : children.find(toss(stream, t.first + i) * children.total);
                q[i] *= children.m[c] / children.total;
                if (q[i] < SMALL) log_q[i] += std::log(q[i]), q[i] = 1;
                next[a] = {c, i};
                ++taken[c + 1];
            }
            for (int64_t c = 0; c < t.fan; ++c) taken[c + 1] += taken[c];
            for (int64_t a = begin; a < end; ++a)          // in order of the child, and stable
                asked[begin + taken[next[a].key]++] = {(node * t.fan + next[a].key) * t.questions +
                                                       t.question[next[a].i], next[a].i};
        }
    }
    for (int64_t a = 0; a < t.n; ++a) {
        const int64_t i = asked[a].i;
        log_q[i] += std::log(q[i]);
        if (!(log_q[i] <= 1e-9)) log_q[i] = -INFINITY;     // below a node without mass there are no shares
        block[i] = asked[a].key / t.questions;
        if (order) order[a] = i;
    }
    return OK;
}

// A block of each request and its log q; the requests in order of block, question and number, unless null.
inline int walk(const TreeTask& t, int64_t* block, double* log_q, int64_t* order = nullptr) {
    return t.scale ? walk_by<Bytes>(t, block, log_q, order) : walk_by<Floats>(t, block, log_q, order);
}

}  // namespace
