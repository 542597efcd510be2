// Loss and gradient of channel models with several vectors: N = v d coordinates of vectors, then s scalars, y the last.
//
// T = I + sum_h P_h G Q_h has no structure once there are two vectors, so G and T are whole matrices, as in full.hpp, whose
// equations hold. But P_h and Q_h only mix blocks, which costs D^2, and so do their gradients:
//     Tbar = rho' delta + 2 U G,  U = Gbar T;   Y_h = Tbar Q_h';   Gbar <- T'U + sym(sum_h P_h' Y_h)
//     Pbar_h[i][j] += <block row i of Y_h, block row j of G>, Qbar_h[i][j] += <block column i of P_h G, j of Tbar>.
// The last layer reads the scalars' rows of G alone. So its Gbar is (e M + M'e') / 2 with s rows M and e the scalars' unit
// vectors, and with V = M T / 2 and t the scalars' rows of T, one below: Tbar = rho' delta + 2 e V G + M' t G and
// T' Gbar T = t'V + V't.
#pragma once
#include <initializer_list>

#include "sampler.hpp"

namespace ridgeformer {
namespace {

template <class T>
struct Vectors {
    using V = Vec<T>;
    const Model<T> &model;
    Watch &watch;
    const Size v, s, D, d, N, L, heads, cells;
    V *gram_, *T_;                      // per layer: G and T
    V *rho, *delta;                     // per layer and one, [D]
    V *top, *tG, *M, *half, *halfG;     // [s][D]: the scalars' rows of the last G, t G, M, V, V G
    V *Gbar, *U, *Tbar, *Y, *Z;         // [D][D]
    V *work;
    V *gradient;  // Pv, Qv [L][heads][v][v], then Ps, Qs [L][heads][s][s]

    // See Diag::lay_out.
    template <class Take>
    static void lay_out(Size v, Size s, Size D, Size L, Size heads, Take take) {
        take(&Vectors::gram_, L * D * D);
        take(&Vectors::T_, L * D * D);
        take(&Vectors::rho, (L + 1) * D);
        take(&Vectors::delta, (L + 1) * D);
        for (auto rows : {&Vectors::top, &Vectors::tG, &Vectors::M, &Vectors::half, &Vectors::halfG}) take(rows, s * D);
        for (auto square : {&Vectors::Gbar, &Vectors::U, &Vectors::Tbar, &Vectors::Y, &Vectors::Z}) take(square, D * D);
        take(&Vectors::work, 4 * D);
        take(&Vectors::gradient, 2 * L * heads * (v * v + s * s));
    }
    static std::size_t vectors(const Model<T> &model) {
        return count_vectors<Vectors>(model.vectors, model.scalars, model.dim + 1, model.layers, model.heads);
    }

    Vectors(V *memory, const Model<T> &model_, Watch &watch_)
        : model(model_), watch(watch_), v(model_.vectors), s(model_.scalars), D(model_.dim + 1), d((D - s) / v), N(v * d),
          L(model_.layers), heads(model_.heads), cells(D * D) {
        lay_out(v, s, D, L, heads, placing(*this, memory));
    }

    Counter counter() const { return {watch, D}; }  // of elements that are sums of D terms
    // Where coordinate i of a token stands: tokens are x, the scalars beside y, the vectors beside x, y.
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
        for (Size r = 0; r < D && !counter().stop(v + s); ++r) {
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

    void forward(const V *packed_gram) {
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j <= i; ++j) gram_[place(i) * D + place(j)] = gram_[place(j) * D + place(i)] = packed_gram[packed(i, j)];
        for (Size l = 0; l + 1 < L && !counter().stop(D); ++l) {
            attention(l);
            if (l + 2 < L) next_gram(l);
        }
        if (L == 1) {
            V probe{};  // one layer does not read all of G: see Diag::mark_infinite
            for (Size i = 0; i < packed(D, 0); ++i) probe += T(0) * packed_gram[i];
            for (Size i = 0; i < s * D; ++i) top[i] = probe == T(0) ? gram_[N * D + i] : probe;
            return;
        }
        const V *G = gram_ + (L - 2) * cells, *T_l = T_ + (L - 2) * cells;
        for (Size j = 0; j < s && !counter().stop(2 * D); ++j) {
            vector_times<T>(T_l + (N + j) * D, G, D, tG + j * D);
            map(T_l, tG + j * D, top + j * D);
        }
    }

    void attention(Size l) {
        V *T_l = T_ + l * cells;
        for (Size i = 0; i < cells; ++i) T_l[i] = splat<T>(T(i % (D + 1) == 0));
        for (Size h = 0; h < heads; ++h) {
            mix_rows<false>(gram_ + l * cells, Pv(l, h), Ps(l, h), Y, false);
            for (Size r = 0; r < D && !counter().stop(v + s); ++r) {
                mix<false>(Y + r * D, Qv(l, h), Qs(l, h), work);
                for (Size c = 0; c < D; ++c) T_l[r * D + c] += work[c];
            }
        }
    }

    __attribute__((noinline)) void next_gram(Size l) {
        const V *G = gram_ + l * cells, *T_l = T_ + l * cells;
        V *next = gram_ + (l + 1) * cells, *HT = U;  // HT = (T G)'
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(T_l + i * D, D, G + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(HT, D, j, i, c, r) = value; }, counter());
        symmetric_product<T>(D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(T_l + i * D, D, HT + j, D, 0, D); },
                             [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(next, D, i, j, r, c) = cell(next, D, j, i, c, r) = value; }, counter());
    }

    // T x, row by row: T is not symmetric.
    void map(const V *T_l, const V *x, V *out) const {
        for (Size i = 0; i < D; ++i) out[i] = dot<T>(T_l + i * D, x, D);
    }

    // The last row of P_h G of the last layer.
    void last_row(Size h, V *out) const {
        for (Size c = 0; c < D; ++c) out[c] = V{};
        for (Size j = 0; j < s; ++j)
            for (Size c = 0; c < D; ++c) out[c] += Ps(L - 1, h)[last(j)] * top[j * D + c];
    }

    void rows() {
        V *first = rho + (L - 1) * D;
        for (Size i = 0; i < D; ++i) first[i] = splat<T>(T(i + 1 == D));
        for (Size h = 0; h < heads && !counter().stop(s); ++h) {
            last_row(h, work);
            mix<false>(work, Qv(L - 1, h), Qs(L - 1, h), work + D);
            for (Size c = 0; c < D; ++c) first[c] += work[D + c];
        }
        for (Size l = L - 1; l-- > 0 && !counter().stop(D);) vector_times<T>(rho + (l + 1) * D, T_ + l * cells, D, rho + l * D);
    }

    // The row's first coordinates, in the order of a token.
    const V *row() const {
        for (Size i = 0; i < model.counted; ++i) work[2 * D + i] = rho[place(i)];
        return work + 2 * D;
    }

    V loss(const V *target, const V *metric) const {
        const V *found = row();
        if (metric) return metric_loss<T>(found, target, metric, model.counted, work);
        V total{};
        for (Size i = 0; i < model.counted; ++i) {
            const V error = found[i] + target[i];
            total += error * error;
        }
        return T(0.5) * total;
    }

    void deltas(const V *target, const V *metric, V factor) {
        const Size counted = model.counted;
        const V *found = row();
        if (metric) metric_loss<T>(found, target, metric, counted, work);
        for (Size i = 0; i < D; ++i)
            delta[place(i)] = i < counted ? factor * (metric ? work[counted + i] : found[i] + target[i]) : V{};
        for (Size l = 0; l + 1 < L && !counter().stop(D); ++l) map(T_ + l * cells, delta + l * D, delta + (l + 1) * D);
    }

    void backward() {
        last_layer();
        if (L > 1) layer_below();
        for (Size l = L - 2; l-- > 0 && !counter().stop(D);) {
            const V *G = gram_ + l * cells, *T_l = T_ + l * cells;
            product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Gbar + i * D, D, T_l + j, D, 0, D); },
                       [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(U, D, i, j, r, c) = value; }, counter());
            const V *above = rho + (l + 1) * D, *below = delta + l * D;
            product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(U + i * D, D, G + j, D, 0, D); },
                       [&](Size i, Size j, int r, int c, V value) RF_BODY {
                           cell(Tbar, D, i, j, r, c) = T(2) * value + (above + i)[r] * (below + j)[c];
                       }, counter());
            heads_of(l);
            if (l == 0) return;
            symmetric_product<T>(D, [&](auto &tile, Size i, Size j) RF_BODY { tile.template multiply_add<true>(T_l + i, D, U + j, D, 0, D); },
                                 [&](Size i, Size j, int r, int c, V value) RF_BODY { put(i, j, r, c, value); }, counter());
        }
    }

    // Gbar(i, j) becomes value + sym(Z)(i, j), and so does its mirror image.
    RF_INLINE void put(Size i, Size j, int r, int c, V value) const {
        const V x = value + T(0.5) * (cell(Z, D, i, j, r, c) + cell(Z, D, j, i, c, r));
        cell(Gbar, D, i, j, r, c) = cell(Gbar, D, j, i, c, r) = x;
    }

    void last_layer() {
        const V *x = delta + (L - 1) * D;
        for (Size i = 0; i < s * D; ++i) M[i] = V{};
        for (Size h = 0; h < heads && !counter().stop(s); ++h) {
            V *const z = work, *const y = work + D;
            mix<true>(x, Qv(L - 1, h), Qs(L - 1, h), z);
            last_row(h, y);
            add_columns(L - 1, h, y, x);
            for (Size j = 0; j < s; ++j) {
                slope_Ps(L - 1, h)[last(j)] += dot<T>(top + j * D, z, D);
                for (Size c = 0; c < D; ++c) M[j * D + c] += Ps(L - 1, h)[last(j)] * z[c];
            }
        }
    }

    void layer_below() {
        const Size l = L - 2;
        const V *G = gram_ + l * cells, *T_l = T_ + l * cells, *t = T_l + N * D, *above = rho + (l + 1) * D, *below = delta + l * D;
        for (Size j = 0; j < s && !counter().stop(2 * D); ++j) {
            vector_times<T>(M + j * D, T_l, D, half + j * D);
            for (Size c = 0; c < D; ++c) half[j * D + c] *= T(0.5);
            vector_times<T>(half + j * D, G, D, halfG + j * D);
        }
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.template multiply_add<true>(M + i, D, tG + j, D, 0, s); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY {
                       cell(Tbar, D, i, j, r, c) = value + (above + i)[r] * (below + j)[c];
                   }, counter());
        for (Size i = 0; i < s * D; ++i) Tbar[N * D + i] += T(2) * halfG[i];
        heads_of(l);
        if (l == 0) return;
        symmetric_product<T>(D, [&](auto &tile, Size i, Size j) RF_BODY {
                                 tile.template multiply_add<true>(t + i, D, half + j, D, 0, s);
                                 tile.template multiply_add<true>(half + i, D, t + j, D, 0, s);
                             },
                             [&](Size i, Size j, int r, int c, V value) RF_BODY { put(i, j, r, c, value); }, counter());
    }

    // Adds to the gradient of Q_h the products of the blocks of one row of P_h G and one of Tbar.
    void add_columns(Size l, Size h, const V *x, const V *y) const {
        for (Size i = 0; i < v; ++i)
            for (Size j = 0; j < v; ++j) slope_Qv(l, h)[i * v + j] += dot<T>(x + i * d, y + j * d, d);
        for (Size i = 0; i < s; ++i)
            for (Size j = 0; j < s; ++j) slope_Qs(l, h)[i * s + j] += x[N + i] * y[N + j];
    }

    // From Tbar to the gradient of the parameters, and for all layers but the first Z = sum_h P_h' Y_h.
    void heads_of(Size l) {
        const V *G = gram_ + l * cells;
        for (Size h = 0; h < heads; ++h) {
            mix_rows<false>(G, Pv(l, h), Ps(l, h), Y, false);
            for (Size r = 0; r < D && !counter().stop(v + s); ++r) add_columns(l, h, Y + r * D, Tbar + r * D);
            for (Size r = 0; r < D; ++r) mix<true>(Tbar + r * D, Qv(l, h), Qs(l, h), Y + r * D);
            for (Size i = 0; i < v && !counter().stop(N); ++i)
                for (Size j = 0; j < v; ++j) slope_Pv(l, h)[i * v + j] += dot<T>(Y + i * d * D, G + j * d * D, d * D);
            for (Size i = 0; i < s && !counter().stop(s); ++i)
                for (Size j = 0; j < s; ++j) slope_Ps(l, h)[i * s + j] += dot<T>(Y + (N + i) * D, G + (N + j) * D, D);
            if (l > 0) mix_rows<true>(Y, Pv(l, h), Ps(l, h), Z, h > 0);
        }
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
    V weight(Size i) const { return -rho[place(i)]; }
};

}  // namespace
}  // namespace ridgeformer
