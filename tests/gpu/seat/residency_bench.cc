// gpu_bench_residency MODEL LABEL [key=value …]: what residency does for a model that is split
// between card and host. First the whole card writes texts (one of a row's four best tokens each,
// so that none ends in a loop) or draws ids, and answers for each a prompt and tokens behind it;
// the routing of that is recorded. Then every budget and policy gets the same prompts and tokens,
// from the seed on, and every token's best logit must have the same bits. Printed: the rate of
// tokens behind the first, by windows of 32 as well, hits beside those of Belady's choice on the
// recorded routing, moves; the plan's prediction and memory beside what was measured; several slots
// beside the bound of their distinct experts. Keys:
//
//   ids=text|random  texts=3  prompt=512  tokens=128  budgets=8,12 (GiB; f43: frames; all)
//   policies=off,payback  streams=0 (slots decoded together; 0: not)  rounds=1
//   trace=FILE (keep it)  devices=CUDA0 (joined by '/', each as --device takes it: the first one
//   writes the texts, all take turns; none: write the trace, on the CPU, and end)
//   ubatch=512  host=0 (GiB of the host's budget; 0: what is available)
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <sstream>

#include "runtime/apps/rates.h"
#include "runtime/exec/placing.h"
#include "runtime/exec/seat.h"
#include "runtime/memory/residency/simulation.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/temp_dir.h"

namespace bloomery::test {
namespace {

constexpr size_t kWindow = 32;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Settings {
  std::string model = {};
  std::string label = {};
  bool text = true;
  int32_t texts = 3;
  int32_t prompt = 512;
  int32_t tokens = 128;
  std::vector<std::string> budgets{"8", "12"};
  std::vector<std::string> policies{"off", "payback"};
  int32_t streams = 0;
  int32_t rounds = 1;
  std::string trace = {};
  std::vector<std::string> devices{"CUDA0"};
  int32_t ubatch = 512;
  uint64_t host_budget = 0;
};

std::vector<std::string> Words(const std::string& text, char between = ',') {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, between);) words.push_back(word);
  return words;
}

Settings SettingsOf(int argc, char** argv) {
  Settings settings;
  settings.model = argv[1];
  settings.label = argv[2];
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (key == "ids") settings.text = value == "text";
    if (key == "trace") settings.trace = value;
    if (key == "devices") settings.devices = Words(value, '/');
    if (key == "ubatch") settings.ubatch = std::stoi(value);
    if (key == "host") settings.host_budget = static_cast<uint64_t>(std::stoi(value)) << 30;
    if (key == "texts") settings.texts = std::stoi(value);
    if (key == "prompt") settings.prompt = std::stoi(value);
    if (key == "tokens") settings.tokens = std::stoi(value);
    if (key == "budgets") settings.budgets = Words(value);
    if (key == "policies") settings.policies = Words(value);
    if (key == "streams") settings.streams = std::stoi(value);
    if (key == "rounds") settings.rounds = std::stoi(value);
  }
  return settings;
}

// A prompt, the tokens behind it, and the bits of the best logit of each token's row.
struct Text {
  std::vector<int32_t> prompt;
  std::vector<int32_t> tokens;
  std::vector<uint32_t> best;
};

struct Decoded {
  double prompt_seconds = 0;
  double prompt_experts = 0;  // of the host
  double prompt_host_seconds = 0;
  std::vector<double> seconds;      // by token
  size_t differ = 0;                // tokens whose best logit has other bits
  memory::ResidencyCounters first;  // behind the first token
  memory::ResidencyCounters last;
};

void RunPrompt(exec::Seat& seat, const Text& text, int32_t slot) {
  std::vector<exec::PassRow> rows;
  const int32_t most = seat.limits().rows_max;
  for (int32_t i = 0; i < static_cast<int32_t>(text.prompt.size()); ++i) {
    rows.push_back({.slot = slot,
                    .index = i,
                    .token = text.prompt[static_cast<size_t>(i)],
                    .logits = i + 1 == static_cast<int32_t>(text.prompt.size())});
    if (static_cast<int32_t>(rows.size()) < most && !rows.back().logits) continue;
    seat.Run(rows);
    rows.clear();
  }
}

exec::BestLogit BestOf(exec::Seat& seat, int32_t row) {
  const std::span<const exec::BestLogit> best = seat.BestLogits(row);
  return best.empty() ? exec::BestLogit{} : best.front();
}

exec::PassRow Row(const exec::Seat& seat, int32_t slot, int32_t token) {
  return {.slot = slot, .index = seat.Length(slot), .token = token, .logits = true};
}

// One of the row's best.
int32_t Chosen(exec::Seat& seat, std::mt19937& random) {
  constexpr size_t kChoices = 4;
  const size_t choice = random() % kChoices;
  const std::span<const exec::BestLogit> best = seat.BestLogits(0);
  if (!best.empty()) return best[choice].token;
  const std::span<const float> logits = seat.Logits(0);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::partial_sort(order, order.begin() + kChoices, std::greater(),
                            [&](int32_t id) { return logits[static_cast<size_t>(id)]; });
  return order[choice];
}

// `text` with tokens and best logits as the whole card has them.
void Answer(exec::Seat& seat, const Settings& settings, std::mt19937& random, Text* text) {
  const auto vocabulary = static_cast<uint32_t>(seat.limits().vocabulary);
  const auto drawn = [&] { return static_cast<int32_t>(random() % vocabulary); };
  int32_t token = drawn();
  seat.Cut(0, 0);
  for (int32_t i = 0; i < settings.prompt; ++i) {
    text->prompt.push_back(token);
    token = drawn();
    if (!settings.text) continue;
    const exec::PassRow row = Row(seat, 0, text->prompt.back());
    seat.Run({&row, 1});
    token = Chosen(seat, random);
  }
  seat.Cut(0, 0);
  RunPrompt(seat, *text, 0);
  token = settings.text ? Chosen(seat, random) : drawn();
  for (int32_t i = 0; i < settings.tokens; ++i) {
    text->tokens.push_back(token);
    const exec::PassRow row = Row(seat, 0, token);
    seat.Run({&row, 1});
    text->best.push_back(std::bit_cast<uint32_t>(BestOf(seat, 0).logit));
    token = settings.text ? Chosen(seat, random) : drawn();
  }
}

Decoded Decode(exec::Seat& seat, const Text& text) {
  Decoded decoded;
  seat.Cut(0, 0);
  if (seat.ReadResidencyStatus().policy) {
    // The seed comes back before time is taken: with a row that is taken back.
    seat.RequestResidencyReset();
    const exec::PassRow row = Row(seat, 0, text.prompt.front());
    seat.Run({&row, 1});
    seat.Cut(0, 0);
  }
  double at = Now();
  const auto lap = [&] {
    const double before = std::exchange(at, Now());
    return at - before;
  };
  const exec::SeatCounters before = seat.counters();
  RunPrompt(seat, text, 0);
  decoded.prompt_seconds = lap();
  const exec::SeatCounters after = seat.counters();
  decoded.prompt_experts = static_cast<double>(after.host_experts - before.host_experts);
  decoded.prompt_host_seconds = after.host_seconds - before.host_seconds;
  for (size_t i = 0; i < text.tokens.size(); ++i) {
    const exec::PassRow row = Row(seat, 0, text.tokens[i]);
    seat.Run({&row, 1});
    decoded.differ += std::bit_cast<uint32_t>(BestOf(seat, 0).logit) == text.best[i] ? 0 : 1;
    decoded.seconds.push_back(lap());
    if (i == 0) decoded.first = seat.ReadResidencyStatus().counters;
  }
  decoded.last = seat.ReadResidencyStatus().counters;
  return decoded;
}

exec::SeatOptions OptionsOf(const Settings& settings, const std::string& device,
                            const std::string& budget, int32_t slots) {
  exec::SeatOptions options;
  options.slots = slots;
  options.slot_context = settings.prompt + settings.tokens + 64;
  options.rows_max = std::min(settings.prompt, settings.ubatch);
  options.host_budget = settings.host_budget;
  options.device = device;
  if (budget == "all") return options;
  if (budget.starts_with("f")) {
    options.card_frames = std::stoi(budget.substr(1));
  } else {
    options.placing.place = memory::Place::kSplit;
    options.card_budget = static_cast<uint64_t>(std::stod(budget) * double{1 << 30});
  }
  return options;
}

// Of all cards.
uint64_t CardTaken() {
  int cards = 0;
  cudaGetDeviceCount(&cards);
  uint64_t taken = 0;
  for (int card = 0; card < cards; ++card) {
    size_t free_bytes = 0;
    size_t total = 0;
    cudaSetDevice(card);
    cudaMemGetInfo(&free_bytes, &total);
    taken += total - free_bytes;
  }
  return taken;
}

uint64_t HostTaken() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  uint64_t resident = 0;
  file >> pages >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

double Percent(uint64_t part, uint64_t of) {
  return of == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(of);
}

class Bench {
 public:
  explicit Bench(Settings settings) : settings_(std::move(settings)) {}

  void Run() {
    if (settings_.devices.front() == "none") return Write();
    rates_ = apps::MeasureRates("");
    const memory::HostExpertRates& of = rates_.experts;
    std::printf(
        "rates: host reads %.1f GB/s, %.0f G macs; experts of %.2f MB: dispatch %.1f us, "
        "each %.1f; prompts %.1f, %.1f + %.2f a row, x %.2f beside the link",
        rates_.host_read * 1e-9, rates_.host_macs * 1e-9, static_cast<double>(of.bytes) * 1e-6,
        of.dispatch_us, of.expert_us, of.read_us, of.fixed_us, of.row_us, of.beside_link);
    for (const memory::CardRates& card : rates_.cards) {
      std::printf("; %s reads %.0f GB/s, to it %.1f, %.1f beside experts, hand-off %.2f us",
                  card.id.c_str(), card.read * 1e-9, card.to_card * 1e-9,
                  card.to_card_beside * 1e-9, card.hand_off * 1e6);
    }
    std::printf("\n\n");
    Write();
    Tables();
    if (settings_.streams > 1) Streams();
  }

 private:
  // Texts and their routing, by the whole card.
  void Write() {
    exec::SeatOptions options = OptionsOf(settings_, settings_.devices.front(), "all", 1);
    options.residency.trace = settings_.trace.empty() ? folder_.File("trace") : settings_.trace;
    {
      const LoadedSeat whole = LoadThroughPlugin(settings_.model, options);
      std::mt19937 random(settings_.text ? 3 : 4);
      for (int32_t i = 0; i < settings_.texts; ++i) {
        Answer(*whole.seat, settings_, random, &texts_.emplace_back());
      }
    }
    memory::TraceReader reader(RealFileSystem().Open(options.residency.trace));
    const memory::RoutingTrace trace(reader);
    traces_ = trace.Texts(static_cast<uint64_t>(settings_.tokens));
    const memory::TraceStatistics statistics = StatisticsOf(trace);
    std::printf(
        "%s: %d texts of %d and %d tokens; the busiest eighth of experts has %.1f %% of "
        "picks, the row before had %.1f %%\n\n",
        settings_.label.c_str(), settings_.texts, settings_.prompt, settings_.tokens,
        100 * statistics.busiest_eighth, 100 * statistics.repeated);
  }

  // Hits of the decode passes that are timed, in percent.
  double BeladyHits(uint32_t frames) {
    memory::SimulationResult sum;
    for (const memory::RoutingTrace& trace : traces_) {
      sum.Add(memory::SimulateBelady(trace, {.frames = frames}));
    }
    return 100 * sum.decode.HitRate();
  }

  void Tables() {
    std::printf(
        "| budget | on | frames | policy | t/s | x off | by windows of %zu tokens | hits %% | "
        "Belady "
        "%% | of it | moves a text | pp t/s | pp host experts, ms | predicted t/s, pp | card MiB, "
        "plan | host MiB, plan "
        "| host ms | host us | other bits "
        "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        kWindow);
    for (const std::string& budget : settings_.budgets) {
      std::map<std::string, double> off;  // rates by device
      for (int32_t round = 0; round < settings_.rounds; ++round) {
        for (const std::string& policy : settings_.policies) {
          for (const std::string& device : settings_.devices) {
            off[device] = Arm(device, budget, policy, off[device]);
          }
        }
      }
    }
    std::printf("\n");
  }

  // Returns the rate of the arm that is off.
  double Arm(const std::string& device, const std::string& budget, const std::string& policy,
             double off) {
    exec::SeatOptions options = OptionsOf(settings_, device, budget, 1);
    options.residency.kind = exec::ResidencyKindOf(policy);
    const uint64_t card_before = CardTaken();
    const uint64_t host_before = HostTaken();
    const LoadedSeat loaded = LoadThroughPlugin(settings_.model, options);
    exec::Seat& seat = *loaded.seat;
    const uint64_t card = CardTaken() - card_before;
    const uint64_t host = HostTaken() - std::min(HostTaken(), host_before);
    const memory::Placement& plan = seat.placement();
    uint64_t planned = 0;  // of all cards
    for (const memory::PlacedStage& stage : plan.stages) planned += stage.plan.total();
    double seconds = 0;
    double prompt_seconds = 0;
    double prompt_experts = 0;
    double prompt_host_seconds = 0;
    uint64_t picks = 0;
    uint64_t hits = 0;
    uint64_t moves = 0;
    size_t differ = 0;
    size_t tokens = 0;
    std::vector<double> windows(static_cast<size_t>(settings_.tokens) / kWindow, 0.0);
    seat.Cut(0, 0);
    RunPrompt(seat, texts_.front(), 0);  // warms up
    const double host_seconds = seat.counters().host_seconds;
    for (const Text& text : texts_) {
      const Decoded decoded = Decode(seat, text);
      prompt_seconds += decoded.prompt_seconds;
      prompt_experts += decoded.prompt_experts;
      prompt_host_seconds += decoded.prompt_host_seconds;
      differ += decoded.differ;
      for (size_t i = 1; i < decoded.seconds.size(); ++i) {
        seconds += decoded.seconds[i];
        ++tokens;
      }
      for (size_t i = 0; i < windows.size() * kWindow; ++i)
        windows[i / kWindow] += decoded.seconds[i];
      picks += decoded.last.picks - decoded.first.picks;
      hits += decoded.last.hits - decoded.first.hits;
      moves += decoded.last.moves - decoded.first.moves;
    }
    const auto count = static_cast<double>(texts_.size());
    const double rate = static_cast<double>(tokens) / seconds;
    if (policy == "off") off = rate;
    std::string by_window;
    for (const double window : windows) {
      by_window += (by_window.empty() ? "" : " ") +
                   std::to_string(static_cast<int>(count * kWindow / window));
    }
    const memory::Prediction prediction =
        memory::Predict(plan, exec::WorkOf(loaded.instance->description()), rates_,
                        settings_.prompt + settings_.tokens / 2);
    const bool split = seat.CardFrames() >= 0;
    const auto frames = static_cast<uint32_t>(std::max(0, seat.CardFrames()));
    const double belady = split ? BeladyHits(frames) : 100;
    const double hit = split ? Percent(hits, picks) : 100;
    std::printf(
        "| %s | %s | %d | %s | %.1f | %.2f | %s | %.1f | %.1f | %.2f | %.0f | %.0f | %.0f, %.1f | "
        "%.1f, %.0f | %.0f, %.0f | %.0f, %.0f | %.2f | %.1f | %zu |\n",
        budget.c_str(), device.c_str(), seat.CardFrames(), policy.c_str(), rate,
        off > 0 ? rate / off : 0, by_window.c_str(), hit, belady, belady > 0 ? hit / belady : 0,
        static_cast<double>(moves) / count, count * settings_.prompt / prompt_seconds,
        prompt_experts / count, 1e3 * prompt_host_seconds / count, prediction.decode,
        prediction.prompt, MiB(card), MiB(planned), MiB(host), MiB(plan.host.total()),
        1e3 * (seat.counters().host_seconds - host_seconds) / (count * settings_.tokens),
        seat.ReadResidencyStatus().rates.host_us, differ);
    std::fflush(stdout);
    return off;
  }

  // Passes of a row of each slot, every slot another text.
  double StepSeconds(exec::Seat& seat, std::vector<size_t>* differ) {
    const int32_t slots = settings_.streams;
    for (int32_t slot = 0; slot < slots; ++slot) {
      seat.Cut(slot, 0);
      RunPrompt(seat, texts_[static_cast<size_t>(slot) % texts_.size()], slot);
    }
    std::vector<exec::PassRow> rows(static_cast<size_t>(slots));
    constexpr size_t kFirst = 8;
    double begin = 0;
    for (size_t i = 0; i < static_cast<size_t>(settings_.tokens); ++i) {
      if (i == kFirst) {
        begin = Now();
        before_ = seat.counters();
      }
      for (int32_t slot = 0; slot < slots; ++slot) {
        const Text& text = texts_[static_cast<size_t>(slot) % texts_.size()];
        rows[static_cast<size_t>(slot)] = Row(seat, slot, text.tokens[i]);
      }
      seat.Run(rows);
      for (int32_t slot = 0; slot < slots; ++slot) {
        const Text& text = texts_[static_cast<size_t>(slot) % texts_.size()];
        const bool same = std::bit_cast<uint32_t>(BestOf(seat, slot).logit) == text.best[i];
        differ->push_back(same ? 0 : 1);
      }
    }
    const double seconds = Now() - begin;
    return seconds / static_cast<double>(static_cast<size_t>(settings_.tokens) - kFirst);
  }

  void Streams() {
    std::printf(
        "| budget | slots | policy | t/s together | ms a pass | whole card ms | host experts a "
        "pass "
        "| host GB/s | bound t/s (reading) | of it | other bits "
        "|\n|---|---|---|---|---|---|---|---|---|---|---|\n");
    std::vector<size_t> differ;
    double whole_pass = 0;
    {
      const LoadedSeat whole = LoadThroughPlugin(
          settings_.model,
          OptionsOf(settings_, settings_.devices.front(), "all", settings_.streams));
      whole_pass = StepSeconds(*whole.seat, &differ);
    }
    const size_t passes = static_cast<size_t>(settings_.tokens) - 8;
    for (const std::string& budget : settings_.budgets) {
      if (budget == "all") continue;
      for (const std::string& policy : settings_.policies) {
        exec::SeatOptions options =
            OptionsOf(settings_, settings_.devices.front(), budget, settings_.streams);
        options.residency.kind = exec::ResidencyKindOf(policy);
        const LoadedSeat loaded = LoadThroughPlugin(settings_.model, options);
        differ.clear();
        const double pass = StepSeconds(*loaded.seat, &differ);
        const exec::SeatCounters after = loaded.seat->counters();
        const auto bytes = static_cast<double>(after.host_bytes - before_.host_bytes);
        const double host = after.host_seconds - before_.host_seconds;
        const double least = whole_pass + bytes / static_cast<double>(passes) / rates_.host_read;
        std::printf("| %s | %d | %s | %.1f | %.3f | %.3f | %.1f | %.1f | %.1f | %.2f | %zu |\n",
                    budget.c_str(), settings_.streams, policy.c_str(), settings_.streams / pass,
                    1e3 * pass, 1e3 * whole_pass,
                    static_cast<double>(after.host_experts - before_.host_experts) /
                        static_cast<double>(passes),
                    host > 0 ? bytes / host * 1e-9 : 0, settings_.streams / least, least / pass,
                    static_cast<size_t>(std::ranges::count(differ, 1U)));
        std::fflush(stdout);
      }
    }
    std::printf("\n");
  }

  Settings settings_;
  TempDir folder_;
  memory::MachineRates rates_;
  std::vector<Text> texts_;
  std::vector<memory::RoutingTrace> traces_;
  exec::SeatCounters before_;
};

}  // namespace
}  // namespace bloomery::test

int main(int argc, char** argv) {
  if (argc < 3) return 64;
  try {
    bloomery::test::Bench(bloomery::test::SettingsOf(argc, argv)).Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
