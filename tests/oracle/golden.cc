#include "tests/oracle/golden.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "runtime/base/json.h"
#include "tests/support/oracle_path.h"

namespace bloomery::test {
namespace {

// What a few picks' weights may reach, as a multiple of the column's bound. A float64 pass over the
// files of qwen3moe is up to 2.9e-6 (mini, layer 1, row 214 of `long`) and 2.6e-6 (large, layer 5,
// row 312) away from the goldens, which were made in float32, where the bound is 2e-6: there the
// goldens' own router logits are off, within their bound of 1e-5, and no right engine can be
// nearer. Subject::loose_picks counts those.
constexpr double kRouterWeightWorst = 2;

const std::vector<std::string> kPrompts = {"short", "sum", "mid", "long"};

void ExpectNothing(const Findings& findings) { EXPECT_THAT(findings, testing::IsEmpty()); }

// Names of the plugin's observations and how many layers' worth the goldens hold.
struct Observed {
  int32_t layers = 0;
  std::vector<std::string> names;
};

std::string GateName(const std::string& prompt, int32_t layer) {
  return prompt + ".router.model.layers." + std::to_string(layer) + ".mlp.gate.";
}
bool Routes(const Safetensors& golden, int32_t layer) {
  return golden.Has(GateName("mid", layer) + "0");
}

Observed ObservedBy(const Safetensors& golden) {
  Observed observed;
  while (golden.Has("mid.hidden." + std::to_string(observed.layers + 1))) ++observed.layers;
  for (int32_t l = 0; l < observed.layers; ++l) {
    const std::string layer = "layer." + std::to_string(l);
    observed.names.push_back(layer + ".in");
    if (!Routes(golden, l)) continue;
    for (const char* what : {".router.logits", ".router.weights", ".router.ids"}) {
      observed.names.push_back(layer + what);
    }
  }
  observed.names.push_back("hidden");
  return observed;
}

void RunOnce(exec::Seat& seat, const std::vector<int32_t>& ids) {
  std::vector<exec::PassRow> rows;
  rows.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    rows.push_back({.slot = 0, .index = static_cast<int32_t>(i), .token = ids[i], .logits = true});
  }
  seat.Cut(0, 0);
  seat.Run(rows);
}

void ExpectHidden(const exec::Seat& seat, const Safetensors& golden, int32_t layers) {
  for (int32_t l = 0; l <= layers; ++l) {
    const std::string name =
        l == layers ? std::string("hidden") : "layer." + std::to_string(l) + ".in";
    const std::vector<float>& expected = golden.Get("mid.hidden." + std::to_string(l)).floats;
    double largest = 0;
    for (const float x : expected) largest = std::max(largest, std::abs(double{x}));
    ExpectNothing(
        CompareValues(name, seat.Observe(name).Floats(), expected, 1e-5 + 2e-6 * largest));
  }
}

// A pick's weight is its share of the softmax (or sigmoids) of the logits beside it, here in
// float64: what the logits' own tolerance hides in a comparison with goldens is seen.
void ExpectWeightsFollowLogits(const exec::Seat& seat, const std::string& name, size_t used,
                               bool sigmoid) {
  constexpr double kRoundings = 2e-7;  // three of a float near 1
  const exec::Observation logits = seat.Observe(name + ".logits");
  const std::span<const int32_t> ids = seat.Observe(name + ".ids").Ints();
  const std::span<const float> weights = seat.Observe(name + ".weights").Floats();
  const auto experts = static_cast<size_t>(logits.width);
  for (size_t row = 0; row < ids.size() / used; ++row) {
    const auto exponential = [&](size_t pick) {
      const std::span<const float> of_row = logits.Floats().subspan(row * experts, experts);
      const double logit = of_row[static_cast<size_t>(ids[row * used + pick])];
      if (sigmoid) return 1.0 / (1.0 + std::exp(-logit));
      return std::exp(logit - double{of_row[static_cast<size_t>(ids[row * used])]});
    };
    double sum = 0;
    for (size_t pick = 0; pick < used; ++pick) sum += exponential(pick);
    for (size_t pick = 0; pick < used; ++pick) {
      EXPECT_NEAR(weights[row * used + pick], exponential(pick) / sum, kRoundings)
          << name << ", row " << row;
    }
  }
}

// Rows whose logits differ. Where they are all equal the picks mean nothing (the embedding of a
// padding token is zero).
std::vector<size_t> RowsThatChoose(const GoldenTensor& logits) {
  const auto width = static_cast<size_t>(logits.width());
  std::vector<size_t> rows;
  for (size_t row = 0; row < static_cast<size_t>(logits.rows()); ++row) {
    const std::span<const float> values(logits.floats.data() + row * width, width);
    if (std::ranges::min(values) < std::ranges::max(values)) rows.push_back(row);
  }
  return rows;
}

template <class T>
std::vector<T> Only(const std::vector<size_t>& rows, std::span<const T> values, size_t width) {
  std::vector<T> out;
  for (const size_t row : rows) {
    const std::span<const T> of_row = values.subspan(row * width, width);
    out.insert(out.end(), of_row.begin(), of_row.end());
  }
  return out;
}

// Returns how many weights are past subject.router_weights.
size_t ExpectRouting(const exec::Seat& seat, const Safetensors& golden, const Subject& subject,
                     const std::string& prompt, int32_t layers, double logit_bound) {
  size_t loose = 0;
  for (int32_t l = 0; l < layers; ++l) {
    if (!Routes(golden, l)) continue;
    const std::string name = "layer." + std::to_string(l) + ".router";
    const std::string gate = GateName(prompt, l);
    SCOPED_TRACE(gate);
    ExpectNothing(CompareValues(name + ".logits", seat.Observe(name + ".logits").Floats(),
                                golden.Get(gate + "0").floats, logit_bound));
    const GoldenTensor& ids = golden.Get(gate + "2");
    const auto used = static_cast<size_t>(ids.width());
    const std::vector<size_t> rows = RowsThatChoose(golden.Get(gate + "0"));
    const auto ints = [&](std::span<const int32_t> all) { return Only(rows, all, used); };
    const auto floats = [&](std::span<const float> all) { return Only(rows, all, used); };
    const auto routing = [&](double bound) {
      return CompareRouting(name, used, ints(seat.Observe(name + ".ids").Ints()),
                            floats(seat.Observe(name + ".weights").Floats()), ints(ids.ints),
                            floats(golden.Get(gate + "1").floats), bound);
    };
    ExpectNothing(routing(kRouterWeightWorst * subject.router_weights));
    loose += routing(subject.router_weights).size();
    ExpectWeightsFollowLogits(seat, name, used, subject.sigmoid_router);
  }
  return loose;
}

}  // namespace

exec::SeatOptions OracleOptions(bl_dtype kv_type) {
  return {.slot_context = 512, .rows_max = 512, .pin = false, .k_type = kv_type, .v_type = kv_type};
}

double EvalRows::mean() const {
  double sum = 0;
  for (const double row : got) sum += row;
  return sum / static_cast<double>(got.size());
}

void ExpectPromptsExact(const Subject& subject, const exec::SeatOptions& options,
                        const std::vector<int32_t>& batches) {
  const Safetensors golden = subject.Golden();
  LoadedSeat loaded = LoadThroughPlugin(subject.model, options);
  for (const std::string& prompt : kPrompts) {
    const std::vector<int32_t>& ids = golden.Get(prompt + ".ids").ints;
    for (const int32_t batch : batches) {
      SCOPED_TRACE(prompt + " in batches of " + std::to_string(batch));
      loaded.seat->Cut(0, 0);
      const Logits logits = RunAll(*loaded.seat, ids, batch);
      ExpectNothing(CompareExact(golden, prompt, logits, subject.exact));
      EXPECT_EQ(Greedy(*loaded.seat, logits.back(), static_cast<int32_t>(ids.size()), 32),
                golden.Get(prompt + ".greedy").ints);
    }
  }
}

void ExpectPromptsInBand(const Subject& subject, const exec::SeatOptions& options) {
  const Safetensors golden = subject.Golden();
  LoadedSeat loaded = LoadThroughPlugin(subject.model, options);
  for (const std::string& prompt : kPrompts) {
    SCOPED_TRACE(prompt);
    const std::vector<int32_t>& ids = golden.Get(prompt + ".ids").ints;
    loaded.seat->Cut(0, 0);
    const Logits logits = RunAll(*loaded.seat, ids, 64);
    ExpectNothing(CompareBand(golden, prompt, logits, subject.band));
    if (prompt == "long") continue;  // greedy text is promised for the others
    EXPECT_EQ(Greedy(*loaded.seat, logits.back(), static_cast<int32_t>(ids.size()), 32),
              golden.Get(prompt + ".greedy").ints);
  }
}

EvalRows Evaluate(const Subject& subject, const exec::SeatOptions& options) {
  const Safetensors golden = subject.Golden();
  const std::string text =
      ReadWholeFile(RealFileSystem(), subject.golden_folder + "/golden.json", 1 << 20);
  const rapidjson::Document json = ParseJson(text, "golden.json");
  EvalRows rows;
  rows.mean_golden = json["eval"]["mean_nll"].GetDouble();
  for (const auto& row : json["eval"]["rows"].GetArray()) rows.golden.push_back(row.GetDouble());
  LoadedSeat loaded = LoadThroughPlugin(subject.model, options);
  const GoldenTensor& ids = golden.Get("eval.ids");
  const auto length = static_cast<size_t>(ids.width());
  for (size_t row = 0; row < static_cast<size_t>(ids.rows()); ++row) {
    const std::span<const int32_t> tokens(ids.ints.data() + row * length, length);
    loaded.seat->Cut(0, 0);
    rows.got.push_back(MeanNll(RunAll(*loaded.seat, tokens, 256), tokens));
  }
  return rows;
}

void ExpectEval(const EvalRows& rows, double row_bound, double mean_bound) {
  ASSERT_EQ(rows.got.size(), rows.golden.size());
  for (size_t i = 0; i < rows.got.size(); ++i) {
    EXPECT_NEAR(rows.got[i], rows.golden[i], row_bound) << "eval row " << i;
  }
  EXPECT_NEAR(rows.mean(), rows.mean_golden, mean_bound);
}

void ExpectInnerValues(const Subject& subject) {
  const Safetensors golden = subject.Golden();
  const Observed observed = ObservedBy(golden);
  exec::SeatOptions options = OracleOptions(BL_F32);
  options.observe = observed.names;
  LoadedSeat loaded = LoadThroughPlugin(subject.model, options);
  RunOnce(*loaded.seat, golden.Get("mid.ids").ints);
  ExpectHidden(*loaded.seat, golden, observed.layers);
  EXPECT_EQ(ExpectRouting(*loaded.seat, golden, subject, "mid", observed.layers,
                          subject.router_logits_mid),
            0U);
  RunOnce(*loaded.seat, golden.Get("long.ids").ints);
  EXPECT_LE(
      ExpectRouting(*loaded.seat, golden, subject, "long", observed.layers, subject.router_logits),
      subject.loose_picks);
}

void ExpectInnerValuesInBand(const Subject& subject, const std::string& prompt) {
  constexpr double kBand = 2e-2;
  const Safetensors golden = subject.Golden();
  const Observed observed = ObservedBy(golden);
  exec::SeatOptions options = OracleOptions(BL_F16);
  options.observe = observed.names;
  LoadedSeat loaded = LoadThroughPlugin(subject.model, options);
  const exec::Seat& seat = *loaded.seat;
  RunOnce(*loaded.seat, golden.Get(prompt + ".ids").ints);
  for (int32_t l = 0; prompt == "mid" && l <= observed.layers; ++l) {
    const std::string name =
        l == observed.layers ? std::string("hidden") : "layer." + std::to_string(l) + ".in";
    const GoldenTensor& expected = golden.Get("mid.hidden." + std::to_string(l));
    const std::span<const float> got = seat.Observe(name).Floats();
    const auto width = static_cast<size_t>(expected.width());
    for (size_t row = 0; row < static_cast<size_t>(expected.rows()); ++row) {
      double norm = 0;
      double off = 0;
      for (size_t i = row * width; i < (row + 1) * width; ++i) {
        norm += std::pow(expected.floats[i], 2);
        off += std::pow(double{got[i]} - expected.floats[i], 2);
      }
      EXPECT_LE(std::sqrt(off), kBand * std::sqrt(norm)) << name << ", row " << row;
    }
  }
  for (int32_t l = 0; l < observed.layers; ++l) {
    if (!Routes(golden, l)) continue;
    const std::string name = "layer." + std::to_string(l) + ".router";
    const std::string gate = GateName(prompt, l);
    const GoldenTensor& logits = golden.Get(gate + "0");
    ExpectNothing(
        CompareValues(name, seat.Observe(name + ".logits").Floats(), logits.floats, kBand));
    const GoldenTensor& ids = golden.Get(gate + "2");
    const auto used = static_cast<size_t>(ids.width());
    const auto experts = static_cast<size_t>(logits.width());
    const std::span<const int32_t> got_ids = seat.Observe(name + ".ids").Ints();
    const std::span<const float> got_weights = seat.Observe(name + ".weights").Floats();
    for (size_t row = 0; row < static_cast<size_t>(ids.rows()); ++row) {
      std::vector<float> sorted(
          logits.floats.begin() + static_cast<ptrdiff_t>(row * experts),
          logits.floats.begin() + static_cast<ptrdiff_t>((row + 1) * experts));
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      if (sorted[used - 1] - sorted[used] <= kBand) continue;
      const auto of_row = [&](const auto& values) {
        return std::span(values.data() + row * used, used);
      };
      ExpectNothing(CompareRouting(name + ", row " + std::to_string(row), used, of_row(got_ids),
                                   of_row(got_weights), of_row(ids.ints),
                                   of_row(golden.Get(gate + "1").floats), kBand));
    }
  }
}

}  // namespace bloomery::test
