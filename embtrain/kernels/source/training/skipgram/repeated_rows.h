// Repeated rows of a block, for row-Adagrad, which takes one step per row.
#pragma once

#include "training/skipgram/scratch.h"

namespace {

// Targets are numbered from K on in the order of the block; a target that equals a negative has the number of that
// negative. The pairs with target r are pair[begin[r]] to pair[begin[r + 1] - 1].
class RepeatedRows {
public:
    int64_t end = 0;                               // K + the number of different targets that are not negatives
    int32_t *number = nullptr;                     // of the target of each pair
    int32_t *pair = nullptr, *begin = nullptr;
    int32_t *first_column = nullptr, *first_centre = nullptr;  // the first negative, the first window with the same row

    bool make(Scratch& scratch, const SkipGramTask& task, int64_t max_pairs, int64_t max_windows) {
        t = &task;
        number = scratch.take<int32_t>(max_pairs);
        pair = scratch.take<int32_t>(max_pairs);
        begin = scratch.take<int32_t>(t->k + max_pairs + 1);
        place = scratch.take<int32_t>(t->k + max_pairs);
        first_column = scratch.take<int32_t>(t->k);
        first_centre = scratch.take<int32_t>(max_windows);
        seen.make(scratch, t->k + max_pairs);
        centres.make(scratch, max_windows);
        return scratch.ok;
    }

    void find(int64_t first, int64_t n, const int64_t* ids) {
        const int64_t k = t->k, begin_pair = t->start[first], pairs = t->start[first + n] - begin_pair;
        const int64_t* const target = t->target + begin_pair;
        seen.clear();
        centres.clear();
        for (int64_t j = 0; j < k; ++j) first_column[j] = seen.put((int32_t)ids[j], (int32_t)j);
        for (int64_t i = 0; i < n; ++i) first_centre[i] = centres.put((int32_t)t->centre[first + i], (int32_t)i);
        std::memset(place, 0, (size_t)(k + pairs) * sizeof(int32_t));
        end = k;
        for (int64_t p = 0; p < pairs; ++p) {
            number[p] = seen.put((int32_t)target[p], (int32_t)end);
            end += number[p] == end;
            ++place[number[p]];
        }
        int32_t total = 0;
        for (int64_t r = 0; r < end; ++r) {
            begin[r] = total;
            total += place[r];
            place[r] = begin[r];
        }
        begin[end] = total;
        for (int64_t p = 0; p < pairs; ++p) pair[place[number[p]]++] = (int32_t)p;
    }

private:
    const SkipGramTask* t = nullptr;
    Seen seen, centres;
    int32_t* place = nullptr;
};

}  // namespace
