// /tokenize, /detokenize, /apply-template and the token count of a chat body: text only, no passes.
#include "runtime/base/utf8.h"
#include "runtime/serve/chat_prompt.h"
#include "runtime/serve/chat_run.h"
#include "runtime/serve/generation_fields.h"
#include "runtime/serve/routes.h"

namespace bloomery::serve {
namespace {

// A piece that is no text by itself (part of a character) is given as its bytes.
Json PieceJson(std::string_view piece) {
  if (IsValidUtf8(piece)) return piece;
  return Json::Bytes(piece);
}

}  // namespace

void HandleTokenize(const RouteContext& context) {
  const rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  const Fields fields(body, "request body");
  const bool add_special = fields.Bool("add_special").value_or(false);
  const bool parse_special = fields.Bool("parse_special").value_or(true);
  const bool with_pieces = fields.Bool("with_pieces").value_or(false);
  const text::Tokenizer& tokenizer = *context.seat.tokenizer;
  // Written as it is found: a tree of a large text's tokens would take some 100 times its bytes.
  std::string tokens;
  if (const rapidjson::Value* content = fields.Find("content")) {
    for (text::TokenId id :
         TokeniseMixed(*content, "content", tokenizer,
                       {.add_special = add_special, .parse_special = parse_special})) {
      if (!tokens.empty()) tokens += ',';
      if (with_pieces) {
        tokens +=
            Json::Object(
                {{"id", id}, {"piece", PieceJson(tokenizer.Piece(id, text::SpecialText::kShown))}})
                .Text();
      } else {
        tokens += std::to_string(id);
      }
      const size_t most = context.exchange->answer_bytes_max();
      if (tokens.size() > most) throw Error(ErrorKind::kBadRequest, AnswerTooLarge(most));
    }
  }
  HttpResponse response;
  response.body = "{\"tokens\":[" + tokens + "]}";
  context.exchange->Reply(std::move(response));
}

void HandleDetokenize(const RouteContext& context) {
  const rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  const Fields fields(body, "request body");
  std::string content;
  if (const rapidjson::Value* tokens = fields.Array("tokens")) {
    const auto ids =
        TokeniseMixed(*tokens, "tokens", *context.seat.tokenizer, {.parse_special = true});
    content = context.seat.tokenizer->Detokenise(ids, text::SpecialText::kShown);
  }
  ReplyJson(context, Json::Object({{"content", std::move(content)}}));
}

void HandleApplyTemplate(const RouteContext& context) {
  rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  ReadGenerationFields(Fields(body, "request body"), context.settings, context.seat, "");
  ChatPrompt prompt = MakeChatPrompt(body, context.settings, context.seat, {}, PromptUse::kShow);
  ReplyJson(context, Json::Object({{"prompt", std::move(prompt.rendered.text)}}));
}

void HandleInputTokens(const RouteContext& context) {
  rapidjson::Document body = ParseJson(context.exchange->request().body, "request body");
  ReplyJson(context, Json::Object({{"object", "response.input_tokens"},
                                   {"input_tokens", CountChat(context, body)}}));
}

}  // namespace bloomery::serve
