// What fuzz targets open in place of files: a checkpoint that has a configuration and no weights.
// Nothing of one target belongs here.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "format/checkpoint.h"

namespace qinfer::fuzz {

class ConfigCheckpoint final : public format::Checkpoint {
 public:
  explicit ConfigCheckpoint(std::string text) : Checkpoint(&memory_), text_(std::move(text)) {
    files_.config_json = format::Document::Borrow(text_);
    files_.generation_config_json = files_.config_json;
  }
  format::Container container() const override { return format::Container::kConfigOnly; }
  const std::string& name() const override { return name_; }
  absl::Span<const format::TensorInfo> tensors() const override { return {}; }
  const format::TensorInfo* Find(std::string_view) const override { return nullptr; }
  absl::Span<const std::shared_ptr<io::Source>> sources() const override { return {}; }
  const format::SideFiles& side_files() const override { return files_; }

 private:
  Memory memory_;
  std::string name_ = "fuzz", text_;
  format::SideFiles files_;
};

}  // namespace qinfer::fuzz
