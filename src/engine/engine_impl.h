// Private to src/engine: the engine's state, and what sessions and jobs (prefills and generations)
// need of each other. The locking rules are here; policy is in scheduler.cpp.
//
// One mutex guards everything. The thread that steps sets `stepping_` and releases the mutex while
// the forward pass runs, in slices of at most kSliceNs, so that others can read state at any time.
// Whoever changes KV pages or takes a job out takes an ExclusiveLock, which waits for the slice to
// end. So the forward pass never runs while pages change hands.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/text_stream.h"
#include "kv/cache.h"

namespace qinfer::engine {

class EngineImpl;
class SessionImpl;

// Something that a session wants computed. Everything but the constructor and the destructor is
// called with the engine's mutex held.
class Job {
 public:
  explicit Job(std::shared_ptr<SessionImpl> session) : session_(std::move(session)) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  virtual ~Job() = default;

  // The logits after all of the session's tokens, before their KV is committed, with the maxima of
  // panels where they are known. An error leaves the session as it was, and is the end of this job
  // alone.
  virtual Status TakeLogits(absl::Span<const float> logits, absl::Span<const float> maxima) = 0;
  // After the commit that follows; `took_logits` tells whether TakeLogits came before. Cannot fail.
  virtual void Committed(bool took_logits) = 0;
  // Guesses what follows the session's last token, at most `most` tokens, for a step that begins
  // with that token. Null: this job never guesses.
  virtual PromptLookup* ProposeDraft(uint32_t /*most*/) { return nullptr; }

  SessionImpl* session() const { return session_.get(); }

  enum class State : uint8_t { kActive, kFinished, kFailed };
  State state = State::kActive;
  Status status;         // of kFailed
  bool alone = false;    // was in a batch that failed: runs by itself to find out whose fault it is
  bool in_step = false;  // a thread is inside its Step
  bool added = false;    // the scheduler knows it

 protected:
  // For the destructors of derived classes, so that nobody calls what is half gone.
  void Detach();

  std::shared_ptr<SessionImpl> session_;
};

class SessionImpl final : public Session, public std::enable_shared_from_this<SessionImpl> {
 public:
  SessionImpl(std::shared_ptr<EngineImpl> engine, std::unique_ptr<kv::Sequence> sequence);
  ~SessionImpl() override;

  uint32_t length() const override;
  absl::Span<const int32_t> tokens() const override;
  Status Append(absl::Span<const int32_t> tokens) override;
  StatusOr<std::unique_ptr<Work>> Prefill() override;
  StatusOr<absl::Span<const float>> LastLogits() const override;
  StatusOr<std::unique_ptr<Generation>> Generate(const GenerateOptions& options) override;
  StatusOr<std::shared_ptr<Session>> Fork() const override;
  Status Truncate(uint32_t length) override;

  // With the engine's mutex held:
  uint32_t pending() const { return size() - sequence_->length(); }
  uint32_t size() const { return static_cast<uint32_t>(tokens_.size()); }
  bool has_logits() const { return logits_length_ != 0 && logits_length_ == size(); }
  absl::Span<const float> stored_logits() const;
  void StoreLogits(absl::Span<const float> logits);
  void AddToken(int32_t token) { tokens_.push_back(token); }  // room was made before
  kv::Sequence* sequence() { return sequence_.get(); }
  // Starts over where the session's length asks for other rotations of its keys than they have.
  Status FitRopes();
  EngineImpl* engine() const { return engine_.get(); }
  absl::Span<const int32_t> token_span() const { return {tokens_.data(), tokens_.size()}; }
  Job* job = nullptr;  // what is under way, if anything

 private:
  Status CheckIdle(const char* what) const;
  // Makes sure that computing what is pending ends in logits for the next token.
  Status MakeComputable();
  // Forgets computed tokens from `length` on; all of them where their pages are gone.
  Status Rewind(uint32_t length);

  std::shared_ptr<EngineImpl> engine_;
  std::unique_ptr<kv::Sequence> sequence_;
  std::pmr::vector<int32_t> tokens_;
  Buffer logits_;               // [vocab_size], from the first Prefill on
  uint32_t logits_length_ = 0;  // after how many tokens; 0 = none
};

class EngineImpl final : public Engine {
 public:
  static constexpr uint64_t kSliceNs = 2'000'000;

  EngineImpl(std::shared_ptr<const exec::Model> model, const exec::Context& context,
             const EngineOptions& options)
      : model_(std::move(model)), context_(context), options_(options) {}
  Status Init();

  StatusOr<std::shared_ptr<Session>> NewSession() override;
  const exec::Model& model() const override { return *model_; }
  const EngineOptions& options() const override { return options_; }

  const exec::Context& context() const { return context_; }
  uint32_t vocab_size() const { return model_->spec().vocab_size; }
  uint32_t longest_sequence() const { return longest_sequence_; }
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }  // sorted
  kv::Cache* cache() { return cache_.get(); }
  SamplingScratch* scratch() { return &scratch_; }
  std::mutex& mutex() { return mutex_; }

  // Waits until no forward pass is running, and keeps it so.
  class ExclusiveLock {
   public:
    explicit ExclusiveLock(EngineImpl* engine);
    ~ExclusiveLock();
    ExclusiveLock(const ExclusiveLock&) = delete;
    ExclusiveLock& operator=(const ExclusiveLock&) = delete;

   private:
    EngineImpl* engine_;
    std::unique_lock<std::mutex> lock_;
  };

  // Under an ExclusiveLock.
  StatusOr<std::shared_ptr<SessionImpl>> AddSession(std::unique_ptr<kv::Sequence> sequence);
  void RemoveSession() { --sessions_; }
  void AddJob(Job* job);
  void CancelJob(Job* job);

  // Advances all jobs until this one is done or the deadline.
  StatusOr<bool> StepJob(Job* job, const Deadline& deadline);

 private:
  struct Item {
    Job* job;
    uint32_t count;  // of the session's tokens
    bool wants_logits;
    PromptLookup* lookup = nullptr;
    uint32_t guessed = 0;  // tokens after those
  };

  void Advance(std::unique_lock<std::mutex>* lock, const Deadline& deadline);
  void UseStoredLogits();
  void FormBatch();
  void AddItem(Job* job, uint32_t* room);
  void AddDrafts(uint32_t room);
  uint32_t ReserveDraft(kv::Sequence* sequence, uint32_t most);
  void RecordCosts();
  void FinishBatch();
  Status FinishItem(const Item& item, uint32_t first_row);
  void FailBatch(const Status& status);
  void AbandonBatch();
  void EndJob(Job* job, Job::State state, const Status& status);
  void WaitExclusive(std::unique_lock<std::mutex>* lock);

  const std::shared_ptr<const exec::Model> model_;
  const exec::Context context_;
  EngineOptions options_;
  uint32_t longest_sequence_ = 0;
  std::vector<int32_t> eos_ids_;
  std::shared_ptr<kv::Cache> cache_;
  std::unique_ptr<exec::Forward> forward_;
  uint32_t logit_rows_ = 0;  // of a batch, at most
  SamplingScratch scratch_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stepping_ = false;
  uint32_t waiting_ = 0;  // for exclusive use
  uint32_t sessions_ = 0;
  std::vector<Job*> jobs_, order_;  // room for max_sessions from the start, like the next three
  std::vector<Item> batch_;
  std::vector<exec::BatchSegment> segments_;
  bool in_flight_ = false;
  uint64_t batch_ns_ = 0;  // what the batch in flight has taken
  size_t turn_ = 0;
  StepCosts costs_;
};

StatusOr<std::unique_ptr<Generation>> MakeGeneration(std::shared_ptr<SessionImpl> session,
                                                     const GenerateOptions& options);
StatusOr<std::unique_ptr<Work>> MakePrefill(std::shared_ptr<SessionImpl> session);

}  // namespace qinfer::engine
