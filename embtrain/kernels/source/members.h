// Candidates inside a cell, drawn by e^o with the vectors as they are now, or with a copy of them.
//
//     r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j},   o = h·c_i  or  h·c_i / ‖c_i‖
//
// A copy has them cell by cell, in bfloat16: half as much to wait for, and in one piece.
//
// Requests are taken in order of cell and question: a cell's members are fetched from all over the table, and so are
// scored once for each question that wants them, one question after the other while they are near. Waiting for memory is
// most of the work; rows are asked for long before their turn, those of the next cells too.
#pragma once

#include <cstring>

#include "draw.h"
#include "means.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

struct MembersTask {  // the same order in embtrain/kernels/cells.py
    const float* table;         // (candidates, dim), rows `pitch` floats apart
    const int64_t* order;       // (candidates)  cell by cell
    const int64_t* start;       // (cells + 1)   where each begins in order
    const uint16_t* copy;       // (candidates, dim) bfloat16, in the order of `order`; null: the table as it is
    const float* h;             // (questions, dim)
    int64_t dim, pitch, unit, cells, largest, questions;  // unit: candidates are c / ‖c‖; a copy has them so
};

namespace {

constexpr int64_t AHEAD = 64;      // rows that are on their way while one is scored

// Where the vector of a place is.
struct Live {
    explicit Live(const MembersTask& t) : t_(t) {}
    const float* operator()(int64_t place) const { return t_.table + t_.order[place] * t_.pitch; }
    const MembersTask& t_;
};

struct Copied {
    explicit Copied(const MembersTask& t) : t_(t) {}
    const uint16_t* operator()(int64_t place) const { return t_.copy + place * t_.dim; }
    const MembersTask& t_;
};

// bfloat16 is the upper half of a float.
inline vec load(const uint16_t* p) {
    typedef uint16_t halves __attribute__((vector_size(2 * W)));
    typedef uint32_t wholes __attribute__((vector_size(4 * W)));
    halves x;
    std::memcpy(&x, p, sizeof x);
    return (vec)(__builtin_convertvector(x, wholes) << 16);
}

inline float number(const float* p) { return *p; }
inline float number(const uint16_t* p) {
    const uint32_t bits = uint32_t(*p) << 16;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// The rows that requests, in their order, will want: those of each cell once.
template <class Rows> class Coming {
  public:
    Coming(const MembersTask& t, const Asked* asked, int64_t n) : t_(t), row_(t), asked_(asked), n_(n) { enter(); }

    void fetch_rows(int64_t many) {
        for (; a_ < n_; next()) {
            const int64_t end = std::min(until_, at_ + many);
            many -= end - at_;
            for (; at_ < end; ++at_) fetch(row_(at_), t_.dim);
            if (at_ < until_) return;
        }
    }

  private:
    void enter() {
        if (a_ >= n_) return;
        cell_ = asked_[a_].key / t_.questions;
        at_ = t_.start[cell_], until_ = t_.start[cell_ + 1];
    }

    void next() {
        for (const int64_t beyond = (cell_ + 1) * t_.questions; a_ < n_ && asked_[a_].key < beyond;) ++a_;
        enter();
    }

    const MembersTask& t_;
    const Rows row_;
    const Asked* asked_;
    int64_t n_, a_ = 0, cell_ = 0, at_ = 0, until_ = 0;  // the places of the cell that are still to come
};

// Lengths of four rows from their squares.
inline half length(half squares) {
#if defined(__SSE2__)
    const half root = (half)_mm_sqrt_ps((__m128)squares);
#else
    half root;
    for (int l = 0; l < 4; ++l) root[l] = std::sqrt(squares[l]);
#endif
    const half shortest = {LEAST, LEAST, LEAST, LEAST};
    return root < shortest ? shortest : root;
}

// o of the n members from place `low` for Q questions h, four members at a time, with room for whole vectors, and their
// lengths: made here, or as they stand there. Meanwhile as many of `coming` are fetched.
template <int Q, bool LENGTHS, class Rows>
inline void scores(const MembersTask& t, const float* const* h, int64_t low, int64_t n, float* lengths,
                   float* const* o, Coming<Rows>* coming) {
    const int64_t d = t.dim;
    const Rows row(t);
    for (int64_t j = 0; j < n; j += 4) {
        decltype(row(0)) c[4];
        if (coming) coming->fetch_rows(std::min<int64_t>(4, n - j));
        for (int l = 0; l < 4; ++l) c[l] = row(low + std::min(j + l, n - 1));
        vec s[Q][4] = {}, square[4] = {};
        int64_t i = 0;
        for (; i + W <= d; i += W)
            for (int l = 0; l < 4; ++l) {
                const vec y = load(c[l] + i);
                for (int q = 0; q < Q; ++q) s[q][l] += load(h[q] + i) * y;
                if constexpr (LENGTHS) square[l] += y * y;
            }
        const int64_t rest = i;
        if constexpr (LENGTHS) {
            half squares = sums(fold(square[0]), fold(square[1]), fold(square[2]), fold(square[3]));
            for (i = rest; i < d; ++i)
                for (int l = 0; l < 4; ++l) squares[l] += number(c[l] + i) * number(c[l] + i);
            store_half(lengths + j, length(squares));
        }
        for (int q = 0; q < Q; ++q) {
            half dots = sums(fold(s[q][0]), fold(s[q][1]), fold(s[q][2]), fold(s[q][3]));
            for (i = rest; i < d; ++i)
                for (int l = 0; l < 4; ++l) dots[l] += h[q][i] * number(c[l] + i);
            store_half(o[q] + j, t.unit ? dots / load_half(lengths + j) : dots);
        }
    }
}

// o of a cell's members for the questions that come to it, two at a time: rows that are near serve both.
template <class Rows> class Scores {
  public:
    Scores(Room& room, const MembersTask& t)
        : t_(t), own_(room.of<float>(t.largest + W)), next_(room.of<float>(t.largest + W)),
          lengths_(room.of<float>(t.largest + W)) {}

    // Of the n members from place `low`, for the question of a key and for that of the next one, or again for the same.
    // coming: null where the cell is the one of the key before.
    const float* of(int64_t key, int64_t next, int64_t low, int64_t n, Coming<Rows>* coming) {
        if (key == ready_) {
            std::swap(own_, next_);
            return own_;
        }
        const float* const h[2] = {t_.h + key % t_.questions * t_.dim, t_.h + next % t_.questions * t_.dim};
        float* const o[2] = {own_, next_};
        const bool lengths = coming && t_.unit;
        if (key == next)
            (lengths ? scores<1, true, Rows> : scores<1, false, Rows>)(t_, h, low, n, lengths_, o, coming);
        else
            (lengths ? scores<2, true, Rows> : scores<2, false, Rows>)(t_, h, low, n, lengths_, o, coming);
        ready_ = next;
        return own_;
    }

  private:
    const MembersTask& t_;
    float *own_, *next_, *lengths_;
    int64_t ready_ = -1;           // the key whose scores stand in next_
};

// max of n numbers; NaN where one of them is not finite.
inline float largest(const float* o, int64_t n) {
    constexpr int64_t CHAINS = 4;                          // else each waits for the one before
    vec many[CHAINS], zeros[CHAINS] = {};
    for (int64_t l = 0; l < CHAINS; ++l) many[l] = splat(o[0]);
    int64_t j = 0;
    for (; j + CHAINS * W <= n; j += CHAINS * W)
        for (int64_t l = 0; l < CHAINS; ++l) {
            const vec x = load(o + j + l * W);
            many[l] = most(x, many[l]);
            zeros[l] += x - x;
        }
    for (; j + W <= n; j += W) {
        const vec x = load(o + j);
        many[0] = most(x, many[0]);
        zeros[0] += x - x;
    }
    const vec tops = most(most(many[0], many[1]), most(many[2], many[3]));
    float top = tops[0], none = sum((zeros[0] + zeros[1]) + (zeros[2] + zeros[3]));
    for (int l = 1; l < W; ++l) top = std::max(top, tops[l]);
    for (; j < n; ++j) {
        top = std::max(top, o[j]);
        none += o[j] - o[j];
    }
    return top + none;
}

// m_i = e^{x_i - max x} of all but one, which gets 0. False where an x is not finite.
inline bool weigh(const float* x, int64_t skip, Masses& masses) {
    const int64_t n = masses.n;
    const float top = largest(x, n);
    if (!std::isfinite(top)) return false;
    float shift = top;
    if (skip >= 0 && x[skip] == top) {                     // others are not to vanish beside it
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

// For n requests of a question and a cell: the place wanted, or one drawn where that is -1, never that of `without`.
template <class Rows>
inline int inside_of(const MembersTask& t, const int64_t* question, const int64_t* cell, const int64_t* wanted,
                     const int64_t* without, int64_t n, uint64_t seed, int64_t first, int64_t* place, double* log_r,
                     double* others) {
    Room room;
    Asked* asked = room.of<Asked>(n);
    Scores<Rows> scores(room, t);
    Masses masses(room, t.largest);
    if (room.full()) return NO_MEMORY;
    for (int64_t i = 0; i < n; ++i) asked[i] = {cell[i] * t.questions + question[i], i};
    sort(asked, n);
    Coming<Rows> coming(t, asked, n);
    coming.fetch_rows(AHEAD);
    for (int64_t begin = 0, end, before = -1; begin < n; begin = end) {
        const int64_t key = asked[begin].key, c = key / t.questions, low = t.start[c];
        for (end = begin + 1; end < n && asked[end].key == key;) ++end;
        masses.n = t.start[c + 1] - low;
        Coming<Rows>* const next = c == before ? nullptr : &coming;
        before = c;
        if (masses.n == 1) {                               // r = 1, whatever o is
            if (next) next->fetch_rows(1);
            for (int64_t a = begin; a < end; ++a) {
                const int64_t i = asked[a].i;
                const bool gone = without && without[i] == low;
                if (gone && wanted[i] < 0) return NOT_FINITE;
                place[i] = low, log_r[i] = gone ? -INFINITY : 0;
                if (others) others[i] = gone;
            }
            continue;
        }
        const bool two = end < n && asked[end].key / t.questions == c;
        const float* const o = scores.of(key, two ? asked[end].key : key, low, masses.n, next);
        int64_t skip = -2;                                 // nothing was weighed yet
        for (int64_t a = begin; a < end; ++a) {
            const int64_t i = asked[a].i;
            const int64_t at = without ? without[i] - low : -1, gone = at >= 0 && at < masses.n ? at : -1;
            if (gone != skip && !weigh(o, skip = gone, masses)) return NOT_FINITE;
            const int64_t j = wanted[i] >= 0 ? wanted[i] - low
                                             : masses.find(toss(seed, first + i) * masses.total());
            if (j < 0) return NOT_FINITE;
            log_r[i] = log_share(masses.m[j], masses.total());
            if (others) others[i] = masses.others(j);
            place[i] = low + j;
        }
    }
    return OK;
}

template <class... Args> inline int inside(const MembersTask& t, Args... args) {
    if (!t.copy) return inside_of<Live>(t, args...);
    MembersTask copied = t;
    copied.unit = 0;                                       // whatever the table has, a copy is as it is scored
    return inside_of<Copied>(copied, args...);
}

}  // namespace
