// Rows of g for embtrain/negatives/adversarial/ace.py: the summary that draws need, and the gradient of the logits.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "sampling/generator.h"
#include "core/core.h"
#include "core/simd_math.h"

// Summarizes rows of logits (n, n_classes): ends, log_z, the class of the greedy id, argmax_c l_c + log_best_c (the
// first of equal ones), and the log g of that id.
extern "C" EMBTRAIN_API int embtrain_generator_rows(int64_t n, int64_t n_classes, const float* logits,
                                                    const float* log_best,
                                              uint32_t* ends, float* log_z, int64_t* best, float* log_top) {
    const int64_t n_blocks = (n_classes + WIDTH - 1) / WIDTH, n_ends = round_up(n_blocks, BUNDLE);
    const int64_t n_whole = n_classes / WIDTH * WIDTH;
    for (int64_t i = 0; i < n; ++i) {
        const float* l = logits + i * n_classes;
        vec tops = splat(-INFINITY), others = tops;
        int64_t begin = 0;
        for (; begin + 2 * W <= n_whole; begin += 2 * W) {
            tops = most(tops, load(l + begin) + load(log_best + begin));
            others = most(others, load(l + begin + W) + load(log_best + begin + W));
        }
        tops = most(tops, others);
        float top = -INFINITY;
        for (int64_t j = 0; j < W; ++j) top = std::max(top, tops[j]);
        for (int64_t c = begin; c < n_classes; ++c) top = std::max(top, l[c] + log_best[c]);
        // Exponents are relative to the greedy id. A class with many members may exceed it by at most the log of their
        // number. Until the total is known, `ends` holds the float sums of the blocks.
        double total = 0.0;
        const vec shift = splat(top);
        const auto block_sum = [&](int64_t b) {  // the sum of one block, in four parts
            half all{};
            for (int64_t j = 0; j < WIDTH; j += W) all += fold(exp_of(load(l + b * WIDTH + j) - shift));
            return all;
        };
        const auto store_sum = [&](int64_t b, float sum) {
            std::memcpy(ends + b, &sum, sizeof sum);
            total += double(sum);
        };
        int64_t b = 0;
        for (; b + 4 <= n_whole / WIDTH; b += 4) {
            const half four_sums = sums(block_sum(b), block_sum(b + 1), block_sum(b + 2), block_sum(b + 3));
            for (int64_t j = 0; j < 4; ++j) store_sum(b + j, four_sums[j]);
        }
        for (; b < n_whole / WIDTH; ++b) store_sum(b, sum(block_sum(b)));
        if (n_whole < n_classes) {
            float rest[WIDTH] = {0};
            std::copy(l + n_whole, l + n_classes, rest);
            vec last{};
            for (int64_t j = 0; j < WIDTH; j += W)
                last += first(exp_of(load(rest + j) - shift), n_classes - n_whole - j);
            store_sum(b, sum(last));
        }
        const double scale = double(UINT32_MAX) * 0x1p30 / total;
        int64_t upto = 0;  // integers: an integer addition has a latency of one cycle
        for (b = 0; b < n_blocks; ++b) {
            float sum;
            std::memcpy(&sum, ends + b, sizeof sum);
            ends[b] = uint32_t((upto += int64_t(double(sum) * scale)) >> 30);
        }
        for (b = n_blocks - 1; b < n_ends; ++b) ends[b] = UINT32_MAX;
        log_z[i] = top + float(std::log(total));
        log_top[i] = -float(std::log(total));
        int64_t best_class = 0;
        for (; best_class + W <= n_classes
             && !any(load(l + best_class) + load(log_best + best_class) >= shift);) best_class += W;
        while (best_class + 1 < n_classes && !(l[best_class] + log_best[best_class] >= top)) ++best_class;
        best[i] = best_class;
        ends += n_ends;
    }
    return OK;
}

// g <- e^(l - log_z) in rows of logits (n, n_classes), and within = Σ_c g_c eta_c.
extern "C" EMBTRAIN_API int embtrain_generator_soften(int64_t n, int64_t n_classes, float* logits, const float* log_z,
                                                const float* eta, float* within) {
    for (int64_t i = 0; i < n; ++i) {
        float* l = logits + i * n_classes;
        const vec z = splat(log_z[i]);
        vec total{};
        int64_t c = 0;
        for (; c + W <= n_classes; c += W) {
            const vec g = exp_of(load(l + c) - z);
            store(l + c, g);
            total += g * load(eta + c);
        }
        float rest[W] = {0};
        std::copy(l + c, l + n_classes, rest);
        const vec last = exp_of(load(rest) - z);
        within[i] = sum(total);
        for (; c < n_classes; ++c) {
            l[c] = last[c % W];
            within[i] += l[c] * eta[c];
        }
    }
    return OK;
}

// g_c <- g_c (a + h (log g_c - eta_c + entropy)) in the rows (n, n_classes) with h > 0: the gradient of a log g + h H.
extern "C" EMBTRAIN_API int embtrain_generator_slope(int64_t n, int64_t n_classes, float* g, const float* a,
                                                     const float* h,
                                               const float* entropy, const float* eta) {
    for (int64_t i = 0; i < n; ++i) {
        if (h[i] <= 0.0f) continue;
        float* x = g + i * n_classes;
        const vec least_g = splat(1e-37f), factor = splat(h[i]), base = splat(a[i] + h[i] * entropy[i]);
        int64_t c = 0;
        for (; c + W <= n_classes; c += W)
            store(x + c, load(x + c) * (base + factor * (log_of(most(load(x + c), least_g)) - load(eta + c))));
        for (; c < n_classes; ++c)
            x[c] *= a[i] + h[i] * (std::log(std::max(x[c], 1e-37f)) - eta[c] + entropy[i]);
    }
    return OK;
}
