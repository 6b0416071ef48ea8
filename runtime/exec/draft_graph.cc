#include "runtime/exec/draft_graph.h"

#include <string>

#include "runtime/base/error.h"

namespace bloomery::exec {
namespace {

// Why a draft's step cannot use such a plane; null where it can.
const char* Problem(const plugin::Plane& plane) {
  switch (plane.rule) {
    case BL_PLANE_APPEND:
      return nullptr;
    case BL_PLANE_FIXED:
      return plane.plane_class == BL_CLASS_TAP
                 ? nullptr
                 : "is a state that the main entry's rows overwrite, with no lane for drafts";
    default:
      return "is a ring, where a guess would take the place of a row that is still read";
  }
}

}  // namespace

void CheckDraftGraph(const graph::Graph& graph, const plugin::Description& description,
                     std::string_view plugin) {
  for (const graph::Node& node : graph.nodes) {
    for (const graph::PlaneUse& use : node.planes) {
      const plugin::Plane& plane = description.planes.at(use.plane);
      const char* problem = Problem(plane);
      if (problem == nullptr) continue;
      const std::string entry =
          description.draft_entry ? description.entries.at(*description.draft_entry).name : "";
      throw Error(ErrorKind::kUnsupported,
                  "plugin '" + std::string(plugin) + "': entry '" + entry +
                      "' of kind DRAFT_STEP, operator " + graph::OperatorName(*node.op) +
                      (node.layer >= 0 ? ", layer " + std::to_string(node.layer) : "") +
                      ": plane '" + plane.name + "' " + problem +
                      "; a draft's step may use append planes and fixed planes of class TAP; start "
                      "with --draft lookup or --draft off");
    }
  }
}

}  // namespace bloomery::exec
