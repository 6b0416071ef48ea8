#include "runtime/text/jinja/token_cursor.h"

#include "runtime/base/limits.h"

namespace bloomery::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kData:
      return "template text";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kVariableBegin:
      return "'{{'";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kEnd:
      return "the end of the template";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace

TokenCursor::Nest::Nest(TokenCursor& cursor) : cursor_(cursor) {
  if (++cursor_.depth_ > limits::kJinjaDepthMax) {
    cursor_.FailHere("nested deeper than " + std::to_string(limits::kJinjaDepthMax) + " levels");
  }
}

void TokenCursor::FailExpected(std::string_view what) const {
  FailHere("expected " + std::string(what) + ", found " + Describe(Current()));
}
void TokenCursor::ExpectOp(std::string_view op) {
  if (!SkipOp(op)) {
    FailExpected("'" + std::string(op) + "'");
  }
}
void TokenCursor::ExpectWord(std::string_view word) {
  if (!SkipWord(word)) {
    FailExpected("'" + std::string(word) + "'");
  }
}
void TokenCursor::Expect(TokenKind kind, std::string_view what) {
  if (!IsKind(kind)) {
    FailExpected(what);
  }
  Take();
}
std::string TokenCursor::ExpectName(std::string_view what) {
  if (!IsKind(TokenKind::kName)) {
    FailExpected(what);
  }
  return Take().text;
}

}  // namespace bloomery::jinja
