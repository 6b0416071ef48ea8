// An operator that a plugin brings, with its own CPU kernel, inside a seat's program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/limits.h"
#include "tests/support/refusal.h"
#include "tests/unit/exec/toy_seat.h"

namespace bloomery::exec {
namespace {

using test::ToySeat;

bl_status InferSame(const bl_infer* call) {
  call->out[0] = call->in[0];
  return BL_OK;
}

// y = x · factor + weight, one task a row; adds its row to a counter in the workspace.
int32_t Tasks(const bl_args* args) { return *args->rows->live; }
bl_status RunRow(const bl_args* args, int32_t row) {
  const auto* x = static_cast<const float*>(args->in[0].data) + row * ToySeat::kWidth;
  const auto* w = static_cast<const float*>(args->weights[0].data);
  auto* y = static_cast<float*>(args->out[0].data) + row * ToySeat::kWidth;
  const double factor = *static_cast<const double*>(args->attrs[0].value);
  auto* seen = static_cast<float*>(args->workspace);
  if (args->rows->token[row] == 13) return BL_INTERNAL;
  for (int32_t i = 0; i < ToySeat::kWidth; ++i) {
    y[i] = x[i] * static_cast<float>(factor) + w[i] + seen[row];
  }
  seen[row] += 1000.0F;  // must be gone before the next launch
  return BL_OK;
}
bl_status Workspace(const bl_args* args, bl_workspace* out) {
  out->bytes = static_cast<uint64_t>(args->in[0].ne[1]) * sizeof(float);
  out->zeroed = 1;
  return BL_OK;
}

plugin::Operator ScaleOperator() {
  plugin::Operator op;
  op.name = "toy.scale";
  op.inputs = {{.name = "x"}};
  op.weights = {{.name = "w"}};
  op.outputs = {{.name = "y"}};
  op.attrs = {"factor"};
  op.infer = InferSame;
  plugin::Kernel kernel;
  kernel.in = {BL_ENC_F32};
  kernel.out = {BL_ENC_F32};
  kernel.workspace = Workspace;
  kernel.tasks = Tasks;
  kernel.run = RunRow;
  op.kernels = {kernel};
  return op;
}

class PluginOp : public testing::Test {
 protected:
  PluginOp() {
    toy_.description.operators = {ScaleOperator()};
    bias_ = toy_.Add("bias", {ToySeat::kWidth});
  }

  std::unique_ptr<Seat> Load() {
    return toy_.Load(
        [&](sdk::Graph& g) {
          g.Layer(1);
          const sdk::Value x = g.Embed(g.Tokens(), toy_.table);
          const sdk::Value y = g.Node("toy.scale", 1, std::span(&x, 1), std::span(&bias_, 1), {},
                                      sdk::Attrs().F64("factor", 3.0));
          g.Export("logits", g.Head(g.SelectRows(y), toy_.table));
          g.Export("y", y);
        },
        {.slot_context = 64, .rows_max = 16, .observe = {"y"}});
  }

  ToySeat toy_;
  sdk::Weight bias_;
};

TEST_F(PluginOp, ItsKernelRunsWithWeightsAttributesRowsAndAZeroedWorkspace) {
  const std::unique_ptr<Seat> seat = Load();
  const std::vector<float>& table = toy_.Values(toy_.table);
  const std::vector<float>& bias = toy_.Values(bias_);
  for (int32_t pass = 0; pass < 2; ++pass) {
    std::vector<PassRow> rows;
    rows.reserve(5);
    for (int32_t i = 0; i < 5; ++i) rows.push_back({0, pass * 5 + i, (i * 7) % 12, true});
    seat->Run(rows);
    const std::span<const float> y = seat->Observe("y").Floats();
    ASSERT_EQ(y.size(), 5U * ToySeat::kWidth);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t token = (i / ToySeat::kWidth * 7) % 12;
      const size_t column = i % ToySeat::kWidth;
      ASSERT_EQ(y[i], table[token * ToySeat::kWidth + column] * 3.0F + bias[column]) << i;
    }
  }
}

TEST_F(PluginOp, TheKernelThatRunsSaysWhetherTheSeatListsItsOperatorAsInexact) {
  EXPECT_THAT(Load()->inexact_operators(), testing::IsEmpty());
  std::vector<plugin::Kernel>& kernels = toy_.description.operators.front().kernels;
  kernels.front().numeric_class = BL_BAND;
  EXPECT_THAT(Load()->inexact_operators(), testing::ElementsAre("toy.scale/1 (band)"));
  kernels.insert(kernels.begin(), kernels.front());
  kernels.front().numeric_class = BL_EXACT;
  kernels.front().priority = 1;
  EXPECT_THAT(Load()->inexact_operators(), testing::IsEmpty());
}

TEST_F(PluginOp, AKernelThatFailsEndsThePassNamingOperatorAndLayer) {
  const std::unique_ptr<Seat> seat = Load();
  const std::vector<PassRow> rows = {{0, 0, 1, true}, {0, 1, 13, true}};
  const test::Refusal refusal = test::RefusalOf([&] { seat->Run(rows); });
  EXPECT_EQ(refusal.kind, ErrorKind::kInternal);
  EXPECT_THAT(refusal.message, testing::HasSubstr("operator toy.scale, layer 1: its kernel failed "
                                                  "with status 6"));
  EXPECT_EQ(seat->Length(0), 0);
}

TEST_F(PluginOp, AKernelThatWantsAnEncodingThisHostDoesNotMakeIsRefused) {
  toy_.description.operators[0].kernels[0].in = {BL_ENC_INT8_256};
  EXPECT_THAT(test::RefusalOf([&] { Load(); }).message,
              testing::HasSubstr("operator toy.scale/1, layer 1: none of its 1 kernels fits"));
}

// A workspace of `bytes`, refused at loading; the calls of a kernel carry no state of their own.
template <uint64_t kBytes>
bl_status HugeWorkspace(const bl_args* /*args*/, bl_workspace* out) {
  out->bytes = kBytes;
  return BL_OK;
}

TEST_F(PluginOp, AWorkspaceIsRefusedOneBytePastTheLimitAndNearTheTopOfItsType) {
  plugin::Kernel& kernel = toy_.description.operators[0].kernels[0];
  for (const auto workspace :
       {HugeWorkspace<limits::kWorkspaceBytesMax + 1>, HugeWorkspace<UINT64_MAX - 62>}) {
    kernel.workspace = workspace;
    const test::Refusal refusal = test::RefusalOf([&] { Load(); });
    EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
    EXPECT_THAT(refusal.message, testing::HasSubstr("toy.scale"));
    EXPECT_THAT(refusal.message, testing::HasSubstr("at most 4294967296"));
  }
}

TEST_F(PluginOp, PrepareRunsOnceAtLoadingAndItsRefusalIsReported) {
  toy_.description.operators[0].kernels[0].prepare = [](const bl_device* device,
                                                        const bl_sink* sink) -> bl_status {
    if (device->kind != BL_DEVICE_CPU) return BL_INTERNAL;
    sink->fail(sink->self, BL_DEVICE, "self-test failed");
    return BL_DEVICE;
  };
  EXPECT_THAT(test::RefusalOf([&] { Load(); }).message,
              testing::HasSubstr("operator toy.scale: its kernel cannot be prepared (status 5): "
                                 "self-test failed"));
}

}  // namespace
}  // namespace bloomery::exec
