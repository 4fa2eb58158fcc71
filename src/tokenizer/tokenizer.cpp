// Encode and decode: added tokens are cut out, what lies between is normalized, cut into words and
// given to the model; and back. The steps themselves are in their own files.
#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/runtime.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {

StatusOr<std::shared_ptr<const Tokenizer>> RuntimeTokenizer::Open(const BlobView& blob,
                                                                  Buffer owned,
                                                                  const std::string& name,
                                                                  Memory* memory) {
  std::shared_ptr<RuntimeTokenizer> t(new RuntimeTokenizer());
  t->memory_ = memory;
  t->blob_ = blob;
  const std::string_view strings = t->blob_.strings();
  auto normalizer = Normalizer::Open(t->blob_.normalizer(), strings, memory);
  if (!normalizer.ok()) return Annotate(normalizer.status(), StrCat(name, ": normalizer"));
  t->normalizer_ = std::move(normalizer).value();
  auto pretokenizer = Pretokenizer::Open(t->blob_.pretokenizer(), strings, memory);
  if (!pretokenizer.ok()) return Annotate(pretokenizer.status(), StrCat(name, ": pre-tokenizer"));
  t->pretokenizer_ = std::move(pretokenizer).value();
  auto decoder = Decoder::Open(t->blob_.decoder(), strings, memory);
  if (!decoder.ok()) return Annotate(decoder.status(), StrCat(name, ": decoder"));
  t->decoder_ = std::move(decoder).value();
  t->owned_ = std::move(owned);
  return std::shared_ptr<const Tokenizer>(std::move(t));
}

Status RuntimeTokenizer::Encode(std::string_view text, const EncodeOptions& options,
                                std::pmr::vector<int32_t>* ids) const {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != std::string_view::npos)
    return MisuseError(StrCat("the text is not valid UTF-8 at byte ", invalid));
  if (options.add_special)
    ids->insert(ids->end(), blob_.prefix_ids().begin(), blob_.prefix_ids().end());

  BpeEncoder bpe(blob_, memory_, text.size());
  MatchBudget budget(text.size());
  PretokenizerState state(memory_, &budget);
  String normalized(memory_);
  String scratch(memory_);
  AddedTokenScan raw(blob_, false, text, options.parse_special);
  AddedPiece section;
  while (raw.Next(&section)) {
    if (section.id >= 0) {
      ids->push_back(section.id);
      continue;
    }
    std::string_view stretch = text.substr(section.begin, section.end - section.begin);
    bool head_kept = true;
    if (!normalizer_.empty()) {
      QINFER_RETURN_IF_ERROR(
          normalizer_.Apply(stretch, &budget, &normalized, &scratch, &head_kept));
      stretch = normalized;
    }
    AddedTokenScan inner(blob_, true, stretch, options.parse_special);
    AddedPiece piece;
    while (inner.Next(&piece)) {
      if (piece.id >= 0) {
        ids->push_back(piece.id);
        continue;
      }
      const bool at_start = head_kept && section.begin == 0 && piece.begin == 0;
      QINFER_RETURN_IF_ERROR(pretokenizer_.Run(stretch.substr(piece.begin, piece.end - piece.begin),
                                               at_start, &state));
      for (const Word& word : state.words)
        bpe.Encode(state.text.substr(word.begin, word.end - word.begin), ids);
    }
  }
  if (options.add_special)
    ids->insert(ids->end(), blob_.suffix_ids().begin(), blob_.suffix_ids().end());
  return OkStatus();
}

void RuntimeTokenizer::AppendToken(int32_t id, bool first, bool skip_special,
                                   std::string* out) const {
  if (!InRange(id)) return;
  const auto index = static_cast<uint32_t>(id);
  const uint8_t flags = blob_.Flags(index);
  if (flags == 0 || (skip_special && (flags & kSpecial) != 0)) return;
  decoder_.AppendOne(blob_.DecodeText(index), first, out);
}

Status RuntimeTokenizer::DecodeIds(absl::Span<const int32_t> ids, bool skip_special,
                                   std::string* out) const {
  TextList tokens(memory_);
  TextList scratch(memory_);
  for (const int32_t id : ids) {
    if (!InRange(id)) continue;
    const auto index = static_cast<uint32_t>(id);
    const uint8_t flags = blob_.Flags(index);
    if (flags == 0 || (skip_special && (flags & kSpecial) != 0)) continue;
    tokens.Add(blob_.DecodeText(index));
  }
  return decoder_.DecodeAll(&tokens, &scratch, out);
}

std::string_view RuntimeTokenizer::TokenText(int32_t id) const {
  return InRange(id) ? blob_.Text(static_cast<uint32_t>(id)) : std::string_view();
}

bool RuntimeTokenizer::IsSpecial(int32_t id) const {
  return InRange(id) && (blob_.Flags(static_cast<uint32_t>(id)) & kSpecial) != 0;
}

bool RuntimeTokenizer::adds_bos() const {
  const auto prefix = blob_.prefix_ids();
  return bos_id() >= 0 && std::find(prefix.begin(), prefix.end(), bos_id()) != prefix.end();
}

Status Tokenizer::Decode(absl::Span<const int32_t> ids, bool skip_special, std::string* out) const {
  return DecodeIds(ids, skip_special, out);
}

}  // namespace qinfer::tokenizer
