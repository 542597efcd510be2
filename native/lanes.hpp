// One sequence a lane: arithmetic on vectors whose lanes are different sequences.
//
// A "matrix" here is an array of vectors, row-major: element (i, j) of W sequences at once. Everything
// is in an anonymous namespace, because each instruction set compiles its own copy of this file and
// none of them may be merged by the linker.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels.hpp"

// RF_ACCUMULATORS: the sums a tile keeps in registers, of which there are 32 or 16.
#if defined(__AVX512F__)
#define RF_VECTOR_BYTES 64
#define RF_TILE_ROWS 4
#define RF_ACCUMULATORS 24
#elif defined(__AVX2__)
#define RF_VECTOR_BYTES 32
#define RF_TILE_ROWS 2
#define RF_ACCUMULATORS 12
#else
#define RF_VECTOR_BYTES 16
#define RF_TILE_ROWS 2
#define RF_ACCUMULATORS 12
#endif
#define RF_INLINE inline __attribute__((always_inline))
#define RF_BODY __attribute__((always_inline))  // of a lambda

namespace ridgeformer {
namespace {

using Size = std::int64_t;

template <class T>
constexpr int kLanes = RF_VECTOR_BYTES / int(sizeof(T));

template <class T>
struct VectorOf {
    typedef T type __attribute__((vector_size(RF_VECTOR_BYTES)));
};
template <class T>
using Vec = typename VectorOf<T>::type;

// 32-bit words, as many as T has lanes.
template <class T>
struct WordsOf {
    typedef std::uint32_t type __attribute__((vector_size(4 * RF_VECTOR_BYTES / sizeof(T))));
    typedef std::int32_t signed_type __attribute__((vector_size(4 * RF_VECTOR_BYTES / sizeof(T))));
};
template <class T>
using Words = typename WordsOf<T>::type;

template <class T>
struct BitsOf;
template <>
struct BitsOf<float> {
    typedef std::int32_t type __attribute__((vector_size(RF_VECTOR_BYTES)));
    static constexpr int mantissa = 23;
    static constexpr std::int32_t one = 0x3f800000, magic = 0x4b000000;
    static constexpr float magic_value = 8388608.0f + 127.0f;
    static constexpr int log_terms = 5, sine_terms = 5;  // errors below 2^-24 on the reduced ranges
};
template <>
struct BitsOf<double> {
    typedef std::int64_t type __attribute__((vector_size(RF_VECTOR_BYTES)));
    static constexpr int mantissa = 52;
    static constexpr std::int64_t one = 0x3ff0000000000000, magic = 0x4330000000000000;
    static constexpr double magic_value = 4503599627370496.0 + 1023.0;
    static constexpr int log_terms = 11, sine_terms = 9;  // below 2^-53
};
template <class T>
using Bits = typename BitsOf<T>::type;

template <class T>
RF_INLINE Vec<T> splat(T x) {
    return x - Vec<T>{};
}

template <class T>
RF_INLINE Vec<T> load(const T *p) {
    Vec<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class T>
RF_INLINE void store(T *p, Vec<T> v) {
    std::memcpy(p, &v, sizeof v);
}

// A product that the compiler may not fuse with an addition. Of x * y + rounded(z * w) the last bit is certain; of the
// sum of two plain products it would depend on which of them the compiler chooses.
template <class T>
RF_INLINE Vec<T> rounded(Vec<T> product) {
    __asm__("" : "+x"(product));
    return product;
}

template <class T>
RF_INLINE Vec<T> square_root(Vec<T> x) {
    Vec<T> r;
    for (int i = 0; i < kLanes<T>; ++i) r[i] = sizeof(T) == 4 ? T(__builtin_sqrtf(float(x[i]))) : T(__builtin_sqrt(double(x[i])));
    return r;
}

// In double, by halves.
template <class T>
RF_INLINE double sum_lanes(Vec<T> x) {
    double half[kLanes<T>];
    for (int i = 0; i < kLanes<T>; ++i) half[i] = double(x[i]);
#pragma GCC unroll 4
    for (int width = kLanes<T> / 2; width > 0; width /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < width; ++i) half[i] += half[i + width];
    return half[0];
}

// Natural logarithm of normal positive numbers, to the last bit or two: x = 2^e m with m in
// [sqrt(1/2), sqrt(2)), log m = 2 artanh((m - 1) / (m + 1)).
template <class T>
RF_INLINE Vec<T> logarithm(Vec<T> x) {
    using B = BitsOf<T>;
    Bits<T> bits;
    std::memcpy(&bits, &x, sizeof x);
    Bits<T> biased = (bits >> B::mantissa) | B::magic;
    bits = (bits & ((std::int64_t(1) << B::mantissa) - 1)) | B::one;
    Vec<T> m, e;
    std::memcpy(&m, &bits, sizeof m);
    std::memcpy(&e, &biased, sizeof e);
    e -= B::magic_value;
    const auto high = m > T(1.4142135623730951);
    m = high ? m * T(0.5) : m;
    e = high ? e + T(1) : e;
    const Vec<T> s = (m - T(1)) / (m + T(1)), s2 = s * s;
    Vec<T> series = splat<T>(T(2) / T(2 * B::log_terms - 1));
#pragma GCC unroll 16
    for (int k = B::log_terms - 2; k >= 0; --k) series = series * s2 + T(2) / T(2 * k + 1);
    return e * T(0.6931471805599453) + s * series;
}

// The coefficient of phi^n in the series of sine (odd n) or cosine (even n).
constexpr double taylor(int n) {
    double value = n / 2 % 2 ? -1 : 1;
    for (int k = 2; k <= n; ++k) value /= k;
    return value;
}

// Sine and cosine of 2 pi (word / 2^32): the word's own bits give the quadrant, so the reduction is exact.
template <class T>
RF_INLINE void sine_cosine(Words<T> word, Vec<T> &sine, Vec<T> &cosine) {
    using B = BitsOf<T>;
    using Signed = typename WordsOf<T>::signed_type;
    const Words<T> quadrant = (word + (1u << 29)) >> 30;
    const Words<T> rest = word - (quadrant << 30);
    Signed centred;
    std::memcpy(&centred, &rest, sizeof rest);
    const Vec<T> phi = __builtin_convertvector(centred, Vec<T>) * T(1.4629180792671596e-09);
    const Vec<T> z = phi * phi;
    Vec<T> s{}, c{};
#pragma GCC unroll 16
    for (int k = B::sine_terms - 1; k >= 0; --k) {
        s = s * z + T(taylor(2 * k + 1));
        c = c * z + T(taylor(2 * k));
    }
    s *= phi;
    const auto q = __builtin_convertvector(quadrant, Bits<T>);
    const auto swap = (q & 1) != 0;
    const Vec<T> a = swap ? c : s, b = swap ? s : c;
    sine = (q & 2) != 0 ? -a : a;
    cosine = ((q + 1) & 2) != 0 ? -b : b;
}

// ---- ending early ---------------------------------------------------------------------------------

constexpr Size kPatience = 1 << 20;  // work between two questions: a few milliseconds at most
constexpr Size kDeep = 32;           // sums of fewer terms than this are over before anyone could want to stop them

__attribute__((noinline)) bool ask(Watch &watch) {
    if (watch.stop(watch.state)) return true;  // work is kept, so that the next question comes at once
    watch.work = 0;
    return false;
}

// Counts work; true if the call is to end.
RF_INLINE bool stopped(Watch &watch, Size work) {
    watch.work += work;
    return __builtin_expect(watch.work >= kPatience, 0) && ask(watch);
}

// Counts the elements of a matrix that are computed as sums of `depth` terms.
struct Counter {
    Watch &watch;
    Size depth;
    RF_INLINE bool stop(Size elements) const { return depth >= kDeep && stopped(watch, elements * depth); }
};
struct NoCounter {
    RF_INLINE bool stop(Size) const { return false; }
};

// ---- products -------------------------------------------------------------------------------------

// A size the compiler knows, where a plain Size would do.
template <Size N>
struct Known {
    constexpr Known(Size) {}
    constexpr operator Size() const { return N; }
};

// A tile of a product, kept in registers while k runs.
template <class T, int R, int C>
struct Tile {
    Vec<T> sum[R][C];

    RF_INLINE Tile() {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
            for (int c = 0; c < C; ++c) sum[r][c] = Vec<T>{};
    }

    // sum[r][c] += sum_k x(r, k) y(k, c). x and y hold vectors, or scalars that all lanes share;
    // x(r, k) is x[r * ldx + k], or x[k * ldx + r] when transposed.
    template <bool Transposed = false, class X, class Y>
    RF_INLINE void multiply_add(const X *x, Size ldx, const Y *y, Size ldy, Size from, Size to) {
        for (Size k = from; k < to; ++k) {
            const Y *row = y + k * ldy;
            X left[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) left[r] = Transposed ? x[k * ldx + r] : x[r * ldx + k];
#pragma GCC unroll 12
            for (int c = 0; c < C; ++c) {
                const Y right = row[c];
#pragma GCC unroll 4
                for (int r = 0; r < R; ++r) sum[r][c] += left[r] * right;
            }
        }
    }

    // parts[r] += sum_c sum[r][c] m(r, c)
    RF_INLINE void pair(const Vec<T> *m, Size ld, Vec<T> (&parts)[4]) const {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
            for (int c = 0; c < C; ++c) parts[r] += sum[r][c] * m[r * ld + c];
    }

    // m(r, c) = sum[r][c]
    RF_INLINE void copy(Vec<T> *m, Size ld) const {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
            for (int c = 0; c < C; ++c) m[r * ld + c] = sum[r][c];
    }

    RF_INLINE void scale(T by) {
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
            for (int c = 0; c < C; ++c) sum[r][c] *= by;
    }
};

// One tile at row i, column j: sum(tile, i, j) adds to it, put(i, j, r, c, value) takes element (i + r, j + c).
// r and c are constants once unrolled: written as (m + i * ld + j)[r * ld + c], addresses cost next to nothing.
template <class T, int R, int C, class Sum, class Put>
RF_INLINE void one_tile(Size i, Size j, const Sum &sum, const Put &put) {
    Tile<T, R, C> tile;
    sum(tile, i, j);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
        for (int c = 0; c < C; ++c) put(i, j, r, c, tile.sum[r][c]);
}

template <class T, int R, class Sum, class Put>
RF_INLINE void row_of_tiles(Size i, Size width, const Sum &sum, const Put &put) {
    // Equal shares, so that no narrow tile is left over.
    constexpr int most = RF_ACCUMULATORS / (R > 2 ? 4 : 2);
    Size parts = (width + most - 1) / most;
    for (Size j = 0; parts > 0; --parts) {
        const Size share = (width - j + parts - 1) / parts;
        switch (share) {
            case 1: one_tile<T, R, 1>(i, j, sum, put); break;
            case 2: one_tile<T, R, 2>(i, j, sum, put); break;
            case 3: one_tile<T, R, 3>(i, j, sum, put); break;
            case 4: one_tile<T, R, 4>(i, j, sum, put); break;
            case 5: one_tile<T, R, 5>(i, j, sum, put); break;
            case 6: one_tile<T, R, 6>(i, j, sum, put); break;
            case 7: one_tile<T, R, most < 7 ? 1 : 7>(i, j, sum, put); break;
            case 8: one_tile<T, R, most < 8 ? 1 : 8>(i, j, sum, put); break;
            case 9: one_tile<T, R, most < 9 ? 1 : 9>(i, j, sum, put); break;
            case 10: one_tile<T, R, most < 10 ? 1 : 10>(i, j, sum, put); break;
            case 11: one_tile<T, R, most < 11 ? 1 : 11>(i, j, sum, put); break;
            case 12: one_tile<T, R, most < 12 ? 1 : 12>(i, j, sum, put); break;
        }
        j += share;
    }
}

// A product of rows x columns, tile by tile.
template <class T, class Sum, class Put, class Count = NoCounter>
RF_INLINE void product(Size rows, Size width, const Sum &sum, const Put &put, const Count &count = {}) {
    Size i = 0;
#if RF_TILE_ROWS > 3
    for (; i + 4 <= rows; i += 4) {
        if (count.stop(4 * width)) return;
        row_of_tiles<T, 4>(i, width, sum, put);
    }
#endif
#if RF_TILE_ROWS > 2
    for (; i + 3 <= rows; i += 3) row_of_tiles<T, 3>(i, width, sum, put);
#endif
    for (; i + 2 <= rows; i += 2) {
        if (count.stop(2 * width)) return;
        row_of_tiles<T, 2>(i, width, sum, put);
    }
    if (i < rows) row_of_tiles<T, 1>(i, width, sum, put);
}

// Its lower triangle, for a product that is symmetric. Tiles on the diagonal reach above it; put() mirrors.
template <class T, class Sum, class Put, class Count>
RF_INLINE void symmetric_product(Size n, const Sum &sum, const Put &put, const Count &count) {
    Size i = 0;
    for (; i + 2 <= n; i += 2) {
        if (count.stop(2 * i)) return;
        row_of_tiles<T, 2>(i, i + 2, sum, put);
    }
    if (i < n) row_of_tiles<T, 1>(i, i + 1, sum, put);
}

// Element (i + r, j + c) of a matrix, and the same of its transpose.
template <class V>
RF_INLINE V &cell(V *m, Size ld, Size i, Size j, int r, int c) {
    return (m + i * ld + j)[r * ld + c];
}

// out = x' m: for symmetric m, the product m x. x and m hold vectors or shared scalars.
template <class T, class X, class M>
RF_INLINE void vector_times(const X *x, const M *m, Size n, Vec<T> *out) {
    product<T>(1, n, [&](auto &tile, Size, Size j) RF_BODY { tile.multiply_add(x, 0, m + j, n, 0, n); },
               [&](Size, Size j, int, int c, Vec<T> value) RF_BODY { (out + j)[c] = value; });
}

template <class T>
RF_INLINE Vec<T> dot(const Vec<T> *x, const Vec<T> *y, Size n) {
    Vec<T> even{}, odd{};
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

// 1/2 e'M e with e = row + target, and M a packed lower triangle. Leaves e [n], then M e [n], in work.
template <class T>
Vec<T> metric_loss(const Vec<T> *row, const Vec<T> *target, const Vec<T> *M, Size n, Vec<T> *work) {
    for (Size i = 0; i < n; ++i) {
        work[i] = row[i] + target[i];
        work[n + i] = M[packed(i, i)] * work[i];
    }
    for (Size i = 0; i < n; ++i) {
        Vec<T> sum = work[n + i];
        for (Size j = 0; j < i; ++j) {
            sum += M[packed(i, j)] * work[j];
            work[n + j] += M[packed(i, j)] * work[i];
        }
        work[n + i] = sum;
    }
    return T(0.5) * dot<T>(work, work + n, n);
}

}  // namespace
}  // namespace ridgeformer
