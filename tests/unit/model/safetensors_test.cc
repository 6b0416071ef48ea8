#include "runtime/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/support/memory_files.h"
#include "tests/support/refusal.h"

namespace bloomery::model {
namespace {

using test::MemoryFileSystem;
using test::Refusal;
using test::RefusalOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string FileOf(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out + header + data;
}

std::string Refused(const std::string& file) {
  const Refusal refusal =
      RefusalOf([&] { SafetensorsFile(MemoryFileSystem("t.st", file), "t.st"); });
  EXPECT_EQ(refusal.kind, ErrorKind::kBadModel);
  EXPECT_THAT(refusal.message, HasSubstr("t.st"));
  return refusal.message;
}

// 01 00 00 00 02 00 00 00 | 00 00 80 3f: two i32 and one f32.
const std::string kData("\x01\0\0\0\x02\0\0\0\0\0\x80\x3f", 12);

TEST(Safetensors, ReadsTensorsByName) {
  const MemoryFileSystem files(
      "t.st",
      FileOf(R"({"__metadata__":{"x":"y"},"b":{"dtype":"F32","shape":[],)"
             R"("data_offsets":[8,12]},"a":{"dtype":"I32","shape":[1,2],"data_offsets":[0,8]}})",
             kData));
  const SafetensorsFile file(files, "t.st");
  EXPECT_THAT(file.Get("a").shape, ElementsAre(1, 2));
  EXPECT_THAT(file.ReadI32(file.Get("a")), ElementsAre(1, 2));
  EXPECT_THAT(file.ReadF32(file.Get("b")), ElementsAre(1.0F));
  EXPECT_EQ(file.Find("c"), nullptr);
  EXPECT_THAT(RefusalOf([&] { file.Get("c"); }).message, HasSubstr("'c'"));
  EXPECT_THAT(RefusalOf([&] { file.ReadF32(file.Get("a")); }).message, HasSubstr("I32"));
}

TEST(Safetensors, BadHeadersAreRefusedByTensorAndReason) {
  EXPECT_THAT(Refused("1234"), HasSubstr("header's length"));
  EXPECT_THAT(Refused(std::string(8, '\xff')), HasSubstr("header of 18446744073709551615 bytes"));
  EXPECT_THAT(Refused(FileOf("{", "")), HasSubstr("t.st"));
  EXPECT_THAT(Refused(FileOf("[]", "")), HasSubstr("no JSON object"));
  const auto tensor = [](const std::string& fields) {
    return Refused(FileOf("{\"a\":{" + fields + "}}", kData));
  };
  EXPECT_THAT(tensor(R"("dtype":"I7","shape":[2],"data_offsets":[0,8])"), HasSubstr("'I7'"));
  EXPECT_THAT(tensor(R"("dtype":"I32","shape":[2],"data_offsets":[0,16])"), HasSubstr("12 data"));
  EXPECT_THAT(tensor(R"("dtype":"I32","shape":[2],"data_offsets":[8,0])"), HasSubstr("12 data"));
  EXPECT_THAT(tensor(R"("dtype":"I32","shape":[3],"data_offsets":[0,8])"), HasSubstr("needs 12"));
  EXPECT_THAT(tensor(R"("dtype":"I32","shape":[-2],"data_offsets":[0,8])"), HasSubstr("'shape'"));
  EXPECT_THAT(tensor(R"("dtype":"I32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
              HasSubstr("out of range"));
  EXPECT_THAT(tensor(R"("dtype":"I32","data_offsets":[0,8])"), HasSubstr("'shape'"));
}

TEST(Safetensors, OverlapAndDoubleNamesAreRefused) {
  const std::string a = R"("a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]})";
  const std::string b = R"("b":{"dtype":"I32","shape":[2],"data_offsets":[4,12]})";
  EXPECT_THAT(Refused(FileOf("{" + a + "," + b + "}", kData)), HasSubstr("overlaps that of 'a'"));
  EXPECT_THAT(Refused(FileOf("{" + a + "," + a + "}", kData)), HasSubstr("twice"));
}

TEST(Safetensors, WrittenHeaderReadsBack) {
  const std::vector<SafeTensor> tensors{{"ids", "I32", {1, 2}, 0, 0}, {"x", "F32", {1}, 0, 0}};
  const std::string header = SafetensorsHeader(tensors);
  EXPECT_EQ(header.size() % 8, 0u);
  const SafetensorsFile file(MemoryFileSystem("t.st", header + kData), "t.st");
  EXPECT_THAT(file.ReadI32(file.Get("ids")), ElementsAre(1, 2));
  EXPECT_THAT(file.ReadF32(file.Get("x")), ElementsAre(1.0F));
}

}  // namespace
}  // namespace bloomery::model
