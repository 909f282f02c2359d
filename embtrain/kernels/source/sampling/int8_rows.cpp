// Rows that are kept in eight bits: the door kernels/sampling/int8_rows.py, which checks all arguments.

#include "sampling/int8.h"

// Rows `at` (n) of b (there, width) and s (there) become x (n, width).
extern "C" EMBTRAIN_API int embtrain_int8_write(const float* x, const int64_t* rows, int64_t n, int64_t n_rows,
                                                int64_t width,
                                                   uint8_t* b, float* s) {
    if (std::any_of(rows, rows + n, [n_rows](int64_t row) { return out_of_range(row, n_rows); })) return OUT_OF_RANGE;
    for (int64_t i = 0; i < n; ++i, x += width) s[rows[i]] = quantize_row(x, width, b + rows[i] * width);
    return OK;
}
