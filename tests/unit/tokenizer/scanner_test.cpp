// Hand-written scanners against the regular expressions that they stand for, and the pattern
// dialect's translation.
#include <gtest/gtest.h>

#include <random>

#include "test_util.h"
#include "tokenizer/pattern.h"
#include "tokenizer/scanners.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

using Cuts = std::vector<std::pair<size_t, size_t>>;

Cuts ByPattern(const Pattern& pattern, std::string_view text) {
  Cuts cuts;
  MatchBudget budget(text.size());
  Pattern::Matcher matcher(pattern, text, &budget);
  size_t begin = 0;
  size_t end = 0;
  for (;;) {
    const auto found = matcher.Next(&begin, &end);
    if (!found.ok() || !*found) break;
    cuts.emplace_back(begin, end);
  }
  return cuts;
}

std::string RandomText(std::mt19937* random) {
  static constexpr std::string_view kPieces[] = {" ",
                                                 "  ",
                                                 "\n",
                                                 "\r\n",
                                                 "\t",
                                                 "'s",
                                                 "'LL",
                                                 "'re",
                                                 "'\xc5\xbf",
                                                 "a",
                                                 "The",
                                                 "9",
                                                 "12345",
                                                 ".",
                                                 "...",
                                                 "!a",
                                                 "\xc2\xa0",
                                                 "\xe3\x80\x80",
                                                 "\xe4\xb8\xad",
                                                 "\xe3\x81\x82",
                                                 "\xea\xb0\x80",
                                                 "\xcc\x81",
                                                 "\xc3\xa9",
                                                 "\xd9\xa3",
                                                 "\xe2\x82\xac"};
  std::string text;
  const int count = static_cast<int>((*random)() % 12);
  for (int i = 0; i < count; ++i) {
    if ((*random)() % 3 != 0) {
      text += kPieces[(*random)() % std::size(kPieces)];
      continue;
    }
    uint32_t c = (*random)() % ((*random)() % 2 == 0 ? 0x3000 : 0x110000);
    if (c >= 0xd800 && c < 0xe000) c = 0x41;
    AppendUtf8(c, &text);
  }
  return text;
}

TEST(Scanners, EqualPatterns) {
  Memory memory;
  std::mt19937 random(7);
  for (uint32_t s = 1; s <= static_cast<uint32_t>(Scanner::kLast); ++s) {
    const auto scanner = static_cast<Scanner>(s);
    const std::string_view spelled = ScannerPattern(scanner);
    ASSERT_FALSE(spelled.empty()) << s;
    EXPECT_EQ(FindScanner(spelled), s);
    auto pattern = Pattern::Compile(spelled, &memory);
    ASSERT_TRUE(pattern.ok()) << pattern.status().message();
    for (int i = 0; i < 4000; ++i) {
      const std::string text = RandomText(&random);
      Cuts cuts;
      for (size_t at = 0; at < text.size();) {
        size_t begin;
        size_t end;
        ScanNext(scanner, text, at, &begin, &end);
        if (begin == end) break;
        cuts.emplace_back(begin, end);
        at = end;
      }
      ASSERT_EQ(cuts, ByPattern(**pattern, text)) << "scanner " << s << " on \"" << text << "\"";
    }
  }
}

TEST(Patterns, Translation) {
  const std::pair<const char*, const char*> cases[] = {
      {"[\\x41-\\u0043]{,2}", "[\\x{41}-\\x{43}]{0,2}"},
      {"(?m:a.b)", "(?s:a.b)"},
      {"\\h+", "[0-9a-fA-F]+"},
      {"[a[bc]]", "[abc]"},
      {"a{x", "a\\{x"},
      {"\\p{Cc}", "\\p{Cc}"},
  };
  for (const auto& [from, to] : cases) {
    const auto translated = TranslatePattern(from);
    ASSERT_TRUE(translated.ok()) << from << ": " << translated.status().message();
    EXPECT_EQ(*translated, to);
  }
  for (const char* pattern : {"[a&&b]", "[a", "\\", "\\y", "\\p{", "(?~a)", "a{2}+", "\\xff"})
    EXPECT_FALSE(TranslatePattern(pattern).ok()) << pattern;
}

// Where words begin follows \w: after a combining mark or a connector (U+203F) none does.
TEST(Patterns, WordBoundaries) {
  Memory memory;
  const std::string text = "a\xcc\x81z x\xe2\x80\xbfy";
  const std::pair<const char*, Cuts> cases[] = {
      {"\\b\\w", {{0, 1}, {5, 6}}},
      {"\\w\\b", {{3, 4}, {9, 10}}},
      {"\\B\\w", {{1, 3}, {3, 4}, {6, 9}, {9, 10}}},
  };
  for (const auto& [spelled, cuts] : cases) {
    auto pattern = Pattern::Compile(spelled, &memory);
    ASSERT_TRUE(pattern.ok()) << pattern.status().message();
    EXPECT_EQ(ByPattern(**pattern, text), cuts) << spelled;
  }
}

TEST(Patterns, WorkIsBounded) {
  Memory memory;
  auto pattern = Pattern::Compile("(a+)+$", &memory);
  ASSERT_TRUE(pattern.ok());
  const std::string text = std::string(200, 'a') + "b";
  MatchBudget budget(text.size());
  Pattern::Matcher matcher(**pattern, text, &budget);
  size_t begin;
  size_t end;
  const auto found = matcher.Next(&begin, &end);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(std::string(found.status().message()).find("too much work"), std::string::npos);
  EXPECT_FALSE(Pattern::Compile("(", &memory).ok());
}

// Work that starts anew at every position of the text counts together.
TEST(Patterns, WorkIsBoundedOverTheText) {
  Memory memory;
  const std::string run(300'000, 'a');
  std::string lines;
  while (lines.size() < 300'000)
    lines += "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab ";
  for (const auto& [expression, text] :
       std::initializer_list<std::pair<const char*, std::string>>{{"[a-z]+(?=1)", run},
                                                                  {"(a{1000}){1000}", run},
                                                                  {"(?:a|a)+[12]", run},
                                                                  {"[a-c]{65000}[bd]", run},
                                                                  {"(a+)b?\\1[cd]", run},
                                                                  {"(?:a{1,60}){20}[cd]", lines}}) {
    auto pattern = Pattern::Compile(expression, &memory);
    ASSERT_TRUE(pattern.ok()) << expression << ": " << pattern.status();
    MatchBudget budget(text.size());
    Pattern::Matcher matcher(**pattern, text, &budget);
    size_t begin = 0;
    size_t end = 0;
    StatusOr<bool> found = true;
    while (found.ok() && *found) found = matcher.Next(&begin, &end);
    ASSERT_FALSE(found.ok()) << expression;
    EXPECT_EQ(found.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_NE(std::string(found.status().message()).find("on this text"), std::string::npos)
        << found.status();
  }
}

// What models really use stays far below the bound, whatever the text.
TEST(Patterns, RealExpressionsHaveWorkToSpare) {
  Memory memory;
  constexpr size_t kBytes = 50'000;
  for (uint32_t s = 1; s <= static_cast<uint32_t>(Scanner::kLast); ++s) {
    const std::string_view expression = ScannerPattern(static_cast<Scanner>(s));
    auto pattern = Pattern::Compile(expression, &memory);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    for (const std::string unit :
         {" ", "\t", "\n", "a", "A", "aA", "7", ".", "'", "'s", " a", " \n", "\xe4\xb8\xad",
          "\xe3\x81\x82", "\xcc\x81", "\xc2\xa0", "a1.", "The 12 cats, "}) {
      std::string text;
      while (text.size() + unit.size() <= kBytes) text += unit;
      MatchBudget budget(text.size());
      const uint64_t whole = budget.left();
      Pattern::Matcher matcher(**pattern, text, &budget);
      size_t begin = 0;
      size_t end = 0;
      StatusOr<bool> found = true;
      while (found.ok() && *found) found = matcher.Next(&begin, &end);
      ASSERT_TRUE(found.ok()) << expression << " on runs of '" << unit << "': " << found.status();
      EXPECT_LT(whole - budget.left(), 20 * text.size())
          << expression << " on runs of '" << unit << "'";
    }
  }
}

TEST(Utf8, IncompleteTail) {
  EXPECT_EQ(IncompleteUtf8Tail(""), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("a"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("a\xc3"), 1u);
  EXPECT_EQ(IncompleteUtf8Tail("a\xe2\x82"), 2u);
  EXPECT_EQ(IncompleteUtf8Tail("a\xf0\x9f\x99"), 3u);
  EXPECT_EQ(IncompleteUtf8Tail("\xf0\x9f\x99\x82"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("a\xff"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\x80\x80"), 0u);
  EXPECT_EQ(IncompleteUtf8Tail("\xed\xa0"), 0u);  // a surrogate never becomes a character
}

TEST(Utf8, Lossy) {
  std::string out;
  AppendLossy(
      "a\xe2\x82"
      "b\xff\xc0\xf0\x9f",
      &out);
  EXPECT_EQ(out,
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

}  // namespace
}  // namespace qinfer::tokenizer
