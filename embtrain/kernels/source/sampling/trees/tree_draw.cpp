// Draws candidates through a tree of sums, from queries to ids in one call. The wrapper kernels/sampling/tree_draw.py
// checks all arguments.
//
//     φ(h), ε(h) given, or of x = s h:  φ by Fourier features,  ε = floor e^{-(‖x‖² + L)/2}
//     a block by the walk of tree_walk.h, a candidate in it by e^o (cells/members.h);   log q is the sum of both
//     the target's w = π_t φ(h)·φ(c_t), or its share in the stored sums if a block is one candidate

#include "sampling/trees/fourier.h"
#include "sampling/cells/members.h"
#include "sampling/trees/tree_walk.h"

struct TreeDrawTask {              // the same order in embtrain/kernels/sampling/tree_draw.py
    const float* w;                // (frequencies, dim), or null: φ and ε are given
    const int64_t* order;          // (candidates)  the candidate of each place
    const int64_t* place_of;       // (candidates)
    const double* prior;           // (candidates)  π by place
    const float* h;                // (n_queries, dim)
    const float* phi;              // (n_queries, width)
    const double* least;           // (n_queries)
    const double* mass;            // (draws)  w of its target; null: computed in the call
    const int64_t* draw_query;       // (draws)  or null: one draw per query
    const int64_t* row_query;          // (rows)   the query of each row, or null
    const int64_t* target;         // (rows)
    uint8_t* touched;              // (candidates)  set for the places of drawn candidates and of targets; or null
    // exclude: draw i is among the candidates other than target i
    int64_t frequencies, dim, n_queries, draws, k, rows, exclude;
    uint64_t seed, seed_inside;
    int64_t first;                 // the number of the first draw
    double tau, stretch, floor, largest;  // τ h / ‖h‖ replaces h, unless τ = 0; s; L

    int64_t query_for_draw(int64_t i) const { return draw_query ? draw_query[i] : i; }
    int64_t query_for_row(int64_t r) const { return row_query ? row_query[r] : r; }
};

namespace {

// The queries in use, packed, as vectors and as features.
struct QueryFeatures {
    int64_t* slot;                 // (n_queries)  the index of each query in the packed arrays, or -1
    float* h;
    float* phi;
    double* least;
    int64_t n;
};

// x (dim, padded_n): the n vectors (n, dim) times `factor`, stored by dimension.
inline void scaled_columns(const float* h, int64_t n, int64_t dim, double factor, int64_t padded_n, double* x) {
    std::fill_n(x, dim * padded_n, 0.0);
    for (int64_t q = 0; q < n; ++q)
        for (int64_t i = 0; i < dim; ++i) x[i * padded_n + q] = double(h[q * dim + i]) * factor;
}

inline double square(const float* x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += double(x[i]) * x[i];
    return sum;
}

void number_queries(const TreeDrawTask& d, QueryFeatures& queries) {
    std::fill_n(queries.slot, d.n_queries, -1);
    for (int64_t i = 0; i < d.draws; ++i) queries.slot[d.query_for_draw(i)] = 0;
    if (!d.exclude) for (int64_t r = 0; r < d.rows; ++r) queries.slot[d.query_for_row(r)] = 0;
    queries.n = 0;
    for (int64_t q = 0; q < d.n_queries; ++q) if (queries.slot[q] == 0) queries.slot[q] = queries.n++;
}

int compute_features(const TreeDrawTask& d, int64_t width, QueryFeatures& queries) {
    const int64_t padded_n = round_up(queries.n, W);
    Arena arena;
    double* x = arena.allocate<double>(d.w ? d.dim * padded_n : 0);
    double* w_double = arena.allocate<double>(d.w ? d.dim * AT_ONCE : 0);
    if (arena.failed()) return NO_MEMORY;
    for (int64_t q = 0; q < d.n_queries; ++q) {
        const int64_t slot = queries.slot[q];
        if (slot < 0) continue;
        if (d.tau > 0) scale(d.h + q * d.dim, 1, d.dim, d.tau, queries.h + slot * d.dim);
        else std::copy_n(d.h + q * d.dim, d.dim, queries.h + slot * d.dim);
        if (d.w) {
            const double size = d.stretch * d.stretch * square(queries.h + slot * d.dim, d.dim);
            queries.least[slot] = d.floor * std::exp(std::max(-(size + d.largest) / 2, -600.0));
        } else {
            std::copy_n(d.phi + q * width, width, queries.phi + slot * width);
            queries.least[slot] = d.least[q];
        }
    }
    if (d.w) {
        scaled_columns(queries.h, queries.n, d.dim, d.stretch, padded_n, x);
        fourier(d.w, d.frequencies, d.dim, x, queries.n, padded_n, w_double, queries.phi);
    }
    return OK;
}

// w of the target of each draw, with y = s c. s includes τ if candidates are unit vectors.
int target_masses(const TreeDrawTask& d, const TreeTask& t, const CellTask* m, const QueryFeatures& queries,
                  double* mass) {
    const double s = d.tau > 0 ? d.stretch * d.tau : d.stretch;
    Arena arena;
    float* c = arena.allocate<float>(m ? W * d.dim : 0);
    float* phi = arena.allocate<float>(m ? W * t.width : 0);
    double* y = arena.allocate<double>(m ? W * d.dim : 0);
    double* w_double = arena.allocate<double>(m ? d.dim * AT_ONCE : 0);
    if (arena.failed()) return NO_MEMORY;
    for (int64_t from = 0; from < d.draws; from += W) {
        const int64_t n = std::min<int64_t>(W, d.draws - from);
        if (m) {
            for (int64_t l = 0; l < n; ++l) {
                const float* row = m->table + d.target[from + l] * m->pitch;
                if (m->unit) scale(row, 1, d.dim, 1, c + l * d.dim);
                else std::copy_n(row, d.dim, c + l * d.dim);
            }
            scaled_columns(c, n, d.dim, s, W, y);
            fourier(d.w, d.frequencies, d.dim, y, n, W, w_double, phi);
        }
        for (int64_t l = 0; l < n; ++l) {
            const int64_t place = d.place_of[d.target[from + l]];
            const float* const phi_query = queries.phi + queries.slot[d.query_for_draw(from + l)] * t.width;
            if (!m) {
                mass[from + l] =
                    (t.scale ? Int8Nodes::node_product : FloatNodes::node_product)(t, phi_query, t.levels - 1, place);
                continue;
            }
            const float* const phi_target = phi + l * t.width;
            const float* const rows[4] = {phi_target, phi_target, phi_target, phi_target};
            double product[4];
            dots(&phi_query, rows, t.width, product);
            // 60: the limit used for the sums, see negatives/softmax/kernels/rff.py
            const double weight = std::min((s * s * square(c + l * d.dim, d.dim) - d.largest) / 2, 60.0);
            mass[from + l] = product[0] * d.prior[place] * std::exp(weight);
        }
    }
    return OK;
}

}  // namespace

// Outputs ids (draws, k) with log q, and log q of the targets (rows) unless they are excluded. members: null if a block
// is one candidate.
extern "C" EMBTRAIN_API int embtrain_tree_draw(const TreeTask* tree, const CellTask* members, const TreeDrawTask* task,
                                               int64_t* ids, float* log_q, float* log_target) {
    TreeTask t = *tree;
    const TreeDrawTask& d = *task;
    const int64_t n = d.draws * d.k, all = n + (d.exclude ? 0 : d.rows);
    for (int64_t i = 0; i < d.draws; ++i) if (out_of_range(d.query_for_draw(i), d.n_queries)) return OUT_OF_RANGE;
    for (int64_t r = 0; r < d.rows; ++r)
        if (out_of_range(d.query_for_row(r), d.n_queries)
            || out_of_range(d.target[r], t.candidates)) return OUT_OF_RANGE;
    Arena arena;
    QueryFeatures queries{arena.allocate<int64_t>(d.n_queries), nullptr, nullptr, nullptr, 0};
    int64_t* query_id = arena.allocate<int64_t>(all);
    int64_t* wanted = arena.allocate<int64_t>(all);               // a place, or -1 to draw one
    int64_t* target_block = arena.allocate<int64_t>(all);                // its block, or -1
    int64_t* block = arena.allocate<int64_t>(all);
    int64_t* place = arena.allocate<int64_t>(all);
    int64_t* order = arena.allocate<int64_t>(members ? all : 0);
    int64_t* without = arena.allocate<int64_t>(d.exclude ? n : 0);
    double* mass = arena.allocate<double>(d.exclude ? n : 0);
    double* share = arena.allocate<double>(d.exclude ? n : 0);
    double* target_mass = arena.allocate<double>(d.exclude ? d.draws : 0);
    double* log_p = arena.allocate<double>(all);
    double* share_inside = arena.allocate<double>(all);
    if (arena.failed()) return NO_MEMORY;
    number_queries(d, queries);
    Arena vectors;
    queries.h = vectors.allocate<float>(queries.n * d.dim);
    queries.phi = vectors.allocate<float>(queries.n * t.width);
    queries.least = vectors.allocate<double>(queries.n);
    if (vectors.failed()) return NO_MEMORY;
    int status = compute_features(d, t.width, queries);
    if (status == OK && d.exclude && !d.mass) status = target_masses(d, t, members, queries, target_mass);
    if (status != OK) return status;
    for (int64_t i = 0; i < d.draws; ++i)
        for (int64_t j = i * d.k; j < (i + 1) * d.k; ++j) {
            query_id[j] = queries.slot[d.query_for_draw(i)], wanted[j] = target_block[j] = -1;
            if (!d.exclude) continue;
            without[j] = d.place_of[d.target[i]];
            mass[j] = d.mass ? d.mass[i] : target_mass[i], share[j] = d.prior[without[j]];
        }
    for (int64_t j = n; j < all; ++j) {
        query_id[j] = queries.slot[d.query_for_row(j - n)], wanted[j] = d.place_of[d.target[j - n]];
        target_block[j] = wanted[j] / t.leaf;
    }
    t.phi = queries.phi, t.least = queries.least, t.query_id = query_id, t.wanted = target_block;
    t.position = d.exclude ? without : nullptr, t.mass = d.exclude ? mass : nullptr, t.share = d.exclude ? share
        : nullptr;
    t.n_queries = queries.n, t.n = all, t.seed = d.seed, t.first = d.first * d.k;
    status = walk(t, block, log_p, members ? order : nullptr);
    if (status == OK && members) {
        CellTask m = *members;
        m.h = queries.h, m.n_queries = queries.n;
        const PlaceRequests out{wanted, t.position, d.seed_inside, t.first, place, share_inside, nullptr};
        status = inside_by_rows(m, query_id, block, out, order, all);
    }
    if (status != OK) return status;
    for (int64_t j = 0; j < all; ++j) {
        const int64_t leaf_place = members ? place[j] : block[j];
        const float log_sum = float(members ? log_p[j] + std::log(share_inside[j]) : log_p[j]);
        if (j < n) ids[j] = d.order[leaf_place], log_q[j] = log_sum;
        else log_target[j - n] = log_sum;
        if (d.touched) d.touched[leaf_place] = 1;
    }
    if (d.touched && d.exclude)
        for (int64_t i = 0; i < d.draws; ++i) d.touched[d.place_of[d.target[i]]] = 1;
    return OK;
}
