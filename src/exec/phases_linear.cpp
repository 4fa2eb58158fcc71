// Phases that multiply by weights: how they are cut into units, and the units.
#include <algorithm>

#include "core/checked.h"
#include "exec/forward_impl.h"
#include "kernels/layout.h"

namespace qinfer::exec {
namespace {

constexpr uint32_t kLeastTile = 24;       // tokens: fewer would unpack weights too often
constexpr uint32_t kLeastOwnTokens = 72;  // of a lane: fewer would widen all weights too often
constexpr uint32_t kLeastPanels = 4;      // fewer would prepare the activations too often

}  // namespace

bool ForwardImpl::TakesCodes(const Linear& linear) const {
  return options_.activations != Activations::kFloat && linear.present() &&
         !kernels::layout::IsFloat(linear.matrix.kind);
}

uint32_t ForwardImpl::CodeBlock(std::initializer_list<const Linear*> group) const {
  uint32_t block = 0;
  for (const Linear* linear : group) {
    if (!TakesCodes(*linear)) continue;
    block = block == 0 ? linear->activation_block : std::min(block, linear->activation_block);
  }
  return block;
}

float ForwardImpl::StaticScale(std::initializer_list<const Linear*> group) const {
  float scale = 0.0f;
  for (const Linear* linear : group) {
    if (!TakesCodes(*linear)) continue;
    if (linear->activation_scale == 0.0f) return 0.0f;
    scale = std::max(scale, linear->activation_scale);
  }
  return scale;
}

LinearInput ForwardImpl::Input(const Workspace::Rows& x, const kernels::Activations& codes,
                               std::initializer_list<const Linear*> group) const {
  LinearInput input;
  input.x = x;
  input.codes = codes;
  const uint32_t block = CodeBlock(group);
  input.int8 = block != 0;
  if (input.int8) input.codes.block = block;
  input.static_scale = StaticScale(group);
  return input;
}

// q, k, v, gate, up and the head get two planes: most of what INT8 activations cost in quality
// comes from their inputs (docs/performance.md), and a step that waits for its weights has time.
LinearInput ForwardImpl::WithPlanes(LinearInput input) const {
  // A file that fixes the scale means exactly these codes.
  if (input.int8 && options_.activations == Activations::kAuto && input.static_scale == 0.0f) {
    input.codes.planes = 2;
  }
  return input;
}

LinearInput ForwardImpl::FeedForwardInput() const {
  const FeedForwardWeights& weights = weights_->feed_forward;
  return WithPlanes(Input(ws_.x, ws_.x_codes, {&weights.gate, &weights.up}));
}

void ForwardImpl::PlanLinear(LinearPhase* phase) const {
  uint64_t cols = 0;
  bool floats = false;
  phase->panels = 0;
  for (uint32_t i = 0; i < phase->job_count; ++i) {
    const kernels::Matrix& matrix = phase->jobs[i].linear->matrix;
    phase->panels += matrix.panels();
    cols = matrix.padded_cols();
    floats = floats || !TakesCodes(*phase->jobs[i].linear);
  }
  const uint64_t unit = floats ? kUnitFloats : UnitCodes(phase->input.codes.planes);
  const uint64_t panel_work = cols * kernels::kPanelRows;              // for one token
  const uint64_t tile = unit / (kLeastPanels * panel_work) / 12 * 12;  // kernels' tiles divide 12
  phase->token_tile = static_cast<uint32_t>(std::min<uint64_t>(
      phase->tokens, std::min<uint64_t>(kMaxTokenTile, std::max<uint64_t>(kLeastTile, tile))));
  // Each lane's own units are those of its own tokens, where it has enough of them.
  const uint32_t each = CeilDiv(phase->tokens, ws_.lanes);
  if (each >= kLeastOwnTokens) {
    const uint32_t own_tiles = CeilDiv(each, phase->token_tile);
    phase->token_tile = RoundUp(CeilDiv(each, own_tiles), 12u);
  }
  phase->tiles = CeilDiv(phase->tokens, phase->token_tile);
  const uint64_t by_work = std::max<uint64_t>(1, unit / (panel_work * phase->token_tile));
  // Enough units that the lanes end together, also where a phase is small.
  const uint32_t by_lanes =
      ws_.lanes == 1 ? phase->panels : CeilDiv(phase->panels * phase->tiles, ws_.lanes * 4);
  phase->panels_per_unit = static_cast<uint32_t>(std::min<uint64_t>(
      phase->panels, std::max<uint64_t>(1, std::min<uint64_t>(by_work, by_lanes))));
  // Kernels take two at a time.
  if (phase->panels_per_unit > 1) phase->panels_per_unit &= ~1u;
  phase->chunks = CeilDiv(phase->panels, phase->panels_per_unit);
}

void ForwardImpl::Multiply(const Linear& linear, const LinearInput& input, uint32_t panel_begin,
                           uint32_t panel_end, uint32_t first_token, uint32_t count,
                           const Workspace::Rows& out, uint32_t lane) {
  float* rows = out.row(first_token);
  if (!input.int8 || !TakesCodes(linear)) {
    kernels_->matmul_float(linear.matrix, panel_begin, panel_end, input.x.row(first_token),
                           input.x.stride, count, rows, out.stride, Scratch(lane));
  } else {
    kernels_->matmul_int8(linear.matrix, panel_begin, panel_end,
                          FromToken(input.codes, first_token), count, rows, out.stride,
                          Scratch(lane));
  }
  if (linear.bias == nullptr) return;
  const uint32_t begin = panel_begin * kernels::kPanelRows;
  const uint32_t end = std::min(panel_end * kernels::kPanelRows, linear.matrix.rows);
  for (uint32_t t = 0; t < count; ++t) {
    kernels_->add(rows + t * out.stride + begin, linear.bias + begin, end - begin);
  }
}

void ForwardImpl::LinearUnit(const LinearPhase& phase, uint32_t lane, uint32_t unit) {
  const uint32_t tile = unit / phase.chunks, chunk = unit % phase.chunks;
  const uint32_t first_token = tile * phase.token_tile;
  const uint32_t count = std::min(phase.token_tile, phase.tokens - first_token);
  uint32_t begin = chunk * phase.panels_per_unit;
  uint32_t left = std::min(phase.panels_per_unit, phase.panels - begin);
  for (uint32_t i = 0; i < phase.job_count && left > 0; ++i) {
    const LinearJob& job = phase.jobs[i];
    const uint32_t panels = job.linear->matrix.panels();
    if (begin >= panels) {
      begin -= panels;
      continue;
    }
    const uint32_t here = std::min(left, panels - begin);
    Multiply(*job.linear, phase.input, begin, begin + here, first_token, count, job.out, lane);
    begin = 0;
    left -= here;
  }
}

bool ForwardImpl::RunLinear(LinearPhase* phase, const Deadline& deadline) {
  phase->tokens = tokens_;
  PlanLinear(phase);
  return units_.Run(context_.executor, ws_.lanes, deadline, phase->units(),
                    [&](uint32_t lane, uint32_t unit) { LinearUnit(*phase, lane, unit); });
}

void ForwardImpl::Activate(float* gate, float* up, size_t n) const {
  const model::FeedForwardSpec& f = layer_spec_->feed_forward;
  if (f.swiglu_limit == 0.0f) {
    kernels_->gated(f.activation, gate, up, n, gate);
    return;
  }
  const float limit = f.swiglu_limit;
  for (size_t i = 0; i < n; ++i) {
    gate[i] = (gate[i] > limit ? limit : gate[i]) * f.swiglu_alpha;
    up[i] = (up[i] > limit ? limit : up[i] < -limit ? -limit : up[i]) + 1.0f;
  }
  kernels_->gated(f.activation, gate, up, n, gate);
  kernels_->scale(gate, 1.0f / f.swiglu_alpha, n);
}

// Activates [begin, end) of a token's gate and leaves it as down takes it; begin starts a block.
void ForwardImpl::ActivatePart(float* gate, float* up, uint32_t begin, uint32_t end,
                               const LinearInput& down, uint32_t token) const {
  Activate(gate + begin, up + begin, end - begin);
  if (!down.int8) return;
  kernels::Activations part = down.codes;
  part.codes += begin;
  part.scales += begin / part.block;
  part.sums += begin / 16;
  Quantize(down, part, gate + begin, end - begin, token);
}

// A unit computes the same rows of gate and up, activates them, and leaves them as down takes them.
void ForwardImpl::GateUpUnit(const LinearInput& x, const LinearInput& down, uint32_t lane,
                             uint32_t unit, uint32_t rows_per_unit) {
  const FeedForwardWeights& weights = weights_->feed_forward;
  const uint32_t all = layer_spec_->feed_forward.intermediate;
  const uint32_t begin = unit * rows_per_unit, end = std::min(all, begin + rows_per_unit);
  const uint32_t panel_begin = begin / kernels::kPanelRows;
  const uint32_t panel_end = CeilDiv(end, kernels::kPanelRows);
  Multiply(weights.gate, x, panel_begin, panel_end, 0, tokens_, ws_.gate, lane);
  Multiply(weights.up, x, panel_begin, panel_end, 0, tokens_, ws_.up, lane);
  for (uint32_t t = 0; t < tokens_; ++t) {
    ActivatePart(ws_.gate.row(t), ws_.up.row(t), begin, end, down, t);
  }
}

bool ForwardImpl::RunGateUp(const Deadline& deadline) {
  const FeedForwardWeights& weights = weights_->feed_forward;
  const LinearInput x = FeedForwardInput();
  if (!FusesGateUp()) {
    LinearPhase phase;
    phase.input = x;
    phase.jobs[0] = {&weights.gate, ws_.gate};
    phase.jobs[1] = {&weights.up, ws_.up};
    phase.job_count = 2;
    return RunLinear(&phase, deadline);
  }
  const LinearInput down = Input(ws_.gate, ws_.down_codes, {&weights.down});
  const uint32_t all = layer_spec_->feed_forward.intermediate;
  const uint32_t granule =
      down.int8 ? std::max(down.codes.block, kernels::kInputGranule) : kernels::kInputGranule;
  const uint64_t work = uint64_t{2} * weights.gate.matrix.padded_cols() * tokens_ * granule;
  const uint64_t unit_work = TakesCodes(weights.gate) ? UnitCodes(x.codes.planes) : kUnitFloats;
  const uint64_t granules = CeilDiv(all, granule);
  const uint64_t by_lanes = ws_.lanes == 1 ? granules : CeilDiv<uint64_t>(granules, ws_.lanes * 4);
  const uint64_t each = std::max<uint64_t>(1, std::min(by_lanes, unit_work / work));
  const uint32_t rows_per_unit = static_cast<uint32_t>(std::min(each, granules)) * granule;
  return units_.Run(
      context_.executor, ws_.lanes, deadline, CeilDiv(all, rows_per_unit),
      [&](uint32_t lane, uint32_t unit) { GateUpUnit(x, down, lane, unit, rows_per_unit); });
}

bool ForwardImpl::RunHead(const Linear& head, const LinearInput& input, uint32_t rows,
                          float* logits, const Deadline& deadline) {
  const size_t row_panels = CeilDiv(spec_.vocab_size, kernels::kPanelRows);
  LinearPhase phase;
  phase.input = input;
  phase.jobs[0] = {&head, Workspace::Rows{logits, spec_.vocab_size}};
  phase.job_count = 1;
  phase.tokens = rows;
  PlanLinear(&phase);
  return units_.Run(
      context_.executor, ws_.lanes, deadline, phase.units(), [&](uint32_t lane, uint32_t unit) {
        LinearUnit(phase, lane, unit);
        const uint32_t tile = unit / phase.chunks, chunk = unit % phase.chunks;
        const uint32_t first = tile * phase.token_tile;
        const uint32_t last = std::min(rows, first + phase.token_tile);
        const uint32_t panel = chunk * phase.panels_per_unit, begin = panel * kernels::kPanelRows;
        const uint32_t end =
            std::min(spec_.vocab_size, begin + phase.panels_per_unit * kernels::kPanelRows);
        for (uint32_t r = first; r < last; ++r) {
          float* row = logits + size_t{r} * spec_.vocab_size + begin;
          // A head on its own keeps no maxima.
          const size_t slot = model_ == nullptr ? lane : r;
          float* maxima = ws_.logit_maxima + slot * row_panels + panel;
          if (spec_.logit_scale != 1.0f) kernels_->scale(row, spec_.logit_scale, end - begin);
          if (!kernels_->panel_maxima(row, end - begin, maxima)) {
            not_finite_.store(true, std::memory_order_relaxed);
          }
          if (spec_.logit_softcap != 0.0f) {  // which hides infinities
            kernels_->softcap(row, spec_.logit_softcap, end - begin);
            kernels_->panel_maxima(row, end - begin, maxima);
          }
        }
      });
}

}  // namespace qinfer::exec
