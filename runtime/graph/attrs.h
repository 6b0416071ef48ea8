// Attributes of a node, copied out of a plugin's bl_attr array: typed values by key. Immutable once
// built; owns its strings and numbers, and can be shown to kernels as bl_attr again. Knows no
// operator: which keys an operator has is its schema's matter (operator.h).
#pragma once

#include <bloomery/graph.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bloomery::graph {

// One attribute with `count()` values of one type.
struct Attr {
  std::string key = {};
  bl_attr_type type = BL_ATTR_I64;
  std::vector<int64_t> ints = {};         // I64
  std::vector<double> reals = {};         // F64
  std::vector<std::string> strings = {};  // STR
  std::vector<uint8_t> bools = {};        // BOOL

  size_t count() const;
};

// "i64", "f64", "str", "bool".
std::string_view AttrTypeName(bl_attr_type type);

class Attrs {
 public:
  Attrs() = default;
  // Copies. Throws Error(kBadModel) on a null key, an unknown type, a null value with a count, more
  // than kAttrValuesMax values, or a key given twice.
  explicit Attrs(std::span<const bl_attr> attrs);

  std::span<const Attr> all() const { return attrs_; }
  const Attr* Find(std::string_view key) const;

  // The single value of `key`, or `fallback` where it is absent. The key's type was checked against
  // the operator's schema before.
  int64_t I64(std::string_view key, int64_t fallback = 0) const;
  double F64(std::string_view key, double fallback = 0) const;
  std::string_view Str(std::string_view key, std::string_view fallback = {}) const;
  bool Bool(std::string_view key, bool fallback = false) const;
  std::span<const int64_t> I64s(std::string_view key) const;

 private:
  std::vector<Attr> attrs_;
};

// The same attributes as a kernel of a plugin reads them; owns what the structs point to.
class AbiAttrs {
 public:
  explicit AbiAttrs(const Attrs& attrs);
  std::span<const bl_attr> view() const { return view_; }

 private:
  std::vector<Attr> copies_;  // never resized after construction: view_ points into it
  std::vector<std::vector<const char*>> strings_;
  std::vector<bl_attr> view_;
};

inline constexpr uint64_t kAttrValuesMax = 4096;  // a list of layers or sections, never a tensor

}  // namespace bloomery::graph
