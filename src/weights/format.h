// Weight formats: what a packed tensor is called, how large it is, and how it is made from floats
// or, without loss, from other people's blocks. One format family per file; how they are multiplied
// is in kernels/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "core/dtype.h"
#include "core/status.h"
#include "kernels/kernels.h"

namespace qinfer::weights {

struct Format {
  kernels::WeightKind kind = kernels::WeightKind::kF32;
  kernels::ScaleKind scale = kernels::ScaleKind::kNone;
  bool has_min = false;
  uint32_t group_size = 0;  // 0 = whole row
  bool operator==(const Format&) const = default;
};

// "f32", "f16", "bf16", "int8-g32-f16", "int4-g32-f16", "int4-g32-f16-min", "int4-row-f32",
// "int4-g32-sub8-min", "int6-g16-sub8", ... The name is what a .qinfer file, `inspect` and a
// recipe's --set use; Parse also takes the short forms "int4", "int6", "int8" (group 32, F16
// scales, symmetric) and "fp4" (-g32-e8m0, MXFP4) and says what is known on a mistake.
std::string Name(const Format& format);
StatusOr<Format> ParseFormat(std::string_view name);

// Bits per weight for a matrix of this shape, padding included.
double BitsPerWeight(const Format& format, uint32_t rows, uint32_t cols);

// Bytes of a panel and of the packed matrix. False on overflow or an unknown combination.
bool PackedSize(const Format& format, uint64_t rows, uint64_t cols, uint64_t* panel_bytes,
                uint64_t* bytes);
// Checks size and alignment, and returns the view that kernels take. FormatError names `tensor`.
StatusOr<kernels::Matrix> View(const Format& format, uint64_t rows, uint64_t cols,
                               absl::Span<const uint8_t> bytes, std::string_view tensor);

// How the scale of a group is found when packing from floats.
struct PackOptions {
  bool search_scales =
      true;  // least (weighted) squared error over a grid of scales; off: from the extremes
  const float* importance = nullptr;  // [cols] second moments of the inputs, or null: all 1
};
// Packs rows [16 * panel_begin, ...) given as floats [count][cols] (count a multiple of 16, or up
// to the last row) into `out` (whole panels). Deterministic. FormatError on NaN or infinity, naming
// the row (of the matrix) and column. Scratch is the caller's stack or small.
Status PackRows(const Format& format, const PackOptions& options, const float* rows,
                uint64_t first_row, uint64_t count, uint64_t cols, absl::Span<uint8_t> out);

// The format that holds blocks of this type exactly, and whether it does (floats do, and Q4_0,
// Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, MXFP4; others do not exist here). `word` is what the
// file calls it, for the message: DType has no name for most of what it does not know.
StatusOr<Format> ExactFormat(DType dtype, std::string_view word = {});
// Repacks `count` rows of source blocks, row after row as the file has them, into whole panels of
// ExactFormat(dtype). NaN scales are a FormatError.
Status ImportRows(DType dtype, absl::Span<const uint8_t> source, uint64_t first_row, uint64_t count,
                  uint64_t cols, absl::Span<uint8_t> out);
// Decodes `elements` of any readable type to F32.
Status DecodeToFloat(DType dtype, absl::Span<const uint8_t> source, uint64_t elements, float* out);

}  // namespace qinfer::weights
