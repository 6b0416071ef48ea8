#include "runtime/plugin/chat_surface.h"

#include <bloomery/chat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/limits.h"
#include "tests/support/refusal.h"

namespace bloomery::plugin {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

bl_chat_1 Chat() {
  bl_chat_1 chat{};
  chat.size = sizeof(chat);
  chat.sampling = {sizeof(bl_sampling), -1, NAN, NAN, NAN, NAN};
  return chat;
}

std::string RefusalOf(const bl_chat_1& chat, ErrorKind kind = ErrorKind::kBadModel) {
  const test::Refusal refusal = test::RefusalOf([&] { ReadChatSurface(&chat, "p"); });
  EXPECT_EQ(refusal.kind, kind);
  return refusal.message;
}

TEST(ChatSurface, APluginWithoutTheExtensionSaysNothing) {
  const ChatSurface surface = ReadChatSurface(nullptr, "p");
  EXPECT_EQ(surface.pre_tokenizer, "");
  EXPECT_EQ(surface.reasoning_open, "");
  EXPECT_FALSE(surface.sampling.temperature.has_value());
}

TEST(ChatSurface, EveryHonouredMemberIsCopied) {
  bl_chat_1 chat = Chat();
  chat.pre_tokenizer = "split";
  chat.reasoning_open = "[R]";
  chat.reasoning_close = "[/R]";
  chat.tool_syntax = "dsml";
  const char* const texts[] = {"<end>", "<stop>"};
  const int32_t ids[] = {7, 9};
  chat.stop_texts = texts;
  chat.n_stop_texts = 2;
  chat.stop_ids = ids;
  chat.n_stop_ids = 2;
  chat.sampling = {sizeof(bl_sampling), 20, 0.5, NAN, 0.0, 1.5};
  const ChatSurface surface = ReadChatSurface(&chat, "p");
  EXPECT_EQ(surface.pre_tokenizer, "split");
  EXPECT_EQ(surface.reasoning_open, "[R]");
  EXPECT_EQ(surface.reasoning_close, "[/R]");
  EXPECT_EQ(surface.tool_syntax, "dsml");
  EXPECT_THAT(surface.stop_texts, ElementsAre("<end>", "<stop>"));
  EXPECT_THAT(surface.stop_ids, ElementsAre(7, 9));
  EXPECT_EQ(surface.sampling.top_k, 20);
  EXPECT_EQ(surface.sampling.temperature, 0.5);
  EXPECT_FALSE(surface.sampling.top_p.has_value());
  EXPECT_EQ(surface.sampling.min_p, 0.0);
  EXPECT_EQ(surface.sampling.presence_penalty, 1.5);
  EXPECT_FALSE(surface.sampling.top_p.has_value());
}

TEST(ChatSurface, MembersThatAreNotHonouredAreRefusedByName) {
  bl_chat_1 chat = Chat();
  chat.render = [](const char*, char*, uint64_t, uint64_t*, const bl_sink*) -> bl_status {
    return BL_OK;
  };
  EXPECT_THAT(RefusalOf(chat, ErrorKind::kUnsupported), HasSubstr("field render"));
  chat = Chat();
  const bl_tool_parser parser{};
  chat.tool_parser = &parser;
  EXPECT_THAT(RefusalOf(chat, ErrorKind::kUnsupported), HasSubstr("field tool_parser"));
}

TEST(ChatSurface, ExpressionsThatSplitTextAreCopiedAndBounded) {
  bl_chat_1 chat = Chat();
  const std::string longest(4096, 'a'), too_long(4097, 'a');
  std::vector<const char*> patterns(16, longest.c_str());
  chat.pre_patterns = patterns.data();
  chat.n_pre_patterns = 16;
  EXPECT_EQ(ReadChatSurface(&chat, "p").pre_patterns, std::vector<std::string>(16, longest));
  patterns.back() = too_long.c_str();
  EXPECT_THAT(RefusalOf(chat), HasSubstr("field pre_patterns: more than 4096 bytes"));
  patterns.back() = "";
  EXPECT_THAT(RefusalOf(chat), HasSubstr("field pre_patterns: an empty expression"));
  patterns.push_back("a");
  chat.pre_patterns = patterns.data();
  chat.n_pre_patterns = 17;
  EXPECT_THAT(RefusalOf(chat), HasSubstr("field n_pre_patterns: 17, at most 16"));
  chat.pre_patterns = nullptr;
  chat.n_pre_patterns = 1;
  EXPECT_THAT(RefusalOf(chat), HasSubstr("n_pre_patterns: 1, but the array is null"));
}

TEST(ChatSurface, BrokenTablesAreRefusedByField) {
  bl_chat_1 chat = Chat();
  chat.reasoning_open = "[R]";
  EXPECT_THAT(RefusalOf(chat), HasSubstr("one reasoning mark without the other"));
  chat = Chat();
  chat.n_stop_ids = 1;
  EXPECT_THAT(RefusalOf(chat), HasSubstr("n_stop_ids: 1, but the array is null"));
  const int32_t negative = -1;
  chat.stop_ids = &negative;
  EXPECT_THAT(RefusalOf(chat), HasSubstr("stop_ids: -1"));
  chat.n_stop_ids = limits::kPluginStopsMax + 1;
  EXPECT_THAT(RefusalOf(chat), HasSubstr("at most 32"));
  chat = Chat();
  const char* const empty = "";
  chat.stop_texts = &empty;
  chat.n_stop_texts = 1;
  EXPECT_THAT(RefusalOf(chat), HasSubstr("stop_texts: an empty text"));
  chat = Chat();
  const std::string longer(limits::kPluginTextBytesMax + 1, 'a');
  chat.tool_syntax = longer.c_str();
  EXPECT_THAT(RefusalOf(chat), HasSubstr("tool_syntax: more than 256 bytes"));
  chat = Chat();
  chat.sampling.top_p = INFINITY;
  EXPECT_THAT(RefusalOf(chat), HasSubstr("sampling.top_p: not finite"));
}

}  // namespace
}  // namespace bloomery::plugin
