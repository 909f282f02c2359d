// Scores of pairs of points in hyperbolic space, and their slopes.
//
// A score s(u, v) of a hyponym u and a hypernym v is a function of three numbers: one of each point, a and b, and the
// squared Euclidean distance q of the two, over all coordinates of the ball and all but the last of the half-space.
//
//   ball         a = |u|², b = |v|²
//   half-space   a, b: the logs of the heights of u and v, the last coordinates
#pragma once

#include <cmath>
#include <cstdint>

namespace {

constexpr double TINY = 1e-30;      // under a root: its slope at 0 is infinite
constexpr double MIN_ANGLE = 1e-10; // distance from the axis of a cone below which the angle has no slope

struct Point {
    double p;      // a or b
    double room;   // ball: 1 − |x|²; half-space: the height
};

struct Score { double s, a, b, q; };   // s, ∂s/∂a, ∂s/∂b, ∂s/∂q

struct Ball {
    static constexpr bool HAS_HEIGHT = false;
    static Point point(const double* x, int64_t dim) {
        double p = 0;
        for (int64_t d = 0; d < dim; ++d) p += x[d] * x[d];
        return {p, 1 - p};
    }
};

struct HalfSpace {
    static constexpr bool HAS_HEIGHT = true;
    static Point point(const double* x, int64_t dim) { return {x[dim - 1], std::exp(x[dim - 1])}; }
};

// s = −d(u, v), d = 2 arsinh √z, z = q / ((1 − a)(1 − b))
struct Poincare : Ball {
    double size;
    Score operator()(Point u, Point v, double q) const {
        const double room = u.room * v.room, z = (q + TINY) / room, slope = -1 / std::sqrt(z * (1 + z));
        return {-2 * std::asinh(std::sqrt(z)), slope * z / u.room, slope * z / v.room, slope / room};
    }
};

// s = ψ − Ξ, ψ = arcsin(K (1 − b) / √b), Ξ = atan2(across, along) with δ = u − v, n = √b, w = v · δ = (a − b − q) / 2
//   across = (1 − b) √(q − w² / b)      along = (1 − b) w / n − q n
struct Cone : Ball {
    double size;
    Score operator()(Point u, Point v, double q) const {
        const double b = v.p, n = std::sqrt(b), w = (u.p - b - q) / 2;
        const double away = std::sqrt(std::fmax(q - w * w / b, 0.)), out = w / n;
        const double across = v.room * away, along = v.room * out - q * n;
        const double norm = across * across + along * along;
        // slopes of Ξ in `away` and in `along`; of `away` in w, b and q
        const double in_away = norm > 0 ? along / norm * v.room : 0, in_along = norm > 0 ? -across / norm : 0;
        const double half = away > MIN_ANGLE ? in_away / (2 * away) : 0;
        const double in_w = half * (-2 * w / b) + in_along * v.room / n;
        double in_b = half * w * w / (b * b) + in_along * (-v.room * w / (2 * b * n) - out - q / (2 * n));
        if (norm > 0) in_b -= along / norm * away;
        const double in_q = half - in_along * n;
        const double sine = size * v.room / n;
        double psi = std::asin(sine), psi_b = 0;
        constexpr double MAX_SINE = 1 - 1e-12;   // the slope of arcsin at 1 is infinite
        if (sine > MAX_SINE) psi = std::asin(MAX_SINE);
        else psi_b = -size * (1 + b) / (2 * b * n) / std::sqrt((1 - sine) * (1 + sine));
        return {psi - std::atan2(across, along), -in_w / 2, psi_b + in_w / 2 - in_b, in_w / 2 - in_q};
    }
};

// s = −E. E is the distance to the edge of the cone of v if that is nearer than v, otherwise the distance to v.
inline Score to_apex(Point u, Point v, double q) {   // d = 2 arsinh √z, z = q / (4 h_u h_v) + sinh²((a − b) / 2)
    const double gap = u.p - v.p, room = 4 * u.room * v.room, across = q / room, rise = std::sinh(gap / 2);
    const double z = across + rise * rise, slope = -1 / std::sqrt(z * (1 + z)), turn = std::sinh(gap) / 2;
    return {-2 * std::asinh(std::sqrt(z)), slope * (turn - across), slope * (-turn - across), slope / room};
}

// E = arsinh((g − sinh(r) h_v) / h_u) + r, g = √q
struct Umbral : HalfSpace {
    double size, sinh_r;
    Score operator()(Point u, Point v, double q) const {
        q += TINY;
        const double g = std::sqrt(q), outside = g - sinh_r * v.room;
        // outside² + h_u² <= (cosh(r) h_v)², without cancellation: it holds for u = v
        if (!(g * (g - 2 * sinh_r * v.room) <= (v.room - u.room) * (v.room + u.room))) return to_apex(u, v, q);
        const double x = outside / u.room, slope = -1 / std::sqrt(1 + x * x);
        return {-(std::asinh(x) + size), -slope * x, -slope * sinh_r * v.room / u.room, slope / (u.room * 2 * g)};
    }
};

// E = arsinh(y), y = (g / h_u) √(1 − σ²) − c σ, σ = h_v / H, c = (h_v² − h_u² − q) / (2 h_u h_v)
struct Penumbral : HalfSpace {
    double size;
    Score operator()(Point u, Point v, double q) const {
        q += TINY;
        const double g = std::sqrt(q), across = g / u.room, sine = v.room / size, under = (1 - sine) * (1 + sine);
        const double cosine = std::sqrt(std::fmax(under, TINY)), ratio = u.room / v.room;
        const double down = ((v.room - u.room) * (v.room + u.room) - q) / (2 * u.room * v.room);
        if (!(down * cosine + across * sine >= 0)) return to_apex(u, v, q);
        const double y = across * cosine - down * sine, slope = -1 / std::sqrt(1 + y * y);
        const double turn = under >= TINY ? -across * sine * sine / cosine : 0;
        return {-std::asinh(y), slope * (-across * cosine + (down + ratio) * sine), slope * (turn - sine / ratio),
                slope * (cosine / (u.room * 2 * g) + sine / (2 * u.room * v.room))};
    }
};

}  // namespace
