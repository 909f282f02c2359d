// Dot products with gathered rows. The wrapper kernels/scoring/gathered_dot.py checks all arguments but the ids.
//
//   s_bk = h_b · c_i    n_bk = c_i · c_i    ∂h_b = Σ_k g_bk c_i    ∂c_i = Σ_{b,k: ids_bk = i} g_bk h_b + 2 m_bk c_i

#include <type_traits>

#include "core/core.h"
#include "core/simd_math.h"

namespace {

constexpr int AT_ONCE = 4;   // rows at once: independent sums hide the latency
constexpr int64_t LINE = 16;  // floats of a cache line

inline void prefetch(const float* row, int64_t d) {
    for (int64_t j = 0; j < d; j += LINE) __builtin_prefetch(row + j);
}

// h·c and, unless n is null, c·c of R rows of c.
template <int R>
void dots(const float* h, const float* const* c, int64_t d, float* s, float* n) {
    vec dot_acc[R] = {}, norm_acc[R] = {};
    int64_t j = 0;
    for (; j + W <= d; j += W) {
        const vec x = load(h + j);
        for (int r = 0; r < R; ++r) {
            const vec y = load(c[r] + j);
            dot_acc[r] += x * y;
            norm_acc[r] += y * y;
        }
    }
    for (int r = 0; r < R; ++r) {
        float dot = sum(dot_acc[r]), norm = sum(norm_acc[r]);
        for (int64_t l = j; l < d; ++l) dot += h[l] * c[r][l], norm += c[r][l] * c[r][l];
        s[r] = dot;
        if (n) n[r] = norm;
    }
}

// to += Σ_r factor_r x_r
template <int R>
void add(const float* factor, const float* const* x, int64_t d, float* to) {
    int64_t j = 0;
    for (; j + W <= d; j += W) {
        vec total = load(to + j);
        for (int r = 0; r < R; ++r) total += splat(factor[r]) * load(x[r] + j);
        store(to + j, total);
    }
    for (; j < d; ++j)
        for (int r = 0; r < R; ++r) to[j] += factor[r] * x[r][j];
}

// Calls visit(b, slot, row, n) for the n rows of c at ids[slot] .. ids[slot + n - 1] that row b of h reads: AT_ONCE of
// them, or one.
template <typename Visit>
void each(const float* c, const int64_t* ids, int64_t stride, int64_t d, int64_t k, int64_t begin, int64_t end,
          Visit visit) {
    const int64_t last = end * k;
    const float* row[AT_ONCE];
    for (int64_t b = begin; b < end; ++b) {
        int64_t slot = b * k;
        const int64_t stop = slot + k;
        for (; slot + AT_ONCE <= stop; slot += AT_ONCE) {
            for (int r = 0; r < AT_ONCE; ++r) row[r] = c + ids[slot + r] * stride;
            for (int64_t r = slot + AT_ONCE; r < slot + 2 * AT_ONCE && r < last; ++r) prefetch(c + ids[r] * stride, d);
            visit(b, slot, row, std::integral_constant<int, AT_ONCE>{});
        }
        for (; slot < stop; ++slot) {
            row[0] = c + ids[slot] * stride;
            visit(b, slot, row, std::integral_constant<int, 1>{});
        }
    }
}

}  // namespace

// Check that all n ids are in 0..rows-1.
extern "C" EMBTRAIN_API int embtrain_gathered_dot_check(const int64_t* ids, int64_t n, int64_t rows) {
    return all_within(ids, n, rows) ? OK : OUT_OF_RANGE;
}

// s and, unless null, n (B, K) for rows begin..end of h (B, d) and ids (B, k). Rows of c are `stride` floats apart.
extern "C" EMBTRAIN_API int embtrain_gathered_dot_products(const float* h, const float* c, const int64_t* ids,
                                                           int64_t stride,
                                                       int64_t d, int64_t k, int64_t begin, int64_t end, float* s,
                                                       float* n) {
    each(c, ids, stride, d, k, begin, end, [=](int64_t b, int64_t slot, const float* const* row, auto rows) {
        dots<decltype(rows)::value>(h + b * d, row, d, s + slot, n ? n + slot : nullptr);
    });
    return OK;
}

// to (B, d) = Σ_k g_bk c_i for rows begin..end. `to` must be 0.
extern "C" EMBTRAIN_API int embtrain_gathered_dot_query_gradient(const float* g, const float* c, const int64_t* ids,
                                                                 int64_t stride,
                                                        int64_t d, int64_t k, int64_t begin, int64_t end, float* to) {
    each(c, ids, stride, d, k, begin, end, [=](int64_t b, int64_t slot, const float* const* row, auto rows) {
        add<decltype(rows)::value>(g + slot, row, d, to + b * d);
    });
    return OK;
}

// Counting sort: order (n) lists the places by id, stable; begin (rows + 1) is where each id begins. `begin` must be 0.
extern "C" EMBTRAIN_API int embtrain_gathered_dot_order(const int64_t* ids, int64_t n, int64_t rows, int64_t* begin,
                                                    int64_t* order) {
    for (int64_t i = 0; i < n; ++i) ++begin[ids[i]];
    for (int64_t r = 0, before = 0; r <= rows; ++r) {
        const int64_t n_places = begin[r];
        begin[r] = before;
        before += n_places;
    }
    for (int64_t i = 0; i < n; ++i) order[begin[ids[i]]++] = i;
    for (int64_t r = rows; r > 0; --r) begin[r] = begin[r - 1];
    begin[0] = 0;
    return OK;
}

// to (U, d) = ∂c of the ids u (U) first..last, whose places are order[begin_u] .. order[end_u]; m null: 0. `to` must be
// 0.
extern "C" EMBTRAIN_API int embtrain_gathered_dot_table_gradient(const float* g, const float* m, const float* h,
                                                                 const float* c,
                                                   const int64_t* u, const int64_t* begin, const int64_t* end,
                                                   const int64_t* order, int64_t stride, int64_t d, int64_t k,
                                                   int64_t first, int64_t last, float* to) {
    const float* row[AT_ONCE];
    float factor[AT_ONCE];
    for (int64_t i = first; i < last; ++i) {
        float* const out = to + i * d;
        float total_m = 0;
        int64_t slot = begin[i];
        for (; slot + AT_ONCE <= end[i]; slot += AT_ONCE) {
            for (int r = 0; r < AT_ONCE; ++r) {
                const int64_t place = order[slot + r];
                row[r] = h + place / k * d;
                factor[r] = g[place];
                if (m) total_m += m[place];
            }
            add<AT_ONCE>(factor, row, d, out);
        }
        for (; slot < end[i]; ++slot) {
            const int64_t place = order[slot];
            row[0] = h + place / k * d;
            if (m) total_m += m[place];
            add<1>(g + place, row, d, out);
        }
        if (m) {
            row[0] = c + u[i] * stride;
            factor[0] = 2 * total_m;
            add<1>(factor, row, d, out);
        }
    }
    return OK;
}
