// Typed access to a model's metadata and tensors over bl_model. Every refusal names the key or
// tensor. Views and strings live as long as the bl_model (until destroy). [load] thread only; owns
// nothing.
//
//   const uint64_t layers = model.U64(model.ArchKey("block_count"));
//   const double base = model.FindF64(model.ArchKey("rope.freq_base")).value_or(10000.0);
#pragma once

#include <bloomery/model.h>

#include <bloomery/abi.hpp>
#include <bloomery/errors.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bloomery::sdk {

class Model {
 public:
  explicit Model(const bl_model* model) : model_(model) {}
  const bl_model& raw() const { return *model_; }

  uint32_t n_files() const { return model_->n_files; }
  // i < n_files(); 0 is the trunk. Steps by the size that the host compiled.
  const bl_file& file(uint32_t i) const {
    const auto* bytes = reinterpret_cast<const char*>(model_->files);
    return *reinterpret_cast<const bl_file*>(bytes + size_t{model_->files->size} * i);
  }
  // The trunk's architecture string; empty where the host gives none.
  std::string_view arch() const {
    if (model_->n_files == 0 || model_->files == nullptr || file(0).arch == nullptr) return {};
    return file(0).arch;
  }
  // "<architecture>.<rest>", as GGUF spells the keys of a model's shape.
  std::string ArchKey(std::string_view rest) const {
    return std::string(arch()) + "." + std::string(rest);
  }

  bool Has(const std::string& key) const { return FindRaw(key).has_value(); }

  // Find…: the value, or nullopt when the key is absent; a value of another kind, or one that does
  // not fit, is refused. Without Find: absence is refused, too.
  std::optional<uint64_t> FindU64(const std::string& key) const {
    return Take<uint64_t>(key, "an unsigned integer", AsU64);
  }
  std::optional<int64_t> FindI64(const std::string& key) const {
    return Take<int64_t>(key, "an integer", AsI64);
  }
  std::optional<double> FindF64(const std::string& key) const {
    return Take<double>(key, "a number", AsF64);
  }
  std::optional<bool> FindBool(const std::string& key) const {
    return Take<bool>(key, "a boolean", AsBool);
  }
  std::optional<std::string_view> FindStr(const std::string& key) const {
    return Take<std::string_view>(key, "a string", AsStr);
  }
  uint64_t U64(const std::string& key) const { return Require(key, FindU64(key)); }
  int64_t I64(const std::string& key) const { return Require(key, FindI64(key)); }
  double F64(const std::string& key) const { return Require(key, FindF64(key)); }
  bool Bool(const std::string& key) const { return Require(key, FindBool(key)); }
  std::string_view Str(const std::string& key) const { return Require(key, FindStr(key)); }

  // A required integer within [low, high]; the refusal prints value and bounds.
  uint64_t U64In(const std::string& key, uint64_t low, uint64_t high) const {
    const uint64_t value = U64(key);
    if (value < low || value > high) {
      Refuse("metadata key '" + key + "' is " + std::to_string(value) + ", outside " +
             std::to_string(low) + " … " + std::to_string(high));
    }
    return value;
  }

  // A whole array; absence and items of another kind are refused, naming the index.
  std::vector<uint64_t> U64Array(const std::string& key) const {
    return Array<uint64_t>(key, "an unsigned integer", AsU64);
  }
  std::vector<int64_t> I64Array(const std::string& key) const {
    return Array<int64_t>(key, "an integer", AsI64);
  }
  std::vector<double> F64Array(const std::string& key) const {
    return Array<double>(key, "a number", AsF64);
  }
  std::vector<bool> BoolArray(const std::string& key) const {
    return Array<bool>(key, "a boolean", AsBool);
  }
  // Booleans, or integers that are 0 or 1.
  std::vector<bool> FlagArray(const std::string& key) const {
    return Array<bool>(key, "0 or 1, or a boolean", AsFlag);
  }
  std::vector<std::string_view> StrArray(const std::string& key) const {
    return Array<std::string_view>(key, "a string", AsStr);
  }

  uint64_t n_tensors() const { return model_->n_tensors; }
  bl_tensor_info Tensor(uint64_t i) const {
    auto info = MakeAbi<bl_tensor_info>();
    const bl_status status = model_->tensor(model_->self, i, &info);
    if (status != BL_OK) throw Failure(status, "tensor " + std::to_string(i) + " cannot be read");
    return info;
  }
  std::optional<uint64_t> FindTensor(const std::string& name) const {
    const int64_t i = model_->find(model_->self, name.c_str());
    return i < 0 ? std::nullopt : std::optional<uint64_t>(static_cast<uint64_t>(i));
  }
  // Names of what the file holds of one layer ("blk.46.…"): for Seat::Ignore, where a plugin leaves
  // a layer out.
  std::vector<std::string> TensorsOf(uint64_t layer) const {
    const std::string start = "blk." + std::to_string(layer) + ".";
    std::vector<std::string> names;
    for (uint64_t i = 0; i < n_tensors(); ++i) {
      std::string name = Tensor(i).name;
      if (name.starts_with(start)) names.push_back(std::move(name));
    }
    return names;
  }
  // The tensor of that name; refused when there is none.
  bl_tensor_info GetTensor(const std::string& name) const {
    const auto i = FindTensor(name);
    if (!i) Refuse("tensor '" + name + "' is missing from the file");
    return Tensor(*i);
  }
  // All bytes of a small tensor (the host limits one call to 1 MiB and a seat to 16 MiB).
  std::vector<std::byte> ReadSmall(const std::string& name) const {
    const auto i = FindTensor(name);
    if (!i) Refuse("tensor '" + name + "' is missing from the file");
    std::vector<std::byte> bytes(Tensor(*i).bytes);
    const bl_status status = model_->read_small(model_->self, *i, 0, bytes.data(), bytes.size());
    if (status != BL_OK) {
      throw Failure(status, "tensor '" + name + "' (" + std::to_string(bytes.size()) +
                                " bytes) cannot be read by the plugin");
    }
    return bytes;
  }

 private:
  static bool AsU64(const bl_kv& kv, uint64_t* out) {
    *out = kv.u;
    return kv.kind == BL_KV_U64;
  }
  static bool AsI64(const bl_kv& kv, int64_t* out) {
    *out = kv.i;
    return kv.kind == BL_KV_I64 || (kv.kind == BL_KV_U64 && kv.u <= uint64_t{INT64_MAX});
  }
  static bool AsF64(const bl_kv& kv, double* out) {
    *out = kv.f;
    return kv.kind == BL_KV_F64 || kv.kind == BL_KV_U64 || kv.kind == BL_KV_I64;
  }
  static bool AsBool(const bl_kv& kv, bool* out) {
    *out = kv.u != 0;
    return kv.kind == BL_KV_BOOL;
  }
  static bool AsFlag(const bl_kv& kv, bool* out) {
    int64_t number = 0;
    if (AsI64(kv, &number) && (number == 0 || number == 1)) {
      *out = number == 1;
      return true;
    }
    return AsBool(kv, out);
  }
  static bool AsStr(const bl_kv& kv, std::string_view* out) {
    *out = std::string_view(kv.s.data == nullptr ? "" : kv.s.data, kv.s.bytes);
    return kv.kind == BL_KV_STR;
  }

  std::optional<bl_kv> FindRaw(const std::string& key) const {
    auto kv = MakeAbi<bl_kv>();
    const bl_status status = model_->kv(model_->self, key.c_str(), &kv);
    if (status == BL_UNSUPPORTED) return std::nullopt;
    if (status != BL_OK) throw Failure(status, "metadata key '" + key + "' cannot be read");
    return kv;
  }

  template <class T>
  static std::optional<T> Take(const std::optional<bl_kv>& kv, const std::string& what,
                               const char* expected, bool (*as)(const bl_kv&, T*)) {
    if (!kv) return std::nullopt;
    T value{};
    if (!as(*kv, &value)) Refuse(what + " is not " + expected);
    return value;
  }
  template <class T>
  std::optional<T> Take(const std::string& key, const char* expected,
                        bool (*as)(const bl_kv&, T*)) const {
    return Take<T>(FindRaw(key), "metadata key '" + key + "'", expected, as);
  }

  template <class T>
  static T Require(const std::string& key, const std::optional<T>& value) {
    if (!value) Refuse("metadata key '" + key + "' is missing: this architecture needs it");
    return *value;
  }

  template <class T>
  std::vector<T> Array(const std::string& key, const char* expected,
                       bool (*as)(const bl_kv&, T*)) const {
    const bl_kv array = Require(key, FindRaw(key));
    if (array.kind != BL_KV_ARRAY) Refuse("metadata key '" + key + "' is not an array");
    std::vector<T> values;
    for (uint64_t i = 0; i < array.count; ++i) {
      auto item = MakeAbi<bl_kv>();
      const bl_status status = model_->kv_item(model_->self, key.c_str(), i, &item);
      const std::string what = "metadata key '" + key + "', item " + std::to_string(i);
      if (status != BL_OK) throw Failure(status, what + " cannot be read");
      values.push_back(*Take<T>(std::optional<bl_kv>(item), what, expected, as));
    }
    return values;
  }

  const bl_model* model_;
};

}  // namespace bloomery::sdk
