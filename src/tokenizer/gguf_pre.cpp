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
    {"default", kFamilyDefault, false, false, false},
};

// clang-format off
constexpr std::string_view kDeepSeekLlmLetters =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-"
    "Ჿᴀ-"
    "ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    "ὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼι"
    "ῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-"
    "ꞎꭰ-"
    "ꮿ"
    "ﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
// clang-format on
constexpr std::string_view kDeepSeekLlmSigns = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";
constexpr std::string_view kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|"
    "\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

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
