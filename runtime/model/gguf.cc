#include "runtime/model/gguf.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"
#include "runtime/model/gguf_parser.h"

namespace bloomery::model {
namespace {

constexpr std::string_view kSplitNo = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";
constexpr std::string_view kAlignment = "general.alignment";  // each file's own

// What the split keys of one file say; a file without them is a set of one.
struct Split {
  uint64_t no = 0;     // counted from 0
  uint64_t count = 1;  // of files
  uint64_t tensors = 0;
};

[[noreturn]] void RefuseKey(const Metadata& metadata, std::string_view key,
                            const std::string& problem) {
  throw Error(ErrorKind::kBadModel, metadata.source() + ": metadata key '" + Printable(key) +
                                        "' at byte " + std::to_string(metadata.Find(key)->offset) +
                                        ": " + problem);
}

Split ReadSplit(const GgufHeader& header) {
  Split split;
  split.count = header.metadata.FindU64(kSplitCount).value_or(1);
  if (split.count <= 1) return split;
  if (split.count > limits::kModelShardsMax) {
    RefuseKey(header.metadata, kSplitCount,
              "a set of " + std::to_string(split.count) + " files, the limit is " +
                  std::to_string(limits::kModelShardsMax));
  }
  split.no = header.metadata.GetU64(kSplitNo);
  split.tensors = header.metadata.GetU64(kSplitTensors);
  return split;
}

// "00002": five digits, more where the number has more.
std::string Padded(uint64_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

// "-00002-of-00005.gguf" for no 1 of 5.
std::string ShardSuffix(uint64_t no, uint64_t count) {
  return "-" + Padded(no + 1) + "-of-" + Padded(count) + ".gguf";
}

// The set's common prefix, from the path of its first file.
std::string ShardPrefix(const GgufHeader& first, const Split& split) {
  const std::string& path = first.metadata.source();
  if (split.no != 0) {
    RefuseKey(first.metadata, kSplitNo,
              "this is file " + std::to_string(split.no + 1) + " of a set of " +
                  std::to_string(split.count) + "; open the first one, named …" +
                  ShardSuffix(0, split.count));
  }
  const std::string suffix = ShardSuffix(0, split.count);
  if (!path.ends_with(suffix)) {
    RefuseKey(first.metadata, kSplitCount,
              "the first file of a set of " + std::to_string(split.count) +
                  " must have a name ending in '" + suffix + "', or the others cannot be found");
  }
  return path.substr(0, path.size() - suffix.size());
}

bool SameValue(const MetadataValue& a, const MetadataValue& b) {
  return a.kind == b.kind && a.data == b.data;
}

// Refuses a file that is not number `no` of the set.
void CheckShard(const GgufHeader& shard, const Metadata& first, const Split& wanted, uint64_t no) {
  const auto require = [&](std::string_view key, uint64_t expected) {
    const uint64_t found = shard.metadata.GetU64(key);
    if (found == expected) return;
    RefuseKey(shard.metadata, key,
              "it is " + std::to_string(found) + ", expected " + std::to_string(expected) +
                  " as file " + std::to_string(no + 1) + " of the set of '" + first.source() +
                  "'; the file belongs elsewhere");
  };
  require(kSplitNo, no);
  require(kSplitCount, wanted.count);
  require(kSplitTensors, wanted.tensors);
  for (size_t i = 0; i < shard.metadata.size(); ++i) {
    const std::string_view key = shard.metadata.key(i);
    if (key == kSplitNo || key == kAlignment) continue;
    const MetadataValue* other = first.Find(key);
    if (other != nullptr && !SameValue(*other, shard.metadata.value(i))) {
      RefuseKey(
          shard.metadata, key,
          "it differs from the one in '" + first.source() + "'; the file belongs to another set");
    }
  }
}

// The model being put together: the metadata of the set is the union of its files'.
struct Assembly {
  uint32_t version;
  Metadata metadata;
  std::vector<GgufTensor> tensors;
  std::vector<std::shared_ptr<const File>> files;

  [[noreturn]] void Refuse(const GgufTensor& tensor, const std::string& problem) const {
    throw Error(ErrorKind::kBadModel, files[tensor.info.file]->path() + ": tensor '" +
                                          Printable(tensor.info.name) + "' at byte " +
                                          std::to_string(tensor.entry_at) + ": " + problem);
  }
};

void AddShards(const FileSystem& files, const Split& split, const std::string& prefix,
               MetadataBudget& budget, Assembly& model) {
  for (uint64_t no = 1; no < split.count; ++no) {
    const std::string path = prefix + ShardSuffix(no, split.count);
    if (!files.Exists(path)) {
      throw Error(ErrorKind::kNoInput, "'" + path + "' is missing: file " + std::to_string(no + 1) +
                                           " of the " + std::to_string(split.count) + " of '" +
                                           model.files[0]->path() + "'");
    }
    model.files.push_back(files.Open(path));
    GgufHeader shard = ParseGgufHeader(*model.files.back(), static_cast<uint32_t>(no), budget);
    CheckShard(shard, model.metadata, split, no);
    shard.metadata.MoveInto(model.metadata);
    std::move(shard.tensors.begin(), shard.tensors.end(), std::back_inserter(model.tensors));
  }
  if (model.tensors.size() != split.tensors) {
    RefuseKey(model.metadata, kSplitTensors,
              "the set holds " + std::to_string(model.tensors.size()) + " tensors, expected " +
                  std::to_string(split.tensors));
  }
}

// Names are unique and data does not overlap, over the whole set.
void CheckTensorsTogether(const Assembly& model) {
  std::vector<const GgufTensor*> order;
  order.reserve(model.tensors.size());
  for (const GgufTensor& tensor : model.tensors) order.push_back(&tensor);

  // Of equal names the later one in the file is refused.
  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::tie(a->info.name, a->info.file, a->entry_at) <
           std::tie(b->info.name, b->info.file, b->entry_at);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->info.name == order[i]->info.name) {
      model.Refuse(*order[i], "the name is there twice, first at byte " +
                                  std::to_string(order[i - 1]->entry_at) + " of '" +
                                  model.files[order[i - 1]->info.file]->path() + "'");
    }
  }

  std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::tie(a->info.file, a->info.offset, a->entry_at) <
           std::tie(b->info.file, b->info.offset, b->entry_at);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = order[i - 1]->info;
    const TensorInfo& after = order[i]->info;
    if (before.file == after.file && before.offset + before.bytes > after.offset) {
      model.Refuse(*order[i], "its data at byte " + std::to_string(after.offset) +
                                  " overlaps that of '" + Printable(before.name) +
                                  "', which ends at byte " +
                                  std::to_string(before.offset + before.bytes));
    }
  }
}

}  // namespace

ModelFile OpenGguf(const FileSystem& files, const std::string& path, const GgufOptions& options) {
  MetadataBudget budget(options.metadata_bytes_max);
  std::shared_ptr<const File> file = files.Open(path);
  GgufHeader first = ParseGgufHeader(*file, 0, budget);
  const Split split = ReadSplit(first);
  const std::string prefix = split.count > 1 ? ShardPrefix(first, split) : std::string();
  Assembly model{first.version, std::move(first.metadata), std::move(first.tensors), {}};
  model.files.push_back(std::move(file));
  if (split.count > 1) AddShards(files, split, prefix, budget, model);
  CheckTensorsTogether(model);

  std::vector<TensorInfo> tensors;
  tensors.reserve(model.tensors.size());
  for (GgufTensor& tensor : model.tensors) tensors.push_back(std::move(tensor.info));
  return {"GGUF v" + std::to_string(model.version), std::move(model.metadata), std::move(tensors),
          std::move(model.files)};
}

}  // namespace bloomery::model
