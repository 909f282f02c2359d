// The stream of coming rows, so that they can be prefetched.
#pragma once

#include "training/skipgram/hot_rows.h"

namespace {

// Rows between the current row and the one prefetched EARLY; 32 and 128 were slower. A window of more negatives is
// prefetched as a whole: `dots` prefetches one half of a row and `move` the other, which is too late for rows of the
// same window.
constexpr int64_t LEAD = 64, MOST_LEAD = 128, TARGETS = 8;
// Cache lines between the current row and the one prefetched NEAR. Longer rows were faster if prefetched EARLY.
constexpr int64_t NEAR_LINES = 112, LONGEST_NEAR = 128;
constexpr int64_t IDS_AHEAD = 256;  // ids between the listed and the prefetched ones
constexpr int64_t WINDOWS_AHEAD = 64;  // windows between the listed one and those whose centre and start are prefetched

// The rows of the next block, prefetched in equal parts during the work on this one.
class NextRows {
public:
    bool make(Scratch& scratch, int64_t most, int64_t n_floats) {
        row = scratch.take<float*>(most);
        recent = scratch.take<int64_t>(RECENT);
        dim = n_floats;
        return scratch.ok;
    }

    void clear() { n = next = 0; }

    void add(float* p) { row[n++] = p; }

    // The same unless row `id` was added shortly before: it is still in a near cache.
    void add_once(float* p, int64_t id) {
        int64_t& last = recent[id & (RECENT - 1)];
        row[n] = p;
        n += last != id;
        last = id;
    }

    // Prefetch all rows in `calls` calls of `prefetch_lines`.
    void divide(int64_t calls) { quota = (n + calls - 1) / calls; }

    void prefetch_lines() {
        for (const int64_t stop = std::min(next + quota, n); next < stop; ++next)
            for (int64_t d = 0; d < dim; d += 16) prefetch_early(row[next] + d);
    }

private:
    static constexpr int64_t RECENT = 128;
    float** row = nullptr;
    int64_t* recent = nullptr;
    int64_t n = 0, next = 0, quota = 0, dim = 0;
};

// The rows of the coming windows in order: a window's centre, targets and negatives.
class RowStream {
public:
    float** row = nullptr;     // from the current window on
    int32_t* id = nullptr;

    bool make(Scratch& scratch, const SkipGramTask& t, int64_t max_pairs, int64_t most_columns, int64_t first,
              int64_t last, HotRows& hot, Prefetch kind) {
        task = &t;
        hot_rows = &hot;
        max_window = max_pairs + 1 + most_columns;
        if (Shift(t).drawn && t.log_q == nullptr) log_q = t.log_q_table;
        if (kind == Prefetch::NEAR) lead = NEAR_LINES * LINE_FLOATS / round_up(t.dim, LINE_FLOATS);
        else lead = t.share == 0 ? LEAD : std::clamp(t.k + TARGETS, LEAD, MOST_LEAD);
        size = 4 * (lead + 2 * max_window) + 256;
        row = rows = scratch.take<float*>(size + GROUP);
        id = ids = scratch.take<int32_t>(size + GROUP);
        next = first;
        end = last;
        return scratch.ok;
    }

    // Fill the queue with the current window and `lead` rows beyond it.
    void fill() {
        while (tail - head < lead + max_window) {
            if (tail + max_window > size) {
                std::memmove(rows, rows + head, (size_t)(tail - head) * sizeof(float*));
                std::memmove(ids, ids + head, (size_t)(tail - head) * sizeof(int32_t));
                tail -= head;
                head = 0;
            }
            if (next == end) rows[tail++] = task->v;          // nothing left to prefetch
            else window(next++);
        }
        row = rows + head;
        id = ids + head;
    }

    void advance(int64_t n) { head += n; }
    float* const* ahead() const { return row + lead; }

private:
    const SkipGramTask* task = nullptr;
    HotRows* hot_rows = nullptr;
    float** rows = nullptr;
    int32_t* ids = nullptr;
    const float* log_q = nullptr;  // the table that `Shift::columns` reads, larger than the near caches; or null
    int64_t lead = LEAD, head = 0, tail = 0, size = 0, max_window = 0, next = 0, end = 0;

    // The arrays of ids are larger than the near caches, and a late id delays the prefetch of its row.
    static void prefetch_ids(const int64_t* b, int64_t n) {
        for (int64_t i = 0; i < n; i += 8) __builtin_prefetch(b + IDS_AHEAD + i);
    }

    void list(const int64_t* b, int64_t n) {
        hot_rows->list(b, n, rows + tail, ids + tail);
        tail += n;
    }

    void window(int64_t i) {
        const SkipGramTask& t = *task;
        const int64_t begin = t.start[i], m = t.start[i + 1] - begin, n = t.share ? t.k : m * t.k;
        const int64_t* column = t.ids + (t.share ? i : begin) * t.k;
        // of a pooled centre its first row; pooled_centres.h prefetches the others
        const int64_t row = t.pool_start == nullptr ? t.centre[i] : t.pool_row[t.pool_start[t.centre[i]]];
        rows[tail++] = t.u + row * t.u_stride;
        __builtin_prefetch(t.start + i + WINDOWS_AHEAD);
        __builtin_prefetch(t.centre + i + WINDOWS_AHEAD);
        prefetch_ids(t.target + begin, m);
        prefetch_ids(column, n);
        list(t.target + begin, m);
        list(column, n);
        if (log_q) for (int64_t j = 0; j < n; ++j) prefetch_early(log_q + column[j]);
    }
};

}  // namespace
