// Moments of random sequences by Bartlett's decomposition, at a cost that does not depend on n.
//
// X = Q R with R upper triangular has S = X'X = A A', A = R', A_ii^2 ~ chi2(n - i), A_ij ~ N(0, 1);
// with t = Q'y = A'w + sigma z:  X'y = A t  and  y'y = |t|^2 + sigma^2 chi2(n - d). For n < d, A is d x n.
#pragma once
#include "threefry.hpp"

namespace ridgeformer {
namespace {

// Puts the pieces that a `lay_out` names one after the other, and notes their addresses in an object.
template <class Object, class V>
auto placing(Object &object, V *memory) {
    return [&object, memory](V *Object::*piece, Size count) mutable {
        object.*piece = memory;
        memory += count;
    };
}

// How many vectors a `lay_out` names in all.
template <class Object, class... Sizes>
std::size_t count_vectors(Sizes... sizes) {
    std::size_t total = 0;
    Object::lay_out(sizes..., [&total](auto, Size count) { total += std::size_t(count); });
    return total;
}

// A block on its way from a source (random numbers or arrays) to a consumer, lanes innermost.
template <class T>
struct Block {
    static constexpr int kGroups = kBlock / kLanes<T>;
    Size dim, cells;  // of each group: the packed lower triangle of its Gram matrices, y last; then its tasks, its ridge weights
    Vec<T> *memory;

    static Size triangle(Size d) { return (d + 1) * (d + 2) / 2; }
    static Size stride(Size d) { return triangle(d) + 2 * d; }
    static std::size_t vectors(Size d) { return std::size_t(kGroups) * std::size_t(stride(d)); }
    Block(void *scratch, Size d) : dim(d), cells(triangle(d)), memory(static_cast<Vec<T> *>(scratch)) {}

    Vec<T> *gram(int group) const { return memory + group * stride(dim); }
    Vec<T> *task(int group) const { return gram(group) + cells; }
    Vec<T> *ridge(int group) const { return task(group) + dim; }
    Vec<T> *end() const { return gram(kGroups); }
};

template <class T>
struct Sampler {
    using V = Vec<T>;
    const Task &task;
    Watch &watch;
    const Size d, n, m;  // m = min(n, d): the columns of A
    V *A, *N, *w, *z, *t;
    V *chis, *retries;
    T *const chi;               // chis, [m + 1][kBlock]
    std::int32_t *const retry;  // retries: cells of chi that are still to be drawn

    // See Diag::lay_out.
    template <class Take>
    static void lay_out(Size d, Take take) {
        const Size draws = (d + 1) * kBlock, vector = sizeof(V);
        take(&Sampler::A, d * d);
        take(&Sampler::N, d * d);
        take(&Sampler::w, d);
        take(&Sampler::z, d);
        take(&Sampler::t, d);
        take(&Sampler::chis, draws * Size(sizeof(T)) / vector);  // kBlock is a multiple of a vector's lanes
        take(&Sampler::retries, (draws * Size(sizeof(std::int32_t)) + vector - 1) / vector);
    }
    static std::size_t vectors(Size d) { return count_vectors<Sampler>(d); }

    Sampler(V *memory, const Task &task_, Watch &watch_)
        : task(task_), watch(watch_), d(task_.dim), n(task_.context), m(n < d ? n : d),
          chi((lay_out(d, placing(*this, memory)), reinterpret_cast<T *>(chis))),
          retry(reinterpret_cast<std::int32_t *>(retries)) {}

    Counter counter(Size depth) const { return {watch, depth}; }

    // chi2(freedom) = 2 gamma(freedom / 2) as Marsaglia and Tsang (2000) draw it. Shape 1/2 is below what they
    // allow and comes from shape 3/2 times the square of a uniform.
    struct Gamma {
        V c, slope, single;
        explicit Gamma(V freedom) {
            single = freedom < T(1.5) ? splat<T>(T(1)) : splat<T>(T(0));
            c = freedom * T(0.5) - T(1) / T(3) + single;
            slope = T(1) / (T(3) * square_root<T>(c));
        }
    };

    // One attempt in every lane; returns which lanes succeeded. The test of the paper, x^2/2 + c - c v^3 + c log v^3
    // with v = 1 + e, is written as 3c (log v - e + e^2/2 - e^3/3): its large terms have been cancelled by hand.
    RF_INLINE Bits<T> try_chi(Words<T> sequence, Words<T> slot, const Gamma &law, std::uint32_t attempt, V &value) const {
        Words<T> r[4];
        random_words(task.key, sequence, slot, Use::chi, attempt, r);
        V x, unused;
        normals<T>(r[0], r[1], x, unused);
        const V v = T(1) + x * law.slope;
        const V e = v - T(1), x2 = x * x, u = uniform<T>(r[2]), boost = uniform<T>(r[3]);
        const auto positive = v > T(0);
        const V log_v = logarithm<T>(positive ? v : splat<T>(T(1)));
        const V bound = T(3) * law.c * (log_v - e * (T(1) - e * (T(0.5) - e * (T(1) / T(3)))));
        const auto quick = u < T(1) - T(0.0331) * x2 * x2;
        value = T(2) * law.c * v * v * v * (law.single > T(0) ? boost * boost : splat<T>(T(1)));
        return positive & (quick | (logarithm<T>(u) < bound));
    }

    // chi[i][s]: chi2(n - i) of sequence s, and for i = m chi2(n - d). Failures are collected and tried again
    // together, so that a rejected lane does not hold up the others.
    void draw_chi(std::uint32_t first) {
        const Size kinds = n > d ? d + 1 : m;
        Words<T> lane;
        for (int i = 0; i < kLanes<T>; ++i) lane[i] = std::uint32_t(i);
        Size failures = 0;
        for (Size i = 0; i < kinds; ++i) {
            const Gamma law(splat<T>(T(n - i)));
            for (int s = 0; s < kBlock; s += kLanes<T>) {
                V value;
                const auto good = try_chi(lane + (first + std::uint32_t(s)), Words<T>{} + std::uint32_t(i), law, 0, value);
                store<T>(chi + i * kBlock + s, value);
                for (int k = 0; k < kLanes<T>; ++k) {
                    retry[failures] = std::int32_t(i * kBlock + s + k);
                    failures += good[k] == 0;
                }
            }
        }
        for (std::uint32_t attempt = 1; failures > 0; ++attempt) {
            Size still = 0;
            for (Size from = 0; from < failures; from += kLanes<T>) {
                std::int32_t cell[kLanes<T>];
                Words<T> sequence, slot;
                V freedom, value;
                for (int k = 0; k < kLanes<T>; ++k) {
                    cell[k] = retry[from + k < failures ? from + k : from];
                    slot[k] = std::uint32_t(cell[k] / kBlock);
                    sequence[k] = first + std::uint32_t(cell[k] % kBlock);
                    freedom[k] = T(n - cell[k] / kBlock);
                }
                const auto good = try_chi(sequence, slot, Gamma(freedom), attempt, value);
                for (int k = 0; k < kLanes<T> && from + k < failures; ++k) {
                    if (good[k]) chi[cell[k]] = value[k];
                    else retry[still++] = cell[k];
                }
            }
            failures = still;
        }
    }

    // The normals of one group, four a call: A below its diagonal row by row, then w, then z.
    void draw_normals(std::uint32_t first, int group) {
        Words<T> sequence;
        for (int i = 0; i < kLanes<T>; ++i) sequence[i] = first + std::uint32_t(group * kLanes<T> + i);
        Size row = 1, column = 0, left = 0;
        V four[4];
        std::uint32_t slot = 0;
        const auto next = [&]() -> V {
            if (left == 0) {
                Words<T> r[4];
                random_words(task.key, sequence, Words<T>{} + slot++, Use::normals, 0, r);
                normals<T>(r[0], r[1], four[3], four[2]);
                normals<T>(r[2], r[3], four[1], four[0]);
                left = 4;
            }
            return four[--left];
        };
        for (; row < d; ++row)
            for (column = 0; column < (row < m ? row : m); ++column) A[row * d + column] = next();
        for (Size i = 0; i < d; ++i) w[i] = next();
        for (Size i = 0; i < m; ++i) z[i] = next();
    }

    // Cholesky of the lower triangle of N (size m), then N x = b in place of b.
    void solve(V *b) {
        for (Size j = 0; j < m; ++j) {
            if (counter(j).stop(m - j)) return;
            V pivot = N[j * d + j];
            const V least = pivot * (sizeof(T) == 4 ? T(1e-7) : T(2e-16));
            for (Size k = 0; k < j; ++k) pivot -= N[j * d + k] * N[j * d + k];
            pivot = pivot > least ? pivot : least;  // singular to working precision: stay finite
            const V inverse = T(1) / square_root<T>(pivot);
            N[j * d + j] = inverse;
            for (Size i = j + 1; i < m; ++i) {
                V x = N[i * d + j];
                for (Size k = 0; k < j; ++k) x -= N[i * d + k] * N[j * d + k];
                N[i * d + j] = x * inverse;
            }
        }
        for (Size i = 0; i < m; ++i) {
            for (Size k = 0; k < i; ++k) b[i] -= N[i * d + k] * b[k];
            b[i] *= N[i * d + i];
        }
        for (Size i = m; i-- > 0;) {
            for (Size k = i + 1; k < m; ++k) b[i] -= N[k * d + i] * b[k];
            b[i] *= N[i * d + i];
        }
    }

    // E[w | context, sigma]. For n >= d as w + (S + sigma^2)^-1 sigma (A z - sigma w), which is exact at sigma = 0;
    // for n < d as A (A'A + sigma^2)^-1 t, which needs no S^-1.
    void ridge(const V *S, V sigma, V *out) {
        V *b = z;
        if (n >= d) {
            for (Size i = d; i-- > 0;) {
                V Az{};
                for (Size k = 0; k <= i; ++k) Az += A[i * d + k] * z[k];
                b[i] = sigma * (Az - sigma * w[i]);
                for (Size j = 0; j <= i; ++j) N[i * d + j] = S[packed(i, j)];
                N[i * d + i] += sigma * sigma;
            }
            solve(b);
            for (Size i = 0; i < d; ++i) out[i] = w[i] + b[i];
            return;
        }
        for (Size i = 0; i < m; ++i) {
            if (counter(d - i).stop(i + 1)) return;
            b[i] = t[i];
            for (Size j = 0; j <= i; ++j) {
                V x{};
                for (Size k = i; k < d; ++k) x += A[k * d + i] * A[k * d + j];
                N[i * d + j] = x;
            }
            N[i * d + i] += sigma * sigma;
        }
        solve(b);
        for (Size i = 0; i < d; ++i) {
            V x{};
            for (Size k = 0; k <= (i < m ? i : m - 1); ++k) x += A[i * d + k] * b[k];
            out[i] = x;
        }
    }

    void draw_group(std::uint32_t first, int group, const double *sigmas, int count, const Block<T> &block) {
        V *G = block.gram(group);
        V sigma{};
        for (int k = 0; k < kLanes<T>; ++k) {
            const int s = group * kLanes<T> + k;
            sigma[k] = s < count ? T(sigmas[s]) : T(0);
        }
        draw_normals(first, group);
        for (Size i = 0; i < m; ++i) A[i * d + i] = square_root<T>(load<T>(chi + i * kBlock + group * kLanes<T>));
        V squared{};
        for (Size k = 0; k < m; ++k) {
            V x = sigma * z[k];
            for (Size i = k; i < d; ++i) x += A[i * d + k] * w[i];
            t[k] = x;
            squared += x * x;
        }
        if (n > d) squared += sigma * sigma * load<T>(chi + d * kBlock + group * kLanes<T>);
        for (Size i = 0; i < d; ++i) {
            if (counter(i).stop(i / 2)) return;
            V a{};
            for (Size k = 0; k <= (i < m ? i : m - 1); ++k) a += A[i * d + k] * t[k];
            G[packed(d, i)] = a;
            for (Size j = 0; j <= i; ++j) {
                V x{};
                for (Size k = 0; k <= (j < m ? j : m - 1); ++k) x += A[i * d + k] * A[j * d + k];
                G[packed(i, j)] = x;
            }
            block.task(group)[i] = w[i];
        }
        G[packed(d, d)] = squared;
        ridge(G, sigma, block.ridge(group));
    }
};

// Lanes past `count` become empty contexts: no model gets anything but zero loss and zero gradient from them.
template <class T>
void clear_lanes(const Block<T> &block, int count) {
    for (int group = count / kLanes<T>; group < Block<T>::kGroups; ++group)
        for (int k = group * kLanes<T> >= count ? 0 : count % kLanes<T>; k < kLanes<T>; ++k)
            for (Vec<T> *v = block.gram(group); v < block.gram(group + 1); ++v) (*v)[k] = T(0);
}

template <class T>
void draw(void *scratch, const Task &task, std::int64_t first, int count, const double *sigma, Watch &watch) {
    const Block<T> block(scratch, task.dim);
    Sampler<T> sampler(block.end(), task, watch);
    sampler.draw_chi(std::uint32_t(first));
    for (int group = 0; group * kLanes<T> < count; ++group) {
        if (stopped(watch, 16 * task.dim * task.dim)) return;  // of which the random numbers are most
        sampler.draw_group(std::uint32_t(first), group, sigma, count, block);
    }
    clear_lanes(block, count);
}

template <class T>
void load_block(void *scratch, Size d, Size offset, int count, const Batch<T> &batch, const T *target, Watch &watch) {
    const Block<T> block(scratch, d);
    const Size D = d + 1;
    const auto copy = [&](Vec<T> *to, const T *from, int group) {
        const int lanes = count - group * kLanes<T>;
        *to = Vec<T>{};
        std::memcpy(to, from + offset + group * kLanes<T>, sizeof(T) * std::size_t(lanes < kLanes<T> ? lanes : kLanes<T>));
    };
    for (int group = 0; group * kLanes<T> < count; ++group) {
        if (stopped(watch, D * D)) return;
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j <= i; ++j) copy(block.gram(group) + packed(i, j), batch.gram + (i * D + j) * batch.size, group);
        for (Size i = 0; i < d; ++i) copy(block.task(group) + i, target + i * batch.size, group);
    }
    clear_lanes(block, count);
}

template <class T>
void store_block(const void *scratch, Size d, Size offset, int count, const Batch<T> &batch, Watch &watch) {
    const Block<T> block(const_cast<void *>(scratch), d);
    const Size D = d + 1;
    const auto copy = [&](T *to, const Vec<T> &from, int group) {
        const int lanes = count - group * kLanes<T>;
        std::memcpy(to + offset + group * kLanes<T>, &from, sizeof(T) * std::size_t(lanes < kLanes<T> ? lanes : kLanes<T>));
    };
    for (int group = 0; group * kLanes<T> < count; ++group) {
        if (stopped(watch, D * D)) return;
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j < D; ++j)
                copy(batch.gram + (i * D + j) * batch.size, block.gram(group)[i >= j ? packed(i, j) : packed(j, i)], group);
        for (Size i = 0; i < d; ++i) {
            copy(batch.task + i * batch.size, block.task(group)[i], group);
            copy(batch.ridge + i * batch.size, block.ridge(group)[i], group);
        }
    }
}

}  // namespace
}  // namespace ridgeformer
