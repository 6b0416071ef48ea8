// /metrics: its names, that it adds up, and the speeds between two readings.
#include "runtime/serve/metrics.h"

#include <gmock/gmock.h>

#include <sstream>

#include "tests/unit/serve/served_fixture.h"

namespace bloomery::serve {
namespace {

using ::testing::HasSubstr;

// Samples by name with labels; every name has HELP and TYPE before its first sample.
std::map<std::string, double> Samples(const std::string& text) {
  std::map<std::string, double> samples;
  std::string helped;
  std::string typed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    std::string second;
    std::string third;
    words >> first >> second >> third;
    if (first == "#") {
      (second == "HELP" ? helped : typed) = third;
      if (second == "TYPE") {
        EXPECT_EQ(third, helped);
      }
      continue;
    }
    EXPECT_EQ(first.substr(0, first.find('{')), typed) << line;
    EXPECT_TRUE(samples.emplace(first, std::stod(second)).second) << line;
  }
  return samples;
}

class MetricsTest : public ServedTest {};

TEST_F(MetricsTest, EveryNameOfLlamaServersIsThereFromTheStart) {
  Start();
  const test::Answer answer = Get("/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-type"), "text/plain; version=0.0.4");
  EXPECT_GT(std::stoll(answer.headers.at("process-start-time-unix")), 1700000000);
  const auto samples = Samples(answer.body);
  for (const char* name :
       {"prompt_tokens_total", "prompt_tokens_cached_total", "prompt_seconds_total",
        "tokens_predicted_total", "tokens_predicted_seconds_total", "n_decode_total",
        "n_tokens_max", "spec_decode_num_draft_tokens_total",
        "spec_decode_num_accepted_tokens_total", "spec_decode_num_drafts_total",
        "spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"}", "prompt_tokens_seconds",
        "predicted_tokens_seconds", "requests_processing", "requests_deferred",
        "n_busy_slots_per_decode", "kv_cache_usage_ratio", "kv_cache_tokens"}) {
    EXPECT_EQ(samples.count(std::string("llamacpp:") + name), 1U) << name;
  }
  for (const auto& [name, value] : samples) {
    if (name.starts_with("llamacpp:")) {
      EXPECT_EQ(value, 0) << name;
    }
  }
}

TEST_F(MetricsTest, CountersAreTheSumsOfTheTimings) {
  Start();
  double predicted = 0;
  double evaluated = 0;
  double cached = 0;
  for (const int n : {3, 5, 2}) {
    const auto answer = PostJson("/completion", R"({"prompt": "Hello there", "n_predict": )" +
                                                    std::to_string(n) + R"(, "temperature": 0})");
    const auto& timings = answer["timings"];
    EXPECT_EQ(timings["predicted_n"].GetInt(), n);
    predicted += timings["predicted_n"].GetInt();
    evaluated += timings["prompt_n"].GetInt();
    cached += timings["cache_n"].GetInt();
  }
  EXPECT_GT(cached, 0);
  const auto samples = Samples(Get("/metrics").body);
  EXPECT_EQ(samples.at("llamacpp:tokens_predicted_total"), predicted);
  EXPECT_EQ(samples.at("llamacpp:prompt_tokens_total"), evaluated);
  EXPECT_EQ(samples.at("llamacpp:prompt_tokens_cached_total"), cached);
  EXPECT_EQ(samples.at("bloomery:requests_finished_total"), 3);
  EXPECT_EQ(samples.at("llamacpp:requests_processing"), 0);
  EXPECT_TRUE(GetJson("/props")["endpoint_metrics"].GetBool());
}

TEST_F(MetricsTest, KeyIsAskedFor) {
  settings_.api_keys = {"secret"};
  Start();
  ErrorOf(Get("/metrics"), 401, "authentication_error");
}

TEST(MetricsReadings, SpeedsAreThoseSinceTheLastReading) {
  MetricsReadings readings;
  engine::Metrics metrics;
  metrics.prompt_tokens = 100;
  metrics.prompt_seconds = 2;
  metrics.predicted_tokens = 30;
  metrics.predicted_seconds = 3;
  metrics.tokens_held = 25;
  auto samples = Samples(readings.Next(metrics, 100));
  EXPECT_EQ(samples.at("llamacpp:prompt_tokens_seconds"), 50);
  EXPECT_EQ(samples.at("llamacpp:predicted_tokens_seconds"), 10);
  EXPECT_EQ(samples.at("llamacpp:kv_cache_usage_ratio"), 0.25);
  metrics.predicted_tokens = 130;
  metrics.predicted_seconds = 4;
  samples = Samples(readings.Next(metrics, 100));
  EXPECT_EQ(samples.at("llamacpp:prompt_tokens_seconds"), 0);  // none were read meanwhile
  EXPECT_EQ(samples.at("llamacpp:predicted_tokens_seconds"), 100);
  EXPECT_EQ(samples.at("llamacpp:tokens_predicted_total"), 130);
}

TEST(MetricsReadings, LargeCountsAreWrittenInFull) {
  engine::Metrics metrics;
  metrics.prompt_tokens = 9007199254740991;
  EXPECT_THAT(MetricsReadings().Next(metrics, 1),
              HasSubstr("llamacpp:prompt_tokens_total 9007199254740991\n"));
}

}  // namespace
}  // namespace bloomery::serve
