// The configured steps of a tokenizer.json as the programs of a spec. Sequences are flattened: each
// step works on the result of the one before in either form.
#include "tokenizer/json_program.h"

#include "tokenizer/scanners.h"
#include "tokenizer/utf8.h"

namespace qinfer::tokenizer {
namespace {

constexpr int kMaxNesting = 16;

bool Absent(const JsonNode* node) { return node == nullptr || node->type == JsonNode::kNull; }

Status Unknown(const char* what, std::string_view type, const char* known) {
  return UnsupportedError(
      StrCat(what, " \"", std::string(type), "\" is not supported; known are ", known));
}

template <typename Kind>
SpecOp Op(Kind kind, std::string_view text = {}, std::string_view text2 = {}) {
  SpecOp op;
  op.kind = static_cast<uint32_t>(kind);
  op.text = text;
  op.text2 = text2;
  return op;
}

// {"String": s} or {"Regex": r}.
Status ReadPattern(const JsonNode& node, const char* what, bool* regex, std::string* pattern) {
  const JsonNode* p = node.Get("pattern");
  if (p != nullptr && p->type == JsonNode::kString) {
    *regex = false;
    *pattern = p->text;
  } else if (p != nullptr && p->Get("String") != nullptr) {
    *regex = false;
    *pattern = p->GetText("String");
  } else if (p != nullptr && p->Get("Regex") != nullptr) {
    *regex = true;
    *pattern = p->GetText("Regex");
  } else {
    return FormatError(StrCat(what, ": pattern is neither {\"String\": ...} nor {\"Regex\": ...}"));
  }
  if (pattern->empty()) return UnsupportedError(StrCat(what, ": an empty pattern"));
  return OkStatus();
}

Status ReadBehavior(const JsonNode& node, const char* what, std::string_view fallback,
                    uint32_t* out) {
  const std::string_view name = node.GetText("behavior", fallback);
  constexpr std::string_view kNames[] = {"Removed", "Isolated", "MergedWithPrevious",
                                         "MergedWithNext", "Contiguous"};
  for (uint32_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] != name) continue;
    *out = i;
    return OkStatus();
  }
  return FormatError(StrCat(what, ": unknown behavior \"", std::string(name), "\""));
}

// Calls `each` on the members of a sequence.
template <typename Each>
Status ForEach(const JsonNode& node, const char* list, const char* what, Each each) {
  const JsonNode* items = node.Get(list);
  if (items == nullptr || items->type != JsonNode::kArray)
    return FormatError(StrCat(what, ": a Sequence without its list \"", list, "\""));
  for (const JsonNode& item : *items) QINFER_RETURN_IF_ERROR(each(item));
  return OkStatus();
}

Status Normalizer(const JsonNode& node, int depth, TokenizerSpec* spec) {
  constexpr const char* kWhat = "normalizer";
  if (depth > kMaxNesting) return FormatError("normalizer: Sequences nested too deeply");
  const std::string_view type = node.GetText("type");
  auto& out = spec->normalizer;
  if (type == "Sequence")
    return ForEach(node, "normalizers", kWhat,
                   [&](const JsonNode& n) { return Normalizer(n, depth + 1, spec); });
  if (type == "NFC") {
    out.push_back(Op(NormKind::kNfc));
  } else if (type == "NFD") {
    out.push_back(Op(NormKind::kNfd));
  } else if (type == "NFKC") {
    out.push_back(Op(NormKind::kNfkc));
  } else if (type == "NFKD") {
    out.push_back(Op(NormKind::kNfkd));
  } else if (type == "Lowercase") {
    out.push_back(Op(NormKind::kLowercase));
  } else if (type == "StripAccents") {
    out.push_back(Op(NormKind::kStripAccents));
  } else if (type == "ByteLevel") {
    out.push_back(Op(NormKind::kByteLevel));
  } else if (type == "Prepend") {
    out.push_back(Op(NormKind::kPrepend, node.GetText("prepend")));
  } else if (type == "Strip") {
    SpecOp op = Op(NormKind::kStrip);
    op.a = (node.GetBool("strip_left", true) ? 1u : 0u) |
           (node.GetBool("strip_right", true) ? 2u : 0u);
    out.push_back(op);
  } else if (type == "Replace") {
    bool regex;
    SpecOp op;
    QINFER_RETURN_IF_ERROR(ReadPattern(node, "normalizer Replace", &regex, &op.text));
    op.kind = static_cast<uint32_t>(regex ? NormKind::kReplaceRegex : NormKind::kReplace);
    op.text2 = node.GetText("content");
    out.push_back(op);
  } else {
    return Unknown(kWhat, type,
                   "NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, ByteLevel, Prepend, Strip, "
                   "Replace, Sequence");
  }
  return OkStatus();
}

Status Metaspace(const JsonNode& node, const char* what, std::string* replacement,
                 PrependScheme* scheme) {
  *replacement = node.GetText("replacement", "\xe2\x96\x81");
  if (replacement->empty() ||
      SequenceLength(static_cast<uint8_t>((*replacement)[0])) != replacement->size())
    return FormatError(StrCat(what, ": replacement is not one character"));
  const std::string_view name = node.GetText("prepend_scheme", "always");
  if (name == "always") {
    *scheme = PrependScheme::kAlways;
  } else if (name == "first") {
    *scheme = PrependScheme::kFirst;
  } else if (name == "never") {
    *scheme = PrependScheme::kNever;
  } else {
    return FormatError(StrCat(what, ": unknown prepend_scheme \"", std::string(name), "\""));
  }
  if (!node.GetBool("add_prefix_space", true)) *scheme = PrependScheme::kNever;
  return OkStatus();
}

Status Pretokenizer(const JsonNode& node, int depth, TokenizerSpec* spec) {
  constexpr const char* kWhat = "pre-tokenizer";
  if (depth > kMaxNesting) return FormatError("pre-tokenizer: Sequences nested too deeply");
  const std::string_view type = node.GetText("type");
  auto& out = spec->pretokenizer;
  if (type == "Sequence")
    return ForEach(node, "pretokenizers", kWhat,
                   [&](const JsonNode& n) { return Pretokenizer(n, depth + 1, spec); });
  if (type == "ByteLevel") {
    AddByteLevel(node.GetBool("add_prefix_space", true), node.GetBool("use_regex", true), spec);
  } else if (type == "Split") {
    bool regex;
    SpecOp op;
    QINFER_RETURN_IF_ERROR(ReadPattern(node, "pre-tokenizer Split", &regex, &op.text));
    QINFER_RETURN_IF_ERROR(ReadBehavior(node, "pre-tokenizer Split", "", &op.a));
    op.b = node.GetBool("invert", false) ? 1 : 0;
    op.c = regex ? FindScanner(op.text) : 0;
    op.kind = static_cast<uint32_t>(!regex      ? PreKind::kSplitString
                                    : op.c != 0 ? PreKind::kSplitScanner
                                                : PreKind::kSplitRegex);
    out.push_back(op);
  } else if (type == "Metaspace") {
    SpecOp op = Op(PreKind::kMetaspace);
    PrependScheme scheme;
    QINFER_RETURN_IF_ERROR(Metaspace(node, "pre-tokenizer Metaspace", &op.text, &scheme));
    op.a = static_cast<uint32_t>(scheme);
    op.b = node.GetBool("split", true) ? 1 : 0;
    out.push_back(op);
  } else if (type == "Digits") {
    SpecOp op = Op(PreKind::kDigits);
    op.a = node.GetBool("individual_digits", false) ? 1 : 0;
    out.push_back(op);
  } else if (type == "Punctuation") {
    SpecOp op = Op(PreKind::kPunctuation);
    QINFER_RETURN_IF_ERROR(ReadBehavior(node, "pre-tokenizer Punctuation", "Isolated", &op.a));
    out.push_back(op);
  } else if (type == "Whitespace") {
    out.push_back(Op(PreKind::kWhitespace));
  } else if (type == "WhitespaceSplit") {
    out.push_back(Op(PreKind::kWhitespaceSplit));
  } else if (type == "BertPreTokenizer") {
    out.push_back(Op(PreKind::kBert));
  } else if (type == "CharDelimiterSplit") {
    const std::string_view delimiter = node.GetText("delimiter");
    if (delimiter.empty()) return FormatError("pre-tokenizer CharDelimiterSplit: no delimiter");
    out.push_back(Op(PreKind::kCharDelimiter, delimiter));
  } else {
    return Unknown(kWhat, type,
                   "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, "
                   "BertPreTokenizer, CharDelimiterSplit, Sequence");
  }
  return OkStatus();
}

Status TemplateIds(const JsonNode& special, std::string_view name, std::vector<uint32_t>* out) {
  const JsonNode* entry = special.Get(name);
  const JsonNode* ids = entry == nullptr ? nullptr : entry->Get("ids");
  if (ids == nullptr || ids->type != JsonNode::kArray)
    return FormatError(StrCat("post-processor: special token \"", std::string(name),
                              "\" of the template is not defined"));
  for (const JsonNode& id : *ids) {
    if (!id.IsNumber() || !(id.number >= 0 && id.number < kMaxVocabulary))
      return FormatError("post-processor: an id of the template is no token id");
    out->push_back(static_cast<uint32_t>(id.number));
  }
  return OkStatus();
}

Status Template(const JsonNode& node, TokenizerSpec* spec) {
  const JsonNode* single = node.Get("single");
  const JsonNode* special = node.Get("special_tokens");
  if (single == nullptr || single->type != JsonNode::kArray || special == nullptr)
    return FormatError(
        "post-processor TemplateProcessing: \"single\" or \"special_tokens\" is missing");
  std::vector<uint32_t> before;
  std::vector<uint32_t> after;
  int sequences = 0;
  for (const JsonNode& item : *single) {
    if (item.Get("Sequence") != nullptr) {
      ++sequences;
    } else if (const JsonNode* token = item.Get("SpecialToken"); token != nullptr) {
      QINFER_RETURN_IF_ERROR(
          TemplateIds(*special, token->GetText("id"), sequences == 0 ? &before : &after));
    } else {
      return FormatError(
          "post-processor TemplateProcessing: an item that is neither sequence nor token");
    }
  }
  if (sequences != 1)
    return UnsupportedError(StrCat("post-processor TemplateProcessing: the text occurs ", sequences,
                                   " times, not once"));
  spec->prefix.insert(spec->prefix.begin(), before.begin(), before.end());
  spec->suffix.insert(spec->suffix.end(), after.begin(), after.end());
  return OkStatus();
}

Status PostProcessor(const JsonNode& node, int depth, TokenizerSpec* spec) {
  constexpr const char* kWhat = "post-processor";
  if (depth > kMaxNesting) return FormatError("post-processor: Sequences nested too deeply");
  const std::string_view type = node.GetText("type");
  if (type == "Sequence")
    return ForEach(node, "processors", kWhat,
                   [&](const JsonNode& n) { return PostProcessor(n, depth + 1, spec); });
  if (type == "ByteLevel") return OkStatus();  // moves offsets only
  if (type == "TemplateProcessing") return Template(node, spec);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    for (const char* name : {"cls", "sep"}) {
      const JsonNode* pair = node.Get(name);
      const JsonNode* second =
          pair != nullptr && pair->IsArray() && pair->size == 2 ? pair->first->next : nullptr;
      if (second == nullptr || !second->IsNumber() ||
          !(second->number >= 0 && second->number < kMaxVocabulary))
        return FormatError(StrCat("post-processor: \"", name, "\" is not [text, id]"));
      const auto id = static_cast<uint32_t>(second->number);
      if (name[0] == 'c') {
        spec->prefix.insert(spec->prefix.begin(), id);
      } else {
        spec->suffix.push_back(id);
      }
    }
    return OkStatus();
  }
  return Unknown(kWhat, type,
                 "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, Sequence");
}

Status DecoderSteps(const JsonNode& node, int depth, TokenizerSpec* spec) {
  constexpr const char* kWhat = "decoder";
  if (depth > kMaxNesting) return FormatError("decoder: Sequences nested too deeply");
  const std::string_view type = node.GetText("type");
  auto& out = spec->decoder;
  if (type == "Sequence")
    return ForEach(node, "decoders", kWhat,
                   [&](const JsonNode& n) { return DecoderSteps(n, depth + 1, spec); });
  if (type == "ByteLevel") {
    out.push_back(Op(DecodeKind::kByteLevel));
  } else if (type == "Metaspace") {
    SpecOp op = Op(DecodeKind::kMetaspace);
    PrependScheme scheme;
    QINFER_RETURN_IF_ERROR(Metaspace(node, "decoder Metaspace", &op.text, &scheme));
    op.a = scheme == PrependScheme::kNever ? 0 : 1;
    out.push_back(op);
  } else if (type == "ByteFallback") {
    out.push_back(Op(DecodeKind::kByteFallback));
  } else if (type == "Fuse") {
    out.push_back(Op(DecodeKind::kFuse));
  } else if (type == "Strip") {
    SpecOp op = Op(DecodeKind::kStrip, node.GetText("content"));
    for (const char* name : {"start", "stop"}) {
      const JsonNode* count = node.Get(name);
      const double value = count == nullptr ? 0 : count->number;
      if (!(value >= 0 && value <= 65535))
        return FormatError(StrCat("decoder Strip: \"", name, "\" is not between 0 and 65535"));
      (name[2] == 'a' ? op.a : op.b) = static_cast<uint32_t>(value);
    }
    if (op.text.empty()) return FormatError("decoder Strip: no content");
    out.push_back(op);
  } else if (type == "Replace") {
    bool regex;
    SpecOp op;
    QINFER_RETURN_IF_ERROR(ReadPattern(node, "decoder Replace", &regex, &op.text));
    op.kind = static_cast<uint32_t>(regex ? DecodeKind::kReplaceRegex : DecodeKind::kReplace);
    op.text2 = node.GetText("content");
    out.push_back(op);
  } else if (type == "BPEDecoder") {
    out.push_back(Op(DecodeKind::kSuffix, node.GetText("suffix", "</w>")));
  } else {
    return Unknown(
        kWhat, type,
        "ByteLevel, Metaspace, ByteFallback, Fuse, Strip, Replace, BPEDecoder, Sequence");
  }
  return OkStatus();
}

}  // namespace

void AddScanner(uint32_t scanner, TokenizerSpec* spec) {
  SpecOp op = Op(PreKind::kSplitScanner, ScannerPattern(static_cast<Scanner>(scanner)));
  op.a = static_cast<uint32_t>(Behavior::kIsolated);
  op.c = scanner;
  spec->pretokenizer.push_back(op);
}

void AddByteLevel(bool prefix_space, bool use_regex, TokenizerSpec* spec) {
  if (prefix_space) spec->pretokenizer.push_back(Op(PreKind::kBytePrefix));
  if (use_regex) AddScanner(static_cast<uint32_t>(Scanner::kGpt2), spec);
  spec->pretokenizer.push_back(Op(PreKind::kByteAlphabet));
}

void FinishPretokenizer(TokenizerSpec* spec) {
  // Where bytes are spelled last, the model reads the bytes themselves.
  if (spec->pretokenizer.empty() ||
      spec->pretokenizer.back().kind != static_cast<uint32_t>(PreKind::kByteAlphabet))
    return;
  spec->pretokenizer.pop_back();
  spec->byte_level = true;
}

Status ReadNormalizer(const JsonNode* node, TokenizerSpec* spec) {
  return Absent(node) ? OkStatus() : Normalizer(*node, 0, spec);
}

Status ReadPretokenizer(const JsonNode* node, TokenizerSpec* spec) {
  if (!Absent(node)) QINFER_RETURN_IF_ERROR(Pretokenizer(*node, 0, spec));
  FinishPretokenizer(spec);
  return OkStatus();
}

Status ReadPostProcessor(const JsonNode* node, TokenizerSpec* spec) {
  return Absent(node) ? OkStatus() : PostProcessor(*node, 0, spec);
}

Status ReadDecoder(const JsonNode* node, TokenizerSpec* spec) {
  if (!Absent(node)) return DecoderSteps(*node, 0, spec);
  spec->decoder.push_back(Op(DecodeKind::kJoinSpace));
  return OkStatus();
}

}  // namespace qinfer::tokenizer
