// Everything that a template can do, with operands of many sizes up to the memory limit: whatever
// comes of it, what is allocated meanwhile stays within the limit. Counted by operator new itself.
#include <gtest/gtest.h>

#include <string>

#include "allocation_count.h"
#include "tokenizer/chat_template.h"

namespace qinfer::tokenizer {
namespace {

constexpr int64_t kLimit = 16 << 20;
constexpr int64_t kMost = kLimit + kLimit / 4 + (4 << 20);

// What an operation is given: `a` is a text of n bytes, `k` as many items as a list of n bytes has.
constexpr char kOperands[] = "{% set k = n // 32 %}{% set a = 'a' * n %}";

// Expressions; what they give is thrown away.
constexpr const char* kExpressions[] = {
    // Texts.
    "'ab' * n",
    "a + a",
    "a ~ a ~ [1, a]",
    "('a,' * (n // 2)).split(',')",
    "('a,' * (n // 2)).rsplit(',')",
    "('a ' * (n // 2)).split()",
    "('a ' * (n // 2)).rsplit()",
    "(('a' * 20 + ',') * (n // 21)).split('a' * 20)",
    "('a\n' * (n // 2)).splitlines()",
    "(',' * n).count(',')",
    "a.partition('a')",
    "a.rpartition('a' * 20)",
    "a.find('a' * (n // 2) ~ 'b')",
    "a.rfind('b' ~ 'a' * (n // 2))",
    "('a' * (n // 2)) in a",
    "a.replace('a', 'bb')",
    "a.replace('', '-')",
    "a.replace('a' * 20, 'b' * 30)",
    "a|replace('a', 'bc')",
    "('a\n' * (n // 2))|indent(10)",
    "('a\n' * (n // 2))|indent('xy' * 1000)",
    "a|indent(n)",
    "a|list",
    "a.upper()",
    "a.lower()",
    "a.title()",
    "a|title",
    "a.swapcase()",
    "a.capitalize()",
    "('ΑΣ' * (n // 4)).lower()",
    "('ß' * (n // 2)).upper()",
    "('ß' * (n // 2)).casefold()",
    "('ä' * (n // 2)).title()",
    "('ä' * (n // 2))[::-1]",
    "('ä' * (n // 2))[1::3]",
    "a[1:]",
    "a[::-1]",
    "a|reverse",
    "a.center(2 * n)",
    "a.ljust(2 * n, 'ä')",
    "a.rjust(2 * n)",
    "a.zfill(2 * n)",
    "a|center(3 * n)",
    "('\t' * (n // 8)).expandtabs(100)",
    "a.strip(a)",
    "(' ' ~ a)|trim",
    "a.removeprefix('a')",
    "('<' * n)|e",
    "('<' * n)|forceescape",
    "('<' * n)|safe + '<' * n",
    "('<' * n) + ('<' * n)|safe",
    "('%s'|safe) % ('<' * n)",
    "('{}'|safe).format('<' * n)",
    "(''|safe).join(['<' * n])",
    "('<' * n)|safe|striptags",
    "('&lt; ' * (n // 5))|striptags",
    "a|urlencode",
    "('<' * n)|urlencode",
    "{'x': '<' * n}|xmlattr",
    "[a, a]|string",
    "a|truncate(n - 10, true)",
    "a|wordcount",
    "'%s%s' % (a, a)",
    "'%r' % a",
    "('%' ~ 2 * n ~ 'd') % 1",
    "('%.' ~ 2 * n ~ 'd') % 1",
    "('%s' * k)|format(*([1] * k))",
    "'{0}{0}'.format(a)",
    "'{!r}'.format(a)",
    "('{:>' ~ 2 * n ~ '}').format(1)",
    "('{:' ~ '0' * n ~ '1}').format(1)",
    "'{x}'.format_map({'x': a, a: 1})",
    "('1' * n)|int",
    "('1_' * (n // 2) ~ '1')|float",
    "(a ~ '\u0001')|string|tojson",
    "[a, a]|tojson",
    "('ä' * (n // 2))|tojson(ensure_ascii=true)",
    "([1] * (n // 100))|tojson(indent=10)",
    "[[1]]|tojson(indent=n)",
    "[1, 2, 3]|tojson(separators=(a, a))",
    "('ab' * (n // 2)).isidentifier()",
    // Lists.
    "[1] * k + [1] * k",
    "([1] * k)[::-1]",
    "([1] * k)[1:]",
    "([1] * k)|list|list",
    "([1] * k)|reverse|list",
    "([1] * k)|sort",
    "([[1, 2]] * k)|sort(attribute='0,1')",
    "(['a'] * k)|sort",
    "([1] * k)|unique|list",
    "(range(n // 250)|list)|unique|list",
    "(range(n // 250)|list)|groupby('real')|list",
    "([1] * k)|groupby('real')",
    "([1] * k)|batch(1)|list",
    "([1] * k)|batch(100000, 1)|list",
    "([1] * k)|slice(3)|list",
    "([1] * k)|slice(k, 2)|list",
    "[1]|slice(n)|list",
    "([1] * k)|map('string')|list",
    "(['abc'] * k)|map('upper')|list",
    "([[1]] * k)|map(attribute='0')|list",
    "([1] * k)|select|list",
    "([1] * k)|select('odd')|list",
    "([[1]] * k)|selectattr('0')|list",
    "([[1]] * k)|map('sum')|sum",
    "([[1] * 100] * (k // 100))|sum(start=[])",
    "([1] * k)|join(', ')",
    "(['ab'] * k)|join(', ')",
    "([[1, 2]] * k)|join('-', '0')",
    "', '.join(['ab'] * k)",
    "([1] * k)|string",
    "([a] * 3)|join(a)",
    "([1] * k).count(1)",
    "dict(range(n // 320 * 2)|map('string')|batch(2)|list)",
    "dict(range(n // 320 * 2)|map('string')|batch(2)|list).items()|list",
    "dict(range(n // 320 * 2)|map('string')|batch(2)|list)|items|list",
    "dict(range(n // 320 * 2)|map('string')|batch(2)|list)|dictsort",
    "dict(range(n // 320 * 2)|map('string')|batch(2)|list)|tojson(sort_keys=true)",
    "dict(range(n // 320 * 2)|map('string')|batch(2)|list)|urlencode",
    "dict(range(n // 320 * 2)|map('string')|batch(2)|list)|xmlattr",
    "dict(**dict(range(n // 320 * 2)|map('string')|batch(2)|list))",
    "namespace(dict(range(n // 4096 * 2)|map('string')|batch(2)|list))",
    "cycler(*([1] * k)).items",
    "'{}'.format(*([1] * k))",
    "joiner(a)()",
};

// Whole templates.
constexpr const char* kTemplates[] = {
    "{{ a }}{{ a }}{{ [a] }}",
    "{% set q %}{{ a }}{% endset %}{% set r = q ~ q %}",
    "{% set q | upper %}{{ a }}{% endset %}",
    "{% filter replace('a', 'bc') %}{{ a }}{% endfilter %}",
    "{% macro m() %}{{ a }}{{ caller() }}{% endmacro %}{% call m() %}{{ a }}{% endcall %}",
    "{% macro m() %}{{ varargs|length }}{% endmacro %}{{ m(*([1] * k)) }}",
    "{% macro m() %}{{ kwargs }}{% endmacro %}"
    "{{ m(**dict(range(n // 320 * 2)|map('string')|batch(2)|list)) }}",
    "{% for x in [1] * k if x %}{% endfor %}",
    "{% for x in a %}{% endfor %}",
    "{% for x in [a, a] recursive %}{{ x }}{{ loop([]) }}{% endfor %}",
    "{% for x in [1] * 3 %}{{ loop.cycle(*([1] * k)) }}{{ loop.changed(*([1] * k)) }}{% endfor %}",
    "{% block b %}{{ a }}{% endblock %}{% set x = self.b() %}",
    "{% for i in range(n // 512) %}{% set x = namespace(i=i) %}{% endfor %}",
    "{% for i in range(n // 512) %}{% macro m() %}{{ m }}{% endmacro %}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in range(99) %}"
    "{% set ns.l = ns.l + [1] * (k // 50) %}{% endfor %}",
    "{% set ns = namespace(s='') %}{% for i in range(99) %}"
    "{% set ns.s = ns.s ~ 'a' * (n // 50) %}{% endfor %}",
    "{% macro f(i) %}{% if i %}{% set x = 'b' * (n // 20) %}{{ 'c' * (n // 50) }}{{ f(i - 1) }}"
    "{% endif %}{% endmacro %}{% set y = f(30) %}",
};

// Those that fail, with a message that quotes its operand.
constexpr const char* kFailures[] = {
    "{{ {}[a].x }}",
    "{{ n[a].x }}",
    "{{ {}[(a,)].x }}",
    "{{ raise_exception(a) }}",
    "{{ raise_exception([a]) }}",
    "{{ a|attr(a) ~ x.y }}",
    "{{ [1]|map(a)|list }}",
    "{{ [1]|select(a)|list }}",
    "{{ ('%(' ~ a ~ ')s') % {} }}",
    "{{ ('{' ~ a ~ '}').format() }}",
    "{{ ('{:' ~ a ~ '}').format(1) }}",
    "{{ 'x'.split(**{a: 1}) }}",
    "{% macro m() %}{% endmacro %}{{ m(**{a: 1}) }}",
    "{{ [1].index(a) }}",
    "{{ strftime_now('%q' ~ a) }}",
    "{{ {a ~ ' ': 1}|xmlattr }}",
    "{{ {}[a]() }}",
};

struct Outcome {
  Status status;
  int64_t peak = 0;
};

Outcome RenderCounted(const std::string& text, const RenderInput& input) {
  const auto parsed = ChatTemplate::Parse(text, "t");
  if (!parsed.ok()) return {parsed.status()};
  RenderLimits limits;
  limits.max_steps = 30'000'000;
  limits.max_memory_bytes = kLimit;
  Outcome outcome;
  const int64_t before = RestartPeak();
  outcome.status = (*parsed)->Render(input, limits).status();
  outcome.peak = PeakBytes() - before;
  return outcome;
}

Outcome RenderWith(const std::string& text, int64_t n) {
  RenderInput input;
  const std::string variables = StrCat("{\"n\": ", n, "}");
  input.messages_json = "[]";
  input.extra_json = variables;
  return RenderCounted(StrCat(kOperands, text), input);
}

bool IsLimit(const Status& status, const std::string& name) {
  return status.code() == absl::StatusCode::kOutOfRange &&
         std::string(status.message()).find(StrCat("the limit ", name)) != std::string::npos;
}

// Small operands render; large ones do, or end at the limit.
void ExpectWithinLimit(const std::string& text) {
  const Outcome small = RenderWith(text, 4096);
  EXPECT_TRUE(small.status.ok()) << text << "\n" << small.status;
  for (const int64_t n :
       {kLimit / 16, kLimit / 6, kLimit * 3 / 10, kLimit * 2 / 5, kLimit * 9 / 10}) {
    const Outcome outcome = RenderWith(text, n);
    EXPECT_LE(outcome.peak, kMost) << text << " with n = " << n;
    EXPECT_TRUE(outcome.status.ok() || IsLimit(outcome.status, "max_"))
        << text << " with n = " << n << "\n"
        << outcome.status;
  }
}

TEST(JinjaMemory, Expressions) {
  for (const char* text : kExpressions) ExpectWithinLimit(StrCat("{% set x = ", text, " %}"));
}

TEST(JinjaMemory, Templates) {
  for (const char* text : kTemplates) ExpectWithinLimit(text);
}

TEST(JinjaMemory, Messages) {
  for (const char* text : kFailures) {
    for (const int64_t n : {kLimit / 8, kLimit / 3, kLimit * 9 / 10}) {
      const Outcome outcome = RenderWith(text, n);
      EXPECT_LE(outcome.peak, kMost) << text << " with n = " << n;
      EXPECT_FALSE(outcome.status.ok()) << text << " with n = " << n;
      EXPECT_LE(outcome.status.message().size(), 5000u) << text << " with n = " << n;
    }
  }
}

// What is counted is no more than what there is, so that values which fit do render.
TEST(JinjaMemory, WhatFitsRenders) {
  EXPECT_TRUE(RenderWith("{% set x = a[1:] %}", kLimit * 9 / 20).status.ok());
  EXPECT_TRUE(RenderWith("{% set x = a.replace('a', 'bc') %}", kLimit * 6 / 20).status.ok());
  EXPECT_TRUE(RenderWith("{% set x = ([1] * k)|list %}", kLimit * 6 / 20).status.ok());
  EXPECT_TRUE(IsLimit(RenderWith("{% set x = a[1:] %}", kLimit * 11 / 20).status,
                      StrCat("max_memory_bytes = ", kLimit)));
}

// JSON of the caller is within the limit too: long texts, many values, and what is wrong with them.
TEST(JinjaMemory, Json) {
  const auto as = [](int64_t count) { return std::string(static_cast<size_t>(count), 'a'); };
  const std::string ones(kLimit / 2, '1');
  const std::string texts[] = {
      StrCat("\"", as(kLimit / 2), "\""),
      StrCat("\"", as(kLimit * 9 / 10), "\""),
      StrCat("\"", as(kLimit * 2), "\""),
      StrCat("\"", as(kLimit / 2), "\\n\""),
      StrCat("\"", as(kLimit / 2)),
      ones,
      StrCat(ones, "x"),
      StrCat("1.", ones),
      StrCat("{\"", as(kLimit / 2), "\": 1}"),
  };
  for (const std::string& value : texts) {
    const std::string messages = StrCat("[", value, "]");
    RenderInput input;
    input.messages_json = messages;
    const Outcome outcome = RenderCounted("{{ messages|length }}", input);
    EXPECT_LE(outcome.peak, kMost) << value.substr(0, 20);
    EXPECT_LE(outcome.status.message().size(), 1000u) << value.substr(0, 20);
  }
  std::string many = "[";
  while (many.size() < size_t{kLimit}) many += "{\"a\":[1,\"b\"]},";
  many += "1]";
  RenderInput input;
  input.messages_json = many;
  const Outcome outcome = RenderCounted("x", input);
  EXPECT_LE(outcome.peak, kMost);
  EXPECT_EQ(outcome.status.code(), absl::StatusCode::kOutOfRange) << outcome.status;
}

}  // namespace
}  // namespace qinfer::tokenizer
