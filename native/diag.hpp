// Loss and gradient of Diag and GD++ models, in blocks S, a, l of the Gram matrix.
//
// With omega = (p, q, r, s) = (xx, xy, yx, yy) a layer is T = [A  q a; r a'  e], A = I + p S, e = 1 + s l, and
// G <- T G T' reads, with k = S a, m = S k, v = A a, c = a.a:
//     S <- A S A + f a' + a f',   f = q v + (q^2 l / 2) a
//     a <- r A k + e v + q (r c + l e) a
//     l <- r^2 a.k + 2 e r c + e^2 l
// A S A and its adjoint are in cubic.hpp. The prediction's last row needs only a and l of the last layer and S of the layer
// before it, so two layers need no product at all.
#pragma once
#include <initializer_list>

#include "cubic.hpp"
#include "network.hpp"

namespace ridgeformer {
namespace {

template <class Dim = Size>
struct Diag final : Network {
    using Terms = std::conditional_t<is_known<Dim>, Known<3>, Size>;
    const Dim d;
    const Size L;
    V *state;    // per layer: S [d][d], then rows a, k, delta_x, which fold() multiplies by `left`
    V *m;        // per layer: S k
    V *scalars;  // per layer and one: l, rho_y, delta_y
    V *B, *SB, *Sbar, *X;  // B and S B of the layer at hand; SB stays that of layer 0, which has no fold()
    V *left;               // [3][d]
    V *v, *f, *g, *h, *kbar, *abar;

    // The memory of one block of sequences, piece by piece: `take` is told where the piece's address goes, and its size.
    template <class Take>
    static void lay_out(Dim d, Size L, Take &&take) {
        take(&Diag::state, L * d * (d + 3));
        take(&Diag::m, L * d);
        take(&Diag::rho, (L + 1) * d);  // the x parts of the rows
        take(&Diag::scalars, (L + 1) * 3);
        for (auto square : {&Diag::B, &Diag::SB, &Diag::Sbar, &Diag::X}) take(square, d * d);
        take(&Diag::left, 3 * d);
        for (auto vector : {&Diag::v, &Diag::f, &Diag::g, &Diag::h, &Diag::kbar, &Diag::abar}) take(vector, Size(d));
        take(&Diag::work, 2 * d);
        take(&Diag::gradient, 4 * L);  // [L][4]
    }
    static std::size_t vectors(const Model<T> &model) { return count_vectors<Diag>(Dim(model.dim), model.layers); }

    Diag(V *memory, const Model<T> &model_, Watch &watch_) : Network(model_, watch_), d(model_.dim), L(model_.layers) {
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

    void forward(const V *gram) override {
        for (Size i = 0; i < d; ++i) a(0)[i] = gram[packed(d, i)];
        lambda(0) = gram[packed(d, d)];
        if (L == 1) return mark_infinite(gram);
        for (Size i = 0; i < d; ++i)
            for (Size j = 0; j <= i; ++j) S(0)[i * d + j] = S(0)[j * d + i] = gram[packed(i, j)];
        for (Size l = 0; l + 1 < L && !counter().stop(d); ++l) {
            const T p = model.omega[4 * l], q = model.omega[4 * l + 1], r = model.omega[4 * l + 2], s = model.omega[4 * l + 3];
            const V *S_ = S(l), *a_ = a(l);
            V *k_ = k(l), *m_ = m + l * d;
            vector_times(a_, S_, d, k_);
            vector_times(k_, S_, d, m_);
            const V lam = lambda(l), e = T(1) + s * lam, c = dot(a_, a_, d);
            const V along = q * (r * c + lam * e), half = (q * q * T(0.5)) * lam;
            for (Size i = 0; i < d; ++i) {
                const V vi = a_[i] + p * k_[i];
                f[i] = q * vi + half * a_[i];
                a(l + 1)[i] = r * (k_[i] + p * m_[i]) + e * vi + along * a_[i];
            }
            lambda(l + 1) = r * (r * dot(a_, k_, d) + T(2) * e * c) + e * e * lam;
            if (l + 2 < L) {
                add_square(d, S_, p, B, counter());
                next_square(S_, a_, S(l + 1), p, l == 0);
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

    // S <- B + p S B + f a' + a f'.
    RF_SHARED void next_square(const V *S_, const V *a_, V *next, T p, bool first) {
        symmetric_product(d, [&](auto &tile, Size i, Size j) RF_BODY {
                              tile.multiply_add(S_ + i * d, d, 1, B + j, d, d);
                              if (first) tile.copy(SB + i * d + j, d);
                          },
                          [&](Size i, Size j, int r, int c, V cube) RF_BODY {
                              const V rank = (f + i)[r] * (a_ + j)[c] + (a_ + i)[r] * (f + j)[c];
                              const V x = cell(B, d, i, j, r, c) + p * cube + rank;
                              cell(next, d, i, j, r, c) = cell(next, d, j, i, c, r) = x;
                          }, counter());
    }

    // From the last layer down.
    void rows() override {
        for (Size i = 0; i < d; ++i) rho[(L - 1) * d + i] = model.omega[4 * L - 2] * a(L - 1)[i];
        rho_y(L) = splat(T(1));
        rho_y(L - 1) = T(1) + model.omega[4 * L - 1] * lambda(L - 1);
        for (Size l = L - 1; l-- > 0 && !counter().stop(d);) {
            const T p = model.omega[4 * l], q = model.omega[4 * l + 1], r = model.omega[4 * l + 2], s = model.omega[4 * l + 3];
            const V *above = rho + (l + 1) * d;
            vector_times(above, S(l), d, work);
            const V y = r * rho_y(l + 1);
            for (Size i = 0; i < d; ++i) rho[l * d + i] = above[i] + p * work[i] + y * a(l)[i];
            rho_y(l) = q * dot(a(l), above, d) + (T(1) + s * lambda(l)) * rho_y(l + 1);
        }
    }

    // delta_l = dloss/drho_0 T_0' ... T_{l-1}', upwards, and what it contributes to the gradient directly.
    void deltas(const V *target, const V *metric, V factor) override {
        loss_slope(target, metric, factor, delta(0));
        delta_y(0) = V{};
        for (Size l = 0; l < L && !counter().stop(d); ++l) {
            const T p = model.omega[4 * l], q = model.omega[4 * l + 1], r = model.omega[4 * l + 2], s = model.omega[4 * l + 3];
            const V a_delta = dot(a(l), delta(l), d), dy = delta_y(l);
            gradient[4 * l + 2] += rho_y(l + 1) * a_delta;
            gradient[4 * l + 3] += rho_y(l + 1) * lambda(l) * dy;
            if (l + 1 == L) return;
            const V *above = rho + (l + 1) * d;
            vector_times(delta(l), S(l), d, work);
            gradient[4 * l] += dot(above, work, d);
            gradient[4 * l + 1] += dot(above, a(l), d) * dy;
            const V y = q * dy;
            for (Size i = 0; i < d; ++i) delta(l + 1)[i] = delta(l)[i] + p * work[i] + y * a(l)[i];
            delta_y(l + 1) = r * a_delta + (T(1) + s * lambda(l)) * dy;
        }
    }

    // Adjoints of S, a, l from the last layer down.
    void backward() override {
        V lbar = model.omega[4 * L - 1] * delta_y(L - 1);
        for (Size i = 0; i < d; ++i) abar[i] = model.omega[4 * L - 2] * delta(L - 1)[i];
        for (Size l = L - 1; l-- > 0 && !counter().stop(d);) {
            const T p = model.omega[4 * l], q = model.omega[4 * l + 1], r = model.omega[4 * l + 2], s = model.omega[4 * l + 3];
            const bool matrix = l + 2 < L;  // otherwise Sbar is zero
            const V *S_ = S(l), *a_ = a(l), *k_ = k(l), *m_ = m + l * d, *b = abar;
            const V lam = lambda(l), e = T(1) + s * lam, c = dot(a_, a_, d);
            for (Size i = 0; i < d; ++i) v[i] = a_[i] + p * k_[i];
            V ag{}, vg{};
            if (matrix) {
                times_two(a_, v, Sbar, g);  // g = Sbar a, h = Sbar v
                ag = dot(a_, g, d);
                vg = dot(v, g, d);
            } else {
                for (Size i = 0; i < 2 * d; ++i) g[i] = V{};
            }
            const V ba = dot(b, a_, d), bm = dot(b, m_, d), bk = dot(b, k_, d);
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
            grad[2] += bk + p * bm + q * c * ba + T(2) * lbar * (r * dot(a_, k_, d) + e * c);
            grad[3] += ebar * lam;
            if (l == 0) {
                if (matrix) grad[0] += T(2) * pair(SB);
                return;
            }

            const V *above = rho + (l + 1) * d, *delta_ = delta(l);
            const V dy = delta_y(l), ry = rho_y(l + 1);
            vector_times(b, S_, d, work + d);
            const V lr2 = (r * r) * lbar;
            for (Size i = 0; i < d; ++i) kbar[i] = r * b[i] + p * work[i] + lr2 * a_[i] + (r * p) * work[d + i];
            for (Size i = 0; i < d; ++i) {
                left[i] = T(0.5) * kbar[i];
                left[d + i] = (T(0.5) * r * p) * b[i];
                left[2 * d + i] = (T(0.5) * p) * above[i];
            }
            const V along = q * (r * c + lam * e), wide = (T(2) * q * q) * lam;
            vector_times(kbar, S_, d, work + d);
            for (Size i = 0; i < d; ++i)
                abar[i] = work[i] + (T(2) * q) * h[i] + wide * g[i] + along * b[i] + lr2 * k_[i] + T(2) * cbar * a_[i] +
                          work[d + i] + q * dy * above[i] + r * ry * delta_[i];
            lbar = (q * q) * ag + q * e * ba + lbar * e * e + s * (ebar + ry * dy);
            if (matrix) adjoint_factor(d, Sbar, S_, p, X, counter());
            grad[0] += fold(d, matrix, X, S_, p, Terms(3), left, a_, Sbar, counter());
        }
    }

    RF_SHARED void times_two(const V *x, const V *y, const V *M, V *out) {
        for (Size i = 0; i < d; ++i) {
            work[i] = x[i];
            work[d + i] = y[i];
        }
        product(Known<2>(2), d, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(work + i * d, d, 1, M + j, d, d); },
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
};

}  // namespace
}  // namespace ridgeformer
