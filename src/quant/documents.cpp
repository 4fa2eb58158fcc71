// Finding and reading documents.
#include "quant/documents.h"

#include <algorithm>

#include "core/account.h"
#include "quant/bytes.h"

namespace qinfer::quant {

void Documents::Add(std::string_view name, absl::Span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  Document document;
  document.name = std::string(name);
  document.bytes = bytes.size();
  document.parts.push_back(bytes);
  documents_.push_back(std::move(document));
}

bool Documents::Has(std::string_view name) const {
  return std::any_of(documents_.begin(), documents_.end(),
                     [&](const Document& document) { return document.name == name; });
}

void Documents::AddText(std::string_view name, std::string_view text) { Add(name, AsBytes(text)); }

void Documents::ListGguf(const format::Gguf& gguf) {
  const format::GgufValue* value = gguf.Find("tokenizer.chat_template");
  if (value != nullptr) {
    StatusOr<std::string_view> text = value->AsString();
    if (text.ok()) AddText(format::kSideChatTemplate, *text);
  }
  constexpr std::string_view kPrefixes[] = {"tokenizer.", "general."};
  gguf_metadata_ = format::SelectGgufMetadata(gguf, kPrefixes);
  Add(format::kSideGgufMetadata, gguf_metadata_.head);
  Document& metadata = documents_.back();
  for (const absl::Span<const uint8_t> record : gguf_metadata_.records) {
    metadata.bytes += record.size();
    metadata.parts.push_back(record);
  }
}

void Documents::ListQinfer(const format::QinferFile& file) {
  for (const format::QinferTensor& tensor : file.side_tensors()) {
    const absl::Span<const uint8_t> mapped = file.Map(tensor);
    if (!mapped.empty()) {
      Add({tensor.name.data(), tensor.name.size()}, mapped.first(tensor.bytes));
      continue;
    }
    Document document;
    document.name = std::string(tensor.name);
    document.bytes = tensor.bytes;
    document.unmapped = &tensor;
    documents_.push_back(std::move(document));
  }
}

StatusOr<bool> Documents::Step() {
  switch (phase_) {
    case Phase::kTokenizer:
      // A file of ours has a compiled one, which is copied like the rest.
      if (checkpoint_.qinfer() != nullptr || tokenizer_ != nullptr) {
        phase_ = Phase::kList;
        return false;
      }
      if (text_ == nullptr) {
        text_ = std::make_unique<exec::TextWork>(checkpoint_, nullptr, memory_);
      }
      {
        QINFER_ASSIGN_OR_RETURN(const bool made, text_->Step());
        if (!made) return false;
      }
      tokenizer_ = text_->Take().tokenizer;
      text_.reset();
      phase_ = Phase::kList;
      return false;
    case Phase::kList:
      if (checkpoint_.qinfer() != nullptr) {
        ListQinfer(*checkpoint_.qinfer());
      } else if (checkpoint_.gguf() != nullptr) {
        ListGguf(*checkpoint_.gguf());
      } else {
        const format::SideFiles& files = checkpoint_.side_files();
        AddText(format::kSideTokenizerJson, files.tokenizer_json.text());
        AddText(format::kSideTokenizerConfig, files.tokenizer_config_json.text());
        AddText(format::kSideChatTemplate, files.chat_template_jinja.text());
        AddText(format::kSideGenerationConfig, files.generation_config_json.text());
      }
      // A file of ours has it, also where a loaded model lends its tokenizer.
      if (tokenizer_ != nullptr && !Has(format::kSideTokenizerCompiled)) {
        Add(format::kSideTokenizerCompiled, tokenizer_->compiled());
      }
      phase_ = Phase::kDone;
      return true;
    case Phase::kDone:
      return true;
  }
  return InternalError("documents are in no phase");
}

StatusOr<absl::Span<const uint8_t>> Documents::Piece(size_t index, uint64_t offset) {
  const Document& document = documents_[index];
  if (document.unmapped != nullptr) {
    if (piece_.empty()) {
      QINFER_ASSIGN_OR_RETURN(piece_,
                              Buffer::Create(memory_, kPieceBytes, "a piece of a document"));
    }
    const absl::Span<uint8_t> piece(piece_.as<uint8_t>(),
                                    std::min(kPieceBytes, document.bytes - offset));
    QINFER_RETURN_IF_ERROR(checkpoint_.qinfer()->Read(*document.unmapped, offset, piece));
    return absl::Span<const uint8_t>(piece);
  }
  for (const absl::Span<const uint8_t> part : document.parts) {
    if (offset < part.size()) {
      return part.subspan(offset, std::min<uint64_t>(kPieceBytes, part.size() - offset));
    }
    offset -= part.size();
  }
  return absl::Span<const uint8_t>();
}

StatusOr<uint64_t> Documents::MeasureBytes(const format::Checkpoint& checkpoint,
                                           std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                           Memory* memory) {
  Memory account(AccountOf(memory));
  Documents documents(checkpoint, std::move(tokenizer), &account);
  for (;;) {
    QINFER_ASSIGN_OR_RETURN(const bool done, documents.Step());
    if (done) break;
  }
  for (size_t i = 0; i < documents.size(); ++i) {
    if (documents.bytes(i) != 0) QINFER_RETURN_IF_ERROR(documents.Piece(i, 0).status());
  }
  return account.peak_bytes();
}

}  // namespace qinfer::quant
