// Quantizes rows to int8. The wrapper kernels/sampling/int8_rows.py checks all arguments.

#include "sampling/int8.h"

// Quantize x (n, width) into the given rows (n) of b (n_rows, width) and s (n_rows).
extern "C" EMBTRAIN_API int embtrain_int8_write(const float* x, const int64_t* rows, int64_t n, int64_t n_rows,
                                                int64_t width,
                                                   uint8_t* b, float* s) {
    if (!all_within(rows, n, n_rows)) return OUT_OF_RANGE;
    for (int64_t i = 0; i < n; ++i, x += width) s[rows[i]] = quantize_row(x, width, b + rows[i] * width);
    return OK;
}
