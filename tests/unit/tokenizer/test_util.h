// What the tokenizer tests share: reading files and golden values. No tests live here.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::tokenizer {

inline bool ReadFile(const std::string& path, std::string* out) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  std::ostringstream text;
  text << file.rdbuf();
  *out = text.str();
  return true;
}

inline std::string Golden(const std::string& name) {
  return std::string(QINFER_SOURCE_DIR) + "/tests/golden/tokenizer/" + name;
}
inline std::string Shared(const std::string& name) {
  return std::string(QINFER_SHARED_DIR) + "/" + name;
}

inline uint32_t Crc32(std::string_view text) {
  uint32_t crc = 0xffffffffu;
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

inline std::string Join(const std::pmr::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    if (!text.empty()) text.push_back(' ');
    text += std::to_string(id);
  }
  return text;
}

// Ids with and without special tokens of either kind, and decoded text: what the golden script
// calls a record.
inline std::string Record(const Tokenizer& tokenizer, std::string_view text) {
  std::string record;
  for (const bool special : {true, false}) {
    std::pmr::vector<int32_t> ids;
    for (const bool add : {true, false}) {
      ids.clear();
      const Status status = tokenizer.Encode(text, {add, special}, &ids);
      if (!status.ok()) return std::string(status.message());
      record += Join(ids);
      record.push_back('\n');
    }
    std::string with;
    std::string without;
    if (!tokenizer.Decode(ids, false, &with).ok() || !tokenizer.Decode(ids, true, &without).ok())
      return "decoding failed";
    record += with;
    record.push_back('\n');
    record += without;
    if (special) record.push_back('\n');
  }
  return record;
}

}  // namespace qinfer::tokenizer
