// Products of queries with every row of a table. The wrapper kernels/scoring/table_products.py checks all arguments.
//
// Rows of the table become columns of a panel, which stays in the first cache for all queries. A product is one sum in the
// order of the dimensions, whatever the tile, so that it does not depend on the other queries.

#include <algorithm>
#include <type_traits>

#include "core/core.h"
#include "core/tiles.h"

namespace {

constexpr int VECTORS = W == 4 ? 2 : 3;     // of a panel's row
constexpr int AT_ONCE = W == 16 ? 8 : 4;    // queries whose sums stay in registers
constexpr int64_t COLUMNS = VECTORS * W;
constexpr int64_t DEPTH = 256;              // dimensions of a panel

// panel (depth, COLUMNS): `depth` dimensions of m rows.
void pack(const float* row, int64_t stride, int64_t m, int64_t depth, float* panel) {
    const int64_t rows = depth < SIDE ? 0 : m / SIDE * SIDE, columns = depth / SIDE * SIDE;
    transpose(row, stride, rows, columns, panel, COLUMNS);
    if (columns < depth)  // the last ones, some of them again
        transpose(row + depth - SIDE, stride, rows, SIDE, panel + (depth - SIDE) * COLUMNS, COLUMNS);
    for (int64_t i = rows; i < m; ++i)
        for (int64_t d = 0; d < depth; ++d) panel[d * COLUMNS + i] = row[i * stride + d];
}

}  // namespace

// out (n, n_rows) = h (n, dim) · table^T for rows begin..end of the table, whose rows are `stride` floats apart.
extern "C" EMBTRAIN_API int embtrain_table_products(const float* h, int64_t n, int64_t dim, const float* table,
                                                    int64_t stride, int64_t n_rows, int64_t begin, int64_t end,
                                                    float* out) {
    alignas(64) float panel[DEPTH * COLUMNS] = {0}, rest[AT_ONCE * COLUMNS] = {0};
    for (int64_t from = begin; from < end; from += COLUMNS) {
        const int64_t m = std::min(end - from, COLUMNS);
        for (int64_t d = 0; d < dim; d += DEPTH) {
            const int64_t depth = std::min(dim - d, DEPTH);
            pack(table + from * stride + d, stride, m, depth, panel);
            const auto products = [&](auto rows, int64_t i) {
                constexpr int R = decltype(rows)::value;
                const float* const a = h + i * dim + d;
                float* const to = out + i * n_rows + from;
                if (m == COLUMNS) return tile<R, VECTORS>(a, dim, 1, panel, COLUMNS, depth, to, n_rows, d == 0);
                for (int r = 0; r < R; ++r) std::copy_n(to + r * n_rows, m, rest + r * COLUMNS);
                tile<R, VECTORS>(a, dim, 1, panel, COLUMNS, depth, rest, COLUMNS, d == 0);
                for (int r = 0; r < R; ++r) std::copy_n(rest + r * COLUMNS, m, to + r * n_rows);
            };
            int64_t i = 0;
            for (; i + AT_ONCE <= n; i += AT_ONCE) products(std::integral_constant<int, AT_ONCE>{}, i);
            for (; i + 2 <= n; i += 2) products(std::integral_constant<int, 2>{}, i);
            if (i < n) products(std::integral_constant<int, 1>{}, i);
        }
    }
    return OK;
}
