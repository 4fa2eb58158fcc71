// The engine functions of kv.h.
#include "api/engine.h"

#include "api/structs.h"

namespace qinfer::api {
namespace {

uint32_t KvNumber(kernels::KvType type) {
  switch (type) {
    case kernels::KvType::kF32:
      return QINFER_KV_F32;
    case kernels::KvType::kF16:
      return QINFER_KV_F16;
    case kernels::KvType::kInt8:
      return QINFER_KV_INT8;
  }
  return QINFER_KV_DEFAULT;
}

uint32_t ActivationsNumber(exec::Activations activations) {
  switch (activations) {
    case exec::Activations::kAuto:
      return QINFER_ACTIVATIONS_AUTO;
    case exec::Activations::kInt8:
      return QINFER_ACTIVATIONS_INT8;
    case exec::Activations::kFloat:
      return QINFER_ACTIVATIONS_FLOAT;
  }
  return QINFER_ACTIVATIONS_AUTO;
}

}  // namespace
}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_engine_create(qinfer_model* model, const qinfer_engine_options* options,
                                   qinfer_engine** out, qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, model, "model", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_RETURN_IF_ERROR(NeedWeights(*model->state));
    QINFER_ASSIGN_OR_RETURN(const EngineChoice choice, ReadEngineOptions(options));
    auto engine = qinfer::engine::Engine::Create(model->state->model, model->runtime->context(),
                                                 choice.engine);
    if (!engine.ok()) return AsOption(engine.status());
    *out = NewHandle<qinfer_engine>(
        model->runtime, std::make_shared<EngineState>(model->state, std::move(engine).value()));
    return QINFER_OK;
  });
}

qinfer_status qinfer_engine_options_get(const qinfer_engine* engine, qinfer_engine_options* out,
                                        qinfer_error* err) {
  ClearOut(out);
  return GuardHandle(err, engine, "engine", [&]() -> Outcome {
    QINFER_RETURN_IF_ERROR(CheckOut(out, "out"));
    const qinfer::engine::EngineOptions& options = engine->state->engine->options();
    qinfer_engine_options written = {};
    written.max_sessions = options.max_sessions;
    written.context_tokens = options.context_tokens;
    written.batch_tokens = options.batch_tokens;
    written.k_type = KvNumber(options.k_type);
    written.v_type = KvNumber(options.v_type);
    written.activations = ActivationsNumber(options.activations);
    written.determinism = options.determinism == qinfer::exec::Determinism::kFast
                              ? QINFER_DETERMINISM_FAST
                              : QINFER_DETERMINISM_STRICT;
    WriteOut(written, out);
    return QINFER_OK;
  });
}

void qinfer_engine_release(qinfer_engine* engine) { ReleaseHandle(engine); }

}  // extern "C"
