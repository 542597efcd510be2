// The Python module: checks every argument, picks an instruction set, spreads blocks over threads and adds
// their results up in a fixed order.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels.hpp"
#include "memory.hpp"
#include "threads.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace ridgeformer {

extern const InstructionSet baseline;
#if defined(RF_X86)
extern const InstructionSet avx2;
extern const InstructionSet avx512;
#endif

namespace {

using Input = nb::ndarray<nb::ro>;
using Output = nb::ndarray<>;
using std::int64_t;
using std::size_t;

// Larger shapes would not fit in any memory; refusing them keeps every product of sizes below 2^63.
constexpr int64_t kMaxDim = 4096, kMaxLayers = 1 << 16, kMaxHeads = 1 << 12, kMaxBatch = int64_t(1) << 32;
constexpr int64_t kMaxContext = int64_t(1) << 52;
constexpr int kMaxThreads = 1024;

// ---- instruction sets -----------------------------------------------------------------------------

std::vector<const InstructionSet *> available() {
    std::vector<const InstructionSet *> sets;
#if defined(RF_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw"))
        sets.push_back(&avx512);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back(&avx2);
#endif
    sets.push_back(&baseline);
    return sets;
}

const InstructionSet &instruction_set(const std::string &name) {
    for (const InstructionSet *set : available())
        if (name == set->name) return *set;
    throw nb::value_error(("instruction set must be one this CPU has, got '" + name + "'").c_str());
}

template <class T>
const Functions<T> &functions(const InstructionSet &set);
template <>
const Functions<float> &functions(const InstructionSet &set) {
    return set.f32;
}
template <>
const Functions<double> &functions(const InstructionSet &set) {
    return set.f64;
}

// ---- checks ---------------------------------------------------------------------------------------

[[noreturn]] void refuse(const std::string &message) { throw nb::value_error(message.c_str()); }

int64_t in_range(const char *name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
        refuse(std::string(name) + " must be between " + std::to_string(low) + " and " + std::to_string(high) + ", got " +
               std::to_string(value));
    return value;
}

template <class Array>
std::string shape_of(const Array &array) {
    std::string text = "(";
    for (size_t i = 0; i < array.ndim(); ++i) text += (i ? ", " : "") + std::to_string(array.shape(i));
    return text + ")";
}

// The array's memory, once its dtype, shape, order and alignment are what the kernels rely on.
template <class T, class Array>
auto memory(const char *name, const Array &array, std::initializer_list<int64_t> shape) {
    if (!array.is_valid()) refuse(std::string(name) + " must be an array, got None");
    if (array.dtype() != nb::dtype<T>()) refuse(std::string(name) + " must have the dtype of the other arrays");
    bool fits = array.ndim() == shape.size();
    size_t axis = 0;
    std::string expected = "(";
    for (int64_t extent : shape) {
        expected += (axis ? ", " : "") + std::to_string(extent);
        fits = fits && int64_t(array.shape(axis)) == extent;
        ++axis;
    }
    if (!fits) refuse(std::string(name) + " must have shape " + expected + "), got " + shape_of(array));
    int64_t stride = 1;
    for (size_t i = array.ndim(); i-- > 0; stride *= int64_t(array.shape(i)))
        if (array.shape(i) > 1 && array.stride(i) != stride) refuse(std::string(name) + " must be C-contiguous; pass a copy");
    if (array.device_type() != nb::device::cpu::value) refuse(std::string(name) + " must be in the CPU's memory");
    auto *pointer = static_cast<std::conditional_t<std::is_same_v<Array, Input>, const T, T> *>(array.data());
    if (reinterpret_cast<std::uintptr_t>(pointer) % alignof(T)) refuse(std::string(name) + " must be aligned; pass a copy");
    return pointer;
}

template <class Array>
bool is_single(const char *name, const Array &array) {
    if (!array.is_valid()) refuse(std::string(name) + " must be an array, got None");
    if (array.dtype() == nb::dtype<float>()) return true;
    if (array.dtype() == nb::dtype<double>()) return false;
    refuse(std::string(name) + " must have dtype float32 or float64");
}

template <class Array>
int64_t extent(const char *name, const Array &array, size_t ndim, size_t axis) {
    if (!array.is_valid() || array.ndim() != ndim)
        refuse(std::string(name) + " must have " + std::to_string(ndim) + " axes");
    return int64_t(array.shape(axis));
}

// ---- threads --------------------------------------------------------------------------------------

// Ctrl-C, and whatever else a Python signal handler raises. The thread that made the call asks the interpreter now and
// then; its helpers only look whether that has happened. Made and used while the interpreter lock is released.
class Signals {
  public:
    // Whether the call is to end.
    bool stop() {
        if (raised()) return true;
        if (std::this_thread::get_id() != caller_ || Clock::now() < next_) return false;
        {
            nb::gil_scoped_acquire acquire;
            if (PyErr_CheckSignals() != 0) raised_.store(true, std::memory_order_relaxed);
        }
        next_ = Clock::now() + kPause;
        return raised();
    }

    bool raised() const { return raised_.load(std::memory_order_relaxed); }

    // Raises in Python what the handler raised, once all threads have stopped.
    void check() const {
        if (!raised()) return;
        nb::gil_scoped_acquire acquire;
        throw nb::python_error();
    }

    Watch watch() {
        return Watch{[](void *self) { return static_cast<Signals *>(self)->stop(); }, this};
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::milliseconds kPause{50};
    const std::thread::id caller_ = std::this_thread::get_id();
    Clock::time_point next_ = Clock::now() + kPause;
    std::atomic<bool> raised_{false};
};

// One scratch memory and one watch a thread, and every block in [0, blocks) given to exactly one thread, until a signal
// ends the work.
class Team {
  public:
    Team(int threads, int64_t blocks, size_t scratch_bytes) {
        const int64_t wanted = std::max<int64_t>(1, std::min<int64_t>(threads, blocks));
        for (int64_t i = 0; i < wanted; ++i) seats_.push_back({signals_.watch(), Scratch(scratch_bytes)});
    }
    Team(const Team &) = delete;

    // work(block, scratch, watch) for all blocks; throws what a signal handler raised.
    template <class Work>
    void run(int64_t blocks, const Work &work) {
        std::atomic<int64_t> next{0};
        std::atomic<size_t> arrived{0};
        Pool::shared().run(
            int(seats_.size()) - 1,
            [&] {
                Seat &mine = seats_[arrived.fetch_add(1, std::memory_order_relaxed)];
                for (int64_t block; !signals_.raised() && (block = next.fetch_add(1, std::memory_order_relaxed)) < blocks;)
                    work(block, mine.scratch.get(), mine.watch);
            },
            [&] { signals_.stop(); });
        signals_.check();
    }

  private:
    struct alignas(64) Seat {
        Watch watch;
        Scratch scratch;
    };
    Signals signals_;
    std::vector<Seat> seats_;
};

int64_t blocks_of(int64_t batch) { return (batch + kBlock - 1) / kBlock; }
int size_of_block(int64_t batch, int64_t block) { return int(std::min<int64_t>(kBlock, batch - block * kBlock)); }

// ---- models ---------------------------------------------------------------------------------------

// The parameters a kernel reads; Full also needs the transposes, made here once a call.
template <class T>
struct Parameters {
    Model<T> model;
    std::vector<T> transposed;

    Parameters(int64_t dim, const Input &first, const Input &second) {
        model.dim = dim;
        if (!second.is_valid()) {
            model.layers = in_range("layers", extent("omega", first, 3, 0), 1, kMaxLayers);
            model.heads = 1;
            model.omega = memory<T>("omega", first, {model.layers, 2, 2});
            return;
        }
        const int64_t D = dim + 1, cells = D * D;
        model.layers = in_range("layers", extent("P", first, 4, 0), 1, kMaxLayers);
        model.heads = in_range("heads", extent("P", first, 4, 1), 1, kMaxHeads);
        model.P = memory<T>("P", first, {model.layers, model.heads, D, D});
        model.Q = memory<T>("Q", second, {model.layers, model.heads, D, D});
        const int64_t total = model.layers * model.heads * cells;
        transposed.resize(size_t(2 * total));
        for (int64_t at = 0; at < total; at += cells)
            for (int64_t i = 0; i < D; ++i)
                for (int64_t j = 0; j < D; ++j) {
                    transposed[size_t(at + j * D + i)] = model.P[at + i * D + j];
                    transposed[size_t(total + at + j * D + i)] = model.Q[at + i * D + j];
                }
        model.PT = transposed.data();
        model.QT = transposed.data() + total;
    }
    Parameters(const Parameters &) = delete;
};

// So many blocks at a time: memory for partial sums stays bounded.
constexpr int64_t kWave = 64;

// Calls work(block, scratch, watch) for all blocks, wave by wave, and after(how many) after each. The interpreter
// lock is released meanwhile.
template <class Work, class After>
void in_waves(int64_t blocks, int threads, size_t scratch_bytes, const Work &work, const After &after) {
    nb::gil_scoped_release release;
    Team team(threads, blocks, scratch_bytes);
    for (int64_t first = 0; first < blocks; first += kWave) {
        const int64_t now = std::min(kWave, blocks - first);
        team.run(now, [&](int64_t i, void *scratch, Watch &watch) { work(first + i, scratch, watch); });
        after(now);
    }
}

// Runs fill(offset, count, scratch, watch), then the model, over all blocks; gradient becomes the sum over sequences.
// Returns how many of these it does not count in full.
template <class T, class Fill>
int64_t differentiate(const InstructionSet &set, const Model<T> &model, Target target, int64_t batch, int threads,
                      Outcome<T> outcome, const Fill &fill) {
    const Functions<T> &f = functions<T>(set);
    const int64_t blocks = blocks_of(batch);
    const size_t size = outcome.gradient ? model.gradient_size() : 0, row = size + 1;
    double *const total = outcome.gradient;
    const Scratch sums(sizeof(double) * row * size_t(std::min(kWave, blocks)));
    double *const partial = static_cast<double *>(sums.get());
    std::fill_n(total, size, 0.0);
    double limited = 0;
    in_waves(
        blocks, threads, f.scratch_bytes(model.dim, &model),
        [&](int64_t block, void *scratch, Watch &watch) {
            const int count = size_of_block(batch, block);
            Outcome<T> mine = outcome;
            mine.gradient = size ? partial + size_t(block % kWave) * row : nullptr;
            fill(block * kBlock, count, scratch, watch);
            f.differentiate(scratch, model, target, block * kBlock, count, mine, watch);
        },
        [&](int64_t now) {
            for (int64_t i = 0; i < now && size; ++i) {
                for (size_t k = 0; k < size; ++k) total[k] += partial[size_t(i) * row + k];
                limited += partial[size_t(i) * row + size];
            }
        });
    return int64_t(limited);
}

Key make_key(std::uint64_t seed, int64_t stream, std::uint64_t step) {
    return Key{seed, step, std::uint32_t(in_range("stream", stream, 0, (int64_t(1) << 32) - 1))};
}

Task make_task(int64_t dim, int64_t context, const Key &key) {
    return Task{in_range("dim", dim, 1, kMaxDim), in_range("context", context, 1, kMaxContext), key};
}

int64_t check_sequences(int64_t first, int64_t batch) {
    in_range("batch", batch, 1, kMaxBatch);
    return in_range("first", first, 0, kMaxBatch - batch);
}

// ---- entry points ---------------------------------------------------------------------------------

template <class T>
void sample_as(const InstructionSet &set, const Task &task, int64_t first, const Input &sigma, const Output &gram,
               const Output &tasks, const Output &ridge, int threads) {
    const int64_t size = extent("sigma", sigma, 1, 0), d = task.dim, D = d + 1;
    check_sequences(first, size);
    const double *levels = memory<double>("sigma", sigma, {size});
    const Batch<T> batch{size, memory<T>("gram", gram, {D, D, size}), memory<T>("task", tasks, {d, size}),
                         memory<T>("ridge", ridge, {d, size})};
    const Functions<T> &f = functions<T>(set);
    in_waves(
        blocks_of(size), threads, f.scratch_bytes(d, nullptr),
        [&](int64_t block, void *scratch, Watch &watch) {
            const int count = size_of_block(size, block);
            f.draw(scratch, task, first + block * kBlock, count, levels + block * kBlock, watch);
            f.store(scratch, d, block * kBlock, count, batch, watch);
        },
        [](int64_t) {});
}

void sample(const std::string &isa, int64_t dim, int64_t context, std::uint64_t seed, int64_t stream, std::uint64_t step,
            int64_t first, const Input &sigma, const Output &gram, const Output &tasks, const Output &ridge, int threads) {
    const InstructionSet &set = instruction_set(isa);
    const Task task = make_task(dim, context, make_key(seed, stream, step));
    in_range("threads", threads, 1, kMaxThreads);
    if (is_single("gram", gram)) sample_as<float>(set, task, first, sigma, gram, tasks, ridge, threads);
    else sample_as<double>(set, task, first, sigma, gram, tasks, ridge, threads);
}

template <class T>
Outcome<T> make_outcome(const Model<T> &model, int64_t size, const Output &losses, const Output &weights,
                        const Output &gradient, double ceiling) {
    Outcome<T> out;
    out.size = size;
    out.losses = memory<T>("losses", losses, {size});
    if (weights.is_valid()) out.weights = memory<T>("weights", weights, {model.dim, size});
    if (gradient.is_valid()) out.gradient = memory<double>("gradient", gradient, {int64_t(model.gradient_size())});
    out.ceiling = ceiling;
    return out;
}

template <class T>
int64_t evaluate_as(const InstructionSet &set, int64_t dim, const Input &first, const Input &second, const Input &gram,
                 const Input &target, double ceiling, const Output &losses, const Output &weights, const Output &gradient,
                 int threads) {
    const int64_t size = extent("gram", gram, 3, 2), D = dim + 1;
    in_range("batch", size, 1, kMaxBatch);
    const Parameters<T> parameters(dim, first, second);
    // The kernels only read these; Batch serves sampling too, which writes.
    Batch<T> batch{size, const_cast<T *>(memory<T>("gram", gram, {D, D, size})), nullptr, nullptr};
    const T *targets = memory<T>("target", target, {dim, size});
    const auto outcome = make_outcome(parameters.model, size, losses, weights, gradient, ceiling);
    const auto fill = [&](int64_t offset, int count, void *scratch, Watch &watch) {
        functions<T>(set).load(scratch, dim, offset, count, batch, targets, watch);
    };
    return differentiate(set, parameters.model, Target::task, size, threads, outcome, fill);
}

int64_t evaluate(const std::string &isa, int64_t dim, const Input &first, const Input &second, const Input &gram,
              const Input &target, double ceiling, const Output &losses, const Output &weights, const Output &gradient,
              int threads) {
    const InstructionSet &set = instruction_set(isa);
    in_range("dim", dim, 1, kMaxDim);
    in_range("threads", threads, 1, kMaxThreads);
    if (is_single("gram", gram)) return evaluate_as<float>(set, dim, first, second, gram, target, ceiling, losses, weights, gradient, threads);
    return evaluate_as<double>(set, dim, first, second, gram, target, ceiling, losses, weights, gradient, threads);
}

template <class T>
int64_t step_as(const InstructionSet &set, const Task &task, int64_t first_sequence, const Input &sigma, const Input &first,
             const Input &second, Target target, double ceiling, const Output &losses, const Output &plain,
             const Output &gradient, int threads) {
    const int64_t size = extent("sigma", sigma, 1, 0);
    check_sequences(first_sequence, size);
    const double *levels = memory<double>("sigma", sigma, {size});
    const Parameters<T> parameters(task.dim, first, second);
    auto outcome = make_outcome(parameters.model, size, losses, Output(), gradient, ceiling);
    if (plain.is_valid()) outcome.plain = memory<T>("plain", plain, {size});
    const auto fill = [&](int64_t offset, int count, void *scratch, Watch &watch) {
        functions<T>(set).draw(scratch, task, first_sequence + offset, count, levels + offset, watch);
    };
    return differentiate(set, parameters.model, target, size, threads, outcome, fill);
}

int64_t step(const std::string &isa, int64_t dim, int64_t context, std::uint64_t seed, int64_t stream, std::uint64_t step_,
          int64_t first_sequence, const Input &sigma, const Input &first, const Input &second, bool ridge, double ceiling,
          const Output &losses, const Output &plain, const Output &gradient, int threads) {
    const InstructionSet &set = instruction_set(isa);
    const Task task = make_task(dim, context, make_key(seed, stream, step_));
    in_range("threads", threads, 1, kMaxThreads);
    const Target target = ridge ? Target::ridge : Target::task;
    const auto run = is_single("losses", losses) ? step_as<float> : step_as<double>;
    return run(set, task, first_sequence, sigma, first, second, target, ceiling, losses, plain, gradient, threads);
}

void uniforms(std::uint64_t seed, int64_t stream, std::uint64_t step_, int64_t first, const Output &out) {
    const int64_t size = extent("out", out, 1, 0);
    check_sequences(first, size);
    double *data = memory<double>("out", out, {size});
    const Key key = make_key(seed, stream, step_);
    const InstructionSet &set = *available().front();
    nb::gil_scoped_release release;
    Signals signals;
    constexpr int64_t part = 1 << 20;
    for (int64_t at = 0; at < size && !signals.stop(); at += part)
        set.uniforms(key, first + at, std::min(part, size - at), data + at);
    signals.check();
}

double peak(const std::string &isa, int threads) {
    const InstructionSet &set = instruction_set(isa);
    in_range("threads", threads, 1, kMaxThreads);
    nb::gil_scoped_release release;
    constexpr int64_t rounds = 2'000'000, parts = 8;
    double flops = 0;
    Team team(threads, threads, 64);
    const auto start = std::chrono::steady_clock::now();
    team.run(parts * threads, [&](int64_t part, void *scratch, Watch &) {
        double mine = 0;
        *static_cast<volatile double *>(scratch) = set.peak(rounds, &mine);
        if (part == 0) flops = mine;
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    return flops * double(parts * threads) / elapsed.count();
}

}  // namespace
}  // namespace ridgeformer

NB_MODULE(_core, m) {
    using namespace ridgeformer;
    m.doc() = "Sampling of moments, and loss and gradient in moment form. Use ridgeformer.engine, not this.";
    m.def("instruction_sets", [] {
        std::vector<std::pair<std::string, int>> names;
        for (const InstructionSet *set : available()) names.emplace_back(set->name, set->lanes);
        return names;
    });
    m.def("sample", &sample, "isa"_a, "dim"_a, "context"_a, "seed"_a, "stream"_a, "step"_a, "first"_a,
          nb::arg("sigma").noconvert(), nb::arg("gram").noconvert(), nb::arg("task").noconvert(),
          nb::arg("ridge").noconvert(), "threads"_a);
    m.def("evaluate", &evaluate, "isa"_a, "dim"_a, nb::arg("first").noconvert(), nb::arg("second").noconvert().none(),
          nb::arg("gram").noconvert(), nb::arg("target").noconvert(), "ceiling"_a, nb::arg("losses").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("gradient").noconvert().none(), "threads"_a);
    m.def("step", &step, "isa"_a, "dim"_a, "context"_a, "seed"_a, "stream"_a, "step"_a, "first_sequence"_a,
          nb::arg("sigma").noconvert(), nb::arg("first").noconvert(), nb::arg("second").noconvert().none(), "ridge"_a,
          "ceiling"_a, nb::arg("losses").noconvert(), nb::arg("plain").noconvert().none(),
          nb::arg("gradient").noconvert().none(), "threads"_a);
    m.def("uniforms", &uniforms, "seed"_a, "stream"_a, "step"_a, "first"_a, nb::arg("out").noconvert());
    m.def("peak", &peak, "isa"_a, "threads"_a);
}
