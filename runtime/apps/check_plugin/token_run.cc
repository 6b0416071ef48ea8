#include "runtime/apps/check_plugin/token_run.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "runtime/exec/seat.h"
#include "runtime/plugin/instance.h"

namespace bloomery::apps::check {
namespace {

// Nine digits tell every float from its neighbours. JSON has no word for what is no number.
void WriteNumber(std::ostream& out, float value) {
  if (!std::isfinite(value)) {
    out << "null";
    return;
  }
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  out.write(text.data(), end - text.data());
}
void WriteNumber(std::ostream& out, int32_t value) { out << value; }

template <class Number>
void WriteList(std::ostream& out, std::span<const Number> values) {
  out << "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out << ",";
    WriteNumber(out, values[i]);
  }
  out << "]";
}

// The values of one token, then the names of those in which not everything is a number.
class RowWriter {
 public:
  RowWriter(std::ostream& out, int32_t token) : out_(out) { out_ << "{\"token\":" << token; }

  void Floats(const std::string& name, std::span<const float> values) {
    out_ << ",\"" << name << "\":";
    WriteList(out_, values);
    const bool finite =
        std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
    if (!finite) not_finite_.push_back(name);
  }
  void Observed(const std::string& name, const exec::Observation& value) {
    if (value.dtype != BL_I32) return Floats(name, value.Floats());
    out_ << ",\"" << name << "\":";
    WriteList(out_, value.Ints());
  }
  void Drafts(std::span<const exec::Drafted> guesses) {
    out_ << ",\"draft\":[";
    for (size_t i = 0; i < guesses.size(); ++i) {
      out_ << (i > 0 ? "," : "") << "{\"token\":" << guesses[i].token << ",\"probability\":";
      WriteNumber(out_, guesses[i].probability);
      out_ << "}";
    }
    out_ << "]";
  }
  void End() {
    for (size_t i = 0; i < not_finite_.size(); ++i) {
      out_ << (i == 0 ? ",\"not_finite\":[\"" : "\",\"") << not_finite_[i];
    }
    out_ << (not_finite_.empty() ? "}" : "\"]}");
  }

 private:
  std::ostream& out_;
  std::vector<std::string> not_finite_;
};

// Each guess goes on from the one before. Leaves the slot as it was.
std::vector<exec::Drafted> Guesses(exec::Seat& seat, int32_t token, int32_t count) {
  std::vector<exec::Drafted> guesses;
  for (int32_t depth = 0; depth < count; ++depth) {
    const exec::DraftRow row = {.slot = 0, .depth = depth, .token = token};
    guesses.push_back(seat.RunDraft({&row, 1}, true).front());
    token = guesses.back().token;
  }
  return guesses;
}

}  // namespace

void WriteTokenRun(const Subject& subject, const TokenRun& run, std::ostream& out) {
  const auto context = static_cast<int32_t>(run.tokens.size());
  const exec::SeatOptions options{.slot_context = context + run.guesses,
                                  .rows_max = 1,
                                  .window_rows = run.guesses + 1,
                                  .drafts = run.guesses > 0,
                                  .threads = 1,
                                  .pin = false,
                                  .k_type = BL_F32,
                                  .v_type = BL_F32,
                                  .observe = run.observe};
  const plugin::LoadedPlugin plugin = plugin::LoadPlugin(subject.path);
  const model::ModelFile model = OpenModel(subject);
  plugin::Instance instance(plugin, model, exec::InstanceOptionsOf(options));
  const auto seat = exec::LoadSeat(model, instance, options);
  for (const int32_t token : run.tokens) {
    if (token < 0 || token >= seat->limits().vocabulary) {
      throw Error(ErrorKind::kUsage, "--tokens: " + std::to_string(token) +
                                         " is outside of a vocabulary of " +
                                         std::to_string(seat->limits().vocabulary));
    }
  }
  out << "{\"rows\":[";
  for (int32_t i = 0; i < context; ++i) {
    const exec::PassRow row{
        .slot = 0, .index = i, .token = run.tokens[static_cast<size_t>(i)], .logits = true};
    const std::vector<exec::Drafted> guesses = Guesses(*seat, row.token, run.guesses);
    seat->Run({&row, 1});
    out << (i > 0 ? ",\n" : "\n");
    RowWriter writer(out, row.token);
    writer.Floats("logits", seat->Logits(0));
    for (const std::string& name : run.observe) writer.Observed(name, seat->Observe(name));
    if (!guesses.empty()) writer.Drafts(guesses);
    writer.End();
  }
  out << "\n]}\n";
}

}  // namespace bloomery::apps::check
