// Layout, little endian: "BLRTRACE", u32 version, u32 banks, {i32 layer, u32 experts, u32 used} a
// bank, u64 hash. Then records: u32 rows, u32 payload bytes, payload, u64 hash; the payload is a
// byte a row (slot, and kKept where it was kept) and, bank after bank, the picks of all rows in
// BitsOf(experts) bits each, lowest first, filled up to a byte. The last record has 0 rows and the
// number of passes, u64, as payload. A hash is XXH3 of its header or record before it.
#include "runtime/memory/residency/trace.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::memory {
namespace {

static_assert(std::endian::native == std::endian::little, "the layout is written as it lies");

constexpr std::array<char, 8> kMagic{'B', 'L', 'R', 'T', 'R', 'A', 'C', 'E'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kBanksMax = 4096;
constexpr uint32_t kUsedMax = 256;
constexpr uint8_t kKept = 0x80;
constexpr size_t kBufferBytes = size_t{1} << 20;
static_assert(limits::kSlotsMax <= kKept, "a slot and whether it was kept share a byte");

uint32_t BitsOf(uint32_t experts) { return static_cast<uint32_t>(std::bit_width(experts - 1)); }

uint64_t BankBytes(const TraceBank& bank, uint64_t rows) {
  return (rows * bank.used * BitsOf(bank.experts) + 7) / 8;
}

uint64_t PayloadBytes(std::span<const TraceBank> banks, uint64_t rows) {
  uint64_t bytes = rows;
  for (const TraceBank& bank : banks) bytes += BankBytes(bank, rows);
  return bytes;
}

template <typename T>
void Push(std::vector<std::byte>* bytes, const T& value) {
  const auto* first = reinterpret_cast<const std::byte*>(&value);
  bytes->insert(bytes->end(), first, first + sizeof(T));
}

void PushHash(std::vector<std::byte>* bytes) {
  Push(bytes, uint64_t{XXH3_64bits(bytes->data(), bytes->size())});
}

template <typename T>
T Get(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// Appends numbers below 2^16 in few bits.
class BitPacker {
 public:
  explicit BitPacker(std::vector<std::byte>* out) : out_(*out) {}
  void Push(uint32_t value, uint32_t bits) {
    pending_ |= uint64_t{value} << held_;
    for (held_ += bits; held_ >= 8; held_ -= 8) {
      out_.push_back(static_cast<std::byte>(pending_));
      pending_ >>= 8;
    }
  }
  void Finish() {
    if (held_ > 0) out_.push_back(static_cast<std::byte>(pending_));
    pending_ = 0;
    held_ = 0;
  }

 private:
  std::vector<std::byte>& out_;
  uint64_t pending_ = 0;
  uint32_t held_ = 0;
};

std::string BankProblem(const TraceBank& bank) {
  if (bank.experts >= 1 && bank.experts <= UINT16_MAX && bank.used >= 1 && bank.used <= kUsedMax &&
      bank.used <= bank.experts) {
    return {};
  }
  return "a bank of " + std::to_string(bank.experts) + " experts of which a row picks " +
         std::to_string(bank.used);
}

}  // namespace

TraceWriter::TraceWriter(const std::string& path, std::vector<TraceBank> banks, int32_t rows_max,
                         uint64_t bytes_max)
    : banks_(std::move(banks)), rows_max_(rows_max), bytes_max_(bytes_max), file_(path) {
  if (banks_.empty() || banks_.size() > kBanksMax) {
    throw Error(ErrorKind::kUsage, "routing trace: the model has " + std::to_string(banks_.size()) +
                                       " banks of experts; 1 to " + std::to_string(kBanksMax) +
                                       " can be traced");
  }
  const uint64_t payload_max = PayloadBytes(banks_, static_cast<uint64_t>(rows_max_));
  if (payload_max > UINT32_MAX) {
    throw Error(ErrorKind::kUsage, "routing trace: a pass of " + std::to_string(rows_max_) +
                                       " rows takes " + std::to_string(payload_max) +
                                       " bytes, more than a record holds; give a lower -ub");
  }
  record_.reserve(payload_max + 16);
  buffer_.reserve(kBufferBytes);
  for (const char c : kMagic) record_.push_back(static_cast<std::byte>(c));
  Push(&record_, kVersion);
  Push(&record_, static_cast<uint32_t>(banks_.size()));
  for (const TraceBank& bank : banks_) {
    if (const std::string problem = BankProblem(bank); !problem.empty()) {
      throw Error(ErrorKind::kUsage, "routing trace: " + problem + " cannot be traced");
    }
    Push(&record_, bank.layer);
    Push(&record_, bank.experts);
    Push(&record_, bank.used);
  }
  PushHash(&record_);
  Put(record_);
}

bool TraceWriter::Append(std::span<const uint8_t> slots, const PassPicks& picks) {
  const auto rows = static_cast<size_t>(picks.rows);
  bool fits = picks.rows >= 1 && picks.rows <= rows_max_ && slots.size() == rows &&
              picks.experts.size() == banks_.size();
  for (size_t bank = 0; fits && bank < banks_.size(); ++bank) {
    fits = picks.experts[bank].size() == rows * banks_[bank].used;
  }
  if (!fits) {
    throw Error(ErrorKind::kInternal, "routing trace: picks of " + std::to_string(picks.rows) +
                                          " rows do not have the shape of the banks");
  }
  const uint64_t payload = PayloadBytes(banks_, rows);
  // The last record must fit as well.
  constexpr uint64_t kFrame = 16;
  if (full_ || bytes_ + payload + 3 * kFrame > bytes_max_) {
    full_ = true;
    return false;
  }
  record_.clear();
  Push(&record_, static_cast<uint32_t>(rows));
  Push(&record_, static_cast<uint32_t>(payload));
  for (int32_t row = 0; row < picks.rows; ++row) {
    const uint8_t kept = picks.Kept(row) ? kKept : uint8_t{0};
    record_.push_back(static_cast<std::byte>(slots[static_cast<size_t>(row)] | kept));
  }
  BitPacker packer(&record_);
  for (size_t bank = 0; bank < banks_.size(); ++bank) {
    const uint32_t bits = BitsOf(banks_[bank].experts);
    for (const uint16_t expert : picks.experts[bank]) packer.Push(expert, bits);
    packer.Finish();
  }
  PushHash(&record_);
  Put(record_);
  ++passes_;
  return true;
}

void TraceWriter::Put(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  if (buffer_.size() + bytes.size() > kBufferBytes) Flush();
  if (bytes.size() > kBufferBytes) {
    file_.Write(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void TraceWriter::Flush() {
  file_.Write(buffer_);
  buffer_.clear();
}

void TraceWriter::Finish() {
  record_.clear();
  Push(&record_, uint32_t{0});
  Push(&record_, uint32_t{sizeof(passes_)});
  Push(&record_, passes_);
  PushHash(&record_);
  Put(record_);
  Flush();
  file_.Commit();
}

PassPicks TracePass::Picks() {
  spans_.assign(experts.begin(), experts.end());
  return {.rows = rows, .kept = kept, .experts = spans_};
}

TraceReader::TraceReader(std::shared_ptr<const File> file) : file_(std::move(file)) {
  ReadHeader();
}

void TraceReader::Refuse(uint64_t offset, const std::string& what) const {
  throw Error(ErrorKind::kBadModel, "routing trace '" + Printable(file_->path()) + "', byte " +
                                        std::to_string(offset) + ": " + what);
}

std::span<const std::byte> TraceReader::Take(uint64_t bytes, const char* what) {
  if (bytes > file_->size() - at_) {
    Refuse(file_->size(), std::string("the file ends inside ") + what + ", which needs " +
                              std::to_string(bytes) + " bytes from byte " + std::to_string(at_));
  }
  const size_t first = bytes_.size();
  bytes_.resize(first + bytes);
  const std::span<std::byte> out = std::span(bytes_).subspan(first);
  file_->ReadAt(at_, out);
  at_ += bytes;
  return out;
}

void TraceReader::CheckHash(uint64_t offset, const char* what) {
  const uint64_t hash = XXH3_64bits(bytes_.data(), bytes_.size());
  if (Get<uint64_t>(Take(sizeof(hash), what), 0) != hash) {
    Refuse(offset, std::string(what) + " is damaged: its check sum does not match");
  }
}

void TraceReader::ReadHeader() {
  const auto start = Take(kMagic.size() + 8, "the header");
  if (std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) {
    Refuse(0, "no routing trace: it does not start with BLRTRACE");
  }
  const auto version = Get<uint32_t>(start, kMagic.size());
  if (version != kVersion) {
    Refuse(kMagic.size(), "version " + std::to_string(version) + "; this program reads version " +
                              std::to_string(kVersion));
  }
  const auto banks = Get<uint32_t>(start, kMagic.size() + 4);
  if (banks < 1 || banks > kBanksMax) {
    Refuse(kMagic.size() + 4,
           std::to_string(banks) + " banks; 1 to " + std::to_string(kBanksMax) + " can be");
  }
  for (uint32_t i = 0; i < banks; ++i) {
    const uint64_t offset = at_;
    const auto words = Take(12, "the header");
    banks_.push_back({Get<int32_t>(words, 0), Get<uint32_t>(words, 4), Get<uint32_t>(words, 8)});
    if (const std::string problem = BankProblem(banks_.back()); !problem.empty()) {
      Refuse(offset, problem);
    }
  }
  CheckHash(0, "the header");
}

bool TraceReader::Next(TracePass* pass) {
  const uint64_t offset = at_;
  bytes_.clear();
  const auto start = Take(8, "a record");
  const auto rows = Get<uint32_t>(start, 0);
  const auto bytes = Get<uint32_t>(start, 4);
  const uint64_t expected = rows == 0 ? sizeof(passes_) : PayloadBytes(banks_, rows);
  if (rows > static_cast<uint32_t>(limits::kUbatchRowsMax) || bytes != expected) {
    Refuse(offset,
           "a record of " + std::to_string(rows) + " rows in " + std::to_string(bytes) + " bytes");
  }
  const auto payload = Take(bytes, "a record");
  const uint64_t passes = rows == 0 ? Get<uint64_t>(payload, 0) : 0;
  // Before the check sum is read behind it, which may move the bytes.
  const size_t payload_at = 8;
  CheckHash(offset, "the record");
  if (rows > 0) {
    pass->rows = static_cast<int32_t>(rows);
    Unpack(std::span(bytes_).subspan(payload_at, bytes), offset, pass);
    ++passes_;
    return true;
  }
  if (passes != passes_) {
    Refuse(offset, "the last record counts " + std::to_string(passes) + " passes, the file has " +
                       std::to_string(passes_));
  }
  if (at_ != file_->size()) {
    Refuse(at_, std::to_string(file_->size() - at_) + " bytes after the last record");
  }
  at_ = offset;  // another call ends here too
  return false;
}

void TraceReader::Unpack(std::span<const std::byte> payload, uint64_t offset,
                         TracePass* pass) const {
  const auto rows = static_cast<size_t>(pass->rows);
  pass->slots.resize(rows);
  pass->kept.resize(rows);
  for (size_t row = 0; row < rows; ++row) {
    const auto byte = static_cast<uint8_t>(payload[row]);
    pass->slots[row] = byte & static_cast<uint8_t>(kKept - 1);
    pass->kept[row] = byte >> 7;
  }
  pass->experts.resize(banks_.size());
  payload = payload.subspan(rows);
  for (size_t bank = 0; bank < banks_.size(); ++bank) {
    const uint32_t bits = BitsOf(banks_[bank].experts);
    pass->experts[bank].resize(rows * banks_[bank].used);
    uint64_t pending = 0;
    uint32_t held = 0;
    size_t at = 0;
    for (uint16_t& expert : pass->experts[bank]) {
      for (; held < bits; held += 8)
        pending |= uint64_t{static_cast<uint8_t>(payload[at++])} << held;
      expert = static_cast<uint16_t>(pending & ((uint64_t{1} << bits) - 1));
      pending >>= bits;
      held -= bits;
      if (expert >= banks_[bank].experts) {
        Refuse(offset, "the record picks expert " + std::to_string(expert) + " of bank " +
                           std::to_string(bank) + ", which has " +
                           std::to_string(banks_[bank].experts));
      }
    }
    payload = payload.subspan(BankBytes(banks_[bank], rows));
  }
}

}  // namespace bloomery::memory
