// Making an engine: options, sizes, and the parts that sessions share.
#include <algorithm>

#include "engine/engine_impl.h"

namespace qinfer::engine {
namespace {

constexpr uint32_t kDefaultContext = 4096;
constexpr uint64_t kMaxContext = 1u << 30;  // positions are 32-bit, with room for sums
constexpr uint32_t kMaxSessions = 1u << 16, kMaxBatch = 1u << 16;
// Rows of logits that few sessions get as well, so that prompt lookup can check guesses.
constexpr uint32_t kLookupRows = 8;

Status FillOptions(const model::ModelSpec& spec, EngineOptions* options) {
  QINFER_RETURN_IF_ERROR(Engine::CheckLimits(*options));
  if (options->context_tokens == 0) {
    options->context_tokens = std::max(1u, std::min(spec.max_context, kDefaultContext));
  }
  options->batch_tokens =
      static_cast<uint32_t>(std::min<uint64_t>(options->batch_tokens, options->context_tokens));
  return OkStatus();
}

kv::CacheOptions CacheOptionsOf(const EngineOptions& options) {
  kv::CacheOptions cache;
  cache.k_type = options.k_type;
  cache.v_type = options.v_type;
  cache.max_tokens = options.context_tokens;
  cache.max_sequences = options.max_sessions;
  cache.max_reserve = options.batch_tokens;
  return cache;
}

exec::ForwardOptions ForwardOptionsOf(const model::ModelSpec& spec, const EngineOptions& options) {
  exec::ForwardOptions forward;
  forward.max_batch_tokens = options.batch_tokens;
  forward.max_logit_rows =
      std::min(std::max(options.max_sessions, kLookupRows), options.batch_tokens);
  forward.activations = options.activations;
  forward.determinism = options.determinism;
  forward.expanded_type = options.k_type;
  forward.max_position = exec::LongestSequence(spec, options.context_tokens);
  return forward;
}

Status CheckLimit(const char* option, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return OkStatus();
  return MisuseError(
      StrCat("engine options.", option, " is ", value, "; ", least, " to ", most, " are possible"));
}

}  // namespace

Status Engine::CheckLimits(const EngineOptions& options) {
  QINFER_RETURN_IF_ERROR(CheckLimit("context_tokens", options.context_tokens, 0, kMaxContext));
  QINFER_RETURN_IF_ERROR(CheckLimit("max_sessions", options.max_sessions, 1, kMaxSessions));
  return CheckLimit("batch_tokens", options.batch_tokens, 1, kMaxBatch);
}

StatusOr<std::shared_ptr<Engine>> Engine::Create(std::shared_ptr<const exec::Model> model,
                                                 const exec::Context& context,
                                                 const EngineOptions& options) {
  EngineOptions filled = options;
  QINFER_RETURN_IF_ERROR(FillOptions(model->spec(), &filled));
  auto engine = std::make_shared<EngineImpl>(std::move(model), context, filled);
  QINFER_RETURN_IF_ERROR(engine->Init());
  return std::shared_ptr<Engine>(std::move(engine));
}

StatusOr<uint64_t> Engine::PlanBytes(const model::ModelSpec& spec, const EngineOptions& options,
                                     const exec::Context& context) {
  EngineOptions filled = options;
  QINFER_RETURN_IF_ERROR(FillOptions(spec, &filled));
  const auto layout = exec::CacheLayout(spec, filled.k_type, filled.v_type);
  QINFER_ASSIGN_OR_RETURN(const uint64_t workspace, PlanWorkspaceBytes(spec, options, context));
  return kv::Cache::PlanBytes(layout, CacheOptionsOf(filled)) + workspace;
}

StatusOr<uint64_t> Engine::PlanWorkspaceBytes(const model::ModelSpec& spec,
                                              const EngineOptions& options,
                                              const exec::Context& context) {
  EngineOptions filled = options;
  QINFER_RETURN_IF_ERROR(FillOptions(spec, &filled));
  return exec::Forward::PlanBytes(spec, ForwardOptionsOf(spec, filled), context) +
         SamplingScratch::Bytes(spec.vocab_size);
}

Status EngineImpl::Init() {
  const model::ModelSpec& spec = model_->spec();
  longest_sequence_ = exec::LongestSequence(spec, options_.context_tokens);
  QINFER_ASSIGN_OR_RETURN(
      cache_, kv::Cache::Create(exec::CacheLayout(spec, options_.k_type, options_.v_type),
                                CacheOptionsOf(options_), context_.memory));
  const exec::ForwardOptions forward = ForwardOptionsOf(spec, options_);
  QINFER_ASSIGN_OR_RETURN(forward_, exec::Forward::Create(model_, context_, forward));
  logit_rows_ = forward.max_logit_rows;
  QINFER_ASSIGN_OR_RETURN(scratch_, SamplingScratch::Create(spec.vocab_size, context_.memory));
  eos_ids_ = model_->generation_defaults().eos_ids;
  if (model_->tokenizer() != nullptr && model_->tokenizer()->eos_id() >= 0) {
    eos_ids_.push_back(model_->tokenizer()->eos_id());
  }
  std::sort(eos_ids_.begin(), eos_ids_.end());
  jobs_.reserve(options_.max_sessions);
  order_.reserve(options_.max_sessions);
  batch_.reserve(options_.max_sessions);
  segments_.reserve(options_.max_sessions);
  return OkStatus();
}

StatusOr<std::shared_ptr<Session>> EngineImpl::NewSession() {
  ExclusiveLock lock(this);
  QINFER_ASSIGN_OR_RETURN(auto sequence, cache_->NewSequence());
  QINFER_ASSIGN_OR_RETURN(auto session, AddSession(std::move(sequence)));
  return std::shared_ptr<Session>(std::move(session));
}

StatusOr<std::shared_ptr<SessionImpl>> EngineImpl::AddSession(
    std::unique_ptr<kv::Sequence> sequence) {
  if (sessions_ >= options_.max_sessions) {
    return BudgetError(StrCat("max_sessions is ", options_.max_sessions,
                              " and all of them are in use; release one or make it larger"));
  }
  auto session = std::make_shared<SessionImpl>(
      std::static_pointer_cast<EngineImpl>(shared_from_this()), std::move(sequence));
  ++sessions_;
  return session;
}

}  // namespace qinfer::engine
