// TextStream: every way of cutting a text into pieces shows the same whole, cut at stop strings,
// without broken characters at any moment.
#include "engine/text_stream.h"

#include <gtest/gtest.h>

#include "tokenizer/tokenizer.h"

namespace qinfer::engine {
namespace {

bool IsValidUtf8(std::string_view text) {
  std::string copy;
  AppendValidUtf8(text, &copy);
  return copy == text;
}

struct Outcome {
  std::string text;
  bool stopped = false;
};

Outcome Feed(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  TextStream stream(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    std::string shown;
    const bool stopped = stream.Push(piece, &shown);
    EXPECT_TRUE(IsValidUtf8(shown)) << shown;
    outcome.text += shown;
    if (stopped) {
      outcome.stopped = true;
      return outcome;
    }
  }
  stream.Flush(&outcome.text);
  return outcome;
}

// All ways of cutting `text` in up to three pieces, and byte by byte.
void ExpectForAllCuts(const std::string& text, const std::vector<std::string>& stops,
                      const std::string& expected, bool stopped) {
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      const Outcome o = Feed({text.substr(0, a), text.substr(a, b - a), text.substr(b)}, stops);
      EXPECT_EQ(o.text, expected) << a << " " << b;
      EXPECT_EQ(o.stopped, stopped) << a << " " << b;
    }
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(Feed(bytes, stops).text, expected);
}

TEST(TextStream, CharactersAreNeverCut) {
  const std::string text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
  ExpectForAllCuts(text, {}, text, false);
}

TEST(TextStream, StopStringsAcrossPieces) {
  ExpectForAllCuts("hello STOP world", {"STOP"}, "hello ", true);
  ExpectForAllCuts("hello STO", {"STOP"}, "hello STO", false);
  ExpectForAllCuts("SSSTOP", {"STOP"}, "SS", true);
  ExpectForAllCuts("ababac", {"abac"}, "ab", true);
  ExpectForAllCuts("x\n\nUser:", {"\n\nUser:", "</s>"}, "x", true);
  ExpectForAllCuts("\xe2\x82\xac\xe2\x82\xad", {"\xe2\x82\xad"}, "\xe2\x82\xac", true);
  ExpectForAllCuts("abc", {""}, "abc", false);
}

TEST(TextStream, TheEarliestOfSeveralStopsWins) {
  EXPECT_EQ(Feed({"one two three"}, {"three", "two"}).text, "one ");
  EXPECT_EQ(Feed({"abcdef"}, {"cde", "bcdefg"}).text, "ab");
  // One inside the other: the one that is complete first, of equals the longest.
  ExpectForAllCuts("abcdefgh", {"bcdefg", "cde"}, "ab", true);
  ExpectForAllCuts("abcdefgh", {"cde", "bcde"}, "a", true);
}

TEST(TextStream, TextIsShownAsSoonAsItCanBe) {
  TextStream stream({"END"});
  std::string out;
  EXPECT_FALSE(stream.Push("abcE", &out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(stream.Push("N", &out));
  EXPECT_EQ(out, "abc");
  EXPECT_FALSE(stream.Push("x", &out));
  EXPECT_EQ(out, "abcENx");
}

TEST(TextStream, IllFormedBytesBecomeReplacementCharacters) {
  const std::string r = "\xef\xbf\xbd";
  ExpectForAllCuts("a\xff", {}, "a" + r, false);
  ExpectForAllCuts("\xe2\x82z", {}, r + "z", false);
  ExpectForAllCuts("\xc0\xaf", {}, r + r, false);
  ExpectForAllCuts("\xed\xa0\x80", {}, r + r + r, false);
  ExpectForAllCuts("\xf4\x90\x80\x80", {}, r + r + r + r, false);
  ExpectForAllCuts("\xf0\x9f\x98", {}, r, false);
  ExpectForAllCuts("\x80 ok \xf0\x9f", {}, r + " ok " + r, false);
}

}  // namespace
}  // namespace qinfer::engine
