// The one Tokenizer there is: a compiled form and what is opened from it. Where the compiled form
// comes from is for the readers.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/blob.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::tokenizer {

class RuntimeTokenizer final : public Tokenizer {
 public:
  // Borrows `bytes`.
  static StatusOr<std::shared_ptr<const Tokenizer>> Open(absl::Span<const uint8_t> bytes,
                                                         const std::string& name, Memory* memory) {
    QINFER_ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> made, Make(bytes, name, memory));
    return made;
  }
  // Compiles the spec and keeps the bytes.
  static StatusOr<std::shared_ptr<const Tokenizer>> FromSpec(const TokenizerSpec& spec,
                                                             const std::string& name,
                                                             Memory* memory);

  Status Compile(std::pmr::vector<uint8_t>* out) const override;
  Status Encode(std::string_view text, const EncodeOptions& options,
                std::pmr::vector<int32_t>* ids) const override;
  void AppendToken(int32_t id, bool first, bool skip_special, std::string* out) const override;
  uint32_t vocab_size() const override { return blob_.vocab_size(); }
  std::string_view TokenText(int32_t id) const override;
  int32_t TokenId(std::string_view text) const override { return blob_.Find(text); }
  bool IsSpecial(int32_t id) const override;
  int32_t bos_id() const override { return blob_.header().bos; }
  int32_t eos_id() const override { return blob_.header().eos; }
  bool adds_bos() const override;

 private:
  RuntimeTokenizer() = default;
  static StatusOr<std::shared_ptr<RuntimeTokenizer>> Make(absl::Span<const uint8_t> bytes,
                                                          const std::string& name, Memory* memory);
  Status DecodeIds(absl::Span<const int32_t> ids, bool skip_special,
                   std::string* out) const override;
  bool InRange(int32_t id) const { return id >= 0 && static_cast<uint32_t>(id) < vocab_size(); }

  Memory* memory_ = nullptr;
  Buffer owned_;  // empty where the bytes are borrowed
  BlobView blob_;
  Normalizer normalizer_;
  Pretokenizer pretokenizer_;
  Decoder decoder_;
};

}  // namespace qinfer::tokenizer
