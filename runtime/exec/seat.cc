#include "runtime/exec/seat.h"

#include <algorithm>
#include <array>
#include <set>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/exec/card_loading.h"
#include "runtime/exec/cpu/cpu_seat.h"
#include "runtime/exec/device_names.h"
#include "runtime/graph/abi.h"
#include "runtime/graph/builder.h"

namespace bloomery::exec {
namespace {

SeatLimits LimitsOf(const plugin::Description& description, const SeatOptions& options) {
  return {.slots = CheckedOption(options.slots, limits::kSlotsMax, "the number of slots"),
          .slot_context =
              CheckedOption(options.slot_context, limits::kSlotContextMax, "the context of a slot"),
          .rows_max = CheckedOption(options.rows_max, limits::kUbatchRowsMax, "the ubatch"),
          .vocabulary = static_cast<int32_t>(description.vocabulary),
          .window_rows =
              CheckedOption(options.window_rows, limits::kWindowRowsMax, "the rows of a window")};
}

// In the order of plans.
constexpr std::array<bl_plane_class, 7> kPlaneClasses = {
    BL_CLASS_K,   BL_CLASS_V,         BL_CLASS_LATENT, BL_CLASS_INDEX,
    BL_CLASS_RAW, BL_CLASS_RECURRENT, BL_CLASS_TAP};

std::string PlaneTermName(bl_plane_class plane_class) {
  switch (plane_class) {
    case BL_CLASS_K:
      return "planes k";
    case BL_CLASS_V:
      return "planes v";
    case BL_CLASS_RECURRENT:
      return "recurrent states";
    case BL_CLASS_TAP:
      return "taps of drafts";
    default:
      return "planes of class " + std::to_string(plane_class);
  }
}

}  // namespace

int32_t CheckedOption(int32_t value, int32_t most, const char* what) {
  if (value < 1 || value > most) {
    throw Error(ErrorKind::kUsage, std::string(what) + " is " + std::to_string(value) +
                                       ", must be from 1 to " + std::to_string(most));
  }
  return value;
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
                      .rule = plane.rule,
                      .type = plane.type,
                      .width = static_cast<int64_t>(plane.width),
                      .window = static_cast<int64_t>(plane.window)});
  }
  return planes;
}

std::vector<memory::PlanTerm> PlaneTerms(
    std::span<const memory::PlaneSpec> planes,
    const std::function<uint64_t(const memory::PlaneSpec&)>& bytes) {
  std::vector<memory::PlanTerm> terms;
  for (const bl_plane_class plane_class : kPlaneClasses) {
    uint64_t sum = 0;
    for (const memory::PlaneSpec& plane : planes) {
      if (plane.plane_class != plane_class) continue;
      sum = CheckedAdd(sum, bytes(plane), ErrorKind::kNoMemory, "planes");
    }
    if (sum > 0) terms.push_back({PlaneTermName(plane_class), sum});
  }
  return terms;
}

memory::HostRoom HostRoomOf(const SeatOptions& options) {
  return {.budget = options.host_budget,
          .available = options.host_budget == 0 ? options.available() : std::nullopt};
}

plugin::InstanceOptions InstanceOptionsOf(const SeatOptions& options) {
  const auto choice = [](bl_plane_class plane_class, bl_dtype type) {
    return bl_plane_type{.plane_class = plane_class, .type = type};
  };
  return {.n_slots = options.slots,
          .n_ctx = options.slot_context,
          .rows_max = options.rows_max,
          .plane_types = {choice(BL_CLASS_K, options.k_type), choice(BL_CLASS_V, options.v_type)},
          .features = static_cast<uint32_t>(options.drafts ? BL_FEATURE_OBSERVE | BL_FEATURE_DRAFT
                                                           : BL_FEATURE_OBSERVE),
          .draft_rows_max = options.drafts ? options.window_rows - 1 : 0};
}

std::vector<int32_t> RowBuckets(int32_t rows_max) {
  std::vector<int32_t> buckets;
  for (int32_t rows = 1; rows < rows_max; rows = rows < 8 ? rows + 1 : rows * 2) {
    buckets.push_back(rows);
  }
  buckets.push_back(rows_max);
  return buckets;
}

Seat::Seat(const SeatSource& source, const SeatOptions& options)
    : limits_(LimitsOf(*source.description, options)),
      description_(*source.description),
      info_(MakeSeatInfo(description_)),
      operators_(source.plugin, description_) {
  const auto fixed = [](const plugin::Plane& plane) { return plane.rule == BL_PLANE_FIXED; };
  if (std::ranges::any_of(description_.planes, fixed)) {
    lanes_.emplace(limits_.slots, memory::LanesOfWindow(limits_.window_rows));
  }
}

Seat::~Seat() = default;

memory::SeatSizes Seat::SizesToPlan() const {
  memory::SeatSizes sizes;
  sizes.slots = limits_.slots;
  sizes.slot_context = limits_.slot_context;
  sizes.rows_max = limits_.rows_max;
  for (const plugin::Bank& bank : description_.banks) {
    memory::BankShape shape = {.layer = bank.layer, .experts = bank.experts, .used = bank.used};
    for (const uint32_t part : {bank.gate, bank.up, bank.down}) {
      shape.host_bytes += description_.weights[part].bytes / bank.experts;
    }
    sizes.banks.push_back(shape);
  }
  return sizes;
}

graph::Graph Seat::BuildGraph(const BuildEntry& entry, int32_t rows, int32_t logit_rows,
                              bl_device_kind device) const {
  graph::GraphBuilder builder(operators_.set(), info_, {.rows = rows, .logit_rows = logit_rows});
  auto build = graph::MakeAbi<bl_build>();
  build.rows = rows;
  build.logit_rows = logit_rows;
  build.class_flags = 1U << BL_ROW_TEXT;
  build.device = device;
  try {
    entry(*builder.abi(), build);
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
  return graph;
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
    const int32_t expected = follows ? rows[i - 1].index + 1 : Length(row.slot);
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

void Seat::PrepareRings(std::span<const PassRow> rows, memory::Rings* rings) const {
  for (size_t i = 0; i < rows.size(); ++i) {
    const PassRow& row = rows[i];
    const bool first = i == 0 || rows[i - 1].slot != row.slot;
    if (first && !rings->Hold(row.slot, row.index)) {
      throw Error(ErrorKind::kInternal, "slot " + std::to_string(row.slot) + " holds " +
                                            std::to_string(row.index) +
                                            " rows, but not the state behind them");
    }
    rings->WillWrite(row.slot, row.index + 1);
  }
}

void Seat::DraftRows(std::span<const DraftRow> rows, std::vector<PassRow>* out) const {
  out->clear();
  for (const DraftRow& row : rows) {
    const bool slot =
        row.slot >= 0 && row.slot < limits_.slots && (out->empty() || row.slot > out->back().slot);
    const int32_t index = slot && row.depth >= 0 ? Length(row.slot) + row.depth : -1;
    if (index < 0 || index >= limits_.slot_context || row.token < 0 ||
        row.token >= limits_.vocabulary) {
      throw Error(ErrorKind::kInternal, "a draft of token " + std::to_string(row.token) + " at " +
                                            std::to_string(row.depth) + " behind slot " +
                                            std::to_string(row.slot));
    }
    out->push_back({.slot = row.slot, .index = index, .token = row.token, .logits = true});
  }
}

void Seat::CheckCopy(int32_t from, int32_t to, int32_t length) const {
  const auto exists = [&](int32_t slot) { return slot >= 0 && slot < limits_.slots; };
  if (!exists(from) || !exists(to) || from == to || length < 0 ||
      Keepable(from, length) != length) {
    throw Error(ErrorKind::kInternal, "copy of " + std::to_string(length) + " rows from slot " +
                                          std::to_string(from) + " to slot " + std::to_string(to));
  }
}

uint64_t Seat::StateRowBytes() const {
  uint64_t bytes = 0;
  for (const memory::PlaneSpec& plane : PlanesOf(description_)) {
    if (plane.rule == BL_PLANE_APPEND) bytes += memory::PlaneRowBytes(plane);
  }
  return bytes;
}

uint64_t Seat::CheckpointBytes() const {
  uint64_t bytes = 0;
  for (const memory::PlaneSpec& plane : PlanesOf(description_)) {
    bytes += memory::PlaneStateBytes(plane);
  }
  return bytes;
}

std::string Seat::StateFormat() const {
  std::string text;
  for (const memory::PlaneSpec& plane : PlanesOf(description_)) {
    text += (text.empty() ? "" : ",") + plane.name + ":" +
            std::to_string(static_cast<int>(plane.plane_class)) + ":" +
            std::to_string(static_cast<int>(plane.type)) + ":" + std::to_string(plane.width);
    if (plane.rule == BL_PLANE_FIXED) text += ":fixed";
    if (plane.rule == BL_PLANE_RING) text += ":ring" + std::to_string(plane.window);
  }
  return text;
}

void Seat::CheckRead(int32_t slot, int32_t first, int32_t rows, size_t bytes) const {
  if (slot >= 0 && slot < limits_.slots && first >= 0 && rows >= 1 && rows <= RowChunk::kRowsMax &&
      first <= Length(slot) - rows && bytes == static_cast<uint64_t>(rows) * StateRowBytes()) {
    return;
  }
  throw Error(ErrorKind::kInternal, "reading " + std::to_string(rows) + " rows from row " +
                                        std::to_string(first) + " of slot " + std::to_string(slot) +
                                        " into " + std::to_string(bytes) + " bytes");
}

void Seat::CheckAppend(int32_t slot, const RowChunk& chunk, int32_t skip, int32_t count) const {
  if (slot >= 0 && slot < limits_.slots && chunk.rows >= 1 && chunk.rows <= RowChunk::kRowsMax &&
      chunk.bytes.size() == static_cast<uint64_t>(chunk.rows) * StateRowBytes() && skip >= 0 &&
      count >= 1 && skip <= chunk.rows - count && count <= limits_.slot_context - Length(slot)) {
    return;
  }
  throw Error(ErrorKind::kInternal, "appending " + std::to_string(count) + " rows from row " +
                                        std::to_string(skip) + " of a chunk of " +
                                        std::to_string(chunk.rows) + " to slot " +
                                        std::to_string(slot));
}

void Seat::CheckRestore(int32_t slot, int32_t length, size_t bytes) const {
  if (slot >= 0 && slot < limits_.slots && length >= 1 && length <= Length(slot) && bytes > 0 &&
      bytes == CheckpointBytes()) {
    return;
  }
  throw Error(ErrorKind::kInternal, "restoring a state of " + std::to_string(bytes) +
                                        " bytes behind " + std::to_string(length) +
                                        " rows of slot " + std::to_string(slot));
}

void Seat::CheckCut(int32_t slot, int32_t length) const {
  if (slot < 0 || slot >= limits_.slots || length < 0) {
    throw Error(ErrorKind::kInternal,
                "cut of slot " + std::to_string(slot) + " to length " + std::to_string(length));
  }
}

int32_t Seat::Keepable(int32_t slot, int32_t length) const {
  const int32_t most = std::clamp(length, 0, Length(slot));
  const int32_t rows = lanes_ ? lanes_->Keepable(slot, most) : most;
  return rings().Hold(slot, rows) ? rows : 0;  // shorter ones are further back
}

int32_t Seat::CheckpointLane(int32_t slot, size_t bytes) const {
  const bool there = slot >= 0 && slot < limits_.slots && bytes == CheckpointBytes() && bytes > 0 &&
                     Length(slot) > 0 && Keepable(slot, Length(slot)) == Length(slot);
  if (!there) {
    throw Error(ErrorKind::kInternal, "slot " + std::to_string(slot) +
                                          " has no state to read into " + std::to_string(bytes) +
                                          " bytes");
  }
  return lanes_ ? lanes_->Holding(slot, Length(slot)) : memory::Lanes::kNone;
}

void Seat::FailPass(std::string_view op, int32_t layer, bl_status status, int64_t failed,
                    std::span<const PassRow> rows) const {
  std::string text = "operator " + std::string(op);
  if (layer >= 0) text += ", layer " + std::to_string(layer);
  if (failed >= 0 && static_cast<size_t>(failed) < rows.size()) {
    const PassRow& row = rows[static_cast<size_t>(failed)];
    text += ", row " + std::to_string(failed) + " (slot " + std::to_string(row.slot) +
            ", position " + std::to_string(row.index) + ")";
  }
  text += status == BL_BAD_DATA ? ": a value is not finite or out of range"
                                : ": its kernel failed with status " + std::to_string(status);
  throw Error(ErrorKind::kInternal, text);
}

std::vector<BankPicks> Seat::Banks(const std::string& tier, const PickCounts* picks) const {
  std::vector<BankPicks> banks;
  for (size_t i = 0; i < description_.banks.size(); ++i) {
    const plugin::Bank& bank = description_.banks[i];
    banks.push_back(
        {.layer = bank.layer, .experts = bank.experts, .used = bank.used, .tier = tier});
    if (picks != nullptr) banks.back().picks = picks->Read(i);
  }
  return banks;
}

void Seat::StartResidency(const SeatOptions& options) {
  // The banks of drafts are no pass's.
  const auto main_banks =
      std::ranges::count(description_.banks, BL_OWNER_MAIN, &plugin::Bank::owner);
  driver_ = std::make_unique<ResidencyDriver>(
      std::span(description_.banks).first(static_cast<size_t>(main_banks)), limits_.rows_max, *this,
      options.residency);
}

void Seat::BeginMove(const ExpertMove& move) {
  throw Error(ErrorKind::kInternal, "expert " + std::to_string(move.in) + " of bank " +
                                        std::to_string(move.bank) +
                                        " cannot move: the banks of this seat are not split");
}

uint64_t Seat::DenseBytes() const {
  uint64_t bytes = 0;
  for (const plugin::Weight& weight : description_.weights) {
    if (!weight.present || weight.owner != BL_OWNER_MAIN) continue;
    if (weight.role == BL_ROLE_ROUTED || weight.role == BL_ROLE_TABLE) continue;
    bytes += weight.bytes;
  }
  return bytes;
}

uint64_t MarginOf(const SeatOptions& options, uint32_t card) {
  const std::vector<uint32_t> cards = CardsNamed(options.device);
  const size_t at = options.device == "auto"
                        ? card
                        : static_cast<size_t>(std::ranges::find(cards, card) - cards.begin());
  return at < options.card_margins.size() ? options.card_margins[at] : options.card_margin;
}

namespace {

bool OnHost(const SeatOptions& options) {
  return options.device == "none" || options.device == "cpu" ||
         options.placing.place == memory::Place::kHost;
}

// "auto" with nothing said that only a card can do.
bool AnyDevice(const SeatOptions& options) {
  return options.device == "auto" && options.placing.place == memory::Place::kAuto;
}

}  // namespace

std::unique_ptr<Seat> LoadSeat(const model::ModelFile& model, plugin::Instance& instance,
                               const SeatOptions& options) {
  const plugin::Description& description = instance.description();
  SeatSource source = {.plugin = instance.plugin().name,
                       .description = &description,
                       .build = [&](const bl_builder& builder, const bl_build& build) {
                         instance.Build(description.main_entry, builder, build);
                       }};
  if (options.drafts) {
    if (!description.draft_entry) {
      throw Error(ErrorKind::kUnsupported,
                  "--draft mtp: " + model.path() +
                      " holds no draft head (a block for the next token behind its layers) that "
                      "plugin " +
                      source.plugin + " could run; take --draft lookup or --draft off");
    }
    source.build_draft = [&](const bl_builder& builder, const bl_build& build) {
      instance.Build(*description.draft_entry, builder, build);
    };
  }
  CardsNamed(options.device);  // refuses what is no device
  if (OnHost(options)) return std::make_unique<CpuSeat>(model, source, options);
  if (!AnyDevice(options)) return LoadCardSeat(model, source, options);
  try {
    return LoadCardSeat(model, source, options);
  } catch (const Error& error) {
    const bool of_cards = error.kind() == ErrorKind::kDevice ||
                          error.kind() == ErrorKind::kNoMemory ||
                          error.kind() == ErrorKind::kUnsupported;
    if (!of_cards) throw;
    if (DriverIsThere()) {
      LOG(WARNING) << "the model runs on the CPU, not on a card: " << error.what();
    } else {
      LOG(INFO) << "the model runs on the CPU: " << error.what();
    }
  }
  return std::make_unique<CpuSeat>(model, source, options);
}

}  // namespace bloomery::exec
