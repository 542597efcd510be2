// Compiled once per instruction set and type of number: RF_TABLE names the result, RF_SCALAR the type.
#include "channels.hpp"
#include "diag.hpp"
#include "full.hpp"
#include "sampler.hpp"
#include "vectors.hpp"

namespace ridgeformer {
namespace {

// A family's kernel as a value, without an object of it.
template <class Network>
struct Kernel {
    using type = Network;
};

// Calls act with the kernel of a model. The paper's dimension is worth copies whose sizes the compiler knows, of Diag and of
// channels with three scalars: a tenth faster.
template <class Act>
auto with_kernel(const Model<T> &model, const Act &act) {
    if (model.omega) return model.dim == 10 ? act(Kernel<Diag<Known<10>>>()) : act(Kernel<Diag<>>());
    if (!model.scalars) return act(Kernel<Full>());
    if (model.vectors > 1) return act(Kernel<Vectors>());
    if (model.scalars == 3 && model.dim == 12) return act(Kernel<Channels<Known<10>, Known<3>>>());
    return act(Kernel<Channels<>>());
}

std::size_t scratch_bytes(std::int64_t dim, const Model<T> *model, const Law<T> *law) {
    const std::size_t sampler = law ? Sampler::vectors(*law) : 0;
    const auto vectors = [&](auto kernel) { return decltype(kernel)::type::vectors(*model); };
    const std::size_t work = model ? with_kernel(*model, vectors) : 0;
    const bool metric = (model && model->metric) || (law && (law->metric || law->own_metric));
    return sizeof(V) * (Block::vectors(dim, metric) + (sampler > work ? sampler : work));
}

void differentiate(void *scratch, const Model<T> &model, Target kind, std::int64_t offset, int count, const Outcome<T> &out,
                   Watch &watch) {
    const Block block(scratch, model.dim, model.metric);
    with_kernel(model, [&](auto kernel) {
        typename decltype(kernel)::type network(block.end(), model, watch);
        differentiate_block(network, block, kind, offset, count, out);
    });
}

double peak(std::int64_t rounds, double *flops) {
    constexpr int chains = 12;
    V acc[chains];
    for (int i = 0; i < chains; ++i) acc[i] = splat(T(i));
    V x = splat(T(0.999f)), y = splat(T(0.001f));
    for (std::int64_t round = 0; round < rounds; ++round) {
        __asm__ volatile("" : "+x"(x), "+x"(y));
#pragma GCC unroll 12
        for (int i = 0; i < chains; ++i) acc[i] = acc[i] * x + y;
    }
    V total{};
    for (int i = 0; i < chains; ++i) total += acc[i];
    *flops = 2.0 * chains * kLanes * double(rounds);
    return sum_lanes(total);
}

}  // namespace

extern const Functions<T> RF_TABLE;
const Functions<T> RF_TABLE = {kLanes, scratch_bytes, draw, load_block, store_block, differentiate, uniforms, peak};

}  // namespace ridgeformer
