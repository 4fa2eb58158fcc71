// The spec's own bookkeeping: stored texts, the index of model tokens, ids of added tokens.
#include "tokenizer/spec.h"

#include <algorithm>

#include "core/checked.h"

namespace qinfer::tokenizer {

Status TokenizerSpec::Store(std::string_view text, Piece* piece) {
  if (text.size() > 0xffffffffu - arena.size())
    return FormatError("the texts of the tokenizer are longer than 4 GiB");
  *piece = {static_cast<uint32_t>(arena.size()), static_cast<uint32_t>(text.size())};
  arena.insert(arena.end(), text.begin(), text.end());
  return OkStatus();
}

Status TokenIndex::Build() {
  size_t slots = 16;
  while (slots < spec_.tokens.size() * 2) slots *= 2;
  slots_.assign(slots, kEmptySlot);
  mask_ = static_cast<uint32_t>(slots - 1);
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    const std::string_view text = spec_.Text(spec_.tokens[i].text);
    uint32_t slot = HashText(text) & mask_;
    for (; slots_[slot] != kEmptySlot; slot = (slot + 1) & mask_) {
      const SpecToken& other = spec_.tokens[slots_[slot]];
      if (spec_.Text(other.text) == text)
        return FormatError(StrCat("tokens ", other.id, " and ", spec_.tokens[i].id,
                                  " have the same text \"", std::string(text), "\""));
    }
    slots_[slot] = static_cast<uint32_t>(i);
  }
  return OkStatus();
}

int64_t TokenIndex::Find(std::string_view text) const {
  for (uint32_t slot = HashText(text) & mask_; slots_[slot] != kEmptySlot;
       slot = (slot + 1) & mask_) {
    const SpecToken& token = spec_.tokens[slots_[slot]];
    if (spec_.Text(token.text) == text) return token.id;
  }
  return -1;
}

Status AssignAddedIds(const TokenIndex& index, TokenizerSpec* spec) {
  // Contents in byte order, so that repetitions are neighbours whatever the file's size.
  std::pmr::vector<uint32_t> order(spec->memory);
  for (size_t i = 0; i < spec->added.size(); ++i) order.push_back(static_cast<uint32_t>(i));
  const auto text = [&](uint32_t i) { return spec->Text(spec->added[i].content); };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int c = text(a).compare(text(b));
    return c != 0 ? c < 0 : a < b;
  });
  std::pmr::vector<uint8_t> keep(spec->added.size(), 1, spec->memory);
  for (size_t i = 0; i < order.size(); ++i)
    if (text(order[i]).empty() || (i > 0 && text(order[i]) == text(order[i - 1])))
      keep[order[i]] = 0;
  // The `tokenizers` package counts on from the number of model tokens, or from the largest added
  // id if that is larger.
  const auto model_size = static_cast<uint32_t>(spec->tokens.size());
  int64_t largest = -1;
  size_t kept = 0;
  for (size_t i = 0; i < spec->added.size(); ++i) {
    if (keep[i] == 0) continue;
    SpecAdded added = spec->added[i];
    if (added.content.size > kMaxAddedBytes)
      return FormatError(StrCat("added token ", i, " has ", added.content.size,
                                " bytes; the limit is ", kMaxAddedBytes));
    const int64_t known = index.Find(spec->Text(added.content));
    if (known >= 0) {
      added.id = static_cast<uint32_t>(known);
    } else {
      const int64_t next =
          largest >= 0 && (largest >= model_size || model_size == 0) ? largest + 1 : model_size;
      if (next >= kMaxVocabulary) return FormatError("too many added tokens");
      added.id = static_cast<uint32_t>(next);
    }
    largest = std::max<int64_t>(largest, added.id);
    spec->added[kept++] = added;
  }
  spec->added.resize(kept);
  return OkStatus();
}

int64_t FindToken(const TokenIndex& index, const TokenizerSpec& spec, std::string_view text) {
  const int64_t id = index.Find(text);
  if (id >= 0) return id;
  for (const SpecAdded& added : spec.added)
    if (spec.Text(added.content) == text) return added.id;
  return -1;
}

}  // namespace qinfer::tokenizer
