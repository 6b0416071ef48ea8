#include "runtime/base/checked.h"

namespace bloomery::internal {

void ThrowOverflow(ErrorKind kind, std::string_view what, const std::string& operands) {
  throw Error(kind, std::string(what) + ": " + operands + " is out of range");
}

}  // namespace bloomery::internal
