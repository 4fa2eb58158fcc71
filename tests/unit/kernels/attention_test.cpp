// Attention over pages: the reference against a plain softmax in double, decode against prefill,
// and every table against the reference bit for bit.
#include <cmath>
#include <limits>

#include "testing.h"

namespace qinfer::kernels {
namespace {

const Table& Ref() { return *SelectTable(Isa::kRef); }

struct Case {
  uint32_t head_dim = 64, v_head_dim = 64, group_heads = 3, length = 150, window = 0;
  KvType k_type = KvType::kF16, v_type = KvType::kF16;
  float softcap = 0.0f;
  bool sinks = false;
  bool latent = false;  // values are the beginnings of the keys
};

// A sequence with its pages; K and V as floats besides.
struct Cache {
  Case c;
  std::vector<float> k, v, q, sinks;
  std::vector<Bytes> storage;
  std::vector<const uint8_t*> pages;
  size_t v_offset;

  Cache(const Case& c_in, const Table& writer, Rng& rng)
      : c(c_in),
        k(Normals(rng, size_t{c.length} * c.head_dim)),
        v(Normals(rng, size_t{c.length} * c.v_head_dim)),
        q(Normals(rng, size_t{c.length} * c.group_heads * c.head_dim)),
        sinks(Normals(rng, c.group_heads)) {
    if (c.latent) {
      c.v_type = c.k_type;
      for (uint32_t t = 0; t < c.length; ++t)
        for (uint32_t d = 0; d < c.v_head_dim; ++d)
          v[size_t{t} * c.v_head_dim + d] = k[size_t{t} * c.head_dim + d];
    }
    v_offset = 64 + KPlaneBytes(c.k_type, c.head_dim);
    for (uint32_t t = 0; t < c.length; ++t) {
      if (t % kPageTokens == 0) {
        storage.emplace_back(v_offset + VPlaneBytes(c.v_type, c.v_head_dim));
        pages.push_back(storage.back().data());
      }
      uint8_t* page = storage.back().data();
      writer.write_k(page + 64, c.k_type, t % 16, k.data() + size_t{t} * c.head_dim, c.head_dim);
      writer.write_v(page + v_offset, c.v_type, t % 16, v.data() + size_t{t} * c.v_head_dim,
                     c.v_head_dim);
    }
  }

  // `apart`: each span of keys in a call of its own, the last one first.
  std::vector<float> Run(const Table& table, uint32_t first, uint32_t tokens,
                         bool apart = false) const {
    AttentionArgs args;
    args.q = q.data() + size_t{first} * c.group_heads * c.head_dim;
    args.q_stride = size_t{c.group_heads} * c.head_dim;
    args.out_stride = size_t{c.group_heads} * c.v_head_dim;
    std::vector<float> out(tokens * args.out_stride + 1, -3.0f);
    args.out = out.data();
    args.tokens = tokens;
    args.first_position = first;
    args.group_heads = c.group_heads;
    args.head_dim = c.head_dim;
    args.v_head_dim = c.v_head_dim;
    // As if pages outside the first query's window had been recycled.
    args.first_page = c.window != 0 && first >= c.window ? (first - c.window + 1) / kPageTokens : 0;
    args.pages = pages.data() + args.first_page;
    args.k_offset = 64;
    args.v_offset = v_offset;
    args.k_type = c.k_type;
    args.v_type = c.v_type;
    args.window = c.window;
    args.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    args.softcap = c.softcap;
    args.sinks = c.sinks ? sinks.data() : nullptr;
    args.latent = c.latent;
    Bytes scratch(AttentionScratchBytes(c.group_heads, c.head_dim, c.v_head_dim, tokens));
    args.scratch = scratch.data();
    if (apart) {
      const uint32_t begin = args.FirstKey(0) / kAttentionSpan;
      const uint32_t end = (first + tokens - 1) / kAttentionSpan + 1;
      std::vector<float> states(size_t{end - begin} * tokens * c.group_heads *
                                AttentionStateStride(c.v_head_dim));
      args.states = states.data();
      for (args.span = end; args.span-- > begin;) table.attention(args);
      MergeAttention(args);
    } else {
      table.attention(args);
    }
    EXPECT_EQ(out.back(), -3.0f);
    out.pop_back();
    return out;
  }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const KvType k : {KvType::kF32, KvType::kF16, KvType::kInt8})
    for (const KvType v : {KvType::kF32, KvType::kF16, KvType::kInt8}) {
      Case c;
      c.k_type = k;
      c.v_type = v;
      cases.push_back(c);
      c.window = 37;
      c.sinks = true;
      cases.push_back(c);
      c.window = 64;
      c.softcap = 5.0f;
      c.head_dim = 80;
      c.v_head_dim = 72;
      c.group_heads = 1;
      cases.push_back(c);
      c.window = 0;
      c.head_dim = 17;
      c.v_head_dim = 5;
      c.group_heads = 5;
      c.sinks = false;
      cases.push_back(c);
      c.head_dim = 256;
      c.v_head_dim = 128;
      c.group_heads = 4;
      c.softcap = 0.0f;
      c.window = 130;
      cases.push_back(c);
      c.length = 3;
      cases.push_back(c);
    }
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kInt8}) {
    Case c;
    c.latent = true;
    c.k_type = c.v_type = type;
    c.group_heads = 6;
    c.head_dim = 192;
    c.v_head_dim = 128;
    cases.push_back(c);
    c.head_dim = 53;
    c.v_head_dim = 39;
    c.window = 70;
    cases.push_back(c);
  }
  return cases;
}

TEST(AttentionReference, IsCloseToDouble) {
  Rng rng(21);
  std::vector<Case> cases = Cases();
  for (Case& c : cases) c.length = std::min(c.length, 100u);
  for (const uint32_t window : {0u, 1500u}) {  // several spans
    Case c;
    c.length = 2060;
    c.sinks = true;
    c.window = window;
    cases.push_back(c);
  }
  for (const Case& c : cases) {
    const Cache cache(c, Ref(), rng);
    const uint32_t from = c.length > 100 ? c.length - 20 : 0;
    const std::vector<float> out = cache.Run(Ref(), from, c.length - from);
    const double tolerance = c.k_type == KvType::kInt8 || c.v_type == KvType::kInt8 ? 0.08 : 4e-3;
    for (uint32_t t = from; t < c.length; t += 7)
      for (uint32_t h = 0; h < c.group_heads; ++h) {
        std::vector<double> s;
        const uint32_t first = c.window != 0 && t >= c.window ? t - c.window + 1 : 0;
        double max = c.sinks ? cache.sinks[h] : -1e300, sum = 0;
        for (uint32_t key = first; key <= t; ++key) {
          double dot = 0;
          for (uint32_t d = 0; d < c.head_dim; ++d)
            dot += double{cache.q[(t * c.group_heads + h) * c.head_dim + d]} *
                   cache.k[key * c.head_dim + d];
          dot /= std::sqrt(static_cast<double>(c.head_dim));
          if (c.softcap != 0) dot = c.softcap * std::tanh(dot / c.softcap);
          s.push_back(dot);
          max = std::max(max, dot);
        }
        for (double& v : s) sum += v = std::exp(v - max);
        if (c.sinks) sum += std::exp(cache.sinks[h] - max);
        for (uint32_t d = 0; d < c.v_head_dim; ++d) {
          double o = 0;
          for (uint32_t key = first; key <= t; ++key)
            o += s[key - first] / sum * cache.v[key * c.v_head_dim + d];
          EXPECT_NEAR(out[((t - from) * c.group_heads + h) * c.v_head_dim + d], o, tolerance);
        }
      }
  }
}

TEST(Attention, PlanesHoldTheSameBytes) {
  for (const Table* table : TablesUnderTest()) {
    Rng rng(22);
    for (const Case& c : Cases()) {
      Rng first = rng, second = rng;
      const Cache a(c, Ref(), first), b(c, *table, second);
      rng = first;
      for (size_t p = 0; p < a.pages.size(); ++p)
        EXPECT_EQ(std::memcmp(a.pages[p] + 64, b.pages[p] + 64,
                              a.v_offset - 64 + VPlaneBytes(c.v_type, c.v_head_dim)),
                  0)
            << table->name;
    }
  }
}

TEST(Attention, EveryTableGivesTheSameBitsInPrefillAndDecode) {
  Rng rng(23);
  for (const Case& c : Cases()) {
    const Cache cache(c, Ref(), rng);
    const std::vector<float> whole = cache.Run(Ref(), 0, c.length);
    const size_t stride = size_t{c.group_heads} * c.v_head_dim;
    std::vector<const Table*> tables = TablesUnderTest();
    tables.push_back(&Ref());
    for (const Table* table : tables) {
      for (uint32_t first = 0; first < c.length;) {  // chunks of odd sizes
        const uint32_t tokens = std::min(c.length - first, 1 + first % 23 * 2);
        const std::vector<float> part = cache.Run(*table, first, tokens);
        ASSERT_TRUE(SameBits(whole.data() + first * stride, part.data(), part.size()))
            << table->name << " " << first << " k" << static_cast<int>(c.k_type) << " v"
            << static_cast<int>(c.v_type) << " dims " << c.head_dim << " " << c.v_head_dim;
        first += tokens;
      }
      const std::vector<float> all = cache.Run(*table, 0, c.length);
      ASSERT_TRUE(SameBits(whole.data(), all.data(), all.size())) << table->name;
      for (uint32_t t = c.length > 70 ? c.length - 70 : 0; t < c.length; ++t) {
        const std::vector<float> one = cache.Run(*table, t, 1);
        ASSERT_TRUE(SameBits(whole.data() + t * stride, one.data(), stride)) << table->name;
      }
    }
  }
}

// Around the begins of spans, of which a window may hide the first, or all but the last.
TEST(Attention, SpansTogetherAndApart) {
  Rng rng(26);
  std::vector<const Table*> tables = TablesUnderTest();
  tables.push_back(&Ref());
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kInt8})
    for (const uint32_t window : {0u, 1030u, 100u})
      for (const bool latent : {false, true}) {
        Case c;
        c.length = 2100;
        c.k_type = c.v_type = type;
        c.window = window;
        c.latent = latent;
        c.sinks = !latent;
        c.v_head_dim = latent ? 40 : 64;
        c.group_heads = 2;
        const Cache cache(c, Ref(), rng);
        for (const uint32_t first : {1015u, 2040u}) {
          const uint32_t tokens = 21;
          const std::vector<float> whole = cache.Run(Ref(), first, tokens);
          const size_t stride = size_t{c.group_heads} * c.v_head_dim;
          for (const Table* table : tables) {
            for (const bool apart : {false, true}) {
              const std::vector<float> all = cache.Run(*table, first, tokens, apart);
              ASSERT_TRUE(SameBits(whole.data(), all.data(), all.size()))
                  << table->name << " " << first << " window " << window << " apart " << apart;
              for (uint32_t t = 0; t < tokens; t += 4) {
                const std::vector<float> one = cache.Run(*table, first + t, 1, apart);
                ASSERT_TRUE(SameBits(whole.data() + t * stride, one.data(), stride))
                    << table->name << " " << first + t << " window " << window << " apart "
                    << apart;
              }
            }
          }
        }
      }
}

// Nothing, next to nothing, and no number among INT8 values; what lies in free slots has no effect.
TEST(Attention, Int8ValuesOfEverySize) {
  std::vector<const Table*> tables = TablesUnderTest();
  tables.push_back(&Ref());
  for (const uint32_t window : {0u, 50u, 128u}) {
    Case c;
    c.k_type = c.v_type = KvType::kInt8;
    c.v_head_dim = window == 50 ? 96 : 128;
    c.window = window;
    Rng rng(25);
    Cache cache(c, Ref(), rng);
    const auto write = [&](uint32_t token, float by) {
      std::vector<float> v(c.v_head_dim);
      for (uint32_t d = 0; d < c.v_head_dim; ++d)
        v[d] = cache.v[size_t{token} * c.v_head_dim + d] * by;
      Ref().write_v(cache.storage[token / 16].data() + cache.v_offset, KvType::kInt8, token % 16,
                    v.data(), c.v_head_dim);
    };
    for (uint32_t t = 0; t < 20; ++t) write(t, 0.0f);
    for (uint32_t t = 20; t < 40; ++t) write(t, 0x1p-100f);
    for (uint32_t t = 40; t < 64; ++t) write(t, 0x1p-108f);
    write(140, std::numeric_limits<float>::quiet_NaN());
    Bytes& last = cache.storage.back();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (size_t slot = c.length % 16; slot < 16; ++slot)
      for (size_t g = 0; g < 2; ++g)
        std::memcpy(last.data() + cache.v_offset + c.v_head_dim * 16 + (g * 16 + slot) * 4, &nan,
                    4);
    const std::vector<float> whole = cache.Run(Ref(), 0, c.length);
    const size_t stride = size_t{c.group_heads} * c.v_head_dim;
    for (const Table* table : tables) {
      const std::vector<float> out = cache.Run(*table, 0, c.length);
      ASSERT_TRUE(SameBits(whole.data(), out.data(), 140 * stride)) << table->name;
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(std::isnan(out[i]), i >= 140 * stride) << table->name << " " << i;
      for (size_t i = 0; i < 20 * stride; ++i) ASSERT_EQ(out[i], 0.0f) << table->name;
      for (uint32_t t = 36; t < 40; ++t) EXPECT_NE(out[t * stride], 0.0f) << table->name;
    }
  }
}

TEST(Attention, NanReachesTheOutputOfItsQueryAlone) {
  Rng rng(24);
  std::vector<const Table*> tables = TablesUnderTest();
  tables.push_back(&Ref());
  for (const KvType type : {KvType::kF16, KvType::kInt8})
    for (const Table* table : tables) {
      Case c;
      c.length = 20;
      c.k_type = c.v_type = type;
      Cache cache(c, *table, rng);
      cache.q[(10 * c.group_heads + 1) * c.head_dim + 3] = std::numeric_limits<float>::quiet_NaN();
      const std::vector<float> out = cache.Run(*table, 0, 20);
      for (uint32_t t = 0; t < 20; ++t)
        for (uint32_t h = 0; h < c.group_heads; ++h)
          EXPECT_EQ(std::isnan(out[(t * c.group_heads + h) * c.v_head_dim]), t == 10 && h == 1)
              << table->name;
    }
}

}  // namespace
}  // namespace qinfer::kernels
