// Draws from a fixed categorical with an alias table. The wrapper kernels/sampling/alias.py checks all arguments.

#include <algorithm>

#include "core/core.h"

namespace {

constexpr int64_t PART = 32;  // draws whose columns are computed before the tables are read

// The words of u v, v < 2^31.
struct Product { uint64_t high, low; };

inline Product product(uint64_t u, uint64_t v) {
#if defined(__AVX512F__)  // in products of 32 bits, which the compiler vectorizes; narrower vectors gain nothing
    const uint64_t low = (u & 0xFFFFFFFF) * v, high = (u >> 32) * v + (low >> 32);
    return {high >> 32, (high << 32) | (low & 0xFFFFFFFF)};
#else
    const unsigned __int128 all = (unsigned __int128)u * v;
    return {uint64_t(all >> 64), uint64_t(all)};
#endif
}

}  // namespace

// out[i] for the positions begin <= i < end of the stream `seed`. Each draw uses one random number: the upper word of
// the 128-bit product u V is the column, the lower word decides between column and alias. Branch-free, because the
// outcome is unpredictable.
extern "C" EMBTRAIN_API int embtrain_alias_draw(const uint64_t* accept, const int64_t* alias, int64_t v, uint64_t seed,
                                                int64_t begin, int64_t end, int64_t* out) {
    uint64_t column[PART], rest[PART];
    const uint64_t n_columns = uint32_t(v);
    for (int64_t i = begin; i < end; i += PART) {
        for (int64_t j = 0; j < PART; ++j) {
            const Product both = product(u64_at(seed, uint64_t(i + j)), n_columns);
            column[j] = both.high;
            rest[j] = both.low;
        }
        for (int64_t j = 0; j < std::min(PART, end - i); ++j) {
            const int64_t own = int64_t(column[j]), stays = -int64_t(rest[j] < accept[own]);  // all ones or all zeros
            out[i + j] = (own & stays) | (alias[own] & ~stays);
        }
    }
    return OK;
}
