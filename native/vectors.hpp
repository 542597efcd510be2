// Loss and gradient of channel models with several vectors: N = v d coordinates of vectors, then s scalars, y the last.
//
// T = I + sum_h P_h G Q_h has no structure once there are two vectors, so G and T are whole matrices. But P_h and Q_h only mix
// blocks, which costs D^2, and so do their gradients. Beside the equations of whole.hpp:
//     Pbar_h[i][j] += <block row i of Y_h, block row j of G>, Qbar_h[i][j] += <block column i of P_h G, j of Tbar>.
// The last layer reads the scalars' rows of G alone. So its Gbar is (e M + M'e') / 2 with s rows M and e the scalars' unit
// vectors, and with V = M T / 2 and t the scalars' rows of T, one below: Tbar = rho' delta + 2 e V G + M' t G and
// T' Gbar T = t'V + V't.
#pragma once
#include <initializer_list>

#include "whole.hpp"

namespace ridgeformer {
namespace {

struct Vectors final : Whole {
    const Size v, s, d, N;
    V *top, *tG, *M, *halfG;  // [s][D]: the scalars' rows of the last G, t G, M, V G
    V *outer, *inner;         // [2 s][D]: t, then V; and V, then t

    // See Diag::lay_out.
    template <class Take>
    static void lay_out(Size v, Size s, Size D, Size L, Size heads, Take &&take) {
        Whole::lay_out(D, L, take);
        for (auto rows : {&Vectors::top, &Vectors::tG, &Vectors::M, &Vectors::halfG}) take(rows, s * D);
        for (auto rows : {&Vectors::outer, &Vectors::inner}) take(rows, 2 * s * D);
        take(&Vectors::gradient, 2 * L * heads * (v * v + s * s));  // Pv, Qv [L][heads][v][v], then Ps, Qs [L][heads][s][s]
    }
    static std::size_t vectors(const Model<T> &model) {
        return count_vectors<Vectors>(model.vectors, model.scalars, model.dim + 1, model.layers, model.heads);
    }

    Vectors(V *memory, const Model<T> &model_, Watch &watch_)
        : Whole(model_, watch_), v(model_.vectors), s(model_.scalars), d((D - s) / v), N(v * d) {
        lay_out(v, s, D, L, heads, placing(*this, memory));
    }

    // Where coordinate i of a token stands in G: tokens are x, the scalars beside y, the vectors beside x, y.
    Size place(Size i) const { return i < d || i + 1 == D ? i : i < d + s - 1 ? N + i - d : i - (s - 1); }
    const T *Pv(Size l, Size h) const { return model.Pv + (l * heads + h) * v * v; }
    const T *Qv(Size l, Size h) const { return model.Qv + (l * heads + h) * v * v; }
    const T *Ps(Size l, Size h) const { return model.Ps + (l * heads + h) * s * s; }
    const T *Qs(Size l, Size h) const { return model.Qs + (l * heads + h) * s * s; }
    V *slope_Pv(Size l, Size h) const { return gradient + (l * heads + h) * v * v; }
    V *slope_Qv(Size l, Size h) const { return gradient + ((L + l) * heads + h) * v * v; }
    V *slope_Ps(Size l, Size h) const { return gradient + 2 * L * heads * v * v + (l * heads + h) * s * s; }
    V *slope_Qs(Size l, Size h) const { return slope_Ps(L + l, h); }
    Size last(Size j) const { return s * (s - 1) + j; }  // of a matrix of scalars, the last row

    // One row times diag(m (x) I, n), or its transpose: blocks mixed.
    template <bool Transposed>
    void mix(const V *x, const T *m, const T *n, V *out) const {
        for (Size j = 0; j < v; ++j)
            for (Size t = 0; t < d; ++t) {
                V sum{};
                for (Size i = 0; i < v; ++i) sum += m[Transposed ? j * v + i : i * v + j] * x[i * d + t];
                out[j * d + t] = sum;
            }
        for (Size j = 0; j < s; ++j) {
            V sum{};
            for (Size i = 0; i < s; ++i) sum += n[Transposed ? j * s + i : i * s + j] * x[N + i];
            out[N + j] = sum;
        }
    }
    // Rows of diag(m (x) I, n) X, or of its transpose, set or added.
    template <bool Transposed>
    void mix_rows(const V *X, const T *m, const T *n, V *out, bool add) const {
        for (Size r = 0; r < D && !counter(D).stop(v + s); ++r) {
            const bool vector = r < N;
            const Size size = vector ? v : s, step = vector ? d : 1, first = vector ? r % d : N, i = vector ? r / d : r - N;
            const T *by = vector ? m : n;
            V *here = out + r * D;
            if (!add)
                for (Size c = 0; c < D; ++c) here[c] = V{};
            for (Size j = 0; j < size; ++j) {
                const T factor = by[Transposed ? j * size + i : i * size + j];
                const V *row = X + (first + j * step) * D;
                for (Size c = 0; c < D; ++c) here[c] += factor * row[c];
            }
        }
    }

    void forward(const V *packed_gram) override {
        forward_from(packed_gram, [this](Size i) { return place(i); });
        if (L == 1) {
            V probe{};  // one layer does not read all of G: see Diag::mark_infinite
            for (Size i = 0; i < packed(D, 0); ++i) probe += T(0) * packed_gram[i];
            for (Size i = 0; i < s * D; ++i) top[i] = probe == T(0) ? gram_[N * D + i] : probe;
            return;
        }
        for (Size j = 0; j < s && !counter(D).stop(2 * D); ++j) {
            vector_times(map(L - 2) + (N + j) * D, gram(L - 2), D, tG + j * D);
            apply(L - 2, tG + j * D, top + j * D);
        }
    }

    void attention(Size l) override {
        V *T_l = map(l);
        for (Size i = 0; i < cells; ++i) T_l[i] = splat(T(i % (D + 1) == 0));
        for (Size h = 0; h < heads; ++h) {
            mix_rows<false>(gram(l), Pv(l, h), Ps(l, h), Y, false);
            for (Size r = 0; r < D && !counter(D).stop(v + s); ++r) {
                mix<false>(Y + r * D, Qv(l, h), Qs(l, h), work);
                for (Size c = 0; c < D; ++c) T_l[r * D + c] += work[c];
            }
        }
    }

    // The last row of P_h G of the last layer.
    void last_row(Size h, V *out) const {
        for (Size c = 0; c < D; ++c) out[c] = V{};
        for (Size j = 0; j < s; ++j)
            for (Size c = 0; c < D; ++c) out[c] += Ps(L - 1, h)[last(j)] * top[j * D + c];
    }

    void rows() override {
        V *first = row(L - 1);
        for (Size i = 0; i < D; ++i) first[i] = splat(T(i + 1 == D));
        for (Size h = 0; h < heads && !counter(D).stop(s); ++h) {
            last_row(h, work);
            mix<false>(work, Qv(L - 1, h), Qs(L - 1, h), work + D);
            for (Size c = 0; c < D; ++c) first[c] += work[D + c];
        }
        lower_rows();
    }

    void deltas(const V *target, const V *metric, V factor) override {
        deltas_from(target, metric, factor, [this](Size i) { return place(i); });
    }

    const V *found() const override {
        for (Size i = 0; i < model.counted; ++i) work[2 * D + i] = rho[place(i)];
        return work + 2 * D;
    }

    void backward() override {
        last_layer();
        if (L > 1) layer_below();
        backward_below();
    }

    void last_layer() {
        const V *x = delta + (L - 1) * D;
        for (Size i = 0; i < s * D; ++i) M[i] = V{};
        for (Size h = 0; h < heads && !counter(D).stop(s); ++h) {
            V *const z = work, *const y = work + D;
            mix<true>(x, Qv(L - 1, h), Qs(L - 1, h), z);
            last_row(h, y);
            add_columns(L - 1, h, y, x);
            for (Size j = 0; j < s; ++j) {
                slope_Ps(L - 1, h)[last(j)] += dot(top + j * D, z, D);
                for (Size c = 0; c < D; ++c) M[j * D + c] += Ps(L - 1, h)[last(j)] * z[c];
            }
        }
    }

    void layer_below() {
        const Size l = L - 2;
        const V *t = map(l) + N * D, *above = row(l + 1), *below = delta + l * D;
        V *half = inner;
        for (Size j = 0; j < s && !counter(D).stop(2 * D); ++j) {
            vector_times(M + j * D, map(l), D, half + j * D);
            for (Size c = 0; c < D; ++c) half[j * D + c] *= T(0.5);
            vector_times(half + j * D, gram(l), D, halfG + j * D);
        }
        multiply<true>(D, s, M, D, tG, Tbar, D, false, counter(D));
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j < D; ++j) Tbar[i * D + j] += above[i] * below[j];
        for (Size i = 0; i < s * D; ++i) Tbar[N * D + i] += T(2) * halfG[i];
        parameters_of(l);
        if (l == 0) return;
        for (Size i = 0; i < s * D; ++i) {
            outer[i] = inner[s * D + i] = t[i];
            outer[s * D + i] = half[i];
        }
        multiply_symmetric<true>(D, 2 * s, outer, inner, Z, Gbar, counter(D));
    }

    // Adds to the gradient of Q_h the products of the blocks of one row of P_h G and one of Tbar.
    void add_columns(Size l, Size h, const V *x, const V *y) const {
        for (Size i = 0; i < v; ++i)
            for (Size j = 0; j < v; ++j) slope_Qv(l, h)[i * v + j] += dot(x + i * d, y + j * d, d);
        for (Size i = 0; i < s; ++i)
            for (Size j = 0; j < s; ++j) slope_Qs(l, h)[i * s + j] += x[N + i] * y[N + j];
    }

    void backward_heads(Size l) override {
        const V *above = row(l + 1), *below = delta + l * D;
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j < D; ++j) Tbar[i * D + j] = rounded(T(2) * Tbar[i * D + j]) + above[i] * below[j];
        parameters_of(l);
    }

    // From Tbar to the gradient of the parameters, and for all layers but the first Z.
    void parameters_of(Size l) {
        const V *G = gram(l);
        for (Size h = 0; h < heads; ++h) {
            mix_rows<false>(G, Pv(l, h), Ps(l, h), Y, false);
            for (Size r = 0; r < D && !counter(D).stop(v + s); ++r) add_columns(l, h, Y + r * D, Tbar + r * D);
            for (Size r = 0; r < D; ++r) mix<true>(Tbar + r * D, Qv(l, h), Qs(l, h), Y + r * D);
            for (Size i = 0; i < v && !counter(D).stop(N); ++i)
                for (Size j = 0; j < v; ++j) slope_Pv(l, h)[i * v + j] += dot(Y + i * d * D, G + j * d * D, d * D);
            for (Size i = 0; i < s && !counter(D).stop(s); ++i)
                for (Size j = 0; j < s; ++j) slope_Ps(l, h)[i * s + j] += dot(Y + (N + i) * D, G + (N + j) * D, D);
            if (l > 0) mix_rows<true>(Y, Pv(l, h), Ps(l, h), Z, h > 0);
        }
    }
};

}  // namespace
}  // namespace ridgeformer
