// The decoder program, step by step over the list of tokens.
#include "tokenizer/decoder.h"

#include <algorithm>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr size_t kMaxGrowth = 64;
constexpr size_t kGrowthFloor = 1 << 20;

// Every mark becomes a space, or nothing where `drop` is set.
void AppendMetaspace(std::string_view in, std::string_view mark, bool drop, String* out) {
  for (size_t from = 0; from < in.size();) {
    const size_t at = std::min(in.find(mark, from), in.size());
    out->append(in.substr(from, at - from));
    if (at < in.size() && !drop) out->push_back(' ');
    from = at + mark.size();
  }
}

// Takes up to `start` characters `mark` from the front and `stop` from the back.
std::string_view StripMarks(std::string_view s, std::string_view mark, uint32_t start,
                            uint32_t stop) {
  for (uint32_t i = 0; i < start && s.substr(0, mark.size()) == mark; ++i)
    s.remove_prefix(mark.size());
  for (uint32_t i = 0;
       i < stop && s.size() >= mark.size() && s.substr(s.size() - mark.size()) == mark; ++i)
    s.remove_suffix(mark.size());
  return s;
}

void FallbackBytes(const TextList& in, TextList* out) {
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (FindInvalidUtf8(run) == std::string_view::npos) {
      out->Add(run);
    } else {
      for (size_t i = 0; i < run.size(); ++i) out->Add(kReplacement);
    }
    run.clear();
  };
  for (size_t i = 0; i < in.size(); ++i) {
    const int byte = ByteTokenValue(in[i]);
    if (byte >= 0) {
      run.push_back(static_cast<char>(byte));
    } else {
      flush();
      out->Add(in[i]);
    }
  }
  flush();
}

}  // namespace

int ByteTokenValue(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

StatusOr<Decoder> Decoder::Open(absl::Span<const BlobOp> ops, std::string_view strings,
                                Memory* memory) {
  Decoder d;
  d.ops_ = ops;
  d.strings_ = strings;
  d.patterns_.resize(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    if (static_cast<DecodeKind>(ops[i].kind) != DecodeKind::kReplaceRegex) continue;
    QINFER_ASSIGN_OR_RETURN(d.patterns_[i], Pattern::Compile(d.Text(ops[i]), memory));
  }
  return d;
}

Status Decoder::Replace(size_t index, std::string_view in, MatchBudget* budget, String* out) const {
  const BlobOp& op = ops_[index];
  size_t from = 0;
  if (static_cast<DecodeKind>(op.kind) == DecodeKind::kReplace) {
    const std::string_view pattern = Text(op);
    for (size_t at; (at = in.find(pattern, from)) != std::string_view::npos;) {
      out->append(in.substr(from, at - from));
      out->append(Text2(op));
      from = at + pattern.size();
    }
  } else {
    Pattern::Matcher matcher(*patterns_[index], in, budget);
    size_t begin = 0;
    size_t end = 0;
    for (;;) {
      QINFER_ASSIGN_OR_RETURN(const bool found, matcher.Next(&begin, &end));
      if (!found) break;
      out->append(in.substr(from, begin - from));
      out->append(Text2(op));
      from = end;
    }
  }
  out->append(in.substr(from));
  return OkStatus();
}

Status Decoder::Step(size_t index, const TextList& in, MatchBudget* budget, TextList* out) const {
  const BlobOp& op = ops_[index];
  switch (static_cast<DecodeKind>(op.kind)) {
    case DecodeKind::kByteLevel: {
      std::string bytes;
      for (size_t i = 0; i < in.size(); ++i)
        if (!AppendSpelledBytes(in[i], &bytes)) bytes.append(in[i]);
      std::string text;
      AppendLossy(bytes, &text);
      out->Add(text);
      return OkStatus();
    }
    case DecodeKind::kMetaspace:
      for (size_t i = 0; i < in.size(); ++i) {
        AppendMetaspace(in[i], Text(op), i == 0 && op.a != 0, &out->bytes);
        out->Close();
      }
      return OkStatus();
    case DecodeKind::kByteFallback:
      FallbackBytes(in, out);
      return OkStatus();
    case DecodeKind::kFuse:
      out->Add(in.bytes);
      return OkStatus();
    case DecodeKind::kStrip:
      for (size_t i = 0; i < in.size(); ++i) out->Add(StripMarks(in[i], Text(op), op.a, op.b));
      return OkStatus();
    case DecodeKind::kReplace:
    case DecodeKind::kReplaceRegex:
      for (size_t i = 0; i < in.size(); ++i) {
        QINFER_RETURN_IF_ERROR(Replace(index, in[i], budget, &out->bytes));
        out->Close();
        if (out->bytes.size() > kGrowthFloor && out->bytes.size() / kMaxGrowth > in.bytes.size())
          return FormatError("the tokenizer's decoder makes the text more than 64 times longer");
      }
      return OkStatus();
    case DecodeKind::kSuffix:
      for (size_t i = 0; i < in.size(); ++i) {
        const std::string_view with = i + 1 == in.size() ? "" : " ";
        const std::string_view suffix = Text(op);
        std::string_view rest = in[i];
        for (size_t at; !suffix.empty() && (at = rest.find(suffix)) != std::string_view::npos;) {
          out->bytes.append(rest.substr(0, at));
          out->bytes.append(with);
          rest.remove_prefix(at + suffix.size());
        }
        out->Add(rest);
      }
      return OkStatus();
    case DecodeKind::kJoinSpace:
      for (size_t i = 0; i < in.size(); ++i) {
        if (i > 0) out->bytes.push_back(' ');
        out->Add(in[i]);
      }
      return OkStatus();
  }
  return InternalError("decoder: unknown step");
}

Status Decoder::DecodeAll(TextList* tokens, TextList* scratch, std::string* out) const {
  MatchBudget budget(tokens->bytes.size());
  for (size_t i = 0; i < ops_.size(); ++i) {
    scratch->Clear();
    QINFER_RETURN_IF_ERROR(Step(i, *tokens, &budget, scratch));
    tokens->bytes.swap(scratch->bytes);
    tokens->ends.swap(scratch->ends);
  }
  out->append(tokens->bytes);
  return OkStatus();
}

void Decoder::AppendOne(std::string_view token, bool first, std::string* out) const {
  String text(token);
  MatchBudget budget(token.size());
  String next;
  bool fused = false;
  for (size_t i = 0; i < ops_.size(); ++i) {
    const BlobOp& op = ops_[i];
    next.clear();
    switch (static_cast<DecodeKind>(op.kind)) {
      case DecodeKind::kByteLevel: {
        std::string bytes;
        if (AppendSpelledBytes(text, &bytes)) {
          out->append(bytes);  // maybe part of a character: nothing that follows could read it
          return;
        }
        continue;
      }
      case DecodeKind::kMetaspace:
        AppendMetaspace(text, Text(op), first && op.a != 0, &next);
        break;
      case DecodeKind::kByteFallback: {
        const int byte = ByteTokenValue(text);
        if (byte >= 0x80) {
          out->push_back(static_cast<char>(byte));
          return;
        }
        if (byte < 0) continue;
        next.push_back(static_cast<char>(byte));
        break;
      }
      case DecodeKind::kFuse:
        fused = true;
        continue;
      case DecodeKind::kStrip:
        // After Fuse this is about the ends of the whole text.
        next = StripMarks(text, Text(op), fused && !first ? 0 : op.a, fused ? 0 : op.b);
        break;
      case DecodeKind::kReplace:
      case DecodeKind::kReplaceRegex:
        if (!Replace(i, text, &budget, &next).ok()) next = text;
        break;
      case DecodeKind::kSuffix: {
        const std::string_view suffix = Text(op);
        next = text;
        if (!suffix.empty() && next.ends_with(suffix)) {
          next.resize(next.size() - suffix.size());
          next.push_back(' ');
        }
        break;
      }
      case DecodeKind::kJoinSpace:
        if (!first) next.push_back(' ');
        next.append(text);
        break;
    }
    text.swap(next);
  }
  out->append(text);
}

}  // namespace qinfer::tokenizer
