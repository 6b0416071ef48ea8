// What a seat on cards will be, before anything is allocated: its graphs cut into stages, lowered
// and sized, and what the planner is asked for.
#include <algorithm>
#include <array>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/exec/cuda/card_load.h"
#include "runtime/exec/cuda/card_lower.h"
#include "runtime/exec/cuda/card_seat.h"
#include "runtime/exec/draft_graph.h"

namespace bloomery::exec {
namespace {

// The exported values of these names.
std::vector<graph::ValueId> ValuesOf(const graph::Graph& graph,
                                     std::span<const std::string> names) {
  std::vector<graph::ValueId> values;
  for (const std::string& name : names) {
    values.push_back(graph.FindExport(name));
    if (values.back() != 0) continue;
    throw Error(ErrorKind::kBadModel, "the plugin's graph exports no '" + name + "'");
  }
  return values;
}

// Those of passes that no stage before has.
std::vector<uint32_t> BanksLeft(const plugin::Description& description,
                                std::span<const CardStagePlan> before) {
  std::vector<uint32_t> banks;
  for (uint32_t i = 0; i < description.banks.size(); ++i) {
    const auto has = [i](const CardStagePlan& plan) {
      return std::ranges::binary_search(plan.banks, i);
    };
    if (description.banks[i].owner != BL_OWNER_MAIN || std::ranges::any_of(before, has)) continue;
    banks.push_back(i);
  }
  return banks;
}

// Bytes of one expert's gate, up and down on a card that has all of them.
std::array<uint64_t, 3> ExpertParts(const plugin::Bank& bank, const CardWeightLayout& whole) {
  std::array<uint64_t, 3> parts{};
  for (const auto& [part, at] : {std::pair{bank.gate, 0U}, {bank.up, 1U}, {bank.down, 2U}}) {
    parts.at(at) = whole.place(part).bytes / bank.experts;
  }
  return parts;
}

}  // namespace

int32_t CardSeat::LogitRowsOf(int32_t rows) { return std::min(rows, limits::kCardLogitRowsMax); }

// While one card is at a part, another can be at the next.
int32_t CardSeat::PartsOf(const SeatOptions& options, size_t stages) const {
  if (stages < 2 || !options.observe.empty()) return 1;
  return std::max(1, std::min(options.batch_rows, limits::kUbatchRowsMax) / part_rows_);
}

std::vector<CardStagePlan> CardSeat::PlanStages(const SeatSource& source,
                                                const SeatOptions& options,
                                                std::span<const CardInfo> cards,
                                                std::span<const memory::LayerRange> layers,
                                                const CardWeightLayout& whole, bool split) const {
  std::vector<CardStagePlan> plans;
  std::vector<int32_t> ends;
  for (size_t i = 0; i < cards.size(); ++i) {
    plans.push_back({.card = cards[i], .layers = layers[i]});
    ends.push_back(static_cast<int32_t>(layers[i].end));
  }
  std::vector<std::string> names = {"logits"};
  names.insert(names.end(), options.observe.begin(), options.observe.end());
  for (const int32_t rows : buckets_) {
    const graph::Graph graph = BuildGraph(source.build, rows, LogitRowsOf(rows), BL_DEVICE_CUDA);
    std::vector<graph::Stage> stages = graph::CutIntoStages(graph, ends, ValuesOf(graph, names));
    for (size_t i = 0; i < stages.size(); ++i) {
      const graph::Stage& stage = stages[i];
      CardStagePlan& plan = plans[i];
      plan.Take(description_, stage.graph);
      CardLowerOptions lower{.rows = rows,
                             .top_rows = TopRows(rows),
                             .weights = &whole,
                             .slots = limits_.slots,
                             .slot_context = limits_.slot_context,
                             .split = split,
                             .picks = PicksAsked(options, split),
                             .crossings = stage.crossings};
      for (const std::string& name : names) {
        if (stage.graph.FindExport(name) != 0) lower.wanted.push_back(name);
      }
      for (const graph::Export& exported : stage.graph.exports) {
        if (exported.name == graph::CrossingName(exported.value)) {
          lower.wanted.push_back(exported.name);
        }
      }
      // One that no graph has is missed by the last stage.
      const bool last = i + 1 == stages.size();
      lower.banks = last ? BanksLeft(description_, std::span(plans).first(i)) : plan.banks;
      plan.passes.push_back(LowerForCard(stage.graph, description_, lower));
    }
  }
  PlanDrafts(source, whole, &plans.back());
  CardStagePlan& last = plans.back();
  last.logits_bytes = static_cast<uint64_t>(LogitRowsOf(part_rows_)) * LogitRowBytes();
  for (size_t plane = 0; plane < description_.planes.size(); ++plane) {
    const auto there = [&](const CardStagePlan& plan) { return plan.planes[plane]; };
    const auto stages = std::ranges::count_if(plans, there);
    if (stages == 0) last.planes[plane] = true;
    if (stages < 2) continue;
    throw Error(ErrorKind::kUnsupported, "plane '" + description_.planes[plane].name +
                                             "' would lie on several cards of --device: take one");
  }
  return plans;
}

void CardSeat::PlanDrafts(const SeatSource& source, const CardWeightLayout& whole,
                          CardStagePlan* last) const {
  for (const int32_t rows : draft_buckets_) {
    const graph::Graph graph = BuildGraph(source.build_draft, rows, rows, BL_DEVICE_CUDA);
    CheckDraftGraph(graph, description_, source.plugin);
    last->Take(description_, graph);
    last->drafts.push_back(LowerForCard(graph, description_,
                                        {.rows = rows,
                                         .top_rows = rows,
                                         .weights = &whole,
                                         .slots = limits_.slots,
                                         .slot_context = limits_.slot_context,
                                         .wanted = {"logits"}}));
  }
}

memory::StageSizes CardSeat::StageToPlan(const model::ModelFile& model,
                                         const CardWeightLayout& whole, const CardStagePlan& stage,
                                         bool split) const {
  const CardStageSizes sizes = stage.Sizes(description_);
  const CardWeightLayout layout(model, stage.Describe(description_));
  memory::StageSizes plan{.layers = stage.layers, .banks = stage.banks, .dense = layout.bytes()};
  for (const uint32_t bank : stage.banks) {
    const memory::BankShape shape{.card_parts = ExpertParts(description_.banks[bank], whole)};
    plan.dense -= shape.CardBytes(description_.banks[bank].experts);
  }
  std::vector<memory::PlaneSpec> here = PlanesOf(description_);
  size_t at = 0;
  std::erase_if(here, [&](const memory::PlaneSpec&) { return !stage.planes[at++]; });
  plan.beside = PlaneTerms(here, [&](const memory::PlaneSpec& plane) {
    return CardPlanes::Bytes(plane, limits_.slots, limits_.slot_context, limits_.rows_max,
                             LanesOfSlot());
  });
  uint64_t planes = 0;
  for (const memory::PlanTerm& term : plan.beside) planes += term.bytes;
  const uint64_t rounding = CardBuffer::Granules(planes) - planes;  // planes are one allocation
  const auto beside = [&](const char* name, uint64_t bytes) {
    if (bytes > 0) plan.beside.push_back({name, bytes});
  };
  beside("pass buffers", CardBuffer::Granules(sizes.arena) + rounding);
  beside("logits", CardBuffer::Granules(sizes.logits));
  beside("workspace", CardBuffer::Granules(sizes.Small()));
  if (split) {
    plan.moving = [this, banks = stage.banks](std::span<const uint32_t> frames) {
      return CardBuffer::Granules(
          CardSplit::CardBytes(description_, banks, frames, limits_.rows_max));
    };
  }
  plan.loading = layout.staging_bytes();
  return plan;
}

memory::SeatSizes CardSeat::SizesToPlan(const model::ModelFile& model, const SeatOptions& options,
                                        const CardWeightLayout& whole,
                                        std::span<const CardStagePlan> stages,
                                        memory::Place place) const {
  const bool split = place == memory::Place::kSplit;
  memory::SeatSizes plan = Seat::SizesToPlan();
  plan.rows_max = part_rows_;
  plan.batch_rows = limits_.rows_max;
  const auto parts = static_cast<uint64_t>(limits_.rows_max / part_rows_);
  for (size_t i = 0; i < plan.banks.size(); ++i) {
    plan.banks[i].card_parts = ExpertParts(description_.banks[i], whole);
  }
  uint64_t words = 0;
  for (const CardStagePlan& stage : stages) {
    words = std::max(words, stage.Sizes(description_).words);
    plan.stages.push_back(StageToPlan(model, whole, stage, split));
  }
  plan.host_beside.push_back({"pinned for logits, rows and saved states",
                              parts * (1 + stages.size()) * words +
                                  static_cast<uint64_t>(HostLogitRows()) * LogitRowBytes() +
                                  ChunkBytes()});
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
        {"pinned for hand-offs", SplitHost::PinnedBytes(description_, limits_.rows_max) +
                                     stages.size() * CardSplit::PinnedBytes(description_)});
    for (memory::PlanTerm& term : terms) {
      plan.host_loading += term.bytes;  // taken before weights load
      plan.host_beside.push_back(std::move(term));
    }
  }
  return plan;
}

}  // namespace bloomery::exec
