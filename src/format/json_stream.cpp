// The bounded input below nlohmann's event parser. The JSON library is included here and nowhere
// else in this module.
#include "format/json_stream.h"

#define JSON_NO_IO 1
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "format/json_text.h"

namespace qinfer::format {
namespace {

// Hands out characters one by one and stops after the first that breaks a limit.
class Characters {
 public:
  Characters(const io::Source* source, uint64_t begin, uint64_t end, const JsonLimits& limits)
      : source_(source), limits_(limits), next_(begin), end_(end) {
    window_.resize(static_cast<size_t>(std::min<uint64_t>(end - begin, 64 << 10)));
    Fill();
  }

  bool AtEnd() const { return at_ == stop_; }
  char Peek() const { return *at_; }
  void Advance() {
    Scan(*at_++);
    if (at_ == stop_ && status_.ok()) Fill();
  }
  uint64_t offset() const { return next_ - static_cast<uint64_t>(stop_ - at_); }
  const Status& status() const { return status_; }

 private:
  void Fill() {
    if (next_ == end_) return;
    const auto n = static_cast<size_t>(std::min<uint64_t>(window_.size(), end_ - next_));
    status_ = source_->ReadAt(next_, absl::MakeSpan(reinterpret_cast<uint8_t*>(window_.data()), n));
    if (!status_.ok()) return;
    at_ = window_.data();
    stop_ = at_ + n;
    next_ += n;
  }

  // A small scanner beside the parser's own, which has no limits.
  void Scan(char c) {
    if (++token_bytes_ > limits_.max_token_bytes) {
      Stop(StrCat("a text or number of more than ", limits_.max_token_bytes, " bytes"));
    }
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        token_bytes_ = 0;
      }
      return;
    }
    switch (c) {
      case '"':
        in_string_ = true;
        break;
      case '{':
      case '[':
        token_bytes_ = 0;
        if (++depth_ > limits_.max_depth) {
          Stop(StrCat("objects and arrays nested deeper than ", limits_.max_depth));
        }
        break;
      case '}':
      case ']':
        if (depth_ > 0) --depth_;
        token_bytes_ = 0;
        break;
      case ' ':
      case '\t':
      case '\n':
      case '\r':
      case ',':
      case ':':
        token_bytes_ = 0;
        break;
      default:
        break;
    }
  }
  void Stop(const std::string& why) {
    status_ = FormatError(StrCat(why, " at byte ", offset()));
    stop_ = at_;
  }

  const io::Source* source_;
  const JsonLimits limits_;
  std::vector<char> window_;
  const char* at_ = nullptr;
  const char* stop_ = nullptr;
  uint64_t next_ = 0;  // in the file: what follows the window
  uint64_t end_ = 0;
  Status status_;

  bool in_string_ = false, escaped_ = false;
  uint32_t depth_ = 0;
  uint64_t token_bytes_ = 0;
};

// What the parser takes: an input iterator whose end is a null pointer.
struct Iterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  Characters* from = nullptr;

  char operator*() const { return from->Peek(); }
  Iterator& operator++() {
    from->Advance();
    return *this;
  }
  Iterator operator++(int) {
    const Iterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const Iterator& other) const { return done() == other.done(); }
  bool operator!=(const Iterator& other) const { return done() != other.done(); }
  bool done() const { return from == nullptr || from->AtEnd(); }
};

class Adapter final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Adapter(JsonEvents* events) : events_(events) {}

  bool null() override { return Keep(events_->OnNull()); }
  bool boolean(bool value) override { return Keep(events_->OnBool(value)); }
  bool number_integer(number_integer_t value) override {
    return Keep(value < 0 ? events_->OnInt(value) : events_->OnUint(static_cast<uint64_t>(value)));
  }
  bool number_unsigned(number_unsigned_t value) override { return Keep(events_->OnUint(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return Keep(events_->OnFloat(value));
  }
  bool string(string_t& value) override { return Keep(events_->OnString(value)); }
  bool binary(binary_t& /*value*/) override { return Keep(events_->OnNull()); }
  bool start_object(std::size_t /*n*/) override { return Keep(events_->OnStartObject()); }
  bool key(string_t& value) override { return Keep(events_->OnKey(value)); }
  bool end_object() override { return Keep(events_->OnEndObject()); }
  bool start_array(std::size_t /*n*/) override { return Keep(events_->OnStartArray()); }
  bool end_array() override { return Keep(events_->OnEndArray()); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return Keep(FormatError("not valid JSON"));
  }

  const Status& status() const { return status_; }

 private:
  bool Keep(Status status) {
    if (status_.ok()) status_ = std::move(status);
    return status_.ok();
  }

  JsonEvents* events_;
  Status status_;
};

Status Run(Characters* characters, const std::string& where, JsonEvents* events) {
  Adapter adapter(events);
  const bool parsed = nlohmann::json::sax_parse(Iterator{characters}, Iterator{}, &adapter);
  // What stopped the input is the cause of what the parser then saw.
  if (characters->status().code() == absl::StatusCode::kDataLoss) {
    return Annotate(characters->status(), where);
  }
  QINFER_RETURN_IF_ERROR(characters->status());
  if (!adapter.status().ok()) {
    return Annotate(adapter.status(), StrCat(where, ": before byte ", characters->offset()));
  }
  if (!parsed) return FormatError(StrCat(where, ": not valid JSON"));
  return OkStatus();
}

Status Unexpected(const char* what) { return FormatError(StrCat("unexpected ", what)); }

}  // namespace

Status JsonEvents::OnKey(std::string_view /*key*/) { return Unexpected("key"); }
Status JsonEvents::OnString(std::string_view /*value*/) { return Unexpected("text"); }
Status JsonEvents::OnUint(uint64_t /*value*/) { return Unexpected("number"); }
Status JsonEvents::OnInt(int64_t /*value*/) { return Unexpected("negative number"); }
Status JsonEvents::OnFloat(double /*value*/) { return Unexpected("fraction or huge number"); }
Status JsonEvents::OnBool(bool /*value*/) { return Unexpected("true or false"); }
Status JsonEvents::OnNull() { return Unexpected("null"); }
Status JsonEvents::OnStartObject() { return Unexpected("object"); }
Status JsonEvents::OnEndObject() { return Unexpected("end of an object"); }
Status JsonEvents::OnStartArray() { return Unexpected("array"); }
Status JsonEvents::OnEndArray() { return Unexpected("end of an array"); }

Status ParseJson(const io::Source& source, uint64_t begin, uint64_t end, const std::string& where,
                 const JsonLimits& limits, JsonEvents* events) {
  if (begin > end || end > source.size()) {
    return InternalError(StrCat(where, ": JSON range outside the file"));
  }
  Characters characters(&source, begin, end, limits);
  return Run(&characters, where, events);
}

Status ParseJson(std::string_view text, const std::string& where, const JsonLimits& limits,
                 JsonEvents* events) {
  JsonText parse(text, where, limits, events);
  for (;;) {
    QINFER_ASSIGN_OR_RETURN(const bool done, parse.Step());
    if (done) return OkStatus();
  }
}

std::string QuoteJson(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace qinfer::format
