// The two functions of the skip-gram wrapper: check every id and offset, then update a range of windows. See
// skipgram.h.
#include "core/core.h"
#include "training/skipgram/skipgram_block.h"
#include "training/skipgram/skipgram_window.h"

namespace {

bool is_rising(const int64_t* x, int64_t n, int64_t min_step) {
    bool is_valid = true;
    for (int64_t i = 0; i + 1 < n; ++i) is_valid &= x[i] <= x[i + 1] - min_step;
    return is_valid;
}

// Whether the rows of the centres are in u. Only the words that occur are read.
bool pools_are_within(const SkipGramTask& t) {
    bool is_valid = true;
    for (int64_t i = 0; i < t.n_windows && is_valid; ++i) {
        const int64_t begin = t.pool_start[t.centre[i]], end = t.pool_start[t.centre[i] + 1];
        is_valid = begin >= 0 && begin < end && end <= t.n_pool_rows
            && all_within(t.pool_row + begin, end - begin, t.n_u);
    }
    return is_valid;
}

template <Prefetch P>
int update_windows(const SkipGramTask& t, int64_t max_pairs, int64_t first, int64_t last, double* loss,
                   double* c_grad) {
    WindowUpdate<P> window(t, max_pairs, first, last);
    if (!window.ok()) return NO_MEMORY;
    *loss = window.range(first, last, c_grad);
    return OK;
}

}  // namespace

extern "C" EMBTRAIN_API int embtrain_skipgram_check(const SkipGramTask* task) {
    const SkipGramTask& t = *task;
    const bool is_valid = t.start[0] == 0 && t.start[t.n_windows] == t.n_pairs && is_rising(t.start, t.n_windows + 1, 1)
        && all_within(t.centre, t.n_windows, t.n_words) && all_within(t.target, t.n_pairs, t.n_v)
        && all_within(t.ids, t.n_draws * t.k, t.n_v)
        && (t.n_false_negatives == 0
            || (all_within(t.false_negatives, t.n_false_negatives, t.n_pairs)
                && is_rising(t.false_negatives, t.n_false_negatives, 0)
                && all_within(t.false_negatives + t.n_false_negatives, t.n_false_negatives, t.k)))
        && (t.pool_start == nullptr || pools_are_within(t));
    return is_valid ? OK : OUT_OF_RANGE;
}

// Update windows [first, last), which must be whole draws. The task must have been checked.
extern "C" EMBTRAIN_API int embtrain_skipgram_update(const SkipGramTask* task, int64_t first, int64_t last,
                                                     double* loss,
                                            double* c_grad) {
    const SkipGramTask& t = *task;
    const int64_t unit = t.share > 1 ? t.share : 1;
    int64_t max_pairs = 0;  // of one window
    for (int64_t i = first; i < last; ++i) {
        const int64_t m = t.start[i + 1] - t.start[i];
        max_pairs = m > max_pairs ? m : max_pairs;
    }
    if (unit > 1) {
        int64_t max_block_pairs = 0;
        for (int64_t i = first; i < last; i += unit) {
            const int64_t m = t.start[i + unit < last ? i + unit : last] - t.start[i];
            max_block_pairs = m > max_block_pairs ? m : max_block_pairs;
        }
        BlockUpdate block(t, max_pairs, max_block_pairs, first, last);
        if (!block.ok()) return NO_MEMORY;
        *loss = block.range(first, last, c_grad);
    } else {
        const bool is_near = t.prefetch_near && t.dim <= LONGEST_NEAR;
        const auto update = is_near ? update_windows<Prefetch::NEAR> : update_windows<Prefetch::EARLY>;
        return update(t, max_pairs, first, last, loss, c_grad);
    }
    return OK;
}
