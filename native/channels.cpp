// The kernels of channel models. Compiled once per instruction set, like kernels.cpp.
#include "channels.hpp"
#include "differentiate.hpp"
#include "vectors.hpp"

namespace ridgeformer {
namespace {

template <class T>
std::size_t vectors(const Model<T> &model) {
    return model.vectors == 1 ? Channels<T>::vectors(model) : Vectors<T>::vectors(model);
}

template <class T>
void differentiate(void *scratch, const Model<T> &model, Target kind, std::int64_t offset, int count, const Outcome<T> &out,
                   Watch &watch) {
    const Block<T> block(scratch, model.dim, model.metric);
    const auto with = [&](auto network) { differentiate_with<T>(network, block, kind, offset, count, out); };
    Vec<T> *const memory = block.end();
    // The paper's dimension with three scalars is worth a copy whose sizes the compiler knows.
    if (model.vectors == 1 && model.scalars == 3 && model.dim == 12) with(Channels<T, Known<10>, Known<3>>(memory, model, watch));
    else if (model.vectors == 1) with(Channels<T>(memory, model, watch));
    else with(Vectors<T>(memory, model, watch));
}

}  // namespace

extern const ChannelKernels RF_CHANNELS;
const ChannelKernels RF_CHANNELS = {{vectors<float>, differentiate<float>}, {vectors<double>, differentiate<double>}};

}  // namespace ridgeformer
