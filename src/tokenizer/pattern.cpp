// Regular expressions of tokenizer files, run by PCRE2 with limits on work and memory. The
// translation of their dialect is in pattern_translate.cpp.
#include "tokenizer/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <cstring>

#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

// The library's own limit starts anew at every position of a text, so work is counted by
// MatchBudget instead: every item of an expression is preceded by a call-out.
constexpr uint32_t kMatchLimit = UINT32_MAX;
constexpr uint32_t kDepthLimit = 100'000;
constexpr uint32_t kHeapLimitKib = 32 * 1024;
constexpr size_t kMaxPatternBytes = 1 << 16;
constexpr size_t kHeader = Memory::kAlign;  // keeps a block's size in front of it

constexpr uint32_t kByCapture = UINT32_MAX;  // a reference: as long as what was captured

// The least number of times that an item of an expression is repeated, where it says so.
uint32_t LeastRepeat(std::string_view item) {
  if (item.empty() || item.front() == ')' || item.front() == '[') {
    // Of a class only what follows it; a group's items are counted one by one.
    const size_t close = item.rfind(']');
    if (item.empty() || item.front() == ')' || close == std::string_view::npos) return 0;
    item.remove_prefix(close);
  }
  const size_t open = item.rfind('{');
  if (open == std::string_view::npos || open == 0) return 0;
  // \\x{...}, \\p{...} and their like are no repeats.
  if (open >= 2 && item[open - 2] == '\\' && item[open - 1] != '\\') {
    if (std::string_view("xpPoNgk").find(item[open - 1]) != std::string_view::npos) return 0;
  }
  uint32_t count = 0;
  for (size_t i = open + 1; i < item.size() && item[i] >= '0' && item[i] <= '9'; ++i) {
    count = std::min<uint32_t>(count * 10 + static_cast<uint32_t>(item[i] - '0'), 100'000);
  }
  return count;
}

bool IsReference(std::string_view item) {
  if (item.size() >= 2 && item[0] == '\\') {
    return (item[1] >= '1' && item[1] <= '9') || item[1] == 'g' || item[1] == 'k';
  }
  return item.substr(0, 4) == "(?P=";
}

struct CostTable {
  std::string_view expression;
  std::vector<uint32_t>* costs;
};

int NoteCost(pcre2_callout_enumerate_block* block, void* data) {
  auto* table = static_cast<CostTable*>(data);
  if (block->pattern_position >= table->costs->size()) return 0;
  const std::string_view item =
      table->expression.substr(block->pattern_position, block->next_item_length);
  (*table->costs)[block->pattern_position] = IsReference(item) ? kByCapture : LeastRepeat(item);
  return 0;
}

void* Allocate(size_t bytes, void* user) {
  if (bytes > SIZE_MAX - kHeader) return nullptr;
  auto* block =
      static_cast<char*>(static_cast<Memory*>(user)->Allocate(bytes + kHeader, Memory::kAlign));
  if (block == nullptr) return nullptr;
  std::memcpy(block, &bytes, sizeof bytes);
  return block + kHeader;
}

void Release(void* pointer, void* user) {
  if (pointer == nullptr) return;
  char* block = static_cast<char*>(pointer) - kHeader;
  size_t bytes;
  std::memcpy(&bytes, block, sizeof bytes);
  static_cast<Memory*>(user)->Release(block, bytes + kHeader, Memory::kAlign);
}

std::string ErrorText(int code) {
  unsigned char buffer[160];
  const int length = pcre2_get_error_message(code, buffer, sizeof buffer);
  return length > 0
             ? std::string(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length))
             : StrCat("error ", code);
}

}  // namespace

StatusOr<std::unique_ptr<const Pattern>> Pattern::Compile(std::string_view text, Memory* memory) {
  if (text.size() > kMaxPatternBytes)
    return UnsupportedError(
        StrCat("a pattern of ", text.size(), " bytes; the limit is ", kMaxPatternBytes));
  QINFER_ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(text));
  std::unique_ptr<Pattern> pattern(new Pattern());
  auto* general = pcre2_general_context_create(Allocate, Release, memory);
  if (general == nullptr) return NoMemoryError("no memory for a pattern");
  pattern->general_ = general;
  auto* context = pcre2_compile_context_create(general);
  if (context == nullptr) return NoMemoryError("no memory for a pattern");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pattern->code_ = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT,
      &error, &offset, context);
  pcre2_compile_context_free(context);
  if (pattern->code_ == nullptr) {
    if (error == PCRE2_ERROR_NOMEMORY) return NoMemoryError("no memory for a pattern");
    return FormatError(StrCat("pattern ", std::string(text),
                              " does not compile: ", ErrorText(error), " at offset ", offset));
  }
  pattern->costs_.resize(translated.size() + 1);
  CostTable table{translated, &pattern->costs_};
  pcre2_callout_enumerate(static_cast<const pcre2_code*>(pattern->code_), NoteCost, &table);
  return std::unique_ptr<const Pattern>(std::move(pattern));
}

// The work between two call-outs: the item itself, the characters that a repeat has passed over,
// and those that it may pass over in vain.
struct MatchWork {
  static int Count(pcre2_callout_block* block, void* data) {
    auto* matcher = static_cast<Pattern::Matcher*>(data);
    const size_t at = block->current_position;
    uint64_t steps = 1;
    if (at > matcher->seen_) steps += at - matcher->seen_;
    matcher->seen_ = at;
    const auto& costs = matcher->pattern_.costs_;
    uint64_t cost = block->pattern_position < costs.size() ? costs[block->pattern_position] : 0;
    if (cost == kByCapture) cost = at - std::min(at, block->start_match);
    steps += std::min<uint64_t>(cost, block->subject_length - at);
    return matcher->budget_->Spend(steps) ? 0 : PCRE2_ERROR_CALLOUT;
  }
};

Pattern::~Pattern() {
  pcre2_code_free(static_cast<pcre2_code*>(code_));
  pcre2_general_context_free(static_cast<pcre2_general_context*>(general_));
}

Pattern::Matcher::Matcher(const Pattern& pattern, std::string_view text, MatchBudget* budget)
    : pattern_(pattern), text_(text), budget_(budget) {
  auto* general = static_cast<pcre2_general_context*>(pattern.general_);
  match_data_ = pcre2_match_data_create(1, general);
  auto* context = pcre2_match_context_create(general);
  match_context_ = context;
  if (context == nullptr) return;
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_set_depth_limit(context, kDepthLimit);
  pcre2_set_heap_limit(context, kHeapLimitKib);
  pcre2_set_callout(context, MatchWork::Count, this);
}

Pattern::Matcher::~Matcher() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(match_context_));
}

StatusOr<bool> Pattern::Matcher::Next(size_t* begin, size_t* end) {
  if (match_data_ == nullptr || match_context_ == nullptr)
    return NoMemoryError("no memory to match a pattern");
  auto* data = static_cast<pcre2_match_data*>(match_data_);
  while (position_ <= text_.size()) {
    seen_ = position_;
    const int rc =
        pcre2_match(static_cast<const pcre2_code*>(pattern_.code_),
                    reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), position_,
                    PCRE2_NO_UTF_CHECK, data, static_cast<pcre2_match_context*>(match_context_));
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc == PCRE2_ERROR_NOMEMORY) return NoMemoryError("no memory to match a pattern");
    if (rc == PCRE2_ERROR_CALLOUT)
      return UnsupportedError(
          StrCat("a regular expression of the tokenizer takes too long on this text: too much work "
                 "up to byte ",
                 position_, " of ", text_.size()));
    if (rc < 0)
      return UnsupportedError(
          StrCat("a pattern of the tokenizer needs too much work on this text (", ErrorText(rc),
                 ") near byte ", position_));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
    const size_t from = bounds[0];
    const size_t to = bounds[1];
    if (from > to || to > text_.size() || from < position_) break;  // \K in a look-around
    if (from == to && to == last_end_) {
      if (to >= text_.size()) break;
      position_ = to + SequenceLength(static_cast<uint8_t>(text_[to]));
      continue;
    }
    position_ = last_end_ = to;
    *begin = from;
    *end = to;
    return true;
  }
  position_ = text_.size() + 1;
  return false;
}

}  // namespace qinfer::tokenizer
