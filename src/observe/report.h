// A result document: an ordered tree of values that quantization, evaluation and listings fill in,
// and that the public API hands out through typed getters and as JSON. Rendering as text or HTML
// tables is done by whoever knows what the fields mean.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/status.h"

namespace qinfer::observe {

// A node: null, bool, integer, number, string, list, or object with keys in order of insertion.
class Report {
 public:
  enum class Kind : uint8_t { kNull, kBool, kInt, kNumber, kString, kList, kObject };

  Report() = default;
  Kind kind() const { return kind_; }
  bool AsBool() const { return kind_ == Kind::kBool && integer_ != 0; }
  int64_t AsInt() const;    // integers, and numbers that are whole; else 0
  double AsNumber() const;  // integers and numbers; else 0
  const std::string& AsString() const { return string_; }

  // Object: the member, made if absent (a null node becomes an object).
  Report& operator[](std::string_view key);
  // List: a new last item (a null node becomes a list).
  Report& Append();
  Report& operator=(bool value);
  Report& operator=(int64_t value);
  Report& operator=(uint64_t value) { return *this = static_cast<int64_t>(value); }
  Report& operator=(uint32_t value) { return *this = static_cast<int64_t>(value); }
  Report& operator=(int value) { return *this = static_cast<int64_t>(value); }
  Report& operator=(double value);  // not finite: null in JSON
  Report& operator=(std::string_view value);
  Report& operator=(const std::string& value) { return *this = std::string_view(value); }
  Report& operator=(const char* value) { return *this = std::string_view(value); }

  size_t size() const { return children_.size(); }  // items or members
  const Report& at(size_t index) const { return children_[index]; }
  const std::string& key(size_t index) const { return keys_[index]; }
  // "layers[3].tensors[0].mse", "perplexity": null where there is no such node.
  const Report* Find(std::string_view path) const;

  std::string ToJson(int indent = 2) const;                 // UTF-8; invalid bytes are replaced
  static StatusOr<Report> FromJson(std::string_view json);  // bounded depth

 private:
  Kind kind_ = Kind::kNull;
  int64_t integer_ = 0;
  double number_ = 0.0;
  std::string string_;
  std::vector<std::string> keys_;
  std::vector<Report> children_;
};

}  // namespace qinfer::observe
