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

extern const Functions<float> baseline_float;
extern const Functions<double> baseline_double;
#if defined(RF_X86)
extern const Functions<float> avx2_float, avx512_float;
extern const Functions<double> avx2_double, avx512_double;
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

// Those of this CPU, best first.
std::vector<InstructionSet> available() {
    std::vector<InstructionSet> sets;
#if defined(RF_X86)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw"))
        sets.push_back({"avx512", avx512_float, avx512_double});
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back({"avx2", avx2_float, avx2_double});
#endif
    sets.push_back({"baseline", baseline_float, baseline_double});
    return sets;
}

InstructionSet instruction_set(const std::string &name) {
    for (const InstructionSet &set : available())
        if (name == set.name) return set;
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

using Inputs = std::vector<Input>;

// The parameters a kernel reads, and what is made of them once per call: the transposes for Full, sums over heads for
// channels.
template <class T>
struct Parameters {
    Model<T> model;
    std::vector<T> derived;

    // `dim` coordinates beside y, of which the first `counted` enter the loss. One array is omega, two are P and Q, four
    // are Pv, Qv, Ps and Qs.
    Parameters(int64_t dim, int64_t counted, bool metric, const Inputs &given) {
        model.dim = dim;
        model.counted = in_range("counted", counted, 1, dim);
        model.metric = metric;
        if (given.size() == 1) diagonal(given);
        else if (given.size() == 2) full(given);
        else if (given.size() == 4) channels(given);
        else refuse("parameters must be 1, 2 or 4 arrays, got " + std::to_string(given.size()));
    }
    Parameters(const Parameters &) = delete;

  private:
    void diagonal(const Inputs &given) {
        if (model.counted != model.dim) refuse("omega must be for tokens without further coordinates");
        model.layers = in_range("layers", extent("omega", given[0], 3, 0), 1, kMaxLayers);
        model.heads = 1;
        model.omega = memory<T>("omega", given[0], {model.layers, 2, 2});
    }

    void count(const char *name, const Input &first) {
        model.layers = in_range("layers", extent(name, first, 4, 0), 1, kMaxLayers);
        model.heads = in_range("heads", extent(name, first, 4, 1), 1, kMaxHeads);
    }

    void full(const Inputs &given) {
        const int64_t D = model.dim + 1, cells = D * D;
        count("P", given[0]);
        model.P = memory<T>("P", given[0], {model.layers, model.heads, D, D});
        model.Q = memory<T>("Q", given[1], {model.layers, model.heads, D, D});
        const int64_t total = model.layers * model.heads * cells;
        derived.resize(size_t(2 * total));
        for (int64_t at = 0; at < total; at += cells)
            for (int64_t i = 0; i < D; ++i)
                for (int64_t j = 0; j < D; ++j) {
                    derived[size_t(at + j * D + i)] = model.P[at + i * D + j];
                    derived[size_t(total + at + j * D + i)] = model.Q[at + i * D + j];
                }
        model.PT = derived.data();
        model.QT = derived.data() + total;
    }

    void channels(const Inputs &given) {
        const int64_t D = model.dim + 1;
        count("Pv", given[0]);
        const int64_t v = model.vectors = in_range("vectors", extent("Pv", given[0], 4, 2), 1, D);
        const int64_t s = model.scalars = in_range("scalars", extent("Ps", given[2], 4, 2), 1, D);
        if (v * ((D - s) / v) + s != D || D == s)
            refuse("tokens of " + std::to_string(D) + " coordinates must hold " + std::to_string(v) + " vectors and " +
                   std::to_string(s) + " scalars");
        model.Pv = memory<T>("Pv", given[0], {model.layers, model.heads, v, v});
        model.Qv = memory<T>("Qv", given[1], {model.layers, model.heads, v, v});
        model.Ps = memory<T>("Ps", given[2], {model.layers, model.heads, s, s});
        model.Qs = memory<T>("Qs", given[3], {model.layers, model.heads, s, s});
        if (v > 1) return;
        const int64_t cells = s * s, row = 1 + 4 * cells;
        derived.resize(size_t(model.layers * row));
        for (int64_t l = 0; l < model.layers; ++l) {
            T *const p = derived.data() + l * row, *const C = p + 1, *const R = C + cells;
            for (int64_t at = l * model.heads; at < (l + 1) * model.heads; ++at) {
                *p += model.Pv[at] * model.Qv[at];
                for (int64_t i = 0; i < cells; ++i) {
                    C[i] += model.Pv[at] * model.Qs[at * cells + i];
                    R[i] += model.Qv[at] * model.Ps[at * cells + i];
                }
            }
            for (int64_t i = 0; i < 2 * cells; ++i) C[2 * cells + i] = *p * C[i];
        }
        model.maps = derived.data();
    }
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
int64_t differentiate(const InstructionSet &set, const Model<T> &model, const Law<T> *law, Target target, int64_t batch,
                      int threads, Outcome<T> outcome, const Fill &fill) {
    const Functions<T> &f = functions<T>(set);
    const int64_t blocks = blocks_of(batch);
    const size_t size = outcome.gradient ? model.gradient_size() : 0, row = size + 1;
    double *const total = outcome.gradient;
    const Scratch sums(sizeof(double) * row * size_t(std::min(kWave, blocks)));
    double *const partial = static_cast<double *>(sums.get());
    std::fill_n(total, size, 0.0);
    double limited = 0;
    in_waves(
        blocks, threads, f.scratch_bytes(model.dim, &model, law),
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

// A law as Python describes it: a dict of numbers and arrays, which must outlive this.
template <class T>
struct Description {
    Law<T> law;
    Layout layout;

    Description(const nb::dict &from, const Key &key, int64_t size) : from_(from) {
        law.key = key;
        const int64_t d = law.dim = in_range("dim", number("dim"), 1, kMaxDim);
        law.context = in_range("context", number("context"), 1, kMaxContext);
        law.shortest = in_range("shortest", number("shortest"), 1, law.context);
        law.covariance = Covariance(in_range("covariance", number("covariance"), 0, 2));
        law.standardised = flag("standardised");
        in_range("shortest", law.shortest, law.standardised ? 2 : 1, law.context);
        if (law.covariance == Covariance::rotated) law.factor = array<T>("factor", {d});
        else law.factor = array<T>("factor", {d, d});
        law.factors = in_range("factors", number("factors"), law.covariance == Covariance::factors, d);
        law.unique = T(real("unique"));
        law.spread = T(real("spread"));
        law.mean = array<T>("mean", {d});
        law.rank = in_range("rank", number("rank"), 1, d);
        law.task_factor = array<T>("task_factor", {d, law.rank});
        if (!law.task_factor) in_range("rank", law.rank, d, d);
        law.pool_size = in_range("pool_size", number("pool_size"), 0, kMaxBatch);
        law.pool = array<T>("pool", {law.pool_size, d});
        law.metric = array<T>("metric", {d, d});
        law.own_metric = flag("own_metric");
        law.counts = array<int64_t>("counts", {size});
        law.choice = array<int64_t>("choice", {size});
        if (law.pool && !law.choice) refuse("choice must be an array where there is a pool");
        if (!law.counts && law.shortest != law.context) refuse("counts must be an array where n varies");
        for (int64_t i = 0; law.counts && i < size; ++i) in_range("counts", law.counts[i], law.shortest, law.context);
        for (int64_t i = 0; law.choice && i < size; ++i) in_range("choice", law.choice[i], -1, law.pool_size - 1);
        layout.mean = flag("mean_attention");
        layout.coordinate = Coordinate(in_range("coordinate", number("coordinate"), 0, 2));
        layout.scratch = in_range("scratch", number("scratch"), 0, kMaxDim - d);
        in_range("coordinates of tokens", d + layout.extra(), 1, kMaxDim);
    }

    bool metric() const { return law.metric || law.own_metric; }

  private:
    const nb::dict &from_;

    nb::object item(const char *name) const {
        if (!from_.contains(name)) refuse(std::string("a law must have the entry ") + name);
        return nb::object(from_[name]);
    }
    template <class Number>
    Number as(const char *name) const {
        Number value;
        if (!nb::try_cast<Number>(item(name), value)) refuse(std::string(name) + " is of the wrong type");
        return value;
    }
    int64_t number(const char *name) const { return as<int64_t>(name); }
    double real(const char *name) const { return as<double>(name); }
    bool flag(const char *name) const { return as<bool>(name); }
    template <class Scalar>
    const Scalar *array(const char *name, std::initializer_list<int64_t> shape) const {
        const nb::object given = item(name);
        return given.is_none() ? nullptr : memory<Scalar>(name, as<Input>(name), shape);
    }
};

int64_t check_sequences(int64_t first, int64_t batch) {
    in_range("batch", batch, 1, kMaxBatch);
    return in_range("first", first, 0, kMaxBatch - batch);
}

// ---- entry points ---------------------------------------------------------------------------------

template <class T>
void sample_as(const InstructionSet &set, const nb::dict &law, const Key &key, int64_t first, const Input &sigma,
               const Output &gram, const Output &tasks, const Output &ridge, const Output &metric, int threads) {
    const int64_t size = extent("sigma", sigma, 1, 0);
    check_sequences(first, size);
    const Description<T> from(law, key, size);
    const int64_t d = from.law.dim, dim = d + from.layout.extra(), D = dim + 1;
    const double *levels = memory<double>("sigma", sigma, {size});
    Batch<T> batch{size, memory<T>("gram", gram, {D, D, size}), memory<T>("task", tasks, {d, size}),
                   memory<T>("ridge", ridge, {d, size}), nullptr, d};
    if (from.metric()) batch.metric = memory<T>("metric", metric, {d, d, size});
    const Functions<T> &f = functions<T>(set);
    in_waves(
        blocks_of(size), threads, f.scratch_bytes(dim, nullptr, &from.law),
        [&](int64_t block, void *scratch, Watch &watch) {
            const int count = size_of_block(size, block);
            const int64_t at = block * kBlock;
            f.draw(scratch, from.law, from.layout, first + at, at, count, levels + at, watch);
            f.store(scratch, dim, at, count, batch, watch);
        },
        [](int64_t) {});
}

void sample(const std::string &isa, const nb::dict &law, std::uint64_t seed, int64_t stream, std::uint64_t step,
            int64_t first, const Input &sigma, const Output &gram, const Output &tasks, const Output &ridge,
            const Output &metric, int threads) {
    const InstructionSet set = instruction_set(isa);
    in_range("threads", threads, 1, kMaxThreads);
    const auto run = is_single("gram", gram) ? sample_as<float> : sample_as<double>;
    run(set, law, make_key(seed, stream, step), first, sigma, gram, tasks, ridge, metric, threads);
}

template <class T>
Outcome<T> make_outcome(const Model<T> &model, int64_t size, const Output &losses, const Output &weights,
                        const Output &gradient, double ceiling) {
    Outcome<T> out;
    out.size = size;
    out.losses = memory<T>("losses", losses, {size});
    if (weights.is_valid()) out.weights = memory<T>("weights", weights, {model.counted, size});
    if (gradient.is_valid()) out.gradient = memory<double>("gradient", gradient, {int64_t(model.gradient_size())});
    out.ceiling = ceiling;
    return out;
}

template <class T>
int64_t evaluate_as(const InstructionSet &set, int64_t dim, const Inputs &given, const Input &gram,
                    const Input &target, const Input &metric, double ceiling, const Output &losses, const Output &weights,
                    const Output &gradient, int threads) {
    const int64_t size = extent("gram", gram, 3, 2), D = dim + 1;
    in_range("batch", size, 1, kMaxBatch);
    const int64_t counted = in_range("the length of targets", extent("target", target, 2, 0), 1, dim);
    const Parameters<T> parameters(dim, counted, metric.is_valid(), given);
    // The kernels only read these; Batch serves sampling too, which writes.
    Batch<T> batch{size, const_cast<T *>(memory<T>("gram", gram, {D, D, size})),
                   const_cast<T *>(memory<T>("target", target, {counted, size})), nullptr, nullptr, counted};
    if (metric.is_valid()) {
        batch.shared_metric = metric.ndim() == 2;
        const T *given = batch.shared_metric ? memory<T>("metric", metric, {counted, counted})
                                             : memory<T>("metric", metric, {counted, counted, size});
        batch.metric = const_cast<T *>(given);
    }
    const auto outcome = make_outcome(parameters.model, size, losses, weights, gradient, ceiling);
    const auto fill = [&](int64_t offset, int count, void *scratch, Watch &watch) {
        functions<T>(set).load(scratch, dim, offset, count, batch, watch);
    };
    const Law<T> *const no_law = nullptr;
    return differentiate(set, parameters.model, no_law, Target::task, size, threads, outcome, fill);
}

int64_t evaluate(const std::string &isa, int64_t dim, const Inputs &given, const Input &gram,
                 const Input &target, const Input &metric, double ceiling, const Output &losses, const Output &weights,
                 const Output &gradient, int threads) {
    const InstructionSet set = instruction_set(isa);
    in_range("dim", dim, 1, kMaxDim);
    in_range("threads", threads, 1, kMaxThreads);
    const auto run = is_single("gram", gram) ? evaluate_as<float> : evaluate_as<double>;
    return run(set, dim, given, gram, target, metric, ceiling, losses, weights, gradient, threads);
}

template <class T>
int64_t step_as(const InstructionSet &set, const nb::dict &law, const Key &key, int64_t first_sequence, const Input &sigma,
                const Inputs &given, Target target, double ceiling, const Output &losses,
                const Output &unadjusted, const Output &gradient, int threads) {
    const int64_t size = extent("sigma", sigma, 1, 0);
    check_sequences(first_sequence, size);
    const Description<T> from(law, key, size);
    const double *levels = memory<double>("sigma", sigma, {size});
    const int64_t counted = from.law.dim + (from.layout.coordinate == Coordinate::constant);
    const Parameters<T> parameters(from.law.dim + from.layout.extra(), counted, from.metric(), given);
    auto outcome = make_outcome(parameters.model, size, losses, Output(), gradient, ceiling);
    if (unadjusted.is_valid()) outcome.unadjusted = memory<T>("unadjusted", unadjusted, {size});
    const auto fill = [&](int64_t offset, int count, void *scratch, Watch &watch) {
        functions<T>(set).draw(scratch, from.law, from.layout, first_sequence + offset, offset, count, levels + offset, watch);
    };
    return differentiate(set, parameters.model, &from.law, target, size, threads, outcome, fill);
}

int64_t step(const std::string &isa, const nb::dict &law, std::uint64_t seed, int64_t stream, std::uint64_t step_,
             int64_t first_sequence, const Input &sigma, const Inputs &given, bool ridge, double ceiling,
             const Output &losses, const Output &unadjusted, const Output &gradient, int threads) {
    const InstructionSet set = instruction_set(isa);
    in_range("threads", threads, 1, kMaxThreads);
    const Target target = ridge ? Target::ridge : Target::task;
    const auto run = is_single("losses", losses) ? step_as<float> : step_as<double>;
    return run(set, law, make_key(seed, stream, step_), first_sequence, sigma, given, target, ceiling, losses,
               unadjusted, gradient, threads);
}

void uniforms(std::uint64_t seed, int64_t stream, std::uint64_t step_, int64_t first, int word, const Output &out) {
    in_range("word", word, 0, 3);
    const int64_t size = extent("out", out, 1, 0);
    check_sequences(first, size);
    double *data = memory<double>("out", out, {size});
    const Key key = make_key(seed, stream, step_);
    const InstructionSet set = available().front();
    nb::gil_scoped_release release;
    Signals signals;
    constexpr int64_t part = 1 << 20;
    for (int64_t at = 0; at < size && !signals.stop(); at += part)
        set.f64.uniforms(key, first + at, std::min(part, size - at), word, data + at);
    signals.check();
}

double peak(const std::string &isa, int threads) {
    const InstructionSet set = instruction_set(isa);
    in_range("threads", threads, 1, kMaxThreads);
    nb::gil_scoped_release release;
    constexpr int64_t rounds = 2'000'000, parts = 8;
    double flops = 0;
    Team team(threads, threads, 64);
    const auto start = std::chrono::steady_clock::now();
    team.run(parts * threads, [&](int64_t part, void *scratch, Watch &) {
        double mine = 0;
        *static_cast<volatile double *>(scratch) = set.f32.peak(rounds, &mine);
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
        for (const InstructionSet &set : available()) names.emplace_back(set.name, set.f32.lanes);
        return names;
    });
    m.def("sample", &sample, "isa"_a, "law"_a, "seed"_a, "stream"_a, "step"_a, "first"_a, nb::arg("sigma").noconvert(),
          nb::arg("gram").noconvert(), nb::arg("task").noconvert(), nb::arg("ridge").noconvert(),
          nb::arg("metric").noconvert().none(), "threads"_a);
    m.def("evaluate", &evaluate, "isa"_a, "dim"_a, nb::arg("parameters").noconvert(), nb::arg("gram").noconvert(),
          nb::arg("target").noconvert(), nb::arg("metric").noconvert().none(), "ceiling"_a,
          nb::arg("losses").noconvert(), nb::arg("weights").noconvert().none(), nb::arg("gradient").noconvert().none(),
          "threads"_a);
    m.def("step", &step, "isa"_a, "law"_a, "seed"_a, "stream"_a, "step"_a, "first_sequence"_a,
          nb::arg("sigma").noconvert(), nb::arg("parameters").noconvert(), "ridge"_a,
          "ceiling"_a, nb::arg("losses").noconvert(), nb::arg("unadjusted").noconvert().none(),
          nb::arg("gradient").noconvert().none(), "threads"_a);
    m.def("uniforms", &uniforms, "seed"_a, "stream"_a, "step"_a, "first"_a, "word"_a, nb::arg("out").noconvert());
    m.def("peak", &peak, "isa"_a, "threads"_a);
}
