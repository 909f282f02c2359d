// Subsamples text and builds windows. The wrapper kernels/text/windows.py checks all arguments but the ids.
//
// The random numbers of a word depend on its position alone (u64_at in core.h), so the loops can be split anywhere.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/core.h"

namespace {

constexpr int ROUNDS = 6;
constexpr int BATCH = 256;  // centres whose positions are computed at once
constexpr int AHEAD = 24;   // centres between the current one and the prefetched one
constexpr int SEEN = 56;     // bits on one side that one load of eight bytes always covers
constexpr int WIDE = 8;  // ids copied at once for windows up to this size: a fixed loop length avoids mispredictions

// A bijection of 0..n-1: six Feistel rounds over Z_a x Z_b with ab >= n, repeated while the image is n or more.
struct Permutation {
    uint64_t n;
    uint32_t a, b, key[ROUNDS];

    Permutation(int64_t size, uint64_t seed) : n(uint64_t(size)) {
        int64_t root = std::max(int64_t(std::sqrt(double(size))) - 1, int64_t(1));
        while (root * root < size) root++;
        a = uint32_t(root);
        b = uint32_t((size + root - 1) / root);
        for (int r = 0; r < ROUNDS; r++) key[r] = uint32_t(u64_at(seed, uint64_t(r)) >> 32);
    }

    // A pseudo-random number below m, for x under one round's key.
    static inline uint32_t below(uint32_t x, uint32_t k, uint32_t m) {
        uint32_t h = x + k;
        h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
        h = (h ^ (h >> 13)) * 0xC2B2AE35u;
        h ^= h >> 16;
        return uint32_t((uint64_t(h) * m) >> 32);
    }

    static inline uint32_t add(uint32_t x, uint32_t y, uint32_t m) {
        const uint32_t sum = x + y;  // both are below m <= 2^26
        return sum >= m ? sum - m : sum;
    }

    void run(int64_t begin, int count, int64_t* out) const {
        alignas(64) uint32_t left[BATCH], right[BATCH];
        uint32_t l = uint32_t(uint64_t(begin) / b), r0 = uint32_t(uint64_t(begin) % b);
        for (int i = 0; i < count; i++) {
            left[i] = l;
            right[i] = r0;
            if (++r0 == b) r0 = 0, l++;
        }
        for (int r = 0; r < ROUNDS; r += 2) {
            for (int i = 0; i < count; i++) left[i] = add(left[i], below(right[i], key[r], a), a);
            for (int i = 0; i < count; i++) right[i] = add(right[i], below(left[i], key[r + 1], b), b);
        }
        for (int i = 0; i < count; i++) {
            uint64_t x = uint64_t(left[i]) * b + right[i];
            while (x >= n) x = step(x);
            out[i] = int64_t(x);
        }
    }

    uint64_t step(uint64_t x) const {
        uint32_t l = uint32_t(x / b), r0 = uint32_t(x % b);
        for (int r = 0; r < ROUNDS; r += 2) {
            l = add(l, below(r0, key[r], a), a);
            r0 = add(r0, below(l, key[r + 1], b), b);
        }
        return uint64_t(l) * b + r0;
    }
};

// Number of the b words before position p that belong to its sequence. Set bits of `first` mark the begin of a sequence.
inline int64_t words_before(const uint64_t* first, int64_t p, int64_t b) {
    int64_t w = p >> 6;
    const uint64_t bits = first[w] << (63 - (p & 63));  // bit p becomes the highest
    if (bits) return std::min(b, int64_t(__builtin_clzll(bits)));
    int64_t distance = (p & 63) + 1;
    while (distance < b) {  // bit 0 is set, so the loop ends
        const uint64_t word = first[--w];
        if (word) return std::min(b, distance + __builtin_clzll(word));
        distance += 64;
    }
    return b;
}

// The same for the b words after it.
inline int64_t words_after(const uint64_t* first, int64_t p, int64_t b) {
    const int64_t q = p + 1;
    int64_t w = q >> 6;
    const uint64_t bits = first[w] >> (q & 63);
    if (bits) return std::min(b, int64_t(__builtin_ctzll(bits)));
    int64_t distance = 64 - (q & 63);
    while (distance < b) {  // the bit past the last word is set
        const uint64_t word = first[++w];
        if (word) return std::min(b, distance + __builtin_ctzll(word));
        distance += 64;
    }
    return b;
}

// The same for b <= SEEN where eight bytes are readable. Branch-free, because the distance to the next boundary is
// unpredictable.
inline int64_t words_before_near(const uint64_t* first, int64_t p, int64_t b) {
    uint64_t bits;
    std::memcpy(&bits, reinterpret_cast<const char*>(first) + (p >> 3) - 7, 8);
    return std::min(b, int64_t(__builtin_clzll(bits << (7 - (p & 7)) | 1)));
}

inline int64_t words_after_near(const uint64_t* first, int64_t p, int64_t b) {
    uint64_t bits;
    std::memcpy(&bits, reinterpret_cast<const char*>(first) + ((p + 1) >> 3), 8);
    return std::min(b, int64_t(__builtin_ctzll(bits >> ((p + 1) & 7) | uint64_t(1) << 63)));
}

}  // namespace

// Subsample n_sequences sequences (offsets in ids): `kept` gets the remaining ids, packed, and `length` their number.
extern "C" EMBTRAIN_API int embtrain_subsample(const int32_t* ids, const int64_t* sequence, int64_t n_sequences,
                                               const uint32_t* limit, int64_t n_words, uint64_t seed, int32_t* kept,
                                               int64_t* length) {
    int64_t m = 0;
    for (int64_t s = 0; s < n_sequences; s++) {
        const int64_t before = m;
        for (int64_t i = sequence[s]; i < sequence[s + 1]; i++) {
            const int32_t id = ids[i];
            if (uint32_t(id) >= uint64_t(n_words)) return OUT_OF_RANGE;
            kept[m] = id;  // overwritten by the next id if dropped
            m += uint32_t(u64_at(seed, uint64_t(i)) >> 33) < limit[id];
        }
        length[s] = m - before;
    }
    return OK;
}

extern "C" EMBTRAIN_API int embtrain_expected_targets(const int32_t* ids, const int64_t* sequence, int64_t n_sequences,
                                                      const double* keep, int64_t n_words, const double* inside,
                                                      int64_t window, double* total) {
    const auto within = [&](double x) {
        if (x >= double(window)) return inside[window];
        const int64_t i = int64_t(x);
        return inside[i] + (x - double(i)) * (inside[i + 1] - inside[i]);
    };
    for (int64_t s = 0; s < n_sequences; s++) {
        double sum = 0, before = 0;
        for (int64_t i = sequence[s]; i < sequence[s + 1]; i++) {
            if (uint32_t(ids[i]) >= uint64_t(n_words)) return OUT_OF_RANGE;
            sum += keep[ids[i]];
        }
        for (int64_t i = sequence[s]; i < sequence[s + 1]; i++) {
            const double p = keep[ids[i]], after = std::max(sum - before - p, 0.0);
            total[ids[i]] += p * (within(before) + within(after));
            before += p;
        }
    }
    return OK;
}

extern "C" EMBTRAIN_API int embtrain_permutation(int64_t n, int64_t begin, int64_t end, uint64_t seed, int64_t* out) {
    const Permutation order(n, seed);
    for (int64_t i = begin; i < end; i += BATCH)
        order.run(i, int(std::min<int64_t>(BATCH, end - i)), out + (i - begin));
    return OK;
}

// Windows of the centres positions[begin..end), or of that range itself if positions is null, or of its permutation.
// target has room for 2 * window * (end - begin) + 2 * WIDE ids. counts: windows, pairs.
extern "C" EMBTRAIN_API int embtrain_pairs(const int32_t* ids, const uint64_t* first, int64_t n,
                                           const int64_t* positions, int64_t begin, int64_t end, int shuffled,
                                           uint64_t order_seed, int64_t window, int dynamic, uint64_t seed,
                                           int64_t* centre, int64_t* start, int64_t* target, int64_t* counts) {
    const Permutation order(std::max<int64_t>(n, 1), order_seed);
    const int64_t reach = std::min<int64_t>(window, WIDE);
    const bool is_random = positions || shuffled;  // in text order the hardware prefetcher suffices
    int64_t position[BATCH + AHEAD], c = 0, t = 0;
    int32_t left[BATCH], right[BATCH];  // words of each window before and after its centre
    for (int64_t from = begin; from < end; from += BATCH) {
        const int count = int(std::min<int64_t>(BATCH, end - from));
        if (positions)
            std::copy_n(positions + from, count, position);
        else if (shuffled)
            order.run(from, count, position);
        else
            for (int i = 0; i < count; i++) position[i] = from + i;
        std::fill_n(position + count, AHEAD, position[count - 1]);
        // Two passes: in a single one the write position would wait for the bits of the window.
        for (int i = 0; i < count; i++) {
            const int64_t p = position[i];
            if (is_random) __builtin_prefetch(first + (position[i + AHEAD] >> 6));
            const int64_t b =
                dynamic ? 1 + int64_t(((u64_at(seed, uint64_t(p)) >> 32) * uint64_t(window)) >> 32) : window;
            const bool near = window <= SEEN && p >= 64 && p + 128 < n;
            left[i] = int32_t(near ? words_before_near(first, p, b) : words_before(first, p, b));
            right[i] = int32_t(near ? words_after_near(first, p, b) : words_after(first, p, b));
        }
        for (int i = 0; i < count; i++) {
            const int64_t p = position[i], before = left[i], after = right[i];
            if (is_random) {
                __builtin_prefetch(ids + std::max<int64_t>(position[i + AHEAD] - reach, 0));
                // where the copy of WIDE ids ends
                __builtin_prefetch(ids + std::min(position[i + AHEAD] + WIDE, n - 1));
            }
            centre[c] = ids[p];
            start[c] = t;
            if (window <= WIDE && p + 1 + WIDE <= n) {  // copies more than needed: the next window overwrites it
                const int32_t *x = ids + p - before, *y = ids + p + 1;
                for (int j = 0; j < WIDE; j++) target[t + j] = x[j];
                t += before;
                for (int j = 0; j < WIDE; j++) target[t + j] = y[j];
                t += after;
            } else {
                for (int64_t j = p - before; j < p; j++) target[t++] = ids[j];
                for (int64_t j = p + 1; j <= p + after; j++) target[t++] = ids[j];
            }
            c += before + after > 0;
        }
    }
    start[c] = t;
    counts[0] = c;
    counts[1] = t;
    return OK;
}

// out = value[c] for each pair of window c, the pairs start[c] to start[c + 1].
extern "C" EMBTRAIN_API int embtrain_repeat_by_window(const int64_t* start, const int64_t* value, int64_t n,
                                                      int64_t* out) {
    for (int64_t c = 0; c < n; c++)
        for (int64_t p = start[c]; p < start[c + 1]; p++) out[p] = value[c];
    return OK;
}
