// AVX-512 operations on vectors: norms, gates, rope and what sampling needs.
#include "kernels/cpu/avx512/avx512.h"

namespace qinfer::kernels::avx512 {

void RmsNorm(const float* x, const float* weight, uint32_t n, float eps, float* out) {
  __m512 sum = _mm512_setzero_ps();
  for (uint32_t i = 0; i < n; i += 16) {
    const __m512 a = LoadTail(x + i, n - i);
    sum = _mm512_fmadd_ps(a, a, sum);
  }
  const float mean = Tree(sum) / static_cast<float>(n);
  const __m512 r = Set(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps))));
  for (uint32_t i = 0; i < n; i += 16) {
    __m512 y = _mm512_mul_ps(LoadTail(x + i, n - i), r);
    if (weight != nullptr) y = _mm512_mul_ps(y, LoadTail(weight + i, n - i));
    StoreTail(out + i, y, n - i);
  }
}

void Add(float* x, const float* y, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    StoreTail(x + i, _mm512_add_ps(LoadTail(x + i, n - i), LoadTail(y + i, n - i)), n - i);
}

void Scale(float* x, float by, size_t n) {
  for (size_t i = 0; i < n; i += 16)
    StoreTail(x + i, _mm512_mul_ps(LoadTail(x + i, n - i), Set(by)), n - i);
}

namespace {

template <typename F>
QINFER_FN void GatedBy(const float* gate, const float* up, size_t n, float* out, F&& activation) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(out + i,
                     _mm512_mul_ps(activation(_mm512_loadu_ps(gate + i)), _mm512_loadu_ps(up + i)));
  if (i < n)
    StoreTail(out + i,
              _mm512_mul_ps(activation(LoadTail(gate + i, n - i)), LoadTail(up + i, n - i)), n - i);
}

}  // namespace

void Gated(Activation activation, const float* gate, const float* up, size_t n, float* out) {
  if (activation == Activation::kSilu)
    GatedBy(gate, up, n, out, [](__m512 x) QINFER_LAMBDA { return Silu(x); });
  else
    GatedBy(gate, up, n, out, [](__m512 x) QINFER_LAMBDA { return GeluTanh(x); });
}

void Softcap(float* x, float cap, size_t n) {
  for (size_t i = 0; i < n; i += 16) {
    const __m512 t = Tanh(_mm512_div_ps(LoadTail(x + i, n - i), Set(cap)));
    StoreTail(x + i, _mm512_mul_ps(Set(cap), t), n - i);
  }
}

namespace {

// The even and the odd ones of 2n neighbours, and back.
QINFER_FN void LoadPairs(const float* from, uint32_t n, __m512* even, __m512* odd) {
  const __m512 low = LoadTail(from, 2 * n),
               high = LoadTail(from + Min(16, 2 * n), 2 * n - Min(16, 2 * n));
  const __m512i evens =
      _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  *even = _mm512_permutex2var_ps(low, evens, high);
  *odd = _mm512_permutex2var_ps(low, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), high);
}
QINFER_FN void StorePairs(float* to, uint32_t n, __m512 even, __m512 odd) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  const uint32_t first = Min(16, 2 * n);
  StoreTail(to, _mm512_permutex2var_ps(even, low, odd), first);
  StoreTail(to + first, _mm512_permutex2var_ps(even, high, odd), 2 * n - first);
}

}  // namespace

void Rope(float* head, const float* cos, const float* sin, uint32_t rope_dims, bool interleaved) {
  const uint32_t half = rope_dims / 2;
  for (uint32_t i = 0; i < half; i += 16) {
    const uint32_t n = Min(16, half - i);
    const __m512 c = LoadTail(cos + i, n), s = LoadTail(sin + i, n);
    __m512 x, y;
    if (interleaved) {
      LoadPairs(head + size_t{2} * i, n, &x, &y);
    } else {
      x = LoadTail(head + i, n);
      y = LoadTail(head + half + i, n);
    }
    const __m512 u = _mm512_fmadd_ps(x, c, Flip(_mm512_mul_ps(y, s)));
    const __m512 v = _mm512_fmadd_ps(x, s, _mm512_mul_ps(y, c));
    if (interleaved) {
      StorePairs(head + size_t{2} * i, n, u, v);
    } else {
      StoreTail(head + i, u, n);
      StoreTail(head + half + i, v, n);
    }
  }
}

namespace {

// The largest value; NaN never wins.
float Largest(const float* x, size_t n) {
  __m512 best = Set(-__builtin_inff());
  for (size_t i = 0; i < n; i += 16) {
    const __m512 v = LoadTail(x + i, n - i);
    const __mmask16 more = _mm512_cmp_ps_mask(v, best, _CMP_GT_OQ) & TailMask(n - i);
    best = _mm512_mask_mov_ps(best, more, v);
  }
  return MaxTree(best);
}

}  // namespace

uint32_t Argmax(const float* x, size_t n) {
  const __m512 wanted = Set(Largest(x, n));
  for (size_t i = 0; i < n; i += 16) {
    const uint32_t at = static_cast<uint32_t>(
        _mm512_cmp_ps_mask(LoadTail(x + i, n - i), wanted, _CMP_EQ_OQ) & TailMask(n - i));
    if (at != 0) return static_cast<uint32_t>(i) + static_cast<uint32_t>(__builtin_ctz(at));
  }
  return 0;
}

float ExpSum(const float* x, size_t n, float* max) {
  const float top = Largest(x, n);
  *max = top;
  __m512 sum = _mm512_setzero_ps();
  for (size_t i = 0; i < n; i += 16) {
    const __m512 p = Exp(_mm512_sub_ps(LoadTail(x + i, n - i), Set(top)));
    sum = _mm512_add_ps(sum, _mm512_maskz_mov_ps(TailMask(n - i), p));
  }
  return Tree(sum);
}

void ExpShift(const float* x, float shift, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 16)
    StoreTail(out + i, Exp(_mm512_sub_ps(LoadTail(x + i, n - i), Set(shift))), n - i);
}

bool PanelMaxima(const float* x, size_t n, float* maxima) {
  const __m512 lowest = Set(-__builtin_inff()), largest = Set(__FLT_MAX__);
  uint32_t bad = 0;
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 tail = TailMask(n - i);
    const __m512 v = _mm512_maskz_loadu_ps(tail, x + i);
    bad |= _mm512_cmp_ps_mask(Abs(v), largest, _CMP_NLE_UQ);
    // Of a NaN and a number the maximum is its second operand.
    maxima[i / 16] = MaxTree(_mm512_mask_max_ps(lowest, tail, v, lowest));
  }
  return bad == 0;
}

}  // namespace qinfer::kernels::avx512
