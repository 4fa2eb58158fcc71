// Everything that a template can name: filters, tests, attributes and methods of values, global
// functions. Tables by name; each group has a file of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_context.h"

namespace qinfer::tokenizer::jinja {

// A filter gets its input as the first positional argument.
using Function = Value (*)(Context* context, const CallArgs& args);
struct NamedFunction {
  std::string_view name;
  Function function;
};
// The groups; null if the name is not in it.
Function FindTextFilter(std::string_view name);
Function FindSequenceFilter(std::string_view name);
Function FindMappingFilter(std::string_view name);
Function FindNumberFilter(std::string_view name);

bool IsFilterName(std::string_view name);
bool IsTestName(std::string_view name);
// The input is the first positional argument. An unknown name fails.
Value ApplyFilter(Context* context, std::string_view name, const CallArgs& args);
bool ApplyTest(Context* context, std::string_view name, const CallArgs& args);

// value.name and value[key] with the sandbox's rules; undefined if there is no such thing.
Value GetAttribute(Context* context, const Value& value, std::string_view name);
Value GetItem(Context* context, const Value& value, const Value& key);
// value[start:stop:step]; each may be none.
Value GetSlice(Context* context, const Value& value, const Value& start, const Value& stop,
               const Value& step);

// Whether values of this kind have such an attribute, method or not, before any item is looked at.
enum class AttributeKind : uint8_t { kAbsent, kMethod, kUnsafe };
AttributeKind FindMethod(const Value& value, std::string_view name);
Value CallMethod(Context* context, const MethodObject& method, const CallArgs& args);
Value CallStringMethod(Context* context, const Value& self, std::string_view name,
                       const CallArgs& args);
bool IsStringMethod(std::string_view name);
using StringMethod = Value (*)(Context* context, const Value& self, const CallArgs& args);
struct NamedStringMethod {
  std::string_view name;
  StringMethod method;
};
// Those of jinja_string_parts.cpp; null if the name is not among them.
StringMethod FindPartsMethod(std::string_view name);
// str.replace: `count` negative means all.
Text ReplaceText(Context* context, std::string_view text, std::string_view from,
                 std::string_view to, int64_t count);
// isupper() or islower().
bool HasCase(std::string_view text, bool upper);

// Globals: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
std::vector<std::string_view> GlobalNames();
Value CallGlobal(Context* context, std::string_view name, const CallArgs& args);

// text % args and text.format(...).
Value FormatPercent(Context* context, const Value& format, const Value& args);
Value FormatBraces(Context* context, const Value& format, const CallArgs& args);

// json.dumps as transformers' tojson calls it.
Value ToJson(Context* context, const CallArgs& args);

// strftime of a UTC time; fails on a directive that is not known.
Value FormatTime(Context* context, std::string_view format, int64_t unix_seconds);

}  // namespace qinfer::tokenizer::jinja
