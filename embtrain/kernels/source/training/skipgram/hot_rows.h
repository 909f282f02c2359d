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
constexpr int64_t GROUP = 8;  // rows that are listed at once

class HotRows {
public:
    int64_t n = 0;  // rows b < n have copies; 0 if only one thread writes

    // `uses`: row updates of the whole call; `most`: the largest number of ids passed to `list` at once.
    void make(Scratch& scratch, const SkipGramTask& t, int64_t uses, int64_t most) {
        task = &t;
        if (!t.concurrent) return;
        n = std::min({HOT, t.n_v, uses / MIN_USES_PER_COPY});
        copy = scratch.take<float>(n * t.v_stride);
        base = scratch.take<float>(n * t.v_stride);
        if (t.v_acc) { acc = scratch.take<float>(n); acc_base = scratch.take<float>(n); }
        uses_left = scratch.take<int32_t>(n);
        hot_scratch = scratch.take<int32_t>(most + GROUP);
    }

    // Write the ids of rows b, and the addresses at which to update them, each once. Called between units, in their
    // order. Up to GROUP entries beyond m are written.
    void list(const int64_t* b, int64_t m, float** to, int32_t* ids) {
        float* const v = task->v;
        int32_t* const hot_ids = hot_scratch;
        const int64_t stride = task->v_stride, end = n, copy_shift = (intptr_t)copy - (intptr_t)v;
        int64_t count = 0;
#if defined(__AVX512F__)
        // A loop over a few ids takes most of its time at its ends, so whole vectors are written.
        const __m512i table = _mm512_set1_epi64((int64_t)v);
        const __m512i bytes = _mm512_set1_epi64(stride * (int64_t)sizeof(float));
        for (int64_t i = 0; i < m; i += GROUP) {
            const __mmask8 use = (__mmask8)((1u << std::min(GROUP, m - i)) - 1);
            const __m512i id = _mm512_maskz_loadu_epi64(use, b + i);
            const __m256i narrow = _mm512_maskz_cvtepi64_epi32(use, id);
            const __m512i row = _mm512_add_epi64(table, _mm512_maskz_mul_epu32(use, id, bytes));  // both are below 2^31
            const __mmask8 hot = _mm512_mask_cmplt_epi64_mask(use, id, _mm512_set1_epi64(end));
            _mm512_storeu_si512(to + i, _mm512_mask_add_epi64(row, hot, row, _mm512_set1_epi64(copy_shift)));
            _mm256_storeu_si256((__m256i*)(ids + i), narrow);
            if (end == 0) continue;
            _mm256_storeu_si256((__m256i*)(hot_ids + count), _mm256_maskz_compress_epi32(hot, narrow));
            count += __builtin_popcount(hot);
        }
#else
        for (int64_t i = 0; i < m; ++i) ids[i] = (int32_t)b[i];
        if (end == 0) for (int64_t i = 0; i < m; ++i) to[i] = v + b[i] * stride;
        else for (int64_t i = 0; i < m; ++i) {             // branch-free: which rows are hot is unpredictable
            const int64_t hot = (b[i] - end) >> 63;        // -1 or 0
            to[i] = (float*)((intptr_t)(v + b[i] * stride) + (copy_shift & hot));
            hot_ids[count] = (int32_t)b[i];
            count -= hot;
        }
#endif
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
    int32_t *hot_scratch = nullptr;   // scratch of `list`

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
