// NEON operations on vectors: activation quantization, norms, gates, rope and what sampling needs.
#include "kernels/cpu/neon/neon.h"

namespace qinfer::kernels::neon {
namespace {

// step(i, n) for each four elements at i, of which n exist.
template <class F>
QINFER_FN void Quads(size_t n, F step) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    step(i, 4);
    step(i + 4, 4);
    step(i + 8, 4);
    step(i + 12, 4);
  }
  for (; i < n; i += 4) step(i, n - i);
}

// The largest element, NaN aside.
QINFER_FN float Largest(const float* x, size_t n) {
  float32x4_t best[4];
  QINFER_UNROLL(4)
  for (float32x4_t& b : best) b = Set(-__builtin_inff());
  size_t i = 0;
  for (; i + 16 <= n; i += 16) QINFER_UNROLL(4)
  for (size_t j = 0; j < 4; ++j) best[j] = Larger(vld1q_f32(x + i + j * 4), best[j]);
  float top = vmaxvq_f32(vmaxq_f32(vmaxq_f32(best[0], best[1]), vmaxq_f32(best[2], best[3])));
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

}  // namespace

float QuantizeBlock(const float* x, uint32_t count, int8_t* codes) {
  float32x4_t amax = Set(0.0f);
  uint32x4_t good = vdupq_n_u32(~0u);
  const float32x4_t largest = Set(__FLT_MAX__);
  Quads(count, [&](size_t i, size_t n) {
    const float32x4_t a = vabsq_f32(LoadTail(x + i, n));
    good = vandq_u32(good, vcleq_f32(a, largest));
    amax = vmaxq_f32(a, amax);
  });
  const bool finite = vminvq_u32(good) != 0;
  const float top = vmaxvq_f32(amax);
  if (!finite || top < 0x1p-110f) {
    memset(codes, 0, count);
    return finite ? 0.0f : __builtin_nanf("");
  }
  const float32x4_t inverse = Set(127.0f / top);
  const auto quantize = [&](size_t i, size_t n) {
    return vqmovn_s32(vcvtnq_s32_f32(vmulq_f32(LoadTail(x + i, n), inverse)));
  };
  for (uint32_t i = 0; i < count; i += 8) {
    const uint32_t n = count - i;
    const int16x4_t low = quantize(i, n), high = n > 4 ? quantize(i + 4, n - 4) : vdup_n_s16(0);
    const int8x8_t q = vqmovn_s16(vcombine_s16(low, high));
    if (n >= 8)
      vst1_s8(codes + i, q);
    else
      memcpy(codes + i, &q, n);
  }
  return top / 127.0f;
}

namespace {

void SumCodes(const int8_t* codes, uint32_t padded, int32_t* sums) {
  for (uint32_t k = 0; k < padded; k += 16) sums[k / 16] = vaddlvq_s8(vld1q_s8(codes + k));
}

}  // namespace

void Quantize(const float* x, uint32_t cols, uint32_t token, const Activations& out) {
  QuantizeRow(x, cols, token, out, QuantizeBlock, SumCodes);
}

void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* out) {
  float32x4_t lanes[4];
  QINFER_UNROLL(4)
  for (float32x4_t& lane : lanes) lane = Set(0.0f);
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) QINFER_UNROLL(4)
  for (uint32_t j = 0; j < 4; ++j) {
    const float32x4_t v = vld1q_f32(x + i + j * 4);
    lanes[j] = vfmaq_f32(lanes[j], v, v);
  }
  QINFER_UNROLL(4)
  for (uint32_t j = 0; j < 4; ++j) {  // lanes past the end add fma(0, 0, lane)
    if (i + j * 4 >= n) break;
    const float32x4_t v = LoadTail(x + i + j * 4, n - i - j * 4);
    lanes[j] = vfmaq_f32(lanes[j], v, v);
  }
  const float mean = Tree(lanes) / static_cast<float>(n);
  const float32x4_t r = Set(1.0f / __builtin_sqrtf(mean + eps));
  if (weight == nullptr)
    Quads(n, [&](size_t at, size_t count) {
      StoreTail(out + at, vmulq_f32(LoadTail(x + at, count), r), count);
    });
  else
    Quads(n, [&](size_t at, size_t count) {
      const float32x4_t y = vmulq_f32(LoadTail(x + at, count), r);
      StoreTail(out + at, vmulq_f32(y, LoadTail(weight + at, count)), count);
    });
}

void Add(float* x, const float* y, size_t n) {
  Quads(n, [&](size_t i, size_t count) {
    StoreTail(x + i, vaddq_f32(LoadTail(x + i, count), LoadTail(y + i, count)), count);
  });
}

void Scale(float* x, float by, size_t n) {
  Quads(n, [&](size_t i, size_t count) {
    StoreTail(x + i, vmulq_f32(LoadTail(x + i, count), Set(by)), count);
  });
}

void Gated(Activation activation, const float* gate, const float* up, size_t n, float* out) {
  const auto run = [&](auto act) {
    Quads(n, [&](size_t i, size_t count) {
      const float32x4_t a = act(LoadTail(gate + i, count));
      StoreTail(out + i, vmulq_f32(a, LoadTail(up + i, count)), count);
    });
  };
  if (activation == Activation::kSilu)
    run([](float32x4_t x) { return Silu(x); });
  else
    run([](float32x4_t x) { return GeluTanh(x); });
}

void Softcap(float* x, float cap, size_t n) {
  Quads(n, [&](size_t i, size_t count) {
    const float32x4_t t = Tanh(vdivq_f32(LoadTail(x + i, count), Set(cap)));
    StoreTail(x + i, vmulq_f32(Set(cap), t), count);
  });
}

void Rope(float* head, const float* cos, const float* sin, uint32_t rope_dims, bool interleaved) {
  const uint32_t half = rope_dims / 2;
  const auto rotate = [&](uint32_t i, float32x4_t x, float32x4_t y) {
    const float32x4_t c = vld1q_f32(cos + i), s = vld1q_f32(sin + i);
    return float32x4x2_t{
        {vfmaq_f32(vnegq_f32(vmulq_f32(y, s)), x, c), vfmaq_f32(vmulq_f32(y, c), x, s)}};
  };
  uint32_t i = 0;
  for (; i + 4 <= half; i += 4) {
    if (interleaved) {
      float* at = head + size_t{2} * i;
      const float32x4x2_t v = vld2q_f32(at);
      vst2q_f32(at, rotate(i, v.val[0], v.val[1]));
    } else {
      const float32x4x2_t v = rotate(i, vld1q_f32(head + i), vld1q_f32(head + half + i));
      vst1q_f32(head + i, v.val[0]);
      vst1q_f32(head + half + i, v.val[1]);
    }
  }
  for (; i < half; ++i) {
    float& a = head[interleaved ? size_t{2} * i : i];
    float& b = head[interleaved ? size_t{2} * i + 1 : i + half];
    const float x = a, y = b;
    a = __builtin_fmaf(x, cos[i], -(y * sin[i]));
    b = __builtin_fmaf(x, sin[i], y * cos[i]);
  }
}

uint32_t Argmax(const float* x, size_t n) {
  // The largest value first, then its first place.
  const float top = Largest(x, n);
  const float32x4_t wanted = Set(top);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const float* at = x + i;
    const uint32x4_t low =
        vorrq_u32(vceqq_f32(vld1q_f32(at), wanted), vceqq_f32(vld1q_f32(at + 4), wanted));
    const uint32x4_t high =
        vorrq_u32(vceqq_f32(vld1q_f32(at + 8), wanted), vceqq_f32(vld1q_f32(at + 12), wanted));
    if (vmaxvq_u32(vorrq_u32(low, high)) != 0) break;
  }
  for (; i < n; ++i)
    if (x[i] == top) return static_cast<uint32_t>(i);
  return 0;
}

float ExpSum(const float* x, size_t n, float* max) {
  const float top = Largest(x, n);
  *max = top;
  const float32x4_t shift = Set(top);
  float32x4_t lanes[4];
  QINFER_UNROLL(4)
  for (float32x4_t& lane : lanes) lane = Set(0.0f);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) QINFER_UNROLL(4)
  for (size_t j = 0; j < 4; ++j)
    lanes[j] = vaddq_f32(lanes[j], Exp(vsubq_f32(vld1q_f32(x + i + j * 4), shift)));
  if (i < n) {
    float tail[16] = {};  // lanes past the end add +0
    ExpShift(x + i, top, n - i, tail);
    QINFER_UNROLL(4)
    for (size_t j = 0; j < 4; ++j) lanes[j] = vaddq_f32(lanes[j], vld1q_f32(tail + j * 4));
  }
  return Tree(lanes);
}

void ExpShift(const float* x, float shift, size_t n, float* out) {
  Quads(n, [&](size_t i, size_t count) {
    StoreTail(out + i, Exp(vsubq_f32(LoadTail(x + i, count), Set(shift))), count);
  });
}

bool PanelMaxima(const float* x, size_t n, float* maxima) {
  const float32x4_t lowest = Set(-__builtin_inff()), largest = Set(__FLT_MAX__);
  uint32x4_t good = vdupq_n_u32(UINT32_MAX);
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    float32x4_t top = lowest;
    QINFER_UNROLL(4)
    for (size_t j = 0; j < 16; j += 4) {
      const float32x4_t v = vld1q_f32(x + i + j);
      good = vandq_u32(good, vcleq_f32(vabsq_f32(v), largest));
      top = Larger(v, top);
    }
    maxima[i / 16] = vmaxvq_f32(top);
  }
  const bool finite = vminvq_u32(good) != 0;
  return (i == n || ShortPanelMaximum(x + i, n - i, maxima + i / 16)) && finite;
}

}  // namespace qinfer::kernels::neon
