// What one instruction set offers to the module: plain functions over plain structs.
//
// kernels.cpp is compiled once per instruction set and fills one table; core.cpp, compiled for the
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

struct Task {
    std::int64_t dim = 0;      // d
    std::int64_t context = 0;  // n
    Key key;
};

enum class Target { task, ridge };

// Diag and GD++: omega[layers][4] = xx, xy, yx, yy. Full: P, Q and their transposes,
// [layers][heads][D][D]; omega is null then.
template <class T>
struct Model {
    std::int64_t dim = 0, layers = 0, heads = 0;
    const T *omega = nullptr;
    const T *P = nullptr, *Q = nullptr, *PT = nullptr, *QT = nullptr;

    std::size_t gradient_size() const {
        const std::size_t D = std::size_t(dim) + 1;
        return omega ? std::size_t(layers) * 4 : 2 * std::size_t(layers) * std::size_t(heads) * D * D;
    }
};

// A whole batch, sequence index last: gram[D][D][batch], vectors[d][batch]. Null means absent.
template <class T>
struct Batch {
    std::int64_t size = 0;
    T *gram = nullptr, *task = nullptr, *ridge = nullptr;
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
    T *plain = nullptr;          // [batch], losses against the task whatever the target is, or null
    T *weights = nullptr;        // [d][batch], or null
    double *gradient = nullptr;  // [gradient_size + 1], or null
    double ceiling = 0;
};

template <class T>
struct Functions {
    // Bytes of scratch memory one thread needs, aligned to 64; model may be null.
    std::size_t (*scratch_bytes)(std::int64_t dim, const Model<T> *model);
    // A block of `count` <= kBlock sequences starting at `first` goes into scratch memory ...
    void (*draw)(void *scratch, const Task &, std::int64_t first, int count, const double *sigma, Watch &);
    void (*load)(void *scratch, std::int64_t dim, std::int64_t offset, int count, const Batch<T> &, const T *target,
                 Watch &);
    // ... and from there to arrays, or through a model.
    void (*store)(const void *scratch, std::int64_t dim, std::int64_t offset, int count, const Batch<T> &, Watch &);
    void (*differentiate)(void *scratch, const Model<T> &, Target, std::int64_t offset, int count, const Outcome<T> &,
                          Watch &);
};

struct InstructionSet {
    const char *name;
    int lanes;  // float lanes of a vector
    Functions<float> f32;
    Functions<double> f64;
    // Multiply-adds in registers, nothing else: what `ridgeformer bench` calls the machine's peak.
    double (*peak)(std::int64_t rounds, double *flops);
    void (*uniforms)(const Key &, std::int64_t first, std::int64_t count, double *out);
};

}  // namespace ridgeformer
