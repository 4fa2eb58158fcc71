// Rotation, writing of keys and values, and attention over pages.
#include <algorithm>
#include <atomic>

#include "core/checked.h"
#include "exec/forward_impl.h"

namespace qinfer::exec {
namespace {

// Multiply-adds of one attention unit: what each prepares of its keys and values is for many rows.
constexpr uint64_t kUnitScores = 12000000;
// Tokens and rows (a row: a token by a head) of a unit at least: kernels go faster then.
constexpr uint32_t kLeastTile = 4, kLeastRows = 24;
constexpr uint32_t kRopeTokens = 16;  // of one unit
// Less than this in all is done sooner by one lane than a barrier is passed.
constexpr uint64_t kAloneScores = 100000;

}  // namespace

// Of the layer at hand, in the cache.
Planes ForwardImpl::PlanesOf(const Segment& segment) const {
  Planes planes;
  if (own_pages_) {
    const KvShape kv = KvShapeOf(layer_spec_->attention);
    planes.k_type = planes.v_type = kernels::KvType::kF32;
    planes.v_offset = kernels::KPlaneBytes(kernels::KvType::kF32, kv.key_dim);
    planes.head_stride =
        planes.v_offset + kernels::VPlaneBytes(kernels::KvType::kF32, kv.value_dim);
    return planes;
  }
  const kv::Cache& cache = segment.sequence->cache();
  const kv::GroupLayout& layout = cache.groups()[group_of_[layer_]];
  const uint32_t index = index_in_group_[layer_];
  planes.k_type = cache.options().k_type;
  planes.v_type = cache.options().v_type;
  planes.k_offset = layout.KOffset(index, 0);
  planes.v_offset = layout.VOffset(index, 0);
  planes.head_stride = layout.KOffset(index, 1) - layout.KOffset(index, 0);
  return planes;
}

// The page tables of this layer's group; pages do not move while a batch is in flight, tables may.
void ForwardImpl::ResolvePages() {
  for (uint32_t s = segment_begin_; s < segment_end_; ++s) {
    Segment& segment = ws_.segments[s];
    if (own_pages_) {
      segment.pages = ws_.page_table;
      segment.first_page = 0;
    } else {
      segment.pages = segment.sequence->Pages(group_of_[layer_], &segment.first_page).data();
    }
  }
}

// The latent and the key that all heads share, as they are cached.
void ForwardImpl::WriteLatent(uint32_t token) {
  const model::AttentionSpec& a = layer_spec_->attention;
  const Segment& segment = ws_.segments[ws_.segment_of[token]];
  const uint32_t position = ws_.positions[token];
  float* k = ws_.k.row(token);
  kernels_->rms_norm(k, weights_->attention.kv_a_norm, a.latent_dim, spec_.norm_epsilon, k);
  Rotate(k + a.latent_dim, token);
  // Queries that stay outside of the latent space are rotated where they are.
  for (uint32_t h = 0; expanded_ && h < a.heads; ++h) {
    Rotate(ws_.q.row(token) + h * a.head_dim + (a.head_dim - a.rope_dim), token);
  }
  const Planes planes = PlanesOf(segment);
  uint8_t* page =
      const_cast<uint8_t*>(segment.pages[position / kernels::kPageTokens - segment.first_page]);
  kernels_->write_k(page + planes.k_offset, planes.k_type, position % kernels::kPageTokens, k,
                    a.latent_dim + a.rope_dim);
}

void ForwardImpl::RopeToken(uint32_t token) {
  const model::AttentionSpec& a = layer_spec_->attention;
  if (a.kind == model::AttentionKind::kLatent) return WriteLatent(token);
  const AttentionWeights& w = weights_->attention;
  const Segment& segment = ws_.segments[ws_.segment_of[token]];
  const uint32_t position = ws_.positions[token];
  const auto norm = [&](float* x, const float* weight, uint32_t n) {
    if (weight != nullptr) kernels_->rms_norm(x, weight, n, spec_.norm_epsilon, x);
  };
  if (a.wide_norms) {
    norm(ws_.q.row(token), w.q_norm, a.heads * a.head_dim);
    norm(ws_.k.row(token), w.k_norm, a.kv_heads * a.head_dim);
  }
  const auto turn = [&](float* head, const float* weight) {
    if (!a.wide_norms) norm(head, weight, a.head_dim);
    Rotate(head, token);
  };
  for (uint32_t h = 0; h < a.heads; ++h) turn(ws_.q.row(token) + h * a.head_dim, w.q_norm);
  const Planes planes = PlanesOf(segment);
  // Reserved pages belong to this sequence alone; the table is const for everybody else.
  uint8_t* page =
      const_cast<uint8_t*>(segment.pages[position / kernels::kPageTokens - segment.first_page]);
  const uint32_t slot = position % kernels::kPageTokens;
  for (uint32_t h = 0; h < a.kv_heads; ++h) {
    float* k = ws_.k.row(token) + h * a.head_dim;
    turn(k, w.k_norm);
    kernels_->write_k(page + planes.k_offset + h * planes.head_stride, planes.k_type, slot, k,
                      a.head_dim);
    kernels_->write_v(page + planes.v_offset + h * planes.head_stride, planes.v_type, slot,
                      ws_.v.row(token) + h * a.v_head_dim, a.v_head_dim);
  }
}

bool ForwardImpl::RunRope(const Deadline& deadline) {
  ResolvePages();
  const uint32_t count = token_end_ - token_begin_;
  return units_.Run(context_.executor, count <= kFewTokens ? 1 : ws_.lanes, deadline,
                    CeilDiv(count, kRopeTokens), [&](uint32_t, uint32_t unit) {
                      const uint32_t begin = token_begin_ + unit * kRopeTokens;
                      const uint32_t end = std::min(token_end_, begin + kRopeTokens);
                      for (uint32_t t = begin; t < end; ++t) RopeToken(t);
                    });
}

// Spans of keys that a segment's tokens see; 1 where their states may not be apart.
uint32_t ForwardImpl::SpansOf(const Segment& segment) const {
  if (ws_.state_floats == 0 || segment.tile < segment.tokens) return 1;
  const uint32_t first = kernels::FirstKey(segment.position, layer_spec_->attention.window);
  const uint32_t last = segment.position + segment.tokens - 1;
  return last / kernels::kAttentionSpan - first / kernels::kAttentionSpan + 1;
}

// Gives each lane enough units: splits keys, then the query heads that share a head of keys.
// Neither changes any bit. Returns the number of units.
uint32_t ForwardImpl::SplitAttention(bool split) {
  const KvShape kv = ShapeAtHand();
  const uint32_t group_heads = HeadsAtHand() / kv.heads;
  uint64_t units = 0;
  for (uint32_t s = segment_begin_; s < segment_end_; ++s) {
    Segment& segment = ws_.segments[s];
    segment.spans = split ? SpansOf(segment) : 1;
    units += uint64_t{CeilDiv(segment.tokens, segment.tile)} * kv.heads * segment.spans;
  }
  uint32_t parts = 1;
  const uint64_t wanted = uint64_t{kLeastUnitsALane} * ws_.lanes;
  if (ws_.lanes > 1 && units < wanted) {
    parts = std::min(group_heads, static_cast<uint32_t>(CeilDiv(wanted, units)));
  }
  // Parts may be uneven: each has room for the largest.
  const size_t token_floats =
      CeilDiv(group_heads, parts) * kernels::AttentionStateStride(kv.value_dim);
  uint32_t unit = 0, group = 0;
  size_t state = 0;
  for (uint32_t s = segment_begin_; s < segment_end_; ++s) {
    Segment& segment = ws_.segments[s];
    segment.parts = parts;
    segment.first_unit = unit;
    segment.first_group = group;
    segment.first_state = state;
    unit += CeilDiv(segment.tokens, segment.tile) * kv.heads * parts * segment.spans;
    if (segment.spans == 1) continue;
    segment.group_floats = token_floats * segment.tokens * segment.spans;
    group += kv.heads * parts;
    state += kv.heads * parts * segment.group_floats;
  }
  return state <= ws_.state_floats ? unit : SplitAttention(false);
}

// Decides tiles of queries and splits them. Returns the number of units, adds up multiply-adds.
uint32_t ForwardImpl::CutAttention(uint64_t* work) {
  const model::AttentionSpec& a = layer_spec_->attention;
  const KvShape kv = ShapeAtHand();
  const uint32_t group_heads = HeadsAtHand() / kv.heads;
  const uint32_t most = expanded_ ? kMaxAttentionTile : MaxAttentionTile(a),
                 least = std::min(std::max(kLeastTile, CeilDiv(kLeastRows, group_heads)), most);
  uint64_t units = 0;
  for (uint32_t s = segment_begin_; s < segment_end_; ++s) {
    Segment& segment = ws_.segments[s];
    uint64_t keys = uint64_t{segment.position} + segment.tokens;
    if (a.window != 0) keys = std::min<uint64_t>(keys, a.window + segment.tokens);
    const uint64_t per_query = keys * group_heads * (kv.key_dim + kv.value_dim);
    *work += per_query * kv.heads * segment.tokens;
    // Rows are worked on four at a time.
    const uint64_t by_work = kUnitScores / per_query / 4 * 4;
    segment.tile = static_cast<uint32_t>(std::min<uint64_t>(
        segment.tokens, std::min<uint64_t>(most, std::max<uint64_t>(least, by_work))));
    units += uint64_t{CeilDiv(segment.tokens, segment.tile)} * kv.heads;
  }
  return SplitAttention(units < uint64_t{kLeastUnitsALane} * ws_.lanes && !expanded_);
}

void ForwardImpl::AttentionUnit(uint32_t lane, uint32_t unit) {
  const model::AttentionSpec& a = layer_spec_->attention;
  const Segment* begin = ws_.segments + segment_begin_;
  const Segment* segment =
      std::upper_bound(begin, static_cast<const Segment*>(ws_.segments) + segment_end_, unit,
                       [](uint32_t u, const Segment& s) { return u < s.first_unit; }) -
      1;
  const KvShape kv = ShapeAtHand();
  const uint32_t group_heads = HeadsAtHand() / kv.heads;
  const uint32_t span = (unit - segment->first_unit) % segment->spans;
  const uint32_t local = (unit - segment->first_unit) / segment->spans;
  const uint32_t part = local % segment->parts;
  const uint32_t kv_head = local / segment->parts % kv.heads;
  const uint32_t tile = local / segment->parts / kv.heads;
  const uint32_t heads_each = CeilDiv(group_heads, segment->parts);
  const uint32_t first_head = part * heads_each;
  if (first_head >= group_heads) return;
  const uint32_t first = tile * segment->tile;
  const uint32_t token = segment->first_token + first;
  const uint32_t head = expanded_head_ + kv_head * group_heads + first_head;
  const Planes planes = expanded_ ? ExpandedPlanes() : PlanesOf(*segment);
  kernels::AttentionArgs args;
  const Workspace::Rows& q = kv.latent ? ws_.absorbed : ws_.q;
  const Workspace::Rows& out = kv.latent ? ws_.latent_out : Attended();
  args.q = q.row(token) + head * kv.key_dim;
  args.q_stride = q.stride;
  args.out = out.row(token) + head * kv.value_dim;
  args.out_stride = out.stride;
  args.latent = kv.latent;
  args.tokens = std::min(segment->tile, segment->tokens - first);
  args.first_position = segment->position + first;
  args.group_heads = std::min(heads_each, group_heads - first_head);
  args.head_dim = kv.key_dim;
  args.v_head_dim = kv.value_dim;
  args.pages = expanded_ ? ws_.expansion.page_table : segment->pages;
  args.first_page = expanded_ ? 0 : segment->first_page;
  args.k_offset = planes.k_offset + kv_head * planes.head_stride;
  args.v_offset = planes.v_offset + kv_head * planes.head_stride;
  args.k_type = planes.k_type;
  args.v_type = kv.latent ? planes.k_type : planes.v_type;
  args.window = a.window;
  args.scale = a.scale;
  args.softcap = a.softcap;
  const float* sinks = weights_->attention.sinks;
  args.sinks = sinks == nullptr ? nullptr : sinks + head;
  args.scratch = Scratch(lane);
  if (segment->spans == 1) {
    kernels_->attention(args);
    return;
  }
  // There is one tile, so that `local` counts the groups of units with the same outputs.
  args.states = ws_.states + segment->first_state + local * segment->group_floats;
  args.span = args.FirstKey(0) / kernels::kAttentionSpan + span;
  kernels_->attention(args);
  // Who comes last has all states.
  std::atomic_ref<uint32_t> done(ws_.spans_done[segment->first_group + local]);
  if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == segment->spans) MergeAttention(args);
}

bool ForwardImpl::RunAttention(const Deadline& deadline) {
  ResolvePages();
  uint64_t work = 0;
  const uint32_t units = CutAttention(&work);
  if (!units_.begun() && ws_.state_floats != 0)
    std::fill_n(ws_.spans_done, kGroupsALane * ws_.lanes, 0u);
  const uint32_t lanes = work < kAloneScores ? 1 : ws_.lanes;
  return units_.Run(context_.executor, lanes, deadline, units,
                    [&](uint32_t lane, uint32_t unit) { AttentionUnit(lane, unit); });
}

}  // namespace qinfer::exec
