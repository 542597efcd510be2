// One sequence a lane: arithmetic on vectors whose lanes are different sequences.
//
// This file, and every file that includes it, is compiled once per instruction set and per type of number, which
// RF_SCALAR names. Everything is in an anonymous namespace, because the linker must not merge any of these copies.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels.hpp"

#if defined(__AVX512F__)
#define RF_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define RF_VECTOR_BYTES 32
#else
#define RF_VECTOR_BYTES 16
#endif
#define RF_INLINE inline __attribute__((always_inline))
#define RF_BODY __attribute__((always_inline))  // of a lambda
#define RF_SHARED __attribute__((noinline, noclone))  // one copy, whoever calls

namespace ridgeformer {
namespace {

using T = RF_SCALAR;  // float or double
using Size = std::int64_t;

constexpr int kLanes = RF_VECTOR_BYTES / int(sizeof(T));

typedef T V __attribute__((vector_size(RF_VECTOR_BYTES)));

// 32-bit words, as many as a vector has lanes.
typedef std::uint32_t Words __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t SignedWords __attribute__((vector_size(4 * kLanes)));

template <class Scalar>
struct BitsOf;
template <>
struct BitsOf<float> {
    using Integer = std::int32_t;
    static constexpr int mantissa = 23;
    static constexpr Integer one = 0x3f800000, magic = 0x4b000000;
    static constexpr float magic_value = 8388608.0f + 127.0f;
    static constexpr int log_terms = 5, sine_terms = 5;  // errors below 2^-24 on the reduced ranges
};
template <>
struct BitsOf<double> {
    using Integer = std::int64_t;
    static constexpr int mantissa = 52;
    static constexpr Integer one = 0x3ff0000000000000, magic = 0x4330000000000000;
    static constexpr double magic_value = 4503599627370496.0 + 1023.0;
    static constexpr int log_terms = 11, sine_terms = 9;  // below 2^-53
};
typedef BitsOf<T>::Integer Bits __attribute__((vector_size(RF_VECTOR_BYTES)));

RF_INLINE V splat(T x) {
    return x - V{};
}

RF_INLINE V load(const T *p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

RF_INLINE void store(T *p, V v) {
    std::memcpy(p, &v, sizeof v);
}

// A product that the compiler may not fuse with an addition. Of x * y + rounded(z * w) the last bit is certain; of the
// sum of two plain products it would depend on which of them the compiler chooses. WebAssembly fuses nothing.
RF_INLINE V rounded(V product) {
#if !defined(__wasm__)
    __asm__("" : "+x"(product));
#endif
    return product;
}

RF_INLINE V square_root(V x) {
    V r;
    for (int i = 0; i < kLanes; ++i) r[i] = sizeof(T) == 4 ? T(__builtin_sqrtf(float(x[i]))) : T(__builtin_sqrt(double(x[i])));
    return r;
}

// In double, by halves.
RF_INLINE double sum_lanes(V x) {
    double half[kLanes];
    for (int i = 0; i < kLanes; ++i) half[i] = double(x[i]);
#pragma GCC unroll 4
    for (int width = kLanes / 2; width > 0; width /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < width; ++i) half[i] += half[i + width];
    return half[0];
}

// Natural logarithm of normal positive numbers, to the last bit or two: x = 2^e m with m in
// [sqrt(1/2), sqrt(2)), log m = 2 artanh((m - 1) / (m + 1)).
RF_INLINE V logarithm(V x) {
    using B = BitsOf<T>;
    Bits bits;
    std::memcpy(&bits, &x, sizeof x);
    Bits biased = (bits >> B::mantissa) | B::magic;
    bits = (bits & ((std::int64_t(1) << B::mantissa) - 1)) | B::one;
    V m, e;
    std::memcpy(&m, &bits, sizeof m);
    std::memcpy(&e, &biased, sizeof e);
    e -= B::magic_value;
    const auto high = m > T(1.4142135623730951);
    m = high ? m * T(0.5) : m;
    e = high ? e + T(1) : e;
    const V s = (m - T(1)) / (m + T(1)), s2 = s * s;
    V series = splat(T(2) / T(2 * B::log_terms - 1));
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
RF_INLINE void sine_cosine(Words word, V &sine, V &cosine) {
    using B = BitsOf<T>;
    const Words quadrant = (word + (1u << 29)) >> 30;
    const Words rest = word - (quadrant << 30);
    SignedWords centred;
    std::memcpy(&centred, &rest, sizeof rest);
    const V phi = __builtin_convertvector(centred, V) * T(1.4629180792671596e-09);
    const V z = phi * phi;
    V s{}, c{};
#pragma GCC unroll 16
    for (int k = B::sine_terms - 1; k >= 0; --k) {
        s = s * z + T(taylor(2 * k + 1));
        c = c * z + T(taylor(2 * k));
    }
    s *= phi;
    const auto q = __builtin_convertvector(quadrant, Bits);
    const auto swap = (q & 1) != 0;
    const V a = swap ? c : s, b = swap ? s : c;
    sine = (q & 2) != 0 ? -a : a;
    cosine = ((q + 1) & 2) != 0 ? -b : b;
}

// exp(x), by halving x until a short series is exact to rounding, and squaring back.
RF_INLINE V exponential(V x) {
    x = x * T(1.0 / 256);
    V sum = splat(T(1));
    for (int k = 8; k > 0; --k) sum = T(1) + sum * x / T(k);
    for (int i = 0; i < 8; ++i) sum = sum * sum;
    return sum;
}

}  // namespace
}  // namespace ridgeformer
