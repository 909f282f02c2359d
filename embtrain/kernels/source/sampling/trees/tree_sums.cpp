// Recomputes the sums of a tree from below. The wrapper kernels/sampling/tree_sums.py checks all arguments.
//
//     S of a block = Σ_i π_i φ(c_i);     S of a node = Σ S of its children, stored as float32 or int8
//
// Sums are added in double, but int8 ones in float, whose rounding is 10^-5 of theirs.

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
void add_floats(const TreeTask& t, int64_t level, int64_t place, double* total) {
    const float* const from = (const float*)t.sums[level] + place * t.width;
    for (int64_t i = 0; i < t.width; ++i) total[i] += from[i];
}

void add_bytes(const TreeTask& t, int64_t level, int64_t place, float* total) {
    const uint8_t* const from = (const uint8_t*)t.sums[level] + place * t.width;
    const float scale = t.scale[level][place];
    for (int64_t i = 0; i < t.width; ++i) total[i] += float(int32_t(from[i]) - int32_t(ZERO)) * scale;
}

// Sums of nodes, with the memory that they need.
class Sums {
public:
    explicit Sums(const TreeTask& task)
        : t(task), total(arena.allocate<double>(t.width)), sums(arena.allocate<float>(t.width)) {}

    bool failed() const { return arena.failed(); }

    // Recompute nodes (n) of a level from their children.
    void add(int64_t level, const int64_t* nodes, int64_t n) {
        for (int64_t a = 0; a < n; ++a) {
            const int64_t first = nodes[a] * t.fan;
            if (t.scale) {
                std::fill_n(sums, t.width, 0.f);
                for (int64_t c = 0; c < t.fan; ++c) add_bytes(t, level + 1, first + c, sums);
            } else {
                std::fill_n(total, t.width, 0.0);
                for (int64_t c = 0; c < t.fan; ++c) add_floats(t, level + 1, first + c, total);
                std::copy_n(total, t.width, sums);
            }
            store_node(t, level, nodes[a], sums);
        }
    }

private:
    Arena arena;
    const TreeTask& t;
    double* total;
    float* sums;
};

}  // namespace

// Recompute nodes (n) of a level from their children. n_nodes: all nodes of the level.
extern "C" EMBTRAIN_API int embtrain_tree_sums_add(const TreeTask* task, int64_t level, const int64_t* nodes, int64_t n,
                                                   int64_t n_nodes) {
    if (out_of_range(level, task->levels - 1)) return OUT_OF_RANGE;
    if (!all_within(nodes, n, n_nodes)) return OUT_OF_RANGE;
    Sums sums(*task);
    if (sums.failed()) return NO_MEMORY;
    sums.add(level, nodes, n);
    return OK;
}

// Recompute all nodes above places (n), in ascending order, of the last level, which has n_places.
extern "C" EMBTRAIN_API int embtrain_tree_sums_above(const TreeTask* task, const int64_t* places, int64_t n,
                                                     int64_t n_places) {
    if (!all_within(places, n, n_places)) return OUT_OF_RANGE;
    Sums sums(*task);
    Arena arena;
    int64_t* nodes = arena.allocate<int64_t>(n);
    if (sums.failed() || arena.failed()) return NO_MEMORY;
    std::copy_n(places, n, nodes);
    for (int64_t level = task->levels - 2; level >= 0; --level) {
        for (int64_t i = 0; i < n; ++i) nodes[i] /= task->fan;
        n = std::unique(nodes, nodes + n) - nodes;
        sums.add(level, nodes, n);
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
