// exact_math.h on eight lanes of any lane type (cpu/lanes_*.h): the same steps, the same bits.
#pragma once

#include "kernels-common/exact_math/exact_math.h"

namespace bloomery::kernels {

template <class V>
typename V::F ExpLanes(typename V::F input) {
  using C = ExpConstants;
  typename V::F x = V::Max(V::Set1(C::kLow), input);
  x = V::Min(V::Set1(C::kHigh), x);
  const typename V::F n = V::Rint(V::Mul(x, V::Set1(C::kLog2E)));
  typename V::F r = V::Fma(n, V::Set1(-C::kLn2High), x);
  r = V::Fma(n, V::Set1(-C::kLn2Low), r);
  typename V::F p = V::Set1(C::kC7);
  p = V::Fma(p, r, V::Set1(C::kC6));
  p = V::Fma(p, r, V::Set1(C::kC5));
  p = V::Fma(p, r, V::Set1(C::kC4));
  p = V::Fma(p, r, V::Set1(C::kC3));
  p = V::Fma(p, r, V::Set1(C::kC2));
  p = V::Fma(p, r, V::Set1(1.0F));
  p = V::Fma(p, r, V::Set1(1.0F));
  return V::KeepNan(input, V::Mul(p, V::PowerOfTwo(n)));
}

template <class V>
typename V::F SiluLanes(typename V::F x) {
  return V::Div(x, V::Add(V::Set1(1.0F), ExpLanes<V>(V::Negate(x))));
}

template <class V>
typename V::F SigmoidLanes(typename V::F x) {
  return V::Div(V::Set1(1.0F), V::Add(V::Set1(1.0F), ExpLanes<V>(V::Negate(x))));
}

}  // namespace bloomery::kernels
