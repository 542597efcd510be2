// A block of sequences in scratch memory, how it gets there from arrays and back, and how scratch memory is divided.
#pragma once
#include "products.hpp"

namespace ridgeformer {
namespace {

// Puts the pieces that a `lay_out` names one after the other, and notes their addresses in an object.
template <class Object>
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
struct Block {
    static constexpr int kGroups = kBlock / kLanes;
    // Of each group: the packed lower triangle of its Gram matrices, y last; then its tasks, its ridge weights, and the
    // packed lower triangle of its metrics, if there are any. `dim` is the number of coordinates beside y.
    Size dim, cells, metrics;
    V *memory;

    static Size triangle(Size n) { return n * (n + 1) / 2; }
    static Size stride(Size d, bool metric) { return triangle(d + 1) + 2 * d + (metric ? triangle(d) : 0); }
    static std::size_t vectors(Size d, bool metric) { return std::size_t(kGroups) * std::size_t(stride(d, metric)); }
    Block(void *scratch, Size d, bool metric)
        : dim(d), cells(triangle(d + 1)), metrics(metric ? triangle(d) : 0), memory(static_cast<V *>(scratch)) {}

    V *gram(int group) const { return memory + group * stride(dim, metrics > 0); }
    V *task(int group) const { return gram(group) + cells; }
    V *ridge(int group) const { return task(group) + dim; }
    V *metric(int group) const { return metrics ? ridge(group) + dim : nullptr; }
    V *end() const { return gram(kGroups); }
};

// Lanes past `count` become empty contexts: no model gets anything but zero loss and zero gradient from them.
void clear_lanes(const Block &block, int count) {
    for (int group = count / kLanes; group < Block::kGroups; ++group)
        for (int k = group * kLanes >= count ? 0 : count % kLanes; k < kLanes; ++k)
            for (V *v = block.gram(group); v < block.gram(group + 1); ++v) (*v)[k] = T(0);
}

void load_block(void *scratch, Size d, Size offset, int count, const Batch<T> &batch, Watch &watch) {
    const Block block(scratch, d, batch.metric);
    const Size D = d + 1, m = batch.vector;
    const auto copy = [&](V *to, const T *from, int group) {
        const int lanes = count - group * kLanes;
        *to = V{};
        std::memcpy(to, from + offset + group * kLanes, sizeof(T) * std::size_t(lanes < kLanes ? lanes : kLanes));
    };
    for (int group = 0; group * kLanes < count; ++group) {
        if (stopped(watch, D * D)) return;
        for (Size i = 0; i < D; ++i)
            for (Size j = 0; j <= i; ++j) copy(block.gram(group) + packed(i, j), batch.gram + (i * D + j) * batch.size, group);
        for (Size i = 0; i < m; ++i) copy(block.task(group) + i, batch.task + i * batch.size, group);
        for (Size i = m; i < d; ++i) block.task(group)[i] = V{};
        for (Size i = 0; i < m && batch.metric; ++i)
            for (Size j = 0; j <= i; ++j) {
                V *to = block.metric(group) + packed(i, j);
                if (batch.shared_metric) *to = splat(batch.metric[i * m + j]);
                else copy(to, batch.metric + (i * m + j) * batch.size, group);
            }
    }
    clear_lanes(block, count);
}

void store_block(const void *scratch, Size d, Size offset, int count, const Batch<T> &batch, Watch &watch) {
    const Block block(const_cast<void *>(scratch), d, batch.metric);
    const Size D = d + 1, m = batch.vector;
    const auto copy = [&](T *to, const V &from, int group) {
        const int lanes = count - group * kLanes;
        std::memcpy(to + offset + group * kLanes, &from, sizeof(T) * std::size_t(lanes < kLanes ? lanes : kLanes));
    };
    const auto copy_matrix = [&](T *to, const V *from, Size size, int group) {
        for (Size i = 0; i < size; ++i)
            for (Size j = 0; j < size; ++j)
                copy(to + (i * size + j) * batch.size, from[i >= j ? packed(i, j) : packed(j, i)], group);
    };
    for (int group = 0; group * kLanes < count; ++group) {
        if (stopped(watch, D * D)) return;
        copy_matrix(batch.gram, block.gram(group), D, group);
        if (batch.metric) copy_matrix(batch.metric, block.metric(group), m, group);
        for (Size i = 0; i < m; ++i) {
            copy(batch.task + i * batch.size, block.task(group)[i], group);
            copy(batch.ridge + i * batch.size, block.ridge(group)[i], group);
        }
    }
}

}  // namespace
}  // namespace ridgeformer
