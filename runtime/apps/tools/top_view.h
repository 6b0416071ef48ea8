// What bloomery top shows: one look at a server's GET /residency, and the lines of a terminal made
// of two of them. Pure: texts in, lines out; the command asks and prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bloomery::apps {

struct TopTier {
  std::string name;
  std::string device;
  uint64_t used_bytes = 0;
  uint64_t limit_bytes = 0;  // 0: not known
};

struct TopBank {
  int64_t layer = -1;
  std::string tier = {};  // that it lies in, or has frames in
  int64_t experts = 0;
  int64_t used = 0;
  int64_t frames = -1;              // -1: the bank is not split
  uint64_t picks = 0;               // of kept rows
  uint64_t hits = 0;                // of these
  std::vector<uint64_t> rows = {};  // of each expert; empty: not counted
};

// Seconds since the server loaded, by what they were about.
struct TopTimes {
  double card = 0;
  double host = 0;
  double link = 0;
  double sync = 0;

  double Sum() const { return card + host + link + sync; }
};

struct TopLook {
  std::vector<TopTier> tiers;
  std::vector<TopBank> banks;
  TopTimes times;
  uint64_t passes = 0;
  uint64_t rows = 0;
  // Where experts can move.
  std::optional<std::string> policy;
  int64_t moves_max = 0;
  uint64_t picks = 0;
  uint64_t hits = 0;
  uint64_t moves = 0;
  std::string stopped;  // "": they do
};

// Throws Error(kNoInput) for what is no answer of /residency.
TopLook ReadTopLook(std::string_view json);

struct TopScreen {
  int columns = 80;
  int lines = 24;
  bool colour = true;
};

// At most `lines` lines of at most `columns` characters, without ends. Rates are over the `seconds`
// since `before`; without it, since loading where that says anything.
std::vector<std::string> TopLines(const std::string& where, const TopLook& now,
                                  const TopLook* before, double seconds, const TopScreen& screen);

// The rates of two looks as one JSON object on one line, with `residency` as the server gave it.
std::string TopJson(const std::string& answer, const TopLook& now, const TopLook* before,
                    double seconds);

}  // namespace bloomery::apps
