// Python's character classes and case mappings by utf8proc, and the mappings of Unicode's
// SpecialCasing table that turn one character into several, which utf8proc lacks.
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "tokenizer/jinja_text.h"

namespace qinfer::tokenizer::jinja {
namespace {

struct SpecialCase {
  char32_t from;
  std::array<char32_t, 3> upper;
  std::array<char32_t, 3> title;
};

// Sorted by `from`; unused places are zero.
constexpr SpecialCase kSpecialCases[] = {
    {0xDF, {{0x53, 0x53, 0}}, {{0x53, 0x73, 0}}},
    {0x149, {{0x2bc, 0x4e, 0}}, {{0x2bc, 0x4e, 0}}},
    {0x1F0, {{0x4a, 0x30c, 0}}, {{0x4a, 0x30c, 0}}},
    {0x390, {{0x399, 0x308, 0x301}}, {{0x399, 0x308, 0x301}}},
    {0x3B0, {{0x3a5, 0x308, 0x301}}, {{0x3a5, 0x308, 0x301}}},
    {0x587, {{0x535, 0x552, 0}}, {{0x535, 0x582, 0}}},
    {0x1E96, {{0x48, 0x331, 0}}, {{0x48, 0x331, 0}}},
    {0x1E97, {{0x54, 0x308, 0}}, {{0x54, 0x308, 0}}},
    {0x1E98, {{0x57, 0x30a, 0}}, {{0x57, 0x30a, 0}}},
    {0x1E99, {{0x59, 0x30a, 0}}, {{0x59, 0x30a, 0}}},
    {0x1E9A, {{0x41, 0x2be, 0}}, {{0x41, 0x2be, 0}}},
    {0x1F50, {{0x3a5, 0x313, 0}}, {{0x3a5, 0x313, 0}}},
    {0x1F52, {{0x3a5, 0x313, 0x300}}, {{0x3a5, 0x313, 0x300}}},
    {0x1F54, {{0x3a5, 0x313, 0x301}}, {{0x3a5, 0x313, 0x301}}},
    {0x1F56, {{0x3a5, 0x313, 0x342}}, {{0x3a5, 0x313, 0x342}}},
    {0x1F80, {{0x1f08, 0x399, 0}}, {{0x1f88, 0, 0}}},
    {0x1F81, {{0x1f09, 0x399, 0}}, {{0x1f89, 0, 0}}},
    {0x1F82, {{0x1f0a, 0x399, 0}}, {{0x1f8a, 0, 0}}},
    {0x1F83, {{0x1f0b, 0x399, 0}}, {{0x1f8b, 0, 0}}},
    {0x1F84, {{0x1f0c, 0x399, 0}}, {{0x1f8c, 0, 0}}},
    {0x1F85, {{0x1f0d, 0x399, 0}}, {{0x1f8d, 0, 0}}},
    {0x1F86, {{0x1f0e, 0x399, 0}}, {{0x1f8e, 0, 0}}},
    {0x1F87, {{0x1f0f, 0x399, 0}}, {{0x1f8f, 0, 0}}},
    {0x1F88, {{0x1f08, 0x399, 0}}, {{0x1f88, 0, 0}}},
    {0x1F89, {{0x1f09, 0x399, 0}}, {{0x1f89, 0, 0}}},
    {0x1F8A, {{0x1f0a, 0x399, 0}}, {{0x1f8a, 0, 0}}},
    {0x1F8B, {{0x1f0b, 0x399, 0}}, {{0x1f8b, 0, 0}}},
    {0x1F8C, {{0x1f0c, 0x399, 0}}, {{0x1f8c, 0, 0}}},
    {0x1F8D, {{0x1f0d, 0x399, 0}}, {{0x1f8d, 0, 0}}},
    {0x1F8E, {{0x1f0e, 0x399, 0}}, {{0x1f8e, 0, 0}}},
    {0x1F8F, {{0x1f0f, 0x399, 0}}, {{0x1f8f, 0, 0}}},
    {0x1F90, {{0x1f28, 0x399, 0}}, {{0x1f98, 0, 0}}},
    {0x1F91, {{0x1f29, 0x399, 0}}, {{0x1f99, 0, 0}}},
    {0x1F92, {{0x1f2a, 0x399, 0}}, {{0x1f9a, 0, 0}}},
    {0x1F93, {{0x1f2b, 0x399, 0}}, {{0x1f9b, 0, 0}}},
    {0x1F94, {{0x1f2c, 0x399, 0}}, {{0x1f9c, 0, 0}}},
    {0x1F95, {{0x1f2d, 0x399, 0}}, {{0x1f9d, 0, 0}}},
    {0x1F96, {{0x1f2e, 0x399, 0}}, {{0x1f9e, 0, 0}}},
    {0x1F97, {{0x1f2f, 0x399, 0}}, {{0x1f9f, 0, 0}}},
    {0x1F98, {{0x1f28, 0x399, 0}}, {{0x1f98, 0, 0}}},
    {0x1F99, {{0x1f29, 0x399, 0}}, {{0x1f99, 0, 0}}},
    {0x1F9A, {{0x1f2a, 0x399, 0}}, {{0x1f9a, 0, 0}}},
    {0x1F9B, {{0x1f2b, 0x399, 0}}, {{0x1f9b, 0, 0}}},
    {0x1F9C, {{0x1f2c, 0x399, 0}}, {{0x1f9c, 0, 0}}},
    {0x1F9D, {{0x1f2d, 0x399, 0}}, {{0x1f9d, 0, 0}}},
    {0x1F9E, {{0x1f2e, 0x399, 0}}, {{0x1f9e, 0, 0}}},
    {0x1F9F, {{0x1f2f, 0x399, 0}}, {{0x1f9f, 0, 0}}},
    {0x1FA0, {{0x1f68, 0x399, 0}}, {{0x1fa8, 0, 0}}},
    {0x1FA1, {{0x1f69, 0x399, 0}}, {{0x1fa9, 0, 0}}},
    {0x1FA2, {{0x1f6a, 0x399, 0}}, {{0x1faa, 0, 0}}},
    {0x1FA3, {{0x1f6b, 0x399, 0}}, {{0x1fab, 0, 0}}},
    {0x1FA4, {{0x1f6c, 0x399, 0}}, {{0x1fac, 0, 0}}},
    {0x1FA5, {{0x1f6d, 0x399, 0}}, {{0x1fad, 0, 0}}},
    {0x1FA6, {{0x1f6e, 0x399, 0}}, {{0x1fae, 0, 0}}},
    {0x1FA7, {{0x1f6f, 0x399, 0}}, {{0x1faf, 0, 0}}},
    {0x1FA8, {{0x1f68, 0x399, 0}}, {{0x1fa8, 0, 0}}},
    {0x1FA9, {{0x1f69, 0x399, 0}}, {{0x1fa9, 0, 0}}},
    {0x1FAA, {{0x1f6a, 0x399, 0}}, {{0x1faa, 0, 0}}},
    {0x1FAB, {{0x1f6b, 0x399, 0}}, {{0x1fab, 0, 0}}},
    {0x1FAC, {{0x1f6c, 0x399, 0}}, {{0x1fac, 0, 0}}},
    {0x1FAD, {{0x1f6d, 0x399, 0}}, {{0x1fad, 0, 0}}},
    {0x1FAE, {{0x1f6e, 0x399, 0}}, {{0x1fae, 0, 0}}},
    {0x1FAF, {{0x1f6f, 0x399, 0}}, {{0x1faf, 0, 0}}},
    {0x1FB2, {{0x1fba, 0x399, 0}}, {{0x1fba, 0x345, 0}}},
    {0x1FB3, {{0x391, 0x399, 0}}, {{0x1fbc, 0, 0}}},
    {0x1FB4, {{0x386, 0x399, 0}}, {{0x386, 0x345, 0}}},
    {0x1FB6, {{0x391, 0x342, 0}}, {{0x391, 0x342, 0}}},
    {0x1FB7, {{0x391, 0x342, 0x399}}, {{0x391, 0x342, 0x345}}},
    {0x1FBC, {{0x391, 0x399, 0}}, {{0x1fbc, 0, 0}}},
    {0x1FC2, {{0x1fca, 0x399, 0}}, {{0x1fca, 0x345, 0}}},
    {0x1FC3, {{0x397, 0x399, 0}}, {{0x1fcc, 0, 0}}},
    {0x1FC4, {{0x389, 0x399, 0}}, {{0x389, 0x345, 0}}},
    {0x1FC6, {{0x397, 0x342, 0}}, {{0x397, 0x342, 0}}},
    {0x1FC7, {{0x397, 0x342, 0x399}}, {{0x397, 0x342, 0x345}}},
    {0x1FCC, {{0x397, 0x399, 0}}, {{0x1fcc, 0, 0}}},
    {0x1FD2, {{0x399, 0x308, 0x300}}, {{0x399, 0x308, 0x300}}},
    {0x1FD3, {{0x399, 0x308, 0x301}}, {{0x399, 0x308, 0x301}}},
    {0x1FD6, {{0x399, 0x342, 0}}, {{0x399, 0x342, 0}}},
    {0x1FD7, {{0x399, 0x308, 0x342}}, {{0x399, 0x308, 0x342}}},
    {0x1FE2, {{0x3a5, 0x308, 0x300}}, {{0x3a5, 0x308, 0x300}}},
    {0x1FE3, {{0x3a5, 0x308, 0x301}}, {{0x3a5, 0x308, 0x301}}},
    {0x1FE4, {{0x3a1, 0x313, 0}}, {{0x3a1, 0x313, 0}}},
    {0x1FE6, {{0x3a5, 0x342, 0}}, {{0x3a5, 0x342, 0}}},
    {0x1FE7, {{0x3a5, 0x308, 0x342}}, {{0x3a5, 0x308, 0x342}}},
    {0x1FF2, {{0x1ffa, 0x399, 0}}, {{0x1ffa, 0x345, 0}}},
    {0x1FF3, {{0x3a9, 0x399, 0}}, {{0x1ffc, 0, 0}}},
    {0x1FF4, {{0x38f, 0x399, 0}}, {{0x38f, 0x345, 0}}},
    {0x1FF6, {{0x3a9, 0x342, 0}}, {{0x3a9, 0x342, 0}}},
    {0x1FF7, {{0x3a9, 0x342, 0x399}}, {{0x3a9, 0x342, 0x345}}},
    {0x1FFC, {{0x3a9, 0x399, 0}}, {{0x1ffc, 0, 0}}},
    {0xFB00, {{0x46, 0x46, 0}}, {{0x46, 0x66, 0}}},
    {0xFB01, {{0x46, 0x49, 0}}, {{0x46, 0x69, 0}}},
    {0xFB02, {{0x46, 0x4c, 0}}, {{0x46, 0x6c, 0}}},
    {0xFB03, {{0x46, 0x46, 0x49}}, {{0x46, 0x66, 0x69}}},
    {0xFB04, {{0x46, 0x46, 0x4c}}, {{0x46, 0x66, 0x6c}}},
    {0xFB05, {{0x53, 0x54, 0}}, {{0x53, 0x74, 0}}},
    {0xFB06, {{0x53, 0x54, 0}}, {{0x53, 0x74, 0}}},
    {0xFB13, {{0x544, 0x546, 0}}, {{0x544, 0x576, 0}}},
    {0xFB14, {{0x544, 0x535, 0}}, {{0x544, 0x565, 0}}},
    {0xFB15, {{0x544, 0x53b, 0}}, {{0x544, 0x56b, 0}}},
    {0xFB16, {{0x54e, 0x546, 0}}, {{0x54e, 0x576, 0}}},
    {0xFB17, {{0x544, 0x53d, 0}}, {{0x544, 0x56d, 0}}},
};

const SpecialCase* FindSpecialCase(char32_t c) {
  if (c < 0xDF) return nullptr;
  const auto* end = std::end(kSpecialCases);
  const auto* at = std::lower_bound(std::begin(kSpecialCases), end, c,
                                    [](const SpecialCase& s, char32_t x) { return s.from < x; });
  return at != end && at->from == c ? at : nullptr;
}

utf8proc_category_t CategoryOf(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

void AppendAll(const std::array<char32_t, 3>& chars, Text* out) {
  for (const char32_t c : chars) {
    if (c != 0) AppendUtf8(c, out);
  }
}

void AppendUpper(char32_t c, Text* out) {
  if (const SpecialCase* special = FindSpecialCase(c)) {
    AppendAll(special->upper, out);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(char32_t c, Text* out) {
  if (const SpecialCase* special = FindSpecialCase(c)) {
    AppendAll(special->title, out);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

// Marks, modifiers and the like do not end a word for the rule of the final sigma.
bool IsCaseIgnorable(char32_t c) {
  if (c == 0x27 || c == 0x2E || c == 0x3A || c == 0xB7 || c == 0x387 || c == 0x2018 ||
      c == 0x2019 || c == 0x2024 || c == 0x2027) {
    return true;
  }
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

// The sigma at text[start, end).
bool IsFinalSigma(std::string_view text, size_t start, size_t end) {
  bool after_cased = false;
  while (start > 0) {
    const char32_t c = DecodeUtf8Back(text, &start);
    if (IsCaseIgnorable(c)) continue;
    after_cased = IsCased(c);
    break;
  }
  if (!after_cased) return false;
  while (end < text.size()) {
    const char32_t c = DecodeUtf8(text, &end);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

// The character c = text[start, end).
void AppendLower(char32_t c, std::string_view text, size_t start, size_t end, Text* out) {
  if (c == 0x130) {
    AppendUtf8('i', out);
    AppendUtf8(0x307, out);
  } else if (c == 0x3A3) {
    AppendUtf8(IsFinalSigma(text, start, end) ? 0x3C2 : 0x3C3, out);
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

// Calls map(c, start, end) for each character c = text[start, end); room is made for text of the
// same size, and grows where that is not enough.
template <typename Map>
void MapCase(std::string_view text, Text* out, Map map) {
  MakeRoom(out, text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = DecodeUtf8(text, &at);
    map(c, start, at);
  }
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

bool IsSpace(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsAlpha(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool IsDecimal(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(char32_t c) {
  if (IsDecimal(c)) return true;
  // Numeric_Type=Digit: superscripts, subscripts, circled, bracketed and the like.
  struct Range {
    char32_t first, last;
  };
  static constexpr Range kRanges[] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const Range& r) { return c >= r.first && c <= r.last; });
}

bool IsNumeric(char32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      break;
  }
  // The ideographs for numbers that are in everyday use.
  static constexpr std::u32string_view kIdeographs =
      U"\u3405\u3483\u382A\u3B4D\u4E00\u4E03\u4E07\u4E09\u4E5D\u4E8C\u4E94\u4EBF\u4EE8\u4EDF"
      U"\u4F0D\u4F70\u5104\u5146\u516B\u516D\u5341\u5343\u5344\u5345\u534C\u53C1\u53C2\u53C3"
      U"\u53C4\u56DB\u58F1\u58F9\u5E7A\u5EFE\u5EFF\u5F0C\u5F0D\u5F0E\u5F10\u62FE\u634C\u67D2"
      U"\u6F06\u7396\u767E\u8086\u842C\u8CAE\u8CB3\u8D30\u9646\u9621\u964C\u9678\u96F6";
  return kIdeographs.find(c) != std::u32string_view::npos;
}

bool IsAlnum(char32_t c) { return IsAlpha(c) || IsNumeric(c) || IsDigit(c); }
bool IsUpper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool IsLower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool IsTitle(char32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_LT; }

bool IsPrintable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsIdentifierStart(char32_t c) {
  return c == '_' || IsAlpha(c) || CategoryOf(c) == UTF8PROC_CATEGORY_NL;
}

bool IsIdentifierPart(char32_t c) {
  if (IsIdentifierStart(c) || IsDecimal(c) || c == 0xB7) return true;
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

void AppendUpper(std::string_view text, Text* out) {
  MapCase(text, out, [&](char32_t c, size_t, size_t) { AppendUpper(c, out); });
}

void AppendLower(std::string_view text, Text* out) {
  if (IsAscii(text)) {
    MakeRoom(out, text.size());
    for (const char c : text) out->push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
    return;
  }
  MapCase(text, out,
          [&](char32_t c, size_t start, size_t end) { AppendLower(c, text, start, end, out); });
}

void AppendCapitalized(std::string_view text, Text* out) {
  MapCase(text, out, [&](char32_t c, size_t start, size_t end) {
    if (start == 0) {
      AppendTitle(c, out);
    } else {
      AppendLower(c, text, start, end, out);
    }
  });
}

void AppendTitle(std::string_view text, Text* out) {
  bool in_word = false;
  MapCase(text, out, [&](char32_t c, size_t start, size_t end) {
    if (in_word) {
      AppendLower(c, text, start, end, out);
    } else {
      AppendTitle(c, out);
    }
    in_word = IsCased(c);
  });
}

void AppendSwappedCase(std::string_view text, Text* out) {
  MapCase(text, out, [&](char32_t c, size_t start, size_t end) {
    if (IsUpper(c)) {
      AppendLower(c, text, start, end, out);
    } else if (IsLower(c)) {
      AppendUpper(c, out);
    } else {
      AppendUtf8(c, out);
    }
  });
}

void AppendCaseFolded(std::string_view text, Text* out) {
  if (IsAscii(text)) {
    AppendLower(text, out);
    return;
  }
  MapCase(text, out, [&](char32_t c, size_t, size_t) {
    utf8proc_int32_t folded[8] = {};
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded,
                                                           8, UTF8PROC_CASEFOLD, nullptr);
    for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, 8); ++i) {
      AppendUtf8(static_cast<char32_t>(folded[i]), out);
    }
  });
}

}  // namespace qinfer::tokenizer::jinja
