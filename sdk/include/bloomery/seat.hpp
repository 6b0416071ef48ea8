// Describing a seat: the plugin adds weights, banks, planes, tables, operators and entries; this
// class owns every string and array and hands the host one bl_seat whose pointers stay put. [load]
// thread.
//
//   auto q = seat.AddWeight({.pattern = "blk.{l}.attn_q.weight", .layer = l, .ne = {width, d}});
//   auto k = seat.AddPlane({.name = "k", .layer = l, .plane_class = BL_CLASS_K, .width = d});
//   seat.AddEntry<&Toy::BuildMain>({.name = "main"});
//
// sdk/template/toy.cc is a whole plugin.
#pragma once

#include <bloomery/seat.h>

#include <array>
#include <bloomery/abi.hpp>
#include <bloomery/attrs.hpp>
#include <bloomery/errors.hpp>
#include <bloomery/graph.hpp>
#include <bloomery/kernel.hpp>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bloomery::sdk {

// The instance behind a bl_instance*: <bloomery/plugin.hpp> makes it.
struct InstanceHead {
  const void* type;  // &kTypeTag<T> of the plugin class
  void* object;      // the T
  const void* host;  // its bl_host
  void (*fail)(const void* host, bl_status status, const char* text);
};
template <class T>
inline constexpr char kTypeTag = 0;

struct SourceSpec {
  std::string pattern;
  bl_verb verb = BL_VERB_WHOLE;
  uint64_t row0 = 0;
  uint64_t rows = 0;
  uint64_t arg = 0;
  bl_status (*transform)(bl_instance*, const float*, uint64_t, float*, uint64_t) = nullptr;
};

struct WeightSpec {
  std::string pattern = {};  // {l} is replaced by `layer`
  bl_role role = BL_ROLE_DENSE;
  bl_owner owner = BL_OWNER_MAIN;
  int32_t layer = -1;
  std::vector<uint64_t> ne = {};  // what the file must hold; 0 leaves a dim unchecked
  uint32_t flags = 0;
  std::vector<SourceSpec> sources = {};  // empty: the tensor named by `pattern`, whole
  Bank bank = {};
  bl_bank_part part = BL_PART_NONE;
  Attrs attrs = {};
};

struct BankSpec {
  int32_t layer = -1;
  bl_owner owner = BL_OWNER_MAIN;
  uint32_t experts = 0;
  uint32_t used = 0;
  uint64_t width = 0;  // input and output
  uint64_t ff = 0;     // inner width of an expert
  bl_activation activation = BL_ACT_SILU;
  std::array<double, 4> act_params = {};
  double clamp = 0.0;
  bl_weight_place weight_place = BL_AFTER_DOWN;
  bool ids_known_ahead = false;
};

struct PlaneSpec {
  std::string name = {};
  bl_owner owner = BL_OWNER_MAIN;
  int32_t layer = -1;
  bl_plane_rule rule = BL_PLANE_APPEND;
  bl_plane_class plane_class = BL_CLASS_K;
  uint64_t width = 0;
  uint32_t rate = 1;
  uint64_t window = 0;
  std::vector<bl_dtype> types_allowed = {BL_F16, BL_F32, BL_Q8_0};  // the first is the default
  uint32_t lanes = 0;
  bl_plane_init init = BL_INIT_NONE;
};

struct EntrySpec {
  std::string name = "main";
  bl_entry_kind kind = BL_ENTRY_MAIN;
  bl_domain_kind domain = BL_DOMAIN_PASS_ROWS;
  uint32_t needs = BL_NEEDS_LOGITS;
};

struct TableSpec {
  Weight weight = {};
  uint32_t ids_per_row = 1;
  bl_id_origin id_origin = BL_IDS_HOST;
};

struct PortSpec {
  std::string name;
  bool optional = false;
};
struct PlanePortSpec {
  std::string name;
  bl_access access = BL_READ;
};
struct OpSpec {
  std::string name = {};  // "<plugin>.<something>"
  uint32_t version = 1;
  std::vector<PortSpec> inputs = {};
  std::vector<PortSpec> weights = {};
  std::vector<PlanePortSpec> planes = {};
  std::vector<PortSpec> outputs = {};
  std::vector<std::string> attrs = {};
};
struct CpuKernelSpec {
  std::vector<bl_encoding> in = {};   // one an input port
  std::vector<bl_encoding> out = {};  // one an output port
  bl_numeric_class numeric_class = BL_EXACT;
  int32_t priority = 0;
};

// A node as an expansion sees it.
struct NodeView {
  std::vector<Value> inputs;
  std::vector<Weight> weights;
  std::vector<Plane> planes;
  AttrReader attrs;
};

class Seat {
 public:
  Seat() = default;
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  uint32_t layers = 0;
  uint64_t vocabulary = 0;  // length of a logits row
  uint64_t context_trained = 0;

  Weight AddWeight(const WeightSpec& spec) {
    auto w = MakeAbi<bl_weight>();
    w.flags = spec.flags;
    w.pattern = Keep(spec.pattern);
    w.role = spec.role;
    w.owner = spec.owner;
    w.layer = spec.layer;
    if (spec.ne.size() > 4) Refuse("weight '" + spec.pattern + "' is given more than 4 dims");
    w.n_dims = static_cast<uint32_t>(spec.ne.size());
    for (uint64_t& n : w.ne) n = 1;
    for (size_t i = 0; i < spec.ne.size(); ++i) w.ne[i] = spec.ne[i];
    std::vector<bl_source>& sources = sources_.emplace_back();
    for (const SourceSpec& s : spec.sources) {
      auto source = MakeAbi<bl_source>();
      source.verb = s.verb;
      source.pattern = Keep(s.pattern);
      source.row0 = s.row0;
      source.rows = s.rows;
      source.arg = s.arg;
      source.transform = s.transform;
      sources.push_back(source);
    }
    w.sources = Data(sources);
    w.n_sources = Count(sources);
    w.bank = spec.bank.index;
    w.part = spec.part;
    const RawAttrs& attrs = attrs_.emplace_back(spec.attrs);
    w.attrs = attrs.data();
    w.n_attrs = attrs.size();
    weights_.push_back(w);
    return {Count(weights_) - 1};
  }
  // A tensor the plugin knows and does not read; a pattern with {l} covers every layer.
  void Ignore(const std::string& pattern) {
    AddWeight({.pattern = pattern, .flags = BL_WEIGHT_OPTIONAL | BL_WEIGHT_IGNORED});
  }

  Bank AddBank(const BankSpec& spec) {
    auto b = MakeAbi<bl_bank>();
    b.layer = spec.layer;
    b.owner = spec.owner;
    b.experts = spec.experts;
    b.used = spec.used;
    b.activation = spec.activation;
    for (size_t i = 0; i < 4; ++i) b.act_params[i] = spec.act_params[i];
    b.clamp = spec.clamp;
    b.weight_place = spec.weight_place;
    b.ids_known_ahead = spec.ids_known_ahead ? 1 : 0;
    b.ff = spec.ff;
    b.width = spec.width;
    banks_.push_back(b);
    return {static_cast<int32_t>(banks_.size() - 1)};
  }

  Plane AddPlane(const PlaneSpec& spec) {
    auto p = MakeAbi<bl_plane>();
    p.rate = spec.rate;
    p.name = Keep(spec.name);
    p.owner = spec.owner;
    p.layer = spec.layer;
    p.rule = spec.rule;
    p.plane_class = spec.plane_class;
    p.window = spec.window;
    p.width = spec.width;
    const std::vector<bl_dtype>& types = types_.emplace_back(spec.types_allowed);
    p.types_allowed = Data(types);
    p.n_types = Count(types);
    p.lanes = spec.lanes;
    p.init = spec.init;
    planes_.push_back(p);
    return {Count(planes_) - 1};
  }

  // Method: void T::F(Graph&, const bl_build&) const, T being the plugin class.
  template <auto Method>
  void AddEntry(const EntrySpec& spec) {
    entries_.push_back({.size = sizeof(bl_entry),
                        .kind = spec.kind,
                        .name = Keep(spec.name),
                        .domain = spec.domain,
                        .needs = spec.needs,
                        .build = BuildCall<Method>});
  }

  // Method: void T::F(span<const int32_t> history, span<const int32_t> classes, span<uint64_t> ids)
  // const.
  template <auto Method>
  void AddTable(const TableSpec& spec) {
    tables_.push_back({.size = sizeof(bl_table),
                       .weight = spec.weight.index,
                       .ids_per_row = spec.ids_per_row,
                       .id_origin = spec.id_origin,
                       .row_ids = RowIdsCall<Method>});
  }

  // An operator of the plugin's own. O has `static void Infer(const InferCall&)` and may have
  // `static void Expand(Graph&, const NodeView&, std::span<Value> outs)`.
  template <class O>
  void AddOp(const OpSpec& spec) {
    OpParts& parts = op_parts_.emplace_back();
    auto op = MakeAbi<bl_op>();
    op.version = spec.version;
    op.name = Keep(spec.name);
    for (const PortSpec& p : spec.inputs) parts.inputs.push_back(Port(p));
    for (const PortSpec& p : spec.weights) parts.weights.push_back(Port(p));
    for (const PortSpec& p : spec.outputs) parts.outputs.push_back(Port(p));
    for (const PlanePortSpec& p : spec.planes) {
      parts.planes.push_back({sizeof(bl_plane_port), p.access, Keep(p.name)});
    }
    for (const std::string& key : spec.attrs) parts.attrs.push_back(Keep(key));
    op.infer = InferCallOf<O>;
    if constexpr (requires(Graph& g, const NodeView& n, std::span<Value> o) {
                    O::Expand(g, n, o);
                  }) {
      op.expand = ExpandCallOf<O>;
    }
    ops_.push_back(op);
  }
  // A CPU kernel of the operator added last; K as CpuKernelCalls (<bloomery/kernel.hpp>) says.
  template <class K>
  void AddCpuKernel(const CpuKernelSpec& spec) {
    if (ops_.empty()) throw Failure(BL_INTERNAL, "AddCpuKernel before any AddOp");
    OpParts& parts = op_parts_.back();
    auto kernel = MakeAbi<bl_kernel>();
    kernel.op_version = ops_.back().version;
    kernel.op = ops_.back().name;
    kernel.device = BL_DEVICE_CPU;
    kernel.numeric_class = spec.numeric_class;
    const auto& in = parts.encodings.emplace_back(spec.in);
    kernel.in_enc = Data(in);
    kernel.n_in = Count(in);
    const auto& out = parts.encodings.emplace_back(spec.out);
    kernel.out_enc = Data(out);
    kernel.n_out = Count(out);
    kernel.priority = spec.priority;
    CpuKernelCalls<K>::Fill(kernel);
    parts.kernels.push_back(kernel);
  }

  // The C form; call once, when everything is added. Lives as long as this object.
  const bl_seat* Finish() {
    for (size_t i = 0; i < ops_.size(); ++i) {
      const OpParts& parts = op_parts_[i];
      bl_op& op = ops_[i];
      op.inputs = Data(parts.inputs);
      op.n_inputs = Count(parts.inputs);
      op.weights = Data(parts.weights);
      op.n_weights = Count(parts.weights);
      op.planes = Data(parts.planes);
      op.n_planes = Count(parts.planes);
      op.outputs = Data(parts.outputs);
      op.n_outputs = Count(parts.outputs);
      op.attrs = Data(parts.attrs);
      op.n_attrs = Count(parts.attrs);
      op.kernels = Data(parts.kernels);
      op.n_kernels = Count(parts.kernels);
    }
    raw_ = MakeAbi<bl_seat>();
    raw_.layers = layers;
    raw_.weights = Data(weights_);
    raw_.banks = Data(banks_);
    raw_.tables = Data(tables_);
    raw_.planes = Data(planes_);
    raw_.ops = Data(ops_);
    raw_.entries = Data(entries_);
    raw_.n_weights = Count(weights_);
    raw_.n_banks = Count(banks_);
    raw_.n_tables = Count(tables_);
    raw_.n_planes = Count(planes_);
    raw_.n_ops = Count(ops_);
    raw_.n_entries = Count(entries_);
    raw_.vocabulary = vocabulary;
    raw_.context_trained = context_trained;
    return &raw_;
  }

 private:
  struct OpParts {
    std::vector<bl_port> inputs, weights, outputs;
    std::vector<bl_plane_port> planes;
    std::vector<const char*> attrs;
    std::vector<bl_kernel> kernels;
    std::deque<std::vector<bl_encoding>> encodings;
  };

  const char* Keep(const std::string& text) { return texts_.emplace_back(text).c_str(); }
  bl_port Port(const PortSpec& p) {
    return {sizeof(bl_port), static_cast<uint32_t>(p.optional ? 1 : 0), Keep(p.name)};
  }
  template <class T>
  static const T* Data(const std::vector<T>& items) {
    return items.empty() ? nullptr : items.data();
  }
  template <class T>
  static uint32_t Count(const std::vector<T>& items) {
    return static_cast<uint32_t>(items.size());
  }

  template <class Class, class... Parameters>
  static Class* ClassOf(void (Class::*)(Parameters...) const);

  // The T behind an instance, checked: an entry of another class would read foreign memory.
  template <auto Method>
  static auto& ObjectOf(bl_instance* instance) {
    using T = std::remove_pointer_t<decltype(ClassOf(Method))>;
    const auto* head = reinterpret_cast<const InstanceHead*>(instance);
    if (head->type != &kTypeTag<T>) {
      throw Failure(BL_INTERNAL, "an entry or table is not a member of the plugin class itself");
    }
    return *static_cast<const T*>(head->object);
  }
  static auto FailOf(bl_instance* instance) {
    return [head = reinterpret_cast<const InstanceHead*>(instance)](
               bl_status status, const char* text) { head->fail(head->host, status, text); };
  }

  template <auto Method>
  static bl_status BuildCall(bl_instance* instance, const bl_builder* builder,
                             const bl_build* build) noexcept {
    return Guard(
        [&] {
          Graph graph(builder);
          (ObjectOf<Method>(instance).*Method)(graph, *build);
        },
        FailOf(instance));
  }
  template <auto Method>
  static bl_status RowIdsCall(bl_instance* instance, const int32_t* history, const int32_t* classes,
                              uint64_t n, uint64_t* ids) noexcept {
    return Guard(
        [&] {
          (ObjectOf<Method>(instance).*Method)(std::span(history, n), std::span(classes, n), ids);
        },
        FailOf(instance));
  }
  template <class O>
  static bl_status InferCallOf(const bl_infer* call) noexcept {
    return Guard([&] { O::Infer(InferCall(call)); }, SinkSayer(call->sink));
  }
  template <class O>
  static bl_status ExpandCallOf(const bl_builder* builder, const bl_node* node, bl_value* outs,
                                uint32_t n_outs) noexcept {
    return Guard(
        [&] {
          Graph graph(builder);
          NodeView view{{}, {}, {}, AttrReader(node->attrs, node->n_attrs)};
          for (uint32_t i = 0; i < node->n_inputs; ++i) view.inputs.push_back({node->inputs[i]});
          for (uint32_t i = 0; i < node->n_weights; ++i) view.weights.push_back({node->weights[i]});
          for (uint32_t i = 0; i < node->n_planes; ++i) view.planes.push_back({node->planes[i]});
          std::vector<Value> made(n_outs);
          O::Expand(graph, view, std::span<Value>(made));
          for (uint32_t i = 0; i < n_outs; ++i) outs[i] = made[i].id;
        },
        [builder](bl_status status, const char* text) {
          if (BL_HAS(builder, fail) && builder->fail != nullptr) {
            builder->fail(builder->self, status, text);
          }
        });
  }

  std::deque<std::string> texts_;
  std::deque<std::vector<bl_source>> sources_;
  std::deque<RawAttrs> attrs_;
  std::deque<std::vector<bl_dtype>> types_;
  std::deque<OpParts> op_parts_;
  std::vector<bl_weight> weights_;
  std::vector<bl_bank> banks_;
  std::vector<bl_table> tables_;
  std::vector<bl_plane> planes_;
  std::vector<bl_op> ops_;
  std::vector<bl_entry> entries_;
  bl_seat raw_{};
};

}  // namespace bloomery::sdk
