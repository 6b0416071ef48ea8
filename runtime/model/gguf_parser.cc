#include "runtime/model/gguf_parser.h"

#include <bit>
#include <limits>
#include <optional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/limits.h"
#include "runtime/base/utf8.h"

namespace bloomery::model {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF", little endian
constexpr uint32_t kVersionMin = 2;
constexpr uint32_t kVersionMax = 3;
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMin = 8;  // the GGUF description: a multiple of 8
constexpr uint32_t kDimsMax = 4;

// The fewest file bytes an entry can take: what a count may promise at most.
constexpr uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;           // length, key, kind, value
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;  // length, name, dims, ne, type, offset
constexpr uint64_t kStringBytesMin = 8;                      // its length

// Memory an entry takes beside its text: the object and the nodes that index it.
constexpr uint64_t kIndexNodeBytes = 80;
constexpr uint64_t kEntryOverhead = sizeof(std::pair<std::string, MetadataValue>) + kIndexNodeBytes;
constexpr uint64_t kTensorOverhead = sizeof(GgufTensor) + sizeof(TensorInfo) + kIndexNodeBytes;

std::string Quoted(std::string_view bytes) { return "'" + Printable(bytes) + "'"; }

class Parser {
 public:
  Parser(const File& file, uint32_t file_index, MetadataBudget& budget)
      : cursor_(file),
        file_bytes_(file.size()),
        file_index_(file_index),
        budget_(budget),
        header_{0, Metadata(file.path()), {}} {}

  GgufHeader Parse() {
    ReadVersion();
    const uint64_t tensors = ReadCount("tensors", kTensorBytesMin);
    const uint64_t entries = ReadCount("metadata entries", kEntryBytesMin);
    for (uint64_t i = 0; i < entries; ++i) ReadEntry(i);
    for (uint64_t i = 0; i < tensors; ++i) ReadTensorEntry(i);
    PlaceTensors();
    return std::move(header_);
  }

 private:
  void ReadVersion();
  uint64_t ReadCount(std::string_view what, uint64_t bytes_min);
  std::string ReadName(std::string_view what, uint64_t bytes_max);
  void ReadEntry(uint64_t i);
  MetadataValue ReadValue();
  std::string ReadString();
  MetadataArray ReadArray();
  MetadataArray ReadStrings(uint64_t count);
  void CheckBool(uint8_t byte, uint64_t at);
  ValueKind ReadKind(std::string_view what);
  void UseAlignment(const MetadataValue& value);
  void ReadTensorEntry(uint64_t i);
  void ReadShape(TensorInfo& tensor);
  void ReadType(TensorInfo& tensor);
  void PlaceTensors();

  ByteCursor cursor_;
  uint64_t file_bytes_;
  uint32_t file_index_;
  MetadataBudget& budget_;
  uint64_t alignment_ = kAlignmentDefault;
  GgufHeader header_;
};

void Parser::ReadVersion() {
  const auto magic = cursor_.Read<uint32_t>("the magic number");
  if (magic != kMagic) cursor_.Refuse(0, "this is no GGUF file: it does not begin with \"GGUF\"");
  const uint64_t at = cursor_.position();
  const auto version = cursor_.Read<uint32_t>("the version");
  if ((version & 0xFFFF) == 0 && version != 0) {
    cursor_.Refuse(at,
                   "this is a big-endian GGUF file; only little-endian ones are read, convert it");
  }
  if (version < kVersionMin || version > kVersionMax) {
    cursor_.Refuse(at, "GGUF version " + std::to_string(version) +
                           " is not read, only versions 2 and 3; convert it with a current tool");
  }
  header_.version = version;
}

uint64_t Parser::ReadCount(std::string_view what, uint64_t bytes_min) {
  const uint64_t at = cursor_.position();
  const auto count = cursor_.Read<uint64_t>("the number of " + std::string(what));
  const uint64_t most = cursor_.remaining() / bytes_min;
  if (count > most) {
    cursor_.Refuse(at, std::to_string(count) + " " + std::string(what) +
                           " are announced, but the file has room for at most " +
                           std::to_string(most));
  }
  return count;
}

// A key or tensor name: its length is checked against `bytes_max` before it is read.
std::string Parser::ReadName(std::string_view what, uint64_t bytes_max) {
  const uint64_t at = cursor_.position();
  const auto length = cursor_.Read<uint64_t>("the length of its " + std::string(what));
  if (length == 0) cursor_.Refuse(at, "its " + std::string(what) + " is empty");
  if (length > bytes_max) {
    cursor_.Refuse(at, "its " + std::string(what) + " has " + std::to_string(length) +
                           " bytes, the limit is " + std::to_string(bytes_max));
  }
  budget_.Charge(length, cursor_);
  std::string name = cursor_.ReadString(length, "its " + std::string(what));
  if (!IsValidUtf8(name)) {
    cursor_.Refuse(at, "its " + std::string(what) + " " + Quoted(name) + " is not valid UTF-8");
  }
  return name;
}

void Parser::ReadEntry(uint64_t i) {
  cursor_.SetSubject("metadata entry " + std::to_string(i));
  const uint64_t at = cursor_.position();
  budget_.Charge(kEntryOverhead, cursor_);
  std::string key = ReadName("key", limits::kMetadataKeyBytesMax);
  cursor_.SetSubject("metadata key " + Quoted(key));
  MetadataValue value = ReadValue();
  if (key == kAlignmentKey) UseAlignment(value);
  if (!header_.metadata.Add(std::move(key), std::move(value))) {
    cursor_.Refuse(at, "the key is there twice");
  }
}

ValueKind Parser::ReadKind(std::string_view what) {
  const uint64_t at = cursor_.position();
  const auto id = cursor_.Read<uint32_t>(what);
  if (id > static_cast<uint32_t>(ValueKind::kF64)) {
    cursor_.Refuse(at, std::string(what) + " is " + std::to_string(id) +
                           ", which is no value type of GGUF 2 or 3 (0 to 12)");
  }
  return static_cast<ValueKind>(id);
}

MetadataValue Parser::ReadValue() {
  const uint64_t at = cursor_.position();
  const ValueKind kind = ReadKind("its value type");
  if (kind == ValueKind::kString) return {kind, ReadString(), at};
  if (kind == ValueKind::kArray) return {kind, ReadArray(), at};
  const uint64_t value_at = cursor_.position();
  char bytes[8];
  const std::span<char> value(bytes, ValueKindBytes(kind));
  cursor_.Read(std::as_writable_bytes(value), "its value");
  if (kind == ValueKind::kBool) {
    CheckBool(static_cast<uint8_t>(bytes[0]), value_at);
    return {kind, bytes[0] != 0, at};
  }
  MetadataValue result{kind, uint64_t{0}, at};
  std::visit([&result](auto number) { result.data = number; }, DecodeNumber(kind, bytes));
  return result;
}

std::string Parser::ReadString() {
  const auto length = cursor_.Read<uint64_t>("the string's length");
  // The file's end first: a wrong length is a bad file and not a matter of memory.
  cursor_.Require(length, "the string");
  budget_.Charge(length, cursor_);
  return cursor_.ReadString(length, "the string");
}

MetadataArray Parser::ReadArray() {
  const uint64_t kind_at = cursor_.position();
  const ValueKind kind = ReadKind("its element type");
  if (kind == ValueKind::kArray) {
    cursor_.Refuse(kind_at, "an array of arrays is not read; no known model needs one");
  }
  const uint64_t count_at = cursor_.position();
  const auto count = cursor_.Read<uint64_t>("the array's length");
  const uint64_t element_bytes =
      kind == ValueKind::kString ? kStringBytesMin : ValueKindBytes(kind);
  if (count > cursor_.remaining() / element_bytes) {
    cursor_.Refuse(count_at, "an array of " + std::to_string(count) + " " +
                                 std::string(ValueKindName(kind)) +
                                 " is announced, but the file has only " +
                                 std::to_string(cursor_.remaining()) + " more bytes");
  }
  if (kind == ValueKind::kString) return ReadStrings(count);
  const uint64_t bytes = count * element_bytes;
  budget_.Charge(bytes, cursor_);
  const uint64_t at = cursor_.position();
  std::string raw = cursor_.ReadString(bytes, "the array");
  if (kind == ValueKind::kBool) {
    for (uint64_t i = 0; i < raw.size(); ++i) CheckBool(static_cast<uint8_t>(raw[i]), at + i);
  }
  return MetadataArray::OfNumbers(kind, std::move(raw));
}

// Walks the lengths first, so that the text is taken in one piece of known size.
MetadataArray Parser::ReadStrings(uint64_t count) {
  budget_.Charge(count * sizeof(uint64_t), cursor_);
  std::vector<uint64_t> starts;
  starts.reserve(count);
  const uint64_t begin = cursor_.position();
  for (uint64_t i = 0; i < count; ++i) {
    const auto length = cursor_.Read<uint64_t>("the length of string " + std::to_string(i));
    starts.push_back(cursor_.position() - begin);
    cursor_.Skip(length, "string " + std::to_string(i));
  }
  const uint64_t bytes = cursor_.position() - begin;
  budget_.Charge(bytes, cursor_);
  cursor_.Seek(begin);
  return MetadataArray::OfStrings(cursor_.ReadString(bytes, "the array"), std::move(starts));
}

void Parser::CheckBool(uint8_t byte, uint64_t at) {
  if (byte > 1) {
    cursor_.Refuse(at, "a bool is stored as " + std::to_string(byte) + ", expected 0 or 1");
  }
}

void Parser::UseAlignment(const MetadataValue& value) {
  const auto* alignment = std::get_if<uint64_t>(&value.data);
  if (value.kind != ValueKind::kU32 || alignment == nullptr) {
    cursor_.Refuse(value.offset,
                   "it is " + std::string(ValueKindName(value.kind)) + ", expected u32");
  }
  if (*alignment < kAlignmentMin || !std::has_single_bit(*alignment)) {
    cursor_.Refuse(value.offset, "the alignment is " + std::to_string(*alignment) +
                                     ", expected a power of two from 8 up");
  }
  alignment_ = *alignment;
}

void Parser::ReadTensorEntry(uint64_t i) {
  cursor_.SetSubject("tensor entry " + std::to_string(i));
  budget_.Charge(kTensorOverhead, cursor_);
  GgufTensor tensor{{}, cursor_.position()};
  tensor.info.file = file_index_;
  tensor.info.name = ReadName("name", limits::kTensorNameBytesMax);
  cursor_.SetSubject("tensor " + Quoted(tensor.info.name));
  ReadShape(tensor.info);
  ReadType(tensor.info);
  const uint64_t at = cursor_.position();
  tensor.info.offset = cursor_.Read<uint64_t>("its offset");
  if (tensor.info.offset % alignment_ != 0) {
    cursor_.Refuse(at, "its offset " + std::to_string(tensor.info.offset) +
                           " is no multiple of the alignment " + std::to_string(alignment_));
  }
  header_.tensors.push_back(std::move(tensor));
}

void Parser::ReadShape(TensorInfo& tensor) {
  const uint64_t at = cursor_.position();
  tensor.n_dims = cursor_.Read<uint32_t>("the number of its dimensions");
  if (tensor.n_dims == 0 || tensor.n_dims > kDimsMax) {
    cursor_.Refuse(at, "it has " + std::to_string(tensor.n_dims) + " dimensions, expected 1 to 4");
  }
  tensor.ne = {1, 1, 1, 1};
  uint64_t values = 1;
  for (uint32_t axis = 0; axis < tensor.n_dims; ++axis) {
    const uint64_t ne_at = cursor_.position();
    const auto ne = cursor_.Read<uint64_t>("dimension " + std::to_string(axis));
    if (ne == 0) cursor_.Refuse(ne_at, "dimension " + std::to_string(axis) + " is 0");
    // Signed 64 bits, so that counts of values fit every signed index used later.
    if (ne > std::numeric_limits<int64_t>::max() / values) {
      cursor_.Refuse(ne_at, "dimension " + std::to_string(axis) + " is " + std::to_string(ne) +
                                ": the number of values passes 2^63");
    }
    values *= ne;
    tensor.ne[axis] = ne;
  }
}

void Parser::ReadType(TensorInfo& tensor) {
  const uint64_t at = cursor_.position();
  const auto id = cursor_.Read<uint32_t>("its type");
  const TensorTypeInfo* type = FindTensorType(id);
  if (type == nullptr) {
    std::string known;
    for (const TensorTypeInfo& row : TensorTypes()) {
      known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    cursor_.Refuse(at, "its type " + std::to_string(id) +
                           " is not known; the file may be from a newer tool, known are " + known);
  }
  tensor.type = type->type;
  if (tensor.ne[0] % type->block_values != 0) {
    cursor_.Refuse(at, "a row has " + std::to_string(tensor.ne[0]) + " values, type " +
                           std::string(type->name) + " needs a multiple of " +
                           std::to_string(type->block_values));
  }
  const uint64_t blocks = tensor.ne[0] / type->block_values * tensor.rows();
  if (__builtin_mul_overflow(blocks, uint64_t{type->block_bytes}, &tensor.bytes)) {
    cursor_.Refuse(at, "its size in bytes passes 2^64");
  }
}

// Offsets count from the first aligned byte after the tensor list; from here on from the file's
// start, and inside it.
void Parser::PlaceTensors() {
  if (header_.tensors.empty()) return;
  const uint64_t rest = cursor_.position() % alignment_;
  const uint64_t padding = rest == 0 ? 0 : alignment_ - rest;
  const uint64_t available = padding > cursor_.remaining() ? 0 : cursor_.remaining() - padding;
  const uint64_t data_begin = cursor_.position() + padding;
  for (GgufTensor& tensor : header_.tensors) {
    TensorInfo& info = tensor.info;
    if (info.offset > available || info.bytes > available - info.offset) {
      cursor_.SetSubject("tensor " + Quoted(info.name));
      cursor_.Refuse(tensor.entry_at,
                     "its " + std::to_string(info.bytes) + " bytes of data at offset " +
                         std::to_string(info.offset) + " from byte " + std::to_string(data_begin) +
                         " go past the file's end at byte " + std::to_string(file_bytes_) +
                         "; the file may be cut short, fetch it again");
    }
    info.offset += data_begin;
  }
}

}  // namespace

void MetadataBudget::Charge(uint64_t bytes, const ByteCursor& cursor) {
  if (bytes > bytes_max_ - bytes_) {
    throw Error(ErrorKind::kNoMemory, cursor.path() + ": " + cursor.subject() + " at byte " +
                                          std::to_string(cursor.position()) +
                                          ": metadata takes more than the limit of " +
                                          std::to_string(bytes_max_) + " bytes");
  }
  bytes_ += bytes;
}

GgufHeader ParseGgufHeader(const File& file, uint32_t file_index, MetadataBudget& budget) {
  return Parser(file, file_index, budget).Parse();
}

}  // namespace bloomery::model
