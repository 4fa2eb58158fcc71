// The parts of the work, one after another; each gives back its memory before the next begins.
#include "tokenizer/tokenizer_work.h"

#include <optional>
#include <utility>

#include "tokenizer/blob_writer.h"
#include "tokenizer/runtime.h"
#include "tokenizer/spec_reader.h"

namespace qinfer::tokenizer {
namespace {

class Making final : public TokenizerWork {
 public:
  Making(std::string name, Memory* memory) : name_(std::move(name)), memory_(memory) {}

  void Read(std::string_view json, NamedText config) {
    spec_ = std::make_unique<TokenizerSpec>(memory_);
    reader_ = ReadTokenizerJson({json, name_}, std::move(config), spec_.get());
  }
  void Read(const format::Gguf& gguf) {
    spec_ = std::make_unique<TokenizerSpec>(memory_);
    reader_ = ReadGguf(gguf, spec_.get());
  }
  void Check(absl::Span<const uint8_t> bytes) { check_.emplace(bytes, name_); }

  StatusOr<bool> Step() override {
    if (reader_ != nullptr) {
      QINFER_ASSIGN_OR_RETURN(const bool done, reader_->Step());
      if (!done) return false;
      reader_.reset();
      writer_.emplace(spec_.get());
      return false;
    }
    if (writer_.has_value()) {
      const StatusOr<bool> done = writer_->Step();
      if (!done.ok()) return Annotate(done.status(), name_);
      if (!*done) return false;
      blob_ = writer_->Take();
      writer_.reset();
      return false;
    }
    if (spec_ != nullptr) {
      spec_.reset();
      Check({blob_.as<uint8_t>(), blob_.size()});
      return false;
    }
    if (check_.has_value()) {
      QINFER_ASSIGN_OR_RETURN(const bool done, check_->Step());
      if (!done) return false;
      view_ = check_->view();
      check_.reset();
      return false;
    }
    QINFER_ASSIGN_OR_RETURN(made_, RuntimeTokenizer::Open(view_, std::move(blob_), name_, memory_));
    return true;
  }

  std::shared_ptr<const Tokenizer> Take() override { return std::move(made_); }

 private:
  const std::string name_;
  Memory* const memory_;
  std::unique_ptr<TokenizerSpec> spec_;
  std::unique_ptr<SpecReader> reader_;
  std::optional<BlobWriter> writer_;
  Buffer blob_;  // empty where the bytes are borrowed
  std::optional<BlobCheck> check_;
  BlobView view_;
  std::shared_ptr<const Tokenizer> made_;
};

StatusOr<std::shared_ptr<const Tokenizer>> Finish(std::unique_ptr<TokenizerWork> work) {
  for (;;) {
    QINFER_ASSIGN_OR_RETURN(const bool done, work->Step());
    if (done) return work->Take();
  }
}

}  // namespace

std::unique_ptr<TokenizerWork> TokenizerWork::OfJson(NamedText tokenizer_json,
                                                     NamedText config_json, Memory* memory) {
  auto work = std::make_unique<Making>(std::move(tokenizer_json.name), memory);
  work->Read(tokenizer_json.text, std::move(config_json));
  return work;
}

std::unique_ptr<TokenizerWork> TokenizerWork::OfGguf(const format::Gguf& gguf, Memory* memory) {
  auto work = std::make_unique<Making>(gguf.name(), memory);
  work->Read(gguf);
  return work;
}

std::unique_ptr<TokenizerWork> TokenizerWork::OfCompiled(absl::Span<const uint8_t> bytes,
                                                         std::string name, Memory* memory) {
  auto work = std::make_unique<Making>(std::move(name), memory);
  work->Check(bytes);
  return work;
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json,
                                                               std::string_view config_json,
                                                               const std::string& name,
                                                               Memory* memory) {
  return Finish(TokenizerWork::OfJson({tokenizer_json, name},
                                      {config_json, "tokenizer_config.json"}, memory));
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromGguf(const format::Gguf& gguf,
                                                               Memory* memory) {
  return Finish(TokenizerWork::OfGguf(gguf, memory));
}

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromCompiled(absl::Span<const uint8_t> bytes,
                                                                   const std::string& name,
                                                                   Memory* memory) {
  return Finish(TokenizerWork::OfCompiled(bytes, name, memory));
}

}  // namespace qinfer::tokenizer
