#include "runtime/plugin/chat_surface.h"

#include <bloomery/chat.h>

#include <cmath>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/plugin/sized.h"

namespace bloomery::plugin {
namespace {

// Of pre_patterns: public vocabularies need up to four expressions, the longest 400 bytes long.
constexpr uint32_t kPatternsMax = 16;
constexpr size_t kPatternBytesMax = 4096;

class Reader {
 public:
  Reader(const bl_chat_1& chat, std::string what) : chat_(chat), what_(std::move(what)) {}

  ChatSurface Read() const {
    RefuseUnhonoured();
    ChatSurface out;
    out.pre_tokenizer = Text("pre_tokenizer", chat_.pre_tokenizer);
    CheckCount("n_pre_patterns", chat_.n_pre_patterns, chat_.pre_patterns != nullptr, kPatternsMax);
    for (uint32_t i = 0; i < chat_.n_pre_patterns; ++i) {
      out.pre_patterns.push_back(Text("pre_patterns", chat_.pre_patterns[i], kPatternBytesMax));
      if (out.pre_patterns.back().empty()) Refuse("pre_patterns", "an empty expression");
    }
    out.reasoning_open = Text("reasoning_open", chat_.reasoning_open);
    out.reasoning_close = Text("reasoning_close", chat_.reasoning_close);
    if (out.reasoning_open.empty() != out.reasoning_close.empty()) {
      Refuse("reasoning_open", "one reasoning mark without the other");
    }
    out.tool_syntax = Text("tool_syntax", chat_.tool_syntax);
    CheckCount("n_stop_texts", chat_.n_stop_texts, chat_.stop_texts != nullptr);
    for (uint32_t i = 0; i < chat_.n_stop_texts; ++i) {
      out.stop_texts.push_back(Text("stop_texts", chat_.stop_texts[i]));
      if (out.stop_texts.back().empty()) Refuse("stop_texts", "an empty text");
    }
    CheckCount("n_stop_ids", chat_.n_stop_ids, chat_.stop_ids != nullptr);
    for (uint32_t i = 0; i < chat_.n_stop_ids; ++i) {
      if (chat_.stop_ids[i] < 0) Refuse("stop_ids", std::to_string(chat_.stop_ids[i]));
      out.stop_ids.push_back(chat_.stop_ids[i]);
    }
    out.sampling = Sampling();
    return out;
  }

 private:
  [[noreturn]] void Refuse(const char* field, const std::string& text) const {
    throw Error(ErrorKind::kBadModel, what_ + ", field " + field + ": " + text);
  }

  void RefuseUnhonoured() const {
    const auto refuse = [&](const char* field) {
      throw Error(ErrorKind::kUnsupported,
                  what_ + ", field " + field + ": this version of the host does not honour it");
    };
    if (chat_.render != nullptr) refuse("render");
    if (chat_.tool_parser != nullptr) refuse("tool_parser");
  }

  std::string Text(const char* field, const char* text,
                   size_t bytes_max = limits::kPluginTextBytesMax) const {
    if (text == nullptr) return "";
    const size_t size = strnlen(text, bytes_max + 1);
    if (size > bytes_max) Refuse(field, "more than " + std::to_string(bytes_max) + " bytes");
    return {text, size};
  }

  void CheckCount(const char* field, uint32_t n, bool has_items,
                  uint32_t most = limits::kPluginStopsMax) const {
    if (n > most) Refuse(field, std::to_string(n) + ", at most " + std::to_string(most));
    if (n > 0 && !has_items) Refuse(field, std::to_string(n) + ", but the array is null");
  }

  ChatSurface::Sampling Sampling() const {
    ChatSurface::Sampling out;
    const bl_sampling& advice = chat_.sampling;
    if (advice.size == 0) return out;  // left out
    if (advice.top_k >= 0) out.top_k = advice.top_k;
    const auto number = [&](const char* field, double value) -> std::optional<double> {
      if (std::isnan(value)) return std::nullopt;
      if (std::isinf(value)) Refuse(field, "not finite");
      return value;
    };
    out.temperature = number("sampling.temperature", advice.temperature);
    out.top_p = number("sampling.top_p", advice.top_p);
    out.min_p = number("sampling.min_p", advice.min_p);
    out.presence_penalty = number("sampling.presence_penalty", advice.presence_penalty);
    return out;
  }

  const bl_chat_1& chat_;
  std::string what_;
};

}  // namespace

ChatSurface ReadChatSurface(const void* table, const std::string& plugin) {
  if (table == nullptr) return {};
  const std::string what = "plugin " + Printable(plugin) + ", extension " BL_EXT_CHAT_1;
  const bl_chat_1 chat = CopySized(static_cast<const bl_chat_1*>(table), what);
  return Reader(chat, what).Read();
}

}  // namespace bloomery::plugin
