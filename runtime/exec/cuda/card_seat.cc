#include "runtime/exec/cuda/card_seat.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <set>

#include "kernels-common/attention/cuda/rows_attention.h"
#include "kernels-common/cpu/fp_environment.h"
#include "kernels-common/cuda/read_rate.h"
#include "kernels-common/linear/cuda/top_logits.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/exec/pass_inputs.h"
#include "runtime/exec/placing.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

namespace {

// What the driver takes beside what is allocated: code, graphs, the queues of streams.
constexpr uint64_t kReserveBytes = uint64_t{384} << 20;
static_assert(cuda::kTopLogits == limits::kBestLogits);
// One line, however many: a model may have hundreds.
void LogDecoded(std::span<const std::string> weights) {
  if (weights.empty()) return;
  constexpr size_t kNamed = 3;
  std::string names;
  for (const std::string& weight : weights.first(std::min(kNamed, weights.size()))) {
    names += (names.empty() ? "" : ", ") + weight;
  }
  LOG(WARNING) << weights.size() << " weights without kernels of the card for their own format are "
               << "decoded while they load: " << names << (weights.size() > kNamed ? ", …" : "");
}

// A bank is split only where host and card give the same bits.
void CheckSplit(const plugin::Description& description, const CardWeightLayout& layout) {
  if (description.draft_entry) {
    throw Error(ErrorKind::kUnsupported,
                "--draft mtp: a model with its draft head is not split between card and host in "
                "this version; take --draft lookup, or cards that hold all of it");
  }
  HostExperts::Check(description);
  for (const plugin::Bank& bank : description.banks) {
    for (const uint32_t weight : {bank.gate, bank.up, bank.down}) {
      if (layout.place(weight).layout != CardLayout::kDecoded) continue;
      throw Error(ErrorKind::kUnsupported,
                  "weight '" + description.weights[weight].name +
                      "' has no kernels of the card for its own format: its bank cannot be split "
                      "between card and host");
    }
  }
}

memory::CardRoom RoomOf(const CardInfo& card, const SeatOptions& options) {
  return {.id = card.Id(),
          .total = card.total_bytes,
          .free = card.free_bytes.value_or(0),
          .reserve = kReserveBytes,
          .granule = CardBuffer::kGranule,
          .budget = options.card_budget,
          .margin = MarginOf(options, static_cast<uint32_t>(card.ordinal))};
}

// What others hold of the card may be why.
void CheckPlacement(const memory::Placement& placement) {
  const bool own = std::ranges::all_of(placement.stages, [](const memory::PlacedStage& stage) {
    return stage.plan.Fits() || stage.plan.limit_source() == "budget";
  });
  if (own) return placement.Check();
  try {
    placement.Check();
  } catch (const Error& error) {
    throw CardMemoryError(error.what());
  }
}

// What kinds of cards they are, however many: "NVIDIA H200"; "NVIDIA H200, NVIDIA L4".
std::string NameOf(std::span<const CardInfo> cards) {
  std::set<std::string> kinds;
  for (const CardInfo& card : cards) kinds.insert(card.name);
  std::string names;
  for (const std::string& kind : kinds) names += (names.empty() ? "" : ", ") + kind;
  return names;
}

// Of the weights that a card loads, in the files.
uint64_t LoadBytes(const model::ModelFile& model, const plugin::Description& of_stage,
                   std::span<const uint32_t> frames) {
  const plugin::Description loaded = frames.empty() ? of_stage : OfFrames(of_stage, frames);
  const CardWeightLayout layout(model, loaded);
  uint64_t bytes = 0;
  for (const uint32_t weight : layout.order()) bytes += loaded.weights[weight].bytes;
  return bytes;
}

}  // namespace

CardSeat::CardSeat(const model::ModelFile& model, const SeatSource& source,
                   const SeatOptions& options, std::span<const CardInfo> cards)
    : Seat(source, options),
      deadline_(options.hand_off_deadline),
      observe_(options.observe),
      part_rows_(limits_.rows_max),
      buckets_(RowBuckets(part_rows_)) {
  // Programs of more rows are for prompts: there float weights and attention are a band.
  limits_.draft_pass_rows = std::min(limits_.rows_max, cuda::kRowsMax);
  if (source.build_draft) draft_buckets_ = RowBuckets(std::min(limits_.slots, limits_.rows_max));
  limits_.drafts = !draft_buckets_.empty();
  const CardWeightLayout whole(model, description_);
  std::vector<memory::CardRoom> rooms;
  for (const CardInfo& card : cards) rooms.push_back(RoomOf(card, options));
  const std::vector<memory::PlaneSpec> planes = PlanesOf(description_);
  limits_.rows_max = part_rows_ * PartsOf(options, cards.size());  // planes grow with it
  const std::vector<memory::LayerRange> layers = CutLayers(
      options, description_, rooms, [&](uint32_t weight) { return whole.place(weight).bytes; },
      [&](uint32_t plane) {
        return CardPlanes::Bytes(planes[plane], limits_.slots, limits_.slot_context,
                                 limits_.rows_max, LanesOfSlot());
      });
  std::vector<CardInfo> used;
  std::vector<memory::CardRoom> rooms_used;
  std::vector<memory::LayerRange> layers_used;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].size() == 0) {
      if (i < options.shares.size() && options.shares[i] > 0) {
        LOG(INFO) << cards[i].Id() << " gets no layer: its share is too small for one";
      }
      continue;
    }
    used.push_back(cards[i]);
    rooms_used.push_back(rooms[i]);
    layers_used.push_back(layers[i]);
  }
  name_ = NameOf(used);
  std::vector<CardStagePlan> plans;
  // Rings and lanes grow with the parts of a pass: they give way before anything else does.
  for (int32_t parts = PartsOf(options, used.size()); parts > 0; parts = parts > 1 ? 1 : 0) {
    placement_ =
        ChooseOnCards(options, description_, rooms_used, layers_used, [&](memory::Place place) {
          const bool split = place == memory::Place::kSplit;
          if (split) CheckSplit(description_, whole);
          limits_.rows_max = part_rows_ * (split ? 1 : parts);
          limits_.logit_rows_max = LogitRowsOf(limits_.rows_max);
          plans = PlanStages(source, options, used, layers_used, whole, split);
          return SizesToPlan(model, options, whole, plans, place);
        });
    if (placement_.place == memory::Place::kCard && placement_.Fits()) break;
  }
  if (options.planned) options.planned(placement_);
  CheckPlacement(placement_);
  if (const std::string choice = placement_.Choice(); !choice.empty()) LOG(INFO) << choice;
  LogDecoded(whole.decoded());
  // Those of drafts change no answer.
  for (const CardStagePlan& plan : plans) {
    for (const CardLoweredGraph& each : plan.passes) {
      inexact_.insert(each.inexact.begin(), each.inexact.end());
    }
  }
  MakeStages(model, options, std::move(plans));
}

void CardSeat::MakeStages(const model::ModelFile& model, const SeatOptions& options,
                          std::vector<CardStagePlan> plans) {
  CheckCuda(cudaSetDevice(plans.front().card.ordinal), "using " + plans.front().card.Id());
  rows_.emplace(PlanesOf(description_), limits_.slots, limits_.slot_context, limits_.rows_max);
  CardStageSeat seat{.description = &description_,
                     .options = &options,
                     .limits = limits_,
                     .lanes_of_slot = LanesOfSlot(),
                     .rows = &*rows_,
                     .picks_at = [this](size_t bank) { return PicksAt(bank); }};
  if (placement_.place == memory::Place::kSplit) {
    seat.frames = placement_.frames;
    host_ =
        std::make_unique<SplitHost>(model, description_, options, seat.frames, limits_.rows_max);
    seat.host = host_.get();
  }
  uint64_t bytes = 0;  // of the weights to load
  for (const CardStagePlan& plan : plans) {
    words_bytes_ = std::max(words_bytes_, plan.Sizes(description_).words);
    bytes += LoadBytes(model, plan.Describe(description_), seat.frames);
  }
  const int32_t parts = limits_.rows_max / part_rows_;
  if (lanes_) lanes_.emplace(limits_.slots, LanesOfSlot());
  words_in_ = PinnedBuffer(static_cast<uint64_t>(parts) * words_bytes_, "the rows of a pass");
  seat.alone = plans.size() == 1;
  seat.parts = parts;
  seat.words_bytes = words_bytes_;
  seat.words_in = words_in_.data();
  stage_of_.resize(description_.banks.size(), 0);
  uint64_t before = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    for (const uint32_t bank : plans[i].banks) stage_of_[bank] = i;
    uint64_t of_stage = 0;
    const auto progress = [&](uint64_t done, uint64_t total) {
      of_stage = total;
      const bool end = done == total && i + 1 < plans.size();  // of this stage alone
      if (options.progress && !end)
        options.progress(before + done, std::max(bytes, before + total));
    };
    stages_.push_back(std::make_unique<CardStage>(model, std::move(plans[i]), seat, progress));
    before += of_stage;
  }
  for (const auto& stage : stages_) {
    for (const auto& from : stages_) {
      if (from == stage) break;
      stage->OpenWay(*from);
    }
  }
  if (ChunkBytes() > 0) state_rows_ = PinnedBuffer(ChunkBytes(), "rows that are saved or restored");
  host_logits_.resize(static_cast<size_t>(limits_.logit_rows_max));
  for (int32_t row = 0; row < HostLogitRows(); ++row) {
    host_logits_[static_cast<size_t>(row)] = PinnedBuffer(LogitRowBytes(), "a row of logits");
  }
  StartResidency(options);
  if (driver().ledger() != nullptr) {
    picks_out_ = PinnedBuffer(PicksAt(description_.banks.size()) * sizeof(int32_t), "picks");
    seat.picks_out = picks_out_.data();
  }
  last_picks_.assign(stages_.size(), std::vector<uint32_t>(CardPicks::Words(description_)));
  picks_.resize(CardPicks::Words(description_));
  for (const auto& stage : stages_) stage->MakePrograms(seat);
  made_.resize(stages_.size());
  parts_.reserve(static_cast<size_t>(parts));
  rings_.reserve(description_.banks.size());
  draft_rows_.reserve(static_cast<size_t>(limits_.slots));
  drafted_.reserve(static_cast<size_t>(limits_.slots));
  fetched_.resize(static_cast<size_t>(limits_.logit_rows_max));
  observed_.resize(observe_.size() + 1);
  best_.reserve(static_cast<size_t>(cuda::kTopLogits));
  segments_.reserve(static_cast<size_t>(limits_.rows_max));
}

CardSeat::~CardSeat() {
  for (const auto& stage : stages_) cudaStreamSynchronize(stage->stream());
}

Residency CardSeat::ReadResidency() const {
  Residency residency{.banks = Banks("", nullptr)};
  for (size_t i = 0; i < stages_.size(); ++i) {
    const CardInfo& card = stages_[i]->card();
    residency.tiers.push_back(TierOf(card.Id(), card.name, placement_.stages[i].plan));
  }
  residency.tiers.push_back(TierOf("host", "CPU", placement_.host));
  const std::vector<uint64_t> picks = FetchPicks();
  for (size_t i = 0; i < residency.banks.size(); ++i) {
    BankPicks& bank = residency.banks[i];
    const auto first = picks.begin() + static_cast<ptrdiff_t>(CardPicks::At(description_, i));
    bank.tier = StageOf(i).card().Id();
    bank.picks.assign(first, first + bank.experts);
    if (host_ == nullptr) continue;
    bank.frames = static_cast<int32_t>(placement_.frames[i]);
    bank.frame_of = StageOf(i).split()->Frames(i);
  }
  return residency;
}

size_t CardSeat::BucketOf(std::span<const int32_t> buckets, size_t rows) {
  const auto fits = std::ranges::lower_bound(buckets, static_cast<int32_t>(rows));
  return static_cast<size_t>(std::min(fits, buckets.end() - 1) - buckets.begin());
}

void CardSeat::WriteParts(std::span<const PassRow> rows) {
  parts_.clear();
  last_logits_ = 0;
  const auto count = static_cast<int32_t>(rows.size());
  for (int32_t first = 0; first < count; first += part_rows_) {
    PassPart part{.number = parts_.size(),
                  .first = first,
                  .rows = std::min(part_rows_, count - first),
                  .first_logits = last_logits_};
    const auto of_part = rows.subspan(static_cast<size_t>(first), static_cast<size_t>(part.rows));
    part.bucket = BucketOf(buckets_, of_part.size());
    const CardRows in = WriteInputs(last_stage().pass(part.bucket).program, part, of_part);
    WriteStates(in, of_part);
    KeepStates(in, of_part);
    part.logits = *in.word(CardRows::kLiveLogits);
    last_logits_ += part.logits;
    parts_.push_back(part);
  }
}

CardRows CardSeat::WriteInputs(const CardProgram& program, const PassPart& part,
                               std::span<const PassRow> rows) {
  CardRows in = program.inputs();
  in.base = reinterpret_cast<int32_t*>(words_in_.data() + part.number * words_bytes_);
  int32_t logits = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PassRow& row = rows[i];
    in.array(CardRows::kToken)[i] = row.token;
    in.array(CardRows::kSlot)[i] = row.slot;
    in.array(CardRows::kIndex)[i] = row.index;
    if (row.logits) in.array(CardRows::kLogitMap)[logits++] = static_cast<int32_t>(i);
  }
  int32_t exact = 0;
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    end = first + 1;
    while (end < rows.size() && rows[end].slot == rows[first].slot) ++end;
    if (end - first > static_cast<size_t>(cuda::kMaxHeadRows)) continue;
    for (size_t i = first; i < end; ++i) {
      in.array(CardRows::kExactRows)[exact++] = static_cast<int32_t>(i);
    }
  }
  *in.word(CardRows::kLiveExact) = exact;
  *in.word(CardRows::kFailedRow) = INT32_MAX;
  *in.word(CardRows::kFailedLogits) = INT32_MAX;
  *in.word(CardRows::kLive) = static_cast<int32_t>(rows.size());
  *in.word(CardRows::kLiveLogits) = logits;
  *in.word(CardRows::kLiveTop) = std::min(logits, in.top_rows);
  return in;
}

void CardSeat::WriteStates(const CardRows& in, std::span<const PassRow> rows) {
  segments_.clear();
  if (lanes_) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i == 0 || rows[i - 1].slot != rows[i].slot) {
        in.array(CardRows::kSegmentRow)[segments_.size()] = static_cast<int32_t>(i);
        segments_.push_back({rows[i].slot, static_cast<int32_t>(i), 0, rows[i].index});
      }
      ++segments_.back().rows;
    }
    const std::span lane_in(in.array(CardRows::kLaneIn), rows.size());
    const std::span lane_out(in.array(CardRows::kLaneOut), rows.size());
    std::ranges::fill(lane_in, memory::Lanes::kNone);
    std::ranges::fill(lane_out, memory::Lanes::kNone);
    SetLanes(*lanes_, rows, segments_, lane_in, lane_out, rows_->lengths());
  }
  *in.word(CardRows::kSegments) = static_cast<int32_t>(segments_.size());
}

void CardSeat::Run(std::span<const PassRow> rows) {
  CheckRows(rows);
  const auto wanted = std::ranges::count_if(rows, [](const PassRow& row) { return row.logits; });
  if (wanted > limits_.logit_rows_max) {
    throw Error(ErrorKind::kInternal, "a pass that wants the logits of " + std::to_string(wanted) +
                                          " rows; this seat gives those of " +
                                          std::to_string(limits_.logit_rows_max));
  }
  PrepareRings(rows, &rows_->rings());
  ran_ = false;
  driver().PassStarts(rows);
  may_seat_ = driver().seats_in_passes();
  if (host_ != nullptr) {
    if (Busy()) throw HandOffError("the card is still at a pass that was given up");
    host_->experts().Begin();
    for (const auto& stage : stages_) {
      stage->Enter();
      stage->split()->BeginPass(stage->stream());
    }
  }
  std::fill(fetched_.begin(), fetched_.end(), false);
  try {
    WriteParts(rows);
    Start(Programs::kPasses);
    Finish(Programs::kPasses);
    const int32_t failed = FailedRow();
    if (failed != INT32_MAX) FailPass("of the card", -1, BL_BAD_DATA, failed, rows);
  } catch (...) {
    ForgetStates(rows);
    throw;
  }
  ran_ = true;
  CountPass();
  for (const PassRow& row : rows) rows_->SetLength(row.slot, row.index + 1);
  RecordPicks(rows.size());
  driver().PassRan(rows, host_ == nullptr ? 0 : host_->experts().counts().seconds);
}

void CardSeat::KeepStates(const CardRows& in, std::span<const PassRow> rows) {
  for (size_t i = 0; lanes_ && i < rows.size(); ++i) {
    const int32_t lane = in.array(CardRows::kLaneOut)[i];
    if (lane >= 0) lanes_->Set(rows[i].slot, lane, rows[i].index + 1);
  }
}

void CardSeat::ForgetStates(std::span<const PassRow> rows) {
  if (!lanes_) return;
  for (const PassRow& row : rows) lanes_->Cut(row.slot, Length(row.slot));
}

// Of the pass that has ended; INT32_MAX: none.
int32_t CardSeat::FailedRow() const {
  int32_t failed = INT32_MAX;
  for (const PassPart& part : parts_) {
    for (const auto& stage : stages_) {
      const CardRows out = stage->Returned(stage->pass(part.bucket).program, part.number);
      const int32_t row = *out.word(CardRows::kFailedRow);
      if (row != INT32_MAX) failed = std::min(failed, part.first + row);
    }
  }
  if (host_ == nullptr) return failed;
  host_->EndPass();
  const int64_t of_host = host_->experts().failed_row();
  return of_host < 0 ? failed : std::min(failed, static_cast<int32_t>(of_host));
}

void CardSeat::Start(Programs programs) {
  const kernels::ScopedFpEnvironment environment;  // this thread computes experts, too
  try {
    for (const PassPart& part : parts_) StartPart(programs, part);
  } catch (...) {
    // What was enqueued, on earlier cards too, ends on its own: nothing waits for the host any
    // more.
    if (host_ != nullptr) host_->page().Drain();
    const std::chrono::steady_clock::time_point until =
        std::chrono::steady_clock::now() + deadline_;
    const auto working = [](const std::unique_ptr<CardStage>& stage) {
      return cudaStreamQuery(stage->stream()) == cudaErrorNotReady;
    };
    while (std::ranges::any_of(stages_, working) && std::chrono::steady_clock::now() < until) {
    }
    throw;
  }
}

void CardSeat::StartPart(Programs programs, const PassPart& part) {
  const auto check = [this] { return Busy(); };
  const auto serve = [&] {
    if (!rings_.empty()) host_->experts().ServePass(rings_, part.rows, check);
    rings_.clear();
  };
  rings_.clear();
  const size_t first = programs == Programs::kDrafts ? stages_.size() - 1 : 0;
  for (size_t i = first; i < stages_.size(); ++i) {
    CardStage& stage = *stages_[i];
    const CardStage::Ready& ready = ReadyOf(stage, programs, part.bucket);
    const bool one_by_one = observer_ != nullptr || ready.program.needs_host();
    const bool copies = one_by_one || !stage.alone();
    made_[i] = &ready.program;
    // A stage that the host works for as it goes on is behind what it has yet to do for others.
    if (one_by_one) serve();
    stage.Enter();
    if (copies) stage.EnqueueIn(ready.program, part);
    for (size_t later = i + 1; part.number > 0 && later < stages_.size(); ++later) {
      stage.AwaitTaken(*stages_[later]);
    }
    stage.BringIn(ready.program, stages_, made_, part);
    if (observer_ != nullptr) {
      stage.RunObserved(ready.program, part, may_seat_, check, observer_);
    } else if (one_by_one) {
      stage.RunLaunches(ready.program, part.rows, may_seat_, check);
    } else {
      stage.LaunchGraph(ready);
      rings_.insert(rings_.end(), ready.program.rings().begin(), ready.program.rings().end());
    }
    stage.MarkDone();
    if (copies) stage.EnqueueOut(ready.program, part);
  }
  serve();
  if (part.number + 1 < parts_.size()) KeepLogits(part);
}

void CardSeat::KeepLogits(const PassPart& part) {
  const CardStage& stage = last_stage();
  for (int32_t i = 0; i < part.logits; ++i) {
    const auto row = static_cast<size_t>(part.first_logits) + static_cast<size_t>(i);
    PinnedBuffer& home = host_logits_[row];
    if (home.size() == 0) home = PinnedBuffer(LogitRowBytes(), "a row of logits");
    CheckCuda(
        cudaMemcpyAsync(home.data(), stage.logits() + static_cast<size_t>(i) * LogitRowBytes(),
                        LogitRowBytes(), cudaMemcpyDeviceToHost, stage.stream()),
        "fetching logits");
    fetched_[row] = true;
  }
}

bool CardSeat::Busy() const {
  return std::ranges::any_of(stages_,
                             [](const std::unique_ptr<CardStage>& stage) { return stage->Busy(); });
}

void CardSeat::Finish(Programs programs) {
  if (host_ == nullptr) {
    for (const auto& stage : stages_) {
      CheckCuda(cudaStreamSynchronize(stage->stream()), "running a pass");
    }
    return;
  }
  size_t streams = 0;
  for (const auto& stage : stages_) {
    if (programs == Programs::kDrafts && stage != stages_.back()) continue;
    for (const PassPart& part : parts_) {
      streams += ReadyOf(*stage, programs, part.bucket).program.streams().size();
    }
  }
  const std::chrono::milliseconds most = deadline_ * (1 + streams);
  const std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now() + most;
  while (Busy()) {
    if (std::chrono::steady_clock::now() < until) continue;
    host_->page().Drain();
    throw HandOffError("the card has not ended a pass within " + std::to_string(most.count()) +
                       " ms");
  }
}

int32_t CardSeat::CardFrames() const {
  return host_ == nullptr ? -1 : static_cast<int32_t>(std::ranges::max(placement_.frames));
}

std::span<const int32_t> CardSeat::FramesOf(size_t bank) const {
  return host_ == nullptr ? std::span<const int32_t>() : host_->experts().Map(bank);
}

void CardSeat::BeginMove(const ExpertMove& move) {
  if (host_ == nullptr || move.bank >= stage_of_.size()) return Seat::BeginMove(move);
  const CardStage& stage = StageOf(move.bank);
  stage.Enter();
  stage.split()->BeginMove(move);
}

// A card whose copies fail does not keep the others' from landing.
int32_t CardSeat::LandMoves(bool wait) {
  if (host_ == nullptr) return 0;
  int32_t landed = 0;
  std::exception_ptr failure;
  for (const auto& stage : stages_) {
    try {
      stage->Enter();
      landed += stage->split()->LandMoves(wait);
    } catch (const Error&) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return landed;
}

std::vector<ExpertMove> CardSeat::TakeSeated() {
  std::vector<ExpertMove> seated;
  if (host_ == nullptr) return seated;
  for (const auto& stage : stages_) {
    stage->Enter();
    const std::vector<ExpertMove> there = stage->split()->TakeSeated();
    seated.insert(seated.end(), there.begin(), there.end());
  }
  return seated;
}

// Of the card with the slowest link: what pays there pays everywhere.
memory::ResidencyRates CardSeat::MeasureRates() {
  std::optional<memory::ResidencyRates> slowest;
  for (const auto& stage : stages_) {
    if (host_ == nullptr || !stage->split()->HasFrames()) continue;
    stage->Enter();
    const memory::ResidencyRates rates = stage->split()->MeasureRates();
    if (!slowest || rates.copy_us > slowest->copy_us) slowest = rates;
  }
  return slowest.value_or(memory::ResidencyRates{});
}

std::span<const float> CardSeat::Logits(int32_t i) const {
  if (!ran_ || i < 0 || i >= last_logits_) {
    throw Error(ErrorKind::kInternal, "logit row " + std::to_string(i) + " of a pass that had " +
                                          std::to_string(ran_ ? last_logits_ : 0));
  }
  const auto row = static_cast<size_t>(i);
  PinnedBuffer& home = host_logits_[row];
  if (home.size() == 0) home = PinnedBuffer(LogitRowBytes(), "a row of logits");
  if (!fetched_[row]) {
    const auto there = static_cast<size_t>(i - PartOfLogits(i).first_logits);
    last_stage().Fetch(home.data(), last_stage().logits() + there * LogitRowBytes(),
                       LogitRowBytes(), "fetching logits");
    fetched_[row] = true;
  }
  return {reinterpret_cast<const float*>(home.data()), static_cast<size_t>(limits_.vocabulary)};
}

const PassPart& CardSeat::PartOfLogits(int32_t i) const {
  return *std::ranges::find_if(
      parts_, [&](const PassPart& part) { return i < part.first_logits + part.logits; });
}

std::span<const BestLogit> CardSeat::BestLogits(int32_t i) const {
  if (!ran_ || i < 0 || i >= last_logits_) return {};
  const PassPart& part = PartOfLogits(i);
  i -= part.first_logits;
  const CardProgram& program = last_stage().pass(part.bucket).program;
  if (i >= program.best_rows()) return {};
  const CardRows out = last_stage().Returned(program, part.number);
  if (*out.word(CardRows::kFailedLogits) <= i) return {};  // the whole row tells what is wrong
  best_.clear();
  for (int32_t j = 0; j < cuda::kTopLogits; ++j) {
    const size_t at = static_cast<size_t>(i) * cuda::kTopLogits + static_cast<size_t>(j);
    best_.push_back({out.top_ids()[at], out.top_values()[at]});
  }
  return best_;
}

Observation CardSeat::Observe(std::string_view name) const {
  for (const auto& stage : stages_) {
    if (!ran_) break;
    const CardProgram& program = stage->pass(parts_.front().bucket).program;
    const CardProgram::Exported* const value = program.Find(name);
    if (value == nullptr) continue;
    const CardRows::Word live =
        value->shape.domain == BL_DOMAIN_LOGIT_ROWS ? CardRows::kLiveLogits : CardRows::kLive;
    Observation seen{.dtype = value->shape.dtype,
                     .width = value->shape.width(),
                     .rows = *stage->Returned(program, 0).word(live)};
    // A place of its own for each name: several may be looked at together.
    const auto place = std::ranges::find(observe_, name) - observe_.begin();
    std::vector<std::byte>& bytes = observed_[static_cast<size_t>(place)];
    bytes.resize(static_cast<size_t>(seen.width) * static_cast<size_t>(seen.rows) * 4);
    stage->Fetch(bytes.data(), value->data, bytes.size(), "fetching an observed value");
    seen.data = bytes.data();
    return seen;
  }
  throw Error(ErrorKind::kInternal, "'" + std::string(name) +
                                        "' was not observed: no pass has run, the last one "
                                        "failed, or it is not among the seat's observations");
}

// Of the first card.
std::function<double()> CardSeat::MemoryReadMeter() {
  constexpr uint64_t kBytes = uint64_t{2} << 30;  // far beyond any cache of a card
  const CardStage& stage = *stages_.front();
  CardInfo now = stage.card();
  OpenCard(&now);
  auto buffer = std::make_shared<CardBuffer>(std::min(kBytes, now.free_bytes.value_or(0) / 2),
                                             "measuring how fast it reads");
  auto begin = std::make_shared<CardEvent>(cudaEventDefault);
  auto end = std::make_shared<CardEvent>(cudaEventDefault);
  return [&stage, buffer, begin, end] {
    cuda::Launch launch = stage.launch();
    launch.dependent = false;
    stage.Enter();
    const std::string what = "measuring how fast the card reads";
    CheckCuda(cudaEventRecord(begin->get(), stage.stream()), what);
    CheckCuda(cuda::ReadAll(launch, buffer->data(), buffer->size()), what);
    CheckCuda(cudaEventRecord(end->get(), stage.stream()), what);
    CheckCuda(cudaStreamSynchronize(stage.stream()), what);
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin->get(), end->get()), what);
    return static_cast<double>(buffer->size()) / (static_cast<double>(milliseconds) * 1e-3);
  };
}

std::vector<VideoCard> CardSeat::Cards() const {
  std::vector<VideoCard> cards;
  for (const auto& stage : stages_) {
    cards.push_back(stage->card().View(FindCardHolders(stage->card().pci_bus_id)));
  }
  return cards;
}

std::string CardSeat::LoadLine() const {
  std::string line;
  for (const auto& stage : stages_) {
    line += (line.empty() ? "" : "; ") + stage->weights().report().Line(stage->card().Id());
    if (stage->split() == nullptr || !stage->split()->HasPlaces()) continue;
    const memory::ShareRates& rates = stage->split()->share_rates();
    std::array<char, 160> prompts{};
    std::snprintf(
        prompts.data(), prompts.size(),
        "; an expert of a prompt takes the link %.1f us, the host %.1f us, from many rows "
        "on %.1f and %.2f a row",
        rates.copy_us, rates.read_us, rates.fixed_us, rates.row_us);
    line += prompts.data();
  }
  if (host_ == nullptr) return line;
  return line + "; host experts: " + host_->experts().weights().Line();
}

}  // namespace bloomery::exec
