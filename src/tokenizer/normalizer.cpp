// The normalizer program of a tokenizer, step by step. Growth is bounded, so that a hostile program
// cannot fill memory.
#include "tokenizer/normalizer.h"

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

constexpr size_t kMaxGrowth = 64;
constexpr size_t kGrowthFloor = 1 << 20;

Status CheckGrowth(size_t input, size_t output) {
  if (output > kGrowthFloor && output / kMaxGrowth > input)
    return FormatError("the tokenizer's normalizer makes the text more than 64 times longer");
  return OkStatus();
}

void StripAccents(std::string_view in, String* out, bool* head_kept) {
  const auto* p = reinterpret_cast<const uint8_t*>(in.data());
  for (size_t i = 0; i < in.size();) {
    uint32_t c;
    const uint32_t length = DecodeValid(p + i, &c);
    if (!IsAccent(c)) {
      out->append(in.substr(i, length));
    } else if (i == 0) {
      *head_kept = false;
    }
    i += length;
  }
}

}  // namespace

StatusOr<Normalizer> Normalizer::Open(absl::Span<const BlobOp> ops, std::string_view strings,
                                      Memory* memory) {
  Normalizer n;
  n.ops_ = ops;
  n.strings_ = strings;
  n.patterns_.resize(ops.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    if (static_cast<NormKind>(ops[i].kind) != NormKind::kReplaceRegex) continue;
    QINFER_ASSIGN_OR_RETURN(
        n.patterns_[i],
        Pattern::Compile(strings.substr(ops[i].text_offset, ops[i].text_size), memory));
  }
  return n;
}

Status Normalizer::Step(size_t index, std::string_view in, MatchBudget* budget, String* out,
                        bool* head_kept) const {
  const BlobOp& op = ops_[index];
  const std::string_view text = strings_.substr(op.text_offset, op.text_size);
  const std::string_view text2 = strings_.substr(op.text2_offset, op.text2_size);
  const size_t limit_input = in.size();
  switch (static_cast<NormKind>(op.kind)) {
    case NormKind::kNfc:
      return AppendNormalForm(in, NormalForm::kNfc, out);
    case NormKind::kNfd:
      return AppendNormalForm(in, NormalForm::kNfd, out);
    case NormKind::kNfkc:
      return AppendNormalForm(in, NormalForm::kNfkc, out);
    case NormKind::kNfkd:
      return AppendNormalForm(in, NormalForm::kNfkd, out);
    case NormKind::kReplace: {
      size_t from = 0;
      for (size_t at; (at = in.find(text, from)) != std::string_view::npos;) {
        out->append(in.substr(from, at - from));
        out->append(text2);
        from = at + text.size();
        if (at == 0 && text2.empty()) *head_kept = false;
        QINFER_RETURN_IF_ERROR(CheckGrowth(limit_input, out->size()));
      }
      out->append(in.substr(from));
      return OkStatus();
    }
    case NormKind::kReplaceRegex: {
      Pattern::Matcher matcher(*patterns_[index], in, budget);
      size_t from = 0;
      size_t begin = 0;
      size_t end = 0;
      for (;;) {
        QINFER_ASSIGN_OR_RETURN(const bool found, matcher.Next(&begin, &end));
        if (!found) break;
        out->append(in.substr(from, begin - from));
        out->append(text2);
        if (begin == 0 && end > 0 && text2.empty()) *head_kept = false;
        from = end;
        QINFER_RETURN_IF_ERROR(CheckGrowth(limit_input, out->size()));
      }
      out->append(in.substr(from));
      return OkStatus();
    }
    case NormKind::kPrepend:
      if (!in.empty()) out->append(text);
      out->append(in);
      return OkStatus();
    case NormKind::kLowercase:
      AppendLowercase(in, out);
      return OkStatus();
    case NormKind::kStrip: {
      size_t begin = 0;
      size_t end = in.size();
      const auto* p = reinterpret_cast<const uint8_t*>(in.data());
      uint32_t c;
      while ((op.a & 1) != 0 && begin < end) {
        const uint32_t length = DecodeValid(p + begin, &c);
        if (!IsSpace(c)) break;
        begin += length;
      }
      while ((op.a & 2) != 0 && end > begin) {
        size_t last = end - 1;
        while ((p[last] & 0xc0) == 0x80) --last;
        DecodeValid(p + last, &c);
        if (!IsSpace(c)) break;
        end = last;
      }
      if (begin > 0) *head_kept = false;
      out->append(in.substr(begin, end - begin));
      return OkStatus();
    }
    case NormKind::kStripAccents:
      StripAccents(in, out, head_kept);
      return OkStatus();
    case NormKind::kByteLevel:
      AppendByteAlphabet(in, out);
      return OkStatus();
  }
  return InternalError("normalizer: unknown step");
}

Status Normalizer::Apply(std::string_view text, MatchBudget* budget, String* out, String* scratch,
                         bool* head_kept) const {
  *head_kept = true;
  out->assign(text);
  for (size_t i = 0; i < ops_.size(); ++i) {
    scratch->clear();
    QINFER_RETURN_IF_ERROR(Step(i, *out, budget, scratch, head_kept));
    QINFER_RETURN_IF_ERROR(CheckGrowth(text.size(), scratch->size()));
    out->swap(*scratch);
  }
  return OkStatus();
}

}  // namespace qinfer::tokenizer
