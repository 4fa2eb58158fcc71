// Experts in GGUF metadata and tensor names, as architectures share them. What else makes an
// architecture that one stays in its own file.
#pragma once

#include <string>

#include "format/checkpoint.h"
#include "model/config_reader.h"
#include "model/decoder_source.h"
#include "model/spec.h"

namespace qinfer::model {

// Sizes of the experts and the factor of what they give; names come layer by layer. `f` comes with
// the dense width: where the file says none for experts, each has it all (`wide`) or a share.
void ReadGgufExperts(GgufReader* reader, bool wide, FeedForwardSpec* f);

// Router, experts and, where `f` has a width for them, shared experts of the layer whose names
// start with `prefix`.
void NameGgufExperts(const format::Checkpoint& checkpoint, const std::string& prefix,
                     uint32_t hidden, FeedForwardSpec* f);

// Gives a layer that has a router `experts` for its feed-forward, and names them.
void TakeGgufExperts(const format::Checkpoint& checkpoint, const std::string& prefix,
                     uint32_t hidden, const FeedForwardSpec& experts, LayerSpec* layer);

}  // namespace qinfer::model
