// REINFORCE for embtrain/negatives/adversarial/ace.py: factors of log g from the costs of the negatives, and the sparse
// half of the gradient.
//
//     a = ρ (r - b),   r = (cost - centre) / scale

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sampling/generator.h"
#include "core/core.h"
#include "core/simd_math.h"

struct ReinforceSpec {  // the same order in embtrain/kernels/sampling/reinforce.py
    double centre, scale, penalty, baseline, clip;
    int64_t critic, importance;
};

namespace {

constexpr int8_t NOISE = 0, GENERATOR = 1;  // as in embtrain/common/types/negatives.py
// critic: the last negative, or the mean of the other negatives of the batch; else `baseline`
constexpr int64_t LAST = 1, OTHERS = 2;

constexpr int64_t AHEAD = 8;                 // draws between the current one and the one whose rows are prefetched
constexpr int64_t BATCH = 128;               // negatives summed in float before they are added to a double

struct Sums {  // n_generator, n_used, n_noise, n_clipped, n_false_negatives, cost, cost2, advantage, advantage2
    double values[9];
};

}  // namespace

// Factors a (n, k) of negatives (n, k), and sums over them. `wrong` (n, k): the share of the rows for which a negative
// is a true negative; null: 1.
extern "C" EMBTRAIN_API int embtrain_reinforce(const ReinforceSpec* spec, int64_t n, int64_t k,
                                               const GeneratorWord* word,
                                               int64_t n_ids, const int64_t* id, const int8_t* origin,
                                               const float* log_g, const float* cost, const float* wrong, float* a,
                                               Sums* sums) {
    const int64_t cells = n * k;
    if (!all_within(id, cells, n_ids)) return OUT_OF_RANGE;
    const float centre = float(spec->centre), inverse_scale = float(1.0 / spec->scale), penalty = float(spec->penalty);
    const float clip = float(spec->clip), importance = spec->importance ? 1.0f : 0.0f;
    const auto reward = [&](int64_t i) {
        const float r = (cost[i] - centre) * inverse_scale;
        return wrong ? wrong[i] * r - (1.0f - wrong[i]) * penalty : r;
    };
    double total = 0.0, n_generator = 0.0;
    for (int64_t i = 0; i < cells && spec->critic == OTHERS; ++i) {
        total += origin[i] == GENERATOR ? double(reward(i)) : 0.0;
        n_generator += origin[i] == GENERATOR;
    }
    Sums s{};
    // One batch at a time: lookups first, then whole vectors.
    alignas(64) float on[BATCH] = {0}, off[BATCH] = {0}, p[BATCH] = {0}, r[BATCH] = {0}, b[BATCH] = {0}, c[BATCH] = {0};
    alignas(64) float lg[BATCH] = {0}, positive_share[BATCH] = {0}, out[BATCH];
    int64_t last = k - 1;  // the last negative of the current row
    for (int64_t begin = 0; begin < cells; begin += BATCH) {
        const int64_t m = std::min(BATCH, cells - begin);
        for (int64_t i = begin + BATCH; i < std::min(begin + 2 * BATCH, cells); ++i) __builtin_prefetch(word + id[i]);
        for (int64_t i = 0; i < m; ++i) on[i] = origin[begin + i] == GENERATOR ? 1.0f : 0.0f;
        for (int64_t i = 0; i < m; ++i) off[i] = origin[begin + i] == NOISE ? 1.0f : 0.0f;
        for (int64_t i = 0; i < m; ++i) p[i] = word[id[begin + i]].p;
        std::copy(cost + begin, cost + begin + m, c);
        std::copy(log_g + begin, log_g + begin + m, lg);
        for (int64_t i = 0; i < m && wrong; ++i) positive_share[i] = 1.0f - wrong[begin + i];
        if (wrong) for (int64_t i = 0; i < m; ++i) r[i] = reward(begin + i);
        else for (int64_t i = 0; i < m; ++i) r[i] = (c[i] - centre) * inverse_scale;
        if (spec->critic == LAST)
            for (int64_t i = 0; i < m;) {  // one row, or the part of it in this batch
                const int64_t until = std::min(m, last + 1 - begin);
                std::fill(b + i, b + until, reward(last));
                i = until;
                if (begin + i > last) last += k;
            }
        else
            for (int64_t i = 0; i < m; ++i)
                b[i] = spec->critic != OTHERS ? float(spec->baseline)
                       : n_generator > 1.0
                           ? float((total - double(on[i] * r[i])) / std::max(n_generator - double(on[i]), 1.0)) : 0.0f;
        for (int64_t i = m; i < BATCH; ++i) on[i] = off[i] = 0.0f, p[i] = 1.0f;
        vec sum[9] = {};
        const vec zero{}, ones = splat(1.0f);
        for (int64_t i = 0; i < BATCH; i += W) {
            const vec is_generator = load(on + i), noise = load(off + i), cost_vec = load(c + i), advantage =
                load(r + i) - load(b + i);
            const vec rho = is_generator
                + splat(importance) * noise * least(exp_of(load(lg + i)) / load(p + i), splat(clip));
            store(out + i, rho * advantage);
            const vec terms[9] =
                {is_generator, rho > zero ? ones : zero, noise, rho >= splat(clip) ? noise : zero,
                 is_generator * load(positive_share + i),
                                is_generator * cost_vec, is_generator * cost_vec * cost_vec, is_generator * advantage,
                                    is_generator * advantage * advantage};
            for (int64_t x = 0; x < 9; ++x) sum[x] += terms[x];
        }
        std::copy(out, out + m, a + begin);
        for (int64_t x = 0; x < 9; ++x) s.values[x] += double(::sum(sum[x]));
    }
    *sums = s;
    return OK;
}

// Adds the sparse half of the gradient of -Σ a log g, a (n_draws, k), to into_w (n_classes, hidden) and into_z (n_rows,
// hidden); total (n_rows) += a, count (n_rows) += 1 per draw.
extern "C" EMBTRAIN_API int embtrain_reinforce_collect(const GeneratorTask* task, int64_t n_draws, const int64_t* row,
                                                       int64_t k, const int64_t* ids, const float* a, float* into_w,
                                                       float* into_z, float* total, float* count) {
    const GeneratorTask& t = *task;
    if (!all_within(row, n_draws, t.n_rows) || !all_within(ids, n_draws * k, t.n_ids)) return OUT_OF_RANGE;
    float part[BATCH];
    int64_t place[BATCH];
    for (int64_t i = 0; i < n_draws; ++i) {
        if (i + AHEAD < n_draws) {
            const int64_t next = row[i + AHEAD];
            __builtin_prefetch(t.z + next * t.hidden);
            __builtin_prefetch(into_z + next * t.hidden, 1);
            __builtin_prefetch(total + next, 1);
            __builtin_prefetch(count + next, 1);
            for (int64_t j = 0; j < std::min(k, BATCH); ++j) __builtin_prefetch(t.word + ids[(i + AHEAD) * k + j]);
        }
        const float* z = t.z + row[i] * t.hidden;
        float* dz = into_z + row[i] * t.hidden;
        float row_total = total[row[i]];
        for (int64_t begin = 0; begin < k; begin += BATCH) {
            int64_t m = 0;  // negatives with a != 0
            for (int64_t j = i * k + begin; j < i * k + std::min(begin + BATCH, k); ++j) {
                place[m] = t.word[ids[j]].klass * t.hidden;
                part[m] = a[j];
                m += a[j] != 0.0f;
                row_total += a[j];
            }
            int64_t d = 0;
            for (; d + W <= t.hidden; d += W) {  // a piece of z and dz stays in registers for all negatives
                const vec z_vec = load(z + d);
                vec sum = load(dz + d);
                for (int64_t j = 0; j < m; ++j) {
                    float* dw = into_w + place[j] + d;
                    sum -= splat(part[j]) * load(t.w + place[j] + d);
                    store(dw, load(dw) - splat(part[j]) * z_vec);
                }
                store(dz + d, sum);
            }
            for (; d < t.hidden; ++d)
                for (int64_t j = 0; j < m; ++j) {
                    dz[d] -= part[j] * t.w[place[j] + d];
                    into_w[place[j] + d] -= part[j] * z[d];
                }
        }
        total[row[i]] = row_total;
        count[row[i]] += 1.0f;
    }
    return OK;
}
