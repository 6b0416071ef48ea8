#include "runtime/text/grammar/triggers.h"

#include <algorithm>
#include <array>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::text {
namespace {

// A look at the window takes some ten thousand where repetitions are not nested; 64 triggers of a
// hostile request then hold a pass up for some hundredths of a second and no more.
constexpr uint32_t kMatchStepsMax = 200'000;
constexpr uint32_t kMatchDepthMax = 10'000;
constexpr uint32_t kMatchHeapKibMax = 4096;

[[noreturn]] void Refuse(const std::string& why) {
  throw Error(ErrorKind::kBadRequest, "Field 'grammar_triggers': " + why);
}

}  // namespace

class GrammarTriggers::Pattern {
 public:
  Pattern(const std::string& source, bool full) : full_(full) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    // Output may end inside a character: matched by bytes where it is not valid UTF-8.
    const uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C |
                             (full ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0);
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), options,
                              &error, &offset, nullptr));
    if (code_) return;
    std::array<char, 128> reason{};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason.data()), reason.size());
    Refuse("the pattern '" + Printable(source) + "' is not valid at column " +
           std::to_string(offset + 1) + ": " + reason.data());
  }

  bool full() const { return full_; }

  // Where the first capture group that took part begins, else the match.
  std::optional<size_t> Find(std::string_view text) const {
    const std::unique_ptr<pcre2_match_data, Free> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
    if (!data || !context) throw Error(ErrorKind::kNoMemory, "no memory to match a trigger");
    pcre2_set_match_limit(context.get(), kMatchStepsMax);
    pcre2_set_depth_limit(context.get(), kMatchDepthMax);
    pcre2_set_heap_limit(context.get(), kMatchHeapKibMax);
    const int groups = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                   text.size(), 0, 0, data.get(), context.get());
    if (groups == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (groups < 0) {
      Refuse("a pattern takes too long on the output; write it without nested repetitions");
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    for (int group = 1; group < groups; ++group) {
      if (bounds[2 * group] != PCRE2_UNSET) return bounds[2 * group];
    }
    return bounds[0];
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  bool full_;
};

GrammarTriggers::GrammarTriggers(GrammarOptions options, const Tokenizer& tokenizer)
    : options_(std::move(options)) {
  if (options_.lazy && options_.triggers.empty()) {
    throw Error(ErrorKind::kBadRequest,
                "Field 'grammar_lazy': a lazy grammar needs grammar_triggers");
  }
  if (options_.triggers.size() > limits::kGrammarTriggersMax) {
    Refuse(std::to_string(options_.triggers.size()) + " triggers; at most " +
           std::to_string(limits::kGrammarTriggersMax) + " are taken");
  }
  window_ =
      std::max({options_.span_begin.size(), options_.span_end.size(), options_.span_break.size()});
  for (const GrammarTrigger& trigger : options_.triggers) {
    if (trigger.kind == GrammarTrigger::Kind::kToken) {
      if (!tokenizer.Contains(trigger.token)) {
        Refuse("token " + std::to_string(trigger.token) + " is outside the vocabulary");
      }
      tokens_.push_back(trigger.token);
      continue;
    }
    if (trigger.value.empty() || trigger.value.size() > limits::kGrammarTriggerBytesMax) {
      Refuse("a value must have 1 to " + std::to_string(limits::kGrammarTriggerBytesMax) +
             " bytes");
    }
    if (trigger.kind == GrammarTrigger::Kind::kWord) {
      words_.push_back(trigger.value);
      window_ = std::max(window_, trigger.value.size());
    } else {
      patterns_.push_back(std::make_unique<const Pattern>(
          trigger.value, trigger.kind == GrammarTrigger::Kind::kPatternFull));
      window_ = std::max(window_, limits::kGrammarTriggerWindowBytes);
    }
  }
}

GrammarTriggers::~GrammarTriggers() = default;

bool GrammarTriggers::FiresOn(TokenId token) const {
  return std::ranges::find(tokens_, token) != tokens_.end();
}

std::optional<size_t> GrammarTriggers::Start(std::string_view seen, size_t newest,
                                             bool whole) const {
  std::optional<size_t> first;
  const auto consider = [&](size_t start) {
    if (!first || start < *first) first = start;
  };
  for (const std::string& word : words_) {
    // Only a word that ends in the newest bytes has not been looked at.
    const size_t old = seen.size() - newest;
    const size_t from = old >= word.size() ? old - word.size() + 1 : 0;
    const size_t at = seen.find(word, from);
    if (at != std::string_view::npos) consider(at);
  }
  for (const auto& pattern : patterns_) {
    if (pattern->full() && !whole) continue;
    if (const auto at = pattern->Find(seen)) consider(*at);
  }
  return first;
}

}  // namespace bloomery::text
