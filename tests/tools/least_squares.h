// Linear least squares with a little weight decay: the matrix that maps features to targets best.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace bloomery::test {

// Sums of the normal equations, sample by sample.
class LeastSquares {
 public:
  LeastSquares(size_t features, size_t targets);

  void Add(std::span<const float> features, std::span<const float> targets);
  // [targets][features]. `decay` is relative to the mean square of a feature.
  std::vector<float> Solve(double decay) const;

 private:
  size_t n_, m_;
  std::vector<double> gram_;   // [n][n], the lower half
  std::vector<double> cross_;  // [n][m]
};

}  // namespace bloomery::test
