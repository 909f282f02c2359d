// Log-softmax of targets and counts of better and equal scores. The wrapper kernels/scoring/softmax_ranks.py checks all
// arguments and defines the results. A row is read twice: for its maximum, and from the cache for everything else.

#include <algorithm>
#include <cmath>

#include "core/core.h"
#include "core/simd_math.h"

namespace {

constexpr int64_t BLOCK = 64 * W;  // scores whose exponentials are added in float32; blocks are added in float64

struct Row {
    const float* z;
    int64_t n;
    float top;
};

// The maximum of the scores; 0 if it is infinite or a score is NaN. is_finite: whether neither is the case.
float maximum(const float* z, int64_t n, bool* is_finite) {
    vec most_of[4] = {splat(-INFINITY), splat(-INFINITY), splat(-INFINITY), splat(-INFINITY)};
    ivec is_nan{};
    int64_t v = 0;
    for (; v + 4 * W <= n; v += 4 * W)
        for (int u = 0; u < 4; u++) {
            const vec x = load(z + v + u * W);
            most_of[u] = most(x, most_of[u]);
            is_nan |= x != x;
        }
    bool has_nan = any(is_nan);
    float top = -INFINITY;
    for (int u = 0; u < 4; u++)
        for (int i = 0; i < W; i++) top = std::max(top, float(most_of[u][i]));
    for (; v < n; v++) top = std::max(top, z[v]), has_nan |= z[v] != z[v];
    *is_finite = !has_nan && std::isfinite(top);
    return *is_finite ? top : 0;
}

// Counts of the shifted scores above and equal to x; with SUM also the sum of their exponentials.
template <bool SUM> double count(const Row& row, float x, int64_t* better, int64_t* equal) {
    const vec top = splat(row.top), at = splat(x);
    double total = 0;
    *better = *equal = 0;
    int64_t v = 0;
    while (v + W <= row.n) {
        const int64_t end = std::min(v + BLOCK, row.n);
        vec sum{};
        ivec above{}, same{};                         // at most BLOCK / W per lane
        for (; v + W <= end; v += W) {
            const vec z = load(row.z + v) - top;
            if (SUM) sum += exp_of(z);
            above -= z > at;
            same -= z == at;
        }
        for (int i = 0; i < W; i++) *better += above[i], *equal += same[i], total += sum[i];
    }
    for (; v < row.n; v++) {
        const float z = row.z[v] - row.top;
        if (SUM) total += exp_of(splat(z))[0];
        *better += z > x, *equal += z == x;
    }
    return total;
}

}  // namespace

// Rows begin <= i < end of scores (n rows, n_candidates), and their targets target[first[i] .. first[i + 1]]: top and
// log_sum per row; score, better and equal per target.
extern "C" EMBTRAIN_API int embtrain_softmax_ranks(const float* scores, int64_t n_candidates, const int64_t* first,
                                                   const int64_t* target, int64_t begin, int64_t end, float* top,
                                                   double* log_sum, float* score, int64_t* better, int64_t* equal) {
    for (int64_t i = begin; i < end; i++)
        for (int64_t a = first[i]; a < first[i + 1]; a++)
            if (uint64_t(target[a]) >= uint64_t(n_candidates)) return OUT_OF_RANGE;
    for (int64_t i = begin; i < end; i++) {
        const float* z = scores + i * n_candidates;
        bool is_finite;
        const Row row{z, n_candidates, maximum(z, n_candidates, &is_finite)};
        double sum = 0;
        if (!is_finite)                               // exp_of handles neither NaN nor infinity
            for (int64_t v = 0; v < n_candidates; v++) sum += std::exp(z[v]);
        bool is_summed = !is_finite;
        for (int64_t a = first[i]; a < first[i + 1]; a++) {
            score[a] = z[target[a]] - row.top;
            if (is_summed)
                count<false>(row, score[a], better + a, equal + a);
            else
                sum = count<true>(row, score[a], better + a, equal + a), is_summed = true;
        }
        if (!is_summed) {
            int64_t unused[2];
            sum = count<true>(row, 0, unused, unused + 1);
        }
        top[i] = row.top, log_sum[i] = std::log(sum);
    }
    return OK;
}
