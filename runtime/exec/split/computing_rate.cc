#include "runtime/exec/split/computing_rate.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace bloomery::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kFew = 2;  // rows of an expert: reading the weights is all of it
constexpr double kSome = 12;
constexpr double kMany = 24;
constexpr int kTimes = 3;  // the first finds threads asleep

struct Timed {
  double rows = 0;  // of an expert, as near to what was wanted as whole passes allow
  double us = 0;    // of an expert
};

Timed Time(double each, const ComputingCase& of, const std::function<void(int32_t rows)>& compute) {
  const auto wanted = static_cast<int64_t>(each * static_cast<double>(of.experts));
  const int64_t rows = std::clamp<int64_t>(wanted / of.used, 1, of.rows_max);
  const auto computed = static_cast<double>(std::min(of.experts, rows * of.used));
  Timed timed{.rows = static_cast<double>(rows * of.used) / computed,
              .us = std::numeric_limits<double>::infinity()};
  for (int i = 0; i < kTimes; ++i) {
    const Clock::time_point begin = Clock::now();
    compute(static_cast<int32_t>(rows));
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    timed.us = std::min(timed.us, took.count() / computed);
  }
  return timed;
}

}  // namespace

memory::ShareRates ComputingRates(const ComputingCase& of,
                                  const std::function<void(int32_t rows)>& compute) {
  memory::ShareRates rates;
  rates.read_us = Time(kFew, of, compute).us;
  const Timed some = Time(kSome, of, compute);
  const Timed many = Time(kMany, of, compute);
  if (many.rows > some.rows) {
    rates.row_us = std::max(0.0, (many.us - some.us) / (many.rows - some.rows));
    rates.fixed_us = std::max(0.0, many.us - rates.row_us * many.rows);
  } else {  // passes are too small to tell
    rates.row_us = many.us / many.rows;
  }
  return rates;
}

}  // namespace bloomery::exec
