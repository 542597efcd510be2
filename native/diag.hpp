// Loss and gradient of Diag and GD++ models, in blocks S, a, l of the Gram matrix.
//
// With omega = (p, q, r, s) = (xx, xy, yx, yy) a layer is T = [A  q a; r a'  e], A = I + p S, e = 1 + s l, and
// G <- T G T' reads, with k = S a, m = S k, v = A a, c = a.a:
//     S <- A S A + f a' + a f',   f = q v + (q^2 l / 2) a
//     a <- r A k + e v + q (r c + l e) a
//     l <- r^2 a.k + 2 e r c + e^2 l
// A S A = B + p S B with B = S + p S S: two products with symmetric results, at half price. Its adjoint, with
// N = Sbar A and X = N + N'/2, is R + R', R = X / 3 + p X S: two products. The prediction's last row needs only
// a and l of the last layer and S of the layer before it, so two layers need no product at all.
#pragma once
#include "sampler.hpp"

namespace ridgeformer {
namespace {

template <class T, class Dim = Size>
struct Diag {
    using V = Vec<T>;
    const Model<T> &model;
    Watch &watch;
    const Dim d;
    const Size L;
    V *state;    // per layer: S [d][d], then rows a, k, delta_x: the rank-one terms of Z are further rows of S
    V *m;        // per layer: S k
    V *rho;      // per layer and one: the row e_D' T_{L-1} ... T_l, x part
    V *scalars;  // per layer and one: l, rho_y, delta_y
    V *B, *SB, *Sbar, *X;  // B and S B of the layer at hand; SB stays that of layer 0, which has no fold()
    V *v, *f, *g, *h, *kbar, *abar, *work;
    V *gradient;  // [L][4]

    // The memory of one block of sequences, piece by piece: `take` is told where the piece's address goes, and its size.
    template <class Take>
    static void lay_out(Dim d, Size L, Take take) {
        take(&Diag::state, L * d * (d + 3));
        take(&Diag::m, L * d);
        take(&Diag::rho, (L + 1) * d);
        take(&Diag::scalars, (L + 1) * 3);
        take(&Diag::B, d * d);
        take(&Diag::SB, d * d);
        take(&Diag::Sbar, d * d);
        take(&Diag::X, d * (d + 3));
        take(&Diag::v, Size(d));
        take(&Diag::f, Size(d));
        take(&Diag::g, Size(d));
        take(&Diag::h, Size(d));
        take(&Diag::kbar, Size(d));
        take(&Diag::abar, Size(d));
        take(&Diag::work, 2 * d);
        take(&Diag::gradient, 4 * L);
    }
    static std::size_t vectors(Size d, Size L) { return count_vectors<Diag>(Dim(d), L); }

    Diag(V *memory, const Model<T> &model_, Watch &watch_) : model(model_), watch(watch_), d(model_.dim), L(model_.layers) {
        lay_out(d, L, placing(*this, memory));
    }

    Counter counter() const { return {watch, d}; }  // of elements that are sums of d terms
    V *S(Size l) const { return state + l * d * (d + 3); }
    V *a(Size l) const { return S(l) + d * d; }
    V *k(Size l) const { return a(l) + d; }
    V *delta(Size l) const { return k(l) + d; }
    V &lambda(Size l) const { return scalars[3 * l]; }
    V &rho_y(Size l) const { return scalars[3 * l + 1]; }
    V &delta_y(Size l) const { return scalars[3 * l + 2]; }

    void forward(const V *gram) {
        for (Size i = 0; i < d; ++i) a(0)[i] = gram[packed(d, i)];
        lambda(0) = gram[packed(d, d)];
        if (L == 1) return mark_infinite(gram);
        for (Size i = 0; i < d; ++i)
            for (Size j = 0; j <= i; ++j) S(0)[i * d + j] = S(0)[j * d + i] = gram[packed(i, j)];
        for (Size l = 0; l + 1 < L && !counter().stop(d); ++l) {
            const T p = model.omega[4 * l], q = model.omega[4 * l + 1], r = model.omega[4 * l + 2], s = model.omega[4 * l + 3];
            const V *S_ = S(l), *a_ = a(l);
            V *k_ = k(l), *m_ = m + l * d;
            vector_times<T>(a_, S_, d, k_);
            vector_times<T>(k_, S_, d, m_);
            const V lam = lambda(l), e = T(1) + s * lam, c = dot<T>(a_, a_, d);
            const V along = q * (r * c + lam * e), half = (q * q * T(0.5)) * lam;
            for (Size i = 0; i < d; ++i) {
                const V vi = a_[i] + p * k_[i];
                f[i] = q * vi + half * a_[i];
                a(l + 1)[i] = r * (k_[i] + p * m_[i]) + e * vi + along * a_[i];
            }
            lambda(l + 1) = r * (r * dot<T>(a_, k_, d) + T(2) * e * c) + e * e * lam;
            if (l + 2 < L) {
                if (l == 0) square_and_cube<true>(S_, a_, S(l + 1), p);
                else square_and_cube<false>(S_, a_, S(l + 1), p);
            }
        }
    }

    // One layer reads a and neither S nor l. But a context that is not finite anywhere has no finite loss, whatever the
    // number of layers.
    void mark_infinite(const V *gram) {
        V even{}, odd{};
        for (Size i = 0; i + 1 < packed(d, d); i += 2) {
            even += T(0) * gram[i];
            odd += T(0) * gram[i + 1];
        }
        const V probe = even + odd + T(0) * gram[packed(d, d) - 1] + T(0) * lambda(0);
        for (Size i = 0; i < d; ++i) a(0)[i] = probe == T(0) ? a(0)[i] : probe;
    }

    template <bool First>
    __attribute__((noinline)) void square_and_cube(const V *S_, const V *a_, V *next, T p) {
        symmetric_product<T>(d, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(S_ + i * d, d, S_ + j, d, 0, d); },
                             [&](Size i, Size j, int r, int c, V square) RF_BODY {
                                 const V x = cell(S_, d, i, j, r, c) + p * square;
                                 cell(B, d, i, j, r, c) = cell(B, d, j, i, c, r) = x;
                             }, counter());
        symmetric_product<T>(d, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(S_ + i * d, d, B + j, d, 0, d); },
                             [&](Size i, Size j, int r, int c, V cube) RF_BODY {
                                 if (First) cell(SB, d, i, j, r, c) = cube;
                                 const V rank = (f + i)[r] * (a_ + j)[c] + (a_ + i)[r] * (f + j)[c];
                                 const V x = cell(B, d, i, j, r, c) + p * cube + rank;
                                 cell(next, d, i, j, r, c) = cell(next, d, j, i, c, r) = x;
                             }, counter());
    }

    // Rows e_D' T_{L-1} ... T_l, from the last layer down; the first one holds minus the weights.
    void rows() {
        for (Size i = 0; i < d; ++i) rho[(L - 1) * d + i] = model.omega[4 * L - 2] * a(L - 1)[i];
        rho_y(L) = splat<T>(T(1));
        rho_y(L - 1) = T(1) + model.omega[4 * L - 1] * lambda(L - 1);
        for (Size l = L - 1; l-- > 0 && !counter().stop(d);) {
            const T p = model.omega[4 * l], q = model.omega[4 * l + 1], r = model.omega[4 * l + 2], s = model.omega[4 * l + 3];
            const V *above = rho + (l + 1) * d;
            vector_times<T>(above, S(l), d, work);
            const V y = r * rho_y(l + 1);
            for (Size i = 0; i < d; ++i) rho[l * d + i] = above[i] + p * work[i] + y * a(l)[i];
            rho_y(l) = q * dot<T>(a(l), above, d) + (T(1) + s * lambda(l)) * rho_y(l + 1);
        }
    }

    V loss(const V *target, const V *metric) const {
        if (metric) return metric_loss<T>(rho, target, metric, d, work);
        V total{};
        for (Size i = 0; i < d; ++i) {
            const V error = rho[i] + target[i];
            total += error * error;
        }
        return T(0.5) * total;
    }

    // delta_l = dloss/drho_0 T_0' ... T_{l-1}', upwards, and what it contributes to the gradient directly.
    void deltas(const V *target, const V *metric, V factor) {
        if (metric) {
            metric_loss<T>(rho, target, metric, d, work);
            for (Size i = 0; i < d; ++i) delta(0)[i] = factor * work[d + i];
        } else {
            for (Size i = 0; i < d; ++i) delta(0)[i] = factor * (rho[i] + target[i]);
        }
        delta_y(0) = V{};
        for (Size l = 0; l < L && !counter().stop(d); ++l) {
            const T p = model.omega[4 * l], q = model.omega[4 * l + 1], r = model.omega[4 * l + 2], s = model.omega[4 * l + 3];
            const V a_delta = dot<T>(a(l), delta(l), d), dy = delta_y(l);
            gradient[4 * l + 2] += rho_y(l + 1) * a_delta;
            gradient[4 * l + 3] += rho_y(l + 1) * lambda(l) * dy;
            if (l + 1 == L) return;
            const V *above = rho + (l + 1) * d;
            vector_times<T>(delta(l), S(l), d, work);
            gradient[4 * l] += dot<T>(above, work, d);
            gradient[4 * l + 1] += dot<T>(above, a(l), d) * dy;
            const V y = q * dy;
            for (Size i = 0; i < d; ++i) delta(l + 1)[i] = delta(l)[i] + p * work[i] + y * a(l)[i];
            delta_y(l + 1) = r * a_delta + (T(1) + s * lambda(l)) * dy;
        }
    }

    // Adjoints of S, a, l from the last layer down.
    void backward() {
        V lbar = model.omega[4 * L - 1] * delta_y(L - 1);
        for (Size i = 0; i < d; ++i) abar[i] = model.omega[4 * L - 2] * delta(L - 1)[i];
        for (Size l = L - 1; l-- > 0 && !counter().stop(d);) {
            const T p = model.omega[4 * l], q = model.omega[4 * l + 1], r = model.omega[4 * l + 2], s = model.omega[4 * l + 3];
            const bool matrix = l + 2 < L;  // otherwise Sbar is zero
            const V *S_ = S(l), *a_ = a(l), *k_ = k(l), *m_ = m + l * d, *b = abar;
            const V lam = lambda(l), e = T(1) + s * lam, c = dot<T>(a_, a_, d);
            for (Size i = 0; i < d; ++i) v[i] = a_[i] + p * k_[i];
            V ag{}, vg{};
            if (matrix) {
                times_two(a_, v, Sbar, g);  // g = Sbar a, h = Sbar v
                ag = dot<T>(a_, g, d);
                vg = dot<T>(v, g, d);
            } else {
                for (Size i = 0; i < 2 * d; ++i) g[i] = V{};
            }
            const V ba = dot<T>(b, a_, d), bm = dot<T>(b, m_, d), bk = dot<T>(b, k_, d);
            const V cbar = (q * r) * ba + (T(2) * r) * lbar * e;
            const V ebar = ba + p * bk + q * lam * ba + T(2) * lbar * (r * c + e * lam);
            V vk{};
            for (Size i = 0; i < d; ++i) {
                work[i] = (T(2) * q) * g[i] + e * b[i];  // adjoint of v
                vk += work[i] * k_[i];
            }
            V *grad = gradient + 4 * l;
            grad[0] += r * bm + vk;
            grad[1] += T(2) * (vg + q * lam * ag) + (r * c + lam * e) * ba;
            grad[2] += bk + p * bm + q * c * ba + T(2) * lbar * (r * dot<T>(a_, k_, d) + e * c);
            grad[3] += ebar * lam;
            if (l == 0) {
                if (matrix) grad[0] += T(2) * pair(SB);
                return;
            }

            const V *above = rho + (l + 1) * d, *delta_ = delta(l);
            const V dy = delta_y(l), ry = rho_y(l + 1);
            vector_times<T>(b, S_, d, work + d);
            const V lr2 = (r * r) * lbar;
            for (Size i = 0; i < d; ++i) kbar[i] = r * b[i] + p * work[i] + lr2 * a_[i] + (r * p) * work[d + i];
            for (Size i = 0; i < d; ++i) {
                V *row = X + i * (d + 3) + d;
                row[0] = T(0.5) * kbar[i];
                row[1] = (T(0.5) * r * p) * b[i];
                row[2] = (T(0.5) * p) * above[i];
            }
            const V along = q * (r * c + lam * e), wide = (T(2) * q * q) * lam;
            vector_times<T>(kbar, S_, d, work + d);
            for (Size i = 0; i < d; ++i)
                abar[i] = work[i] + (T(2) * q) * h[i] + wide * g[i] + along * b[i] + lr2 * k_[i] + T(2) * cbar * a_[i] +
                          work[d + i] + q * dy * above[i] + r * ry * delta_[i];
            lbar = (q * q) * ag + q * e * ba + lbar * e * e + s * (ebar + ry * dy);
            if (matrix) sbar_times(S_, p);
            grad[0] += fold(S_, p, matrix);
        }
    }

    __attribute__((noinline)) void times_two(const V *x, const V *y, const V *M, V *out) {
        for (Size i = 0; i < d; ++i) {
            work[i] = x[i];
            work[d + i] = y[i];
        }
        product<T>(2, d, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(work + i * d, d, M + j, d, 0, d); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(out, d, i, j, r, c) = value; });
    }

    // <Sbar, M> for a symmetric M known by its lower triangle.
    V pair(const V *M) const {
        V diagonal{}, below{}, more{};
        for (Size i = 0; i < d; ++i) {
            const V *row = M + i * d, *bar = Sbar + i * d;
            Size j = 0;
            for (; j + 2 <= i; j += 2) {
                below += bar[j] * row[j];
                more += bar[j + 1] * row[j + 1];
            }
            if (j < i) below += bar[j] * row[j];
            diagonal += bar[i] * row[i];
        }
        return diagonal + T(2) * (below + more);
    }

    // X = N + N'/2 with N = Sbar + p Sbar S.
    __attribute__((noinline)) void sbar_times(const V *S_, T p) {
        const auto ld = d + 3;
        product<T>(d, d, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Sbar + i * d, d, S_ + j, d, 0, d); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(X, ld, i, j, r, c) = cell(Sbar, d, i, j, r, c) + p * value; }, counter());
        for (Size i = 0; i < d; ++i) {
            for (Size j = 0; j < i; ++j) {
                const V x = X[i * ld + j], y = X[j * ld + i];
                X[i * ld + j] = x + T(0.5) * y;
                X[j * ld + i] = y + T(0.5) * x;
            }
            X[i * ld + i] *= T(1.5);
        }
    }

    // Sbar <- R + R', the rank-one terms of R included. Returns the gradient of p through A S A, 2 <Sbar, S B>, which
    // is 4/3 <X S, S> because S and A commute.
    __attribute__((noinline)) V fold(const V *S_, T p, bool matrix) {
        const auto ld = d + 3;
        V parts[4] = {};
        product<T>(d, d, [&](auto &tile, Size i, Size j) RF_BODY {
                       if (matrix) {
                           tile.multiply_add(X + i * ld, ld, S_ + j, d, 0, d);
                           tile.pair(S_ + i * d + j, d, parts);
                           tile.scale(p);
                       }
                       tile.multiply_add(X + i * ld, ld, S_ + j, d, d, d + 3);
                   },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY {
                       const V x = matrix ? (T(1) / T(3)) * cell(X, ld, i, j, r, c) : V{};
                       cell(Sbar, d, i, j, r, c) = value + x;
                   }, counter());
        for (Size i = 0; i < d; ++i)
            for (Size j = 0; j <= i; ++j) Sbar[i * d + j] = Sbar[j * d + i] = Sbar[i * d + j] + Sbar[j * d + i];
        return (T(4) / T(3)) * ((parts[0] + parts[1]) + (parts[2] + parts[3]));
    }

    void value(const V *gram) {
        forward(gram);
        rows();
    }
    // Adds to the gradient that of factor times the loss.
    void slope(const V *target, const V *metric, V factor) {
        deltas(target, metric, factor);
        backward();
    }
    V weight(Size i) const { return -rho[i]; }
};

}  // namespace
}  // namespace ridgeformer
