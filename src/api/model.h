// The state behind qinfer_model: an opened checkpoint with as much of the model as was asked for.
// Immutable once loaded.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "api/runtime.h"
#include "api/source.h"
#include "api/task.h"
#include "exec/model.h"
#include "exec/text_parts.h"
#include "format/checkpoint.h"
#include "model/spec.h"
#include "qinfer/model.h"

namespace qinfer::api {

class ModelState {
 public:
  explicit ModelState(std::shared_ptr<RuntimeState> owner) : runtime(std::move(owner)) {}

  const tokenizer::Tokenizer* tokenizer() const {
    return model != nullptr ? model->tokenizer() : text.tokenizer.get();
  }
  // The same; keeps the model.
  static std::shared_ptr<const tokenizer::Tokenizer> ShareTokenizer(
      const std::shared_ptr<ModelState>& state) {
    if (state->tokenizer() == nullptr) return nullptr;
    return std::shared_ptr<const tokenizer::Tokenizer>(state, state->tokenizer());
  }
  const tokenizer::ChatTemplate* chat_template() const {
    return model != nullptr ? model->chat_template() : text.chat_template.get();
  }
  const std::string& chat_template_error() const {
    return model != nullptr ? model->chat_template_error() : text.chat_template_error;
  }

  // The same text, at an address that lives as long as the model.
  std::string_view FormatName(const std::string& name);

  std::shared_ptr<RuntimeState> runtime;  // outlives everything below
  std::string name;
  std::shared_ptr<format::Checkpoint> checkpoint;  // null for a tokenizer.json alone
  std::optional<model::ModelSpec> spec;
  std::shared_ptr<const exec::Model> model;  // QINFER_PARTS_ALL
  exec::TextParts text;                      // QINFER_PARTS_VOCABULARY, before there is a model

 private:
  std::mutex names_mutex_;
  std::set<std::string> names_;  // of formats handed out; nodes stay where they are
};

// MisuseErrors that say which part is missing and how to get it.
Status NeedTokenizer(const ModelState& model);
Status NeedWeights(const ModelState& model);
Status NeedCheckpoint(const ModelState& model);

struct LoadChoice {
  io::Access access = io::Access::kMap;
  uint32_t parts = 0;
  bool verify = false;
};
StatusOr<LoadChoice> ReadLoadOptions(const qinfer_load_options* options);

// The engine options as a memory plan takes them, and with defaults; shared by plan and engine.
struct EngineChoice {
  engine::EngineOptions engine;
  exec::PlanOptions plan;
};
// Adds to a plan what sessions need.
Status AddSessions(const model::ModelSpec& spec, const engine::EngineOptions& options,
                   const exec::Context& context, exec::MemoryPlan* plan);
StatusOr<EngineChoice> ReadEngineOptions(const qinfer_engine_options* options);
StatusOr<kernels::KvType> ReadKvType(uint32_t type, kernels::KvType by_default, const char* name);
StatusOr<exec::Activations> ReadActivations(uint32_t activations, exec::Activations by_default,
                                            const char* name);

}  // namespace qinfer::api

struct qinfer_model {
  qinfer_model(std::shared_ptr<qinfer::api::RuntimeState> owner,
               std::shared_ptr<qinfer::api::ModelState> loaded)
      : header(qinfer::api::HandleTraits<qinfer_model>::kMagic),
        runtime(std::move(owner)),
        state(std::move(loaded)) {}
  qinfer::api::HandleHeader header;  // first
  std::shared_ptr<qinfer::api::RuntimeState> runtime;
  std::shared_ptr<qinfer::api::ModelState> state;
};
