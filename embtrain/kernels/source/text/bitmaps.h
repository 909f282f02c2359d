// Bitmaps of a chunk of text, one bit per byte: inside a word, beyond ASCII, end of a line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

#include "text/word_types.h"

namespace {

enum Mode { WHITESPACE = 0, WORDS = 1, VERBATIM = 2 };  // kernels/text/scan.py has the same numbers

struct Bits {
    uint64_t* word;

    // The bits from i on: at least 57 of them, then zeros.
    uint64_t from(int64_t i) const { return eight(reinterpret_cast<const char*>(word) + (i >> 3)) >> (i & 7); }

    int64_t next_set(int64_t i, int64_t n) const {
        while (i < n) {
            if (const uint64_t b = from(i)) return std::min(n, i + __builtin_ctzll(b));
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

// The positions where runs of ones begin and end, in order, in groups of a few words of the bitmap.
struct Edges {
    static constexpr int ROOM = 64 * 4;  // of a group

    const uint64_t* word;
    int64_t n_words;
    int64_t position[ROOM + 1];
    int count = 0;              // odd if the last run of the group goes on
    int64_t w = 0;
    uint64_t last = 0;          // the last bit of the word before

    Edges(const uint64_t* bits, int64_t n) : word(bits), n_words(n) {}

    // Read the next group of whole runs; false after the last.
    bool next() {
        if (count & 1) position[0] = position[count - 1];  // a run that goes on
        count &= 1;
        while (w < n_words && count + 64 <= ROOM) {
            const uint64_t bits = word[w], edges = bits ^ (bits << 1 | last);
            last = bits >> 63;
            for (uint64_t rest = edges; rest; rest &= rest - 1) position[count++] = 64 * w + __builtin_ctzll(rest);
            w++;
        }
        return count > 1 || w < n_words;
    }
};

// Packs eight bytes of 0 or 1 into eight bits.
inline uint64_t packed(const uint8_t* x) { return (eight(x) * 0x0102040810204080ull) >> 56; }

inline bool is_blank(uint8_t c) { return c == 0 || (c >= 9 && c <= 13) || (c >= 28 && c <= 32); }  // as str.split(), and NUL

#if defined(__AVX512BW__)
inline uint64_t less(__m512i x, int than) { return _mm512_cmplt_epu8_mask(x, _mm512_set1_epi8(char(than))); }
inline uint64_t equal(__m512i x, int to) { return _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(char(to))); }
inline __m512i minus(__m512i x, int y) { return _mm512_sub_epi8(x, _mm512_set1_epi8(char(y))); }
#endif

// Lower 64 bytes and compute their bits.
template <int MODE>
void classify_64(const uint8_t* from, bool lower, uint8_t* low, uint64_t* inside, uint64_t* high, uint64_t* line) {
#if defined(__AVX512BW__)
    const __m512i x = _mm512_loadu_si512(from), blank = _mm512_set1_epi8(32);
    const uint64_t capital = lower ? less(minus(x, 'A'), 26) : 0, beyond = _mm512_movepi8_mask(x);
    _mm512_storeu_si512(low, _mm512_mask_add_epi8(x, capital, x, blank));
    *high = MODE == VERBATIM ? 0 : beyond;
    *line = equal(x, '\n') | (MODE == VERBATIM ? 0 : equal(x, '\r'));
    if (MODE == WORDS)
        *inside = less(minus(_mm512_or_si512(x, blank), 'a'), 26) | beyond;
    else if (MODE == WHITESPACE)
        *inside = ~less(x, 33) | less(minus(x, 1), 8) | less(minus(x, 14), 14);
    else
        *inside = ~(equal(x, ' ') | equal(x, '\n'));
#else
    uint8_t in[64], hi[64], end[64];
    for (int j = 0; j < 64; j++) {  // branch-free, so that the compiler vectorizes it
        const uint8_t c = from[j];
        low[j] = uint8_t(c + (uint8_t(lower & (uint8_t(c - 'A') < 26)) << 5));
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
    *inside = a;
    *high = b;
    *line = c;
#endif
}

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
        classify_64<MODE>(from, lower, low + i, &inside.word[i >> 6], &high.word[i >> 6], &line.word[i >> 6]);
    }
    for (int64_t w = (n + 63) / 64; w < n / 64 + 2; w++) inside.word[w] = high.word[w] = line.word[w] = 0;
}

// The third byte of U+2000 to U+203F (E2 80 80 to E2 80 BF): joiners and direction marks do not end a word.
inline bool is_joiner(uint8_t c) { return (c >= 0x8C && c <= 0x8F) || (c >= 0xAA && c <= 0xAE); }

// In running text U+2000 to U+203F, dashes and quotation marks, end a word; joiners do not. They are not letters, and
// too common for a call to Python. But the lower case of Σ (CE A3) depends on its context, even beyond an apostrophe.
// If a Σ must be lowered, a word is therefore everything between blanks.
inline void split_foreign(const uint8_t* x, int64_t n, bool lower, Bits inside, Bits high) {
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
inline void count_left_out(const uint8_t* x, int64_t n, int64_t* digits, int64_t* joints) {
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
