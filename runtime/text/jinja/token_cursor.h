// Internal: a walk over a template's tokens, with the looks, skips and demands of both parsers, and
// the count of nesting they share (limits::kJinjaDepthMax). What is demanded and not there throws
// Error(kBadModel) with the place.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/lexer.h"

namespace bloomery::jinja {

using Words = std::initializer_list<std::string_view>;

class TokenCursor {
 public:
  // `tokens` ends with kEnd; `name` is the template's, borrowed, for messages.
  TokenCursor(std::vector<Token> tokens, std::string_view name)
      : tokens_(std::move(tokens)), name_(name) {}

  // One level of nesting, of blocks and expressions together.
  class Nest {
   public:
    explicit Nest(TokenCursor& cursor);
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    ~Nest() { --cursor_.depth_; }

   private:
    TokenCursor& cursor_;
  };
  int depth() const { return depth_; }

  const Token& Current() const { return tokens_[pos_]; }
  const Token& Ahead() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& Take() {
    const Token& token = tokens_[pos_];
    pos_ += pos_ + 1 < tokens_.size() ? 1 : 0;
    return token;
  }
  bool IsKind(TokenKind kind) const { return Current().kind == kind; }
  bool IsOp(std::string_view op) const {
    return IsKind(TokenKind::kOperator) && Current().text == op;
  }
  bool IsWord(std::string_view word) const {
    return IsKind(TokenKind::kName) && Current().text == word;
  }
  bool IsAnyWord(Words words) const {
    return IsKind(TokenKind::kName) &&
           std::find(words.begin(), words.end(), Current().text) != words.end();
  }
  bool SkipOp(std::string_view op) {
    const bool found = IsOp(op);
    if (found) {
      Take();
    }
    return found;
  }
  bool SkipWord(std::string_view word) {
    const bool found = IsWord(word);
    if (found) {
      Take();
    }
    return found;
  }

  [[noreturn]] void FailAt(Position at, std::string_view what) const { FailParse(name_, at, what); }
  [[noreturn]] void FailHere(std::string_view what) const { FailAt(Current().at, what); }
  [[noreturn]] void FailExpected(std::string_view what) const;

  void ExpectOp(std::string_view op);
  void ExpectWord(std::string_view word);
  void Expect(TokenKind kind, std::string_view what);
  std::string ExpectName(std::string_view what);

 private:
  std::vector<Token> tokens_;
  std::string_view name_;
  size_t pos_ = 0;
  int depth_ = 0;
};

}  // namespace bloomery::jinja
