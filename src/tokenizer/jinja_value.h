// Values of the template language with Python's meaning: small ones in place, the rest shared,
// counted against a Meter. Operators and text forms of values are in jinja_ops.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tokenizer/jinja_meter.h"

namespace qinfer::tokenizer::jinja {

// Containers nested deeper than this are refused, so that walks over values may recurse.
inline constexpr uint32_t kMaxValueDepth = 100;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // an integer beyond 64 bits, kept as decimal text
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,      // dict.keys(), values(), items()
  kRange,     // range(...)
  kIterator,  // what a generator of Python would be: read once
  kNamespace,
  kMacro,
  kBuiltin,  // a global function
  kMethod,   // a function bound to a value
  kCycler,
  kJoiner,
  kLoop,
  kSelf,  // the blocks of the template
};

// What a value shares; a null meter is for constants, which belong to the template. Made by
// MakeCounted, so that the object itself is counted.
struct Object {
  explicit Object(Meter* m) : meter(m) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  Meter* meter;
  uint32_t depth = 0;
};

class Value;
using Items = CountedVector<Value>;

class Value {
 public:
  Value() = default;
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool b) {
    Value v(Kind::kBool);
    v.int_ = b ? 1 : 0;
    return v;
  }
  static Value Int(int64_t i) {
    Value v(Kind::kInt);
    v.int_ = i;
    return v;
  }
  static Value Float(double f) {
    Value v(Kind::kFloat);
    v.float_ = f;
    return v;
  }
  static Value Of(Kind kind, std::shared_ptr<Object> object) {
    Value v(kind);
    v.object_ = std::move(object);
    return v;
  }
  static Value String(Text text, bool markup = false);
  static Value BigInt(Text digits);
  static Value Undefined(Text message);
  static Value List(Items items);
  static Value Tuple(Items items);
  // `name` is a literal.
  static Value Iterator(std::string_view name, Items items);

  Kind kind() const { return kind_; }
  bool Is(Kind k) const { return kind_ == k; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsMarkup() const { return kind_ == Kind::kString && markup_; }
  bool IsInteger() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool IsNumber() const { return IsInteger() || kind_ == Kind::kFloat || kind_ == Kind::kBigInt; }
  bool AsBool() const { return int_ != 0; }
  int64_t AsInt() const { return int_; }  // of kInt and kBool
  double AsFloat() const { return float_; }
  std::string_view AsString() const;  // of kString and kBigInt
  Object* object() const { return object_.get(); }
  const std::shared_ptr<Object>& shared() const { return object_; }
  uint32_t depth() const { return object_ ? object_->depth : 0; }
  // `is`: the same object, or equal in kind and content where Python shares such objects.
  bool SameAs(const Value& other) const;

  // The object as its own type; the kind has been checked.
  template <typename T>
  T* As() const {
    return static_cast<T*>(object_.get());
  }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  bool markup_ = false;
  union {
    int64_t int_ = 0;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct StringObject final : Object {
  StringObject(Meter* m, Text t) : Object(m), text(std::move(t)) {}
  const Text text;
};

struct UndefinedObject final : Object {
  UndefinedObject(Meter* m, Text t) : Object(m), message(std::move(t)) {}
  const Text message;
};

// Lists and tuples. Never changes once it is visible to a template.
struct ListObject final : Object {
  ListObject(Meter* m, Items v);
  const Items items;
  bool hashable = true;   // all items are
  bool is_group = false;  // a result of groupby: has the attributes grouper and list
};

// Keeps insertion order. Filled by Set, then never changed.
struct DictObject final : Object {
  explicit DictObject(Meter* m) : Object(m), entries(m), by_string_(m) {}
  // The key is hashable (see IsHashable). A key that is there keeps its place.
  void Set(const Value& key, Value value);
  const Value* Get(const Value& key) const;
  const Value* Get(std::string_view key) const;

  CountedVector<std::pair<Value, Value>> entries;

 private:
  size_t IndexOf(const Value& key) const;
  // See jinja_ast.h for why it is std's.
  std::unordered_map<std::string_view, size_t, std::hash<std::string_view>, std::equal_to<>,
                     Counted<std::pair<const std::string_view, size_t>>>
      by_string_;
  bool only_strings_ = true;
};

struct ViewObject final : Object {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  ViewObject(Meter* m, Value d, Part p) : Object(m), dict(std::move(d)), part(p) {
    depth = dict.depth() + 1;
  }
  const Value dict;
  const Part part;
};

struct RangeObject final : Object {
  RangeObject(Meter* m, int64_t a, int64_t b, int64_t s) : Object(m), start(a), stop(b), step(s) {}
  int64_t size() const;
  const int64_t start, stop, step;
};

struct IteratorObject final : Object {
  IteratorObject(Meter* m, std::string_view n, Items v);
  const std::string_view name;
  Items items;
  size_t at = 0;
};

struct NamespaceObject final : Object {
  explicit NamespaceObject(Meter* m) : Object(m), entries(m) {}
  // False if the value is nested too deeply.
  bool Set(std::string_view name, Value value);
  const Value* Get(std::string_view name) const;
  CountedVector<std::pair<Text, Value>> entries;
};

struct MethodObject final : Object {
  MethodObject(Meter* m, Value s, std::string_view n) : Object(m), self(std::move(s)), name(n, m) {
    depth = self.depth() + 1;
  }
  const Value self;
  const Text name;
};

// The name is a literal.
struct BuiltinObject final : Object {
  BuiltinObject(Meter* m, std::string_view n) : Object(m), name(n) {}
  const std::string_view name;
};

struct CyclerObject final : Object {
  CyclerObject(Meter* m, Items v);
  const Items items;
  size_t at = 0;
};

struct JoinerObject final : Object {
  JoinerObject(Meter* m, Value s) : Object(m), separator(std::move(s)) {}
  const Value separator;
  bool used = false;
};

bool Truth(const Value& value);
// Python's ==. Stops early, with false, when the meter runs out; a null meter does not count.
bool Equals(const Value& a, const Value& b, Meter* meter);
bool IsHashable(const Value& value);  // in constant time
// type(value).__name__
std::string_view TypeName(const Value& value);
// A value as floating point: of bool, int, big int and float.
double ToDouble(const Value& number);

}  // namespace qinfer::tokenizer::jinja
