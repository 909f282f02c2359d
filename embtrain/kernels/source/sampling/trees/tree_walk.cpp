// Walks down a tree of sums. The wrapper kernels/sampling/tree_walk.py checks all arguments.

#include "sampling/trees/tree_walk.h"

extern "C" EMBTRAIN_API int embtrain_tree_walk(const TreeTask* task, int64_t* block, double* log_q) {
    return walk(*task, block, log_q);
}
