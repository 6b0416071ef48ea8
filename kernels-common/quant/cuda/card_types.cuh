// Inside CUDA sources: the list of types with a card form, and the step from a type id known at run
// time to code for it.
#pragma once

#include "kernels-common/quant/cuda/card_form.cuh"

namespace bloomery::kernels::cuda {

template <int kType>
struct TypeTag {
  static constexpr int value = kType;
};

// A set of types a kernel is compiled for. Dispatch (device code) and HostDispatch call
// body(TypeTag<type>{}) where `type` is in the set, and say whether it was.
template <int... kTypes>
struct TypeSet {
  static constexpr int kCount = sizeof...(kTypes);
  template <class Body>
  __device__ static bool Dispatch(int type, Body&& body) {
    return ((type == kTypes ? (body(TypeTag<kTypes>{}), true) : false) || ...);
  }
  template <class Body>
  static bool HostDispatch(int type, Body&& body) {
    return ((type == kTypes ? (body(TypeTag<kTypes>{}), true) : false) || ...);
  }
  static constexpr bool Has(int type) { return ((type == kTypes) || ...); }
};

using Types256 = TypeSet<kQ4K, kQ6K, kQ5K, kQ3K, kQ2K, kIq4Xs, kIq3S, kIq3Xxs, kIq2Xs, kIq2Xxs>;
using Types32 = TypeSet<kQ8_0, kQ4_0, kIq4Nl, kMxfp4, kNvfp4>;
using CardTypes = TypeSet<kQ4K, kQ6K, kQ5K, kQ3K, kQ2K, kIq4Xs, kIq3S, kIq3Xxs, kIq2Xs, kIq2Xxs,
                          kQ8_0, kQ4_0, kIq4Nl, kMxfp4, kNvfp4>;
// What most files are made of: kernels of these two alone are shorter.
using CommonTypes = TypeSet<kQ4K, kQ6K>;

// Values that share a scale of the activations.
template <class Set>
constexpr int kGroupOf = 256;
template <>
inline constexpr int kGroupOf<Types32> = 32;

}  // namespace bloomery::kernels::cuda
