// Scratch memory, detection of repeated rows in a unit, and masked negatives.
#pragma once

#include <cstdlib>

#include "training/losses.h"
#include "training/rows.h"

namespace {

// Scratch memory of one call, freed at the end; `ok` is false if memory is exhausted.
class Scratch {
public:
    bool ok = true;

    template <class T>
    T* take(int64_t n) {
        if (count == MOST) { ok = false; return nullptr; }
        const size_t bytes = (size_t)round_up((n + 16) * (int64_t)sizeof(T), 64);
        void* p = std::aligned_alloc(64, bytes);
        if (p == nullptr) { ok = false; return nullptr; }
        std::memset(p, 0, bytes);  // lanes past the end enter computations, so they must hold numbers
        return (T*)(pieces[count++] = p);
    }

    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() { for (int i = 0; i < count; ++i) std::free(pieces[i]); }

private:
    static constexpr int MOST = 96;
    void* pieces[MOST];
    int count = 0;
};

// A hash map from an id to its first place in a list: open addressing, cleared by incrementing `now`.
class Seen {
public:
    bool make(Scratch& scratch, int64_t n) {
        int64_t size = 64;
        while (size < 2 * n) size *= 2;
        mask = (uint32_t)(size - 1);
        cell = scratch.take<Cell>(size);
        return scratch.ok;
    }

    void clear() {
        if (++now == 0) {  // once in 2^32 units
            std::memset(cell, 0, ((size_t)mask + 1) * sizeof(Cell));
            now = 1;
        }
    }

    // The place stored with `id`, or `place` itself if the id is new.
    int32_t put(int32_t id, int32_t place) {
        for (uint32_t i = ((uint32_t)id * 2654435769u >> 7) & mask;; i = (i + 1) & mask) {
            if (cell[i].when != now) { cell[i] = {now, id, place}; return place; }
            if (cell[i].id == id) return cell[i].place;
        }
    }

private:
    struct Cell { uint32_t when; int32_t id, place; };
    Cell* cell = nullptr;
    uint32_t mask = 0, now = 0;
};

// Whether n ids are all different. W more must be readable.
inline bool differ(const int32_t* id, int64_t n) {
    ivec same = {};
    for (int64_t i = 0; i + 1 < n; ++i) {
        ivec x = splat(id[i]);
        for (int64_t j = i + 1; j < n; j += W) same |= (load(id + j) == x) & (lanes() < splat((int32_t)(n - j)));
    }
    return !any(same);
}

// The masked negatives of consecutive pairs.
class ColumnMask {
public:
    // `next`: the first entry of false_negatives at or after this pair
    ColumnMask(const SkipGramTask& t, int64_t begin) : task(t) {
        int64_t low = 0, high = t.n_false_negatives;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (t.false_negatives[middle] < begin) low = middle + 1; else high = middle;
        }
        next = low;
    }

    // Whether a pair before `end` has an entry in false_negatives.
    bool has_before(int64_t end) const { return next < task.n_false_negatives && task.false_negatives[next] < end; }

    // Write the masked negatives of pairs [begin, end) to `hit`, in order; returns their number. check_targets:
    // negatives may equal targets. Each pair has at most k hits; `hit` has room for m·k and the false negatives.
    int64_t find(int64_t begin, int64_t end, const int64_t* ids, bool per_pair, bool check_targets, Hit* hit) {
        int64_t n = 0;
        check_targets = check_targets && task.mask_target;
        if (!check_targets && !has_before(end)) return 0;
        for (int64_t p = begin; p < end; ++p) {
            const int64_t* column = per_pair ? ids + (p - begin) * task.k : ids;
            const int64_t from = next;
            while (next < task.n_false_negatives && task.false_negatives[next] == p) ++next;
            if (from == next && !(check_targets && contains(column, task.k, task.target[p]))) continue;
            for (int64_t j = 0; j < task.k; ++j) {
                bool out = check_targets && column[j] == task.target[p];
                for (int64_t r = from; r < next && !out; ++r) out =
                    task.false_negatives[task.n_false_negatives + r] == j;
                if (out) hit[n++] = {(int32_t)(p - begin), (int32_t)j};
            }
        }
        return n;
    }

private:
    const SkipGramTask& task;
    int64_t next;

    static bool contains(const int64_t* ids, int64_t n, int64_t id) {
        int64_t found = 0;
        for (int64_t j = 0; j < n; ++j) found |= ids[j] == id;  // without a branch, in vectors
        return found != 0;
    }
};

// The correction subtracted from scores: c + log(total_weight·q), or the part of it that the loss needs.
struct Shift {
    bool target, drawn;   // whether the loss corrects targets, negatives
    float log_mass;

    explicit Shift(const SkipGramTask& t)
        : target(t.loss == NCE || t.loss == ALPHA_NCE || (t.loss == SAMPLED_SOFTMAX && t.ranking)),
          drawn(t.loss == NCE || t.loss == ALPHA_NCE || t.loss == SAMPLED_SOFTMAX),
          log_mass(t.loss == NCE || (t.loss == SAMPLED_SOFTMAX && !t.ranking) ? (float)std::log(t.total_weight)
                   : 0.f) {}

    static float c(const SkipGramTask& t, int64_t centre) { return t.c == nullptr ? 0.f
        : t.c[t.c_stride ? centre : 0]; }

    void targets(const SkipGramTask& t, int64_t pair, int64_t n, float c, float* out) const {
        if (!target) return;
        if (t.log_q_target) write(t.log_q_target + pair, n, c, out);
        else for (int64_t i = 0; i < n; ++i) out[i] = c + (log_mass + t.log_q_table[t.target[pair + i]]);
    }

    // n negatives from index first_id of (n_draws, k)
    void columns(const SkipGramTask& t, int64_t first_id, int64_t n, float c, float* out) const {
        if (!drawn) return;
        if (t.log_q) write(t.log_q + first_id, n, c, out);
        else for (int64_t i = 0; i < n; ++i) out[i] = c + (log_mass + t.log_q_table[t.ids[first_id + i]]);
    }

private:
    static constexpr int64_t AHEAD = 128;                  // numbers between those read and the prefetched ones

    void write(const float* log_q, int64_t n, float c, float* out) const {
        __builtin_prefetch(log_q + AHEAD);
        for (int64_t i = 0; i < n; i += W) {
            const int64_t m = std::min<int64_t>(n - i, W);
            store_first(out + i, splat(c) + (splat(log_mass) + load_first(log_q + i, m)), m);
        }
    }
};

}  // namespace
