#include "runtime/text/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::text {
namespace {

// Blanks are Unicode's White_Space, named so: PCRE2's own \s also takes U+180E, which stopped being
// a blank in Unicode 6.3.
#define BLANK R"(\p{White_Space})"
#define NON_BLANK R"(\P{White_Space})"

// English contractions in small letters, and runs of letters, of digits and of signs, each with one
// blank before it; blanks leave the last one to the next run. Of the byte-level vocabularies that
// followed GPT-2's, OLMo's among them.
constexpr std::string_view kGpt2[] = {
    R"('(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^)" BLANK R"(\p{L}\p{N}]+|)" BLANK
    R"(+(?!)" NON_BLANK ")|" BLANK "+",
};

// English contractions, letters with one leading sign, digits, signs with their line breaks, line
// breaks, and blanks that leave the last one to the next word.
#define WORDS_AND_SIGNS(DIGITS)                                                    \
  R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"                   \
  R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)" DIGITS R"(| ?[^)" BLANK R"(\p{L}\p{N}]+[\r\n]*)" \
  "|" BLANK R"(*[\r\n]+)"                                                          \
  "|" BLANK R"(+(?!)" NON_BLANK ")|" BLANK "+"

constexpr std::string_view kQwen2[] = {WORDS_AND_SIGNS(R"(\p{N})")};      // each digit alone
constexpr std::string_view kGlm4[] = {WORDS_AND_SIGNS(R"(\p{N}{1,3})")};  // three from the left

// As kQwen2, but marks join letters and are no signs.
constexpr std::string_view kMarksJoin[] = {
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+)"
    R"(|\p{N})"
    R"(| ?[^)" BLANK R"(\p{L}\p{M}\p{N}]+[\r\n]*)"
    "|" BLANK R"(*[\r\n]+)"
    "|" BLANK R"(+(?!)" NON_BLANK
    ")"
    "|" BLANK "+",
};

#undef WORDS_AND_SIGNS
#undef NON_BLANK
#undef BLANK

constexpr PreTokenizerRow kRows[] = {
    {.name = "glm4",
     .expressions = kGlm4,
     .add_bos = false,
     .add_eos = false,
     .ignore_merges = false},
    {.name = "gpt-2",
     .expressions = kGpt2,
     .add_bos = false,
     .add_eos = false,
     .ignore_merges = false},
    {.name = "olmo",
     .expressions = kGpt2,
     .add_bos = false,
     .add_eos = false,
     .ignore_merges = false},
    {.name = "qwen2",
     .expressions = kQwen2,
     .add_bos = false,
     .add_eos = false,
     .ignore_merges = false},
    {.name = "qwen35",
     .expressions = kMarksJoin,
     .add_bos = false,
     .add_eos = false,
     .ignore_merges = false},
};

// A match looks at each following character a few times at most (the alternatives that share a
// beginning); the table's expressions stay far below this.
constexpr uint32_t kMatchStepsBase = 10'000;
constexpr uint32_t kMatchStepsPerByte = 16;
constexpr uint32_t kMatchHeapKibMax = 64u << 10;

uint32_t MatchLimit(size_t bytes) {
  constexpr size_t kBytesMax = (UINT32_MAX - kMatchStepsBase) / kMatchStepsPerByte;
  return kMatchStepsBase + kMatchStepsPerByte * static_cast<uint32_t>(std::min(bytes, kBytesMax));
}

// What PCRE2 says of an error.
std::string Reason(int error) {
  std::array<char, 128> text{};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  return text.data();
}

size_t ValidPrefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Character c = DecodeUtf8(text.substr(at));
    if (!c.valid) break;
    at += c.length;
  }
  return at;
}

size_t BrokenPrefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Character c = DecodeUtf8(text.substr(at));
    if (c.valid) break;
    at += c.length;
  }
  return at;
}

}  // namespace

std::span<const PreTokenizerRow> PreTokenizerRows() { return kRows; }

const PreTokenizerRow* FindPreTokenizer(std::string_view name) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [name](const PreTokenizerRow& r) { return r.name == name; });
  return row == std::end(kRows) ? nullptr : &*row;
}

// Compiled once; PCRE2 code may be used by any number of threads at a time.
class PreTokenizer::Expression {
 public:
  explicit Expression(std::string_view pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                              nullptr));
    if (code_ == nullptr) {
      throw Error(ErrorKind::kBadModel, "the expression '" + Printable(pattern) +
                                            "' that text is split by does not compile, at byte " +
                                            std::to_string(offset) + ": " + Reason(error));
    }
    // Without JIT (a platform without it, or pages that may not be executable) matching interprets.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  const pcre2_code* code() const { return code_.get(); }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
};

// One thread's scratch for one expression.
class PreTokenizer::Matcher {
 public:
  struct Match {
    size_t begin;
    size_t end;
  };

  explicit Matcher(const Expression& expression)
      : code_(expression.code()),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (!data_ || !context_) throw Error(ErrorKind::kNoMemory, "no memory to match text");
    pcre2_set_heap_limit(context_.get(), kMatchHeapKibMax);
  }

  // The first match at or after `from`; begin = text.size() where there is none. `text` is UTF-8.
  Match Find(std::string_view text, size_t from) {
    pcre2_set_match_limit(context_.get(), MatchLimit(text.size() - from));
    // What matches nothing is no piece: an expression of a plugin may.
    constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int rc = Run(text, from, kOptions);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = Run(text, from, kOptions | PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
    if (rc < 0) {
      throw Error(ErrorKind::kBadRequest,
                  "the text cannot be split into words at byte " + std::to_string(from) +
                      " of a part of " + std::to_string(text.size()) + " bytes: " + Reason(rc));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
    return {bounds[0], bounds[1]};
  }

 private:
  struct Free {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };

  int Run(std::string_view text, size_t from, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options,
                       data_.get(), context_.get());
  }

  const pcre2_code* code_;
  std::unique_ptr<pcre2_match_data, Free> data_;
  std::unique_ptr<pcre2_match_context, Free> context_;
};

PreTokenizer::PreTokenizer(const PreTokenizerRow& row) {
  for (const std::string_view pattern : row.expressions) expressions_.emplace_back(pattern);
}
PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

bool PreTokenizer::Split(std::string_view text, const Emit& emit) const {
  std::vector<Matcher> matchers(expressions_.begin(), expressions_.end());
  while (!text.empty()) {
    const size_t valid = ValidPrefix(text);
    if (valid > 0 && !SplitFrom(0, text.substr(0, valid), matchers, emit)) return false;
    text.remove_prefix(valid);
    const size_t broken = BrokenPrefix(text);
    if (broken > 0 && !emit(text.substr(0, broken))) return false;
    text.remove_prefix(broken);
  }
  return true;
}

bool PreTokenizer::SplitFrom(size_t level, std::string_view text, std::span<Matcher> matchers,
                             const Emit& emit) const {
  if (level == matchers.size()) return emit(text);
  size_t done = 0;
  while (done < text.size()) {
    const Matcher::Match match = matchers[level].Find(text, done);
    if (match.begin > done &&
        !SplitFrom(level + 1, text.substr(done, match.begin - done), matchers, emit)) {
      return false;
    }
    if (match.begin == text.size()) break;
    assert(match.end > match.begin && "an expression matched nothing");
    const std::string_view piece = text.substr(match.begin, match.end - match.begin);
    if (!SplitFrom(level + 1, piece, matchers, emit)) return false;
    done = match.end;
  }
  return true;
}

}  // namespace bloomery::text
