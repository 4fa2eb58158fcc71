// Says what a path is, by content: what the command line asks before it decides how to open it.
// Opening is in checkpoint.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "io/source.h"

namespace qinfer::format {

enum class Content : uint8_t {
  kUnknown,        // exists, and is none of these (a template, a text, ...)
  kFolder,         // OpenCheckpoint
  kSafetensors,    // OpenCheckpoint
  kShardIndex,     // *.safetensors.index.json: OpenCheckpoint
  kGguf,           // OpenCheckpoint; may hold a vocabulary alone
  kQinfer,         // OpenCheckpoint
  kConfigJson,     // OpenCheckpoint: a configuration without weights
  kTokenizerJson,  // Tokenizer::FromJson with the file's bytes
};

// IoError if there is nothing at `path` or it cannot be read.
StatusOr<Content> DescribePath(const std::string& path);
StatusOr<Content> DescribeSource(const io::Source& source);

}  // namespace qinfer::format
