#include "runtime/apps/check_plugin/seat_text.h"

#include <sstream>

#include "runtime/plugin/sized.h"

namespace bloomery::apps::check {
namespace {

using plugin::SizedArray;

const char* Text(const char* text) { return text == nullptr ? "(null)" : text; }

template <class Function>
const char* Present(Function* function) {
  return function == nullptr ? "null" : "present";
}

void Put(std::ostream& out, const bl_weight& w) {
  out << Text(w.pattern) << " flags " << w.flags << " role " << w.role << " owner " << w.owner
      << " layer " << w.layer << " ne";
  for (uint32_t d = 0; d < std::min(w.n_dims, 4u); ++d) out << " " << w.ne[d];
  out << " bank " << w.bank << " part " << w.part << " attrs " << w.n_attrs;
  const SizedArray<bl_source> sources(w.sources, w.n_sources, "source");
  for (uint32_t i = 0; i < sources.size(); ++i) {
    const bl_source s = sources[i];
    out << " from " << Text(s.pattern) << " verb " << s.verb << " " << s.row0 << "+" << s.rows
        << " arg " << s.arg << " transform " << Present(s.transform);
  }
}
void Put(std::ostream& out, const bl_bank& b) {
  out << "layer " << b.layer << " owner " << b.owner << " experts " << b.experts << " used "
      << b.used << " width " << b.width << " ff " << b.ff << " activation " << b.activation
      << " clamp " << b.clamp << " place " << b.weight_place << " ahead " << b.ids_known_ahead;
  for (const double parameter : b.act_params) out << " " << parameter;
}
void Put(std::ostream& out, const bl_table& t) {
  out << "weight " << t.weight << " ids " << t.ids_per_row << " origin " << t.id_origin
      << " row_ids " << Present(t.row_ids);
}
void Put(std::ostream& out, const bl_plane& p) {
  out << Text(p.name) << " owner " << p.owner << " layer " << p.layer << " rule " << p.rule
      << " class " << p.plane_class << " rate " << p.rate << " window " << p.window << " width "
      << p.width << " lanes " << p.lanes << " init " << p.init << " types";
  for (uint32_t i = 0; i < p.n_types && p.types_allowed != nullptr; ++i) {
    out << " " << p.types_allowed[i];
  }
}
void Put(std::ostream& out, const bl_op& o) {
  out << Text(o.name) << "/" << o.version << " in " << o.n_inputs << " weights " << o.n_weights
      << " planes " << o.n_planes << " out " << o.n_outputs << " attrs " << o.n_attrs << " kernels "
      << o.n_kernels << " expand " << Present(o.expand);
}
void Put(std::ostream& out, const bl_entry& e) {
  out << Text(e.name) << " kind " << e.kind << " domain " << e.domain << " needs " << e.needs
      << " build " << Present(e.build);
}

template <class S>
void PutAll(std::ostream& out, const char* what, const S* items, uint32_t n) {
  const SizedArray<S> array(items, n, what);
  for (uint32_t i = 0; i < array.size(); ++i) {
    out << what << " " << i << ": ";
    Put(out, array[i]);
    out << "\n";
  }
}

}  // namespace

std::string SeatText(const bl_seat& raw) {
  const bl_seat seat = plugin::CopySized(&raw, "seat");
  std::ostringstream out;
  out << "seat: layers " << seat.layers << " vocabulary " << seat.vocabulary << " context "
      << seat.context_trained << "\n";
  PutAll(out, "weight", seat.weights, seat.n_weights);
  PutAll(out, "bank", seat.banks, seat.n_banks);
  PutAll(out, "table", seat.tables, seat.n_tables);
  PutAll(out, "plane", seat.planes, seat.n_planes);
  PutAll(out, "operator", seat.ops, seat.n_ops);
  PutAll(out, "entry", seat.entries, seat.n_entries);
  return out.str();
}

std::string FirstDifference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string l, r;
  while (true) {
    const bool more_left = static_cast<bool>(std::getline(left, l));
    const bool more_right = static_cast<bool>(std::getline(right, r));
    if (!more_left && !more_right) return {};
    if (!more_left) l = "(nothing)";
    if (!more_right) r = "(nothing)";
    if (l == r) continue;
    std::string text = "'";
    return text.append(l).append("' and '").append(r).append("'");
  }
}

}  // namespace bloomery::apps::check
