// What the tests of banks split between card and host, and those of seats in stages, share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/exec/seat.h"
#include "tests/gpu/seat/rows.h"
#include "tests/oracle/seat_fixture.h"
#include "tests/support/safetensors.h"

namespace bloomery::test {

// `frames` experts a bank on the card; -1: all.
inline exec::SeatOptions SplitOptions(const std::string& device, int32_t frames,
                                      int32_t slots = 1) {
  exec::SeatOptions options;
  options.slots = slots;
  options.slot_context = 1024;
  options.rows_max = 512;
  options.threads = 8;
  options.pin = false;
  options.device = device;
  options.card_frames = frames;
  return options;
}

// Costs that send every expert of a prompt over the link, leave all to the host, or half.
inline constexpr memory::ShareRates kAllLink = {.copy_us = 0, .read_us = 1};
inline constexpr memory::ShareRates kAllHost = {.copy_us = 1e9, .read_us = 1};
inline constexpr memory::ShareRates kHalf = {.copy_us = 1, .read_us = 1};

inline Rows Again(exec::Seat& seat, std::span<const int32_t> ids, int32_t batch, int32_t slot = 0) {
  seat.Cut(slot, 0);
  return RunAll(seat, ids, batch, slot);
}

// The first `count` ids of the golden prompt `long`.
inline std::vector<int32_t> LongIds(size_t count) {
  const Safetensors golden(SourceDir() + "/tests/data/mini/qwen3moe/golden.safetensors");
  std::vector<int32_t> ids = golden.Get("long.ids").ints;
  ids.resize(count);
  return ids;
}

}  // namespace bloomery::test
