// A sequence of tokens and how much of it is computed. What advances it is in scheduler.cpp.
#include <algorithm>

#include "engine/engine_impl.h"

namespace qinfer::engine {

SessionImpl::SessionImpl(std::shared_ptr<EngineImpl> engine, std::unique_ptr<kv::Sequence> sequence)
    : engine_(std::move(engine)),
      sequence_(std::move(sequence)),
      tokens_(engine_->context().memory) {}

SessionImpl::~SessionImpl() {
  EngineImpl::ExclusiveLock lock(engine_.get());
  sequence_.reset();
  engine_->RemoveSession();
}

uint32_t SessionImpl::length() const {
  std::lock_guard<std::mutex> lock(engine_->mutex());
  return size();
}

absl::Span<const int32_t> SessionImpl::tokens() const {
  std::lock_guard<std::mutex> lock(engine_->mutex());
  return token_span();
}

Status SessionImpl::CheckIdle(const char* what) const {
  if (job == nullptr) return OkStatus();
  return BusyError(
      StrCat("cannot ", what,
             " while a generation or prefill of this session is unfinished; step it to "
             "its end or release it"));
}

Status SessionImpl::Append(absl::Span<const int32_t> tokens) {
  std::lock_guard<std::mutex> lock(engine_->mutex());
  QINFER_RETURN_IF_ERROR(CheckIdle("append"));
  if (tokens.size() > engine_->longest_sequence() - size()) {
    return BudgetError(StrCat("appending ", tokens.size(), " tokens to ", size(),
                              " would exceed the longest sequence of ", engine_->longest_sequence(),
                              " (context_tokens, and what the model was made for)"));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= engine_->vocab_size()) {
      return MisuseError(StrCat("token ", i, " of those appended is ", tokens[i],
                                "; the vocabulary has ids 0 to ", engine_->vocab_size() - 1));
    }
  }
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return OkStatus();
}

absl::Span<const float> SessionImpl::stored_logits() const {
  return {logits_.as<float>(), engine_->vocab_size()};
}

void SessionImpl::StoreLogits(absl::Span<const float> logits) {
  std::copy(logits.begin(), logits.end(), logits_.as<float>());
  logits_length_ = size();
}

StatusOr<absl::Span<const float>> SessionImpl::LastLogits() const {
  std::lock_guard<std::mutex> lock(engine_->mutex());
  if (!has_logits()) {
    return MisuseError(
        "there are no logits after the last token: it has not been computed by a prefill");
  }
  return stored_logits();
}

Status SessionImpl::Rewind(uint32_t length) {
  if (length >= sequence_->length()) return OkStatus();
  if (sequence_->Truncate(length).ok()) return OkStatus();
  // A window has recycled pages that position `length` needs: compute everything anew.
  QINFER_ASSIGN_OR_RETURN(sequence_, engine_->cache()->NewSequence());
  return OkStatus();
}

Status SessionImpl::FitRopes() {
  const uint32_t variant = model::RopeVariant(engine_->model().spec(), size());
  return sequence_->length() == 0 || sequence_->variant() == variant ? OkStatus() : Rewind(0);
}

Status SessionImpl::MakeComputable() {
  if (tokens_.empty()) {
    return MisuseError("the session is empty: append at least one token (such as BOS) first");
  }
  return pending() == 0 && !has_logits() ? Rewind(size() - 1) : OkStatus();
}

StatusOr<std::unique_ptr<Work>> SessionImpl::Prefill() {
  EngineImpl::ExclusiveLock lock(engine_.get());
  QINFER_RETURN_IF_ERROR(CheckIdle("prefill"));
  QINFER_RETURN_IF_ERROR(MakeComputable());
  if (logits_.empty()) {
    QINFER_ASSIGN_OR_RETURN(logits_, Buffer::Create(engine_->context().memory,
                                                    sizeof(float) * size_t{engine_->vocab_size()},
                                                    "a session's logits"));
  }
  return MakePrefill(shared_from_this());
}

StatusOr<std::unique_ptr<Generation>> SessionImpl::Generate(const GenerateOptions& options) {
  EngineImpl::ExclusiveLock lock(engine_.get());
  QINFER_RETURN_IF_ERROR(CheckIdle("generate"));
  QINFER_RETURN_IF_ERROR(MakeComputable());
  const uint32_t room = engine_->longest_sequence() - size();
  tokens_.reserve(size() + (options.max_tokens == 0 ? room : std::min(room, options.max_tokens)));
  return MakeGeneration(shared_from_this(), options);
}

StatusOr<std::shared_ptr<Session>> SessionImpl::Fork() const {
  EngineImpl::ExclusiveLock lock(engine_.get());
  QINFER_RETURN_IF_ERROR(CheckIdle("fork"));
  QINFER_ASSIGN_OR_RETURN(auto sequence, sequence_->Fork());
  Buffer logits;
  if (has_logits()) {
    QINFER_ASSIGN_OR_RETURN(
        logits, Buffer::Create(engine_->context().memory, logits_.size(), "a session's logits"));
  }
  std::pmr::vector<int32_t> tokens(tokens_, engine_->context().memory);
  QINFER_ASSIGN_OR_RETURN(auto fork, engine_->AddSession(std::move(sequence)));
  fork->tokens_ = std::move(tokens);
  if (has_logits()) {
    fork->logits_ = std::move(logits);
    fork->StoreLogits(stored_logits());
  }
  return std::shared_ptr<Session>(std::move(fork));
}

Status SessionImpl::Truncate(uint32_t length) {
  EngineImpl::ExclusiveLock lock(engine_.get());
  QINFER_RETURN_IF_ERROR(CheckIdle("truncate"));
  if (length > size()) {
    return MisuseError(StrCat("cannot truncate ", size(), " tokens to ", length));
  }
  if (length == size()) return OkStatus();
  // The last token left is computed again, since its logits were not kept; unless they were.
  const bool keeps_logits = length != 0 && logits_length_ == length;
  if (!keeps_logits) {
    QINFER_RETURN_IF_ERROR(Rewind(length == 0 ? 0 : length - 1));
    logits_length_ = 0;
  } else {
    QINFER_RETURN_IF_ERROR(Rewind(length));
  }
  tokens_.resize(length);
  return OkStatus();
}

}  // namespace qinfer::engine
