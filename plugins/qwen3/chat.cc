#include "chat.h"

#include <iterator>

namespace bloomery::qwen3 {
namespace {

constexpr const char* kWeatherRequest = R"({
  "messages": [{"role": "user", "content": "Weather in Oslo and Rome?"}],
  "tools": [{"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]})";

constexpr const char* kWeatherMessage = R"({
  "reasoning_content": "Two cities, two calls.", "content": "",
  "tool_calls": [
    {"type": "function", "function": {"name": "weather",
                                      "arguments": "{\"city\":\"Oslo\",\"days\":2}"}},
    {"type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}}]})";

constexpr bl_chat_recording Recording(const char* request, const char* output,
                                      const char* message) {
  return {sizeof(bl_chat_recording), 0, request, nullptr, output, message};
}

constexpr bl_chat_recording kThought =
    Recording(R"({"messages": [{"role": "user", "content": "Is 91 prime?"}]})",
              "<think>\n91 is 7 times 13.\n</think>\n\nNo: 91 = 7 · 13.",
              R"({"reasoning_content": "91 is 7 times 13.", "content": "No: 91 = 7 · 13."})");
constexpr bl_chat_recording kUnthought =
    Recording(R"({"messages": [{"role": "user", "content": "Write a tag."}]})",
              "A call looks like <tool_call> and is not one.",
              R"({"content": "A call looks like <tool_call> and is not one."})");

constexpr bl_chat_recording kHermesRecordings[] = {
    kThought, kUnthought,
    Recording(kWeatherRequest,
              "<think>\nTwo cities, two calls.\n</think>\n\n"
              "<tool_call>\n{\"name\": \"weather\", \"arguments\": "
              "{\"city\": \"Oslo\", \"days\": 2}}\n</tool_call>\n"
              "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n"
              "</tool_call>",
              kWeatherMessage)};

constexpr bl_chat_recording kXmlRecordings[] = {
    kThought, kUnthought,
    Recording(kWeatherRequest,
              "<think>\nTwo cities, two calls.\n</think>\n\n"
              "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"
              "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n"
              "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n"
              "</tool_call>",
              kWeatherMessage)};

}  // namespace

const bl_chat_1& Chat() {
  static constexpr bl_chat_1 kChat = [] {
    bl_chat_1 chat{};
    chat.size = sizeof(bl_chat_1);
    chat.pre_tokenizer = "qwen2";
    // Hybrid and thinking releases write them; instruct releases never do.
    chat.reasoning_open = "<think>";
    chat.reasoning_close = "</think>";
    chat.tool_syntax = "hermes";
    // The values of the instruct releases; thinking ones ask for 0.6 and 0.95.
    chat.sampling = {sizeof(bl_sampling), 20, 0.7, 0.8, 0.0, 0.0};
    chat.recordings = kHermesRecordings;
    chat.n_recordings = std::size(kHermesRecordings);
    return chat;
  }();
  return kChat;
}

const bl_chat_1& HybridChat() {
  static constexpr bl_chat_1 kChat = [] {
    bl_chat_1 chat{};
    chat.size = sizeof(bl_chat_1);
    chat.reasoning_open = "<think>";
    chat.reasoning_close = "</think>";
    chat.tool_syntax = "qwen_xml";
    // With thinking, for general use; coding asks for 0.6 and no presence penalty.
    chat.sampling = {sizeof(bl_sampling), 20, 1.0, 0.95, 0.0, 1.5};
    chat.recordings = kXmlRecordings;
    chat.n_recordings = std::size(kXmlRecordings);
    return chat;
  }();
  return kChat;
}

}  // namespace bloomery::qwen3
