// Tells containers and documents apart by their first bytes and, for JSON, by their first telling
// key.
#include "format/path_info.h"

#include <cstring>
#include <string_view>

#include "format/gguf_walk.h"
#include "format/hf_folder.h"
#include "format/json_stream.h"
#include "format/qinfer_file.h"
#include "format/safetensors.h"
#include "io/folder.h"

namespace qinfer::format {
namespace {

// Stops at the first key of the outermost object that tells.
class TellingKey final : public JsonEvents {
 public:
  Status OnKey(std::string_view key) override {
    if (depth_ != 1) return OkStatus();
    if (key == "weight_map") return Found(Content::kShardIndex);
    if (key == "architectures" || key == "model_type") return Found(Content::kConfigJson);
    if (key == "added_tokens" || key == "pre_tokenizer" || key == "post_processor") {
      return Found(Content::kTokenizerJson);
    }
    return OkStatus();
  }
  Status OnString(std::string_view) override { return OkStatus(); }
  Status OnUint(uint64_t) override { return OkStatus(); }
  Status OnInt(int64_t) override { return OkStatus(); }
  Status OnFloat(double) override { return OkStatus(); }
  Status OnBool(bool) override { return OkStatus(); }
  Status OnNull() override { return OkStatus(); }
  Status OnStartObject() override { return Deeper(1); }
  Status OnEndObject() override { return Deeper(-1); }
  Status OnStartArray() override { return Deeper(1); }
  Status OnEndArray() override { return Deeper(-1); }

  Content content() const { return content_; }

 private:
  Status Found(Content content) {
    content_ = content;
    return CancelledError();  // ends the parse
  }
  Status Deeper(int by) {
    depth_ += by;
    return OkStatus();
  }
  int depth_ = 0;
  Content content_ = Content::kUnknown;
};

}  // namespace

StatusOr<Content> DescribeSource(const io::Source& source) {
  uint8_t start[64] = {};
  const size_t n =
      source.size() < sizeof(start) ? static_cast<size_t>(source.size()) : sizeof(start);
  QINFER_RETURN_IF_ERROR(source.ReadAt(0, absl::MakeSpan(start, n)));
  uint32_t magic = 0;
  std::memcpy(&magic, start, sizeof(magic));
  if (n >= 4 && magic == kGgufMagic) return Content::kGguf;
  QINFER_ASSIGN_OR_RETURN(const bool safetensors, LooksLikeSafetensors(source));
  if (safetensors) {
    const std::string_view header(reinterpret_cast<const char*>(start) + 8, n - 8);
    return header.substr(0, kQinferHeaderStart.size()) == kQinferHeaderStart
               ? Content::kQinfer
               : Content::kSafetensors;
  }
  size_t first = n >= 3 && std::memcmp(start, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  while (first < n && std::strchr(" \t\r\n", start[first]) != nullptr && start[first] != 0) ++first;
  if (first == n || start[first] != '{' || source.size() > kMaxTokenizerJson) {
    return Content::kUnknown;
  }
  TellingKey events;
  const Status status = ParseJson(source, 0, source.size(), source.name(), JsonLimits{}, &events);
  if (status.code() == absl::StatusCode::kUnavailable) return status;  // not the content's fault
  return events.content();
}

StatusOr<Content> DescribePath(const std::string& path) {
  QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(path));
  if (kind == io::PathKind::kFolder) return Content::kFolder;
  Memory memory;  // nothing is mapped or kept
  QINFER_ASSIGN_OR_RETURN(const auto source, io::OpenFile(path, io::Access::kCopy, &memory));
  return DescribeSource(*source);
}

}  // namespace qinfer::format
