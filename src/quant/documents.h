// Documents that travel with the weights, byte for byte, and the compiled tokenizer: which there
// are, and their bytes in pieces. All are read where the source has them; the compiled tokenizer
// alone takes memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/memory.h"
#include "exec/text_parts.h"
#include "format/checkpoint.h"
#include "format/gguf_metadata.h"
#include "format/qinfer_file.h"
#include "tokenizer/tokenizer.h"

namespace qinfer::quant {

class Documents {
 public:
  static constexpr uint64_t kPieceBytes = 128 << 10;

  // The checkpoint outlives the object. `tokenizer`: its own, where that has been made already;
  // null = to be made.
  Documents(const format::Checkpoint& checkpoint,
            std::shared_ptr<const tokenizer::Tokenizer> tokenizer, Memory* memory)
      : checkpoint_(checkpoint), memory_(memory), tokenizer_(std::move(tokenizer)) {}

  // Finds them, in pieces of about 0.2 ms; true when all are known. An absent tokenizer is fine.
  StatusOr<bool> Step();

  // In a fixed order.
  size_t size() const { return documents_.size(); }
  const std::string& name(size_t index) const { return documents_[index].name; }
  uint64_t bytes(size_t index) const { return documents_[index].bytes; }
  // Some bytes from `offset` on, at most kPieceBytes; valid until the next call.
  StatusOr<absl::Span<const uint8_t>> Piece(size_t index, uint64_t offset);

  // What Step and Piece take from `memory` at most, beside a given tokenizer: measured by doing it.
  static StatusOr<uint64_t> MeasureBytes(const format::Checkpoint& checkpoint,
                                         std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                         Memory* memory);

 private:
  enum class Phase : uint8_t { kTokenizer, kList, kDone };
  struct Document {
    std::string name;
    uint64_t bytes = 0;
    std::vector<absl::Span<const uint8_t>> parts;    // of what lies in memory
    const format::QinferTensor* unmapped = nullptr;  // else
  };

  void Add(std::string_view name, absl::Span<const uint8_t> bytes);
  bool Has(std::string_view name) const;
  void AddText(std::string_view name, std::string_view text);
  void ListGguf(const format::Gguf& gguf);
  void ListQinfer(const format::QinferFile& file);

  const format::Checkpoint& checkpoint_;
  Memory* memory_;
  Phase phase_ = Phase::kTokenizer;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;  // with its compiled bytes
  std::unique_ptr<exec::TextWork> text_;                   // that makes it
  format::GgufMetadata gguf_metadata_;
  std::vector<Document> documents_;
  Buffer piece_;
};

}  // namespace qinfer::quant
