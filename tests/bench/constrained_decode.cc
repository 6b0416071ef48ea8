// What a constraint costs a token, to be counted rather than timed: decodes on the demo model (or
// -m FILE) with one compute thread, so that every instruction is one of the work. The difference
// between two numbers of runs is that of the runs alone, without load, prompt and what is made
// once:
//
//   for n in 1 3; do valgrind --tool=callgrind --callgrind-out-file=/dev/null
//     bin/constrained_decode schema $n; done
//
//   constrained_decode free|schema|json|tools|against RUNS [-m FILE] [--tokens 128]
//     [--temperature 0]
//
// `against`: a text that no model would write, so that every draw is refused and made again.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <variant>

#include "runtime/apps/program.h"
#include "runtime/apps/seat_loading.h"
#include "runtime/base/json.h"
#include "runtime/base/log.h"
#include "runtime/text/chat/tool_grammar.h"

namespace bloomery {
namespace {

struct Options {
  std::string mode;
  int runs = 0;
  std::string model;
  int tokens = 128;
  double temperature = 0;
};

Options ReadOptions(int argc, char** argv) {
  if (argc < 3) throw std::runtime_error("a mode and a number of runs are needed");
  Options options;
  options.mode = argv[1];
  options.runs = std::atoi(argv[2]);
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    if (word == "-m") {
      options.model = argv[i + 1];
    } else if (word == "--tokens") {
      options.tokens = std::atoi(argv[i + 1]);
    } else if (word == "--temperature") {
      options.temperature = std::atof(argv[i + 1]);
    } else {
      throw std::runtime_error("unknown argument " + word);
    }
  }
  return options;
}

std::shared_ptr<const text::Grammar> GrammarOf(const std::string& mode, const serve::Seat& seat) {
  if (mode == "free") return nullptr;
  if (mode == "schema") {
    return seat.grammars->FromJsonSchema(
        R"({"type": "array", "minItems": 200, "items": {"type": "object", "properties":
            {"name": {"type": "string"}, "n": {"type": "integer"}}, "required": ["name", "n"]}})");
  }
  if (mode == "json") {
    return seat.grammars->FromJsonSchema(R"({"type": "array", "minItems": 200})");
  }
  if (mode == "against") {
    return seat.grammars->FromGbnf(R"(root ::= ("qj" [0-9] "zx" [A-C] "vk;")+)", {});
  }
  if (mode != "tools") throw std::runtime_error("no mode " + mode);
  const rapidjson::Document tools = ParseJson(
      R"([{"type": "function", "function": {"name": "write", "parameters": {"type": "object",
          "properties": {"lines": {"type": "array", "minItems": 200, "items": {"type": "string"}}},
          "required": ["lines"]}}}])",
      "tools");
  chat::ToolGrammarRequest wanted;
  wanted.syntax = chat::ToolSyntax::kHermes;
  wanted.tools = &tools;
  wanted.required = true;
  const chat::ToolGrammar grammar = chat::MakeToolGrammar(wanted);
  return seat.grammars->FromGbnf(grammar.source, grammar.options);
}

int Main(int argc, char** argv) {
  const Options options = ReadOptions(argc, argv);
  InitLogging(argv[0], LogLevel::kWarning);
  const std::string executable = apps::ExecutablePath();
  const std::string path = options.model.empty() ? apps::DemoModelPath(executable) : options.model;
  serve::ServeSettings settings;
  settings.context = 2048;
  settings.threads = 1;
  const apps::ServedModel model(settings, path, executable, "");
  const serve::Seat& seat = model.seat();
  engine::GenerateRequest request;
  request.prompt = seat.tokenizer->Tokenise("A list: ");
  request.sampling.temperature = options.temperature;
  request.sampling.seed = 7;
  request.sampling.ignore_eos = true;
  request.n_predict = options.tokens;
  request.grammar = GrammarOf(options.mode, seat);
  for (int run = 0; run < options.runs; ++run) {
    std::string text;
    int tokens = 0;
    const auto generation = seat.engine->Submit(request);
    while (const auto event = generation->Pop()) {
      if (const auto* piece = std::get_if<engine::Text>(&*event)) {
        text += piece->text;
        tokens = piece->tokens_predicted;
      }
      if (const auto* failed = std::get_if<engine::Failed>(&*event)) {
        throw std::runtime_error(failed->message);
      }
    }
    std::printf("%d tokens: %.60s\n", tokens, text.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace bloomery

int main(int argc, char** argv) {
  try {
    return bloomery::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "constrained_decode: %s\n", error.what());
    return 1;
  }
}
