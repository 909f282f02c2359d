// The dense half of the gradient of the generator of embtrain/negatives/adversarial/ace.py, for rows x of its cache:
//
//     into_z_x += Σ_c s_c w_c,   into_w_c += Σ_x s_c z_x,   s_c = g_c (A_x + h_x (log g_c - η_c + H_x))
//     H_x = log Z_x - z_x·(Σ_c g_c w_c) + Σ_c g_c η_c,   h_x = β share_x if H_x < limit, else 0
//
// g is computed again from w and z, for a tile of rows and classes that stays in the second cache. Rows share the loads
// of w, and classes those of z.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/core.h"
#include "core/simd_math.h"
#include "sampling/generator_logits.h"
#include "sampling/masses.h"

namespace {

constexpr int64_t ROWS = 32;            // rows of a tile
constexpr int64_t MOST_BLOCKS = 128;    // blocks of WIDTH classes of a tile
constexpr int R = W == 16 ? 8 : 4;      // sums in registers

class DenseGradient {
public:
    DenseGradient(const GeneratorTask& task, const float* eta, float* into_w) : t(task), eta(eta), into_w(into_w) {
        n_blocks = (t.n_classes + WIDTH - 1) / WIDTH;
        stride = std::min(n_blocks, MOST_BLOCKS) * WIDTH;
        width = round_up(t.hidden, W);
        g = arena.allocate<float>(ROWS * stride);
        mean = arena.allocate<float>(ROWS * width);
        y = arena.allocate<float>(ROWS * width);
        if (!failed()) std::fill_n(y, ROWS * width, 0.f);
    }

    bool failed() const { return arena.failed(); }

    // Rows `row` to row + n, n <= ROWS.
    void rows(int64_t row, int64_t n, const float* total, const float* share, double beta, double limit, float* into_z,
              float* entropy) {
        float eta_mean[ROWS] = {0}, h[ROWS];
        std::fill_n(mean, n * width, 0.f);
        for (int64_t block = 0; block < n_blocks; block += MOST_BLOCKS) {
            fill(row, n, block);
            for (int64_t r = 0; r < n; ++r) eta_mean[r] += eta_of(r);
            add_means(0, n);
        }
        bool has_hinge = false;
        for (int64_t r = 0; r < n; ++r) {
            const float* const z = t.z + (row + r) * t.hidden;
            float product = 0;
            for (int64_t d = 0; d < t.hidden; ++d) product += z[d] * mean[r * width + d];
            entropy[r] = t.log_z[row + r] - product + eta_mean[r];
            h[r] = entropy[r] < limit ? float(beta * share[r]) : 0.f;
            has_hinge |= h[r] > 0;
            const float factor = h[r] > 0 ? 1.f : total[r];
            for (int64_t d = 0; d < t.hidden; ++d) {
                y[r * width + d] = factor * z[d];
                mean[r * width + d] = h[r] > 0 ? 0.f : total[r] * mean[r * width + d];
            }
        }
        for (int64_t block = 0; block < n_blocks; block += MOST_BLOCKS) {
            if (n_blocks > MOST_BLOCKS) fill(row, n, block);          // else it is still there
            for (int64_t r = 0; r < n && has_hinge; ++r) {
                if (h[r] <= 0) continue;
                slope(r, total[r], h[r], entropy[r]);
                add_means(r, r + 1);
            }
            add_to_w(n);
        }
        for (int64_t r = 0; r < n; ++r)
            for (int64_t d = 0; d < t.hidden; ++d) into_z[r * t.hidden + d] += mean[r * width + d];
    }

private:
    const GeneratorTask& t;
    const float* const eta;
    float* const into_w;
    Arena arena;
    int64_t n_blocks, stride, width;
    float *g, *mean, *y;                         // (ROWS, stride), (ROWS, width), (ROWS, width)
    int64_t first_class = 0, n_classes = 0;      // of the tile

    // g of rows and of the blocks from `block` on, with 0 beyond the last class.
    void fill(int64_t row, int64_t n, int64_t block) {
        const int64_t blocks = std::min(n_blocks - block, MOST_BLOCKS);
        first_class = block * WIDTH;
        n_classes = std::min(t.n_classes - first_class, blocks * WIDTH);
        for (int64_t b = 0; b < blocks; ++b) {
            int64_t r = 0;
            for (; r + R <= n; r += R) fill_block<R>(row + r, block + b, g + r * stride + b * WIDTH);
            for (; r < n; ++r) fill_block<1>(row + r, block + b, g + r * stride + b * WIDTH);
        }
        for (int64_t r = 0; r < n; ++r) std::fill(g + r * stride + n_classes, g + r * stride + blocks * WIDTH, 0.f);
    }

    template <int N>
    void fill_block(int64_t row, int64_t block, float* to) const {
        vec base[N];
        for (int i = 0; i < N; ++i) base[i] = splat(-t.log_z[row + i]);
        block_logits<N>(t.panel + block * t.hidden * WIDTH, t.z + row * t.hidden, t.hidden, base,
                        [&](int i, int64_t p, vec x) { store(to + i * stride + p, exp_of(x)); });
    }

    float eta_of(int64_t r) const {
        float total = 0;
        vec sums{};
        int64_t c = 0;
        for (; c + W <= n_classes; c += W) sums += load(g + r * stride + c) * load(eta + first_class + c);
        for (; c < n_classes; ++c) total += g[r * stride + c] * eta[first_class + c];
        return total + sum(sums);
    }

    // mean += Σ_c g_c w_c of rows `begin` to `end` of the tile.
    void add_means(int64_t begin, int64_t end) {
        int64_t r = begin;
        for (; r + R <= end; r += R) add_mean<R>(r);
        for (; r < end; ++r) add_mean<1>(r);
    }

    template <int N>
    void add_mean(int64_t r) {
        const float* const from = g + r * stride;
        for (int64_t d = 0; d < t.hidden; d += W) {
            const int64_t n = std::min<int64_t>(t.hidden - d, W);
            const float* w = t.w + first_class * t.hidden + d;
            vec sums[N] = {};
            if (n == W) {
                for (int64_t c = 0; c < n_classes; ++c, w += t.hidden) {
                    const vec x = load(w);
                    for (int i = 0; i < N; ++i) sums[i] += splat(from[i * stride + c]) * x;
                }
            } else {
                for (int64_t c = 0; c < n_classes; ++c, w += t.hidden) {
                    const vec x = load_first(w, n);
                    for (int i = 0; i < N; ++i) sums[i] += splat(from[i * stride + c]) * x;
                }
            }
            for (int i = 0; i < N; ++i) {
                float* const to = mean + (r + i) * width + d;
                store(to, load(to) + sums[i]);
            }
        }
    }

    // g_c <- g_c (a + h (log g_c - η_c + entropy)) in a row of the tile
    void slope(int64_t r, float a, float h, float entropy) {
        float* const x = g + r * stride;
        const vec least_g = splat(1e-37f), factor = splat(h), base = splat(a + h * entropy);
        int64_t c = 0;
        for (; c + W <= n_classes; c += W)
            store(x + c, load(x + c) * (base + factor * (log_of(most(load(x + c), least_g)) -
                                                         load(eta + first_class + c))));
        for (; c < n_classes; ++c)
            x[c] *= a + h * (std::log(std::max(x[c], 1e-37f)) - eta[first_class + c] + entropy);
    }

    // into_w_c += Σ_r g_rc y_r
    void add_to_w(int64_t n) const {
        for (int64_t c = 0; c < n_classes; c += R) {
            const int64_t m = std::min<int64_t>(n_classes - c, R);
            for (int64_t d = 0; d < t.hidden; d += W) {
                vec sums[R] = {};
                for (int64_t r = 0; r < n; ++r) {
                    const vec x = load(y + r * width + d);
                    const float* const from = g + r * stride + c;    // WIDTH is a multiple of R: there are 0 beyond m
                    for (int i = 0; i < R; ++i) sums[i] += splat(from[i]) * x;
                }
                const int64_t k = std::min<int64_t>(t.hidden - d, W);
                float* to = into_w + (first_class + c) * t.hidden + d;
                for (int64_t i = 0; i < m; ++i, to += t.hidden) store_first(to, load_first(to, k) + sums[i], k);
            }
        }
    }
};

}  // namespace

// Add the gradient of rows `begin` to `end` to into_w (n_classes, hidden) and into_z (n_rows, hidden), and write their
// entropy (n_rows). total (n_rows): A. eta (n_classes).
extern "C" EMBTRAIN_API int embtrain_generator_gradient(const GeneratorTask* task, int64_t begin, int64_t end,
                                                        const float* total, const float* share, const float* eta,
                                                        double beta, double limit, float* into_w, float* into_z,
                                                        float* entropy) {
    if (begin < 0 || begin > end || end > task->n_rows) return OUT_OF_RANGE;
    DenseGradient gradient(*task, eta, into_w);
    if (gradient.failed()) return NO_MEMORY;
    for (int64_t row = begin; row < end; row += ROWS)
        gradient.rows(row, std::min(end - row, ROWS), total + row, share + row, beta, limit,
                      into_z + row * task->hidden, entropy + row);
    return OK;
}
