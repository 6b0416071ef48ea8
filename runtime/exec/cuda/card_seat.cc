#include "runtime/exec/cuda/card_seat.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>

#include "kernels-common/attention/cuda/rows_attention.h"
#include "kernels-common/cpu/fp_environment.h"
#include "kernels-common/cuda/read_rate.h"
#include "kernels-common/delta/cuda/delta.h"
#include "kernels-common/elementwise/cuda/elementwise.h"
#include "kernels-common/elementwise/cuda/taps.h"
#include "kernels-common/layer/cuda/one_row_layers.h"
#include "kernels-common/linear/cuda/prompt_linear.h"
#include "kernels-common/linear/cuda/router.h"
#include "kernels-common/linear/cuda/rows_linear.h"
#include "kernels-common/linear/cuda/top_logits.h"
#include "kernels-common/moe/cuda/prompt_experts.h"
#include "kernels-common/moe/cuda/rows_experts.h"
#include "kernels-common/norm/cuda/norm.h"
#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/exec/cuda/card_load.h"
#include "runtime/exec/cuda/card_lower.h"
#include "runtime/exec/draft_graph.h"
#include "runtime/exec/pass_inputs.h"
#include "runtime/exec/placing.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

namespace {

// What the driver takes beside what is allocated: code, graphs, the queues of streams.
constexpr uint64_t kReserveBytes = uint64_t{384} << 20;
static_assert(cuda::kTopLogits == limits::kBestLogits);
constexpr uint64_t kPart = 256;  // alignment of the parts of one allocation

uint64_t Aligned(uint64_t bytes) { return (bytes + kPart - 1) / kPart * kPart; }

struct Preparation {
  const char* topic;
  cudaError_t (*prepare)();
};

// No code for this card is in the build, nor can be made by the driver.
bool IsMissingCode(cudaError_t status) {
  return status == cudaErrorNoKernelImageForDevice || status == cudaErrorUnsupportedPtxVersion ||
         status == cudaErrorInvalidPtx;
}

void PrepareKernels(const CardInfo& card) {
  static constexpr std::array<Preparation, 12> kPreparations = {{
      {"attention", &cuda::PrepareAttention},
      {"prompt linear", &cuda::PreparePromptLinear},
      {"router", &cuda::PrepareRouterLinear},
      {"linear", &cuda::PrepareRowsLinear},
      {"best logits", &cuda::PrepareTopLogits},
      {"grouping of picks", &cuda::PreparePromptExperts},
      {"experts", &cuda::PrepareRowsExperts},
      {"layers", &cuda::PrepareOneRowLayers},
      {"norms", &cuda::PrepareNorm},
      {"gates", &cuda::PrepareGates},
      {"the delta rule", &cuda::PrepareDelta},
      {"taps", &cuda::PrepareTaps},
  }};
  for (const Preparation& each : kPreparations) {
    const cudaError_t status = each.prepare();
    if (IsMissingCode(status)) {
      throw Error(ErrorKind::kDevice,
                  card.Line() + ": this build has no kernels for it ('" +
                      cudaGetErrorString(status) +
                      "'); configure with its capability in BLOOMERY_CUDA_ARCHITECTURES, or run "
                      "with --device none");
    }
    // Code is loaded when it is first asked for.
    CheckCardMemory(status, std::string("preparing the kernels of ") + each.topic);
  }
}

// Rows of a pass whose logits may be wanted: of every row up to this many.
int32_t LogitRows(int32_t rows) { return std::min(rows, limits::kCardLogitRowsMax); }

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
                "this version; take --draft lookup, or a card that holds all of it");
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
  if (placement.CardFits() || placement.stages.front().plan.limit_source() == "budget") {
    placement.Check();
    return;
  }
  try {
    placement.Check();
  } catch (const Error& error) {
    throw CardMemoryError(error.what());
  }
}

}  // namespace

CardSeat::CardSeat(const model::ModelFile& model, const SeatSource& source,
                   const SeatOptions& options, const CardInfo& card)
    : Seat(source, options), card_(card), name_(card.name), deadline_(options.hand_off_deadline) {
  limits_.logit_rows_max = LogitRows(limits_.rows_max);
  // Programs of more rows are for prompts: there float weights and attention are a band.
  limits_.draft_pass_rows = std::min(limits_.rows_max, cuda::kRowsMax);
  const CardWeightLayout whole(model, description_);
  std::vector<CardLoweredGraph> lowered;
  const std::vector<CardLoweredGraph> drafts = LowerDrafts(source, whole);
  limits_.drafts = !drafts.empty();
  Sizes sizes;
  const memory::CardRoom room = RoomOf(card, options);
  const memory::LayerRange layers = {0, description_.layers};
  const auto sizes_of = [&](memory::Place place) {
    const bool split = place == memory::Place::kSplit;
    if (split) CheckSplit(description_, whole);
    lowered = LowerAll(source, options, whole, split);
    sizes = {};
    AddSizes(lowered, &sizes);
    AddSizes(drafts, &sizes);
    return SizesToPlan(model, options, whole, sizes, place);
  };
  placement_ = ChooseOnCards(options, description_, {&room, 1}, {&layers, 1}, sizes_of);
  if (options.planned) options.planned(placement_);
  CheckPlacement(placement_);
  if (const std::string choice = placement_.Choice(); !choice.empty()) LOG(INFO) << choice;
  const bool is_split = placement_.place == memory::Place::kSplit;
  of_frames_ = is_split ? OfFrames(description_, placement_.frames) : description_;
  CardWeightLayout layout(model, of_frames_);
  LogDecoded(layout.decoded());
  // Those of drafts change no answer.
  for (const CardLoweredGraph& each : lowered) {
    inexact_.insert(each.inexact.begin(), each.inexact.end());
  }

  stream_.emplace();
  launch_ = {.stream = stream_->get(),
             .multiprocessors = card.multiprocessors,
             .dependent = card.compute_capability >= 90,
             .shared_bytes_max = card.shared_bytes_max};
  PrepareKernels(card);
  cuda::Launch loading = launch_;
  loading.dependent = false;
  if (is_split) {
    split_ = std::make_unique<CardSplit>(model, description_, options, placement_.frames,
                                         limits_.rows_max, loading);
  }
  weights_ = std::make_unique<CardWeights>(model, of_frames_, std::move(layout), loading,
                                           options.progress);
  if (split_ != nullptr) {
    split_->Bind(*weights_);
    split_->SetShareRates(options.share_rates);
  }
  planes_ = std::make_unique<CardPlanes>(PlanesOf(description_), limits_.slots,
                                         limits_.slot_context, limits_.rows_max, LanesOfSlot());
  arena_ = CardBuffer(sizes.arena, "the buffers of a pass");
  logits_ = CardBuffer(sizes.logits, "logits");
  small_ = CardBuffer(sizes.Small(), "workspace, constants, the rows' words and counts");
  words_in_ = PinnedBuffer(sizes.words, "the rows of a pass");
  words_out_ = PinnedBuffer(sizes.words, "what comes back from a pass");
  if (ChunkBytes() > 0) state_rows_ = PinnedBuffer(ChunkBytes(), "rows that are saved or restored");
  host_logits_.resize(static_cast<size_t>(limits_.logit_rows_max));
  for (int32_t row = 0; row < HostLogitRows(); ++row) {
    host_logits_[static_cast<size_t>(row)] = PinnedBuffer(LogitRowBytes(), "a row of logits");
  }
  StartResidency(options);
  if (driver().ledger() != nullptr) {
    picks_out_ = PinnedBuffer(PicksAt(description_.banks.size()) * sizeof(int32_t), "picks");
  }
  CheckCuda(cudaMemsetAsync(small_.data(), 0, small_.size(), stream()), "clearing workspace");
  card_picks_ =
      reinterpret_cast<uint32_t*>(small_.data() + sizes.workspace + sizes.constants + sizes.words);
  last_picks_.resize(CardPicks::Words(description_));
  picks_.resize(last_picks_.size());
  std::byte* constants = small_.data() + sizes.workspace;
  ready_ = MakePrograms(lowered, sizes, &constants);
  drafts_ = MakePrograms(drafts, sizes, &constants);
  draft_rows_.reserve(static_cast<size_t>(limits_.slots));
  drafted_.reserve(static_cast<size_t>(limits_.slots));
  fetched_.resize(static_cast<size_t>(limits_.logit_rows_max));
  observed_.resize(options.observe.size() + 1);
  best_.reserve(static_cast<size_t>(cuda::kTopLogits));
  segments_.reserve(static_cast<size_t>(limits_.rows_max));
}

std::vector<CardLoweredGraph> CardSeat::LowerAll(const SeatSource& source,
                                                 const SeatOptions& options,
                                                 const CardWeightLayout& layout, bool split) const {
  std::vector<CardLoweredGraph> lowered;
  for (const int32_t rows : RowBuckets(limits_.rows_max)) {
    const graph::Graph graph = BuildGraph(source.build, rows, LogitRows(rows), BL_DEVICE_CUDA);
    CardLowerOptions lower{.rows = rows,
                           .top_rows = TopRows(rows),
                           .weights = &layout,
                           .slots = limits_.slots,
                           .slot_context = limits_.slot_context,
                           .split = split,
                           .picks = PicksAsked(options, split),
                           .wanted = {"logits"}};
    lower.wanted.insert(lower.wanted.end(), options.observe.begin(), options.observe.end());
    lowered.push_back(LowerForCard(graph, description_, lower));
  }
  return lowered;
}

std::vector<CardLoweredGraph> CardSeat::LowerDrafts(const SeatSource& source,
                                                    const CardWeightLayout& layout) const {
  std::vector<CardLoweredGraph> lowered;
  if (!source.build_draft) return lowered;
  for (const int32_t rows : RowBuckets(std::min(limits_.slots, limits_.rows_max))) {
    const graph::Graph graph = BuildGraph(source.build_draft, rows, rows, BL_DEVICE_CUDA);
    CheckDraftGraph(graph, description_, source.plugin);
    lowered.push_back(LowerForCard(graph, description_,
                                   {.rows = rows,
                                    .top_rows = rows,
                                    .weights = &layout,
                                    .slots = limits_.slots,
                                    .slot_context = limits_.slot_context,
                                    .wanted = {"logits"}}));
  }
  return lowered;
}

std::vector<CardSeat::Ready> CardSeat::MakePrograms(std::span<const CardLoweredGraph> lowered,
                                                    const Sizes& sizes,
                                                    std::byte** constants) const {
  std::byte* const words = small_.data() + sizes.workspace + sizes.constants;
  auto* const picks = reinterpret_cast<uint32_t*>(words + sizes.words);
  std::vector<Ready> made;
  made.reserve(lowered.size());
  for (const CardLoweredGraph& each : lowered) {
    if (!each.constants.empty()) {
      CheckCuda(cudaMemcpyAsync(*constants, each.constants.data(), each.constants.size(),
                                cudaMemcpyHostToDevice, stream()),
                "copying constants to the card");
      CheckCuda(cudaStreamSynchronize(stream()), "copying constants to the card");
    }
    const CardMemory memory = {
        .weights = weights_.get(),
        .planes = planes_.get(),
        .arena = arena_.data(),
        .workspace = small_.data(),
        .constants = *constants,
        .state = each.state_bytes == 0 ? nullptr : *constants + Aligned(each.constants.size()),
        .logits = reinterpret_cast<float*>(logits_.data()),
        .picks = picks,
        .split = split_.get(),
        .rows = {.base = reinterpret_cast<int32_t*>(words),
                 .rows = each.rows,
                 .top_rows = each.top_rows},
        .launch = launch_};
    *constants += Aligned(each.constants.size()) + Aligned(each.state_bytes);
    CardProgram program(each, memory);
    CardGraph graph;
    if (!program.needs_host()) {
      graph = Capture(program);
      // What a first launch would take of the card's memory is taken now.
      CheckCardMemory(cudaGraphUpload(graph.get(), stream()), "making a graph of a pass");
    }
    made.push_back({std::move(program), std::move(graph)});
  }
  return made;
}

CardSeat::~CardSeat() { cudaStreamSynchronize(stream()); }

void CardSeat::AddSizes(std::span<const CardLoweredGraph> lowered, Sizes* sizes) const {
  sizes->logits = static_cast<uint64_t>(limits_.logit_rows_max) * LogitRowBytes();
  sizes->picks = Aligned(CardPicks::Words(description_) * sizeof(uint32_t));
  for (const CardLoweredGraph& each : lowered) {
    sizes->arena = std::max(sizes->arena, each.arena_bytes);
    sizes->workspace = std::max(sizes->workspace, Aligned(each.workspace_bytes));
    sizes->constants += Aligned(each.constants.size()) + Aligned(each.state_bytes);
    const CardRows words{.rows = each.rows, .top_rows = each.top_rows};
    sizes->words = std::max(sizes->words, Aligned(words.Bytes()));
  }
}

memory::SeatSizes CardSeat::SizesToPlan(const model::ModelFile& model, const SeatOptions& options,
                                        const CardWeightLayout& whole, const Sizes& sizes,
                                        memory::Place place) const {
  const bool split = place == memory::Place::kSplit;
  memory::SeatSizes plan = Seat::SizesToPlan();
  memory::StageSizes& stage =
      plan.stages.emplace_back(memory::StageSizes{.layers = {0, description_.layers}});
  stage.dense = whole.bytes();
  for (size_t i = 0; i < plan.banks.size(); ++i) {
    const plugin::Bank& bank = description_.banks[i];
    memory::BankShape& shape = plan.banks[i];
    for (const auto& [part, at] : {std::pair{bank.gate, 0U}, {bank.up, 1U}, {bank.down, 2U}}) {
      shape.card_parts.at(at) = whole.place(part).bytes / bank.experts;
    }
    stage.dense -= shape.CardBytes(bank.experts);
    stage.banks.push_back(static_cast<uint32_t>(i));
  }
  stage.beside = PlaneTerms(PlanesOf(description_), [&](const memory::PlaneSpec& plane) {
    return CardPlanes::Bytes(plane, limits_.slots, limits_.slot_context, limits_.rows_max,
                             LanesOfSlot());
  });
  uint64_t planes = 0;
  for (const memory::PlanTerm& term : stage.beside) planes += term.bytes;
  const uint64_t rounding = CardBuffer::Granules(planes) - planes;  // planes are one allocation
  const auto beside = [&](const char* name, uint64_t bytes) {
    stage.beside.push_back({name, bytes});
  };
  beside("pass buffers", CardBuffer::Granules(sizes.arena) + rounding);
  beside("logits", CardBuffer::Granules(sizes.logits));
  beside("workspace", CardBuffer::Granules(sizes.Small()));
  if (split) {
    stage.moving = [this](std::span<const uint32_t> frames) {
      return CardBuffer::Granules(CardSplit::CardBytes(description_, frames, limits_.rows_max));
    };
  }
  stage.loading = whole.staging_bytes();

  plan.host_beside.push_back(
      {"pinned for logits, rows and saved states",
       2 * sizes.words + static_cast<uint64_t>(HostLogitRows()) * LogitRowBytes() + ChunkBytes()});
  if (PicksAsked(options, split)) {
    plan.host_beside.push_back(
        {"pinned for picks", PicksAt(description_.banks.size()) * sizeof(int32_t)});
  }
  plan.host_loading = LoadHostBytes();
  if (split) {
    plan.host_experts = HostExperts::ExpertBytes(model, description_);
    std::vector<memory::PlanTerm> terms =
        HostExperts::Terms(description_, options, limits_.rows_max);
    terms.push_back(
        {"pinned for hand-offs", CardSplit::PinnedBytes(description_, limits_.rows_max)});
    for (memory::PlanTerm& term : terms) {
      plan.host_loading += term.bytes;  // taken before weights load
      plan.host_beside.push_back(std::move(term));
    }
  }
  return plan;
}

Residency CardSeat::ReadResidency() const {
  Residency residency{.tiers = {TierOf(card_.Id(), name_, placement_.stages.front().plan),
                                TierOf("host", "CPU", placement_.host)},
                      .banks = Banks(card_.Id(), nullptr)};
  const std::vector<uint64_t> picks = FetchPicks();
  for (size_t i = 0; i < residency.banks.size(); ++i) {
    const auto first = picks.begin() + static_cast<ptrdiff_t>(CardPicks::At(description_, i));
    residency.banks[i].picks.assign(first, first + residency.banks[i].experts);
    if (split_ == nullptr) continue;
    residency.banks[i].frames = static_cast<int32_t>(split_->frames()[i]);
    residency.banks[i].frame_of = split_->Frames(i);
  }
  return residency;
}

void CardSeat::Enter() const { CheckCuda(cudaSetDevice(card_.ordinal), "using " + card_.Id()); }

CardGraph CardSeat::Capture(const CardProgram& program) const {
  CheckCuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "capturing a pass");
  cudaGraph_t captured = nullptr;
  try {
    Enqueue(program);
  } catch (...) {
    cudaStreamEndCapture(stream(), &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    throw;
  }
  CheckCuda(cudaStreamEndCapture(stream(), &captured), "capturing a pass");
  return CardGraph(captured);
}

void CardSeat::EnqueueIn(const CardProgram& program) const {
  CheckCuda(cudaMemcpyAsync(program.inputs().base, words_in_.data(), program.inputs().BytesIn(),
                            cudaMemcpyHostToDevice, stream()),
            "copying the rows of a pass to the card");
}

void CardSeat::EnqueueOut(const CardProgram& program) const {
  CheckCuda(cudaMemcpyAsync(words_out_.data(), program.inputs().base, program.inputs().Bytes(),
                            cudaMemcpyDeviceToHost, stream()),
            "copying the results of a pass from the card");
  const std::span<const int32_t* const> picks = program.picks();
  for (size_t bank = 0; bank < picks.size(); ++bank) {
    const auto words = static_cast<size_t>(program.rows()) * description_.banks[bank].used;
    CheckCuda(cudaMemcpyAsync(picks_out_.data() + PicksAt(bank) * sizeof(int32_t), picks[bank],
                              words * sizeof(int32_t), cudaMemcpyDeviceToHost, stream()),
              "copying picks from the card");
  }
}

void CardSeat::Enqueue(const CardProgram& program) const {
  EnqueueIn(program);
  for (const CardStep& step : program.steps()) {
    const std::string where =
        "operator " + std::string(step.op) + ", layer " + std::to_string(step.layer);
    const cudaError_t status = step.launch(launch_);
    if (status == cudaErrorInvalidValue) {
      throw Error(ErrorKind::kUnsupported,
                  where + ": the card's kernel does not take a shape like this one, of " +
                      std::to_string(program.rows()) + " rows; run with --device none");
    }
    CheckCuda(status, where);
  }
  EnqueueOut(program);
}

const CardSeat::Ready& CardSeat::ReadyFor(const std::vector<Ready>& programs, size_t rows) {
  for (const Ready& ready : programs) {
    if (static_cast<size_t>(ready.program.rows()) >= rows) return ready;
  }
  return programs.back();
}

CardRows CardSeat::WriteInputs(const CardProgram& program, std::span<const PassRow> rows) {
  CardRows in = program.inputs();
  in.base = reinterpret_cast<int32_t*>(words_in_.data());
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
  last_logits_ = logits;
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
    SetLanes(*lanes_, rows, segments_, lane_in, lane_out);
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
  PrepareRings(rows, &planes_->rings());
  const Ready& ready = ReadyFor(ready_, rows.size());
  last_ = nullptr;
  Enter();
  driver().PassStarts(rows);
  may_seat_ = driver().seats_in_passes();
  if (split_ != nullptr) {
    if (Busy()) throw HandOffError("the card is still at a pass that was given up");
    split_->BeginPass(stream());
  }
  CardRows in = WriteInputs(ready.program, rows);
  WriteStates(in, rows);
  Start(ready, static_cast<int32_t>(rows.size()));
  Finish(ready.program);
  int32_t failed = *Returned(ready.program).word(CardRows::kFailedRow);
  if (split_ != nullptr) {
    split_->EndPass();
    const int64_t of_host = split_->host().failed_row();
    if (of_host >= 0) failed = std::min(failed, static_cast<int32_t>(of_host));
  }
  if (failed != INT32_MAX) FailPass("of the card", -1, BL_BAD_DATA, failed, rows);
  last_ = &ready.program;
  std::fill(fetched_.begin(), fetched_.end(), false);
  CountPass(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    planes_->SetLength(rows[i].slot, rows[i].index + 1);
    const int32_t lane = lanes_ ? in.array(CardRows::kLaneOut)[i] : memory::Lanes::kNone;
    if (lane >= 0) lanes_->Set(rows[i].slot, lane, rows[i].index + 1);
  }
  RecordPicks(rows.size());
  driver().PassRan(rows, split_ == nullptr ? 0 : split_->host().counts().seconds);
}

void CardSeat::Start(const Ready& ready, int32_t rows) {
  const kernels::ScopedFpEnvironment environment;  // this thread computes experts, too
  try {
    if (observer_ != nullptr) {
      RunObserved(ready.program, rows);
    } else if (ready.program.needs_host()) {
      EnqueueIn(ready.program);
      RunLaunches(ready.program, rows, [] {});
      EnqueueOut(ready.program);
    } else {
      CheckCuda(cudaGraphLaunch(ready.graph.get(), stream()), "starting a pass");
      if (split_ != nullptr) {
        split_->host().ServePass(ready.program.rings(), rows, [this] { return Busy(); });
      }
    }
  } catch (...) {
    // What was enqueued ends on its own: nothing waits for the host any more.
    if (split_ != nullptr) {
      split_->page().Drain();
      const std::chrono::steady_clock::time_point until =
          std::chrono::steady_clock::now() + deadline_;
      while (cudaStreamQuery(stream()) == cudaErrorNotReady &&
             std::chrono::steady_clock::now() < until) {
      }
    }
    throw;
  }
}

void CardSeat::RunLaunches(const CardProgram& program, int32_t rows,
                           const std::function<void()>& mark) {
  const auto busy = [this] { return Busy(); };
  size_t rung = 0;
  size_t served = 0;
  const auto serve = [&] {
    split_->host().ServePass(program.rings().subspan(served, rung - served), rows, busy);
    served = rung;
  };
  if (!program.streams().empty()) {
    split_->BeginPrompt(program.streams(), rows, may_seat_);
  }
  for (const CardStep& step : program.steps()) {
    mark();
    if (step.split.shares >= 0) {
      serve();
      split_->Share(static_cast<size_t>(step.split.shares), busy);
    }
    if (step.split.arrives >= 0) {
      split_->AwaitArrived(static_cast<size_t>(step.split.arrives), stream());
    }
    if (step.split.needs >= 0) {
      split_->ComputeShare(static_cast<size_t>(step.split.needs), busy);
    }
    CheckCuda(step.launch(launch_), "operator " + std::string(step.op));
    if (step.split.streamed >= 0) {
      split_->EndStreamed(static_cast<size_t>(step.split.streamed), stream());
    }
    if (step.split.rings >= 0) ++rung;
  }
  mark();
  if (rung > served) serve();
}

bool CardSeat::Busy() const {
  const cudaError_t status = cudaStreamQuery(stream());
  if (status == cudaErrorNotReady) return true;
  CheckCuda(status, "running a pass");
  return false;
}

void CardSeat::Finish(const CardProgram& program) {
  if (split_ == nullptr) return CheckCuda(cudaStreamSynchronize(stream()), "running a pass");
  const std::chrono::milliseconds most = deadline_ * (1 + program.streams().size());
  const std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now() + most;
  while (Busy()) {
    if (std::chrono::steady_clock::now() < until) continue;
    split_->page().Drain();
    throw HandOffError("the card has not ended a pass within " + std::to_string(most.count()) +
                       " ms");
  }
}

int32_t CardSeat::CardFrames() const {
  if (split_ == nullptr) return -1;
  return static_cast<int32_t>(std::ranges::max(split_->frames()));
}

std::span<const int32_t> CardSeat::FramesOf(size_t bank) const {
  return split_ == nullptr ? std::span<const int32_t>() : split_->Map(bank);
}

void CardSeat::BeginMove(const ExpertMove& move) {
  if (split_ == nullptr) return Seat::BeginMove(move);
  Enter();
  split_->BeginMove(move);
}

int32_t CardSeat::LandMoves(bool wait) {
  if (split_ == nullptr) return 0;
  Enter();
  return split_->LandMoves(wait);
}

std::vector<ExpertMove> CardSeat::TakeSeated() {
  if (split_ == nullptr) return {};
  Enter();
  return split_->TakeSeated();
}

memory::ResidencyRates CardSeat::MeasureRates() {
  if (split_ == nullptr) return {};
  Enter();
  return split_->MeasureRates();
}

// The launches one by one, each between two events.
void CardSeat::RunObserved(const CardProgram& program, int32_t rows) {
  EnqueueIn(program);
  std::vector<std::unique_ptr<CardEvent>> events;
  const auto mark = [&] {
    events.push_back(std::make_unique<CardEvent>(cudaEventDefault));
    CheckCuda(cudaEventRecord(events.back()->get(), stream()), "timing a pass");
  };
  RunLaunches(program, rows, mark);
  EnqueueOut(program);
  CheckCuda(cudaStreamSynchronize(stream()), "running a pass");
  for (size_t i = 0; i < program.steps().size(); ++i) {
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, events[i]->get(), events[i + 1]->get()),
              "timing a pass");
    const CardStep& step = program.steps()[i];
    observer_->StepDone({.op = step.op,
                         .layer = step.layer,
                         .first = i == 0,
                         .tasks = 1,
                         .seconds = static_cast<double>(milliseconds) * 1e-3});
  }
}

CardRows CardSeat::Returned(const CardProgram& program) const {
  CardRows out = program.inputs();
  out.base = reinterpret_cast<int32_t*>(words_out_.data());
  return out;
}

void CardSeat::Fetch(void* to, const std::byte* from, uint64_t bytes,
                     const std::string& what) const {
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()), what);
  CheckCuda(cudaStreamSynchronize(stream()), what);
}

std::span<const float> CardSeat::Logits(int32_t i) const {
  if (last_ == nullptr || i < 0 || i >= last_logits_) {
    throw Error(ErrorKind::kInternal, "logit row " + std::to_string(i) + " of a pass that had " +
                                          std::to_string(last_ == nullptr ? 0 : last_logits_));
  }
  const auto row = static_cast<size_t>(i);
  PinnedBuffer& home = host_logits_[row];
  if (home.size() == 0) home = PinnedBuffer(LogitRowBytes(), "a row of logits");
  if (!fetched_[row]) {
    Fetch(home.data(), logits_.data() + row * LogitRowBytes(), LogitRowBytes(), "fetching logits");
    fetched_[row] = true;
  }
  return {reinterpret_cast<const float*>(home.data()), static_cast<size_t>(limits_.vocabulary)};
}

std::span<const BestLogit> CardSeat::BestLogits(int32_t i) const {
  if (last_ == nullptr || i < 0 || i >= last_logits_ || i >= last_->best_rows()) return {};
  const CardRows out = Returned(*last_);
  if (*out.word(CardRows::kFailedLogits) <= i) return {};  // the whole row tells what is wrong
  best_.clear();
  for (int32_t j = 0; j < cuda::kTopLogits; ++j) {
    const size_t at = static_cast<size_t>(i) * cuda::kTopLogits + static_cast<size_t>(j);
    best_.push_back({out.top_ids()[at], out.top_values()[at]});
  }
  return best_;
}

Observation CardSeat::Observe(std::string_view name) const {
  const CardProgram::Exported* value = last_ == nullptr ? nullptr : last_->Find(name);
  if (value == nullptr) {
    throw Error(ErrorKind::kInternal, "'" + std::string(name) +
                                          "' was not observed: no pass has run, the last one "
                                          "failed, or it is not among the seat's observations");
  }
  const CardRows::Word live =
      value->shape.domain == BL_DOMAIN_LOGIT_ROWS ? CardRows::kLiveLogits : CardRows::kLive;
  Observation seen{.dtype = value->shape.dtype,
                   .width = value->shape.width(),
                   .rows = *Returned(*last_).word(live)};
  // A place of its own for each name: several may be looked at together.
  const auto place = static_cast<size_t>(value - last_->Find("logits"));
  std::vector<std::byte>& bytes = observed_[place];
  bytes.resize(static_cast<size_t>(seen.width) * static_cast<size_t>(seen.rows) * 4);
  Fetch(bytes.data(), value->data, bytes.size(), "fetching an observed value");
  seen.data = bytes.data();
  return seen;
}

std::function<double()> CardSeat::MemoryReadMeter() {
  constexpr uint64_t kBytes = uint64_t{2} << 30;  // far beyond any cache of a card
  CardInfo now = card_;
  OpenCard(&now);
  auto buffer = std::make_shared<CardBuffer>(std::min(kBytes, now.free_bytes.value_or(0) / 2),
                                             "measuring how fast it reads");
  auto begin = std::make_shared<CardEvent>(cudaEventDefault);
  auto end = std::make_shared<CardEvent>(cudaEventDefault);
  return [this, buffer, begin, end] {
    cuda::Launch launch = launch_;
    launch.dependent = false;
    const std::string what = "measuring how fast the card reads";
    CheckCuda(cudaEventRecord(begin->get(), stream()), what);
    CheckCuda(cuda::ReadAll(launch, buffer->data(), buffer->size()), what);
    CheckCuda(cudaEventRecord(end->get(), stream()), what);
    CheckCuda(cudaStreamSynchronize(stream()), what);
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin->get(), end->get()), what);
    return static_cast<double>(buffer->size()) / (static_cast<double>(milliseconds) * 1e-3);
  };
}

std::vector<VideoCard> CardSeat::Cards() const {
  return {card_.View(FindCardHolders(card_.pci_bus_id))};
}

std::string CardSeat::LoadLine() const {
  std::string line = weights_->report().Line(card_.Id());
  if (split_ == nullptr) return line;
  const memory::ShareRates& rates = split_->share_rates();
  std::array<char, 160> prompts{};
  std::snprintf(prompts.data(), prompts.size(),
                "; an expert of a prompt takes the link %.1f us, the host %.1f us, from many rows "
                "on %.1f and %.2f a row",
                rates.copy_us, rates.read_us, rates.fixed_us, rates.row_us);
  return line + "; host experts: " + split_->host().weights().Line() + prompts.data();
}

}  // namespace bloomery::exec
