// The distinct words of a text, as bytes, numbered by first appearance: a hash table with open addressing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

constexpr int64_t FIRST_SLOTS = 1 << 14;
constexpr int SHORT = 16;  // bytes of a word that are stored in its slot
constexpr int SLACK = 64;  // bytes that may be read past the end of a chunk
constexpr uint64_t KEEP[SHORT / 2 + 1] = {0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF, 0xFFFFFFFFFFFF,
                                          0xFFFFFFFFFFFFFF, ~uint64_t(0)};

inline bool grow(void** memory, int64_t bytes) {
    void* more = std::realloc(*memory, size_t(bytes));
    if (!more) return false;
    *memory = more;
    return true;
}

inline uint64_t eight(const void* x) {
    uint64_t word;
    std::memcpy(&word, x, 8);
    return word;
}

inline uint64_t mixed(uint64_t x, uint64_t y) {
    const auto product = static_cast<unsigned __int128>(x ^ 0xA0761D6478BD642Full) * (y ^ 0xE7037ED1A0B428DBull);
    return uint64_t(product) ^ uint64_t(product >> 64);
}

// An entry of the hash table: the bytes of a short word, padded with zeros; else its hash.
struct Slot {
    uint64_t a, b;
    uint32_t number;  // + 1; 0: empty
    uint32_t size;    // 2 * bytes + foreign

    // The key of a word, with number 0. SHORT bytes from x on must be readable.
    static Slot key(const uint8_t* x, int64_t size, bool is_foreign) {
        Slot key;
        key.number = 0;
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
        return key;
    }

    uint64_t hash() const { return size > 2 * SHORT + 1 ? a : mixed(a ^ size, b); }
};

// Empty entries, in huge pages if there are megabytes of them: with small ones most lookups miss the TLB.
inline Slot* empty_slots(size_t n) {
#if defined(__linux__)
    constexpr size_t HUGE = size_t(1) << 21;
    if (n * sizeof(Slot) >= HUGE) {
        const size_t size = (n * sizeof(Slot) + HUGE - 1) / HUGE * HUGE;
        void* memory = std::aligned_alloc(HUGE, size);
        if (!memory) return nullptr;
        madvise(memory, size, MADV_HUGEPAGE);
        return static_cast<Slot*>(std::memset(memory, 0, size));
    }
#endif
    return static_cast<Slot*>(std::calloc(n, sizeof(Slot)));
}

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
        Slot* fresh = empty_slots(size_t(to));
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

    // Load the place of a word ahead of find_or_add: most of the table is not in the nearest cache.
    void prefetch(const Slot& key) const { __builtin_prefetch(&slots[key.hash() & uint64_t(n_slots - 1)]); }

    // The number of the word x with that key, -1 if memory is exhausted.
    int64_t find_or_add(Slot key, const uint8_t* x) {
        const int64_t size = key.size / 2;
        int64_t index = int64_t(key.hash()) & (n_slots - 1);
        for (; slots[index].number; index = (index + 1) & (n_slots - 1)) {
            const Slot& slot = slots[index];
            if (slot.a != key.a || slot.b != key.b || slot.size != key.size) continue;
            const int64_t number = int64_t(slot.number) - 1;
            if (size <= SHORT || std::memcmp(letters + begin[number], x, size_t(size)) == 0) return number;
        }
        if (!add(x, size, key.size & 1)) return -1;
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

}  // namespace
