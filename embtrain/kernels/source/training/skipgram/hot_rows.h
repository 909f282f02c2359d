// Per-thread copies of the rows that all threads write, for PAIR and CENTRE.
//
// A cache line written by two cores moves between their caches, and a frequent word is drawn again before its row
// arrives. A thread therefore updates its own copy of a frequent word's row. Every MAX_USES uses, and at the end, it adds its
// change to the table and reads the changes of the others:
//
//   table += copy - base      copy = base = table
#pragma once

#include <algorithm>

#include "training/skipgram/scratch.h"

namespace {

constexpr int64_t HOT = 256;   // rows with copies: the first of v, because vocabularies are sorted by frequency
constexpr int32_t MAX_USES = 16;  // uses between two exchanges
constexpr int64_t MIN_USES_PER_COPY = 64;  // uses per copy that pay for the exchanges

class HotRows {
public:
    int64_t n = 0;  // rows b < n have copies; 0 if only one thread writes

    // `uses`: row updates of the whole call; `most`: the largest number of ids passed to `rows` at once.
    void make(Scratch& scratch, const SkipGramTask& t, int64_t uses, int64_t most) {
        task = &t;
        if (!t.concurrent) return;
        n = std::min({HOT, t.n_v, uses / MIN_USES_PER_COPY});
        copy = scratch.take<float>(n * t.v_stride);
        base = scratch.take<float>(n * t.v_stride);
        if (t.v_acc) { acc = scratch.take<float>(n); acc_base = scratch.take<float>(n); }
        uses_left = scratch.take<int32_t>(n);
        hot_scratch = scratch.take<int32_t>(most);
    }

    // The addresses at which to update rows b, each once. Called between units, in their order.
    void rows(const int64_t* b, int64_t m, float** to) {
        float* const v = task->v;
        const int64_t stride = task->v_stride, end = n, copy_shift = (intptr_t)copy - (intptr_t)v;
        int32_t* const hot_ids = hot_scratch;
        int64_t count = 0;
        for (int64_t i = 0; i < m; ++i) {                  // branch-free: which rows are hot is unpredictable
            const int64_t hot = (b[i] - end) >> 63;        // -1 or 0
            to[i] = (float*)((intptr_t)(v + b[i] * stride) + (copy_shift & hot));
            hot_ids[count] = (int32_t)b[i];
            count -= hot;
        }
        for (int64_t i = 0; i < count; ++i)
            if (--uses_left[hot_ids[i]] < 2) refresh(hot_ids[i]);
    }

    // The row-Adagrad sum of row b.
    float* acc_of(int64_t b) const { return b < n ? acc + b : task->v_acc + b; }

    void flush() {
        for (int64_t b = 0; b < n; ++b)
            if (uses_left[b] > 0) exchange(b);
    }

private:
    const SkipGramTask* task = nullptr;
    // 0 at first, so that the first exchange copies the row
    float *copy = nullptr, *base = nullptr, *acc = nullptr, *acc_base = nullptr;
    int32_t *uses_left = nullptr;  // uses until the next exchange; 0: not copied yet
    int32_t *hot_scratch = nullptr;   // scratch of `rows`

    __attribute__((noinline)) void refresh(int64_t b) {
        float* const row = task->v + b * task->v_stride;
        if (uses_left[b] == 1) {                                // the next use exchanges it
            for (int64_t d = 0; d < task->dim; d += 16) prefetch(row + d);
            return;
        }
        exchange(b);
        uses_left[b] = MAX_USES;
    }

    void exchange(int64_t b) {
        const int64_t offset = b * task->v_stride;
        exchange(task->v + offset, copy + offset, base + offset, task->dim);
        if (acc) exchange(task->v_acc + b, acc + b, acc_base + b, 1);
    }

    // In this order of the sums the table gets the exact bits of the copy if no other thread wrote.
    static void exchange(float* table, float* copy, float* base, int64_t n) {
        for (int64_t d = 0; d < n; ++d) base[d] = copy[d] = table[d] = copy[d] + (table[d] - base[d]);
    }
};

}  // namespace
