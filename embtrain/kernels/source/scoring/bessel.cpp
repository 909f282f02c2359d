// The normalizer of the von Mises-Fisher distribution and its derivative; equations in losses/bessel.py. The wrapper
// kernels/scoring/bessel.py checks all arguments.

#include <cmath>
#include <cstring>

#include "core/core.h"
#include "core/simd.h"

namespace {

typedef double wide __attribute__((vector_size(4 * W)));
typedef uint64_t uwide __attribute__((vector_size(4 * W)));
constexpr int64_t HALF = W / 2;  // doubles of a vector
constexpr int64_t SIDE = 4;      // independent vectors, to hide the latency
constexpr int64_t BATCH = HALF * SIDE;

inline wide splat_double(double x) { return x - wide{}; }

// log(1 + y), y >= 0, to double precision: 1 + y = 2^n k, √½ <= k < √2, log k = 2 artanh t. The result for NaN is
// arbitrary: callers add it to y itself, which keeps the NaN.
inline wide log1p_of(wide y) {
    const wide m = y + 1.0;
    const uwide bits = (uwide)m, n = (bits - 0x3fe6a09e667f3bcdull) >> 52;
    const wide k = (wide)(bits - (n << 52));
    const wide n_double = (wide)(n | 0x4330000000000000ull) - 4503599627370496.0;  // n as a double
    const wide t = (n == 0 ? y : k - 1.0) / (k + 1.0), q = t * t;
    wide sum = splat_double(2.0 / 21);
    for (int i = 19; i > 0; i -= 2) sum = sum * q + 2.0 / i;
    return n_double * 0.6931471805599453 + t * sum;
}

struct Expansion {
    double w;                    // order of the expansion
    int64_t raised;              // steps of the recurrence down to the order wanted
    const double* pairs;         // (terms, 2)  of P(p) - P(1) and of ½ + p P'(p), the highest power first
    int64_t terms;

    // -Λ and R of BATCH values of κ².
    void evaluate(const double* kappa2, double* log, double* r) const {
        wide x[SIDE], s[SIDE], p[SIDE], P[SIDE], slope[SIDE], ratio[SIDE];
        double root[BATCH];
        for (int64_t i = 0; i < BATCH; ++i) root[i] = std::sqrt(kappa2[i] + w * w);
        std::memcpy(s, root, sizeof s);
        std::memcpy(x, kappa2, sizeof x);
        for (int64_t l = 0; l < SIDE; ++l) p[l] = w / s[l], P[l] = splat_double(pairs[0]), slope[l] =
            splat_double(pairs[1]);
        for (int64_t k = 1; k < terms; ++k)
            for (int64_t l = 0; l < SIDE; ++l) {
                P[l] = P[l] * p[l] + pairs[2 * k];
                slope[l] = slope[l] * p[l] + pairs[2 * k + 1];
            }
        for (int64_t l = 0; l < SIDE; ++l) {
            const wide near = 1.0 / (s[l] + w), d = x[l] * near;
            P[l] += d - w * log1p_of(d * (0.5 / w)) - 0.5 * log1p_of(d * (1 / w));
            ratio[l] = near - slope[l] * (p[l] * p[l]) * (1 / (w * w));
            for (int64_t i = 0; i < raised; ++i) {
                const wide x_ratio = x[l] * ratio[l];
                P[l] += log1p_of(x_ratio * (0.5 / (w - double(i))));
                ratio[l] = 1.0 / (x_ratio + 2 * (w - double(i)));
            }
            P[l] = -P[l];
        }
        std::memcpy(log, P, sizeof P);
        std::memcpy(r, ratio, sizeof ratio);
    }
};

template <typename T>
void log_c(const T* kappa2, int64_t n, const Expansion& expansion, T* log, T* r) {
    for (int64_t from = 0; from < n; from += BATCH) {
        const int64_t n_valid = n - from < BATCH ? n - from : BATCH;
        double x[BATCH] = {}, y[BATCH], z[BATCH];
        for (int64_t i = 0; i < n_valid; ++i) x[i] = double(kappa2[from + i]);
        expansion.evaluate(x, y, z);
        for (int64_t i = 0; i < n_valid; ++i) log[from + i] = T(y[i]), r[from + i] = T(z[i]);
    }
}

}  // namespace

// log C - log C(0) and R of kappa2 (n), doubles if `is_double`, else floats; pairs (terms, 2).
extern "C" EMBTRAIN_API int embtrain_bessel_log_c(const void* kappa2, int64_t is_double, int64_t n, double w,
                                                  int64_t raised,
                                                  const double* pairs, int64_t terms, void* log, void* r) {
    const Expansion expansion{w, raised, pairs, terms};
    if (is_double)
        log_c((const double*)kappa2, n, expansion, (double*)log, (double*)r);
    else
        log_c((const float*)kappa2, n, expansion, (float*)log, (float*)r);
    return OK;
}
