// Feeds arbitrary bytes to the GGUF reader as a file in memory. A refusal is fine; a crash, a
// sanitizer report, an error of another type, or a model whose parts lie outside the file is not.
//
//   gguf_fuzz -max_len=65536 CORPUS SEEDS
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/error.h"
#include "runtime/model/gguf.h"

namespace {

using bloomery::File;
using bloomery::model::Metadata;
using bloomery::model::MetadataArray;
using bloomery::model::ModelFile;
using bloomery::model::ValueKind;

// Every path gives the same bytes, so that an input can pass as each file of a split set.
class OneInput final : public bloomery::FileSystem {
 public:
  explicit OneInput(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::shared_ptr<const File> Open(const std::string& path) const override {
    return bloomery::MakeMemoryFile(path, bytes_);
  }
  bool Exists(const std::string&) const override { return true; }

 private:
  std::span<const std::byte> bytes_;
};

void Require(bool condition) {
  if (!condition) std::abort();
}

// Reads every element; the sum keeps the reads from being left out.
uint64_t TouchArray(const MetadataArray& array) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < array.size(); ++i) {
    if (array.element_kind() == ValueKind::kString) {
      for (const char byte : array.String(i)) sum += static_cast<unsigned char>(byte);
    } else {
      sum += array.At(i).index();
    }
  }
  return sum;
}

// Reads all of what an accepted file promised.
void Touch(const ModelFile& model) {
  const Metadata& metadata = model.metadata();
  for (size_t i = 0; i < metadata.size(); ++i) {
    const auto& data = metadata.value(i).data;
    if (const auto* array = std::get_if<MetadataArray>(&data)) {
      volatile uint64_t sum = TouchArray(*array);
      static_cast<void>(sum);
    }
    Require(metadata.Find(metadata.key(i)) == &metadata.value(i));
  }
  for (size_t i = 0; i < model.tensors().size(); ++i) {
    const auto& tensor = model.tensors()[i];
    Require(tensor.bytes > 0 && tensor.row_bytes() * tensor.rows() == tensor.bytes);
    Require(model.ReadTensor(i).size() == tensor.bytes);
    Require(model.MapTensor(i) != nullptr);
    Require(model.GetTensorIndex(tensor.name) == i);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Small enough that an input which takes more memory than it has bytes is seen.
  constexpr uint64_t kMetadataBytesMax = 1 << 20;
  const OneInput files(std::as_bytes(std::span(data, size)));
  try {
    Touch(bloomery::model::OpenGguf(files, "fuzz-00001-of-00002.gguf",
                                    {.metadata_bytes_max = kMetadataBytesMax}));
  } catch (const bloomery::Error& error) {
    Require(*error.what() != '\0');  // a refusal says why
  }
  return 0;
}
