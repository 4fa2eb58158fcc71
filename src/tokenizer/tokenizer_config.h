// The few settings of a tokenizer_config.json that count, out of a document that may describe
// thousands of tokens besides: read as events, a stretch at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"
#include "format/json_text.h"

namespace qinfer::tokenizer {

class TokenizerConfig final : private format::JsonEvents {
 public:
  // `text` outlives it. Messages begin with `where`.
  TokenizerConfig(std::string_view text, std::string where);
  // True when all is read. FormatError for what is no JSON object.
  StatusOr<bool> Step();

  // "bos_token" and the like: a text, or an object with "content"; empty = none.
  const std::string& bos_token() const { return bos_token_; }
  const std::string& eos_token() const { return eos_token_; }
  std::optional<bool> adds_bos() const { return adds_bos_; }
  std::optional<bool> adds_eos() const { return adds_eos_; }
  // "chat_template": a text, or of a list of named ones the default; empty = none. FormatError for
  // anything else.
  StatusOr<std::string> ChatTemplate() const;
  // Of such a list the one for conversations with tools; empty = none.
  const std::string& tool_template() const { return tool_template_; }

 private:
  enum class Field : uint8_t { kOther, kBos, kEos, kAddBos, kAddEos, kTemplate };

  Status OnKey(std::string_view key) override;
  Status OnString(std::string_view value) override;
  Status OnUint(uint64_t) override { return Value(); }
  Status OnInt(int64_t) override { return Value(); }
  Status OnFloat(double) override { return Value(); }
  Status OnBool(bool value) override;
  Status OnNull() override;
  Status OnStartObject() override;
  Status OnEndObject() override;
  Status OnStartArray() override;
  Status OnEndArray() override;

  Status NoObject() const;
  // A value has begun; of two under one key the second counts.
  Status Value();
  std::string* Token() {
    return field_ == Field::kBos ? &bos_token_ : field_ == Field::kEos ? &eos_token_ : nullptr;
  }

  const std::string where_;
  format::JsonText parse_;
  uint32_t depth_ = 0;
  Field field_ = Field::kOther;  // of the outermost object
  std::string inner_key_;        // in "content" of a token, "name" and "template" of a template
  std::string bos_token_, eos_token_, template_, tool_template_;
  std::optional<bool> adds_bos_, adds_eos_;
  bool bad_template_ = false, template_list_ = false;
  std::string entry_name_;
  std::optional<std::string> entry_template_;  // of the list's entry
};

}  // namespace qinfer::tokenizer
