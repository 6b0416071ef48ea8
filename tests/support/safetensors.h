// Reads the golden tensors of the oracle sets: a safetensors file of F32 and I32 tensors, whole,
// into memory. For tests only: it trusts the file.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/json.h"

namespace bloomery::test {

struct GoldenTensor {
  std::vector<int64_t> shape;  // slowest axis first, as the file has it
  std::vector<float> floats;
  std::vector<int32_t> ints;

  int64_t rows() const { return shape.front(); }
  int64_t width() const { return shape.size() < 2 ? 1 : shape.back(); }
};

class Safetensors {
 public:
  explicit Safetensors(const std::string& path) {
    const std::string file = ReadWholeFile(RealFileSystem(), path, uint64_t{1} << 30);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
    const rapidjson::Document header =
        ParseJson(std::string_view(file).substr(8, header_bytes), path);
    const char* data = file.data() + 8 + header_bytes;
    for (const auto& member : header.GetObject()) {
      const std::string name = member.name.GetString();
      if (name == "__metadata__") continue;
      const auto& info = member.value;
      GoldenTensor tensor;
      for (const auto& n : info["shape"].GetArray()) tensor.shape.push_back(n.GetInt64());
      const uint64_t begin = info["data_offsets"][0].GetUint64();
      const uint64_t bytes = info["data_offsets"][1].GetUint64() - begin;
      const bool is_float = std::string(info["dtype"].GetString()) == "F32";
      if (is_float) {
        tensor.floats.resize(bytes / 4);
        std::memcpy(tensor.floats.data(), data + begin, bytes);
      } else {
        tensor.ints.resize(bytes / 4);
        std::memcpy(tensor.ints.data(), data + begin, bytes);
      }
      tensors_[name] = std::move(tensor);
    }
  }

  bool Has(const std::string& name) const { return tensors_.contains(name); }
  const GoldenTensor& Get(const std::string& name) const { return tensors_.at(name); }
  GoldenTensor& Mutable(const std::string& name) { return tensors_.at(name); }

 private:
  std::map<std::string, GoldenTensor> tensors_;
};

}  // namespace bloomery::test
