// Names and sizes of weight formats, and the checks that stand between a file's bytes and a kernel.
#include "weights/format.h"

#include "core/checked.h"
#include "weights/panel.h"

namespace qinfer::weights {
namespace {

using kernels::ScaleKind;
using kernels::WeightKind;

struct KindName {
  WeightKind kind;
  std::string_view name;
};
constexpr KindName kKinds[] = {{WeightKind::kF32, "f32"},   {WeightKind::kF16, "f16"},
                               {WeightKind::kBF16, "bf16"}, {WeightKind::kInt8, "int8"},
                               {WeightKind::kInt6, "int6"}, {WeightKind::kInt4, "int4"},
                               {WeightKind::kFp4, "fp4"}};
struct ScaleName {
  ScaleKind scale;
  std::string_view name;
};
constexpr ScaleName kScales[] = {{ScaleKind::kF16, "f16"},
                                 {ScaleKind::kF32, "f32"},
                                 {ScaleKind::kE8M0, "e8m0"},
                                 {ScaleKind::kSub8, "sub8"}};
constexpr std::string_view kKnown =
    "known: f32, f16, bf16, and int4, int6 or int8 with -g32, -g64, -g128 or -row (int6 also "
    "-g16), "
    "-f16, -f32, -e8m0 or -sub8 (sub8: not int8, g16 or g32), and optionally -min (not with e8m0); "
    "int4, int6 and int8 alone mean -g32-f16; and fp4-g32-e8m0, for short fp4";

bool Valid(const Format& f) {
  if (kernels::layout::IsFloat(f.kind))
    return f.scale == ScaleKind::kNone && !f.has_min && f.group_size == 0;
  if (f.kind == WeightKind::kFp4)
    return f.scale == ScaleKind::kE8M0 && !f.has_min && f.group_size == 32;
  switch (f.group_size) {
    case 16:
      if (f.kind != WeightKind::kInt6) return false;
      break;
    case 32:
      break;
    case 64:
    case 128:
    case 0:
      if (f.scale == ScaleKind::kSub8) return false;
      break;
    default:
      return false;
  }
  switch (f.scale) {
    case ScaleKind::kF16:
    case ScaleKind::kF32:
      return true;
    case ScaleKind::kSub8:
      return f.kind != WeightKind::kInt8;
    case ScaleKind::kE8M0:
      return !f.has_min;
    default:
      return false;
  }
}

}  // namespace

std::string Name(const Format& format) {
  std::string name;
  for (const KindName& k : kKinds)
    if (k.kind == format.kind) name = k.name;
  if (kernels::layout::IsFloat(format.kind)) return name;
  name += format.group_size == 0 ? "-row" : StrCat("-g", format.group_size);
  for (const ScaleName& s : kScales)
    if (s.scale == format.scale) name.append("-").append(s.name);
  if (format.has_min) name += "-min";
  return name;
}

StatusOr<Format> ParseFormat(std::string_view name) {
  const auto fail = [&] {
    return MisuseError(StrCat("weight format \"", absl::string_view(name.data(), name.size()),
                              "\" is not known; ",
                              absl::string_view(kKnown.data(), kKnown.size())));
  };
  std::string_view parts[4];
  size_t count = 0;
  for (std::string_view rest = name; count < 4;) {
    const size_t dash = rest.find('-');
    parts[count++] = rest.substr(0, dash);
    if (dash == std::string_view::npos) break;
    rest.remove_prefix(dash + 1);
    if (count == 4) return fail();
  }
  Format f;
  bool found = false;
  for (const KindName& k : kKinds)
    if (k.name == parts[0]) {
      f.kind = k.kind;
      found = true;
    }
  if (!found) return fail();
  if (kernels::layout::IsFloat(f.kind)) {
    if (count != 1) return fail();
    return f;
  }
  f.group_size = 32;
  f.scale = f.kind == WeightKind::kFp4 ? ScaleKind::kE8M0 : ScaleKind::kF16;
  if (count > 1) {
    if (count < 3) return fail();
    constexpr struct {
      std::string_view name;
      uint32_t size;
    } kGroups[] = {{"row", 0}, {"g16", 16}, {"g32", 32}, {"g64", 64}, {"g128", 128}};
    found = false;
    for (const auto& g : kGroups)
      if (g.name == parts[1]) {
        f.group_size = g.size;
        found = true;
      }
    bool scale_found = false;
    for (const ScaleName& s : kScales)
      if (s.name == parts[2]) {
        f.scale = s.scale;
        scale_found = true;
      }
    if (!found || !scale_found) return fail();
    if (count == 4) {
      if (parts[3] != "min") return fail();
      f.has_min = true;
    }
  }
  if (!Valid(f)) return fail();
  return f;
}

bool PackedSize(const Format& format, uint64_t rows, uint64_t cols, uint64_t* panel_bytes,
                uint64_t* bytes) {
  // Bounds under which nothing in kernels/layout.h overflows.
  if (!Valid(format) || rows == 0 || cols == 0 || rows > UINT32_MAX - kernels::kPanelRows ||
      cols > UINT32_MAX / 2)
    return false;
  *panel_bytes = Shape(format, rows, cols).panel_bytes;
  return CheckedMul<uint64_t>(CeilDiv<uint64_t>(rows, kernels::kPanelRows), *panel_bytes, bytes) &&
         *bytes <= SIZE_MAX / 2;
}

double BitsPerWeight(const Format& format, uint32_t rows, uint32_t cols) {
  uint64_t panel_bytes, bytes;
  if (!PackedSize(format, rows, cols, &panel_bytes, &bytes)) return 0.0;
  return static_cast<double>(bytes) * 8.0 / (static_cast<double>(rows) * static_cast<double>(cols));
}

StatusOr<kernels::Matrix> View(const Format& format, uint64_t rows, uint64_t cols,
                               absl::Span<const uint8_t> bytes, std::string_view tensor) {
  const auto error = [&](const std::string& what) {
    return FormatError(
        StrCat("tensor \"", absl::string_view(tensor.data(), tensor.size()), "\": ", what));
  };
  uint64_t panel_bytes, size;
  if (!PackedSize(format, rows, cols, &panel_bytes, &size))
    return error(StrCat("no packed size for ", Name(format), " of ", rows, " x ", cols));
  if (bytes.size() != size)
    return error(StrCat(bytes.size(), " bytes where ", Name(format), " of ", rows, " x ", cols,
                        " takes ", size));
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kernels::layout::kLine != 0)
    return error("data does not start on a multiple of 64 bytes");
  kernels::Matrix m = Shape(format, rows, cols);
  m.data = bytes.data();
  return m;
}

}  // namespace qinfer::weights
