// Recomputes the sums of a tree from below. The wrapper kernels/sampling/tree_sums.py checks all arguments.
//
//     S of a block = Σ_i π_i φ(c_i);     S of a node = Σ S of its children, in double, stored as float32 or int8

#include "sampling/trees/fourier.h"
#include "sampling/trees/tree_nodes.h"

namespace {

// Store S (width) at a place of a level, quantized if the tree is int8.
void store_node(const TreeTask& t, int64_t level, int64_t place, const float* sums) {
    if (t.scale) ((float**)t.scale)[level][place] =
        quantize_row(sums, t.width, (uint8_t*)t.sums[level] + place * t.width);
    else std::copy_n(sums, t.width, (float*)t.sums[level] + place * t.width);
}

// Add S (width) of a place of a level to `total`.
void add_node(const TreeTask& t, int64_t level, int64_t place, double* total) {
    if (t.scale) {
        const uint8_t* const from = (const uint8_t*)t.sums[level] + place * t.width;
        const double scale = t.scale[level][place];
        for (int64_t i = 0; i < t.width; ++i) total[i] += (int32_t(from[i]) - int32_t(ZERO)) * scale;
    } else {
        const float* const from = (const float*)t.sums[level] + place * t.width;
        for (int64_t i = 0; i < t.width; ++i) total[i] += from[i];
    }
}

}  // namespace

// Recompute nodes (n) of a level from their children. n_nodes: all nodes of the level.
extern "C" EMBTRAIN_API int embtrain_tree_sums_add(const TreeTask* task, int64_t level, const int64_t* nodes, int64_t n,
                                                   int64_t n_nodes) {
    const TreeTask& t = *task;
    if (out_of_range(level, t.levels - 1)) return OUT_OF_RANGE;
    if (std::any_of(nodes, nodes + n,
                    [n_nodes](int64_t node) { return out_of_range(node, n_nodes); })) return OUT_OF_RANGE;
    Arena arena;
    double* total = arena.allocate<double>(t.width);
    float* sums = arena.allocate<float>(t.width);
    if (arena.failed()) return NO_MEMORY;
    for (int64_t a = 0; a < n; ++a) {
        std::fill_n(total, t.width, 0.0);
        for (int64_t c = 0; c < t.fan; ++c) add_node(t, level + 1, nodes[a] * t.fan + c, total);
        std::copy_n(total, t.width, sums);
        store_node(t, level, nodes[a], sums);
    }
    return OK;
}

// S (n, 2 frequencies) = Σ_i weight_i φ_i of n blocks of `leaf` candidates: φ by Fourier features from their angles (n
// leaf, frequencies).
extern "C" EMBTRAIN_API int embtrain_tree_sums_fourier(const float* angle, const float* weight, int64_t n, int64_t leaf,
                                                       int64_t frequencies, float* sums) {
    const int64_t width = round_up(frequencies, W);
    Arena arena;
    float* total = arena.allocate<float>(2 * width);              // cosines, then sines
    if (arena.failed()) return NO_MEMORY;
    const float norm = float(1 / std::sqrt(double(frequencies)));
    for (int64_t block = 0; block < n; ++block, sums += 2 * frequencies) {
        std::fill_n(total, 2 * width, 0.f);
        for (int64_t l = 0; l < leaf; ++l, ++weight, angle += frequencies)
            for (int64_t j = 0; *weight != 0 && j < width; j += W) {
                double x[W] = {};
                float cosine[W], sine[W];
                if (j + W <= frequencies) std::copy_n(angle + j, W, x);
                else std::copy(angle + j, angle + frequencies, x);
                cos_sin(x, cosine, sine);
                store(total + j, load(total + j) + splat(*weight) * load(cosine));
                store(total + width + j, load(total + width + j) + splat(*weight) * load(sine));
            }
        for (int64_t j = 0; j < frequencies; ++j) sums[j] = norm * total[j], sums[frequencies + j] =
            norm * total[width + j];
    }
    return OK;
}
