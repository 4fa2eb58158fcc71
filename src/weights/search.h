// Finding a group's scale (and minimum) by least weighted squared error. Knows nothing of layouts.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace qinfer::weights {

struct Levels {
  int32_t zero = 0;  // code that means 0 (symmetric); 0 with a minimum
  int32_t top = 15;  // largest code
};

struct GroupFit {
  float scale = 0.0f;
  float min = 0.0f;
};

struct FitOptions {
  Levels levels;
  kernels::ScaleKind scale = kernels::ScaleKind::kF16;  // the fit is best after rounding to it
  bool has_min = false;
  bool search = true;
};

// x[n] finite; w[n] non-negative, or null for all 1. The scale may be negative where the stored
// kind has a sign and the format is symmetric, so that the largest magnitude can take the one code
// that the other side lacks. The result is rounded to the stored kind (kSub8: not rounded; the
// minimum is then at most 0, since it is stored as a magnitude).
GroupFit FitGroup(const FitOptions& options, const float* x, const float* w, uint32_t n);

// The code of x: clamp(round(x / scale) + zero), or clamp(round((x - min) / scale)).
void Encode(const Levels& levels, const GroupFit& fit, const float* x, uint32_t n, uint8_t* codes);

}  // namespace qinfer::weights
