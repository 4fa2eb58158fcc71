// The output of convert and quantize: a .qinfer file with every tensor of a resolved recipe, the
// documents that belong to the model, and its metadata. Knows the container, not how tensors are
// made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "format/checkpoint.h"
#include "format/qinfer_file.h"
#include "quant/documents.h"
#include "quant/recipe.h"

namespace qinfer::quant {

class ModelWriter {
 public:
  // Declares everything. `recipe_json` may be empty (convert); `documents` are all found.
  static StatusOr<std::unique_ptr<ModelWriter>> Create(std::unique_ptr<io::Sink> sink,
                                                       const format::Checkpoint& checkpoint,
                                                       const ResolvedRecipe& resolved,
                                                       std::string_view recipe_json,
                                                       std::unique_ptr<Documents> documents);
  // A piece of a document, before any tensor; true when all are written and given back.
  StatusOr<bool> WriteDocuments();

  // `index` into ResolvedRecipe::tensors; front to back.
  Status Write(size_t index, uint64_t offset, absl::Span<const uint8_t> bytes);
  // Of a tensor that is all written, and forgetting what was written of one.
  uint64_t Checksum(size_t index) const { return writer_->Checksum(numbers_[index]); }
  void Restart(size_t index) { writer_->Restart(numbers_[index]); }
  // Where a tensor's bytes lie in the file: the same for the same inputs.
  uint64_t FileOffset(size_t index) const { return file_offsets_[index]; }
  uint64_t file_bytes() const { return writer_->file_bytes(); }
  // The report's summary, within the room that Create has left; a longer one is refused.
  Status SetReport(std::string_view json);
  Status SetRanges(std::string_view json);  // where ResolvedRecipe::static_activations
  Status WriteHeader() { return writer_->WriteHeader(); }
  Status Commit() { return writer_->Commit(); }  // waits for the disk

 private:
  std::unique_ptr<format::QinferWriter> writer_;
  std::vector<uint32_t> numbers_;
  std::vector<uint64_t> file_offsets_;
  std::unique_ptr<Documents> documents_;  // until they are written
  std::vector<uint32_t> document_numbers_;
  size_t document_ = 0;
  uint64_t document_at_ = 0;
};

// "exact" or "measured": whether a tensor's values are those of the source.
std::string_view ImportWord(const TensorPlan& plan);
// The word of a file for what is stored unpacked: "f16".
std::string RawFormat(DType type);

}  // namespace qinfer::quant
