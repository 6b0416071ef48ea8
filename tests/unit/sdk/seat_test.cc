#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bloomery/seat.hpp>
#include <string>

namespace bloomery::sdk {
namespace {

struct Nothing {
  void Build(Graph&, const bl_build&) const {}
  void RowIds(std::span<const int32_t>, std::span<const int32_t>, uint64_t* ids) const { *ids = 4; }
};

TEST(Seat, KeepsStringsAndArraysWhereTheyAreHoweverManyAreAdded) {
  Seat seat;
  seat.layers = 300;
  for (int32_t l = 0; l < 300; ++l) {
    const std::string name = "a tensor name too long for small strings " + std::to_string(l);
    const Weight w = seat.AddWeight({.pattern = name,
                                     .layer = l,
                                     .ne = {4, static_cast<uint64_t>(l)},
                                     .sources = {{.pattern = name + " source", .rows = 3}},
                                     .attrs = Attrs().Str("head_order", name)});
    EXPECT_EQ(w.index, static_cast<uint32_t>(l));
    const Plane p = seat.AddPlane({.name = name, .layer = l, .types_allowed = {BL_F32}});
    EXPECT_EQ(p.index, static_cast<uint32_t>(l));
  }
  const bl_seat* raw = seat.Finish();
  ASSERT_EQ(raw->n_weights, 300u);
  for (const uint32_t l : {0u, 150u, 299u}) {
    const std::string name = "a tensor name too long for small strings " + std::to_string(l);
    const bl_weight& w = raw->weights[l];
    EXPECT_EQ(w.size, sizeof(bl_weight));
    EXPECT_EQ(w.pattern, name);
    EXPECT_EQ(w.ne[1], l);
    EXPECT_EQ(w.ne[2], 1u);
    ASSERT_EQ(w.n_sources, 1u);
    EXPECT_EQ(w.sources->pattern, name + " source");
    EXPECT_EQ(AttrReader(w.attrs, w.n_attrs).Str("head_order"), name);
    EXPECT_EQ(raw->planes[l].name, name);
    EXPECT_EQ(raw->planes[l].types_allowed[0], BL_F32);
  }
}

TEST(Seat, DefaultsAreThoseOfTheAbi) {
  Seat seat;
  seat.AddWeight({.pattern = "w", .ne = {1}});
  seat.Ignore("rope.{l}");
  const Bank bank = seat.AddBank({.layer = 1, .experts = 8, .used = 2, .width = 64, .ff = 32});
  seat.AddPlane({.name = "k"});
  seat.AddTable<&Nothing::RowIds>({.weight = {0}, .ids_per_row = 2});
  seat.AddEntry<&Nothing::Build>({});
  const bl_seat* raw = seat.Finish();
  EXPECT_EQ(raw->size, sizeof(bl_seat));
  EXPECT_EQ(raw->weights[0].bank, -1);
  EXPECT_EQ(raw->weights[0].layer, -1);
  EXPECT_EQ(raw->weights[0].sources, nullptr);
  EXPECT_EQ(raw->weights[1].flags, uint32_t{BL_WEIGHT_OPTIONAL | BL_WEIGHT_IGNORED});
  EXPECT_EQ(bank.index, 0);
  EXPECT_EQ(raw->banks[0].weight_place, BL_AFTER_DOWN);
  EXPECT_EQ(raw->banks[0].ff, 32u);
  EXPECT_EQ(raw->planes[0].rate, 1u);
  EXPECT_EQ(raw->planes[0].types_allowed[0], BL_F16);
  EXPECT_EQ(raw->tables[0].ids_per_row, 2u);
  EXPECT_EQ(raw->entries[0].needs, uint32_t{BL_NEEDS_LOGITS});
  EXPECT_STREQ(raw->entries[0].name, "main");
}

TEST(Seat, MoreThanFourDimsAreRefused) {
  Seat seat;
  EXPECT_THROW(seat.AddWeight({.pattern = "w", .ne = {1, 2, 3, 4, 5}}), Failure);
}

}  // namespace
}  // namespace bloomery::sdk
