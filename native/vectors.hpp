// Loss and gradient of channel models with several vectors of R^d, and scalars, y the last of them.
//
// Most channels are empty in the first tokens. So the Gram matrix of every layer is Z G Z', with the Gram matrix G [m][m] of
// the channels that are not, and Z [D][m], which says what the channels of a layer hold of these: m is d + 1 where the first
// tokens are (x, y), and D = v d + s. A layer mixes the blocks of Z by small matrices, and its products are smaller than those
// of Gram matrices, m m D instead of D D D:
//     Z <- Z + sum_h (P_h Z) H_h,   H_h = G K_h,   K_h = Z' Q_h Z
// Backwards, with the adjoint B of the layer above, N_h = B H_h' and Kbar_h = G (P_h Z)' B:
//     Pbar_h = N_h Z',   Qbar_h = (Z Kbar_h) Z',   B <- B + sum_h P_h' N_h + (Q_h Z) Kbar_h' + Q_h' (Z Kbar_h)
// where the products with Z' are blocks times blocks. The first Z selects channels, and K_h of the first layer is a part of
// Q_h: only blocks are mixed there. Minus the weights are the last row of the last Z, for which vectors suffice: models of up
// to two layers need no product of matrices. All sums run over the channels in their order, so that bits do not depend on how
// many of them the first tokens of other sequences use.
#pragma once
#include <initializer_list>

#include "network.hpp"

namespace ridgeformer {
namespace {

struct Vectors final : Network {
    // The first so many vectors and the last so many scalars: the blocks of a matrix, in this order.
    struct Part {
        Size vectors, scalars;
    };
    // How a matrix mixes channels: [v][v] and [s][s].
    template <class Element>
    struct Mixing {
        Element *vectors, *scalars;
    };

    const Size v, s, d, D, L, heads;
    const Part all;
    Part first{};              // those that the first tokens use
    Size m = 0;                // their coordinates
    V *G;                      // [m][m]
    V *Z_;                     // per layer but the first, [D][m]; of one layer, the first
    V *H_;                     // per layer but the last and head, [m][m]
    V *PZ_, *QZ_;              // per layer but the first and the last and head, [D][m]
    V *B, *next, *N;           // [D][m]
    V *K, *turned;             // [m][m]
    V *delta;                  // [m]
    V *t, *q, *y;              // per head of the last layer: [m], [D], [D]

    // See Diag::lay_out. The first tokens may use all channels: m is at most D.
    template <class Take>
    static void lay_out(Size v, Size s, Size D, Size L, Size heads, Take &&take) {
        take(&Vectors::G, D * D);
        take(&Vectors::Z_, (L > 1 ? L - 1 : 1) * D * D);
        take(&Vectors::H_, (L - 1) * heads * D * D);
        for (auto matrices : {&Vectors::PZ_, &Vectors::QZ_}) take(matrices, (L > 2 ? L - 2 : 0) * heads * D * D);
        for (auto matrix : {&Vectors::B, &Vectors::next, &Vectors::N, &Vectors::K, &Vectors::turned}) take(matrix, D * D);
        take(&Vectors::rho, D);
        take(&Vectors::delta, D);
        for (auto rows : {&Vectors::t, &Vectors::q, &Vectors::y}) take(rows, heads * D);
        take(&Vectors::work, 4 * D);
        take(&Vectors::gradient, 2 * L * heads * (v * v + s * s));  // Pv, Qv [L][heads][v][v], then Ps, Qs [L][heads][s][s]
    }
    static std::size_t vectors(const Model<T> &model) {
        return count_vectors<Vectors>(model.vectors, model.scalars, model.dim + 1, model.layers, model.heads);
    }

    Vectors(V *memory, const Model<T> &model_, Watch &watch_)
        : Network(model_, watch_), v(model_.vectors), s(model_.scalars), d((model_.dim + 1 - s) / v), D(model_.dim + 1),
          L(model_.layers), heads(model_.heads), all{v, s} {
        lay_out(v, s, D, L, heads, placing(*this, memory));
    }

    Counter counter(Size depth) const { return {watch, depth}; }  // of elements that are sums of `depth` terms
    V *Z(Size l) const { return Z_ + (l > 0 ? l - 1 : 0) * D * m; }
    V *H(Size l, Size h) const { return H_ + (l * heads + h) * m * m; }
    V *PZ(Size l, Size h) const { return PZ_ + ((l - 1) * heads + h) * D * m; }
    V *QZ(Size l, Size h) const { return QZ_ + ((l - 1) * heads + h) * D * m; }
    Mixing<const T> P(Size l, Size h) const { return {model.Pv + (l * heads + h) * v * v, model.Ps + (l * heads + h) * s * s}; }
    Mixing<const T> Q(Size l, Size h) const { return {model.Qv + (l * heads + h) * v * v, model.Qs + (l * heads + h) * s * s}; }
    Mixing<V> slope_P(Size l, Size h) const {
        return {gradient + (l * heads + h) * v * v, gradient + 2 * L * heads * v * v + (l * heads + h) * s * s};
    }
    Mixing<V> slope_Q(Size l, Size h) const { return slope_P(L + l, h); }
    const T *last_row(Size h) const { return P(L - 1, h).scalars + s * (s - 1); }  // of P of the last layer: y alone is read
    const V *scalar_row(Size j) const { return Z(L - 1) + (v * d + j) * m; }

    // Where row i of the first channels stands in a token: x, the scalars beside y, the vectors beside x, y.
    Size place(Size i) const {
        if (i < first.vectors * d) return i < d ? i : s - 1 + i;
        const Size scalar = i - first.vectors * d + s - first.scalars;
        return scalar + 1 < s ? d + scalar : D - 1;
    }

    // out = M X, or M' X, or added to out: the blocks `from` of X, with rows of `width`, become the blocks `to`.
    template <bool Transposed>
    void mix(Part to, Part from, Mixing<const T> M, const V *X, V *out, Size width, bool add = false) const {
        const Size size = d * width;
        mix_blocks<Transposed>(to.vectors, from.vectors, size, M.vectors, v, X, out, add);
        const T *scalars = M.scalars + (s - to.scalars) * (Transposed ? 1 : s) + (s - from.scalars) * (Transposed ? s : 1);
        mix_blocks<Transposed>(to.scalars, from.scalars, width, scalars, s, X + from.vectors * size, out + to.vectors * size, add);
    }
    template <bool Transposed>
    RF_SHARED void mix_blocks(Size to, Size from, Size size, const T *M, Size n, const V *X, V *out, bool add) const {
        const Size row = Transposed ? 1 : n, column = Transposed ? n : 1;
        product(to, size, [&](auto &tile, Size i, Size j) RF_BODY {
                    if (add) tile.each([&](int r, int c) RF_BODY { tile.sum[r][c] = cell(out, size, i, j, r, c); });
                    tile.multiply_add(M + i * row, row, column, X + j, size, from);
                },
                [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(out, size, i, j, r, c) = value; }, counter(from));
    }

    // M += X Y': the blocks `left` of X times the blocks `right` of Y.
    void contract(Part left, Part right, const V *X, const V *Y, Mixing<V> M, Size width) const {
        const Size size = d * width;
        contract_blocks(left.vectors, right.vectors, size, X, Y, M.vectors, v);
        V *scalars = M.scalars + (s - left.scalars) * s + s - right.scalars;
        contract_blocks(left.scalars, right.scalars, width, X + left.vectors * size, Y + right.vectors * size, scalars, s);
    }
    RF_SHARED void contract_blocks(Size left, Size right, Size size, const V *X, const V *Y, V *M, Size n) const {
        product(left, right, [&](auto &tile, Size i, Size j) RF_BODY {
                    tile.multiply_add(X + i * size, size, 1, Y + j * size, 1, size, size);
                },
                [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(M, n, i, j, r, c) += value; }, counter(size));
    }

    void turn(const V *X, V *out) const {
        for (Size i = 0; i < m; ++i)
            for (Size j = 0; j < m; ++j) out[j * m + i] = X[i * m + j];
    }
    // out = Z x of the last layer.
    RF_SHARED void apply(const V *x, V *out) const {
        const V *here = Z(L - 1);
        product(D, Known<1>(1), [&](auto &tile, Size i, Size) RF_BODY { tile.multiply_add(here + i * m, m, 1, x, 1, m); },
                [&](Size i, Size, int r, int, V value) RF_BODY { (out + i)[r] = value; }, counter(m));
    }

    void forward(const V *gram) override {
        choose_first(gram);
        for (Size i = 0; i < m; ++i)
            for (Size j = 0; j <= i; ++j) G[i * m + j] = G[j * m + i] = at(gram, place(i), place(j));
        if (L == 1) {
            select(Z(0));
            V probe{};  // one layer does not read all of G: see Diag::mark_infinite
            for (Size i = 0; i < m * m; ++i) probe += T(0) * G[i];
            for (Size i = 0; i < m * m; ++i) G[i] = probe == T(0) ? G[i] : probe;
            return;
        }
        first_layer();
        for (Size l = 1; l + 1 < L && !counter(m).stop(D); ++l) forward_layer(l);
    }

    static V at(const V *gram, Size i, Size j) { return gram[i >= j ? packed(i, j) : packed(j, i)]; }

    // The channels that the first tokens use: those with a weight that counts, and those that are not zero.
    void choose_first(const V *gram) {
        first = all;
        m = D;
        const auto used = [&](Size from, Size count) {
            Bits some{};
            for (Size i = from; i < from + count; ++i) {
                if (place(i) < model.counted) return true;
                for (Size j = 0; j < D; ++j) some |= at(gram, place(i), j) != T(0);  // NaN too
            }
            for (int k = 0; k < kLanes; ++k)
                if (some[k]) return true;
            return false;
        };
        Part needed = all;
        while (needed.vectors > 1 && !used((needed.vectors - 1) * d, d)) --needed.vectors;
        while (needed.scalars > 1 && !used(D - needed.scalars, 1)) --needed.scalars;
        first = needed;
        m = first.vectors * d + first.scalars;
    }

    void select(V *out) const {
        for (Size i = 0; i < D * m; ++i) out[i] = V{};
        for (Size i = 0; i < m; ++i) out[(i < first.vectors * d ? i : D - m + i) * m + i] = splat(T(1));
    }

    void first_layer() {
        select(Z(1));
        for (Size h = 0; h < heads; ++h) {
            mix<true>(first, first, Q(0, h), G, turned, m);
            turn(turned, H(0, h));
            mix<false>(all, first, P(0, h), H(0, h), Z(1), m, true);
        }
    }

    void forward_layer(Size l) {
        const V *here = Z(l);
        V *above = Z(l + 1);
        for (Size i = 0; i < D * m; ++i) above[i] = here[i];
        for (Size h = 0; h < heads; ++h) {
            mix<false>(all, all, P(l, h), here, PZ(l, h), m);
            mix<false>(all, all, Q(l, h), here, QZ(l, h), m);
            multiply<true>(m, D, here, m, QZ(l, h), K, m, false, counter(D));
            multiply(m, m, G, m, K, H(l, h), m, false, counter(m));
            multiply_rows(D, m, m, PZ(l, h), H(l, h), above, true, counter(m));
        }
    }

    void rows() override {
        for (Size i = 0; i < m; ++i) rho[i] = scalar_row(s - 1)[i];
        for (Size h = 0; h < heads && !counter(m).stop(4 * D); ++h) {
            for (Size i = 0; i < m; ++i) work[i] = V{};
            for (Size j = 0; j < s; ++j)
                for (Size i = 0; i < m; ++i) work[i] += last_row(h)[j] * scalar_row(j)[i];
            vector_times(work, G, m, t + h * D);
            apply(t + h * D, q + h * D);
            mix<true>(all, all, Q(L - 1, h), q + h * D, y + h * D, 1);
            multiply_rows(1, m, D, y + h * D, Z(L - 1), rho, true, counter(D));
        }
    }

    // Minus the weights of the coordinates that count.
    const V *found() const override {
        V *const out = work + 2 * D;
        for (Size i = 0; i < m; ++i)
            if (place(i) < model.counted) out[place(i)] = rho[i];
        return out;
    }

    void deltas(const V *target, const V *metric, V factor) override {
        loss_slope(target, metric, factor, work);
        for (Size i = 0; i < m; ++i) delta[i] = place(i) < model.counted ? work[place(i)] : V{};
    }

    void backward() override {
        last_layer();
        for (Size l = L - 2; l > 0 && !counter(m).stop(D); --l) backward_layer(l);
        if (L > 1) backward_first();
    }

    void last_layer() {
        V *const ybar = work, *const qbar = work + D, *const tbar = work + 2 * D, *const rbar = work + 3 * D;
        for (Size i = 0; i < D * m; ++i) B[i] = i < (D - 1) * m ? V{} : delta[i - (D - 1) * m];
        apply(delta, ybar);
        for (Size h = 0; h < heads && !counter(m).stop(6 * D); ++h) {
            const V *t_ = t + h * D, *y_ = y + h * D;
            mix<false>(all, all, Q(L - 1, h), ybar, qbar, 1);
            contract(all, all, q + h * D, ybar, slope_Q(L - 1, h), 1);
            multiply_rows(1, m, D, qbar, Z(L - 1), tbar, false, counter(D));
            vector_times(tbar, G, m, rbar);
            for (Size i = 0; i < D; ++i)
                for (Size j = 0; j < m; ++j) B[i * m + j] += y_[i] * delta[j] + qbar[i] * t_[j];
            contract_blocks(1, s, m, rbar, scalar_row(0), slope_P(L - 1, h).scalars + s * (s - 1), s);
            for (Size j = 0; j < s; ++j)
                for (Size i = 0; i < m; ++i) B[(v * d + j) * m + i] += last_row(h)[j] * rbar[i];
        }
    }

    void backward_layer(Size l) {
        const V *here = Z(l);
        for (Size i = 0; i < D * m; ++i) next[i] = B[i];
        for (Size h = 0; h < heads; ++h) {
            turn(H(l, h), turned);
            multiply_rows(D, m, m, B, turned, N, false, counter(m));
            contract(all, all, N, here, slope_P(l, h), m);
            mix<true>(all, all, P(l, h), N, next, m, true);
            multiply<true>(m, D, PZ(l, h), m, B, turned, m, false, counter(D));
            multiply(m, m, G, m, turned, K, m, false, counter(m));
            multiply_rows(D, m, m, here, K, N, false, counter(m));
            contract(all, all, N, here, slope_Q(l, h), m);
            mix<true>(all, all, Q(l, h), N, next, m, true);
            turn(K, turned);
            multiply_rows(D, m, m, QZ(l, h), turned, next, true, counter(m));
        }
        V *const swapped = B;
        B = next;
        next = swapped;
    }

    void backward_first() {
        for (Size h = 0; h < heads; ++h) {
            contract(all, first, B, H(0, h), slope_P(0, h), m);
            mix<true>(first, all, P(0, h), B, K, m);
            turn(K, turned);
            contract(first, first, G, turned, slope_Q(0, h), m);
        }
    }
};

}  // namespace
}  // namespace ridgeformer
