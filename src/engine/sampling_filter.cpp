// Which tokens top-k, top-p and min-p leave, by partial selection: the vocabulary is neither sorted
// nor, unless top-p has to know the whole mass, exponentiated. Drawing is in sampling.cpp.
#include <algorithm>
#include <limits>

#include "engine/score_row.h"
#include "kernels/ref/math.h"

namespace qinfer::engine {
namespace {

double Sum(const float* weights, size_t n) {
  double sum = 0.0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(weights[i]);
  return sum;
}

}  // namespace

Distribution Sampler::Filter(uint32_t best, ScoreRow* row, SamplingScratch* scratch) const {
  const float* scores = scratch->scores();  // of what is collected
  float* weights = scratch->weights();
  uint32_t* ids = scratch->ids();
  const float max = row->Value(best);
  const bool use_top_k = options_.top_k != 0,
             use_top_p = options_.top_p<1.0f, use_min_p = options_.min_p> 0.0f;
  const size_t min_keep = std::min<size_t>(std::max(1u, options_.min_keep), vocab_size_);
  if (!use_top_k && !use_top_p && !use_min_p) {
    kernels_->exp_shift(row->All(), max, vocab_size_, weights);
    return {nullptr, weights, vocab_size_, best};
  }
  const auto weigh = [&](size_t count) {
    for (size_t i = 0; i < count; ++i) weights[i] = scores[ids[i]];
    kernels_->exp_shift(weights, max, count, weights);
  };

  size_t count = 0;
  double mass = 0.0;  // of what top-p looks at
  if (use_top_k) {
    const size_t k = std::min<size_t>(std::max<size_t>(options_.top_k, min_keep), vocab_size_);
    count = row->Collect(row->KthLargest(k));
    weigh(count);
    if (!use_top_p && !use_min_p) return {ids, weights, count, best};
    mass = Sum(weights, count);
  } else {
    // Candidates are those within `depth` of the best, deeper until they surely hold all that top-p
    // and min-p can leave. What is left does not depend on where this stops.
    if (use_top_p) {
      float unused = 0.0f;
      mass = static_cast<double>(kernels_->exp_sum(row->All(), vocab_size_, &unused));
    }
    const double enough = static_cast<double>(options_.top_p) * mass * 1.0001;
    const double floor_depth = use_min_p
                                   ? 0.01 - kernels::math::LogD(static_cast<double>(options_.min_p))
                                   : std::numeric_limits<double>::infinity();
    constexpr double kNothingBelow = 105.0;  // exp(-105) is 0 in a float
    for (double depth = 12.0;; depth *= 1.75) {
      const double used = std::min({depth, floor_depth, kNothingBelow});
      count = row->Collect(static_cast<float>(static_cast<double>(max) - used));
      if (count < min_keep && used >= std::min(floor_depth, kNothingBelow)) {
        count = row->Collect(-std::numeric_limits<float>::infinity());
      }
      weigh(count);
      if (used >= std::min(floor_depth, kNothingBelow)) break;
      if (count >= min_keep && use_top_p && Sum(weights, count) >= enough) break;
    }
  }

  // Best first until both say stop; both only ever say so once. Of equals the higher id comes
  // first.
  const auto worse = [&](uint32_t a, uint32_t b) {
    return scores[a] != scores[b] ? scores[a] < scores[b] : a > b;
  };
  std::make_heap(ids, ids + count, worse);
  const double limit = use_top_p ? static_cast<double>(options_.top_p) * mass
                                 : std::numeric_limits<double>::infinity();
  double before = 0.0;
  size_t kept = 0;
  for (; kept < count; ++kept) {
    const uint32_t token = ids[0];
    float weight = scores[token];
    kernels_->exp_shift(&weight, max, 1, &weight);
    if (kept >= min_keep && (before >= limit || weight < options_.min_p)) break;
    before += static_cast<double>(weight);
    std::pop_heap(ids, ids + (count - kept), worse);
  }
  // The kept ones have been moved to the end.
  std::copy(ids + (count - kept), ids + count, ids);
  std::sort(ids, ids + kept);
  weigh(kept);
  return {ids, weights, kept, best};
}

}  // namespace qinfer::engine
