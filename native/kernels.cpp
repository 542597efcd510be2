// Compiled once per instruction set, with RF_NAME set to its name.
#include "diag.hpp"
#include "differentiate.hpp"
#include "full.hpp"

namespace ridgeformer {
namespace {

template <class T>
std::size_t scratch_bytes(std::int64_t dim, const Model<T> *model, const Law<T> *law) {
    const std::size_t sampler = law ? Sampler<T>::vectors(*law) : 0;
    std::size_t work = 0;
    if (model && model->scalars) work = channel_functions<T>().vectors(*model);
    else if (model)
        work = model->omega ? Diag<T>::vectors(dim, model->layers) : Full<T>::vectors(dim, model->layers, model->heads);
    const bool metric = (model && model->metric) || (law && (law->metric || law->own_metric));
    return sizeof(Vec<T>) * (Block<T>::vectors(dim, metric) + (sampler > work ? sampler : work));
}

template <class T>
void differentiate(void *scratch, const Model<T> &model, Target kind, std::int64_t offset, int count, const Outcome<T> &out,
                   Watch &watch) {
    if (model.scalars) return channel_functions<T>().differentiate(scratch, model, kind, offset, count, out, watch);
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

extern const InstructionSet RF_NAME;
const InstructionSet RF_NAME = {RF_STRING(RF_NAME), kLanes<float>, functions<float>(), functions<double>(), peak, uniforms};

}  // namespace ridgeformer
