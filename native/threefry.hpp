// Threefry-4x32-20 (Salmon, Moraes, Dror, Shaw 2011): random numbers as a pure function of a key and a
// counter. Only additions, rotations and exclusive-ors, so every lane runs its own counter at full speed.
#pragma once
#include "kernels.hpp"
#include "lanes.hpp"

namespace ridgeformer {
namespace {

template <class W>
RF_INLINE void threefry(const std::uint32_t (&key)[4], W (&x)[4]) {
    constexpr int rotation[8][2] = {{10, 26}, {11, 21}, {13, 27}, {23, 5}, {6, 20}, {17, 11}, {25, 10}, {18, 20}};
    const std::uint32_t k[5] = {key[0], key[1], key[2], key[3], 0x1BD11BDAu ^ key[0] ^ key[1] ^ key[2] ^ key[3]};
    for (int i = 0; i < 4; ++i) x[i] += k[i];
#pragma GCC unroll 20
    for (int round = 0; round < 20; ++round) {
        const int a = rotation[round % 8][0], b = rotation[round % 8][1];
        W &left = x[round % 2 ? 3 : 1], &right = x[round % 2 ? 1 : 3];
        x[0] += left;
        left = ((left << a) | (left >> (32 - a))) ^ x[0];
        x[2] += right;
        right = ((right << b) | (right >> (32 - b))) ^ x[2];
        if (round % 4 == 3) {
            const int s = round / 4 + 1;
#pragma GCC unroll 4
            for (int i = 0; i < 4; ++i) x[i] += k[(s + i) % 5];
            x[3] += std::uint32_t(s);
        }
    }
}

// Which numbers of a sequence: the counter's last word.
enum class Use : std::uint32_t { normals = 0, chi = 1, noise = 1u << 31, features = (1u << 31) + 1, ones = (1u << 31) + 2 };

// Four words for each lane's sequence. `slot` tells one draw of a sequence from the next.
template <class W>
RF_INLINE void random_words(const Key &key, W sequence, W slot, Use use, std::uint32_t attempt, W (&out)[4]) {
    const std::uint32_t k[4] = {std::uint32_t(key.seed), std::uint32_t(key.seed >> 32), key.stream,
                                std::uint32_t(key.step >> 32)};
    out[0] = sequence;
    out[1] = W{} + std::uint32_t(key.step);
    out[2] = slot;
    out[3] = W{} + (std::uint32_t(use) + attempt);
    threefry(k, out);
}

// A word as a number in (0, 1): 31 bits, never 0. Float rounds the largest ones to 1.
RF_INLINE V uniform(Words word) {
    SignedWords x;
    word >>= 1;
    std::memcpy(&x, &word, sizeof x);
    return (__builtin_convertvector(x, V) + T(0.5)) * T(4.656612873077393e-10);
}

// One number in (0, 1) for each of the sequences from `first` on, from which noise levels are made.
void uniforms(const Key &key, std::int64_t first, std::int64_t count, int word, T *out) {
    Words lane;
    for (int i = 0; i < kLanes; ++i) lane[i] = std::uint32_t(i);
    for (std::int64_t s = 0; s < count; s += kLanes) {
        Words r[4];
        random_words(key, lane + std::uint32_t(first + s), Words{}, Use::noise, 0, r);
        const V u = uniform(r[word]);
        for (int i = 0; i < kLanes && s + i < count; ++i) out[s + i] = u[i];
    }
}

// Box and Muller: two words give two independent normals.
RF_INLINE void normals(Words u, Words v, V &first, V &second) {
    V s, c;
    sine_cosine(v, s, c);
    const V radius = square_root(T(-2) * logarithm(uniform(u)));
    first = radius * c;
    second = radius * s;
}

// Standard normals of the sequences in the lanes, one after the other, four a call of the generator.
struct Normals {
    const Key &key;
    const Words sequence;
    const Use use;
    std::uint32_t slot = 0;
    int left = 0;
    V four[4] = {};

    V next() {
        if (left == 0) draw_four_shared();
        return four[--left];
    }
    // The same, a few percent faster and much longer: for the loops that draw most of the numbers.
    RF_INLINE V next_inlined() {
        if (left == 0) draw_four();
        return four[--left];
    }

  private:
    RF_SHARED void draw_four_shared() { draw_four(); }
    RF_INLINE void draw_four() {
        Words r[4];
        random_words(key, sequence, Words{} + slot++, use, 0, r);
        normals(r[0], r[1], four[3], four[2]);
        normals(r[2], r[3], four[1], four[0]);
        left = 4;
    }
};

}  // namespace
}  // namespace ridgeformer
