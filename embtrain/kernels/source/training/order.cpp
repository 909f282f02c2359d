// The order-embedding update. The wrapper is embtrain/kernels/training/order.py; its _OrderTask has the same fields in
// order.
//
//   E(g, c) = Σ_d z_d²,  z = max(0, σ (x_c − x_g))      ∂E/∂x_c = 2 σ z      ∂E/∂x_g = −2 σ z
//
// A unit is one row: a concept g, its target and k negatives, all from one table. Energies are evaluated before the
// unit. If a concept occurs in it more than once, its gradients are summed. Table rows are padded with zeros to 16
// floats; the padding stays 0, because z is 0 there.
#include <cmath>
#include <limits>
#include <new>

#include "core/core.h"
#include "core/simd_math.h"
#include "training/pairs.h"

namespace {

struct OrderTask : PairTask<float> {
    int64_t ranking, abs;
    double margin, lr, eps;
};

constexpr int64_t PAD = 16;
constexpr float FAR = std::numeric_limits<float>::infinity();

struct Touched {   // a row of the table that a unit moves
    int64_t id;
    float a;       // ∂L/∂E
    float energy;
};

template <bool ABS> inline vec value(const float* p) { return ABS ? abs_of(load(p)) : load(p); }

// z of a row: max(0, σ c − h), h = σ x_g; NaN stays NaN
template <bool ABS> inline vec excess(const float* c, const float* h, vec sign) {
    return most(vec{}, sign * value<ABS>(c) - load(h));
}

// E, or `limit` if E is at least that: the first coordinates suffice for most far negatives.
template <bool ABS> inline float energy(const float* c, const float* h, float sign, int64_t width, float limit) {
    vec s = splat(sign), acc[2] = {};
    for (int64_t d = 0; d < width; d += PAD) {
        for (int e = 0; e < PAD; e += W) {
            vec z = excess<ABS>(c + d + e, h + d + e, s);
            acc[e / W % 2] += z * z;
        }
        if (d + PAD < width && sum(acc[0] + acc[1]) >= limit) return limit;
    }
    return sum(acc[0] + acc[1]);
}

template <bool ABS> class OrderUpdate {
public:
    explicit OrderUpdate(const OrderTask& task) : t(task), width(round_up(task.dim, PAD)) {
        slots = 4;
        while (slots < 2 * (t.k + 2)) slots *= 2;
        h = new (std::nothrow) float[size_t(2 * width)];
        touched = new (std::nothrow) Touched[size_t(t.k + 2)];
        seen = new (std::nothrow) int64_t[size_t(slots)];
        stamp = new (std::nothrow) int64_t[size_t(slots)]();
        sums = new (std::nothrow) float[size_t(width * (t.k + 2))];
        if (ok()) out = h + width;
    }
    ~OrderUpdate() { delete[] h; delete[] touched; delete[] seen; delete[] stamp; delete[] sums; }
    OrderUpdate(const OrderUpdate&) = delete;
    OrderUpdate& operator=(const OrderUpdate&) = delete;
    bool ok() const { return h && touched && seen && stamp && sums; }

    double range(int64_t first, int64_t last) {
        PairNegatives<float> negatives(t, first);
        double loss = 0;
        for (int64_t r = first; r < last; ++r) {
            if (r + 2 < last) prefetch(negatives, r + 2);
            loss += unit(negatives, r);
        }
        return loss;
    }

private:
    void prefetch(const PairNegatives<float>& negatives, int64_t r) const {
        const int64_t* ids = negatives.ids(r);
        prefetch_row(t.concept[r], width);
        prefetch_row(t.target[r], width);
        for (int64_t j = 0; j < t.k; ++j) prefetch_row(ids[j], width < 4 * PAD ? width : 4 * PAD);
    }

    void prefetch_row(int64_t id, int64_t floats) const {
        const float* p = t.x + id * t.stride;
        for (int64_t d = 0; d < floats; d += PAD) __builtin_prefetch(p + d, 1, 3);
    }

    double unit(PairNegatives<float>& negatives, int64_t r) {
        const int64_t g = t.concept[r], to = t.target[r], *ids = negatives.ids(r);
        const float sign = t.slot[r] ? -1.f : 1.f;
        for (int64_t d = 0; d < width; d += W) store(h + d, splat(sign) * value<ABS>(t.x + g * t.stride + d));
        const float target_energy = energy<ABS>(t.x + to * t.stride, h, sign, width, FAR);
        const float limit = (float)t.margin + (t.ranking ? target_energy : 0.f);
        double loss = t.ranking ? 0.0 : target_energy;
        float active = 0;
        int64_t m = 0;
        for (int64_t j = 0; j < t.k; ++j) {
            const float w = negatives.weight(r, j);
            if (w == 0 && t.scores == nullptr) continue;
            const float e = energy<ABS>(t.x + ids[j] * t.stride, h, sign, width, t.scores == nullptr ? limit : FAR);
            if (t.scores != nullptr) t.scores[r * t.k + j] = -e;
            if (w == 0 || e >= limit) continue;   // e may be NaN, and so is the loss then
            loss += (double)w * (limit - e);
            active += w;
            touched[m++] = {ids[j], -w, e};
        }
        const float pull = t.ranking ? active : 1.f;
        if (pull != 0 && target_energy != 0) touched[m++] = {to, pull, target_energy};
        if (m == 0) return loss;
        if (are_distinct(g, m)) update_distinct(g, m, sign);
        else update_merged(g, m, sign);
        return loss;
    }

    // Whether g and the touched rows are all different.
    bool are_distinct(int64_t g, int64_t m) {
        ++now;
        insert(g);
        for (int64_t i = 0; i < m; ++i)
            if (!insert(touched[i].id)) return false;
        return true;
    }

    bool insert(int64_t id) {
        uint64_t slot = (uint64_t)id * 0x9E3779B97F4A7C15ull >> 32;
        for (;; ++slot) {
            slot &= (uint64_t)slots - 1;
            if (stamp[slot] != now) { stamp[slot] = now; seen[slot] = id; return true; }
            if (seen[slot] == id) return false;
        }
    }

    float rate(int64_t id, float square) const {  // square: |gradient|²
        if (t.acc == nullptr) return (float)t.lr;
        const float total = t.acc[id] += square / (float)t.dim;
        return (float)(t.lr / (std::sqrt((double)total) + t.eps));
    }

    // The updated coordinates, projected onto the orthant; NaN stays NaN.
    static vec moved_row(vec x, vec change) {
        vec y = x - change;
        return ABS ? y : most(vec{}, y);
    }

    // ∂|x|/∂x, 0 at 0
    static vec slope(vec x) { return x > vec{} ? splat(1.f) : (x < vec{} ? splat(-1.f) : vec{}); }

    void update_distinct(int64_t g, int64_t m, float sign) {
        const vec s = splat(sign);
        for (int64_t d = 0; d < width; d += W) store(out + d, vec{});
        for (int64_t i = 0; i < m; ++i) {
            float* p = t.x + touched[i].id * t.stride;
            const float b = 2.f * touched[i].a;
            float square = b * b * touched[i].energy;
            if (ABS && t.acc != nullptr) {  // a coordinate at 0 does not move
                vec q = {};
                for (int64_t d = 0; d < width; d += W) {
                    vec z = excess<ABS>(p + d, h + d, s) * slope(load(p + d));
                    q += z * z;
                }
                square = b * b * sum(q);
            }
            const vec factor = splat(rate(touched[i].id, square) * b * sign), a = splat(b);
            for (int64_t d = 0; d < width; d += W) {
                vec x = load(p + d), z = excess<ABS>(p + d, h + d, s);
                store(out + d, load(out + d) + a * z);
                store(p + d, moved_row(x, factor * (ABS ? z * slope(x) : z)));
            }
        }
        finish(g, sign);
    }

    // Updates the concept g, whose gradient is −σ · out.
    void finish(int64_t g, float sign) {
        float* p = t.x + g * t.stride;
        const vec s = splat(-sign);
        vec q = {};
        for (int64_t d = 0; d < width; d += W) {
            vec y = s * load(out + d) * (ABS ? slope(load(p + d)) : splat(1.f));
            store(out + d, y);
            q += y * y;
        }
        step(g, out, sum(q));
    }

    void step(int64_t id, const float* gradient, float square) {
        float* p = t.x + id * t.stride;
        const vec r = splat(rate(id, square));
        for (int64_t d = 0; d < width; d += W) store(p + d, moved_row(load(p + d), r * load(gradient + d)));
    }

    // For repeated rows: computes all gradients, sums them per row, then updates.
    void update_merged(int64_t g, int64_t m, float sign) {
        const vec s = splat(sign);
        touched[m++] = {g, 0.f, 0.f};
        int64_t rows = 0;
        for (int64_t i = m - 1; i >= 0; --i) {  // g first, because every negative adds to it
            int64_t row_index = 0;
            while (row_index < rows && seen[row_index] != touched[i].id) ++row_index;
            float* row_sum = sums + row_index * width;
            if (row_index == rows) {
                for (int64_t d = 0; d < width; d += W) store(row_sum + d, vec{});
                seen[rows++] = touched[i].id;   // the hash set is no longer needed
            }
            if (i == m - 1) continue;
            const float* p = t.x + touched[i].id * t.stride;
            const float* q = t.x + g * t.stride;
            const vec b = splat(2.f * touched[i].a * sign);
            for (int64_t d = 0; d < width; d += W) {
                vec z = b * excess<ABS>(p + d, h + d, s);
                store(row_sum + d, load(row_sum + d) + (ABS ? z * slope(load(p + d)) : z));
                store(sums + d, load(sums + d) - (ABS ? z * slope(load(q + d)) : z));
            }
        }
        for (int64_t i = 0; i < rows; ++i) {
            const float* row_sum = sums + i * width;
            vec q = {};
            for (int64_t d = 0; d < width; d += W) q += load(row_sum + d) * load(row_sum + d);
            step(seen[i], row_sum, sum(q));
        }
    }

    const OrderTask& t;
    const int64_t width;
    int64_t slots, now = 0;
    float *h = nullptr, *out = nullptr, *sums = nullptr;
    Touched* touched = nullptr;
    int64_t *seen = nullptr, *stamp = nullptr;
};

template <bool ABS> int run(const OrderTask& t, int64_t first, int64_t last, double* loss) {
    OrderUpdate<ABS> update(t);
    if (!update.ok()) return NO_MEMORY;
    *loss = update.range(first, last);
    return OK;
}

}  // namespace

extern "C" EMBTRAIN_API int embtrain_order_check(const OrderTask* task) {
    return is_valid(*task) ? OK : OUT_OF_RANGE;
}

// Update rows [first, last). The task must have been checked.
extern "C" EMBTRAIN_API int embtrain_order_update(const OrderTask* task, int64_t first, int64_t last, double* loss) {
    return task->abs ? run<true>(*task, first, last, loss) : run<false>(*task, first, last, loss);
}
