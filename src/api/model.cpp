// Options and plans of models, and the functions that load them. The task itself is in
// model_load.cpp.
#include "api/model.h"

#include <algorithm>
#include <utility>

#include "api/model_load.h"
#include "api/structs.h"

namespace qinfer::api {
namespace {

Status NotLoaded(const ModelState& model, const char* what) {
  return Misuse(QINFER_DETAIL_NOT_LOADED, StrCat(model.name, ": ", what));
}

}  // namespace

std::string_view ModelState::FormatName(const std::string& name) {
  const std::lock_guard<std::mutex> lock(names_mutex_);
  return *names_.insert(name).first;
}

Status NeedTokenizer(const ModelState& model) {
  if (model.tokenizer() != nullptr) return OkStatus();
  if (model.model == nullptr && model.text.tokenizer == nullptr && model.checkpoint != nullptr) {
    return NotLoaded(model,
                     "no tokenizer: the file has none, or the model was opened for its header "
                     "alone (QINFER_PARTS_HEADER)");
  }
  return NotLoaded(model, "the model has no tokenizer");
}

Status NeedWeights(const ModelState& model) {
  if (model.model != nullptr) return OkStatus();
  return NotLoaded(model, "the weights are not loaded: open it with QINFER_PARTS_ALL");
}

Status NeedCheckpoint(const ModelState& model) {
  if (model.checkpoint != nullptr && model.spec.has_value()) return OkStatus();
  return NotLoaded(model,
                   "opened for its vocabulary alone: open it with QINFER_PARTS_HEADER or _ALL");
}

StatusOr<LoadChoice> ReadLoadOptions(const qinfer_load_options* options) {
  qinfer_load_options read;
  QINFER_RETURN_IF_ERROR(ReadStruct(options, "load options", &read));
  QINFER_RETURN_IF_ERROR(KnownFlags(read.flags, QINFER_LOAD_VERIFY, "load options.flags"));
  QINFER_RETURN_IF_ERROR(Reserved(read.reserved, "load options.reserved"));
  if (read.access > QINFER_LOAD_COPY) {
    return BadOption(StrCat("load options.access is ", read.access,
                            ", known are 0 (default), 1 (map) and 2 (copy)"));
  }
  if (read.parts > QINFER_PARTS_VOCABULARY) {
    return BadOption(StrCat("load options.parts is ", read.parts,
                            ", known are 0 (all), 1 (header) and 2 (vocabulary)"));
  }
  LoadChoice choice;
  choice.access = read.access == QINFER_LOAD_COPY ? io::Access::kCopy : io::Access::kMap;
  choice.parts = read.parts;
  choice.verify = (read.flags & QINFER_LOAD_VERIFY) != 0;
  return choice;
}

StatusOr<kernels::KvType> ReadKvType(uint32_t type, kernels::KvType by_default, const char* name) {
  switch (type) {
    case QINFER_KV_DEFAULT:
      return by_default;
    case QINFER_KV_F32:
      return kernels::KvType::kF32;
    case QINFER_KV_F16:
      return kernels::KvType::kF16;
    case QINFER_KV_INT8:
      return kernels::KvType::kInt8;
    default:
      return BadOption(
          StrCat(name, " is ", type, ", known are 0 (default), 1 (f32), 2 (f16) and 3 (int8)"));
  }
}

StatusOr<exec::Activations> ReadActivations(uint32_t activations, exec::Activations by_default,
                                            const char* name) {
  switch (activations) {
    case QINFER_ACTIVATIONS_AUTO:
      return by_default;
    case QINFER_ACTIVATIONS_INT8:
      return exec::Activations::kInt8;
    case QINFER_ACTIVATIONS_FLOAT:
      return exec::Activations::kFloat;
    default:
      return BadOption(
          StrCat(name, " is ", activations, ", known are 0 (auto), 1 (int8) and 2 (float)"));
  }
}

StatusOr<EngineChoice> ReadEngineOptions(const qinfer_engine_options* options) {
  qinfer_engine_options read;
  QINFER_RETURN_IF_ERROR(ReadStruct(options, "engine options", &read));
  EngineChoice choice;
  engine::EngineOptions& engine = choice.engine;
  engine.context_tokens = read.context_tokens;
  if (read.max_sessions != 0) engine.max_sessions = read.max_sessions;
  if (read.batch_tokens != 0) engine.batch_tokens = read.batch_tokens;
  if (const Status fits = engine::Engine::CheckLimits(engine); !fits.ok()) {
    return BadOption(std::string(fits.message()));
  }
  QINFER_ASSIGN_OR_RETURN(engine.k_type,
                          ReadKvType(read.k_type, kernels::KvType::kInt8, "engine options.k_type"));
  QINFER_ASSIGN_OR_RETURN(engine.v_type,
                          ReadKvType(read.v_type, kernels::KvType::kInt8, "engine options.v_type"));
  QINFER_ASSIGN_OR_RETURN(
      engine.activations,
      ReadActivations(read.activations, exec::Activations::kAuto, "engine options.activations"));
  switch (read.determinism) {
    case QINFER_DETERMINISM_STRICT:
      break;
    case QINFER_DETERMINISM_FAST:
      engine.determinism = exec::Determinism::kFast;
      break;
    default:
      return BadOption(StrCat("engine options.determinism is ", read.determinism,
                              ", known are 0 (strict) and 1 (fast)"));
  }
  QINFER_RETURN_IF_ERROR(Reserved(read.reserved, "engine options.reserved"));
  choice.plan.context_tokens = engine.context_tokens;
  choice.plan.batch_tokens = engine.batch_tokens;
  choice.plan.logit_rows = std::min(engine.max_sessions, engine.batch_tokens);
  choice.plan.max_sequences = engine.max_sessions;
  choice.plan.k_type = engine.k_type;
  choice.plan.v_type = engine.v_type;
  choice.plan.activations = engine.activations;
  choice.plan.determinism = engine.determinism;
  return choice;
}

// What an engine and its sessions take beside the forward pass: the sampler's workspace, and, per
// session, its tokens and the logits that a prefill leaves.
Status AddSessions(const model::ModelSpec& spec, const engine::EngineOptions& options,
                   const exec::Context& context, exec::MemoryPlan* plan) {
  QINFER_ASSIGN_OR_RETURN(const uint64_t workspace,
                          engine::Engine::PlanWorkspaceBytes(spec, options, context));
  const uint64_t steady = plan->mapped_bytes + plan->weight_bytes + plan->tokenizer_bytes;
  const uint64_t context_tokens =
      options.context_tokens != 0 ? options.context_tokens : std::min(spec.max_context, 4096u);
  const uint64_t sessions = sizeof(int32_t) * context_tokens +
                            sizeof(float) * uint64_t{spec.vocab_size} * options.max_sessions;
  plan->workspace_bytes = workspace + sessions;
  plan->total_bytes =
      std::max(plan->load_peak_bytes, steady + plan->kv_bytes + plan->workspace_bytes);
  return OkStatus();
}

}  // namespace qinfer::api

using namespace qinfer::api;  // NOLINT: the entry points below live outside of any namespace

extern "C" {

qinfer_status qinfer_model_plan(qinfer_runtime* runtime, const qinfer_source* source,
                                const qinfer_load_options* load,
                                const qinfer_engine_options* engine, qinfer_memory_plan* out,
                                qinfer_error* err) {
  ClearOut(out);
  return GuardHandle(err, runtime, "runtime", [&]() -> Outcome {
    const std::shared_ptr<RuntimeState>& state = runtime->runtime;
    // An account of its own: asking what would not fit must work.
    qinfer::Memory memory(state->hooks);
    QINFER_ASSIGN_OR_RETURN(const SourceParts parts, ReadSource(source, &memory));
    QINFER_RETURN_IF_ERROR(CheckOut(out, "out"));
    QINFER_ASSIGN_OR_RETURN(const LoadChoice choice, ReadLoadOptions(load));
    QINFER_ASSIGN_OR_RETURN(const EngineChoice engine_choice, ReadEngineOptions(engine));
    qinfer::format::OpenOptions options;
    options.access = choice.access;
    options.memory = &memory;
    QINFER_ASSIGN_OR_RETURN(const std::shared_ptr<qinfer::format::Checkpoint> checkpoint,
                            OpenModel(parts, options));
    QINFER_ASSIGN_OR_RETURN(const qinfer::model::ModelSpec spec,
                            qinfer::model::SpecFromCheckpoint(*checkpoint));
    qinfer::exec::Context context = state->context();
    context.memory = &memory;
    qinfer::exec::PlanOptions plan_options = engine_choice.plan;
    plan_options.verify = choice.verify;
    QINFER_ASSIGN_OR_RETURN(qinfer::exec::MemoryPlan plan,
                            qinfer::exec::PlanMemory(*checkpoint, spec, plan_options, context));
    QINFER_RETURN_IF_ERROR(AddSessions(spec, engine_choice.engine, context, &plan));
    qinfer_memory_plan written = {};
    written.mapped_bytes = plan.mapped_bytes;
    written.weight_bytes = plan.weight_bytes;
    written.tokenizer_bytes = plan.tokenizer_bytes;
    written.load_peak_bytes = plan.load_peak_bytes;
    written.kv_bytes = plan.kv_bytes;
    written.workspace_bytes = plan.workspace_bytes;
    written.total_bytes = plan.total_bytes;
    WriteOut(written, out);
    return QINFER_OK;
  });
}

qinfer_status qinfer_model_load_begin(qinfer_runtime* runtime, const qinfer_source* source,
                                      const qinfer_load_options* load, qinfer_task** out,
                                      qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  return GuardHandle(err, runtime, "runtime", [&]() -> Outcome {
    QINFER_ASSIGN_OR_RETURN(SourceParts parts, ReadSource(source, &runtime->runtime->memory));
    QINFER_RETURN_IF_ERROR(NotNull(out, "out"));
    QINFER_ASSIGN_OR_RETURN(const LoadChoice choice, ReadLoadOptions(load));
    TaskParts task;
    task.kind = QINFER_TASK_LOAD;
    task.work = std::make_unique<ModelLoadWork>(runtime->runtime, std::move(parts), choice);
    task.collect = [](qinfer::Work* work, TaskResults* results) {
      results->model = static_cast<ModelLoadWork*>(work)->TakeModel();
      return qinfer::OkStatus();
    };
    return MakeTask(runtime->runtime, std::move(task), out);
  });
}

qinfer_status qinfer_model_load(qinfer_runtime* runtime, const qinfer_source* source,
                                const qinfer_load_options* load, qinfer_model** out,
                                qinfer_error* err) {
  if (out != nullptr) *out = nullptr;
  qinfer_task* task = nullptr;
  qinfer_status status = qinfer_model_load_begin(runtime, source, load, &task, err);
  if (status == QINFER_OK) status = qinfer_task_wait(task, UINT64_MAX, err);
  if (status == QINFER_OK) status = qinfer_task_take_model(task, out, err);
  qinfer_task_release(task);
  return status;
}

qinfer_status qinfer_model_load_path(qinfer_runtime* runtime, const char* path, size_t path_size,
                                     qinfer_model** out, qinfer_error* err) {
  qinfer_source source = QINFER_SOURCE_INIT;
  source.path.data = path;
  source.path.size = path_size;
  return qinfer_model_load(runtime, &source, nullptr, out, err);
}

qinfer_model* qinfer_model_retain(qinfer_model* model) { return RetainHandle(model); }

void qinfer_model_release(qinfer_model* model) { ReleaseHandle(model); }

}  // extern "C"
