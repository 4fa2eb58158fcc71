// Pieces that several readers of specifications share: rope settings in their many spellings, the
// names of tensors, specifications stored in .qinfer files.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"
#include "format/checkpoint.h"
#include "model/config_reader.h"
#include "model/spec.h"

namespace qinfer::model {

StatusOr<ModelSpec> SpecFromQinfer(const format::Checkpoint& checkpoint);

// The rope that a configuration asks for, from "rope_parameters" (transformers 5) or "rope_theta"
// and "rope_scaling". `max_context` is what the configuration says; *max_context may come back
// smaller (dynamic scaling is only the same for every length up to the original context).
RopeSpec RopeFromHf(JsonReader* config, uint32_t dims, double default_theta, uint32_t* max_context);
// One object in the style of rope_parameters or rope_scaling; `theta` where it has none.
// `original_context` is what a key outside says, and goes before the object's own; 0 = nothing.
RopeSpec RopeFromHfObject(JsonReader* object, uint32_t dims, double theta, uint32_t* max_context,
                          uint32_t original_context = 0);
RopeSpec RopeFromGguf(GgufReader* gguf, uint32_t dims, bool interleaved, double default_theta,
                      uint32_t context);

// Longrope of a GGUF file: its factors are tensors, which are read here (they are few).
void ReadLongRope(GgufReader* gguf, const format::Checkpoint& checkpoint, uint32_t context,
                  RopeSpec* rope);
// What a yarn rope with "mscale_all_dim" multiplies the scale of the softmax by (DeepSeek), else 1.
double YarnSoftmaxScale(JsonReader* config, const RopeSpec& rope);

// A reference to `name` if the checkpoint has it, else an absent one.
TensorRef Optional(const format::Checkpoint& checkpoint, const std::string& name);

// config.json's "hidden_act" and its like; fails the reader for an activation that is not known.
kernels::Activation ActivationFromHf(JsonReader* config, const char* key, const char* otherwise);

// Round to BF16 or F16 as a model of that type holds its constants ("dtype" or "torch_dtype").
float RoundToModelType(JsonReader* config, double value);

}  // namespace qinfer::model
