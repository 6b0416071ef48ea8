// Decode of each type against values an independent implementation computed (tests/data/quants),
// and the exact integer form against the decode.
#include <gtest/gtest.h>
#include <rapidjson/document.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "kernels-common/quant/iq_tables.h"
#include "tests/unit/kernels-common/support.h"

namespace bloomery::kernels {
namespace {

using testing::FirstDifference;

std::string ReadFile(const std::string& name) {
  std::ifstream in(std::string(BLOOMERY_SOURCE_DIR) + "/tests/data/quants/" + name,
                   std::ios::binary);
  EXPECT_TRUE(in) << name;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Sample {
  std::string type;
  int id;
  std::size_t block;
  std::size_t bytes;
  std::size_t blocks;
  std::vector<std::byte> data;
  std::vector<float> values;
};

std::vector<Sample> Samples() {
  const std::string bytes = ReadFile("blocks.bin");
  rapidjson::Document index;
  index.Parse(ReadFile("index.json").c_str());
  std::vector<Sample> samples;
  for (const auto& row : index["types"].GetArray()) {
    Sample sample{row["type"].GetString(),
                  row["id"].GetInt(),
                  row["block"].GetUint64(),
                  row["bytes"].GetUint64(),
                  row["blocks"].GetUint64(),
                  {},
                  {}};
    sample.data.resize(sample.bytes * sample.blocks);
    std::memcpy(sample.data.data(), bytes.data() + row["data_offset"].GetUint64(),
                sample.data.size());
    sample.values.resize(sample.block * sample.blocks);
    std::memcpy(sample.values.data(), bytes.data() + row["values_offset"].GetUint64(),
                sample.values.size() * sizeof(float));
    samples.push_back(std::move(sample));
  }
  return samples;
}

TEST(FormatTable, DecodeEqualsTheIndependentValuesExactly) {
  std::size_t checked = 0;
  for (const Sample& sample : Samples()) {
    const FormatTraits* format = FindFormat(sample.id);
    if (format == nullptr) {
      continue;
    }
    SCOPED_TRACE(sample.type);
    EXPECT_EQ(format->name, sample.type);
    EXPECT_EQ(format->block_values, sample.block);
    EXPECT_EQ(format->block_bytes, sample.bytes);
    std::vector<float> decoded(sample.values.size());
    format->decode_row(sample.data.data(), decoded.data(), decoded.size());
    const std::size_t at = FirstDifference(decoded, sample.values);
    EXPECT_EQ(at, decoded.size()) << decoded[at] << " instead of " << sample.values[at];
    ++checked;
  }
  EXPECT_EQ(checked, Formats().size()) << "a format of the table has no sample";
}

TEST(FormatTable, KnowsEveryTypeOfTheSamples) {
  std::set<std::string> names;
  for (const FormatTraits& format : Formats()) {
    names.insert(format.name);
    EXPECT_EQ(FindFormat(format.ggml_type), &format);
    EXPECT_LE(format.block_values, kStepValues);
  }
  for (const Sample& sample : Samples()) {
    EXPECT_TRUE(names.contains(sample.type)) << sample.type;
  }
  EXPECT_EQ(names.size(), 26U);
  EXPECT_EQ(FindFormat(-1), nullptr);
  EXPECT_EQ(FindFormat(4), nullptr);  // a type GGUF removed
}

TEST(FormatTable, IntegerFormGivesTheDecodedValueInF64) {
  for (const Sample& sample : Samples()) {
    const FormatTraits* format = FindFormat(sample.id);
    if (format == nullptr || format->unpack_block == nullptr) {
      continue;
    }
    SCOPED_TRACE(sample.type);
    IntegerBlock block;
    for (std::size_t b = 0; b < sample.blocks; ++b) {
      format->unpack_block(sample.data.data() + b * sample.bytes, &block);
      for (std::size_t i = 0; i < sample.block; ++i) {
        const std::size_t part = i / kSumValues;
        const double code = block.scales[part] * block.codes[i];
        if (format->form == BlockForm::kPairScales) {
          EXPECT_EQ(static_cast<float>(code * static_cast<double>(block.pair_scales[part])),
                    sample.values[b * sample.block + i])
              << b << " " << i;
          continue;
        }
        const double min = format->form == BlockForm::kScaleMin ? block.mins[part] : 0;
        const double exact =
            code * static_cast<double>(block.d) + min * static_cast<double>(block.m);
        EXPECT_EQ(static_cast<float>(exact), sample.values[b * sample.block + i]) << b << " " << i;
      }
    }
  }
}

// The code books are facts of the format: the bytes equal the published grids.
TEST(CodeBooks, HoldTheGridsOfTheFormat) {
  rapidjson::Document grids;
  grids.Parse(ReadFile("iq_grids.json").c_str());
  const auto check = [&](const char* name, const auto& grid, int factor) {
    const auto values = grids[name]["values"].GetArray();
    constexpr std::size_t kWidth = sizeof(grid[0]);
    ASSERT_EQ(values.Size(), grid.size() * kWidth) << name;
    for (rapidjson::SizeType i = 0; i < values.Size(); ++i) {
      const auto code = static_cast<std::int8_t>((grid[i / kWidth] >> (8 * (i % kWidth))) & 255U);
      ASSERT_EQ(code, factor * values[i].GetInt()) << name << " " << i;
    }
  };
  check("IQ2_XXS", kIq2XxsGrid, 1);
  check("IQ2_XS", kIq2XsGrid, 1);
  check("IQ2_S", kIq2SGrid, 1);
  check("IQ3_XXS", kIq3XxsGrid, 1);
  check("IQ3_S", kIq3SGrid, 1);
  check("IQ1_S", kIq1Grid, 8);
  const auto signs = grids["signs_7bit"]["values"].GetArray();
  for (unsigned i = 0; i < 128; ++i) {
    EXPECT_EQ(EvenSigns(i), signs[i].GetUint());
  }
}

TEST(Half, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (std::uint32_t half = 0; half < 0x10000U; ++half) {
    const float value = HalfToFloat(static_cast<std::uint16_t>(half));
    if (value != value) {
      EXPECT_EQ(half & 0x7C00U, 0x7C00U);
      EXPECT_NE(FloatToHalf(value) & 0x3FFU, 0U);
    } else {
      ASSERT_EQ(FloatToHalf(value), half);
    }
  }
}

TEST(Half, RoundsToNearestEvenAtEveryMidpoint) {
  for (std::uint32_t half = 0; half < 0x7BFFU; ++half) {
    const double low = static_cast<double>(HalfToFloat(static_cast<std::uint16_t>(half)));
    const double high = static_cast<double>(HalfToFloat(static_cast<std::uint16_t>(half + 1)));
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(FloatToHalf(middle), (half & 1U) == 0 ? half : half + 1);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0F)), half);
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9F)), half + 1);
  }
  EXPECT_EQ(FloatToHalf(65519.996F), 0x7BFFU);
  EXPECT_EQ(FloatToHalf(65520.0F), 0x7C00U);
  EXPECT_EQ(FloatToHalf(-1e9F), 0xFC00U);
}

}  // namespace
}  // namespace bloomery::kernels
