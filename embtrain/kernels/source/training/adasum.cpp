// Puts the moves of one table's rows together that several processes made since the table was equal on all of them. The
// wrapper kernels/training/adasum.py checks shapes and types.
//
// A row moves on the wire as float32 or, rounded to nearest, as bfloat16. Sums are in double precision.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/core.h"

namespace {

constexpr int LANES = 8;  // partial sums, so that the compiler can use vectors

inline uint16_t to_bfloat16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40);  // NaN stays NaN
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

inline float from_bfloat16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

// Row `at` of a buffer of the wire, from and to float32.
inline void read_row(const void* wire, bool half, int64_t at, int64_t dim, float* out) {
    if (!half) {
        std::memcpy(out, (const float*)wire + at * dim, 4 * dim);
        return;
    }
    const uint16_t* in = (const uint16_t*)wire + at * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] = from_bfloat16(in[d]);
}

inline void write_row(const float* x, bool half, int64_t at, int64_t dim, void* wire) {
    if (!half) {
        std::memcpy((float*)wire + at * dim, x, 4 * dim);
        return;
    }
    uint16_t* out = (uint16_t*)wire + at * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] = to_bfloat16(x[d]);
}

inline double dot(const float* a, const float* b, int64_t dim) {
    double part[LANES] = {};
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        for (int i = 0; i < LANES; ++i) part[i] += (double)a[d + i] * b[d + i];
    for (int i = 0; d < dim; ++d, ++i) part[i] += (double)a[d] * b[d];
    double total = 0;
    for (int i = 0; i < LANES; ++i) total += part[i];
    return total;
}

// a <- (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
inline void combine(float* a, const float* b, int64_t dim) {
    const double ab = dot(a, b, dim), aa = dot(a, a, dim), bb = dot(b, b, dim);
    const double of_a = aa > 0 ? 1 - ab / (2 * aa) : 1, of_b = bb > 0 ? 1 - ab / (2 * bb) : 1;
    for (int64_t d = 0; d < dim; ++d) a[d] = (float)(of_a * a[d] + of_b * b[d]);
}

// Folds n moves by pairs, in order; the result is the first one.
inline void fold_pairs(float* move, int64_t n, int64_t dim) {
    for (int64_t step = 1; step < n; step *= 2)
        for (int64_t i = 0; i + step < n; i += 2 * step) combine(move + i * dim, move + (i + step) * dim, dim);
}

inline void fold_mean(float* move, int64_t n, int64_t dim) {
    for (int64_t d = 0; d < dim; ++d) {
        double total = 0;
        for (int64_t i = 0; i < n; ++i) total += move[i * dim + d];
        move[d] = (float)(total / n);
    }
}

}  // namespace

// Ids (n_out) of those of the `rows` (n_rows; null: all n) whose numbers in x differ from base, grouped by owner
// id % n_owners; count (n_owners): ids of each owner. `ids` has room for all.
extern "C" EMBTRAIN_API int embtrain_adasum_moved(const float* x, int64_t stride, const float* base, int64_t n,
                                                  int64_t dim, const int32_t* rows, int64_t n_rows, int64_t n_owners,
                                                  int32_t* ids, int64_t* count) {
    if (rows && std::any_of(rows, rows + n_rows, [n](int32_t id) { return id < 0 || id >= n; })) return OUT_OF_RANGE;
    const int64_t total = rows ? n_rows : n;
    int32_t* moved = (int32_t*)std::malloc(4 * (total + 1));
    int64_t* next = (int64_t*)std::malloc(8 * n_owners);
    if (!moved || !next) {
        std::free(moved);
        std::free(next);
        return NO_MEMORY;
    }
    std::fill(count, count + n_owners, 0);
    int64_t n_moved = 0;
    for (int64_t i = 0; i < total; ++i) {
        const int64_t id = rows ? rows[i] : i;
        if (std::memcmp(x + id * stride, base + id * dim, 4 * dim) == 0) continue;
        moved[n_moved++] = (int32_t)id;
        ++count[id % n_owners];
    }
    for (int64_t owner = 0, start = 0; owner < n_owners; ++owner) {
        next[owner] = start;
        start += count[owner];
    }
    for (int64_t i = 0; i < n_moved; ++i) ids[next[moved[i] % n_owners]++] = moved[i];
    std::free(moved);
    std::free(next);
    return OK;
}

// The moves x - base of rows `ids` (n_ids) as rows of the wire.
extern "C" EMBTRAIN_API int embtrain_adasum_pack(const float* x, int64_t stride, const float* base, int64_t n,
                                                 int64_t dim, const int32_t* ids, int64_t n_ids, int half,
                                                 void* wire) {
    if (std::any_of(ids, ids + n_ids, [n](int32_t id) { return id < 0 || id >= n; })) return OUT_OF_RANGE;
    float* move = (float*)std::malloc(4 * (dim + 1));
    if (!move) return NO_MEMORY;
    for (int64_t i = 0; i < n_ids; ++i) {
        const float *now = x + ids[i] * stride, *before = base + ids[i] * dim;
        for (int64_t d = 0; d < dim; ++d) move[d] = now[d] - before[d];
        write_row(move, half, i, dim, wire);
    }
    std::free(move);
    return OK;
}

// Folds the moves of n_parts processes: part p has rows start[p] .. start[p + 1] of ids and wire, ids ascending. Writes
// the ids that any part has, ascending, and their folded moves; n_out is their number. mean: the mean, else Adasum.
extern "C" EMBTRAIN_API int embtrain_adasum_fold(const int32_t* ids, const void* wire, const int64_t* start,
                                                 int64_t n_parts, int64_t dim, int half, int mean, int32_t* out_ids,
                                                 void* out_wire, int64_t* n_out) {
    int64_t* at = (int64_t*)std::malloc(8 * (n_parts + 1));
    float* move = (float*)std::malloc(4 * (n_parts * dim + 1));
    if (!at || !move) {
        std::free(at);
        std::free(move);
        return NO_MEMORY;
    }
    std::copy(start, start + n_parts, at);
    int64_t written = 0;
    while (true) {
        int64_t id = INT64_MAX;
        for (int64_t p = 0; p < n_parts; ++p)
            if (at[p] < start[p + 1]) id = std::min<int64_t>(id, ids[at[p]]);
        if (id == INT64_MAX) break;
        int64_t n = 0;
        for (int64_t p = 0; p < n_parts; ++p)
            if (at[p] < start[p + 1] && ids[at[p]] == id) read_row(wire, half, at[p]++, dim, move + n++ * dim);
        if (mean)
            fold_mean(move, n, dim);
        else
            fold_pairs(move, n, dim);
        out_ids[written] = (int32_t)id;
        write_row(move, half, written++, dim, out_wire);
    }
    *n_out = written;
    std::free(at);
    std::free(move);
    return OK;
}

// base += move and x = base in rows `ids` (n_ids).
extern "C" EMBTRAIN_API int embtrain_adasum_apply(float* x, int64_t stride, float* base, int64_t n, int64_t dim,
                                                  const int32_t* ids, const void* wire, int64_t n_ids, int half) {
    if (std::any_of(ids, ids + n_ids, [n](int32_t id) { return id < 0 || id >= n; })) return OUT_OF_RANGE;
    float* move = (float*)std::malloc(4 * (dim + 1));
    if (!move) return NO_MEMORY;
    for (int64_t i = 0; i < n_ids; ++i) {
        float *now = x + ids[i] * stride, *before = base + ids[i] * dim;
        read_row(wire, half, i, dim, move);
        for (int64_t d = 0; d < dim; ++d) now[d] = before[d] += move[d];
    }
    std::free(move);
    return OK;
}
