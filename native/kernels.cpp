// Compiled once per instruction set, with RF_NAME set to its name.
#include "diag.hpp"
#include "full.hpp"

namespace ridgeformer {
namespace {

template <class T>
std::size_t scratch_bytes(std::int64_t dim, const Model<T> *model, const Law<T> *law) {
    const std::size_t sampler = law ? Sampler<T>::vectors(*law) : 0;
    std::size_t work = 0;
    if (model)
        work = model->omega ? Diag<T>::vectors(dim, model->layers) : Full<T>::vectors(dim, model->layers, model->heads);
    const bool metric = (model && model->metric) || (law && (law->metric || law->own_metric));
    return sizeof(Vec<T>) * (Block<T>::vectors(dim, metric) + (sampler > work ? sampler : work));
}

template <class T>
bool finite(T x) {
    return x - x == T(0);
}

// Gradients of sequences up to this size can be summed in double whatever the batch: 2^32 of them stay finite.
constexpr double kLargest = 1e298;

bool summable(double x) { return __builtin_fabs(x) <= kLargest; }

// Above the ceiling the gradient is that of ceiling (1 + log(loss / ceiling)): the direction, at a bounded size.
template <class T>
Vec<T> damping(const Vec<T> &loss, double ceiling) {
    Vec<T> factor = splat<T>(T(1));
    for (int k = 0; k < kLanes<T>; ++k)
        if (double(loss[k]) > ceiling) factor[k] = T(ceiling / double(loss[k]));
    return factor;
}

// Adds one group's gradient, which stands in network.gradient, without the lanes where it cannot be summed.
template <class T, class Network>
void add_lanes(Network &network, const bool *limited, int lanes, double *sum) {
    const std::size_t size = network.model.gradient_size();
    for (int k = 0; k < lanes; ++k) {
        bool good = true;
        for (std::size_t i = 0; i < size && good; ++i) good = summable(double(network.gradient[i][k]));
        sum[size] += limited[k] || !good;
        for (std::size_t i = 0; i < size && good; ++i) sum[i] += double(network.gradient[i][k]);
    }
}

template <class T, class Network>
void differentiate_with(Network &&network, const Block<T> &block, Target kind, std::int64_t offset, int count,
                        const Outcome<T> &out) {
    const Size d = block.dim, cost = 8 * network.model.layers * network.model.heads * (d + 1) * (d + 1);
    const std::size_t size = network.model.gradient_size();
    const auto clear = [&] {
        for (std::size_t i = 0; i < size; ++i) network.gradient[i] = Vec<T>{};
    };
    const auto goal = [&](int group) { return kind == Target::ridge ? block.ridge(group) : block.task(group); };
    bool limited[kBlock] = {};
    if (out.gradient) clear();
    for (int group = 0; group * kLanes<T> < count; ++group) {
        if (stopped(network.watch, cost)) return;
        Vec<T> *gram = block.gram(group), *target = goal(group);
        network.value(gram);
        const Vec<T> *metric = block.metric(group);
        const Vec<T> loss = network.loss(target, metric);
        const Vec<T> unadjusted = out.unadjusted ? network.loss(block.task(group), metric) : loss;
        bool any = false;
        for (int k = 0; k < kLanes<T> && group * kLanes<T> + k < count; ++k) {
            const Size s = offset + group * kLanes<T> + k;
            out.losses[s] = finite(loss[k]) ? loss[k] : T(__builtin_inf());
            if (out.unadjusted) out.unadjusted[s] = finite(unadjusted[k]) ? unadjusted[k] : T(__builtin_inf());
            if (out.weights)
                for (Size i = 0; i < network.model.counted; ++i) out.weights[i * out.size + s] = network.weight(i)[k];
            limited[group * kLanes<T> + k] = !(double(loss[k]) <= out.ceiling);
            if (finite(loss[k])) continue;
            any = limited[group * kLanes<T> + k] = true;
            // An empty context has no gradient.
            for (Vec<T> *v = gram; v < block.gram(group + 1); ++v) (*v)[k] = T(0);
        }
        if (!out.gradient) continue;
        if (any) network.value(gram);
        network.slope(target, metric, damping<T>(loss, out.ceiling));
    }
    if (!out.gradient) return;
    bool good = true;
    for (std::size_t i = 0; i < size; ++i) good &= summable(out.gradient[i] = sum_lanes<T>(network.gradient[i]));
    out.gradient[size] = 0;
    for (int s = 0; s < count; ++s) out.gradient[size] += limited[s];
    if (good) return;
    // Some sequence's gradient is too large to be summed although its loss is finite: once more, group by group, without
    // such lanes.
    for (std::size_t i = 0; i <= size; ++i) out.gradient[i] = 0;
    for (int group = 0; group * kLanes<T> < count; ++group) {
        if (stopped(network.watch, cost)) return;
        clear();
        network.value(block.gram(group));
        const Vec<T> *metric = block.metric(group);
        network.slope(goal(group), metric, damping<T>(network.loss(goal(group), metric), out.ceiling));
        const int left = count - group * kLanes<T>;
        add_lanes<T>(network, limited + group * kLanes<T>, left < kLanes<T> ? left : kLanes<T>, out.gradient);
    }
}

template <class T>
void differentiate(void *scratch, const Model<T> &model, Target kind, std::int64_t offset, int count, const Outcome<T> &out,
                   Watch &watch) {
    const Block<T> block(scratch, model.dim, model.metric);
    // The paper's dimension is worth a copy whose sizes the compiler knows: a tenth faster.
    if (model.omega && model.dim == 10)
        differentiate_with<T>(Diag<T, Known<10>>(block.end(), model, watch), block, kind, offset, count, out);
    else if (model.omega) differentiate_with<T>(Diag<T>(block.end(), model, watch), block, kind, offset, count, out);
    else differentiate_with<T>(Full<T>(block.end(), model, watch), block, kind, offset, count, out);
}

void uniforms(const Key &key, std::int64_t first, std::int64_t count, int word, double *out) {
    constexpr int W = kLanes<double>;
    Words<double> lane;
    for (int i = 0; i < W; ++i) lane[i] = std::uint32_t(i);
    for (std::int64_t s = 0; s < count; s += W) {
        Words<double> r[4];
        random_words(key, lane + std::uint32_t(first + s), Words<double>{}, Use::noise, 0, r);
        const Vec<double> u = uniform<double>(r[word]);
        for (int i = 0; i < W && s + i < count; ++i) out[s + i] = u[i];
    }
}

double peak(std::int64_t rounds, double *flops) {
    constexpr int chains = 12;
    using V = Vec<float>;
    V acc[chains];
    for (int i = 0; i < chains; ++i) acc[i] = splat<float>(float(i));
    V x = splat<float>(0.999f), y = splat<float>(0.001f);
    for (std::int64_t round = 0; round < rounds; ++round) {
        __asm__ volatile("" : "+x"(x), "+x"(y));
#pragma GCC unroll 12
        for (int i = 0; i < chains; ++i) acc[i] = acc[i] * x + y;
    }
    V total{};
    for (int i = 0; i < chains; ++i) total += acc[i];
    *flops = 2.0 * chains * kLanes<float> * double(rounds);
    return sum_lanes<float>(total);
}

template <class T>
constexpr Functions<T> functions() {
    return {scratch_bytes<T>, draw<T>, load_block<T>, store_block<T>, differentiate<T>};
}

}  // namespace

#define RF_QUOTE(x) #x
#define RF_STRING(x) RF_QUOTE(x)
extern const InstructionSet RF_NAME;
const InstructionSet RF_NAME = {RF_STRING(RF_NAME), kLanes<float>, functions<float>(), functions<double>(), peak, uniforms};

}  // namespace ridgeformer
