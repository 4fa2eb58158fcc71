// Values of the template language with Python's meaning: small ones in place, the rest shared,
// counted against a Meter. Operators and text forms of values are in jinja_ops.h and jinja_repr.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace qinfer::tokenizer::jinja {

// What one rendering may spend. Once `over()` is non-null everything winds up.
class Meter {
 public:
  Meter(uint64_t max_steps, uint64_t max_bytes) : max_steps_(max_steps), max_bytes_(max_bytes) {}

  // Counts work; false once a limit is passed.
  bool Step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > max_steps_ && over_ == nullptr) over_ = "max_steps";
    return over_ == nullptr;
  }
  // Work proportional to a number of bytes touched.
  bool StepBytes(uint64_t bytes) { return Step(bytes / 128); }
  // Asks before memory is taken: false (and over) if `bytes` more would not fit.
  bool Room(uint64_t bytes) {
    if (bytes > max_bytes_ || bytes_ > max_bytes_ - bytes) {
      if (over_ == nullptr) over_ = "max_memory_bytes";
      return false;
    }
    return true;
  }
  void Take(uint64_t bytes) {
    Room(bytes);
    bytes_ += bytes;
  }
  void Give(uint64_t bytes) { bytes_ -= bytes; }
  void Exceed(const char* limit) {
    if (over_ == nullptr) over_ = limit;
  }
  const char* over() const { return over_; }

 private:
  uint64_t max_steps_, max_bytes_;
  uint64_t steps_ = 0, bytes_ = 0;
  const char* over_ = nullptr;
};

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

// What a shared value is counted by; a null meter is for constants, which belong to the template.
struct Object {
  explicit Object(Meter* m) : meter(m) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (meter != nullptr) meter->Give(charged);
  }
  void Charge(uint64_t bytes) {
    if (meter == nullptr) return;
    meter->Take(bytes);
    charged += bytes;
  }

  Meter* meter;
  uint64_t charged = 0;
  uint32_t depth = 0;
};

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
  static Value String(Meter* meter, std::string text, bool markup = false);
  static Value BigInt(Meter* meter, std::string digits);
  static Value Undefined(Meter* meter, std::string message);
  static Value List(Meter* meter, std::vector<Value> items);
  static Value Tuple(Meter* meter, std::vector<Value> items);
  static Value Iterator(Meter* meter, std::string name, std::vector<Value> items);

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
  StringObject(Meter* m, std::string t) : Object(m), text(std::move(t)) {
    Charge(sizeof(StringObject) + text.capacity());
  }
  const std::string text;
};

struct UndefinedObject final : Object {
  UndefinedObject(Meter* m, std::string t) : Object(m), message(std::move(t)) {
    Charge(sizeof(UndefinedObject) + message.capacity());
  }
  const std::string message;
};

// Lists and tuples. Never changes once it is visible to a template.
struct ListObject final : Object {
  ListObject(Meter* m, std::vector<Value> v);
  const std::vector<Value> items;
  bool hashable = true;   // all items are
  bool is_group = false;  // a result of groupby: has the attributes grouper and list
};

// Keeps insertion order. Filled by Set, then never changed.
struct DictObject final : Object {
  explicit DictObject(Meter* m) : Object(m) { Charge(sizeof(DictObject)); }
  // The key is hashable (see IsHashable). A key that is there keeps its place.
  void Set(const Value& key, Value value);
  const Value* Get(const Value& key) const;
  const Value* Get(std::string_view key) const;

  std::vector<std::pair<Value, Value>> entries;

 private:
  size_t IndexOf(const Value& key) const;
  std::unordered_map<std::string_view, size_t> by_string_;  // see jinja_ast.h for why
  bool only_strings_ = true;
};

struct ViewObject final : Object {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  ViewObject(Meter* m, Value d, Part p) : Object(m), dict(std::move(d)), part(p) {
    depth = dict.depth() + 1;
    Charge(sizeof(ViewObject));
  }
  const Value dict;
  const Part part;
};

struct RangeObject final : Object {
  RangeObject(Meter* m, int64_t a, int64_t b, int64_t s) : Object(m), start(a), stop(b), step(s) {
    Charge(sizeof(RangeObject));
  }
  int64_t size() const;
  const int64_t start, stop, step;
};

struct IteratorObject final : Object {
  IteratorObject(Meter* m, std::string n, std::vector<Value> v);
  const std::string name;
  std::vector<Value> items;
  size_t at = 0;
};

struct NamespaceObject final : Object {
  explicit NamespaceObject(Meter* m) : Object(m) { Charge(sizeof(NamespaceObject)); }
  // False if the value is nested too deeply.
  bool Set(std::string_view name, Value value);
  const Value* Get(std::string_view name) const;
  std::vector<std::pair<std::string, Value>> entries;
};

struct MethodObject final : Object {
  MethodObject(Meter* m, Value s, std::string n)
      : Object(m), self(std::move(s)), name(std::move(n)) {
    depth = self.depth() + 1;
    Charge(sizeof(MethodObject));
  }
  const Value self;
  const std::string name;
};

struct BuiltinObject final : Object {
  explicit BuiltinObject(std::string_view n) : Object(nullptr), name(n) {}
  const std::string name;
};

struct CyclerObject final : Object {
  CyclerObject(Meter* m, std::vector<Value> v);
  const std::vector<Value> items;
  size_t at = 0;
};

struct JoinerObject final : Object {
  JoinerObject(Meter* m, Value s) : Object(m), separator(std::move(s)) {
    Charge(sizeof(JoinerObject));
  }
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
