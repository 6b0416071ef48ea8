#include <algorithm>
#include <map>
#include <utility>

#include "runtime/plugin/check_context.h"
#include "runtime/plugin/pattern.h"

namespace bloomery::plugin {
namespace {

constexpr std::string_view kVerbNames[] = {"WHOLE",     "ROW_RANGE", "STACK",   "EXTENTS",
                                           "TRANSPOSE", "TAKE_ROWS", "ADD_ONE", "MINUS_EXP",
                                           "PRODUCT",   "AS_F32",    "CALLBACK"};
constexpr std::string_view kPartNames[] = {"NONE",    "GATE",      "UP",      "DOWN",
                                           "GATE_UP", "GATE_BIAS", "UP_BIAS", "DOWN_BIAS"};

// Where a weight's bytes come from: rows [row0, row0 + rows) of a tensor, or all of it.
struct Origin {
  std::string tensor;
  bool whole = true;
  uint64_t row0 = 0;
  uint64_t rows = 0;
};

// Rows of a tensor that a weight owns.
struct Claim {
  uint32_t weight;
  uint64_t begin;
  uint64_t end;
};

class WeightCheck {
 public:
  WeightCheck(const CheckContext& context, const bl_seat& seat) : context_(context), seat_(seat) {}

  std::vector<Weight> Run() {
    const SizedArray<bl_weight> raw =
        Item(context_, "seat").Array(seat_.weights, seat_.n_weights, "weight");
    std::vector<Weight> weights;
    weights.reserve(raw.size());
    for (uint32_t i = 0; i < raw.size(); ++i) {
      weights.push_back(One(i, raw[i]));
    }
    CheckEveryTensorIsKnown();
    return weights;
  }

 private:
  Weight One(uint32_t index, const bl_weight& raw) {
    const Item unnamed(context_, "weight " + std::to_string(index));
    const Item item = unnamed.Named(Pattern(unnamed, raw.pattern));
    item.Flags("flags", raw.flags, BL_WEIGHT_OPTIONAL | BL_WEIGHT_IGNORED | BL_WEIGHT_ALIAS);
    item.Enum("role", raw.role, BL_ROLE_HEAD + 1);
    item.Layer(raw.layer, seat_.layers, true);
    item.Require(raw.n_dims <= 4, "n_dims", std::to_string(raw.n_dims) + " dims, at most 4");
    RefuseAttributes(item, raw);

    Weight weight;
    weight.role = raw.role;
    weight.owner = raw.owner;
    weight.layer = raw.layer;
    if ((raw.flags & BL_WEIGHT_IGNORED) != 0) {
      weight.name = raw.pattern;
      Ignore(item, raw);
      return weight;
    }
    item.Owner(raw.owner);
    const Origin origin = OriginOf(item, raw);
    weight.name = origin.tensor;
    BankOf(item, raw, weight);
    Resolve(index, item, raw, origin, weight);
    return weight;
  }

  static std::string Pattern(const Item& item, const char* pattern) {
    std::string text = item.Text("pattern", pattern);
    const std::string problem = PatternProblem(text);
    item.Require(problem.empty(), "pattern", "'" + text + "' " + problem);
    return text;
  }

  static void RefuseAttributes(const Item& item, const bl_weight& raw) {
    const SizedArray<bl_attr> attrs = item.Array(raw.attrs, raw.n_attrs, "attribute");
    if (attrs.size() == 0) return;
    item.NotOffered("attrs", "attribute '" + item.Text("attrs", attrs[0].key) + "'");
  }

  void Ignore(const Item& item, const bl_weight& raw) {
    item.Require((raw.flags & BL_WEIGHT_ALIAS) == 0, "flags", "IGNORED and ALIAS together");
    item.Require(raw.n_sources == 0, "n_sources", "an ignored weight has no sources");
    item.Require(raw.bank == -1, "bank", "an ignored weight is in no bank");
    ignored_.push_back(raw.layer < 0 ? std::string(raw.pattern) : PutLayer(raw.pattern, raw.layer));
  }

  // The pattern's tensor name for this weight's layer.
  static std::string NameOf(const Item& item, const std::string& pattern, int32_t layer) {
    item.Require(!HasMark(pattern, "{e}"), "pattern", "{e} is for the STACK verb");
    item.Require(!HasMark(pattern, "{l}") || layer >= 0, "pattern",
                 "holds {l}, but the weight has layer -1");
    return PutLayer(pattern, layer);
  }

  Origin OriginOf(const Item& item, const bl_weight& raw) const {
    const SizedArray<bl_source> sources = item.Array(raw.sources, raw.n_sources, "source");
    if (sources.size() == 0) return {.tensor = NameOf(item, raw.pattern, raw.layer)};
    for (uint32_t i = 0; i < sources.size(); ++i) {
      const Item part = item.Part("source " + std::to_string(i));
      const bl_source source = sources[i];
      part.Enum("verb", source.verb, BL_VERB_CALLBACK + 1);
      if (source.verb != BL_VERB_WHOLE && source.verb != BL_VERB_ROW_RANGE) {
        part.NotOffered("verb", std::string(kVerbNames[source.verb]));
      }
      part.Require(source.arg == 0, "arg", "has no meaning with this verb");
      part.Require(source.transform == nullptr, "transform", "has no meaning with this verb");
    }
    if (sources.size() > 1) {
      item.NotOffered("n_sources", "a weight of " + std::to_string(sources.size()) + " sources");
    }
    const Item part = item.Part("source 0");
    const bl_source source = sources[0];
    Origin origin{.tensor = NameOf(part, Pattern(part, source.pattern), raw.layer)};
    origin.whole = source.verb == BL_VERB_WHOLE;
    origin.row0 = source.row0;
    origin.rows = source.rows;
    if (origin.whole) {
      part.Require(source.row0 == 0 && source.rows == 0, "rows", "has no meaning with WHOLE");
    } else {
      part.Require(source.rows > 0, "rows", "a range of no rows");
    }
    return origin;
  }

  void BankOf(const Item& item, const bl_weight& raw, Weight& weight) const {
    item.Enum("part", raw.part, BL_PART_DOWN_BIAS + 1);
    if (raw.bank == -1) {
      item.Require(raw.part == BL_PART_NONE, "part", "a part of no bank");
      item.Require(raw.role != BL_ROLE_ROUTED, "role", "ROUTED, but in no bank");
      return;
    }
    item.Require(
        raw.bank >= 0 && static_cast<uint32_t>(raw.bank) < seat_.n_banks, "bank",
        std::to_string(raw.bank) + ", but there are " + std::to_string(seat_.n_banks) + " banks");
    item.Require(raw.role == BL_ROLE_ROUTED, "role", "a part of a bank has role ROUTED");
    item.Require(raw.part != BL_PART_NONE, "part", "NONE, but in a bank");
    if (raw.part > BL_PART_DOWN) item.NotOffered("part", std::string(kPartNames[raw.part]));
    weight.bank = static_cast<uint32_t>(raw.bank);
    weight.part = raw.part;
  }

  void Resolve(uint32_t index, const Item& item, const bl_weight& raw, const Origin& origin,
               Weight& weight) {
    const auto found = context_.model.FindTensorIndex(origin.tensor);
    if (!found) {
      if ((raw.flags & BL_WEIGHT_OPTIONAL) != 0) return;
      item.Misfit("tensor '" + origin.tensor + "' is missing");
    }
    const model::TensorInfo& tensor = context_.model.tensors()[*found];
    weight.present = true;
    weight.alias = (raw.flags & BL_WEIGHT_ALIAS) != 0;
    weight.tensor = *found;
    weight.type = tensor.type;
    weight.ne = tensor.ne;
    weight.bytes = tensor.bytes;
    if (!origin.whole) CutRows(item, origin, tensor, weight);
    CheckShape(item, raw, tensor, weight);
    weight.n_dims = raw.n_dims;
    const uint64_t begin = origin.whole ? 0 : origin.row0;
    const uint64_t end = origin.whole ? tensor.rows() : origin.row0 + origin.rows;
    TakeRows(index, item, weight, {index, begin, end});
  }

  static void CutRows(const Item& item, const Origin& origin, const model::TensorInfo& tensor,
                      Weight& weight) {
    const bool matrix = tensor.ne[2] == 1 && tensor.ne[3] == 1;
    if (!matrix || origin.row0 > tensor.ne[1] || origin.rows > tensor.ne[1] - origin.row0) {
      item.Misfit(std::to_string(origin.rows) + " rows from row " + std::to_string(origin.row0) +
                  " of tensor '" + tensor.name + "' of shape " + Shape(tensor.ne));
    }
    weight.offset = origin.row0 * tensor.row_bytes();
    weight.bytes = origin.rows * tensor.row_bytes();
    weight.ne[1] = origin.rows;
  }

  static void CheckShape(const Item& item, const bl_weight& raw, const model::TensorInfo& tensor,
                         const Weight& weight) {
    item.Require(raw.n_dims > 0, "n_dims", "0: give a shape, with 0 for a dim left unchecked");
    std::array<uint64_t, 4> wanted = {1, 1, 1, 1};
    std::copy_n(raw.ne, raw.n_dims, wanted.begin());
    for (size_t d = 0; d < 4; ++d) {
      if (wanted[d] == 0 || wanted[d] == weight.ne[d]) continue;
      item.Misfit("tensor '" + tensor.name + "' gives shape " + Shape(weight.ne) + ", expected " +
                  Shape(wanted));
    }
  }

  // One owner for each row of a tensor; an alias needs one that came before.
  void TakeRows(uint32_t index, const Item& item, const Weight& weight, const Claim& claim) {
    std::vector<Claim>& claims = claims_[weight.tensor];
    if (weight.alias) {
      item.Require(!claims.empty(), "flags",
                   "ALIAS, but no earlier weight claims tensor '" + weight.name + "'");
      return;
    }
    for (const Claim& other : claims) {
      if (claim.begin < other.end && other.begin < claim.end) {
        item.Broken("pattern", "tensor '" + weight.name + "' is claimed by weight " +
                                   std::to_string(other.weight) + " already; flag weight " +
                                   std::to_string(index) + " ALIAS if it is the same one");
      }
    }
    claims.push_back(claim);
  }

  void CheckEveryTensorIsKnown() const {
    const auto tensors = context_.model.tensors();
    for (size_t t = 0; t < tensors.size(); ++t) {
      const std::string& name = tensors[t].name;
      const auto matches = [&](const std::string& p) { return MatchesPattern(p, name); };
      const bool ignored = std::ranges::any_of(ignored_, matches);
      const auto claim = claims_.find(t);
      const Item item(context_, "tensor '" + Printable(name, limits::kPluginTextBytesMax) + "'");
      if (claim == claims_.end() || claim->second.empty()) {
        if (!ignored) item.Misfit("claimed by no weight of the plugin, and not ignored,");
      } else if (ignored) {
        item.Broken("flags", "claimed by weight " + std::to_string(claim->second.front().weight) +
                                 " and matched by an IGNORED pattern");
      }
    }
  }

  static std::string Shape(const std::array<uint64_t, 4>& ne) {
    std::string text = "[";
    for (size_t d = 0; d < 4; ++d) {
      text += (d > 0 ? ", " : "") + (ne[d] == 0 ? "any" : std::to_string(ne[d]));
    }
    return text + "]";
  }

  const CheckContext& context_;
  const bl_seat& seat_;
  std::vector<std::string> ignored_;
  std::map<size_t, std::vector<Claim>> claims_;  // by tensor
};

}  // namespace

std::vector<Weight> CheckWeights(const CheckContext& context, const bl_seat& seat) {
  return WeightCheck(context, seat).Run();
}

}  // namespace bloomery::plugin
