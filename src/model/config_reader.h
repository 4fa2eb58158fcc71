// Typed, range-checked reading of a configuration: JSON objects (config.json and its like) and GGUF
// metadata. The first mistake is kept, named by its key, and returned by status(); until then every
// getter gives a usable value. What the keys mean is for the architectures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/status.h"
#include "format/gguf.h"
#include "nlohmann/json.hpp"

namespace qinfer::model {

// Sizes beyond these are mistakes or attacks; every product of two of them fits 64 bits.
constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxVocab = 1u << 24;
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 4096;
constexpr uint32_t kMaxPosition = 1u << 26;  // angles stay exact enough

// Empties containers from the inside out: an empty one is destroyed without allocating. Depth is
// bounded by whoever has built it.
template <typename Json>
void EmptyJson(Json* node) noexcept {
  if (node->is_array()) {
    auto& items = node->template get_ref<typename Json::array_t&>();
    for (Json& item : items) EmptyJson(&item);
    items.clear();
  } else if (node->is_object()) {
    auto& members = node->template get_ref<typename Json::object_t&>();
    for (auto& member : members) EmptyJson(&member.second);
    members.clear();
  }
}

// The destructor of nlohmann's values allocates, and so would end the process where memory has run
// out. This one empties a local value first, unless that is returned.
template <typename Json>
class JsonGuard {
 public:
  explicit JsonGuard(Json* value) : value_(value) {}
  JsonGuard(const JsonGuard&) = delete;
  JsonGuard& operator=(const JsonGuard&) = delete;
  ~JsonGuard() {
    if (value_ != nullptr) EmptyJson(value_);
  }
  void Dismiss() { value_ = nullptr; }

 private:
  Json* value_;
};

// A document that does so by itself.
class JsonDocument : public nlohmann::json {
 public:
  JsonDocument() = default;
  explicit JsonDocument(nlohmann::json&& root) noexcept : nlohmann::json(std::move(root)) {}
  JsonDocument(JsonDocument&& other) noexcept
      : nlohmann::json(static_cast<nlohmann::json&&>(other)) {}
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;
  ~JsonDocument() { EmptyJson<nlohmann::json>(this); }
};

// Parses without exceptions; FormatError for bad syntax, more than 16 MiB, more than 64 levels, or
// a root that is not an object.
StatusOr<JsonDocument> ParseJsonObject(std::string_view text, const std::string& name);

class JsonReader {
 public:
  // `where` is put in front of key names in messages ("config.json: text_config.").
  JsonReader(const nlohmann::json& object, std::string where)
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
  const nlohmann::json* Object(const char* key);
  void Fail(const char* key, const std::string& what);
  void Fail(const Status& status);
  const Status& status() const { return status_; }
  const std::string& where() const { return where_; }

 private:
  const nlohmann::json* Find(const char* key) const;

  const nlohmann::json& object_;
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
