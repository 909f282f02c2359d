// The tables of adasum.cpp, and the messages in which processes send each other moves of rows.
//
// A message contains the number of rows of each table, int64, then of each table its ids, int32, and its moves, both
// padded to a multiple of 8 bytes. A move is float32 or, rounded to nearest, bfloat16.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace {

inline uint16_t to_bfloat16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40);  // NaN stays NaN
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

inline float from_bfloat16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

// Row `at` of a buffer of the wire, from and to float32.
inline void read_row(const void* wire, bool half, int64_t at, int64_t dim, float* out) {
    if (!half) {
        std::memcpy(out, (const float*)wire + at * dim, 4 * dim);
        return;
    }
    const uint16_t* in = (const uint16_t*)wire + at * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] = from_bfloat16(in[d]);
}

inline void write_row(const float* x, bool half, int64_t at, int64_t dim, void* wire) {
    if (!half) {
        std::memcpy((float*)wire + at * dim, x, 4 * dim);
        return;
    }
    uint16_t* out = (uint16_t*)wire + at * dim;
    for (int64_t d = 0; d < dim; ++d) out[d] = to_bfloat16(x[d]);
}

// One table of this process. Missing pointers are null.
struct SharedTable {
    float* x;
    float* base;           // (n, dim)  the rows when they were equal on all processes
    const int32_t* rows;   // (n_rows)  ascending: the rows to search; null: all
    const int32_t* names;  // (n)       ascending: the ids of the rows in messages; null: their numbers
    int64_t stride;        // of x, in floats
    int64_t n, dim, n_rows;
    int64_t half, mean;
    int64_t step;          // of the ids of the rows that `apply` changes: id / step is the number of a row

    int64_t n_searched() const { return rows ? n_rows : n; }
    int32_t name(int32_t row) const { return names ? names[row] : row; }
    int64_t row_bytes() const { return (half ? 2 : 4) * dim; }
};

inline int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

// Where ids and moves of each table begin in a message with room for `count` rows, in bytes. `at`: the beginning of the
// message. Returns its end.
inline int64_t lay_out(const SharedTable* tables, int64_t n_tables, const int64_t* count, int64_t at, int64_t* ids_at,
                       int64_t* moves_at) {
    at += 8 * n_tables;
    for (int64_t t = 0; t < n_tables; ++t) {
        ids_at[t] = at;
        moves_at[t] = at += padded(4 * count[t]);
        at += padded(tables[t].row_bytes() * count[t]);
    }
    return at;
}

// Writes the numbers of rows and the padding of a message.
inline void write_frame(const SharedTable* tables, int64_t n_tables, const int64_t* count, const int64_t* ids_at,
                        const int64_t* moves_at, uint8_t* out) {
    std::memcpy(out + ids_at[0] - 8 * n_tables, count, 8 * n_tables);
    for (int64_t t = 0; t < n_tables; ++t) {
        const int64_t ids = 4 * count[t], moves = tables[t].row_bytes() * count[t];
        std::memset(out + ids_at[t] + ids, 0, padded(ids) - ids);
        std::memset(out + moves_at[t] + moves, 0, padded(moves) - moves);
    }
}

// Ids and moves of one table in the messages of several processes.
class Messages {
public:
    // message: pointers (n_messages); count (n_messages, n_tables): rows
    Messages(const uint8_t* const* message, const int64_t* count, int64_t n_messages, const SharedTable* tables,
             int64_t n_tables, int64_t table)
        : of_(new (std::nothrow) Part[n_messages + 1]), n_(n_messages) {
        for (int64_t p = 0; of_ && p < n_messages; ++p) {
            const uint8_t* at = message[p] + 8 * n_tables;
            for (int64_t t = 0; t < table; ++t) {
                const int64_t n = count[p * n_tables + t];
                at += padded(4 * n) + padded(tables[t].row_bytes() * n);
            }
            const int64_t n = count[p * n_tables + table];
            of_[p] = {(const int32_t*)at, at + padded(4 * n), n, 0};
        }
    }

    struct Part {
        const int32_t* ids;
        const uint8_t* moves;
        int64_t n, at;  // rows, and the next one
    };

    bool has_memory() const { return of_ != nullptr; }
    Part& operator[](int64_t p) { return of_[p]; }

    // The smallest id that is next in a message; INT64_MAX at the end of all.
    int64_t next_id() const {
        int64_t id = INT64_MAX;
        for (int64_t p = 0; p < n_; ++p)
            if (of_[p].at < of_[p].n) id = std::min<int64_t>(id, of_[p].ids[of_[p].at]);
        return id;
    }

private:
    std::unique_ptr<Part[]> of_;
    int64_t n_;
};

}  // namespace
