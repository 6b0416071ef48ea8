// The host's extension "bloomery.text/1" over a seat's tokenizer and template, which it borrows and
// which outlive it. They may still be in the making while the seat loads: a call waits for them.
// Any thread may call the table; errors become statuses, no exception leaves it.
#pragma once

#include <bloomery/text.h>

#include <future>

#include "runtime/text/chat/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::apps {

struct TextParts {
  const text::Tokenizer* tokenizer = nullptr;
  const chat::ChatTemplate* chat_template = nullptr;
};

class TextExtension {
 public:
  explicit TextExtension(std::shared_future<TextParts> parts);
  TextExtension(const text::Tokenizer& tokenizer, const chat::ChatTemplate& chat_template);
  TextExtension(const TextExtension&) = delete;
  TextExtension& operator=(const TextExtension&) = delete;

  // For plugin::Instance::SetTextExtension; lives as long as this object.
  const bl_text_1& table() const { return table_; }

 private:
  const text::Tokenizer& tokenizer() const { return *parts_.get().tokenizer; }
  const chat::ChatTemplate& chat_template() const { return *parts_.get().chat_template; }

  std::shared_future<TextParts> parts_;
  bl_text_1 table_{};
};

}  // namespace bloomery::apps
