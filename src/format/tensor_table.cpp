// Names, order and overlap of tensor tables, the same for every container.
#include "format/tensor_table.h"

#include <algorithm>
#include <cstring>

namespace qinfer::format {

bool IsValidUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data());
  const uint8_t* const end = p + text.size();
  while (p < end) {
    const uint8_t lead = *p;
    if (lead < 0x80) {
      ++p;
      continue;
    }
    const ptrdiff_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || end - p < length) return false;
    for (ptrdiff_t i = 1; i < length; ++i) {
      if ((p[i] & 0xc0) != 0x80) return false;
    }
    // Overlong forms, surrogates, and what lies above U+10FFFF.
    if ((lead == 0xe0 && p[1] < 0xa0) || (lead == 0xed && p[1] > 0x9f) ||
        (lead == 0xf0 && p[1] < 0x90) || (lead == 0xf4 && p[1] > 0x8f)) {
      return false;
    }
    p += length;
  }
  return true;
}

std::string Printable(std::string_view text) {
  constexpr size_t kMaxShown = 80;
  const bool ascii_only = !IsValidUtf8(text);
  size_t shown = std::min(text.size(), kMaxShown);
  // Not in the middle of a character.
  while (!ascii_only && shown > 0 && shown < text.size() &&
         (static_cast<uint8_t>(text[shown]) & 0xc0) == 0x80) {
    --shown;
  }
  std::string out;
  for (const char c : text.substr(0, shown)) {
    const auto byte = static_cast<uint8_t>(c);
    const bool plain = byte >= 0x20 && byte != 0x7f && (!ascii_only || byte < 0x80);
    out += plain ? c : '?';
  }
  if (shown < text.size()) out += "...";
  return out;
}

Status CheckTensorName(std::string_view name, uint64_t max_bytes) {
  if (name.empty()) return FormatError("a tensor has an empty name");
  if (name.size() > max_bytes) {
    return FormatError(StrCat("the tensor name ", Printable(name), " has ", name.size(),
                              " bytes; at most ", max_bytes, " are accepted"));
  }
  if (!IsValidUtf8(name) || name.find('\0') != std::string_view::npos) {
    return FormatError(StrCat("the tensor name ", Printable(name), " is not valid UTF-8 text"));
  }
  return OkStatus();
}

std::string_view StringArena::Copy(std::string_view text) {
  if (text.empty()) return {};
  if (text.size() > kBlock / 4) {
    blocks_.emplace_back(text.begin(), text.end());
    open_ = false;
    return {blocks_.back().data(), text.size()};
  }
  if (!open_ || kBlock - used_ < text.size()) {
    blocks_.emplace_back(kBlock);
    used_ = 0;
    open_ = true;
  }
  char* const at = blocks_.back().data() + used_;
  std::memcpy(at, text.data(), text.size());
  used_ += text.size();
  return {at, text.size()};
}

Status SortByName(const std::string& file, std::pmr::vector<TensorInfo>* tensors) {
  std::sort(tensors->begin(), tensors->end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors->begin(), tensors->end(),
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twice == tensors->end()) return OkStatus();
  return FormatError(StrCat(file, ": the tensor ", Printable(twice->name), " is there twice"));
}

const TensorInfo* FindByName(absl::Span<const TensorInfo> tensors, std::string_view name) {
  const auto at =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const TensorInfo& a, std::string_view b) { return a.name < b; });
  return at != tensors.end() && at->name == name ? &*at : nullptr;
}

StatusOr<std::pmr::vector<uint32_t>> OrderByOffset(const std::string& file,
                                                   absl::Span<const TensorInfo> tensors,
                                                   uint32_t source, Memory* memory) {
  std::pmr::vector<uint32_t> order(memory);
  order.reserve(tensors.size());
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].source == source) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const TensorInfo &x = tensors[a], &y = tensors[b];
    if (x.offset != y.offset) return x.offset < y.offset;
    return x.bytes != y.bytes ? x.bytes < y.bytes : x.name < y.name;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo &x = tensors[order[i - 1]], &y = tensors[order[i]];
    if (y.offset - x.offset < x.bytes) {
      return FormatError(StrCat(file, ": the tensors ", Printable(x.name), " and ",
                                Printable(y.name), " overlap at byte ", y.offset));
    }
  }
  return order;
}

}  // namespace qinfer::format
