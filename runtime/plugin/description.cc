#include "runtime/plugin/description.h"

#include <set>

#include "runtime/plugin/check_context.h"

namespace bloomery::plugin {
namespace {

constexpr std::string_view kEntryNames[] = {"MAIN",        "DRAFT_STORE", "DRAFT_STEP",
                                            "DRAFT_BLOCK", "ENCODE",      "HIDDEN"};

bl_seat CheckSeat(const CheckContext& context, const bl_seat& raw) {
  const Item item(context, "seat");
  const bl_seat seat = CopySized(&raw, "plugin '" + std::string(context.plugin) + "': seat");
  item.Require(
      seat.layers > 0 && seat.layers <= limits::kSeatLayersMax, "layers",
      std::to_string(seat.layers) + ", outside 1 … " + std::to_string(limits::kSeatLayersMax));
  item.Require(seat.vocabulary > 0 && seat.vocabulary <= uint64_t{INT32_MAX}, "vocabulary",
               std::to_string(seat.vocabulary) + " is no length of a logits row");
  return seat;
}

void RefuseTables(const CheckContext& context, const bl_seat& seat) {
  const SizedArray<bl_table> tables =
      Item(context, "seat").Array(seat.tables, seat.n_tables, "table");
  for (uint32_t i = 0; i < tables.size(); ++i) {
    const Item item(context, "table " + std::to_string(i));
    const bl_table table = tables[i];
    item.Require(table.weight < seat.n_weights, "weight",
                 std::to_string(table.weight) + ", but there are " +
                     std::to_string(seat.n_weights) + " weights");
    item.Enum("id_origin", table.id_origin, BL_IDS_DEVICE + 1);
    item.NotOffered("tables", "a table read by hashed ids");
  }
}

Entry CheckEntry(const Item& item, const bl_entry& raw, const std::string& name) {
  item.Enum("kind", raw.kind, BL_ENTRY_HIDDEN + 1);
  if (raw.kind != BL_ENTRY_MAIN && raw.kind != BL_ENTRY_DRAFT_STEP) {
    item.NotOffered("kind", std::string(kEntryNames[raw.kind]));
  }
  item.Enum("domain", raw.domain, BL_DOMAIN_PATCHES + 1);
  item.Require(raw.domain == BL_DOMAIN_PASS_ROWS, "domain", "this entry takes the pass rows");
  item.Flags("needs", raw.needs, BL_NEEDS_LOGITS | BL_NEEDS_HIDDEN | BL_NEEDS_TAPS);
  if ((raw.needs & BL_NEEDS_HIDDEN) != 0) item.NotOffered("needs", "HIDDEN");
  if ((raw.needs & BL_NEEDS_TAPS) != 0) item.NotOffered("needs", "TAPS");
  item.Require((raw.needs & BL_NEEDS_LOGITS) != 0, "needs", "this entry gives LOGITS");
  item.Require(raw.build != nullptr, "build", "null");
  return {name, raw.kind, raw.needs, raw.build};
}

std::vector<Entry> CheckEntries(const CheckContext& context, const bl_seat& seat) {
  const SizedArray<bl_entry> raw =
      Item(context, "seat").Array(seat.entries, seat.n_entries, "entry");
  std::vector<Entry> entries;
  std::set<std::string> names;
  for (uint32_t i = 0; i < raw.size(); ++i) {
    const bl_entry entry = raw[i];
    const Item unnamed(context, "entry " + std::to_string(i));
    const std::string name = unnamed.Text("name", entry.name);
    const Item item = unnamed.Named(name);
    entries.push_back(CheckEntry(item, entry, name));
    item.Require(names.insert(name).second, "name", "another entry has it");
  }
  return entries;
}

// The one entry of a kind, if there is one.
std::optional<uint32_t> FindEntry(const Item& item, std::span<const Entry> entries,
                                  bl_entry_kind kind) {
  std::optional<uint32_t> found;
  size_t count = 0;
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kind != kind) continue;
    found = i;
    ++count;
  }
  const char* const name = kind == BL_ENTRY_MAIN ? "main" : "DRAFT_STEP";
  item.Require(count <= 1, "entries",
               std::to_string(count) + " " + name + " entries, at most one is served");
  return found;
}

// What a draft owns makes sense beside its entry only.
template <class Raw>
void RefuseDraftOwned(const CheckContext& context, const Raw* items, uint32_t count,
                      const char* what) {
  const SizedArray<Raw> raw = Item(context, "seat").Array(items, count, what);
  for (uint32_t i = 0; i < raw.size(); ++i) {
    if (raw[i].owner != BL_OWNER_DRAFT) continue;
    Item(context, what + (" " + std::to_string(i)))
        .Broken("owner", "a draft, but there is no entry of the kind DRAFT_STEP");
  }
}

}  // namespace

Description CheckDescription(const bl_seat& raw, std::string_view plugin,
                             const model::ModelFile& model,
                             std::span<const bl_plane_type> plane_types) {
  const CheckContext context{plugin, model, plane_types};
  const bl_seat seat = CheckSeat(context, raw);
  Description out;
  out.layers = seat.layers;
  out.vocabulary = seat.vocabulary;
  out.context_trained = seat.context_trained;
  RefuseTables(context, seat);
  out.weights = CheckWeights(context, seat);
  out.banks = CheckBanks(context, seat, out.weights);
  out.planes = CheckPlanes(context, seat);
  out.operators = CheckOperators(context, seat);
  out.entries = CheckEntries(context, seat);
  const Item item(context, "seat");
  const std::optional<uint32_t> main_entry = FindEntry(item, out.entries, BL_ENTRY_MAIN);
  item.Require(main_entry.has_value(), "entries", "0 main entries, exactly one is needed");
  out.main_entry = *main_entry;
  out.draft_entry = FindEntry(item, out.entries, BL_ENTRY_DRAFT_STEP);
  if (!out.draft_entry) {
    RefuseDraftOwned(context, seat.weights, seat.n_weights, "weight");
    RefuseDraftOwned(context, seat.banks, seat.n_banks, "bank");
    RefuseDraftOwned(context, seat.planes, seat.n_planes, "plane");
  }
  return out;
}

}  // namespace bloomery::plugin
