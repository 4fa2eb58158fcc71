// Loading a whole model as a Work: plan, then set by set allocate and load pieces, then the
// tokenizer and its like. Nothing is visible before the last piece; destroying the work frees all.
#include <utility>

#include "exec/load_pieces.h"
#include "exec/model.h"
#include "exec/tensor_set.h"
#include "exec/text_parts.h"

namespace qinfer::exec {
namespace {

constexpr uint64_t kBlockBytes = 64 << 20;  // of the memory that sets share, where they are smaller

class ModelImpl final : public Model {
 public:
  const model::ModelSpec& spec() const override { return spec_; }
  const LayerWeights& layer(uint32_t index) const override { return layers_[index]; }
  const EndWeights& ends() const override { return ends_; }
  const tokenizer::Tokenizer* tokenizer() const override { return text_.tokenizer.get(); }
  const tokenizer::ChatTemplate* chat_template() const override {
    return text_.chat_template.get();
  }
  const std::string& chat_template_error() const override { return text_.chat_template_error; }
  const model::GenerationDefaults& generation_defaults() const override { return text_.defaults; }
  const format::Checkpoint& checkpoint() const override { return *checkpoint_; }
  uint64_t weight_bytes() const override { return weight_bytes_; }

 private:
  friend class LoadWorkImpl;
  std::shared_ptr<format::Checkpoint> checkpoint_;  // sets may point into its maps
  model::ModelSpec spec_;
  std::vector<TensorSet> sets_;  // the ends, then the layers
  std::vector<Buffer> blocks_;   // in which tensors of sets are placed
  std::vector<LayerWeights> layers_;
  EndWeights ends_;
  TextParts text_;
  uint64_t weight_bytes_ = 0;
};

class LoadWorkImpl final : public LoadWork {
 public:
  LoadWorkImpl(std::shared_ptr<format::Checkpoint> checkpoint,
               std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const Context& context)
      : context_(context), model_(std::make_shared<ModelImpl>()), tokenizer_(std::move(tokenizer)) {
    model_->checkpoint_ = std::move(checkpoint);
  }

  Status Init() {
    const format::Checkpoint& checkpoint = *model_->checkpoint_;
    if (checkpoint.container() == format::Container::kConfigOnly) {
      return MisuseError(checkpoint.name() + ": a configuration without weights cannot be loaded");
    }
    QINFER_ASSIGN_OR_RETURN(model_->spec_, model::SpecFromCheckpoint(checkpoint));
    size_t scratch = 0;
    uint64_t pieces = 0;
    uint32_t most_pieces = 0;
    for (size_t i = 0; i <= model_->spec_.layers.size(); ++i) {
      StatusOr<TensorSet> set =
          i == 0 ? TensorSet::PlanEnds(checkpoint, model_->spec_)
                 : TensorSet::PlanLayer(checkpoint, model_->spec_, static_cast<uint32_t>(i - 1));
      if (!set.ok()) return set.status();
      scratch = std::max(scratch, set->scratch_bytes());
      most_pieces = std::max(most_pieces, set->pieces());
      pieces += set->pieces();
      model_->weight_bytes_ += set->allocated_bytes() + set->mapped_bytes();
      model_->sets_.push_back(*std::move(set));
    }
    scratch_bytes_ = scratch;
    most_pieces_ = most_pieces;
    progress_.total = pieces + 1;  // the tokenizer is the last
    progress_.phase = "read weights";
    return OkStatus();
  }

  StatusOr<bool> Step(const Deadline& deadline) override {
    if (deadline.Cancelled()) {
      Drop();
      return CancelledError();
    }
    StatusOr<bool> done = Advance(deadline);
    if (!done.ok()) Drop();
    return done;
  }

  std::shared_ptr<const Model> TakeModel() override {
    return finished_ ? std::shared_ptr<const Model>(std::move(model_)) : nullptr;
  }

 private:
  StatusOr<bool> Advance(const Deadline& deadline) {
    const format::Checkpoint& checkpoint = *model_->checkpoint_;
    while (set_ < model_->sets_.size()) {
      TensorSet& set = model_->sets_[set_];
      if (!placed_) {
        if (loader_ == nullptr && most_pieces_ > 0) {
          QINFER_ASSIGN_OR_RETURN(PieceLoader loader,
                                  PieceLoader::Create(context_, scratch_bytes_, most_pieces_));
          loader_ = std::make_unique<PieceLoader>(std::move(loader));
        }
        QINFER_RETURN_IF_ERROR(Place(&set));
        placed_ = true;
      }
      if (set.pieces() > 0) {
        const uint32_t before = next_piece_;
        StatusOr<bool> done = loader_->Run(checkpoint, &set, deadline, &next_piece_);
        if (!done.ok()) return Annotate(done.status(), checkpoint.name());
        progress_.done += next_piece_ - before;
        if (deadline.Cancelled()) return CancelledError();
        if (!*done) return false;
      }
      ++set_;
      next_piece_ = 0;
      placed_ = false;
      if (deadline.Expired())
        return deadline.Cancelled() ? StatusOr<bool>(CancelledError()) : false;
    }
    return Finish(deadline);
  }

  // The text parts, piece by piece; then all is put together.
  StatusOr<bool> Finish(const Deadline& deadline) {
    if (text_ == nullptr) {
      loader_.reset();
      progress_.phase = "tokenizer";
      text_ =
          std::make_unique<TextWork>(*model_->checkpoint_, std::move(tokenizer_), context_.memory);
    }
    for (;;) {
      QINFER_ASSIGN_OR_RETURN(const bool done, text_->Step());
      if (done) break;
      if (deadline.Expired())
        return deadline.Cancelled() ? StatusOr<bool>(CancelledError()) : false;
    }
    model_->text_ = text_->Take();
    text_.reset();
    QINFER_ASSIGN_OR_RETURN(model_->ends_, EndsFromSet(model_->sets_[0], model_->spec_));
    for (size_t i = 0; i < model_->spec_.layers.size(); ++i) {
      QINFER_ASSIGN_OR_RETURN(LayerWeights layer,
                              LayerFromSet(model_->sets_[i + 1], model_->spec_.layers[i]));
      model_->layers_.push_back(std::move(layer));
    }
    progress_.done += 1;
    finished_ = true;
    return true;
  }

  // Sets that follow each other share blocks, so that nearly all of a model lies on huge pages.
  Status Place(TensorSet* set) {
    std::vector<Buffer>& blocks = model_->blocks_;
    if (blocks.empty() || blocks.back().size() - block_used_ < set->allocated_bytes()) {
      uint64_t bytes = set->allocated_bytes();
      for (size_t next = set_ + 1; next < model_->sets_.size(); ++next) {
        const uint64_t more = model_->sets_[next].allocated_bytes();
        if (bytes >= kBlockBytes || more > kBlockBytes - bytes) break;
        bytes += more;
      }
      QINFER_ASSIGN_OR_RETURN(Buffer block, Buffer::Create(context_.memory, bytes, "weights"));
      blocks.push_back(std::move(block));
      block_used_ = 0;
    }
    set->Place(blocks.back().as<uint8_t>() + block_used_);
    block_used_ += set->allocated_bytes();
    return OkStatus();
  }

  void Drop() {
    loader_.reset();
    text_.reset();
    model_.reset();
    finished_ = false;
  }

  Context context_;
  std::shared_ptr<ModelImpl> model_;
  std::unique_ptr<PieceLoader> loader_;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;  // where it was given
  std::unique_ptr<TextWork> text_;
  size_t scratch_bytes_ = 0;
  uint32_t most_pieces_ = 0, next_piece_ = 0;
  size_t set_ = 0;
  uint64_t block_used_ = 0;  // of the last block
  bool placed_ = false, finished_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<LoadWork>> LoadWork::Create(
    std::shared_ptr<format::Checkpoint> checkpoint, const Context& context,
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  auto work = std::make_unique<LoadWorkImpl>(std::move(checkpoint), std::move(tokenizer), context);
  QINFER_RETURN_IF_ERROR(work->Init());
  return std::unique_ptr<LoadWork>(std::move(work));
}

}  // namespace qinfer::exec
