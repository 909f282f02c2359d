// A thread's own copies of the rows that all threads write, for PAIR and CENTRE.
//
// A line that two cores write goes back and forth between their caches, and a frequent word is drawn again before its
// row is there. So a thread moves a copy of such a row. Every TURNS uses, and at the end, it passes on what it has added
// and takes what others have:
//
//   table += copy - base      copy = base = table
#pragma once

#include <algorithm>

#include "training/skipgram/scratch.h"

namespace {

constexpr int64_t HOT = 256;   // rows with copies, the first of v, as vocabularies are sorted
constexpr int32_t MAX_USES = 16;  // uses that the others do not see yet, at most
constexpr int64_t MIN_USES_PER_COPY = 64;  // rows that a call uses for each copy: taking and giving back is work too

class HotRows {
public:
    int64_t n = 0;  // rows b < n have copies; none where one thread writes alone

    // `uses`: rows that the call moves in all; `most`: that `rows` is asked for at once.
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

    // Where rows b are to be moved, once each. Asked between units, and in their order.
    void rows(const int64_t* b, int64_t m, float** to) {
        float* const v = task->v;
        const int64_t stride = task->v_stride, end = n, copy_shift = (intptr_t)copy - (intptr_t)v;
        int32_t* const hot_ids = hot_scratch;
        int64_t count = 0;
        for (int64_t i = 0; i < m; ++i) {                  // no branch: which rows are hot cannot be foretold
            const int64_t hot = (b[i] - end) >> 63;        // -1 or 0
            to[i] = (float*)((intptr_t)(v + b[i] * stride) + (copy_shift & hot));
            hot_ids[count] = (int32_t)b[i];
            count -= hot;
        }
        for (int64_t i = 0; i < count; ++i)
            if (--uses_left[hot_ids[i]] < 2) refresh(hot_ids[i]);
    }

    // Row-Adagrad's sum of row b.
    float* acc_of(int64_t b) const { return b < n ? acc + b : task->v_acc + b; }

    void flush() {
        for (int64_t b = 0; b < n; ++b)
            if (uses_left[b] > 0) exchange(b);
    }

private:
    const SkipGramTask* task = nullptr;
    // 0 at first: the first exchange takes
    float *copy = nullptr, *base = nullptr, *acc = nullptr, *acc_base = nullptr;
    int32_t *uses_left = nullptr;  // uses until the next exchange; 0: none yet
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

    // Summed in this order the table gets the copy's very bits where nobody else wrote.
    static void exchange(float* table, float* copy, float* base, int64_t n) {
        for (int64_t d = 0; d < n; ++d) base[d] = copy[d] = table[d] = copy[d] + (table[d] - base[d]);
    }
};

}  // namespace
