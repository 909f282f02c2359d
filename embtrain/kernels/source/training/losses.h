// dL/ds of the losses of embtrain/losses for one window: m pairs and their negatives.
//
// Each pair has its own negatives (`per_pair`: m·k of them, ordered by pair), or all pairs share k. A negative that is masked
// for a pair ("hit") has weight 0 for that pair. Arrays have room for W more floats.
//
// A score that is NaN makes the loss NaN, unless it is masked: training then stops.
#pragma once

#include <cmath>
#include <limits>

#include "training/skipgram/skipgram.h"
#include "core/simd_math.h"

namespace {

struct Hit { int32_t pair, column; };  // pair: index in the window

struct Window {
    int64_t m, k;
    bool per_pair;
    const float *s_t, *s;        // scores of the targets and of the negatives
    // subtracted from the scores: c + log(total_weight·q); 0 if the loss does not correct
    const float *shift_t, *shift;
    const float* w;              // weights of the negatives
    const Hit* hits;             // sorted by pair, without repetition
    int64_t n_hits;
    float *g_t, *g;              // out: dL/ds
    float *w_own, *e, *x;        // scratch: negatives, negatives, pairs
};

constexpr float FAR = 60.f;  // no shift before exp while all |o| are smaller
constexpr float MAX_RATIO = 1e38f;  // of two exponentials; a larger one may not be a finite float

// The weights of a pair's negatives, with its hits set to 0. `hit` advances with the pair.
inline const float* weights(const Window& q, int64_t pair, const Hit*& hit) {
    const Hit* end = q.hits + q.n_hits;
    const float* w = q.per_pair ? q.w + pair * q.k : q.w;
    if (hit == end || hit->pair != pair) return w;
    float* pair_weights = q.w_own + (q.per_pair ? pair * q.k : 0);
    std::memcpy(pair_weights, w, (size_t)q.k * sizeof(float));
    for (; hit != end && hit->pair == pair; ++hit) pair_weights[hit->column] = 0.f;
    return pair_weights;
}

// Logistic, gBCE and NCE: every score has its own slope, w σ(z); the weight of every target is β. Both functions return
// the loss, summed over W lanes.
inline vec binary_targets(const float* s, const float* shift, int64_t n, float beta, float* g) {
    vec total = {};
    for (int64_t i = 0; i < n; i += W) {
        vec slope, soft;
        logistic_of(load(shift + i) - load(s + i), slope, soft);
        store(g + i, -(splat(beta) * slope));
        total += splat(beta) * first(soft, n - i);
    }
    return total;
}

inline vec binary_negatives(const float* s, const float* shift, float pairs, const float* w, int64_t n, float* g) {
    vec total = {};
    for (int64_t j = 0; j < n; j += W) {
        vec slope, soft, weight = first(splat(pairs) * load(w + j), n - j);
        logistic_of(load(s + j) - load(shift + j), slope, soft);
        store(g + j, weight * slope);
        total += weight == vec{} ? vec{} : weight * soft;
    }
    return total;
}

// The weights of shared negatives: the slope of each counts once per pair.
inline const float* shared_weights(const Window& q) {
    const float m = (float)q.m;
    for (int64_t j = 0; j < q.k; ++j) q.w_own[j] = m;
    for (int64_t h = 0; h < q.n_hits; ++h) q.w_own[q.hits[h].column] -= 1.f;
    for (int64_t j = 0; j < q.k; ++j) q.w_own[j] *= q.w[j];
    return q.w_own;
}

// The weights of negatives per pair.
inline const float* private_weights(const Window& q) {
    if (q.n_hits == 0) return q.w;
    std::memcpy(q.w_own, q.w, (size_t)(q.m * q.k) * sizeof(float));
    for (int64_t h = 0; h < q.n_hits; ++h) q.w_own[q.hits[h].pair * q.k + q.hits[h].column] = 0.f;
    return q.w_own;
}

inline double binary(const Window& q, float beta) {
    const float* w = q.per_pair ? private_weights(q) : shared_weights(q);
    return sum(binary_targets(q.s_t, q.shift_t, q.m, beta, q.g_t)
               + binary_negatives(q.s, q.shift, 1.f, w, q.per_pair ? q.m * q.k : q.k, q.g));
}

// The same where the scores of the targets precede those of the negatives in one array, and so do `shift` and `g`. As
// many weights as there are targets must be readable before the first.
inline double binary_joined(const Window& q, float beta) {
    // scalars are not stored where no weight changes: a load of vectors would wait for them
    const bool is_uniform = !q.per_pair && q.n_hits == 0;
    const float* w = is_uniform ? q.w : q.per_pair ? private_weights(q) : shared_weights(q);
    const float pairs = is_uniform ? (float)q.m : 1.f;
    const int64_t n = q.m + (q.per_pair ? q.m * q.k : q.k);
    vec total = {};
    for (int64_t i = 0; i < n; i += W) {
        const ivec is_target = lanes() < splat((int32_t)(q.m - i));
        const vec z = load(q.s_t + i) - load(q.shift_t + i);
        vec slope, soft, weight = first(is_target ? splat(beta) : splat(pairs) * load(w - q.m + i), n - i);
        logistic_of(is_target ? -z : z, slope, soft);
        slope *= weight;
        store(q.g_t + i, is_target ? -slope : slope);
        total += weight == vec{} ? vec{} : weight * soft;
    }
    return sum(total);
}

// With negatives per pair, whole vectors are written in order of the pairs, and the surplus at the end of a pair is
// overwritten by the next.
inline double margin(const Window& q, float eta) {
    vec loss = {};
    const Hit* hit = q.hits;
    if (!q.per_pair) std::memset(q.g, 0, (size_t)q.k * sizeof(float));
    for (int64_t p = 0; p < q.m; ++p) {
        const float *w = weights(q, p, hit), *s = q.per_pair ? q.s + p * q.k : q.s;
        float* g = q.per_pair ? q.g + p * q.k : q.g;
        const vec gap = splat(eta - q.s_t[p]);
        vec total = {};
        for (int64_t j = 0; j < q.k; j += W) {
            const vec hinge = gap + load(s + j), weight = first(load(w + j), q.k - j);
            const vec a = hinge <= vec{} ? vec{} : weight;
            total += a;
            loss += a == vec{} ? vec{} : a * hinge;
            store(g + j, q.per_pair ? a : load(g + j) + a);
        }
        q.g_t[p] = -sum(total);
    }
    return sum(loss);
}

// Scores beyond the range of exp in float32: log-sum-exp in double, pair by pair.
inline double softmax_far(const Window& q) {
    const int64_t n = q.per_pair ? q.m * q.k : q.k;
    double loss = 0;
    const Hit* hit = q.hits;
    std::memset(q.g, 0, (size_t)n * sizeof(float));
    for (int64_t p = 0; p < q.m; ++p) {
        const float* w = weights(q, p, hit);
        const int64_t offset = q.per_pair ? p * q.k : 0;
        double top = std::numeric_limits<double>::lowest(), total = 0;
        for (int64_t j = 0; j < q.k; ++j)
            if (w[j] != 0) top = std::fmax(top, (double)q.s[offset + j] - q.shift[offset + j]);
        for (int64_t j = 0; j < q.k; ++j)
            if (w[j] != 0) total += w[j] * std::exp((double)q.s[offset + j] - q.shift[offset + j] - top);
        q.g_t[p] = 0;
        if (total == 0) continue;
        const double z = top + std::log(total) - ((double)q.s_t[p] - q.shift_t[p]), e = std::exp(-std::fabs(z));
        const double slope = z >= 0 ? 1 / (1 + e) : e / (1 + e);
        loss += std::fmax(z, 0.) + std::log1p(e);
        q.g_t[p] = (float)-slope;
        for (int64_t j = 0; j < q.k; ++j)
            if (w[j] != 0)
                q.g[offset
                    + j] += (float)(slope / total * w[j] * std::exp((double)q.s[offset + j] - q.shift[offset
                                                                                                      + j] - top));
    }
    return loss;
}

//   T_p = Σ_j w_j e^{o_j}, I_p = 1 / (T_p + e^{o_p}):  L = Σ_p log((T_p + e^{o_p}) / e^{o_p}),
//   dL/ds_p = -T_p I_p,  dL/ds_j = Σ_p w_j e^{o_j} I_p
inline double softmax(const Window& q) {
    const int64_t n = q.per_pair ? q.m * q.k : q.k;
    ivec far = {};   // the largest |o| as bits, which have the order of the numbers, NaN above all
    vec t = {};
    for (int64_t j = 0; j < n; j += W) {
        const vec o = load(q.s + j) - load(q.shift + j);
        far = most(far, (ivec)first(abs_of(o), n - j));
        const vec e = exp_of(o);
        t += first(e * load(q.w + j), n - j);
        store(q.e + j, e);
    }
    for (int64_t i = 0; i < q.m; i += W)
        far = most(far, (ivec)first(abs_of(load(q.s_t + i) - load(q.shift_t + i)), q.m - i));
    if (any(far >= (ivec)splat(FAR))) return softmax_far(q);
    const bool common = !q.per_pair && q.n_hits == 0;  // T is the same for all pairs
    const Hit* hit = q.hits;
    if (!common)
        for (int64_t p = 0; p < q.m; ++p) {
            const float *w = weights(q, p, hit), *e = q.per_pair ? q.e + p * q.k : q.e;
            vec pair_total = {};
            for (int64_t j = 0; j < q.k; j += W) pair_total += first(load(w + j) * load(e + j), q.k - j);
            q.x[p] = sum(pair_total);
        }
    const vec shared = splat(sum(t));
    vec total = {}, inverses = {};
    for (int64_t i = 0; i < q.m; i += W) {
        const vec o = load(q.s_t + i) - load(q.shift_t + i), e = exp_of(o);
        const vec sums = common ? shared : load(q.x + i), z = sums + e;
        const vec inverse = splat(1.f) / z;
        store(q.g_t + i, -(sums * inverse));
        store(q.x + i, inverse);
        inverses += first(inverse, q.m - i);
        const vec ratio = z / e;                               // up to e^{2 FAR}, which may be infinite
        total += first(ratio < splat(MAX_RATIO) ? log_of(ratio) : log_of(z) - o, q.m - i);
    }
    if (common) {
        const vec x = splat(sum(inverses));
        for (int64_t j = 0; j < n; j += W) store(q.g + j, load(q.w + j) * load(q.e + j) * x);
        return sum(total);
    }
    if (!q.per_pair) std::memset(q.g, 0, (size_t)n * sizeof(float));
    hit = q.hits;
    for (int64_t p = 0; p < q.m; ++p) {
        const float *w = weights(q, p, hit), *e = q.per_pair ? q.e + p * q.k : q.e;
        float* g = q.per_pair ? q.g + p * q.k : q.g;
        const vec x = splat(q.x[p]);
        for (int64_t j = 0; j < q.k; j += W) {
            const vec a = load(w + j) * load(e + j) * x;
            store(g + j, q.per_pair ? a : load(g + j) + a);
        }
    }
    return sum(total);
}

// e^x, continued by its tangent beyond MAX_EXPONENT, and its slope.
constexpr double MAX_EXPONENT = 10;
inline double power_slope(double x) { return std::exp(x > MAX_EXPONENT ? MAX_EXPONENT : x); }     // NaN stays NaN
inline double power(double x) { return power_slope(x) * (x > MAX_EXPONENT ? 1 + x - MAX_EXPONENT : 1); }

//   o = s - log q,  log A = log Σ_j w_j e^{α o_j} - log M,  z_p = log A / α - o_p
//   centred      L = Σ_p (power((1-α) z_p) - 1) / (1-α);  α = 1: Σ_p z_p;  0 if no negative counts
//   not centred  L = Σ_p (power((α-1) o_p) / (1-α) + power(log A) / α)
inline double alpha_nce(const Window& q, float alpha, bool is_centered, double log_m) {
    const bool common = !q.per_pair && q.n_hits == 0;  // A is the same for all pairs
    const float lowest = std::numeric_limits<float>::lowest();
    const Hit* hit = q.hits;
    double loss = 0;
    if (!q.per_pair) std::memset(q.g, 0, (size_t)q.k * sizeof(float));
    for (int64_t p = 0, end; p < q.m; p = end) {
        end = common ? q.m : p + 1;
        const int64_t offset = q.per_pair ? p * q.k : 0;
        const float *w = weights(q, p, hit), *s = q.s + offset, *shift = q.shift + offset;
        float *e = q.e + offset, *g = q.g + offset;
        vec top = splat(lowest), total = {}, not_finite = {};
        for (int64_t j = 0; j < q.k; j += W) {
            const vec a = splat(alpha) * (load(s + j) - load(shift + j));
            const auto is_out = first(load(w + j), q.k - j) <= vec{};
            top = most(top, is_out ? splat(lowest) : a);
            not_finite += is_out ? vec{} : a - a;
            store(e + j, a);
        }
        float largest = top[0];
        for (int l = 1; l < W; ++l) largest = std::max(largest, top[l]);
        for (int64_t j = 0; j < q.k; j += W) {
            const vec weight = first(load(w + j), q.k - j);
            const vec a = weight <= vec{} ? vec{} : weight * exp_of(load(e + j) - splat(largest));
            store(e + j, a);
            total += a;
        }
        const double sum_a = sum(total), log_a = sum_a > 0 ? largest + std::log(sum_a) - log_m : -INFINITY;
        double slope = 0;                                      // ∂L/∂ log A, times α
        loss += sum(not_finite);
        for (int64_t i = p; i < end; ++i) {
            const double o = (double)q.s_t[i] - q.shift_t[i];
            q.g_t[i] = 0;
            if (!is_centered) {
                q.g_t[i] = (float)-power_slope((alpha - 1) * o);
                slope += power_slope(log_a);
                loss += power((alpha - 1) * o) / (1 - alpha) + power(log_a) / alpha;
            } else if (sum_a > 0) {
                const double z = log_a / alpha - o, d = alpha == 1 ? 1 : power_slope((1 - alpha) * z);
                q.g_t[i] = (float)-d;
                slope += d;
                loss += alpha == 1 ? z : (power((1 - alpha) * z) - 1) / (1 - alpha);
            }
        }
        const vec factor = splat(sum_a > 0 ? (float)(slope / sum_a) : 0.f);
        for (int64_t j = 0; j < q.k; j += W) {
            const vec own = factor * load(e + j);
            store(g + j, q.per_pair ? own : load(g + j) + own);
        }
    }
    return loss;
}

inline bool is_binary(const SkipGramTask& t) { return t.loss == LOGISTIC || t.loss == NCE || t.loss == GBCE; }

inline float target_weight(const SkipGramTask& t) { return t.loss == GBCE ? (float)t.positive_weight : 1.f; }

inline double slopes(const SkipGramTask& t, const Window& q) {
    switch (t.loss) {
        case SAMPLED_SOFTMAX: return softmax(q);
        case MARGIN: return margin(q, (float)t.margin);
        case ALPHA_NCE: return alpha_nce(q, (float)t.alpha, t.centered, std::log(t.total_weight));
        default: return binary(q, target_weight(t));
    }
}

}  // namespace
