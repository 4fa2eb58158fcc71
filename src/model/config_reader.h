// Typed, range-checked reading of a configuration: JSON objects (config.json and its like) and GGUF
// metadata. The first mistake is kept, named by its key, and returned by status(); until then every
// getter gives a usable value. What the keys mean is for the architectures.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "format/gguf.h"
#include "format/json_tree.h"

namespace qinfer::model {

// Sizes beyond these are mistakes or attacks; every product of two of them fits 64 bits.
constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxVocab = 1u << 24;
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxExperts = 4096;
constexpr uint32_t kMaxHeadDim = 4096;
constexpr uint32_t kMaxPosition = 1u << 26;  // angles stay exact enough

// FormatError for bad syntax, more than 16 MiB, more than 64 levels, or a root that is not an
// object; messages begin with `name`.
StatusOr<std::unique_ptr<format::JsonTree>> ParseJsonObject(std::string_view text,
                                                            const std::string& name,
                                                            Memory* memory);

class JsonReader {
 public:
  // `where` is put in front of key names in messages ("config.json: text_config.").
  JsonReader(const format::JsonNode& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // A key that is absent, or null.
  bool Has(const char* key) const { return Find(key) != nullptr; }
  uint32_t Uint(const char* key, uint32_t low, uint32_t high);  // required
  uint32_t Uint(const char* key, uint32_t low, uint32_t high, uint32_t otherwise);
  double Number(const char* key, double low, double high);
  double Number(const char* key, double low, double high, double otherwise);
  bool Bool(const char* key, bool otherwise);
  std::string String(const char* key, const char* otherwise);
  // An array of strings, empty if absent.
  std::vector<std::string> Strings(const char* key, size_t most);
  std::vector<double> Numbers(const char* key, size_t most);
  // Null if absent or not an object (which is a mistake).
  const format::JsonNode* Object(const char* key);
  void Fail(const char* key, const std::string& what);
  void Fail(const Status& status);
  const Status& status() const { return status_; }
  const std::string& where() const { return where_; }

 private:
  const format::JsonNode* Find(const char* key) const;

  const format::JsonNode& object_;
  std::string where_;
  Status status_;
};

// The same over GGUF metadata; keys get the architecture's prefix ("llama.").
class GgufReader {
 public:
  GgufReader(const format::Gguf& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(std::string(architecture) + ".") {}

  bool Has(const char* key) const { return gguf_.Find(prefix_ + key) != nullptr; }
  uint32_t Uint(const char* key, uint32_t low, uint32_t high);
  uint32_t Uint(const char* key, uint32_t low, uint32_t high, uint32_t otherwise);
  // A number, or an array with one number a layer that are all the same.
  uint32_t UniformUint(const char* key, uint32_t low, uint32_t high, uint32_t otherwise);
  double Number(const char* key, double low, double high, double otherwise);
  double Number(const char* key, double low, double high);
  bool Bool(const char* key, bool otherwise);
  std::string String(const char* key, const char* otherwise);
  void Fail(const char* key, const std::string& what);
  void Fail(const Status& status);
  const Status& status() const { return status_; }
  const format::Gguf& gguf() const { return gguf_; }

 private:
  const format::Gguf& gguf_;
  std::string prefix_;
  Status status_;
};

}  // namespace qinfer::model
