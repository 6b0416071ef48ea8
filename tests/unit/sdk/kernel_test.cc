#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bloomery/kernel.hpp>
#include <vector>

namespace bloomery::sdk {
namespace {

using testing::ElementsAre;

struct Doubler {
  static int32_t Tasks(const Args& args) { return args.live_rows(); }
  static void Run(const Args& args, int32_t row) {
    if (row == 2) Refuse("row 2 is out of favour");
    const auto in = args.In(0).Row<const float>(row);
    const auto out = args.Out(0).Row<float>(row);
    for (size_t i = 0; i < in.size(); ++i) out[i] = in[i] * 2;
  }
  static bool Supports(const Args& args) { return args.In(0).width() == 2; }
  static uint64_t WorkspaceBytes(const Args&) { return 128; }
};

struct Bare {
  static int32_t Tasks(const Args&) { throw 3; }
  static void Run(const Args&, int32_t) {}
};

class KernelTest : public testing::Test {
 protected:
  KernelTest() {
    for (bl_tensor* t : {&in_, &out_}) {
      t->size = sizeof(*t);
      t->ndim = 2;
      t->ne[0] = 2;
      t->ne[1] = 3;
      t->nb[0] = 4;
      t->nb[1] = 12;  // rows lie apart
    }
    in_.data = input_;
    out_.data = output_;
    rows_.size = sizeof(rows_);
    rows_.live = &live_;
    args_.size = sizeof(args_);
    args_.in = &in_;
    args_.n_in = 1;
    args_.out = &out_;
    args_.n_out = 1;
    args_.rows = &rows_;
  }
  float input_[9] = {1, 2, 0, 3, 4, 0, 5, 6, 0};
  float output_[9] = {};
  int32_t live_ = 2;
  bl_tensor in_{}, out_{};
  bl_rows rows_{};
  bl_args args_{};
};

TEST_F(KernelTest, RowsAreReadAndWrittenByTheirStride) {
  bl_kernel kernel{};
  CpuKernelCalls<Doubler>::Fill(kernel);
  EXPECT_EQ(kernel.tasks(&args_), 2);
  EXPECT_EQ(kernel.run(&args_, 0), BL_OK);
  EXPECT_EQ(kernel.run(&args_, 1), BL_OK);
  EXPECT_THAT(output_, ElementsAre(2, 4, 0, 6, 8, 0, 0, 0, 0));
}

TEST_F(KernelTest, OptionalMembersAreFilledWhereTheClassHasThem) {
  bl_kernel kernel{};
  CpuKernelCalls<Doubler>::Fill(kernel);
  EXPECT_EQ(kernel.supports(&args_), 1);
  in_.ne[0] = 1;
  EXPECT_EQ(kernel.supports(&args_), 0);
  bl_workspace workspace{sizeof(bl_workspace), 7, 0};
  EXPECT_EQ(kernel.workspace(&args_, &workspace), BL_OK);
  EXPECT_EQ(workspace.bytes, 128u);
  EXPECT_EQ(workspace.zeroed, 0u);
  EXPECT_EQ(kernel.prepare, nullptr);
  bl_kernel bare{};
  CpuKernelCalls<Bare>::Fill(bare);
  EXPECT_EQ(bare.supports, nullptr);
  EXPECT_EQ(bare.workspace, nullptr);
}

TEST_F(KernelTest, ExceptionsBecomeStatuses) {
  EXPECT_EQ(CpuKernelCalls<Doubler>::Run(&args_, 2), BL_REFUSED);
  EXPECT_EQ(CpuKernelCalls<Bare>::Tasks(&args_), -1);
}

}  // namespace
}  // namespace bloomery::sdk
