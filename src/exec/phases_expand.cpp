// Latent attention in the expanded form, under Determinism::kFast: keys and values of some heads at
// a time are made from the cached latents, in pages of the workspace, and attention is the ordinary
// one. It takes less where many tokens see the same keys. It rounds otherwise than the absorbed
// form, so a token's bits depend on the batch that computed it; not on threads.
#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "core/half.h"
#include "exec/forward_impl.h"
#include "kernels/layout.h"

namespace qinfer::exec {
namespace {

constexpr uint32_t kLeastExpanded = 64;  // tokens of a batch
// What making keys and values costs, in multiply-adds of attention: one with codes, one with
// floats, and one weight of k_b that is transposed.
constexpr double kCodesCost = 0.5, kFloatsCost = 7.0, kTransposeCost = 45.0;
constexpr uint32_t kReadyPages = 4;  // of latents, in one unit

// Inputs [begin, end) of all tokens of a page of keys.
void ReadKeys(const uint8_t* plane, kernels::KvType type, uint32_t head_dim, uint32_t begin,
              uint32_t end, const Workspace::Rows& out) {
  constexpr uint32_t kTokens = kernels::kPageTokens;
  const auto all = [&](auto&& value) {
    for (uint32_t d = begin; d < end; ++d) {
      for (uint32_t t = 0; t < kTokens; ++t) out.row(t)[d - begin] = value(d, t);
    }
  };
  if (type == kernels::KvType::kF32) {
    const float* from = reinterpret_cast<const float*>(plane);
    all([&](uint32_t d, uint32_t t) { return from[size_t{d} * kTokens + t]; });
  } else if (type == kernels::KvType::kF16) {
    const uint16_t* from = reinterpret_cast<const uint16_t*>(plane);
    all([&](uint32_t d, uint32_t t) { return HalfToFloat(from[size_t{d} * kTokens + t]); });
  } else {
    const int8_t* codes = reinterpret_cast<const int8_t*>(plane);
    const float* scales =
        reinterpret_cast<const float*>(plane + kernels::layout::KCodeBytes(head_dim));
    all([&](uint32_t d, uint32_t t) {
      const size_t line = d / 4 * size_t{64}, group = d / kernels::layout::kKvGroup;
      return static_cast<float>(codes[line + t * 4 + d % 4]) * scales[group * kTokens + t];
    });
  }
}

// 16 rows of `count` inputs each (a group, or what is left of one) as a panel has them.
void PackGroup(const kernels::Table& table, const Workspace::Rows& rows, uint32_t row_count,
               uint32_t count, float* scales, uint8_t* codes) {
  constexpr uint32_t kRows = kernels::kPanelRows, kStride = kExpandGroup;
  alignas(64) int8_t made[kRows * kStride] = {};
  alignas(64) float made_scales[kRows * kRows];
  alignas(64) int32_t made_sums[kRows * kRows];
  kernels::Activations to;
  to.codes = made;
  to.scales = made_scales;
  to.sums = made_sums;
  to.code_stride = kStride;
  to.scale_stride = to.sum_stride = kRows;
  to.block = kExpandGroup;
  for (uint32_t r = 0; r < kRows; ++r) {
    if (r < row_count) table.quantize(rows.row(r), count, r, to);
    scales[r] = r < row_count ? made_scales[r * kRows] : 0.0f;
  }
  // Signed codes become those above a zero of 128, four inputs of a row side by side.
  for (uint32_t i = 0; i < RoundUp(count, kernels::kInputGranule); i += 4, codes += 4 * kRows) {
    for (uint32_t r = 0; r < kRows; ++r) {
      uint32_t four;
      std::memcpy(&four, made + r * kStride + i, sizeof(four));
      four ^= 0x80808080u;
      std::memcpy(codes + 4 * r, &four, sizeof(four));
    }
  }
}

}  // namespace

bool ForwardImpl::Expands() const {
  const model::AttentionSpec& a = layer_spec_->attention;
  const uint32_t least = options_.expand_from != 0 ? options_.expand_from : kLeastExpanded;
  if (ws_.expansion.heads == 0 || segments_ != 1 || tokens_ < least) return false;
  // Windows recycle pages; no model has both.
  if (a.kind != model::AttentionKind::kLatent || a.window != 0) return false;
  if (options_.expand_from != 0) return true;
  const double nope = a.head_dim - a.rope_dim, latent = a.latent_dim;
  const double position = ws_.segments[0].position, tokens = tokens_;
  const auto cost = [&](const Linear& weight) {
    return TakesCodes(weight) ? kCodesCost : kFloatsCost;
  };
  const double saved =
      tokens * (position + tokens / 2) * (2.0 * latent + a.rope_dim - a.head_dim - a.v_head_dim);
  const double made =
      position * latent *
      (nope * cost(weights_->attention.k_b[0]) + a.v_head_dim * cost(weights_->attention.v_b[0]));
  return saved > made + nope * latent * kTransposeCost;
}

Planes ForwardImpl::ExpandedPlanes() const {
  const model::AttentionSpec& a = layer_spec_->attention;
  Planes planes;
  planes.k_type = planes.v_type = options_.expanded_type;
  planes.v_offset = kernels::KPlaneBytes(planes.k_type, a.head_dim);
  planes.head_stride = planes.v_offset + kernels::VPlaneBytes(planes.v_type, a.v_head_dim);
  return planes;
}

// The transposed k_b of a head, counted from the first at hand: INT8 where k_b takes codes, floats
// elsewhere.
kernels::Matrix ForwardImpl::KeyWeight(uint32_t head) const {
  const model::AttentionSpec& a = layer_spec_->attention;
  kernels::Matrix m;
  m.data = ws_.expansion.key_weights + head * ws_.expansion.key_weight_bytes;
  m.rows = a.head_dim - a.rope_dim;
  m.cols = a.latent_dim;
  if (TakesCodes(weights_->attention.k_b[expanded_head_ + head])) {
    m.kind = kernels::WeightKind::kInt8;
    m.scale = kernels::ScaleKind::kF32;
    m.group_size = kExpandGroup;
  }
  m.panel_bytes = kernels::layout::PanelBytes(m);
  return m;
}

void ForwardImpl::TransposeKeyWeight(uint32_t lane, uint32_t head) {
  constexpr uint32_t kRows = kernels::kPanelRows;
  static_assert(kExpandGroup % kRows == 0 && kExpandGroup + 2 * kRows <= kExpandTokens);
  const kernels::Matrix& from = weights_->attention.k_b[expanded_head_ + head].matrix;
  const kernels::Matrix to = KeyWeight(head);
  uint8_t* data = ws_.expansion.key_weights + head * ws_.expansion.key_weight_bytes;
  // A group of all rows, and a decoded panel.
  float* block = ws_.expansion.made_k.row(size_t{lane} * kExpandTokens);
  const Workspace::Rows rows = {block, kExpandGroup};
  float* decoded = block + size_t{RoundUp(to.rows, kRows)} * kExpandGroup;
  for (uint32_t first = 0; first < to.cols; first += kExpandGroup) {
    const uint32_t count = std::min(kExpandGroup, to.cols - first);
    for (uint32_t i = 0; i < count; i += kRows) {
      kernels_->decode_panel(from, (first + i) / kRows, decoded);
      for (uint32_t r = 0; r < to.rows; ++r) {
        std::memcpy(rows.row(r) + i, decoded + size_t{r} * kRows, kRows * sizeof(float));
      }
    }
    for (uint32_t p = 0; p < to.panels(); ++p) {
      uint8_t* panel = data + p * to.panel_bytes;
      const Workspace::Rows its = {rows.row(p * kRows), rows.stride};
      const uint32_t its_rows = std::min(kRows, to.rows - p * kRows);
      if (to.kind == kernels::WeightKind::kInt8) {
        PackGroup(*kernels_, its, its_rows, count,
                  reinterpret_cast<float*>(panel) + first / kExpandGroup * kRows,
                  panel + kernels::layout::CodePlane(to) + size_t{first} * kRows);
        continue;
      }
      float* out = reinterpret_cast<float*>(panel) + size_t{first} * kRows;
      for (uint32_t i = 0; i < RoundUp(count, kernels::kInputGranule); ++i) {
        for (uint32_t r = 0; r < kRows; ++r) {
          out[size_t{i} * kRows + r] = r < its_rows && i < count ? its.row(r)[i] : 0.0f;
        }
      }
    }
  }
}

const uint8_t* ForwardImpl::LatentPlane(uint32_t page) const {
  const Segment& segment = ws_.segments[0];
  return segment.pages[page - segment.first_page] + PlanesOf(segment).k_offset;
}

kernels::KvType ForwardImpl::LatentType() const { return PlanesOf(ws_.segments[0]).k_type; }

// A page of the cache as codes, and the keys that all heads share. Tokens behind the last one are
// made as well: attention may read them, and masks what it reads.
void ForwardImpl::ReadyLatents(uint32_t lane, uint32_t page) {
  const model::AttentionSpec& a = layer_spec_->attention;
  const Workspace::Expansion& e = ws_.expansion;
  const uint8_t* plane = LatentPlane(page);
  const kernels::KvType type = LatentType();
  const uint32_t width = a.latent_dim + a.rope_dim, key = page * kernels::kPageTokens;
  ReadKeys(plane, type, width, a.latent_dim, width, {e.rope.row(key), e.rope.stride});
  const kernels::Activations codes = LatentCodes();
  if (codes.block == 0) return;
  const Workspace::Rows latents = {e.latents.row(size_t{lane} * kExpandTokens), e.latents.stride};
  ReadKeys(plane, type, width, 0, a.latent_dim, latents);
  for (uint32_t t = 0; t < kernels::kPageTokens; ++t) {
    kernels_->quantize(latents.row(t), a.latent_dim, key + t, codes);
  }
}

// Blocks as small as v_b asks for, and no larger than those that INT8 latents are cached in, so
// that these keep their codes. Block 0: neither weight takes codes.
kernels::Activations ForwardImpl::LatentCodes() const {
  const AttentionWeights& w = weights_->attention;
  kernels::Activations codes = ws_.expansion.codes;
  codes.block = CodeBlock({&w.k_b[0], &w.v_b[0]}) == 0 ? 0 : kernels::layout::kKvGroup;
  if (TakesCodes(w.v_b[0])) codes.block = std::min(codes.block, w.v_b[0].activation_block);
  return codes;
}

bool ForwardImpl::RunExpandReady(const Deadline& deadline) {
  ResolvePages();
  const Segment& segment = ws_.segments[0];
  const uint32_t pages = CeilDiv(segment.position + segment.tokens, kernels::kPageTokens);
  const uint32_t units = expanded_head_ == 0 ? CeilDiv(pages, kReadyPages) : 0;
  return units_.Run(context_.executor, ws_.lanes, deadline, units + HeadsAtHand(),
                    [&](uint32_t lane, uint32_t unit) {
                      if (unit >= units) return TransposeKeyWeight(lane, unit - units);
                      const uint32_t end = std::min(pages, (unit + 1) * kReadyPages);
                      for (uint32_t p = unit * kReadyPages; p < end; ++p) ReadyLatents(lane, p);
                    });
}

// Keys and values of a head (from the first at hand) for `count` cached tokens, whole pages.
void ForwardImpl::ExpandUnit(uint32_t lane, uint32_t head, uint32_t first, uint32_t count) {
  const model::AttentionSpec& a = layer_spec_->attention;
  const Workspace::Expansion& e = ws_.expansion;
  const size_t lane_row = size_t{lane} * kExpandTokens;
  const Workspace::Rows keys = {e.made_k.row(lane_row), e.made_k.stride};
  const Workspace::Rows values = {e.made_v.row(lane_row), e.made_v.stride};
  const Workspace::Rows latents = {e.latents.row(lane_row), e.latents.stride};
  const Linear& k_b = weights_->attention.k_b[expanded_head_ + head];
  const Linear& v_b = weights_->attention.v_b[expanded_head_ + head];
  if (!TakesCodes(k_b) || !TakesCodes(v_b)) {
    for (uint32_t t = 0; t < count; t += kernels::kPageTokens) {
      ReadKeys(LatentPlane((first + t) / kernels::kPageTokens), LatentType(),
               a.latent_dim + a.rope_dim, 0, a.latent_dim, {latents.row(t), latents.stride});
    }
  }
  const kernels::Activations codes = FromToken(LatentCodes(), first);
  const auto multiply = [&](const kernels::Matrix& matrix, bool int8, const Workspace::Rows& out) {
    if (int8) {
      kernels_->matmul_int8(matrix, 0, matrix.panels(), codes, count, out.data, out.stride,
                            Scratch(lane));
    } else {
      kernels_->matmul_float(matrix, 0, matrix.panels(), latents.data, latents.stride, count,
                             out.data, out.stride, Scratch(lane));
    }
  };
  multiply(KeyWeight(head), TakesCodes(k_b), keys);
  multiply(v_b.matrix, TakesCodes(v_b), values);
  const Planes planes = ExpandedPlanes();
  for (uint32_t t = 0; t < count; ++t) {
    const uint32_t key = first + t, slot = key % kernels::kPageTokens;
    std::memcpy(keys.row(t) + (a.head_dim - a.rope_dim), e.rope.row(key),
                a.rope_dim * sizeof(float));
    uint8_t* at =
        e.pages + (size_t{key / kernels::kPageTokens} * HeadsAtHand() + head) * planes.head_stride;
    kernels_->write_k(at, planes.k_type, slot, keys.row(t), a.head_dim);
    kernels_->write_v(at + planes.v_offset, planes.v_type, slot, values.row(t), a.v_head_dim);
  }
}

bool ForwardImpl::RunExpand(const Deadline& deadline) {
  ResolvePages();
  const model::AttentionSpec& a = layer_spec_->attention;
  const AttentionWeights& w = weights_->attention;
  const Segment& segment = ws_.segments[0];
  const uint32_t heads = HeadsAtHand();
  const uint32_t pages = CeilDiv(segment.position + segment.tokens, kernels::kPageTokens);
  const size_t page_bytes = heads * ExpandedPlanes().head_stride;
  for (uint32_t p = 0; p < pages; ++p) {
    ws_.expansion.page_table[p] = ws_.expansion.pages + p * page_bytes;
  }
  const uint64_t work = uint64_t{a.latent_dim} * (a.head_dim - a.rope_dim + a.v_head_dim);
  const bool codes = TakesCodes(w.k_b[0]) && TakesCodes(w.v_b[0]);
  const uint64_t by_work = (codes ? kUnitCodes : kUnitFloats) / work / kernels::kPageTokens;
  const uint32_t unit_pages =
      static_cast<uint32_t>(std::clamp<uint64_t>(by_work, 1, kExpandTokens / kernels::kPageTokens));
  const uint32_t tiles = CeilDiv(pages, unit_pages);
  return units_.Run(
      context_.executor, ws_.lanes, deadline, heads * tiles, [&](uint32_t lane, uint32_t unit) {
        const uint32_t first = unit % tiles * unit_pages;
        const uint32_t count = std::min(unit_pages, pages - first);
        ExpandUnit(lane, unit / tiles, first * kernels::kPageTokens, count * kernels::kPageTokens);
      });
}

}  // namespace qinfer::exec
