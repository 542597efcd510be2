// Loss and gradient of channel models with one vector x and s scalars, y the last of them, in blocks S [d][d], A [d][s]
// and l [s][s] of the Gram matrix: Diag with more scalars.
//
// With p = sum_h pv_h qv_h, C = sum_h pv_h Qs_h, R = sum_h qv_h Ps_h and E = I + sum_h Ps_h l Qs_h a layer is
// T = [M  A C; R A'  E], M = I + p S, and G <- T G T' reads, with K = S A, J = S K, W = M A, c = A'A, k = A'K:
//     S <- M S M + F A' + A F',   F = W C' + A C l C' / 2
//     A <- (K + p J) R' + W E' + A C Y',   Y = R c + E l
//     l <- (R k + E c) R' + Y E'
// M S M and its adjoint are in cubic.hpp. A, K, J and F are kept as rows, [s][d]. The prediction's last row needs
// only A and l of the last layer and S of the layer before it.
#pragma once
#include <initializer_list>

#include "cubic.hpp"
#include "network.hpp"

namespace ridgeformer {
namespace {

template <class Dim = Size, class Number = Size>
struct Channels final : Network {
    using Terms = std::conditional_t<is_known<Number>, Known<2 * Number(0) + 1>, Size>;
    const Dim d;
    const Number s;
    const Size L, heads;
    V *state;     // per layer: S [d][d], then rows delta, A [s], K [s], J [s], F [s]
    V *squares;   // per layer, [s][s] each: l, E, c, k, Y, Rk + Ec, and how A and K enter the next A, and A enters F
    V *short_;    // per layer and one, [s] each: delta_s, R' rho_s, A' rho, C delta_s, A' delta
    V *through_p;     // per layer: the gradient of p through the rows
    V *B, *SB, *Sbar, *X;                 // as in Diag
    V *left;                              // the rank-one terms of Sbar: rho p / 2, Kbar / 2, R' Abar p / 2
    V *abar, *other, *g;                  // the adjoint of A, that of the layer below, and Sbar A
    V *beta, *m, *n, *alpha, *kappa;      // [s][s]: Abar' times A, K, J; g' times A, K
    V *lbar, *Cbar, *Rbar, *Ebar, *kbar;  // [s][s]: adjoints
    V *one, *two, *gamma, *lnext;         // [s][s]: for a while

    // See Diag::lay_out.
    template <class Take>
    static void lay_out(Dim d, Number s, Size L, Size heads, Take &&take) {
        const Size cells = s * s;
        take(&Channels::state, L * d * (d + 1 + 4 * s));
        take(&Channels::squares, L * 9 * cells);
        take(&Channels::short_, (L + 1) * 5 * s);
        take(&Channels::rho, (L + 1) * (d + s));  // [d + s] each
        take(&Channels::through_p, L);
        for (auto square : {&Channels::B, &Channels::SB, &Channels::Sbar, &Channels::X}) take(square, d * d);
        take(&Channels::left, (2 * s + 1) * d);
        for (auto rows : {&Channels::abar, &Channels::other, &Channels::g}) take(rows, s * d);
        for (auto small : {&Channels::beta, &Channels::m, &Channels::n, &Channels::alpha, &Channels::kappa, &Channels::lbar,
                           &Channels::Cbar, &Channels::Rbar, &Channels::Ebar, &Channels::kbar, &Channels::one, &Channels::two,
                           &Channels::gamma, &Channels::lnext})
            take(small, cells);
        take(&Channels::work, 2 * (d + s));
        take(&Channels::gradient, 2 * L * heads * (1 + cells));  // Pv, Qv [L][heads], then Ps, Qs [L][heads][s][s]
    }
    static std::size_t vectors(const Model<T> &model) {
        return count_vectors<Channels>(Dim(model.dim + 1 - model.scalars), Number(model.scalars), model.layers, model.heads);
    }

    Channels(V *memory, const Model<T> &model_, Watch &watch_)
        : Network(model_, watch_), d(model_.dim + 1 - model_.scalars), s(model_.scalars), L(model_.layers), heads(model_.heads) {
        lay_out(d, s, L, heads, placing(*this, memory));
    }

    Counter counter() const { return {watch, d}; }  // of elements that are sums of d terms
    bool stop() const { return Counter{watch, d > s ? Size(d) : Size(s)}.stop(4 * s * (d > s ? Size(d) : Size(s))); }
    Size cells() const { return s * s; }
    V *S(Size l) const { return state + l * d * (d + 1 + 4 * s); }
    V *delta(Size l) const { return S(l) + d * d; }
    V *A(Size l) const { return delta(l) + d; }
    V *K(Size l) const { return A(l) + s * d; }
    V *J(Size l) const { return K(l) + s * d; }
    V *F(Size l) const { return J(l) + s * d; }
    V *square(Size l, int which) const { return squares + (9 * l + which) * cells(); }
    V *lambda(Size l) const { return square(l, 0); }
    V *E(Size l) const { return square(l, 1); }
    V *c(Size l) const { return square(l, 2); }
    V *k(Size l) const { return square(l, 3); }
    V *Y(Size l) const { return square(l, 4); }
    V *Y2(Size l) const { return square(l, 5); }
    V *by_A(Size l) const { return square(l, 6); }
    V *by_K(Size l) const { return square(l, 7); }
    V *F_by_A(Size l) const { return square(l, 8); }
    V *delta_s(Size l) const { return short_ + 5 * l * s; }
    V *R_rho(Size l) const { return delta_s(l) + s; }
    V *A_rho(Size l) const { return R_rho(l) + s; }
    V *C_delta(Size l) const { return A_rho(l) + s; }
    V *A_delta(Size l) const { return C_delta(l) + s; }
    V *row(Size l) const { return rho + l * (d + s); }
    // What a layer's heads amount to: p, C, R, p C, p R.
    T p(Size l) const { return model.maps[l * (1 + 4 * cells())]; }
    const T *C(Size l) const { return model.maps + l * (1 + 4 * cells()) + 1; }
    const T *R(Size l) const { return C(l) + cells(); }
    const T *pC(Size l) const { return R(l) + cells(); }
    const T *pR(Size l) const { return pC(l) + cells(); }
    const T *Ps(Size l, Size h) const { return model.Ps + (l * heads + h) * cells(); }
    const T *Qs(Size l, Size h) const { return model.Qs + (l * heads + h) * cells(); }

    // out = x y, or out += x y, of [s][s] matrices, x or y transposed if asked for.
    template <bool Add = false, bool TX = false, bool TY = false, class One, class Two>
    RF_INLINE void times(const One *x, const Two *y, V *out) const {
        for (Size i = 0; i < s && !Counter{watch, s}.stop(s); ++i)
            for (Size j = 0; j < s; ++j) {
                V sum = Add ? out[i * s + j] : V{};
                for (Size q = 0; q < s; ++q) sum += x[TX ? q * s + i : i * s + q] * y[TY ? j * s + q : q * s + j];
                out[i * s + j] = sum;
            }
    }
    template <class One>
    RF_INLINE V paired(const One *x, const V *y) const {
        V even{}, odd{};
        for (Size i = 0; i < cells(); i += 2) even += x[i] * y[i];
        for (Size i = 1; i < cells(); i += 2) odd += x[i] * y[i];
        return even + odd;
    }

    // out[i][j] = <row i of x, row j of y>
    RF_INLINE void contract(const V *x, const V *y, V *out) const {
        if constexpr (!is_known<Number>) {
            for (Size i = 0; i < s && !counter().stop(s); ++i)
                for (Size j = 0; j < s; ++j) out[i * s + j] = dot(x + i * d, y + j * d, d);
        } else {
            V sum[Number(0)][Number(0)] = {};
            for (Size t = 0; t < d; ++t)
                for (Size i = 0; i < s; ++i)
                    for (Size j = 0; j < s; ++j) sum[i][j] += x[i * d + t] * y[j * d + t];
            for (Size i = 0; i < s; ++i)
                for (Size j = 0; j < s; ++j) out[i * s + j] = sum[i][j];
        }
    }

    // s rows of d, as product() makes them; row by row where s is not known, to spare the compiler.
    template <class Sum, class Put>
    RF_INLINE void rows_of(const Sum &sum, const Put &put) const {
        if constexpr (!is_known<Number>) {
            for (Size i = 0; i < s && !counter().stop(4 * d); ++i)
                product(Known<1>(1), d, [&](auto &tile, Size, Size j) RF_BODY { sum(tile, i, j); },
                        [&](Size, Size j, int r, int col, V value) RF_BODY { put(i, j, r, col, value); });
        } else {
            product(s, d, sum, put, counter());
        }
    }
    RF_SHARED void rows_times(const V *rows, const V *M, V *out) const {
        rows_of([&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(rows + i * d, d, 1, M + j, d, d); },
                [&](Size i, Size j, int r, int col, V value) RF_BODY { cell(out, d, i, j, r, col) = value; });
    }

    void forward(const V *gram) override {
        for (Size j = 0; j < s; ++j) {
            for (Size i = 0; i < d; ++i) A(0)[j * d + i] = gram[packed(d + j, i)];
            for (Size i = 0; i <= j; ++i) lambda(0)[i * s + j] = lambda(0)[j * s + i] = gram[packed(d + j, d + i)];
        }
        if (L == 1) mark_infinite(gram);
        for (Size i = 0; i < d; ++i)
            for (Size j = 0; j <= i; ++j) S(0)[i * d + j] = S(0)[j * d + i] = gram[packed(i, j)];
        for (Size l = 0; l + 1 < L && !stop(); ++l) forward_layer(l);
        attention(L - 1);
    }

    // One layer does not read S: see Diag.
    void mark_infinite(const V *gram) {
        V probe{};
        for (Size i = 0; i < packed(d + s, 0); ++i) probe += T(0) * gram[i];
        for (Size i = 0; i < s * d; ++i) A(0)[i] = probe == T(0) ? A(0)[i] : probe;
        for (Size i = 0; i < cells(); ++i) lambda(0)[i] = probe == T(0) ? lambda(0)[i] : probe;
    }

    void attention(Size l) {
        for (Size i = 0; i < cells(); ++i) E(l)[i] = splat(T(i % (s + 1) == 0));
        for (Size h = 0; h < heads; ++h) {
            times(lambda(l), Qs(l, h), one);
            times<true>(Ps(l, h), one, E(l));
        }
    }

    void forward_layer(Size l) {
        const V *A_ = A(l), *K_ = K(l), *J_ = J(l), *E_ = E(l);
        const T *pR_ = pR(l), *pC_ = pC(l);
        attention(l);
        rows_times(A_, S(l), K(l));
        rows_times(K_, S(l), J(l));
        contract(A_, A_, c(l));
        contract(A_, K_, k(l));
        times(R(l), c(l), Y(l));
        times<true>(E_, lambda(l), Y(l));
        times(R(l), k(l), Y2(l));
        times<true>(E_, c(l), Y2(l));
        times<false, false, true>(Y2(l), R(l), lambda(l + 1));
        times<true, false, true>(Y(l), E_, lambda(l + 1));
        for (Size i = 0; i < s; ++i)
            for (Size j = 0; j < i; ++j) lambda(l + 1)[j * s + i] = lambda(l + 1)[i * s + j];
        V *D = by_A(l), *D2 = by_K(l), *next = A(l + 1);
        times<false, false, true>(Y(l), C(l), D);
        for (Size i = 0; i < cells(); ++i) {
            D[i] += E_[i];
            D2[i] = R(l)[i] + p(l) * E_[i];
        }
        rows_of([&](auto &tile, Size i, Size j) RF_BODY {
                    tile.multiply_add(D + i * s, s, 1, A_ + j, d, s);
                    tile.multiply_add(D2 + i * s, s, 1, K_ + j, d, s);
                    tile.multiply_add(pR_ + i * s, s, 1, J_ + j, d, s);
                },
                [&](Size i, Size j, int r, int col, V value) RF_BODY { cell(next, d, i, j, r, col) = value; });
        if (l + 2 >= L) return;
        V *H = F_by_A(l), *F_ = F(l);
        times<false, false, true>(lambda(l), C(l), one);
        times(C(l), one, H);
        for (Size i = 0; i < cells(); ++i) H[i] = C(l)[i] + T(0.5) * H[i];
        rows_of([&](auto &tile, Size i, Size j) RF_BODY {
                    tile.multiply_add(H + i * s, s, 1, A_ + j, d, s);
                    tile.multiply_add(pC_ + i * s, s, 1, K_ + j, d, s);
                },
                [&](Size i, Size j, int r, int col, V value) RF_BODY { cell(F_, d, i, j, r, col) = value; });
        add_square(d, S(l), p(l), B, counter());
        next_square(l);
    }

    // S <- B + p S B + F A' + A F'.
    RF_SHARED void next_square(Size l) {
        const V *S_ = S(l), *A_ = A(l), *F_ = F(l);
        V *next = S(l + 1);
        const T p_ = p(l);
        const bool first = l == 0;
        symmetric_product(d, [&](auto &tile, Size i, Size j) RF_BODY {
                              tile.multiply_add(S_ + i * d, d, 1, B + j, d, d);
                              if (first) tile.copy(SB + i * d + j, d);
                              tile.scale(p_);
                              tile.multiply_add(F_ + i, 1, d, A_ + j, d, s);
                              tile.multiply_add(A_ + i, 1, d, F_ + j, d, s);
                          },
                          [&](Size i, Size j, int r, int col, V value) RF_BODY {
                              const V x = cell(B, d, i, j, r, col) + value;
                              cell(next, d, i, j, r, col) = cell(next, d, j, i, col, r) = x;
                          }, counter());
    }

    // From the last layer down.
    void rows() override {
        for (Size i = 0; i < d + s; ++i) row(L)[i] = splat(T(i + 1 == d + s));
        for (Size l = L; l-- > 0 && !stop();) {
            const V *above = row(l + 1), *A_ = A(l);
            V *here = row(l), *t = R_rho(l), *u = A_rho(l);
            for (Size j = 0; j < s; ++j) {
                t[j] = V{};
                for (Size i = 0; i < s; ++i) t[j] += R(l)[i * s + j] * above[d + i];
                u[j] = l + 1 < L ? dot(A_ + j * d, above, d) : V{};
            }
            if (l + 1 < L) {
                vector_times(above, S(l), d, work);
                for (Size i = 0; i < d; ++i) here[i] = above[i] + p(l) * work[i];
            } else {
                for (Size i = 0; i < d; ++i) here[i] = V{};
            }
            add_rows(t, A_, here);
            for (Size j = 0; j < s; ++j) {
                V sum{};
                for (Size i = 0; i < s; ++i) sum += C(l)[i * s + j] * u[i] + E(l)[i * s + j] * above[d + i];
                here[d + j] = sum;
            }
        }
    }

    // out += x[0] rows[0] + x[1] rows[1] + ...
    RF_INLINE void add_rows(const V *x, const V *rows, V *out) const {
        for (Size i = 0; i < d; ++i) {
            V sum = out[i];
            for (Size j = 0; j < s; ++j) sum += x[j] * rows[j * d + i];
            out[i] = sum;
        }
    }

    // delta_l = dloss/drho_0 T_0' ... T_{l-1}', upwards.
    void deltas(const V *target, const V *metric, V factor) override {
        loss_slope(target, metric, factor, work);
        for (Size i = 0; i < d + s; ++i) (i < d ? delta(0) + i : delta_s(0) + (i - d))[0] = i < model.counted ? work[i] : V{};
        for (Size l = 0; l < L && !stop(); ++l) {
            const V *A_ = A(l), *x = delta(l), *y = delta_s(l);
            V *w = C_delta(l), *z = A_delta(l);
            for (Size j = 0; j < s; ++j) {
                z[j] = dot(A_ + j * d, x, d);
                w[j] = V{};
                for (Size i = 0; i < s; ++i) w[j] += C(l)[j * s + i] * y[i];
            }
            through_p[l] = V{};
            if (l + 1 == L) return;
            vector_times(x, S(l), d, work);
            through_p[l] = dot(row(l + 1), work, d);
            V *next = delta(l + 1);
            for (Size i = 0; i < d; ++i) next[i] = x[i] + p(l) * work[i];
            add_rows(w, A_, next);
            for (Size j = 0; j < s; ++j) {
                V sum{};
                for (Size i = 0; i < s; ++i) sum += R(l)[j * s + i] * z[i] + E(l)[j * s + i] * y[i];
                delta_s(l + 1)[j] = sum;
            }
        }
    }

    // Adjoints of S, A, l from the last layer down.
    void backward() override {
        const T *last = R(L - 1) + s * (s - 1);
        for (Size j = 0; j < s; ++j)
            for (Size i = 0; i < d; ++i) abar[j * d + i] = last[j] * delta(L - 1)[i];
        for (Size i = 0; i < cells(); ++i) lnext[i] = Cbar[i] = V{};
        for (Size i = 0; i < s; ++i)
            for (Size j = 0; j < s; ++j) {
                const V above = row(L)[d + i];
                Rbar[i * s + j] = above * A_delta(L - 1)[j];
                Ebar[i * s + j] = above * delta_s(L - 1)[j];
            }
        finish(L - 1, V{});
        for (Size l = L - 1; l-- > 0 && !stop();) backward_layer(l);
    }

    // From the adjoints of p, C, R and E to those of the parameters; the next lbar is lnext and what E adds, made symmetric.
    void finish(Size l, V pbar) {
        const Size size = L * heads;
        for (Size h = 0; h < heads; ++h) {
            const Size at = l * heads + h;
            V *P = gradient + 2 * size + at * cells(), *Q = P + size * cells();
            times<false, false, true>(Ebar, Qs(l, h), one);
            times<true>(one, lambda(l), P);
            times<true, true>(Ps(l, h), one, lnext);
            times<false, true>(Ps(l, h), Ebar, two);
            times<true>(lambda(l), two, Q);
            const T pv = model.Pv[at], qv = model.Qv[at];
            for (Size i = 0; i < cells(); ++i) {
                P[i] += qv * Rbar[i];
                Q[i] += pv * Cbar[i];
            }
            gradient[at] += qv * pbar + paired(Qs(l, h), Cbar);
            gradient[size + at] += pv * pbar + paired(Ps(l, h), Rbar);
        }
        for (Size i = 0; i < s; ++i)
            for (Size j = 0; j <= i; ++j) lbar[i * s + j] = lbar[j * s + i] = T(0.5) * (lnext[i * s + j] + lnext[j * s + i]);
    }

    void backward_layer(Size l) {
        const bool matrix = l + 2 < L;  // otherwise Sbar is zero
        const V *E_ = E(l);
        const T p_ = p(l);
        contract(abar, A(l), beta);
        contract(abar, K(l), m);
        contract(abar, J(l), n);
        times(beta, C(l), gamma);
        times(lbar, Y2(l), one);
        times(lbar, Y(l), two);
        const V *above = row(l + 1) + d;
        for (Size i = 0; i < s; ++i)
            for (Size j = 0; j < s; ++j) {
                const Size at = i * s + j;
                Rbar[at] = m[at] + p_ * n[at] + T(2) * one[at] + above[i] * A_delta(l)[j];
                Ebar[at] = beta[at] + p_ * m[at] + T(2) * two[at] + above[i] * delta_s(l)[j];
                Cbar[at] = A_rho(l)[i] * delta_s(l)[j];
                lnext[at] = V{};
            }
        times<true>(gamma, c(l), Rbar);
        times<true>(gamma, lambda(l), Ebar);
        times<true, true>(beta, Y(l), Cbar);
        V pbar = through_p[l] + paired(R(l), n) + paired(E_, m);
        if (matrix) pbar += matrix_terms(l);
        if (l > 0) pbar += lower(l, matrix);
        else if (matrix) pbar += T(2) * pair(SB);
        finish(l, pbar);
    }

    // What the adjoint of S adds to those of C and l; returns what it adds to that of p.
    V matrix_terms(Size l) {
        rows_times(A(l), Sbar, g);
        contract(g, A(l), alpha);
        contract(g, K(l), kappa);
        times(alpha, C(l), one);
        times(one, lambda(l), two);
        for (Size i = 0; i < cells(); ++i) Cbar[i] += T(2) * (alpha[i] + p(l) * kappa[i] + two[i]);
        times<true, true>(C(l), one, lnext);
        return T(2) * paired(C(l), kappa);
    }

    // The adjoints one layer down. Returns the gradient of p through M S M.
    V lower(Size l, bool matrix) {
        const V *S_ = S(l), *A_ = A(l), *K_ = K(l), *F_ = F(l), *E_ = E(l), *above = row(l + 1), *down = delta(l);
        const V *D = by_A(l), *D2 = by_K(l), *H = F_by_A(l), *w = C_delta(l), *t = R_rho(l);
        const T p_ = p(l), *pR_ = pR(l), *pC_ = pC(l);
        times(lbar, R(l), one);
        times<false, true>(R(l), one, kbar);
        times(lbar, E_, one);
        for (Size i = 0; i < cells(); ++i) {
            two[i] = T(2) * one[i] + gamma[i];
            one[i] += gamma[i];
        }
        times<true, true>(E_, one, lnext);
        times<false, true>(R(l), two, one);
        for (Size i = 0; i < s; ++i)
            for (Size j = 0; j <= i; ++j) two[i * s + j] = two[j * s + i] = one[i * s + j] + one[j * s + i];
        V *half = left + d, *quarter = half + s * d;
        for (Size i = 0; i < d; ++i) left[i] = (T(0.5) * p_) * above[i];
        rows_of([&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(pR_ + i, 1, s, abar + j, d, s); },
                [&](Size i, Size j, int r, int col, V value) RF_BODY { cell(quarter, d, i, j, r, col) = T(0.5) * value; });
        rows_of([&](auto &tile, Size i, Size j) RF_BODY {
                    tile.multiply_add(D2 + i, 1, s, abar + j, d, s);
                    tile.multiply_add(kbar + i * s, s, 1, A_ + j, d, s);
                    tile.scale(T(0.5));
                    if (matrix) tile.multiply_add(pC_ + i, 1, s, g + j, d, s);
                    tile.multiply_add(quarter + i * d, d, 1, S_ + j, d, d);
                },
                [&](Size i, Size j, int r, int col, V value) RF_BODY { cell(half, d, i, j, r, col) = value; });
        rows_of([&](auto &tile, Size i, Size j) RF_BODY {
                    tile.multiply_add(half + i * d, d, 1, S_ + j, d, d);
                    if (matrix) {
                        tile.multiply_add(F_ + i * d, d, 1, Sbar + j, d, d);
                        tile.multiply_add(H + i, 1, s, g + j, d, s);
                    }
                    tile.scale(T(2));
                    tile.multiply_add(D + i, 1, s, abar + j, d, s);
                    tile.multiply_add(kbar + i * s, s, 1, K_ + j, d, s);
                    tile.multiply_add(two + i * s, s, 1, A_ + j, d, s);
                },
                [&](Size i, Size j, int r, int col, V value) RF_BODY {
                    cell(other, d, i, j, r, col) = value + (w + i)[r] * (above + j)[col] + (t + i)[r] * (down + j)[col];
                });
        V *const swapped = abar;
        abar = other;
        other = swapped;
        if (matrix) adjoint_factor(d, Sbar, S_, p_, X, counter());
        return fold(d, matrix, X, S_, p_, Terms(2 * s + 1), left, down, Sbar, counter());
    }

    // <Sbar, M> for a symmetric M known by its lower triangle.
    V pair(const V *M) const {
        V diagonal{}, below{};
        for (Size i = 0; i < d; ++i) {
            below += dot(Sbar + i * d, M + i * d, i);
            diagonal += Sbar[i * d + i] * M[i * d + i];
        }
        return diagonal + T(2) * below;
    }
};

}  // namespace
}  // namespace ridgeformer
