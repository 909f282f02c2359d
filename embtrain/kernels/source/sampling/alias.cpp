// Draws from a fixed categorical with an alias table. The wrapper kernels/sampling/alias.py checks all arguments.

#include "core/core.h"

// out[i] for the positions begin <= i < end of the stream `seed`. Each draw uses one random number: the upper word of
// the 128-bit product u V is the column, the lower word decides between column and alias. Branch-free, because the
// outcome is unpredictable.
extern "C" EMBTRAIN_API int embtrain_alias_draw(const uint64_t* accept, const int64_t* alias, int64_t v, uint64_t seed,
                                                int64_t begin, int64_t end, int64_t* out) {
    for (int64_t i = begin; i < end; i++) {
        const unsigned __int128 product = (unsigned __int128)u64_at(seed, uint64_t(i)) * uint64_t(v);
        const int64_t column = int64_t(product >> 64);
        const int64_t stays = -int64_t(uint64_t(product) < accept[column]);  // all ones or all zeros
        out[i] = (column & stays) | (alias[column] & ~stays);
    }
    return OK;
}
