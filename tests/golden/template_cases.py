"""Our own templates, a feature or two each; make_templates.py records what jinja2 makes of them."""

VARIABLES = {
    "i": 3, "f": 2.5, "s": "Hello World", "u": "Straße äöü 日本", "n": None, "t": True,
    "xs": [3, 1, 2], "ys": ["b", "a", "C"], "d": {"k": 1, "b": [1, 2], "a": "x"},
    "nested": {"list": [{"n": "one", "v": 1}, {"n": "two", "v": 2}, {"n": "One", "v": 1}],
               "deep": {"er": {"k": "value"}}},
    "big": 123456789012345678901234567890, "neg": -7, "tiny": 1e-7, "huge": 1e22, "items": "own",
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo",
                 "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}],
}

CASES = r"""
plain text
{{ s }}
{{ i }} {{ f }} {{ n }} {{ t }} {{ xs }} {{ ys }} {{ d }}
{{ missing }}|{{ missing is defined }}
{{ missing.attribute }}
{{ d.missing }}|{{ d.missing is defined }}
{{ d.missing.more }}
{{ missing + 1 }}
{{ missing ~ 'a' }}|{{ missing|length }}|{{ missing|list }}|{{ not missing }}
{{ missing == missing2 }} {{ missing == none }} {{ missing in xs }} {{ 1 in missing }}
{{ missing < 1 }}
{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}
{{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }}
{{ 1.0 }} {{ 1.5e3 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ -0.0 }} {{ 1e100 }}
{{ 100000000000000000000 }} {{ big }} {{ big == 123456789012345678901234567890 }} {{ big > 5 }} {{ -big }}
{{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5 }}
{{ 5.0 // 2 }} {{ -5.5 // 2 }} {{ 5.5 % 2 }} {{ -5.5 % 2 }} {{ 1 / 3 }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1.5 // 0 }}
{{ true + 1 }} {{ true == 1 }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ true and 'x' }} {{ '' or 'y' }} {{ 0 and missing.x }}
{{ not true }} {{ not '' }} {{ not [] }} {{ not 0.0 }} {{ not none }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) < (1, 0) }}
{{ 1 < 'a' }}
{{ 'ell' in s }} {{ 'x' not in s }} {{ 1 in xs }} {{ 'k' in d }} {{ 'z' in d }} {{ 2 in (1, 2) }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] }} {{ 1 + 2 ~ 3 + 4 }}
{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [0] * 3 }} {{ 'x' * -1 }}|
{{ 'a' + 1 }}
{{ [1] + (2,) }}
{{ 'a' - 'b' }}
{{ 'yes' if i > 2 else 'no' }} {{ 'yes' if i > 5 }}| {{ 'a' if false else 'b' if false else 'c' }}
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[::2] }} {{ s[-3:] }} {{ s[:-3] }} {{ s[100:] }}| {{ s[5:2] }}|
{{ u[4] }} {{ u[::-1] }} {{ u[-2:] }} {{ u|length }} {{ u|upper }} {{ u|lower }} {{ u|title }} {{ u|capitalize }}
{{ xs[0] }} {{ xs[-1] }} {{ xs[1:] }} {{ xs[::-1] }} {{ xs[10] }}| {{ xs[:10] }} {{ xs[-100:2] }} {{ (1, 2, 3)[1:] }} {{ range(10)[2:8:2]|list }}
{{ xs[::0] }}
{{ xs['a'] }}|{{ xs.a }}|{{ xs.0 }}|{{ s.0 }}
{{ d['k'] }} {{ d.k }} {{ d.items }}| 
{{ d['items'] is callable }} {{ d.get('k') }} {{ d.get('q') }} {{ d.get('q', 'dflt') }} {{ d.keys() }} {{ d.values() }} {{ d.items() }}
{{ d.keys()|list }} {{ d.values()|list }} {{ d.items()|list }} {{ d|items|list }} {{ d|dictsort }} {{ d|length }}
{{ {'items': 5}['items'] }} {{ {'items': 5}.items()|list }}
{{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {'a': 1, 'a': 2} }} {{ {(1, 2): 3}[(1, 2)] }}
{{ {[1]: 2} }}
{{ d.pop('k') }}
{{ xs.append(1) }}
{{ d.update({}) }}
{{ d.pop }}|{{ xs.append is defined }}
{{ s.__class__ }}|{{ d.__class__.__name__ }}
{{ d._private }}|{{ {'_private': 1}._private }}
{{ 'it\'s' }} {{ "q\"q" }} {{ 'a\nb\tc\\d' }} {{ '\x41\u00e9\U0001F389' }} {{ '\101' }} {{ '\d' }} {{ 'a' 'b' "c" }}
{{ ['it\'s', "a\"b", 'both\'"', 'new\nline', '\x00\x7f\u200b\u00e9\U0001F389'] }}
{{ [1.0, none, true, 'x', (1,), (), [], {}, {'a': [none]}] }}
{{ 'a'|upper|lower ~ 'b'|upper }} {{ -1|abs }} {{ (-1)|abs }} {{ -f|abs }}
{{ s|lower }} {{ s|upper }} {{ 'hello world-foo (bar'|title }} {{ "it's mcDonald"|title }} {{ s|capitalize }} {{ 5|upper }}
{{ '  x  '|trim }}| {{ 'xxaxx'|trim('x') }} {{ '\u00a0\u3000x\u2003'|trim }}|
{{ 'aaa'|replace('a', 'b') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'abc'|replace('', '-') }} {{ 123|replace(2, 'x') }}
{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, blank=true) }}|{{ 'a\nb'|indent('> ') }}|{{ ''|indent }}|{{ 'a\n'|indent }}|
{{ 5|indent }}
{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '...', 0) }}
{{ 'one two  three_3 four-five'|wordcount }} {{ 'x'|center(5) }}| {{ 'xy'|center(5) }}| {{ 'xy'|center(6) }}|
{{ '%s is %d and %.2f'|format('a', 3, 2.5) }} {{ '%(x)s'|format(x=1) }}
{{ '<a href="x">\'&</a>'|e }} {{ '<b>'|safe|e }} {{ '<b>'|escape|escape }} {{ '<b>'|safe|forceescape }} {{ '<p>a  b</p> <!-- c --> d &lt;'|striptags }}
{{ '<b>'|safe + '<i>' }} {{ '<i>' + '<b>'|safe }} {{ '<b>'|safe ~ '<i>' }} {{ ('<b>%s'|safe) % '<i>' }} {{ ('<b>{}'|safe).format('<i>') }} {{ ['<b>'|safe] }} {{ '<b>'|safe|upper is escaped }}
{{ 'a b&c/d?ä'|urlencode }} {{ {'a b': 'c&d', 'e': 1}|urlencode }} {{ [('x', '/')]|urlencode }}
{{ {'class': 'a', 'id': none, 'x': '<'}|xmlattr }}| {{ {'a': 1}|xmlattr(false) }}
{{ 1000|filesizeformat }} {{ 1|filesizeformat }} {{ 1500000|filesizeformat }} {{ 1048576|filesizeformat(true) }} {{ 0|filesizeformat }}
{{ [1, 2, 3]|first }} {{ [1, 2, 3]|last }} {{ []|first }}| {{ []|last }}| {{ 'abc'|first }} {{ 'abc'|last }} {{ d|first }}
{{ [3, 1, 2]|sort }} {{ ['b', 'A', 'a', 'B']|sort }} {{ ['b', 'A', 'a']|sort(case_sensitive=true) }} {{ [1, 3, 2]|sort(reverse=true) }} {{ nested.list|sort(attribute='n')|map(attribute='n')|list }} {{ nested.list|sort(attribute='v,n')|map(attribute='n')|list }}
{{ [1, 'a']|sort }}
{{ ['a', 'A', 'b', 'a']|unique|list }} {{ ['a', 'A']|unique(case_sensitive=true)|list }} {{ nested.list|unique(attribute='v')|list }} {{ [1, 1.0, true, 2]|unique|list }}
{{ [3, 1, 2]|min }} {{ [3, 1, 2]|max }} {{ ['b', 'A']|min }} {{ []|max }}| {{ nested.list|max(attribute='v') }} {{ ['a', 'A']|max }}
{{ [1, 2, 3]|sum }} {{ [1, 2.5]|sum }} {{ []|sum }} {{ nested.list|sum(attribute='v') }} {{ [[1], [2]]|sum(start=[]) }}
{{ ['a']|sum }}
{{ [1, 2, 3]|reverse|list }} {{ 'abc'|reverse }} {{ d|reverse|list }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ [1, 2, 3, 4, 5]|slice(3)|list }} {{ [1, 2, 3, 4]|slice(3, 'x')|list }}
{{ nested.list|groupby('v') }}
{% for g in nested.list|groupby('n') %}{{ g.grouper }}={{ g.list|length }};{% endfor %}{% for k, v in nested.list|groupby('v', case_sensitive=true) %}{{ k }}:{{ v|map(attribute='n')|join(',') }} {% endfor %}
{{ [1, 2]|join }} {{ [1, 2]|join(', ') }} {{ nested.list|join('|', attribute='n') }} {{ [none, true, 1.5]|join('-') }} {{ 'abc'|join('.') }} {{ missing|join }}|
{{ [1, 2, 3]|map('string')|list }} {{ ['a', 'b']|map('upper')|join }} {{ nested.list|map(attribute='zz', default='-')|list }} {{ [[1, 2], [3]]|map('length')|list }} {{ ['ab']|map('replace', 'a', 'x')|list }} {{ [{'a': {'b': 1}}]|map(attribute='a.b')|list }} {{ [[5, 6]]|map(attribute=1)|list }}
{{ [1, 2, 3, 4]|select('odd')|list }} {{ [1, 2, 3]|reject('odd')|list }} {{ [0, 1, '', 'a']|select|list }} {{ [1, 5]|select('gt', 2)|list }} {{ nested.list|selectattr('v', 'equalto', 1)|map(attribute='n')|list }} {{ nested.list|rejectattr('v', '==', 1)|list }} {{ nested.list|selectattr('q')|list }} {{ nested.list|selectattr('q', 'defined')|list }}
{{ [1]|map }}
{{ [1]|select('nosuchtest')|list }}
{{ missing|default('d') }} {{ ''|default('d') }}| {{ ''|default('d', true) }} {{ none|default('d') }} {{ none|d('d', boolean=true) }} {{ d.q|default([]) }}
{{ '42'|int }} {{ '42.9'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ '0x1f'|int(base=16) }} {{ '101'|int(base=2) }} {{ 3.9|int }} {{ -3.9|int }} {{ true|int }} {{ ' 7 '|int }} {{ none|int }} {{ 1e20|int }} {{ '1_000'|int }}
{{ '4.5'|float }} {{ 'x'|float }} {{ 'x'|float(1.5) }} {{ 3|float }} {{ '1e3'|float }} {{ ' -inf '|float }} {{ 'nan'|float }}
{{ 42.55|round }} {{ 42.55|round(1) }} {{ 42.55|round(1, 'floor') }} {{ 42.51|round(1, 'ceil') }} {{ 2.5|round }} {{ 3.5|round }} {{ 42|round }} {{ -2.5|round }} {{ 2.675|round(2) }} {{ 1234.5|round(-2) }} {{ 1250|round(-2) }} {{ 2.1|round(0, 'ceil') }}
{{ 5|abs }} {{ -5|abs }} {{ -1.5|abs }} {{ 'x'|abs }}
{{ d|tojson }} {{ [1, 1.0, none, true, 'a"b\\c/d\n\t\u0001é🎉<>&\'']|tojson }}
{{ d|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ []|tojson(indent=2) }} {{ [[], {}]|tojson(indent=1) }}
{{ {'b': 1, 'a': [1, {'z': 1, 'y': 2}]}|tojson(sort_keys=true) }} {{ [1, 2]|tojson(separators=(',', ':')) }} {{ {'a': 1}|tojson(separators=(',', ':')) }} {{ 'é🎉\x7f'|tojson(ensure_ascii=true) }} {{ [1]|tojson(indent='\t') }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }}
{{ missing|tojson }}
{{ range(3)|tojson }}
{{ big|tojson }} {{ tiny|tojson }} {{ huge|tojson }} {{ tiny }} {{ huge }} {{ 1e400|tojson }}
{{ range(5) }} {{ range(5)|list }} {{ range(2, 8, 2)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3)|length }} {{ range(10)[3] }} {{ 3 in range(5) }} {{ range(3) == range(0, 3) }}
{{ range(1000000) }}
{{ range(1, 2, 0) }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'a': 1}, b=2) }} {{ dict() }}
{% set ns = namespace(a=1) %}{% set ns.b = 2 %}{{ ns.a + ns.b }} {{ ns }} {{ ns.zz is defined }}
{% set ns = namespace() %}{% for x in xs %}{% set ns.total = (ns.total|default(0)) + x %}{% endfor %}{{ ns.total }}
{% set q = {} %}{% set q.x = 1 %}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.next() }}
{% set j = joiner(',') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}
{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %a %A %j %y %I %p %%') }}
{{ raise_exception('stop: ' ~ s) }}
{% for x in xs %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.depth0 }} {% endfor %}
{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {{ loop.cycle('o', 'e') }} {% endfor %}
{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}
{% for x in [] %}x{% else %}empty{% endfor %} {% for x in xs %}x{% else %}empty{% endfor %} {% for x in missing %}x{% else %}none{% endfor %}
{% for x in xs if x > 1 %}{{ x }}:{{ loop.index }}of{{ loop.length }} {% else %}no{% endfor %} {% for x in xs if x > 10 %}{{ x }}{% else %}no{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for c in 'añ日' %}[{{ c }}]{% endfor %} {% for k in d %}{{ k }}{% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in xs %}{% for y in ys %}{{ loop.index }}{% if y == 'a' %}{% break %}{% endif %}{% endfor %}{{ loop.last }}{% endfor %}
{% for n in [{'v': 1, 'c': [{'v': 2, 'c': []}]}] recursive %}{{ n.v }}@{{ loop.depth }}({{ loop(n.c) }}){% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (a, b) = [3, 4] %}{{ a }}{{ b }} {% set t = 1, %}{{ t }}
{% set x %}block {{ s }}{% endset %}[{{ x }}] {% set y | upper | replace('L', 'l') %}hello{% endset %}{{ y }}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b')|upper %}aaa{% endfilter %} {% filter trim %}  x  {% endfilter %}|
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }} {% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}
{% macro m(a, b=2, c='x') %}{{ a }},{{ b }},{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='z') }} {{ m(a=5) }} {{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a, a2=a) %}{{ a }}{{ a2 }}{% endmacro %}{{ m(4) }}
{% macro m() %}{{ varargs }} {{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }} {{ m.name }} {{ m.arguments }} {{ m.catch_kwargs }} {{ m.catch_varargs }} {{ m.caller }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ s }}{% endcall %}
{% macro m(xs) %}{% for x in xs %}{{ caller(x) }};{% endfor %}{% endmacro %}{% call(v) m([1, 2]) %}<{{ v }}>{% endcall %}
{% macro m() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro f(n) %}{% if n <= 1 %}1{% else %}{{ n * (f(n - 1)|int) }}{% endif %}{% endmacro %}{{ f(10) }}
{% macro m() %}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m() }}
{% macro m() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ m() }}{{ inner is defined }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[7]) }} {{ m(**{'x': 8}) }} {{ dict(*[[('a', 1)]], **{'b': 2}) }}
{% macro outer() %}{% macro inner() %}in{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}
{{ f() }}
{{ s() }}
{% generation %}a {{ s }} {% set g = 1 %}{% endgeneration %}{{ g is defined }}
{% block b %}block {{ s }}{% endblock %} {{ self.b() }}
{% set v = 1 %}{% for x in xs %}{% block b scoped %}{{ x }}{{ v }}{% endblock %}{% endfor %}
{{ 5 is odd }} {{ 4 is even }} {{ 9 is divisibleby(3) }} {{ 9 is divisibleby 3 }} {{ 5 is not odd }}
{{ none is none }} {{ 0 is none }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ true is boolean }} {{ 1 is boolean }}
{{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ 1 is number }} {{ true is number }} {{ '1' is number }}
{{ 's' is string }} {{ d is mapping }} {{ xs is sequence }} {{ 's' is sequence }} {{ d is sequence }} {{ 5 is sequence }} {{ range(2) is sequence }} {{ xs|map('string') is sequence }} {{ xs is iterable }} {{ 5 is iterable }} {{ missing is iterable }}
{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aBC' is upper }} {{ '1' is upper }} {{ 'a' is in('abc') }} {{ 1 is in xs }} {{ 2 is eq 2 }} {{ 2 is ne(3) }} {{ 3 is gt 2 }} {{ 3 is ge(3) }} {{ 3 is lt(2) }} {{ 3 is le 3 }} {{ none is sameas none }} {{ s is sameas(s) }}
{{ s.upper is callable }} {{ 5 is callable }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ '<'|e is escaped }}
{{ s is nosuchtest }}
{{ s|nosuchfilter }}
{% if false %}{{ s|nosuchfilter }}{% endif %}ok
{{ 'a' if true else s|nosuchfilter }}
{{ s.upper() }} {{ s.split() }} {{ s.split('o') }} {{ s.split('o', 1) }} {{ 'a,,b'.split(',') }} {{ ' a  b '.split() }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b c'.split(none, 1) }} {{ 'a b c'.split(maxsplit=1) }}
{{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }}
{{ 'a'.split('') }}
{{ s.startswith('He') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('d') }} {{ s.startswith('e', 1) }} {{ s.endswith('l', 0, 4) }}
{{ s.startswith(1) }}
{{ s.find('o') }} {{ s.rfind('o') }} {{ s.find('zz') }} {{ s.index('W') }} {{ s.count('l') }} {{ u.find('日') }} {{ s.find('o', 5) }} {{ 'aaa'.count('') }}
{{ s.index('zz') }}
{{ '  a '.strip() }}| {{ 'xxaxx'.lstrip('x') }} {{ 'xxaxx'.rstrip('x') }} {{ 'abcba'.strip('ab') }} {{ '\n x \n'.strip() }}|
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ s.title() }} {{ "they're bill's".title() }} {{ s.swapcase() }} {{ 'ß'.upper() }} {{ 'ΑΣ'.lower() }} {{ 'İ'.lower() }} {{ 'ŉ'.upper() }} {{ 'ﬁ'.title() }} {{ 'ß'.casefold() }}
{{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'x'.ljust(3, '.') }} {{ 'x'.rjust(3) }} {{ 'x'.center(4, '*') }} {{ 'ab'.center(5, '*') }}
{{ 'x'.ljust(3, 'ab') }}
{{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('-') }} {{ 'abc'.rpartition('-') }} {{ '-'.join(['a', 'b']) }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'a\tb'.expandtabs(4) }}
{{ '-'.join([1]) }}
{{ 'abc'.isalpha() }} {{ 'ab1'.isalnum() }} {{ '12'.isdigit() }} {{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ '1'.isdecimal() }} {{ ' '.isspace() }} {{ 'Ab'.istitle() }} {{ 'a_1'.isidentifier() }} {{ ''.isalpha() }} {{ 'é'.isascii() }} {{ '\n'.isprintable() }}
{{ '{} {}'.format(1, 'a') }} {{ '{1} {0}'.format('a', 'b') }} {{ '{x} {y.k} {z[0]}'.format(x=1, y=d, z=xs) }} {{ '{:>5}|{:<5}|{:^5}|{:*^5}'.format('a', 'b', 'c', 'd') }} {{ '{:.2f} {:05d} {:+d} {:,} {:x} {:#x} {:b} {:e} {:g} {:%}'.format(2.5, 42, 7, 1234567, 255, 255, 5, 12345.678, 0.0001, 0.5) }} {{ '{!r:>6}'.format('a') }} {{ '{{}}'.format() }} {{ '{:{w}}|'.format('x', w=4) }} {{ '{:.3}'.format('abcdef') }} {{ '{}'.format([1, 'a']) }}
{{ '{} {}'.format(1) }}
{{ '{'.format(1) }}
{{ '%s %r %d %5d|%-5d|%05d %x %X %o %e %g %.3s %c %% %i'  % ('a', 'b', 3, 4, 5, 6, 255, 255, 8, 1234.5, 0.5, 'abcdef', 'z', 9.9) }} {{ '%s' % 5 }} {{ '%s' % [1] }} {{ '%(k)s' % d }} {{ '%.1f' % 2.25 }} {{ '%+d' % 5 }} {{ '%*d' % (5, 42) }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'x' }}
{{ 'x' % 5 }}
{{ xs.index(1) }} {{ xs.count(1) }} {{ (1, 2).index(2) }} {{ xs.copy() }} {{ (2.0).is_integer() }} {{ (5).bit_length() }}
{{ xs.index(99) }}
{{ s|attr('upper') is callable }} {{ d|attr('k') is defined }} {{ nested|items|first|last|length }}
a {%- if true -%} b {%- endif -%} c
  {% if true %}  x  {% endif %}  
  {%+ if true %}  x{% endif +%}  
  {{ s }}  
{%- set x = 1 -%}   trimmed   {{- x -}}   end
{# comment #}a{#- strip -#} b {# {{ not }} {% run %} #}c
{% raw %}{{ raw }} {% if %}{% endraw %} {%- raw -%}  x  {%- endraw -%}  y
{% raw %}{% endraw %}|{{ '{{' }} {{ '%}' }} {{ "}}" }}
{{ {'a': {'b': 1}}['a']['b'] }} {{ {'a': 1}.a }} {{ [[1, 2], [3]][0][1] }} {{ ({'x': [1]}).x[0] }}
{{ nested.deep.er.k }} {{ nested['deep']['er']['k'] }} {{ nested.list[1].n }} {{ nested.list[-1]['n'] }}
{{ [1, 2, 3,] }} {{ (1,) }} {{ () }} {{ {'a': 1,} }} {{ 1, 2 }}
{{ true }} {{ True }} {{ None }} {{ none }} {{ false }} {{ False }}
{{ messages[0].role }} {{ messages[1:]|length }} {{ messages[-1]['tool_calls'][0].function.arguments|tojson }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }}
{% set messages = messages[1:] %}{{ messages|length }}
{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ tools }}{{ documents is none }}
{% if tools is defined and tools %}yes{% else %}no{% endif %}{% if not tools %}!{% endif %}{% if i == 1 %}1{% elif i == 3 %}3{% elif true %}t{% else %}e{% endif %}
{% if i: %}colon{% endif: %}
{{ 'a
b' }}
{{ [1, [2, [3, [4]]]]|tojson(indent=2) }}
{{ 'ab' < 'b' }} {{ 'Z' < 'a' }} {{ 1.5 < 2 }} {{ 9007199254740993 == 9007199254740992.0 }} {{ 9223372036854775807 + 0 }} {{ -9223372036854775807 - 1 }}
{{ [1, 2] == [1, 2] }} {{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' != 'b' }} {{ none == false }} {{ [] == false }}
{{ 'x'.nope }}|{{ 'x'['nope'] }}|{{ 5 .real }}
{{ 'x'.nope() }}
{% macro m(content) %}{% if content is string %}{{ content }}{% else %}{% for p in content %}{{ p.text }}{% endfor %}{% endif %}{% endmacro %}{{ m([{'text': 'a'}, {'text': 'b'}]) }}{{ m('c') }}
{% if
{{ 1 + }}
{% for %}{% endfor %}
{% endif %}
{% if true %}
{{ 'abc }}
{{ (1 }}
{{ ] }}
{% nosuchtag %}
{% set 5 = 1 %}
{{ x is }}
{{ a.b.c( }}
{# never closed
{% raw %} never
{% break %}
{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{{ 1 is odd is even }}
{{ f(a=1, 2) }}
{% macro m(a=1, b) %}{% endmacro %}
{% block a %}{% endblock %}{% block a %}{% endblock %}
{{ "\ud800" }}
{{ a b }}
{{ 1.2.3 }}
{{ $ }}
{{ s[1:2, 3] }}
{{ 'x' 'y'|upper }} {{ ('x' 'y')|upper }} {{ 'a'.upper()|lower }} {{ xs|length == 3 }} {{ xs|length > 2 and true }} {{ 'a' in 'abc'|upper }}
{{ not 1 in [2] }} {{ not (1 in [2]) }} {{ 1 if not false }} {{ not not true }} {{ - - 1 }} {{ +1 }} {{ -'a' }}
{{ loop }}
{% for x in [1] %}{{ loop.nope }}|{% endfor %}{{ loop is defined }}
{% for x in xs %}{% set x = x * 2 %}{{ x }} {% endfor %}{{ x is defined }}
{{ [x for x in xs] }}
{{ (xs|map('string')|list)[0] }} {% set it = xs|map('string') %}{{ it|list }}{{ it|list }}
{{ xs|map('string')|length }}
{{ xs|reverse|first }} {{ xs|reverse|last }}
{{ d.items()|map('first')|list }} {{ d.items()|map('last')|list }} {{ d|dictsort(by='value')|length }}
{{ {'b': 1, 'A': 2}|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 1, 'A': 2}|dictsort(by='value', reverse=true) }}
{{ range is callable }}
{{ 10|string|length }} {{ 1.0|string }} {{ none|string }} {{ [1]|string|first }} {{ true|lower }} {{ '1' * 3 }} {{ 'a' 'b' * 2 }}
{{ (1).real }} {{ 'aXbX'.split('X')[-1]|length }} {{ 'aXb'.split('X')[0].rstrip('\n').split('<')[-1].lstrip('\n') }}
""".strip("\n").split("\n")
# The one case with a newline inside.
at = CASES.index("{{ 'a")
CASES[at:at + 2] = ["{{ 'a\nb' }}"]
CASES += [
    "line 1\nline 2\n", "ends with two\n\n", "\r\nwindows\r\nlines\r", "",
    "{% if true %}\nbody\n{% endif %}\nafter\n",
    "  {% for x in xs %}\n    {{ x }}\n  {% endfor %}\nend",
    "  {#- c -#}  \n x\n  {# d #}\n y",
    "{% for x in xs -%}\n  {{ x }}\n{%- endfor %}\n",
    "a\n   {%+ if true %}b{% endif %}\n   {%- if true +%}\nc{% endif %}",
    "{{ 'x' }}\n\n{{ 'y' -}}\n\n  z",
    "{%- raw %}\n  {{ x }}\n{% endraw %}\nq",
    "a {% raw -%}  b  {%- endraw %} c",
    "{% set x -%}\n  spaced  \n{%- endset %}[{{ x }}]",
    "\n\n  {% if false %}x{% endif %}\n",
    "x  {% if true %}y{% endif %}  z\n  \t{% if true %}w{% endif %}",
    "{% macro a(x) -%}\n  <{{ x }}>\n{%- endmacro -%}\n\n{{ a(1) }}\n{{ a(2) }}",
    "{{ 'a' }}{# c\n #}\n{{ 'b' }}", "{{- 'a' -}}{#+ x +#}\n b",
    "日本 {% if true %}\n 🎉{% endif %}", "{{ 1 }}}", "{ {{ 1 }} }", "{{{ 'a': 1 }}}", "{%%}", "{{}}",
    "{{ '" + "a" * 300 + "'|length }}", "{{ " + " + ".join(["1"] * 90) + " }}",
    "{{ " + "(" * 60 + "1" + ")" * 60 + " }}", "{% if true %}" * 15 + "x" + "{% endif %}" * 15,
]

# Think tags and reasoning_content: kept in the last turn, dropped from earlier ones, opened in the prompt.
THOUGHTS = """\
{%- set turns = [{'role': 'user', 'content': 'What is <think>?'},
                 {'role': 'assistant', 'content': '<think>\\nHm, <b> & "c".\\n</think>\\n\\nA tag.'},
                 {'role': 'assistant', 'reasoning_content': '\\nOld.\\n', 'content': 'Two.'},
                 {'role': 'user', 'content': 'And now?'},
                 {'role': 'assistant', 'reasoning_content': '\\n日本 </thin>\\n', 'content': '\\n\\nThree.'}] %}
{%- set ns = namespace(last=-1) %}
{%- for m in turns %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for m in turns %}
    {%- set content = m.content %}
    {%- set reasoning = '' %}
    {%- if m.reasoning_content is string %}
        {%- set reasoning = m.reasoning_content %}
    {%- elif '</think>' in content %}
        {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- if m.role == 'assistant' and (loop.index0 > ns.last or keep) and reasoning %}
        {{- '[' ~ m.role ~ ']<think>\\n' ~ reasoning.strip('\\n') ~ '\\n</think>\\n\\n' ~ content.lstrip('\\n') }}
    {%- else %}
        {{- '[' ~ m.role ~ ']' ~ content }}
    {%- endif %}
{%- endfor %}
{{- '[assistant]<think>\\n' }}{% if off %}{{- '</think>' -}}{% endif %}
"""
CASES += [THOUGHTS, "{% set keep = true %}" + THOUGHTS, "{% set off = true %}" + THOUGHTS]
