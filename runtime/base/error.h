// Errors as the host uses them. Outside data (files, requests, templates, plugins) that is refused
// becomes an Error with a kind; it ends one request or one load and is caught at exactly those tops
// and at the ABI. Broken invariants of our own assert instead. Nothing here logs or exits.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace bloomery {

enum class ErrorKind {
  kUsage,        // a flag or setting: exit code 64
  kBadModel,     // a model file, plugin or template that does not hold what it must: 65
  kNoInput,      // a file that cannot be opened or read: 66
  kBadRequest,   // a request field: HTTP 400
  kContextFull,  // prompt or generation beyond the slot's context: HTTP 400 with the numbers
  kUnsupported,  // known, but not offered here: HTTP 501
  kUnavailable,  // not now (loading, queue full, stopping): HTTP 503
  kDevice,       // a card, its driver, or that there is none: 69, HTTP 500
  kNoMemory,     // memory or a limit exhausted
  kDownload,     // a hub that cannot be reached, refuses, or sends what it did not announce: 74
  kCancelled,    // the client went away
  kInternal,     // a failure of the engine or of a plugin: HTTP 500
};

// Stable lower-case name of a kind, for logs and tests ("bad_model").
std::string_view ErrorKindName(ErrorKind kind);

// What failed, where (path, byte offset, key, field) and what to do, in one sentence each.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  // `next`: the command to run now, where one is known that fits better than its kind's.
  Error(ErrorKind kind, const std::string& message, std::string next)
      : std::runtime_error(message), kind_(kind), next_(std::move(next)) {}
  ErrorKind kind() const { return kind_; }
  const std::string& next() const { return next_; }

 private:
  ErrorKind kind_;
  std::string next_;
};

}  // namespace bloomery
