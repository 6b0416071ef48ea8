#include "runtime/exec/seat.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "kernels-common/cpu/fp_environment.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/exec/lower/lower.h"
#include "runtime/graph/abi.h"
#include "runtime/graph/builder.h"
#include "runtime/memory/finite.h"

namespace bloomery::exec {
namespace {

int32_t InRange(int32_t value, int32_t most, const char* what) {
  if (value < 1 || value > most) {
    throw Error(ErrorKind::kUsage, std::string(what) + " is " + std::to_string(value) +
                                       ", must be from 1 to " + std::to_string(most));
  }
  return value;
}

SeatLimits LimitsOf(const plugin::Description& description, const SeatOptions& options) {
  return {.slots = InRange(options.slots, limits::kSlotsMax, "the number of slots"),
          .slot_context =
              InRange(options.slot_context, limits::kSlotContextMax, "the context of a slot"),
          .rows_max = InRange(options.rows_max, limits::kUbatchRowsMax, "the ubatch"),
          .vocabulary = static_cast<int32_t>(description.vocabulary)};
}

int32_t ThreadsOf(const SeatOptions& options) {
  if (options.threads == 0) return DefaultThreads();
  return InRange(options.threads, limits::kThreadsMax, "the number of threads");
}

std::vector<size_t> TensorsOf(const plugin::Description& description) {
  std::set<size_t> tensors;  // aliases and row ranges share one
  for (const plugin::Weight& weight : description.weights) {
    if (weight.present) tensors.insert(weight.tensor);
  }
  return {tensors.begin(), tensors.end()};
}

std::vector<memory::PlaneSpec> PlanesOf(const plugin::Description& description) {
  std::vector<memory::PlaneSpec> planes;
  planes.reserve(description.planes.size());
  for (const plugin::Plane& plane : description.planes) {
    planes.push_back({.name = plane.name,
                      .plane_class = plane.plane_class,
                      .type = plane.type,
                      .width = static_cast<int64_t>(plane.width)});
  }
  return planes;
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

std::string PlaneTypeName(bl_plane_class plane_class) {
  switch (plane_class) {
    case BL_CLASS_K:
      return "planes k";
    case BL_CLASS_V:
      return "planes v";
    default:
      return "planes of class " + std::to_string(plane_class);
  }
}

}  // namespace

plugin::InstanceOptions InstanceOptionsOf(const SeatOptions& options) {
  const auto choice = [](bl_plane_class plane_class, bl_dtype type) {
    return bl_plane_type{.plane_class = plane_class, .type = type};
  };
  return {.n_slots = options.slots,
          .n_ctx = options.slot_context,
          .rows_max = options.rows_max,
          .plane_types = {choice(BL_CLASS_K, options.k_type), choice(BL_CLASS_V, options.v_type)}};
}

std::vector<int32_t> RowBuckets(int32_t rows_max) {
  std::vector<int32_t> buckets;
  for (int32_t rows = 1; rows < rows_max; rows = rows < 8 ? rows + 1 : rows * 2) {
    buckets.push_back(rows);
  }
  buckets.push_back(rows_max);
  return buckets;
}

Seat::Seat(const model::ModelFile& model, const SeatSource& source, const SeatOptions& options)
    : limits_(LimitsOf(*source.description, options)),
      description_(*source.description),
      backend_(&ops::FindBackend(options.kernels)),
      info_(MakeSeatInfo(description_)),
      operators_(source.plugin, description_),
      tensors_(TensorsOf(description_)),
      plane_specs_(PlanesOf(description_)),
      plan_(options.host_budget, options.host_budget == 0 ? options.available() : std::nullopt),
      weight_source_(options.weight_source),
      inputs_(limits_.rows_max) {
  const int32_t threads = ThreadsOf(options);
  PrepareKernels(description_);
  std::vector<LoweredGraph> lowered = LowerAll(source, options);
  for (const LoweredGraph& graph : lowered) {
    arena_bytes_ = std::max(arena_bytes_, graph.arena_bytes);
    scratch_bytes_ = std::max(scratch_bytes_, graph.scratch_bytes);
  }
  const uint64_t weight_bytes = memory::WeightStore::Bytes(model, tensors_);
  if (weight_source_ == memory::WeightSource::kAuto) {
    memory::HostPlan read = plan_;
    Plan(weight_bytes, memory::WeightSource::kRead, threads, read);
    weight_source_ = read.Fits() ? memory::WeightSource::kRead : memory::WeightSource::kMap;
    if (!read.Fits()) {
      LOG(WARNING) << read.Line() << ": it does not fit; weights are mapped from the file instead";
    }
  }
  Plan(weight_bytes, weight_source_, threads, plan_);
  plan_.Check();
  for (LoweredGraph& graph : lowered) inexact_.merge(graph.inexact);

  weights_ =
      std::make_unique<memory::WeightStore>(model, tensors_, weight_source_, options.progress);
  memory::CheckFinite(model, tensors_, *weights_);
  planes_ = std::make_unique<memory::PlaneStore>(plane_specs_, limits_.slots, limits_.slot_context);
  arena_ = memory::HostBuffer(arena_bytes_, "buffers of a pass");
  logits_ = memory::HostBuffer(static_cast<uint64_t>(limits_.rows_max) *
                                   static_cast<uint64_t>(limits_.vocabulary) * sizeof(float),
                               "logits");
  const SeatMemory memory = {.backend = backend_,
                             .threads = threads,
                             .arena = arena_.data(),
                             .logits = reinterpret_cast<float*>(logits_.data()),
                             .inputs = &inputs_,
                             .planes = planes_.get(),
                             .weights = weights_.get(),
                             .description = &description_};
  programs_.reserve(lowered.size());
  for (LoweredGraph& graph : lowered) programs_.emplace_back(std::move(graph), memory);
  pool_ = std::make_unique<Pool>(threads, scratch_bytes_, options.pin);
}

Seat::~Seat() = default;

std::vector<LoweredGraph> Seat::LowerAll(const SeatSource& source,
                                         const SeatOptions& options) const {
  LowerOptions lower{.backend = backend_,
                     .threads = ThreadsOf(options),
                     .slots = limits_.slots,
                     .slot_context = limits_.slot_context,
                     .wanted = {"logits"}};
  lower.wanted.insert(lower.wanted.end(), options.observe.begin(), options.observe.end());
  std::vector<LoweredGraph> lowered;
  for (const int32_t rows : RowBuckets(limits_.rows_max)) {
    graph::GraphBuilder builder(operators_.set(), info_, {.rows = rows, .logit_rows = rows});
    auto build = graph::MakeAbi<bl_build>();
    build.rows = rows;
    build.logit_rows = rows;
    build.class_flags = 1U << BL_ROW_TEXT;
    build.device = BL_DEVICE_CPU;
    try {
      source.build(*builder.abi(), build);
    } catch (const Error&) {
      // The builder's reason says more than the plugin's "a call was refused".
      if (builder.failure()) throw Error(*builder.failure());
      throw;
    }
    graph::Graph graph = builder.Take();
    const graph::ValueId logits = graph.FindExport("logits");
    if (logits != 0) {
      const graph::Shape& shape = graph.value(logits).shape;
      if (shape.dtype != BL_F32 || shape.domain != BL_DOMAIN_LOGIT_ROWS ||
          shape.width() != limits_.vocabulary) {
        throw Error(ErrorKind::kBadModel, "the plugin's graph exports 'logits' as " +
                                              ToString(shape) + ", must be F32 [" +
                                              std::to_string(limits_.vocabulary) + ", logit rows]");
      }
    }
    lower.rows = rows;
    lowered.push_back(Lower(std::move(graph), description_, lower));
  }
  return lowered;
}

void Seat::Plan(uint64_t weight_bytes, memory::WeightSource source, int32_t threads,
                memory::HostPlan& plan) const {
  if (source == memory::WeightSource::kMap) {
    plan.AddMapped("weights", weight_bytes);
  } else {
    plan.Add("weights", weight_bytes);
  }
  for (const bl_plane_class plane_class : {BL_CLASS_K, BL_CLASS_V, BL_CLASS_LATENT, BL_CLASS_INDEX,
                                           BL_CLASS_RAW, BL_CLASS_RECURRENT, BL_CLASS_TAP}) {
    uint64_t bytes = 0;
    for (const memory::PlaneSpec& plane : plane_specs_) {
      if (plane.plane_class != plane_class) continue;
      bytes += memory::PlaneStore::Bytes(plane, limits_.slots, limits_.slot_context);
    }
    if (bytes > 0) plan.Add(PlaneTypeName(plane_class), bytes);
  }
  plan.Add("pass buffers", arena_bytes_);
  plan.Add("logits", static_cast<uint64_t>(limits_.rows_max) *
                         static_cast<uint64_t>(limits_.vocabulary) * sizeof(float));
  plan.Add("scratch of " + std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
           scratch_bytes_ * static_cast<uint64_t>(threads));
}

void Seat::CheckRows(std::span<const PassRow> rows) const {
  const auto refuse = [](size_t row, const std::string& text) {
    throw Error(ErrorKind::kInternal, "pass row " + std::to_string(row) + ": " + text);
  };
  if (rows.empty() || rows.size() > static_cast<size_t>(limits_.rows_max)) {
    throw Error(ErrorKind::kInternal, "a pass of " + std::to_string(rows.size()) +
                                          " rows; this seat takes 1 to " +
                                          std::to_string(limits_.rows_max));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const PassRow& row = rows[i];
    if (row.slot < 0 || row.slot >= limits_.slots) {
      refuse(i, "there is no slot " + std::to_string(row.slot));
    }
    if (row.token < 0 || row.token >= limits_.vocabulary) {
      refuse(i, "token " + std::to_string(row.token) + " is outside the vocabulary of " +
                    std::to_string(limits_.vocabulary));
    }
    const bool follows = i > 0 && rows[i - 1].slot == row.slot;
    const int32_t expected = follows ? rows[i - 1].index + 1 : planes_->Length(row.slot);
    if (row.index != expected || row.index >= limits_.slot_context) {
      refuse(i, "index " + std::to_string(row.index) + " in slot " + std::to_string(row.slot) +
                    ", where " + std::to_string(expected) + " of " +
                    std::to_string(limits_.slot_context) + " comes next");
    }
    if (follows) continue;
    // A second stretch of a slot would start at the slot's old length.
    for (size_t j = 0; j < i; ++j) {
      if (rows[j].slot == row.slot) refuse(i, "the rows of its slot are not contiguous");
    }
  }
}

const Program& Seat::ProgramFor(size_t rows) const {
  for (const Program& program : programs_) {
    if (static_cast<size_t>(program.rows()) >= rows) return program;
  }
  return programs_.back();
}

void Seat::Run(std::span<const PassRow> rows) {
  CheckRows(rows);
  const kernels::ScopedFpEnvironment environment;
  inputs_.Set(rows);
  const Program& program = ProgramFor(rows.size());
  last_ = nullptr;
  for (const ProgramStep& step : program.steps()) {
    const StepFailure failure = observer_ == nullptr
                                    ? pool_->Run(*step.step, step.ahead)
                                    : RunObserved(step, &step == &program.steps().front());
    ++counters_.dispatches;
    if (failure.status != BL_OK) Fail(step, failure, rows);
  }
  last_ = &program;
  ++counters_.passes;
  for (const PassRow& row : rows) planes_->SetLength(row.slot, row.index + 1);
}

StepFailure Seat::RunObserved(const ProgramStep& step, bool first) {
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

void Seat::Fail(const ProgramStep& step, const StepFailure& failure,
                std::span<const PassRow> rows) const {
  std::string text = "operator " + std::string(step.op);
  if (step.layer >= 0) text += ", layer " + std::to_string(step.layer);
  if (failure.row >= 0 && static_cast<size_t>(failure.row) < rows.size()) {
    const PassRow& row = rows[static_cast<size_t>(failure.row)];
    text += ", row " + std::to_string(failure.row) + " (slot " + std::to_string(row.slot) +
            ", position " + std::to_string(row.index) + ")";
  }
  text += failure.status == BL_BAD_DATA
              ? ": a value is not finite or out of range"
              : ": its kernel failed with status " + std::to_string(failure.status);
  throw Error(ErrorKind::kInternal, text);
}

std::span<const float> Seat::Logits(int32_t i) const {
  const Observation logits = Observe("logits");
  if (i < 0 || i >= logits.rows) {
    throw Error(ErrorKind::kInternal, "logit row " + std::to_string(i) + " of a pass that had " +
                                          std::to_string(logits.rows));
  }
  return logits.Floats().subspan(static_cast<size_t>(i) * static_cast<size_t>(logits.width),
                                 static_cast<size_t>(logits.width));
}

Observation Seat::Observe(std::string_view name) const {
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

void Seat::Cut(int32_t slot, int32_t length) {
  if (slot < 0 || slot >= limits_.slots || length < 0) {
    throw Error(ErrorKind::kInternal,
                "cut of slot " + std::to_string(slot) + " to length " + std::to_string(length));
  }
  if (length < planes_->Length(slot)) planes_->SetLength(slot, length);
}

int32_t Seat::Keepable(int32_t slot, int32_t length) const {
  // Append planes can be cut anywhere.
  return std::clamp(length, 0, planes_->Length(slot));
}

void Seat::CopySlot(int32_t from, int32_t to, int32_t length) {
  const auto exists = [&](int32_t slot) { return slot >= 0 && slot < limits_.slots; };
  if (!exists(from) || !exists(to) || from == to || length < 0 || length > planes_->Length(from)) {
    throw Error(ErrorKind::kInternal, "copy of " + std::to_string(length) + " rows from slot " +
                                          std::to_string(from) + " to slot " + std::to_string(to));
  }
  planes_->Copy(from, to, length);
}

SeatCounters Seat::counters() const {
  SeatCounters counters = counters_;
  const Pool::Counts counts = pool_->counts();
  counters.weight_bytes_read = counts.weight_bytes_read;
  counters.experts_picked = counts.experts_picked;
  counters.expert_bytes = counts.expert_bytes;
  counters.wait_seconds = counts.wait_seconds;
  return counters;
}

uint64_t Seat::DenseBytes() const {
  uint64_t bytes = 0;
  for (const plugin::Weight& weight : description_.weights) {
    if (!weight.present || weight.role == BL_ROLE_ROUTED || weight.role == BL_ROLE_TABLE) continue;
    bytes += weight.bytes;
  }
  return bytes;
}

std::unique_ptr<Seat> LoadSeat(const model::ModelFile& model, plugin::Instance& instance,
                               const SeatOptions& options) {
  const plugin::Description& description = instance.description();
  const SeatSource source = {.plugin = instance.plugin().name,
                             .description = &description,
                             .build = [&](const bl_builder& builder, const bl_build& build) {
                               instance.Build(description.main_entry, builder, build);
                             }};
  return std::make_unique<Seat>(model, source, options);
}

}  // namespace bloomery::exec
