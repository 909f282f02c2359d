// The adversary of embtrain/negatives/ace.py: draws from cached rows of g, densities, and the sparse half of REINFORCE.
//
//     q(y|x) = λ p(y) + (1 - λ) g(y|x),   log g(y|x) = w_c · z_x - log Z_x + log π(y),   c = class of y
//
// A draw reads the row's running sums (a binary search over its blocks of WIDTH classes, then the block itself), so it
// costs a handful of cache lines whatever the number of classes. Densities need w and z alone, which stay in the cache
// where the rows of g do not.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core.h"
#include "update_vec.h"

struct AceWord {  // what a density wants of an id, in one cache line
    int32_t klass;
    float log_within, p, unused;
};

struct AceTask {  // the same order in embtrain/kernels/ace.py
    const float* z;           // (n_rows, hidden)
    const float* w;           // (n_classes, hidden)
    const float* log_z;       // (n_rows)
    const float* g;           // (n_rows, width * n_blocks), 0 beyond n_classes
    const double* ends;       // (n_rows, n_blocks)  running sums of g's blocks
    const AceWord* word;      // (n_ids)
    const uint64_t* accept;   // (n_ids)  alias table of p
    const int64_t* alias;     // (n_ids)
    const int64_t* member;    // (n_ids)  ids sorted by class
    const int64_t* first;     // (n_classes + 1)  where each class begins in member
    const double* upto;       // (n_ids)  running sums of π over member, from 0 in each class
    int64_t n_rows, n_classes, n_ids, hidden, n_blocks;
    double mix;               // λ
};

namespace {

constexpr int64_t WIDTH = 16;  // as in embtrain/negatives/generator.py
constexpr int64_t AHEAD = 8;    // windows ahead of the one at work whose running sums are asked for
constexpr int64_t SOME = 256;  // densities made at once, so that exp and log are vectorised

float dot(const float* a, const float* b, int64_t n) {
    vec x{}, y{};
    int64_t i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        x += load(a + i) * load(b + i);
        y += load(a + i + W) * load(b + i + W);
    }
    float rest = 0.0f;
    for (; i < n; ++i) rest += a[i] * b[i];
    return sum(x + y) + rest;
}

// log g and log q of n <= SOME ids, from their log g in `lg` and p in `noise` (which have room for whole vectors).
void finish(const AceTask& t, int64_t n, const float* lg, const float* noise, float* log_g, float* log_q) {
    std::copy(lg, lg + n, log_g);
    std::copy(lg, lg + n, log_q);
    if (t.mix <= 0.0) return;  // no round trip through exp: an unlikely id keeps its digits
    const vec mix = splat(float(t.mix)), rest = splat(float(1.0 - t.mix));
    for (int64_t i = 0; i < n; i += W) {
        const vec x = log_of(mix * load(noise + i) + rest * exp_of(load(lg + i)));
        if (i + W <= n) store(log_q + i, x);
        else
            for (int64_t j = 0; i + j < n; ++j) log_q[i + j] = x[j];
    }
}

double unit(uint64_t bits) { return double(bits >> 11) * 0x1.0p-53; }

struct Place {  // where in a row a draw falls
    int64_t block;
    double at, before, v;
};

// The block that holds the point u in [0, 1) of a row: the first whose running sum is greater. No branch to mispredict.
Place find_block(const AceTask& t, int64_t row, double u, double v) {
    const double* ends = t.ends + row * t.n_blocks;
    const double at = u * ends[t.n_blocks - 1];
    int64_t begin = 0;
    for (int64_t left = t.n_blocks - 1; left > 0;) {
        const int64_t half = (left + 1) / 2;
        begin += ends[begin + half - 1] <= at ? half : 0;
        left -= half;
    }
    return {begin, at, begin ? ends[begin - 1] : 0.0, v};
}

int64_t id_at(const AceTask& t, int64_t row, const Place& place) {
    double sums = place.before;
    const float* g = t.g + (row * t.n_blocks + place.block) * WIDTH;
    int64_t inside = 0, last = 0;
    for (int64_t j = 0; j < WIDTH; ++j) {
        sums += double(g[j]);
        inside += sums <= place.at;
        last = g[j] > 0.0f ? j : last;  // rounding may leave `at` beyond the end: take one that has mass
    }
    const int64_t c = place.block * WIDTH + std::min(inside, last);
    const int64_t a = t.first[c], b = t.first[c + 1];
    if (b - a == 1) return t.member[a];
    const double* found = std::upper_bound(t.upto + a, t.upto + b, place.v * t.upto[b - 1]);
    return t.member[std::min<int64_t>(found - t.upto, b - 1)];
}

}  // namespace

// Rows of g from their logits (n, n_classes): g, ends, log_z, and the class that holds the greedy answer,
// argmax_c g_c e^{log_best_c}, the first of equals.
extern "C" EMBTRAIN_API int embtrain_ace_rows(int64_t n, int64_t n_classes, const float* logits, const float* log_best,
                                              float* g, double* ends, float* log_z, int64_t* best) {
    const int64_t n_blocks = (n_classes + WIDTH - 1) / WIDTH, whole = n_classes / WIDTH * WIDTH;
    for (int64_t i = 0; i < n; ++i) {
        const float* l = logits + i * n_classes;
        float* out = g + i * n_blocks * WIDTH;
        vec peaks = splat(-INFINITY), tops = peaks;
        for (int64_t c = 0; c < whole; c += W) {
            peaks = most(peaks, load(l + c));
            tops = most(tops, load(l + c) + load(log_best + c));
        }
        float peak = -INFINITY, top = -INFINITY;
        for (int64_t j = 0; j < W; ++j) peak = std::max(peak, peaks[j]), top = std::max(top, tops[j]);
        for (int64_t c = whole; c < n_classes; ++c) {
            out[c] = l[c];
            peak = std::max(peak, l[c]);
            top = std::max(top, l[c] + log_best[c]);
        }
        double total = 0.0;
        for (int64_t b = 0; b < n_blocks; ++b) {
            const float* from = b * WIDTH < whole ? l + b * WIDTH : out + b * WIDTH;
            vec part{};
            for (int64_t j = 0; j < WIDTH; j += W) {
                vec x = exp_of(load(from + j) - splat(peak));
                if (b * WIDTH >= whole) x = first(x, std::max<int64_t>(0, n_classes - b * WIDTH - j));
                store(out + b * WIDTH + j, x);
                part += x;
            }
            total += double(sum(part));
            ends[i * n_blocks + b] = total;
        }
        const vec scale = splat(float(1.0 / total));
        for (int64_t c = 0; c < n_blocks * WIDTH; c += W) store(out + c, load(out + c) * scale);
        for (int64_t b = 0; b < n_blocks; ++b) ends[i * n_blocks + b] *= 1.0 / total;
        log_z[i] = peak + float(std::log(total));
        int64_t at = 0;
        while (at + 1 < n_classes && !(l[at] + log_best[at] >= top)) ++at;
        best[i] = at;
    }
    return OK;
}

// K columns for each of n_draws windows: three numbers a column say whether the noise or the row is asked (`by_noise`
// columns first where it is not negative, else a toss of λ), and where. Windows are taken by ascending row, so that a
// row is read once for all that ask it; `order` (n_draws) and `count` (n_rows + 1, zeros) are room for sorting them.
extern "C" EMBTRAIN_API int embtrain_ace_draw(const AceTask* task, int64_t n_draws, const int64_t* row,
                                              int64_t* order, int64_t* count, int64_t k, int64_t by_noise,
                                              uint64_t seed, int64_t* ids, int8_t* origin) {
    const AceTask& t = *task;
    for (int64_t i = 0; i < n_draws; ++i) {
        if (row[i] < 0 || row[i] >= t.n_rows) return OUT_OF_RANGE;
        ++count[row[i] + 1];
    }
    for (int64_t r = 0; r < t.n_rows; ++r) count[r + 1] += count[r];
    for (int64_t i = 0; i < n_draws; ++i) order[count[row[i]]++] = i;
    Place places[SOME];
    int64_t window[SOME], column[SOME];
    int64_t held = 0;
    for (int64_t o = 0; o < n_draws; ++o) {
        const int64_t i = order[o];
        if (o + AHEAD < n_draws) {
            const char* ends = reinterpret_cast<const char*>(t.ends + row[order[o + AHEAD]] * t.n_blocks);
            for (int64_t at = 0; at < t.n_blocks * 8; at += 64) __builtin_prefetch(ends + at);
        }
        for (int64_t j = 0; j < k; ++j) {
            const uint64_t at = 3 * uint64_t(i * k + j);
            const bool noise = by_noise < 0 ? unit(u64_at(seed, at)) < t.mix : j < by_noise;
            const uint64_t u = u64_at(seed, at + 1);
            origin[i * k + j] = !noise;
            if (noise) {
                const auto wide = (unsigned __int128)u * uint64_t(t.n_ids);
                const int64_t y = int64_t(wide >> 64);
                ids[i * k + j] = uint64_t(wide) < t.accept[y] ? y : t.alias[y];
                continue;
            }
            if (held == SOME) {  // by now the blocks have come from memory
                for (int64_t h = 0; h < held; ++h) ids[column[h]] = id_at(t, row[window[h]], places[h]);
                held = 0;
            }
            places[held] = find_block(t, row[i], unit(u), unit(u64_at(seed, at + 2)));
            __builtin_prefetch(t.g + (row[i] * t.n_blocks + places[held].block) * WIDTH);
            window[held] = i;
            column[held++] = i * k + j;
        }
    }
    for (int64_t h = 0; h < held; ++h) ids[column[h]] = id_at(t, row[window[h]], places[h]);
    return OK;
}

// g_c <- g_c (a + h (log g_c - eta_c + entropy)) in the rows (n, width) where h > 0: the slope of a log g + h H.
extern "C" EMBTRAIN_API int embtrain_ace_slope(int64_t n, int64_t n_classes, int64_t width, float* g, const float* a,
                                               const float* h, const float* entropy, const float* eta) {
    for (int64_t i = 0; i < n; ++i) {
        if (h[i] <= 0.0f) continue;
        float* x = g + i * width;
        const vec least_g = splat(1e-37f), factor = splat(h[i]), base = splat(a[i] + h[i] * entropy[i]);
        int64_t c = 0;
        for (; c + W <= n_classes; c += W)
            store(x + c, load(x + c) * (base + factor * (log_of(most(load(x + c), least_g)) - load(eta + c))));
        for (; c < n_classes; ++c)
            x[c] *= a[i] + h[i] * (std::log(std::max(x[c], 1e-37f)) - eta[c] + entropy[i]);
    }
    return OK;
}

// log g and log q of ids (n, k), each line asked of its row.
extern "C" EMBTRAIN_API int embtrain_ace_density(const AceTask* task, int64_t n, int64_t k, const int64_t* id,
                                                 const int64_t* row, float* log_g, float* log_q) {
    const AceTask& t = *task;
    float lg[SOME + W] = {0}, noise[SOME + W] = {0};
    int64_t held = 0, done = 0;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t r = row[i];
        if (r < 0 || r >= t.n_rows) return OUT_OF_RANGE;
        const float* z = t.z + r * t.hidden;
        const float log_z = t.log_z[r];
        for (int64_t j = 0; j < k; ++j) {
            const int64_t y = id[i * k + j];
            if (y < 0 || y >= t.n_ids) return OUT_OF_RANGE;
            const AceWord word = t.word[y];
            lg[held] = dot(t.w + word.klass * t.hidden, z, t.hidden) - log_z + word.log_within;
            noise[held] = word.p;
            if (++held == SOME) {
                finish(t, held, lg, noise, log_g + done, log_q + done);
                done += held;
                held = 0;
            }
        }
    }
    finish(t, held, lg, noise, log_g + done, log_q + done);
    return OK;
}

// The sparse half of the gradient of -Σ a log g, a (n_draws, k): into_w (n_classes, hidden), into_z (n_rows, hidden);
// total (n_rows) += a.
extern "C" EMBTRAIN_API int embtrain_ace_collect(const AceTask* task, int64_t n_draws, const int64_t* row, int64_t k,
                                                 const int64_t* ids, const float* a, float* into_w, float* into_z,
                                                 float* total) {
    const AceTask& t = *task;
    for (int64_t i = 0; i < n_draws; ++i) {
        if (row[i] < 0 || row[i] >= t.n_rows) return OUT_OF_RANGE;
        for (int64_t j = 0; j < k; ++j)
            if (ids[i * k + j] < 0 || ids[i * k + j] >= t.n_ids) return OUT_OF_RANGE;
    }
    for (int64_t i = 0; i < n_draws; ++i) {
        const float* z = t.z + row[i] * t.hidden;
        float* dz = into_z + row[i] * t.hidden;
        for (int64_t j = 0; j < k; ++j) {
            const float b = a[i * k + j];
            if (b == 0.0f) continue;
            const int64_t c = t.word[ids[i * k + j]].klass;
            const float* w = t.w + c * t.hidden;
            float* dw = into_w + c * t.hidden;
            int64_t d = 0;
            for (; d + W <= t.hidden; d += W) {
                store(dw + d, load(dw + d) - splat(b) * load(z + d));
                store(dz + d, load(dz + d) - splat(b) * load(w + d));
            }
            for (; d < t.hidden; ++d) {
                dw[d] -= b * z[d];
                dz[d] -= b * w[d];
            }
            total[row[i]] += b;
        }
    }
    return OK;
}
