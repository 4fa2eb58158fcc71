// tokenizer.json (and tokenizer_config.json) to a spec. The configured steps are read in
// json_program.cpp.
#include <algorithm>
#include <optional>

#include "tokenizer/json_program.h"
#include "tokenizer/runtime.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer_json.h"

namespace qinfer::tokenizer {
namespace {

// A vocabulary may have holes, but not be mostly holes: memory follows the largest id.
Status CheckIds(const TokenizerSpec& spec) {
  if (spec.tokens.empty()) return FormatError("the vocabulary is empty or missing (model.vocab)");
  const uint64_t limit = std::min<uint64_t>(spec.tokens.size() * 8 + 4096, kMaxVocabulary);
  uint32_t largest = 0;
  for (const SpecToken& t : spec.tokens) {
    if (t.id >= limit)
      return FormatError(StrCat("token \"", std::string(spec.Text(t.text)), "\" has the id ", t.id,
                                " in a vocabulary of ", spec.tokens.size(), " tokens"));
    largest = std::max(largest, t.id);
  }
  std::pmr::vector<uint8_t> seen(largest + size_t{1}, 0, spec.memory);
  for (const SpecToken& t : spec.tokens)
    if (seen[t.id]++ != 0) return FormatError(StrCat("two tokens have the id ", t.id));
  return OkStatus();
}

Status ReadModelFlags(const JsonNode& model, const TokenizerJson& json, const TokenIndex& index,
                      TokenizerSpec* spec) {
  const JsonNode* dropout = model.Get("dropout");
  if (dropout != nullptr && dropout->IsNumber() && dropout->number > 0)
    return UnsupportedError("model.dropout is set: encoding would be random; set it to null");
  spec->fuse_unk = model.GetBool("fuse_unk", false);
  spec->byte_fallback = model.GetBool("byte_fallback", false);
  spec->ignore_merges = model.GetBool("ignore_merges", false);
  spec->affix_prefix = model.GetText("continuing_subword_prefix");
  spec->affix_suffix = model.GetText("end_of_word_suffix");
  if (spec->affix_prefix.size() > 256 || spec->affix_suffix.size() > 256)
    return UnsupportedError("a subword prefix or suffix of more than 256 bytes");
  const JsonNode* unk = model.Get("unk_token");
  if (unk != nullptr && unk->type == JsonNode::kString) {
    spec->unk = index.Find(unk->text);
    if (spec->unk < 0)
      return FormatError(
          StrCat("unk_token \"", std::string(unk->text), "\" is not in the vocabulary"));
  }
  if (!json.has_merges) return FormatError("the merges are missing (model.merges)");
  return OkStatus();
}

Status ResolveMerges(const TokenizerJson& json, const TokenIndex& index, TokenizerSpec* spec) {
  spec->merges.reserve(json.merges.size());
  std::string joined;
  for (size_t i = 0; i < json.merges.size(); ++i) {
    const TokenizerJson::Merge& m = json.merges[i];
    std::string_view left = spec->Text(m.left);
    std::string_view right;
    if (m.pair) {
      right = spec->Text(m.right);
    } else {
      const size_t space = left.find(' ');
      if (space == std::string_view::npos || left.find(' ', space + 1) != std::string_view::npos)
        return FormatError(StrCat("merge ", i, " is not two texts with a space between them: \"",
                                  std::string(left), "\""));
      right = left.substr(space + 1);
      left = left.substr(0, space);
    }
    joined.assign(left);
    joined.append(right.substr(std::min(right.size(), spec->affix_prefix.size())));
    const int64_t left_id = index.Find(left);
    const int64_t right_id = index.Find(right);
    const int64_t result = index.Find(joined);
    if (left_id < 0 || right_id < 0 || result < 0)
      return FormatError(StrCat("merge ", i, " (\"", std::string(left), "\", \"",
                                std::string(right),
                                "\") names a token that is not in the vocabulary"));
    spec->merges.push_back({static_cast<uint32_t>(left_id), static_cast<uint32_t>(right_id),
                            static_cast<uint32_t>(i), static_cast<uint32_t>(result)});
  }
  return OkStatus();
}

// "bos_token" and the like: a text, or an object with "content".
std::string_view ConfigToken(const JsonNode& config, std::string_view key) {
  const JsonNode* node = config.Get(key);
  if (node == nullptr) return {};
  return node->type == JsonNode::kString ? node->text : node->GetText("content");
}

// add_bos_token and add_eos_token of the configuration override the template, as in transformers.
void OverrideTemplate(const JsonNode& config, TokenizerSpec* spec) {
  const auto flag = [&](std::string_view key) -> std::optional<bool> {
    const JsonNode* node = config.Get(key);
    if (node == nullptr || node->type != JsonNode::kBool) return std::nullopt;
    return node->boolean;
  };
  const std::optional<bool> bos = flag("add_bos_token");
  if (bos.has_value() && spec->bos >= 0) {
    const auto id = static_cast<uint32_t>(spec->bos);
    const bool there = !spec->prefix.empty() && spec->prefix.front() == id;
    if (*bos && !there) spec->prefix.insert(spec->prefix.begin(), id);
    if (!*bos && there) spec->prefix.erase(spec->prefix.begin());
  }
  const std::optional<bool> eos = flag("add_eos_token");
  if (eos.has_value() && spec->eos >= 0) {
    const auto id = static_cast<uint32_t>(spec->eos);
    const bool there = !spec->suffix.empty() && spec->suffix.back() == id;
    if (*eos && !there) spec->suffix.push_back(id);
    if (!*eos && there) spec->suffix.pop_back();
  }
}

Status ReadConfig(std::string_view config_json, const TokenIndex& index, TokenizerSpec* spec) {
  if (config_json.empty()) {
    // What the template puts first is the beginning of a text, and what it puts last its end.
    if (!spec->prefix.empty()) spec->bos = spec->prefix.front();
    if (!spec->suffix.empty()) spec->eos = spec->suffix.back();
    return OkStatus();
  }
  format::JsonTree tree(spec->memory);
  QINFER_RETURN_IF_ERROR(tree.Parse(config_json, "tokenizer_config.json"));
  const JsonNode& config = tree.root();
  if (!config.IsObject()) return FormatError("tokenizer_config.json is not an object");
  spec->bos = FindToken(index, *spec, ConfigToken(config, "bos_token"));
  spec->eos = FindToken(index, *spec, ConfigToken(config, "eos_token"));
  OverrideTemplate(config, spec);
  return OkStatus();
}

Status ReadSpec(std::string_view text, std::string_view config, TokenizerSpec* spec) {
  TokenizerJson json(spec->memory);
  QINFER_RETURN_IF_ERROR(ParseTokenizerJson(text, &json, spec));
  const JsonNode* model = json.tree.root().Get("model");
  if (model == nullptr || !model->IsObject())
    return FormatError("not a tokenizer.json: it has no object \"model\"");
  const std::string_view type = model->GetText("type", json.has_merges ? "BPE" : "");
  if (type.empty() && json.has_vocab_object)
    return FormatError(
        "the merges are missing (model.merges), and model.type does not name a type");
  if (type != "BPE")
    return UnsupportedError(StrCat("tokenizer model type \"", std::string(type),
                                   "\" is not supported; known is BPE (byte-level, and "
                                   "SentencePiece-style with byte fallback)"));
  QINFER_RETURN_IF_ERROR(CheckIds(*spec));
  TokenIndex index(*spec);
  QINFER_RETURN_IF_ERROR(index.Build());
  QINFER_RETURN_IF_ERROR(ReadModelFlags(*model, json, index, spec));
  QINFER_RETURN_IF_ERROR(ResolveMerges(json, index, spec));
  QINFER_RETURN_IF_ERROR(AssignAddedIds(index, spec));
  QINFER_RETURN_IF_ERROR(ReadNormalizer(json.tree.root().Get("normalizer"), spec));
  QINFER_RETURN_IF_ERROR(ReadPretokenizer(json.tree.root().Get("pre_tokenizer"), spec));
  QINFER_RETURN_IF_ERROR(ReadPostProcessor(json.tree.root().Get("post_processor"), spec));
  QINFER_RETURN_IF_ERROR(ReadDecoder(json.tree.root().Get("decoder"), spec));
  return ReadConfig(config, index, spec);
}

}  // namespace

StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json,
                                                               std::string_view config_json,
                                                               const std::string& name,
                                                               Memory* memory) {
  TokenizerSpec spec(memory);
  const Status status = ReadSpec(tokenizer_json, config_json, &spec);
  if (!status.ok()) return Annotate(status, name);
  return RuntimeTokenizer::FromSpec(spec, name, memory);
}

}  // namespace qinfer::tokenizer
