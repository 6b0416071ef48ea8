#include "runtime/exec/split/hand_off_page.h"

#include <algorithm>
#include <atomic>

#include "kernels-common/quant/quant.h"
#include "runtime/base/checked.h"

namespace bloomery::exec {
namespace {

struct Offsets {
  uint64_t ids = 0;
  uint64_t weights = 0;
  uint64_t input = 0;
  uint64_t sums = 0;
  uint64_t bytes = 0;
};

Offsets LayOut(const plugin::Description& description, int32_t rows_max, uint64_t line) {
  uint64_t used = 0;
  uint64_t input = 0;
  uint64_t width = 0;
  for (const plugin::Bank& bank : description.banks) {
    used = std::max<uint64_t>(used, bank.used);
    input = std::max(input, BankInputRowBytes(description, bank));
    width = std::max(width, bank.width);
  }
  const auto rows = static_cast<uint64_t>(rows_max);
  Offsets at;
  at.bytes = (2 * description.banks.size() + 1) * line;
  const auto place = [&](uint64_t row_bytes) {
    const uint64_t here = at.bytes;
    const uint64_t bytes = CheckedMul(rows, row_bytes, ErrorKind::kNoMemory, "the hand-off page");
    at.bytes =
        CheckedAlignUp(CheckedAdd(at.bytes, bytes, ErrorKind::kNoMemory, "the hand-off page"), line,
                       ErrorKind::kNoMemory, "the hand-off page");
    return here;
  };
  at.ids = place(used * sizeof(int32_t));
  at.weights = place(used * sizeof(float));
  at.input = place(input);
  at.sums = place(width * sizeof(int64_t));
  return at;
}

}  // namespace

uint64_t BankInputRowBytes(const plugin::Description& description, const plugin::Bank& bank) {
  const kernels::FormatTraits* format =
      kernels::FindFormat(static_cast<int>(description.weights[bank.gate].type));
  if (format == nullptr || format->activation_group == 0) return bank.width * sizeof(float);
  return kernels::QuantisedRowBytes(bank.width, format->activation_group);
}

uint64_t HandOffPage::Bytes(const plugin::Description& description, int32_t rows_max) {
  return LayOut(description, rows_max, kLine).bytes;
}

HandOffPage::HandOffPage(std::byte* base, std::byte* seen, const plugin::Description& description,
                         int32_t rows_max)
    : base_(base), seen_(seen), banks_(description.banks.size()) {
  const Offsets at = LayOut(description, rows_max, kLine);
  ids_ = at.ids;
  weights_ = at.weights;
  input_ = at.input;
  sums_ = at.sums;
}

void HandOffPage::Clear() const {
  for (size_t i = 0; i < 2 * banks_ + 1; ++i) {
    std::atomic_ref(*Word(i)).store(0, std::memory_order_relaxed);
  }
}

void HandOffPage::Drain() const {
  for (size_t bank = 0; bank < banks_; ++bank) {
    std::atomic_ref(*answer(bank)).store(kDrained, std::memory_order_release);
  }
}

}  // namespace bloomery::exec
