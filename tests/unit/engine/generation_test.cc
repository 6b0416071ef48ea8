// The queue between the engine and a consumer, both ends by hand.
#include "runtime/engine/generation.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/base/limits.h"
#include "tests/unit/engine/engine_test_support.h"

namespace bloomery::engine {
namespace {

Text Piece(int32_t choice, std::string text, int32_t token) {
  return {.choice = choice, .text = std::move(text), .tokens = {token}};
}

TEST(Generation, EventsComeInOrderAndEndWithTheLastFinish) {
  Generation generation(7, {.choices = 2}, {});
  EXPECT_EQ(generation.id_task(), 7);
  EXPECT_FALSE(generation.TryPop().has_value());
  generation.Push(Begin{});
  generation.Push(Finish{.choice = 1});
  EXPECT_TRUE(std::holds_alternative<Begin>(*generation.TryPop()));
  EXPECT_TRUE(std::holds_alternative<Finish>(*generation.TryPop()));
  EXPECT_FALSE(generation.ended());
  generation.Push(Finish{.choice = 0});
  EXPECT_FALSE(generation.ended());
  EXPECT_TRUE(generation.TryPop().has_value());
  EXPECT_TRUE(generation.ended());
  EXPECT_FALSE(generation.Pop().has_value());
}

TEST(Generation, FailedEndsAllChoices) {
  Generation generation(0, {.choices = 3}, {});
  generation.Push(Failed{.message = "why"});
  EXPECT_EQ(std::get<Failed>(*generation.Pop()).message, "why");
  EXPECT_TRUE(generation.ended());
}

TEST(Generation, AStalledReaderCostsNoMoreEventsThanTheLimit) {
  Generation generation(0, {.choices = 2}, {});
  const auto limit = static_cast<int32_t>(limits::kEventsQueuedMax);
  std::string expected;
  for (int32_t i = 0; i < 10 * limit; ++i) {
    std::string letter(1, static_cast<char>('a' + i % 26));
    generation.Push(Piece(0, letter, i));
    expected += letter;
  }
  generation.Push(Piece(1, "other", 5));  // a choice without a piece in the queue gets one more
  generation.Push(Piece(1, "s", 6));
  generation.Push(Finish{.choice = 0});
  generation.Push(Finish{.choice = 1});
  int32_t events = 0;
  std::map<int32_t, std::string> texts;
  Tokens tokens;
  while (auto event = generation.TryPop()) {
    ++events;
    if (auto* text = std::get_if<Text>(&*event)) {
      texts[text->choice] += text->text;
      if (text->choice == 0) tokens.insert(tokens.end(), text->tokens.begin(), text->tokens.end());
    }
  }
  EXPECT_EQ(events, limit + 3);
  EXPECT_EQ(texts[0], expected);
  EXPECT_EQ(texts[1], "others");
  ASSERT_EQ(tokens.size(), expected.size());
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], static_cast<int32_t>(i));
}

TEST(Generation, NothingJoinsBelowTheLimit) {
  Generation generation(0, {}, {});
  for (size_t i = 0; i < limits::kEventsQueuedMax; ++i) generation.Push(Piece(0, "x", 1));
  size_t events = 0;
  while (generation.TryPop()) ++events;
  EXPECT_EQ(events, limits::kEventsQueuedMax);
}

TEST(Generation, WakesWhenAnEmptyQueueFillsAndIsReleasedAtTheEnd) {
  int wakes = 0;
  auto held = std::make_shared<int>(0);
  std::weak_ptr<int> watch = held;
  Generation generation(0, {}, [&wakes, held] { ++wakes; });
  held.reset();
  generation.Push(Begin{});
  generation.Push(Piece(0, "a", 0));
  EXPECT_EQ(wakes, 1);  // not taken yet: one wake is enough
  while (generation.TryPop()) {
  }
  generation.Push(Piece(0, "b", 1));
  EXPECT_EQ(wakes, 2);
  EXPECT_FALSE(watch.expired());
  generation.Push(Finish{});
  EXPECT_EQ(wakes, 2);
  EXPECT_TRUE(watch.expired());
}

TEST(Generation, PopWaitsForAnotherThread) {
  Generation generation(0, {}, {});
  std::thread producer([&] {
    for (int i = 0; i < 1000; ++i) generation.Push(Piece(0, "x", i));
    generation.Push(Finish{.tokens_predicted = 1000});
  });
  size_t tokens = 0;
  while (auto event = generation.Pop()) {
    if (auto* text = std::get_if<Text>(&*event)) tokens += text->tokens.size();
  }
  producer.join();
  EXPECT_EQ(tokens, 1000u);
}

}  // namespace
}  // namespace bloomery::engine
