// Reads a report back from JSON through nlohmann's event interface: bounded depth, nothing thrown
// by the parser. Writing is in report.cpp.
#include <nlohmann/json.hpp>

#include "observe/report.h"

namespace qinfer::observe {
namespace {

using Json = nlohmann::json;

class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(Report* root) { stack_.push_back(root); }
  const Status& status() const { return status_; }

  bool null() override {
    Next();
    return true;
  }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override { return Put(uint64_t{value}); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::string_view(value)); }
  bool binary(binary_t& /*value*/) override { return Refuse("binary values are not JSON"); }
  bool start_object(size_t /*elements*/) override { return Open(&Next()->SetObject()); }
  bool start_array(size_t /*elements*/) override { return Open(&Next()->SetList()); }
  bool key(string_t& value) override {
    key_ = value;
    return true;
  }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    if (status_.ok()) status_ = FormatError(StrCat("report: not JSON at byte ", position));
    return false;
  }

 private:
  // The node that the coming value belongs to.
  Report* Next() {
    if (depth_ == 0) return stack_.back();
    Report* parent = stack_.back();
    return parent->kind() == Report::Kind::kObject ? &(*parent)[key_] : &parent->Append();
  }
  template <typename T>
  bool Put(T value) {
    *Next() = value;
    return true;
  }
  bool Open(Report* node) {
    if (depth_ == Report::kMaxDepth) {
      return Refuse(StrCat("nested deeper than ", Report::kMaxDepth, " levels"));
    }
    ++depth_;
    stack_.push_back(node);
    return true;
  }
  bool Close() {
    --depth_;
    stack_.pop_back();
    return true;
  }
  bool Refuse(const std::string& why) {
    status_ = FormatError(StrCat("report: ", why));
    return false;
  }

  std::vector<Report*> stack_;
  uint32_t depth_ = 0;
  std::string key_;
  Status status_;
};

}  // namespace

StatusOr<Report> Report::FromJson(std::string_view json) {
  Report report;
  Builder builder(&report);
  if (!Json::sax_parse(json.begin(), json.end(), &builder)) {
    if (builder.status().ok()) return FormatError("report: not JSON");
    return builder.status();
  }
  return report;
}

}  // namespace qinfer::observe
