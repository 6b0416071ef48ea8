#include "runtime/apps/check_plugin/recording_builder.h"

#include <sstream>

#include "runtime/plugin/sized.h"

namespace bloomery::apps::check {
namespace {

void PutAttr(std::ostream& out, const bl_attr& attr) {
  out << " " << (attr.key == nullptr ? "(null)" : attr.key) << "=";
  for (uint64_t i = 0; i < attr.count && attr.value != nullptr; ++i) {
    if (i > 0) out << ",";
    switch (attr.type) {
      case BL_ATTR_I64:
        out << static_cast<const int64_t*>(attr.value)[i];
        break;
      case BL_ATTR_F64:
        out << std::hexfloat << static_cast<const double*>(attr.value)[i];
        break;
      case BL_ATTR_STR:
        out << static_cast<const char* const*>(attr.value)[i];
        break;
      default:
        out << int{static_cast<const uint8_t*>(attr.value)[i]};
    }
  }
}

std::string NodeLine(const bl_node& node, uint32_t n_outs) {
  std::ostringstream out;
  out << (node.op == nullptr ? "(null)" : node.op) << "/" << node.version << " in";
  for (uint32_t i = 0; i < node.n_inputs; ++i) out << " " << node.inputs[i];
  out << " weights";
  for (uint32_t i = 0; i < node.n_weights; ++i) out << " " << node.weights[i];
  out << " planes";
  for (uint32_t i = 0; i < node.n_planes; ++i) out << " " << node.planes[i];
  const plugin::SizedArray<bl_attr> attrs(node.attrs, node.n_attrs, "attribute");
  for (uint32_t i = 0; i < attrs.size(); ++i) PutAttr(out, attrs[i]);
  out << " outs " << n_outs;
  return out.str();
}

RecordingBuilder& Of(void* self) { return *static_cast<RecordingBuilder*>(self); }

}  // namespace

bool RecordingBuilder::Fails() {
  const int call = calls_++;
  return fail_at_ && call >= *fail_at_;
}

RecordingBuilder::RecordingBuilder(const bl_builder& inner, std::optional<int> fail_at)
    : inner_(inner), fail_at_(fail_at), raw_(inner) {
  raw_.self = this;
  raw_.layer = [](void* self, int32_t l) -> bl_status {
    if (Of(self).Fails()) return BL_REFUSED;
    Of(self).Write("layer " + std::to_string(l));
    return Of(self).inner_.layer(Of(self).inner_.self, l);
  };
  raw_.input = [](void* self, bl_row_field field, bl_value* out) -> bl_status {
    if (Of(self).Fails()) return BL_REFUSED;
    Of(self).Write("input " + std::to_string(field));
    return Of(self).inner_.input(Of(self).inner_.self, field, out);
  };
  raw_.weight = [](void* self, uint32_t index, bl_shape* out) -> bl_status {
    if (Of(self).Fails()) return BL_REFUSED;
    return Of(self).inner_.weight(Of(self).inner_.self, index, out);
  };
  raw_.node = [](void* self, const bl_node* node, bl_value* outs, uint32_t n_outs) -> bl_status {
    if (Of(self).Fails()) return BL_REFUSED;
    if (node != nullptr) Of(self).Write(NodeLine(*node, n_outs));
    return Of(self).inner_.node(Of(self).inner_.self, node, outs, n_outs);
  };
  raw_.shape = [](void* self, bl_value value, bl_shape* out) -> bl_status {
    if (Of(self).Fails()) return BL_REFUSED;
    return Of(self).inner_.shape(Of(self).inner_.self, value, out);
  };
  raw_.domain = [](void* self, bl_domain_kind kind, bl_domain* out) -> bl_status {
    if (Of(self).Fails()) return BL_REFUSED;
    return Of(self).inner_.domain(Of(self).inner_.self, kind, out);
  };
  raw_.export_value = [](void* self, const char* name, bl_value value) -> bl_status {
    if (Of(self).Fails()) return BL_REFUSED;
    Of(self).Write(std::string("export ") + (name == nullptr ? "(null)" : name) + " " +
                   std::to_string(value));
    return Of(self).inner_.export_value(Of(self).inner_.self, name, value);
  };
  raw_.tap = [](void* self, uint32_t plane, bl_value value) -> bl_status {
    if (Of(self).Fails()) return BL_REFUSED;
    Of(self).Write("tap " + std::to_string(plane) + " " + std::to_string(value));
    return Of(self).inner_.tap(Of(self).inner_.self, plane, value);
  };
  raw_.fail = [](void* self, bl_status status, const char* text) {
    Of(self).inner_.fail(Of(self).inner_.self, status, text);
  };
}

}  // namespace bloomery::apps::check
