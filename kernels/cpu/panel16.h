// What the integer matrix products of several instruction sets have in common around their tiles:
// a panel's scales widened to 32 bits, the sums of activations per unit, the cut of the scratch,
// and the choice of a tile by mode and unit. No arithmetic of the product itself. Internal linkage.
#pragma once

#include <string.h>

#include "kernels/cpu/unit_sums.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"

namespace qinfer::kernels::panel16 {
namespace {

enum Mode { kSym, kMin, kSubSym, kSubMin };

// A panel as a tile reads it: codes in place or widened to bytes, scales as 32-bit values
// [group][16 scales, then with a minimum 16 minima].
struct Panel {
  const uint8_t* codes;
  const float* scales;  // kSub8: int32_t
  const float* supers;  // kSub8: [super][16 d, then with a minimum 16 dmin]
};

// What does not depend on the panel.
struct Call {
  const Matrix* m;
  const Activations* x;
  uint32_t padded, group, unit;
  int32_t* correction;  // [tokens][units]: -zero * A (symmetric), A (kSubMin) or float(A) (kMin)
  uint32_t units;
  // kSub8 as scales in floats: see FloatScales.
  bool float_scales = false;
  // Where a second plane of activations is added apart from the first: which tokens have something
  // in it, a bit each, [units][words].
  const uint64_t* marks = nullptr;
  uint32_t words = 0;
};

struct Scratch {
  uint8_t* widened[2];
  float* scales[2];
  float* supers[2];
};

// Whether scales under a super scale may be multiplied by it beforehand. Where a block of
// activations is one unit of 4-bit codes, it is d * sc * I that is rounded either way: I is an
// integer of 16 bits (15 * 127 * 32), so that sc * I is exact in a float, and so is d * sc, whose
// factors have 11 and 8 bits. The same holds for minima.
template <WeightKind K, class Call>
QINFER_FN bool FloatScales(const Call& call) {
  return K == WeightKind::kInt4 && call.m->scale == ScaleKind::kSub8 && call.unit == 32 &&
         call.x->block == 32;
}

// scales[group][16], with minima [group][2][16]: those of kSub8 times their super scale.
template <class Simd>
QINFER_FN void MultiplyScales(const Matrix& m, const uint8_t* supers, const uint8_t* in,
                              float* scales) {
  const uint32_t kinds = m.has_min ? 2 : 1;
  const uint32_t groups = layout::Groups(m), per_super = layout::kSuperGroup / m.group_size;
  float super[2][kPanelRows];
  for (uint32_t g = 0; g < groups; ++g) {
    if (g % per_super == 0) {
      for (uint32_t i = 0; i < kinds; ++i, supers += 32) Simd::WidenHalf(supers, super[i]);
      if (m.has_min)
        for (float& min : super[1]) min = -min;
    }
    for (uint32_t i = 0; i < kinds; ++i, in += kPanelRows, scales += kPanelRows) {
      Simd::WidenBytes(m.has_min, in, scales);
      for (uint32_t r = 0; r < kPanelRows; ++r) {
        int32_t code;
        memcpy(&code, scales + r, 4);
        scales[r] = super[i][r] * static_cast<float>(code);
      }
    }
  }
}

// Simd: WidenHalf, WidenE8M0 and WidenBytes turn 16 values in memory into 16 of 32 bits.
template <class Simd>
QINFER_FN Panel PreparePanel(const Call& call, const uint8_t* panel, float* scales, float* supers) {
  const Matrix& m = *call.m;
  Panel out = {panel + layout::CodePlane(m), scales, supers};
  const uint8_t* in = panel + layout::ScalePlane(m);
  const uint32_t n = layout::Groups(m) * (m.has_min ? 2 : 1);
  switch (m.scale) {
    case ScaleKind::kF32:
      out.scales = reinterpret_cast<const float*>(in);
      break;
    case ScaleKind::kF16:
      for (uint32_t i = 0; i < n; ++i) Simd::WidenHalf(in + i * 32, scales + i * 16);
      break;
    case ScaleKind::kE8M0:
      for (uint32_t i = 0; i < n; ++i) Simd::WidenE8M0(in + i * 16, scales + i * 16);
      break;
    default: {
      if (call.float_scales) {
        MultiplyScales<Simd>(m, panel, in, scales);
        break;
      }
      for (uint32_t i = 0; i < n; ++i) Simd::WidenBytes(m.has_min, in + i * 16, scales + i * 16);
      const uint32_t super =
          static_cast<uint32_t>(layout::CeilDiv(m.padded_cols(), layout::kSuperGroup)) *
          (m.has_min ? 2 : 1);
      for (uint32_t i = 0; i < super; ++i) Simd::WidenHalf(panel + i * 32, supers + i * 16);
    }
  }
  return out;
}

// The sums of activations that symmetric codes and minima need, per row and unit. `zero`: what
// the tile's codes are too large by.
QINFER_FN void PrepareSums(const Call& call, uint32_t rows, int32_t zero) {
  const Matrix& m = *call.m;
  const bool as_float = m.has_min && (m.scale != ScaleKind::kSub8 || call.float_scales);
  const int32_t by = m.has_min ? 1 : -zero;
  for (uint32_t t = 0; t < rows; ++t) {
    const int32_t* __restrict sums = call.x->sums + t * call.x->sum_stride;
    int32_t* __restrict out = call.correction + t * static_cast<size_t>(call.units);
    if (as_float) {
      SumUnits(sums, call.padded, call.unit, [&](uint32_t u, int32_t sum) {
        const float f = static_cast<float>(sum);
        memcpy(out + u, &f, 4);
      });
    } else {
      SumUnits(sums, call.padded, call.unit, [&](uint32_t u, int32_t sum) { out[u] = by * sum; });
    }
  }
}

// Cuts the scratch (layout::MatmulInt8Scratch) into `s` and the corrections of the call.
template <WeightKind K>
QINFER_FN Call Prepare(const Matrix& m, const Activations& x, uint32_t tokens, int32_t zero,
                       void* scratch, Scratch& s) {
  Call call;
  call.m = &m;
  call.x = &x;
  call.padded = m.padded_cols();
  call.group = layout::GroupSize(m);
  call.unit = Min(Min(call.group, x.block), call.padded);
  call.units = static_cast<uint32_t>(layout::CeilDiv(call.padded, call.unit));
  const size_t widened = size_t{call.padded} * kPanelRows;
  const size_t scales = size_t{layout::Groups(m)} * 32;
  const size_t supers = (call.padded / layout::kSuperGroup + 1) * 32;
  s.widened[0] = static_cast<uint8_t*>(scratch);
  s.widened[1] = s.widened[0] + widened;
  s.scales[0] = reinterpret_cast<float*>(s.widened[1] + widened);
  s.scales[1] = s.scales[0] + scales;
  s.supers[0] = s.scales[1] + scales;
  s.supers[1] = s.supers[0] + supers;
  call.correction = reinterpret_cast<int32_t*>(s.supers[1] + supers);
  call.float_scales = FloatScales<K>(call);
  PrepareSums(call, tokens * x.planes, zero);
  return call;
}

// run(mode, unit) with both as types' values: units of 16 and 32, or 0 for any multiple of 32.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};
template <WeightKind K, class F>
QINFER_FN void Choose(const Call& call, F run) {
  if constexpr (K == WeightKind::kFp4) return run(Constant<kSym>(), Constant<32>());
  const Matrix& m = *call.m;
  const bool sub = m.scale == ScaleKind::kSub8 && !call.float_scales;
  if constexpr (K == WeightKind::kInt6) {
    if (call.unit == 16) {
      if (sub)
        return m.has_min ? run(Constant<kSubMin>(), Constant<16>())
                         : run(Constant<kSubSym>(), Constant<16>());
      return m.has_min ? run(Constant<kMin>(), Constant<16>())
                       : run(Constant<kSym>(), Constant<16>());
    }
  }
  if constexpr (K != WeightKind::kInt8) {
    if (sub)
      return m.has_min ? run(Constant<kSubMin>(), Constant<32>())
                       : run(Constant<kSubSym>(), Constant<32>());
  }
  if (call.unit == 32)
    return m.has_min ? run(Constant<kMin>(), Constant<32>())
                     : run(Constant<kSym>(), Constant<32>());
  return m.has_min ? run(Constant<kMin>(), Constant<0>()) : run(Constant<kSym>(), Constant<0>());
}

}  // namespace
}  // namespace qinfer::kernels::panel16
