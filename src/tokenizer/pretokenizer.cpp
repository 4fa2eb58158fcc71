// The pre-tokenizer program, step by step: each step cuts every word of the step before it. The
// rules (what becomes of a separator, what is dropped) are those of the `tokenizers` package.
#include "tokenizer/pretokenizer.h"

#include <algorithm>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/scanners.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

constexpr uint64_t kMaxText = 0xffffffffu;
constexpr size_t kMaxGrowth = 64;
constexpr size_t kGrowthFloor = 1 << 20;

// Takes matches and the gaps between them in order, and hands on words as `behavior` says.
class Splitter {
 public:
  Splitter(Behavior behavior, bool invert, std::pmr::vector<Word>* out)
      : behavior_(behavior), invert_(invert), out_(out) {}

  void Begin(uint32_t begin) {
    position_ = begin;
    first_ = out_->size();
    previous_ = false;
  }
  void Match(uint32_t begin, uint32_t end) {
    if (begin > position_) Piece(position_, begin, false);
    Piece(begin, end, true);
    position_ = end;
  }
  void End(uint32_t end) {
    if (end > position_) Piece(position_, end, false);
  }

 private:
  void Piece(uint32_t begin, uint32_t end, bool match) {
    match = match != invert_;
    const bool have = out_->size() > first_;
    switch (behavior_) {
      case Behavior::kRemoved:
        if (!match) Push(begin, end);
        break;
      case Behavior::kIsolated:
        Push(begin, end);
        break;
      case Behavior::kContiguous:
        if (match == previous_ && have) {
          out_->back().end = end;
        } else {
          Push(begin, end);
        }
        break;
      case Behavior::kMergedWithPrevious:
        if (match && !previous_ && have) {
          out_->back().end = end;
        } else {
          Push(begin, end);
        }
        break;
      case Behavior::kMergedWithNext:
        // A match joins what follows it, unless that is a match too.
        if (!match && previous_ && have) {
          out_->back().end = end;
        } else {
          Push(begin, end);
        }
        break;
    }
    previous_ = match;
  }
  void Push(uint32_t begin, uint32_t end) {
    if (end > begin) out_->push_back({begin, end});
  }

  Behavior behavior_;
  bool invert_;
  std::pmr::vector<Word>* out_;
  uint32_t position_ = 0;
  size_t first_ = 0;
  bool previous_ = false;
};

// Every character that `is` accepts is a match of its own.
template <typename Predicate>
void SplitCharacters(Behavior behavior, Predicate is, PretokenizerState* state) {
  Splitter splitter(behavior, false, &state->next);
  const auto* p = reinterpret_cast<const uint8_t*>(state->text.data());
  for (const Word& w : state->words) {
    splitter.Begin(w.begin);
    for (uint32_t i = w.begin; i < w.end;) {
      uint32_t c;
      const uint32_t length = DecodeValid(p + i, &c);
      if (is(c)) splitter.Match(i, i + length);
      i += length;
    }
    splitter.End(w.end);
  }
  state->words.swap(state->next);
}

// \w+|[^\w\s]+, everything else removed.
void SplitWhitespace(PretokenizerState* state) {
  const auto* p = reinterpret_cast<const uint8_t*>(state->text.data());
  for (const Word& w : state->words) {
    int previous = 0;  // 0 = white space, 1 = word, 2 = other
    for (uint32_t i = w.begin; i < w.end;) {
      uint32_t c;
      const uint32_t length = DecodeValid(p + i, &c);
      const int kind = IsWord(c) ? 1 : IsSpace(c) ? 0 : 2;
      if (kind != 0) {
        if (kind == previous) {
          state->next.back().end = i + length;
        } else {
          state->next.push_back({i, i + length});
        }
      }
      previous = kind;
      i += length;
    }
  }
  state->words.swap(state->next);
}

Status CheckSize(const PretokenizerState& state) {
  if (state.scratch.size() > kMaxText)
    return MisuseError("the text is longer than 4 GiB; encode it in parts");
  return OkStatus();
}

}  // namespace

StatusOr<Pretokenizer> Pretokenizer::Open(absl::Span<const BlobOp> ops, std::string_view strings,
                                          Memory* memory) {
  Pretokenizer p;
  p.ops_ = ops;
  p.strings_ = strings;
  p.patterns_.resize(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    if (static_cast<PreKind>(ops[i].kind) != PreKind::kSplitRegex) continue;
    QINFER_ASSIGN_OR_RETURN(p.patterns_[i], Pattern::Compile(p.Text(ops[i]), memory));
  }
  return p;
}

Status Pretokenizer::SplitWith(size_t index, PretokenizerState* state) const {
  const BlobOp& op = ops_[index];
  const std::string_view pattern = Text(op);
  const auto kind = static_cast<PreKind>(op.kind);
  Splitter splitter(static_cast<Behavior>(op.a), op.b != 0, &state->next);
  for (const Word& w : state->words) {
    const std::string_view word = state->text.substr(w.begin, w.end - w.begin);
    splitter.Begin(w.begin);
    size_t begin = 0;
    size_t end = 0;
    if (kind == PreKind::kSplitScanner) {
      while (end < word.size()) {
        ScanNext(static_cast<Scanner>(op.c), word, end, &begin, &end);
        if (begin == end) break;
        splitter.Match(w.begin + static_cast<uint32_t>(begin),
                       w.begin + static_cast<uint32_t>(end));
      }
    } else if (kind == PreKind::kSplitString) {
      while ((begin = word.find(pattern, end)) != std::string_view::npos) {
        end = begin + pattern.size();
        splitter.Match(w.begin + static_cast<uint32_t>(begin),
                       w.begin + static_cast<uint32_t>(end));
      }
    } else {
      Pattern::Matcher matcher(*patterns_[index], word, state->match_budget);
      for (;;) {
        QINFER_ASSIGN_OR_RETURN(const bool found, matcher.Next(&begin, &end));
        if (!found) break;
        splitter.Match(w.begin + static_cast<uint32_t>(begin),
                       w.begin + static_cast<uint32_t>(end));
      }
    }
    splitter.End(w.end);
  }
  state->words.swap(state->next);
  return OkStatus();
}

void Pretokenizer::Metaspace(const BlobOp& op, bool at_start, PretokenizerState* state) const {
  const std::string_view mark = Text(op);
  const auto scheme = static_cast<PrependScheme>(op.a);
  state->scratch.clear();
  for (const Word& w : state->words) {
    const auto begin = static_cast<uint32_t>(state->scratch.size());
    const std::string_view word = state->text.substr(w.begin, w.end - w.begin);
    const bool starts = word.substr(0, mark.size()) == mark || word.substr(0, 1) == " ";
    const bool first = at_start && w.begin == 0;
    if (!starts && (scheme == PrependScheme::kAlways || (scheme == PrependScheme::kFirst && first)))
      state->scratch.append(mark);
    for (size_t from = 0; from < word.size();) {
      const size_t space = std::min(word.find(' ', from), word.size());
      state->scratch.append(word.substr(from, space - from));
      if (space < word.size()) state->scratch.append(mark);
      from = space + 1;
    }
    state->next.push_back({begin, static_cast<uint32_t>(state->scratch.size())});
  }
  state->owned.swap(state->scratch);
  state->text = state->owned;
  state->words.swap(state->next);
  if (op.b == 0) return;
  state->next.clear();
  Splitter splitter(Behavior::kMergedWithNext, false, &state->next);
  for (const Word& w : state->words) {
    const std::string_view word = state->text.substr(w.begin, w.end - w.begin);
    splitter.Begin(w.begin);
    for (size_t at = 0; (at = word.find(mark, at)) != std::string_view::npos; at += mark.size()) {
      const uint32_t begin = w.begin + static_cast<uint32_t>(at);
      splitter.Match(begin, begin + static_cast<uint32_t>(mark.size()));
    }
    splitter.End(w.end);
  }
  state->words.swap(state->next);
}

Status Pretokenizer::Step(size_t index, bool at_start, PretokenizerState* state) const {
  const BlobOp& op = ops_[index];
  state->next.clear();
  switch (static_cast<PreKind>(op.kind)) {
    case PreKind::kSplitString:
    case PreKind::kSplitRegex:
    case PreKind::kSplitScanner:
      return SplitWith(index, state);
    case PreKind::kBytePrefix:
    case PreKind::kByteAlphabet: {
      state->scratch.clear();
      for (const Word& w : state->words) {
        const auto begin = static_cast<uint32_t>(state->scratch.size());
        const std::string_view word = state->text.substr(w.begin, w.end - w.begin);
        if (static_cast<PreKind>(op.kind) == PreKind::kByteAlphabet) {
          AppendByteAlphabet(word, &state->scratch);
        } else {
          if (word.empty() || word[0] != ' ') state->scratch.push_back(' ');
          state->scratch.append(word);
        }
        QINFER_RETURN_IF_ERROR(CheckSize(*state));
        state->next.push_back({begin, static_cast<uint32_t>(state->scratch.size())});
      }
      state->owned.swap(state->scratch);
      state->text = state->owned;
      state->words.swap(state->next);
      return OkStatus();
    }
    case PreKind::kMetaspace: {
      // At most the mark's length for every byte, and one mark for every word.
      const uint64_t bound = (uint64_t{state->text.size()} + state->words.size()) * op.text_size;
      if (bound > kMaxText) return MisuseError("the text is too long; encode it in parts");
      Metaspace(op, at_start, state);
      return OkStatus();
    }
    case PreKind::kDigits:
      SplitCharacters(op.a != 0 ? Behavior::kIsolated : Behavior::kContiguous, IsNumeric, state);
      return OkStatus();
    case PreKind::kPunctuation:
      SplitCharacters(static_cast<Behavior>(op.a), IsPunctuation, state);
      return OkStatus();
    case PreKind::kWhitespace:
      SplitWhitespace(state);
      return OkStatus();
    case PreKind::kWhitespaceSplit:
      SplitCharacters(Behavior::kRemoved, IsSpace, state);
      return OkStatus();
    case PreKind::kBert:
      SplitCharacters(Behavior::kRemoved, IsSpace, state);
      state->next.clear();
      SplitCharacters(Behavior::kIsolated, IsPunctuation, state);
      return OkStatus();
    case PreKind::kCharDelimiter: {
      uint32_t delimiter;
      DecodeValid(reinterpret_cast<const uint8_t*>(Text(op).data()), &delimiter);
      SplitCharacters(
          Behavior::kRemoved, [=](uint32_t c) { return c == delimiter; }, state);
      return OkStatus();
    }
  }
  return InternalError("pre-tokenizer: unknown step");
}

Status Pretokenizer::Run(std::string_view text, bool at_start, PretokenizerState* state) const {
  state->words.clear();
  state->text = text;
  if (text.empty()) return OkStatus();
  if (text.size() > kMaxText)
    return MisuseError("the text is longer than 4 GiB; encode it in parts");
  state->words.push_back({0, static_cast<uint32_t>(text.size())});
  for (size_t i = 0; i < ops_.size(); ++i) {
    QINFER_RETURN_IF_ERROR(Step(i, at_start, state));
    // A step makes its text at most four times longer; many of them must not fill memory.
    if (state->text.size() > kGrowthFloor && state->text.size() / kMaxGrowth > text.size())
      return FormatError("the tokenizer's pre-tokenizer makes the text more than 64 times longer");
  }
  return OkStatus();
}

}  // namespace qinfer::tokenizer
