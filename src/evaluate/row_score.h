// One row of logits scored: the negative log-likelihood of the token that came, and the divergence
// from a reference's row. Pure arithmetic; windows and models are in perplexity.cpp.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/kernels.h"

namespace qinfer::evaluate {

struct RowScore {
  double nll = 0.0;            // -log p(target)
  double reference_nll = 0.0;  // the same under the reference
  double kl = 0.0;             // sum p_reference * log(p_reference / p)
  bool same_top = false;       // the two argmax agree
};

// `reference` may be empty: then only nll is set. Exponentials in float by the kernels, sums and
// logarithms in double. Equal rows give a KL of exactly 0.
RowScore ScoreRow(absl::Span<const float> logits, absl::Span<const float> reference, int32_t target,
                  const kernels::Table& table);

}  // namespace qinfer::evaluate
