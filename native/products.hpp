// Products of small matrices of vectors, tile by tile.
//
// A matrix is an array of vectors, row-major: element (i, j) of as many sequences as there are lanes. Where a factor is the
// same for all sequences, it is an array of plain numbers instead. Every element of a product is a sum in the order of its
// terms, whatever the tiles are; of large matrices, it is a sum of such sums.
#pragma once
#include <type_traits>

#include "watch.hpp"

// Rows of the tallest tile: what it sums stays in registers, of which there are 32 or 16.
#if defined(__AVX512F__)
#define RF_TILE_ROWS 4
#else
#define RF_TILE_ROWS 2
#endif

namespace ridgeformer {
namespace {

// A size the compiler knows, where a plain Size would do.
template <Size N>
struct Known {
    constexpr Known(Size) {}
    constexpr operator Size() const { return N; }
};
template <class N>
constexpr bool is_known = !std::is_same_v<N, Size>;

// Columns of the widest tile. Low tiles can be wider where there are 32 registers, which is a few percent faster; but each
// width is code of its own, which takes long to compile where the sizes are not known.
template <bool Wide, int R>
constexpr int kWidest = Wide && RF_TILE_ROWS > 2 && R <= 2 ? 12 : 6;

// A tile of a product, kept in registers while k runs.
template <int R, int C>
struct Tile {
    V sum[R][C];

    template <class Do>
    static RF_INLINE void each(const Do &act) {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
            for (int c = 0; c < C; ++c) act(r, c);
    }

    static constexpr bool is_last(int r, int c) { return r == R - 1 && c == C - 1; }

    RF_INLINE Tile() {
        each([&](int r, int c) RF_BODY { sum[r][c] = V{}; });
    }

    // sum[r][c] += sum over k < depth of x(r, k) y(k, c), with x(r, k) = x[r * row + k * column] and
    // y(k, c) = y[k * ldy + c * gap].
    template <class X, class Y>
    RF_INLINE void multiply_add(const X *x, Size row, Size column, const Y *y, Size ldy, Size depth, Size gap = 1) {
        for (Size k = 0; k < depth; ++k) {
            const Y *right_row = y + k * ldy;
            X left[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) left[r] = x[r * row + k * column];
#pragma GCC unroll 12
            for (int c = 0; c < C; ++c) {
                const Y right = right_row[c * gap];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) sum[r][c] += left[r] * right;
            }
        }
    }

    // parts[r] += sum_c sum[r][c] m(r, c)
    RF_INLINE void pair(const V *m, Size ld, V (&parts)[4]) const {
        each([&](int r, int c) RF_BODY { parts[r] += sum[r][c] * m[r * ld + c]; });
    }

    // m(r, c) = sum[r][c]
    RF_INLINE void copy(V *m, Size ld) const {
        each([&](int r, int c) RF_BODY { m[r * ld + c] = sum[r][c]; });
    }

    RF_INLINE void scale(T by) {
        each([&](int r, int c) RF_BODY { sum[r][c] *= by; });
    }
};

// One tile at row i, column j: sum(tile, i, j) adds to it, put(i, j, r, c, value) takes element (i + r, j + c).
// r and c are constants once unrolled: written as (m + i * ld + j)[r * ld + c], addresses cost next to nothing.
template <int R, int C, class Sum, class Put>
RF_INLINE void one_tile(Size i, Size j, const Sum &sum, const Put &put) {
    Tile<R, C> tile;
    sum(tile, i, j);
    tile.each([&](int r, int c) RF_BODY { put(i, j, r, c, tile.sum[r][c]); });
}

// A put() where sum() has already stored the tile.
constexpr auto nothing_more = [](Size, Size, int, int, V) RF_BODY {};

// One tile of `share` <= C columns.
template <int R, int C, class Sum, class Put>
RF_INLINE void tile_of(Size share, Size i, Size j, const Sum &sum, const Put &put) {
    static_assert(C == 6 || C == 12);
    switch (share) {
        case 1: return one_tile<R, 1>(i, j, sum, put);
        case 2: return one_tile<R, 2>(i, j, sum, put);
        case 3: return one_tile<R, 3>(i, j, sum, put);
        case 4: return one_tile<R, 4>(i, j, sum, put);
        case 5: return one_tile<R, 5>(i, j, sum, put);
        case 6: return one_tile<R, 6>(i, j, sum, put);
    }
    if constexpr (C > 6) switch (share) {
            case 7: return one_tile<R, 7>(i, j, sum, put);
            case 8: return one_tile<R, 8>(i, j, sum, put);
            case 9: return one_tile<R, 9>(i, j, sum, put);
            case 10: return one_tile<R, 10>(i, j, sum, put);
            case 11: return one_tile<R, 11>(i, j, sum, put);
            case 12: return one_tile<R, 12>(i, j, sum, put);
        }
}

// How many columns the next tile takes of `width`: equal shares, so that no narrow tile is left over.
constexpr Size share_of(Size width, int widest) {
    const Size parts = (width + widest - 1) / widest;
    return (width + parts - 1) / parts;
}

template <int R, Size From, Size Width, class Sum, class Put>
RF_INLINE void known_row_of_tiles(Size i, const Sum &sum, const Put &put) {
    if constexpr (From < Width) {
        constexpr int share = int(share_of(Width - From, kWidest<true, R>));
        one_tile<R, share>(i, From, sum, put);
        known_row_of_tiles<R, From + share, Width>(i, sum, put);
    }
}

template <bool Wide, int R, class N, class Sum, class Put>
RF_INLINE void row_of_tiles(Size i, N width, const Sum &sum, const Put &put) {
    if constexpr (is_known<N>) {
        known_row_of_tiles<R, 0, width>(i, sum, put);
    } else {
        for (Size j = 0, share; j < width; j += share) {
            share = share_of(width - j, kWidest<Wide, R>);
            tile_of<R, kWidest<Wide, R>>(share, i, j, sum, put);
        }
    }
}

// The last rows of a product, fewer than the tallest tile has.
template <bool Wide, int R, class Rows, class N, class Sum, class Put>
RF_INLINE void last_rows(Rows rows, N width, const Sum &sum, const Put &put) {
    if constexpr (R > 0) {
        if constexpr (is_known<Rows>) {
            if constexpr (rows % RF_TILE_ROWS == R) return row_of_tiles<Wide, R>(rows - R, width, sum, put);
        } else if (rows % RF_TILE_ROWS == R) {
            return row_of_tiles<Wide, R>(rows - R, width, sum, put);
        }
        last_rows<Wide, R - 1>(rows, width, sum, put);
    }
}

// A product of rows x columns, tile by tile.
template <bool Wide = false, class Rows, class N, class Sum, class Put, class Count = NoCounter>
RF_INLINE void product(Rows rows, N width, const Sum &sum, const Put &put, const Count &count = {}) {
    for (Size i = 0; i + RF_TILE_ROWS <= rows; i += RF_TILE_ROWS) {
        if (count.stop(RF_TILE_ROWS * width)) return;
        row_of_tiles<Wide, RF_TILE_ROWS>(i, width, sum, put);
    }
    last_rows<Wide, RF_TILE_ROWS - 1>(rows, width, sum, put);
}

template <Size From, Size N, class Sum, class Put>
RF_INLINE void known_symmetric_product(const Sum &sum, const Put &put) {
    if constexpr (From < N) {
        constexpr int rows = From + 1 < N ? 2 : 1;
        known_row_of_tiles<rows, 0, From + rows>(From, sum, put);
        known_symmetric_product<From + rows, N>(sum, put);
    }
}

// Its lower triangle, for a product that is symmetric. Tiles on the diagonal reach above it; put() mirrors.
template <class N, class Sum, class Put>
RF_INLINE void symmetric_product(N n, const Sum &sum, const Put &put, const Counter &count) {
    if constexpr (is_known<N>) {
        known_symmetric_product<0, n>(sum, put);
    } else {
        Size i = 0;
        for (; i + 2 <= n; i += 2) {
            if (count.stop(2 * i)) return;
            row_of_tiles<false, 2>(i, i + 2, sum, put);
        }
        if (i < n) row_of_tiles<false, 1>(i, i + 1, sum, put);
    }
}

// Element (i + r, j + c) of a matrix, and the same of its transpose.
template <class Element>
RF_INLINE Element &cell(Element *m, Size ld, Size i, Size j, int r, int c) {
    return (m + i * ld + j)[r * ld + c];
}

// Calls act(n), with a size the compiler knows if n is D of the paper's dimension: a tenth faster there.
template <class Act>
RF_INLINE void with_size(Size n, const Act &act) {
    if (n == 11) act(Known<11>(n));
    else act(n);
}

template <bool TransposedX, bool TransposedOut, class Rows, class N, class X, class Y>
RF_SHARED void multiply_sized(Rows rows, N n, Size depth, const X *x, Size ldx, const Y *y, V *out, Size ldo, bool add,
                              Counter count) {
    const Size row = TransposedX ? 1 : ldx, column = TransposedX ? ldx : 1;
    product(rows, n, [&](auto &tile, Size i, Size j) RF_BODY {
                tile.multiply_add(x + i * row, row, column, y + j, n, depth);
                const auto at = [&](int r, int c) RF_BODY -> V & {
                    return TransposedOut ? cell(out, ldo, j, i, c, r) : cell(out, ldo, i, j, r, c);
                };
                if (add) tile.each([&](int r, int c) RF_BODY { at(r, c) += tile.sum[r][c]; });
                else tile.each([&](int r, int c) RF_BODY { at(r, c) = tile.sum[r][c]; });
            },
            nothing_more, count);
}

// Terms of a product of large matrices that are summed at a time: so many rows of a factor stay in the second cache.
constexpr int kPiece = 72;

// Calls act(first, terms) for all `depth` terms of n x n elements: once, or in equal pieces where n is large.
template <class Act>
RF_INLINE void in_pieces(Size n, Size depth, const Act &act) {
    for (Size k = 0, terms; k < depth; k += terms) act(k, terms = n > kPiece ? share_of(depth - k, kPiece) : depth);
}

// out = x y, or out += x y, with `depth` terms in each of n x n elements; x or out are transposed if asked for. The rows of
// y have length n, those of x and of out ldx and ldo.
template <bool TransposedX = false, bool TransposedOut = false, class X, class Y>
RF_INLINE void multiply(Size n, Size depth, const X *x, Size ldx, const Y *y, V *out, Size ldo, bool add, Counter count) {
    in_pieces(n, depth, [&](Size k, Size terms) RF_BODY {
        const X *const from = x + k * (TransposedX ? ldx : 1);
        with_size(n, [&](auto size) {
            multiply_sized<TransposedX, TransposedOut>(size, size, terms, from, ldx, y + k * n, out, ldo, add || k, count);
        });
    });
}

// out = x y, or out += x y, with `depth` terms in each of rows x n elements.
RF_INLINE void multiply_rows(Size rows, Size n, Size depth, const V *x, const V *y, V *out, bool add, Counter count) {
    with_size(n, [&](auto size) { multiply_sized<false, false>(rows, size, depth, x, depth, y, out, n, add, count); });
}

template <bool TransposedX, class N>
RF_SHARED void multiply_symmetric_sized(N n, Size depth, const V *x, const V *y, const V *more, V *out, Counter count) {
    const Size row = TransposedX ? 1 : Size(n), column = TransposedX ? Size(n) : 1;
    symmetric_product(n, [&](auto &tile, Size i, Size j) RF_BODY {
                          tile.multiply_add(x + i * row, row, column, y + j, n, depth);
                          if (more)
                              tile.each([&](int r, int c) RF_BODY {
                                  tile.sum[r][c] += T(0.5) * (cell(more, n, i, j, r, c) + cell(more, n, j, i, c, r));
                              });
                      },
                      [&](Size i, Size j, int r, int c, V value) RF_BODY {
                          cell(out, n, i, j, r, c) = cell(out, n, j, i, c, r) = value;
                      }, count);
}

// out = x y + (more + more') / 2 for a product x y that is symmetric, of n x n matrices; x is transposed if asked for, and
// `more` may be null.
template <bool TransposedX = false>
RF_INLINE void multiply_symmetric(Size n, Size depth, const V *x, const V *y, const V *more, V *out, Counter count) {
    in_pieces(n, depth, [&](Size k, Size terms) RF_BODY {
        const V *const from = x + k * (TransposedX ? n : 1);
        with_size(n, [&](auto size) {
            multiply_symmetric_sized<TransposedX>(size, terms, from, y + k * n, k ? out : more, out, count);
        });
    });
}

// out = x' m: for symmetric m, the product m x.
template <class N, class X, class M>
RF_SHARED void vector_times(const X *x, const M *m, N n, V *out) {
    product<true>(Known<1>(1), n, [&](auto &tile, Size, Size j) RF_BODY { tile.multiply_add(x, 0, 1, m + j, n, n); },
                  [&](Size, Size j, int, int c, V value) RF_BODY { (out + j)[c] = value; });
}

RF_INLINE V dot(const V *x, const V *y, Size n) {
    V even{}, odd{};
    Size i = 0;
    for (; i + 2 <= n; i += 2) {
        even += x[i] * y[i];
        odd += x[i + 1] * y[i + 1];
    }
    if (i < n) even += x[i] * y[i];
    return even + odd;
}

// Index of (i, j), i >= j, in a packed lower triangle.
RF_INLINE Size packed(Size i, Size j) { return i * (i + 1) / 2 + j; }

}  // namespace
}  // namespace ridgeformer
