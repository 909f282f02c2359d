// Draws of a cell by its mass and of a candidate inside it by e^o: the door kernels/cells.py, which checks all arguments.
//
//     P(c) = M_c / Σ M,    r(i|c, h) = e^{o_i} / Σ_{j in c} e^{o_j},   o = h·c_i  or  h·c_i / ‖c_i‖
//     M_c as given, or n_c e^{h·μ_c}
//
// Inside, requests are taken in order of cell and question: a cell's members are fetched from all over the table, and so
// are scored once for each question that wants them, one question after the other while they are near. Waiting for
// memory is most of the work; rows are asked for long before their turn, those of the next cells too.

#include "draw.h"
#include "means.h"

struct MembersTask {  // the same order in embtrain/kernels/cells.py
    const float* table;         // (candidates, dim), rows `pitch` floats apart
    const int64_t* order;       // (candidates)  cell by cell
    const int64_t* start;       // (cells + 1)   where each begins in order
    const float* h;             // (questions, dim)
    int64_t dim, pitch, unit, cells, largest, questions;
};

struct DrawTask {
    const float* log_mass;      // (questions, cells), or null: log_size + h·mean
    const float* mean;          // (cells, dim)
    const float* log_size;      // (cells)
    const int64_t* question;    // (draws)
    const int64_t* cell_of;     // (candidates)
    const int64_t* place_of;    // (candidates)
    const int64_t* target;      // (rows)
    const int64_t* asked;       // (rows)  the question of each
    int64_t draws, k, rows, exclude;  // exclude: draw i is of the candidates other than target i; draws = rows
    uint64_t seeds[2];
    int64_t first;              // the number of the first draw
    double tau;                 // h is to become τ h / ‖h‖; 0: it is what it is to be
};

namespace {

constexpr int64_t AHEAD = 24;      // rows that are on their way while one is scored

// The rows that requests, in their order, will want: those of each cell once.
struct Coming {
    const MembersTask& t;
    const Asked* asked;
    int64_t n, a, j;               // requests; the first of the next cell, and the next of its members

    void fetch_rows(int64_t many) {
        while (many > 0 && a < n) {
            const int64_t cell = asked[a].key / t.questions, low = t.start[cell], size = t.start[cell + 1] - low;
            for (; many > 0 && j < size; --many, ++j) fetch(t.table + t.order[low + j] * t.pitch, t.dim);
            if (j < size) return;
            for (j = 0; a < n && asked[a].key / t.questions == cell;) ++a;
        }
    }
};

// o of n members of a cell for one question. Four at a time; meanwhile as many of `coming` are fetched.
void scores(const MembersTask& t, const float* h, const int64_t* ids, int64_t n, float* o, Coming* coming) {
    const int64_t d = t.dim;
    for (int64_t j = 0; j < n; j += 4) {
        const float* c[4];
        if (coming) coming->fetch_rows(std::min<int64_t>(4, n - j));
        for (int l = 0; l < 4; ++l) c[l] = t.table + ids[std::min(j + l, n - 1)] * t.pitch;
        vec s[4] = {}, q[4] = {};
        int64_t i = 0;
        for (; i + W <= d; i += W) {
            const vec x = load(h + i);
            for (int l = 0; l < 4; ++l) {
                const vec y = load(c[l] + i);
                s[l] += x * y;
                q[l] += y * y;
            }
        }
        half dots = sums(fold(s[0]), fold(s[1]), fold(s[2]), fold(s[3]));
        half squares = sums(fold(q[0]), fold(q[1]), fold(q[2]), fold(q[3]));
        for (; i < d; ++i)
            for (int l = 0; l < 4; ++l) {
                dots[l] += h[i] * c[l][i];
                squares[l] += c[l][i] * c[l][i];
            }
        for (int l = 0; l < 4 && j + l < n; ++l)
            o[j + l] = t.unit ? dots[l] / std::max(std::sqrt(squares[l]), LEAST) : dots[l];
    }
}

// max of n numbers; NaN where one of them is not finite. There is room for whole vectors.
float largest(float* o, int64_t n) {
    for (int64_t j = n; j < n + W; ++j) o[j] = o[0];
    vec tops = load(o), zeros{};
    for (int64_t j = 0; j < n; j += W) {
        const vec x = load(o + j);
        tops = most(x, tops);
        zeros += x - x;
    }
    float top = tops[0];
    for (int l = 1; l < W; ++l) top = std::max(top, tops[l]);
    return top + sum(zeros);
}

// m_i = e^{x_i - max x} of all but one, which gets 0. False where an x is not finite.
bool weigh(float* x, int64_t skip, Masses& masses) {
    const float top = largest(x, masses.n);
    if (!std::isfinite(top)) return false;
    float shift = top;
    if (skip >= 0 && x[skip] == top) {                     // others are not to vanish beside it
        shift = -INFINITY;
        for (int64_t j = 0; j < masses.n; ++j) if (j != skip) shift = std::max(shift, x[j]);
    }
    for (int64_t j = 0; j < masses.n; j += W) store(masses.m + j, exp_of(load(x + j) - splat(shift)));
    if (skip >= 0) masses.m[skip] = 0;
    masses.sum();
    return true;
}

double log_share(double mass, double total) { return mass > 0 ? std::log(mass / total) : -INFINITY; }

// k cells for each of n rows, in proportion to their masses; where `rest` is given the row's own cell has that part of
// its mass. log_own: log of the share of the row's own cell while it had all; no row has one where `own` is null.
int choose(const float* log_masses, int64_t cells, const int64_t* questions, const int64_t* own, const double* rest,
           int64_t n, int64_t k, uint64_t seed, int64_t first, int64_t* cell, double* log_p, double* log_own) {
    Room room;
    Asked* asked = room.of<Asked>(n);
    float* x = room.of<float>(cells + W);
    float* m = room.of<float>(cells + W);
    double* ends = room.of<double>(cells / BLOCK + 1);
    if (room.full()) return NO_MEMORY;
    for (int64_t r = 0; r < n; ++r) asked[r] = {questions[r], r};
    sort(asked, n);
    Masses masses{m, ends, cells};
    for (int64_t a = 0; a < n; ++a) {
        const int64_t r = asked[a].i;
        if (a == 0 || asked[a].key != asked[a - 1].key) {
            std::copy_n(log_masses + asked[a].key * cells, cells, x);
            if (!weigh(x, -1, masses)) return NOT_FINITE;
        }
        const float kept = own ? m[own[r]] : 0.f;
        if (own) log_own[r] = log_share(kept, masses.total());
        if (k && rest) {
            m[own[r]] = float(kept * rest[r]);
            masses.sum();
        }
        const double total = masses.total();
        for (int64_t i = r * k; i < (r + 1) * k; ++i) {
            cell[i] = masses.find(toss(seed, first * k + i) * total);
            if (cell[i] < 0) return NOT_FINITE;
            log_p[i] = log_share(m[cell[i]], total);
        }
        if (k && rest) {
            m[own[r]] = kept;
            masses.sum();
        }
    }
    return OK;
}

// For n requests of a question and a cell: the place wanted, or one drawn where that is -1, never that of `without`.
int inside(const MembersTask& t, const int64_t* question, const int64_t* cell, const int64_t* wanted,
           const int64_t* without, int64_t n, uint64_t seed, int64_t first, int64_t* place, double* log_r,
           double* others) {
    Room room;
    Asked* asked = room.of<Asked>(n);
    float* o = room.of<float>(t.largest + W);
    float* m = room.of<float>(t.largest + W);
    double* ends = room.of<double>(t.largest / BLOCK + 1);
    if (room.full()) return NO_MEMORY;
    for (int64_t i = 0; i < n; ++i) asked[i] = {cell[i] * t.questions + question[i], i};
    sort(asked, n);
    Coming coming{t, asked, n, 0, 0};
    coming.fetch_rows(AHEAD);
    for (int64_t begin = 0, end, before = -1; begin < n; begin = end) {
        const int64_t key = asked[begin].key, c = key / t.questions, low = t.start[c];
        for (end = begin + 1; end < n && asked[end].key == key;) ++end;
        Masses masses{m, ends, t.start[c + 1] - low};
        scores(t, t.h + key % t.questions * t.dim, t.order + low, masses.n, o, c == before ? nullptr : &coming);
        before = c;
        int64_t skip = -2;                                 // nothing was weighed yet
        for (int64_t a = begin; a < end; ++a) {
            const int64_t i = asked[a].i;
            const int64_t at = without ? without[i] - low : -1, gone = at >= 0 && at < masses.n ? at : -1;
            if (gone != skip && !weigh(o, skip = gone, masses)) return NOT_FINITE;
            const int64_t j = wanted[i] >= 0 ? wanted[i] - low
                                             : masses.find(toss(seed, first + i) * masses.total());
            if (j < 0) return NOT_FINITE;
            log_r[i] = log_share(m[j], masses.total());
            others[i] = masses.others(j);
            place[i] = low + j;
        }
    }
    return OK;
}

}  // namespace

// ids (draws, k) with log q, and log q of the targets (rows). Targets are asked for with the draws, whose cells may be
// theirs; where they are not to be drawn, before them, for what they leave of their cells.
extern "C" EMBTRAIN_API int embtrain_cells_draw(const MembersTask* members, const DrawTask* task, int64_t* ids,
                                                float* log_q, float* log_target) {
    MembersTask t = *members;
    const DrawTask& d = *task;
    const int64_t n = d.draws * d.k, all = n + d.rows, candidates = t.start[t.cells];
    Room room;
    int64_t* question = room.of<int64_t>(all);
    int64_t* cell = room.of<int64_t>(all);
    int64_t* wanted = room.of<int64_t>(all);
    int64_t* without = room.of<int64_t>(all);
    int64_t* place = room.of<int64_t>(all);
    double* log_p = room.of<double>(all);
    double* log_r = room.of<double>(all);
    double* others = room.of<double>(all);
    double* log_own = room.of<double>(std::max(d.draws, d.rows));
    float* scaled = room.of<float>(d.tau > 0 ? t.questions * t.dim : 0);
    float* made = room.of<float>(d.mean ? t.questions * t.cells : 0);
    int64_t* needed = room.of<int64_t>(t.questions);
    if (room.full()) return NO_MEMORY;
    std::fill_n(needed, t.questions, 0);
    for (int64_t i = 0; i < d.draws; ++i) {
        if (beyond(d.question[i], t.questions)) return OUT_OF_RANGE;
        needed[d.question[i]] = 1;
        for (int64_t j = i * d.k; j < (i + 1) * d.k; ++j) question[j] = d.question[i], wanted[j] = -1;
    }
    for (int64_t r = 0; r < d.rows; ++r) {
        const int64_t target = d.target[r];
        if (beyond(d.asked[r], t.questions) || beyond(target, candidates)) return OUT_OF_RANGE;
        needed[d.asked[r]] = 1;
        question[n + r] = d.asked[r], cell[n + r] = d.cell_of[target], wanted[n + r] = d.place_of[target];
        if (d.exclude) std::fill_n(without + r * d.k, d.k, wanted[n + r]);
    }
    if (d.tau > 0) scale(t.h, t.questions, t.dim, d.tau, scaled), t.h = scaled;
    if (d.mean) {
        int64_t asked = 0;
        for (int64_t q = 0; q < t.questions; ++q) if (needed[q]) needed[asked++] = q;
        log_masses(d.mean, d.log_size, t.cells, t.dim, t.h, needed, asked, made);
    }
    const float* log_mass = d.mean ? made : d.log_mass;
    int answer = OK;
    const auto ask = [&](int64_t from, int64_t until) {
        if (answer == OK)
            answer = inside(t, question + from, cell + from, wanted + from, d.exclude && until == n ? without : nullptr,
                            until - from, d.seeds[1], d.first * d.k + from, place + from, log_r + from, others + from);
    };
    if (d.exclude) ask(n, all);
    const bool alike = d.draws == d.rows;                  // else rows share draws, and ask for their own targets
    if (!alike && answer == OK)
        answer = choose(log_mass, t.cells, d.asked, cell + n, nullptr, d.rows, 0, 0, 0, nullptr, nullptr, log_own);
    if (answer == OK) std::copy_n(log_own, alike ? 0 : d.rows, log_p + n);
    if (answer == OK)
        answer = choose(log_mass, t.cells, d.question, alike ? cell + n : nullptr, d.exclude ? others + n : nullptr,
                        d.draws, d.k, d.seeds[0], d.first, cell, log_p, log_own);
    ask(0, d.exclude ? n : all);
    if (answer != OK) return answer;
    for (int64_t i = 0; i < n; ++i) ids[i] = t.order[place[i]], log_q[i] = float(log_p[i] + log_r[i]);
    for (int64_t r = 0; r < d.rows; ++r) log_target[r] = float((alike ? log_own[r] : log_p[n + r]) + log_r[n + r]);
    return OK;
}

// The places wanted in the cells of n requests, or places drawn there.
extern "C" EMBTRAIN_API int embtrain_cells_inside(const MembersTask* members, const int64_t* question,
                                                  const int64_t* cell, const int64_t* wanted, const int64_t* without,
                                                  int64_t n, uint64_t seed, int64_t first, int64_t* place,
                                                  double* log_r, double* others) {
    const MembersTask& t = *members;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t c = cell[i], at = wanted[i];
        if (beyond(question[i], t.questions) || beyond(c, t.cells) || t.start[c] >= t.start[c + 1]) return OUT_OF_RANGE;
        if (at != -1 && (at < t.start[c] || at >= t.start[c + 1])) return OUT_OF_RANGE;
        if (without && beyond(without[i], t.start[t.cells])) return OUT_OF_RANGE;
    }
    return inside(t, question, cell, wanted, without, n, seed, first, place, log_r, others);
}
