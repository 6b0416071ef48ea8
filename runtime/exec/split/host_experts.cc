#include "runtime/exec/split/host_experts.h"

#include <algorithm>
#include <array>
#include <set>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/exec/cpu/read_rate.h"
#include "runtime/exec/cpu/relax.h"
#include "runtime/exec/split/computing_rate.h"
#include "runtime/memory/finite.h"

namespace bloomery::exec {
namespace {

// What kernels-common/moe/cuda/hand_off.h rings with; not included, since it is the card's.
constexpr uint32_t kRingsNoPick = 1;
// Looks at a ring between two looks at the clock, and of these between two looks at the card.
constexpr int kLooksPerClock = 64;
constexpr int kClocksPerCheck = 16;

int32_t ThreadsOf(const SeatOptions& options) {
  if (options.threads == 0) return DefaultThreads();
  return CheckedOption(options.threads, limits::kThreadsMax, "the number of threads");
}

std::vector<size_t> BankTensors(const plugin::Description& description) {
  std::set<size_t> tensors;
  for (const plugin::Bank& bank : description.banks) {
    for (const uint32_t weight : {bank.gate, bank.up, bank.down}) {
      tensors.insert(description.weights[weight].tensor);
    }
  }
  return {tensors.begin(), tensors.end()};
}

const kernels::FormatTraits& FormatOf(const plugin::Description& description, uint32_t weight) {
  const plugin::Weight& described = description.weights[weight];
  const kernels::FormatTraits* format = kernels::FindFormat(static_cast<int>(described.type));
  if (format != nullptr) return *format;
  throw Error(ErrorKind::kUnsupported,
              "weight '" + described.name + "' has a format that this version has no kernels for");
}

// Sizes over all banks, for what they share.
struct Largest {
  uint64_t experts = 0;
  uint64_t used = 0;
  uint64_t h_bytes = 0;      // of a pick
  uint64_t codes_bytes = 0;  // of a pick's h, quantised
  uint64_t y_bytes = 0;      // of a pick
  uint64_t scratch = 0;      // of a thread

  Largest(const plugin::Description& description, const ops::Backend& backend, int32_t rows_max) {
    for (const plugin::Bank& bank : description.banks) {
      experts = std::max<uint64_t>(experts, bank.experts);
      used = std::max<uint64_t>(used, bank.used);
      h_bytes = std::max(h_bytes, bank.ff * sizeof(float));
      y_bytes = std::max(y_bytes, bank.width * sizeof(float));
      const size_t group = FormatOf(description, bank.down).activation_group;
      if (group != 0) {
        codes_bytes = std::max<uint64_t>(codes_bytes, kernels::QuantisedRowBytes(bank.ff, group));
      }
      scratch = std::max<uint64_t>(
          {scratch, backend.gate_up_scratch(bank.width, static_cast<size_t>(rows_max)),
           backend.linear_scratch(bank.ff), backend.linear_scratch(bank.width)});
    }
    scratch = kernels::QuantisedRows::Align64(scratch);
  }
};

// Where the shared arrays lie in one allocation.
struct Arena {
  uint64_t groups = 0;
  uint64_t ids = 0;
  uint64_t h = 0;
  uint64_t codes = 0;
  uint64_t y = 0;
  uint64_t bytes = 0;

  Arena(const Largest& of, int32_t rows_max) {
    constexpr uint64_t kLine = 64;
    const std::string what = "the host's part of a pass";
    const uint64_t picks =
        CheckedMul(static_cast<uint64_t>(rows_max), of.used, ErrorKind::kNoMemory, what);
    const auto place = [&](uint64_t count, uint64_t each) {
      const uint64_t at = bytes;
      const uint64_t more = CheckedMul(count, each, ErrorKind::kNoMemory, what);
      bytes = CheckedAlignUp(CheckedAdd(bytes, more, ErrorKind::kNoMemory, what), kLine,
                             ErrorKind::kNoMemory, what);
      return at;
    };
    groups = place(BankSteps::Ints(of.experts, picks), sizeof(int32_t));
    ids = place(picks, sizeof(int32_t));
    h = place(picks, of.h_bytes);
    codes = place(picks, of.codes_bytes);
    y = place(picks, of.y_bytes);
  }
};

// A step with the test's hook before each task.
class HookedStep : public ops::Step {
 public:
  HookedStep(std::unique_ptr<ops::Step> step, uint32_t bank,
             const std::function<void(uint32_t)>& hook)
      : step_(std::move(step)), bank_(bank), hook_(hook) {}
  int32_t Tasks() const override { return step_->Tasks(); }
  bl_status Run(int32_t task, ops::Worker* worker) const override {
    hook_(bank_);
    return step_->Run(task, worker);
  }

 private:
  std::unique_ptr<ops::Step> step_;
  uint32_t bank_;
  const std::function<void(uint32_t)>& hook_;
};

}  // namespace

void HostExperts::Check(const plugin::Description& description) {
  for (const plugin::Bank& bank : description.banks) {
    const plugin::Weight& gate = description.weights[bank.gate];
    const plugin::Weight& up = description.weights[bank.up];
    if (FormatOf(description, bank.gate).activation_group !=
        FormatOf(description, bank.up).activation_group) {
      throw Error(ErrorKind::kUnsupported,
                  "weights '" + gate.name + "' and '" + up.name +
                      "' need different activation groups: their bank cannot be split between card "
                      "and host");
    }
  }
}

uint64_t HostExperts::ExpertBytes(const model::ModelFile& model,
                                  const plugin::Description& description) {
  return memory::WeightStore::Bytes(model, BankTensors(description));
}

std::vector<memory::PlanTerm> HostExperts::Terms(const plugin::Description& description,
                                                 const SeatOptions& options, int32_t rows_max) {
  const ops::Backend& backend = ops::FindBackend(options.kernels);
  const Largest largest(description, backend, rows_max);
  return {{"host part of a pass", Arena(largest, rows_max).bytes},
          {"scratch", static_cast<uint64_t>(ThreadsOf(options)) * largest.scratch}};
}

HostExperts::HostExperts(const model::ModelFile& model, const plugin::Description& description,
                         const SeatOptions& options, std::span<const uint32_t> frames,
                         int32_t rows_max)
    : description_(description),
      backend_(ops::FindBackend(options.kernels)),
      rows_max_(rows_max),
      deadline_(options.hand_off_deadline),
      hooks_(options.split_hooks),
      picks_(description.banks),
      distinct_(description.banks.size(), 0) {
  const std::vector<size_t> tensors = BankTensors(description);
  weights_ = std::make_unique<memory::WeightStore>(model, tensors, memory::WeightSource::kRead);
  memory::CheckFinite(model, tensors, *weights_);
  for (size_t bank = 0; bank < description.banks.size(); ++bank) {
    std::vector<int32_t> map(description.banks[bank].experts, -1);
    for (size_t i = 0; i < frames[bank]; ++i) map[i] = static_cast<int32_t>(i);
    maps_.push_back(std::move(map));
  }
  const Largest largest(description, backend_, rows_max);
  arena_ = memory::HostBuffer(Arena(largest, rows_max).bytes, "the host's part of a pass");
  pool_ = std::make_unique<Pool>(ThreadsOf(options), largest.scratch, options.pin);
  few_rows_counts_ = std::make_shared<FewRowsExperts::Counts>(
      pool_->threads(), BankSteps::CountedExperts(largest.experts, largest.used));
}

HostExperts::~HostExperts() = default;

void HostExperts::Bind(const HandOffPage& page) {
  page_ = page;
  const Arena at(Largest(description_, backend_, rows_max_), rows_max_);
  host_ids_ = reinterpret_cast<int32_t*>(arena_.data() + at.ids);
  for (size_t bank = 0; bank < description_.banks.size(); ++bank) MakeSteps(bank);
}

void HostExperts::MakeSteps(size_t index) {
  const plugin::Bank& bank = description_.banks[index];
  const Largest largest(description_, backend_, rows_max_);
  const Arena at(largest, rows_max_);
  const auto rows_of = [&](uint32_t weight) {
    const plugin::Weight& described = description_.weights[weight];
    kernels::WeightRows rows;
    rows.format = &FormatOf(description_, weight);
    rows.data = weights_->Find(described.tensor) + described.offset;
    rows.k = described.ne[0];
    rows.row_bytes = kernels::RowBytes(*rows.format, rows.k);
    return rows;
  };
  ops::BankRows rows;
  rows.gate = rows_of(bank.gate);
  rows.up = rows_of(bank.up);
  rows.down = rows_of(bank.down);
  rows.gate_expert_bytes = rows.gate.row_bytes * bank.ff;
  rows.up_expert_bytes = rows.up.row_bytes * bank.ff;
  rows.down_expert_bytes = rows.down.row_bytes * bank.width;
  rows.experts = bank.experts;
  rows.ff = bank.ff;
  rows.width = bank.width;

  auto made = std::make_unique<BankSteps>(
      BankSteps::Args{.backend = &backend_,
                      .bank = rows,
                      .used = bank.used,
                      .rows_max = rows_max_,
                      .arrays = {.ints = reinterpret_cast<int32_t*>(arena_.data() + at.groups),
                                 .h = reinterpret_cast<float*>(arena_.data() + at.h),
                                 .codes = arena_.data() + at.codes,
                                 .y = reinterpret_cast<float*>(arena_.data() + at.y),
                                 .input = page_.input(),
                                 .weights = page_.weights(),
                                 .sums = page_.sums()},
                      .live = &live_,
                      .threads = pool_->threads(),
                      .counts = few_rows_counts_,
                      .until = &until_});
  if (hooks_.host_task) {
    made->WrapSteps([&](std::unique_ptr<ops::Step> step) {
      return std::make_unique<HookedStep>(std::move(step), static_cast<uint32_t>(index),
                                          hooks_.host_task);
    });
  }
  steps_.push_back(std::move(made));
}

int32_t HostExperts::Frames(size_t bank) const {
  return static_cast<int32_t>(
      std::ranges::count_if(maps_[bank], [](int32_t frame) { return frame >= 0; }));
}

double HostExperts::MeasureExpert() {
  constexpr int kTimes = 3;  // the best: others disturb, nothing makes it faster
  const Counts counts = counts_;
  double best = 0;
  for (int time = 0; time < kTimes; ++time) {
    uint64_t experts = 0;
    const Clock::time_point begin = Clock::now();
    for (uint32_t bank = 0; bank < description_.banks.size(); ++bank) {
      const plugin::Bank& described = description_.banks[bank];
      const std::vector<int32_t>& map = maps_[bank];
      // The last ones: what is seated first lies before them.
      std::vector<int32_t> picks;
      for (size_t id = map.size(); id-- > 0 && picks.size() < described.used;) {
        if (map[id] < 0) picks.push_back(static_cast<int32_t>(id));
      }
      if (picks.empty()) continue;
      experts += picks.size();
      for (size_t i = 0; i < described.used; ++i) {
        page_.ids()[i] = picks[i % picks.size()];
        page_.weights()[i] = 0;
      }
      std::fill_n(page_.input(), BankInputRowBytes(description_, described), std::byte{0});
      Compute(bank, 1, false);
    }
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    if (experts == 0) return 0;
    const double each = seconds.count() / static_cast<double>(experts);
    best = time == 0 ? each : std::min(best, each);
  }
  counts_ = counts;
  return best;
}

memory::ShareRates HostExperts::MeasureComputing(uint32_t bank) {
  const plugin::Bank& described = description_.banks[bank];
  // As many experts as a pass may leave to the host, each with the same number of rows.
  constexpr uint32_t kExperts = 64;
  const auto used = static_cast<int64_t>(described.used);
  const auto experts = std::max<int64_t>(used, std::min<int64_t>(kExperts, described.experts));
  const std::vector<int32_t> all_of_host(described.experts, -1);
  const Counts counts = counts_;
  const auto picks = static_cast<int64_t>(rows_max_) * used;
  for (int64_t i = 0; i < picks; ++i) page_.ids()[i] = static_cast<int32_t>(i % experts);
  std::fill_n(page_.weights(), picks, 0.0F);
  std::fill_n(page_.input(),
              static_cast<uint64_t>(rows_max_) * BankInputRowBytes(description_, described),
              std::byte{0});
  const memory::ShareRates rates =
      ComputingRates({.experts = experts, .used = used, .rows_max = rows_max_},
                     [&](int32_t rows) { Compute(bank, rows, false, all_of_host); });
  counts_ = counts;
  failed_row_ = -1;
  return rates;
}

std::span<const std::byte> HostExperts::Matrix(uint32_t weight, int32_t expert) const {
  const plugin::Weight& described = description_.weights[weight];
  const uint64_t bytes = described.bytes / (described.ne[2] * described.ne[3]);
  return {
      weights_->Find(described.tensor) + described.offset + static_cast<uint64_t>(expert) * bytes,
      bytes};
}

std::string HostExperts::NameOf(uint32_t bank) const {
  return "the experts of layer " + std::to_string(description_.banks[bank].layer);
}

void HostExperts::Begin() {
  failed_row_ = -1;
  if (!pool_->WaitUntilIdle(Clock::now() + deadline_)) {
    throw HandOffError("the host's threads are still at a pass that was given up: no pass can run");
  }
  page_.Clear();
}

void HostExperts::ServePass(std::span<const uint32_t> banks, int32_t rows,
                            const std::function<bool()>& check) {
  // Layers without a pick of the host may lie between two with some: waking threads takes longer
  // than computing an expert.
  class Awake {
   public:
    explicit Awake(Pool* pool) : pool_(*pool) { pool_.StayAwake(true); }
    ~Awake() { pool_.StayAwake(false); }
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

   private:
    Pool& pool_;
  };
  const Awake awake(pool_.get());
  try {
    for (const uint32_t bank : banks) {
      if (!WaitForRing(bank, check)) continue;
      Compute(bank, rows, false);
      std::atomic_ref(*page_.answer(bank)).store(HandOffPage::kSums, std::memory_order_release);
    }
  } catch (...) {
    page_.Drain();
    throw;
  }
}

// Whether the bank's ring says that there are picks of the host.
bool HostExperts::WaitForRing(uint32_t bank, const std::function<bool()>& check) {
  const Clock::time_point begin = Clock::now();
  const std::atomic_ref ring(*page_.ring(bank));
  for (int looks = 1;; ++looks) {
    const uint32_t rings = ring.load(std::memory_order_acquire);
    if (rings != 0) {
      counts_.waiting += std::chrono::duration<double>(Clock::now() - begin).count();
      return rings != kRingsNoPick;
    }
    Relax();
    if (looks % kLooksPerClock != 0) continue;
    if (looks % (kLooksPerClock * kClocksPerCheck) == 0 && !check() &&
        ring.load(std::memory_order_acquire) == 0) {
      throw HandOffError("the card's pass ended before it had come to " + NameOf(bank));
    }
    if (Clock::now() - begin > deadline_) {
      throw HandOffError("the card has not come to " + NameOf(bank) + " within " +
                         std::to_string(deadline_.count() / 1000000) + " ms");
    }
  }
}

bool HostExperts::Group(uint32_t bank, int32_t rows, bool count, std::span<const int32_t> frames) {
  const plugin::Bank& described = description_.banks[bank];
  const std::span<const int32_t> map = frames.empty() ? maps_[bank] : frames;
  const size_t picks = static_cast<size_t>(rows) * described.used;
  const int32_t* ids = page_.ids();
  bool any = false;
  for (size_t i = 0; i < picks; ++i) {
    const int32_t id = ids[i];
    if (id < 0 || static_cast<uint32_t>(id) >= described.experts) {
      throw HandOffError("the card names expert " + std::to_string(id) + " among " + NameOf(bank));
    }
    const bool mine = map[static_cast<size_t>(id)] < 0;
    host_ids_[i] = mine ? id : -1;
    any = any || mine;
  }
  if (!any) return false;
  steps_[bank]->Begin(host_ids_, rows);
  const kernels::ExpertGroups& groups = steps_[bank]->groups();
  counts_.experts += static_cast<uint64_t>(groups.active_count);
  counts_.bytes += static_cast<uint64_t>(groups.active_count) * steps_[bank]->expert_bytes();
  ++counts_.hand_offs;
  if (!count) return true;
  if (rows > 1) distinct_[bank] += static_cast<uint64_t>(groups.active_count);
  const std::span<std::atomic<uint64_t>> counts = picks_.Of(bank);
  for (int32_t i = 0; i < groups.active_count; ++i) {
    const auto expert = static_cast<size_t>(groups.active[i]);
    counts[expert].fetch_add(
        static_cast<uint64_t>(groups.offsets[expert + 1] - groups.offsets[expert]),
        std::memory_order_relaxed);
  }
  return true;
}

bool HostExperts::Compute(uint32_t bank, int32_t rows, bool count,
                          std::span<const int32_t> frames) {
  const Clock::time_point begin = Clock::now();
  until_ = begin + deadline_;
  live_ = rows;
  if (!Group(bank, rows, count, frames)) return false;
  for (const std::unique_ptr<ops::Step>& step : steps_[bank]->Steps()) RunStep(bank, *step);
  counts_.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  return true;
}

void HostExperts::RunStep(uint32_t bank, const ops::Step& step) {
  const StepFailure failure = pool_->RunUntil(until_, step);
  // The calling thread's own tasks know no deadline: they are late when they come back.
  if (failure.late || Clock::now() > until_) {
    throw HandOffError("the host has not computed " + NameOf(bank) + " within " +
                       std::to_string(deadline_.count() / 1000000) + " ms");
  }
  if (failure.status == BL_OK) return;
  if (failure.status != BL_BAD_DATA || failure.row < 0) {
    throw HandOffError("computing " + NameOf(bank) + " on the host failed with status " +
                       std::to_string(failure.status));
  }
  if (failed_row_ < 0 || failure.row < failed_row_) failed_row_ = failure.row;
}

}  // namespace bloomery::exec
