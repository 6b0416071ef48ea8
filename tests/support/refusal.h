// GoogleTest helper for refusals: runs something that must throw bloomery::Error and gives its kind
// and message.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "runtime/base/error.h"

namespace bloomery::test {

struct Refusal {
  ErrorKind kind;
  std::string message;
};

// What `action` threw; nothing, with a failed expectation, when it returned.
template <typename Action>
Refusal RefusalOf(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  ADD_FAILURE() << "nothing was refused";
  return {ErrorKind::kInternal, ""};
}

}  // namespace bloomery::test
