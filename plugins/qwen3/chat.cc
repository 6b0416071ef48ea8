#include "chat.h"

namespace bloomery::qwen3 {

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
    return chat;
  }();
  return kChat;
}

}  // namespace bloomery::qwen3
