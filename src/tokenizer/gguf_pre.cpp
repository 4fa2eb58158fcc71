// The table of tokenizer.ggml.pre. Patterns are those of the models' own tokenizer.json.
#include "tokenizer/gguf_pre.h"

#include "tokenizer/json_program.h"
#include "tokenizer/scanners.h"

namespace qinfer::tokenizer {
namespace {

enum Family : uint8_t {
  kFamilyGpt2,
  kFamilyDigitsGpt2,
  kFamilyLlama3,
  kFamilyQwen2,
  kFamilyDeepSeekLlm,
  kFamilyDeepSeekCoder,
  kFamilyDeepSeekV3,
  kFamilyTekken,
  kFamilyGpt4o,
  kFamilyKimiK2,
  kFamilyDefault,
};

struct PreName {
  std::string_view name;
  Family family;
  bool nfc, ignore_merges, adds_bos;
};
constexpr PreName kPreNames[] = {
    {"gpt-2", kFamilyGpt2, false, false, false},
    {"phi-2", kFamilyGpt2, false, false, false},
    {"mpt", kFamilyGpt2, false, false, false},
    {"olmo", kFamilyGpt2, false, false, false},
    {"jais", kFamilyGpt2, false, false, false},
    {"smollm", kFamilyDigitsGpt2, false, false, false},
    {"starcoder", kFamilyDigitsGpt2, false, false, false},
    {"refact", kFamilyDigitsGpt2, false, false, false},
    {"command-r", kFamilyDigitsGpt2, false, false, false},
    {"codeshell", kFamilyDigitsGpt2, false, false, false},
    {"llama-bpe", kFamilyLlama3, false, true, true},
    {"llama3", kFamilyLlama3, false, true, true},
    {"llama-v3", kFamilyLlama3, false, true, true},
    {"dbrx", kFamilyLlama3, false, false, false},
    {"smaug-bpe", kFamilyLlama3, false, false, false},
    {"qwen2", kFamilyQwen2, true, false, false},
    {"deepseek-r1-qwen", kFamilyQwen2, false, false, false},
    {"deepseek-llm", kFamilyDeepSeekLlm, false, false, false},
    {"deepseek-coder", kFamilyDeepSeekCoder, false, false, false},
    {"deepseek-v3", kFamilyDeepSeekV3, false, false, false},
    {"tekken", kFamilyTekken, false, true, true},
    {"gpt-4o", kFamilyGpt4o, false, false, false},
    {"llama4", kFamilyGpt4o, false, false, false},
    {"chatglm-bpe", kFamilyLlama3, false, false, false},
    {"glm4", kFamilyLlama3, false, true, false},
    {"kimi-k2", kFamilyKimiK2, false, true, false},
    {"default", kFamilyDefault, false, false, false},
};

// By numbers, since several of these letters have the same normal form as others, and tools that
// normalize sources would change the ranges.
constexpr std::string_view kDeepSeekLlmLetters =
    "\\s?[A-Za-z\\x{00B5}\\x{00C0}-\\x{00D6}\\x{00D8}-\\x{00F6}\\x{00F8}-\\x{01BA}"
    "\\x{01BC}-\\x{01BF}\\x{01C4}-\\x{0293}\\x{0295}-\\x{02AF}\\x{0370}-\\x{0373}\\x{0376}"
    "\\x{0377}\\x{037B}-\\x{037D}\\x{037F}\\x{0386}\\x{0388}-\\x{038A}\\x{038C}"
    "\\x{038E}-\\x{03A1}\\x{03A3}-\\x{03F5}\\x{03F7}-\\x{0481}\\x{048A}-\\x{052F}"
    "\\x{0531}-\\x{0556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}"
    "\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}"
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}"
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}"
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}"
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}"
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}"
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}"
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+";
constexpr std::string_view kDeepSeekLlmSigns = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";
constexpr std::string_view kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

constexpr std::string_view kGpt4o =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

// GPT-4o's, with Han apart: from other letters by what may not follow.
constexpr std::string_view kKimiK2 =
    "\\p{Han}+|"
    "[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])*"
    "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?(?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])+"
    "(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

void AddRegex(std::string_view pattern, TokenizerSpec* spec) {
  SpecOp op;
  op.kind = static_cast<uint32_t>(PreKind::kSplitRegex);
  op.a = static_cast<uint32_t>(Behavior::kIsolated);
  op.text = pattern;
  spec->pretokenizer.push_back(op);
}

void AddDigits(TokenizerSpec* spec) {
  SpecOp op;
  op.kind = static_cast<uint32_t>(PreKind::kDigits);
  op.a = 1;
  spec->pretokenizer.push_back(op);
}

void AddKnown(Scanner scanner, TokenizerSpec* spec) {
  AddScanner(static_cast<uint32_t>(scanner), spec);
}

void AddFamily(Family family, TokenizerSpec* spec) {
  switch (family) {
    case kFamilyDigitsGpt2:
      AddDigits(spec);
      AddKnown(Scanner::kGpt2, spec);
      break;
    case kFamilyGpt2:
      AddKnown(Scanner::kGpt2, spec);
      break;
    case kFamilyLlama3:
      AddKnown(Scanner::kLlama3, spec);
      break;
    case kFamilyQwen2:
      AddKnown(Scanner::kQwen2, spec);
      break;
    case kFamilyDeepSeekLlm:
      AddKnown(Scanner::kNewline, spec);
      AddRegex(kDeepSeekLlmLetters, spec);
      AddRegex(kDeepSeekLlmSigns, spec);
      AddRegex("\\s+$", spec);
      AddKnown(Scanner::kCjkHangul, spec);
      AddDigits(spec);
      break;
    case kFamilyDeepSeekCoder:
      AddKnown(Scanner::kNewline, spec);
      AddKnown(Scanner::kSpaceLetters, spec);
      AddKnown(Scanner::kSpacePunctuation, spec);
      AddKnown(Scanner::kCjkHangul, spec);
      AddDigits(spec);
      break;
    case kFamilyDeepSeekV3:
      AddKnown(Scanner::kNumberTriples, spec);
      AddKnown(Scanner::kCjkKana, spec);
      AddKnown(Scanner::kDeepSeekV3, spec);
      break;
    case kFamilyTekken:
      AddRegex(kTekken, spec);
      break;
    case kFamilyGpt4o:
      AddRegex(kGpt4o, spec);
      break;
    case kFamilyKimiK2:
      AddRegex(kKimiK2, spec);
      break;
    case kFamilyDefault:
      AddRegex("[\\p{P}$+<=>^~|]+", spec);
      AddKnown(Scanner::kGpt2, spec);
      AddRegex("\\p{N}+", spec);
      AddRegex("[0-9][0-9][0-9]", spec);
      break;
  }
  AddByteLevel(false, false, spec);
}

}  // namespace

Status ApplyGgufPre(std::string_view name, TokenizerSpec* spec, bool* adds_bos) {
  std::string known;
  for (const PreName& pre : kPreNames) {
    if (pre.name != name) {
      known.append(known.empty() ? "" : ", ").append(pre.name);
      continue;
    }
    if (pre.nfc) {
      SpecOp op;
      op.kind = static_cast<uint32_t>(NormKind::kNfc);
      spec->normalizer.push_back(op);
    }
    AddFamily(pre.family, spec);
    FinishPretokenizer(spec);
    spec->ignore_merges = pre.ignore_merges;
    *adds_bos = pre.adds_bos;
    return OkStatus();
  }
  return UnsupportedError(
      StrCat("tokenizer.ggml.pre \"", std::string(name), "\" is not supported; known are ", known));
}

}  // namespace qinfer::tokenizer
