// What one instruction set offers to the module: plain functions over plain structs.
//
// kernels.cpp is compiled once per instruction set and type of number, and fills one table; core.cpp, compiled for the
// baseline only, picks a table and owns everything else (threads, memory, checks, Python).
#pragma once
#include <cstddef>
#include <cstdint>

namespace ridgeformer {

// Sequences per block: the unit of work of a thread, and of the order of summation.
constexpr int kBlock = 64;

// Names one stream of random numbers. A sequence's numbers depend on this and on its own index only.
struct Key {
    std::uint64_t seed = 0;
    std::uint64_t step = 0;
    std::uint32_t stream = 0;
};

// How the covariance of the features comes about: the same for all sequences, a spectrum in a random basis, or the
// correlations of a random factor model.
enum class Covariance { fixed, rotated, factors };

// What sequences are drawn from: features x ~ N(0, Lambda), Lambda = C C', and tasks w = mean + F g with g ~ N(0, I), or
// one of a pool. Null means absent.
template <class T>
struct Law {
    std::int64_t dim = 0;                   // d
    std::int64_t context = 0, shortest = 0; // the largest and the smallest n
    Key key;
    Covariance covariance = Covariance::fixed;
    const T *factor = nullptr;       // fixed: C, lower triangle, [d][d]; rotated: roots of the spectrum, [d]
    std::int64_t factors = 0;        // how many common factors
    T unique = 0, spread = 0;        // unique variance of factor models; spread of the logarithm of random scales
    bool standardised = false;       // each feature has mean 0 and variance 1 within its context
    const T *mean = nullptr;         // of the tasks, [d]
    const T *task_factor = nullptr;  // F, [d][rank]
    std::int64_t rank = 0;           // of the tasks: d without F
    const T *pool = nullptr;         // [pool_size][d]
    std::int64_t pool_size = 0;
    const T *metric = nullptr;       // covariance of the queries, [d][d], where it is the same for all sequences
    bool own_metric = false;         // each sequence has its own: that of its features
    const std::int64_t *counts = nullptr;  // n of each sequence of the batch
    const std::int64_t *choice = nullptr;  // which task of the pool; -1 for a new one
};

// What a token holds beside x and y, and whether attention is a sum or a mean over tokens.
enum class Coordinate { none, constant, length };
struct Layout {
    bool mean = false;
    Coordinate coordinate = Coordinate::none;
    std::int64_t scratch = 0;  // coordinates that start at zero

    std::int64_t extra() const { return scratch + (coordinate != Coordinate::none); }
};
constexpr double kReference = 20;  // n at which the coordinate that shows n is 1

enum class Target { task, ridge };

// Diag and GD++: omega[layers][4] = xx, xy, yx, yy. Full: P, Q and their transposes, [layers][heads][D][D]; omega is null
// then. Channels: how P and Q mix v vectors and s scalars, [layers][heads][v][v] and [layers][heads][s][s]; tokens are x,
// the scalars beside y, the vectors beside x, y.
template <class T>
struct Model {
    std::int64_t dim = 0, layers = 0, heads = 0;
    std::int64_t counted = 0;  // coordinates whose weights enter the loss: the first ones
    bool metric = false;       // whether blocks hold a metric for the loss; without one it is the identity
    const T *omega = nullptr;
    const T *P = nullptr, *Q = nullptr, *PT = nullptr, *QT = nullptr;
    std::int64_t vectors = 0, scalars = 0;  // 0 without channels
    const T *Pv = nullptr, *Qv = nullptr, *Ps = nullptr, *Qs = nullptr;
    const T *maps = nullptr;  // with one vector, [layers][1 + 4 s s]: sums over heads, see channels.hpp

    std::size_t gradient_size() const {
        const std::size_t D = std::size_t(dim) + 1;
        if (scalars) return 2 * std::size_t(layers * heads * (vectors * vectors + scalars * scalars));
        return omega ? std::size_t(layers) * 4 : 2 * std::size_t(layers) * std::size_t(heads) * D * D;
    }
};

// A whole batch, sequence index last: gram[D][D][batch], vectors[d][batch], metric[m][m][batch]. Null means absent.
template <class T>
struct Batch {
    std::int64_t size = 0;
    T *gram = nullptr, *task = nullptr, *ridge = nullptr, *metric = nullptr;
    std::int64_t vector = 0;        // d, the length of task, ridge and metric
    bool shared_metric = false;  // one metric [m][m] for all
};

// Lets a long computation end early. Work is counted in multiply-adds of vectors; after every million of them
// stop(state) says whether the call is to end. If so, all loops that count end at once, and what they leave behind is
// meaningless: the caller must throw it away.
struct Watch {
    bool (*stop)(void *state) = nullptr;
    void *state = nullptr;
    std::int64_t work = 0;  // since stop was last asked
};

// What differentiating a block gives. gradient (null: value only) is this block's sum over sequences, then how many
// are limited: those whose loss exceeds the ceiling, which count at a reduced size, and those whose loss or gradient
// is not finite, which stay out of it.
template <class T>
struct Outcome {
    std::int64_t size = 0;       // of the batch, the stride of weights
    T *losses = nullptr;         // [batch]
    T *unadjusted = nullptr;     // [batch], losses against the task whatever the target is, or null
    T *weights = nullptr;        // [counted][batch], or null
    double *gradient = nullptr;  // [gradient_size + 1], or null
    double ceiling = 0;
};

template <class T>
struct Functions {
    int lanes;  // of a vector
    // Bytes of scratch memory one thread needs, aligned to 64, for Gram matrices of `dim` coordinates beside y; model and
    // law may be null.
    std::size_t (*scratch_bytes)(std::int64_t dim, const Model<T> *model, const Law<T> *law);
    // A block of `count` <= kBlock sequences goes into scratch memory: those of the batch from `offset` on, whose random
    // numbers are those of sequence `first` on ...
    void (*draw)(void *scratch, const Law<T> &, const Layout &, std::int64_t first, std::int64_t offset, int count,
                 const double *sigma, Watch &);
    void (*load)(void *scratch, std::int64_t dim, std::int64_t offset, int count, const Batch<T> &, Watch &);
    // ... and from there to arrays, or through a model.
    void (*store)(const void *scratch, std::int64_t dim, std::int64_t offset, int count, const Batch<T> &, Watch &);
    void (*differentiate)(void *scratch, const Model<T> &, Target, std::int64_t offset, int count, const Outcome<T> &,
                          Watch &);
    // Random numbers in (0, 1), one per sequence, of which there are four kinds: words 0 to 3.
    void (*uniforms)(const Key &, std::int64_t first, std::int64_t count, int word, T *out);
    // Multiply-adds in registers, nothing else: what `ridgeformer bench` calls the machine's peak.
    double (*peak)(std::int64_t rounds, double *flops);
};

struct InstructionSet {
    const char *name;
    const Functions<float> &f32;
    const Functions<double> &f64;
};

}  // namespace ridgeformer
