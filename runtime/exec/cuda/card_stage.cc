#include "runtime/exec/cuda/card_stage.h"

#include <bloomery/operators.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels-common/attention/cuda/rows_attention.h"
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
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace bloomery::exec {

namespace cuda = kernels::cuda;

namespace {

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

void EnterCard(const CardInfo& card) {
  CheckCuda(cudaSetDevice(card.ordinal), "using " + card.Id());
}

CardInfo Entered(CardInfo card) {
  EnterCard(card);
  return card;
}

}  // namespace

void CardStagePlan::Take(const plugin::Description& description, const graph::Graph& graph) {
  weights.resize(description.weights.size(), false);
  planes.resize(description.planes.size(), false);
  for (const graph::Node& node : graph.nodes) {
    for (const uint32_t weight : node.weights) weights[weight] = true;
    for (const graph::PlaneUse& use : node.planes) planes[use.plane] = true;
    if (node.op->plugin_op != nullptr || node.op->name != BL_OP_ROUTED_EXPERTS) continue;
    const auto bank = static_cast<uint32_t>(node.attrs.I64("bank"));
    const auto at = std::ranges::lower_bound(banks, bank);
    if (at != banks.end() && *at == bank) continue;
    banks.insert(at, bank);
    const plugin::Bank& of = description.banks[bank];
    for (const uint32_t part : {of.gate, of.up, of.down}) weights[part] = true;
  }
}

plugin::Description CardStagePlan::Describe(const plugin::Description& seat) const {
  plugin::Description of = seat;
  for (size_t i = 0; i < of.weights.size(); ++i) {
    of.weights[i].present = of.weights[i].present && weights[i];
  }
  return of;
}

CardStageSizes CardStagePlan::Sizes(const plugin::Description& seat) const {
  CardStageSizes sizes{.logits = logits_bytes,
                       .picks = Aligned(CardPicks::Words(seat) * sizeof(uint32_t))};
  for (const std::vector<CardLoweredGraph>* lowered : {&passes, &drafts}) {
    for (const CardLoweredGraph& each : *lowered) {
      sizes.arena = std::max(sizes.arena, each.arena_bytes);
      sizes.workspace = std::max(sizes.workspace, Aligned(each.workspace_bytes));
      sizes.constants += Aligned(each.constants.size()) + Aligned(each.state_bytes);
      const CardRows words{.rows = each.rows, .top_rows = each.top_rows};
      sizes.words = std::max(sizes.words, Aligned(words.Bytes()));
    }
  }
  return sizes;
}

CardStage::CardStage(const model::ModelFile& model, CardStagePlan plan, const CardStageSeat& seat,
                     const std::function<void(uint64_t, uint64_t)>& progress)
    : seat_(*seat.description),
      card_(Entered(plan.card)),
      layers_(plan.layers),
      banks_(std::move(plan.banks)),
      sizes_(plan.Sizes(seat_)),
      description_(plan.Describe(seat_)),
      alone_(seat.alone),
      words_bytes_(seat.words_bytes),
      host_(seat.host),
      words_in_(seat.words_in) {
  if (!seat.frames.empty()) description_ = OfFrames(description_, seat.frames);
  launch_ = {.stream = stream_.get(),
             .multiprocessors = card_.multiprocessors,
             .dependent = card_.compute_capability >= 90,
             .shared_bytes_max = card_.shared_bytes_max};
  PrepareKernels(card_);
  cuda::Launch loading = launch_;
  loading.dependent = false;
  if (!seat.frames.empty()) {
    split_ = std::make_unique<CardSplit>(seat_, *seat.options, banks_, seat.frames,
                                         seat.limits.rows_max, loading, seat.host);
  }
  weights_ = std::make_unique<CardWeights>(
      model, description_, CardWeightLayout(model, description_), loading, progress);
  if (split_ != nullptr) {
    split_->Bind(*weights_);
    split_->SetShareRates(seat.options->share_rates);
  }
  planes_ = std::make_unique<CardPlanes>(PlanesOf(seat_), plan.planes, seat.limits.slots,
                                         seat.limits.slot_context, seat.limits.rows_max,
                                         seat.lanes_of_slot, seat.rows);
  arena_ = CardBuffer(sizes_.arena, "the buffers of a pass");
  logits_ = CardBuffer(sizes_.logits, "logits");
  small_ = CardBuffer(sizes_.Small(), "workspace, constants, the rows' words and counts");
  words_out_ =
      PinnedBuffer(static_cast<uint64_t>(seat.parts) * words_bytes_, "what comes back from a pass");
  CheckCuda(cudaMemsetAsync(small_.data(), 0, small_.size(), stream()), "clearing workspace");
  lowered_passes_ = std::move(plan.passes);
  lowered_drafts_ = std::move(plan.drafts);
}

CardStage::~CardStage() { cudaStreamSynchronize(stream()); }

void CardStage::MakePrograms(const CardStageSeat& seat) {
  Enter();
  picks_out_ = seat.picks_out;
  picks_at_ = seat.picks_at;
  std::byte* constants = small_.data() + sizes_.workspace;
  passes_ = Make(std::exchange(lowered_passes_, {}), &constants);
  drafts_ = Make(std::exchange(lowered_drafts_, {}), &constants);
}

std::vector<CardStage::Ready> CardStage::Make(const std::vector<CardLoweredGraph>& lowered,
                                              std::byte** constants) const {
  std::byte* const words = small_.data() + sizes_.workspace + sizes_.constants;
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
        .picks = reinterpret_cast<uint32_t*>(words + sizes_.words),
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

void CardStage::OpenWay(const CardStage& from) const {
  if (from.card_.ordinal == card_.ordinal) return;
  Enter();
  int can = 0;
  CheckCuda(cudaDeviceCanAccessPeer(&can, card_.ordinal, from.card_.ordinal),
            "asking whether " + card_.Id() + " reads " + from.card_.Id());
  if (can == 0) {
    LOG(INFO) << card_.Id() << " cannot read " << from.card_.Id()
              << ": the driver takes rows from card to card through the host";
    return;
  }
  const cudaError_t status = cudaDeviceEnablePeerAccess(from.card_.ordinal, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // no failure, but the next launch would report it
    return;
  }
  CheckCardMemory(status, "letting " + card_.Id() + " read " + from.card_.Id());
}

void CardStage::Enter() const { EnterCard(card_); }

CardGraph CardStage::Capture(const CardProgram& program) const {
  CheckCuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "capturing a pass");
  cudaGraph_t captured = nullptr;
  try {
    const PassPart whole{.rows = program.rows()};
    if (alone_) EnqueueIn(program, whole);
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
    if (alone_) EnqueueOut(program, whole);
  } catch (...) {
    cudaStreamEndCapture(stream(), &captured);
    if (captured != nullptr) cudaGraphDestroy(captured);
    throw;
  }
  CheckCuda(cudaStreamEndCapture(stream(), &captured), "capturing a pass");
  return CardGraph(captured);
}

void CardStage::EnqueueIn(const CardProgram& program, const PassPart& part) const {
  CheckCuda(cudaMemcpyAsync(program.inputs().base, words_in_ + part.number * words_bytes_,
                            program.inputs().BytesIn(), cudaMemcpyHostToDevice, stream()),
            "copying the rows of a pass to the card");
}

void CardStage::EnqueueOut(const CardProgram& program, const PassPart& part) const {
  CheckCuda(cudaMemcpyAsync(words_out_.data() + part.number * words_bytes_, program.inputs().base,
                            program.inputs().Bytes(), cudaMemcpyDeviceToHost, stream()),
            "copying the results of a pass from the card");
  const std::span<const int32_t* const> picks = program.picks();
  for (size_t bank = 0; bank < picks.size(); ++bank) {
    if (picks[bank] == nullptr) continue;
    const uint64_t used = seat_.banks[bank].used;
    const uint64_t at = picks_at_(bank) + static_cast<uint64_t>(part.first) * used;
    CheckCuda(cudaMemcpyAsync(picks_out_ + at * sizeof(int32_t), picks[bank],
                              static_cast<uint64_t>(part.rows) * used * sizeof(int32_t),
                              cudaMemcpyDeviceToHost, stream()),
              "copying picks from the card");
  }
}

void CardStage::AwaitTaken(const CardStage& by) const {
  CheckCuda(cudaStreamWaitEvent(stream(), by.taken_.get(), 0), "running a pass");
}

void CardStage::BringIn(const CardProgram& program,
                        std::span<const std::unique_ptr<CardStage>> stages,
                        std::span<const CardProgram* const> made, const PassPart& part) const {
  const std::string what = "bringing rows from card to card";
  for (const CardProgram::Imported& imported : program.imports()) {
    const CardStage& from = *stages[imported.from];
    const CardProgram::Exported& value = *made[imported.from]->Find(imported.name);
    const int32_t live = imported.shape.domain == BL_DOMAIN_LOGIT_ROWS ? part.logits : part.rows;
    const auto bytes = static_cast<size_t>(imported.shape.width()) * static_cast<size_t>(live) * 4;
    CheckCuda(cudaStreamWaitEvent(stream(), from.done_.get(), 0), what);
    CheckCuda(cudaMemcpyPeerAsync(imported.data, card_.ordinal, value.data, from.card_.ordinal,
                                  bytes, stream()),
              what);
  }
  if (!alone_) CheckCuda(cudaEventRecord(taken_.get(), stream()), what);
}

void CardStage::LaunchGraph(const Ready& ready) const {
  CheckCuda(cudaGraphLaunch(ready.graph.get(), stream()), "starting a pass");
}

void CardStage::RunLaunches(const CardProgram& program, int32_t rows, bool seats,
                            const Check& check, const std::function<void()>& mark) {
  size_t rung = 0;
  size_t served = 0;
  const auto serve = [&] {
    host_->experts().ServePass(program.rings().subspan(served, rung - served), rows, check);
    served = rung;
  };
  if (!program.streams().empty()) split_->BeginPrompt(program.streams(), rows, seats);
  for (const CardStep& step : program.steps()) {
    mark();
    if (step.split.shares >= 0) {
      serve();
      split_->Share(static_cast<size_t>(step.split.shares), check);
    }
    if (step.split.arrives >= 0) {
      split_->AwaitArrived(static_cast<size_t>(step.split.arrives), stream());
    }
    if (step.split.needs >= 0) {
      split_->ComputeShare(static_cast<size_t>(step.split.needs), check);
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

void CardStage::RunObserved(const CardProgram& program, const PassPart& part, bool seats,
                            const Check& check, StepObserver* observer) {
  // Nothing of the pass ran before it: no earlier part, and no earlier stage, which would have made
  // what this one brings in.
  const bool first = part.number == 0 && program.imports().empty();
  std::vector<std::unique_ptr<CardEvent>> events;
  RunLaunches(program, part.rows, seats, check, [&] {
    events.push_back(std::make_unique<CardEvent>(cudaEventDefault));
    CheckCuda(cudaEventRecord(events.back()->get(), stream()), "timing a pass");
  });
  CheckCuda(cudaStreamSynchronize(stream()), "running a pass");
  for (size_t i = 0; i < program.steps().size(); ++i) {
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, events[i]->get(), events[i + 1]->get()),
              "timing a pass");
    const CardStep& step = program.steps()[i];
    observer->StepDone({.op = step.op,
                        .layer = step.layer,
                        .first = first && i == 0,
                        .tasks = 1,
                        .seconds = static_cast<double>(milliseconds) * 1e-3});
  }
}

void CardStage::MarkDone() const {
  if (alone_) return;  // nobody waits for it
  CheckCuda(cudaEventRecord(done_.get(), stream()), "running a pass");
}

bool CardStage::Busy() const {
  const cudaError_t status = cudaStreamQuery(stream());
  if (status == cudaErrorNotReady) return true;
  CheckCuda(status, "running a pass");
  return false;
}

CardRows CardStage::Returned(const CardProgram& program, size_t part) const {
  CardRows out = program.inputs();
  out.base = reinterpret_cast<int32_t*>(words_out_.data() + part * words_bytes_);
  return out;
}

void CardStage::Fetch(void* to, const std::byte* from, uint64_t bytes,
                      const std::string& what) const {
  CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()), what);
  CheckCuda(cudaStreamSynchronize(stream()), what);
}

std::vector<uint32_t> CardStage::FetchPicks() const {
  std::vector<uint32_t> picks(CardPicks::Words(seat_));
  Fetch(picks.data(), small_.data() + sizes_.workspace + sizes_.constants + sizes_.words,
        picks.size() * sizeof(uint32_t), "fetching counts of picks");
  return picks;
}

}  // namespace bloomery::exec
