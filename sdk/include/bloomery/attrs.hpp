// Attributes of nodes, weights and operators: written by Attrs, read by AttrReader.
//
//   Attrs attrs;
//   attrs.F64("eps", 1e-6).Str("kind", "neox");
#pragma once

#include <bloomery/graph.h>

#include <bloomery/abi.hpp>
#include <bloomery/errors.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace bloomery::sdk {

// A list of named values. Copies are independent; order is kept.
class Attrs {
 public:
  Attrs& I64(std::string key, int64_t value) { return I64s(std::move(key), {value}); }
  Attrs& I64s(std::string key, std::vector<int64_t> values) {
    return Add(std::move(key), std::move(values));
  }
  Attrs& F64(std::string key, double value) { return F64s(std::move(key), {value}); }
  Attrs& F64s(std::string key, std::vector<double> values) {
    return Add(std::move(key), std::move(values));
  }
  Attrs& Str(std::string key, std::string value) {
    return Add(std::move(key), std::vector<std::string>{std::move(value)});
  }
  Attrs& Bool(std::string key, bool value) {
    return Add(std::move(key), std::vector<uint8_t>{static_cast<uint8_t>(value ? 1 : 0)});
  }
  bool empty() const { return items_.empty(); }

 private:
  friend class RawAttrs;
  using Values = std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string>,
                              std::vector<uint8_t>>;
  struct Item {
    std::string key;
    Values values;
  };
  Attrs& Add(std::string key, Values values) {
    items_.push_back({std::move(key), std::move(values)});
    return *this;
  }
  std::vector<Item> items_;
};

// The C form of an Attrs, which it owns. Not copyable: it points into itself.
class RawAttrs {
 public:
  explicit RawAttrs(Attrs attrs) : attrs_(std::move(attrs)) {
    texts_.reserve(attrs_.items_.size());
    for (const Attrs::Item& item : attrs_.items_) {
      auto raw = MakeAbi<bl_attr>();
      raw.type =
          static_cast<bl_attr_type>(item.values.index());  // the variant's order is the enum's
      raw.key = item.key.c_str();
      std::visit(
          [&](const auto& values) {
            raw.count = values.size();
            raw.value = values.data();
          },
          item.values);
      if (raw.type == BL_ATTR_STR) {
        texts_.emplace_back();
        for (const auto& text : std::get<2>(item.values)) texts_.back().push_back(text.c_str());
        raw.value = texts_.back().data();
      }
      raw_.push_back(raw);
    }
  }
  RawAttrs(const RawAttrs&) = delete;
  RawAttrs& operator=(const RawAttrs&) = delete;

  const bl_attr* data() const { return raw_.empty() ? nullptr : raw_.data(); }
  uint32_t size() const { return static_cast<uint32_t>(raw_.size()); }

 private:
  Attrs attrs_;
  std::vector<std::vector<const char*>> texts_;
  std::vector<bl_attr> raw_;
};

// Reads a C attribute list in place; allocates nothing, so kernels may use it. A key of another
// type than asked counts as absent.
class AttrReader {
 public:
  AttrReader(const bl_attr* attrs, uint32_t n) : attrs_(attrs), n_(n) {}

  uint32_t size() const { return n_; }
  const bl_attr& operator[](uint32_t i) const {
    const auto* bytes = reinterpret_cast<const char*>(attrs_);
    return *reinterpret_cast<const bl_attr*>(bytes + size_t{attrs_->size} * i);
  }
  std::optional<int64_t> I64(std::string_view key) const { return Get<int64_t>(key, BL_ATTR_I64); }
  std::optional<double> F64(std::string_view key) const { return Get<double>(key, BL_ATTR_F64); }
  std::optional<std::string_view> Str(std::string_view key) const {
    const auto text = Get<const char*>(key, BL_ATTR_STR);
    return text ? std::optional<std::string_view>(*text) : std::nullopt;
  }
  std::optional<bool> Bool(std::string_view key) const {
    const auto value = Get<uint8_t>(key, BL_ATTR_BOOL);
    return value ? std::optional<bool>(*value != 0) : std::nullopt;
  }

 private:
  template <class T>
  std::optional<T> Get(std::string_view key, bl_attr_type type) const {
    for (uint32_t i = 0; i < n_; ++i) {
      const bl_attr& attr = (*this)[i];
      if (attr.type == type && attr.count > 0 && key == attr.key) {
        return *static_cast<const T*>(attr.value);
      }
    }
    return std::nullopt;
  }
  const bl_attr* attrs_;
  uint32_t n_;
};

}  // namespace bloomery::sdk
