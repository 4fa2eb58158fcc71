// Text to token ids and back. Built from tokenizer.json or from GGUF metadata, or mapped from its
// compiled form; immutable and thread-safe afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/gguf.h"

namespace qinfer::tokenizer {

struct EncodeOptions {
  bool add_special = true;  // BOS/EOS as the model's post-processor (or GGUF flags) asks
  bool parse_special =
      true;  // text of special tokens becomes those tokens; off: user text, taken literally
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // A whole TokenizerWork (tokenizer_work.h) in one call.
  static StatusOr<std::shared_ptr<const Tokenizer>> FromJson(std::string_view tokenizer_json,
                                                             std::string_view config_json,
                                                             const std::string& name,
                                                             Memory* memory);
  static StatusOr<std::shared_ptr<const Tokenizer>> FromGguf(const format::Gguf& gguf,
                                                             Memory* memory);
  static StatusOr<std::shared_ptr<const Tokenizer>> FromCompiled(absl::Span<const uint8_t> bytes,
                                                                 const std::string& name,
                                                                 Memory* memory);
  // Position-independent bytes that FromCompiled takes; they live as long as the tokenizer.
  virtual absl::Span<const uint8_t> compiled() const = 0;

  virtual Status Encode(std::string_view text, const EncodeOptions& options,
                        std::pmr::vector<int32_t>* ids) const = 0;

  // The bytes that a token stands for in running text (byte-level tokens may be part of a UTF-8
  // sequence). Empty for ids out of range. `first` = at the beginning of a text, where
  // SentencePiece-style tokenizers drop the dummy space.
  virtual void AppendToken(int32_t id, bool first, bool skip_special, std::string* out) const = 0;
  // A whole sequence as text, equal to what the `tokenizers` package gives: ids out of range are
  // passed over, and bytes that form no UTF-8 become U+FFFD.
  Status Decode(absl::Span<const int32_t> ids, bool skip_special, std::string* out) const;

  virtual uint32_t vocab_size() const = 0;                   // ids are [0, vocab_size)
  virtual std::string_view TokenText(int32_t id) const = 0;  // as the vocabulary spells it
  virtual int32_t TokenId(
      std::string_view text) const = 0;  // exact vocabulary or added-token text; -1 if none
  virtual bool IsSpecial(int32_t id) const = 0;
  virtual int32_t bos_id() const = 0;  // -1 = none
  virtual int32_t eos_id() const = 0;  // -1 = none
  virtual bool adds_bos() const = 0;   // what add_special does

 private:
  virtual Status DecodeIds(absl::Span<const int32_t> ids, bool skip_special,
                           std::string* out) const = 0;
};

// How many bytes at the end of `text` are the start of an unfinished UTF-8 sequence (0 to 3): what
// streaming holds back.
size_t IncompleteUtf8Tail(std::string_view text);

}  // namespace qinfer::tokenizer
