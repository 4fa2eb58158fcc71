// A result document: an ordered tree of values that quantization, evaluation and listings fill in,
// and that the public API hands out through typed getters and as JSON. Rendering as text or HTML
// tables is done by whoever knows what the fields mean.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace qinfer::observe {

class ReportRows;

// A node: null, bool, integer, number, string, list, or object with keys in order of insertion.
// References to nodes stay valid while siblings are added: every child has its own allocation.
class Report {
 public:
  enum class Kind : uint8_t { kNull, kBool, kInt, kNumber, kString, kList, kObject };
  // FromJson refuses deeper documents, so that copying, printing and destroying a tree (which
  // recurse) are bounded whatever the input.
  static constexpr uint32_t kMaxDepth = 64;

  Report() = default;
  Report(const Report& other);
  Report(Report&& other) noexcept = default;
  Report& operator=(const Report& other);
  Report& operator=(Report&& other) noexcept = default;
  ~Report() = default;

  Kind kind() const { return kind_; }
  bool AsBool() const { return kind_ == Kind::kBool && integer_ != 0; }
  int64_t AsInt() const;    // integers, and numbers that are whole and fit; else 0
  uint64_t AsUint() const;  // the same for what is not negative; seeds may need all 64 bits
  double AsNumber() const;  // integers and numbers; else 0
  const std::string& AsString() const { return string_; }

  // Object: the member, made if absent (a null node becomes an object; any other kind is replaced).
  Report& operator[](std::string_view key);
  // List: a new last item (a null node becomes a list; any other kind is replaced).
  Report& Append();
  // Makes an empty list or object, so that a result without items still shows as one.
  Report& SetList();
  Report& SetObject();
  // Makes a list whose items are made only when somebody looks at them: for what has a row for
  // every tensor of a file. Find does not go into it, FindRow does; at() and Append are for others.
  Report& SetRows(std::shared_ptr<const ReportRows> rows);
  Report& operator=(bool value);
  Report& operator=(int64_t value);
  Report& operator=(uint64_t value);
  Report& operator=(uint32_t value) { return *this = static_cast<int64_t>(value); }
  Report& operator=(int value) { return *this = static_cast<int64_t>(value); }
  Report& operator=(double value);  // not finite: null in JSON
  Report& operator=(float value) { return *this = static_cast<double>(value); }
  Report& operator=(std::string_view value);
  Report& operator=(const std::string& value) { return *this = std::string_view(value); }
  Report& operator=(const char* value) { return *this = std::string_view(value); }

  size_t size() const;  // items or members
  const Report& at(size_t index) const { return *children_[index]; }
  const std::string& key(size_t index) const { return keys_[index]; }
  const Report* Member(std::string_view key) const;  // null if absent; the key is taken literally
  // "layers[3].tensors[0].mse", "perplexity": null where there is no such node. A key that itself
  // has dots or brackets is written in quotes: tensors["blk.0.attn_q.weight"].mse
  const Report* Find(std::string_view path) const;
  // The row that a path leads to or into; `rows` is null where it does neither.
  struct RowPlace {
    const ReportRows* rows = nullptr;
    size_t index = 0;
    std::string_view rest;  // of the path, within the row; empty: the row itself
  };
  RowPlace FindRow(std::string_view path) const;

  // UTF-8; invalid bytes are replaced by U+FFFD. indent 0 = all on one line. Numbers are the
  // shortest text that reads back as the same value; a whole kNumber keeps a ".0".
  std::string ToJson(int indent = 2) const;
  static StatusOr<Report> FromJson(std::string_view json);  // kMaxDepth levels at most

 private:
  void Clear(Kind kind);
  const Report* Walk(std::string_view path, RowPlace* place) const;
  void Write(int indent, int level, std::string* out) const;

  Kind kind_ = Kind::kNull;
  bool unsigned_ = false;  // integer_ holds a uint64_t above INT64_MAX
  int64_t integer_ = 0;
  double number_ = 0.0;
  std::string string_;
  std::vector<std::string> keys_;
  std::vector<std::unique_ptr<Report>> children_;
  std::shared_ptr<const ReportRows> rows_;  // of a list that has no children
};

// Rows of one shape, kept as small as whoever has them can, each an object once it is asked for.
class ReportRows {
 public:
  virtual ~ReportRows() = default;
  virtual size_t size() const = 0;
  virtual Report Row(size_t index) const = 0;
  // A member's text, and the name of a row's nth member: these stay as long as the rows do.
  virtual std::string_view Text(size_t index, std::string_view member) const = 0;
  virtual std::string_view Key(size_t index, size_t member) const = 0;
};

// Appends `text` to `out` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace qinfer::observe
