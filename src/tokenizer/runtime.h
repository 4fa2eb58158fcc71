// The one Tokenizer there is: a compiled form and what is opened from it. How one is made is for
// tokenizer_work.cpp.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/blob.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::tokenizer {

class RuntimeTokenizer final : public Tokenizer {
 public:
  // Uses validated bytes in place, which `owned` holds, or which are borrowed.
  static StatusOr<std::shared_ptr<const Tokenizer>> Open(const BlobView& blob, Buffer owned,
                                                         const std::string& name, Memory* memory);

  absl::Span<const uint8_t> compiled() const override { return blob_.bytes(); }
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
