// Draws a cell, a group of candidates, by its weight M, then a candidate in it by e^o. The wrapper
// kernels/sampling/cells.py checks all arguments.
//
//     P(c) = M_c / Σ M,   M_c given, or n_c e^{h·μ_c};    inside the cell as in members.h

#include <algorithm>
#include <limits>

#include "sampling/cells/members.h"

struct CellDrawTask {
    const float* log_mass;      // (n_queries, cells), or null: log_size + h·mean
    const float* mean;          // as in MeanPanels
    const uint8_t* mean_copy;
    const float* mean_scale;
    const float* log_size;
    const int64_t* cell_of;     // (candidates)
    const int64_t* place_of;    // (candidates)
    const float* h;             // (n_queries, dim)
    const int64_t* draw_query;    // (draws)  or null: one draw per query
    const int64_t* row_query;       // (rows)   the query of each row, or null
    const int64_t* target;      // (rows)
    // exclude: draw i is among the candidates other than target i; then draws = rows
    int64_t n_queries, draws, k, rows, exclude;
    int64_t by_columns;         // many queries for each cell: store its members by columns, see columns.h
    uint64_t seed, seed_inside;
    int64_t first;              // the number of the first draw
    double tau;                 // τ h / ‖h‖ replaces h, unless τ = 0

    int64_t query_for_draw(int64_t i) const { return draw_query ? draw_query[i] : i; }
    int64_t query_for_row(int64_t r) const { return row_query ? row_query[r] : r; }
};

namespace {

// log M of the queries of sorted requests, in their order. If they are computed, then for a few queries at a time: they
// are read while they are in the cache.
class LogMasses {
  public:
    LogMasses(Arena& arena, const CellDrawTask& d, const CellTask& t, const Request* requests, int64_t n)
        : d_(d), t_(t), means_{d.mean, d.mean_copy, d.mean_scale, d.log_size, t.cells, t.dim}, requests_(requests),
          end_(requests + n), pitch_(round_up(t.cells, PANEL)),
          out_(arena.allocate<float>(d.mean ? ROWS * pitch_ : 0)) {
        group_.x = arena.allocate<float>((t.dim + 4) * ROWS);
        for (const Request* r = requests; d.mean && r < end_; ++r) left_ += is_first(r);
    }

    // log M of the query of `request`, the first with this query.
    const float* of(const Request* request) {
        if (!d_.mean) return d_.log_mass + request->key * t_.cells;
        if (next_ == group_.rows) compute(request);
        return out_ + next_++ * pitch_;
    }

    bool is_first(const Request* r) const { return r == requests_ || r->key != r[-1].key; }

  private:
    void compute(const Request* request) {
        const float* h[ROWS];
        const int64_t groups = (left_ + ROWS - 1) / ROWS;
        group_.rows = (left_ + groups - 1) / groups, left_ -= group_.rows, next_ = 0;
        for (int64_t l = 0; l < group_.rows; ++request) if (is_first(request)) h[l++] = t_.h + request->key * t_.dim;
        interleave(means_, h, group_);
        log_masses<ROWS>(means_, group_, out_, pitch_);
    }

    const CellDrawTask& d_;
    const CellTask& t_;
    const MeanPanels means_;
    const Request *requests_, *end_;
    const int64_t pitch_;
    float* const out_;
    QueryGroup group_{};           // the queries computed last
    int64_t left_ = 0, next_ = 0;  // queries not computed yet, and read of the group
};

// Requests for the cells of draws and of rows, by query. If draw i and row i have the same query, one request is for
// both.
struct CellRequests {
    Request* begin;
    int64_t n;
    bool is_paired;
};

bool requests_by_query(Arena& arena, const CellDrawTask& d, const int64_t* draw_queries, const int64_t* row_queries,
                       CellRequests& out) {
    out.is_paired = d.draws == d.rows && (d.exclude || std::equal(draw_queries, draw_queries + d.draws, row_queries));
    out.n = d.draws + (out.is_paired ? 0 : d.rows);
    out.begin = arena.allocate<Request>(out.n);
    if (arena.failed()) return false;
    for (int64_t i = 0; i < out.n; ++i)
        out.begin[i] = {i < d.draws ? draw_queries[i] : row_queries[i - d.draws], i};
    return sort(out.begin, out.n);
}

// The k numbers of each draw, and those of the rows from `first_row` on, by query.
void number_by_query(const CellDrawTask& d, const CellRequests& requests, bool has_draws, bool has_rows,
                     int64_t first_row, int64_t* order) {
    for (const Request* request = requests.begin; request < requests.begin + requests.n; ++request) {
        const int64_t i = request->i, row = requests.is_paired ? i : i - d.draws;
        for (int64_t j = i * d.k; has_draws && i < d.draws && j < (i + 1) * d.k; ++j) *order++ = j;
        if (has_rows && row >= 0) *order++ = first_row + row;
    }
}

// For each draw, k cells in proportion to their weights, with their shares; and the share of the target cell of each row,
// at full weight. If each draw has a row, its target cell's weight is multiplied by `rest`, unless that is null.
int choose(const CellDrawTask& d, const CellTask& t, const CellRequests& wanted, const int64_t* target_cell,
           const double* rest, int64_t* cell, double* share, double* target_share) {
    Arena arena;
    Masses masses(arena, t.cells);
    if (arena.failed()) return NO_MEMORY;
    const Request* const requests = wanted.begin;
    const int64_t n = wanted.n;
    LogMasses log_masses(arena, d, t, requests, n);
    if (arena.failed()) return NO_MEMORY;
    float* const m = masses.m;
    for (const Request* request = requests; request < requests + n; ++request) {
        if (log_masses.is_first(request) && !exp_masses(log_masses.of(request), -1, masses)) return NOT_FINITE;
        const bool is_draw = request->i < d.draws;
        const int64_t i = request->i, row = wanted.is_paired ? i : i - d.draws;
        const float target_mass = row >= 0 ? m[target_cell[row]] : 0.f;
        if (row >= 0) target_share[row] = target_mass / masses.total();
        if (!is_draw) continue;
        if (rest) {
            m[target_cell[row]] = float(target_mass * rest[row]);
            masses.sum();
        }
        const double total = masses.total();
        int64_t j = i * d.k;
        for (; j + SEARCHES <= (i + 1) * d.k; j += SEARCHES) {
            const Masses* same[SEARCHES];
            double u[SEARCHES];
            for (int l = 0; l < SEARCHES; ++l)
                same[l] = &masses, u[l] = uniform01(d.seed, d.first * d.k + j + l) * total;
            Masses::find(same, u, cell + j);
        }
        for (; j < (i + 1) * d.k; ++j) cell[j] = masses.find(uniform01(d.seed, d.first * d.k + j) * total);
        for (j = i * d.k; j < (i + 1) * d.k; ++j) {
            if (cell[j] < 0) return NOT_FINITE;
            share[j] = m[cell[j]] / total;
        }
        if (rest) {
            m[target_cell[row]] = target_mass;
            masses.sum();
        }
    }
    return OK;
}

// log p of W shares; those below the least normal number count as it, and the log of 0 is -inf.
vec log_shares(const double* p) {
    float x[W];
    for (int l = 0; l < W; ++l) x[l] = float(p[l]);
    const vec y = load(x);
    return y > vec{} ? log_of(most(y, splat(std::numeric_limits<float>::min()))) : splat(-INFINITY);
}

// log(a b) of n pairs of shares.
void log_products(const double* a, const double* b, int64_t n, float* out) {
    int64_t i = 0;
    for (; i + W <= n; i += W) store(out + i, log_shares(a + i) + log_shares(b + i));
    double last_a[W] = {}, last_b[W] = {};
    std::copy(a + i, a + n, last_a), std::copy(b + i, b + n, last_b);
    if (i < n) store_first(out + i, log_shares(last_a) + log_shares(last_b), n - i);
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
    int64_t* order = arena.allocate<int64_t>(all);
    double* cell_share = arena.allocate<double>(all);                  // of the draws, and of the targets
    double* share = arena.allocate<double>(all);                       // inside the cell
    double* rest = arena.allocate<double>(all);
    float* scaled = arena.allocate<float>(d.tau > 0 ? t.n_queries * t.dim : 0);
    int64_t* draw_queries = arena.allocate<int64_t>(d.draws);          // the query of each draw
    int64_t* row_queries = arena.allocate<int64_t>(d.rows);            // and of each row
    if (arena.failed()) return NO_MEMORY;
    for (int64_t i = 0; i < d.draws; ++i) {
        draw_queries[i] = d.query_for_draw(i);
        if (out_of_range(draw_queries[i], t.n_queries)) return OUT_OF_RANGE;
        for (int64_t j = i * d.k; j < (i + 1) * d.k; ++j) query_id[j] = draw_queries[i], wanted[j] = -1;
    }
    for (int64_t r = 0; r < d.rows; ++r) {
        const int64_t target = d.target[r];
        row_queries[r] = d.query_for_row(r);
        if (out_of_range(row_queries[r], t.n_queries) || out_of_range(target, candidates)) return OUT_OF_RANGE;
        query_id[n + r] = row_queries[r], cell[n + r] = d.cell_of[target], wanted[n + r] = d.place_of[target];
        if (d.exclude) std::fill_n(without + r * d.k, d.k, wanted[n + r]);
    }
    if (d.tau > 0) scale(t.h, t.n_queries, t.dim, d.tau, scaled), t.h = scaled;
    CellRequests requests;
    if (!requests_by_query(arena, d, draw_queries, row_queries, requests)) return NO_MEMORY;
    int status = OK;
    const auto run_inside = [&](int64_t from, int64_t until) {
        if (status != OK) return;
        const bool has_draws = from == 0, has_rows = until == all;
        number_by_query(d, requests, has_draws, has_rows, has_draws ? n : 0, order);
        const PlaceRequests out{wanted + from, d.exclude && until == n ? without : nullptr, d.seed_inside,
                                d.first * d.k + from, place + from, share + from, d.exclude ? rest + from : nullptr};
        status = (d.by_columns ? inside_by_columns : inside_by_rows)(t, query_id + from, cell + from, out,
                                                                     order, until - from);
    };
    if (d.exclude) run_inside(n, all);
    if (status == OK)
        status = choose(d, t, requests, cell + n, d.exclude ? rest + n : nullptr, cell, cell_share, cell_share + n);
    run_inside(0, d.exclude ? n : all);
    if (status != OK) return status;
    for (int64_t i = 0; i < n; ++i) ids[i] = t.order[place[i]];
    log_products(cell_share, share, n, log_q);
    log_products(cell_share + n, share + n, d.rows, log_target);
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
    const int status = inside_by_rows(t, query_id, cell, {wanted, without, seed, first, place, log_r, rest}, nullptr, n);
    for (int64_t i = 0; status == OK && i < n; ++i) log_r[i] = std::log(log_r[i]);
    return status;
}
