// The tree of a report: assignment, look-up by path, and writing as JSON. Reading JSON is in
// report_json.cpp.
#include "observe/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace qinfer::observe {
namespace {

constexpr double kTwo63 = 9223372036854775808.0;

// Length of the valid UTF-8 sequence at text[i], or 0: no overlong forms, no surrogates, nothing
// above U+10FFFF.
size_t Utf8Length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) -> uint32_t {
    return k < text.size() ? static_cast<uint8_t>(text[k]) : 0u;
  };
  const auto continuation = [&](size_t k) { return (byte(k) & 0xc0u) == 0x80u; };
  const uint32_t lead = byte(i);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return continuation(i + 1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const uint32_t second = byte(i + 1);
    const uint32_t low = lead == 0xe0 ? 0xa0 : 0x80, high = lead == 0xed ? 0x9f : 0xbf;
    return second >= low && second <= high && continuation(i + 2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const uint32_t second = byte(i + 1);
    const uint32_t low = lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high && continuation(i + 2) && continuation(i + 3) ? 4 : 0;
  }
  return 0;
}

void AppendNumber(double value, std::string* out) {
  if (!std::isfinite(value)) {
    out->append("null");
    return;
  }
  char text[40];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  const std::string_view digits(text, static_cast<size_t>(result.ptr - text));
  out->append(digits);
  if (digits.find_first_of(".en") == std::string_view::npos) out->append(".0");
}

template <typename T>
void AppendInteger(T value, std::string* out) {
  char text[24];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  out->append(text, result.ptr);
}

void NewLine(int indent, int level, std::string* out) {
  if (indent <= 0) return;
  out->push_back('\n');
  out->append(static_cast<size_t>(indent) * static_cast<size_t>(level), ' ');
}

}  // namespace

void AppendJsonString(std::string_view text, std::string* out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out->push_back('"');
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = Utf8Length(text, i);
    if (length == 0) {
      out->append("\xef\xbf\xbd");
      ++i;
      continue;
    }
    if (c == '"' || c == '\\') {
      out->push_back('\\');
      out->push_back(c);
    } else if (c == '\n') {
      out->append("\\n");
    } else if (c == '\t') {
      out->append("\\t");
    } else if (c == '\r') {
      out->append("\\r");
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      out->append("\\u00");
      out->push_back(kHex[static_cast<uint8_t>(c) >> 4]);
      out->push_back(kHex[static_cast<uint8_t>(c) & 15]);
    } else {
      out->append(text.substr(i, length));
    }
    i += length;
  }
  out->push_back('"');
}

Report::Report(const Report& other)
    : kind_(other.kind_),
      unsigned_(other.unsigned_),
      integer_(other.integer_),
      number_(other.number_),
      string_(other.string_),
      keys_(other.keys_),
      rows_(other.rows_) {
  children_.reserve(other.children_.size());
  for (const auto& child : other.children_) children_.push_back(std::make_unique<Report>(*child));
}

Report& Report::operator=(const Report& other) {
  if (this != &other) *this = Report(other);  // by way of a copy: `other` may be a child of this
  return *this;
}

void Report::Clear(Kind kind) {
  kind_ = kind;
  unsigned_ = false;
  integer_ = 0;
  number_ = 0.0;
  string_.clear();
  keys_.clear();
  children_.clear();
  rows_.reset();
}

size_t Report::size() const { return rows_ != nullptr ? rows_->size() : children_.size(); }

int64_t Report::AsInt() const {
  if (kind_ == Kind::kInt) return unsigned_ ? 0 : integer_;
  if (kind_ != Kind::kNumber || std::trunc(number_) != number_) return 0;
  return number_ >= -kTwo63 && number_ < kTwo63 ? static_cast<int64_t>(number_) : 0;
}

uint64_t Report::AsUint() const {
  if (kind_ == Kind::kInt) return unsigned_ || integer_ >= 0 ? static_cast<uint64_t>(integer_) : 0;
  if (kind_ != Kind::kNumber || std::trunc(number_) != number_) return 0;
  return number_ >= 0.0 && number_ < 2.0 * kTwo63 ? static_cast<uint64_t>(number_) : 0;
}

double Report::AsNumber() const {
  if (kind_ == Kind::kNumber) return number_;
  if (kind_ != Kind::kInt) return 0.0;
  return unsigned_ ? static_cast<double>(static_cast<uint64_t>(integer_))
                   : static_cast<double>(integer_);
}

const Report* Report::Member(std::string_view key) const {
  if (kind_ != Kind::kObject) return nullptr;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] == key) return children_[i].get();
  }
  return nullptr;
}

Report& Report::operator[](std::string_view key) {
  if (kind_ != Kind::kObject) Clear(Kind::kObject);
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] == key) return *children_[i];
  }
  keys_.emplace_back(key);
  children_.push_back(std::make_unique<Report>());
  return *children_.back();
}

Report& Report::Append() {
  if (kind_ != Kind::kList || rows_ != nullptr) Clear(Kind::kList);
  children_.push_back(std::make_unique<Report>());
  return *children_.back();
}

Report& Report::SetList() {
  Clear(Kind::kList);
  return *this;
}

Report& Report::SetObject() {
  Clear(Kind::kObject);
  return *this;
}

Report& Report::SetRows(std::shared_ptr<const ReportRows> rows) {
  Clear(Kind::kList);
  rows_ = std::move(rows);
  return *this;
}

Report& Report::operator=(bool value) {
  Clear(Kind::kBool);
  integer_ = value ? 1 : 0;
  return *this;
}

Report& Report::operator=(int64_t value) {
  Clear(Kind::kInt);
  integer_ = value;
  return *this;
}

Report& Report::operator=(uint64_t value) {
  Clear(Kind::kInt);
  integer_ = static_cast<int64_t>(value);
  unsigned_ = value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return *this;
}

Report& Report::operator=(double value) {
  Clear(Kind::kNumber);
  number_ = value;
  return *this;
}

Report& Report::operator=(std::string_view value) {
  std::string copy(value);  // `value` may be this node's own text
  Clear(Kind::kString);
  string_ = std::move(copy);
  return *this;
}

const Report* Report::Find(std::string_view path) const { return Walk(path, nullptr); }

Report::RowPlace Report::FindRow(std::string_view path) const {
  RowPlace place;
  Walk(path, &place);
  return place;
}

const Report* Report::Walk(std::string_view path, RowPlace* place) const {
  const Report* node = this;
  size_t i = 0;
  while (i < path.size()) {
    if (path[i] == '[' && i + 1 < path.size() && path[i + 1] == '"') {
      const size_t end = path.find("\"]", i + 2);
      if (end == std::string_view::npos) return nullptr;
      node = node->Member(path.substr(i + 2, end - i - 2));
      i = end + 2;
    } else if (path[i] == '[') {
      const size_t end = path.find(']', i);
      if (end == std::string_view::npos) return nullptr;
      size_t index = 0;
      const char* last = path.data() + end;
      const auto result = std::from_chars(path.data() + i + 1, last, index);
      if (result.ec != std::errc() || result.ptr != last) return nullptr;
      if (node->kind_ != Kind::kList || index >= node->size()) return nullptr;
      if (node->rows_ != nullptr) {
        std::string_view rest = path.substr(end + 1);
        if (!rest.empty() && rest.front() == '.') {
          rest.remove_prefix(1);
          if (rest.empty()) return nullptr;
        } else if (!rest.empty() && rest.front() != '[') {
          return nullptr;
        }
        if (place != nullptr) *place = {node->rows_.get(), index, rest};
        return nullptr;
      }
      node = node->children_[index].get();
      i = end + 1;
    } else {
      const size_t end = std::min(path.find_first_of(".[", i), path.size());
      node = node->Member(path.substr(i, end - i));
      i = end;
    }
    if (node == nullptr) return nullptr;
    if (i < path.size() && path[i] == '.') {
      if (++i == path.size()) return nullptr;
    } else if (i < path.size() && path[i] != '[') {
      return nullptr;
    }
  }
  return node;
}

void Report::Write(int indent, int level, std::string* out) const {
  switch (kind_) {
    case Kind::kNull:
      out->append("null");
      return;
    case Kind::kBool:
      out->append(integer_ != 0 ? "true" : "false");
      return;
    case Kind::kInt:
      if (unsigned_) {
        AppendInteger(static_cast<uint64_t>(integer_), out);
      } else {
        AppendInteger(integer_, out);
      }
      return;
    case Kind::kNumber:
      AppendNumber(number_, out);
      return;
    case Kind::kString:
      AppendJsonString(string_, out);
      return;
    case Kind::kList:
    case Kind::kObject:
      break;
  }
  const bool object = kind_ == Kind::kObject;
  out->push_back(object ? '{' : '[');
  const size_t count = size();
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) out->append(indent > 0 ? "," : ", ");
    NewLine(indent, level + 1, out);
    if (object) {
      AppendJsonString(keys_[i], out);
      out->append(": ");
    }
    if (rows_ != nullptr) {
      rows_->Row(i).Write(indent, level + 1, out);
    } else {
      children_[i]->Write(indent, level + 1, out);
    }
  }
  if (count != 0) NewLine(indent, level, out);
  out->push_back(object ? '}' : ']');
}

std::string Report::ToJson(int indent) const {
  std::string out;
  Write(indent, 0, &out);
  return out;
}

}  // namespace qinfer::observe
