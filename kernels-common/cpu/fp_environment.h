// The floating-point environment the numeric rule asks for (N1): round to nearest even, denormals
// kept, exceptions masked. Any library in the process may have set FTZ, DAZ or a rounding mode on a
// thread, so each thread that runs kernels opens a ScopedFpEnvironment for the length of a pass.
#pragma once

#include <cstdint>

namespace bloomery::kernels {

// True when this thread rounds to nearest even and keeps denormals, in and out.
bool FpEnvironmentIsDefault();

// Sets N1's environment on this thread and gives the former one back at the end of the scope.
class ScopedFpEnvironment {
 public:
  ScopedFpEnvironment();
  ~ScopedFpEnvironment();
  ScopedFpEnvironment(const ScopedFpEnvironment&) = delete;
  ScopedFpEnvironment& operator=(const ScopedFpEnvironment&) = delete;

 private:
  std::uint64_t saved_;
};

}  // namespace bloomery::kernels
