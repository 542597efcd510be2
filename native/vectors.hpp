#pragma once
#include "sampler.hpp"
namespace ridgeformer { namespace {
template <class T> struct Vectors { using V = Vec<T>; const Model<T> &model; Watch &watch; V *gradient;
  static std::size_t vectors(const Model<T>&) { return 0; }
  Vectors(V *, const Model<T> &m, Watch &w) : model(m), watch(w) {}
  void value(const V*) {} V loss(const V*, const V*) {return V{};} void slope(const V*, const V*, V) {} V weight(Size) {return V{};}
};
}}
