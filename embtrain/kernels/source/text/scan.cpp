// Scans bytes of text into word types and ids. The wrapper is kernels/text/scan.py.
//
// A type is a distinct word, as bytes. ASCII words are delimited and lowercased here. A word with other bytes is
// `foreign`: it is stored unchanged, with all the context that matters, and Python, which implements Unicode, decides
// once per distinct word.
//
// A chunk of text is first turned into bitmaps, one bit per byte (inside a word, beyond ASCII, end of a line). Words
// are then the runs of ones, found without a branch per letter.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/core.h"
#include "text/bitmaps.h"
#include "text/word_types.h"

namespace {

// A word of a group: all of a group's places in the hash table are prefetched before the first is read.
struct Pending {
    Slot key;
    const uint8_t* x;
};

}  // namespace

extern "C" EMBTRAIN_API int embtrain_text_open(void** out) {
    Types* types = new (std::nothrow) Types;
    if (!types) return NO_MEMORY;
    types->capacity = FIRST_SLOTS;
    types->bytes_capacity = 16 * FIRST_SLOTS;
    types->begin = static_cast<int64_t*>(std::malloc(size_t(types->capacity + 1) * 8));
    types->foreign = static_cast<uint8_t*>(std::malloc(size_t(types->capacity)));
    types->letters = static_cast<char*>(std::malloc(size_t(types->bytes_capacity)));
    if (!types->begin || !types->foreign || !types->letters || !types->rehash(FIRST_SLOTS)) {
        delete types;
        return NO_MEMORY;
    }
    types->begin[0] = 0;
    *out = types;
    return OK;
}

extern "C" EMBTRAIN_API int embtrain_text_close(void* handle) {
    delete static_cast<Types*>(handle);
    return OK;
}

// Scan n bytes of whole words: the number of each word, and after how many words a line ended (a second end at the same
// place is omitted). ids has room for n / 2 + 1, ends for n / 2 + 2. counts: words, lines, NULs, and in mode WORDS, for
// ASCII: digits, underscores between letters or digits, letters of words that are too long, and of words that are too
// short.
extern "C" EMBTRAIN_API int embtrain_text_scan(void* handle, const uint8_t* x, int64_t n, int mode, int lower,
                                               int64_t shortest, int64_t longest, int32_t* ids, int64_t* ends,
                                               int64_t* counts) {
    Types& types = *static_cast<Types*>(handle);
    if (!types.fit(n)) return NO_MEMORY;
    const int64_t stride = n / 64 + 2;
    const Bits inside{types.bits}, high{types.bits + stride}, line{types.bits + 2 * stride};
    (mode == WORDS ? classify<WORDS> : mode == WHITESPACE ? classify<WHITESPACE> : classify<VERBATIM>)(
        x, n, lower != 0, types.lowered, inside, high, line);
    if (mode == WORDS) split_foreign(x, n, lower != 0, inside, high);
    const bool has_high = high.next_set(0, n) < n;
    Edges edges(inside.word, n / 64 + 1);
    Pending pending[Edges::ROOM / 2 + 1];
    int64_t words = 0, lines = 0, n_long = 0, n_short = 0, last = -1, i = 0;
    while (edges.next()) {
        int count = 0;
        for (int edge = 0; edge + 1 < edges.count; edge += 2) {
            const int64_t begin = edges.position[edge], end = edges.position[edge + 1], size = end - begin;
            // a line that ends here may have begun in the previous chunk
            if (words + count > last && line.any(i, begin)) ends[lines++] = last = words + count;
            i = end;
            Pending& word = pending[count];
            if (has_high && high.any(begin, end)) {
                uint8_t padded[SHORT] = {0};  // never read past the text
                if (size <= SHORT) std::memcpy(padded, x + begin, size_t(size));
                word.x = x + begin;
                word.key = Slot::key(size <= SHORT ? padded : word.x, size, true);
            } else if (mode != WORDS || (size >= shortest && size <= longest)) {
                word.x = types.lowered + begin;
                word.key = Slot::key(word.x, size, false);
            } else {
                (size < shortest ? n_short : n_long) += size;
                continue;
            }
            types.prefetch(word.key);
            count++;
        }
        for (int j = 0; j < count; j++) {
            const int64_t number = types.find_or_add(pending[j].key, pending[j].x);
            if (number < 0) return NO_MEMORY;
            ids[words++] = int32_t(number);
        }
    }
    if (i < n && words > last && line.any(i, n)) ends[lines++] = words;
    counts[0] = words;
    counts[1] = lines;
    const bool has_nul = mode != VERBATIM && std::memchr(x, 0, size_t(n));
    counts[2] = has_nul ? int64_t(std::count(x, x + n, uint8_t(0))) : 0;
    counts[3] = counts[4] = 0;
    if (mode == WORDS) count_left_out(x, n, counts + 3, counts + 4);
    counts[5] = n_long;
    counts[6] = n_short;
    return OK;
}

// counts: the number of types, and the bytes of the types from number `from` on, with a line feed after each.
extern "C" EMBTRAIN_API int embtrain_text_size(void* handle, int64_t from, int64_t* counts) {
    const Types& types = *static_cast<Types*>(handle);
    if (from < 0 || from > types.n) return OUT_OF_RANGE;
    counts[0] = types.n;
    counts[1] = types.bytes - types.begin[from] + types.n - from;
    return OK;
}

extern "C" EMBTRAIN_API int embtrain_text_types(void* handle, int64_t from, char* lines, uint8_t* foreign) {
    const Types& types = *static_cast<Types*>(handle);
    if (from < 0 || from > types.n) return OUT_OF_RANGE;
    for (int64_t i = from; i < types.n; i++) {
        const int64_t size = types.begin[i + 1] - types.begin[i];
        std::memcpy(lines, types.letters + types.begin[i], size_t(size));
        lines[size] = '\n';
        lines += size + 1;
    }
    std::memcpy(foreign, types.foreign + from, size_t(types.n - from));
    return OK;
}

// Replace types by words. Type t is the word id[t], or if that is negative, the words word[start[j]..start[j + 1]) with
// j = -1 - id[t], one of n_lists. Increments `counts`. n_words: the number of words. If it exceeds `capacity`, `counts`
// is unchanged, and the caller repeats the call with more.
extern "C" EMBTRAIN_API int embtrain_text_expand(const int32_t* types, int64_t n, const int32_t* id, int64_t n_types,
                                                 const int64_t* start, int64_t n_lists, const int32_t* word,
                                                 int64_t n_listed, const int64_t* ends, int64_t n_ends, int32_t* ids,
                                                 int64_t capacity, int64_t* ends_out, int64_t* counts,
                                                 int64_t n_counts, int64_t* n_words) {
    int64_t m = 0, i = 0;
    for (int64_t line = 0; line <= n_ends; line++) {
        for (const int64_t end = line < n_ends ? std::min(ends[line], n) : n; i < end; i++) {
            const int64_t type = types[i];
            if (uint64_t(type) >= uint64_t(n_types)) return OUT_OF_RANGE;
            if (id[type] >= 0) {
                if (m < capacity) ids[m] = id[type];
                m++;
                continue;
            }
            const int64_t list = -1 - int64_t(id[type]);
            if (list >= n_lists || start[list] < 0 || start[list + 1] > n_listed) return OUT_OF_RANGE;
            for (int64_t j = start[list]; j < start[list + 1]; j++, m++)
                if (m < capacity) ids[m] = word[j];
        }
        if (line < n_ends) ends_out[line] = m;
    }
    n_words[0] = m;
    if (m > capacity) return OK;
    bool is_within = true;
    for (int64_t k = 0; k < m; k++) is_within &= uint64_t(int64_t(ids[k])) < uint64_t(n_counts);
    if (!is_within) return OUT_OF_RANGE;
    for (int64_t k = 0; k < m; k++) counts[ids[k]]++;  // a loop of its own: it waits for nothing above
    return OK;
}

// Map ids of sequences (offsets in ids) to new ids and drop negative ones. Packed in `out`; `length` has the new
// lengths.
extern "C" EMBTRAIN_API int embtrain_text_renumber(const int32_t* ids, const int64_t* sequence, int64_t n_sequences,
                                                   const int32_t* to, int64_t n_types, int32_t* out, int64_t* length) {
    int64_t m = 0;
    for (int64_t s = 0; s < n_sequences; s++) {
        const int64_t before = m;
        for (int64_t i = sequence[s]; i < sequence[s + 1]; i++) {
            if (uint64_t(int64_t(ids[i])) >= uint64_t(n_types)) return OUT_OF_RANGE;
            out[m] = to[ids[i]];  // overwritten by the next id if negative
            m += out[m] >= 0;
        }
        length[s] = m - before;
    }
    return OK;
}
