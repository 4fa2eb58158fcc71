// AVX2 operations on vectors: activation quantization, norms, gates, rope and what sampling needs.
#include "kernels/cpu/avx2/avx2.h"
#include "kernels/cpu/sum_codes.h"

namespace qinfer::kernels::avx2 {

namespace {

// Rounds up to eight values to the nearest even codes.
QINFER_INLINE void StoreCodes(__m256 v, uint32_t count, int8_t* codes) {
  const __m256i q = _mm256_cvtps_epi32(v);
  __m128i b = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
  b = _mm_packs_epi16(b, b);
  if (count >= 8) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes), b);
    return;
  }
  int8_t tail[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(tail), b);
  memcpy(codes, tail, count);
}

}  // namespace

float QuantizeBlock(const float* x, uint32_t count, int8_t* codes) {
  __m256 amax = _mm256_setzero_ps(), bad = _mm256_setzero_ps();
  const __m256 largest = Set(__FLT_MAX__);
  for (uint32_t i = 0; i < count; i += 8) {
    const __m256 a = Abs(LoadTail(x + i, count - i));
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(a, largest, _CMP_NLE_UQ));
    amax = _mm256_max_ps(a, amax);
  }
  const float top = MaxTree(amax);
  if (_mm256_movemask_ps(bad) != 0 || top < 0x1p-110f) {
    memset(codes, 0, count);
    return _mm256_movemask_ps(bad) != 0 ? __builtin_nanf("") : 0.0f;
  }
  const __m256 inverse = Set(127.0f / top);
  for (uint32_t i = 0; i < count; i += 8)
    StoreCodes(_mm256_mul_ps(LoadTail(x + i, count - i), inverse), count - i, codes + i);
  return top / 127.0f;
}

namespace {

// One block at a given scale; returns it, or NaN.
float StaticBlock(const float* x, uint32_t count, float scale, int8_t* codes) {
  __m256 bad = _mm256_setzero_ps();
  const __m256 largest = Set(__FLT_MAX__), inverse = Set(1.0f / scale), top = Set(127.0f);
  for (uint32_t i = 0; i < count; i += 8) {
    const __m256 v = LoadTail(x + i, count - i);
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(Abs(v), largest, _CMP_NLE_UQ));
    const __m256 clamped = _mm256_min_ps(_mm256_mul_ps(v, inverse), top);
    StoreCodes(_mm256_max_ps(clamped, Set(-127.0f)), count - i, codes + i);
  }
  if (_mm256_movemask_ps(bad) == 0) return scale;
  memset(codes, 0, count);
  return __builtin_nanf("");
}

}  // namespace

void Quantize(const float* x, uint32_t cols, uint32_t token, const Activations& out) {
  QuantizeRow(x, cols, token, out, QuantizeBlock, SumCodes);
}

void QuantizeStatic(const float* x, uint32_t cols, uint32_t token, float scale,
                    const Activations& out) {
  const auto block = [scale](const float* values, uint32_t count, int8_t* codes) {
    return StaticBlock(values, count, scale, codes);
  };
  QuantizeRow(x, cols, token, out, block, SumCodes);
}

void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* out) {
  __m256 low = _mm256_setzero_ps(), high = low;
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
    low = _mm256_fmadd_ps(a, a, low);
    high = _mm256_fmadd_ps(b, b, high);
  }
  if (i < n) {
    const __m256 a = LoadTail(x + i, n - i);
    low = _mm256_fmadd_ps(a, a, low);
    if (i + 8 < n) {
      const __m256 b = LoadTail(x + i + 8, n - i - 8);
      high = _mm256_fmadd_ps(b, b, high);
    }
  }
  const float mean = Tree(low, high) / static_cast<float>(n);
  const __m256 r = Set(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
  for (i = 0; i < n; i += 8) {
    __m256 y = _mm256_mul_ps(LoadTail(x + i, n - i), r);
    if (weight != nullptr) y = _mm256_mul_ps(y, LoadTail(weight + i, n - i));
    StoreTail(out + i, y, n - i);
  }
}

void Add(float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; i += 8)
    StoreTail(x + i, _mm256_add_ps(LoadTail(x + i, n - i), LoadTail(y + i, n - i)), n - i);
}

void Scale(float* x, float by, size_t n) {
  for (size_t i = 0; i < n; i += 8)
    StoreTail(x + i, _mm256_mul_ps(LoadTail(x + i, n - i), Set(by)), n - i);
}

void Gated(Activation activation, const float* gate, const float* up, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 8) {
    const __m256 g = LoadTail(gate + i, n - i);
    const __m256 a = activation == Activation::kSilu ? Silu(g) : GeluTanh(g);
    StoreTail(out + i, _mm256_mul_ps(a, LoadTail(up + i, n - i)), n - i);
  }
}

void Softcap(float* x, float cap, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    const __m256 t = Tanh(_mm256_div_ps(LoadTail(x + i, n - i), Set(cap)));
    StoreTail(x + i, _mm256_mul_ps(Set(cap), t), n - i);
  }
}

void Rope(float* head, const float* cos, const float* sin, uint32_t rope_dims, bool interleaved) {
  const uint32_t half = rope_dims / 2;
  for (uint32_t i = 0; i < half; i += 8) {
    const uint32_t n = half - i;
    const __m256 c = LoadTail(cos + i, n), s = LoadTail(sin + i, n);
    __m256 x, y;
    float* at = interleaved ? head + 2 * i : head + i;
    const uint32_t second = n > 4 ? 2 * n - 8 : 0;  // interleaved: floats past the first eight
    if (interleaved) {
      const __m256 a = LoadTail(at, size_t{2} * n);
      const __m256 b = second > 0 ? LoadTail(at + 8, second) : _mm256_setzero_ps();
      const __m256 p = _mm256_permute2f128_ps(a, b, 0x20), q = _mm256_permute2f128_ps(a, b, 0x31);
      x = _mm256_shuffle_ps(p, q, 0x88);  // a0 a2 | b0 b2 pairs of each half, in order below
      y = _mm256_shuffle_ps(p, q, 0xdd);
    } else {
      x = LoadTail(at, n);
      y = LoadTail(at + half, n);
    }
    const __m256 minus_ys = _mm256_xor_ps(_mm256_mul_ps(y, s), Set(-0.0f));
    const __m256 u = _mm256_fmadd_ps(x, c, minus_ys);
    const __m256 v = _mm256_fmadd_ps(x, s, _mm256_mul_ps(y, c));
    if (interleaved) {
      const __m256 p = _mm256_unpacklo_ps(u, v), q = _mm256_unpackhi_ps(u, v);
      StoreTail(at, _mm256_permute2f128_ps(p, q, 0x20), size_t{2} * n);
      if (second > 0) StoreTail(at + 8, _mm256_permute2f128_ps(p, q, 0x31), second);
    } else {
      StoreTail(at, u, n);
      StoreTail(at + half, v, n);
    }
  }
}

uint32_t Argmax(const float* x, size_t n) {
  // The largest value first (NaN never wins), then its first place.
  __m256 best = Set(-__builtin_inff());
  size_t i = 0;
  for (; i + 8 <= n; i += 8) best = _mm256_max_ps(_mm256_loadu_ps(x + i), best);
  float top = MaxTree(best);
  for (size_t j = i; j < n; ++j) top = x[j] > top ? x[j] : top;
  const __m256 wanted = Set(top);
  for (i = 0; i + 8 <= n; i += 8) {
    const int at = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + i), wanted, _CMP_EQ_OQ));
    if (at != 0) return static_cast<uint32_t>(i) + static_cast<uint32_t>(__builtin_ctz(at));
  }
  for (; i < n; ++i)
    if (x[i] == top) return static_cast<uint32_t>(i);
  return 0;
}

float ExpSum(const float* x, size_t n, float* max) {
  __m256 best = Set(-__builtin_inff());
  size_t i = 0;
  for (; i + 8 <= n; i += 8) best = _mm256_max_ps(_mm256_loadu_ps(x + i), best);
  float top = MaxTree(best);
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  *max = top;
  __m256 low = _mm256_setzero_ps(), high = low;
  const __m256 shift = Set(top);
  for (i = 0; i < n; i += 16) {
    const __m256 a = Exp(_mm256_sub_ps(LoadTail(x + i, n - i), shift));
    low = _mm256_add_ps(low, _mm256_and_ps(a, _mm256_castsi256_ps(TailMask(n - i))));
    if (n - i <= 8) break;
    const __m256 b = Exp(_mm256_sub_ps(LoadTail(x + i + 8, n - i - 8), shift));
    high = _mm256_add_ps(high, _mm256_and_ps(b, _mm256_castsi256_ps(TailMask(n - i - 8))));
  }
  return Tree(low, high);
}

void ExpShift(const float* x, float shift, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 8)
    StoreTail(out + i, Exp(_mm256_sub_ps(LoadTail(x + i, n - i), Set(shift))), n - i);
}

bool PanelMaxima(const float* x, size_t n, float* maxima) {
  const __m256 lowest = Set(-__builtin_inff()), largest = Set(__FLT_MAX__);
  __m256 bad = _mm256_setzero_ps();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(Abs(a), largest, _CMP_NLE_UQ));
    bad = _mm256_or_ps(bad, _mm256_cmp_ps(Abs(b), largest, _CMP_NLE_UQ));
    // Of a NaN and a number the maximum is its second operand.
    maxima[i / 16] = MaxTree(_mm256_max_ps(b, _mm256_max_ps(a, lowest)));
  }
  const bool finite = _mm256_movemask_ps(bad) == 0;
  return (i == n || ShortPanelMaximum(x + i, n - i, maxima + i / 16)) && finite;
}

}  // namespace qinfer::kernels::avx2
