// This program links bloomery_kernels_ref and no object of cpu/: what it calls is the whole
// reference surface, so a reference that leaned on a CPU kernel would not link.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels-common/attention/reference.h"
#include "kernels-common/elementwise/reference.h"
#include "kernels-common/linear/reference.h"
#include "kernels-common/moe/reference.h"
#include "kernels-common/norm/reference.h"
#include "kernels-common/quant/reference.h"
#include "kernels-common/rope/reference.h"

namespace bloomery::kernels {
namespace {

TEST(ReferenceLibrary, LinksAndComputesWithoutAnyCpuKernel) {
  alignas(64) std::byte memory[256] = {};
  float x[32];
  for (int i = 0; i < 32; ++i) {
    x[i] = static_cast<float>(i - 16);
  }
  const QuantisedRows rows = MakeQuantisedRows(memory, 32, 32);
  ASSERT_LE(QuantisedRowBytes(32, 32), sizeof(memory));
  reference::QuantiseRow(x, rows, 0);
  EXPECT_EQ(rows.codes(0)[0], -127);

  std::byte block[34] = {};
  reference::EncodeKvRow(KvType::kQ8_0, x, 32, block);
  float decoded[32];
  reference::DecodeKvRow(KvType::kQ8_0, block, 32, decoded);
  EXPECT_NEAR(decoded[0], -16.0F, 0.1F);

  LinearArgs linear;
  linear.weight = {FindFormat(8), block, 34, 32};
  linear.quantised = rows;
  linear.rows = 1;
  float y[32] = {};
  linear.y = y;
  reference::Linear(linear, 0, 1);
  EXPECT_NEAR(y[0], reference::LinearF64(linear.weight, 0, x), 20.0);

  RmsNormArgs norm;
  norm.x = x;
  norm.y = y;
  norm.dim = 32;
  reference::RmsNorm(norm, 0, 1);
  EXPECT_NEAR(y[0], -16.0F / std::sqrt(85.5F), 1e-3F);

  double frequencies[16];
  RopeFrequencies(10000.0, 32, frequencies);
  const std::int32_t position = 0;
  RopeArgs rope;
  rope.x = x;
  rope.y = y;
  rope.heads = 1;
  rope.head_dim = rope.n_rot = 32;
  rope.frequencies = frequencies;
  rope.positions = &position;
  reference::Rope(rope, 0, 1);
  EXPECT_EQ(y[5], x[5]);

  KvView view;
  view.width = 32;
  view.row_bytes = 128;
  view.base = reinterpret_cast<std::byte*>(x);
  view.capacity = 1;
  AttentionArgs attention;
  attention.q = x;
  attention.out = y;
  attention.heads = attention.kv_heads = 1;
  attention.key_dim = attention.value_dim = 32;
  attention.keys = attention.values = &view;
  attention.index = &position;
  std::vector<float> scratch(kAttentionWindow + 64);
  reference::Attention(attention, 0, 0, scratch);
  EXPECT_EQ(y[3], x[3]);
  double exact[32];
  reference::AttentionF64(attention, 0, 0, exact);
  EXPECT_EQ(exact[3], static_cast<double>(x[3]));

  std::int32_t ids[2];
  float weights[2];
  RouterArgs router;
  router.experts = 32;
  router.top_k = 2;
  router.logits = x;
  router.ids = ids;
  router.weights = weights;
  EXPECT_TRUE(reference::RouteRow(router, 0));
  EXPECT_EQ(ids[0], 31);

  reference::Add(x, x, y, 32);
  EXPECT_EQ(y[0], -32.0F);
  reference::SwiGlu(x, x, y, 32);
  EXPECT_EQ(y[16], 0.0F);
}

}  // namespace
}  // namespace bloomery::kernels
