// Pooled centres: the vector of a word is the sum, or the mean, of several rows of u.
//
//   h = scale Σ_r u_r      scale: 1, or 1 / n for the mean over the n rows of the word
//   u_r -= rate_r m_r ∂L/∂h      m_r: times that row r occurs in the word
//
// Under the mean the rows receive the gradient of the mean itself, not 1 / n of it, as in fastText: otherwise a row
// would learn more slowly in long words. The rows of the next window or block are prefetched
// meanwhile.
#pragma once

#include <algorithm>
#include <type_traits>

#include "training/skipgram/scratch.h"

namespace {

constexpr int POOL_CHUNK = 8;  // vectors of h that stay in registers over all rows

// Call chunk(C, d) for C vectors at offset d until fewer than W floats are left. Returns their offset.
template <class Chunk>
inline int64_t in_chunks(int64_t dim, Chunk chunk) {
    int64_t d = 0;
    for (; d + POOL_CHUNK * W <= dim; d += POOL_CHUNK * W) chunk(std::integral_constant<int, POOL_CHUNK>{}, d);
    switch ((dim - d) / W) {
        case 7: chunk(std::integral_constant<int, 7>{}, d); break;
        case 6: chunk(std::integral_constant<int, 6>{}, d); break;
        case 5: chunk(std::integral_constant<int, 5>{}, d); break;
        case 4: chunk(std::integral_constant<int, 4>{}, d); break;
        case 3: chunk(std::integral_constant<int, 3>{}, d); break;
        case 2: chunk(std::integral_constant<int, 2>{}, d); break;
        case 1: chunk(std::integral_constant<int, 1>{}, d); break;
    }
    return dim / W * W;
}

class PooledCentres {
public:
    void make(Scratch& scratch, const SkipGramTask& task, int64_t unit, int64_t first, int64_t last) {
        t = &task;
        end = last;
        if (!is_active()) return;
        int64_t max_rows = 0, max_unit_rows = 0;
        for (int64_t i = first; i < last; i += unit) {
            int64_t total = 0;
            for (int64_t j = i; j < i + unit && j < last; ++j) {
                total += n_rows(j);
                max_rows = std::max(max_rows, n_rows(j));
            }
            max_unit_rows = std::max(max_unit_rows, total);
        }
        vector = scratch.take<float>(t->dim);
        row = scratch.take<float*>(max_rows);
        next_row = scratch.take<float*>(max_rows);
        step_of = scratch.take<float>(max_rows);
        id = scratch.take<int32_t>(max_unit_rows);
        if (t->u_acc == nullptr) {
            std::fill(step_of, scratch.ok ? step_of + max_rows : step_of, (float)t->lr);
            return;
        }
        window = scratch.take<int32_t>(max_unit_rows);
        next_entry = scratch.take<int32_t>(max_unit_rows);
        last_entry = scratch.take<int32_t>(max_unit_rows);
        slope = scratch.take<float>(max_unit_rows);
        gradient = scratch.take<const float*>(max_unit_rows);
        sum = scratch.take<float>(t->dim);
        mean_square = scratch.take<float>(std::min(unit, task.n_windows));
        seen.make(scratch, max_unit_rows);
        for (int64_t e = 0; scratch.ok && e < max_unit_rows; ++e) slope[e] = 1.f;
    }

    bool is_active() const { return t->pool_start != nullptr; }

    // Prefetch the rows of window i in the following `passes` calls of `pool` and `move`, each over about n rows.
    void prefetch_window(int64_t i, int64_t n, int64_t passes) {
        queue = {};
        if (i >= end) return;
        const int64_t* ids = rows_of(i);
        queue.rows = n_rows(i);
        for (int64_t r = 0; r < queue.rows; ++r) next_row[r] = t->u + ids[r] * t->u_stride;
        queue.row = next_row;
        queue.dim = t->dim;
        const int64_t chunks = (t->dim / W + POOL_CHUNK - 1) / POOL_CHUNK;
        queue.quota = queue.rows * ((t->dim + 15) / 16) / std::max<int64_t>(1, n * chunks * passes) + 1;
    }

    int64_t n_rows(int64_t i) const { return t->pool_start[t->centre[i] + 1] - t->pool_start[t->centre[i]]; }

    // The vector of the centre of window i. Returns a buffer that the next call overwrites.
    float* pool(int64_t i) {
        pool(i, vector);
        return vector;
    }

    void pool(int64_t i, float* out) {
        const int64_t n = read_rows(i);
        const float scale = t->pool_mean ? 1.f / (float)n : 1.f;
        int64_t d = in_chunks(t->dim, [&](auto count, int64_t at) INLINE {
            constexpr int C = decltype(count)::value;
            vec y[C] = {};
            for (int64_t r = 0; r < n; ++r) {
                queue.prefetch_lines();
                UNROLL for (int c = 0; c < C; ++c) y[c] += load(row[r] + at + c * W);
            }
            UNROLL for (int c = 0; c < C; ++c) store(out + at + c * W, splat(scale) * y[c]);
        });
        for (; d + 4 <= t->dim; d += 4) {
            half y = {};
            for (int64_t r = 0; r < n; ++r) y += load_half(row[r] + d);
            store_half(out + d, scale * y);
        }
        for (; d < t->dim; ++d) {
            float y = 0;
            for (int64_t r = 0; r < n; ++r) y += row[r][d];
            out[d] = scale * y;
        }
    }

    // Update the rows of n windows by the gradients g (n, g_stride) of their vectors, each row once. Window i is left
    // out unless first_centre, if given, contains i at i.
    void move(int64_t first, int64_t n, const float* g, int64_t g_stride, const int32_t* first_centre) {
        if (t->u_acc == nullptr) {
            for (int64_t i = 0; i < n; ++i) {  // gradients of a repeated row add up in any order
                if (n > 1) prefetch_window(first + n + i, n_rows(first + i), 1);
                if (first_centre == nullptr || first_centre[i] == i) move_rows(read_rows(first + i), g + i * g_stride);
                else queue.prefetch_all();
            }
            return;
        }
        const int64_t entries = read_entries(first, n, first_centre);
        for (int64_t i = 0; i < n; ++i) mean_square[i] = square(g + i * g_stride, t->dim) / (float)t->dim;
        if (n == 1 && differ(id, entries)) {
            for (int64_t r = 0; r < entries; ++r) step_of[r] = rate(*t, t->u_acc + id[r], mean_square[0]);
            move_rows(read_rows(first), g);
        } else {
            link_entries(entries);
            for (int64_t e = 0; e < entries; ++e) {
                const int64_t i = window[e];
                if (n > 1 && (e == 0 || window[e - 1] != i)) prefetch_window(first + n + i, n_rows(first + i), 1);
                queue.prefetch_lines();
                move_entry(e, g, g_stride);
            }
        }
    }

private:
    const SkipGramTask* t = nullptr;
    int64_t end = 0;
    float *vector = nullptr, *step_of = nullptr;
    float **row = nullptr, **next_row = nullptr;
    PrefetchQueue queue;
    // Row-Adagrad: the rows of a unit, linked if they repeat
    Seen seen;
    int32_t *id = nullptr, *window = nullptr, *next_entry = nullptr, *last_entry = nullptr;
    float *slope = nullptr, *sum = nullptr, *mean_square = nullptr;
    const float** gradient = nullptr;

    const int64_t* rows_of(int64_t i) const { return t->pool_row + t->pool_start[t->centre[i]]; }

    int64_t read_rows(int64_t i) {
        const int64_t n = n_rows(i);
        const int64_t* ids = rows_of(i);
        for (int64_t r = 0; r < n; ++r) row[r] = t->u + ids[r] * t->u_stride;
        return n;
    }

    // row_r -= step_r g for the n rows of `read_rows`
    void move_rows(int64_t n, const float* g) {
        int64_t d = in_chunks(t->dim, [&](auto count, int64_t at) INLINE {
            constexpr int C = decltype(count)::value;
            vec x[C];
            UNROLL for (int c = 0; c < C; ++c) x[c] = load(g + at + c * W);
            for (int64_t r = 0; r < n; ++r) {
                queue.prefetch_lines();
                const vec a = splat(step_of[r]);
                UNROLL for (int c = 0; c < C; ++c) store(row[r] + at + c * W, load(row[r] + at + c * W) - a * x[c]);
            }
        });
        for (; d + 4 <= t->dim; d += 4) {
            const half x = load_half(g + d);
            for (int64_t r = 0; r < n; ++r) store_half(row[r] + d, load_half(row[r] + d) - step_of[r] * x);
        }
        for (; d < t->dim; ++d)
            for (int64_t r = 0; r < n; ++r) row[r][d] -= step_of[r] * g[d];
    }

    int64_t read_entries(int64_t first, int64_t n, const int32_t* first_centre) {
        int64_t entries = 0;
        for (int64_t i = 0; i < n; ++i) {
            if (first_centre != nullptr && first_centre[i] != i) continue;
            const int64_t count = n_rows(first + i);
            const int64_t* ids = rows_of(first + i);
            for (int64_t r = 0; r < count; ++r, ++entries) {
                id[entries] = (int32_t)ids[r];
                window[entries] = (int32_t)i;
            }
        }
        return entries;
    }

    // Lists of the entries with the same row, from the first one. last_entry is -1 except at the first.
    void link_entries(int64_t entries) {
        seen.clear();
        for (int64_t e = 0; e < entries; ++e) {
            const int32_t head = seen.put(id[e], (int32_t)e);
            next_entry[e] = -1;
            last_entry[e] = -1;
            if (head != e) next_entry[last_entry[head]] = (int32_t)e;
            last_entry[head] = (int32_t)e;
        }
    }

    void move_entry(int64_t e, const float* g, int64_t g_stride) {
        if (last_entry[e] < 0) return;
        if (last_entry[e] == e) {
            const float a = rate(*t, t->u_acc + id[e], mean_square[window[e]]);
            add(t->u + id[e] * t->u_stride, -a, g + window[e] * g_stride, t->dim);
            return;
        }
        int64_t count = 0;
        for (int64_t other = e; other >= 0; other = next_entry[other]) gradient[count++] = g + window[other] * g_stride;
        std::memset(sum, 0, (size_t)t->dim * sizeof(float));
        collect(gradient, slope, count, sum, t->dim);
        step(*t, t->u, t->u_stride, t->u_acc, id[e], sum);
    }
};

}  // namespace
