// Scans bytes of text into word types and ids. The wrapper is kernels/text/scan.py.
//
// A type is a distinct word, as bytes. ASCII words are delimited and lowercased here. A word with other bytes is
// `foreign`: it is stored unchanged, with all the context that matters, and Python, which implements Unicode, decides
// once per distinct word.
//
// A chunk of text is first turned into bitmaps, one bit per byte (inside a word, beyond ASCII, end of a line). Words
// are then found by counting zeros, without a branch per letter.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/core.h"

namespace {

enum Mode { WHITESPACE = 0, WORDS = 1, VERBATIM = 2 };  // kernels/text/scan.py has the same numbers
constexpr int64_t FIRST_SLOTS = 1 << 14;
constexpr int SHORT = 16;  // bytes of a word that are stored in its slot
constexpr int SLACK = 64;  // bytes that may be read past the end of a chunk
constexpr uint64_t KEEP[SHORT / 2 + 1] = {0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF, 0xFFFFFFFFFFFF,
                                          0xFFFFFFFFFFFFFF, ~uint64_t(0)};

bool grow(void** memory, int64_t bytes) {
    void* more = std::realloc(*memory, size_t(bytes));
    if (!more) return false;
    *memory = more;
    return true;
}

uint64_t eight(const void* x) {
    uint64_t word;
    std::memcpy(&word, x, 8);
    return word;
}

uint64_t mixed(uint64_t x, uint64_t y) {
    const auto product = static_cast<unsigned __int128>(x ^ 0xA0761D6478BD642Full) * (y ^ 0xE7037ED1A0B428DBull);
    return uint64_t(product) ^ uint64_t(product >> 64);
}

// An entry of the hash table: the bytes of a short word, padded with zeros; else its hash.
struct Slot {
    uint64_t a, b;
    uint32_t number;  // + 1; 0: empty
    uint32_t size;    // 2 * bytes + foreign

    uint64_t hash() const { return size > 2 * SHORT + 1 ? a : mixed(a ^ size, b); }
};

// Distinct words in order of appearance; open addressing.
struct Types {
    Slot* slots = nullptr;
    int64_t n_slots = 0;
    int64_t n = 0, capacity = 0, bytes = 0, bytes_capacity = 0;
    char* letters = nullptr;     // the words, concatenated
    int64_t* begin = nullptr;    // (capacity + 1) the begin of each word in `letters`
    uint8_t* foreign = nullptr;  // (capacity)
    uint8_t* lowered = nullptr;  // (piece + SLACK)
    uint64_t* bits = nullptr;    // (3 * (piece / 64 + 2))
    int64_t piece = -1;          // the longest chunk so far

    ~Types() {
        for (void* memory : {static_cast<void*>(slots), static_cast<void*>(letters), static_cast<void*>(begin),
                             static_cast<void*>(foreign), static_cast<void*>(lowered), static_cast<void*>(bits)})
            std::free(memory);
    }

    bool fit(int64_t size) {
        if (size <= piece) return true;
        if (!grow(reinterpret_cast<void**>(&lowered), size + SLACK)) return false;
        if (!grow(reinterpret_cast<void**>(&bits), 3 * (size / 64 + 2) * 8)) return false;
        piece = size;
        return true;
    }

    bool rehash(int64_t to) {
        Slot* fresh = static_cast<Slot*>(std::calloc(size_t(to), sizeof(Slot)));
        if (!fresh) return false;
        for (int64_t i = 0; i < n_slots; i++) {
            if (!slots[i].number) continue;
            int64_t index = int64_t(slots[i].hash()) & (to - 1);
            while (fresh[index].number) index = (index + 1) & (to - 1);
            fresh[index] = slots[i];
        }
        std::free(slots);
        slots = fresh;
        n_slots = to;
        return true;
    }

    // The number of a word, -1 if memory is exhausted. SHORT bytes from x on must be readable.
    int64_t find_or_add(const uint8_t* x, int64_t size, bool is_foreign) {
        Slot key;
        key.size = uint32_t(2 * size + is_foreign);
        if (size <= SHORT) {
            key.a = eight(x) & KEEP[std::min<int64_t>(size, 8)];
            key.b = eight(x + 8) & KEEP[std::max<int64_t>(size - 8, 0)];
        } else {
            key.a = key.b = 0;
            int64_t i = 0;
            for (; i + 8 <= size; i += 8) key.a = mixed(key.a, eight(x + i));
            key.a = mixed(key.a ^ key.size, eight(x + size - 8));
        }
        int64_t index = int64_t(key.hash()) & (n_slots - 1);
        for (; slots[index].number; index = (index + 1) & (n_slots - 1)) {
            const Slot& slot = slots[index];
            if (slot.a != key.a || slot.b != key.b || slot.size != key.size) continue;
            const int64_t number = int64_t(slot.number) - 1;
            if (size <= SHORT || std::memcmp(letters + begin[number], x, size_t(size)) == 0) return number;
        }
        if (!add(x, size, is_foreign)) return -1;
        key.number = uint32_t(n);
        slots[index] = key;
        if (4 * n > 3 * n_slots && !rehash(2 * n_slots)) return -1;
        return n - 1;
    }

    bool add(const uint8_t* x, int64_t size, bool is_foreign) {
        if (n >= (int64_t(1) << 31) - 2) return false;
        if (n == capacity) {
            if (!grow(reinterpret_cast<void**>(&begin), (2 * capacity + 1) * 8)) return false;
            if (!grow(reinterpret_cast<void**>(&foreign), 2 * capacity)) return false;
            capacity *= 2;
        }
        if (bytes + size > bytes_capacity) {
            const int64_t to = 2 * bytes_capacity + size;
            if (!grow(reinterpret_cast<void**>(&letters), to)) return false;
            bytes_capacity = to;
        }
        std::memcpy(letters + bytes, x, size_t(size));
        bytes += size;
        foreign[n] = is_foreign;
        begin[++n] = bytes;
        return true;
    }
};

// --- bitmaps -------------------------------------------------------------------------------------------------------

struct Bits {
    uint64_t* word;

    // The bits from i on: at least 57 of them, then zeros.
    uint64_t from(int64_t i) const { return eight(reinterpret_cast<const char*>(word) + (i >> 3)) >> (i & 7); }
    uint64_t clear_from(int64_t i) const { return ~eight(reinterpret_cast<const char*>(word) + (i >> 3)) >> (i & 7); }

    int64_t next_set(int64_t i, int64_t n) const {
        while (i < n) {
            if (const uint64_t b = from(i)) return std::min(n, i + __builtin_ctzll(b));
            i += 64 - (i & 7);
        }
        return n;
    }

    int64_t next_clear(int64_t i, int64_t n) const {
        while (i < n) {
            if (const uint64_t b = clear_from(i)) return std::min(n, i + __builtin_ctzll(b));
            i += 64 - (i & 7);
        }
        return n;
    }

    bool any(int64_t i, int64_t end) const {
        return end - i < 57 ? from(i) & ((uint64_t(1) << (end - i)) - 1) : next_set(i, end) < end;
    }

    void put(int64_t i, bool value) {
        word[i >> 6] = (word[i >> 6] & ~(uint64_t(1) << (i & 63))) | uint64_t(value) << (i & 63);
    }
};

// Packs eight bytes of 0 or 1 into eight bits.
uint64_t packed(const uint8_t* x) { return (eight(x) * 0x0102040810204080ull) >> 56; }

bool is_blank(uint8_t c) { return c == 0 || (c >= 9 && c <= 13) || (c >= 28 && c <= 32); }  // as str.split(), and NUL

template <int MODE>
void classify(const uint8_t* x, int64_t n, bool lower, uint8_t* low, Bits inside, Bits high, Bits line) {
    uint8_t last[64];
    for (int64_t i = 0; i < n; i += 64) {
        const uint8_t* from = x + i;
        if (n - i < 64) {
            std::memset(last, ' ', 64);
            std::memcpy(last, from, size_t(n - i));
            from = last;
        }
        uint8_t in[64], hi[64], end[64];
        for (int j = 0; j < 64; j++) {  // branch-free, so that the compiler vectorizes it
            const uint8_t c = from[j];
            low[i + j] = uint8_t(c + (uint8_t(lower & (uint8_t(c - 'A') < 26)) << 5));
            hi[j] = MODE != VERBATIM && c >= 128;
            end[j] = (c == '\n') | (MODE != VERBATIM && c == '\r');
            if (MODE == WORDS)
                in[j] = (uint8_t((c | 32) - 'a') < 26) | (c >= 128);
            else if (MODE == WHITESPACE)
                in[j] = (c > 32) | (uint8_t(c - 1) < 8) | (uint8_t(c - 14) < 14);
            else
                in[j] = (c != ' ') & (c != '\n');
        }
        uint64_t a = 0, b = 0, c = 0;
        for (int j = 0; j < 8; j++) {
            a |= packed(in + 8 * j) << 8 * j;
            b |= packed(hi + 8 * j) << 8 * j;
            c |= packed(end + 8 * j) << 8 * j;
        }
        inside.word[i >> 6] = a;
        high.word[i >> 6] = b;
        line.word[i >> 6] = c;
    }
    for (int64_t w = (n + 63) / 64; w < n / 64 + 2; w++) inside.word[w] = high.word[w] = line.word[w] = 0;
}

// The third byte of U+2000 to U+203F (E2 80 80 to E2 80 BF): joiners and direction marks do not end a word.
bool is_joiner(uint8_t c) { return (c >= 0x8C && c <= 0x8F) || (c >= 0xAA && c <= 0xAE); }

// In running text U+2000 to U+203F, dashes and quotation marks, end a word; joiners do not. They are not letters, and
// too common for a call to Python. But the lower case of Σ (CE A3) depends on its context, even beyond an apostrophe.
// If a Σ must be lowered, a word is therefore everything between blanks.
void split_foreign(const uint8_t* x, int64_t n, bool lower, Bits inside, Bits high) {
    bool sigma = false;
    for (int64_t p = high.next_set(0, n); p < n; p = high.next_set(p + 1, n)) {
        if (x[p] == 0xE2 && p + 2 < n && x[p + 1] == 0x80 && (x[p + 2] & 0xC0) == 0x80 && !is_joiner(x[p + 2]))
            for (int64_t q = p; q < p + 3; q++) inside.put(q, false);
        sigma |= lower && x[p] == 0xCE && p + 1 < n && x[p + 1] == 0xA3;
    }
    if (!sigma) return;
    for (int64_t p = high.next_set(0, n); p < n; p = high.next_set(p + 1, n)) {
        if (x[p] != 0xCE || p + 1 >= n || x[p + 1] != 0xA3) continue;
        int64_t end = p, begin = p;
        while (end < n && !is_blank(x[end])) end++;
        while (begin > 0 && !is_blank(x[begin - 1])) begin--;
        for (int64_t q = begin; q < end; q++) inside.put(q, true);
        p = end - 1;
    }
}

// Count digits, and underscores between two letters or digits; a byte of 128 or more counts as a letter.
void count_left_out(const uint8_t* x, int64_t n, int64_t* digits, int64_t* joints) {
    const auto is_inner = [](uint8_t c) {
        return (uint8_t((c | 32) - 'a') < 26) | (uint8_t(c - '0') < 10) | (c >= 128);
    };
    int64_t n_digits = 0, joined = 0;
    for (int64_t i = 0; i < n; i++) n_digits += uint8_t(x[i] - '0') < 10;
    for (int64_t i = 1; i + 1 < n; i++) joined += (x[i] == '_') & is_inner(x[i - 1]) & is_inner(x[i + 1]);
    *digits = n_digits;
    *joints = joined;
}

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
    // a line that ends here may have begun in the previous chunk
    int64_t words = 0, lines = 0, n_long = 0, n_short = 0, last = -1;
    for (int64_t i = 0; i < n;) {
        const int64_t begin = inside.next_set(i, n), end = inside.next_clear(begin, n), size = end - begin;
        if (words > last && line.any(i, begin)) ends[lines++] = last = words;
        i = end;
        int64_t number;
        if (size == 0) {
            break;
        } else if (high.any(begin, end)) {
            uint8_t padded[SHORT] = {0};  // never read past the text
            if (size <= SHORT) std::memcpy(padded, x + begin, size_t(size));
            number = types.find_or_add(size <= SHORT ? padded : x + begin, size, true);
        } else if (mode != WORDS || (size >= shortest && size <= longest)) {
            number = types.find_or_add(types.lowered + begin, size, false);
        } else {
            (size < shortest ? n_short : n_long) += size;
            continue;
        }
        if (number < 0) return NO_MEMORY;
        ids[words++] = int32_t(number);
    }
    counts[0] = words;
    counts[1] = lines;
    counts[2] = mode == VERBATIM ? 0 : int64_t(std::count(x, x + n, uint8_t(0)));
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

// Replace types by words: type t stands for word[start[t]..start[t + 1]). Increments `counts`. n_words: the number of
// words. If it exceeds `room`, nothing else is written.
extern "C" EMBTRAIN_API int embtrain_text_expand(const int32_t* types, int64_t n, const int64_t* start, int64_t n_types,
                                                 const int32_t* word, const int64_t* ends, int64_t n_ends,
                                                 int32_t* ids, int64_t capacity, int64_t* ends_out, int64_t* counts,
                                                 int64_t* n_words) {
    int64_t m = 0, line = 0;
    for (int64_t i = 0; i < n; i++) {
        if (uint64_t(int64_t(types[i])) >= uint64_t(n_types)) return OUT_OF_RANGE;
        m += start[types[i] + 1] - start[types[i]];
    }
    n_words[0] = m;
    if (m > capacity) return OK;
    m = 0;
    for (int64_t i = 0; i < n; i++) {
        while (line < n_ends && ends[line] <= i) ends_out[line++] = m;
        for (int64_t j = start[types[i]]; j < start[types[i] + 1]; j++) {
            ids[m++] = word[j];
            counts[word[j]]++;
        }
    }
    while (line < n_ends) ends_out[line++] = m;
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
