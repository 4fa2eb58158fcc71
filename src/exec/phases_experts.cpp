// Experts: the router's choice, the tokens of each expert side by side, and their products. A
// token's outputs are kept apart until all are there and are then added in the order of the
// router's ranks, so that neither threads nor company of a batch change a sum.
#include <algorithm>
#include <cstring>

#include "core/checked.h"
#include "exec/forward_impl.h"
#include "kernels/ref/math.h"

namespace qinfer::exec {
namespace {

constexpr uint32_t kGatherSlots = 16;  // of one unit
constexpr float kSmallestSum = 1e-20f;

float Sigmoid(float x) { return 1.0f / (1.0f + kernels::math::Exp(-x)); }

// scores[i] = exp(x[i] - max) / sum, in place is fine.
void Softmax(const float* x, uint32_t n, float* scores) {
  float top = x[0];
  for (uint32_t i = 1; i < n; ++i) top = x[i] > top ? x[i] : top;
  float sum = 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    scores[i] = kernels::math::Exp(x[i] - top);
    sum += scores[i];
  }
  for (uint32_t i = 0; i < n; ++i) scores[i] /= sum;
}

// Picks the largest of the values that are not taken, the first of equals; NaN is never larger.
// `taken` marks what was picked by minus infinity, so that a second pick is another one.
constexpr float kTaken = -__builtin_inff();
uint32_t PickLargest(float* values, uint32_t n) {
  uint32_t best = UINT32_MAX;
  for (uint32_t i = 0; i < n; ++i) {
    if (values[i] == kTaken) continue;
    if (best == UINT32_MAX || values[i] > values[best]) best = i;
  }
  if (best != UINT32_MAX) values[best] = kTaken;
  return best;
}

}  // namespace

bool ForwardImpl::HasExperts() const {
  return layer_spec_->feed_forward.kind == model::FeedForwardKind::kExperts;
}

// All experts read the same input, so the smallest block of any of them counts.
LinearInput ForwardImpl::ExpertInput() const {
  const FeedForwardWeights& w = weights_->feed_forward;
  LinearInput input = Input(ws_.x, ws_.x_codes, {&w.gate, &w.up});
  uint32_t block = input.int8 ? input.codes.block : 0;
  for (const std::vector<Linear>* stack : {&w.expert_gate, &w.expert_up}) {
    for (const Linear& linear : *stack) {
      if (!TakesCodes(linear)) continue;
      if (linear.activation_scale == 0.0f) input.static_scale = 0.0f;
      block = block == 0 ? linear.activation_block : std::min(block, linear.activation_block);
    }
  }
  input.int8 = block != 0;
  if (input.int8) input.codes.block = block;
  return input;
}

bool ForwardImpl::RunRouter(const Deadline& deadline) {
  const FeedForwardWeights& w = weights_->feed_forward;
  LinearPhase phase;
  phase.input.x = ws_.x;  // never codes
  phase.jobs[0] = {&w.router, ws_.router};
  phase.job_count = 1;
  if (w.shared_gate.present()) {
    phase.jobs[1] = {&w.shared_gate, ws_.shared_gate};
    phase.job_count = 2;
  }
  return RunLinear(&phase, deadline);
}

void ForwardImpl::RouteToken(uint32_t token) {
  const model::FeedForwardSpec& f = layer_spec_->feed_forward;
  const float* correction = weights_->feed_forward.router_correction;
  const uint32_t n = f.experts;
  float* scores = ws_.router.row(token);
  float* choice = scores + n;
  float* groups = choice + n;
  switch (f.scoring) {
    case model::RouterScoring::kSoftmax:
      Softmax(scores, n, scores);
      break;
    case model::RouterScoring::kSigmoid:
      for (uint32_t e = 0; e < n; ++e) scores[e] = Sigmoid(scores[e]);
      break;
    case model::RouterScoring::kSoftmaxChosen:
      break;
  }
  for (uint32_t e = 0; e < n; ++e) {
    choice[e] = correction == nullptr ? scores[e] : scores[e] + correction[e];
  }
  if (f.groups != 0) {
    const uint32_t size = n / f.groups;
    for (uint32_t g = 0; g < f.groups; ++g) {
      // The best of the group, in descending order, without disturbing `choice`.
      float sum = 0.0f, above = __builtin_inff();
      uint32_t left = f.group_score_top, at_above = 0;
      while (left > 0) {
        float best = kTaken;
        for (uint32_t e = g * size; e < (g + 1) * size; ++e) {
          if (choice[e] < above && choice[e] > best) best = choice[e];
        }
        if (best == kTaken) break;
        at_above = 0;
        for (uint32_t e = g * size; e < (g + 1) * size; ++e) at_above += choice[e] == best ? 1 : 0;
        const uint32_t take = std::min(left, at_above);
        for (uint32_t i = 0; i < take; ++i) sum += best;
        left -= take;
        above = best;
      }
      groups[g] = sum;
    }
    for (uint32_t i = 0; i < f.groups_used; ++i) PickLargest(groups, f.groups);
    for (uint32_t g = 0; g < f.groups; ++g) {
      if (groups[g] == kTaken) continue;  // picked
      for (uint32_t e = g * size; e < (g + 1) * size; ++e) choice[e] = kTaken;
    }
  }
  uint32_t* chosen = ws_.chosen + size_t{token} * f.experts_used;
  float* weights = ws_.chosen_weights + size_t{token} * f.experts_used;
  float sum = 0.0f;
  for (uint32_t r = 0; r < f.experts_used; ++r) {
    const uint32_t pick = PickLargest(choice, n);
    // Scores that are not numbers can leave nothing to pick: any expert will do, the logits tell.
    chosen[r] = pick == UINT32_MAX ? r : pick;
    weights[r] = scores[chosen[r]];
    sum += weights[r];
  }
  if (f.scoring == model::RouterScoring::kSoftmaxChosen) {
    Softmax(weights, f.experts_used, weights);
  } else if (f.normalize) {
    for (uint32_t r = 0; r < f.experts_used; ++r) weights[r] /= sum + kSmallestSum;
  }
  if (f.routed_scale != 1.0f) {
    for (uint32_t r = 0; r < f.experts_used; ++r) weights[r] *= f.routed_scale;
  }
}

// Slots by expert, then token; and a job for each expert that has any.
void ForwardImpl::Dispatch() {
  const model::FeedForwardSpec& f = layer_spec_->feed_forward;
  const FeedForwardWeights& w = weights_->feed_forward;
  const uint32_t pairs = tokens_ * f.experts_used;
  uint32_t* begin = ws_.expert_begin;
  std::fill_n(begin, f.experts + 1, 0u);
  for (uint32_t i = 0; i < pairs; ++i) ++begin[ws_.chosen[i] + 1];
  for (uint32_t e = 0; e < f.experts; ++e) begin[e + 1] += begin[e];
  // begin[e] moves to the end of its expert while slots are given out, and is moved back.
  for (uint32_t i = 0; i < pairs; ++i) {
    const uint32_t slot = begin[ws_.chosen[i]]++;
    ws_.slot_of[i] = slot;
    ws_.slot_tokens[slot] = i / f.experts_used;
  }
  for (uint32_t e = f.experts; e > 0; --e) begin[e] = begin[e - 1];
  begin[0] = 0;
  const LinearInput x = ExpertInput();
  jobs_ = up_units_ = down_units_ = 0;
  gathers_ = gather_codes_ = gather_floats_ = false;
  for (uint32_t e = 0; e < f.experts; ++e) {
    const uint32_t count = begin[e + 1] - begin[e];
    if (count == 0) continue;
    AddJob(x, w.expert_gate[e], w.expert_up[e], w.expert_down[e], e, count, f.expert_intermediate);
  }
  if (f.intermediate > 0) {
    AddJob(x, w.gate, w.up, w.down, model::kNoPart, tokens_, f.intermediate);
  }
  window_end_ = 0;
  NextWindow();
}

// The next jobs that are at work at the same time.
void ForwardImpl::NextWindow() {
  window_begin_ = window_end_;
  while (window_end_ < jobs_ && ws_.jobs[window_end_].window == ws_.jobs[window_begin_].window) {
    ++window_end_;
  }
}

// The first of the jobs that `job` is at work with; itself, where it begins a window: as many as
// have room, and whose weights are there at the same time.
const ExpertJob& ForwardImpl::WindowOf(ExpertJob* job) const {
  const uint32_t index = static_cast<uint32_t>(job - ws_.jobs);
  job->window = index;
  if (index == 0) return *job;
  const ExpertJob& first = ws_.jobs[(job - 1)->window];
  const bool shared = job->expert == model::kNoPart;  // needs no slots
  const bool room = shared || job->slot + job->tokens - first.slot <= ws_.window_slots;
  const ExpertWindows* const windows = weights_->windows;
  const bool together = shared || windows == nullptr ||
                        job->expert / windows->size() == first.expert / windows->size();
  if (!room || !together) return *job;
  job->window = (job - 1)->window;
  return first;
}

void ForwardImpl::AddJob(const LinearInput& x, const Linear& gate, const Linear& up,
                         const Linear& down, uint32_t expert, uint32_t tokens, uint32_t rows) {
  ExpertJob& job = ws_.jobs[jobs_++];
  job = ExpertJob();
  job.gate = &gate;
  job.up = &up;
  job.down = &down;
  job.expert = expert;
  job.tokens = tokens;
  job.rows = rows;
  job.x = x;
  if (expert == model::kNoPart) {
    job.gate_out = ws_.gate;
    job.up_out = ws_.up;
    job.out = ws_.branch;
    job.middle = Input(ws_.gate, ws_.down_codes, {&down});
    WindowOf(&job);
  } else {
    const uint32_t slot = job.slot = ws_.expert_begin[expert];
    const uint32_t row = slot - WindowOf(&job).slot;  // in the buffers of the window
    const uint32_t first = ws_.slot_tokens[slot], last = ws_.slot_tokens[slot + tokens - 1];
    if (last - first + 1 == tokens) {  // neighbours: read where they are
      job.x.x.data = ws_.x.row(first);
      job.x.codes = FromToken(job.x.codes, first);
    } else {
      gathers_ = true;
      const bool takes_codes = TakesCodes(gate) || TakesCodes(up);
      gather_codes_ = gather_codes_ || takes_codes;
      gather_floats_ = gather_floats_ || !TakesCodes(gate) || !TakesCodes(up);
      const uint32_t block = job.x.codes.block;
      job.x.x = {ws_.gathered.row(row), ws_.gathered.stride};
      job.x.codes = FromToken(ws_.gathered_codes, row);
      job.x.codes.block = block;
    }
    job.gate_out = {ws_.expert_gate.row(row), ws_.expert_gate.stride};
    job.up_out = {ws_.expert_up.row(row), ws_.expert_up.stride};
    job.out = {ws_.expert_out.row(slot), ws_.expert_out.stride};
    job.middle = Input(job.gate_out, FromToken(ws_.expert_codes, row), {&down});
  }
  // Gate and up: the same rows of both, activated in the same unit.
  job.tile = std::min(tokens, kMaxTokenTile);
  const uint32_t granule = job.middle.int8
                               ? std::max(job.middle.codes.block, kernels::kInputGranule)
                               : kernels::kInputGranule;
  const uint64_t work = uint64_t{2} * gate.matrix.padded_cols() * job.tile * granule;
  // Enough units that the lanes end together, also where tokens are few.
  const model::FeedForwardSpec& f = layer_spec_->feed_forward;
  const uint64_t rows_of_all =
      tokens_ * (uint64_t{f.experts_used} * f.expert_intermediate + f.intermediate);
  const auto share = [&](uint64_t unit, uint64_t work_of_row) {
    return ws_.lanes == 1 ? unit : std::min(unit, rows_of_all * work_of_row / (ws_.lanes * 8));
  };
  const uint64_t unit = share(TakesCodes(gate) && TakesCodes(up) ? kUnitCodes : kUnitFloats,
                              uint64_t{2} * gate.matrix.padded_cols());
  const uint64_t granules = CeilDiv(rows, granule);
  job.rows_per_unit =
      static_cast<uint32_t>(std::min(granules, std::max<uint64_t>(1, unit / work))) * granule;
  job.up_first = up_units_;
  up_units_ += CeilDiv(tokens, job.tile) * CeilDiv(rows, job.rows_per_unit);
  const uint64_t panel_work = uint64_t{down.matrix.padded_cols()} * kernels::kPanelRows * job.tile;
  const uint64_t down_unit =
      share(TakesCodes(down) ? kUnitCodes : kUnitFloats, uint64_t{down.matrix.rows});
  job.panels_per_unit = static_cast<uint32_t>(
      std::min<uint64_t>(down.matrix.panels(), std::max<uint64_t>(1, down_unit / panel_work)));
  job.down_first = down_units_;
  down_units_ += CeilDiv(tokens, job.tile) * CeilDiv(down.matrix.panels(), job.panels_per_unit);
}

void ForwardImpl::GatherSlot(uint32_t slot, uint32_t row) {
  const uint32_t token = ws_.slot_tokens[slot];
  const uint32_t n = spec_.hidden_size;
  if (gather_floats_) {
    std::memcpy(ws_.gathered.row(row), ws_.x.row(token), n * sizeof(float));
  }
  if (!gather_codes_) return;
  const kernels::Activations from = FromToken(ws_.x_codes, token);
  const kernels::Activations to = FromToken(ws_.gathered_codes, row);
  std::memcpy(to.codes, from.codes, from.code_stride);
  std::memcpy(to.scales, from.scales, from.scale_stride * sizeof(float));
  std::memcpy(to.sums, from.sums, from.sum_stride * sizeof(int32_t));
}

// The slots of the window, which its jobs have side by side.
bool ForwardImpl::RunGather(const Deadline& deadline) {
  const ExpertJob& first = ws_.jobs[window_begin_];
  if (first.expert == model::kNoPart) return true;
  const ExpertJob* last = ws_.jobs + window_end_ - 1;
  if (last->expert == model::kNoPart) --last;
  const uint32_t slots = last->slot + last->tokens - first.slot;
  return units_.Run(context_.executor, tokens_ <= kFewTokens ? 1 : ws_.lanes, deadline,
                    CeilDiv(slots, kGatherSlots), [&](uint32_t, uint32_t unit) {
                      const uint32_t end = std::min(slots, (unit + 1) * kGatherSlots);
                      for (uint32_t s = unit * kGatherSlots; s < end; ++s) {
                        GatherSlot(first.slot + s, s);
                      }
                    });
}

void ForwardImpl::ExpertUpUnit(uint32_t lane, uint32_t unit) {
  const ExpertJob* job =
      std::upper_bound(ws_.jobs, ws_.jobs + jobs_, unit,
                       [](uint32_t u, const ExpertJob& j) { return u < j.up_first; }) -
      1;
  const uint32_t chunks = CeilDiv(job->rows, job->rows_per_unit);
  const uint32_t local = unit - job->up_first;
  const uint32_t first = local / chunks * job->tile;
  const uint32_t count = std::min(job->tile, job->tokens - first);
  const uint32_t begin = local % chunks * job->rows_per_unit;
  const uint32_t end = std::min(job->rows, begin + job->rows_per_unit);
  const uint32_t panel_begin = begin / kernels::kPanelRows;
  const uint32_t panel_end = CeilDiv(end, kernels::kPanelRows);
  Multiply(*job->gate, job->x, panel_begin, panel_end, first, count, job->gate_out, lane);
  Multiply(*job->up, job->x, panel_begin, panel_end, first, count, job->up_out, lane);
  for (uint32_t t = first; t < first + count; ++t) {
    ActivatePart(job->gate_out.row(t), job->up_out.row(t), begin, end, job->middle, t);
  }
}

void ForwardImpl::ExpertDownUnit(uint32_t lane, uint32_t unit) {
  const ExpertJob* job =
      std::upper_bound(ws_.jobs, ws_.jobs + jobs_, unit,
                       [](uint32_t u, const ExpertJob& j) { return u < j.down_first; }) -
      1;
  const uint32_t panels = job->down->matrix.panels();
  const uint32_t chunks = CeilDiv(panels, job->panels_per_unit);
  const uint32_t local = unit - job->down_first;
  const uint32_t first = local / chunks * job->tile;
  const uint32_t count = std::min(job->tile, job->tokens - first);
  const uint32_t begin = local % chunks * job->panels_per_unit;
  Multiply(*job->down, job->middle, begin, std::min(panels, begin + job->panels_per_unit), first,
           count, job->out, lane);
}

bool ForwardImpl::RunExperts(const Deadline& deadline, bool up) {
  // Units of the jobs before `job`.
  const auto units = [&](uint32_t job) {
    if (job == jobs_) return up ? up_units_ : down_units_;
    return up ? ws_.jobs[job].up_first : ws_.jobs[job].down_first;
  };
  const uint32_t first = units(window_begin_);
  return units_.Run(context_.executor, ws_.lanes, deadline, units(window_end_) - first,
                    [&](uint32_t lane, uint32_t unit) {
                      if (up) {
                        ExpertUpUnit(lane, first + unit);
                      } else {
                        ExpertDownUnit(lane, first + unit);
                      }
                    });
}

// The shared experts' output is in `branch` already.
void ForwardImpl::CombineToken(uint32_t token) {
  const model::FeedForwardSpec& f = layer_spec_->feed_forward;
  float* branch = ws_.branch.row(token);
  const uint32_t n = spec_.hidden_size;
  bool empty = f.intermediate == 0;
  if (!empty && weights_->feed_forward.shared_gate.present()) {
    kernels_->scale(branch, Sigmoid(*ws_.shared_gate.row(token)), n);
  }
  for (uint32_t r = 0; r < f.experts_used; ++r) {
    const size_t pair = size_t{token} * f.experts_used + r;
    float* out = ws_.expert_out.row(ws_.slot_of[pair]);
    kernels_->scale(out, ws_.chosen_weights[pair], n);
    if (empty) {
      std::memcpy(branch, out, n * sizeof(float));
      empty = false;
    } else {
      kernels_->add(branch, out, n);
    }
  }
}

}  // namespace qinfer::exec
