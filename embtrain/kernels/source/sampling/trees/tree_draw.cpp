// Draws of candidates through a tree of sums, from queries to ids in one call: the door kernels/sampling/tree_draw.py, which checks
// all arguments.
//
//     φ(h), ε(h) as given, or of x = s h:  φ by Fourier features,  ε = floor e^{-(‖x‖² + L)/2}
//     a block by the walk of walk.h, a candidate of it by e^o (members.h);   log q is the sum of both
//     the target's w = π_t φ(h)·φ(c_t), as it stands in the sums where a block is a candidate

#include "sampling/trees/fourier.h"
#include "sampling/cell_members.h"
#include "sampling/trees/tree_walk.h"

struct TreeDrawTask {              // the same order in embtrain/kernels/sampling/tree_draw.py
    const float* w;                // (frequencies, dim), or null: φ and ε are given
    const int64_t* order;          // (candidates)  the candidate of each place
    const int64_t* place_of;       // (candidates)
    const double* prior;           // (candidates)  π by place
    const float* h;                // (questions, dim)
    const float* phi;              // (questions, width)
    const double* least;           // (questions)
    const double* mass;            // (draws)  w of its target; null: it is made here
    const int64_t* question;       // (draws)  or null: each draw has its own
    const int64_t* asked;          // (rows)   the question of each, or null
    const int64_t* target;         // (rows)
    uint8_t* touched;              // (blocks)  set where one was drawn or its target lies there; or null
    int64_t frequencies, dim, questions, draws, k, rows, exclude;  // exclude: draw i is of those other than target i
    uint64_t seed, seed_inside;
    int64_t first;                 // the number of the first draw
    double tau, stretch, floor, largest;  // τ h / ‖h‖ is to be taken for h, unless τ = 0; s; L

    int64_t of_draw(int64_t i) const { return question ? question[i] : i; }
    int64_t of_row(int64_t r) const { return asked ? asked[r] : r; }
};

namespace {

// Questions that are asked, one after another, as they are scored and as features.
struct Questions {
    int64_t* slot;                 // (questions)  where each stands, or -1
    float* h;
    float* phi;
    double* least;
    int64_t n;
};

// x (dim, room) of n vectors (n, dim).
inline void across(const float* h, int64_t n, int64_t dim, double by, int64_t room, double* x) {
    std::fill_n(x, dim * room, 0.0);
    for (int64_t q = 0; q < n; ++q)
        for (int64_t i = 0; i < dim; ++i) x[i * room + q] = double(h[q * dim + i]) * by;
}

inline double square(const float* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += double(x[i]) * x[i];
    return sum;
}

void number(const TreeDrawTask& d, Questions& of) {
    std::fill_n(of.slot, d.questions, -1);
    for (int64_t i = 0; i < d.draws; ++i) of.slot[d.of_draw(i)] = 0;
    if (!d.exclude) for (int64_t r = 0; r < d.rows; ++r) of.slot[d.of_row(r)] = 0;
    of.n = 0;
    for (int64_t q = 0; q < d.questions; ++q) if (of.slot[q] == 0) of.slot[q] = of.n++;
}

int features(const TreeDrawTask& d, int64_t width, Questions& of) {
    const int64_t room_for = up(of.n, W);
    Room room;
    double* x = room.of<double>(d.w ? d.dim * room_for : 0);
    double* few = room.of<double>(d.w ? d.dim * AT_ONCE : 0);
    if (room.full()) return NO_MEMORY;
    for (int64_t q = 0; q < d.questions; ++q) {
        const int64_t slot = of.slot[q];
        if (slot < 0) continue;
        if (d.tau > 0) scale(d.h + q * d.dim, 1, d.dim, d.tau, of.h + slot * d.dim);
        else std::copy_n(d.h + q * d.dim, d.dim, of.h + slot * d.dim);
        if (d.w) {
            const double size = d.stretch * d.stretch * square(of.h + slot * d.dim, d.dim);
            of.least[slot] = d.floor * std::exp(std::max(-(size + d.largest) / 2, -600.0));
        } else {
            std::copy_n(d.phi + q * width, width, of.phi + slot * width);
            of.least[slot] = d.least[q];
        }
    }
    if (d.w) {
        across(of.h, of.n, d.dim, d.stretch, room_for, x);
        fourier(d.w, d.frequencies, d.dim, x, of.n, room_for, few, of.phi);
    }
    return OK;
}

// w of the target of each draw, y = s c: as x, whose h carries τ where candidates are unit vectors.
int target_masses(const TreeDrawTask& d, const TreeTask& t, const MembersTask* m, const Questions& of, double* mass) {
    const double s = d.tau > 0 ? d.stretch * d.tau : d.stretch;
    Room room;
    float* c = room.of<float>(m ? W * d.dim : 0);
    float* phi = room.of<float>(m ? W * t.width : 0);
    double* y = room.of<double>(m ? W * d.dim : 0);
    double* few = room.of<double>(m ? d.dim * AT_ONCE : 0);
    if (room.full()) return NO_MEMORY;
    for (int64_t from = 0; from < d.draws; from += W) {
        const int64_t n = std::min<int64_t>(W, d.draws - from);
        if (m) {
            for (int64_t l = 0; l < n; ++l) {
                const float* row = m->table + d.target[from + l] * m->pitch;
                if (m->unit) scale(row, 1, d.dim, 1, c + l * d.dim);
                else std::copy_n(row, d.dim, c + l * d.dim);
            }
            across(c, n, d.dim, s, W, y);
            fourier(d.w, d.frequencies, d.dim, y, n, W, few, phi);
        }
        for (int64_t l = 0; l < n; ++l) {
            const int64_t place = d.place_of[d.target[from + l]];
            const float* const asked = of.phi + of.slot[d.of_draw(from + l)] * t.width;
            if (!m) {
                mass[from + l] = (t.scale ? Bytes::own : Floats::own)(t, asked, t.levels - 1, place);
                continue;
            }
            const float* const own = phi + l * t.width;
            const float* const rows[4] = {own, own, own, own};
            double product[4];
            dots(&asked, rows, t.width, product);
            // 60: what the sums were made with, see MOST of negatives/softmax/kernels/rff.py.
            const double weight = std::min((s * s * square(c + l * d.dim, d.dim) - d.largest) / 2, 60.0);
            mass[from + l] = product[0] * d.prior[place] * std::exp(weight);
        }
    }
    return OK;
}

}  // namespace

// ids (draws, k) with log q, and log q of the targets (rows) unless they are not to be drawn. members: null where a block is
// a candidate.
extern "C" EMBTRAIN_API int embtrain_tree_draw(const TreeTask* tree, const MembersTask* members, const TreeDrawTask* task,
                                               int64_t* ids, float* log_q, float* log_target) {
    TreeTask t = *tree;
    const TreeDrawTask& d = *task;
    const int64_t n = d.draws * d.k, all = n + (d.exclude ? 0 : d.rows);
    for (int64_t i = 0; i < d.draws; ++i) if (beyond(d.of_draw(i), d.questions)) return OUT_OF_RANGE;
    for (int64_t r = 0; r < d.rows; ++r)
        if (beyond(d.of_row(r), d.questions) || beyond(d.target[r], t.candidates)) return OUT_OF_RANGE;
    Room room;
    Questions of{room.of<int64_t>(d.questions), nullptr, nullptr, nullptr, 0};
    int64_t* question = room.of<int64_t>(all);
    int64_t* wanted = room.of<int64_t>(all);               // a place, or -1 to have one drawn
    int64_t* above = room.of<int64_t>(all);                // the block of it
    int64_t* block = room.of<int64_t>(all);
    int64_t* place = room.of<int64_t>(all);
    int64_t* order = room.of<int64_t>(members ? all : 0);
    int64_t* without = room.of<int64_t>(d.exclude ? n : 0);
    double* mass = room.of<double>(d.exclude ? n : 0);
    double* share = room.of<double>(d.exclude ? n : 0);
    double* own = room.of<double>(d.exclude ? d.draws : 0);
    double* log_p = room.of<double>(all);
    double* log_r = room.of<double>(all);
    if (room.full()) return NO_MEMORY;
    number(d, of);
    Room vectors;
    of.h = vectors.of<float>(of.n * d.dim);
    of.phi = vectors.of<float>(of.n * t.width);
    of.least = vectors.of<double>(of.n);
    if (vectors.full()) return NO_MEMORY;
    int answer = features(d, t.width, of);
    if (answer == OK && d.exclude && !d.mass) answer = target_masses(d, t, members, of, own);
    if (answer != OK) return answer;
    for (int64_t i = 0; i < d.draws; ++i)
        for (int64_t j = i * d.k; j < (i + 1) * d.k; ++j) {
            question[j] = of.slot[d.of_draw(i)], wanted[j] = above[j] = -1;
            if (!d.exclude) continue;
            without[j] = d.place_of[d.target[i]];
            mass[j] = d.mass ? d.mass[i] : own[i], share[j] = d.prior[without[j]];
        }
    for (int64_t j = n; j < all; ++j) {
        question[j] = of.slot[d.of_row(j - n)], wanted[j] = d.place_of[d.target[j - n]];
        above[j] = wanted[j] / t.leaf;
    }
    t.phi = of.phi, t.least = of.least, t.question = question, t.wanted = above;
    t.position = d.exclude ? without : nullptr, t.mass = d.exclude ? mass : nullptr, t.share = d.exclude ? share : nullptr;
    t.questions = of.n, t.n = all, t.seed = d.seed, t.first = d.first * d.k;
    answer = walk(t, block, log_p, members ? order : nullptr);
    if (answer == OK && members) {
        MembersTask m = *members;
        m.h = of.h, m.questions = of.n;
        answer = inside(m, question, block, wanted, t.position, order, all, d.seed_inside, t.first, place, log_r, nullptr);
    }
    if (answer != OK) return answer;
    for (int64_t j = 0; j < all; ++j) {
        const int64_t at = members ? place[j] : block[j];
        const float found = float(members ? log_p[j] + log_r[j] : log_p[j]);
        if (j < n) ids[j] = d.order[at], log_q[j] = found;
        else log_target[j - n] = found;
        if (d.touched) d.touched[block[j]] = 1;
    }
    if (d.touched && d.exclude)
        for (int64_t i = 0; i < d.draws; ++i) d.touched[d.place_of[d.target[i]] / t.leaf] = 1;
    return OK;
}
