// The adversary of embtrain/negatives/ace.py: draws from cached rows of g, densities, and the sparse half of REINFORCE.
//
//     q(y|x) = λ p(y) + (1 - λ) g(y|x),   log g(y|x) = w_c · z_x - log Z_x + log π(y),   c = class of y
//
// A draw reads the row's running sums (a binary search over its blocks of WIDTH classes) and makes the one block that it
// falls into anew, from w and z: those stay in the cache, where rows of g would not. So no row of g is ever kept.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ace.h"
#include "core.h"
#include "update_vec.h"

namespace {

constexpr int64_t WIDTH = 8;   // classes of a block, as in embtrain/kernels/reference/ace.py: one vector, or two
constexpr int64_t SOME = 32;   // columns of one kind at once
constexpr int64_t AHEAD = 8;    // draws ahead of the one at work whose running sums are asked for
constexpr int8_t NOISE = 0, GENERATOR = 1, PROBE = 2;  // as in embtrain/types.py

vec products(const float* a, const float* b, int64_t n) {  // their lanes add up to a · b
    vec x{}, y{};
    int64_t i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        x += load(a + i) * load(b + i);
        y += load(a + i + W) * load(b + i + W);
    }
    float rest = 0.0f;
    for (; i < n; ++i) rest += a[i] * b[i];
    x[0] += rest;
    return x + y;
}

// log q of n ids from their log g and p, in place of p.
void mixture(const AceTask& t, int64_t n, const float* log_g, float* p) {
    if (t.mix <= 0.0) {  // no round trip through exp: an unlikely id keeps its digits
        std::copy(log_g, log_g + n, p);
        return;
    }
    const vec mix = splat(float(t.mix)), rest = splat(float(1.0 - t.mix));
    const auto of = [&](vec g, vec noise) { return log_of(mix * noise + rest * exp_of(g)); };
    int64_t i = 0;
    for (; i + W <= n; i += W) store(p + i, of(load(log_g + i), load(p + i)));
    if (i == n) return;
    float g[W] = {0}, noise[W] = {0};
    std::copy(log_g + i, log_g + n, g);
    std::copy(p + i, p + n, noise);
    const vec x = of(load(g), load(noise));
    for (int64_t j = 0; i + j < n; ++j) p[i + j] = x[j];
}

float log_g_of(const AceTask& t, int64_t y, int64_t row) {
    const AceWord& word = t.word[y];
    return sum(products(t.w + word.klass * t.hidden, t.z + row * t.hidden, t.hidden)) - t.log_z[row] + word.log_within;
}

// log g and p of n ids of one row; four at a time, for their sums are then one.
void look_up(const AceTask& t, int64_t n, const int64_t* id, int64_t row, float* log_g, float* p) {
    const float *z = t.z + row * t.hidden, log_z = t.log_z[row];
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        half part[4], within, mass;
        for (int64_t i = 0; i < 4; ++i) {
            const AceWord& word = t.word[id[j + i]];
            part[i] = fold(products(t.w + word.klass * t.hidden, z, t.hidden));
            within[i] = word.log_within - log_z;
            mass[i] = word.p;
        }
        store_half(log_g + j, sums(part[0], part[1], part[2], part[3]) + within);
        store_half(p + j, mass);
    }
    for (; j < n; ++j) log_g[j] = log_g_of(t, id[j], row), p[j] = t.word[id[j]].p;
}

double unit(uint64_t bits) { return double(bits >> 11) * 0x1.0p-53; }

struct Wanted {       // one column
    int64_t row, to;  // `to`: where it is written
    uint64_t at;      // its second number in the stream
};

// The blocks that the points u in [0, 1) of n rows fall into: the first whose running sum is greater. All searches take a
// step before one takes the next, for each waits for memory alone; no branch to mispredict.
void find_blocks(const AceTask& t, int64_t n, const Wanted* of, const double* u, int64_t* block, double* share) {
    const double* ends[SOME];
    double at[SOME];
    for (int64_t i = 0; i < n; ++i) {
        ends[i] = t.ends + of[i].row * t.n_blocks;
        at[i] = u[i] * ends[i][t.n_blocks - 1];
        block[i] = 0;
    }
    for (int64_t left = t.n_blocks - 1; left > 0;) {
        const int64_t half = (left + 1) / 2;
        for (int64_t i = 0; i < n; ++i) block[i] += ends[i][block[i] + half - 1] <= at[i] ? half : 0;
        left -= half;
    }
    for (int64_t i = 0; i < n; ++i) {
        const float* panel = t.panel + block[i] * t.hidden * WIDTH;
        for (int64_t d = 0; d < t.hidden * WIDTH; d += 16) __builtin_prefetch(panel + d);
        const double before = block[i] ? ends[i][block[i] - 1] : 0.0;
        share[i] = (at[i] - before) / (ends[i][block[i]] - before);
    }
}

// The id at the point `share` in [0, 1) of a block, and at v of its class, and its log g, from the logits of the block.
void find(const AceTask& t, int64_t row, int64_t block, double share, double v, int64_t* id, float* log_g) {
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
    float log_of_class[WIDTH], g[WIDTH];
    const int64_t here = std::min(WIDTH, t.n_classes - block * WIDTH);
    for (int64_t p = 0; p < PARTS; ++p) {
        const vec x = even[p] + odd[p];
        store(log_of_class + p * W, x);
        store(g + p * W, first(exp_of(x), here - p * W));
    }
    // Four classes, then one. The block's sum differs from that in `ends` by rounding.
    const float four = sum(load_half(g)), at = float(share) * (four + sum(load_half(g + 4)));
    const int64_t quarter = four <= at ? 4 : 0;
    const float* in = g + quarter;
    const float one = (quarter ? four : 0.0f) + in[0], two = one + in[1], three = two + in[2];
    const int64_t inside = std::min<int64_t>(quarter + (one <= at) + (two <= at) + (three <= at), here - 1);
    const int64_t c = block * WIDTH + inside, a = t.first[c], b = t.first[c + 1];
    *id = t.member[a];
    *log_g = log_of_class[inside];
    if (b - a == 1) return;
    // Members of a class are about equally likely, so the place is near where it would be if they were.
    const double point = v * t.upto[b - 1];
    int64_t member = std::min(a + int64_t(v * double(b - a)), b - 1);
    while (member > a && t.upto[member - 1] > point) --member;
    while (member < b - 1 && t.upto[member] <= point) ++member;
    *id = t.member[member];
    *log_g += t.word[*id].log_within;
}

}  // namespace

// What is kept of rows, from their logits (n, n_classes): ends, log_z, the class with the greedy answer,
// argmax_c l_c + log_best_c, the first of equals, and its log g.
extern "C" EMBTRAIN_API int embtrain_ace_rows(int64_t n, int64_t n_classes, const float* logits, const float* log_best,
                                              double* ends, float* log_z, int64_t* best, float* log_top) {
    const int64_t n_blocks = (n_classes + WIDTH - 1) / WIDTH, whole = n_classes / WIDTH * WIDTH;
    for (int64_t i = 0; i < n; ++i) {
        const float* l = logits + i * n_classes;
        vec tops = splat(-INFINITY), others = tops;
        int64_t begin = 0;
        for (; begin + 2 * W <= whole; begin += 2 * W) {
            tops = most(tops, load(l + begin) + load(log_best + begin));
            others = most(others, load(l + begin + W) + load(log_best + begin + W));
        }
        tops = most(tops, others);
        float top = -INFINITY;
        for (int64_t j = 0; j < W; ++j) top = std::max(top, tops[j]);
        for (int64_t c = begin; c < n_classes; ++c) top = std::max(top, l[c] + log_best[c]);
        // Classes are summed relative to the greedy answer. One of many members may stand above it, by the log of their
        // number at most.
        double total = 0.0;
        const vec shift = splat(top);
        const auto part = [&](int64_t b) {  // of one block, in four numbers
            half all{};
            for (int64_t j = 0; j < WIDTH; j += W) all += fold(exp_of(load(l + b * WIDTH + j) - shift));
            return all;
        };
        int64_t b = 0;
        for (; b + 4 <= whole / WIDTH; b += 4) {
            const half four = sums(part(b), part(b + 1), part(b + 2), part(b + 3));
            for (int64_t i = 0; i < 4; ++i) ends[b + i] = total += double(four[i]);
        }
        for (; b < whole / WIDTH; ++b) ends[b] = total += double(sum(part(b)));
        if (whole < n_classes) {
            float rest[WIDTH] = {0};
            std::copy(l + whole, l + n_classes, rest);
            vec last{};
            for (int64_t j = 0; j < WIDTH; j += W)
                last += first(exp_of(load(rest + j) - shift), n_classes - whole - j);
            ends[b] = total += double(sum(last));
        }
        for (b = 0; b < n_blocks; ++b) ends[b] *= 1.0 / total;
        log_z[i] = top + float(std::log(total));
        log_top[i] = -float(std::log(total));
        int64_t at = 0;
        for (; at + W <= n_classes && !any(load(l + at) + load(log_best + at) >= shift);) at += W;
        while (at + 1 < n_classes && !(l[at] + log_best[at] >= top)) ++at;
        best[i] = at;
        ends += n_blocks;
    }
    return OK;
}

// g <- e^(l - log_z) in rows of logits (n, n_classes), and within = Σ_c g_c eta_c.
extern "C" EMBTRAIN_API int embtrain_ace_soften(int64_t n, int64_t n_classes, float* logits, const float* log_z,
                                                const float* eta, float* within) {
    for (int64_t i = 0; i < n; ++i) {
        float* l = logits + i * n_classes;
        const vec z = splat(log_z[i]);
        vec total{};
        int64_t c = 0;
        for (; c + W <= n_classes; c += W) {
            const vec g = exp_of(load(l + c) - z);
            store(l + c, g);
            total += g * load(eta + c);
        }
        float rest[W] = {0};
        std::copy(l + c, l + n_classes, rest);
        const vec last = exp_of(load(rest) - z);
        within[i] = sum(total);
        for (; c < n_classes; ++c) {
            l[c] = last[c % W];
            within[i] += l[c] * eta[c];
        }
    }
    return OK;
}

// K columns for each of n_draws windows: three numbers a column say whether the noise or the row is asked (`by_noise`
// columns first where it is not negative, else a toss of λ), and where; with `probe` one more, the row's greedy answer.
// Windows are taken by ascending row, so that a row is read once for all that ask it; `order` (n_draws) and `count`
// (n_rows + 1, zeros) are room for sorting them.
extern "C" EMBTRAIN_API int embtrain_ace_draw(const AceTask* task, int64_t n_draws, const int64_t* row,
                                              int64_t* order, int64_t* count, int64_t k, int64_t by_noise, int probe,
                                              uint64_t seed, int64_t* ids, int8_t* origin, float* log_g,
                                              float* log_q) {
    const AceTask& t = *task;
    for (int64_t i = 0; i < n_draws; ++i) {
        if (row[i] < 0 || row[i] >= t.n_rows) return OUT_OF_RANGE;
        ++count[row[i] + 1];
    }
    for (int64_t r = 0; r < t.n_rows; ++r) count[r + 1] += count[r];
    for (int64_t i = 0; i < n_draws; ++i) order[count[row[i]]++] = i;
    const int64_t width = k + (probe != 0);
    Wanted by_g[SOME + 1], by_p[SOME + 1];  // columns wait in the line of who draws them: which it is, nobody foresees
    int64_t waiting_g = 0, waiting_p = 0;
    const auto draw_by_g = [&] {
        double u[SOME], share[SOME];
        int64_t block[SOME];
        for (int64_t i = 0; i < waiting_g; ++i) u[i] = unit(u64_at(seed, by_g[i].at));
        find_blocks(t, waiting_g, by_g, u, block, share);
        for (int64_t i = 0; i < waiting_g; ++i) {
            const int64_t to = by_g[i].to;
            find(t, by_g[i].row, block[i], share[i], unit(u64_at(seed, by_g[i].at + 1)), ids + to, log_g + to);
            origin[to] = GENERATOR, log_q[to] = t.word[ids[to]].p;
        }
        waiting_g = 0;
    };
    const auto draw_by_p = [&] {
        for (int64_t i = 0; i < waiting_p; ++i) {
            const auto wide = (unsigned __int128)u64_at(seed, by_p[i].at) * uint64_t(t.n_ids);
            const int64_t column = int64_t(wide >> 64), other = t.alias[column];
            ids[by_p[i].to] = uint64_t(wide) < t.accept[column] ? column : other;
        }
        for (int64_t i = 0; i < waiting_p; ++i) {
            const int64_t to = by_p[i].to, y = ids[to];
            origin[to] = NOISE, log_g[to] = log_g_of(t, y, by_p[i].row), log_q[to] = t.word[y].p;
        }
        waiting_p = 0;
    };
    for (int64_t o = 0; o < n_draws; ++o) {
        const int64_t i = order[o], r = row[i];
        if (o + AHEAD < n_draws && row[order[o + AHEAD]] != row[order[o + AHEAD - 1]]) {
            const char* ends = reinterpret_cast<const char*>(t.ends + row[order[o + AHEAD]] * t.n_blocks);
            for (int64_t at = 0; at < t.n_blocks * 8; at += 64) __builtin_prefetch(ends + at);
        }
        for (int64_t j = 0; j < k; ++j) {
            const uint64_t at = 3 * uint64_t(i * k + j);
            const bool noise = by_noise < 0 ? unit(u64_at(seed, at)) < t.mix : j < by_noise;
            by_g[waiting_g] = by_p[waiting_p] = {r, i * width + j, at + 1};
            waiting_g += !noise;
            waiting_p += noise;
            if (waiting_g == SOME) draw_by_g();
            if (waiting_p == SOME) draw_by_p();
        }
        if (!probe) continue;
        const int64_t to = i * width + k, y = t.greedy[r];
        ids[to] = y, origin[to] = PROBE, log_g[to] = t.log_best[r], log_q[to] = t.word[y].p;
    }
    draw_by_g();
    draw_by_p();
    mixture(t, n_draws * width, log_g, log_q);
    return OK;
}

// g_c <- g_c (a + h (log g_c - eta_c + entropy)) in the rows (n, n_classes) where h > 0: the slope of a log g + h H.
extern "C" EMBTRAIN_API int embtrain_ace_slope(int64_t n, int64_t n_classes, float* g, const float* a, const float* h,
                                               const float* entropy, const float* eta) {
    for (int64_t i = 0; i < n; ++i) {
        if (h[i] <= 0.0f) continue;
        float* x = g + i * n_classes;
        const vec least_g = splat(1e-37f), factor = splat(h[i]), base = splat(a[i] + h[i] * entropy[i]);
        int64_t c = 0;
        for (; c + W <= n_classes; c += W)
            store(x + c, load(x + c) * (base + factor * (log_of(most(load(x + c), least_g)) - load(eta + c))));
        for (; c < n_classes; ++c)
            x[c] *= a[i] + h[i] * (std::log(std::max(x[c], 1e-37f)) - eta[c] + entropy[i]);
    }
    return OK;
}

// log g and log q of ids, each line asked of its row (n): line i has the ids start[i] to start[i + 1].
extern "C" EMBTRAIN_API int embtrain_ace_density(const AceTask* task, int64_t n, const int64_t* start, const int64_t* id,
                                                 const int64_t* row, float* log_g, float* log_q) {
    const AceTask& t = *task;
    for (int64_t i = 0; i < n; ++i) {
        if (row[i] < 0 || row[i] >= t.n_rows) return OUT_OF_RANGE;
        for (int64_t j = start[i]; j < start[i + 1]; ++j)
            if (id[j] < 0 || id[j] >= t.n_ids) return OUT_OF_RANGE;
        look_up(t, start[i + 1] - start[i], id + start[i], row[i], log_g + start[i], log_q + start[i]);
    }
    mixture(t, start[n], log_g, log_q);
    return OK;
}
