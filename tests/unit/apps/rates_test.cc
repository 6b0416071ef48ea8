#include "runtime/apps/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/apps/doctor.h"
#include "tests/support/temp_dir.h"

namespace bloomery::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

memory::MachineRates Rates(double host_read) {
  return {.host_read = host_read,
          .host_macs = 4e11,
          .experts = {.bytes = 2'654'208,
                      .dispatch_us = 41,
                      .expert_us = 22,
                      .read_us = 25,
                      .fixed_us = 26,
                      .row_us = 2.25,
                      .beside_link = 1.25},
          .cards = {{.id = "CUDA0",
                     .name = "Card",
                     .read = 4.2e12,
                     .to_card = 55e9,
                     .to_card_beside = 50e9,
                     .from_card = 54e9,
                     .multiprocessors = 132}}};
}

TEST(Rates, AreReadBackUnderTheirKeyOnly) {
  const test::TempDir folder;
  const std::string path = folder.path() + "/new/folder/rates.json";
  EXPECT_EQ(ReadRates(path, "a"), std::nullopt);
  WriteRates(path, "a", Rates(1e9));
  WriteRates(path, "b", Rates(2e9));
  WriteRates(path, "a", Rates(3e9));
  const auto a = ReadRates(path, "a");
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(a->host_read, 3e9);
  EXPECT_EQ(a->file_read, 0);
  ASSERT_EQ(a->cards.size(), 1U);
  EXPECT_EQ(a->cards[0].id, "CUDA0");
  EXPECT_EQ(a->cards[0].to_card, 55e9);
  EXPECT_EQ(a->cards[0].to_card_beside, 50e9);
  EXPECT_EQ(a->experts.bytes, 2'654'208U);
  EXPECT_EQ(a->experts.dispatch_us, 41);
  EXPECT_EQ(a->experts.expert_us, 22);
  EXPECT_EQ(a->experts.read_us, 25);
  EXPECT_EQ(a->experts.fixed_us, 26);
  EXPECT_EQ(a->experts.row_us, 2.25);
  EXPECT_EQ(a->experts.beside_link, 1.25);
  EXPECT_EQ(a->cards[0].multiprocessors, 132);
  EXPECT_EQ(ReadRates(path, "b")->host_read, 2e9);
  EXPECT_EQ(ReadRates(path, "c"), std::nullopt);
}

TEST(Rates, KeysBeyondSixteenReplaceTheOldest) {
  const test::TempDir folder;
  const std::string path = folder.path() + "/rates.json";
  for (int i = 0; i < 18; ++i) WriteRates(path, std::to_string(i), Rates(1e9 + i));
  EXPECT_EQ(ReadRates(path, "1"), std::nullopt);
  EXPECT_EQ(ReadRates(path, "2")->host_read, 1e9 + 2);
  EXPECT_EQ(ReadRates(path, "17")->host_read, 1e9 + 17);
}

TEST(Rates, AFileThatIsNotOneOfOursIsNotReadAndIsReplaced) {
  const test::TempDir folder;
  const std::string path = folder.path() + "/rates.json";
  for (const char* text : {"", "[1]", "{\"rates\":{}}", "{\"rates\":[1,{\"key\":2}]}", "{\"rat"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(ReadRates(path, "a"), std::nullopt) << text;
  }
  std::ofstream(path) << R"({"rates":[{"key":"a","host_read":-1,"host_macs":"x","cards":[1]}]})";
  EXPECT_EQ(ReadRates(path, "a")->host_read, 0);
  EXPECT_EQ(ReadRates(path, "a")->experts.bytes, 0U);  // as one has that was kept before
  WriteRates(path, "a", Rates(5e9));
  EXPECT_EQ(ReadRates(path, "a")->host_read, 5e9);
}

TEST(Rates, TheKeyTellsMachinesCardsAndDriversApart) {
  MachineView machine;
  machine.cpu = "Some CPU";
  machine.cores = 16;
  EXPECT_EQ(RatesKey(machine), "Some CPU, 16 cores");
  exec::VideoCard card;
  card.name = "Card";
  card.total_bytes = uint64_t{80} << 30;
  card.driver_cuda = "13.0";
  machine.cards.push_back(card);
  EXPECT_EQ(RatesKey(machine), "Some CPU, 16 cores; Card, 81920 MiB, CUDA 13.0");
}

TEST(Rates, LieInTheCacheFolderOfTheUser) {
  EXPECT_EQ(RatesPath({{"XDG_CACHE_HOME", "/x"}, {"HOME", "/h"}}), "/x/bloomery/rates.json");
  EXPECT_EQ(RatesPath({{"HOME", "/h"}}), "/h/.cache/bloomery/rates.json");
  EXPECT_EQ(RatesPath({}), "");
}

std::vector<std::string> Wrong(const DoctorView& view) {
  std::vector<std::string> texts;
  for (const Problem& problem : ProblemsOf(view)) texts.push_back(problem.what);
  return texts;
}

// A machine with nothing wrong.
DoctorView Healthy() {
  DoctorView view;
  view.machine.features = {"avx", "avx2"};
  view.no_cards = "no NVIDIA driver is loaded here";
  view.plugins.candidates.resize(1);
  view.rates = Rates(1e9);
  return view;
}

TEST(Doctor, AMachineWithoutCardAndDriverIsNotIll) { EXPECT_THAT(Wrong(Healthy()), IsEmpty()); }

TEST(Doctor, WhatIsWrongIsNamedWithWhatToDo) {
  DoctorView view = Healthy();
  view.has_driver = true;
  view.machine.features = {"avx"};
  view.plugins.candidates.clear();
  view.plugins.verdicts.push_back({"/p/libx.so", "it is no ELF file", true});
  view.plugins.verdicts.push_back({"/p", "a folder", false});
  view.rates_trouble = "the disk is full";
  view.rates.reset();
  EXPECT_THAT(Wrong(view), ElementsAre(HasSubstr("AVX2"), HasSubstr("no plugin"),
                                       HasSubstr("/p/libx.so is skipped: it is no ELF file"),
                                       "no NVIDIA driver is loaded here",
                                       HasSubstr("the disk is full"), HasSubstr("no rates")));
  for (const Problem& problem : ProblemsOf(view)) EXPECT_THAT(problem.next, Not(IsEmpty()));
}

}  // namespace
}  // namespace bloomery::apps
