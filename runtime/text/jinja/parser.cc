#include "runtime/text/jinja/parser.h"

#include <array>
#include <utility>

#include "runtime/text/jinja/expression_parser.h"
#include "runtime/text/jinja/token_cursor.h"

namespace bloomery::jinja {
namespace {

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, std::string_view name)
      : in_(std::move(tokens), name), expressions_(in_) {}

  Body Run() {
    Body body = ParseBody({}, "");
    expressions_.FailIfUnknown();
    return body;
  }

 private:
  // Up to a block that begins with one of `ends` (left as the current token), or to the end of the
  // template when there are none. `opener` is the statement whose body this is.
  Body ParseBody(Words ends, std::string_view opener) {
    Body body;
    const Position opened = in_.Current().at;
    for (;;) {
      const Token& token = in_.Current();
      switch (token.kind) {
        case TokenKind::kData:
          body.push_back(std::make_unique<DataStatement>(token.at, in_.Take().text));
          break;
        case TokenKind::kVariableBegin: {
          in_.Take();
          auto expr = expressions_.ParseTuple(true);
          body.push_back(std::make_unique<OutputStatement>(token.at, std::move(expr)));
          in_.Expect(TokenKind::kVariableEnd, "'}}'");
          break;
        }
        case TokenKind::kBlockBegin:
          in_.Take();
          if (in_.IsAnyWord(ends)) {
            return body;
          }
          body.push_back(ParseStatement());
          in_.Expect(TokenKind::kBlockEnd, "'%}'");
          break;
        default:
          if (ends.size() != 0) {
            in_.FailAt(opened, "the body of '" + std::string(opener) +
                                   "' that begins here has no '" + std::string(*(ends.end() - 1)) +
                                   "'");
          }
          return body;
      }
    }
  }

  // The body of a block statement whose head has just been read; takes the end word when it is the
  // one given as the last of `ends`.
  Body ParseBlock(Words ends, std::string_view opener) {
    in_.SkipOp(":");
    in_.Expect(TokenKind::kBlockEnd, "'%}'");
    Body body = ParseBody(ends, opener);
    if (in_.IsWord(*(ends.end() - 1))) {
      in_.Take();
    }
    return body;
  }

  // A block whose frame jinja2 treats as new: unknown names inside are errors at once.
  Body ParseHardBlock(Words ends, std::string_view opener) {
    const size_t mark = expressions_.unknown_count();
    Body body = ParseBlock(ends, opener);
    expressions_.HardenUnknownSince(mark);
    return body;
  }

  std::unique_ptr<Statement> ParseStatement() {
    const TokenCursor::Nest nest(in_);
    if (!in_.IsKind(TokenKind::kName)) {
      in_.FailExpected("the name of a statement");
    }
    struct Entry {
      std::string_view word;
      std::unique_ptr<Statement> (StatementParser::*parse)();
    };
    static constexpr std::array<Entry, 11> kStatements = {
        {{"if", &StatementParser::ParseIf},
         {"for", &StatementParser::ParseFor},
         {"set", &StatementParser::ParseSet},
         {"with", &StatementParser::ParseWith},
         {"macro", &StatementParser::ParseMacro},
         {"call", &StatementParser::ParseCallBlock},
         {"filter", &StatementParser::ParseFilterBlock},
         {"generation", &StatementParser::ParseGeneration},
         {"print", &StatementParser::ParsePrint},
         {"break", &StatementParser::ParseJump},
         {"continue", &StatementParser::ParseJump}}};
    const std::string& word = in_.Current().text;
    for (const Entry& entry : kStatements) {
      if (entry.word == word) {
        return (this->*entry.parse)();
      }
    }
    if (in_.IsAnyWord({"include", "import", "from", "extends", "block", "autoescape"})) {
      in_.FailHere("the statement '" + word + "' is not supported in chat templates");
    }
    in_.FailHere("unknown statement '" + word + "'");
  }

  std::unique_ptr<Statement> ParseIf() {
    auto node = std::make_unique<IfStatement>(in_.Current().at);
    const size_t mark = expressions_.unknown_count();
    do {
      in_.Take();
      ExprPtr condition = expressions_.ParseTuple(false);
      Body body = ParseBlock({"elif", "else", "endif"}, "if");
      node->branches.emplace_back(std::move(condition), std::move(body));
    } while (in_.IsWord("elif"));
    if (in_.SkipWord("else")) {
      node->otherwise = ParseBlock({"endif"}, "else");
    }
    expressions_.ForgiveUnknownSince(mark);
    return node;
  }

  std::unique_ptr<Statement> ParseFor() {
    auto node = std::make_unique<ForStatement>(in_.Take().at);
    ++fors_;
    node->target = ParseTarget(false, {"in"});
    in_.ExpectWord("in");
    node->iterable = expressions_.ParseTuple(false, {"recursive"});
    if (in_.SkipWord("if")) {
      node->condition = expressions_.ParseExpression();
    }
    node->recursive = in_.SkipWord("recursive");
    ++loops_;
    node->body = ParseHardBlock({"else", "endfor"}, "for");
    --loops_;
    if (in_.SkipWord("else")) {
      node->otherwise = ParseHardBlock({"endfor"}, "else");
    }
    --fors_;
    return node;
  }

  std::unique_ptr<Statement> ParseSet() {
    const Position at = in_.Take().at;
    Target target = ParseTarget(true, {});
    if (in_.SkipOp("=")) {
      auto node = std::make_unique<SetStatement>(at);
      node->target = std::move(target);
      node->expr = expressions_.ParseTuple(true);
      return node;
    }
    auto node = std::make_unique<SetBlockStatement>(at);
    node->target = std::move(target);
    while (in_.SkipOp("|")) {
      node->filters.push_back(expressions_.ParseFilter());
    }
    node->body = ParseHardBlock({"endset"}, "set");
    return node;
  }

  std::unique_ptr<Statement> ParseWith() {
    auto node = std::make_unique<WithStatement>(in_.Take().at);
    while (!in_.IsKind(TokenKind::kBlockEnd)) {
      if (!node->assignments.empty()) {
        in_.ExpectOp(",");
      }
      Target target = ParseTarget(false, {});
      in_.ExpectOp("=");
      node->assignments.emplace_back(std::move(target), expressions_.ParseExpression());
    }
    node->body = ParseHardBlock({"endwith"}, "with");
    return node;
  }

  void ParseSignature(MacroSyntax& macro) {
    in_.ExpectOp("(");
    while (!in_.IsOp(")")) {
      if (!macro.parameters.empty()) {
        in_.ExpectOp(",");
      }
      MacroParameter parameter;
      parameter.name = in_.ExpectName("a parameter's name");
      if (in_.SkipOp("=")) {
        parameter.otherwise = expressions_.ParseExpression();
      } else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr) {
        in_.FailHere("a parameter without a default follows one with a default");
      }
      macro.parameters.push_back(std::move(parameter));
    }
    in_.Take();
  }

  void ParseMacroBody(MacroSyntax& macro, Words ends, std::string_view opener) {
    MacroSyntax* const outer = expressions_.EnterMacro(&macro);
    const int loops = std::exchange(loops_, 0);
    macro.body = ParseHardBlock(ends, opener);
    loops_ = loops;
    expressions_.EnterMacro(outer);
  }

  std::unique_ptr<Statement> ParseMacro() {
    auto node = std::make_unique<MacroStatement>(in_.Take().at);
    node->macro.name = in_.ExpectName("the macro's name");
    ParseSignature(node->macro);
    ParseMacroBody(node->macro, {"endmacro"}, "macro");
    return node;
  }

  std::unique_ptr<Statement> ParseCallBlock() {
    auto node = std::make_unique<CallBlockStatement>(in_.Take().at);
    node->caller.name = "caller";
    if (in_.IsOp("(")) {
      ParseSignature(node->caller);
    }
    const Position at = in_.Current().at;
    ExprPtr expr = expressions_.ParseExpression();
    const bool suffixed = expr->kind == ExprKind::kSuffixed;
    if (!suffixed || static_cast<SuffixedExpr&>(*expr).suffixes.back().kind != SuffixKind::kCall) {
      in_.FailAt(at, "'call' needs a call");
    }
    node->call.reset(static_cast<SuffixedExpr*>(expr.release()));
    ParseMacroBody(node->caller, {"endcall"}, "call");
    return node;
  }

  std::unique_ptr<Statement> ParseFilterBlock() {
    auto node = std::make_unique<FilterBlockStatement>(in_.Take().at);
    do {
      node->filters.push_back(expressions_.ParseFilter());
    } while (in_.SkipOp("|"));
    node->body = ParseHardBlock({"endfilter"}, "filter");
    return node;
  }

  std::unique_ptr<Statement> ParseGeneration() {
    auto node = std::make_unique<ScopeStatement>(in_.Take().at);
    node->body = ParseHardBlock({"endgeneration"}, "generation");
    return node;
  }

  std::unique_ptr<Statement> ParsePrint() {
    const Position at = in_.Take().at;
    return std::make_unique<OutputStatement>(at, expressions_.ParseTuple(true));
  }

  std::unique_ptr<Statement> ParseJump() {
    if (loops_ == 0) {
      in_.FailHere("'" + in_.Current().text + "' outside a loop");
    }
    const bool is_break = in_.IsWord("break");
    return std::make_unique<JumpStatement>(
        is_break ? StatementKind::kBreak : StatementKind::kContinue, in_.Take().at);
  }

  Target ParseTarget(bool with_namespace, Words ends) {
    const TokenCursor::Nest nest(in_);
    Target target;
    target.at = in_.Current().at;
    bool tuple = false;
    while (!in_.IsOp("=") && !in_.IsOp(")") && !in_.IsKind(TokenKind::kBlockEnd) &&
           !in_.IsAnyWord(ends)) {
      target.parts.push_back(ParseSingleTarget(with_namespace));
      if (!in_.SkipOp(",")) {
        break;
      }
      tuple = true;
    }
    if (target.parts.empty()) {
      in_.FailExpected("a name to assign to");
    }
    if (!tuple) {
      Target only = std::move(target.parts.front());
      return only;
    }
    target.tuple = true;
    return target;
  }

  Target ParseSingleTarget(bool with_namespace) {
    if (in_.SkipOp("(")) {
      Target inner = ParseTarget(with_namespace, {});
      in_.ExpectOp(")");
      return inner;
    }
    Target target;
    target.at = in_.Current().at;
    target.name = in_.ExpectName("a name to assign to");
    if (IsConstantWord(target.name)) {
      in_.FailAt(target.at, "can't assign to '" + target.name + "'");
    }
    if (with_namespace && in_.SkipOp(".")) {
      target.attribute = in_.ExpectName("an attribute's name");
    } else if (target.name == "loop" && fors_ > 0) {
      in_.FailAt(target.at, "can't assign to the special variable 'loop' inside a for");
    }
    return target;
  }

  TokenCursor in_;
  ExpressionParser expressions_;
  int loops_ = 0;  // a break would leave one of these
  int fors_ = 0;   // as loops_, but seen through macros
};

}  // namespace

Body ParseTemplate(std::string_view source, std::string_view name) {
  return StatementParser(Tokenize(source, name), name).Run();
}

}  // namespace bloomery::jinja
