#include "runtime/model/tensor_type.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>

namespace bloomery::model {
namespace {

// Ids as files store them, and bits per weight as the published format tables give them.
struct Fact {
  uint32_t id;
  const char* name;
  double bits_per_value;
};
constexpr Fact kFacts[] = {
    {0, "F32", 32},          {1, "F16", 16},         {2, "Q4_0", 4.5},        {3, "Q4_1", 5},
    {6, "Q5_0", 5.5},        {7, "Q5_1", 6},         {8, "Q8_0", 8.5},        {10, "Q2_K", 2.625},
    {11, "Q3_K", 3.4375},    {12, "Q4_K", 4.5},      {13, "Q5_K", 5.5},       {14, "Q6_K", 6.5625},
    {16, "IQ2_XXS", 2.0625}, {17, "IQ2_XS", 2.3125}, {18, "IQ3_XXS", 3.0625}, {19, "IQ1_S", 1.5625},
    {20, "IQ4_NL", 4.5},     {21, "IQ3_S", 3.4375},  {22, "IQ2_S", 2.5625},   {23, "IQ4_XS", 4.25},
    {24, "I8", 8},           {25, "I16", 16},        {26, "I32", 32},         {27, "I64", 64},
    {28, "F64", 64},         {29, "IQ1_M", 1.75},    {30, "BF16", 16},        {34, "TQ1_0", 1.6875},
    {35, "TQ2_0", 2.0625},   {39, "MXFP4", 4.25},    {40, "NVFP4", 4.5},
};

TEST(TensorType, EveryTypeHasItsIdNameAndSize) {
  ASSERT_EQ(TensorTypes().size(), std::size(kFacts));
  for (const Fact& fact : kFacts) {
    const TensorTypeInfo* info = FindTensorType(fact.id);
    ASSERT_NE(info, nullptr) << fact.name;
    EXPECT_EQ(info->name, fact.name);
    EXPECT_EQ(8.0 * info->block_bytes / info->block_values, fact.bits_per_value) << fact.name;
    EXPECT_EQ(&Info(info->type), info);
  }
}

TEST(TensorType, RetiredInternalAndFutureIdsAreUnknown) {
  for (const uint32_t id : {4u, 5u, 9u, 15u, 31u, 32u, 33u, 36u, 37u, 38u, 41u, UINT32_MAX}) {
    EXPECT_EQ(FindTensorType(id), nullptr) << id;
  }
}

}  // namespace
}  // namespace bloomery::model
