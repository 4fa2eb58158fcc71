// Range checks and messages of configuration readers.
#include "model/config_reader.h"

#include <cmath>

namespace qinfer::model {
namespace {

constexpr size_t kMaxJsonBytes = 16u << 20;

// Whole numbers with all their digits.
std::string Plain(double number) {
  if (number == std::floor(number) && std::fabs(number) < 1e15) {
    return StrCat(static_cast<int64_t>(number));
  }
  return StrCat(number);
}

std::string Range(double low, double high) {
  return StrCat("from ", Plain(low), " to ", Plain(high));
}

}  // namespace

StatusOr<std::unique_ptr<format::JsonTree>> ParseJsonObject(std::string_view text,
                                                            const std::string& name,
                                                            Memory* memory) {
  if (text.size() > kMaxJsonBytes) {
    return FormatError(StrCat(name, ": ", text.size(), " bytes are too many for a configuration"));
  }
  auto tree = std::make_unique<format::JsonTree>(memory);
  QINFER_RETURN_IF_ERROR(tree->Parse(text, name));
  if (!tree->root().IsObject()) return FormatError(name + ": the document is not a JSON object");
  return tree;
}

// ---- JSON

const format::JsonNode* JsonReader::Find(const char* key) const {
  const format::JsonNode* node = object_.Get(key);
  return node == nullptr || node->type == format::JsonNode::kNull ? nullptr : node;
}

void JsonReader::Fail(const Status& status) {
  if (status_.ok()) status_ = status;
}

void JsonReader::Fail(const char* key, const std::string& what) {
  Fail(FormatError(StrCat(where_, key, ": ", what)));
}

uint32_t JsonReader::Uint(const char* key, uint32_t low, uint32_t high) {
  if (!Has(key)) {
    Fail(key, "this key is required and missing");
    return low;
  }
  return Uint(key, low, high, low);
}

uint32_t JsonReader::Uint(const char* key, uint32_t low, uint32_t high, uint32_t otherwise) {
  const format::JsonNode* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->IsNumber()) {
    Fail(key, StrCat("expected a whole number, found ", std::string(value->TypeName())));
    return low;
  }
  const double number = value->number;  // some writers say 4096.0
  if (!(number >= low && number <= high) || number != std::floor(number)) {
    Fail(key, StrCat("expected a whole number ", Range(low, high), ", found ", Plain(number)));
    return low;
  }
  return static_cast<uint32_t>(number);
}

double JsonReader::Number(const char* key, double low, double high) {
  if (!Has(key)) {
    Fail(key, "this key is required and missing");
    return low;
  }
  return Number(key, low, high, low);
}

double JsonReader::Number(const char* key, double low, double high, double otherwise) {
  const format::JsonNode* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->IsNumber()) {
    Fail(key, StrCat("expected a number, found ", std::string(value->TypeName())));
    return low;
  }
  const double number = value->number;
  if (!(number >= low && number <= high)) {
    Fail(key, StrCat("expected a number ", Range(low, high), ", found ", Plain(number)));
    return low;
  }
  return number;
}

bool JsonReader::Bool(const char* key, bool otherwise) {
  const format::JsonNode* value = Find(key);
  if (value == nullptr) return otherwise;
  if (value->type != format::JsonNode::kBool) {
    Fail(key, StrCat("expected true or false, found ", std::string(value->TypeName())));
    return otherwise;
  }
  return value->boolean;
}

std::string JsonReader::String(const char* key, const char* otherwise) {
  const format::JsonNode* value = Find(key);
  if (value == nullptr) return otherwise;
  if (!value->IsString()) {
    Fail(key, StrCat("expected a string, found ", std::string(value->TypeName())));
    return otherwise;
  }
  return std::string(value->text);
}

std::vector<std::string> JsonReader::Strings(const char* key, size_t most) {
  std::vector<std::string> out;
  const format::JsonNode* value = Find(key);
  if (value == nullptr) return out;
  if (!value->IsArray() || value->size > most) {
    Fail(key, StrCat("expected an array of at most ", most, " strings"));
    return out;
  }
  for (const format::JsonNode& element : *value) {
    if (!element.IsString()) {
      Fail(key, "expected strings only");
      return {};
    }
    out.emplace_back(element.text);
  }
  return out;
}

std::vector<double> JsonReader::Numbers(const char* key, size_t most) {
  std::vector<double> out;
  const format::JsonNode* value = Find(key);
  if (value == nullptr) return out;
  if (!value->IsArray() || value->size > most) {
    Fail(key, StrCat("expected an array of at most ", most, " numbers"));
    return out;
  }
  for (const format::JsonNode& element : *value) {
    if (!element.IsNumber()) {
      Fail(key, "expected numbers only");
      return {};
    }
    out.push_back(element.number);
  }
  return out;
}

const format::JsonNode* JsonReader::Object(const char* key) {
  const format::JsonNode* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->IsObject()) {
    Fail(key, StrCat("expected an object, found ", std::string(value->TypeName())));
    return nullptr;
  }
  return value;
}

// ---- GGUF

void GgufReader::Fail(const Status& status) {
  if (status_.ok()) status_ = status;
}

void GgufReader::Fail(const char* key, const std::string& what) {
  Fail(FormatError(StrCat(gguf_.name(), ": metadata ", prefix_, key, ": ", what)));
}

uint32_t GgufReader::Uint(const char* key, uint32_t low, uint32_t high) {
  if (!Has(key)) {
    Fail(key, "this key is required and missing");
    return low;
  }
  return Uint(key, low, high, low);
}

uint32_t GgufReader::Uint(const char* key, uint32_t low, uint32_t high, uint32_t otherwise) {
  const format::GgufValue* value = gguf_.Find(prefix_ + key);
  if (value == nullptr) return otherwise;
  const StatusOr<uint64_t> number = value->AsUint();
  if (!number.ok()) {
    Fail(key, "expected a whole number");
    return low;
  }
  if (*number < low || *number > high) {
    Fail(key, StrCat("expected a whole number ", Range(low, high), ", found ", *number));
    return low;
  }
  return static_cast<uint32_t>(*number);
}

uint32_t GgufReader::UniformUint(const char* key, uint32_t low, uint32_t high, uint32_t otherwise) {
  const format::GgufValue* value = gguf_.Find(prefix_ + key);
  if (value == nullptr || value->type != format::GgufType::kArray) {
    return Uint(key, low, high, otherwise);
  }
  if (value->count == 0 || value->count > kMaxLayers) {
    Fail(key, StrCat("expected one number a layer, found ", value->count));
    return low;
  }
  uint32_t result = low;
  for (uint64_t i = 0; i < value->count; ++i) {
    const StatusOr<int64_t> number = value->IntAt(i);
    if (!number.ok() || *number < low || *number > high) {
      Fail(key, StrCat("expected whole numbers ", Range(low, high)));
      return low;
    }
    if (i > 0 && *number != result) {
      Fail(UnsupportedError(StrCat(gguf_.name(), ": metadata ", prefix_, key,
                                   ": sizes that differ from layer to layer are not supported")));
      return low;
    }
    result = static_cast<uint32_t>(*number);
  }
  return result;
}

double GgufReader::Number(const char* key, double low, double high) {
  if (!Has(key)) {
    Fail(key, "this key is required and missing");
    return low;
  }
  return Number(key, low, high, low);
}

double GgufReader::Number(const char* key, double low, double high, double otherwise) {
  const format::GgufValue* value = gguf_.Find(prefix_ + key);
  if (value == nullptr) return otherwise;
  const StatusOr<double> number = value->AsFloat();
  if (!number.ok() || !(*number >= low && *number <= high)) {
    Fail(key, StrCat("expected a number ", Range(low, high)));
    return low;
  }
  return *number;
}

bool GgufReader::Bool(const char* key, bool otherwise) {
  const format::GgufValue* value = gguf_.Find(prefix_ + key);
  if (value == nullptr) return otherwise;
  const StatusOr<bool> result = value->AsBool();
  if (!result.ok()) Fail(key, "expected true or false");
  return result.ok() && *result;
}

std::string GgufReader::String(const char* key, const char* otherwise) {
  const format::GgufValue* value = gguf_.Find(prefix_ + key);
  if (value == nullptr) return otherwise;
  const StatusOr<std::string_view> text = value->AsString();
  if (!text.ok()) {
    Fail(key, "expected a string");
    return otherwise;
  }
  return std::string(*text);
}

}  // namespace qinfer::model
