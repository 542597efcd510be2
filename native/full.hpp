// Loss and gradient of Full models with any number of heads, on whole Gram matrices.
//
// T = I + sum_h P_h G Q_h and G <- T G T'. Backwards, with rho the rows e_D' T_{L-1} ... T_{l+1}, delta the loss
// gradient carried up, and U = Gbar T:
//     Tbar = rho' delta + 2 U G
//     Qbar_h += (P_h G)' Tbar,   Y_h = Tbar Q_h',   Pbar_h += Y_h G
//     Gbar <- T' U + sym(sum_h P_h' Y_h)
//
// Of the last layer only the last row of T matters, so of the Gram matrix before it only the products with the last
// rows p_h of its P_h. That layer's Gbar, sum_h sym(p_h z_h') with z_h = Q_h delta, and hence the Tbar of the layer
// below, have low rank: both layers go without the products above.
#pragma once
#include "sampler.hpp"

namespace ridgeformer {
namespace {

template <class T>
struct Full {
    using V = Vec<T>;
    const Model<T> &model;
    Watch &watch;
    const Size D, L, heads, cells;
    V *gram_, *T_, *GP;  // per layer: G, T, and (P_h G)' of every head
    V *rho, *delta;      // per layer and one, [D]
    V *Gbar, *U, *Tbar, *Y, *Z, *work;
    V *p, *t, *c, *g;    // per head of the last layer: its last row p of P, T'p, G T'p, T G T'p, with T, G one below
    V *z, *s, *b;        // per head of the last layer: z = Q delta, T'z, G T'z
    V *left, *right;     // Tbar = sum of left right' one below the last layer, [1 + 2 heads][D]
    V *outer, *inner;    // Gbar = sum of outer inner' there, [2 heads (2 + 2 heads)][D]
    V *gradient;         // Pbar then Qbar, [L][heads][D][D] each

    Size terms() const { return 1 + 2 * heads; }

    // See Diag::lay_out.
    template <class Take>
    static void lay_out(Size D, Size L, Size heads, Take take) {
        const Size cells = D * D;
        take(&Full::gram_, L * cells);
        take(&Full::T_, L * cells);
        take(&Full::GP, L * heads * cells);
        take(&Full::rho, (L + 1) * D);
        take(&Full::delta, (L + 1) * D);
        take(&Full::Gbar, cells);
        take(&Full::U, cells);
        take(&Full::Tbar, cells);
        take(&Full::Y, cells);
        take(&Full::Z, cells);
        take(&Full::work, 2 * D);
        take(&Full::p, heads * D);
        take(&Full::t, heads * D);
        take(&Full::c, heads * D);
        take(&Full::g, heads * D);
        take(&Full::z, heads * D);
        take(&Full::s, heads * D);
        take(&Full::b, heads * D);
        take(&Full::left, (1 + 2 * heads) * D);
        take(&Full::right, (1 + 2 * heads) * D);
        take(&Full::outer, 4 * heads * (1 + heads) * D);
        take(&Full::inner, 4 * heads * (1 + heads) * D);
        take(&Full::gradient, 2 * L * heads * cells);
    }
    static std::size_t vectors(Size d, Size L, Size heads) { return count_vectors<Full>(d + 1, L, heads); }

    Full(V *memory, const Model<T> &model_, Watch &watch_)
        : model(model_), watch(watch_), D(model_.dim + 1), L(model_.layers), heads(model_.heads), cells(D * D) {
        lay_out(D, L, heads, placing(*this, memory));
    }

    Counter counter(Size depth) const { return {watch, depth}; }  // of elements that are sums of `depth` terms
    Size at(Size l, Size h) const { return (l * heads + h) * cells; }

    void forward(const V *packed_gram) {
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j <= i; ++j) gram_[i * D + j] = gram_[j * D + i] = packed_gram[packed(i, j)];
        for (Size l = 0; l + 1 < L && !counter(D).stop(D); ++l) {
            attention(l);
            if (l + 2 < L) next_gram(l);
        }
    }

    // (P_h G)' of every head, and T.
    __attribute__((noinline)) void attention(Size l) {
        const V *G = gram_ + l * cells;
        V *T_l = T_ + l * cells;
        for (Size h = 0; h < heads; ++h) {
            const T *P = model.P + at(l, h);
            V *out = GP + at(l, h);
            product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(P + i * D, D, G + j, D, 0, D); },
                       [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(out, D, j, i, c, r) = value; }, counter(D));
        }
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY {
                       for (Size h = 0; h < heads; ++h)
                           tile.template multiply_add<true>(GP + at(l, h) + i, D, model.Q + at(l, h) + j, D, 0, D);
                   },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(T_l, D, i, j, r, c) = value; }, counter(heads * D));
        for (Size i = 0; i < D; ++i) T_l[i * D + i] += T(1);
    }

    __attribute__((noinline)) void next_gram(Size l) {
        const V *G = gram_ + l * cells, *T_l = T_ + l * cells;
        V *next = gram_ + (l + 1) * cells, *HT = U;  // HT = (T G)'
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(T_l + i * D, D, G + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(HT, D, j, i, c, r) = value; }, counter(D));
        symmetric_product<T>(D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(T_l + i * D, D, HT + j, D, 0, D); },
                             [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(next, D, i, j, r, c) = cell(next, D, j, i, c, r) = value; }, counter(D));
    }

    // T x, row by row: T is not symmetric.
    RF_INLINE void map(const V *T_l, const V *x, V *out) const {
        for (Size i = 0; i < D; ++i) out[i] = dot<T>(T_l + i * D, x, D);
    }

    void rows() {
        V *top = rho + (L - 1) * D;
        const V *G = gram_ + (L > 1 ? L - 2 : 0) * cells, *T_l = T_ + (L - 2) * cells;
        for (Size i = 0; i < D; ++i) top[i] = splat<T>(T(i + 1 == D));
        for (Size h = 0; h < heads; ++h) {
            const T *last = model.P + at(L - 1, h) + (D - 1) * D;
            for (Size i = 0; i < D; ++i) p[h * D + i] = splat<T>(last[i]);
            if (L > 1) {
                vector_times<T>(last, T_l, D, t + h * D);
                vector_times<T>(t + h * D, G, D, c + h * D);
                map(T_l, c + h * D, g + h * D);
            } else {
                vector_times<T>(last, G, D, g + h * D);
            }
            vector_times<T>(g + h * D, model.Q + at(L - 1, h), D, work);
            for (Size i = 0; i < D; ++i) top[i] += work[i];
        }
        for (Size l = L - 1; l-- > 0 && !counter(D).stop(D);) vector_times<T>(rho + (l + 1) * D, T_ + l * cells, D, rho + l * D);
    }

    V loss(const V *target, const V *metric) const {
        if (metric) return metric_loss<T>(rho, target, metric, model.counted, work);
        V total{};
        for (Size i = 0; i < model.counted; ++i) {
            const V error = rho[i] + target[i];
            total += error * error;
        }
        return T(0.5) * total;
    }

    void deltas(const V *target, const V *metric, V factor) {
        const Size counted = model.counted;
        for (Size i = counted; i < D; ++i) delta[i] = V{};
        if (metric) {
            metric_loss<T>(rho, target, metric, counted, work);
            for (Size i = 0; i < counted; ++i) delta[i] = factor * work[counted + i];
        } else {
            for (Size i = 0; i < counted; ++i) delta[i] = factor * (rho[i] + target[i]);
        }
        for (Size l = 0; l + 1 < L && !counter(D).stop(D); ++l) map(T_ + l * cells, delta + l * D, delta + (l + 1) * D);
    }

    void backward() {
        last_layer();
        if (L > 1) layer_below();
        for (Size l = L - 2; l-- > 0 && !counter(D).stop(D);) backward_layer(l);
    }

    void last_layer() {
        const V *G = gram_ + (L > 1 ? L - 2 : 0) * cells, *T_l = T_ + (L - 2) * cells, *delta_ = delta + (L - 1) * D;
        for (Size h = 0; h < heads; ++h) {
            V *Pbar = gradient + at(L - 1, h) + (D - 1) * D, *Qbar = gradient + L * heads * cells + at(L - 1, h);
            vector_times<T>(delta_, model.QT + at(L - 1, h), D, z + h * D);
            if (L > 1) {
                vector_times<T>(z + h * D, T_l, D, s + h * D);
                vector_times<T>(s + h * D, G, D, b + h * D);
                map(T_l, b + h * D, work);
            } else {
                vector_times<T>(z + h * D, G, D, work);
            }
            for (Size i = 0; i < D; ++i) {
                Pbar[i] += work[i];
                for (Size j = 0; j < D; ++j) Qbar[i * D + j] += g[h * D + i] * delta_[j];
            }
        }
    }

    // The layer below the last, from Tbar = rho delta' + sum_h (p_h b_h' + z_h c_h'): with alpha = Q right and
    // beta = P' left, Pbar += sum left (G alpha)', Qbar += sum (G beta) right', and Gbar is
    // sum_h sym(t_h s_h') + sum sym(beta alpha').
    __attribute__((noinline)) void layer_below() {
        const Size l = L - 2, m = terms();
        const V *G = gram_ + l * cells;
        const auto copy = [&](V *to, const V *from) {
            for (Size i = 0; i < D; ++i) to[i] = from[i];
        };
        copy(left, rho + (l + 1) * D);
        copy(right, delta + l * D);
        Size pairs = 0;  // rows of outer and inner so far
        const auto symmetric_pair = [&](const V *x, const V *y) {
            for (Size i = 0; i < D; ++i) {
                outer[pairs * D + i] = T(0.5) * x[i];
                inner[pairs * D + i] = y[i];
                outer[(pairs + 1) * D + i] = T(0.5) * y[i];
                inner[(pairs + 1) * D + i] = x[i];
            }
            pairs += 2;
        };
        for (Size h = 0; h < heads; ++h) {
            copy(left + (1 + 2 * h) * D, p + h * D);
            copy(right + (1 + 2 * h) * D, b + h * D);
            copy(left + (2 + 2 * h) * D, z + h * D);
            copy(right + (2 + 2 * h) * D, c + h * D);
            symmetric_pair(t + h * D, s + h * D);
        }
        V *alpha = work, *beta = work + D, *G_alpha = Tbar, *G_beta = Y;  // D terms at a time
        for (Size k = 0; k < heads; ++k) {
            V *Pbar = gradient + at(l, k), *Qbar = gradient + L * heads * cells + at(l, k);
            for (Size first = 0; first < m; first += D) {
                const Size count = m - first < D ? m - first : D;
                for (Size i = 0; i < count; ++i) {
                    if (stopped(watch, 4 * cells)) return;
                    vector_times<T>(right + (first + i) * D, model.QT + at(l, k), D, alpha);
                    vector_times<T>(left + (first + i) * D, model.P + at(l, k), D, beta);
                    vector_times<T>(alpha, G, D, G_alpha + i * D);
                    vector_times<T>(beta, G, D, G_beta + i * D);
                    symmetric_pair(beta, alpha);
                }
                product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY {
                               tile.template multiply_add<true>(left + first * D + i, D, G_alpha + j, D, 0, count);
                           },
                           [&](Size i, Size j, int r, int c_, V value) RF_BODY { cell(Pbar, D, i, j, r, c_) += value; }, counter(count));
                product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY {
                               tile.template multiply_add<true>(G_beta + i, D, right + first * D + j, D, 0, count);
                           },
                           [&](Size i, Size j, int r, int c_, V value) RF_BODY { cell(Qbar, D, i, j, r, c_) += value; }, counter(count));
            }
        }
        if (l == 0) return;
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY {
                       tile.template multiply_add<true>(outer + i, D, inner + j, D, 0, pairs);
                   },
                   [&](Size i, Size j, int r, int c_, V value) RF_BODY { cell(Gbar, D, i, j, r, c_) = value; }, counter(pairs));
    }

    __attribute__((noinline)) void backward_layer(Size l) {
        const V *G = gram_ + l * cells, *T_l = T_ + l * cells, *above = rho + (l + 1) * D, *delta_ = delta + l * D;
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Gbar + i * D, D, T_l + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(U, D, i, j, r, c) = value; }, counter(D));
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(U + i * D, D, G + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY {
                       cell(Tbar, D, i, j, r, c) = T(2) * value + rounded<T>((above + i)[r] * (delta_ + j)[c]);
                   }, counter(D));
        for (Size h = 0; h < heads; ++h) backward_head(l, h, G);
        if (l == 0) return;
        symmetric_product<T>(D, [&](auto &tile, Size i, Size j) RF_BODY { tile.template multiply_add<true>(T_l + i, D, U + j, D, 0, D); },
                             [&](Size i, Size j, int r, int c, V value) RF_BODY {
                                 const V x = value + T(0.5) * (cell(Z, D, i, j, r, c) + cell(Z, D, j, i, c, r));
                                 cell(Gbar, D, i, j, r, c) = cell(Gbar, D, j, i, c, r) = x;
                             }, counter(D));
    }

    __attribute__((noinline)) void backward_head(Size l, Size h, const V *G) {
        V *Pbar = gradient + at(l, h), *Qbar = gradient + L * heads * cells + at(l, h);
        const V *GP_ = GP + at(l, h);
        const T *QT = model.QT + at(l, h), *PT = model.PT + at(l, h);
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(GP_ + i * D, D, Tbar + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(Qbar, D, i, j, r, c) += value; }, counter(D));
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Tbar + i * D, D, QT + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(Y, D, i, j, r, c) = value; }, counter(D));
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Y + i * D, D, G + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(Pbar, D, i, j, r, c) += value; }, counter(D));
        if (l == 0) return;
        const bool fresh = h == 0;
        product<T>(D, D, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(PT + i * D, D, Y + j, D, 0, D); },
                   [&](Size i, Size j, int r, int c, V value) RF_BODY { V &z = cell(Z, D, i, j, r, c);
                       z = fresh ? value : z + value;
                   }, counter(D));
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
