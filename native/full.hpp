// Loss and gradient of Full models with any number of heads, on whole Gram matrices.
//
// T = I + sum_h P_h G Q_h and G <- T G T'. Backwards, with rho the rows e_D' T_{L-1} ... T_{l+1}, delta the loss
// gradient carried up, and U = Gbar T:
//     Tbar = rho' delta + 2 U G
//     Qbar_h += (P_h G)' Tbar,   Y_h = Tbar Q_h',   Pbar_h += Y_h G
//     Gbar <- T' U + sym(sum_h P_h' Y_h)
// Of the last layer only the last row of T matters: it costs O(D^2).
#pragma once
#include "sampler.hpp"

namespace ridgeformer {
namespace {

template <class T>
struct Full {
    using V = Vec<T>;
    const Model<T> &model;
    const Size D, L, heads, cells;
    V *gram_, *T_, *GP;  // per layer: G, T, and (P_h G)' of every head
    V *rho, *delta;      // per layer and one, [D]
    V *Gbar, *U, *Tbar, *Y, *Z, *work;
    V *gradient;  // Pbar then Qbar, [L][heads][D][D] each

    static std::size_t vectors(Size d, Size L, Size heads) {
        const std::size_t n = std::size_t(d) + 1, layers = std::size_t(L), h = std::size_t(heads);
        return layers * n * n * (2 + h) + 2 * (layers + 1) * n + 5 * n * n + 2 * n + 2 * layers * h * n * n;
    }

    Full(V *memory, const Model<T> &model_)
        : model(model_), D(model_.dim + 1), L(model_.layers), heads(model_.heads), cells(D * D) {
        const auto take = [&](Size count) {
            V *p = memory;
            memory += count;
            return p;
        };
        gram_ = take(L * cells);
        T_ = take(L * cells);
        GP = take(L * heads * cells);
        rho = take((L + 1) * D);
        delta = take((L + 1) * D);
        Gbar = take(cells);
        U = take(cells);
        Tbar = take(cells);
        Y = take(cells);
        Z = take(cells);
        work = take(2 * D);
        gradient = take(2 * L * heads * cells);
    }

    Size at(Size l, Size h) const { return (l * heads + h) * cells; }

    void forward(const V *packed_gram) {
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j <= i; ++j) gram_[i * D + j] = gram_[j * D + i] = packed_gram[packed(i, j)];
        for (Size l = 0; l + 1 < L; ++l) layer(l);
    }

    __attribute__((noinline)) void layer(Size l) {
        const V *G = gram_ + l * cells;
        V *T_l = T_ + l * cells, *next = gram_ + (l + 1) * cells, *HT = U;  // HT = (T G)'
        for (Size h = 0; h < heads; ++h) {
            const T *P = model.P + at(l, h);
            V *out = GP + at(l, h);
            product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(P + i * D, D, G + j, D, 0, D); },
                       [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(out, D, j, i, c, r) = value; });
        }
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY {
                       for (Size h = 0; h < heads; ++h)
                           tile.template multiply_add<true>(GP + at(l, h) + i, D, model.Q + at(l, h) + j, D, 0, D);
                   },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(T_l, D, i, j, r, c) = value; });
        for (Size i = 0; i < D; ++i) T_l[i * D + i] += T(1);
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(T_l + i * D, D, G + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(HT, D, j, i, c, r) = value; });
        symmetric_product<T>(D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(T_l + i * D, D, HT + j, D, 0, D); },
                             [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(next, D, i, j, r, c) = cell(next, D, j, i, c, r) = value; });
    }

    // The last row of the last layer's P_h.
    const T *last_row(Size h) const { return model.P + at(L - 1, h) + (D - 1) * D; }

    void rows() {
        V *top = rho + (L - 1) * D;
        for (Size i = 0; i < D; ++i) top[i] = splat<T>(T(i + 1 == D));
        for (Size h = 0; h < heads; ++h) {
            vector_times<T>(last_row(h), gram_ + (L - 1) * cells, D, work);
            vector_times<T>(work, model.Q + at(L - 1, h), D, work + D);
            for (Size i = 0; i < D; ++i) top[i] += work[D + i];
        }
        for (Size l = L - 1; l-- > 0;) vector_times<T>(rho + (l + 1) * D, T_ + l * cells, D, rho + l * D);
    }

    V loss(const V *target) const {
        V total{};
        for (Size i = 0; i + 1 < D; ++i) {
            const V error = rho[i] + target[i];
            total += error * error;
        }
        return T(0.5) * total;
    }

    void deltas(const V *target) {
        for (Size i = 0; i + 1 < D; ++i) delta[i] = rho[i] + target[i];
        delta[D - 1] = V{};
        for (Size l = 0; l + 1 < L; ++l)
            for (Size i = 0; i < D; ++i) delta[(l + 1) * D + i] = dot<T>(T_ + l * cells + i * D, delta + l * D, D);
    }

    void backward() {
        last_layer();
        for (Size l = L - 1; l-- > 0;) backward_layer(l);
    }

    void last_layer() {
        const V *G = gram_ + (L - 1) * cells, *delta_ = delta + (L - 1) * D;
        for (Size i = 0; i < cells; ++i) Gbar[i] = V{};
        for (Size h = 0; h < heads; ++h) {
            const T *p = last_row(h);
            V *Pbar = gradient + at(L - 1, h) + (D - 1) * D, *Qbar = gradient + L * heads * cells + at(L - 1, h);
            V *z = work, *row = work + D;
            vector_times<T>(delta_, model.QT + at(L - 1, h), D, z);
            vector_times<T>(z, G, D, row);
            for (Size i = 0; i < D; ++i) Pbar[i] += row[i];
            vector_times<T>(p, G, D, row);
            for (Size i = 0; i < D; ++i)
                for (Size j = 0; j < D; ++j) {
                    Qbar[i * D + j] += row[i] * delta_[j];
                    Gbar[i * D + j] += T(0.5) * (p[i] * z[j] + p[j] * z[i]);
                }
        }
    }

    __attribute__((noinline)) void backward_layer(Size l) {
        const V *G = gram_ + l * cells, *T_l = T_ + l * cells, *above = rho + (l + 1) * D, *delta_ = delta + l * D;
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Gbar + i * D, D, T_l + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(U, D, i, j, r, c) = value; });
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(U + i * D, D, G + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(Tbar, D, i, j, r, c) = T(2) * value + (above + i)[r] * (delta_ + j)[c]; });
        for (Size h = 0; h < heads; ++h) backward_head(l, h, G);
        if (l == 0) return;
        symmetric_product<T>(D, [&](auto &tile, Size i, Size j) RF_BODY { tile.template multiply_add<true>(T_l + i, D, U + j, D, 0, D); },
                             [&](Size i, Size j, int r, int c, V value) RF_BODY {
                                 const V x = value + T(0.5) * (cell(Z, D, i, j, r, c) + cell(Z, D, j, i, c, r));
                                 cell(Gbar, D, i, j, r, c) = cell(Gbar, D, j, i, c, r) = x;
                             });
    }

    __attribute__((noinline)) void backward_head(Size l, Size h, const V *G) {
        V *Pbar = gradient + at(l, h), *Qbar = gradient + L * heads * cells + at(l, h);
        const V *GP_ = GP + at(l, h);
        const T *QT = model.QT + at(l, h), *PT = model.PT + at(l, h);
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(GP_ + i * D, D, Tbar + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(Qbar, D, i, j, r, c) += value; });
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Tbar + i * D, D, QT + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(Y, D, i, j, r, c) = value; });
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Y + i * D, D, G + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(Pbar, D, i, j, r, c) += value; });
        if (l == 0) return;
        const bool fresh = h == 0;
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(PT + i * D, D, Y + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { V &z = cell(Z, D, i, j, r, c);
                       z = fresh ? value : z + value;
                   });
    }

    void value(const V *gram) {
        forward(gram);
        rows();
    }
    void slope(const V *target) {
        deltas(target);
        backward();
    }
    V weight(Size i) const { return -rho[i]; }
};

}  // namespace
}  // namespace ridgeformer
