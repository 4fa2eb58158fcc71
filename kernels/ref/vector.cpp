// Reference versions of the operations on vectors: activation quantization, norms, gates, rope and
// what sampling needs.
#include <algorithm>
#include <limits>

#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"

namespace qinfer::kernels::ref {

float QuantizeBlock(const float* x, uint32_t count, int8_t* codes) {
  float amax = 0.0f;
  bool finite = true;
  for (uint32_t i = 0; i < count; ++i) {
    const float a = x[i] < 0.0f ? -x[i] : x[i];
    finite = finite && a <= std::numeric_limits<float>::max();  // false for NaN too
    amax = a > amax ? a : amax;
  }
  if (!finite || amax < 0x1p-110f) {
    std::fill(codes, codes + count, int8_t{0});
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = 127.0f / amax;
  for (uint32_t i = 0; i < count; ++i)
    codes[i] = static_cast<int8_t>((x[i] * inverse + math::kRoundMagic) - math::kRoundMagic);
  return amax / 127.0f;
}

namespace {

// Blocks by `block(x, count, codes)`, which returns the scale; then padding and sums.
template <typename F>
void QuantizeRow(const float* x, uint32_t cols, uint32_t token, const Activations& out, F&& block) {
  const uint32_t padded = (cols + kInputGranule - 1) / kInputGranule * kInputGranule;
  int8_t* codes = out.codes + token * out.code_stride;
  for (uint32_t k = 0; k < padded; k += out.block) {
    const uint32_t count = k < cols ? std::min(out.block, cols - k) : 0;
    out.scales[token * out.scale_stride + k / out.block] = block(x + k, count, codes + k);
  }
  std::fill(codes + cols, codes + padded, int8_t{0});
  for (uint32_t k = 0; k < padded; k += 16) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < 16; ++i) sum += codes[k + i];
    out.sums[token * out.sum_stride + k / 16] = sum;
  }
}

}  // namespace

void Quantize(const float* x, uint32_t cols, uint32_t token, const Activations& out) {
  QuantizeRow(x, cols, token, out, QuantizeBlock);
}

void QuantizeStatic(const float* x, uint32_t cols, uint32_t token, float scale,
                    const Activations& out) {
  const float inverse = 1.0f / scale;
  QuantizeRow(x, cols, token, out, [&](const float* values, uint32_t count, int8_t* codes) {
    for (uint32_t i = 0; i < count; ++i) {
      const float a = values[i] < 0.0f ? -values[i] : values[i];
      if (a <= std::numeric_limits<float>::max()) continue;
      std::fill(codes, codes + count, int8_t{0});
      return std::numeric_limits<float>::quiet_NaN();
    }
    for (uint32_t i = 0; i < count; ++i) {
      const float v = std::max(-127.0f, std::min(127.0f, values[i] * inverse));
      codes[i] = static_cast<int8_t>((v + math::kRoundMagic) - math::kRoundMagic);
    }
    return scale;
  });
}

void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* out) {
  float lanes[16] = {};
  for (uint32_t i = 0; i < n; ++i) lanes[i % 16] = __builtin_fmaf(x[i], x[i], lanes[i % 16]);
  const float mean = Tree(lanes) / static_cast<float>(n);
  const float r = 1.0f / std::sqrt(mean + eps);
  for (uint32_t i = 0; i < n; ++i) {
    const float y = x[i] * r;
    out[i] = weight == nullptr ? y : y * weight[i];
  }
}

void Add(float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] += y[i];
}

void Scale(float* x, float by, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] *= by;
}

void Gated(Activation activation, const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) {
    const float a = activation == Activation::kSilu ? math::Silu(gate[i]) : math::GeluTanh(gate[i]);
    out[i] = a * up[i];
  }
}

void Softcap(float* x, float cap, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = cap * math::Tanh(x[i] / cap);
}

void Rope(float* head, const float* cos, const float* sin, uint32_t rope_dims, bool interleaved) {
  const uint32_t half = rope_dims / 2;
  for (uint32_t i = 0; i < half; ++i) {
    float& a = head[interleaved ? 2 * i : i];
    float& b = head[interleaved ? 2 * i + 1 : i + half];
    const float x = a, y = b;
    a = __builtin_fmaf(x, cos[i], -(y * sin[i]));
    b = __builtin_fmaf(x, sin[i], y * cos[i]);
  }
}

uint32_t Argmax(const float* x, size_t n) {
  uint32_t best = 0;
  float value = -std::numeric_limits<float>::infinity();
  bool found = false;
  for (size_t i = 0; i < n; ++i) {
    if (x[i] > value || (!found && x[i] == value)) {
      value = x[i];
      best = static_cast<uint32_t>(i);
      found = true;
    }
  }
  return best;
}

float ExpSum(const float* x, size_t n, float* max) {
  float top = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  *max = top;
  float lanes[16] = {};
  for (size_t i = 0; i < n; ++i) lanes[i % 16] += math::Exp(x[i] - top);
  return Tree(lanes);
}

void ExpShift(const float* x, float shift, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = math::Exp(x[i] - shift);
}

bool PanelMaxima(const float* x, size_t n, float* maxima) {
  bool finite = true;
  for (size_t i = 0; i < n; i += kPanelRows) {
    float top = -std::numeric_limits<float>::infinity();
    for (size_t j = i; j < n && j < i + kPanelRows; ++j) {
      finite = finite && std::isfinite(x[j]);
      top = x[j] > top ? x[j] : top;
    }
    maxima[i / kPanelRows] = top;
  }
  return finite;
}

}  // namespace qinfer::kernels::ref
