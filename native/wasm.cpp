// The core in a browser: Diag and GD++ models on isotropic problems, on one thread.
//
// Compiled once per type of number, as kernels.cpp is, by native/wasm.py. Every function has the name of its type at the
// end, such as step_float. Nothing is checked here: the page is the only caller. Arrays have the sequence index last, as
// in kernels.hpp, and a null pointer means that something is not wanted.
#include <cstdlib>

#include "diag.hpp"
#include "sampler.hpp"

#define RF_JOIN_(a, b) a##_##b
#define RF_JOIN(a, b) RF_JOIN_(a, b)
#define RF_TEXT_(a) #a
#define RF_TEXT(a) RF_TEXT_(a)
#define RF_EXPORT(result, name) \
    extern "C" __attribute__((export_name(RF_TEXT(RF_JOIN(name, RF_SCALAR))))) result RF_JOIN(name, RF_SCALAR)

namespace ridgeformer {
namespace {

using Unsigned = std::uint32_t;

Watch unwatched() {
    return Watch{[](void *) { return false; }, nullptr};
}

// Scratch memory, which only grows.
void *scratch(std::size_t vectors) {
    static void *memory = nullptr;
    static std::size_t size = 0;
    if (vectors > size) {
        std::free(memory);
        memory = std::aligned_alloc(64, (vectors * sizeof(V) + 63) / 64 * 64);
        size = vectors;
    }
    return memory;
}

Law<T> isotropic(Size dim, Size context, const Key &key) {
    Law<T> law;
    law.dim = law.rank = dim;
    law.context = law.shortest = context;
    law.key = key;
    return law;
}

Model<T> diagonal(Size dim, Size layers, const T *omega) {
    Model<T> model;
    model.dim = model.counted = dim;
    model.layers = layers;
    model.heads = 1;
    model.omega = omega;
    return model;
}

// Fills a block of sequences with fill(offset, count, memory), then runs the model on it, block after block. The gradient
// becomes the sum over sequences, added in the order in which core.cpp adds. Returns how many sequences are limited.
template <class Network, class Fill>
double differentiate_all(const Model<T> &model, std::size_t filling, Size size, Target target, const Outcome<T> &out,
                         const Fill &fill) {
    const std::size_t work = Network::vectors(model), length = model.gradient_size();
    const std::size_t before = Block::vectors(model.dim, false);
    void *const memory = scratch(before + (work > filling ? work : filling));
    double *const partial = out.gradient ? static_cast<double *>(std::calloc(length + 1, sizeof(double))) : nullptr;
    double limited = 0;
    for (std::size_t i = 0; partial && i < length; ++i) out.gradient[i] = 0;
    for (Size at = 0; at < size; at += kBlock) {
        const int count = int(size - at < kBlock ? size - at : kBlock);
        fill(at, count, memory);
        const Block block(memory, model.dim, false);
        Watch watch = unwatched();
        Network network(block.end(), model, watch);
        Outcome<T> mine = out;
        mine.gradient = partial;
        differentiate_block(network, block, target, at, count, mine);
        if (!partial) continue;
        for (std::size_t i = 0; i < length; ++i) out.gradient[i] += partial[i];
        limited += partial[length];
    }
    std::free(partial);
    return limited;
}

// d = 10 has a kernel of its own, as in kernels.cpp.
template <class Fill>
double differentiate(const Model<T> &model, std::size_t filling, Size size, Target target, const Outcome<T> &out,
                     const Fill &fill) {
    if (model.dim == 10) return differentiate_all<Diag<Known<10>>>(model, filling, size, target, out, fill);
    return differentiate_all<Diag<>>(model, filling, size, target, out, fill);
}

}  // namespace

// Random numbers in (0, 1), one per sequence; word is 0 to 3.
RF_EXPORT(void, uniforms)(Unsigned seed, Unsigned stream, Unsigned step, Unsigned first, int count, int word, T *out) {
    uniforms(Key{seed, step, stream}, first, count, word, out);
}

// Moments of random sequences with the noise levels sigma [size]: gram [D][D][size], task and ridge [d][size].
RF_EXPORT(void, sample)(int dim, int context, Unsigned seed, Unsigned stream, Unsigned step, Unsigned first, int size,
                        const double *sigma, T *gram, T *task, T *ridge) {
    const Law<T> law = isotropic(dim, context, Key{seed, step, stream});
    const Batch<T> batch{size, gram, task, ridge, nullptr, dim};
    void *const memory = scratch(Block::vectors(dim, false) + Sampler::vectors(law));
    Watch watch = unwatched();
    for (int at = 0; at < size; at += kBlock) {
        const int count = size - at < kBlock ? size - at : kBlock;
        draw(memory, law, Layout{}, std::int64_t(first) + at, at, count, sigma + at, watch);
        store_block(memory, dim, at, count, batch, watch);
    }
}

// Losses [size] of omega [layers][4] on given contexts, compared with target [d][size]; weights [d][size] and gradient
// [layers][4], the sum over sequences, if wanted.
RF_EXPORT(double, evaluate)(int dim, int layers, const T *omega, int size, T *gram, T *target, double ceiling, T *losses,
                            T *weights, double *gradient) {
    const Batch<T> batch{size, gram, target, nullptr, nullptr, dim};
    const Outcome<T> out{size, losses, nullptr, weights, gradient, ceiling};
    Watch watch = unwatched();
    return differentiate(diagonal(dim, layers, omega), 0, size, Target::task, out, [&](Size at, int count, void *memory) {
        load_block(memory, dim, at, count, batch, watch);
    });
}

// `sample` and `evaluate` in one, without storing the moments: compared with the ridge solution if `ridge`, else with the
// task, with which `unadjusted` [size] always compares.
RF_EXPORT(double, step)(int dim, int context, Unsigned seed, Unsigned stream, Unsigned step, Unsigned first, int size,
                        const double *sigma, int layers, const T *omega, int ridge, double ceiling, T *losses,
                        T *unadjusted, double *gradient) {
    const Law<T> law = isotropic(dim, context, Key{seed, step, stream});
    const Outcome<T> out{size, losses, unadjusted, nullptr, gradient, ceiling};
    const Target target = ridge ? Target::ridge : Target::task;
    Watch watch = unwatched();
    return differentiate(diagonal(dim, layers, omega), Sampler::vectors(law), size, target, out,
                         [&](Size at, int count, void *memory) {
                             draw(memory, law, Layout{}, std::int64_t(first) + at, at, count, sigma + at, watch);
                         });
}

}  // namespace ridgeformer
