// Errors of the C++ layer. Inside a plugin a failure is an exception; at the ABI it becomes a
// status and a text for the host. Nothing here allocates before something has failed, nothing logs.
//
//   if (heads == 0) sdk::Refuse("metadata key '" + key + "' is 0: at least one head is needed");
#pragma once

#include <bloomery/base.h>

#include <exception>
#include <new>
#include <stdexcept>
#include <string>

namespace bloomery::sdk {

// A failure with its status and a one-line text that says what, where and what to do.
class Failure : public std::runtime_error {
 public:
  Failure(bl_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  bl_status status() const { return status_; }

 private:
  bl_status status_;
};

// A failure whose text the host has already (a builder call that failed): only the status goes
// back.
class SaidFailure : public Failure {
 public:
  using Failure::Failure;
};

// This model, request or value is not accepted.
[[noreturn]] inline void Refuse(const std::string& text) { throw Failure(BL_REFUSED, text); }

// Runs `body`; every exception ends here: `say(status, text)` gets the reason, the caller the
// status.
template <class Body, class Say>
bl_status Guard(Body&& body, Say&& say) noexcept {
  try {
    body();
    return BL_OK;
  } catch (const SaidFailure& e) {
    return e.status();
  } catch (const Failure& e) {
    say(e.status(), e.what());
    return e.status();
  } catch (const std::bad_alloc&) {
    say(static_cast<bl_status>(BL_NO_MEMORY), "out of memory");
    return BL_NO_MEMORY;
  } catch (const std::exception& e) {
    say(static_cast<bl_status>(BL_INTERNAL), e.what());
    return BL_INTERNAL;
  } catch (...) {
    say(static_cast<bl_status>(BL_INTERNAL), "an exception that is no std::exception");
    return BL_INTERNAL;
  }
}

// A sink as Guard's second argument. A null sink, or one without `fail`, hears nothing.
class SinkSayer {
 public:
  explicit SinkSayer(const bl_sink* sink) : sink_(sink) {}
  void operator()(bl_status status, const char* text) const {
    if (sink_ != nullptr && sink_->fail != nullptr) sink_->fail(sink_->self, status, text);
  }

 private:
  const bl_sink* sink_;
};

}  // namespace bloomery::sdk
