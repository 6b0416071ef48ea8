// Routes that describe the server, who may call them, and what is refused before a route runs.
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using test::Answer;
using test::Client;
using test::RequestText;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class RoutesTest : public ServedTest {};

TEST_F(RoutesTest, EverythingAnswers503WhileTheModelLoads) {
  Listen();
  for (const char* path : {"/health", "/v1/health", "/v1/models", "/props", "/slots"}) {
    EXPECT_EQ(ErrorOf(Get(path), 503, "unavailable_error"), "Loading model") << path;
  }
  EXPECT_EQ(ErrorOf(Post("/completion", "{}"), 503, "unavailable_error"), "Loading model");
  FinishLoading();
  EXPECT_EQ(Get("/health").body, R"({"status":"ok"})");
}

TEST_F(RoutesTest, RequestPastTheLimitOfPlacesIsToldWhenToTryAgain) {
  connections_max_ = 0;
  Start();
  EXPECT_EQ(Get("/health").body, R"({"status":"ok"})");  // a balancer's question always has a place
  EXPECT_EQ(Get("/v1/health").status, 200);
  Client second(port());
  second.Send(RequestText("GET", "/props"));
  const Answer refused = second.Read();
  ErrorOf(refused, 503, "unavailable_error");
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
}

TEST_F(RoutesTest, UnknownPathAndWrongMethodAre404) {
  Start();
  EXPECT_EQ(ErrorOf(Get("/nope"), 404, "not_found_error"), "File Not Found");
  EXPECT_EQ(ErrorOf(Get("/completion"), 404, "not_found_error"), "File Not Found");
  EXPECT_EQ(ErrorOf(Post("/health", "{}"), 404, "not_found_error"), "File Not Found");
}

TEST_F(RoutesTest, KnownRoutesNotOfferedAre501ByName) {
  Start();
  EXPECT_THAT(ErrorOf(Post("/v1/embeddings", "{}"), 501, "not_supported_error"),
              HasSubstr("embeddings"));
  EXPECT_THAT(ErrorOf(Post("/slots/0?action=save", "{}"), 501, "not_supported_error"),
              HasSubstr("slots"));
  EXPECT_THAT(ErrorOf(Get("/tools"), 501, "not_supported_error"), HasSubstr("tools"));
  EXPECT_THAT(ErrorOf(Get("/cors-proxy?url=x"), 501, "not_supported_error"), HasSubstr("proxy"));
  EXPECT_THAT(ErrorOf(Post("/models/load", "{}"), 501, "not_supported_error"),
              HasSubstr("several models"));
}

TEST_F(RoutesTest, OneModelIsFoundByItsNamesAndNoOther) {
  settings_.aliases = {"owner/name", "beta"};
  Start();
  for (const char* path :
       {"/v1/models/beta", "/models/beta", "/v1/models/owner/name", "/v1/models/owner%2Fname"}) {
    const auto model = GetJson(path);
    EXPECT_STREQ(model["id"].GetString(), "beta") << path;
    EXPECT_STREQ(model["object"].GetString(), "model") << path;
  }
  EXPECT_THAT(ErrorOf(Get("/v1/models/gamma"), 404, "not_found_error"),
              HasSubstr("no model 'gamma'; it is beta"));
}

TEST_F(RoutesTest, ASlotThatIsNotThereIsRefused) {
  Start();
  EXPECT_THAT(ErrorOf(Post("/completion", R"({"prompt":"a","n_predict":1,"id_slot":500})"), 400,
                      "invalid_request_error"),
              HasSubstr("id_slot"));
  EXPECT_EQ(Post("/completion", R"({"prompt":"a","n_predict":1,"id_slot":-1})").status, 200);
  EXPECT_EQ(Post("/completion", R"({"prompt":"a","n_predict":1,"id_slot":0})").status, 200);
}

TEST_F(RoutesTest, AChatWithoutAMessageIsRefused) {
  Start();
  for (const char* path : {"/v1/chat/completions", "/apply-template"}) {
    EXPECT_THAT(ErrorOf(Post(path, R"({"messages":[]})"), 400, "invalid_request_error"),
                HasSubstr("messages"))
        << path;
  }
}

TEST_F(RoutesTest, ACompressedBodyIsNotReadAsAPlainOne) {
  Start();
  Client client(port());
  client.Send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n"
      "Content-Length: 2\r\n\r\n{}");
  EXPECT_THAT(ErrorOf(client.Read(), 415, "invalid_request_error"), HasSubstr("'gzip'"));
  Client plain(port());
  plain.Send(
      "POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Encoding: Identity\r\n"
      "Content-Length: 2\r\n\r\n{}");
  EXPECT_EQ(plain.Read().status, 200);
}

TEST_F(RoutesTest, HeadOfHealthHasNoBody) {
  Start();
  const Answer answer = test::Fetch(port(), "HEAD", "/health");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "application/json; charset=utf-8");
}

TEST_F(RoutesTest, ModelIsNamedByTheFirstAliasInSortedOrder) {
  settings_.aliases = {"zeta", "alpha", "mid"};
  Start();
  const auto models = GetJson("/v1/models");
  ASSERT_EQ(models["data"].Size(), 1U);
  EXPECT_EQ(TextOf(models["data"][0], "id"), "alpha");
  ASSERT_EQ(models["data"][0]["aliases"].Size(), 3U);
  EXPECT_EQ(models["data"][0]["meta"]["n_ctx"].GetInt(), 128);
  EXPECT_EQ(models["data"][0]["meta"]["n_vocab"].GetInt(), 2012);
}

TEST_F(RoutesTest, ModelWithoutAliasIsNamedByItsFile) {
  Start();
  EXPECT_EQ(TextOf(GetJson("/models")["data"][0], "id"), "mini.gguf");
}

TEST_F(RoutesTest, PropsShowSlotsContextSeedAndTemplate) {
  settings_.sampling.seed = 77;
  Start();
  const auto props = GetJson("/props");
  EXPECT_EQ(props["total_slots"].GetInt(), 2);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"].GetInt(), 128);
  EXPECT_EQ(props["default_generation_settings"]["params"]["seed"].GetInt(), 77);
  EXPECT_THAT(TextOf(props, "model_path"), EndsWith(".gguf"));
  EXPECT_THAT(TextOf(props, "chat_template"), HasSubstr("<|im_start|>"));
  EXPECT_EQ(TextOf(props, "eos_token"), "<|im_end|>");
  EXPECT_TRUE(props["chat_template_caps"].IsObject());
  EXPECT_FALSE(props["modalities"]["vision"].GetBool());
}

TEST_F(RoutesTest, PropsListTheCardsThatPassesRunOn) {
  seat_.devices = Json::Array({Json::Object({{"index", 0}, {"name", "a card"}})});
  Start();
  EXPECT_THAT(Get("/props").body,
              HasSubstr(R"("devices":[{"index":0,"name":"a card"}],"inexact_operators")"));
}

TEST_F(RoutesTest, PropsOfTheCpuListNoCards) {
  Start();
  EXPECT_THAT(Get("/props").body, HasSubstr(R"("devices":[],)"));
}

TEST_F(RoutesTest, ResidencyShowsTiersClassesAndTheRowsOfExperts) {
  seat_.residency = [] {
    return exec::Residency{.tiers = {{.name = "host",
                                      .device = "CPU, avx2",
                                      .limit_bytes = 1000,
                                      .classes = {{"planes k", 30}, {"scratch", 12}},
                                      .mapped = {{"weights", 500}}},
                                     {.name = "CUDA0", .device = "a card"}},
                           .banks = {{.layer = 3,
                                      .experts = 4,
                                      .used = 2,
                                      .tier = "host",
                                      .picks = {0, 7, 9007199254740993, 1}}}};
  };
  Start();
  EXPECT_EQ(
      Get("/residency").body,
      R"({"tiers":[{"name":"host","device":"CPU, avx2","used_bytes":42,"limit_bytes":1000,)"
      R"("classes":[{"name":"planes k","bytes":30,"mapped":false},)"
      R"({"name":"scratch","bytes":12,"mapped":false},)"
      R"({"name":"weights","bytes":500,"mapped":true}]},)"
      R"({"name":"CUDA0","device":"a card","used_bytes":0,"limit_bytes":null,"classes":[]}],)"
      R"("residency":null,"times":{"passes":0,"rows":0,"card_seconds":0.0,"host_seconds":0.0,)"
      R"("link_seconds":0.0,"sync_seconds":0.0},"trace":null,)"
      R"("rows_counted":true,"banks":[{"layer":3,"tier":"host","experts":4,"used":2,)"
      R"("frames":null,"picks":null,"hits":null,"moves":null,)"
      R"("rows":[0,7,9007199254740993,1]}]})");
}

TEST_F(RoutesTest, ResidencySaysWhereRowsAreNotCounted) {
  seat_.residency = [] {
    return exec::Residency{.banks = {{.layer = 0, .experts = 8, .used = 2, .tier = "CUDA0"}}};
  };
  Start();
  const auto residency = GetJson("/residency");
  EXPECT_FALSE(residency["rows_counted"].GetBool());
  EXPECT_TRUE(residency["banks"][0]["rows"].IsNull());
}

exec::ResidencyStatus SomeStatus() {
  exec::ResidencyStatus status{.policy = memory::ResidencyKind::kPayback,
                               .moves_max = 24,
                               .rates = {.host_us = 50, .card_us = 5, .copy_us = 60},
                               .stopped = "the copy engine is gone",
                               .times = {.passes = 5,
                                         .rows = 9,
                                         .seconds = 4,
                                         .link_seconds = 0.5,
                                         .host_seconds = 1,
                                         .sync_seconds = 0.25},
                               .trace = "t.bin",
                               .trace_passes = 4};
  status.counters = {.rows = 8,
                     .picks = 32,
                     .hits = 20,
                     .moves = 3,
                     .moves_failed = 1,
                     .resets = 2,
                     .banks = {{.picks = 32, .hits = 20, .moves = 3}}};
  return status;
}

TEST_F(RoutesTest, ResidencyShowsMovesHitsAndTimesByCause) {
  seat_.residency = [] {
    return exec::Residency{
        .tiers = {{.name = "CUDA0",
                   .device = "a card",
                   .limit_bytes = 100,
                   .classes = {{"weights", 60}}}},
        .banks = {{.layer = 3, .experts = 8, .used = 4, .tier = "CUDA0", .frames = 2}}};
  };
  seat_.residency_status = SomeStatus;
  Start();
  const auto residency = GetJson("/residency");
  const auto& moves = residency["residency"];
  EXPECT_EQ(TextOf(moves, "policy"), "payback");
  EXPECT_EQ(moves["hits"].GetInt(), 20);
  EXPECT_EQ(moves["moves_failed"].GetInt(), 1);
  EXPECT_EQ(TextOf(moves, "stopped"), "the copy engine is gone");
  EXPECT_EQ(residency["times"]["card_seconds"].GetDouble(), 2.75);
  EXPECT_EQ(residency["times"]["link_seconds"].GetDouble(), 0.5);
  EXPECT_EQ(residency["trace"]["passes"].GetInt(), 4);
  EXPECT_EQ(residency["banks"][0]["frames"].GetInt(), 2);
  EXPECT_EQ(residency["banks"][0]["hits"].GetInt(), 20);
  const auto props = GetJson("/props");
  EXPECT_EQ(TextOf(props["engine"]["residency"], "policy"), "payback");
  EXPECT_EQ(props["engine"]["residency"]["moves"].GetInt(), 3);
  const std::string metrics = Get("/metrics").body;
  for (const char* line :
       {"bloomery:residency_picks_total 32\n", "bloomery:residency_hits_total 20\n",
        "bloomery:residency_moves_total 3\n", "bloomery:residency_moves_failed_total 1\n",
        "bloomery:residency_resets_total 2\n", "bloomery:bank_frames{layer=\"3\"} 2\n",
        "bloomery:bank_hits_total{layer=\"3\"} 20\n", "bloomery:bank_moves_total{layer=\"3\"} 3\n",
        "bloomery:tier_used_bytes{tier=\"CUDA0\"} 60\n",
        "bloomery:tier_limit_bytes{tier=\"CUDA0\"} 100\n",
        "bloomery:pass_seconds_total{cause=\"card\"} 2.75\n",
        "bloomery:pass_seconds_total{cause=\"host\"} 1\n",
        "bloomery:pass_seconds_total{cause=\"link\"} 0.5\n",
        "bloomery:pass_seconds_total{cause=\"sync\"} 0.25\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
}

TEST_F(RoutesTest, EveryCardIsATierOfItsOwnAndABankSaysWhichIsIts) {
  seat_.residency = [] {
    return exec::Residency{
        .tiers = {{.name = "CUDA1",
                   .device = "a card",
                   .limit_bytes = 100,
                   .classes = {{"weights", 60}, {"planes k", 5}}},
                  {.name = "CUDA0",
                   .device = "another",
                   .limit_bytes = 200,
                   .classes = {{"weights", 70}}},
                  {.name = "host", .device = "CPU", .classes = {{"scratch", 3}}}},
        .banks = {{.layer = 3, .experts = 8, .used = 4, .tier = "CUDA1", .frames = 2},
                  {.layer = 4, .experts = 8, .used = 4, .tier = "CUDA0", .frames = 5}}};
  };
  seat_.residency_status = [] {
    exec::ResidencyStatus status = SomeStatus();
    status.counters.banks.push_back({.picks = 9, .hits = 7, .moves = 1});
    return status;
  };
  seat_.devices = Json::Array({Json::Object({{"index", 1}}), Json::Object({{"index", 0}})});
  Start();
  const auto residency = GetJson("/residency");
  const auto& tiers = residency["tiers"];
  ASSERT_EQ(tiers.Size(), 3U);
  EXPECT_EQ(TextOf(tiers[0], "name"), "CUDA1");
  EXPECT_EQ(tiers[0]["used_bytes"].GetInt(), 65);
  EXPECT_EQ(TextOf(tiers[1], "name"), "CUDA0");
  EXPECT_EQ(tiers[1]["limit_bytes"].GetInt(), 200);
  EXPECT_EQ(TextOf(residency["banks"][0], "tier"), "CUDA1");
  EXPECT_EQ(TextOf(residency["banks"][1], "tier"), "CUDA0");
  EXPECT_EQ(residency["banks"][1]["frames"].GetInt(), 5);
  EXPECT_EQ(residency["banks"][1]["hits"].GetInt(), 7);
  EXPECT_EQ(GetJson("/props")["engine"]["devices"].Size(), 2U);
  const std::string metrics = Get("/metrics").body;
  for (const char* line :
       {"bloomery:tier_used_bytes{tier=\"CUDA1\"} 65\n",
        "bloomery:tier_used_bytes{tier=\"CUDA0\"} 70\n",
        "bloomery:tier_used_bytes{tier=\"host\"} 3\n",
        "bloomery:tier_limit_bytes{tier=\"CUDA0\"} 200\n", "bloomery:bank_frames{layer=\"3\"} 2\n",
        "bloomery:bank_frames{layer=\"4\"} 5\n", "bloomery:bank_hits_total{layer=\"4\"} 7\n"}) {
    EXPECT_THAT(metrics, HasSubstr(line));
  }
}

TEST_F(RoutesTest, ResidencyOfASeatThatDoesNotTellIs501) {
  Start();
  EXPECT_THAT(ErrorOf(Get("/residency"), 501, "not_supported_error"), HasSubstr("/residency"));
}

// Named by docs and clients one by one, so that none is lost unnoticed.
TEST_F(RoutesTest, PropsHaveEveryFieldOfLlamaServersAndOurs) {
  Start();
  const auto props = GetJson("/props");
  for (const char* name : {"default_generation_settings",
                           "total_slots",
                           "model_alias",
                           "model_name",
                           "model_ftype",
                           "model_path",
                           "modalities",
                           "media_marker",
                           "endpoint_slots",
                           "endpoint_props",
                           "endpoint_metrics",
                           "ui",
                           "ui_settings",
                           "chat_template",
                           "chat_template_caps",
                           "bos_token",
                           "eos_token",
                           "build_info",
                           "is_sleeping",
                           "cors_proxy_enabled",
                           "engine"}) {
    EXPECT_TRUE(props.HasMember(name)) << name;
  }
  for (const char* name : {"vision", "video", "audio"}) {
    EXPECT_TRUE(props["modalities"][name].IsFalse()) << name;
  }
  for (const char* name :
       {"supports_system_role", "supports_tools", "supports_tool_calls",
        "supports_parallel_tool_calls", "supports_string_content", "supports_typed_content",
        "supports_object_arguments", "supports_preserve_reasoning", "supports_reasoning_effort",
        "supports_enable_thinking"}) {
    EXPECT_TRUE(props["chat_template_caps"].HasMember(name)) << name;
  }
  for (const char* name :
       {"name", "version", "plugin", "model", "context", "chat", "kernels", "inexact_operators"}) {
    EXPECT_TRUE(props["engine"].HasMember(name)) << name;
  }
  for (const char* name : {"format", "arch", "quant", "bytes", "n_layers", "n_experts",
                           "n_experts_used", "ctx_train"}) {
    EXPECT_TRUE(props["engine"]["model"].HasMember(name)) << name;
  }
  EXPECT_TRUE(props["ui_settings"].IsObject());
  EXPECT_TRUE(props["endpoint_slots"].IsTrue());
  EXPECT_TRUE(props["endpoint_props"].IsFalse());
}

TEST_F(RoutesTest, ModelIsAsOldAsItsFile) {
  seat_.model.created = 1234567890;
  Start();
  EXPECT_EQ(GetJson("/v1/models")["data"][0]["created"].GetInt64(), 1234567890);
}

TEST_F(RoutesTest, PropsShowWhatThePluginSaysAndWhatIsNotExact) {
  seat_.chat.tool_syntax = "dsml";
  seat_.chat.stop_texts = {"<end>"};
  seat_.inexact_operators = {"p.scale/1 (band)"};
  settings_.stop = {"mine"};
  Start();
  const auto props = GetJson("/props");
  const auto& engine = props["engine"];
  EXPECT_EQ(TextOf(engine["chat"], "tool_syntax"), "dsml");
  EXPECT_EQ(TextOf(engine["chat"], "template"), "file");
  EXPECT_EQ(TextOf(engine["chat"]["reasoning_marks"], "open"), "<think>");
  EXPECT_STREQ(engine["chat"]["stop_texts"][0].GetString(), "<end>");
  EXPECT_STREQ(engine["inexact_operators"][0].GetString(), "p.scale/1 (band)");
  EXPECT_EQ(engine["context"]["slot"].GetInt(), 128);
  EXPECT_EQ(engine["context"]["trained"].GetInt(), 4096);
  EXPECT_TRUE(props["chat_template_caps"]["supports_reasoning_effort"].IsBool());
}

TEST_F(RoutesTest, ThePluginsStopTextsEndEveryAnswer) {
  seat_.chat.stop_texts = {" Japan"};
  Start();
  const auto answer =
      PostJson("/completion", R"({"prompt": "x", "temperature": 0, "stop": ["never"]})");
  EXPECT_EQ(TextOf(answer, "content"), "The capital of");
  EXPECT_EQ(TextOf(answer, "stopping_word"), " Japan");
}

TEST_F(RoutesTest, SettingPropsNeedsItsFlag) {
  Start();
  EXPECT_THAT(ErrorOf(Post("/props", "{}"), 501, "not_supported_error"), HasSubstr("--props"));
}

TEST_F(RoutesTest, SettingPropsSucceedsWithItsFlag) {
  settings_.props_writable = true;
  Start();
  EXPECT_EQ(Post("/props", "{}").body, R"({"success":true})");
}

TEST_F(RoutesTest, SlotsHaveNoParamsBeforeTheirFirstTaskAndAreIdleAfter) {
  limits_.slots = 1;
  Start();
  auto slots = GetJson("/slots");
  ASSERT_EQ(slots.Size(), 1U);
  EXPECT_EQ(slots[0]["n_ctx"].GetInt(), 128);
  EXPECT_FALSE(slots[0].HasMember("params"));
  PostJson("/completion", R"({"prompt":"x","temperature":0})");
  slots = GetJson("/slots");
  EXPECT_FALSE(slots[0]["is_processing"].GetBool());
  EXPECT_EQ(slots[0]["next_token"][0]["n_remain"].GetInt(), -1);
  EXPECT_EQ(slots[0]["next_token"][0]["n_decoded"].GetInt(), 0);
  EXPECT_EQ(slots[0]["params"]["temperature"].GetDouble(), 0.0);
}

TEST_F(RoutesTest, SlotsCanBeSwitchedOff) {
  settings_.slots_route = false;
  Start();
  ErrorOf(Get("/slots"), 501, "not_supported_error");
}

TEST_F(RoutesTest, BusySlotsAreCountedAndNoFreeOneFailsOnRequest) {
  limits_.slots = 1;
  endless_ = true;
  std::mutex mutex;
  std::condition_variable changed;
  bool running = false;
  bool go = false;
  before_pass_ = [&] {
    std::unique_lock lock(mutex);
    running = true;
    changed.notify_all();
    changed.wait(lock, [&] { return go; });
  };
  Start();
  EXPECT_EQ(Get("/slots?fail_on_no_slot=1").status, 200);
  std::thread request([&] { Post("/completion", R"({"prompt":"x","n_predict":4})"); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return running; });
  }
  EXPECT_TRUE(GetJson("/slots")[0]["is_processing"].GetBool());
  EXPECT_EQ(Get("/slots?fail_on_no_slot=1").status, 503);
  {
    std::lock_guard lock(mutex);
    go = true;
    changed.notify_all();
  }
  request.join();
  EXPECT_EQ(Get("/slots?fail_on_no_slot=1").status, 200);
}

TEST_F(RoutesTest, KeyIsAskedForEverywhereButHealth) {
  settings_.api_keys = {"first", "second"};
  Start();
  EXPECT_EQ(Get("/health").status, 200);
  EXPECT_EQ(Get("/v1/health").status, 200);
  for (const char* path : {"/v1/models", "/props", "/slots", "/metrics", "/nope"}) {
    EXPECT_EQ(ErrorOf(Get(path), 401, "authentication_error"), "Invalid API Key") << path;
  }
  EXPECT_EQ(Get("/props", {{"Authorization", "Bearer second"}}).status, 200);
  EXPECT_EQ(Get("/props", {{"Authorization", "first"}}).status, 200);
  EXPECT_EQ(Get("/props", {{"Authorization", "bearer first"}}).status, 200);
  EXPECT_EQ(Get("/props", {{"Authorization", "BEARER second"}}).status, 200);
  EXPECT_EQ(Get("/props", {{"X-Api-Key", "first"}}).status, 200);
  for (const char* wrong : {"Bearer ", "Bearer firs", "Bearer firstt", "Bearer FIRST", "Basic x"}) {
    EXPECT_EQ(Get("/props", {{"Authorization", wrong}}).status, 401) << wrong;
  }
  EXPECT_EQ(Get("/props", {{"X-Api-Key", ""}}).status, 401);
}

TEST_F(RoutesTest, AuthorizationWinsOverXApiKey) {
  settings_.api_keys = {"key"};
  Start();
  EXPECT_EQ(Get("/props", {{"Authorization", "Bearer no"}, {"X-Api-Key", "key"}}).status, 401);
}

TEST_F(RoutesTest, PreflightNeedsNoKeyAndEchoesTheOrigin) {
  settings_.api_keys = {"key"};
  Listen();  // not even a model
  const Answer answer =
      test::Fetch(port(), "OPTIONS", "/completions", "", {{"Origin", "web.mydomain.fr"}});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "");
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "web.mydomain.fr");
  EXPECT_EQ(answer.headers.at("access-control-allow-credentials"), "true");
  EXPECT_EQ(answer.headers.at("access-control-allow-methods"), "GET, POST, DELETE, OPTIONS");
  EXPECT_EQ(answer.headers.at("access-control-allow-headers"), "*");
}

TEST_F(RoutesTest, OriginIsEchoedOnAnswersAndRefusals) {
  Start();
  const std::map<std::string, std::string> origin{{"Origin", "http://a.example"}};
  for (const Answer& answer :
       {Get("/health", origin), Get("/nope", origin), Post("/completion", "{", origin)}) {
    EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "http://a.example");
  }
  EXPECT_EQ(Get("/health").headers.count("access-control-allow-origin"), 0U);
}

// A page must be able to read why it got nothing, wherever the answer was refused.
TEST_F(RoutesTest, OriginIsEchoedOnAnAnswerThatIsRefusedForItsSize) {
  answer_bytes_max_ = 300;
  Start();
  const Answer refused = Get("/props", {{"Origin", "http://a.example"}});
  EXPECT_THAT(ErrorOf(refused, 400, "invalid_request_error"), HasSubstr("larger than 300 bytes"));
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "http://a.example");
}

// Or a cache gives one origin the answer that names another.
TEST_F(RoutesTest, AnswersThatDependOnTheOriginSayThatTheyVary) {
  Start();
  for (const Answer& answer : {Get("/health"), Get("/health", {{"Origin", "http://a.example"}}),
                               Get("/nope"), test::Fetch(port(), "OPTIONS", "/props")}) {
    EXPECT_EQ(answer.headers.at("vary"), "Origin");
  }
}

TEST_F(RoutesTest, LocalhostOriginsAreComparedByHost) {
  settings_.cors_origins = "localhost";
  Start();
  for (const char* good :
       {"http://localhost", "https://localhost:8080", "http://127.0.0.1:1", "http://[::1]:3000"}) {
    EXPECT_EQ(Get("/health", {{"Origin", good}}).headers["access-control-allow-origin"], good);
  }
  for (const char* bad : {"http://localhost.evil", "http://evil/localhost", "localhost", "null",
                          "http://localhost@evil", "http://localhost:80@evil", "http://[::1].evil",
                          "http://localhost:"}) {
    EXPECT_EQ(Get("/health", {{"Origin", bad}}).headers.count("access-control-allow-origin"), 0U)
        << bad;
  }
  EXPECT_EQ(Get("/health").headers.at("vary"), "Origin");
}

TEST_F(RoutesTest, FixedOriginIsSentAsItStands) {
  settings_.cors_origins = "https://app.example";
  Start();
  EXPECT_EQ(Get("/health").headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(Get("/health").headers.count("vary"), 0U);
}

TEST_F(RoutesTest, PrefixStandsInFrontOfEveryRoute) {
  settings_.api_prefix = "/llm";
  Start();
  EXPECT_EQ(Get("/llm/health").status, 200);
  EXPECT_EQ(Get("/health").status, 404);
}

TEST_F(RoutesTest, TokenizeAndDetokenizeAreInverse) {
  Start();
  const auto tokens = PostJson("/tokenize", R"({"content":"What is the capital? \ud83d\ude00"})");
  ASSERT_TRUE(tokens["tokens"].IsArray());
  const std::string back = "{\"tokens\":" + WriteJson(tokens["tokens"]) + "}";
  EXPECT_EQ(TextOf(PostJson("/detokenize", back), "content"), "What is the capital? 😀");
}

TEST_F(RoutesTest, TokenizeTakesMixedContentAndNothing) {
  Start();
  EXPECT_EQ(Post("/tokenize", "{}").body, R"({"tokens":[]})");
  const auto mixed = PostJson("/tokenize", R"({"content":[5,"<|im_end|>",7]})");
  EXPECT_EQ(WriteJson(mixed["tokens"]), "[5,2,7]");
  const auto plain = PostJson("/tokenize", R"({"content":"<|im_end|>","parse_special":false})");
  EXPECT_GT(plain["tokens"].Size(), 1U);
  ErrorOf(Post("/tokenize", R"({"content":[2012]})"), 400, "invalid_request_error");
  ErrorOf(Post("/tokenize", R"({"content":[-1]})"), 400, "invalid_request_error");
  ErrorOf(Post("/tokenize", R"({"content":{}})"), 400, "invalid_request_error");
}

TEST_F(RoutesTest, PiecesOfASplitCharacterAreBytes) {
  Start();
  const auto tokens = PostJson("/tokenize", R"({"content":"\ud83d\ude00","with_pieces":true})");
  std::string joined;
  for (const auto& token : tokens["tokens"].GetArray()) {
    ASSERT_TRUE(token["piece"].IsArray());
    for (const auto& byte : token["piece"].GetArray()) {
      joined.push_back(static_cast<char>(byte.GetInt()));
    }
  }
  EXPECT_EQ(joined, "😀");
}

TEST_F(RoutesTest, BodyThatIsNoJsonObjectIsA400) {
  Start();
  for (const char* body : {"", "{", "[]", "7", "{\"a\":1}x", "{\"prompt\":\"\xff\"}"}) {
    ErrorOf(Post("/completion", body), 400, "invalid_request_error");
    ErrorOf(Post("/v1/chat/completions", body), 400, "invalid_request_error");
    ErrorOf(Post("/tokenize", body), 400, "invalid_request_error");
  }
  const std::string deep(65, '[');
  ErrorOf(Post("/completion", "{\"x\":" + deep + std::string(65, ']') + "}"), 400,
          "invalid_request_error");
}

TEST_F(RoutesTest, BodyOfTooManyValuesIsA400NamingTheLimit) {
  Start();
  std::string zeros = "[0";
  for (size_t i = 1; i < limits::kJsonNodesMax; ++i) zeros += ",0";
  for (const char* path : {"/tokenize", "/detokenize", "/completion", "/v1/chat/completions"}) {
    EXPECT_THAT(ErrorOf(Post(path, "{\"tokens\":" + zeros + "]}"), 400, "invalid_request_error"),
                HasSubstr("more than 2097152 values"))
        << path;
  }
}

// As nlohmann's parser, and so llama-server, does.
TEST_F(RoutesTest, LastOfARepeatedFieldCounts) {
  Start();
  EXPECT_EQ(Post("/tokenize", R"({"content":[5],"content":[7]})").body, R"({"tokens":[7]})");
}

TEST_F(RoutesTest, TokensOfMoreThanAnAnswersBytesAreRefused) {
  answer_bytes_max_ = 500;
  Start();
  EXPECT_EQ(Post("/tokenize", R"({"content":[5,6,7]})").body, R"({"tokens":[5,6,7]})");
  std::string ids = "5";
  for (int i = 0; i < 300; ++i) ids += ",5";
  EXPECT_THAT(
      ErrorOf(Post("/tokenize", "{\"content\":[" + ids + "]}"), 400, "invalid_request_error"),
      HasSubstr("larger than 500 bytes"));
}

TEST_F(RoutesTest, EngineFailureIsShownByHealthWithoutItsText) {
  before_pass_ = [] { throw std::logic_error("/secret/path broke"); };
  Start();
  const Answer failed = Post("/completion", R"({"prompt":"x"})");
  EXPECT_EQ(failed.status, 500);
  EXPECT_THAT(failed.body, Not(HasSubstr("secret")));
  const Answer health = Get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_THAT(health.body, HasSubstr(R"("status":"error")"));
  EXPECT_THAT(health.body, Not(HasSubstr("secret")));
}

TEST_F(RoutesTest, StopEndsAStreamInBoundedTimeWithAnError) {
  endless_ = true;
  limits_.slot_context = 100000;
  Start();
  Client client(port());
  client.Send(RequestText("POST", "/v1/completions", R"({"prompt":"x","stream":true})"));
  ASSERT_TRUE(client.ReadUntil("data: "));
  const auto start = std::chrono::steady_clock::now();
  server_->Stop(std::chrono::milliseconds(50));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  client.ReadToEnd();
  EXPECT_THAT(client.received(), HasSubstr("unavailable_error"));
  EXPECT_THAT(client.received(), Not(HasSubstr("[DONE]")));
}

}  // namespace
}  // namespace bloomery::serve
