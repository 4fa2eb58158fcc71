// How many inputs share a scale when activations are quantized for a linear weight, where the file
// does not say: a property of the layer, not of the machine.
#pragma once

#include <cstdint>

#include "model/spec.h"
#include "weights/format.h"

namespace qinfer::exec {

inline uint32_t DefaultActivationBlock(model::LinearRole role, const weights::Format&) {
  return role == model::LinearRole::kDown ? 32 : 128;
}

}  // namespace qinfer::exec
