// The quantisers of the format table (FormatTraits::quantise_row). Internal.
#pragma once

#include "kernels-common/quant/quant.h"

namespace bloomery::kernels {

// quantise_float.cc
QuantiseFunction QuantiseF32;
QuantiseFunction QuantiseF16;
QuantiseFunction QuantiseBf16;
// quantise_32.cc
QuantiseFunction QuantiseQ4_0;
QuantiseFunction QuantiseQ4_1;
QuantiseFunction QuantiseQ5_0;
QuantiseFunction QuantiseQ5_1;
QuantiseFunction QuantiseQ8_0;
QuantiseFunction QuantiseIq4Nl;
QuantiseFunction QuantiseMxfp4;
// quantise_256.cc
QuantiseFunction QuantiseQ4K;
QuantiseFunction QuantiseQ5K;
QuantiseFunction QuantiseQ6K;

}  // namespace bloomery::kernels
