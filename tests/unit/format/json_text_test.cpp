// JSON a stretch at a time: the same documents and events as nlohmann's parser, whatever the
// stretches, and messages that name the byte.
#include "format/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace qinfer::format {
namespace {

// What a parser saw, as text.
class Record final : public JsonEvents {
 public:
  Status OnKey(std::string_view key) override { return Add(StrCat("k", std::string(key))); }
  Status OnString(std::string_view value) override { return Add(StrCat("s", std::string(value))); }
  Status OnUint(uint64_t value) override { return Add(StrCat("u", value)); }
  Status OnInt(int64_t value) override { return Add(StrCat("i", value)); }
  Status OnFloat(double value) override {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return Add(StrCat("f", absl::Hex(bits)));
  }
  Status OnBool(bool value) override { return Add(value ? "true" : "false"); }
  Status OnNull() override { return Add("null"); }
  Status OnStartObject() override { return Add("{"); }
  Status OnEndObject() override { return Add("}"); }
  Status OnStartArray() override { return Add("["); }
  Status OnEndArray() override { return Add("]"); }

  Status Add(const std::string& event) {
    text += event;
    text += '\x1e';
    return OkStatus();
  }
  std::string text;
};

class Reference : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return record.OnNull().ok(); }
  bool boolean(bool value) override { return record.OnBool(value).ok(); }
  bool number_integer(number_integer_t value) override {
    return (value < 0 ? record.OnInt(value) : record.OnUint(static_cast<uint64_t>(value))).ok();
  }
  bool number_unsigned(number_unsigned_t value) override { return record.OnUint(value).ok(); }
  bool number_float(number_float_t value, const string_t&) override {
    return record.OnFloat(value).ok();
  }
  bool string(string_t& value) override { return record.OnString(value).ok(); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return record.OnStartObject().ok(); }
  bool key(string_t& value) override { return record.OnKey(value).ok(); }
  bool end_object() override { return record.OnEndObject().ok(); }
  bool start_array(std::size_t) override { return record.OnStartArray().ok(); }
  bool end_array() override { return record.OnEndArray().ok(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
  Record record;
};

Status Parse(std::string_view text, size_t stretch, Record* record) {
  JsonText parse(text, "t", JsonLimits{.max_depth = 1000}, record);
  for (;;) {
    QINFER_ASSIGN_OR_RETURN(const bool done, parse.Step(stretch));
    if (done) return OkStatus();
  }
}

// True where both parsers took it.
bool Compare(const std::string& text) {
  Reference expected;
  const bool valid = nlohmann::json::sax_parse(text, &expected);
  for (const size_t stretch : {size_t{1}, size_t{7}, JsonText::kStretch}) {
    Record record;
    const Status status = Parse(text, stretch, &record);
    EXPECT_EQ(status.ok(), valid) << text << "\n" << status;
    if (valid) {
      EXPECT_EQ(record.text, expected.record.text) << text;
    } else {
      EXPECT_NE(status.message().find("before byte"), absl::string_view::npos);
    }
  }
  return valid;
}

TEST(JsonText, TakesWhatNlohmannTakes) {
  const char* const texts[] = {
      "",
      " ",
      "{}",
      "[]",
      "\xef\xbb\xbf[1]",
      "\xef\xbb",
      "null",
      "nul",
      "nulll",
      "true false",
      "[1,]",
      "[,1]",
      "[1 2]",
      "{\"a\":1,}",
      "{\"a\"}",
      "{\"a\":}",
      "{a:1}",
      "{\"a\" : 1 , \"b\" : [ ] }",
      "{\"a\":1]",
      "[1}",
      "[[[[]]]]",
      "]",
      "0",
      "-0",
      "-",
      "01",
      "1.",
      ".5",
      "1.5e",
      "1e+",
      "1E5",
      "-1.25e-3",
      "1e400",
      "-1e400",
      "1e-400",
      "-1e-400",
      "0e400",
      "0.000e999",
      "18446744073709551615",
      "18446744073709551616",
      "-9223372036854775808",
      "-9223372036854775809",
      "\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
      "\"\\ud83d\"",
      "\"\\ud83dx\"",
      "\"\\ude00\"",
      "\"\\ud83d\\u0041\"",
      "\"\\u12g4\"",
      "\"\\u123",
      "\"\\x\"",
      "\"\\",
      "\"",
      "\"a\nb\"",
      "\"\x7f\"",
      "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
      "\"\xc3\"",
      "\"\xed\xa0\x80\"",
      "\"\xf5\x80\x80\x80\"",
      "\xff",
      "{\"\\u0061\":\"\\u0062\",\"\":\"\"}",
      "[\"plain\",\"with \\\" escape\",\"plain again\"]",
  };
  for (const char* text : texts) Compare(text);
  Compare(std::string("\"a\0b\"", 5));
}

std::string RandomValue(std::mt19937* random, int depth) {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>((*random)() % n); };
  const char* const spaces[] = {"", "", "", " ", "\n  ", "\t", "\r\n"};
  const auto space = [&] { return std::string(spaces[pick(7)]); };
  const char* const texts[] = {
      "\"\"",    "\"a\"",         "\"\\n\\u00e9\"",    "\"\xe2\x96\x81the\"",
      "\"key\"", "\"\\\"q\\\"\"", "\"\\ud800\\udc00\""};
  const char* const others[] = {"0",    "-7",   "12345678901", "1.5",  "-2e10",
                                "1e-7", "true", "false",       "null", "3.25E+2"};
  if (depth == 0 || pick(3) == 0) return pick(2) == 0 ? texts[pick(7)] : others[pick(10)];
  const bool object = pick(2) == 0;
  std::string out = object ? "{" : "[";
  const uint32_t count = pick(5);
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0) out += ",";
    out += space();
    if (object) out += StrCat(texts[pick(7)], space(), ":", space());
    out += RandomValue(random, depth - 1) + space();
  }
  return out + (object ? "}" : "]");
}

TEST(JsonText, TakesWhatNlohmannTakesOfRandomDocuments) {
  std::mt19937 random(11);
  int valid = 0, invalid = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = RandomValue(&random, 5);
    for (uint32_t changes = static_cast<uint32_t>(random() % 3); changes > 0; --changes) {
      const size_t at = random() % text.size();
      constexpr std::string_view kTelling = "{}[],:\"\\0-.eE+u \x80\xc3";
      switch (random() % 3) {
        case 0:
          text[at] = kTelling[random() % kTelling.size()];
          break;
        case 1:
          text.erase(at, 1);
          break;
        default:
          text.insert(at, 1, kTelling[random() % kTelling.size()]);
      }
      if (text.empty()) text.push_back(' ');
    }
    (Compare(text) ? valid : invalid)++;
  }
  EXPECT_GT(valid, 500);
  EXPECT_GT(invalid, 500);
}

TEST(JsonText, StopsAfterAStretch) {
  std::string text = "[";
  for (int i = 0; i < 20000; ++i) text += StrCat(i == 0 ? "" : ",  ", i);
  text += StrCat("]", std::string(5000, ' '));
  Record record;
  JsonText parse(text, "t", JsonLimits(), &record);
  size_t steps = 0, before = 0;
  for (bool done = false; !done; ++steps) {
    const auto stepped = parse.Step(1000);
    ASSERT_TRUE(stepped.ok()) << stepped.status();
    done = *stepped;
    EXPECT_LE(record.text.size() - before, 1100u);  // a number of n bytes is n + 2 of the record
    before = record.text.size();
  }
  EXPECT_GE(steps, text.size() / 1010);
}

TEST(JsonText, HoldsItsLimits) {
  Record record;
  const auto parse = [&](std::string_view text, const JsonLimits& limits) {
    JsonText json(text, "t", limits, &record);
    for (;;) {
      QINFER_ASSIGN_OR_RETURN(const bool done, json.Step());
      if (done) return OkStatus();
    }
  };
  const JsonLimits limits{.max_depth = 2, .max_token_bytes = 10};
  EXPECT_TRUE(parse("[[1,\"12345678\",1234567890]]", limits).ok());
  for (const char* text : {"[[[1]]]", "[\"123456789\"]", "[12345678901]", "[1.2345678901]",
                           "{\"123456789\":1}", "[\"\\u0041\\u0042\"]"}) {
    const Status status = parse(text, limits);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text;
    EXPECT_EQ(status.message().find("t: before byte "), 0u) << status;
  }
}

}  // namespace
}  // namespace qinfer::format
