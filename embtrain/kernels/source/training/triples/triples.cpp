// The two functions of the triples wrapper: check every id, then update a range of rows. See triples.h.
#include "core/core.h"
#include "training/triples/triples_private.h"
#include "training/triples/triples_shared.h"

namespace {

bool is_sorted(const int64_t* x, int64_t n) {
    bool is_valid = true;
    for (int64_t i = 0; i + 1 < n; ++i) is_valid &= x[i] <= x[i + 1];
    return is_valid;
}

template <template <int> class Update, int S>
int run(const TripleTask& t, int64_t first, int64_t last, double* loss, double* c_grad) {
    Update<S> update(t);
    if (!update.ok()) return NO_MEMORY;
    *loss = update.range(first, last, c_grad);
    return OK;
}

template <template <int> class Update>
int run_for_score(const TripleTask& t, int64_t first, int64_t last, double* loss, double* c_grad) {
    switch (t.score) {
        case L1: return run<Update, L1>(t, first, last, loss, c_grad);
        case L2: return run<Update, L2>(t, first, last, loss, c_grad);
        default: return run<Update, DOT>(t, first, last, loss, c_grad);
    }
}

}  // namespace

extern "C" EMBTRAIN_API int embtrain_triples_check(const TripleTask* task) {
    const TripleTask& t = *task;
    const bool is_valid = all_within(t.entity, t.n, t.n_e) && all_within(t.relation, t.n, t.n_r)
        && all_within(t.slot, t.n, 2)
        && all_within(t.target, t.n, t.n_e) && all_within(t.ids, t.n_draws * t.k, t.n_e)
        && (t.n_false_negatives == 0
            || (all_within(t.false_negatives, t.n_false_negatives, t.n)
                && is_sorted(t.false_negatives, t.n_false_negatives)
                               && all_within(t.false_negatives + t.n_false_negatives, t.n_false_negatives, t.k)));
    return is_valid ? OK : OUT_OF_RANGE;
}

// Update rows [first, last), which must be whole draws. The task must have been checked.
extern "C" EMBTRAIN_API int embtrain_triples_update(const TripleTask* task, int64_t first, int64_t last, double* loss,
                                             double* c_grad) {
    return task->share ? run_for_score<SharedUpdate>(*task, first, last, loss, c_grad)
                       : run_for_score<PrivateUpdate>(*task, first, last, loss, c_grad);
}
