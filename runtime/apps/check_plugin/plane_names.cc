#include "runtime/apps/check_plugin/plane_names.h"

#include "runtime/exec/seat.h"
#include "runtime/memory/planes.h"

namespace bloomery::apps::check {
namespace {

// Goes on behind the bytes that were passed already.
class Walk {
 public:
  Walk(const plugin::Description& description, uint64_t at)
      : description_(description), specs_(exec::PlanesOf(description)), at_(at) {}

  // Over all planes of one rule; `bytes_of` gives what each of them takes.
  template <class BytesOf>
  Walk& Over(bl_plane_rule rule, BytesOf bytes_of) {
    for (size_t i = 0; i < specs_.size() && name_.empty(); ++i) {
      if (specs_[i].rule != rule) continue;
      const uint64_t bytes = bytes_of(specs_[i]);
      if (at_ < bytes) {
        const plugin::Plane& plane = description_.planes[i];
        name_ = "plane '" + plane.name + "' of layer " + std::to_string(plane.layer);
      }
      at_ -= bytes;
    }
    return *this;
  }

  std::string Name() const { return name_.empty() ? "a plane" : name_; }

 private:
  const plugin::Description& description_;
  std::vector<memory::PlaneSpec> specs_;
  uint64_t at_;
  std::string name_;
};

}  // namespace

std::string PlaneOfRowsAt(const plugin::Description& description, uint64_t rows, uint64_t at) {
  const auto bytes_of = [&](const auto& spec) { return rows * memory::PlaneRowBytes(spec); };
  return Walk(description, at).Over(BL_PLANE_APPEND, bytes_of).Name();
}

std::string PlaneOfCheckpointAt(const plugin::Description& description, uint64_t at) {
  return Walk(description, at)
      .Over(BL_PLANE_FIXED, memory::PlaneStateBytes)
      .Over(BL_PLANE_RING, memory::PlaneStateBytes)
      .Name();
}

}  // namespace bloomery::apps::check
