// Typed access to one GGUF metadata value. Parsing is in gguf.cpp.
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/string_view.h"
#include "format/gguf.h"
#include "format/gguf_types.h"

namespace qinfer::format {
namespace {

// What is made of a text takes more memory than an empty one takes in the file.
constexpr uint64_t kMaxStrings = 2'097'152;

absl::string_view Word(GgufType type) {
  const std::string_view name = GgufTypeName(type);
  return {name.data(), name.size()};
}

Status WrongType(const char* wanted, GgufType type) {
  return FormatError(StrCat("the value is not ", wanted, " but of type ", Word(type)));
}

template <typename T>
T Load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// A number of any type, without loss: unsigned, signed or floating.
struct Number {
  enum Kind : uint8_t { kNone, kUnsigned, kSigned, kFloating } kind = kNone;
  uint64_t u = 0;
  int64_t i = 0;
  double f = 0;
};

Number Unsigned(uint64_t u) { return {Number::kUnsigned, u, 0, 0}; }
Number Signed(int64_t i) { return {Number::kSigned, 0, i, 0}; }
Number Floating(double f) { return {Number::kFloating, 0, 0, f}; }

Number LoadNumber(GgufType type, const uint8_t* from) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool:
      return Unsigned(Load<uint8_t>(from));
    case GgufType::kI8:
      return Signed(Load<int8_t>(from));
    case GgufType::kU16:
      return Unsigned(Load<uint16_t>(from));
    case GgufType::kI16:
      return Signed(Load<int16_t>(from));
    case GgufType::kU32:
      return Unsigned(Load<uint32_t>(from));
    case GgufType::kI32:
      return Signed(Load<int32_t>(from));
    case GgufType::kU64:
      return Unsigned(Load<uint64_t>(from));
    case GgufType::kI64:
      return Signed(Load<int64_t>(from));
    case GgufType::kF32:
      return Floating(static_cast<double>(Load<float>(from)));
    case GgufType::kF64:
      return Floating(Load<double>(from));
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return {};
}

StatusOr<int64_t> ToInt(const Number& number, GgufType type) {
  if (number.kind == Number::kSigned) return number.i;
  if (number.kind != Number::kUnsigned || type == GgufType::kBool) {
    return WrongType("an integer", type);
  }
  if (number.u > static_cast<uint64_t>(INT64_MAX)) {
    return FormatError(StrCat("the value ", number.u, " is too large"));
  }
  return static_cast<int64_t>(number.u);
}

StatusOr<double> ToDouble(const Number& number, GgufType type) {
  switch (number.kind) {
    case Number::kFloating:
      return number.f;
    case Number::kSigned:
      return static_cast<double>(number.i);
    case Number::kUnsigned:
      if (type == GgufType::kBool) break;
      return static_cast<double>(number.u);
    case Number::kNone:
      break;
  }
  return WrongType("a number", type);
}

}  // namespace

StatusOr<uint64_t> GgufValue::AsUint() const {
  const Number number = LoadNumber(type, bytes);
  if (number.kind == Number::kUnsigned && type != GgufType::kBool) return number.u;
  if (number.kind != Number::kSigned) return WrongType("an integer", type);
  if (number.i < 0) return FormatError(StrCat("the value ", number.i, " is negative"));
  return static_cast<uint64_t>(number.i);
}

StatusOr<int64_t> GgufValue::AsInt() const { return ToInt(LoadNumber(type, bytes), type); }

StatusOr<double> GgufValue::AsFloat() const { return ToDouble(LoadNumber(type, bytes), type); }

StatusOr<bool> GgufValue::AsBool() const {
  if (type != GgufType::kBool) return WrongType("a bool", type);
  return *bytes != 0;
}

StatusOr<std::string_view> GgufValue::AsString() const {
  if (type != GgufType::kString) return WrongType("a string", type);
  return std::string_view(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

StatusOr<int64_t> GgufValue::IntAt(uint64_t i) const {
  if (type != GgufType::kArray) return WrongType("an array", type);
  if (i >= count) return FormatError(StrCat("the array has ", count, " elements; ", i, " asked"));
  const uint32_t width = GgufScalarBytes(element_type);
  return ToInt(width == 0 ? Number{} : LoadNumber(element_type, bytes + i * width), element_type);
}

StatusOr<double> GgufValue::FloatAt(uint64_t i) const {
  if (type != GgufType::kArray) return WrongType("an array", type);
  if (i >= count) return FormatError(StrCat("the array has ", count, " elements; ", i, " asked"));
  const uint32_t width = GgufScalarBytes(element_type);
  return ToDouble(width == 0 ? Number{} : LoadNumber(element_type, bytes + i * width),
                  element_type);
}

StatusOr<GgufStrings> GgufStrings::Of(const GgufValue& value) {
  const bool array = value.type == GgufType::kArray;
  if (!array || value.element_type != GgufType::kString) {
    return WrongType("an array of strings", array ? value.element_type : value.type);
  }
  if (value.count > kMaxStrings) {
    return UnsupportedError(
        StrCat("an array of ", value.count, " texts; at most ", kMaxStrings, " are supported"));
  }
  GgufStrings strings;
  strings.reader_ = io::Reader(value.bytes, value.size);
  strings.count_ = value.count;
  return strings;
}

Status GgufStrings::Next(std::string_view* out) {
  uint64_t length = 0;
  const uint8_t* text = nullptr;
  if (!reader_.Read(&length) || !reader_.Bytes(length, &text)) {
    return FormatError(StrCat("string ", next_, " of the array is cut short"));
  }
  ++next_;
  *out = {reinterpret_cast<const char*>(text), static_cast<size_t>(length)};
  return OkStatus();
}

}  // namespace qinfer::format
