// What info and inspect share: a model's figures and its tensors, one at a time.
#pragma once

#include "common.h"

namespace cli {

inline std::string Shown(qinfer_str text) { return Visible(View(text)); }
qinfer_model_info Info(const qinfer_model* model);
// One after the other: a list of what may be hundreds of thousands is more than the file itself.
qinfer_tensor_info Tensor(const qinfer_model* model, uint32_t index);

void RunInspect(const Common& common, const std::string& path, bool verify);

}  // namespace cli
