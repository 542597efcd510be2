// Loss and gradient of a block of sequences by any kernel: value(), loss(), slope() and weight() of one group of lanes,
// group by group, and what becomes of losses and gradients that are not finite.
#pragma once
#include "sampler.hpp"

#define RF_QUOTE(x) #x
#define RF_STRING(x) RF_QUOTE(x)
#define RF_PASTE(x, y) x##y
#define RF_JOIN(x, y) RF_PASTE(x, y)
#define RF_CHANNELS RF_JOIN(RF_NAME, _channels)

namespace ridgeformer {

// The kernels of channel models are compiled on their own, in channels.cpp.
template <class T>
struct ChannelFunctions {
    std::size_t (*vectors)(const Model<T> &);
    void (*differentiate)(void *scratch, const Model<T> &, Target, std::int64_t offset, int count, const Outcome<T> &, Watch &);
};
struct ChannelKernels {
    ChannelFunctions<float> f32;
    ChannelFunctions<double> f64;
};
extern const ChannelKernels RF_CHANNELS;

namespace {

template <class T>
const ChannelFunctions<T> &channel_functions() {
    if constexpr (sizeof(T) == 4) return RF_CHANNELS.f32;
    else return RF_CHANNELS.f64;
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

}  // namespace
}  // namespace ridgeformer
