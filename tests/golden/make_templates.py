"""Makes the golden files of the chat-template tests with jinja2, set up as transformers does.

Usage: make_templates.py [FOLDER WITH *.jinja]

templates.json       what third-party templates render to, as length and FNV-1a hash only
template_cases.json  our own templates with their whole output, and random expressions
"""
import datetime
import json
import pathlib
import random
import re
import sys
import warnings

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from template_cases import CASES, VARIABLES
from template_random import random_templates

HERE = pathlib.Path(__file__).resolve().parent
NOW = 1700000000  # 2023-11-14 22:13:20 UTC


# Generators over what cannot be iterated, which may never be read: ours fail at once.
NEVER_READ = re.compile(r"\((t|i|f|n|true|false|none|-?[\d.e]+)\)\|"
                        r"(map|select|reject|batch|slice|unique)")


# Slices of constants that have none: undefined here, an error for a variable and in our code.
FOLDED = {"{{ (1.5)[1:-1] }}", "{{ (none)[5:1:-2] }}", "{{ ((1) is even)[::2] }}",
          "{{ not (({})[none:2]) }}", "{{ (not ('äöü'))[::-1] }}"}


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: a call block whose text is passed through."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_pass_through")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _pass_through(self, caller):
        return caller()


def make_environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(pattern):
        now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)
        return now.strftime(pattern)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def compile_template(environment, text):
    try:
        return environment.from_string(text)
    except Exception:
        return None


def render(template, variables):
    """The output, or None for any error."""
    values = {"messages": [], "tools": None, "documents": None, "bos_token": "<s>",
              "eos_token": "</s>", "add_generation_prompt": True}
    values.update(json.loads(json.dumps(variables)))
    try:
        output = template.render(**values)
        output.encode("utf-8")  # a lone surrogate is an error here
        return output
    except Exception:
        return None


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


USER = {"role": "user", "content": "Hello, how are you?"}
SYSTEM = {"role": "system", "content": "You are a helpful assistant.\nBe brief."}
ANSWER = {"role": "assistant", "content": "  Fine, thanks!\n"}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Says what the weather is.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city's \"name\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "default": 3}},
        "required": ["city"]}}}
NESTED = {"type": "function", "function": {
    "name": "plan", "description": "Plans a trip.",
    "parameters": {"type": "object", "properties": {
        "stops": {"type": "array", "items": {"type": "object", "properties": {
            "name": {"type": "string"}, "nights": {"type": ["integer", "null"]}}}},
        "budget": {"anyOf": [{"type": "number"}, {"type": "string"}], "description": "How much"},
        "fast": {"type": "boolean"}}, "required": []},
    "return": {"type": "string", "description": "The plan"}}}


def call(identifier, arguments, name="get_weather"):
    return {"id": identifier, "type": "function",
            "function": {"name": name, "arguments": arguments}}


def with_tools(arguments, content=None):
    return [SYSTEM, {"role": "user", "content": "Weather in Köln?"},
            {"role": "assistant", "content": content, "tool_calls": [call("abcdefghi", arguments)]},
            {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi",
             "content": "{\"temperature\": 21.5}"}]


SETS = {
    "plain": {"messages": [USER]},
    "plain_no_prompt": {"messages": [USER], "add_generation_prompt": False},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, ANSWER, {"role": "user", "content": "Good."}]},
    "turns_no_system": {"messages": [USER, ANSWER, {"role": "user", "content": " Good. "}]},
    "ends_with_assistant": {"messages": [USER, ANSWER], "add_generation_prompt": False},
    "ends_with_assistant_prompt": {"messages": [USER, ANSWER]},
    "think": {"messages": [USER, {"role": "assistant", "content":
                                  "<think>\nHm.\n</think>\n\nYes."},
                           {"role": "user", "content": "Why?"}]},
    "reasoning": {"messages": [USER, {"role": "assistant", "reasoning_content": "Hm.",
                                      "content": "Yes."}, {"role": "user", "content": "Why?"},
                               {"role": "assistant", "reasoning_content": "Ah.",
                                "content": "So."}], "add_generation_prompt": False},
    "thinking_off": {"messages": [SYSTEM, USER], "enable_thinking": False, "thinking": False},
    "thinking_on": {"messages": [SYSTEM, USER], "enable_thinking": True, "thinking": True,
                    "reasoning_effort": "high", "thinking_budget": 512},
    "tools_given": {"messages": [SYSTEM, USER], "tools": [WEATHER, NESTED]},
    "tools_no_system": {"messages": [USER], "tools": [NESTED, WEATHER]},
    "tool_call": {"messages": with_tools({"city": "Köln", "days": 2}), "tools": [WEATHER]},
    "tool_call_text": {"messages": with_tools("{\"city\": \"Köln\"}"), "tools": [WEATHER]},
    "tool_call_content": {"messages": with_tools({"city": "Köln", "x": [1, 2.5, None, True]},
                                                 "Let me look."), "tools": [WEATHER]},
    "tool_answer": {"messages": with_tools({"city": "Köln"}, "") + [
        {"role": "assistant", "content": "It is 21.5 degrees."},
        {"role": "user", "content": "Thanks"}], "tools": [WEATHER]},
    "two_calls": {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [
        call("aaaaaaaaa", {"city": "Bonn"}), call("bbbbbbbbb", {"stops": [{"name": "a<b"}]}, "plan")]},
        {"role": "tool", "name": "get_weather", "tool_call_id": "aaaaaaaaa", "content": "rain"},
        {"role": "tool", "name": "plan", "tool_call_id": "bbbbbbbbb", "content": "go"}],
        "tools": [WEATHER, NESTED]},
    "calls_no_tools": {"messages": with_tools({"city": "Köln"}, "")},
    "parts": {"messages": [{"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
                           {"role": "user", "content": [{"type": "text", "text": "One"},
                                                        {"type": "text", "text": " two"}]}]},
    "image": {"messages": [{"role": "user", "content": [
        {"type": "image", "image": "a.png"}, {"type": "text", "text": "What is this?"}]}]},
    "unicode": {"messages": [{"role": "user", "content": "Straße 日本語 🎉 \u00a0e\u0301 \u200b"},
                             {"role": "assistant", "content": "ÄÖÜ\t\"q\" \\ 'x' <|im_end|>"},
                             {"role": "user", "content": "\n\n ok \n"}]},
    "empty": {"messages": []},
    "empty_content": {"messages": [{"role": "user", "content": ""}]},
    "none_content": {"messages": [{"role": "user", "content": None}]},
    "unknown_role": {"messages": [{"role": "wizard", "content": "Abracadabra"}]},
    "developer": {"messages": [{"role": "developer", "content": "Rules."}, USER]},
    "two_users": {"messages": [USER, USER]},
    "no_role": {"messages": [{"content": "x"}]},
    "documents": {"messages": [USER], "documents": [{"title": "T", "text": "Body", "doc_id": 1}]},
    "dates": {"messages": [SYSTEM, USER], "date_string": "01 Jan 2024", "tools_in_user_message":
              False, "tools": [WEATHER], "builtin_tools": ["wolfram_alpha", "code_interpreter"]},
    "long": {"messages": [SYSTEM] + [USER, ANSWER] * 20 + [USER], "keep_past_thinking": True,
             "clear_thinking": False, "preserve_thinking": True},
}


def main():
    warnings.simplefilter("ignore")  # jinja2's own generated code
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path.home() / ".cache/qinfer/templates"
    environment = make_environment()
    results = {}
    for path in sorted(folder.glob("*.jinja")):
        text = path.read_text(encoding="utf-8")
        row = {}
        template = compile_template(environment, text)
        for name, variables in SETS.items():
            output = render(template, variables)
            if output is None:
                row[name] = "error"
            else:
                data = output.encode("utf-8")
                row[name] = f"{len(data)}:{fnv1a(data):016x}"
        results[path.name] = row
    with open(HERE / "templates.json", "w", encoding="utf-8") as file:
        json.dump({"now": NOW, "sets": SETS, "results": results}, file, ensure_ascii=False,
                  indent=1)
        file.write("\n")

    cases = []
    for text in CASES:
        output = render(compile_template(environment, text), VARIABLES)
        if output is None or " at 0x" not in output:
            cases.append({"template": text, "output": output})
    generator = random.Random(20231114)
    randoms = []
    for text in random_templates(generator, 600):
        output = render(compile_template(environment, text), VARIABLES)
        if text in FOLDED:
            continue
        if output is not None and (" at 0x" in output.lower() or NEVER_READ.search(text)):
            continue
        randoms.append([text, output])
    with open(HERE / "template_cases.json", "w", encoding="utf-8") as file:
        file.write('{"now": %d,\n"variables": %s,\n"cases": [\n' %
                   (NOW, json.dumps(VARIABLES, ensure_ascii=False)))
        file.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in cases))
        file.write('\n],\n"random": [\n')
        file.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in randoms))
        file.write("\n]}\n")
    errors = sum(case["output"] is None for case in cases)
    failed = sum(output is None for _, output in randoms)
    print(f"{len(results)} templates x {len(SETS)} sets, {len(cases)} cases ({errors} errors), "
          f"{len(randoms)} random ({failed} errors)")


if __name__ == "__main__":
    main()
