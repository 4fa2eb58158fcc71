// Rendering of a chat template from the public options; shared by qinfer_template_render and
// qinfer_session_append_chat.
#pragma once

#include <string>

#include "api/model.h"
#include "qinfer/model.h"

namespace qinfer::api {

// `model` may be null where the options bring a template of their own.
StatusOr<std::string> RenderTemplate(const ModelState* model, const qinfer_render_options* options);

}  // namespace qinfer::api
