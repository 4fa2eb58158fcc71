// Packing of float rows: round to nearest with searched scales. Methods that choose codes with more
// knowledge (error feedback, channel scaling) belong to src/quant.
#include <algorithm>
#include <vector>

#include "core/checked.h"
#include "weights/fp4.h"
#include "weights/panel.h"
#include "weights/search.h"

namespace qinfer::weights {
namespace {

using kernels::kInputGranule;
using kernels::kPanelRows;
using kernels::ScaleKind;
using kernels::WeightKind;
namespace layout = kernels::layout;

bool AllFinite(const float* x, uint64_t n, uint64_t* where) {
  for (uint64_t i = 0; i < n; ++i)
    if (!(x[i] - x[i] == 0.0f)) {
      *where = i;
      return false;
    }
  return true;
}

void PackFloats(const float* x, uint64_t row, uint64_t cols, PanelWriter* writer) {
  for (uint64_t k = 0; k < cols; ++k) {
    if (writer->shape().kind == WeightKind::kF32)
      writer->WriteValue32(row, k, x[k]);
    else if (writer->shape().kind == WeightKind::kF16)
      writer->WriteValue16(row, k, FloatToHalf(x[k]));
    else
      writer->WriteValue16(row, k, FloatToBf16(x[k]));
  }
}

// Replaces the fits of one super group by what 8-bit parts under F16 can say, and writes them.
void QuantizeScales(uint64_t row, uint32_t first_group, absl::Span<GroupFit> fits,
                    PanelWriter* writer) {
  const bool has_min = writer->shape().has_min;
  float scale = 0.0f, min = 0.0f;
  for (const GroupFit& fit : fits) {
    scale = std::max(scale, fit.scale < 0.0f ? -fit.scale : fit.scale);
    min = std::max(min, -fit.min);
  }
  // Clamped first: next to a tiny scale a quotient may be more than an integer holds.
  const auto round = [](float f, float low, float high) {
    return static_cast<int32_t>((std::clamp(f, low, high) + 12582912.0f) - 12582912.0f);
  };
  const float high = has_min ? 255.0f : 127.0f, low = has_min ? 0.0f : -high;
  const float d = RoundScale(ScaleKind::kF16, scale / high);
  const float dmin = RoundScale(ScaleKind::kF16, min / 255.0f);
  writer->WriteSuperBits(row,
                         first_group * layout::GroupSize(writer->shape()) / layout::kSuperGroup,
                         FloatToHalf(d), FloatToHalf(dmin));
  for (size_t i = 0; i < fits.size(); ++i) {
    const int32_t sub = d == 0.0f ? 0 : round(fits[i].scale / d, low, high);
    const int32_t submin = dmin == 0.0f ? 0 : round(-fits[i].min / dmin, 0.0f, 255.0f);
    fits[i] = {d * static_cast<float>(sub), -(dmin * static_cast<float>(submin))};
    writer->WriteSub(row, first_group + static_cast<uint32_t>(i), static_cast<uint8_t>(sub),
                     static_cast<uint8_t>(submin));
  }
}

}  // namespace

Status PackRows(const Format& format, const PackOptions& options, const float* rows,
                uint64_t first_row, uint64_t count, uint64_t cols, absl::Span<uint8_t> out) {
  uint64_t panel_bytes, bytes;
  if (!PackedSize(format, count, cols, &panel_bytes, &bytes) || out.size() != bytes)
    return MisuseError(
        StrCat("packing ", count, " x ", cols, " into ", out.size(), " bytes as ", Name(format)));
  PanelWriter writer(format, cols, out.data());
  writer.Clear(CeilDiv<uint64_t>(count, kPanelRows));
  const bool is_float = layout::IsFloat(format.kind), is_fp4 = format.kind == WeightKind::kFp4;
  const uint32_t n = static_cast<uint32_t>(cols);
  const uint32_t group_size = layout::GroupSize(writer.shape());
  const uint32_t groups = is_float ? 0 : layout::Groups(writer.shape());
  FitOptions fit_options;
  fit_options.levels.zero = format.has_min ? 0 : layout::ZeroPoint(format.kind);
  fit_options.levels.top = format.kind == WeightKind::kInt8   ? 255
                           : format.kind == WeightKind::kInt6 ? 63
                                                              : 15;
  fit_options.scale = format.scale;
  fit_options.has_min = format.has_min;
  fit_options.search = options.search_scales;
  std::vector<GroupFit> fits(groups);
  for (uint64_t row = 0; row < count; ++row) {
    const float* x = rows + row * cols;
    uint64_t bad;
    if (!AllFinite(x, cols, &bad))
      return FormatError(StrCat("weight is not finite, row ", first_row + row, ", column ", bad));
    if (is_float) {
      PackFloats(x, row, cols, &writer);
      continue;
    }
    for (uint32_t g = 0; g < groups; ++g) {
      const uint32_t k = g * group_size;
      if (k >= n) {  // a group of padding alone
        fits[g] = GroupFit{format.scale == ScaleKind::kE8M0 ? 0x1p-126f : 0.0f, 0.0f};
        continue;
      }
      const float* importance = options.importance == nullptr ? nullptr : options.importance + k;
      const uint32_t count = std::min(group_size, n - k);
      fits[g] = is_fp4 ? GroupFit{FitFp4(x + k, importance, count, options.search_scales), 0.0f}
                       : FitGroup(fit_options, x + k, importance, count);
    }
    if (format.scale == ScaleKind::kSub8) {
      const uint32_t per_super = layout::kSuperGroup / group_size;
      for (uint32_t g = 0; g < groups; g += per_super)
        QuantizeScales(row, g, absl::MakeSpan(fits).subspan(g, per_super), &writer);
    } else {
      for (uint32_t g = 0; g < groups; ++g) writer.WriteScale(row, g, fits[g].scale, fits[g].min);
    }
    uint8_t codes[kInputGranule];
    for (uint32_t k = 0; k < n; k += kInputGranule) {
      std::fill(codes, codes + kInputGranule, PaddingCode(format));
      const uint32_t end = std::min(n - k, kInputGranule);
      const uint32_t step = std::min(group_size, kInputGranule);
      for (uint32_t i = 0; i < end; i += step) {
        const GroupFit& fit = fits[(k + i) / group_size];
        const uint32_t count = std::min(step, end - i);
        if (is_fp4) {
          EncodeFp4(fit.scale, x + k + i, count, codes + i);
        } else {
          Encode(fit_options.levels, fit, x + k + i, count, codes + i);
        }
      }
      writer.WriteCodes(row, k / kInputGranule, codes);
    }
  }
  return OkStatus();
}

}  // namespace qinfer::weights
