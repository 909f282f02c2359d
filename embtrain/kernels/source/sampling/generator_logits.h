// Logits of a block of classes for several rows of the generator, which share the loads of w.
#pragma once

#include "core/simd_math.h"
#include "sampling/generator.h"

namespace {

// w_c · z_r + base_r of the WIDTH classes of a block (a panel of w, (hidden, WIDTH)), for N rows z (N, hidden), each
// passed to take(row, vector of the block, logits).
template <int N, class Take>
inline __attribute__((always_inline)) void block_logits(const float* panel, const float* z, int64_t hidden,
                                                        const vec* base, Take take) {
    for (int64_t p = 0; p < WIDTH; p += W) {
        vec x[N];
        for (int i = 0; i < N; ++i) x[i] = base[i];
        for (int64_t d = 0; d < hidden; ++d) {
            const vec column = load(panel + d * WIDTH + p);
            for (int i = 0; i < N; ++i) x[i] += splat(z[i * hidden + d]) * column;
        }
        for (int i = 0; i < N; ++i) take(i, p, x[i]);
    }
}

}  // namespace
