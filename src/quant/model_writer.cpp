// Declaring tensors and documents, and where they will lie; writing the documents.
#include "quant/model_writer.h"

#include "core/checked.h"
#include "kernels/layout.h"
#include "quant/source_rows.h"

namespace qinfer::quant {
namespace {

// Room in the header for what is only known at the end: the summary repeats the recipe, and quotes
// are escaped once more in the header.
uint64_t SpareBytes(const ResolvedRecipe& resolved, std::string_view recipe_json) {
  constexpr uint64_t kReport = 16 << 10, kRange = 256;
  uint64_t bytes = kReport + 4 * recipe_json.size();
  for (const TensorPlan& plan : resolved.tensors) bytes += kRange + 4 * plan.name.size();
  return bytes;
}

// The text of a plain tensor's format: its element type, in small letters.
format::QinferWriter::Declaration Declare(const TensorPlan& plan) {
  format::QinferWriter::Declaration declaration;
  declaration.name = plan.name;
  declaration.bytes = plan.bytes;
  if (plan.packed()) {
    declaration.format = weights::Name(plan.format);
    declaration.shape = {plan.rows, plan.cols};
    if (plan.parts > 1) declaration.shape.insert(declaration.shape.begin(), plan.parts);
  } else {
    declaration.format = RawFormat(plan.raw_type);
    if (plan.use == TensorUse::kSmall) {
      // Plain vectors, also a stack of them (biases of experts): what has rows is packed.
      declaration.shape.push_back(plan.source->elements());
    } else {
      for (uint32_t d = 0; d < plan.source->rank; ++d) {
        declaration.shape.push_back(plan.source->shape[d]);
      }
    }
    if (declaration.shape.empty()) declaration.shape.push_back(1);
  }
  if (plan.source->name != std::string_view(plan.name)) {
    declaration.source_name = std::string(plan.source->name);
  }
  declaration.source_dtype = std::string(SourceTypeName(plan));
  declaration.import = std::string(ImportWord(plan));
  return declaration;
}

}  // namespace

std::string RawFormat(DType type) {
  std::string name;
  for (char c : Info(type).name) {
    name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}

std::string_view ImportWord(const TensorPlan& plan) {
  if (plan.action != TensorAction::kPack) return "exact";
  // Of weights that are cut out of a tensor, the values are only moved where the type stays.
  const StatusOr<weights::Format> own = weights::ExactFormat(plan.source->dtype);
  const bool floats = kernels::layout::IsFloat(plan.format.kind);
  return plan.by_ref && floats && own.ok() && *own == plan.format ? "exact" : "measured";
}

StatusOr<std::unique_ptr<ModelWriter>> ModelWriter::Create(std::unique_ptr<io::Sink> sink,
                                                           const format::Checkpoint& checkpoint,
                                                           const ResolvedRecipe& resolved,
                                                           std::string_view recipe_json,
                                                           std::unique_ptr<Documents> documents) {
  auto writer = std::make_unique<ModelWriter>();
  QINFER_ASSIGN_OR_RETURN(writer->writer_, format::QinferWriter::Create(std::move(sink)));
  format::QinferWriter& out = *writer->writer_;
  QINFER_RETURN_IF_ERROR(out.SetMetadata(format::kMetaSpec, model::SpecToJson(resolved.spec)));
  std::string_view config = checkpoint.side_files().config_json.text();
  if (checkpoint.qinfer() != nullptr) config = checkpoint.qinfer()->Metadata(format::kMetaConfig);
  if (!config.empty()) {
    QINFER_RETURN_IF_ERROR(out.SetMetadata(format::kMetaConfig, config));
  }
  if (!recipe_json.empty()) {
    QINFER_RETURN_IF_ERROR(out.SetMetadata(format::kMetaRecipe, recipe_json));
  }
  if (resolved.static_activations) {
    QINFER_RETURN_IF_ERROR(out.RequireFeature(format::kFeatureStaticActivations));
  } else if (recipe_json.empty() && checkpoint.qinfer() != nullptr &&
             (checkpoint.qinfer()->features() >> format::kFeatureStaticActivations & 1) != 0) {
    // A file that is only converted keeps what its logits depend on.
    QINFER_RETURN_IF_ERROR(out.RequireFeature(format::kFeatureStaticActivations));
    QINFER_RETURN_IF_ERROR(
        out.SetMetadata(format::kMetaActivationRanges,
                        checkpoint.qinfer()->Metadata(format::kMetaActivationRanges)));
  }
  uint64_t all = 0;
  std::vector<uint64_t> before;
  for (const TensorPlan& plan : resolved.tensors) {
    QINFER_ASSIGN_OR_RETURN(const uint32_t number, out.DeclareTensor(Declare(plan)));
    writer->numbers_.push_back(number);
    before.push_back(all);
    all += RoundUp(plan.bytes, format::kQinferAlign);
  }
  for (size_t i = 0; i < documents->size(); ++i) {
    const uint64_t bytes = documents->bytes(i);
    QINFER_ASSIGN_OR_RETURN(const uint32_t number, out.DeclareSideFile(documents->name(i), bytes));
    writer->document_numbers_.push_back(number);
    all += RoundUp<uint64_t>(bytes, format::kQinferAlign);
  }
  writer->documents_ = std::move(documents);
  QINFER_RETURN_IF_ERROR(out.Begin(SpareBytes(resolved, recipe_json)));
  // Tensors lie in the order of their declarations, at the end of the file.
  const uint64_t data_begin = out.file_bytes() - all;
  for (uint64_t offset : before) writer->file_offsets_.push_back(data_begin + offset);
  return writer;
}

StatusOr<bool> ModelWriter::WriteDocuments() {
  if (documents_ == nullptr) return true;
  if (document_ < documents_->size()) {
    QINFER_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> piece,
                            documents_->Piece(document_, document_at_));
    QINFER_RETURN_IF_ERROR(writer_->Write(document_numbers_[document_], document_at_, piece));
    document_at_ += piece.size();
    if (document_at_ == documents_->bytes(document_)) {
      ++document_;
      document_at_ = 0;
    }
    return false;
  }
  documents_.reset();
  return true;
}

Status ModelWriter::Write(size_t index, uint64_t offset, absl::Span<const uint8_t> bytes) {
  return writer_->Write(numbers_[index], offset, bytes);
}

Status ModelWriter::SetReport(std::string_view json) {
  return writer_->SetMetadata(format::kMetaReport, json);
}

Status ModelWriter::SetRanges(std::string_view json) {
  return writer_->SetMetadata(format::kMetaActivationRanges, json);
}

}  // namespace qinfer::quant
