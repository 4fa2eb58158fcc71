"""Random expressions and small templates of the template language, for differential tests."""

NAMES = ["i", "f", "s", "u", "xs", "ys", "d", "n", "t", "missing", "nested"]
LITERALS = ["0", "1", "2", "-3", "7", "10", "1.5", "0.1", "-2.25", "1e20", "''", "'a'", "'abc'",
            "'Hello World'", "'x,y,z'", "'äöü'", "\"it's\"", "true", "false", "none", "[]",
            "[1, 2, 3]", "['b', 'a', 'C']", "{}", "{'k': 1, 'j': [2]}", "(1, 2)", "(3,)"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or",
          "in", "not in"]
FILTERS = ["abs", "capitalize", "count", "default('z')", "d('q', true)", "dictsort", "e", "first",
           "float", "int", "int(7)", "join", "join('-')", "last", "length", "list",
           "lower", "map('upper')", "max", "min", "replace('a', 'bb')", "reverse", "round",
           "round(1)", "select", "reject('none')", "sort", "sort(reverse=true)", "string", "sum",
           "title", "tojson", "tojson(indent=2)", "trim", "truncate(5)", "unique", "upper",
           "wordcount", "center(9)", "indent(2)", "batch(2)", "slice(2)", "format(1)", "safe",
           "urlencode", "map('string')", "select('string')", "map('length')", "groupby(0)"]
METHODS = ["upper()", "lower()", "title()", "strip()", "strip('a')", "lstrip('H')", "rstrip('d')",
           "split()", "split(',')", "split('l', 1)", "rsplit('l', 1)", "splitlines()",
           "startswith('a')", "endswith('d')", "replace('l', 'L')", "find('l')", "count('l')",
           "capitalize()", "swapcase()", "isdigit()", "isalpha()", "isupper()", "islower()",
           "zfill(5)", "ljust(5, '.')", "rjust(5)", "center(7, '*')", "partition('l')", "join(ys)",
           "get('k')", "get('k', 5)", "keys()", "values()", "items()", "index('a')", "index(2)",
           "append(1)", "pop()", "format(1, 2)", "isspace()", "removeprefix('He')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true",
         "mapping", "sequence", "iterable", "odd", "even", "divisibleby(3)", "in([1, 2])", "upper",
         "eq(1)", "sameas(none)", "gt(0)", "callable", "divisibleby 2", "not none", "not string"]
SUBSCRIPTS = ["[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[::2]", "[-2:]", "['k']", ".k", "[5]",
              "[1:-1]", "[5:1:-2]", "[i]", ".upper", "[none:2]"]


def expression(r, depth):
    kind = r.random()
    if depth <= 0 or kind < 0.15:
        return r.choice(NAMES) if r.random() < 0.5 else r.choice(LITERALS)
    inner = lambda: expression(r, depth - 1)
    if kind < 0.40:
        return f"{inner()} {r.choice(BINARY)} {inner()}"
    if kind < 0.60:
        return f"({inner()})|{r.choice(FILTERS)}"
    if kind < 0.70:
        return f"({inner()}).{r.choice(METHODS)}"
    if kind < 0.78:
        return f"({inner()}){r.choice(SUBSCRIPTS)}"
    if kind < 0.86:
        return f"({inner()}) is {r.choice(TESTS)}"
    if kind < 0.90:
        return f"({inner()} if {inner()} else {inner()})"
    if kind < 0.93:
        return f"not ({inner()})"
    if kind < 0.96:
        return f"[{inner()}, {inner()}]"
    return f"-({inner()})"


def template(r):
    kind = r.random()
    if kind < 0.75:
        return "{{ " + expression(r, r.randint(1, 3)) + " }}"
    sign = lambda: r.choice(["", "", "-", "+"])
    text = lambda: r.choice(["", " ", "\n", "  \n  ", "a", " b\n", "\n\n c ", "\t"])
    tag = lambda body: "{%" + sign() + " " + body + " " + r.choice(["", "", "-"]) + "%}"
    body = text() + "{{ x }}" + text()
    simple = expression(r, 1)
    if kind < 0.85:
        return (text() + tag(f"for x in {simple}") + body + tag("endfor") + text())
    if kind < 0.92:
        return (text() + tag(f"if {simple}") + text() + "y" + text() + tag("else") + text() + "n"
                + tag("endif") + text() + "{#" + sign() + " c " + "#}" + text())
    return (tag(f"set x = {simple}") + text() + "{{" + r.choice(["", "-"]) + " x is defined " +
            r.choice(["", "-"]) + "}}" + text())


def random_templates(r, count):
    seen = set()
    while len(seen) < count:
        text = template(r)
        if text not in seen:
            seen.add(text)
            yield text
