// How GGUF's header is laid out, walked with any bounds-checked cursor: once over a sliding window
// to find where it ends, once over its bytes in memory to keep what they say. Included by
// src/format/gguf*.cpp alone.
#pragma once

#include <cstdint>
#include <string>

#include "core/checked.h"
#include "core/status.h"
#include "format/gguf_types.h"

namespace qinfer::format {

inline constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr uint64_t kMaxGgufKeys = 65'536;
inline constexpr uint64_t kMaxGgufKeyBytes = 65'535;  // the specification's
inline constexpr int kMaxGgufArrayDepth = 4;
// The smallest entry that each can be: what counts are checked against before anything is
// allocated.
inline constexpr uint64_t kMinGgufKeyRecord = 8 + 4 + 1;
inline constexpr uint64_t kMinGgufTensorRecord = 8 + 4 + 4 + 8;

struct GgufCounts {
  uint32_t version = 0;
  uint64_t tensors = 0;
  uint64_t keys = 0;
};

template <typename Cursor>
Status GgufTruncated(const Cursor& cursor, const std::string& file, const std::string& what) {
  return FormatError(StrCat(file, ": the file ends inside ", what, ", which begins before byte ",
                            cursor.offset(), "; it is cut or corrupt"));
}

template <typename Cursor>
Status ReadGgufCounts(Cursor* cursor, const std::string& file, GgufCounts* counts) {
  uint32_t magic = 0;
  if (!cursor->Read(&magic) || magic != kGgufMagic) {
    return FormatError(StrCat(file, ": not a GGUF file (it does not begin with \"GGUF\")"));
  }
  if (!cursor->Read(&counts->version) || !cursor->Read(&counts->tensors) ||
      !cursor->Read(&counts->keys)) {
    return GgufTruncated(*cursor, file, "the header");
  }
  const uint32_t version = counts->version;
  if (version != 2 && version != 3) {
    if ((version & 0xffff) == 0 && version != 0) {
      return UnsupportedError(StrCat(file, ": a big-endian GGUF file; convert it with gguf-py's ",
                                     "gguf_convert_endian to little-endian"));
    }
    return UnsupportedError(StrCat(file, ": GGUF version ", version, "; 2 and 3 are supported"));
  }
  if (counts->keys > kMaxGgufKeys || counts->keys > cursor->remaining() / kMinGgufKeyRecord) {
    return FormatError(StrCat(file, ": the header at byte 16 claims ", counts->keys,
                              " metadata keys, more than fit or than ", kMaxGgufKeys));
  }
  if (counts->tensors > cursor->remaining() / kMinGgufTensorRecord) {
    return FormatError(StrCat(file, ": the header at byte 8 claims ", counts->tensors,
                              " tensors, more than fit into the file"));
  }
  return OkStatus();
}

template <typename Cursor>
Status ReadGgufType(Cursor* cursor, const std::string& file, const std::string& what,
                    GgufType* type) {
  uint32_t id = 0;
  if (!cursor->Read(&id)) return GgufTruncated(*cursor, file, what);
  if (id > static_cast<uint32_t>(GgufType::kF64)) {
    return FormatError(StrCat(file, ": ", what, " has type id ", id, " before byte ",
                              cursor->offset(), "; 0 to 12 exist"));
  }
  *type = static_cast<GgufType>(id);
  return OkStatus();
}

// Passes over `count` elements of an array. Recursion is bounded by kMaxGgufArrayDepth.
template <typename Cursor>
Status SkipGgufElements(Cursor* cursor, const std::string& file, const std::string& what,
                        GgufType type, uint64_t count, int depth) {
  const uint32_t width = GgufScalarBytes(type);
  if (width != 0) {
    uint64_t bytes = 0;
    if (!CheckedMul<uint64_t>(count, width, &bytes) || !cursor->Skip(bytes)) {
      return GgufTruncated(*cursor, file, what);
    }
    return OkStatus();
  }
  const uint64_t smallest = type == GgufType::kString ? 8 : 12;
  if (count > cursor->remaining() / smallest) return GgufTruncated(*cursor, file, what);
  if (type == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t length = 0;
      if (!cursor->Read(&length) || !cursor->Skip(length)) {
        return GgufTruncated(*cursor, file, what);
      }
    }
    return OkStatus();
  }
  if (depth == kMaxGgufArrayDepth) {
    return UnsupportedError(StrCat(file, ": ", what, " nests arrays deeper than ",
                                   kMaxGgufArrayDepth, " before byte ", cursor->offset()));
  }
  for (uint64_t i = 0; i < count; ++i) {
    GgufType inner = GgufType::kU8;
    uint64_t inner_count = 0;
    QINFER_RETURN_IF_ERROR(ReadGgufType(cursor, file, what, &inner));
    if (!cursor->Read(&inner_count)) return GgufTruncated(*cursor, file, what);
    QINFER_RETURN_IF_ERROR(SkipGgufElements(cursor, file, what, inner, inner_count, depth + 1));
  }
  return OkStatus();
}

}  // namespace qinfer::format
