#include "runtime/serve/metrics.h"

#include <array>
#include <charconv>
#include <string_view>

namespace bloomery::serve {
namespace {

double Ratio(double amount, double over) { return over > 0 ? amount / over : 0; }

class Text {
 public:
  void Counter(std::string_view name, std::string_view help, double value) {
    Add(name, help, "counter", "", value);
  }
  void Gauge(std::string_view name, std::string_view help, double value) {
    Add(name, help, "gauge", "", value);
  }
  void Add(std::string_view name, std::string_view help, std::string_view type,
           std::string_view labels, double value) {
    Head(name, help, type);
    Sample(name, labels, value);
  }
  // A name whose samples follow.
  void Head(std::string_view name, std::string_view help, std::string_view type) {
    text_.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
    text_.append(name).append(" ").append(type).append("\n");
  }
  void Sample(std::string_view name, std::string_view labels, double value) {
    std::array<char, 40> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    text_.append(name).append(labels).append(" ");
    text_.append(digits.data(), static_cast<size_t>(end - digits.data())).append("\n");
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// Counts stay exact in a double up to 2^53.
template <typename T>
double Number(T value) {
  return static_cast<double>(value);
}

void AddLlamaServers(const engine::Metrics& now, const engine::Metrics& last, int64_t rows,
                     Text& text) {
  text.Counter("llamacpp:prompt_tokens_total", "Prompt tokens evaluated.",
               Number(now.prompt_tokens));
  text.Counter("llamacpp:prompt_tokens_cached_total", "Prompt tokens taken over, not evaluated.",
               Number(now.prompt_tokens_cached));
  text.Counter("llamacpp:prompt_seconds_total", "Time spent on prompts.", now.prompt_seconds);
  text.Counter("llamacpp:tokens_predicted_total", "Tokens generated.",
               Number(now.predicted_tokens));
  text.Counter("llamacpp:tokens_predicted_seconds_total", "Time spent on generating.",
               now.predicted_seconds);
  text.Counter("llamacpp:n_decode_total", "Passes.", Number(now.passes));
  text.Counter("llamacpp:n_tokens_max", "The most tokens that one slot has held.",
               Number(now.tokens_max));
  text.Gauge("llamacpp:n_busy_slots_per_decode", "Slots with a row in a pass, on average.",
             Ratio(Number(now.pass_slots), Number(now.passes)));
  text.Gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens a second since the last reading.",
             Ratio(Number(now.prompt_tokens - last.prompt_tokens),
                   now.prompt_seconds - last.prompt_seconds));
  text.Gauge("llamacpp:predicted_tokens_seconds",
             "Tokens generated a second since the last reading.",
             Ratio(Number(now.predicted_tokens - last.predicted_tokens),
                   now.predicted_seconds - last.predicted_seconds));
  text.Gauge("llamacpp:requests_processing", "Requests in slots.", Number(now.slots_busy));
  text.Gauge("llamacpp:requests_deferred", "Requests that wait for a slot.",
             Number(now.requests_waiting));
  text.Gauge("llamacpp:kv_cache_tokens", "Tokens held by all slots.", Number(now.tokens_held));
  text.Gauge("llamacpp:kv_cache_usage_ratio", "Tokens held of those that fit all slots.",
             Ratio(Number(now.tokens_held), Number(rows)));
  text.Counter("llamacpp:spec_decode_num_drafts_total", "Drafts verified.",
               Number(now.drafts.drafts));
  text.Counter("llamacpp:spec_decode_num_draft_tokens_total", "Tokens of drafts.",
               Number(now.drafts.tokens));
  text.Counter("llamacpp:spec_decode_num_accepted_tokens_total", "Tokens of drafts kept.",
               Number(now.drafts.accepted));
  constexpr std::string_view kByPlace = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total";
  text.Add(kByPlace, "Tokens of drafts kept, by their place.", "counter", "{position=\"0\"}",
           Number(now.drafts.accepted_at[0]));
  for (size_t i = 1; i < now.drafts.accepted_at.size(); ++i) {
    if (now.drafts.accepted_at[i] == 0) break;
    text.Sample(kByPlace, "{position=\"" + std::to_string(i) + "\"}",
                Number(now.drafts.accepted_at[i]));
  }
}

void AddOurs(const engine::Metrics& now, Text& text) {
  text.Counter("bloomery:requests_finished_total", "Requests that came to their end.",
               Number(now.requests_finished));
  text.Counter("bloomery:requests_cancelled_total", "Requests whose client left.",
               Number(now.requests_cancelled));
  text.Counter("bloomery:requests_failed_total", "Requests that failed.",
               Number(now.requests_failed));
  text.Counter("bloomery:passes_failed_total", "Passes that failed.", Number(now.passes_failed));
  text.Counter("bloomery:rows_total", "Rows of all passes.", Number(now.rows));
  text.Counter("bloomery:draft_seconds_total", "Time spent on making drafts.", now.drafts.seconds);
  constexpr std::string_view kReused = "bloomery:prompt_tokens_reused_total";
  text.Add(kReused, "Prompt tokens taken over, by where they were.", "counter", "{from=\"slot\"}",
           Number(now.reuse.own));
  text.Sample(kReused, "{from=\"other_slot\"}", Number(now.reuse.other_slots));
  text.Sample(kReused, "{from=\"memory\"}", Number(now.reuse.memory));
  text.Sample(kReused, "{from=\"folder\"}", Number(now.reuse.folder));
  text.Counter("bloomery:requests_reusing_total", "Requests that took anything over.",
               Number(now.reuse.requests_reusing));
  text.Counter("bloomery:prompt_cache_save_seconds_total", "Time spent on copying states out.",
               now.reuse.save_seconds);
  text.Counter("bloomery:prompt_cache_take_seconds_total", "Time spent on finding and taking up.",
               now.reuse.take_seconds);
  const state::CacheCounters& cache = now.cache;
  text.Gauge("bloomery:prompt_cache_memory_bytes", "Bytes of states in memory.",
             Number(cache.ram_bytes));
  text.Gauge("bloomery:prompt_cache_memory_bytes_max", "Bytes that they may take.",
             Number(cache.ram_bytes_max));
  text.Gauge("bloomery:prompt_cache_folder_bytes", "Bytes of states in the folder.",
             Number(cache.disk_bytes));
  text.Counter("bloomery:prompt_cache_saved_rows_total", "Rows copied out of slots.",
               Number(cache.saved_rows));
  text.Counter("bloomery:prompt_cache_evicted_blocks_total", "Blocks dropped from memory.",
               Number(cache.evicted_blocks));
  text.Counter("bloomery:prompt_cache_evicted_files_total", "Files dropped from the folder.",
               Number(cache.evicted_files));
  text.Counter("bloomery:prompt_cache_written_bytes_total", "Bytes written to the folder.",
               Number(cache.written_bytes));
  text.Counter("bloomery:prompt_cache_read_bytes_total", "Bytes read from the folder.",
               Number(cache.read_bytes));
  text.Counter("bloomery:prompt_cache_write_failures_total", "Writes to the folder that failed.",
               Number(cache.write_failures));
  text.Counter("bloomery:prompt_cache_refused_files_total", "Files that were damaged or gone.",
               Number(cache.refused_files));
}

// A value of every bank under one name.
template <typename Value>
void AddBanks(std::string_view name, std::string_view help, std::string_view type,
              const exec::Residency& residency, Value value, Text& text) {
  text.Head(name, help, type);
  for (size_t i = 0; i < residency.banks.size(); ++i) {
    text.Sample(name, "{layer=\"" + std::to_string(residency.banks[i].layer) + "\"}", value(i));
  }
}

void AddTiers(const exec::Residency& residency, Text& text) {
  constexpr std::string_view kUsed = "bloomery:tier_used_bytes";
  text.Head(kUsed, "Bytes of a memory that are planned for.", "gauge");
  for (const exec::MemoryTier& tier : residency.tiers) {
    uint64_t used = 0;
    for (const memory::PlanTerm& term : tier.classes) used += term.bytes;
    text.Sample(kUsed, "{tier=\"" + tier.name + "\"}", Number(used));
  }
  constexpr std::string_view kLimit = "bloomery:tier_limit_bytes";
  text.Head(kLimit, "Bytes of a memory that may be; 0 where it is not known.", "gauge");
  for (const exec::MemoryTier& tier : residency.tiers) {
    text.Sample(kLimit, "{tier=\"" + tier.name + "\"}", Number(tier.limit_bytes));
  }
}

void AddPassTimes(const exec::PassTimes& times, Text& text) {
  constexpr std::string_view kTime = "bloomery:pass_seconds_total";
  text.Head(kTime, "Time of passes and of what is between them, by what it was about.", "counter");
  text.Sample(kTime, "{cause=\"card\"}", times.card_seconds());
  text.Sample(kTime, "{cause=\"host\"}", times.host_seconds);
  text.Sample(kTime, "{cause=\"link\"}", times.link_seconds);
  text.Sample(kTime, "{cause=\"sync\"}", times.sync_seconds);
}

}  // namespace

std::string MetricsReadings::Next(const engine::Metrics& now, int64_t rows_of_all_slots) {
  Text text;
  {
    const std::lock_guard lock(mutex_);
    AddLlamaServers(now, last_, rows_of_all_slots, text);
    last_ = now;
  }
  AddOurs(now, text);
  return text.Take();
}

std::string ResidencyMetrics(const exec::Residency& residency,
                             const exec::ResidencyStatus& status) {
  Text text;
  AddTiers(residency, text);
  AddPassTimes(status.times, text);
  const memory::ResidencyCounters& counters = status.counters;
  text.Counter("bloomery:residency_picks_total", "Experts that kept rows picked.",
               Number(counters.picks));
  text.Counter("bloomery:residency_hits_total", "Of these, what was on a card.",
               Number(counters.hits));
  text.Counter("bloomery:residency_moves_total", "Experts that came to a card.",
               Number(counters.moves));
  text.Counter("bloomery:residency_moves_failed_total", "Experts whose copy failed.",
               Number(counters.moves_failed));
  text.Counter("bloomery:residency_resets_total", "Resets.", Number(counters.resets));
  if (!status.policy || counters.banks.size() != residency.banks.size()) return text.Take();
  AddBanks(
      "bloomery:bank_frames", "Experts of a bank that its card has room for.", "gauge", residency,
      [&](size_t i) { return Number(residency.banks[i].frames); }, text);
  AddBanks(
      "bloomery:bank_picks_total", "Experts of a bank that kept rows picked.", "counter", residency,
      [&](size_t i) { return Number(counters.banks[i].picks); }, text);
  AddBanks(
      "bloomery:bank_hits_total", "Of these, what was on a card.", "counter", residency,
      [&](size_t i) { return Number(counters.banks[i].hits); }, text);
  AddBanks(
      "bloomery:bank_moves_total", "Experts of a bank that came to its card.", "counter", residency,
      [&](size_t i) { return Number(counters.banks[i].moves); }, text);
  return text.Take();
}

}  // namespace bloomery::serve
