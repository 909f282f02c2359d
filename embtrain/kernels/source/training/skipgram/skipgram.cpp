// The door's two calls: check every id and offset, then update a range of windows. See update.h.
#include "core/core.h"
#include "training/skipgram/skipgram_block.h"
#include "training/skipgram/skipgram_window.h"

namespace {

// Whether all of n ids lie in [0, size): the sign of id | (size-1-id) tells, without a branch.
bool inside(const int64_t* id, int64_t n, int64_t size) {
    uint64_t bad = 0;
    for (int64_t i = 0; i < n; ++i) bad |= (uint64_t)id[i] | ((uint64_t)size - 1 - (uint64_t)id[i]);
    return (int64_t)bad >= 0;
}

bool rising(const int64_t* x, int64_t n, int64_t by) {
    bool good = true;
    for (int64_t i = 0; i + 1 < n; ++i) good &= x[i] <= x[i + 1] - by;
    return good;
}

}  // namespace

extern "C" EMBTRAIN_API int embtrain_update_check(const UpdateTask* task) {
    const UpdateTask& t = *task;
    const bool good = t.start[0] == 0 && t.start[t.n_windows] == t.n_pairs && rising(t.start, t.n_windows + 1, 1)
        && inside(t.centre, t.n_windows, t.n_u) && inside(t.target, t.n_pairs, t.n_v)
        && inside(t.ids, t.n_draws * t.k, t.n_v)
        && (t.n_right == 0 || (inside(t.right, t.n_right, t.n_pairs) && rising(t.right, t.n_right, 0)
                               && inside(t.right + t.n_right, t.n_right, t.k)));
    return good ? OK : OUT_OF_RANGE;
}

// Windows [first, last), of whole draws. The task was checked.
extern "C" EMBTRAIN_API int embtrain_update(const UpdateTask* task, int64_t first, int64_t last, double* loss,
                                            double* c_grad) {
    const UpdateTask& t = *task;
    const int64_t unit = t.share > 1 ? t.share : 1;
    int64_t most_pairs = 0;  // of a window
    for (int64_t i = first; i < last; ++i) {
        const int64_t m = t.start[i + 1] - t.start[i];
        most_pairs = m > most_pairs ? m : most_pairs;
    }
    if (unit > 1) {
        int64_t most_of_block = 0;
        for (int64_t i = first; i < last; i += unit) {
            const int64_t m = t.start[i + unit < last ? i + unit : last] - t.start[i];
            most_of_block = m > most_of_block ? m : most_of_block;
        }
        BlockUpdate block(t, most_pairs, most_of_block, first, last);
        if (!block.ok()) return NO_MEMORY;
        *loss = block.range(first, last, c_grad);
    } else {
        WindowUpdate window(t, most_pairs, first, last);
        if (!window.ok()) return NO_MEMORY;
        *loss = window.range(first, last, c_grad);
    }
    return OK;
}
