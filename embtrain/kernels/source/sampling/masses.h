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
        static_assert(alignof(T) <= alignof(Header), "arrays are aligned as their header is");
        void* p = nullptr;
        const size_t bytes = sizeof(Header) + size_t(std::max<int64_t>(n, 1)) * sizeof(T);
        if (posix_memalign(&p, alignof(Header), bytes) != 0) return failed_ = true, nullptr;
        last_ = new (p) Header{last_};
        return reinterpret_cast<T*>(last_ + 1);
    }
    bool failed() const { return failed_; }

  private:
    // Precedes each array, so that the number of arrays has no limit. As long as a cache line: vectors of 64 bytes that
    // cross a line take twice as long to read.
    struct alignas(64) Header { Header* previous; };
    Header* last_ = nullptr;
    bool failed_ = false;
};

// No function takes or returns it: without AVX that would depend on the compiler's options, which it warns about.
typedef double double4 __attribute__((vector_size(32)));
typedef double double4_anywhere __attribute__((vector_size(32), aligned(8), may_alias));

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
    const vec zero = (zeros[0] + zeros[1]) + (zeros[2] + zeros[3]);
    return any(zero != zero) ? NAN : largest_lane(most(most(maxima[0], maxima[1]), most(maxima[2], maxima[3])));
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
constexpr int64_t COMPARED = 32;  // running sums that are all compared: more steps of a search would take longer

// Column i of four rows is number i of the output.
inline void transpose(half a, half b, half c, half d, half* columns) {
    const half ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const half cd = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    columns[0] = __builtin_shufflevector(ab, cd, 0, 1, 4, 5), columns[1] = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    columns[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    columns[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// Σ m_i of BLOCKS blocks.
inline void sum_blocks(const float* m, double4& sums) {
    double4 total[BLOCKS] = {};
    for (int64_t i = 0; i < BLOCK; i += 4)
        for (int64_t l = 0; l < BLOCKS; ++l) {
            double4 x;
            widen(load_half(m + l * BLOCK + i), x);
            total[l] += x;
        }
    double4 pairs[2];                                      // a0 + a1, b0 + b1, a2 + a3, b2 + b3 of totals a, b; of c, d
    for (int64_t l = 0; l < 2; ++l)
        pairs[l] = __builtin_shufflevector(total[2 * l], total[2 * l + 1], 0, 4, 2, 6) +
                   __builtin_shufflevector(total[2 * l], total[2 * l + 1], 1, 5, 3, 7);
    sums = __builtin_shufflevector(pairs[0], pairs[1], 0, 1, 4, 5) +
           __builtin_shufflevector(pairs[0], pairs[1], 2, 3, 6, 7);
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
            double4 of_block;
            sum_blocks(m + b * BLOCK, of_block);
            const double first = before + of_block[0], second = first + of_block[1], third = second + of_block[2];
            before = third + of_block[3];
            *(double4_anywhere*)(ends + b) = double4{first, second, third, before};
        }
    }

    // The index where u falls, never one of weight 0. If rounding puts u beyond the total, the last with a weight.
    int64_t find(double u) const {                         // without branches that depend on u, which is random
        const int64_t from = block_of(u) * BLOCK;
        double sum = sum_before(from);
        int64_t count = 0;
        for (int64_t j = from; j < from + BLOCK; ++j) count += (sum += m[j]) <= u;
        return index(from, count);
    }

    // The same for SEARCHES masses of equally many weights, step by step: each step of a search waits for the last one.
    static void find(const Masses* const* of, const double* u, int64_t* found) {
        int64_t from[SEARCHES];
        const float* m[SEARCHES];
        for (int l = 0; l < SEARCHES; ++l) from[l] = of[l]->block_of(u[l]) * BLOCK, m[l] = of[l]->m + from[l];
        // at once: a load of a vector whose numbers were just stored one by one waits for all of them
        double4 sum = {of[0]->sum_before(from[0]), of[1]->sum_before(from[1]), of[2]->sum_before(from[2]),
                       of[3]->sum_before(from[3])};
        auto count = sum < sum;                            // zeros
        const double4 all_u = *(const double4_anywhere*)u;
        for (int64_t j = 0; j < BLOCK; j += 4) {
            half x[4];
            transpose(load_half(m[0] + j), load_half(m[1] + j), load_half(m[2] + j), load_half(m[3] + j), x);
            for (int64_t i = 0; i < 4; ++i) {
                double4 y;
                widen(x[i], y);
                sum += y;
                count -= sum <= all_u;
            }
        }
        for (int l = 0; l < SEARCHES; ++l) found[l] = of[l]->index(from[l], count[l]);
    }

    double sum_before(int64_t from) const { return from ? ends[from / BLOCK - 1] : 0; }   // Σ m_j, j < from

    // The block where u falls, or the last one.
    int64_t block_of(double u) const {
        const double* end = ends;
        int64_t left = blocks();
        for (int64_t lower; left > COMPARED; left -= lower) {
            lower = left / 2 / BLOCKS * BLOCKS;
            end += -int64_t(end[lower - 1] <= u) & lower;
        }
        const double4 all_u = double4{} + u;
        auto count = all_u < all_u;
        for (int64_t b = 0; b < left; b += BLOCKS) count -= *(const double4_anywhere*)(end + b) <= all_u;
        return std::min(end - ends + ((count[0] + count[1]) + (count[2] + count[3])), blocks() - 1);
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

// Sorts requests by key, by digits if they are many; those of one key stay in their order, if that is the order of i.
// Returns false if memory is exhausted.
inline bool sort(Request* requests, int64_t n) {
    constexpr int64_t MAX_BITS = 11, MAX_DIGITS = int64_t(1) << MAX_BITS;
    if (std::is_sorted(requests, requests + n)) return true;
    if (n < MAX_DIGITS / 4) {
        std::sort(requests, requests + n);
        return true;
    }
    Arena arena;
    Request* from = requests;
    Request* to = arena.allocate<Request>(n);
    if (arena.failed()) return false;
    int64_t top = 0, bits = 1;
    for (int64_t a = 0; a < n; ++a) top |= requests[a].key;
    while (bits < 63 && top >> bits) ++bits;
    const int64_t passes = (bits + MAX_BITS - 1) / MAX_BITS, digit_bits = (bits + passes - 1) / passes;
    const int64_t digits = int64_t(1) << digit_bits;
    for (int64_t shift = 0; shift < bits; shift += digit_bits, std::swap(from, to)) {
        int64_t begin[MAX_DIGITS + 1] = {};
        for (int64_t a = 0; a < n; ++a) ++begin[((from[a].key >> shift) & (digits - 1)) + 1];
        for (int64_t digit = 0; digit < digits; ++digit) begin[digit + 1] += begin[digit];
        for (int64_t a = 0; a < n; ++a) to[begin[(from[a].key >> shift) & (digits - 1)]++] = from[a];
    }
    if (from != requests) std::copy_n(from, n, requests);
    return true;
}

}  // namespace
