// Finds and reads what lies in a Hugging Face folder beside the tensors.
#include "format/hf_folder.h"

#include <algorithm>
#include <charconv>

#include "format/json_stream.h"
#include "io/folder.h"

namespace qinfer::format {
namespace {

constexpr size_t kMaxFolderEntries = 100'000;
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
constexpr const char* kDocumentNames[] = {
    "config.json",         "generation_config.json", "tokenizer.json",      "tokenizer_config.json",
    "chat_template.jinja", "chat_template.json",     "quantize_config.json"};

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// The text of `chat_template` in {"chat_template": "..."}; other members are passed over.
class TemplateEvents final : public JsonEvents {
 public:
  TemplateEvents(Memory* memory, Document* out) : memory_(memory), out_(out) {}
  Status OnKey(std::string_view key) override {
    wanted_ = depth_ == 1 && key == "chat_template";
    return OkStatus();
  }
  Status OnString(std::string_view value) override {
    if (wanted_) {
      QINFER_ASSIGN_OR_RETURN(*out_, Document::Copy(value, memory_, "a chat template"));
    }
    wanted_ = false;
    return OkStatus();
  }
  Status OnUint(uint64_t) override { return Other(); }
  Status OnInt(int64_t) override { return Other(); }
  Status OnFloat(double) override { return Other(); }
  Status OnBool(bool) override { return Other(); }
  Status OnNull() override { return Other(); }
  Status OnStartObject() override { return Deeper(1); }
  Status OnEndObject() override { return Deeper(-1); }
  Status OnStartArray() override { return Deeper(1); }
  Status OnEndArray() override { return Deeper(-1); }

 private:
  Status Other() {
    wanted_ = false;
    return OkStatus();
  }
  Status Deeper(int by) {
    wanted_ = false;
    depth_ += by;
    return OkStatus();
  }
  Memory* memory_;
  Document* out_;
  int depth_ = 0;
  bool wanted_ = false;
};

class IndexEvents final : public JsonEvents {
 public:
  explicit IndexEvents(ShardIndex* index) : index_(index) {}

  Status OnKey(std::string_view key) override {
    if (depth_ == 1) {
      in_map_ = key == "weight_map";
      if (in_map_ && seen_map_) return FormatError("weight_map is there twice");
      seen_map_ = seen_map_ || in_map_;
    } else if (in_map_) {
      if (index_->entries.size() == kMaxTensors) {
        return UnsupportedError(StrCat("more than ", kMaxTensors, " tensors are not supported"));
      }
      QINFER_RETURN_IF_ERROR(CheckTensorName(key, 4096));
      index_->entries.push_back({index_->strings.Copy(key), 0});
    }
    return OkStatus();
  }
  Status OnString(std::string_view value) override {
    if (!in_map_) return OkStatus();
    if (depth_ != 2) return FormatError("weight_map is not an object");
    QINFER_ASSIGN_OR_RETURN(index_->entries.back().shard, Shard(value));
    return OkStatus();
  }
  Status OnStartObject() override {
    ++depth_;
    if (in_map_ && depth_ > 2) return FormatError("an object in weight_map");
    return OkStatus();
  }
  Status OnEndObject() override {
    if (--depth_ == 1) in_map_ = false;
    return OkStatus();
  }
  // Anything is allowed outside of weight_map ("metadata": {"total_size": ..}).
  Status OnUint(uint64_t) override { return Outside(); }
  Status OnInt(int64_t) override { return Outside(); }
  Status OnFloat(double) override { return Outside(); }
  Status OnBool(bool) override { return Outside(); }
  Status OnNull() override { return Outside(); }
  Status OnStartArray() override {
    ++depth_;
    return Outside();
  }
  Status OnEndArray() override {
    --depth_;
    return Outside();
  }

  bool seen_map() const { return seen_map_; }

 private:
  Status Outside() const {
    return in_map_ ? FormatError("a value in weight_map that is not a file name") : OkStatus();
  }

  StatusOr<uint32_t> Shard(std::string_view name) {
    std::vector<std::string>& shards = index_->shards;
    if (!shards.empty() && shards[last_] == name) return last_;
    const auto at = std::find(shards.begin(), shards.end(), name);
    if (at != shards.end()) return last_ = static_cast<uint32_t>(at - shards.begin());
    if (name.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos ||
        name.size() > 255 || name[0] == '.' || !EndsWith(name, ".safetensors")) {
      return FormatError(StrCat("the shard ", Printable(name),
                                " is not the plain name of a .safetensors file in this folder"));
    }
    if (shards.size() == kMaxShards) {
      return UnsupportedError(StrCat("more than ", kMaxShards, " shards are not supported"));
    }
    shards.emplace_back(name);
    return last_ = static_cast<uint32_t>(shards.size() - 1);
  }

  ShardIndex* index_;
  int depth_ = 0;
  bool in_map_ = false, seen_map_ = false;
  uint32_t last_ = 0;
};

Status ReadIfThere(const std::string& folder, const char* name, uint64_t max_bytes, Memory* memory,
                   Document* out) {
  const std::string path = io::JoinPath(folder, name);
  QINFER_ASSIGN_OR_RETURN(const io::PathKind kind, io::KindOf(path));
  if (kind == io::PathKind::kMissing) return OkStatus();
  QINFER_ASSIGN_OR_RETURN(Buffer bytes, io::ReadSmallFile(path, max_bytes, memory));
  // A download that failed, which must not pass for a model without that document.
  if (bytes.size() == 0) return FormatError(StrCat(path, ": the file is empty; fetch it again"));
  *out = Document::Own(std::move(bytes));
  out->set_path(path);
  return OkStatus();
}

}  // namespace

StatusOr<FolderContents> ExamineFolder(const std::string& folder) {
  QINFER_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          io::ListFolder(folder, kMaxFolderEntries));
  FolderContents contents;
  std::vector<std::string> indices, safetensors, ggufs, qinfers;
  for (const std::string& name : names) {
    const std::string path = io::JoinPath(folder, name);
    if (name == "config.json") contents.has_config = true;
    if (EndsWith(name, kIndexSuffix)) indices.push_back(path);
    if (EndsWith(name, ".safetensors") && name.rfind("adapter", 0) != 0) {
      safetensors.push_back(path);
    }
    if (EndsWith(name, ".gguf")) ggufs.push_back(path);
    if (EndsWith(name, ".qinfer")) qinfers.push_back(path);
  }
  const std::string usual = io::JoinPath(folder, "model.safetensors.index.json");
  if (std::find(indices.begin(), indices.end(), usual) != indices.end()) indices = {usual};
  const std::string single = io::JoinPath(folder, "model.safetensors");
  if (indices.empty() &&
      std::find(safetensors.begin(), safetensors.end(), single) != safetensors.end()) {
    safetensors = {single};
  }
  if (indices.size() > 1) {
    return FormatError(
        StrCat(folder, ": it holds ", indices.size(), " shard indices; name the one to open"));
  }
  if (!indices.empty()) {
    contents.index = indices[0];
    return contents;
  }
  for (std::vector<std::string>* group : {&safetensors, &ggufs, &qinfers}) {
    if (group->empty()) continue;
    // Several files are one model only if their names say so.
    SplitName first;
    const bool split = ParseSplitName(io::NameOf(group->front()), &first);
    if (group->size() > 1 && (!split || first.count != group->size())) {
      return FormatError(StrCat(folder, ": it holds ", group->size(), " files like ",
                                io::NameOf(group->front()), "; name the one to open"));
    }
    contents.weights = std::move(*group);
    return contents;
  }
  return contents;
}

bool IsSideFile(const std::string& folder, const std::string& path) {
  return std::any_of(std::begin(kDocumentNames), std::end(kDocumentNames), [&](const char* name) {
    return io::SameFile(io::JoinPath(folder, name), path);
  });
}

bool IsDocumentName(std::string_view name) {
  return EndsWith(name, kIndexSuffix) ||
         std::find(std::begin(kDocumentNames), std::end(kDocumentNames), name) !=
             std::end(kDocumentNames);
}

Status ReadTemplateFile(const std::string& folder, Memory* memory, Document* out) {
  QINFER_RETURN_IF_ERROR(ReadIfThere(folder, "chat_template.jinja", kMaxSideFile, memory, out));
  if (!out->empty()) return OkStatus();
  Document json;
  QINFER_RETURN_IF_ERROR(ReadIfThere(folder, "chat_template.json", kMaxSideFile, memory, &json));
  if (json.empty()) return OkStatus();
  TemplateEvents events(memory, out);
  QINFER_RETURN_IF_ERROR(ParseJson(json.text(), json.path(), JsonLimits{}, &events));
  out->set_path(json.path());
  return OkStatus();
}

StatusOr<SideFiles> ReadSideFiles(const std::string& folder, Memory* memory) {
  SideFiles files;
  const struct {
    const char* name;
    uint64_t max_bytes;
    Document* out;
  } wanted[] = {
      {"config.json", kMaxSideFile, &files.config_json},
      {"generation_config.json", kMaxSideFile, &files.generation_config_json},
      {"tokenizer.json", kMaxTokenizerJson, &files.tokenizer_json},
      {"tokenizer_config.json", kMaxSideFile, &files.tokenizer_config_json},
      {"quantize_config.json", kMaxSideFile, &files.quantize_config_json},
  };
  for (const auto& file : wanted) {
    QINFER_RETURN_IF_ERROR(ReadIfThere(folder, file.name, file.max_bytes, memory, file.out));
  }
  QINFER_RETURN_IF_ERROR(ReadTemplateFile(folder, memory, &files.chat_template_jinja));
  return files;
}

StatusOr<ShardIndex> ReadShardIndex(const std::string& path, Memory* memory) {
  QINFER_ASSIGN_OR_RETURN(const auto source, io::OpenFile(path, io::Access::kCopy, memory));
  return ParseShardIndex(*source, memory);
}

StatusOr<ShardIndex> ParseShardIndex(const io::Source& source, Memory* memory) {
  const std::string& file = source.name();
  if (source.size() > kMaxShardIndex) {
    return FormatError(StrCat(file, " has ", source.size(), " bytes; at most ", kMaxShardIndex,
                              " are accepted for a shard index"));
  }
  ShardIndex index(memory);
  IndexEvents events(&index);
  QINFER_RETURN_IF_ERROR(
      ParseJson(source, 0, source.size(), file, JsonLimits{.max_depth = 16}, &events));
  if (!events.seen_map() || index.entries.empty()) {
    return FormatError(StrCat(file, ": it has no weight_map with tensors"));
  }
  std::sort(index.entries.begin(), index.entries.end(),
            [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
  const auto twice =
      std::adjacent_find(index.entries.begin(), index.entries.end(),
                         [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice != index.entries.end()) {
    return FormatError(StrCat(file, ": the tensor ", Printable(twice->tensor), " is there twice"));
  }
  // Sources are numbered in the order of the shards' names, whatever the order of the map.
  std::vector<std::string> sorted = index.shards;
  std::sort(sorted.begin(), sorted.end());
  for (ShardIndex::Entry& entry : index.entries) {
    const std::string& name = index.shards[entry.shard];
    entry.shard = static_cast<uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), name) -
                                        sorted.begin());
  }
  index.shards = std::move(sorted);
  return index;
}

bool ParseSplitName(std::string_view name, SplitName* out) {
  const size_t of = name.rfind("-of-");
  if (of == std::string_view::npos || of < 6 || name.size() < of + 9) return false;
  const std::string_view number = name.substr(of - 5, 5), count = name.substr(of + 4, 5);
  const auto parse = [](std::string_view digits, uint32_t* value) {
    const char* end = digits.data() + digits.size();
    const auto result = std::from_chars(digits.data(), end, *value);
    return result.ec == std::errc() && result.ptr == end;
  };
  if (name[of - 6] != '-' || !parse(number, &out->number) || !parse(count, &out->count)) {
    return false;
  }
  out->prefix = std::string(name.substr(0, of - 6));
  out->suffix = std::string(name.substr(of + 9));
  return out->number >= 1 && out->number <= out->count;
}

std::string MakeSplitName(const SplitName& split, uint32_t number) {
  const auto five = [](uint32_t value) {
    std::string digits = std::to_string(value);
    return digits.size() < 5 ? std::string(5 - digits.size(), '0') + digits : digits;
  };
  return StrCat(split.prefix, "-", five(number), "-of-", five(split.count), split.suffix);
}

}  // namespace qinfer::format
