// Draws of a cell by its mass and of a candidate inside it by e^o: the door kernels/sampling/cells.py, which checks all arguments.
//
//     P(c) = M_c / Σ M,   M_c as given, or n_c e^{h·μ_c};    inside as members.h has it

#include "sampling/cell_members.h"

struct DrawTask {
    const float* log_mass;      // (questions, cells), or null: log_size + h·mean
    const float* mean;          // (cells / PANEL, dim, PANEL), see means.h; made of zeros beyond the last
    const float* log_size;      // (cells, up to whole panels)
    const int64_t* cell_of;     // (candidates)
    const int64_t* place_of;    // (candidates)
    const float* h;             // (questions, dim)
    const int64_t* question;    // (draws)  or null: each draw has its own
    const int64_t* asked;       // (rows)   the question of each, or null
    const int64_t* target;      // (rows)
    int64_t questions, draws, k, rows, exclude;  // exclude: draw i is of the candidates other than target i; draws = rows
    uint64_t seed, seed_inside;
    int64_t first;              // the number of the first draw
    double tau;                 // h is to become τ h / ‖h‖; 0: it is what it is to be

    int64_t of_draw(int64_t i) const { return question ? question[i] : i; }
    int64_t of_row(int64_t r) const { return asked ? asked[r] : r; }
};

namespace {

// k cells for each of n rows, in proportion to their masses; where `rest` is given the row's own cell has that part of
// its mass. log_own: log of the share of the row's own cell while it had all; no row has one where `own` is null.
int choose(const float* log_masses, int64_t cells, const int64_t* questions, const int64_t* own, const double* rest,
           int64_t n, int64_t k, uint64_t seed, int64_t first, int64_t* cell, double* log_p, double* log_own) {
    Room room;
    Asked* asked = room.of<Asked>(n);
    Masses masses(room, cells);
    if (room.full()) return NO_MEMORY;
    for (int64_t r = 0; r < n; ++r) asked[r] = {questions[r], r};
    sort(asked, n);
    float* const m = masses.m;
    for (int64_t a = 0; a < n; ++a) {
        const int64_t r = asked[a].i;
        const bool anew = a == 0 || asked[a].key != asked[a - 1].key;
        if (anew && !weigh(log_masses + asked[a].key * cells, -1, masses)) return NOT_FINITE;
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

}  // namespace

// ids (draws, k) with log q, and log q of the targets (rows). Targets are asked for with the draws, whose cells may be
// theirs; where they are not to be drawn, before them, for what they leave of their cells.
extern "C" EMBTRAIN_API int embtrain_cells_draw(const MembersTask* members, const DrawTask* task, int64_t* ids,
                                                float* log_q, float* log_target) {
    MembersTask t = *members;
    const DrawTask& d = *task;
    t.h = d.h, t.questions = d.questions;
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
    int64_t* drawing = room.of<int64_t>(d.draws);          // the question of each draw
    int64_t* asking = room.of<int64_t>(d.rows);            // and of each row
    if (room.full()) return NO_MEMORY;
    std::fill_n(needed, t.questions, 0);
    for (int64_t i = 0; i < d.draws; ++i) {
        drawing[i] = d.of_draw(i);
        if (beyond(drawing[i], t.questions)) return OUT_OF_RANGE;
        needed[drawing[i]] = 1;
        for (int64_t j = i * d.k; j < (i + 1) * d.k; ++j) question[j] = drawing[i], wanted[j] = -1;
    }
    for (int64_t r = 0; r < d.rows; ++r) {
        const int64_t target = d.target[r];
        asking[r] = d.of_row(r);
        if (beyond(asking[r], t.questions) || beyond(target, candidates)) return OUT_OF_RANGE;
        needed[asking[r]] = 1;
        question[n + r] = asking[r], cell[n + r] = d.cell_of[target], wanted[n + r] = d.place_of[target];
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
                            nullptr, until - from, d.seed_inside, d.first * d.k + from, place + from, log_r + from,
                            d.exclude ? others + from : nullptr);
    };
    if (d.exclude) ask(n, all);
    const bool alike = d.draws == d.rows;                  // else rows share draws, and ask for their own targets
    if (!alike && answer == OK)
        answer = choose(log_mass, t.cells, asking, cell + n, nullptr, d.rows, 0, 0, 0, nullptr, nullptr, log_own);
    if (answer == OK) std::copy_n(log_own, alike ? 0 : d.rows, log_p + n);
    if (answer == OK)
        answer = choose(log_mass, t.cells, drawing, alike ? cell + n : nullptr, d.exclude ? others + n : nullptr,
                        d.draws, d.k, d.seed, d.first, cell, log_p, log_own);
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
    return inside(t, question, cell, wanted, without, nullptr, n, seed, first, place, log_r, others);
}
