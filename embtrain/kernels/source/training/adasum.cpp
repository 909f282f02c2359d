// Puts the moves of table rows together that several processes made since the rows were equal on all of them. The wrapper
// kernels/training/adasum.py checks shapes and types, computes offsets, and calls each function on its threads.
//
// Sums are in double precision. A thread passes its number `part` of `parts`; no result depends on them, because each row
// is computed by one thread in one order.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/core.h"
#include "training/messages.h"

namespace {

constexpr int LANES = 8;  // partial sums, so that the compiler can use vectors

inline double dot(const float* a, const float* b, int64_t dim) {
    double part[LANES] = {};
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES)
        for (int i = 0; i < LANES; ++i) part[i] += (double)a[d + i] * b[d + i];
    for (int i = 0; d < dim; ++d, ++i) part[i] += (double)a[d] * b[d];
    double total = 0;
    for (int i = 0; i < LANES; ++i) total += part[i];
    return total;
}

// a <- (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
inline void combine(float* a, const float* b, int64_t dim) {
    const double ab = dot(a, b, dim), aa = dot(a, a, dim), bb = dot(b, b, dim);
    const double of_a = aa > 0 ? 1 - ab / (2 * aa) : 1, of_b = bb > 0 ? 1 - ab / (2 * bb) : 1;
    for (int64_t d = 0; d < dim; ++d) a[d] = (float)(of_a * a[d] + of_b * b[d]);
}

// Folds n moves by pairs, in order; the result is the first one.
inline void fold_pairs(float* move, int64_t n, int64_t dim) {
    for (int64_t step = 1; step < n; step *= 2)
        for (int64_t i = 0; i + step < n; i += 2 * step) combine(move + i * dim, move + (i + step) * dim, dim);
}

inline void fold_mean(float* move, int64_t n, int64_t dim) {
    for (int64_t d = 0; d < dim; ++d) {
        double total = 0;
        for (int64_t i = 0; i < n; ++i) total += move[i * dim + d];
        move[d] = (float)(total / n);
    }
}

}  // namespace

// Finds the searched rows whose numbers in x differ from base. moved: one place for each searched row of all tables;
// a thread writes the rows that it found from the place of its first row on. count (n_tables, n_owners): how many have
// an id whose remainder by n_owners is the owner.
extern "C" EMBTRAIN_API int embtrain_adasum_moved(const SharedTable* tables, int64_t n_tables, int64_t n_owners,
                                                  int64_t part, int64_t parts, int32_t* moved, int64_t* count) {
    std::fill(count, count + n_tables * n_owners, 0);
    for (int64_t t = 0; t < n_tables; moved += tables[t++].n_searched()) {
        const SharedTable& table = tables[t];
        const int64_t total = table.n_searched(), begin = total * part / parts, end = total * (part + 1) / parts;
        int32_t* out = moved + begin;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t row = table.rows ? table.rows[i] : i;
            if (row < 0 || row >= table.n) return OUT_OF_RANGE;
            if (std::memcmp(table.x + row * table.stride, table.base + row * table.dim, 4 * table.dim) == 0) continue;
            *out++ = (int32_t)row;
            ++count[t * n_owners + (uint32_t)table.name((int32_t)row) % (uint32_t)n_owners];
        }
    }
    return OK;
}

// Groups the rows of `moved` by table and owner, in their order, and lays the messages to the owners out. counts (parts,
// n_tables, n_owners): of `moved`, from all threads. Writes grouped; start (n_tables, n_owners + 1): the places of the
// groups; count, ids_at, moves_at (n_owners, n_tables): rows, and where they begin, in bytes; ends (n_owners).
extern "C" EMBTRAIN_API int embtrain_adasum_group(const SharedTable* tables, int64_t n_tables, int64_t n_owners,
                                                  int64_t parts, const int32_t* moved, const int64_t* counts,
                                                  int32_t* grouped, int64_t* start, int64_t* count, int64_t* ids_at,
                                                  int64_t* moves_at, int64_t* ends) {
    std::unique_ptr<int64_t[]> next(new (std::nothrow) int64_t[n_owners + 1]);
    if (!next) return NO_MEMORY;
    int64_t place = 0;
    for (int64_t t = 0; t < n_tables; moved += tables[t++].n_searched()) {
        for (int64_t owner = 0; owner < n_owners; ++owner) {
            int64_t n = 0;
            for (int64_t part = 0; part < parts; ++part) n += counts[(part * n_tables + t) * n_owners + owner];
            count[owner * n_tables + t] = n;
            next[owner] = start[t * (n_owners + 1) + owner] = place;
            place += n;
        }
        start[t * (n_owners + 1) + n_owners] = place;
        for (int64_t part = 0; part < parts; ++part) {
            const int64_t* of_part = counts + (part * n_tables + t) * n_owners;
            const int32_t* row = moved + tables[t].n_searched() * part / parts;
            for (const int32_t* end = std::accumulate(of_part, of_part + n_owners, row); row < end; ++row)
                grouped[next[(uint32_t)tables[t].name(*row) % (uint32_t)n_owners]++] = *row;
        }
    }
    for (int64_t owner = 0, at = 0; owner < n_owners; ++owner) {
        const int64_t of_owner = owner * n_tables;
        at = ends[owner] = lay_out(tables, n_tables, count + of_owner, at, ids_at + of_owner, moves_at + of_owner);
    }
    return OK;
}

// Writes the messages to the owners, as `group` has laid them out.
extern "C" EMBTRAIN_API int embtrain_adasum_pack(const SharedTable* tables, int64_t n_tables, int64_t n_owners,
                                                 int64_t part, int64_t parts, const int32_t* grouped,
                                                 const int64_t* start, const int64_t* count, const int64_t* ids_at,
                                                 const int64_t* moves_at, uint8_t* out) {
    for (int64_t at = 0; part == 0 && at < n_owners * n_tables; at += n_tables)
        write_frame(tables, n_tables, count + at, ids_at + at, moves_at + at, out);
    for (int64_t t = 0; t < n_tables; ++t) {
        const SharedTable& table = tables[t];
        const int64_t* group = start + t * (n_owners + 1);
        const int64_t n = group[n_owners] - group[0], dim = table.dim;
        std::unique_ptr<float[]> move(new (std::nothrow) float[dim + 1]);
        if (!move) return NO_MEMORY;
        const int64_t begin = group[0] + n * part / parts, end = group[0] + n * (part + 1) / parts;
        int64_t owner = std::upper_bound(group, group + n_owners, begin) - group - 1;
        for (int64_t i = begin; i < end; ++i) {
            while (i >= group[owner + 1]) ++owner;
            const float *now = table.x + grouped[i] * table.stride, *before = table.base + grouped[i] * dim;
            for (int64_t d = 0; d < dim; ++d) move[d] = now[d] - before[d];
            const int64_t of_owner = owner * n_tables + t, at = i - group[owner];
            ((int32_t*)(out + ids_at[of_owner]))[at] = table.name(grouped[i]);
            write_row(move.get(), table.half, at, dim, out + moves_at[of_owner]);
        }
    }
    return OK;
}

// The rows of each table in messages of `length` (n_messages) bytes: count (n_messages, n_tables). OUT_OF_RANGE for a
// message of another length.
extern "C" EMBTRAIN_API int embtrain_adasum_read(const SharedTable* tables, int64_t n_tables,
                                                 const uint8_t* const* message, const int64_t* length,
                                                 int64_t n_messages, int64_t* count) {
    for (int64_t p = 0; p < n_messages; ++p) {
        int64_t* of_message = count + p * n_tables;
        if (length[p] < 8 * n_tables) return OUT_OF_RANGE;
        std::memcpy(of_message, message[p], 8 * n_tables);
        int64_t rest = length[p] - 8 * n_tables;
        for (int64_t t = 0; t < n_tables; ++t) {
            const int64_t n = of_message[t], row_bytes = tables[t].row_bytes();
            if (n < 0 || n > rest / (row_bytes + 4)) return OUT_OF_RANGE;
            rest -= padded(4 * n) + padded(row_bytes * n);
        }
        if (rest != 0) return OUT_OF_RANGE;
    }
    return OK;
}

// The ids of each table that any message has, ascending: out, one table after the other; n_out (n_tables). Lays their
// message out: ids_at, moves_at (n_tables) and its end. OUT_OF_RANGE for ids of a message that are not ascending.
extern "C" EMBTRAIN_API int embtrain_adasum_unite(const SharedTable* tables, int64_t n_tables,
                                                  const uint8_t* const* message, const int64_t* count,
                                                  int64_t n_messages, int32_t* out, int64_t* n_out,
                                                  int64_t* ids_at, int64_t* moves_at, int64_t* end) {
    for (int64_t t = 0; t < n_tables; ++t) {
        Messages messages(message, count, n_messages, tables, n_tables, t);
        if (!messages.has_memory()) return NO_MEMORY;
        const int32_t* begin = out;
        for (int64_t id; (id = messages.next_id()) != INT64_MAX;) {
            *out++ = (int32_t)id;
            for (int64_t p = 0; p < n_messages; ++p) {
                Messages::Part& of = messages[p];
                if (of.at == of.n || of.ids[of.at] != id) continue;
                if (++of.at < of.n && of.ids[of.at] <= id) return OUT_OF_RANGE;
            }
        }
        n_out[t] = out - begin;
    }
    *end = lay_out(tables, n_tables, n_out, 0, ids_at, moves_at);
    return OK;
}

// Folds the moves of all messages into the message `out`, with ids, n_ids, ids_at and moves_at as of `unite`.
extern "C" EMBTRAIN_API int embtrain_adasum_fold(const SharedTable* tables, int64_t n_tables,
                                                 const uint8_t* const* message, const int64_t* count,
                                                 int64_t n_messages, int64_t part, int64_t parts, const int32_t* ids,
                                                 const int64_t* n_ids, const int64_t* ids_at, const int64_t* moves_at,
                                                 uint8_t* out) {
    if (part == 0) write_frame(tables, n_tables, n_ids, ids_at, moves_at, out);
    for (int64_t t = 0; t < n_tables; ids += n_ids[t++]) {
        const int64_t dim = tables[t].dim, begin = n_ids[t] * part / parts, end = n_ids[t] * (part + 1) / parts;
        Messages messages(message, count, n_messages, tables, n_tables, t);
        std::unique_ptr<float[]> move(new (std::nothrow) float[n_messages * dim + 1]);
        if (!messages.has_memory() || !move) return NO_MEMORY;
        for (int64_t p = 0; p < n_messages && begin < end; ++p)
            messages[p].at = std::lower_bound(messages[p].ids, messages[p].ids + messages[p].n, ids[begin])
                             - messages[p].ids;
        for (int64_t i = begin; i < end; ++i) {
            int64_t n = 0;
            for (int64_t p = 0; p < n_messages; ++p) {
                Messages::Part& of = messages[p];
                if (of.at < of.n && of.ids[of.at] == ids[i])
                    read_row(of.moves, tables[t].half, of.at++, dim, move.get() + n++ * dim);
            }
            if (tables[t].mean)
                fold_mean(move.get(), n, dim);
            else
                fold_pairs(move.get(), n, dim);
            ((int32_t*)(out + ids_at[t]))[i] = ids[i];
            write_row(move.get(), tables[t].half, i, dim, out + moves_at[t]);
        }
    }
    return OK;
}

// The ids of each table in all messages, in the order of the messages: out, one table after the other. OUT_OF_RANGE for
// an id of no row.
extern "C" EMBTRAIN_API int embtrain_adasum_ids(const SharedTable* tables, int64_t n_tables,
                                                const uint8_t* const* message, const int64_t* count,
                                                int64_t n_messages, int32_t* out) {
    for (int64_t t = 0; t < n_tables; ++t) {
        Messages messages(message, count, n_messages, tables, n_tables, t);
        if (!messages.has_memory()) return NO_MEMORY;
        for (int64_t p = 0; p < n_messages; ++p)
            for (int64_t i = 0; i < messages[p].n; ++i) {
                const int64_t id = *out++ = messages[p].ids[i];
                if (id < 0 || id / tables[t].step >= tables[t].n) return OUT_OF_RANGE;
            }
    }
    return OK;
}

// base += move and x = base in the rows of all messages, whose ids are in range.
extern "C" EMBTRAIN_API int embtrain_adasum_apply(const SharedTable* tables, int64_t n_tables,
                                                  const uint8_t* const* message, const int64_t* count,
                                                  int64_t n_messages, int64_t part, int64_t parts) {
    for (int64_t t = 0; t < n_tables; ++t) {
        const SharedTable& table = tables[t];
        const int64_t dim = table.dim;
        Messages messages(message, count, n_messages, tables, n_tables, t);
        std::unique_ptr<float[]> move(new (std::nothrow) float[dim + 1]);
        if (!messages.has_memory() || !move) return NO_MEMORY;
        for (int64_t p = 0; p < n_messages; ++p) {
            const Messages::Part& of = messages[p];
            for (int64_t i = of.n * part / parts; i < of.n * (part + 1) / parts; ++i) {
                const int64_t row = of.ids[i] / table.step;
                float *now = table.x + row * table.stride, *before = table.base + row * dim;
                read_row(of.moves, table.half, i, dim, move.get());
                for (int64_t d = 0; d < dim; ++d) now[d] = before[d] += move[d];
            }
        }
    }
    return OK;
}
