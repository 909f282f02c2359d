// The generator of embtrain/negatives/adversarial/ace.py: draws from cached rows of g, and densities.
//
//     q(y|x) = λ p(y) + (1 - λ) g(y|x),   log g(y|x) = w_c · z_x - log Z_x + log π(y),   c = class of y
//
// A draw searches the row's running sums (a binary search over blocks of WIDTH classes) and recomputes only the block
// that it falls into, from w and z. These stay in the cache; rows of g would not, so they are never stored.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sampling/generator.h"
#include "core/core.h"
#include "core/simd_math.h"

namespace {

constexpr int64_t BATCH = 32;   // negatives of one origin processed at once
constexpr int64_t AHEAD = 8;    // draws between the current one and the one whose running sums are prefetched
constexpr int64_t MOST_AHEAD = 128;  // of them; a search in a longer row reads few of its lines
constexpr int8_t NOISE = 0, GENERATOR = 1, PROBE = 2;  // as in embtrain/common/types/negatives.py

vec long_products(const float* a, const float* b, int64_t n) {
    vec x{}, y{};
    int64_t i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        x += load(a + i) * load(b + i);
        y += load(a + i + W) * load(b + i + W);
    }
    if (i + W <= n) {
        x += load(a + i) * load(b + i);
        i += W;
    }
    if (i < n) y += load_first(a + i, n - i) * load_first(b + i, n - i);
    return x + y;
}

// The sum of the lanes is a · b.
inline vec products(const float* a, const float* b, int64_t n) {
    return n == W ? load(a) * load(b) : long_products(a, b, n);
}

// log q of n ids from their log g and p; overwrites p.
void mixture(const GeneratorTask& t, int64_t n, const float* log_g, float* p) {
    if (t.mix <= 0.0) {  // no round trip through exp: unlikely ids keep their precision
        std::copy(log_g, log_g + n, p);
        return;
    }
    // If q is too small for a float, the noise contributes nothing.
    const vec mix = splat(float(t.mix)), rest = splat(float(1.0 - t.mix)), least = splat(1e-37f);
    const vec log_rest = splat(float(std::log(1.0 - t.mix)));
    const auto log_mixture = [&](vec g, vec noise) {
        const vec q = mix * noise + rest * exp_of(g);
        return q < least ? log_rest + g : log_of(q);
    };
    int64_t i = 0;
    for (; i + W <= n; i += W) store(p + i, log_mixture(load(log_g + i), load(p + i)));
    if (i == n) return;
    float g[W] = {0}, noise[W] = {0};
    std::copy(log_g + i, log_g + n, g);
    std::copy(p + i, p + n, noise);
    const vec x = log_mixture(load(g), load(noise));
    for (int64_t j = 0; i + j < n; ++j) p[i + j] = x[j];
}

float log_g_at(const GeneratorTask& t, int64_t y, int64_t row) {
    const GeneratorWord& word = t.word[y];
    return sum(products(t.w + word.klass * t.hidden, t.z + row * t.hidden, t.hidden)) - t.log_z[row] + word.log_within;
}

// log g and p of n ids in one row, four at a time to share one horizontal sum.
void log_g_and_p(const GeneratorTask& t, int64_t n, const int64_t* id, int64_t row, float* log_g, float* p) {
    const float *z = t.z + row * t.hidden, log_z = t.log_z[row];
    half part[4], within{}, mass{};
    const auto group = [&](const int64_t* four, int64_t m) {  // the first m of 4 ids
        for (int64_t i = 0; i < 4; ++i) {
            const GeneratorWord& word = t.word[four[i < m ? i : 0]];
            part[i] = fold(products(t.w + word.klass * t.hidden, z, t.hidden));
            within[i] = word.log_within - log_z;
            mass[i] = word.p;
        }
        return sums(part[0], part[1], part[2], part[3]) + within;
    };
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        store_half(log_g + j, group(id + j, 4));
        store_half(p + j, mass);
    }
    if (j == n) return;
    const half rest = group(id + j, n - j);
    for (int64_t i = 0; j + i < n; ++i) log_g[j + i] = rest[i], p[j + i] = mass[i];
}

// Number of the BUNDLE numbers at x that are <= y.
int64_t not_above(const uint32_t* x, uint32_t y) {
    const ivec lowest = splat(INT32_MIN), bound = splat(int32_t(y)) ^ lowest;  // maps unsigned order to signed order
    int64_t n_not_above = 0;
    for (int64_t j = 0; j < BUNDLE; j += W)
        n_not_above += count((load(reinterpret_cast<const int32_t*>(x + j)) ^ lowest) <= bound);
    return n_not_above;
}

struct PendingNegative {       // a negative to be drawn
    int64_t row, to;  // `to`: its place in the output
    uint64_t counter;      // its second number in the stream
};

// The blocks that the points u of n rows fall into, u in units of 2^-64: the first block whose running sum exceeds u,
// and the relative position inside it. The binary searches advance in lockstep, because each is bound by memory
// latency. Inside a bundle all sums are compared at once, without a branch to mispredict.
void find_blocks(const GeneratorTask& t, int64_t n, const PendingNegative* pending, const uint64_t* u, int64_t* block,
                 float* share) {
    const uint32_t* ends[BATCH];
    uint32_t point[BATCH];
    for (int64_t i = 0; i < n; ++i) {
        ends[i] = t.ends + pending[i].row * t.n_ends;
        point[i] = std::min(uint32_t(u[i] >> 32), UINT32_MAX - 1);
        block[i] = 0;
    }
    for (int64_t left = t.n_ends / BUNDLE - 1; left > 0;) {
        const int64_t half = (left + 1) / 2, step = half * BUNDLE;
        for (int64_t i = 0; i < n; ++i) block[i] += step & -int64_t(ends[i][block[i] + step - 1] <= point[i]);
        left -= half;
    }
    for (int64_t i = 0; i < n; ++i) {
        block[i] += not_above(ends[i] + block[i], point[i]);
        const uint32_t before = block[i] ? ends[i][block[i] - 1] : 0;
        const uint64_t inside = (uint64_t(point[i] - before) << 31) + (u[i] << 32 >> 33);
        share[i] = float(int64_t(inside)) / float(ends[i][block[i]] - before) * 0x1p-31f;
    }
}

// The class at the point `share` in [0, 1) of a block, and its log g, from the logits of the block. Branch-free,
// because the outcome is unpredictable.
int64_t class_at(const GeneratorTask& t, int64_t row, int64_t block, float share, float* log_g) {
    constexpr int64_t PARTS = WIDTH / W;
    const float *z = t.z + row * t.hidden, *w = t.panel + block * t.hidden * WIDTH;
    vec even[PARTS], odd[PARTS];
    for (int64_t p = 0; p < PARTS; ++p) even[p] = splat(-t.log_z[row]), odd[p] = vec{};
    int64_t d = 0;
    for (; d + 2 <= t.hidden; d += 2)
        for (int64_t p = 0; p < PARTS; ++p) {
            even[p] += splat(z[d]) * load(w + d * WIDTH + p * W);
            odd[p] += splat(z[d + 1]) * load(w + (d + 1) * WIDTH + p * W);
        }
    if (d < t.hidden)
        for (int64_t p = 0; p < PARTS; ++p) even[p] += splat(z[d]) * load(w + d * WIDTH + p * W);
    float class_log_g[WIDTH];
    vec upto[PARTS];
    const int64_t n_in_block = std::min(WIDTH, t.n_classes - block * WIDTH);
    float total = 0.0f;
    for (int64_t p = 0; p < PARTS; ++p) {
        const vec x = even[p] + odd[p];
        store(class_log_g + p * W, x);
        upto[p] = splat(total) + prefix_sums(first(exp_of(x), n_in_block - p * W));
        total = upto[p][W - 1];
    }
    const vec threshold = splat(share * total);  // the block's sum differs from that in `ends` by rounding
    int64_t inside = 0;
    for (int64_t p = 0; p < PARTS; ++p) inside += count(upto[p] <= threshold);
    inside = std::min(inside, n_in_block - 1);
    *log_g = class_log_g[inside];
    return block * WIDTH + inside;
}

// A point in an alias table: its column, and its position inside the column in units of 2^-64.
struct AliasPoint { int64_t column; uint64_t inside; };

AliasPoint alias_point(uint64_t bits, int64_t n) {  // of n columns
    const auto product = (unsigned __int128)bits * uint64_t(n);
    return {int64_t(product >> 64), uint64_t(product)};
}

// The id of a point. A mask, not a branch, because the outcome is unpredictable.
int64_t alias_id(const AliasPoint& point, const uint64_t* keep, int64_t own, int64_t alias) {
    return own ^ ((own ^ alias) & -int64_t(point.inside >= keep[point.column]));
}

}  // namespace

// Draws K negatives for each of n_draws windows. Each negative uses three numbers: the first decides between noise and
// generator with probability λ, unless `by_noise` >= 0 fixes the number of leading noise negatives; the others decide
// the id. With `probe` the row's greedy id is one more negative.
extern "C" EMBTRAIN_API int embtrain_generator_draw(const GeneratorTask* task, int64_t n_draws, const int64_t* row,
                                                    int64_t k, int64_t by_noise, int probe, uint64_t seed, int64_t* ids,
                                                    int8_t* origin, float* log_g, float* log_q) {
    const GeneratorTask& t = *task;
    if (!all_within(row, n_draws, t.n_rows)) return OUT_OF_RANGE;
    const int64_t width = k + (probe != 0);
    const auto noise_below = uint64_t(std::ceil(t.mix * 0x1p53));     // λ for the upper 53 bits of a number
    // Negatives are queued per component, to avoid an unpredictable branch. What a negative reads next is prefetched,
    // and read when the other negatives of the queue have got as far.
    PendingNegative pending_g[BATCH], pending_p[BATCH];
    AliasPoint point_g[BATCH], point_p[BATCH];
    int64_t n_g = 0, n_p = 0;
    const auto flush_generator = [&] {
        uint64_t u[BATCH];
        float share[BATCH];
        int64_t block[BATCH];
        const int64_t n = n_g;
        for (int64_t i = 0; i < n; ++i) u[i] = u64_at(seed, pending_g[i].counter);
        find_blocks(t, n, pending_g, u, block, share);
        for (int64_t i = 0; i < n; ++i) {
            const int64_t c = class_at(t, pending_g[i].row, block[i], share[i], log_g + pending_g[i].to);
            const int64_t begin = t.first[c];
            point_g[i] = alias_point(u64_at(seed, pending_g[i].counter + 1), t.first[c + 1] - begin);
            const int64_t at = point_g[i].column += begin;
            __builtin_prefetch(t.keep + at);
            __builtin_prefetch(t.member + at);
            __builtin_prefetch(t.instead + at);
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t at = point_g[i].column;
            const int64_t y = ids[pending_g[i].to] = alias_id(point_g[i], t.keep, t.member[at], t.instead[at]);
            __builtin_prefetch(t.word + y);
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t to = pending_g[i].to;
            const GeneratorWord& word = t.word[ids[to]];
            origin[to] = GENERATOR, log_g[to] += word.log_within, log_q[to] = word.p;
        }
        n_g = 0;
    };
    const auto flush_noise = [&] {
        const int64_t n = n_p;
        for (int64_t i = 0; i < n; ++i) {
            point_p[i] = alias_point(u64_at(seed, pending_p[i].counter), t.n_ids);
            __builtin_prefetch(t.accept + point_p[i].column);
            __builtin_prefetch(t.alias + point_p[i].column);
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t at = point_p[i].column;
            const int64_t y = ids[pending_p[i].to] = alias_id(point_p[i], t.accept, at, t.alias[at]);
            __builtin_prefetch(t.word + y);
        }
        for (int64_t i = 0; i < n; ++i) {
            const int64_t to = pending_p[i].to, y = ids[to];
            origin[to] = NOISE, log_g[to] = log_g_at(t, y, pending_p[i].row), log_q[to] = t.word[y].p;
        }
        n_p = 0;
    };
    for (int64_t i = 0; i < n_draws; ++i) {
        const int64_t r = row[i];
        if (i + AHEAD < n_draws) {
            const int64_t next = row[i + AHEAD];
            const uint32_t* const ends = t.ends + next * t.n_ends;
            for (int64_t e = 0; e < std::min(t.n_ends, MOST_AHEAD); e += 16) __builtin_prefetch(ends + e);
            __builtin_prefetch(t.z + next * t.hidden);
            __builtin_prefetch(t.log_z + next);
            __builtin_prefetch(t.greedy + next);
            __builtin_prefetch(t.log_best + next);
        }
        for (int64_t j = 0; j < k; ++j) {
            const uint64_t counter = 3 * uint64_t(i * k + j);
            const bool is_noise = by_noise < 0 ? u64_at(seed, counter) >> 11 < noise_below : j < by_noise;
            pending_g[n_g] = pending_p[n_p] = {r, i * width + j, counter + 1};   // in both queues, kept in one
            n_g += !is_noise, n_p += is_noise;
            if (n_g == BATCH) flush_generator();
            if (n_p == BATCH) flush_noise();
        }
        if (!probe) continue;
        const int64_t to = i * width + k, y = t.greedy[r];
        ids[to] = y, origin[to] = PROBE, log_g[to] = t.log_best[r], log_q[to] = t.word[y].p;
    }
    flush_generator();
    flush_noise();
    mixture(t, n_draws * width, log_g, log_q);
    return OK;
}

// log g and log q of ids: row[i] (n) has the ids start[i] to start[i + 1].
extern "C" EMBTRAIN_API int embtrain_generator_density(const GeneratorTask* task, int64_t n, const int64_t* start,
                                                       const int64_t* id,
                                                 const int64_t* row, float* log_g, float* log_q) {
    const GeneratorTask& t = *task;
    if (!all_within(row, n, t.n_rows) || !all_within(id, start[n], t.n_ids)) return OUT_OF_RANGE;
    for (int64_t i = 0; i < n; ++i) {
        if (i + AHEAD < n) {
            __builtin_prefetch(t.z + row[i + AHEAD] * t.hidden);
            __builtin_prefetch(t.log_z + row[i + AHEAD]);
            for (int64_t j = start[i + AHEAD]; j < start[i + AHEAD + 1]; ++j) __builtin_prefetch(t.word + id[j]);
        }
        log_g_and_p(t, start[i + 1] - start[i], id + start[i], row[i], log_g + start[i], log_q + start[i]);
    }
    mixture(t, start[n], log_g, log_q);
    return OK;
}
