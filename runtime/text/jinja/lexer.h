// Internal: template source into tokens, with jinja2's whitespace rules under trim_blocks and
// lstrip_blocks. Works on the whole source at once; throws Error(kBadModel) with the place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bloomery::jinja {

// Lines and columns count from 1; columns in bytes.
struct Position {
  int line = 1;
  int column = 1;
};

enum class TokenKind {
  kData,
  kBlockBegin,
  kBlockEnd,
  kVariableBegin,
  kVariableEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Position at;
  std::string text;  // data, name, string value, operator
  int64_t integer = 0;
  double real = 0.0;
};

// The last token is kEnd. `name` is the template's, for messages.
std::vector<Token> Tokenize(std::string_view source, std::string_view name);

// Throws Error(kBadModel): "template <name>:<line>:<column>: <what>".
[[noreturn]] void FailParse(std::string_view name, Position at, std::string_view what);

}  // namespace bloomery::jinja
