// Per-thread copies of the rows that all threads write, for PAIR and CENTRE.
//
// A cache line written by two cores moves between their caches, and a frequent word is drawn again before its row
// arrives. A thread therefore updates its own copy of a frequent word's row. Every `max_uses` uses, and at the end, it
// adds its change to the table and reads the changes of the others:
//
//   table += copy - base      copy = base = table
#pragma once

#include <algorithm>

#include "training/skipgram/scratch.h"

namespace {

constexpr int64_t HOT = 256;   // rows with copies: the first of v, because vocabularies are sorted by frequency
constexpr int64_t ALL_USES = 128;  // uses of a row between two exchanges, in all threads together,
constexpr int64_t MIN_USES = 16;   // and the least in one thread
constexpr int64_t MIN_USES_PER_COPY = 64;  // uses per copy that pay for the exchanges
constexpr int64_t GROUP = 8;  // rows that are listed at once
constexpr int64_t PENDING = 64;  // uses that are counted at once: a loop over fewer takes most of its time at its end

class HotRows {
public:
    int64_t n = 0;  // rows b < n have copies; 0 if only one thread writes

    // `uses`: row updates of the whole call; `most`: the largest number of ids passed to `list` at once.
    void make(Scratch& scratch, const SkipGramTask& t, int64_t uses, int64_t most) {
        task = &t;
        if (t.threads < 2) return;
        const int64_t rows = std::min({HOT, t.n_v, uses / MIN_USES_PER_COPY});
        max_uses = (int32_t)std::max(ALL_USES / t.threads, MIN_USES);
        copy = scratch.take<float>(rows * t.v_stride);
        base = scratch.take<float>(rows * t.v_stride);
        if (t.v_acc) { acc = scratch.take<float>(rows); acc_base = scratch.take<float>(rows); }
        uses_left = scratch.take<int32_t>(rows);
        pending = scratch.take<int32_t>(PENDING + most + GROUP);
        if (!scratch.ok) return;
        for (; n < rows; ++n) {
            const int64_t offset = n * t.v_stride;
            std::memcpy(base + offset, t.v + offset, (size_t)t.dim * sizeof(float));
            std::memcpy(copy + offset, base + offset, (size_t)t.dim * sizeof(float));
            if (acc) acc[n] = acc_base[n] = t.v_acc[n];
            uses_left[n] = max_uses;
        }
    }

    // Write the ids of rows b, and the addresses at which to update them, each once. Called between units, in their
    // order. Up to GROUP entries beyond m are written.
    void list(const int64_t* b, int64_t m, float** to, int32_t* ids) {
        float* const v = task->v;
        int32_t* const hot_ids = pending;
        const int64_t stride = task->v_stride, end = n, copy_shift = (intptr_t)copy - (intptr_t)v;
        int64_t count = n_pending;
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
        n_pending = count;
        if (count >= PENDING) count_uses();
    }

    // The row-Adagrad sum of row b.
    float* acc_of(int64_t b) const { return b < n ? acc + b : task->v_acc + b; }

    void flush() {
        for (int64_t b = 0; b < n; ++b) exchange(b);
    }

private:
    const SkipGramTask* task = nullptr;
    float *copy = nullptr, *base = nullptr, *acc = nullptr, *acc_base = nullptr;
    int32_t max_uses = 0, *uses_left = nullptr;  // uses until the next exchange
    int64_t n_pending = 0;
    int32_t *pending = nullptr;  // ids of copies that were used and not counted yet

    __attribute__((noinline)) void count_uses() {
        for (int64_t i = 0; i < n_pending; ++i) {
            const int64_t b = pending[i], left = --uses_left[b];
            if (left > 1) continue;
            if (left == 1) {                                       // the next use exchanges it
                const float* const row = task->v + b * task->v_stride;
                for (int64_t d = 0; d < task->dim; d += 16) prefetch(row + d);
            } else {
                exchange(b);
                uses_left[b] = max_uses;
            }
        }
        n_pending = 0;
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
