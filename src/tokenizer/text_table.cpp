// Open addressing with linear probing, at most half full; a polynomial over the bytes, whose bits
// are mixed before they choose a slot.
#include "tokenizer/text_table.h"

#include <algorithm>

namespace qinfer::tokenizer {
namespace {

constexpr uint64_t kBase = 0x9e3779b97f4a7c15u;
constexpr size_t kClearedAtOnce = 32 << 10;

}  // namespace

uint64_t TextTable::Hash(std::string_view text) {
  uint64_t hash = 0;
  for (const char c : text) hash = hash * kBase + static_cast<uint8_t>(c) + 1;
  return hash;
}

uint64_t TextTable::Power(size_t exponent) {
  uint64_t result = 1;
  for (uint64_t square = kBase; exponent != 0; exponent >>= 1, square *= square) {
    if ((exponent & 1) != 0) result *= square;
  }
  return result;
}

Status TextTable::Reserve(size_t texts) {
  size_t count = 16;
  while (count < texts * 2) count *= 2;
  slots_ = Buffer();
  QINFER_ASSIGN_OR_RETURN(
      slots_, Buffer::Create(spec_.memory, count * sizeof(Slot), "reading the vocabulary"));
  mask_ = static_cast<uint32_t>(count - 1);
  cleared_ = 0;
  return OkStatus();
}

bool TextTable::Clear() {
  const size_t count = size_t{mask_} + 1;
  const size_t end = std::min(count, cleared_ + kClearedAtOnce);
  std::fill(slots_.as<Slot>() + cleared_, slots_.as<Slot>() + end, Slot{kEmptySlot, 0, {}});
  cleared_ = end;
  return cleared_ == count;
}

Status TextTable::Insert(Piece text, uint32_t value, int64_t* found) {
  const std::string_view view = spec_.Text(text);
  const uint64_t mixed = Mix(Hash(view));
  const auto tag = static_cast<uint32_t>(mixed >> 32);
  Slot* const slots = slots_.as<Slot>();
  uint32_t at = static_cast<uint32_t>(mixed) & mask_;
  for (uint32_t probe = 0; slots[at].value != kEmptySlot; at = (at + 1) & mask_) {
    if (slots[at].tag == tag && spec_.Text(slots[at].text) == view) {
      *found = slots[at].value;
      return OkStatus();
    }
    if (++probe > kMaxProbe) return FormatError("token texts that defeat the hash table");
  }
  slots[at] = {value, tag, text};
  *found = -1;
  return OkStatus();
}

void TextTable::ExpectMerge(Merge* merge) const {
  merge->left_hash = Hash(merge->left);
  merge->right_hash = Hash(merge->right);
  const uint64_t rest =
      merge->rest.size() == merge->right.size() ? merge->right_hash : Hash(merge->rest);
  merge->result_hash = merge->left_hash * Power(merge->rest.size()) + rest;
  Prefetch(merge->left_hash);
  Prefetch(merge->right_hash);
  Prefetch(merge->result_hash);
}

bool TextTable::FindMerge(const Merge& merge, uint32_t* left, uint32_t* right,
                          uint32_t* result) const {
  const int64_t ids[] = {Find(merge.left_hash, merge.left, {}),
                         Find(merge.right_hash, merge.right, {}),
                         Find(merge.result_hash, merge.left, merge.rest)};
  if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0) return false;
  *left = static_cast<uint32_t>(ids[0]);
  *right = static_cast<uint32_t>(ids[1]);
  *result = static_cast<uint32_t>(ids[2]);
  return true;
}

void TextTable::AddSplits(std::string_view text, uint32_t owner, std::pmr::vector<Split>* out) {
  const size_t size = text.size();
  if (powers_.empty()) powers_.push_back(1);
  while (powers_.size() <= size) powers_.push_back(powers_.back() * kBase);
  const uint64_t whole = Hash(text);
  uint64_t left = 0;
  for (size_t cut = 1; cut < size; ++cut) {
    left = left * kBase + static_cast<uint8_t>(text[cut - 1]) + 1;
    if ((text[cut] & 0xc0) == 0x80) continue;  // inside a character
    const uint64_t right = whole - left * powers_[size - cut];
    Prefetch(left);
    Prefetch(right);
    out->push_back({left, right, owner, static_cast<uint32_t>(cut)});
  }
}

bool TextTable::FindParts(const Split& split, std::string_view text, uint32_t* left,
                          uint32_t* right) const {
  const int64_t first = Find(split.left, text.substr(0, split.cut), {});
  if (first < 0) return false;
  const int64_t second = Find(split.right, text.substr(split.cut), {});
  if (second < 0) return false;
  *left = static_cast<uint32_t>(first);
  *right = static_cast<uint32_t>(second);
  return true;
}

int64_t TextTable::Find(uint64_t hash, std::string_view left, std::string_view right) const {
  const uint64_t mixed = Mix(hash);
  const auto tag = static_cast<uint32_t>(mixed >> 32);
  const size_t size = left.size() + right.size();
  for (uint32_t at = static_cast<uint32_t>(mixed) & mask_;; at = (at + 1) & mask_) {
    const Slot& slot = slots()[at];
    if (slot.value == kEmptySlot) return -1;
    if (slot.tag != tag || slot.text.size != size) continue;
    const std::string_view text = spec_.Text(slot.text);
    if (text.substr(0, left.size()) == left && text.substr(left.size()) == right) {
      return slot.value;
    }
  }
}

}  // namespace qinfer::tokenizer
