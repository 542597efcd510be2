// What Full and Vectors have in common: Gram matrices G and maps T that are whole matrices, G <- T G T'.
//
// Backwards, with rho the rows e_D' T_{L-1} ... T_{l+1}, delta the loss gradient carried up, and U = Gbar T:
//     Tbar = rho' delta + 2 U G,   Y_h = Tbar Q_h',   Gbar <- T' U + sym(sum_h P_h' Y_h)
#pragma once
#include <initializer_list>

#include "network.hpp"

namespace ridgeformer {
namespace {

struct Whole : Network {
    const Size D, L, heads, cells;
    V *gram_, *T_;               // per layer: G and T
    V *delta;                    // per layer and one, [D], like rho
    V *Gbar, *U, *Tbar, *Y, *Z;  // [D][D]; Z = sum_h P_h' Y_h

    template <class Take>
    static void lay_out(Size D, Size L, Take &&take) {
        take(&Whole::gram_, L * D * D);
        take(&Whole::T_, L * D * D);
        take(&Whole::rho, (L + 1) * D);
        take(&Whole::delta, (L + 1) * D);
        for (auto square : {&Whole::Gbar, &Whole::U, &Whole::Tbar, &Whole::Y, &Whole::Z}) take(square, D * D);
        take(&Whole::work, 4 * D);
    }

    Whole(const Model<T> &model_, Watch &watch_)
        : Network(model_, watch_), D(model_.dim + 1), L(model_.layers), heads(model_.heads), cells(D * D) {}

    Counter counter(Size depth) const { return {watch, depth}; }  // of elements that are sums of `depth` terms
    V *gram(Size l) const { return gram_ + l * cells; }
    V *map(Size l) const { return T_ + l * cells; }
    V *row(Size l) const { return rho + l * D; }

    // T of one layer, from its G.
    virtual void attention(Size l) = 0;
    // From U G in the place of Tbar to the gradient of the parameters of one layer, and for all layers but the first Z.
    virtual void backward_heads(Size l) = 0;

    // All layers but the last, of which only the last row matters. Coordinate i of a token stands in place(i) of G.
    template <class Place>
    void forward_from(const V *packed_gram, const Place &place) {
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j <= i; ++j)
                gram_[place(i) * D + place(j)] = gram_[place(j) * D + place(i)] = packed_gram[packed(i, j)];
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

    // From the row of the last layer down.
    void lower_rows() {
        for (Size l = L - 1; l-- > 0 && !counter(D).stop(D);) vector_times(row(l + 1), map(l), D, row(l));
    }

    template <class Place>
    void deltas_from(const V *target, const V *metric, V factor, const Place &place) {
        loss_slope(target, metric, factor, work);
        for (Size i = 0; i < D; ++i) delta[place(i)] = i < model.counted ? work[i] : V{};
        for (Size l = 0; l + 1 < L && !counter(D).stop(D); ++l) apply(l, delta + l * D, delta + (l + 1) * D);
    }

    // All layers below the last two, from Gbar of the layer above.
    void backward_below() {
        for (Size l = L - 2; l-- > 0 && !counter(D).stop(D);) {
            multiply(D, D, Gbar, D, map(l), U, D, false, counter(D));
            multiply(D, D, U, D, gram(l), Tbar, D, false, counter(D));
            backward_heads(l);
            if (l > 0) multiply_symmetric<true>(D, D, map(l), U, Z, Gbar, counter(D));
        }
    }
};

}  // namespace
}  // namespace ridgeformer
