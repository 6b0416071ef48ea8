#include "runtime/graph/attrs.h"

#include <cassert>

#include "runtime/base/error.h"
#include "runtime/graph/abi.h"

namespace bloomery::graph {
namespace {

Attr CopyAttr(const bl_attr& source) {
  if (source.key == nullptr || *source.key == '\0') {
    throw Error(ErrorKind::kBadModel, "an attribute has no key; the plugin must name it");
  }
  Attr attr{.key = source.key, .type = source.type};
  if (source.count > kAttrValuesMax) {
    throw Error(ErrorKind::kBadModel, "attribute '" + attr.key + "' has " +
                                          std::to_string(source.count) + " values; at most " +
                                          std::to_string(kAttrValuesMax) + " are taken");
  }
  if (source.value == nullptr && source.count > 0) {
    throw Error(ErrorKind::kBadModel, "attribute '" + attr.key + "' has a null value");
  }
  switch (source.type) {
    case BL_ATTR_I64: {
      const auto* values = static_cast<const int64_t*>(source.value);
      attr.ints.assign(values, values + source.count);
      break;
    }
    case BL_ATTR_F64: {
      const auto* values = static_cast<const double*>(source.value);
      attr.reals.assign(values, values + source.count);
      break;
    }
    case BL_ATTR_BOOL: {
      const auto* values = static_cast<const uint8_t*>(source.value);
      attr.bools.assign(values, values + source.count);
      break;
    }
    case BL_ATTR_STR: {
      const auto* values = static_cast<const char* const*>(source.value);
      for (uint64_t i = 0; i < source.count; ++i) {
        if (values[i] == nullptr) {
          throw Error(ErrorKind::kBadModel, "attribute '" + attr.key + "' holds a null string");
        }
        attr.strings.emplace_back(values[i]);
      }
      break;
    }
    default:
      throw Error(ErrorKind::kBadModel, "attribute '" + attr.key + "' has the unknown type " +
                                            std::to_string(source.type));
  }
  return attr;
}

}  // namespace

size_t Attr::count() const {
  switch (type) {
    case BL_ATTR_I64:
      return ints.size();
    case BL_ATTR_F64:
      return reals.size();
    case BL_ATTR_STR:
      return strings.size();
    default:
      return bools.size();
  }
}

std::string_view AttrTypeName(bl_attr_type type) {
  switch (type) {
    case BL_ATTR_I64:
      return "i64";
    case BL_ATTR_F64:
      return "f64";
    case BL_ATTR_STR:
      return "str";
    case BL_ATTR_BOOL:
      return "bool";
    default:
      return "unknown";
  }
}

Attrs::Attrs(std::span<const bl_attr> attrs) {
  attrs_.reserve(attrs.size());
  for (const bl_attr& source : attrs) {
    Attr attr = CopyAttr(source);
    if (Find(attr.key) != nullptr) {
      throw Error(ErrorKind::kBadModel, "attribute '" + attr.key + "' is given twice");
    }
    attrs_.push_back(std::move(attr));
  }
}

const Attr* Attrs::Find(std::string_view key) const {
  for (const Attr& attr : attrs_) {
    if (attr.key == key) return &attr;
  }
  return nullptr;
}

int64_t Attrs::I64(std::string_view key, int64_t fallback) const {
  const Attr* attr = Find(key);
  return attr == nullptr ? fallback : attr->ints.at(0);
}

double Attrs::F64(std::string_view key, double fallback) const {
  const Attr* attr = Find(key);
  return attr == nullptr ? fallback : attr->reals.at(0);
}

std::string_view Attrs::Str(std::string_view key, std::string_view fallback) const {
  const Attr* attr = Find(key);
  return attr == nullptr ? fallback : std::string_view(attr->strings.at(0));
}

bool Attrs::Bool(std::string_view key, bool fallback) const {
  const Attr* attr = Find(key);
  return attr == nullptr ? fallback : attr->bools.at(0) != 0;
}

std::span<const int64_t> Attrs::I64s(std::string_view key) const {
  const Attr* attr = Find(key);
  return attr == nullptr ? std::span<const int64_t>() : std::span<const int64_t>(attr->ints);
}

AbiAttrs::AbiAttrs(const Attrs& attrs) : copies_(attrs.all().begin(), attrs.all().end()) {
  strings_.resize(copies_.size());
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Attr& attr = copies_[i];
    const void* value = nullptr;
    switch (attr.type) {
      case BL_ATTR_I64:
        value = attr.ints.data();
        break;
      case BL_ATTR_F64:
        value = attr.reals.data();
        break;
      case BL_ATTR_BOOL:
        value = attr.bools.data();
        break;
      default:
        for (const std::string& text : attr.strings) strings_[i].push_back(text.c_str());
        value = strings_[i].data();
    }
    auto view = MakeAbi<bl_attr>();
    view.type = attr.type;
    view.key = attr.key.c_str();
    view.count = attr.count();
    view.value = value;
    view_.push_back(view);
  }
}

}  // namespace bloomery::graph
