// The state of a slot in every declared plane: rows that are cut, restored, copied, or that ran
// beside rows of other slots are as if nothing else had ever happened. Passes of the host's CPU
// back end, with the model's weights.
#include <algorithm>
#include <cstring>

#include "runtime/apps/check_plugin/check.h"
#include "runtime/apps/check_plugin/plane_names.h"
#include "runtime/exec/cpu/cpu_seat.h"
#include "runtime/exec/seat.h"
#include "runtime/plugin/instance.h"

namespace bloomery::apps::check {
namespace {

constexpr int32_t kSlots = 3;
constexpr int32_t kSlotContext = 128;
constexpr int32_t kRowsMax = 16;
constexpr int32_t kHistory = 37;  // rows of a prompt; odd, and no multiple of a bucket
constexpr int32_t kDetour = 11;   // rows that will not have happened
constexpr int32_t kRest = 9;      // rows after it
// Of operators that promise a band only: how far logits may lie apart, of the largest one.
constexpr float kBand = 1e-3f;

using Logits = std::vector<std::vector<float>>;

exec::SeatOptions Options() {
  return {.slots = kSlots,
          .slot_context = kSlotContext,
          .rows_max = kRowsMax,
          .threads = 2,
          .pin = false};
}

// The model served by the plugin on the CPU.
class RunningSeat {
 public:
  explicit RunningSeat(const Subject& subject)
      : plugin_(plugin::LoadPlugin(subject.path)),
        model_(OpenModel(subject)),
        instance_(plugin_, model_, exec::InstanceOptionsOf(Options())),
        seat_(exec::LoadSeat(model_, instance_, Options())) {}

  exec::Seat& operator*() { return *seat_; }
  exec::Seat* operator->() { return seat_.get(); }
  const model::ModelFile& model() const { return model_; }
  plugin::Instance& instance() { return instance_; }
  const plugin::Description& description() const { return instance_.description(); }
  std::vector<int32_t> Tokens(Random& random, int32_t n) const {
    return random.Tokens(n, seat_->limits().vocabulary);
  }

  // Runs tokens in a slot from its present length, `batch` rows a pass; the logits of each.
  Logits Run(int32_t slot, std::span<const int32_t> tokens, int32_t batch) {
    return RunRows(*seat_, slot, tokens, batch);
  }
  static Logits RunRows(exec::Seat& seat, int32_t slot, std::span<const int32_t> tokens,
                        int32_t batch) {
    Logits logits;
    while (!tokens.empty()) {
      const size_t n = std::min(tokens.size(), static_cast<size_t>(batch));
      std::vector<exec::PassRow> rows;
      for (size_t i = 0; i < n; ++i) {
        rows.push_back({slot, seat.Length(slot) + static_cast<int32_t>(i), tokens[i], true});
      }
      seat.Run(rows);
      for (size_t i = 0; i < n; ++i) {
        const auto row = seat.Logits(static_cast<int32_t>(i));
        logits.emplace_back(row.begin(), row.end());
      }
      tokens = tokens.subspan(n);
    }
    return logits;
  }

  // What the slot holds behind its rows where a plane is overwritten by them; empty where none is.
  std::vector<std::byte> Checkpoint(int32_t slot) {
    std::vector<std::byte> bytes(seat_->CheckpointBytes());
    if (!bytes.empty()) seat_->ReadCheckpoint(slot, bytes);
    return bytes;
  }
  std::vector<std::byte> Rows(int32_t slot) {
    const int32_t rows = seat_->Length(slot);
    std::vector<std::byte> bytes(static_cast<size_t>(rows) * seat_->StateRowBytes());
    if (!bytes.empty()) seat_->ReadRows(slot, 0, rows, bytes);
    return bytes;
  }
  void CutTo(int32_t slot, int32_t length, std::span<const std::byte> checkpoint) {
    if (checkpoint.empty()) {
      seat_->Cut(slot, length);
    } else {
      seat_->RestoreCheckpoint(slot, length, checkpoint);
    }
  }

  // Throws Failed naming the first plane in which two slots of equal length differ.
  void ExpectSameState(int32_t slot, int32_t other, const std::string& what);

 private:
  plugin::LoadedPlugin plugin_;
  model::ModelFile model_;
  plugin::Instance instance_;
  std::unique_ptr<exec::Seat> seat_;
};

void RunningSeat::ExpectSameState(int32_t slot, int32_t other, const std::string& what) {
  if (!seat_->inexact_operators().empty()) return;  // rows of a band differ, and so do planes
  Expect(seat_->Length(slot) == seat_->Length(other), what + ": the slots hold other rows");
  const auto compare = [&](const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                           const auto& plane_at) {
    const auto [at, unused] = std::ranges::mismatch(a, b);
    if (at == a.end()) return;
    throw Failed(what + ": " + plane_at(static_cast<uint64_t>(at - a.begin())) +
                 " holds other bytes");
  };
  compare(Rows(slot), Rows(other), [&](uint64_t at) {
    return PlaneOfRowsAt(description(), static_cast<uint64_t>(seat_->Length(slot)), at);
  });
  compare(Checkpoint(slot), Checkpoint(other),
          [&](uint64_t at) { return PlaneOfCheckpointAt(description(), at); });
}

// Equal bits; a band where an operator of the plugin promises no more.
void ExpectSame(const exec::Seat& seat, const Logits& got, const Logits& expected,
                const std::string& what) {
  Expect(got.size() == expected.size(), what + ": other rows");
  for (size_t row = 0; row < got.size(); ++row) {
    const auto& a = got[row];
    const auto& b = expected[row];
    bool same = std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    if (!same && !seat.inexact_operators().empty()) {
      float largest = 0, apart = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(b[i]));
        apart = std::max(apart, std::abs(a[i] - b[i]));
      }
      same = apart <= kBand * largest;
    }
    Expect(same, what + ": the logits of row " + std::to_string(row) + " are others");
  }
}

void BatchesEqualSingleRows(const Subject& subject) {
  RunningSeat seat(subject);
  Random random(subject.seed);
  const auto tokens = seat.Tokens(random, kHistory);
  const Logits single = seat.Run(0, tokens, 1);
  for (const int32_t batch : {2, 3, 5, 7, 16}) {
    seat->Cut(1, 0);
    const std::string what =
        "in passes of " + std::to_string(batch) + " rows where single rows came first";
    ExpectSame(*seat, seat.Run(1, tokens, batch), single, what);
    seat.ExpectSameState(1, 0, what);
  }
}

void CutIsNeverHappened(const Subject& subject) {
  RunningSeat seat(subject);
  Random random(subject.seed);
  const auto history = seat.Tokens(random, kHistory);
  const auto detour = seat.Tokens(random, kDetour);
  const auto rest = seat.Tokens(random, kRest);
  seat.Run(0, history, 7);
  const auto checkpoint = seat.Checkpoint(0);
  seat.Run(0, detour, 5);
  seat.CutTo(0, kHistory, checkpoint);
  const Logits cut = seat.Run(0, rest, 4);
  seat.Run(1, history, 7);
  const Logits never = seat.Run(1, rest, 4);
  const std::string what = "after " + std::to_string(kDetour) + " rows that were cut off again";
  ExpectSame(*seat, cut, never, what);
  seat.ExpectSameState(0, 1, what);
}

// What the host does with a pass that failed in its last step: its rows are cut off, and where rows
// overwrite a state, the lane before them is still there.
void TakenBackPassIsNeverHappened(const Subject& subject) {
  RunningSeat seat(subject);
  Random random(subject.seed);
  const auto history = seat.Tokens(random, kHistory);
  const auto detour = seat.Tokens(random, kDetour);
  const auto rest = seat.Tokens(random, kRest);
  seat.Run(0, history, 7);
  for (int32_t rows : {1, 3, kDetour}) {
    seat.Run(0, std::span(detour).first(static_cast<size_t>(rows)), kRowsMax);
    Expect(seat->Keepable(0, kHistory) == kHistory,
           "the pass before last is not kept: only " + std::to_string(seat->Keepable(0, kHistory)) +
               " rows are");
    seat->Cut(0, kHistory);
  }
  const Logits after = seat.Run(0, rest, 4);
  seat.Run(1, history, 7);
  const std::string what = "after passes that were taken back";
  ExpectSame(*seat, after, seat.Run(1, rest, 4), what);
  seat.ExpectSameState(0, 1, what);
}

void RestoredIsNeverLeft(const Subject& subject) {
  RunningSeat seat(subject);
  if (seat->StateRowBytes() == 0 && seat->CheckpointBytes() == 0) {
    throw NotApplicable("the seat's state does not leave its slots");
  }
  Random random(subject.seed);
  const auto history = seat.Tokens(random, kHistory);
  const auto other = seat.Tokens(random, kHistory + kDetour);
  const auto rest = seat.Tokens(random, kRest);
  seat.Run(0, history, 7);
  const auto rows = seat.Rows(0);
  const auto checkpoint = seat.Checkpoint(0);
  const Logits stayed = seat.Run(0, rest, 4);
  // Another state lies where the restored one will.
  seat.Run(2, other, 7);
  seat->Cut(2, 0);
  seat->AppendRows(2, {.rows = kHistory, .bytes = rows}, 0, kHistory);
  if (!checkpoint.empty()) seat->RestoreCheckpoint(2, kHistory, checkpoint);
  const std::string what = "restored into another slot";
  ExpectSame(*seat, seat.Run(2, rest, 4), stayed, what);
  seat.ExpectSameState(2, 0, what);
}

void SlotsAreApart(const Subject& subject) {
  RunningSeat seat(subject);
  Random random(subject.seed);
  const auto mine = seat.Tokens(random, kHistory);
  const auto others = seat.Tokens(random, kHistory);
  Logits beside;
  for (int32_t done = 0; done < kHistory;) {
    const int32_t n = std::min(3, kHistory - done);
    std::vector<exec::PassRow> rows;
    for (const int32_t slot : {2, 1}) {  // not in the slots' order
      const auto& tokens = slot == 1 ? mine : others;
      for (int32_t i = 0; i < n; ++i) {
        const int32_t at = done + i;
        rows.push_back({slot, at, tokens[static_cast<size_t>(at)], true});
      }
    }
    seat->Run(rows);
    for (int32_t i = 0; i < n; ++i) {
      const auto row = seat->Logits(n + i);
      beside.emplace_back(row.begin(), row.end());
    }
    done += n;
  }
  const Logits alone = seat.Run(0, mine, 3);
  ExpectSame(*seat, beside, alone, "beside rows of another slot");
  seat.ExpectSameState(1, 0, "beside rows of another slot");
}

// A fused operator's kernels hold what its expansion says. The whole model runs both ways.
void KernelsEqualTheirExpansion(const Subject& subject) {
  RunningSeat fused(subject);
  plugin::Description apart = fused.description();
  int operators = 0;
  bool band = false;
  for (plugin::Operator& op : apart.operators) {
    if (op.expand == nullptr || op.kernels.empty()) continue;
    ++operators;
    for (const plugin::Kernel& kernel : op.kernels) band |= kernel.numeric_class == BL_BAND;
    op.kernels.clear();
  }
  if (operators == 0) {
    throw NotApplicable("no operator of the plugin has both a kernel and an expansion");
  }
  plugin::Instance& instance = fused.instance();
  const exec::SeatSource source = {.plugin = instance.plugin().name,
                                   .description = &apart,
                                   .build = [&](const bl_builder& builder, const bl_build& build) {
                                     instance.Build(apart.main_entry, builder, build);
                                   }};
  exec::CpuSeat expanded(fused.model(), source, Options());
  Random random(subject.seed);
  const auto tokens = fused.Tokens(random, kHistory);
  for (const int32_t batch : {1, 7}) {
    fused->Cut(0, 0);
    expanded.Cut(0, 0);
    ExpectSame(band ? *fused : expanded, fused.Run(0, tokens, batch),
               RunningSeat::RunRows(expanded, 0, tokens, batch),
               "with kernels, and with the expansions of their operators");
  }
}

}  // namespace

std::vector<Check> StateChecks() {
  return {{"kernels.equal_their_expansion", true, KernelsEqualTheirExpansion},
          {"state.batches_equal_single_rows", true, BatchesEqualSingleRows},
          {"state.cut_rows_never_happened", true, CutIsNeverHappened},
          {"state.a_pass_taken_back_never_happened", true, TakenBackPassIsNeverHappened},
          {"state.restored_rows_never_left", true, RestoredIsNeverLeft},
          {"state.slots_are_apart", true, SlotsAreApart}};
}

}  // namespace bloomery::apps::check
