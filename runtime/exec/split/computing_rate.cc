// What the host's experts take, measured.
#include <algorithm>
#include <chrono>
#include <limits>

#include "runtime/exec/split/host_experts.h"

namespace bloomery::exec {

ShareRates HostExperts::MeasureComputing(uint32_t bank) {
  const plugin::Bank& described = description_.banks[bank];
  // As many experts as a pass may leave to the host, each with the same number of rows.
  constexpr uint32_t kExperts = 64;
  const auto used = static_cast<int64_t>(described.used);
  const auto experts = std::max<int64_t>(used, std::min<int64_t>(kExperts, described.experts));
  const std::vector<int32_t> all_of_host(described.experts, -1);
  const Counts counts = counts_;
  // Microseconds an expert with `each` rows; its rows come out as near as whole passes allow.
  const auto time = [&](double each, double* rows_of_expert) {
    const auto wanted = static_cast<int64_t>(each * static_cast<double>(experts));
    const int64_t rows = std::clamp<int64_t>(wanted / used, 1, rows_max_);
    for (int64_t i = 0; i < rows * used; ++i) page_.ids()[i] = static_cast<int32_t>(i % experts);
    std::fill_n(page_.weights(), rows * used, 0.0F);
    std::fill_n(page_.input(),
                static_cast<uint64_t>(rows) * BankInputRowBytes(description_, described),
                std::byte{0});
    const int64_t computed = std::min(experts, rows * used);
    *rows_of_expert = static_cast<double>(rows * used) / static_cast<double>(computed);
    constexpr int kTimes = 3;  // the first finds threads asleep
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kTimes; ++i) {
      const Clock::time_point begin = Clock::now();
      Compute(bank, static_cast<int32_t>(rows), false, all_of_host);
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      best = std::min(best, took.count() / static_cast<double>(computed));
    }
    return best;
  };
  constexpr double kFew = 2;  // reading the weights is all of it
  constexpr double kSome = 12;
  constexpr double kMany = 24;
  ShareRates rates;
  double few = 0;
  double some = 0;
  double many = 0;
  rates.read_us = time(kFew, &few);
  const double some_us = time(kSome, &some);
  const double many_us = time(kMany, &many);
  if (many > some) {
    rates.row_us = std::max(0.0, (many_us - some_us) / (many - some));
    rates.fixed_us = std::max(0.0, many_us - rates.row_us * many);
  } else {  // passes are too small to tell
    rates.row_us = many_us / many;
  }
  counts_ = counts;
  failed_row_ = -1;
  return rates;
}

}  // namespace bloomery::exec
