// What the absorbed form of latent attention costs against the expanded one, which makes keys and
// values of each head from the cached latents: a chunk of 512 tokens of one layer with DeepSeek's
// dimensions, on one thread. Absorbed: k_b, attention over latents, v_b. Expanded, head by head:
// keys and values of all cached tokens by k_b and v_b, which are written to pages, then attention.
// usage: latent_forms HEADS [f32|f16|int8]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/kernels.h"

namespace {

using namespace qinfer::kernels;  // NOLINT

constexpr uint32_t kTokens = 512, kTile = 128;
constexpr uint32_t kLatent = 512, kRope = 64, kNope = 128, kValue = 128;
constexpr uint32_t kKey = kNope + kRope, kCached = kLatent + kRope;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Block = std::unique_ptr<uint8_t, Free>;

Block Zeros(size_t bytes) {
  const size_t size = (bytes + 63) / 64 * 64;
  Block block(static_cast<uint8_t*>(std::aligned_alloc(64, size)));
  if (block == nullptr) std::exit(1);
  std::memset(block.get(), 0, size);
  return block;
}

std::vector<float> Numbers(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>((i * 2654435761u >> 8) % 2001) / 1000.0f - 1.0f;
  }
  return x;
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// An INT8 weight of groups of 32, of zeros: how fast it is does not depend on its values.
struct Weight {
  Matrix matrix;
  Block data;
  Weight(uint32_t rows, uint32_t cols) {
    matrix.rows = rows;
    matrix.cols = cols;
    matrix.kind = WeightKind::kInt8;
    matrix.scale = ScaleKind::kF16;
    matrix.group_size = 32;
    matrix.panel_bytes = size_t{kPanelRows} * (cols + cols / 32 * 2);
    data = Zeros(matrix.panel_bytes * matrix.panels());
    matrix.data = data.get();
  }
};

class Layer {
 public:
  Layer(const Table* table, uint32_t heads, KvType type)
      : table_(table), heads_(heads), type_(type), scratch_(Zeros(64 << 20)) {
    codes_.code_stride = kLatent;
    codes_.scale_stride = codes_.sum_stride = kLatent / 16;
    codes_data_ = Zeros(kTile * (kLatent + 2 * 4 * kLatent / 16));
    codes_.codes = reinterpret_cast<int8_t*>(codes_data_.get());
    codes_.scales = reinterpret_cast<float*>(codes_data_.get() + kTile * kLatent);
    codes_.sums = reinterpret_cast<int32_t*>(codes_.scales + kTile * codes_.scale_stride);
    codes_.block = 64;
  }

  void Compare(uint32_t before) {
    const uint32_t keys = before + kTokens, pages = keys / kPageTokens;
    const std::vector<float> latents = Numbers(size_t{keys} * kCached);
    q_ = Numbers(size_t{kTokens} * heads_ * kKey);
    out_.assign(size_t{kTokens} * heads_ * kValue, 0.0f);
    const double absorbed = Absorbed(before, pages, latents);
    double expand = 0.0, attend = 0.0;
    Expanded(before, pages, latents, &expand, &attend);
    std::printf("| %u | %.0f ms | %.0f ms (%.0f to expand) | %.2f |\n", before, absorbed * 1e3,
                (expand + attend) * 1e3, expand * 1e3, absorbed / (expand + attend));
    std::fflush(stdout);
  }

 private:
  void Multiply(const Weight& weight, const float* x, size_t stride, float* out,
                size_t out_stride) {
    for (uint32_t t = 0; t < kTile; ++t) {
      table_->quantize(x + t * stride, weight.matrix.cols, t, codes_);
    }
    table_->matmul_int8(weight.matrix, 0, weight.matrix.panels(), codes_, kTile, out, out_stride,
                        scratch_.get());
  }

  double Absorbed(uint32_t before, uint32_t pages, const std::vector<float>& latents) {
    const size_t plane = KPlaneBytes(type_, kCached);
    const Block memory = Zeros(pages * plane);
    std::vector<const uint8_t*> table(pages);
    for (uint32_t p = 0; p < pages; ++p) table[p] = memory.get() + p * plane;
    for (uint32_t k = 0; k < pages * kPageTokens; ++k) {
      table_->write_k(memory.get() + k / kPageTokens * plane, type_, k % kPageTokens,
                      latents.data() + size_t{k} * kCached, kCached);
    }
    std::vector<float> queries = Numbers(size_t{kTokens} * heads_ * kCached);
    std::vector<float> sums(size_t{kTokens} * heads_ * kLatent);
    const double begin = Now();
    for (uint32_t h = 0; h < heads_; ++h) {
      for (uint32_t t = 0; t < kTokens; t += kTile) {
        Multiply(k_b_, &q_[(size_t{t} * heads_ + h) * kKey], size_t{heads_} * kKey,
                 &queries[(size_t{t} * heads_ + h) * kCached], size_t{heads_} * kCached);
      }
    }
    const uint32_t tile = std::max(1u, 128 / heads_);
    for (uint32_t t = 0; t < kTokens; t += tile) {
      AttentionArgs args;
      args.q = &queries[size_t{t} * heads_ * kCached];
      args.q_stride = size_t{heads_} * kCached;
      args.out = &sums[size_t{t} * heads_ * kLatent];
      args.out_stride = size_t{heads_} * kLatent;
      args.group_heads = heads_;
      args.head_dim = kCached;
      args.v_head_dim = kLatent;
      args.latent = true;
      Attend(&args, table, before + t, tile);
    }
    for (uint32_t h = 0; h < heads_; ++h) {
      for (uint32_t t = 0; t < kTokens; t += kTile) {
        Multiply(v_b_, &sums[(size_t{t} * heads_ + h) * kLatent], size_t{heads_} * kLatent,
                 &out_[(size_t{t} * heads_ + h) * kValue], size_t{heads_} * kValue);
      }
    }
    return Now() - begin;
  }

  void Expanded(uint32_t before, uint32_t pages, const std::vector<float>& latents, double* expand,
                double* attend) {
    const size_t k_plane = KPlaneBytes(type_, kKey), plane = k_plane + VPlaneBytes(type_, kValue);
    const Block memory = Zeros(pages * plane);
    std::vector<const uint8_t*> table(pages);
    for (uint32_t p = 0; p < pages; ++p) table[p] = memory.get() + p * plane;
    std::vector<float> keys(kTile * kKey), values(kTile * kValue);
    for (uint32_t h = 0; h < heads_; ++h) {
      const double begin = Now();
      for (uint32_t k = 0; k < pages * kPageTokens; k += kTile) {
        const float* from = latents.data() + size_t{k} * kCached;
        Multiply(k_b_transposed_, from, kCached, keys.data(), kKey);
        Multiply(v_b_, from, kCached, values.data(), kValue);
        for (uint32_t i = 0; i < kTile; ++i) {
          std::memcpy(&keys[i * kKey + kNope], from + i * size_t{kCached} + kLatent,
                      kRope * sizeof(float));
          uint8_t* page = memory.get() + (k + i) / kPageTokens * plane;
          table_->write_k(page, type_, i % kPageTokens, &keys[i * kKey], kKey);
          table_->write_v(page + k_plane, type_, i % kPageTokens, &values[i * kValue], kValue);
        }
      }
      const double made = Now();
      for (uint32_t t = 0; t < kTokens; t += 32) {
        AttentionArgs args;
        args.q = &q_[(size_t{t} * heads_ + h) * kKey];
        args.q_stride = size_t{heads_} * kKey;
        args.out = &out_[(size_t{t} * heads_ + h) * kValue];
        args.out_stride = size_t{heads_} * kValue;
        args.head_dim = kKey;
        args.v_head_dim = kValue;
        args.v_offset = k_plane;
        Attend(&args, table, before + t, 32);
      }
      *expand += made - begin;
      *attend += Now() - made;
    }
  }

  void Attend(AttentionArgs* args, const std::vector<const uint8_t*>& table, uint32_t position,
              uint32_t tokens) {
    args->tokens = tokens;
    args->first_position = position;
    args->pages = table.data();
    args->k_type = args->v_type = type_;
    args->scale = 0.05f;
    args->scratch = scratch_.get();
    table_->attention(*args);
  }

  const Table* table_;
  const uint32_t heads_;
  const KvType type_;
  Block scratch_, codes_data_;
  Activations codes_;
  const Weight k_b_{kLatent, kNope}, k_b_transposed_{kNope, kLatent}, v_b_{kValue, kLatent};
  std::vector<float> q_, out_;
};

}  // namespace

int main(int argc, char** argv) {
  const int heads = argc > 1 ? std::atoi(argv[1]) : 0;
  const char* name = argc > 2 ? argv[2] : "int8";
  if (heads < 1 || heads > 1024) {
    std::fputs("usage: latent_forms HEADS [f32|f16|int8]\n", stderr);
    return 2;
  }
  const KvType type = std::strcmp(name, "f32") == 0   ? KvType::kF32
                      : std::strcmp(name, "f16") == 0 ? KvType::kF16
                                                      : KvType::kInt8;
  const Table* table = SelectTable(Isa::kAuto);
  std::printf("%s, %d heads, cache %s\n| tokens before | absorbed | expanded | ratio |\n",
              table->name, heads, name);
  Layer layer(table, static_cast<uint32_t>(heads), type);
  for (const uint32_t before : {0u, 512u, 1536u, 3584u, 7680u}) layer.Compare(before);
  return 0;
}
