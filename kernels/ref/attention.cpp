// Reference attention and KV planes: a left fold over absolute blocks of 64 keys, one query head at
// a time.
#include <algorithm>
#include <limits>

#include "kernels/layout.h"
#include "kernels/ref/math.h"
#include "kernels/ref/ref.h"
#include "src/core/half.h"

namespace qinfer::kernels::ref {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000;

template <typename T>
void Store(uint8_t* plane, size_t index, T value) {
  std::memcpy(plane + index * sizeof(T), &value, sizeof(T));
}
template <typename T>
T Load(const uint8_t* plane, size_t index) {
  T value;
  std::memcpy(&value, plane + index * sizeof(T), sizeof(T));
  return value;
}

void Write(uint8_t* plane, KvType type, uint32_t slot, const float* x, uint32_t head_dim,
           bool is_key) {
  const auto at = [&](uint32_t i) -> size_t {
    return is_key ? size_t{i} * kPageTokens + slot : size_t{slot} * head_dim + i;
  };
  if (type == KvType::kF32) {
    for (uint32_t i = 0; i < head_dim; ++i) Store(plane, at(i), x[i]);
    return;
  }
  if (type == KvType::kF16) {
    for (uint32_t i = 0; i < head_dim; ++i) Store(plane, at(i), FloatToHalf(x[i]));
    return;
  }
  const size_t padded = is_key ? layout::CeilDiv(head_dim, 4) * 4 : layout::VCodeStride(head_dim);
  uint8_t* scales = plane + (is_key ? layout::KCodeBytes(head_dim) : layout::VCodeBytes(head_dim));
  const auto code_at = [&](size_t i) {
    return is_key ? i / 4 * 64 + slot * 4 + i % 4 : slot * layout::VCodeStride(head_dim) + i;
  };
  for (uint32_t i = 0; i < head_dim; i += layout::kKvGroup) {
    int8_t codes[layout::kKvGroup];
    const uint32_t count = std::min(layout::kKvGroup, head_dim - i);
    Store(scales, i / layout::kKvGroup * kPageTokens + slot, QuantizeBlock(x + i, count, codes));
    for (uint32_t j = 0; j < count; ++j) plane[code_at(i + j)] = static_cast<uint8_t>(codes[j]);
  }
  for (size_t i = head_dim; i < padded; ++i) plane[code_at(i)] = 0;
}

struct Query {
  const float* q;
  const int8_t* codes;  // INT8 keys
  const float* scales;
};

float Score(const AttentionArgs& args, const uint8_t* plane, uint32_t slot, const Query& query) {
  float s = 0.0f;
  if (args.k_type != KvType::kInt8) {
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      const size_t at = size_t{d} * kPageTokens + slot;
      const float k = args.k_type == KvType::kF32 ? Load<float>(plane, at)
                                                  : HalfToFloat(Load<uint16_t>(plane, at));
      s = __builtin_fmaf(query.q[d], k, s);
    }
  } else {
    const uint8_t* scales = plane + layout::KCodeBytes(args.head_dim);
    for (uint32_t g = 0; g * layout::kKvGroup < args.head_dim; ++g) {
      const uint32_t end = std::min(args.head_dim, (g + 1) * layout::kKvGroup);
      int32_t dot = 0;
      for (uint32_t d = g * layout::kKvGroup; d < end; ++d)
        dot += query.codes[d] * static_cast<int8_t>(plane[d / 4 * 64 + slot * 4 + d % 4]);
      s = __builtin_fmaf(static_cast<float>(dot),
                         query.scales[g] * Load<float>(scales, g * kPageTokens + slot), s);
    }
  }
  s *= args.scale;
  return args.softcap == 0.0f ? s : args.softcap * math::Tanh(s / args.softcap);
}

// A value as float types hold it; values may be the beginnings of keys.
void AddValue(const AttentionArgs& args, const uint8_t* page, uint32_t slot, float p, float* o) {
  const uint8_t* plane = page + (args.latent ? args.k_offset : args.v_offset);
  for (uint32_t d = 0; d < args.v_head_dim; ++d) {
    const size_t at =
        args.latent ? size_t{d} * kPageTokens + slot : size_t{slot} * args.v_head_dim + d;
    const float v = args.v_type == KvType::kF32 ? Load<float>(plane, at)
                                                : HalfToFloat(Load<uint16_t>(plane, at));
    o[d] = __builtin_fmaf(p, v, o[d]);
  }
}

// INT8: weights become codes of 8 bits without a sign; returns their scale.
float QuantizeWeights(const float* w, uint32_t count, uint8_t* codes) {
  uint32_t top = 0;  // as integers weights have the same order, and what is no weight lies above
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, w + i, 4);
    top = std::max(top, bits);
  }
  float largest;
  std::memcpy(&largest, &top, 4);
  if (top >= kInfinityBits || largest < 0x1p-110f) {
    std::fill(codes, codes + count, uint8_t{0});
    return top >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const float inverse = 255.0f / largest;
  for (uint32_t i = 0; i < count; ++i)
    codes[i] = static_cast<uint8_t>((w[i] * inverse + math::kRoundMagic) - math::kRoundMagic);
  return largest * (1.0f / 255.0f);
}

// Group g of the values of `count` keys from `key` on, which lie in one block, with probabilities
// p.
void AddInt8(const AttentionArgs& args, uint32_t g, uint32_t key, uint32_t count, const float* p,
             float* o) {
  const auto plane = [&](uint32_t i) {
    return args.pages[(key + i) / kPageTokens - args.first_page] +
           (args.latent ? args.k_offset : args.v_offset);
  };
  const size_t scales =
      args.latent ? layout::KCodeBytes(args.head_dim) : layout::VCodeBytes(args.v_head_dim);
  float w[kAttentionBlock];
  uint8_t codes[kAttentionBlock];
  for (uint32_t i = 0; i < count; ++i)
    w[i] = p[i] * Load<float>(plane(i) + scales, g * kPageTokens + (key + i) % kPageTokens);
  const float scale = QuantizeWeights(w, count, codes);
  const uint32_t end = std::min(args.v_head_dim, (g + 1) * layout::kKvGroup);
  for (uint32_t d = g * layout::kKvGroup; d < end; ++d) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t slot = (key + i) % kPageTokens;
      const size_t at = args.latent ? d / 4 * 64 + slot * 4 + d % 4
                                    : slot * layout::VCodeStride(args.v_head_dim) + d;
      sum += codes[i] * static_cast<int8_t>(plane(i)[at]);
    }
    o[d] = __builtin_fmaf(static_cast<float>(sum), scale, o[d]);
  }
}

// One row's fold over keys [first, last] of one span: o, then m and l.
struct State {
  float* o;
  float m, l;
};

void FoldSpan(const AttentionArgs& args, const Query& query, uint32_t first, uint32_t last,
              State* state) {
  const auto page = [&](uint32_t key) { return args.pages[key / kPageTokens - args.first_page]; };
  float* o = state->o;
  for (uint32_t base = first / kAttentionBlock * kAttentionBlock; base <= last;
       base += kAttentionBlock) {
    const uint32_t begin = std::max(base, first);
    const uint32_t end = std::min(base + kAttentionBlock, last + 1);
    float s[kAttentionBlock], top = state->m, lanes[16] = {};
    for (uint32_t key = begin; key < end; ++key) {
      s[key - base] = Score(args, page(key) + args.k_offset, key % kPageTokens, query);
      top = s[key - base] > top ? s[key - base] : top;
    }
    const float a = math::Exp(state->m - top);
    for (uint32_t key = begin; key < end; ++key) {
      s[key - base] = math::Exp(s[key - base] - top);
      lanes[key % 16] += s[key - base];
    }
    state->m = top;
    state->l = __builtin_fmaf(state->l, a, Tree(lanes));
    for (uint32_t d = 0; d < args.v_head_dim; ++d) o[d] *= a;
    if (args.v_type == KvType::kInt8) {
      for (uint32_t g = 0; g * layout::kKvGroup < args.v_head_dim; ++g)
        AddInt8(args, g, begin, end - begin, s + (begin - base), o);
    } else {
      for (uint32_t key = begin; key < end; ++key)
        AddValue(args, page(key), key % kPageTokens, s[key - base], o);
    }
  }
}

void Merge(const State& next, uint32_t n, State* all) {
  const float top = next.m > all->m ? next.m : all->m;
  const float a = math::Exp(all->m - top), b = math::Exp(next.m - top);
  all->m = top;
  all->l = all->l * a + next.l * b;
  for (uint32_t d = 0; d < n; ++d) all->o[d] = all->o[d] * a + next.o[d] * b;
}

float* OutOf(const AttentionArgs& args, uint32_t row) {
  return args.out + row / args.group_heads * args.out_stride +
         row % args.group_heads * size_t{args.v_head_dim};
}

float* StateOf(const AttentionArgs& args, uint32_t span, uint32_t row) {
  const size_t rows = size_t{args.tokens} * args.group_heads;
  return args.states + ((span - args.FirstKey(0) / kAttentionSpan) * rows + row) *
                           AttentionStateStride(args.v_head_dim);
}

}  // namespace

void WriteK(uint8_t* plane, KvType type, uint32_t slot, const float* k, uint32_t head_dim) {
  Write(plane, type, slot, k, head_dim, true);
}

void WriteV(uint8_t* plane, KvType type, uint32_t slot, const float* v, uint32_t head_dim) {
  Write(plane, type, slot, v, head_dim, false);
}

void Attention(const AttentionArgs& args) {
  float* next = static_cast<float*>(args.scratch);
  float* q_scales = next + args.v_head_dim;
  int8_t* q_codes =
      reinterpret_cast<int8_t*>(q_scales + layout::CeilDiv(args.head_dim, layout::kKvGroup));
  for (uint32_t row = 0; row < args.tokens * args.group_heads; ++row) {
    const uint32_t token = row / args.group_heads, head = row % args.group_heads;
    const uint32_t position = args.first_position + token, first = args.FirstKey(token);
    const Query query = {args.q + token * args.q_stride + head * args.head_dim, q_codes, q_scales};
    if (args.k_type == KvType::kInt8)
      for (uint32_t i = 0; i < args.head_dim; i += layout::kKvGroup)
        q_scales[i / layout::kKvGroup] =
            QuantizeBlock(query.q + i, std::min(layout::kKvGroup, args.head_dim - i), q_codes + i);
    const uint32_t first_span = first / kAttentionSpan, last_span = position / kAttentionSpan;
    State all = {OutOf(args, row), 0.0f, 0.0f};
    for (uint32_t span = first_span; span <= last_span; ++span) {
      if (args.span != kAllSpans && args.span != span) continue;
      const bool sinks = span == first_span && args.sinks != nullptr;
      State state = {next, sinks ? args.sinks[head] : -std::numeric_limits<float>::infinity(),
                     sinks ? 1.0f : 0.0f};
      std::fill(next, next + args.v_head_dim, 0.0f);
      FoldSpan(args, query, std::max(first, span * kAttentionSpan),
               std::min(position, (span + 1) * kAttentionSpan - 1), &state);
      if (args.span != kAllSpans) {
        float* to = StateOf(args, span, row);
        std::copy(next, next + args.v_head_dim, to);
        float* sums = to + AttentionSumsAt(args.v_head_dim);
        sums[0] = state.m;
        sums[1] = state.l;
      } else if (span == first_span) {
        std::copy(next, next + args.v_head_dim, all.o);
        all.m = state.m;
        all.l = state.l;
      } else {
        Merge(state, args.v_head_dim, &all);
      }
    }
    if (args.span != kAllSpans) continue;
    const float inverse = 1.0f / all.l;
    for (uint32_t d = 0; d < args.v_head_dim; ++d) all.o[d] *= inverse;
  }
}

}  // namespace qinfer::kernels::ref

namespace qinfer::kernels {

void MergeAttention(const AttentionArgs& args) {
  for (uint32_t row = 0; row < args.tokens * args.group_heads; ++row) {
    const uint32_t token = row / args.group_heads;
    const uint32_t first = args.FirstKey(token) / kAttentionSpan;
    const uint32_t last = (args.first_position + token) / kAttentionSpan;
    ref::State all = {};
    for (uint32_t span = first; span <= last; ++span) {
      float* o = ref::StateOf(args, span, row);
      const float* sums = o + AttentionSumsAt(args.v_head_dim);
      const ref::State state = {o, sums[0], sums[1]};
      if (span == first)
        all = state;
      else
        ref::Merge(state, args.v_head_dim, &all);
    }
    const float inverse = 1.0f / all.l;
    float* out = ref::OutOf(args, row);
    for (uint32_t d = 0; d < args.v_head_dim; ++d) out[d] = all.o[d] * inverse;
  }
}

}  // namespace qinfer::kernels
