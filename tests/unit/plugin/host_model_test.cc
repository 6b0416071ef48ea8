#include "runtime/plugin/host_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <bloomery/bloomery.hpp>

#include <string>

#include "runtime/base/limits.h"
#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_files.h"

namespace bloomery::plugin {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class HostModelTest : public testing::Test {
 protected:
  HostModelTest() : files_("m", Bytes()), file_(model::OpenGguf(files_, "m")), host_(file_) {}

  static std::string Bytes() {
    test::GgufWriter w;
    w.Add("general.architecture", "toy");
    w.Add("toy.big", uint64_t{0xffffffffffffffff});
    w.Add("toy.small", uint8_t{7});
    w.Add("toy.negative", int32_t{-5});
    w.Add("toy.positive_signed", int32_t{5});
    w.Add("toy.real", 0.25f);
    w.Add("toy.yes", true);
    w.AddArray("toy.ints", std::vector<int32_t>{1, -2, 3});
    w.AddArray("toy.reals", std::vector<float>{0.5f, 2.0f});
    w.AddRaw("toy.words", 9,
             test::GgufWriter::Encode(uint32_t{8}) + test::GgufWriter::Encode(uint64_t{2}) +
                 test::GgufWriter::Encode(std::string("ab")) +
                 test::GgufWriter::Encode(std::string("")));
    w.AddTensor("a", {4, 2}, 0, std::string(32, 'x'));
    w.AddTensor("big", {(1u << 20) / 4 + 8}, 0, std::string((1u << 20) + 32, 'y'));
    return w.Bytes();
  }

  bl_kv Get(const char* key) {
    bl_kv kv{};
    kv.size = sizeof(kv);
    EXPECT_EQ(raw().kv(raw().self, key, &kv), BL_OK) << key;
    return kv;
  }
  const bl_model& raw() const { return host_.raw(); }
  bl_status Read(uint64_t tensor, uint64_t offset, uint64_t bytes) {
    buffer_.resize(bytes);
    return raw().read_small(raw().self, tensor, offset, buffer_.data(), bytes);
  }

  test::MemoryFileSystem files_;
  model::ModelFile file_;
  HostModel host_;
  std::string buffer_;
};

TEST_F(HostModelTest, IntegersKeepTheirExactValueWhateverTheirWidth) {
  EXPECT_EQ(Get("toy.big").kind, BL_KV_U64);
  EXPECT_EQ(Get("toy.big").u, 0xffffffffffffffff);
  EXPECT_EQ(Get("toy.small").u, 7u);
  EXPECT_EQ(Get("toy.small").i, 7);
  EXPECT_EQ(Get("toy.small").f, 7.0);
  EXPECT_EQ(Get("toy.negative").kind, BL_KV_I64);
  EXPECT_EQ(Get("toy.negative").i, -5);
  EXPECT_EQ(Get("toy.positive_signed").kind, BL_KV_U64);
  EXPECT_EQ(Get("toy.positive_signed").u, 5u);
}

TEST_F(HostModelTest, OtherKindsArriveAsTheyAre) {
  EXPECT_EQ(Get("toy.real").kind, BL_KV_F64);
  EXPECT_EQ(Get("toy.real").f, 0.25);
  EXPECT_EQ(Get("toy.yes").kind, BL_KV_BOOL);
  EXPECT_EQ(Get("toy.yes").u, 1u);
  const bl_kv text = Get("general.architecture");
  EXPECT_EQ(text.kind, BL_KV_STR);
  EXPECT_EQ(std::string_view(text.s.data, text.s.bytes), "toy");
  EXPECT_EQ(Get("toy.ints").kind, BL_KV_ARRAY);
  EXPECT_EQ(Get("toy.ints").item_kind, BL_KV_U64);
  EXPECT_EQ(Get("toy.ints").count, 3u);
}

TEST_F(HostModelTest, AbsentKeysAreUnsupportedAndBadCallsRefused) {
  bl_kv kv{};
  kv.size = sizeof(kv);
  EXPECT_EQ(raw().kv(raw().self, "toy.nothing", &kv), BL_UNSUPPORTED);
  EXPECT_EQ(raw().kv(raw().self, nullptr, &kv), BL_REFUSED);
  EXPECT_EQ(raw().kv(raw().self, "toy.big", nullptr), BL_REFUSED);
  EXPECT_EQ(raw().kv_item(raw().self, "toy.ints", 3, &kv), BL_REFUSED);
  EXPECT_EQ(raw().kv_item(raw().self, "toy.big", 0, &kv), BL_REFUSED);
  EXPECT_EQ(raw().kv_item(raw().self, "toy.nothing", 0, &kv), BL_UNSUPPORTED);
  EXPECT_EQ(raw().file_kv(raw().self, 1, "toy.big", &kv), BL_REFUSED);
  EXPECT_EQ(raw().file_kv(raw().self, 0, "toy.big", &kv), BL_OK);
}

TEST_F(HostModelTest, NothingIsWrittenPastTheCallersSize) {
  struct {
    bl_kv kv;
    uint64_t guard;
  } out{};
  out.kv.size = offsetof(bl_kv, s);  // an older plugin's struct
  out.kv.count = 77;
  ASSERT_EQ(raw().kv(raw().self, "general.architecture", &out.kv), BL_OK);
  EXPECT_EQ(out.kv.kind, BL_KV_STR);
  EXPECT_EQ(out.kv.size, offsetof(bl_kv, s));
  EXPECT_EQ(out.kv.count, 77u);
  EXPECT_EQ(out.kv.s.data, nullptr);
  bl_kv none{};
  EXPECT_EQ(raw().kv(raw().self, "toy.big", &none), BL_REFUSED);
}

TEST_F(HostModelTest, TensorsAreListedAndFound) {
  bl_tensor_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(raw().n_tensors, 2u);
  ASSERT_EQ(raw().tensor(raw().self, 0, &info), BL_OK);
  EXPECT_STREQ(info.name, "a");
  EXPECT_EQ(info.type, BL_F32);
  EXPECT_EQ(info.n_dims, 2u);
  EXPECT_THAT(info.ne, ElementsAre(4, 2, 1, 1));
  EXPECT_EQ(info.bytes, 32u);
  EXPECT_EQ(raw().tensor(raw().self, 2, &info), BL_REFUSED);
  EXPECT_EQ(raw().find(raw().self, "big"), 1);
  EXPECT_EQ(raw().find(raw().self, "b"), -1);
  EXPECT_EQ(raw().find(raw().self, nullptr), -1);
}

TEST_F(HostModelTest, SmallReadsStayInsideTheTensorAndTheLimitOfACall) {
  EXPECT_EQ(Read(0, 8, 24), BL_OK);
  EXPECT_EQ(buffer_, std::string(24, 'x'));
  EXPECT_EQ(Read(0, 8, 25), BL_REFUSED);
  EXPECT_EQ(raw().read_small(raw().self, 0, UINT64_MAX, buffer_.data(), 2), BL_REFUSED);
  EXPECT_EQ(Read(2, 0, 1), BL_REFUSED);
  EXPECT_EQ(Read(1, 0, limits::kPluginReadBytesMax), BL_OK);
  EXPECT_EQ(Read(1, 0, limits::kPluginReadBytesMax + 1), BL_REFUSED);
}

TEST_F(HostModelTest, ASeatsReadsHaveABudget) {
  const uint64_t calls = limits::kPluginReadBytesSeatMax / limits::kPluginReadBytesMax;
  for (uint64_t i = 0; i < calls; ++i) {
    ASSERT_EQ(Read(1, 0, limits::kPluginReadBytesMax), BL_OK);
  }
  EXPECT_EQ(Read(0, 0, 1), BL_REFUSED);
}

// The C++ layer over the same table.
TEST_F(HostModelTest, TypedAccessGivesValuesAndNamesTheKeyWhenItRefuses) {
  const sdk::Model m(&raw());
  EXPECT_EQ(m.arch(), "toy");
  EXPECT_EQ(m.ArchKey("small"), "toy.small");
  EXPECT_EQ(m.U64("toy.small"), 7u);
  EXPECT_EQ(m.I64("toy.negative"), -5);
  EXPECT_EQ(m.F64("toy.real"), 0.25);
  EXPECT_EQ(m.F64("toy.small"), 7.0);
  EXPECT_TRUE(m.Bool("toy.yes"));
  EXPECT_EQ(m.Str("general.architecture"), "toy");
  EXPECT_THAT(m.I64Array("toy.ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(m.F64Array("toy.reals"), ElementsAre(0.5, 2.0));
  EXPECT_THAT(m.StrArray("toy.words"), ElementsAre("ab", ""));
  EXPECT_EQ(m.FindU64("toy.nothing"), std::nullopt);
  EXPECT_EQ(m.GetTensor("a").bytes, 32u);
  EXPECT_EQ(m.ReadSmall("a").size(), 32u);

  const auto text = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const sdk::Failure& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(text([&] { m.U64("toy.nothing"); }), HasSubstr("'toy.nothing' is missing"));
  EXPECT_THAT(text([&] { m.U64("toy.negative"); }),
              HasSubstr("'toy.negative' is not an unsigned integer"));
  EXPECT_THAT(text([&] { m.FindU64("toy.real"); }), HasSubstr("'toy.real' is not an unsigned"));
  EXPECT_THAT(text([&] { m.U64Array("toy.ints"); }), HasSubstr("'toy.ints', item 1 is not"));
  EXPECT_THAT(text([&] { m.U64Array("toy.small"); }), HasSubstr("'toy.small' is not an array"));
  EXPECT_THAT(text([&] { m.U64In("toy.small", 8, 9); }),
              HasSubstr("'toy.small' is 7, outside 8 … 9"));
  EXPECT_THAT(text([&] { m.GetTensor("b"); }), HasSubstr("tensor 'b' is missing"));
  EXPECT_THAT(text([&] { m.ReadSmall("big"); }), HasSubstr("tensor 'big'"));
}

}  // namespace
}  // namespace bloomery::plugin
