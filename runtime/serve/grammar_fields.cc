#include "runtime/serve/grammar_fields.h"

#include <algorithm>
#include <utility>

#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"
#include "runtime/text/grammar/json_schema.h"

namespace bloomery::serve {
namespace {

using Source = OutputForm::Source;
using Kind = text::GrammarTrigger::Kind;

// The schema of a response_format; nothing for text.
const rapidjson::Value* ResponseSchema(const Fields& body, rapidjson::Value& any_object) {
  const rapidjson::Value* format = body.Object("response_format");
  if (format == nullptr) return nullptr;
  const Fields fields(*format, "Field 'response_format'");
  const std::string type = fields.String("type").value_or("text");
  if (type == "text") return nullptr;
  if (type != "json_object" && type != "json_schema") {
    RefuseField("response_format", "type must be text, json_object or json_schema");
  }
  any_object.SetObject();
  const rapidjson::Value* schema = nullptr;
  if (type == "json_object") {
    schema = fields.Find("schema");
  } else if (const rapidjson::Value* wrapper = fields.Object("json_schema")) {
    schema = Fields(*wrapper, "Field 'json_schema'").Find("schema");
  } else {
    // As Responses have it: the schema beside the type.
    schema = fields.Find("schema");
  }
  return schema == nullptr ? &any_object : schema;
}

std::string SchemaGrammar(const rapidjson::Value& schema, std::string_view field) {
  if (!schema.IsObject()) RefuseField(field, "a schema must be an object");
  try {
    return text::JsonSchemaToGbnf(WriteJson(schema));
  } catch (const Error& error) {
    RefuseField(field, error.what());
  }
}

Kind ReadKind(const rapidjson::Value& trigger) {
  struct Name {
    std::string_view text;
    int64_t number;  // llama-server's own clients send numbers
    Kind kind;
  };
  static constexpr Name kNames[] = {{"token", 0, Kind::kToken},
                                    {"word", 1, Kind::kWord},
                                    {"pattern", 2, Kind::kPattern},
                                    {"pattern_full", 3, Kind::kPatternFull},
                                    {"pattern-full", 3, Kind::kPatternFull}};
  const Fields fields(trigger, "Field 'grammar_triggers'");
  const rapidjson::Value* type = fields.Find("type");
  if (type != nullptr) {
    for (const Name& name : kNames) {
      if (type->IsString() ? StringOf(*type) == name.text : IntegerOf(*type) == name.number) {
        return name.kind;
      }
    }
  }
  RefuseField("grammar_triggers", "type must be word, pattern, pattern_full or token");
}

void ReadTriggers(const Fields& body, const text::Tokenizer& tokenizer,
                  text::GrammarOptions& options) {
  const rapidjson::Value* triggers = body.Array("grammar_triggers");
  if (triggers == nullptr) return;
  if (triggers->Size() > limits::kGrammarTriggersMax) {
    RefuseField("grammar_triggers",
                "at most " + std::to_string(limits::kGrammarTriggersMax) + " are taken");
  }
  for (const rapidjson::Value& each : triggers->GetArray()) {
    text::GrammarTrigger trigger{.kind = ReadKind(each)};
    const Fields fields(each, "Field 'grammar_triggers'");
    trigger.value = fields.String("value").value_or("");
    if (trigger.kind == Kind::kToken) {
      const auto token = fields.Integer("token");
      if (!token || *token < 0 || *token >= static_cast<int64_t>(tokenizer.size())) {
        RefuseField("grammar_triggers", "a token trigger needs the id of a token as 'token'");
      }
      trigger.token = static_cast<text::TokenId>(*token);
    } else if (trigger.value.empty()) {
      RefuseField("grammar_triggers", "a trigger needs a value");
    }
    if (trigger.kind == Kind::kWord) {
      const text::TokenId token = tokenizer.Find(trigger.value);
      if (token != text::kNoToken) {
        const auto& preserved = options.preserved_tokens;
        if (std::ranges::find(preserved, token) == preserved.end()) {
          RefuseField("grammar_triggers", "the word '" + Printable(trigger.value) +
                                              "' is a token: list it in preserved_tokens");
        }
        trigger = {.kind = Kind::kToken, .value = {}, .token = token};
      }
    }
    options.triggers.push_back(std::move(trigger));
  }
}

// Texts of one token each, or ids. Others name nothing that could be preserved.
std::vector<text::TokenId> ReadPreserved(const Fields& body, const text::Tokenizer& tokenizer) {
  std::vector<text::TokenId> ids;
  const rapidjson::Value* preserved = body.Array("preserved_tokens");
  if (preserved == nullptr) return ids;
  if (preserved->Size() > limits::kPreservedTokensMax) {
    RefuseField("preserved_tokens",
                "at most " + std::to_string(limits::kPreservedTokensMax) + " are taken");
  }
  for (const rapidjson::Value& each : preserved->GetArray()) {
    const auto number = IntegerOf(each);
    if (!number && !each.IsString()) RefuseField("preserved_tokens", "expected texts or ids");
    const text::TokenId id =
        number ? static_cast<text::TokenId>(std::clamp<int64_t>(*number, text::kNoToken, INT32_MAX))
               : tokenizer.Find(StringOf(each));
    if (tokenizer.Contains(id)) ids.push_back(id);
  }
  return ids;
}

bool AsksForThinking(const Fields& body) {
  const std::string effort = body.String("reasoning_effort").value_or("none");
  if (effort != "none") return true;
  const rapidjson::Value* kwargs = body.Object("chat_template_kwargs");
  return kwargs != nullptr &&
         Fields(*kwargs, "Field 'chat_template_kwargs'").Bool("enable_thinking").value_or(false);
}

}  // namespace

OutputForm ReadOutputForm(const Fields& body, const ServeSettings& settings,
                          const text::Tokenizer& tokenizer, bool chat) {
  OutputForm form;
  form.options.preserved_tokens = ReadPreserved(body, tokenizer);
  ReadTriggers(body, tokenizer, form.options);
  form.options.lazy = body.Bool("grammar_lazy").value_or(false);
  if (form.options.lazy && form.options.triggers.empty()) {
    RefuseField("grammar_lazy", "a lazy grammar needs grammar_triggers");
  }
  rapidjson::Value any_object;
  const rapidjson::Value* response = ResponseSchema(body, any_object);
  const rapidjson::Value* schema = body.Find("json_schema");
  const std::optional<std::string> grammar = body.String("grammar");
  if (grammar && !grammar->empty()) {
    if (chat && (schema != nullptr || response != nullptr)) {
      RefuseField("grammar", std::string("cannot be given together with ") +
                                 (schema != nullptr ? "json_schema" : "response_format"));
    }
    form.source = Source::kGrammar;
    form.gbnf = *grammar;
  } else if (response != nullptr) {
    form.source = Source::kResponseFormat;
    form.gbnf = SchemaGrammar(*response, "response_format");
    form.schema = WriteJson(*response);
  } else if (schema != nullptr) {
    form.source = chat ? Source::kResponseFormat : Source::kSchema;
    form.gbnf = SchemaGrammar(*schema, "json_schema");
    form.schema = WriteJson(*schema);
  } else if (!grammar && !settings.grammar.empty()) {
    form.source = Source::kGrammar;
    form.gbnf = settings.grammar;
  }
  return form;
}

std::shared_ptr<const text::Grammar> CompileOutputForm(const OutputForm& form, const Seat& seat) {
  if (form.source == Source::kNone) return nullptr;
  return seat.grammars->FromGbnf(form.gbnf, form.options);
}

void LeaveRoomForThinking(const Fields& body, const chat::RenderedPrompt& prompt,
                          const chat::ChatTemplate& chat, const text::Tokenizer& tokenizer,
                          OutputForm& form) {
  const chat::ReasoningMarks& marks = chat.marks();
  if (form.source != Source::kResponseFormat || marks.open.empty() || marks.close.empty()) return;
  if (prompt.starts_in_reasoning) {
    form.options.starts_in_span = true;
    form.options.span_end = marks.close;
    return;
  }
  std::string_view text = prompt.text;
  text = text.substr(0, text.find_last_not_of(" \n\r\t") + 1);
  if (text.ends_with(marks.close) || !AsksForThinking(body)) return;
  text::GbnfWriter thinking;
  const std::string rest = thinking.AddTextThrough("thinking", marks.close);
  // Of two rules of a name the later one counts.
  form.gbnf += thinking.Source() + "root ::= (" + text::GbnfWriter::Literal(marks.open) + " " +
               rest + " [ \\t\\r\\n]{0,4})? document\n";
  for (const std::string& mark : {marks.open, marks.close}) {
    const text::TokenId token = tokenizer.Find(mark);
    if (token != text::kNoToken) form.options.preserved_tokens.push_back(token);
  }
}

void FixGrammarDefault(ServeSettings& settings) {
  if (settings.json_schema.empty()) return;
  if (!settings.grammar.empty()) {
    throw Error(ErrorKind::kUsage, "--grammar cannot be given together with --json-schema");
  }
  try {
    settings.grammar = text::JsonSchemaToGbnf(settings.json_schema);
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage, std::string("--json-schema: ") + error.what());
  }
}

void CheckGrammarDefault(const ServeSettings& settings, const Seat& seat) {
  if (settings.grammar.empty()) return;
  try {
    seat.grammars->FromGbnf(settings.grammar);
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage, std::string("--grammar: ") + error.what());
  }
}

}  // namespace bloomery::serve
