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
#include "core/memory.h"
#include "format/checkpoint.h"
#include "format/qinfer_file.h"
#include "quant/recipe.h"

namespace qinfer::quant {

// Documents that travel with the weights, byte for byte, and the compiled tokenizer.
struct SideDocument {
  std::string name;
  std::pmr::vector<uint8_t> bytes;
};
// In a fixed order. An absent tokenizer is fine.
StatusOr<std::vector<SideDocument>> CollectDocuments(const format::Checkpoint& checkpoint,
                                                     Memory* memory);
// Bytes that CollectDocuments will roughly hold at once, from headers.
uint64_t EstimateDocumentBytes(const format::Checkpoint& checkpoint);

class ModelWriter {
 public:
  // Declares everything and writes the documents. `recipe_json` may be empty (convert).
  static StatusOr<std::unique_ptr<ModelWriter>> Create(std::unique_ptr<io::Sink> sink,
                                                       const format::Checkpoint& checkpoint,
                                                       const ResolvedRecipe& resolved,
                                                       std::string_view recipe_json,
                                                       Memory* memory);

  // `index` into ResolvedRecipe::tensors; front to back.
  Status Write(size_t index, uint64_t offset, absl::Span<const uint8_t> bytes);
  // Where a tensor's bytes lie in the file: the same for the same inputs.
  uint64_t FileOffset(size_t index) const { return file_offsets_[index]; }
  uint64_t file_bytes() const { return writer_->file_bytes(); }
  // The report's summary, within the room that Create has left; a longer one is refused.
  Status SetReport(std::string_view json);
  Status SetRanges(std::string_view json);  // where ResolvedRecipe::static_activations
  Status Finish() { return writer_->Finish(); }

 private:
  std::unique_ptr<format::QinferWriter> writer_;
  std::vector<uint32_t> numbers_;
  std::vector<uint64_t> file_offsets_;
};

// "exact" or "measured": whether a tensor's values are those of the source.
std::string_view ImportWord(const TensorPlan& plan);

}  // namespace qinfer::quant
