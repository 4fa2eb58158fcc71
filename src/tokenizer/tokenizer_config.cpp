// Values by their depth: the outermost object is 1, a token's object or a list of templates 2, an
// entry of that list 3.
#include "tokenizer/tokenizer_config.h"

#include <utility>

namespace qinfer::tokenizer {

TokenizerConfig::TokenizerConfig(std::string_view text, std::string where)
    : where_(std::move(where)), parse_(text, where_, format::JsonLimits(), this) {}

StatusOr<bool> TokenizerConfig::Step() { return parse_.Step(); }

StatusOr<std::string> TokenizerConfig::ChatTemplate() const {
  if (bad_template_) {
    return FormatError(where_ + ": chat_template: expected a string or a list");
  }
  return template_;
}

Status TokenizerConfig::NoObject() const {
  return FormatError("the document is not a JSON object");
}

Status TokenizerConfig::Value() {
  if (depth_ == 0) return NoObject();
  if (depth_ != 1) return OkStatus();
  if (std::string* token = Token(); token != nullptr) token->clear();
  if (field_ == Field::kAddBos) adds_bos_.reset();
  if (field_ == Field::kAddEos) adds_eos_.reset();
  if (field_ == Field::kTemplate) {
    template_.clear();
    tool_template_.clear();
    bad_template_ = true;
    template_list_ = false;
  }
  return OkStatus();
}

Status TokenizerConfig::OnKey(std::string_view key) {
  if (depth_ == 1) {
    field_ = key == "bos_token"       ? Field::kBos
             : key == "eos_token"     ? Field::kEos
             : key == "add_bos_token" ? Field::kAddBos
             : key == "add_eos_token" ? Field::kAddEos
             : key == "chat_template" ? Field::kTemplate
                                      : Field::kOther;
  } else if (field_ != Field::kOther) {
    inner_key_.assign(key);
  }
  return OkStatus();
}

Status TokenizerConfig::OnString(std::string_view value) {
  QINFER_RETURN_IF_ERROR(Value());
  std::string* const token = Token();
  if (depth_ == 1) {
    if (token != nullptr) token->assign(value);
    if (field_ == Field::kTemplate) {
      template_.assign(value);
      bad_template_ = false;
    }
  } else if (depth_ == 2 && token != nullptr) {
    if (inner_key_ == "content") token->assign(value);
  } else if (depth_ == 3 && template_list_) {
    if (inner_key_ == "name") entry_name_.assign(value);
    if (inner_key_ == "template") entry_template_.emplace(value);
  }
  return OkStatus();
}

Status TokenizerConfig::OnBool(bool value) {
  QINFER_RETURN_IF_ERROR(Value());
  if (depth_ == 1 && field_ == Field::kAddBos) adds_bos_ = value;
  if (depth_ == 1 && field_ == Field::kAddEos) adds_eos_ = value;
  return OkStatus();
}

Status TokenizerConfig::OnNull() {
  QINFER_RETURN_IF_ERROR(Value());
  if (depth_ == 1 && field_ == Field::kTemplate) bad_template_ = false;
  return OkStatus();
}

Status TokenizerConfig::OnStartObject() {
  if (depth_ > 0) QINFER_RETURN_IF_ERROR(Value());
  ++depth_;
  inner_key_.clear();
  if (depth_ == 3 && template_list_) {
    entry_name_.clear();
    entry_template_.reset();
  }
  return OkStatus();
}

Status TokenizerConfig::OnEndObject() {
  if (depth_ == 3 && template_list_ && entry_template_.has_value()) {
    if (entry_name_ == "default") template_ = *std::move(entry_template_);
    if (entry_name_ == "tool_use") tool_template_ = *std::move(entry_template_);
  }
  --depth_;
  return OkStatus();
}

Status TokenizerConfig::OnStartArray() {
  QINFER_RETURN_IF_ERROR(Value());
  if (depth_ == 1 && field_ == Field::kTemplate) {
    template_list_ = true;
    bad_template_ = false;
  }
  ++depth_;
  inner_key_.clear();
  return OkStatus();
}

Status TokenizerConfig::OnEndArray() {
  if (depth_ == 2) template_list_ = false;
  --depth_;
  return OkStatus();
}

}  // namespace qinfer::tokenizer
