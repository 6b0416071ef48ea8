// Files of routing: which experts the rows of each pass picked, so that policies can be compared
// without the model (bloomery residency-sim). docs/residency.md gives the layout. A writer belongs
// to one thread and costs a copy of the ids, packed, a pass; nothing in a file is believed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/output_file.h"
#include "runtime/memory/residency/policy.h"

namespace bloomery::memory {

struct TraceBank {
  int32_t layer = -1;
  uint32_t experts = 0;
  uint32_t used = 0;

  bool operator==(const TraceBank&) const = default;
};

class TraceWriter {
 public:
  // The file appears when it is finished. Records of up to `rows_max` rows; of `bytes_max` bytes at
  // most, what comes later is left out. Throws Error(kUsage) for banks or rows beyond the format's
  // limits, Error(kNoInput) as OutputFile.
  TraceWriter(const std::string& path, std::vector<TraceBank> banks, int32_t rows_max,
              uint64_t bytes_max);

  // One pass; `slots` by row. False once the file is full. Throws Error(kInternal) for picks of
  // another shape than the banks', Error(kNoInput) for a failed write.
  bool Append(std::span<const uint8_t> slots, const PassPicks& picks);
  uint64_t passes() const { return passes_; }
  // Makes the file durable. Once; nothing is appended afterwards.
  void Finish();

 private:
  void Put(std::span<const std::byte> bytes);
  void Flush();

  std::vector<TraceBank> banks_;
  int32_t rows_max_;
  uint64_t bytes_max_;
  OutputFile file_;
  uint64_t passes_ = 0;
  uint64_t bytes_ = 0;  // written and in the buffer
  bool full_ = false;
  std::vector<std::byte> record_;
  std::vector<std::byte> buffer_;
};

// One pass of a trace. Vectors keep their room from pass to pass.
struct TracePass {
  int32_t rows = 0;
  std::vector<uint8_t> slots;                  // by row
  std::vector<uint8_t> kept;                   // by row
  std::vector<std::vector<uint16_t>> experts;  // by bank: rows * used

  // Views of this pass.
  PassPicks Picks();

 private:
  std::vector<std::span<const uint16_t>> spans_;
};

class TraceReader {
 public:
  // Error(kBadModel) naming file and offset for what is no trace, of another version, damaged or
  // cut; Error(kNoInput) for a failed read. Here and in Next.
  explicit TraceReader(std::shared_ptr<const File> file);

  const std::vector<TraceBank>& banks() const { return banks_; }
  // False at the end.
  bool Next(TracePass* pass);

 private:
  [[noreturn]] void Refuse(uint64_t offset, const std::string& what) const;
  // The next bytes of the file; `what` they are of, for the refusal where it ends before.
  std::span<const std::byte> Take(uint64_t bytes, const char* what);
  void CheckHash(uint64_t offset, const char* what);
  void ReadHeader();
  void Unpack(std::span<const std::byte> payload, uint64_t offset, TracePass* pass) const;

  std::shared_ptr<const File> file_;
  uint64_t at_ = 0;
  uint64_t passes_ = 0;
  std::vector<TraceBank> banks_;
  std::vector<std::byte> bytes_;  // of the record being read
};

}  // namespace bloomery::memory
