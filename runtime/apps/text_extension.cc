#include "runtime/apps/text_extension.h"

#include <algorithm>
#include <ctime>
#include <new>
#include <span>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/graph/abi.h"

namespace bloomery::apps {
namespace {

// Runs `make` and gives its items to the caller's buffer: as many as fit, and how many there are.
template <class Make, class Item>
bl_status Give(Make make, Item* out, uint64_t capacity, uint64_t* needed) {
  if (needed == nullptr || (out == nullptr && capacity > 0)) return BL_REFUSED;
  try {
    const auto items = make();
    *needed = items.size();
    std::copy_n(items.begin(), std::min<uint64_t>(capacity, items.size()), out);
    return BL_OK;
  } catch (const Error& error) {
    return graph::StatusOf(error.kind());
  } catch (const std::bad_alloc&) {
    return BL_NO_MEMORY;
  } catch (...) {
    return BL_INTERNAL;
  }
}

}  // namespace

TextExtension::TextExtension(const text::Tokenizer& tokenizer,
                             const chat::ChatTemplate& chat_template)
    : TextExtension([&] {
        std::promise<TextParts> ready;
        ready.set_value({.tokenizer = &tokenizer, .chat_template = &chat_template});
        return ready.get_future().share();
      }()) {}

TextExtension::TextExtension(std::shared_future<TextParts> parts) : parts_(std::move(parts)) {
  table_.size = sizeof(table_);
  table_.self = this;
  table_.tokenise = [](void* self, bl_str text, int32_t parse_special, int32_t* ids,
                       uint64_t capacity, uint64_t* needed) noexcept -> bl_status {
    if (text.data == nullptr && text.bytes > 0) return BL_REFUSED;
    const auto& here = *static_cast<const TextExtension*>(self);
    const auto make = [&] {
      return here.tokenizer().Tokenise({text.data, static_cast<size_t>(text.bytes)},
                                       {.parse_special = parse_special != 0});
    };
    return Give(make, ids, capacity, needed);
  };
  table_.detokenise = [](void* self, const int32_t* ids, uint64_t n, char* out, uint64_t capacity,
                         uint64_t* needed) noexcept -> bl_status {
    if (ids == nullptr && n > 0) return BL_REFUSED;
    const auto& here = *static_cast<const TextExtension*>(self);
    const auto make = [&] {
      return here.tokenizer().Detokenise({ids, static_cast<size_t>(n)}, text::SpecialText::kShown);
    };
    return Give(make, out, capacity, needed);
  };
  table_.render = [](void* self, const char* request_json, char* out, uint64_t capacity,
                     uint64_t* needed) noexcept -> bl_status {
    if (request_json == nullptr) return BL_REFUSED;
    const auto& here = *static_cast<const TextExtension*>(self);
    const auto make = [&] {
      const auto body = ParseJson(request_json, "chat request");
      const chat::ChatRequest request = chat::ParseChatRequest(body);
      return here.chat_template().Render(request, static_cast<int64_t>(std::time(nullptr))).text;
    };
    return Give(make, out, capacity, needed);
  };
}

}  // namespace bloomery::apps
