// The host's extension "bloomery.text/1" over a seat's tokenizer and template, which it borrows and
// which outlive it. Any thread may call the table; errors become statuses, no exception leaves it.
#pragma once

#include <bloomery/text.h>

#include "runtime/text/chat/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace bloomery::apps {

class TextExtension {
 public:
  TextExtension(const text::Tokenizer& tokenizer, const chat::ChatTemplate& chat_template);
  TextExtension(const TextExtension&) = delete;
  TextExtension& operator=(const TextExtension&) = delete;

  // For plugin::Instance::SetTextExtension; lives as long as this object.
  const bl_text_1& table() const { return table_; }

 private:
  const text::Tokenizer& tokenizer_;
  const chat::ChatTemplate& template_;
  bl_text_1 table_{};
};

}  // namespace bloomery::apps
