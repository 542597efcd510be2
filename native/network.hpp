// What all kernels have in common: the loss of a row of weights, and loss and gradient of a block of sequences, including what
// becomes of losses and gradients that are not finite.
#pragma once
#include "block.hpp"

namespace ridgeformer {
namespace {

// 1/2 e'M e with e = row + target, and M a packed lower triangle. Leaves e [n], then M e [n], in work.
RF_SHARED V metric_loss(const V *row, const V *target, const V *M, Size n, V *work) {
    for (Size i = 0; i < n; ++i) {
        work[i] = row[i] + target[i];
        work[n + i] = M[packed(i, i)] * work[i];
    }
    for (Size i = 0; i < n; ++i) {
        V sum = work[n + i];
        for (Size j = 0; j < i; ++j) {
            sum += M[packed(i, j)] * work[j];
            work[n + j] += M[packed(i, j)] * work[i];
        }
        work[n + i] = sum;
    }
    return T(0.5) * dot(work, work + n, n);
}

// A model and the memory for one group of sequences, one a lane. Each family defines the four virtual steps.
struct Network {
    const Model<T> &model;
    Watch &watch;
    V *rho = nullptr;       // rows e_D' T_{L-1} ... T_l; the first one holds minus the weights
    V *work = nullptr;      // at least twice the coordinates that count
    V *gradient = nullptr;  // with respect to the parameters, summed over groups

    Network(const Model<T> &model_, Watch &watch_) : model(model_), watch(watch_) {}

    virtual void forward(const V *gram) = 0;
    virtual void rows() = 0;
    virtual void deltas(const V *target, const V *metric, V factor) = 0;
    virtual void backward() = 0;
    // Minus the weights, in the order of a token.
    virtual const V *found() const { return rho; }

    void value(const V *gram) {
        forward(gram);
        rows();
    }

    V loss(const V *target, const V *metric) const {
        const V *row = found();
        if (metric) return metric_loss(row, target, metric, model.counted, work);
        V total{};
        for (Size i = 0; i < model.counted; ++i) {
            const V error = row[i] + target[i];
            total += error * error;
        }
        return T(0.5) * total;
    }

    // Adds to the gradient that of factor times the loss.
    void slope(const V *target, const V *metric, V factor) {
        deltas(target, metric, factor);
        backward();
    }

  protected:
    ~Network() = default;

    // The gradient of factor times the loss with respect to found(), in the coordinates that count.
    void loss_slope(const V *target, const V *metric, V factor, V *out) const {
        const V *row = found();
        const Size n = model.counted;
        if (metric) metric_loss(row, target, metric, n, work);
        for (Size i = 0; i < n; ++i) out[i] = factor * (metric ? work[n + i] : row[i] + target[i]);
    }
};

bool finite(T x) {
    return x - x == T(0);
}

// Gradients of sequences up to this size can be summed in double whatever the batch: 2^32 of them stay finite.
constexpr double kLargest = 1e298;

bool summable(double x) { return __builtin_fabs(x) <= kLargest; }

// Above the ceiling the gradient is that of ceiling (1 + log(loss / ceiling)): the direction, at a bounded size.
V damping(const V &loss, double ceiling) {
    V factor = splat(T(1));
    for (int k = 0; k < kLanes; ++k)
        if (double(loss[k]) > ceiling) factor[k] = T(ceiling / double(loss[k]));
    return factor;
}

// Adds one group's gradient, which stands in network.gradient, without the lanes where it cannot be summed.
void add_lanes(const Network &network, const bool *limited, int lanes, double *sum) {
    const std::size_t size = network.model.gradient_size();
    for (int k = 0; k < lanes; ++k) {
        bool good = true;
        for (std::size_t i = 0; i < size && good; ++i) good = summable(double(network.gradient[i][k]));
        sum[size] += limited[k] || !good;
        for (std::size_t i = 0; i < size && good; ++i) sum[i] += double(network.gradient[i][k]);
    }
}

RF_SHARED void differentiate_block(Network &network, const Block &block, Target kind, std::int64_t offset, int count,
                                   const Outcome<T> &out) {
    const Size d = block.dim, cost = 8 * network.model.layers * network.model.heads * (d + 1) * (d + 1);
    const std::size_t size = network.model.gradient_size();
    const auto clear = [&] {
        for (std::size_t i = 0; i < size; ++i) network.gradient[i] = V{};
    };
    const auto goal = [&](int group) { return kind == Target::ridge ? block.ridge(group) : block.task(group); };
    bool limited[kBlock] = {};
    if (out.gradient) clear();
    for (int group = 0; group * kLanes < count; ++group) {
        if (stopped(network.watch, cost)) return;
        V *gram = block.gram(group), *target = goal(group);
        network.value(gram);
        const V *metric = block.metric(group);
        const V loss = network.loss(target, metric);
        const V unadjusted = out.unadjusted ? network.loss(block.task(group), metric) : loss;
        const V *row = network.found();
        bool any = false;
        for (int k = 0; k < kLanes && group * kLanes + k < count; ++k) {
            const Size s = offset + group * kLanes + k;
            out.losses[s] = finite(loss[k]) ? loss[k] : T(__builtin_inf());
            if (out.unadjusted) out.unadjusted[s] = finite(unadjusted[k]) ? unadjusted[k] : T(__builtin_inf());
            if (out.weights)
                for (Size i = 0; i < network.model.counted; ++i) out.weights[i * out.size + s] = -row[i][k];
            limited[group * kLanes + k] = !(double(loss[k]) <= out.ceiling);
            if (finite(loss[k])) continue;
            any = limited[group * kLanes + k] = true;
            // An empty context has no gradient.
            for (V *v = gram; v < block.gram(group + 1); ++v) (*v)[k] = T(0);
        }
        if (!out.gradient) continue;
        if (any) network.value(gram);
        network.slope(target, metric, damping(loss, out.ceiling));
    }
    if (!out.gradient) return;
    bool good = true;
    for (std::size_t i = 0; i < size; ++i) good &= summable(out.gradient[i] = sum_lanes(network.gradient[i]));
    out.gradient[size] = 0;
    for (int s = 0; s < count; ++s) out.gradient[size] += limited[s];
    if (good) return;
    // Some sequence's gradient is too large to be summed although its loss is finite: once more, group by group, without
    // such lanes.
    for (std::size_t i = 0; i <= size; ++i) out.gradient[i] = 0;
    for (int group = 0; group * kLanes < count; ++group) {
        if (stopped(network.watch, cost)) return;
        clear();
        network.value(block.gram(group));
        const V *metric = block.metric(group);
        network.slope(goal(group), metric, damping(network.loss(goal(group), metric), out.ceiling));
        const int left = count - group * kLanes;
        add_lanes(network, limited + group * kLanes, left < kLanes ? left : kLanes, out.gradient);
    }
}

}  // namespace
}  // namespace ridgeformer
