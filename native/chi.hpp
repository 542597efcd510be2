// The sizes of a law, and the chi2 numbers of a block of sequences.
#pragma once
#include "block.hpp"
#include "threefry.hpp"

namespace ridgeformer {
namespace {

struct Chi {
    const Law<T> &law;
    Watch &watch;
    const Size d, n, m, rank;  // n: the largest; m = min(tokens that count, d): the columns of A
    const bool dense, ones;    // dense: A, once it has the covariance of the features, has entries above its diagonal
    V *chis;                   // [d + 3][kBlock] numbers
    V *retries;                // as many integers: numbers that are still to be drawn

    Chi(const Law<T> &law_, bool ones_, Watch &watch_)
        : law(law_), watch(watch_), d(law_.dim), n(law_.context), m(counted(n) < d ? counted(n) : d), rank(law_.rank),
          dense(law_.covariance == Covariance::rotated), ones(ones_) {}

    Counter counter(Size depth) const { return {watch, depth}; }

    // Directions that n tokens can span: centring them costs one.
    Size counted(Size tokens) const { return tokens - law.standardised; }
    // Columns of A in row i that may differ from zero.
    Size width(Size i) const { return dense || i >= m ? m : i + 1; }

    // Degrees of freedom of the chi2 numbers, by slot: the diagonal of A; what is left of the noise beyond the span of the
    // features; and for the sums of tokens twice more.
    Size freedom(Size slot, Size tokens) const {
        const Size span = counted(tokens) < d ? counted(tokens) : d, rest = tokens - span;
        return slot < d ? counted(tokens) - slot : slot < d + 2 ? rest : rest - 1;
    }

    static Words lanes(std::uint32_t first) {
        Words sequence;
        for (int i = 0; i < kLanes; ++i) sequence[i] = first + std::uint32_t(i);
        return sequence;
    }

    V chi_of(Size slot, int group) const { return load(reinterpret_cast<const T *>(chis) + slot * kBlock + group * kLanes); }

    // chi2(freedom) = 2 gamma(freedom / 2) as Marsaglia and Tsang (2000) draw it. Shape 1/2 is below what they
    // allow and comes from shape 3/2 times the square of a uniform.
    struct Gamma {
        V c, slope, single;
        explicit Gamma(V freedom) {
            single = freedom < T(1.5) ? splat(T(1)) : splat(T(0));
            c = freedom * T(0.5) - T(1) / T(3) + single;
            slope = T(1) / (T(3) * square_root(c));
        }
    };

    // One attempt in every lane; returns which lanes succeeded. The test of the paper, x^2/2 + c - c v^3 + c log v^3
    // with v = 1 + e, is written as 3c (log v - e + e^2/2 - e^3/3): its large terms have been cancelled by hand.
    RF_INLINE Bits try_chi(Words sequence, Words slot, const Gamma &gamma, std::uint32_t attempt, V &value) const {
        Words r[4];
        random_words(law.key, sequence, slot, Use::chi, attempt, r);
        V x, unused;
        normals(r[0], r[1], x, unused);
        const V v = T(1) + x * gamma.slope;
        const V e = v - T(1), x2 = x * x, u = uniform(r[2]), boost = uniform(r[3]);
        const auto positive = v > T(0);
        const V log_v = logarithm(positive ? v : splat(T(1)));
        const V bound = T(3) * gamma.c * (log_v - e * (T(1) - e * (T(0.5) - e * (T(1) / T(3)))));
        const auto quick = u < T(1) - T(0.0331) * x2 * x2;
        value = T(2) * gamma.c * v * v * v * (gamma.single > T(0) ? boost * boost : splat(T(1)));
        return positive & (quick | (logarithm(u) < bound));
    }

    // chi[slot][s] of sequence s, with the degrees of freedom that `freedom` tells; 0 where there are none. Failures are
    // collected and tried again together, so that a rejected lane does not hold up the others.
    void draw_chi(std::uint32_t first, const std::int64_t *counts, int count) {
        T *const chi = reinterpret_cast<T *>(chis);
        std::int32_t *const retry = reinterpret_cast<std::int32_t *>(retries);
        Size failures = 0;
        const auto tokens = [&](int s) { return counts && s < count ? counts[s] : n; };
        const auto draw_slot = [&](Size slot) {
            const Gamma fixed(splat(T(freedom(slot, n))));
            for (int s = 0; s < kBlock; s += kLanes) {
                V value;
                Gamma gamma = fixed;
                if (counts) {
                    V degrees{};
                    for (int k = 0; k < kLanes; ++k) degrees[k] = T(freedom(slot, tokens(s + k)));
                    gamma = Gamma(degrees > T(0) ? degrees : splat(T(1)));
                }
                const auto good = try_chi(lanes(first + std::uint32_t(s)), Words{} + std::uint32_t(slot), gamma, 0, value);
                store(chi + slot * kBlock + s, value);
                for (int k = 0; k < kLanes; ++k) {
                    if (counts && freedom(slot, tokens(s + k)) <= 0) {
                        chi[slot * kBlock + s + k] = T(0);
                        continue;
                    }
                    retry[failures] = std::int32_t(slot * kBlock + s + k);
                    failures += good[k] == 0;
                }
            }
        };
        for (Size slot = 0; slot < m; ++slot) draw_slot(slot);
        for (Size slot = d; slot < (ones ? d + 3 : d + 1); ++slot) {
            if (freedom(slot, n) > 0) draw_slot(slot);
            else for (int s = 0; s < kBlock; ++s) chi[slot * kBlock + s] = T(0);
        }
        for (std::uint32_t attempt = 1; failures > 0; ++attempt) {
            Size still = 0;
            for (Size from = 0; from < failures; from += kLanes) {
                std::int32_t cell[kLanes];
                Words sequence, slot;
                V degrees{}, value;
                for (int k = 0; k < kLanes; ++k) {
                    cell[k] = retry[from + k < failures ? from + k : from];
                    slot[k] = std::uint32_t(cell[k] / kBlock);
                    sequence[k] = first + std::uint32_t(cell[k] % kBlock);
                    degrees[k] = T(freedom(cell[k] / kBlock, tokens(cell[k] % kBlock)));
                }
                const auto good = try_chi(sequence, slot, Gamma(degrees), attempt, value);
                for (int k = 0; k < kLanes && from + k < failures; ++k) {
                    if (good[k]) chi[cell[k]] = value[k];
                    else retry[still++] = cell[k];
                }
            }
            failures = still;
        }
    }
};

}  // namespace
}  // namespace ridgeformer
