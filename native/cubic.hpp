// M S M with M = I + p S and symmetric S, and its adjoint: what Diag and Channels have in common.
//
// M S M = B + p S B with B = S + p S S: two products with symmetric results, at half price. Its adjoint, with N = Sbar M and
// X = N + N'/2, is R + R', R = X / 3 + p X S: two products.
#pragma once
#include "products.hpp"

namespace ridgeformer {
namespace {

// B = S + p S S.
template <class Dim>
RF_SHARED void add_square(Dim d, const V *S, T p, V *B, Counter count) {
    symmetric_product(d, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(S + i * d, d, 1, S + j, d, d); },
                      [&](Size i, Size j, int r, int c, V square) RF_BODY {
                          const V x = cell(S, d, i, j, r, c) + p * square;
                          cell(B, d, i, j, r, c) = cell(B, d, j, i, c, r) = x;
                      }, count);
}

// X = N + N'/2 with N = Sbar + p Sbar S.
template <class Dim>
RF_SHARED void adjoint_factor(Dim d, const V *Sbar, const V *S, T p, V *X, Counter count) {
    product(d, d, [&](auto &tile, Size i, Size j) RF_BODY { tile.multiply_add(Sbar + i * d, d, 1, S + j, d, d); },
            [&](Size i, Size j, int r, int c, V value) RF_BODY { cell(X, d, i, j, r, c) = cell(Sbar, d, i, j, r, c) + p * value; },
            count);
    for (Size i = 0; i < d; ++i) {
        for (Size j = 0; j < i; ++j) {
            const V x = X[i * d + j], y = X[j * d + i];
            X[i * d + j] = x + T(0.5) * y;
            X[j * d + i] = y + T(0.5) * x;
        }
        X[i * d + i] *= T(1.5);
    }
}

// Sbar <- R + R', where R has further terms, left'right with rows of d. Without `matrix` it has only these. Returns the gradient
// of p through M S M, 2 <Sbar, S B>, which is 4/3 <X S, S> because S and M commute. Of the last element of a tile, X / 3 is
// rounded before it is added; so the bits of the result depend on the tiles, which are wide for all sizes.
template <class Dim, class Terms>
RF_SHARED V fold(Dim d, bool matrix, const V *X, const V *S, T p, Terms terms, const V *left, const V *right, V *Sbar,
                 Counter count) {
    V parts[4] = {};
    product<true>(d, d, [&](auto &tile, Size i, Size j) RF_BODY {
                      if (matrix) {
                          tile.multiply_add(X + i * d, d, 1, S + j, d, d);
                          tile.pair(S + i * d + j, d, parts);
                          tile.scale(p);
                      }
                      tile.multiply_add(left + i, 1, d, right + j, d, terms);
                      if (matrix)
                          tile.each([&](int r, int c) RF_BODY {
                              const V x = (T(1) / T(3)) * cell(X, d, i, j, r, c);
                              tile.sum[r][c] += tile.is_last(r, c) ? rounded(x) : x;
                          });
                      tile.copy(Sbar + i * d + j, d);
                  },
                  nothing_more, count);
    for (Size i = 0; i < d; ++i)
        for (Size j = 0; j <= i; ++j) Sbar[i * d + j] = Sbar[j * d + i] = Sbar[i * d + j] + Sbar[j * d + i];
    return (T(4) / T(3)) * ((parts[0] + parts[1]) + (parts[2] + parts[3]));
}

}  // namespace
}  // namespace ridgeformer
