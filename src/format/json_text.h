// A JSON document that lies in memory, as events, a stretch at a time: whoever steps it can stop
// between two values and go on later. The same grammar, bounds and events as json_stream.h, which
// reads documents through a window and in one go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "format/json_stream.h"

namespace qinfer::format {

class JsonText {
 public:
  static constexpr size_t kStretch = 32 << 10;

  // `text` and `events` outlive it. Messages begin with `where`, if it
  // is not empty, and name the byte.
  JsonText(std::string_view text, std::string where, const JsonLimits& limits, JsonEvents* events);

  // Goes on until about `stretch` bytes are read; true at the end of the document. An error of a
  // handler ends the parse. Not called again after an error or the end.
  StatusOr<bool> Step(size_t stretch = kStretch);

 private:
  enum class Want : uint8_t { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd, kNothing };

  Status Next();  // one value, key or bracket
  Status Value(char first);
  Status Key();
  Status Number();
  Status String(std::string_view* out);  // `at_` is behind the opening quote
  Status Escape();
  Status CodeUnit(uint32_t* out);
  Status Literal(std::string_view word);
  Status Open(bool object);
  Status Close(bool object);
  bool AtEnd() const { return at_ == text_.size(); }
  // Where a text or number that begins at `begin` must have ended.
  size_t EndOfToken(size_t begin) const {
    const size_t left = text_.size() - begin;
    return limits_.max_token_bytes < left ? begin + static_cast<size_t>(limits_.max_token_bytes)
                                          : text_.size();
  }
  bool Take(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void AfterValue() { want_ = open_.empty() ? Want::kNothing : Want::kCommaOrEnd; }
  Status Invalid(const char* why) const;
  Status TooLong() const;

  const std::string_view text_;
  const std::string where_;
  const JsonLimits limits_;
  JsonEvents* const events_;
  size_t at_ = 0;
  Want want_ = Want::kValue;
  std::vector<char> open_;  // '{' and '[' around the current place
  std::string unescaped_;   // a string that is not in the text as it is
};

}  // namespace qinfer::format
