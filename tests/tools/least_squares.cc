#include "tests/tools/least_squares.h"

#include <cmath>

namespace bloomery::test {

LeastSquares::LeastSquares(size_t features, size_t targets)
    : n_(features), m_(targets), gram_(features * features), cross_(features * targets) {}

void LeastSquares::Add(std::span<const float> features, std::span<const float> targets) {
  for (size_t i = 0; i < n_; ++i) {
    const double x = static_cast<double>(features[i]);
    if (x == 0) continue;
    double* const row = gram_.data() + i * n_;
    for (size_t j = 0; j <= i; ++j) row[j] += x * static_cast<double>(features[j]);
    double* const cross = cross_.data() + i * m_;
    for (size_t j = 0; j < m_; ++j) cross[j] += x * static_cast<double>(targets[j]);
  }
}

// Cholesky, and back.
std::vector<float> LeastSquares::Solve(double decay) const {
  std::vector<double> l = gram_;
  double trace = 0;
  for (size_t i = 0; i < n_; ++i) trace += l[i * n_ + i];
  for (size_t i = 0; i < n_; ++i) l[i * n_ + i] += decay * trace / static_cast<double>(n_);
  for (size_t i = 0; i < n_; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = l[i * n_ + j];
      for (size_t k = 0; k < j; ++k) sum -= l[i * n_ + k] * l[j * n_ + k];
      l[i * n_ + j] = i == j ? std::sqrt(sum) : sum / l[j * n_ + j];
    }
  }
  std::vector<float> out(m_ * n_);
  std::vector<double> y(n_);
  for (size_t t = 0; t < m_; ++t) {
    for (size_t i = 0; i < n_; ++i) {
      double sum = cross_[i * m_ + t];
      for (size_t k = 0; k < i; ++k) sum -= l[i * n_ + k] * y[k];
      y[i] = sum / l[i * n_ + i];
    }
    for (size_t i = n_; i-- > 0;) {
      double sum = y[i];
      for (size_t k = i + 1; k < n_; ++k) sum -= l[k * n_ + i] * y[k];
      y[i] = sum / l[i * n_ + i];
      out[t * n_ + i] = static_cast<float>(y[i]);
    }
  }
  return out;
}

}  // namespace bloomery::test
