// Rows of g for embtrain/negatives/adversarial/ace.py: the summary that draws need.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/core.h"
#include "core/simd_math.h"
#include "sampling/generator_logits.h"
#include "sampling/masses.h"

namespace {

constexpr int64_t ROWS = 4;  // rows whose logits are computed together, and fit the first cache

// Summarize a row of logits (n_classes): ends (n_ends), log_z, the class of the greedy id, argmax_c l_c + log_best_c (the
// first of equal ones), and the log g of that id.
void summarize(int64_t n_classes, const float* l, const float* log_best, uint32_t* ends, float* log_z, int64_t* best,
               float* log_top) {
    const int64_t n_blocks = (n_classes + WIDTH - 1) / WIDTH, n_ends = round_up(n_blocks, BUNDLE);
    const int64_t n_whole = n_classes / WIDTH * WIDTH;
    vec tops = splat(-INFINITY), others = tops;
    int64_t begin = 0;
    for (; begin + 2 * W <= n_whole; begin += 2 * W) {
        tops = most(tops, load(l + begin) + load(log_best + begin));
        others = most(others, load(l + begin + W) + load(log_best + begin + W));
    }
    float top = largest_lane(most(tops, others));
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
    *log_z = top + float(std::log(total));
    *log_top = -float(std::log(total));
    int64_t best_class = 0;
    for (; best_class + W <= n_classes
         && !any(load(l + best_class) + load(log_best + best_class) >= shift);) best_class += W;
    while (best_class + 1 < n_classes && !(l[best_class] + log_best[best_class] >= top)) ++best_class;
    *best = best_class;
}

}  // namespace

// Summarizes the rows `begin` to `end` of z (n, hidden): ends (n, n_ends), log_z, best and log_top (n). panel (n_blocks,
// hidden, WIDTH): w.
extern "C" EMBTRAIN_API int embtrain_generator_rows(int64_t begin, int64_t end, int64_t n_classes, int64_t hidden,
                                                    const float* z, const float* panel, const float* log_best,
                                                    uint32_t* ends, float* log_z, int64_t* best, float* log_top) {
    const int64_t n_blocks = (n_classes + WIDTH - 1) / WIDTH, n_ends = round_up(n_blocks, BUNDLE);
    Arena arena;
    float* const logits = arena.allocate<float>(ROWS * n_blocks * WIDTH);
    if (arena.failed()) return NO_MEMORY;
    const vec base[ROWS] = {};
    for (; begin < end; begin += ROWS) {
        const int64_t m = std::min(end - begin, ROWS);
        const auto keep = [&](int64_t row, int64_t to, vec x) { store(logits + row * n_blocks * WIDTH + to, x); };
        for (int64_t b = 0; b < n_blocks; ++b) {
            const float* const w = panel + b * hidden * WIDTH;
            if (m == ROWS) {
                block_logits<ROWS>(w, z + begin * hidden, hidden, base,
                                   [&](int i, int64_t p, vec x) { keep(i, b * WIDTH + p, x); });
                continue;
            }
            for (int64_t r = 0; r < m; ++r)
                block_logits<1>(w, z + (begin + r) * hidden, hidden, base,
                                [&](int, int64_t p, vec x) { keep(r, b * WIDTH + p, x); });
        }
        for (int64_t r = 0; r < m; ++r) {
            const int64_t i = begin + r;
            summarize(n_classes, logits + r * n_blocks * WIDTH, log_best, ends + i * n_ends, log_z + i, best + i,
                      log_top + i);
        }
    }
    return OK;
}
