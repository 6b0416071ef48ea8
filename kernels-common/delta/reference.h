// The plain definition of the short convolution and the gated delta rule.
#pragma once

#include <cstddef>

#include "kernels-common/delta/delta.h"

namespace bloomery::kernels::reference {

// Channels [channel_begin, channel_end) of `rows` rows.
void ShortConv(const ShortConvArgs& args, std::size_t rows, std::size_t channel_begin,
               std::size_t channel_end);
// Value head `head` of `rows` rows.
void Delta(const DeltaArgs& args, std::size_t rows, std::size_t head);

}  // namespace bloomery::kernels::reference
