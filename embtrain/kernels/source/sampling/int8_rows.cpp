// Rows that are kept in eight bits: the door kernels/sampling/int8_rows.py, which checks all arguments.

#include "sampling/int8.h"

// Rows `at` (n) of b (there, width) and s (there) become x (n, width).
extern "C" EMBTRAIN_API int embtrain_rounded_write(const float* x, const int64_t* at, int64_t n, int64_t there, int64_t width,
                                                   uint8_t* b, float* s) {
    if (std::any_of(at, at + n, [there](int64_t row) { return beyond(row, there); })) return OUT_OF_RANGE;
    for (int64_t i = 0; i < n; ++i, x += width) s[at[i]] = as_bytes(x, width, b + at[i] * width);
    return OK;
}
