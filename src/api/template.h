// Rendering of a chat template from the public options; shared by qinfer_template_render and
// qinfer_session_append_chat.
#pragma once

#include <functional>
#include <string_view>

#include "api/model.h"
#include "qinfer/model.h"

namespace qinfer::api {

// Shows the text to `take` and returns what that returns. `model` may be null where the options
// bring a template of their own. What it takes comes from `memory`.
Status RenderTemplate(const ModelState* model, const qinfer_render_options* options, Memory* memory,
                      const std::function<Status(std::string_view text)>& take);

}  // namespace qinfer::api
