// The JSON that callers hand in, against another reader: what is accepted, and what it means.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/chat_template.h"

namespace qinfer::tokenizer {
namespace {

using Json = nlohmann::json;

StatusOr<std::string> RenderText(const std::string& text, const std::string& messages) {
  const auto parsed = ChatTemplate::Parse(text, "t");
  if (!parsed.ok()) return parsed.status();
  RenderInput input;
  input.messages_json = messages;
  return (*parsed)->Render(input);
}

// The same value, written back by tojson.
void ExpectSame(const std::string& text) {
  const StatusOr<std::string> written = RenderText("{{ messages|tojson }}", text);
  const Json expected = Json::parse(text, nullptr, false);
  if (expected.is_discarded()) {
    EXPECT_FALSE(written.ok()) << text << " became " << *written;
    return;
  }
  ASSERT_TRUE(expected.is_array()) << text;
  ASSERT_TRUE(written.ok()) << text << ": " << written.status();
  EXPECT_EQ(Json::parse(*written, nullptr, false), expected) << text << " became " << *written;
}

TEST(JinjaJson, AsAnotherReader) {
  const std::string items[] = {
      "null",
      "true",
      "false",
      "nul",
      "True",
      "nulls",
      "0",
      "-0",
      "-",
      "+1",
      "01",
      "-01",
      "1.",
      ".5",
      "1.5",
      "-1.25e2",
      "1e5",
      "1E+5",
      "1e-5",
      "1e",
      "1e+",
      "1.e5",
      "0x1",
      "1_0",
      "NaN",
      "Infinity",
      "1e308",
      "1e999",
      "-1e999",
      "1e-400",
      "123456789012345678",
      "9223372036854775807",
      "-9223372036854775808",
      "9223372036854775808",
      "18446744073709551615",
      R"("")",
      R"("abc")",
      R"("a)",
      R"('a')",
      R"("\n\t\r\b\f\/\\\"")",
      R"("\x")",
      R"("\u0041")",
      R"("\u00e4\u20AC")",
      R"("\u004")",
      R"("\u00g0")",
      R"("\u")",
      R"("\ud83d\ude00")",
      R"("\ud83d")",
      R"("\ud83dx")",
      R"("\ud83d\n")",
      R"("\ude00")",
      R"("\ud83d\u0041")",
      R"("\u0000")",
      "\"\t\"",
      "\"\x01\"",
      "\"\xC3\xA4\"",
      "\"\xC3\"",
      "\"\xFF\"",
      "\"\xED\xA0\x80\"",
      "\"\xF0\x9F\x98\x80\"",
      "[]",
      "[1]",
      "[1,]",
      "[,1]",
      "[1 2]",
      "[1",
      "1]",
      "[[1],[2,[3]]]",
      "{}",
      R"({"a":1})",
      R"({"a":1,})",
      R"({a:1})",
      R"({"a" 1})",
      R"({"a":})",
      R"({1:2})",
      R"({"a":1,"a":2})",
      R"({"a":{"b":[{}]}} )",
      R"({"a":1)",
      R"({"":0, "x" : [ ] })",
      "/**/1",
      "1 // x",
      "",
      " ",
      "\v1",
      "\xC2\xA0",
      "1,2",
      "\\u0031",
      R"("\u00410")",
      R"("\\u0041")",
      R"("\)",
      R"("\")",
      "\"\x7F\"",
  };
  for (const std::string& item : items) {
    ExpectSame(StrCat("[", item, "]"));
    ExpectSame(StrCat(" \n\t[ 7 ,\r", item, " ]  "));
  }
  for (const char* text : {"[1]x", "[1] []", "\xEF\xBB\xBF[1]", "[1]\xEF\xBB\xBF", "]", "[", ""}) {
    ExpectSame(text);
  }
}

// Valid text with a few bytes changed: both accept it and agree, or both refuse.
TEST(JinjaJson, DamagedText) {
  const std::string valid =
      R"([{"role":"user","content":"a\u00e4\ud83d\ude00\n\"q\"","n":[1,-2.5e-3,true,null,{}]},[],0])";
  static constexpr std::string_view kBytes = "\"\\{}[]:,0123456789eE+-.u dtfn\x01\xC3\xA4";
  uint32_t state = 1;
  const auto random = [&state](size_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % below;
  };
  size_t accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = valid;
    for (size_t k = 0; k <= random(2); ++k) {
      const size_t at = 1 + random(text.size() - 2);
      if (random(4) == 0) {
        text.erase(at, 1);
      } else {
        text[at] = kBytes[random(kBytes.size())];
      }
    }
    const Json parsed = Json::parse(text, nullptr, false);
    if (!parsed.is_discarded() && !parsed.is_array()) continue;
    accepted += parsed.is_discarded() ? 0 : 1;
    ExpectSame(text);
  }
  EXPECT_GT(accepted, 1000u);
}

TEST(JinjaJson, MessagesNameThePlace) {
  const auto message = [](const std::string& text) {
    return std::string(RenderText("x", text).status().message());
  };
  EXPECT_EQ(message("[1, 2"), "messages: not valid JSON: byte 5: expected ',' or ']'");
  EXPECT_EQ(message("[1, \"\xFF\"]"), "messages: not valid JSON: byte 5: not valid UTF-8");
  EXPECT_EQ(message("[{\"a\" 1}]"), "messages: not valid JSON: byte 6: expected ':'");
  EXPECT_EQ(message(""), "messages: not valid JSON: byte 0: expected a value");
  const std::string deep = StrCat(std::string(99, '['), std::string(99, ']'));
  EXPECT_EQ(message(deep), "");
  EXPECT_EQ(message(StrCat("[", deep, "]")),
            "messages: not valid JSON: byte 99: nested too deeply (over 99 levels)");
}

}  // namespace
}  // namespace qinfer::tokenizer
