// Loss and gradient of Full models with any number of heads, on whole Gram matrices: G <- T G T', T = I + sum_h P_h G Q_h.
//
// Backwards, with rho the rows e_D' T_{L-1} ... T_{l+1}, delta the loss gradient carried up, and U = Gbar T:
//     Tbar = rho' delta + 2 U G,   Y_h = Tbar Q_h',   Gbar <- T' U + sym(sum_h P_h' Y_h)
//     Qbar_h += (P_h G)' Tbar,   Pbar_h += Y_h G
//
// Of the last layer only the last row of T matters, so of the Gram matrix before it only the products with the last
// rows p_h of its P_h. That layer's Gbar, sum_h sym(p_h z_h') with z_h = Q_h delta, and hence the Tbar of the layer
// below, have low rank: both layers go without the products above.
#pragma once
#include <initializer_list>

#include "network.hpp"

namespace ridgeformer {
namespace {

struct Full final : Network {
    const Size D, L, heads, cells;
    V *gram_, *T_;               // per layer: G and T
    V *delta;                    // per layer and one, [D], like rho
    V *Gbar, *U, *Tbar, *Y, *Z;  // [D][D]; Z = sum_h P_h' Y_h
    V *PG_;                      // per layer: P_h G of every head, side by side, [D][heads][D]
    V *p, *t, *c, *g;            // per head of the last layer: its last row p of P, T'p, G T'p, T G T'p, with T, G one below
    V *z, *s, *b;                // per head of the last layer: z = Q delta, T'z, G T'z
    V *left, *right;             // Tbar = sum of left right' one below the last layer, [1 + 2 heads][D]
    V *outer, *inner;            // Gbar = sum of outer inner' there, [2 heads (2 + 2 heads)][D]

    Size terms() const { return 1 + 2 * heads; }

    // See Diag::lay_out.
    template <class Take>
    static void lay_out(Size D, Size L, Size heads, Take &&take) {
        const Size cells = D * D;
        take(&Full::gram_, L * cells);
        take(&Full::T_, L * cells);
        take(&Full::rho, (L + 1) * D);
        take(&Full::delta, (L + 1) * D);
        for (auto square : {&Full::Gbar, &Full::U, &Full::Tbar, &Full::Y, &Full::Z}) take(square, cells);
        take(&Full::work, 4 * D);
        take(&Full::PG_, L * heads * cells);
        for (auto rows : {&Full::p, &Full::t, &Full::c, &Full::g, &Full::z, &Full::s, &Full::b}) take(rows, heads * D);
        take(&Full::left, (1 + 2 * heads) * D);
        take(&Full::right, (1 + 2 * heads) * D);
        take(&Full::outer, 4 * heads * (1 + heads) * D);
        take(&Full::inner, 4 * heads * (1 + heads) * D);
        take(&Full::gradient, 2 * L * heads * cells);  // Pbar then Qbar, [L][heads][D][D] each
    }
    static std::size_t vectors(const Model<T> &model) { return count_vectors<Full>(model.dim + 1, model.layers, model.heads); }

    Full(V *memory, const Model<T> &model_, Watch &watch_)
        : Network(model_, watch_), D(model_.dim + 1), L(model_.layers), heads(model_.heads), cells(D * D) {
        lay_out(D, L, heads, placing(*this, memory));
    }

    Counter counter(Size depth) const { return {watch, depth}; }  // of elements that are sums of `depth` terms
    V *gram(Size l) const { return gram_ + l * cells; }
    V *map(Size l) const { return T_ + l * cells; }
    V *row(Size l) const { return rho + l * D; }
    Size at(Size l, Size h) const { return (l * heads + h) * cells; }
    V *PG(Size l, Size h) const { return PG_ + at(l, 0) + h * D; }
    V *slope_P(Size l, Size h) const { return gradient + at(l, h); }
    V *slope_Q(Size l, Size h) const { return gradient + at(L + l, h); }

    // All layers but the last, of which only the last row matters.
    void forward(const V *packed_gram) override {
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j <= i; ++j) gram_[i * D + j] = gram_[j * D + i] = packed_gram[packed(i, j)];
        for (Size l = 0; l + 1 < L && !counter(D).stop(D); ++l) {
            attention(l);
            if (l + 2 < L) next_gram(l);
        }
    }

    void next_gram(Size l) {
        V *HT = U;  // (T G)'
        multiply<false, true>(D, D, map(l), D, gram(l), HT, D, false, counter(D));
        multiply_symmetric(D, D, map(l), HT, nullptr, gram(l + 1), counter(D));
    }

    // out = T x, row by row: T is not symmetric.
    void apply(Size l, const V *x, V *out) const {
        for (Size i = 0; i < D; ++i) out[i] = dot(map(l) + i * D, x, D);
    }

    // P_h G of every head, and T.
    void attention(Size l) {
        const Size width = heads * D;
        for (Size h = 0; h < heads; ++h)
            multiply(D, D, model.P + at(l, h), D, gram(l), PG(l, h), width, false, counter(D));
        // The rows of all heads follow one another, and so do the matrices Q: one product sums over heads too.
        multiply(D, width, PG(l, 0), width, model.Q + at(l, 0), map(l), D, false, counter(width));
        for (Size i = 0; i < D; ++i) map(l)[i * D + i] += T(1);
    }

    void rows() override {
        V *top = row(L - 1);
        const V *G = gram(L > 1 ? L - 2 : 0);
        for (Size i = 0; i < D; ++i) top[i] = splat(T(i + 1 == D));
        for (Size h = 0; h < heads; ++h) {
            const T *last = model.P + at(L - 1, h) + (D - 1) * D;
            for (Size i = 0; i < D; ++i) p[h * D + i] = splat(last[i]);
            if (L > 1) {
                vector_times(last, map(L - 2), D, t + h * D);
                vector_times(t + h * D, G, D, c + h * D);
                apply(L - 2, c + h * D, g + h * D);
            } else {
                vector_times(last, G, D, g + h * D);
            }
            vector_times(g + h * D, model.Q + at(L - 1, h), D, work);
            for (Size i = 0; i < D; ++i) top[i] += work[i];
        }
        for (Size l = L - 1; l-- > 0 && !counter(D).stop(D);) vector_times(row(l + 1), map(l), D, row(l));
    }

    void deltas(const V *target, const V *metric, V factor) override {
        loss_slope(target, metric, factor, work);
        for (Size i = 0; i < D; ++i) delta[i] = i < model.counted ? work[i] : V{};
        for (Size l = 0; l + 1 < L && !counter(D).stop(D); ++l) apply(l, delta + l * D, delta + (l + 1) * D);
    }

    void backward() override {
        last_layer();
        if (L > 1) layer_below();
        for (Size l = L - 2; l-- > 0 && !counter(D).stop(D);) {
            multiply(D, D, Gbar, D, map(l), U, D, false, counter(D));
            multiply(D, D, U, D, gram(l), Tbar, D, false, counter(D));
            backward_heads(l);
            if (l > 0) multiply_symmetric<true>(D, D, map(l), U, Z, Gbar, counter(D));
        }
    }

    void last_layer() {
        const V *G = gram(L > 1 ? L - 2 : 0), *delta_ = delta + (L - 1) * D;
        for (Size h = 0; h < heads; ++h) {
            V *Pbar = slope_P(L - 1, h) + (D - 1) * D, *Qbar = slope_Q(L - 1, h);
            vector_times(delta_, model.QT + at(L - 1, h), D, z + h * D);
            if (L > 1) {
                vector_times(z + h * D, map(L - 2), D, s + h * D);
                vector_times(s + h * D, G, D, b + h * D);
                apply(L - 2, b + h * D, work);
            } else {
                vector_times(z + h * D, G, D, work);
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
    void layer_below() {
        const Size l = L - 2, m = terms();
        const V *G = gram(l);
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
            for (Size first = 0; first < m; first += D) {
                const Size count = m - first < D ? m - first : D;
                for (Size i = 0; i < count; ++i) {
                    if (stopped(watch, 4 * cells)) return;
                    vector_times(right + (first + i) * D, model.QT + at(l, k), D, alpha);
                    vector_times(left + (first + i) * D, model.P + at(l, k), D, beta);
                    vector_times(alpha, G, D, G_alpha + i * D);
                    vector_times(beta, G, D, G_beta + i * D);
                    symmetric_pair(beta, alpha);
                }
                multiply<true>(D, count, left + first * D, D, G_alpha, slope_P(l, k), D, true, counter(count));
                multiply<true>(D, count, G_beta, D, right + first * D, slope_Q(l, k), D, true, counter(count));
            }
        }
        if (l > 0) multiply<true>(D, pairs, outer, D, inner, Gbar, D, false, counter(pairs));
    }

    // From U G in the place of Tbar to the gradient of the parameters of one layer, and for all layers but the first Z.
    void backward_heads(Size l) {
        const V *above = row(l + 1), *below = delta + l * D;
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j < D; ++j) Tbar[i * D + j] = T(2) * Tbar[i * D + j] + rounded(above[i] * below[j]);
        for (Size h = 0; h < heads; ++h) {
            multiply<true>(D, D, PG(l, h), heads * D, Tbar, slope_Q(l, h), D, true, counter(D));
            multiply(D, D, Tbar, D, model.QT + at(l, h), Y, D, false, counter(D));
            multiply(D, D, Y, D, gram(l), slope_P(l, h), D, true, counter(D));
            if (l > 0) multiply(D, D, model.PT + at(l, h), D, Y, Z, D, h > 0, counter(D));
        }
    }
};

}  // namespace
}  // namespace ridgeformer
