// Sampling in proportion to weights m: dot products, block sums in double, uniform numbers and scratch memory.
//
//     j = the first with Σ_{i<=j} m_i > u Σ_i m_i,   u = ⌊z / 2¹¹⌋ / 2⁵³, z the request's number of the stream
//
// Weights are summed in blocks of BLOCK, and the block sums one after another. A draw searches the blocks, then one
// block. The sums depend on the weights alone, not on the other requests of a call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "core/core.h"
#include "core/simd_math.h"

namespace {

// Scratch arrays of one call, any number of them, freed together. Returns null if memory is exhausted.
class Arena {
  public:
    Arena() = default;
    Arena(const Arena&) = delete;
    ~Arena() {
        while (last_ != nullptr) {
            Header* const previous = last_->previous;
            std::free(last_);
            last_ = previous;
        }
    }

    template <class T> T* allocate(int64_t n) {
        static_assert(alignof(T) <= alignof(Header), "malloc aligns no further");
        void* const p = std::malloc(sizeof(Header) + size_t(std::max<int64_t>(n, 1)) * sizeof(T));
        failed_ |= p == nullptr;
        if (p == nullptr) return nullptr;
        last_ = new (p) Header{last_};
        return reinterpret_cast<T*>(last_ + 1);
    }
    bool failed() const { return failed_; }

  private:
    // Precedes each array, so that the number of arrays has no limit.
    struct alignas(std::max_align_t) Header { Header* previous; };
    Header* last_ = nullptr;
    bool failed_ = false;
};

typedef double double4 __attribute__((vector_size(32)));

constexpr int64_t BLOCK = 16;   // weights per block sum; a multiple of W
constexpr int64_t CHUNK = 512;  // products added in float32 before they are added to a double
constexpr int64_t LINE = 16;    // floats of a cache line

inline double uniform01(uint64_t stream, int64_t i) { return double(u64_at(stream, uint64_t(i)) >> 11) * 0x1p-53; }

// h·r of H vectors h and 4 / H rows r, ordered by h.
template <int H = 1> inline void dots(const float* const* h, const float* const* r, int64_t n, double* out) {
    constexpr int R = 4 / H;
    for (int l = 0; l < 4; ++l) out[l] = 0;
    for (int64_t from = 0; from < n; from += CHUNK) {
        const int64_t until = std::min(n, from + CHUNK);
        vec s[4] = {}, u[4] = {};
        int64_t i = from;
        for (; i + 2 * W <= until; i += 2 * W)
            for (int l = 0; l < 4; ++l) {
                s[l] += load(h[l / R] + i) * load(r[l % R] + i);
                u[l] += load(h[l / R] + i + W) * load(r[l % R] + i + W);
            }
        for (; i + W <= until; i += W)
            for (int l = 0; l < 4; ++l) s[l] += load(h[l / R] + i) * load(r[l % R] + i);
        half all = sums(fold(s[0] + u[0]), fold(s[1] + u[1]), fold(s[2] + u[2]), fold(s[3] + u[3]));
        for (; i < until; ++i)
            for (int l = 0; l < 4; ++l) all[l] += h[l / R][i] * r[l % R][i];
        for (int l = 0; l < 4; ++l) out[l] += all[l];
    }
}

// max of n numbers, or of their absolute values; NaN if one is not finite.
template <bool ABSOLUTE = false> inline float largest(const float* x, int64_t n) {
    constexpr int64_t CHAINS = 4;                          // independent chains hide the latency of max
    const auto magnitude = [](vec y) { return ABSOLUTE ? abs_of(y) : y; };
    vec maxima[CHAINS], zeros[CHAINS] = {};
    for (int64_t l = 0; l < CHAINS; ++l) maxima[l] = magnitude(splat(x[0]));
    int64_t j = 0;
    for (; j + CHAINS * W <= n; j += CHAINS * W)
        for (int64_t l = 0; l < CHAINS; ++l) {
            const vec y = load(x + j + l * W);
            maxima[l] = most(magnitude(y), maxima[l]);
            zeros[l] += y - y;
        }
    for (; j + W <= n; j += W) {
        const vec y = load(x + j);
        maxima[0] = most(magnitude(y), maxima[0]);
        zeros[0] += y - y;
    }
    if (j < n) {
        const vec y = lanes() < splat(int32_t(n - j)) ? load_first(x + j, n - j) : splat(x[0]);
        maxima[1] = most(magnitude(y), maxima[1]);
        zeros[1] += y - y;
    }
    const vec tops = most(most(maxima[0], maxima[1]), most(maxima[2], maxima[3]));
    float top = tops[0];
    for (int l = 1; l < W; ++l) top = std::max(top, tops[l]);
    return top + sum((zeros[0] + zeros[1]) + (zeros[2] + zeros[3]));
}

template <class T> inline void prefetch(const T* p, int64_t n) {
    for (int64_t i = 0; i < n; i += LINE * sizeof(float) / sizeof(T)) __builtin_prefetch(p + i, 0, 2);
}

inline void widen(half x, double4& out) {
#if defined(__AVX2__)
    out = (double4)_mm256_cvtps_pd((__m128)x);             // the compiler converts two numbers at a time
#else
    out = __builtin_convertvector(x, double4);
#endif
}

constexpr int64_t BLOCKS = 4;   // blocks summed at once: independent chains hide the latency
constexpr int SEARCHES = 4;     // draws searched at once: the lanes of a double4

// Σ m_i of BLOCKS blocks.
inline void sum_blocks(const float* m, double* sums) {
    double4 total[BLOCKS] = {};
    for (int64_t i = 0; i < BLOCK; i += 4)
        for (int64_t l = 0; l < BLOCKS; ++l) {
            double4 x;
            widen(load_half(m + l * BLOCK + i), x);
            total[l] += x;
        }
    for (int64_t l = 0; l < BLOCKS; ++l) sums[l] = (total[l][0] + total[l][1]) + (total[l][2] + total[l][3]);
}

// Weights m (n) and the running sums of their blocks. Padded with zeros to whole groups of blocks.
struct Masses {
    float* m = nullptr;
    double* ends = nullptr;
    int64_t n = 0;

    static int64_t padded(int64_t n) { return round_up(std::max<int64_t>(n, 1), BLOCKS * BLOCK); }

    Masses() = default;
    Masses(Arena& arena, int64_t max_n) : m(arena.allocate<float>(padded(max_n))),
        ends(arena.allocate<double>(padded(max_n) / BLOCK)), n(max_n) {}

    int64_t blocks() const { return (n + BLOCK - 1) / BLOCK; }
    double total() const { return ends[blocks() - 1]; }

    void sum() {
        std::fill(m + n, m + padded(n), 0.f);
        double before = 0;
        for (int64_t b = 0; b < blocks(); b += BLOCKS) {
            sum_blocks(m + b * BLOCK, ends + b);
            for (int64_t l = b; l < b + BLOCKS; ++l) ends[l] = before += ends[l];
        }
    }

    // The index where u falls, never one of weight 0. If rounding puts u beyond the total, the last with a weight.
    int64_t find(double u) const {                         // without branches that depend on u, which is random
        const double* end = ends;
        for (int64_t left = blocks(), lower; left > 1; left -= lower) {
            lower = left / 2;
            end += -int64_t(end[lower - 1] <= u) & lower;
        }
        const int64_t from = (end - ends) * BLOCK;
        double sum = from ? end[-1] : 0;
        int64_t count = 0;
        for (int64_t j = from; j < from + BLOCK; ++j) count += (sum += m[j]) <= u;
        return index(from, count);
    }

    // The same for SEARCHES masses of equally many weights, step by step: each step of a search waits for the last one.
    static void find(const Masses* const* of, const double* u, int64_t* found) {
        const double* end[SEARCHES];
        for (int l = 0; l < SEARCHES; ++l) end[l] = of[l]->ends;
        for (int64_t left = of[0]->blocks(), lower; left > 1; left -= lower) {
            lower = left / 2;
            for (int l = 0; l < SEARCHES; ++l) end[l] += -int64_t(end[l][lower - 1] <= u[l]) & lower;
        }
        int64_t from[SEARCHES];
        const float* m[SEARCHES];
        double4 sum;
        for (int l = 0; l < SEARCHES; ++l) {
            from[l] = (end[l] - of[l]->ends) * BLOCK, m[l] = of[l]->m + from[l], sum[l] = from[l] ? end[l][-1] : 0;
        }
        auto count = sum < sum;                            // zeros
        for (int64_t j = 0; j < BLOCK; ++j) {
            double4 x;
            widen(half{m[0][j], m[1][j], m[2][j], m[3][j]}, x);
            sum += x;
            count -= sum <= double4{u[0], u[1], u[2], u[3]};
        }
        for (int l = 0; l < SEARCHES; ++l) found[l] = of[l]->index(from[l], count[l]);
    }

    // Index `count` of a block, or if the block is exhausted, the last one with a weight.
    int64_t index(int64_t from, int64_t count) const {
        int64_t i = from + count;
        if (count < BLOCK) return i;
        while (i > 0 && m[i - 1] <= 0) --i;
        return i - 1;
    }

    // Σ_{j != i} m_j / Σ_j m_j, without cancellation if m_i is nearly the whole sum.
    double rest_share(int64_t i) const {
        if (total() <= 0) return 1;
        if (m[i] < 0.5 * total()) return (total() - m[i]) / total();
        double rest = 0;
        for (int64_t j = 0; j < n; ++j) rest += j == i ? 0.0 : double(m[j]);
        return rest / total();
    }
};

// A request and its group; ordered by key, then by request.
struct Request {
    int64_t key, i;
    bool operator<(const Request& other) const { return key != other.key ? key < other.key : i < other.i; }
};

// Sorts requests that arrive in the order of i, by digits of their keys if they are many. Returns false if memory is
// exhausted.
inline bool sort(Request* requests, int64_t n) {
    constexpr int64_t DIGIT_BITS = 11, DIGITS = int64_t(1) << DIGIT_BITS;
    if (std::is_sorted(requests, requests + n)) return true;
    if (n < DIGITS / 4) {
        std::sort(requests, requests + n);
        return true;
    }
    Arena arena;
    Request* from = requests;
    Request* to = arena.allocate<Request>(n);
    if (arena.failed()) return false;
    int64_t top = 0;
    for (int64_t a = 0; a < n; ++a) top |= requests[a].key;
    for (int64_t shift = 0; shift < 63 && top >> shift; shift += DIGIT_BITS, std::swap(from, to)) {
        int64_t begin[DIGITS + 1] = {};
        for (int64_t a = 0; a < n; ++a) ++begin[(from[a].key >> shift) % DIGITS + 1];
        for (int64_t digit = 0; digit < DIGITS; ++digit) begin[digit + 1] += begin[digit];
        for (int64_t a = 0; a < n; ++a) to[begin[(from[a].key >> shift) % DIGITS]++] = from[a];
    }
    if (from != requests) std::copy_n(from, n, requests);
    return true;
}

}  // namespace
