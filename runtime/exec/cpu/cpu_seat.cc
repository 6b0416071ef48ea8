#include "runtime/exec/cpu/cpu_seat.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "kernels-common/cpu/fp_environment.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/exec/cpu/read_rate.h"
#include "runtime/exec/draft_graph.h"
#include "runtime/exec/lower/lower.h"
#include "runtime/graph/abi.h"
#include "runtime/graph/builder.h"
#include "runtime/memory/finite.h"

namespace bloomery::exec {
namespace {

int32_t ThreadsOf(const SeatOptions& options) {
  if (options.threads == 0) return DefaultThreads();
  return CheckedOption(options.threads, limits::kThreadsMax, "the number of threads");
}

void PrepareKernels(const plugin::Description& description) {
  auto device = graph::MakeAbi<bl_device>();
  device.kind = BL_DEVICE_CPU;
  for (const plugin::Operator& op : description.operators) {
    for (const plugin::Kernel& kernel : op.kernels) {
      if (kernel.prepare == nullptr) continue;
      std::string reason = "it gave no reason";
      auto sink = graph::MakeAbi<bl_sink>();
      sink.self = &reason;
      sink.fail = [](void* self, bl_status, const char* text) {
        if (text != nullptr) *static_cast<std::string*>(self) = text;
      };
      const bl_status status = kernel.prepare(&device, &sink);
      if (status != BL_OK) {
        throw Error(ErrorKind::kBadModel, "operator " + op.name +
                                              ": its kernel cannot be prepared (status " +
                                              std::to_string(status) + "): " + reason);
      }
    }
  }
}

}  // namespace

CpuSeat::CpuSeat(const model::ModelFile& model, const SeatSource& source,
                 const SeatOptions& options)
    : Seat(source, options),
      backend_(&ops::FindBackend(options.kernels)),
      tensors_(TensorsOf(description_)),
      plane_specs_(PlanesOf(description_)),
      inputs_(limits_.rows_max),
      picks_(description_.banks) {
  const int32_t threads = ThreadsOf(options);
  PrepareKernels(description_);
  std::vector<LoweredGraph> lowered =
      LowerAll(source.build, limits_.rows_max, options.observe, options, {});
  std::vector<LoweredGraph> drafts;
  if (source.build_draft) {
    limits_.drafts = true;
    draft_inputs_.emplace(limits_.slots);
    const auto check = [&](const graph::Graph& graph) {
      CheckDraftGraph(graph, description_, source.plugin);
    };
    drafts =
        LowerAll(source.build_draft, std::min(limits_.slots, limits_.rows_max), {}, options, check);
  }
  for (const std::vector<LoweredGraph>* graphs : {&lowered, &drafts}) {
    for (const LoweredGraph& graph : *graphs) {
      arena_bytes_ = std::max(arena_bytes_, graph.arena_bytes);
      scratch_bytes_ = std::max(scratch_bytes_, graph.scratch_bytes);
    }
  }
  const uint64_t weight_bytes = memory::WeightStore::Bytes(model, tensors_);
  const memory::SeatSizes sizes = Sizes(threads);
  const memory::HostRoom room = HostRoomOf(options);
  placement_ = memory::PlaceOnHost(sizes, weight_bytes, options.weight_source, room);
  if (options.weight_source == memory::WeightSource::kAuto &&
      weight_source() == memory::WeightSource::kMap) {
    LOG(WARNING)
        << memory::PlaceOnHost(sizes, weight_bytes, memory::WeightSource::kRead, room).host.Line()
        << ": it does not fit; weights are mapped from the file instead";
  }
  if (options.planned) options.planned(placement_);
  placement_.Check();
  for (LoweredGraph& graph : lowered) inexact_.merge(graph.inexact);

  weights_ =
      std::make_unique<memory::WeightStore>(model, tensors_, weight_source(), options.progress);
  memory::CheckFinite(model, tensors_, *weights_);
  planes_ = std::make_unique<memory::PlaneStore>(plane_specs_, limits_.slots, limits_.slot_context,
                                                 limits_.rows_max,
                                                 memory::LanesOfWindow(limits_.window_rows));
  arena_ = memory::HostBuffer(arena_bytes_, "buffers of a pass");
  logits_ = memory::HostBuffer(static_cast<uint64_t>(limits_.rows_max) *
                                   static_cast<uint64_t>(limits_.vocabulary) * sizeof(float),
                               "logits");
  StartResidency(options);
  const SeatMemory memory = {.backend = backend_,
                             .threads = threads,
                             .arena = arena_.data(),
                             .logits = reinterpret_cast<float*>(logits_.data()),
                             .inputs = &inputs_,
                             .planes = planes_.get(),
                             .weights = weights_.get(),
                             .description = &description_,
                             .picks = &picks_,
                             .ledger = driver().ledger()};
  programs_.reserve(lowered.size());
  for (LoweredGraph& graph : lowered) programs_.emplace_back(std::move(graph), memory);
  if (draft_inputs_) {
    SeatMemory of_drafts = memory;
    of_drafts.inputs = &*draft_inputs_;
    of_drafts.picks = nullptr;
    of_drafts.ledger = nullptr;
    draft_programs_.reserve(drafts.size());
    for (LoweredGraph& graph : drafts) draft_programs_.emplace_back(std::move(graph), of_drafts);
    draft_lanes_.reserve(static_cast<size_t>(limits_.slots));
    draft_rows_.reserve(static_cast<size_t>(limits_.slots));
    drafted_.reserve(static_cast<size_t>(limits_.slots));
  }
  pool_ = std::make_unique<Pool>(threads, scratch_bytes_, options.pin);
}

CpuSeat::~CpuSeat() = default;

std::function<double()> CpuSeat::MemoryReadMeter() {
  auto meter = std::make_shared<ReadRate>(ReadRateBytes());
  meter->Measure(*pool_);  // the first may meet pages that are not there yet
  return [this, meter] { return meter->Measure(*pool_); };
}

std::vector<LoweredGraph> CpuSeat::LowerAll(
    const BuildEntry& entry, int32_t rows_max, const std::vector<std::string>& observe,
    const SeatOptions& options, const std::function<void(const graph::Graph&)>& check) const {
  LowerOptions lower{.backend = backend_,
                     .threads = ThreadsOf(options),
                     .slots = limits_.slots,
                     .slot_context = limits_.slot_context,
                     .delta_chunks = options.delta_chunks,
                     .wanted = {"logits"}};
  lower.wanted.insert(lower.wanted.end(), observe.begin(), observe.end());
  std::vector<LoweredGraph> lowered;
  for (const int32_t rows : RowBuckets(rows_max)) {
    graph::Graph graph = BuildGraph(entry, rows, rows, BL_DEVICE_CPU);
    if (check) check(graph);
    lower.rows = rows;
    lowered.push_back(Lower(std::move(graph), description_, lower));
  }
  return lowered;
}

memory::SeatSizes CpuSeat::Sizes(int32_t threads) const {
  memory::SeatSizes sizes = SizesToPlan();
  sizes.host_beside = PlaneTerms(plane_specs_, [&](const memory::PlaneSpec& plane) {
    return memory::PlaneStore::Bytes(plane, limits_.slots, limits_.slot_context, limits_.rows_max,
                                     memory::LanesOfWindow(limits_.window_rows));
  });
  sizes.host_beside.push_back({"pass buffers", arena_bytes_});
  sizes.host_beside.push_back({"logits", static_cast<uint64_t>(limits_.rows_max) *
                                             static_cast<uint64_t>(limits_.vocabulary) *
                                             sizeof(float)});
  sizes.host_beside.push_back(
      {"scratch of " + std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
       scratch_bytes_ * static_cast<uint64_t>(threads)});
  return sizes;
}

const Program& CpuSeat::ProgramFor(const std::vector<Program>& programs, size_t rows) {
  for (const Program& program : programs) {
    if (static_cast<size_t>(program.rows()) >= rows) return program;
  }
  return programs.back();
}

void CpuSeat::Run(std::span<const PassRow> rows) {
  CheckRows(rows);
  PrepareRings(rows, &planes_->rings());
  driver().PassStarts(rows);
  const kernels::ScopedFpEnvironment environment;
  inputs_.Set(rows, lanes_ ? &*lanes_ : nullptr);
  const Program& program = ProgramFor(programs_, rows.size());
  last_ = nullptr;
  RunSteps(program, rows);
  last_ = &program;
  ++counters_.passes;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PassRow& row = rows[i];
    planes_->SetLength(row.slot, row.index + 1);
    const int32_t lane = inputs_.rows().lane_out[i];
    if (lane >= 0) lanes_->Set(row.slot, lane, row.index + 1);
  }
  driver().PassRan(rows, -1, pool_->counts().wait_seconds);
}

void CpuSeat::RunSteps(const Program& program, std::span<const PassRow> rows) {
  for (const ProgramStep& step : program.steps()) {
    const StepFailure failure = observer_ == nullptr
                                    ? pool_->Run(*step.step, step.ahead)
                                    : RunObserved(step, &step == &program.steps().front());
    ++counters_.dispatches;
    if (failure.status != BL_OK) FailPass(step.op, step.layer, failure.status, failure.row, rows);
  }
}

// A draft's first step starts from the slot's state, each further one from the step before.
void CpuSeat::SetDraftInputs(std::span<const DraftRow> rows) {
  const int32_t own = memory::LanesOfWindow(limits_.window_rows);
  draft_lanes_.clear();
  for (const DraftRow& row : rows) {
    const bool first = row.depth == 0 && lanes_;
    draft_lanes_.push_back(first ? lanes_->Holding(row.slot, Length(row.slot)) : own);
  }
  draft_inputs_->SetDraft(draft_rows_, draft_lanes_, own);
}

std::span<const Drafted> CpuSeat::RunDraft(std::span<const DraftRow> rows, bool probabilities) {
  if (!draft_inputs_ || rows.empty()) {
    throw Error(ErrorKind::kInternal, "a draft of a seat that has none, or of no rows");
  }
  DraftRows(rows, &draft_rows_);
  const kernels::ScopedFpEnvironment environment;
  SetDraftInputs(rows);
  last_ = nullptr;
  const Program& program = ProgramFor(draft_programs_, rows.size());
  RunSteps(program, draft_rows_);
  const ExportedValue& logits = *program.Find("logits");
  const auto width = static_cast<size_t>(logits.shape.width());
  drafted_.clear();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = std::span(reinterpret_cast<const float*>(logits.data) + i * width, width);
    const auto best = std::ranges::max_element(row);
    Drafted& made = drafted_.emplace_back();
    made.token = static_cast<int32_t>(best - row.begin());
    if (!probabilities) continue;
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit - *best));
    made.probability = static_cast<float>(1 / sum);
  }
  return drafted_;
}

StepFailure CpuSeat::RunObserved(const ProgramStep& step, bool first) {
  const double waited = pool_->counts().wait_seconds;
  const int32_t tasks = step.step->Tasks();
  const auto start = std::chrono::steady_clock::now();
  const StepFailure failure = pool_->Run(*step.step, step.ahead);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  observer_->StepDone({.op = step.op,
                       .layer = step.layer,
                       .first = first,
                       .tasks = tasks,
                       .seconds = time.count(),
                       .wait_seconds = pool_->counts().wait_seconds - waited});
  return failure;
}

std::span<const float> CpuSeat::Logits(int32_t i) const {
  const Observation logits = Observe("logits");
  if (i < 0 || i >= logits.rows) {
    throw Error(ErrorKind::kInternal, "logit row " + std::to_string(i) + " of a pass that had " +
                                          std::to_string(logits.rows));
  }
  return logits.Floats().subspan(static_cast<size_t>(i) * static_cast<size_t>(logits.width),
                                 static_cast<size_t>(logits.width));
}

Observation CpuSeat::Observe(std::string_view name) const {
  const ExportedValue* value = last_ == nullptr ? nullptr : last_->Find(name);
  if (value == nullptr) {
    throw Error(ErrorKind::kInternal, "'" + std::string(name) +
                                          "' was not observed: no pass has run, the last one "
                                          "failed, or it is not among the seat's observations");
  }
  return {.dtype = value->shape.dtype,
          .width = value->shape.width(),
          .rows = *inputs_.live(value->shape.domain),
          .data = value->data};
}

void CpuSeat::Cut(int32_t slot, int32_t length) {
  CheckCut(slot, length);
  driver().RowsCut(slot, length);
  if (length >= planes_->Length(slot)) return;
  planes_->SetLength(slot, length);
  if (lanes_) lanes_->Cut(slot, length);
}

void CpuSeat::CopySlot(int32_t from, int32_t to, int32_t length) {
  CheckCopy(from, to, length);
  planes_->Copy(from, to, length);
  if (!lanes_) return;
  lanes_->Cut(to, 0);
  const int32_t lane = lanes_->Holding(from, length);
  if (lane < 0) return;  // of no rows
  std::vector<std::byte> state(planes_->LaneBytes());
  planes_->ReadLane(from, lane, state);
  planes_->WriteLane(to, lane, state);
  lanes_->Set(to, lane, length);
}

void CpuSeat::ReadCheckpoint(int32_t slot, std::span<std::byte> bytes) {
  const int32_t lane = CheckpointLane(slot, bytes.size());
  if (lanes_) planes_->ReadLane(slot, lane, bytes.first(planes_->LaneBytes()));
  planes_->ReadRings(slot, bytes.subspan(planes_->LaneBytes()));
}

void CpuSeat::RestoreCheckpoint(int32_t slot, int32_t length, std::span<const std::byte> bytes) {
  CheckRestore(slot, length, bytes.size());
  driver().RowsCut(slot, length);
  planes_->SetLength(slot, length);
  planes_->WriteRings(slot, bytes.subspan(planes_->LaneBytes()));
  if (!lanes_) return;
  lanes_->Cut(slot, 0);
  const int32_t lane = lanes_->Claim(slot, 0);
  planes_->WriteLane(slot, lane, bytes.first(planes_->LaneBytes()));
  lanes_->Set(slot, lane, length);
}

Residency CpuSeat::ReadResidency() const {
  return {.tiers = {TierOf("host", "CPU, " + std::string(backend_->name), placement_.host)},
          .banks = Banks("host", &picks_)};
}

void CpuSeat::ReadRows(int32_t slot, int32_t first, int32_t rows, std::span<std::byte> bytes) {
  CheckRead(slot, first, rows, bytes.size());
  planes_->Read(slot, first, rows, bytes);
}

void CpuSeat::AppendRows(int32_t slot, const RowChunk& chunk, int32_t skip, int32_t count) {
  CheckAppend(slot, chunk, skip, count);
  planes_->Append(slot, chunk.bytes, chunk.rows, skip, count);
}

SeatCounters CpuSeat::counters() const {
  SeatCounters counters = counters_;
  const Pool::Counts counts = pool_->counts();
  counters.weight_bytes_read = counts.weight_bytes_read;
  counters.experts_picked = counts.experts_picked;
  counters.expert_bytes = counts.expert_bytes;
  counters.wait_seconds = counts.wait_seconds;
  return counters;
}

}  // namespace bloomery::exec
