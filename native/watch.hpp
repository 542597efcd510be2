// Long computations count their work, and end early if they are asked to: see Watch in kernels.hpp.
#pragma once
#include "lanes.hpp"

namespace ridgeformer {
namespace {

constexpr Size kPatience = 1 << 20;  // work between two questions: a few milliseconds at most
constexpr Size kDeep = 32;           // sums of fewer terms than this are over before anyone could want to stop them

__attribute__((noinline)) bool ask(Watch &watch) {
    if (watch.stop(watch.state)) return true;  // work is kept, so that the next question comes at once
    watch.work = 0;
    return false;
}

// Counts work; true if the call is to end.
RF_INLINE bool stopped(Watch &watch, Size work) {
    watch.work += work;
    return __builtin_expect(watch.work >= kPatience, 0) && ask(watch);
}

// Counts the elements of a matrix that are computed as sums of `depth` terms.
struct Counter {
    Watch &watch;
    Size depth;
    RF_INLINE bool stop(Size elements) const { return depth >= kDeep && stopped(watch, elements * depth); }
};
struct NoCounter {
    RF_INLINE bool stop(Size) const { return false; }
};

}  // namespace
}  // namespace ridgeformer
