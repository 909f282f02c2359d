// Draws from a fixed categorical through an alias table: the door kernels/sampling/alias.py, which checks all arguments.

#include "core/core.h"

// out[i] for the positions begin <= i < end of the stream `seed`. One random number makes a draw: the 128-bit product
// u V has the column in its upper word and the toss in its lower one. Without a branch: a toss is what nobody predicts.
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
