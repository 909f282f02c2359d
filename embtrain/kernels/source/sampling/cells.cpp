// Draws a cell, a group of candidates, by its weight M, then a candidate in it by e^o. The wrapper
// kernels/sampling/cells.py checks all arguments.
//
//     P(c) = M_c / Σ M,   M_c given, or n_c e^{h·μ_c};    inside the cell as in cell_members.h

#include "sampling/cell_members.h"

struct CellDrawTask {
    const float* log_mass;      // (n_queries, cells), or null: log_size + h·mean
    const float* mean;          // (cells / PANEL, dim, PANEL), see cell_masses.h; padded with zeros
    const float* log_size;      // (cells, padded to whole panels)
    const int64_t* cell_of;     // (candidates)
    const int64_t* place_of;    // (candidates)
    const float* h;             // (n_queries, dim)
    const int64_t* draw_query;    // (draws)  or null: one draw per query
    const int64_t* row_query;       // (rows)   the query of each row, or null
    const int64_t* target;      // (rows)
    // exclude: draw i is among the candidates other than target i; then draws = rows
    int64_t n_queries, draws, k, rows, exclude;
    uint64_t seed, seed_inside;
    int64_t first;              // the number of the first draw
    double tau;                 // τ h / ‖h‖ replaces h, unless τ = 0

    int64_t query_for_draw(int64_t i) const { return draw_query ? draw_query[i] : i; }
    int64_t query_for_row(int64_t r) const { return row_query ? row_query[r] : r; }
};

namespace {

// Draws k cells for each of n rows, in proportion to their weights. With `rest`, the weight of the row's target cell is
// multiplied by it. log_target_cell: the log share of the target cell at full weight. target_cell may be null.
int choose(const float* log_masses, int64_t cells, const int64_t* query_ids, const int64_t* target_cell,
           const double* rest,
           int64_t n, int64_t k, uint64_t seed, int64_t first, int64_t* cell, double* log_p, double* log_target_cell) {
    Arena arena;
    Request* requests = arena.allocate<Request>(n);
    Masses masses(arena, cells);
    if (arena.failed()) return NO_MEMORY;
    for (int64_t r = 0; r < n; ++r) requests[r] = {query_ids[r], r};
    sort(requests, n);
    float* const m = masses.m;
    for (int64_t a = 0; a < n; ++a) {
        const int64_t r = requests[a].i;
        const bool is_new_query = a == 0 || requests[a].key != requests[a - 1].key;
        if (is_new_query && !exp_masses(log_masses + requests[a].key * cells, -1, masses)) return NOT_FINITE;
        const float target_mass = target_cell ? m[target_cell[r]] : 0.f;
        if (target_cell) log_target_cell[r] = log_share(target_mass, masses.total());
        if (k && rest) {
            m[target_cell[r]] = float(target_mass * rest[r]);
            masses.sum();
        }
        const double total = masses.total();
        for (int64_t i = r * k; i < (r + 1) * k; ++i) {
            cell[i] = masses.find(uniform01(seed, first * k + i) * total);
            if (cell[i] < 0) return NOT_FINITE;
            log_p[i] = log_share(m[cell[i]], total);
        }
        if (k && rest) {
            m[target_cell[r]] = target_mass;
            masses.sum();
        }
    }
    return OK;
}

}  // namespace

// Outputs ids (draws, k) with log q, and log q of the targets (rows). Targets are scored together with the draws,
// because they often share cells. With `exclude` they are scored first, for the weight that remains in their cells.
extern "C" EMBTRAIN_API int embtrain_cells_draw(const CellTask* members, const CellDrawTask* task, int64_t* ids,
                                                float* log_q, float* log_target) {
    CellTask t = *members;
    const CellDrawTask& d = *task;
    t.h = d.h, t.n_queries = d.n_queries;
    const int64_t n = d.draws * d.k, all = n + d.rows, candidates = t.start[t.cells];
    Arena arena;
    int64_t* query_id = arena.allocate<int64_t>(all);
    int64_t* cell = arena.allocate<int64_t>(all);
    int64_t* wanted = arena.allocate<int64_t>(all);
    int64_t* without = arena.allocate<int64_t>(all);
    int64_t* place = arena.allocate<int64_t>(all);
    double* log_p = arena.allocate<double>(all);
    double* log_r = arena.allocate<double>(all);
    double* rest = arena.allocate<double>(all);
    double* log_target_cell = arena.allocate<double>(std::max(d.draws, d.rows));
    float* scaled = arena.allocate<float>(d.tau > 0 ? t.n_queries * t.dim : 0);
    float* computed = arena.allocate<float>(d.mean ? t.n_queries * t.cells : 0);
    float* interleaved = arena.allocate<float>(d.mean ? ROWS * t.dim : 0);
    int64_t* needed = arena.allocate<int64_t>(t.n_queries);
    int64_t* draw_queries = arena.allocate<int64_t>(d.draws);          // the query of each draw
    int64_t* row_queries = arena.allocate<int64_t>(d.rows);            // and of each row
    if (arena.failed()) return NO_MEMORY;
    std::fill_n(needed, t.n_queries, 0);
    for (int64_t i = 0; i < d.draws; ++i) {
        draw_queries[i] = d.query_for_draw(i);
        if (out_of_range(draw_queries[i], t.n_queries)) return OUT_OF_RANGE;
        needed[draw_queries[i]] = 1;
        for (int64_t j = i * d.k; j < (i + 1) * d.k; ++j) query_id[j] = draw_queries[i], wanted[j] = -1;
    }
    for (int64_t r = 0; r < d.rows; ++r) {
        const int64_t target = d.target[r];
        row_queries[r] = d.query_for_row(r);
        if (out_of_range(row_queries[r], t.n_queries) || out_of_range(target, candidates)) return OUT_OF_RANGE;
        needed[row_queries[r]] = 1;
        query_id[n + r] = row_queries[r], cell[n + r] = d.cell_of[target], wanted[n + r] = d.place_of[target];
        if (d.exclude) std::fill_n(without + r * d.k, d.k, wanted[n + r]);
    }
    if (d.tau > 0) scale(t.h, t.n_queries, t.dim, d.tau, scaled), t.h = scaled;
    if (d.mean) {
        int64_t n_needed = 0;
        for (int64_t q = 0; q < t.n_queries; ++q) if (needed[q]) needed[n_needed++] = q;
        log_masses(d.mean, d.log_size, t.cells, t.dim, t.h, needed, n_needed, interleaved, computed);
    }
    const float* log_mass = d.mean ? computed : d.log_mass;
    int status = OK;
    const auto run_inside = [&](int64_t from, int64_t until) {
        if (status == OK)
            status = inside(t, query_id + from, cell + from, wanted + from, d.exclude && until == n ? without : nullptr,
                            nullptr, until - from, d.seed_inside, d.first * d.k + from, place + from, log_r + from,
                            d.exclude ? rest + from : nullptr);
    };
    if (d.exclude) run_inside(n, all);
    const bool is_paired = d.draws == d.rows;  // else rows share draws, and their targets are looked up separately
    if (!is_paired && status == OK)
        status = choose(log_mass, t.cells, row_queries, cell + n, nullptr, d.rows, 0, 0, 0, nullptr, nullptr,
                        log_target_cell);
    if (status == OK) std::copy_n(log_target_cell, is_paired ? 0 : d.rows, log_p + n);
    if (status == OK)
        status = choose(log_mass, t.cells, draw_queries, is_paired ? cell + n : nullptr, d.exclude ? rest + n : nullptr,
                        d.draws, d.k, d.seed, d.first, cell, log_p, log_target_cell);
    run_inside(0, d.exclude ? n : all);
    if (status != OK) return status;
    for (int64_t i = 0; i < n; ++i) ids[i] = t.order[place[i]], log_q[i] = float(log_p[i] + log_r[i]);
    for (int64_t r = 0; r < d.rows; ++r) log_target[r] =
        float((is_paired ? log_target_cell[r] : log_p[n + r]) + log_r[n + r]);
    return OK;
}

// The places wanted in the cells of n requests, or drawn places.
extern "C" EMBTRAIN_API int embtrain_cells_inside(const CellTask* members, const int64_t* query_id,
                                                  const int64_t* cell, const int64_t* wanted, const int64_t* without,
                                                  int64_t n, uint64_t seed, int64_t first, int64_t* place,
                                                  double* log_r, double* rest) {
    const CellTask& t = *members;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t c = cell[i], slot = wanted[i];
        if (out_of_range(query_id[i], t.n_queries) || out_of_range(c, t.cells)
            || t.start[c] >= t.start[c + 1]) return OUT_OF_RANGE;
        if (slot != -1 && (slot < t.start[c] || slot >= t.start[c + 1])) return OUT_OF_RANGE;
        if (without && out_of_range(without[i], t.start[t.cells])) return OUT_OF_RANGE;
    }
    return inside(t, query_id, cell, wanted, without, nullptr, n, seed, first, place, log_r, rest);
}
