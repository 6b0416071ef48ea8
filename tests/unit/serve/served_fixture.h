// A whole server over a fake runner and the mini model's vocabulary: what it answers can be
// predicted. At temperature 0 the runner continues any prompt with kScript and ends; with `endless`
// it begins again.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/engine/engine.h"
#include "runtime/serve/server.h"
#include "runtime/text/chat/chat_template.h"
#include "tests/unit/engine/fake_runner.h"
#include "tests/unit/serve/client.h"

namespace bloomery::serve {

inline constexpr const char* kScript = "The capital of Japan is Tokyo.";

class ServedTest : public ::testing::Test {
 protected:
  ServedTest();
  ~ServedTest() override;

  // Change these before Start.
  ServeSettings settings_;
  exec::SeatLimits limits_;
  size_t connections_max_ = limits::kConnectionsMax;
  size_t answer_bytes_max_ = limits::kAnswerBytesMax;
  bool endless_ = false;
  std::function<void()> before_pass_;
  std::string template_;                      // empty: the mini model's own
  exec::PassRunner* other_runner_ = nullptr;  // in the fake one's place

  // From now on the model answers with `text`, control tokens by their names, to any prompt. Unlike
  // kScript it may hold a token several times. A slot has room for prompts with tools.
  void Say(const std::string& text);

  void Start();   // listens and serves
  void Listen();  // listens; the model is still loading
  void FinishLoading();

  // Answers of the running server.
  test::Answer Post(const std::string& path, const std::string& body,
                    const std::map<std::string, std::string>& headers = {});
  test::Answer Get(const std::string& path, const std::map<std::string, std::string>& headers = {});
  rapidjson::Document PostJson(const std::string& path, const std::string& body, int status = 200);
  rapidjson::Document GetJson(const std::string& path, int status = 200);
  // The error message of a refusal, after checking status and type.
  std::string ErrorOf(const test::Answer& answer, int status, const std::string& type);
  // Events of the named kind: each with its name, which is the "type" of its JSON as well.
  std::vector<rapidjson::Document> NamedEvents(const std::string& body);
  // The kinds of them in their order, each run of a kind once.
  static std::vector<std::string> TypesOf(const std::vector<rapidjson::Document>& events);
  // The JSON of each "data: " event but [DONE]; `done` says whether that came last.
  std::vector<rapidjson::Document> Events(const std::string& body, bool& done);

  int port() const { return server_->port(); }

  Seat seat_;  // a test may fill what concerns it before Start
  std::unique_ptr<text::Tokenizer> tokenizer_;
  chat::CallMemory calls_;
  std::unique_ptr<text::GrammarCompiler> grammars_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Server> server_;
  std::vector<int32_t> script_;
  bool by_prefix_ = false;  // see Say

 private:
  int32_t NextByPrefix(const std::vector<int32_t>& history) const;

  std::string model_template_;
  std::unique_ptr<engine::FakeRunner> runner_;
  std::unique_ptr<chat::ChatTemplate> chat_template_;
};

// A member of an object as a string, or "" when it is absent or no string.
std::string TextOf(const rapidjson::Value& object, const char* name);

}  // namespace bloomery::serve
