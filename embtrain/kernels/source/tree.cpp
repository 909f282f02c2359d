// Walks down a tree of sums: the door kernels/tree.py, which checks all arguments.

#include "walk.h"

extern "C" EMBTRAIN_API int embtrain_tree_walk(const TreeTask* task, int64_t* block, double* log_q) {
    return walk(*task, block, log_q);
}
