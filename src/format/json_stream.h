// JSON out of files that nobody vouches for, as events: read through a window, so that a document
// is never in memory as a whole, with bounds on depth and on the length of a token. What the events
// mean is the handler's business.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "io/source.h"

namespace qinfer::format {

struct JsonLimits {
  uint32_t max_depth = 64;
  // Of one string or number. The parser holds a token twice, and its memory doubles as it grows.
  uint64_t max_token_bytes = 4 << 20;
};

// Every event that a handler does not override is an error: "unexpected a string". Views are valid
// during the call.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual Status OnKey(std::string_view key);
  virtual Status OnString(std::string_view value);
  virtual Status OnUint(uint64_t value);
  virtual Status OnInt(int64_t value);  // negative numbers
  virtual Status OnFloat(double value);
  virtual Status OnBool(bool value);
  virtual Status OnNull();
  virtual Status OnStartObject();
  virtual Status OnEndObject();
  virtual Status OnStartArray();
  virtual Status OnEndArray();
};

// Parses bytes [begin, end) of `source`: one JSON value and white space. Messages begin with
// `where` and name the byte in the file. An error of a handler ends the parse and is returned with
// the place in front.
Status ParseJson(const io::Source& source, uint64_t begin, uint64_t end, const std::string& where,
                 const JsonLimits& limits, JsonEvents* events);
Status ParseJson(std::string_view text, const std::string& where, const JsonLimits& limits,
                 JsonEvents* events);

// `text` as a JSON string with its quotes. Valid UTF-8 stays as it is; other bytes become U+FFFD.
std::string QuoteJson(std::string_view text);

}  // namespace qinfer::format
