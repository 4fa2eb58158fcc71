// The two jobs: a prefill, and a generation with its sampler, text and events. When they run is
// decided in scheduler.cpp.
#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/harmony.h"

namespace qinfer::engine {
namespace {

class PrefillImpl final : public Work, public Job {
 public:
  explicit PrefillImpl(std::shared_ptr<SessionImpl> session) : Job(std::move(session)) {
    progress_.phase = "prefill";
    progress_.total = session_->size();
    progress_.done = session_->sequence()->length();
  }
  ~PrefillImpl() override { Detach(); }

  StatusOr<bool> Step(const Deadline& deadline) override {
    return session_->engine()->StepJob(this, deadline);
  }
  Status TakeLogits(absl::Span<const float> logits, absl::Span<const float>) override {
    session_->StoreLogits(logits);
    return OkStatus();
  }
  void Committed(bool took_logits) override {
    progress_.done = session_->sequence()->length();
    if (took_logits) state = State::kFinished;
  }
};

// How much white space may lie between a tag that opens the reasoning and the end of the prompt.
constexpr size_t kWhiteSpaceTokens = 64;

class GenerationImpl final : public Generation, public Job {
 public:
  GenerationImpl(std::shared_ptr<SessionImpl> session, const GenerateOptions& options)
      : Job(std::move(session)),
        options_(options),
        text_(options.stop_strings),
        prompt_tokens_(session_->size()) {
    const auto* tokenizer = session_->engine()->model().tokenizer();
    const auto before = session_->token_span();
    at_text_start_ = std::all_of(before.begin(), before.end(), [&](int32_t token) {
      return tokenizer != nullptr && tokenizer->IsSpecial(token);
    });
    if (options_.reasoning.has_value()) InitReasoning(before);
    std::sort(options_.stop_tokens.begin(), options_.stop_tokens.end());
    progress_.phase = "prefill";
  }
  ~GenerationImpl() override { Detach(); }

  Status Init() {
    EngineImpl* engine = session_->engine();
    if (options_.logprobs > engine->vocab_size()) {
      return MisuseError(StrCat("logprobs is ", options_.logprobs, "; the vocabulary has ",
                                engine->vocab_size(), " tokens"));
    }
    const uint32_t room = engine->longest_sequence() - session_->size();
    const uint32_t most = options_.max_tokens == 0 ? room : std::min(room, options_.max_tokens);
    progress_.total = most;
    QINFER_ASSIGN_OR_RETURN(
        sampler_, Sampler::Create(options_.sampling, engine->vocab_size(), session_->token_span(),
                                  most, engine->context().memory, engine->context().kernels));
    if (options_.prompt_lookup) {
      QINFER_ASSIGN_OR_RETURN(lookup_, PromptLookup::Create(uint64_t{session_->size()} + most,
                                                            engine->context().memory));
    }
    if (room == 0) {
      events_.emplace_back();
      events_.back().finish = FinishReason::kContextFull;
      if (splitter_ != nullptr) events_.back().channel = splitter_->channel();
      state = State::kFinished;
    }
    return OkStatus();
  }

  StatusOr<bool> Step(const Deadline& deadline) override {
    return session_->engine()->StepJob(this, deadline);
  }

  bool NextEvent(Event* out) override {
    std::lock_guard<std::mutex> lock(session_->engine()->mutex());
    if (events_.empty()) return false;
    *out = std::move(events_.front());
    events_.pop_front();
    return true;
  }
  uint32_t prompt_tokens() const override { return prompt_tokens_; }
  uint32_t generated_tokens() const override { return generated_.load(std::memory_order_relaxed); }

  LookupCounts lookup_counts() const override {
    std::lock_guard<std::mutex> lock(session_->engine()->mutex());
    return lookup_ == nullptr ? LookupCounts() : lookup_->counts();
  }

  PromptLookup* ProposeDraft(uint32_t most) override {
    if (lookup_ == nullptr) return nullptr;
    EngineImpl* engine = session_->engine();
    // The last token that may be generated needs no step after it.
    uint32_t left = engine->longest_sequence() - session_->size();
    if (options_.max_tokens != 0) left = std::min(left, options_.max_tokens - generated_tokens());
    most = std::min(most, left == 0 ? 0 : left - 1);
    most = lookup_->Propose(session_->token_span(), most);
    // Nor does a token that ends the generation.
    const auto draft = lookup_->proposal();
    const auto end = std::find_if(draft.begin(), draft.end(), [this](int32_t token) {
      return EndToken(token) != FinishReason::kNone;
    });
    most = std::min(most, static_cast<uint32_t>(end - draft.begin()));
    // Tokens of one step have one rotation.
    const model::ModelSpec& spec = engine->model().spec();
    const uint32_t variant = model::RopeVariant(spec, session_->size());
    while (most > 0 && model::RopeVariant(spec, session_->size() + most) != variant) --most;
    lookup_->Shorten(most);
    return lookup_.get();
  }

  Status TakeLogits(absl::Span<const float> logits, absl::Span<const float> maxima) override {
    EngineImpl* engine = session_->engine();
    QINFER_ASSIGN_OR_RETURN(const int32_t token,
                            sampler_->Sample(logits, session_->size(), engine->scratch(), maxima));
    Event event;
    event.token = token;
    if (options_.logprobs > 0) {
      Logprobs(logits, token, options_.logprobs, *engine->context().kernels, engine->scratch(),
               &event.logprobs);
    }
    event.finish = EndToken(token);
    if (event.finish == FinishReason::kNone && AddText(token, &event.text)) {
      event.finish = FinishReason::kStopString;
    }
    if (event.finish == FinishReason::kNone) event.finish = Limit();
    if (event.finish != FinishReason::kNone) text_.Flush(&event.text);
    sampler_->Accept(token);
    next_token_ = token;
    next_finish_ = event.finish;
    AddEvent(std::move(event));
    return OkStatus();
  }

  void Committed(bool took_logits) override {
    if (!took_logits) return;
    session_->AddToken(next_token_);
    progress_.phase = "generate";
    progress_.done = generated_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (next_finish_ != FinishReason::kNone) state = State::kFinished;
  }

 private:
  // Tags that are special tokens have no text elsewhere; here they have theirs, and the splitter
  // takes it away again.
  void InitReasoning(absl::Span<const int32_t> before) {
    const auto* tokenizer = session_->engine()->model().tokenizer();
    if (options_.reasoning->channels && tokenizer != nullptr) {
      special_tags_ = HarmonyMarkers(*tokenizer);
    }
    if (!special_tags_.empty()) {
      const std::optional<Channel> start = options_.reasoning->start;
      auto splitter = std::make_unique<HarmonySplitter>(start.value_or(Channel::kText));
      if (!start.has_value()) splitter->Begin(HarmonyStart(*tokenizer, before));
      splitter_ = std::move(splitter);
      return;
    }
    const ReasoningTags& tags = options_.reasoning->tags;
    std::string prompt;  // its end
    if (tokenizer != nullptr) {
      for (const std::string* text : {&tags.begin, &tags.end}) {
        const int32_t id = tokenizer->TokenId(*text);
        if (tokenizer->IsSpecial(id)) special_tags_.push_back(id);
      }
      const size_t count = std::min(before.size(), tags.begin.size() + kWhiteSpaceTokens);
      for (const int32_t token : before.last(count)) {
        tokenizer->AppendToken(token, /*first=*/false, /*skip_special=*/false, &prompt);
      }
    }
    const Channel found = OpensReasoning(prompt, tags) ? Channel::kReasoning : Channel::kText;
    splitter_ =
        std::make_unique<ReasoningSplitter>(tags, options_.reasoning->start.value_or(found));
  }

  void AddEvent(Event event) {
    if (splitter_ == nullptr) {
      events_.push_back(std::move(event));
      return;
    }
    std::vector<ChannelSplitter::Piece> pieces;
    splitter_->Push(event.text, &pieces);
    if (event.finish != FinishReason::kNone) splitter_->Flush(&pieces);
    event.text.clear();
    event.channel = splitter_->channel();
    const FinishReason finish = std::exchange(event.finish, FinishReason::kNone);
    for (ChannelSplitter::Piece& piece : pieces) {
      if (!event.text.empty()) {
        events_.push_back(std::move(event));
        event = Event();
      }
      event.channel = piece.channel;
      event.text = std::move(piece.text);
    }
    event.finish = finish;
    events_.push_back(std::move(event));
  }

  FinishReason EndToken(int32_t token) const {
    const auto& ends = session_->engine()->eos_ids();
    if (!options_.ignore_eos && std::binary_search(ends.begin(), ends.end(), token)) {
      return FinishReason::kEos;
    }
    const auto& stops = options_.stop_tokens;
    return std::binary_search(stops.begin(), stops.end(), token) ? FinishReason::kStopToken
                                                                 : FinishReason::kNone;
  }

  // True when the token completes a stop string.
  bool AddText(int32_t token, std::string* out) {
    const auto* tokenizer = session_->engine()->model().tokenizer();
    if (tokenizer == nullptr) return false;
    bytes_.clear();
    const bool tag =
        std::find(special_tags_.begin(), special_tags_.end(), token) != special_tags_.end();
    tokenizer->AppendToken(token, at_text_start_, /*skip_special=*/!tag, &bytes_);
    at_text_start_ = at_text_start_ && tokenizer->IsSpecial(token);
    return text_.Push(bytes_, out);
  }

  FinishReason Limit() const {
    if (options_.max_tokens != 0 && generated_tokens() + 1 >= options_.max_tokens) {
      return FinishReason::kMaxTokens;
    }
    return session_->size() + 1 >= session_->engine()->longest_sequence()
               ? FinishReason::kContextFull
               : FinishReason::kNone;
  }

  GenerateOptions options_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<PromptLookup> lookup_;  // null where it was not asked for
  TextStream text_;
  std::unique_ptr<ChannelSplitter> splitter_;  // null where reasoning is not split
  std::vector<int32_t> special_tags_;          // special tokens that the splitter sees as text
  const uint32_t prompt_tokens_;
  std::atomic<uint32_t> generated_{0};
  bool at_text_start_ = false;  // only special tokens so far
  std::string bytes_;
  std::deque<Event> events_;
  int32_t next_token_ = -1;  // sampled, committed next
  FinishReason next_finish_ = FinishReason::kNone;
};

}  // namespace

StatusOr<std::unique_ptr<Generation>> MakeGeneration(std::shared_ptr<SessionImpl> session,
                                                     const GenerateOptions& options) {
  EngineImpl* engine = session->engine();
  auto generation = std::make_unique<GenerationImpl>(std::move(session), options);
  QINFER_RETURN_IF_ERROR(generation->Init());
  if (generation->state == Job::State::kActive) engine->AddJob(generation.get());
  return std::unique_ptr<Generation>(std::move(generation));
}

StatusOr<std::unique_ptr<Work>> MakePrefill(std::shared_ptr<SessionImpl> session) {
  EngineImpl* engine = session->engine();
  auto prefill = std::make_unique<PrefillImpl>(std::move(session));
  if (prefill->session()->pending() == 0) {
    prefill->state = Job::State::kFinished;
  } else {
    engine->AddJob(prefill.get());
  }
  return std::unique_ptr<Work>(std::move(prefill));
}

}  // namespace qinfer::engine
