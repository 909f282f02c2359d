// Walks down a tree of sums.
//
//     m_N(h) = max(φ(h)·S_N - w_N, ε(h) (P_N - p_N)),  0 where |N| - [t in N] = 0;   w, p: of the request's target t, if in N
//
// Requests are kept in order of node and question, so that a node's masses are made once for all that ask the same there,
// and its sums are read once for all questions. They lie in a row: the processor itself fetches what comes next.
#pragma once

#include "draw.h"

struct TreeTask {  // the same order in embtrain/kernels/tree.py
    const float* const* sums;      // of each level, top first: (places, width)
    const double* const* prior;    // (places)
    const int64_t* const* count;   // (places)
    const float* phi;              // (questions, width)
    const double* least;           // (questions)
    const int64_t* question;       // (n)
    const int64_t* position;       // (n) or null: the target's place
    const double* mass;            // (n) or null
    const double* share;           // (n) or null
    const int64_t* wanted;         // (n)  a block to walk to, or -1 to have one drawn
    int64_t levels, fan, leaf, width, candidates, questions, n;
    uint64_t seed;
    int64_t first;                 // the number of the first request
};

namespace {

constexpr int64_t MOST_FAN = 64;
constexpr double SMALL = 1e-100;  // products below go into the logarithm

// The masses of the children of one node for one question, less those of a target.
struct Children {
    const TreeTask& t;
    double raw[MOST_FAN], beside[2], m[MOST_FAN], total;
    int64_t level, first, under;   // under: candidates of a child
    int64_t ready;                 // the question whose masses stand in `beside`, or -1

    void at(int64_t of_level, int64_t node, int64_t candidates) {
        level = of_level, first = node * t.fan, under = candidates, ready = -1;
    }

    // For a question. Of two children those of the question that comes next are made too: four products at once, of which
    // there would be but two. The same again where nobody comes next.
    void of(int64_t question, int64_t next) {
        const float* const phi[2] = {t.phi + question * t.width, t.phi + next * t.width};
        const float* sums = t.sums[level] + first * t.width;
        if (question == ready) {
            std::copy_n(beside, 2, raw);
        } else if (t.fan == 2) {
            const float* const rows[2] = {sums, sums + t.width};
            double four[4];
            dots<2>(phi, rows, t.width, four);
            std::copy_n(four, 2, raw);
            std::copy_n(four + 2, 2, beside);
            ready = next;
        } else {
            for (int64_t c = 0; c < t.fan; c += 4) {
                const int64_t n = std::min<int64_t>(4, t.fan - c);
                const float* rows[4];
                for (int64_t l = 0; l < 4; ++l) rows[l] = sums + (c + std::min(l, n - 1)) * t.width;
                double four[4];
                dots(phi, rows, t.width, four);
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

// P and |N| of the children of the node that comes next; its sums, which lie in a row, the processor fetches itself.
inline void fetch_beside(const TreeTask& t, int64_t level, int64_t first) {
    for (int64_t c = 0; c < t.fan; c += LINE / 2) {
        __builtin_prefetch(t.prior[level] + first + c);
        __builtin_prefetch(t.count[level] + first + c);
    }
}

// A block of each request and its log q.
inline int walk(const TreeTask& t, int64_t* block, double* log_q) {
    Room room;
    Asked* asked = room.of<Asked>(t.n);                   // key: node * questions + question
    Asked* next = room.of<Asked>(t.n);
    double* q = room.of<double>(t.n);
    if (room.full()) return NO_MEMORY;
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
    Children children{t, {}, {}, {}, 0, 0, 0, 0, -1};
    for (int64_t level = 0; level < t.levels; ++level, lowest /= t.fan) {
        const uint64_t stream = u64_at(t.seed, uint64_t(level));
        for (int64_t begin = 0, end; begin < t.n; begin = end) {
            const int64_t node = asked[begin].key / t.questions, beyond_node = (node + 1) * t.questions;
            for (end = begin + 1; end < t.n && asked[end].key < beyond_node;) ++end;
            if (end < t.n) fetch_beside(t, level, asked[end].key / t.questions * t.fan);
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
    }
    return OK;
}

}  // namespace
