// The search: a grid of scales, each judged by the error that the best scale for its codes would
// leave, then a few rounds of refitting the scale to its codes and rounding it as it will be
// stored.
#include "weights/search.h"

#include <algorithm>
#include <cstring>

#include "weights/panel.h"

namespace qinfer::weights {
namespace {

using kernels::ScaleKind;

// Four floats at a time, in fixed order, on every machine.
using V = float __attribute__((vector_size(16)));
constexpr uint32_t kLanes = 4;
constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even

inline V Splat(float f) { return V{f, f, f, f}; }
inline V Load(const float* p) {
  V v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline V LoadPart(const float* p, uint32_t n) {
  V v = {};
  std::memcpy(&v, p, n * sizeof(float));
  return v;
}
inline float Sum(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
inline V Clamp(V v, V low, V high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}

// Calls f(x, w) for four elements at a time; the tail has weight 0.
template <typename F>
inline void ForEach(const float* x, const float* w, uint32_t n, F f) {
  uint32_t i = 0;
  const V one = Splat(1.0f);
  for (; i + kLanes <= n; i += kLanes) f(Load(x + i), w == nullptr ? one : Load(w + i));
  if (i < n) {
    const float ones[kLanes] = {1, 1, 1, 1};
    f(LoadPart(x + i, n - i), LoadPart(w == nullptr ? ones : w + i, n - i));
  }
}

struct Moments {
  float w = 0, wx = 0, wxx = 0, low = 0, high = 0;
};
Moments Measure(const float* x, const float* w, uint32_t n) {
  V sw = {}, swx = {}, swxx = {};
  V low = Splat(x[0]), high = low;
  ForEach(x, w, n, [&](V vx, V vw) {
    sw += vw;
    swx += vw * vx;
    swxx += vw * vx * vx;
  });
  for (uint32_t i = 0; i + kLanes <= n; i += kLanes) {
    const V v = Load(x + i);
    low = v < low ? v : low;
    high = v > high ? v : high;
  }
  Moments m = {Sum(sw), Sum(swx), Sum(swxx), low[0], high[0]};
  for (uint32_t i = 0; i < kLanes; ++i) {
    m.low = std::min(m.low, low[i]);
    m.high = std::max(m.high, high[i]);
  }
  for (uint32_t i = n - n % kLanes; i < n; ++i) {
    m.low = std::min(m.low, x[i]);
    m.high = std::max(m.high, x[i]);
  }
  return m;
}

struct CodeSums {
  float q = 0, qq = 0, xq = 0;  // weighted
};
inline CodeSums Code(const float* x, const float* w, uint32_t n, float inverse, float offset,
                     float low, float high) {
  V sq = {}, sqq = {}, sxq = {};
  const V vi = Splat(inverse), vo = Splat(offset), vl = Splat(low), vh = Splat(high);
  const V magic = Splat(kMagic);
  ForEach(x, w, n, [&](V vx, V vw) {
    const V q = (Clamp(vx * vi + vo, vl, vh) + magic) - magic;
    const V wq = vw * q;
    sq += wq;
    sqq += wq * q;
    sxq += wq * vx;
  });
  return {Sum(sq), Sum(sqq), Sum(sxq)};
}

// What the codes at (scale, min) leave, in weighted squared error.
inline float Error(const Moments& m, const CodeSums& c, float scale, float min) {
  return m.wxx + scale * scale * c.qq + min * min * m.w + 2.0f * scale * min * c.q -
         2.0f * scale * c.xq - 2.0f * min * m.wx;
}

// Factors on "the largest magnitude meets the last code".
struct Grid {
  float first, step;
  uint32_t count;
  float At(uint32_t i) const { return first + step * static_cast<float>(i); }
};
// Larger groups clip more.
Grid GridFor(int32_t top, uint32_t n) {
  if (top <= 15) return {0.75f, 0.025f, n <= 64 ? 21u : n <= 128 ? 31u : 71u};
  if (top <= 63) return {0.92f, 0.02f, n <= 64 ? 10u : n <= 128 ? 15u : 35u};
  return {0.985f, 0.005f, n <= 128 ? 6u : 26u};
}

float Stored(ScaleKind kind, float scale) {
  return kind == ScaleKind::kSub8 ? scale : RoundScale(kind, scale);
}
float Inverse(float scale) {
  const float inverse = 1.0f / scale;
  return scale == 0.0f || inverse - inverse != 0.0f ? 0.0f : inverse;
}

GroupFit FitSymmetric(const FitOptions& o, const float* x, const float* w, uint32_t n,
                      const Moments& m) {
  const float low = static_cast<float>(-o.levels.zero);
  const float high = static_cast<float>(o.levels.top - o.levels.zero);
  const float amax = std::max(m.high, -m.low);
  // The sign that lets the largest magnitude use the longer side.
  const bool has_sign = o.scale != ScaleKind::kE8M0;
  const float sign = has_sign && m.high >= -m.low ? -1.0f : 1.0f;
  const float base = sign * amax / -low;
  float best_error = 0.0f, scale = 0.0f;
  bool found = false;
  const auto consider = [&](float candidate) {
    candidate = Stored(o.scale, candidate);
    const CodeSums c = Code(x, w, n, Inverse(candidate), 0.0f, low, high);
    const float error = Error(m, c, candidate, 0.0f);
    if (!found || error < best_error) {
      best_error = error;
      scale = candidate;
      found = true;
    }
    return c.qq > 0.0f ? c.xq / c.qq : 0.0f;  // the best scale for these codes
  };
  consider(base);
  consider(has_sign ? -amax / low : amax / high);
  if (!o.search) return {scale, 0.0f};
  const Grid grid = GridFor(o.levels.top, n);
  float gain = -1.0f, start = base;
  for (uint32_t i = 0; i < grid.count; ++i)
    for (int side = 0; side < (has_sign ? 2 : 1); ++side) {
      const float candidate = (side == 0 ? base : -base) / grid.At(i);
      const CodeSums c = Code(x, w, n, Inverse(candidate), 0.0f, low, high);
      if (c.qq > 0.0f && c.xq * c.xq > gain * c.qq) {
        gain = c.xq * c.xq / c.qq;
        start = c.xq / c.qq;
      }
    }
  if (!has_sign && start < 0.0f) start = -start;
  for (int round = 0; round < 4; ++round) {
    const float next = consider(start);
    if (next == start || (!has_sign && next <= 0.0f)) break;
    start = next;
  }
  if (o.scale == ScaleKind::kE8M0) {  // the other neighbour too
    consider(scale * 2.0f);
    consider(scale * 0.5f);
  }
  return {scale, 0.0f};
}

GroupFit FitAffine(const FitOptions& o, const float* x, const float* w, uint32_t n,
                   const Moments& m) {
  const bool min_is_magnitude = o.scale == ScaleKind::kSub8;
  const float top = static_cast<float>(o.levels.top);
  const float low = min_is_magnitude ? std::min(m.low, 0.0f) : m.low;
  const float high = min_is_magnitude ? std::max(m.high, 0.0f) : m.high;
  const float center = 0.5f * low + 0.5f * high, range = high - low;
  float best_error = 0.0f;
  GroupFit best;
  bool found = false;
  // Least squares of (scale, min) for given codes.
  const auto refit = [&](const CodeSums& c, GroupFit* fit) {
    const float det = c.qq * m.w - c.q * c.q;
    if (!(det > 1e-6f * c.qq * m.w)) return false;
    fit->scale = (c.xq * m.w - c.q * m.wx) / det;
    fit->min = (c.qq * m.wx - c.q * c.xq) / det;
    if (min_is_magnitude && fit->min > 0.0f) {
      fit->min = 0.0f;
      fit->scale = c.xq / c.qq;
    }
    return fit->scale > 0.0f;
  };
  const auto code = [&](const GroupFit& fit) {
    const float inverse = Inverse(fit.scale);
    return Code(x, w, n, inverse, -fit.min * inverse, 0.0f, top);
  };
  const auto consider = [&](GroupFit fit) {
    fit.scale = Stored(o.scale, fit.scale);
    fit.min = Stored(o.scale, fit.min);
    const CodeSums c = code(fit);
    const float error = Error(m, c, fit.scale, fit.min);
    if (!found || error < best_error) {
      best_error = error;
      best = fit;
      found = true;
    }
    return c;
  };
  GroupFit start = {range / top, low};
  consider(start);
  if (!o.search || range == 0.0f) return best;
  const Grid grid = GridFor(o.levels.top, n);
  bool any = false;
  float start_error = 0.0f;
  for (uint32_t i = 0; i < grid.count; ++i)
    for (int shift = -1; shift <= 1; ++shift) {
      GroupFit fit;
      fit.scale = range / (top * grid.At(i));
      fit.min = center - fit.scale * (0.5f * top + 0.33f * static_cast<float>(shift));
      if (min_is_magnitude && fit.min > 0.0f) fit.min = 0.0f;
      const CodeSums c = code(fit);
      if (!refit(c, &fit)) continue;
      const float error = Error(m, c, fit.scale, fit.min);
      if (!any || error < start_error) {
        any = true;
        start_error = error;
        start = fit;
      }
    }
  for (int round = 0; round < 4; ++round) {
    const CodeSums c = consider(start);
    if (!refit(c, &start)) break;
  }
  return best;
}

}  // namespace

GroupFit FitGroup(const FitOptions& options, const float* x, const float* w, uint32_t n) {
  Moments m = Measure(x, w, n);
  if (w != nullptr && !(m.w > 0.0f && m.wxx > 0.0f && m.wxx < 1e37f)) {
    w = nullptr;  // weights that say nothing
    m = Measure(x, w, n);
  }
  if (m.low == 0.0f && m.high == 0.0f) {
    GroupFit zero;
    zero.scale = options.scale == ScaleKind::kE8M0 ? 0x1p-126f : 0.0f;
    return zero;
  }
  return options.has_min ? FitAffine(options, x, w, n, m) : FitSymmetric(options, x, w, n, m);
}

void Encode(const Levels& levels, const GroupFit& fit, const float* x, uint32_t n, uint8_t* codes) {
  const float inverse = Inverse(fit.scale);
  const float offset = static_cast<float>(levels.zero) - fit.min * inverse;
  const float top = static_cast<float>(levels.top);
  for (uint32_t i = 0; i < n; ++i) {
    float q = x[i] * inverse + offset;
    q = q < 0.0f ? 0.0f : q > top ? top : q;
    codes[i] = static_cast<uint8_t>(static_cast<int32_t>((q + kMagic) - kMagic));
  }
}

}  // namespace qinfer::weights
