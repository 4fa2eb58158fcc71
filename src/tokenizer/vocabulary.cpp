// Indexing in pieces.
#include "tokenizer/vocabulary.h"

#include <algorithm>

#include "tokenizer/pieces.h"

namespace qinfer::tokenizer {
namespace {

constexpr size_t kPiece = 4096;
constexpr size_t kAhead = 8;  // tokens that the cache is asked for before their turn

}  // namespace

StatusOr<bool> Vocabulary::IndexTokens() {
  switch (phase_) {
    case Phase::kReserve:
      QINFER_RETURN_IF_ERROR(model_.Reserve(spec_->tokens.size()));
      phase_ = Phase::kClear;
      return false;
    case Phase::kClear:
      if (model_.Clear()) phase_ = Phase::kFill;
      return false;
    case Phase::kFill:
      break;
  }
  QINFER_ASSIGN_OR_RETURN(
      const bool done, SomeOf(spec_->tokens.size(), kPiece, &at_, [&](size_t i) -> Status {
        if (i + kAhead < spec_->tokens.size()) model_.Expect(spec_->tokens[i + kAhead].text);
        const SpecToken& token = spec_->tokens[i];
        int64_t other = -1;
        QINFER_RETURN_IF_ERROR(model_.Insert(token.text, token.id, &other));
        if (other < 0) return OkStatus();
        return FormatError(StrCat("tokens ", other, " and ", token.id, " have the same text \"",
                                  std::string(spec_->Text(token.text)), "\""));
      }));
  if (done) {
    phase_ = Phase::kReserve;
    at_ = 0;
  }
  return done;
}

StatusOr<bool> Vocabulary::AssignAddedIds() {
  switch (phase_) {
    case Phase::kReserve:
      QINFER_RETURN_IF_ERROR(added_.Reserve(spec_->added.size()));
      phase_ = Phase::kClear;
      return false;
    case Phase::kClear:
      if (added_.Clear()) phase_ = Phase::kFill;
      return false;
    case Phase::kFill:
      break;
  }
  QINFER_ASSIGN_OR_RETURN(const bool done, SomeOf(spec_->added.size(), kPiece, &at_,
                                                  [&](size_t i) { return Assign(i); }));
  if (done) spec_->added.resize(kept_);
  return done;
}

// The `tokenizers` package counts on from the number of model tokens, or from the largest added id
// if that is larger.
Status Vocabulary::Assign(size_t index) {
  SpecAdded added = spec_->added[index];
  const std::string_view text = spec_->Text(added.content);
  if (text.empty()) return OkStatus();
  int64_t same = -1;
  QINFER_RETURN_IF_ERROR(added_.Insert(added.content, static_cast<uint32_t>(kept_), &same));
  if (same >= 0) return OkStatus();
  if (text.size() > kMaxAddedBytes)
    return FormatError(StrCat("added token ", index, " has ", text.size(), " bytes; the limit is ",
                              kMaxAddedBytes));
  const auto model_size = static_cast<int64_t>(spec_->tokens.size());
  int64_t id = model_.Find(text);
  if (id < 0) {
    id = largest_ >= 0 && (largest_ >= model_size || model_size == 0) ? largest_ + 1 : model_size;
    if (id >= kMaxVocabulary) return FormatError("too many added tokens");
  }
  added.id = static_cast<uint32_t>(id);
  largest_ = std::max(largest_, id);
  spec_->added[kept_++] = added;
  return OkStatus();
}

int64_t Vocabulary::Find(std::string_view text) const {
  const int64_t id = model_.Find(text);
  if (id >= 0) return id;
  const int64_t added = added_.Find(text);
  return added < 0 ? -1 : spec_->added[static_cast<size_t>(added)].id;
}

}  // namespace qinfer::tokenizer
