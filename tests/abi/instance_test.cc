// Instances of real plugins: what create, describe and build fail with reaches the host as an
// Error.
#include "runtime/plugin/instance.h"

#include <bloomery/chat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/model/gguf.h"
#include "runtime/plugin/call.h"
#include "tests/abi/fake_model.h"
#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"

namespace bloomery::plugin {
namespace {

using test::RefusalOf;
using testing::HasSubstr;

model::ModelFile Open(const test::GgufWriter& writer = test::FakeModel()) {
  const test::MemoryFileSystem files("m.gguf", writer.Bytes());
  return model::OpenGguf(files, "m.gguf");
}

LoadedPlugin Fake() { return LoadPlugin(std::string(ABI_PLUGINS) + "/good/fake/libfake.so"); }

TEST(Instance, DescribesTheModelAndGivesItsMemoryBack) {
  const model::ModelFile model = Open();
  Instance instance(Fake(), model, {});
  EXPECT_EQ(instance.description().layers, 2u);
  EXPECT_EQ(instance.description().operators.at(0).name, "fake.scale");
  EXPECT_EQ(instance.host_bytes(), 256u);
  EXPECT_NE(instance.Extension(BL_EXT_CHAT_1), nullptr);
  EXPECT_EQ(instance.Extension("bloomery.nothing/1"), nullptr);
}

TEST(Instance, CacheTypesReachThePlanes) {
  const model::ModelFile model = Open();
  Instance instance(Fake(), model, {.plane_types = {{BL_CLASS_V, BL_F32}}});
  EXPECT_EQ(instance.description().planes.at(0).type, BL_F16);
  EXPECT_EQ(instance.description().planes.at(1).type, BL_F32);
}

TEST(Instance, ThePluginsOwnReasonIsTheErrorsText) {
  test::FakeModelShape shape;
  shape.heads = 7;  // 64 is no multiple of it
  const model::ModelFile model = Open(test::FakeModel(shape));
  const auto refusal = RefusalOf([&] { Instance(Fake(), model, {}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("libfake.so, create: embedding_length is no multiple"));
}

TEST(Instance, AMissingKeyIsNamed) {
  test::GgufWriter writer;
  writer.Add("general.architecture", "fake");
  const model::ModelFile model = Open(writer);
  EXPECT_THAT(RefusalOf([&] { Instance(Fake(), model, {}); }).message,
              HasSubstr("metadata key 'fake.block_count' is missing"));
}

TEST(Instance, AMissingTensorIsNamed) {
  const model::ModelFile model = Open(test::FakeModel({}, "blk.1.up.weight"));
  EXPECT_THAT(RefusalOf([&] { Instance(Fake(), model, {}); }).message,
              HasSubstr("tensor 'blk.1.up.weight' is missing"));
}

TEST(Instance, ABudgetOfNoMemoryIsAnErrorOfThatKind) {
  const model::ModelFile model = Open();
  const auto refusal = RefusalOf([&] { Instance(Fake(), model, {.host_bytes_max = 255}); });
  EXPECT_EQ(refusal.kind, ErrorKind::kNoMemory);
  EXPECT_THAT(refusal.message, HasSubstr("gave no 256 bytes"));
  EXPECT_NO_THROW(Instance(Fake(), model, {.host_bytes_max = 256}));
}

TEST(Instance, TwoLiveAtOnce) {
  const model::ModelFile model = Open();
  auto first = std::make_unique<Instance>(Fake(), model, InstanceOptions{});
  Instance second(Fake(), model, {});
  EXPECT_NE(first->raw(), second.raw());
  first.reset();
  EXPECT_EQ(second.description().layers, 2u);
}

TEST(Instance, MemoryThatThePluginForgetsIsFreedWithIt) {
  const model::ModelFile model = Open();
  const LoadedPlugin hoarder = LoadPlugin(std::string(ABI_PLUGINS) + "/flawed/hoards/libhoards.so");
  const Instance instance(hoarder, model, {});  // the address sanitizer says whether it was
  EXPECT_EQ(instance.host_bytes(), 356u);
}

TEST(CallPlugin, AnExceptionAcrossTheAbiIsAnErrorThatSaysSo) {
  Reason reason;
  const auto refusal =
      RefusalOf([&] { CallPlugin("toy", "probe", reason, []() -> bl_status { throw 7; }); });
  EXPECT_EQ(refusal.kind, ErrorKind::kInternal);
  EXPECT_THAT(refusal.message, HasSubstr("threw an exception across the ABI"));
}

TEST(CallPlugin, AFailureWithoutAReasonSaysThat) {
  Reason reason;
  const auto refusal =
      RefusalOf([&] { CallPlugin("toy", "create", reason, [] { return bl_status{BL_DEVICE}; }); });
  EXPECT_EQ(refusal.kind, ErrorKind::kInternal);
  EXPECT_THAT(refusal.message, HasSubstr("plugin toy, create: failed with status 5 and gave no"));
}

}  // namespace
}  // namespace bloomery::plugin
