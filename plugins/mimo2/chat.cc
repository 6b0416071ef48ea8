#include "chat.h"

namespace bloomery::mimo2 {
namespace {

// Recorded by hand from the descriptions of the release's template: nothing between the tags.
constexpr bl_chat_recording kRecordings[] = {
    {sizeof(bl_chat_recording), 0, R"({"messages": [{"role": "user", "content": "hi"}]})", nullptr,
     "<think>The user greets me.</think>Hello!",
     R"({"role": "assistant", "reasoning_content": "The user greets me.", "content": "Hello!"})"},
    {sizeof(bl_chat_recording), 0,
     R"({"messages": [{"role": "user", "content": "weather in Bonn"}], "tools": [{"type": "function",
"function": {"name": "weather", "parameters": {"type": "object", "properties": {
"city": {"type": "string"}, "days": {"type": "integer"}}}}}]})",
     nullptr,
     "<think>I look it up.</think><tool_call><function=weather><parameter=city>Bonn</parameter>"
     "<parameter=days>3</parameter></function></tool_call>",
     R"({"role": "assistant", "reasoning_content": "I look it up.", "content": null,
"tool_calls": [{"type": "function", "function": {"name": "weather",
"arguments": "{\"city\": \"Bonn\", \"days\": 3}"}}]})"},
};

constexpr const char* kStopTexts[] = {"<|im_end|>", "<|endoftext|>"};

// Of the releases: end of text, end of turn, and a third that their generation config stops at.
constexpr int32_t kStopIds[] = {151643, 151645, 151672};

constexpr bl_chat_1 MakeChat(bool with_ids) {
  bl_chat_1 chat{};
  chat.size = sizeof(bl_chat_1);
  chat.pre_tokenizer = "qwen2";
  chat.reasoning_open = "<think>";
  chat.reasoning_close = "</think>";
  chat.tool_syntax = "qwen_xml_inline";
  chat.stop_texts = kStopTexts;
  chat.n_stop_texts = 2;
  if (with_ids) {
    chat.stop_ids = kStopIds;
    chat.n_stop_ids = 3;
  }
  chat.sampling = {sizeof(bl_sampling), -1, 1.0, 0.95, 0.0, 0.0};
  chat.recordings = kRecordings;
  chat.n_recordings = 2;
  return chat;
}

}  // namespace

const bl_chat_1& Chat() {
  static constexpr bl_chat_1 kChat = MakeChat(false);
  return kChat;
}

const bl_chat_1& ChatOf(uint64_t vocabulary) {
  static constexpr bl_chat_1 kRelease = MakeChat(true);
  constexpr uint64_t kReleaseTokens = 151675;
  return vocabulary < kReleaseTokens ? Chat() : kRelease;
}

}  // namespace bloomery::mimo2
