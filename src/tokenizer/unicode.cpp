// What code points mean: the classes that pre-tokenizers and added tokens ask for, lower case and
// the normal forms, from utf8proc's tables and a short list of later additions.
#include "tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

struct Addition {
  uint32_t first, last;
  uint8_t mask;
};
constexpr Addition kAdditions[] = {
#include "tokenizer/unicode_additions.inc"
};

struct Subclass {
  std::string_view name;
  uint32_t first, last;
};
constexpr Subclass kSubclasses[] = {
#include "tokenizer/unicode_subclasses.inc"
};

struct Range {
  uint32_t first, last;
};
constexpr Range kPunctuationDifferences[] = {
#include "tokenizer/unicode_punctuation.inc"
};
constexpr Range kAccentDifferences[] = {
#include "tokenizer/unicode_accents.inc"
};
constexpr Range kNumericDifferences[] = {
#include "tokenizer/unicode_numeric.inc"
};
constexpr Range kInert[] = {
#include "tokenizer/unicode_inert.inc"
};
struct LowerRange {
  uint32_t first, last;
  int32_t distance;
};
constexpr LowerRange kLowerAdditions[] = {
#include "tokenizer/unicode_lower.inc"
};

// The row that holds c, or null.
template <typename Row, size_t kSize>
const Row* FindRow(const Row (&rows)[kSize], uint32_t c) {
  const Row* it = std::lower_bound(std::begin(rows), std::end(rows), c,
                                   [](const Row& r, uint32_t value) { return r.last < value; });
  return it != std::end(rows) && c >= it->first ? it : nullptr;
}

uint8_t AdditionClass(uint32_t c) {
  const Addition* row = FindRow(kAdditions, c);
  return row != nullptr ? row->mask : uint8_t{kOtherClass};
}

bool IsWideSpace(uint32_t c) {
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Alphabetic beyond letters, marks and letter numbers: Other_Alphabetic of category So.
bool IsAlphabeticSymbol(uint32_t c) {
  return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
         (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

}  // namespace

#define S kSpace
#define P kPunctuation
#define Y kSymbol
#define D kDecimal
#define L kLetter
const uint8_t kAsciiClass[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, S, S, S, S, 0, 0,  // 00
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // 10
    S, P, P, P, Y, P, P, P, P, P, P, Y, P, P, P, P,  // 20
    D, D, D, D, D, D, D, D, D, D, P, P, Y, Y, Y, P,  // 30
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,  // 40
    L, L, L, L, L, L, L, L, L, L, L, P, P, P, Y, P,  // 50
    Y, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L,  // 60
    L, L, L, L, L, L, L, L, L, L, L, P, Y, P, Y, 0,  // 70
};
#undef S
#undef P
#undef Y
#undef D
#undef L

uint8_t ClassOfWide(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark;
    case UTF8PROC_CATEGORY_ND:
      return kDecimal;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kOtherNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return kSymbol;
    case UTF8PROC_CATEGORY_CN:
      return AdditionClass(c);
    default:
      return IsWideSpace(c) ? uint8_t{kSpace} : uint8_t{kOtherClass};
  }
}

bool IsOnigWord(uint32_t c) {
  // Below 256 Oniguruma asks Latin-1's table, where the superscripts and fractions are word
  // characters.
  if (c == 0xb2 || c == 0xb3 || c == 0xb9 || (c >= 0xbc && c <= 0xbe)) return true;
  const uint8_t mask = ClassOf(c);
  if ((mask & (kLetter | kMark | kDecimal)) != 0) return true;
  if ((mask & kOtherNumber) != 0)
    return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_NL;
  if ((mask & kPunctuation) != 0)
    return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_PC;
  return (mask & kSymbol) != 0 && IsAlphabeticSymbol(c);
}

bool IsWord(uint32_t c) {
  if (c == 0x200c || c == 0x200d) return true;
  return IsOnigWord(c) && (c >= 0x100 || (ClassOf(c) & kOtherNumber) == 0);
}

bool IsPunctuation(uint32_t c) {
  if (c < 128) return (kAsciiClass[c] & (kPunctuation | kSymbol)) != 0;
  return ((ClassOfWide(c) & kPunctuation) != 0) != (FindRow(kPunctuationDifferences, c) != nullptr);
}

bool IsNumeric(uint32_t c) {
  if (c < 128) return (kAsciiClass[c] & kNumber) != 0;
  return ((ClassOfWide(c) & kNumber) != 0) != (FindRow(kNumericDifferences, c) != nullptr);
}

bool IsAccent(uint32_t c) {
  if (c < 128) return false;
  return ((ClassOfWide(c) & kMark) != 0) != (FindRow(kAccentDifferences, c) != nullptr);
}

namespace {

// A stretch without inert code points.

Status NormalizeStretch(std::string_view text, NormalForm form, String* out) {
  int options = UTF8PROC_STABLE;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  const auto opts = static_cast<utf8proc_option_t>(options);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  std::pmr::vector<utf8proc_int32_t> points(out->get_allocator().resource());
  // Two calls at most: the first tells how much room is needed.
  points.resize(text.size() + 8);
  utf8proc_ssize_t count = utf8proc_decompose(bytes, size, points.data(),
                                              static_cast<utf8proc_ssize_t>(points.size()), opts);
  if (count > static_cast<utf8proc_ssize_t>(points.size())) {
    points.resize(static_cast<size_t>(count));
    count = utf8proc_decompose(bytes, size, points.data(), count, opts);
  }
  if (count < 0) return InternalError("normal form of text that is not valid UTF-8");
  if (compose) {
    count = utf8proc_normalize_utf32(points.data(), count, opts);
    if (count < 0) return InternalError("canonical composition failed");
  }
  char buffer[4];
  out->reserve(out->size() + text.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    out->append(buffer, EncodeUtf8(static_cast<uint32_t>(points[static_cast<size_t>(i)]), buffer));
  return OkStatus();
}

}  // namespace

Status AppendNormalForm(std::string_view text, NormalForm form, String* out) {
  // ASCII is its own normal form.
  const auto is_ascii = [](char c) { return static_cast<uint8_t>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) {
    out->append(text);
    return OkStatus();
  }
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    uint32_t c;
    const uint32_t length = DecodeValid(p + i, &c);
    if (c >= 0x80 && FindRow(kInert, c) != nullptr) {
      QINFER_RETURN_IF_ERROR(NormalizeStretch(text.substr(begin, i - begin), form, out));
      out->append(text.substr(i, length));
      begin = i + length;
    }
    i += length;
  }
  return NormalizeStretch(text.substr(begin), form, out);
}

void AppendLowercase(std::string_view text, String* out) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* end = p + text.size();
  char buffer[4];
  while (p < end) {
    uint32_t c;
    p += DecodeValid(p, &c);
    if (c < 0x80) {
      out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
    } else if (c == 0x130) {
      out->append("i\xcc\x87");  // the one unconditional lower-case mapping to two code points
    } else if (const LowerRange* row = FindRow(kLowerAdditions, c); row != nullptr) {
      const auto lower = static_cast<uint32_t>(static_cast<int32_t>(c) + row->distance);
      out->append(buffer, EncodeUtf8(lower, buffer));
    } else {
      const auto lower = static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
      out->append(buffer, EncodeUtf8(lower, buffer));
    }
  }
}

namespace {

void AppendRange(uint32_t first, uint32_t last, std::string* out) {
  const auto append_hex = [out](uint32_t value) {
    out->append("\\x{");
    for (int shift = 20; shift >= 0; shift -= 4)
      out->push_back("0123456789abcdef"[(value >> shift) & 15]);
    out->push_back('}');
  };
  append_hex(first);
  if (last == first) return;
  out->push_back('-');
  append_hex(last);
}

}  // namespace

void AppendAdditionRanges(uint8_t mask, std::string* out) {
  for (const Addition& a : kAdditions) {
    if ((a.mask & mask) != 0) AppendRange(a.first, a.last, out);
  }
}

void AppendSubclassRanges(std::string_view name, std::string* out) {
  for (const Subclass& s : kSubclasses) {
    if (s.name == name) AppendRange(s.first, s.last, out);
  }
}

}  // namespace qinfer::tokenizer
