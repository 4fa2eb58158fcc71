// Templates that would run for ever, nest without end or fill the memory: each ends in an error
// that names the limit, and soon.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tokenizer/chat_template.h"

namespace qinfer::tokenizer {
namespace {

Status Outcome(const std::string& text, const RenderLimits& limits = {},
               const std::string& messages = "[]") {
  auto parsed = ChatTemplate::Parse(text, "t");
  if (!parsed.ok()) return parsed.status();
  RenderInput input;
  input.messages_json = messages;
  return (*parsed)->Render(input, limits).status();
}

void ExpectLimit(const std::string& text, const std::string& limit,
                 const RenderLimits& limits = {}) {
  const Status status = Outcome(text, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << text << "\n" << status;
  EXPECT_NE(std::string(status.message()).find(limit), std::string::npos) << text << "\n" << status;
}

TEST(JinjaLimits, Steps) {
  RenderLimits limits;
  limits.max_steps = 100'000;
  const std::string range = "range(99999)";
  ExpectLimit("{% for a in " + range + " %}{% for b in " + range + " %}{% endfor %}{% endfor %}",
              "max_steps", limits);
  ExpectLimit("{% set ns = namespace(l=[1]) %}{% for a in " + range +
                  " %}{% set ns.l = [ns.l == ns.l] * 50 %}{% endfor %}",
              "max_steps", limits);
}

TEST(JinjaLimits, Memory) {
  ExpectLimit("{{ 'a' * 10**9 }}", "max_memory_bytes");
  ExpectLimit("{{ [0] * 10**9 }}", "max_memory_bytes");
  ExpectLimit("{{ 'a'.center(10**12) }}", "max_memory_bytes");
  ExpectLimit("{{ '%1000000000d' % 5 }}", "max_memory_bytes");
  ExpectLimit("{{ '{:>1000000000}'.format(5) }}", "max_memory_bytes");
  ExpectLimit("{{ [1]|tojson(indent=10**10) }}", "max_memory_bytes");
  ExpectLimit("{{ [1]|batch(10**10, 'x')|list }}", "max_memory_bytes");
  ExpectLimit(
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}",
      "max_memory_bytes");
  ExpectLimit(
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}",
      "max_memory_bytes");
  // Short values whose text is long: each level holds the one below twice.
  ExpectLimit(
      "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
      "{% endfor %}{{ ns.s }}",
      "max_");
}

TEST(JinjaLimits, Output) {
  RenderLimits limits;
  limits.max_output_bytes = 1000;
  ExpectLimit("{% for i in range(2000) %}x{% endfor %}", "max_output_bytes", limits);
  ExpectLimit("{% set q %}{% for i in range(2000) %}x{% endfor %}{% endset %}", "max_output_bytes",
              limits);
}

TEST(JinjaLimits, Depth) {
  ExpectLimit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "max_depth");
  ExpectLimit("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "max_depth");
  ExpectLimit("{% block b %}{{ self.b() }}{% endblock %}", "max_depth");
  ExpectLimit(
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}"
      "{% endfor %}",
      "nesting");
}

TEST(JinjaLimits, RangeOfTheSandbox) {
  const Status status = Outcome("{{ range(10**9) }}");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("Range too big"), std::string::npos);
}

TEST(JinjaLimits, ParserNesting) {
  const auto repeat = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  for (const std::string& text :
       {"{{ " + repeat("(", 50'000), "{{ " + repeat("[", 50'000), "{{ " + repeat("not ", 50'000),
        "{{ " + repeat("-", 50'000), "{{ " + repeat("{1:", 50'000), "{{ x" + repeat("|e", 50'000),
        "{{ x" + repeat(".a", 50'000), "{{ x" + repeat("(x", 50'000),
        "{{ 1" + repeat(" + 1", 50'000) + " }}", "{{ 1" + repeat(" if 1 else 1", 50'000),
        repeat("{% if 1 %}", 50'000), repeat("{% for x in y %}", 50'000)}) {
    const Status status = Outcome(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text.substr(0, 20);
  }
  const std::string json = repeat("[", 100'000);
  EXPECT_EQ(Outcome("x", {}, json).code(), absl::StatusCode::kInvalidArgument);
}

// Values that refer to themselves or form long chains are freed without leak or deep recursion.
TEST(JinjaLimits, CyclesAndChains) {
  EXPECT_TRUE(Outcome("{% set ns = namespace() %}{% set ns.me = [ns] %}x").ok());
  EXPECT_TRUE(Outcome("{% set ns = namespace() %}{% for i in range(50000) %}"
                      "{% set n = namespace() %}{% set c = ns.cur %}"
                      "{% if c %}{% set c.next = n %}{% endif %}{% set ns.cur = n %}{% endfor %}")
                  .ok());
  EXPECT_TRUE(Outcome("{% macro m() %}{% set k = m %}{% macro n() %}{{ k }}{% endmacro %}"
                      "{% endmacro %}{% for i in range(100) %}{{ m() }}{% endfor %}")
                  .ok());
}

// The deepest nesting that is allowed fits a small stack.
TEST(JinjaLimits, SmallStack) {
  std::string text = "{% macro f(x) %}{% if x %}{% for y in [1] %}{{ ";
  text += std::string(40, '(') + "f(x - 1)|string" + std::string(40, ')');
  text += " }}{% endfor %}{% endif %}{% endmacro %}{{ f(10000) }}";
  ExpectLimit(text, "max_depth");
}

std::string Repeated(const std::string& unit, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += unit;
  return text;
}

// The tree of a template is not under anybody's budget, so its size is bounded.
TEST(JinjaLimits, SizeOfATemplate) {
  const auto refused = [](const std::string& text, const std::string& why) {
    const auto parsed = ChatTemplate::Parse(text, "t");
    ASSERT_FALSE(parsed.ok()) << why;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(std::string(parsed.status().message()).find(why), std::string::npos)
        << parsed.status();
  };
  refused(std::string((size_t{1} << 20) + 1, 'x'),
          "t: a chat template of 1048577 bytes; the limit");
  refused(Repeated("{{ 1 }}", 100'000), "the template has over 100000 tokens");
  refused(Repeated("x{##}", 40'000), "tokens");
  refused("{{ [" + Repeated("1,", 400'000) + "] }}", "tokens");
  EXPECT_TRUE(ChatTemplate::Parse(std::string(size_t{1} << 20, 'x'), "t").ok());
  EXPECT_TRUE(ChatTemplate::Parse(Repeated("{{ 1 }}", 30'000), "t").ok());
}

TEST(ChatTemplateErrors, NameThePlace) {
  const auto message = [](const std::string& text) { return std::string(Outcome(text).message()); };
  EXPECT_EQ(message("a\n{{ x y }}").substr(0, 7), "t:2:6: ");
  EXPECT_EQ(message("a\n\n {{ missing.x }}").substr(0, 6), "t:3:13");
  EXPECT_NE(message("{{ raise_exception('no ' ~ 1) }}").find("no 1"), std::string::npos);
  EXPECT_EQ(Outcome("{{ raise_exception('x') }}").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Outcome("{% include 'x' %}").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Outcome("{{ 9223372036854775807 + 1 }}").code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Outcome("\xff").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Outcome("x", {}, "{}").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Outcome("x", {}, "[1,").code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChatTemplateThreads, OneTemplateManyThreads) {
  const auto parsed = ChatTemplate::Parse(
      "{% macro m(x) %}{{ 'c' ~ x }}{% endmacro %}{% for m2 in messages %}{{ m(m2) }}{% endfor %}",
      "t");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::string> outputs(4);
  std::vector<std::thread> threads;
  for (std::string& output : outputs) {
    threads.emplace_back([&output, &parsed] {
      RenderInput input;
      input.messages_json = "[1, 2, 3]";
      for (int i = 0; i < 200; ++i) output = (*parsed)->Render(input).value_or("");
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& output : outputs) EXPECT_EQ(output, "c1c2c3");
}

}  // namespace
}  // namespace qinfer::tokenizer
