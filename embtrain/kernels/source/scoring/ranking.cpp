// Ranks among all candidates. The wrapper kernels/scoring/ranking.py checks all arguments and defines the counts.
//
// The target and its competitors are scored by the same operations in the same order: one sum over the dimensions.
// build_core.py compiles this file without contraction (-ffp-contract=off). Otherwise the scalar score of a target
// could differ from its vectorized score, and the target would beat itself.

#include <cmath>
#include <cstdlib>
#include <limits>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "core/core.h"
#include "core/simd.h"

namespace {

constexpr int ROWS = 4;     // queries that share the loads of a tile
constexpr int WIDE = 2;     // vectors of candidates per query: ROWS * WIDE sums stay in registers
constexpr int TILE = 256;   // candidates per tile: 100 KB at 100 dimensions

enum Geometry { DOT, L1, L2, MODULUS };

inline float root(float x) { return std::sqrt(x); }
inline float size(float x) { return std::fabs(x); }

inline vec root(vec x) {
#if defined(__AVX512F__)
    // GCC 12 warns about _mm512_sqrt_ps: its header reads an uninitialized __Y
    return (vec)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#elif defined(__AVX2__)
    return (vec)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (vec)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < W; i++) x[i] = std::sqrt(x[i]);
    return x;
#endif
}
inline vec size(vec x) { return (vec)((ivec)x & (ivec{} + 0x7fffffff)); }

// The contribution of one dimension to a cost; smaller costs are better, so a dot product is negated. With two PARTS
// the second half of a row holds the imaginary parts.
template <int G> struct Term {
    static constexpr int PARTS = G == MODULUS ? 2 : 1;
    template <class T> static T value(const T* q, const T* c) {
        if (G == DOT) return -(q[0] * c[0]);
        const T d = q[0] - c[0];
        if (G == L1) return size(d);
        if (G == L2) return d * d;
        const T e = q[PARTS - 1] - c[PARTS - 1];
        return root(d * d + e * e);
    }
};

struct Task {
    const float *query, *table;                      // rows are q_step and c_step floats apart
    int64_t q_step, c_step, n_candidates, d;
    const int64_t *first, *target;                   // targets of query i: target[first[i] .. first[i + 1]]
    const int64_t *known_offsets, *known;              // known positives of query i, in the same layout
    int64_t *better, *equal;                         // per target
    float* target_cost;                                      // the cost of each target
};

template <int G> float cost_of(const Task& t, int64_t query_id, int64_t candidate) {
    const float *q = t.query + query_id * t.q_step, *c = t.table + candidate * t.c_step;
    constexpr int PARTS = Term<G>::PARTS;
    const int64_t steps = t.d / PARTS;
    float sum = 0;
    for (int64_t k = 0; k < steps; k++) {
        float x[PARTS], y[PARTS];
        for (int p = 0; p < PARTS; p++) x[p] = q[k + p * steps], y[p] = c[k + p * steps];
        sum += Term<G>::value(x, y);
    }
    return sum;
}

// Costs of one tile for ROWS queries: tile[k][TILE], out[row][TILE].
template <int G> void costs(const float* const* q, const float* tile, int64_t d, float (*out)[TILE]) {
    constexpr int PARTS = Term<G>::PARTS;
    const int64_t steps = d / PARTS;
    for (int offset = 0; offset < TILE; offset += WIDE * W) {
        vec sum[ROWS][WIDE] = {};
        for (int64_t k = 0; k < steps; k++) {
            vec c[WIDE][PARTS];
            for (int p = 0; p < PARTS; p++)
                for (int w = 0; w < WIDE; w++) c[w][p] = *(const vec*)(tile + (k + p * steps) * TILE + offset + w * W);
            for (int r = 0; r < ROWS; r++) {
                vec x[PARTS];
                for (int p = 0; p < PARTS; p++) x[p] = q[r][k + p * steps] - vec{};
                for (int w = 0; w < WIDE; w++) sum[r][w] += Term<G>::value(x, c[w]);
            }
        }
        for (int r = 0; r < ROWS; r++)
            for (int w = 0; w < WIDE; w++) *(vec*)(out[r] + offset + w * W) = sum[r][w];
    }
}

void count(const float* cost, float target_cost, int64_t* better, int64_t* equal) {
    ivec less{}, same{};
    for (int offset = 0; offset < TILE; offset += W) {
        const vec x = *(const vec*)(cost + offset);
        less -= x < target_cost - vec{};
        same -= x == target_cost - vec{};
    }
    for (int i = 0; i < W; i++) *better += less[i], *equal += same[i];
}

template <int G> void rank(const Task& t, int64_t begin, int64_t end, float* tile) {
    alignas(4 * W) float cost[ROWS][TILE];
    for (int64_t i = begin; i < end; i++)
        for (int64_t a = t.first[i]; a < t.first[i + 1]; a++)
            t.target_cost[a] = cost_of<G>(t, i, t.target[a]), t.better[a] = 0, t.equal[a] = 0;
    for (int64_t c = 0; c < t.n_candidates; c += TILE) {
        const int64_t n = t.n_candidates - c < TILE ? t.n_candidates - c : TILE;
        for (int64_t j = 0; j < TILE; j++)           // NaN beyond the last candidate: neither better nor equal
            for (int64_t k = 0; k < t.d; k++)
                tile[k * TILE + j] = j < n ? t.table[(c + j) * t.c_step + k] : std::numeric_limits<float>::quiet_NaN();
        for (int64_t i = begin; i < end; i += ROWS) {
            const float* q[ROWS];
            for (int r = 0; r < ROWS; r++) q[r] = t.query + (i + r < end ? i + r : i) * t.q_step;
            costs<G>(q, tile, t.d, cost);
            for (int r = 0; r < ROWS && i + r < end; r++)
                for (int64_t a = t.first[i + r]; a < t.first[i + r + 1]; a++)
                    count(cost[r], t.target_cost[a], t.better + a, t.equal + a);
        }
    }
    // Known positives are not competitors, nor is a target its own.
    for (int64_t i = begin; i < end; i++) {
        for (int64_t j = t.known_offsets[i]; j < t.known_offsets[i + 1]; j++) {
            const float x = cost_of<G>(t, i, t.known[j]);
            for (int64_t a = t.first[i]; a < t.first[i + 1]; a++)
                if (t.known[j] != t.target[a]) t.better[a] -= x < t.target_cost[a], t.equal[a] -= x == t.target_cost[a];
        }
        for (int64_t a = t.first[i]; a < t.first[i + 1]; a++) {
            const bool is_not_nan = t.target_cost[a] == t.target_cost[a];
            t.equal[a] -= is_not_nan;                 // the target itself
            if (!is_not_nan) t.better[a] = -1;
        }
    }
}

}  // namespace

// Queries begin <= i < end: better and equal for each of their targets. target_cost, better and equal have one entry
// per target.
extern "C" EMBTRAIN_API int embtrain_rank(const float* query, int64_t q_step, const float* table, int64_t c_step,
                                          int64_t n_candidates, int64_t d, int geometry, const int64_t* first,
                                          const int64_t* target, const int64_t* known_offsets, const int64_t* known,
                                          int64_t begin, int64_t end, float* target_cost, int64_t* better,
                                              int64_t* equal) {
    void* tile = nullptr;
    if (posix_memalign(&tile, 64, (size_t)d * TILE * sizeof(float)) != 0) return NO_MEMORY;
    const Task task{query, table, q_step, c_step, n_candidates, d, first, target, known_offsets, known, better, equal,
                    target_cost};
    (geometry == DOT ? rank<DOT> : geometry == L1 ? rank<L1> : geometry == L2 ? rank<L2>
     : rank<MODULUS>)(task, begin, end, (float*)tile);
    free(tile);
    return OK;
}
