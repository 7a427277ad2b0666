"""Writes template_goldens.json: the output of the real jinja2, configured as in transformers, for the templates here.

Usage: pip install jinja2 && python make_template_goldens.py
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 3, 7, 9, 5, 3)


class Generation(jinja2.ext.Extension):
    """{% generation %}: prints its body unchanged, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


SYSTEM = {"role": "system", "content": "  Be brief.\n"}
USER = {"role": "user", "content": "What is 2 + 2? é 日本 '\"\\ <|im_end|>"}
ANSWER = {"role": "assistant", "content": " <think>\nsimple\n</think>\n\nFour. "}
AGAIN = {"role": "user", "content": "And \"3\" + 3?\n"}
PLAIN = {"role": "assistant", "content": "Six."}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "the weather\nof a place",
        "parameters": {"type": "object", "properties": {
            "place": {"type": "string", "description": "City & <country>"},
            "days": {"type": ["integer", "null"], "default": 1.5},
            "list": {"type": "array", "items": {"type": "string"}}},
            "required": ["place"], "empty": {}, "none": []},
        "return": {"type": "object"}}},
    {"type": "function", "function": {
        "name": "now", "description": "Time.", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdef123", "type": "function",
     "function": {"name": "get_weather", "arguments": {"place": "Zürich", "days": 2}}}]}
STRING_CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "abcdef123", "function": {"name": "get_weather", "arguments": {"place": "Zürich", "unit": "C"}}}]}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "{\"t\": -1.5}"}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
CONVERSATIONS = {
    "one": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, ANSWER, AGAIN], "add_generation_prompt": True},
    "done": {"messages": [USER, PLAIN]},
    "tools": {"messages": [SYSTEM, USER], "tools": TOOLS, "add_generation_prompt": True},
    "tools_in_system": {"messages": [SYSTEM, USER], "tools": TOOLS, "tools_in_user_message": False},
    "called": {"messages": [USER, CALL, RESULT, ANSWER, AGAIN], "tools": TOOLS, "add_generation_prompt": True},
    "two_results": {"messages": [USER, CALL, RESULT, RESULT], "tools": TOOLS, "add_generation_prompt": True},
    "builtin": {"messages": [USER, STRING_CALL, RESULT], "builtin_tools": ["get_weather", "code_interpreter"]},
    "no_thinking": {"messages": [USER], "enable_thinking": False, "add_generation_prompt": True},
    "wrong_order": {"messages": [USER, USER]},
    "dated": {"messages": [USER], "date_string": "1 Jan 2020"},
}

VALUES = {
    "s": " Hello World \n", "u": "ÀÉ straße 日本", "n": None, "t": True, "f": False, "i": 7, "j": -3, "x": 2.5, "big": 1e20,
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "d": {"b": 1, "a": {"k": [1, None, True, 1.0, "q'"]}},
    "rows": [{"n": "x", "v": 1}, {"n": "y", "v": 0}, {"n": "x"}], "e": [], "q": "it's \"q\"", "m": "a,b,,c", "lines": "l1\nl2\n\nl4",
}

# One construct in each line. Each line is rendered with VALUES.
SNIPPETS = r"""
{{ s }}|{{ s|trim }}|{{ n }}|{{ t }}|{{ f }}|{{ i }}|{{ x }}|{{ big }}|{{ l }}|{{ d }}|{{ missing }}|{{ q }}
{{ [q, "it's", 'a"b', "\t\n\\", "é"] }} {{ (1,) }} {{ (1, 2) }} {{ () }} {{ {} }} {{ [[], {1: 2, none: 3}] }}
{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 123456789.125 }} {{ -0.0 }} {{ 1.5e300 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }}
{{ -i }} {{ +i }} {{ - x }} {{ 1 - -1 }} {{ i|abs }} {{ j|abs }} {{ -3|abs }} {{ (-3)|abs }}
{{ 'a' ~ 1 ~ none ~ true ~ missing ~ 2.0 }} {{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ [1] + [2] }} {{ [0] * 3 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ none == none }} {{ missing == missing }}
{{ 'a' in 'abc' }} {{ 'z' not in 'abc' }} {{ 1 in l }} {{ 'b' in d }} {{ 'zz' in d }} {{ 1 in missing }} {{ none in [none] }}
{{ t and 'yes' or 'no' }} {{ f or 'x' }} {{ n and 1 }} {{ not t }} {{ not e }} {{ not not s }} {{ 0 or '' or none }}
{{ 'a' if t else 'b' }} {{ 'a' if f else 'b' if t else 'c' }} {{ 'a' if f }}| {{ ('x' if i > 5 else 'y') ~ 'z' }}
{{ l[0] }} {{ l[-1] }} {{ l[5] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:1:-1] }} {{ l[-2:] }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ u[0] }} {{ u[-2:] }} {{ 'abc'[9] }}|
{{ d.b }} {{ d['b'] }} {{ d.a.k[1] }} {{ d.zz }} {{ d['zz'] }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.get('b') }} {{ rows[0].n }} {{ rows.0.n }} {{ rows[-1]['v'] }}
{{ d.items()|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d|items|list }} {{ d|list }} {{ d|length }} {{ d|dictsort }} {{ d|dictsort(reverse=true) }}
{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('xy') }}|{{ 'ab\n'.rstrip('\n') }}|{{ s|trim|length }}|{{ 'xax'|trim('x') }}
{{ m.split(',') }} {{ m.split(',', 1) }} {{ m.rsplit(',', 1) }} {{ ' a  b c '.split() }} {{ ' a  b c '.split(none, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ 'abc'.split('zz') }} {{ ''.split(',') }} {{ ''.split() }}
{{ s.strip().startswith('He') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith('') }} {{ 'a-b'.replace('-', '+') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '.') }} {{ 'aaa'|replace('a', 'b', 1) }} {{ 12|replace(1, 3) }}
{{ u.upper() }} {{ u.lower() }} {{ u.title() }} {{ 'hello wORLD'.capitalize() }} {{ 'hello-world foo_bar (x)'|title }} {{ "it's"|title }} {{ "it's".title() }} {{ u|upper }} {{ u|capitalize }} {{ 'aB'.swapcase() }}
{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('z') }} {{ u.find('本') }} {{ 'abcabc'.count('b') }} {{ 'abc'.index('b') }} {{ l.index(1) }} {{ l.count(9) }}
{{ ', '.join(w) }} {{ w|join }} {{ w|join('-') }} {{ l|join(', ') }} {{ rows|join(',', attribute='n') }} {{ 'abc'|join('.') }} {{ e|join(',') }}|
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('z') }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }} {{ lines.splitlines() }} {{ 'a\r\nb\n'.splitlines(true) }}
{{ '12'.isdigit() }} {{ '1a'.isdigit() }} {{ 'ab'.isalpha() }} {{ ''.isalpha() }} {{ 'a1'.isalnum() }} {{ ' \n'.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.islower() }} {{ '12'.isupper() }}
{{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'x'.ljust(3, '.') }}| {{ 'x'.rjust(3) }} {{ 'ab'.center(5, '*') }} {{ 'x'|center(4) }}| {{ '{} {}'.format(1, 'a') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}{{}}'.format(x=3) }}
{{ '%s-%d-%05.1f-%r-%%' % ('a', 3, 2.25, 'q') }} {{ '%s' % 5 }} {{ '%5s|%-5s|' % ('a', 'b') }} {{ '%s %s'|format('a', 1) }} {{ '%x' % 255 }}
{{ l|first }} {{ l|last }} {{ e|first }}| {{ l|length }} {{ u|length }} {{ u|count }} {{ missing|length }} {{ l|sum }} {{ l|min }} {{ l|max }} {{ w|min }} {{ rows|sum(attribute='v', start=1) if f else 0 }}
{{ l|sort }} {{ w|sort }} {{ w|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ rows[:2]|sort(attribute='v') }} {{ l|reverse|list }} {{ 'abc'|reverse }} {{ w|unique|list }} {{ [1, 1, 2]|unique|list }} {{ rows|unique(attribute='n')|list }}
{{ rows|map(attribute='n')|list }} {{ rows|map(attribute='v', default=9)|list }} {{ w|map('upper')|list }} {{ l|map('string')|join }} {{ ['a', 'b']|map('replace', 'a', 'z')|list }} {{ rows|map(attribute='zz')|list }}
{{ rows|selectattr('v')|list }} {{ rows|rejectattr('v')|list }} {{ rows|selectattr('n', 'equalto', 'x')|map(attribute='v')|list }} {{ rows|selectattr('v', 'defined')|list }} {{ l|select('odd')|list }} {{ l|reject('equalto', 1)|list }} {{ l|select('>', 1)|list }} {{ [0, 1, '']|select|list }} {{ rows|selectattr('n', 'in', ['y'])|list }}
{{ missing|default('d') }} {{ n|default('d') }} {{ ''|default('d', true) }} {{ n|d('d', boolean=true) }} {{ missing|default }}| {{ d.zz|default(5) }} {{ f|default(1) }}
{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ '3.9'|int }} {{ '1e3'|float }} {{ 'x'|float }} {{ 3|float }} {{ 'ff'|int(0, 16) }} {{ true|int }} {{ ' 8 '|int }}
{{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.4|round(0, 'ceil') }} {{ 2.6|round(method='floor') }} {{ 5|round }} {{ 2.5|round|int }}
{{ 5|string ~ 'x' }} {{ none|string }} {{ [1]|string }} {{ 'abc'|list }} {{ l|batch(2)|list }} {{ l|batch(2, 0)|list }} {{ 'a b  c'|wordcount }} {{ '<a&"b\'>'|e }} {{ '<a>'|safe }}
{{ rows|groupby('n')|list|length }} {% for k, v in rows|groupby('n') %}{{ k }}={{ v|length }};{% endfor %}
{{ lines|indent }}# {{ lines|indent(2, true) }}# {{ lines|indent(2, blank=true) }}# {{ 'a\n'|indent }}# {{ lines|indent('> ') }}
{{ d|tojson }} {{ d|tojson(indent=2) }} {{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ '\u007f\u0001<>&\'"\\/\b' |tojson }} {{ [1, 2.0, none, true, 1e20, (1, 2)]|tojson }} {{ {}|tojson(indent=2) }} {{ [[], {}]|tojson(indent=1) }}
{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ {'b': 1, 'a': 2}|tojson(separators=(',', ':')) }} {{ {1: 2, true: 3, none: 4}|tojson }} {{ '😀'|tojson(true) }} {{ rows|tojson(indent=4) }}
{{ s is string }} {{ i is string }} {{ d is mapping }} {{ l is mapping }} {{ l is iterable }} {{ s is iterable }} {{ i is iterable }} {{ l is sequence }} {{ d is sequence }} {{ i is number }} {{ t is number }} {{ x is float }} {{ t is integer }} {{ i is integer }} {{ t is boolean }} {{ 1 is boolean }}
{{ missing is defined }} {{ missing is not defined }} {{ missing is undefined }} {{ n is none }} {{ n is not none }} {{ n is defined }} {{ d.zz is defined }} {{ d.b is defined }} {{ t is true }} {{ 1 is true }} {{ f is false }} {{ missing is none }} {{ missing is iterable }}
{{ 3 is odd }} {{ 4 is even }} {{ 6 is divisibleby 3 }} {{ 6 is divisibleby(4) }} {{ i is equalto 7 }} {{ i is eq 7 }} {{ i is ne 7 }} {{ i is gt 3 }} {{ i is lessthan 3 }} {{ 1 is in [1] }} {{ 'a' is in 'b' }} {{ 'AB' is upper }} {{ 'ab' is lower }} {{ range is callable }} {{ none is sameas none }} {{ i is not equalto 7 }}
{% for v in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.previtem }}/{{ loop.nextitem }}/{{ loop.cycle('a', 'b') }}/{{ loop.changed(v > 1) }} {% endfor %}
{% for v in e %}x{% else %}none{% endfor %} {% for v in l if v > 5 %}x{% else %}none{% endfor %} {% for v in l if v != 1 %}{{ v }}{{ loop.index }}{{ loop.length }} {% endfor %}
{% for v in range(10) %}{% if v == 2 %}{% continue %}{% endif %}{% if v == 5 %}{% break %}{% endif %}{{ v }}{% endfor %} {{ range(3)|list }} {{ range(5, 1, -2)|list }} {{ range(0)|list }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for c in 'é日' %}[{{ c }}]{% endfor %} {% for v in missing %}x{% endfor %}
{% set a = 1 %}{% for v in l %}{% set a = a + v %}{{ a }} {% endfor %}{{ a }} {% set ns = namespace(a=1, b=[]) %}{% for v in l %}{% set ns.a = ns.a + v %}{% set ns.b = ns.b + [v] %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.zz is defined }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set c = 1, %}{{ c }} {% if true %}{% set z = 5 %}{% endif %}{{ z }} {% set t2 %}block {{ i }}{% endset %}{{ t2 }}| {% set t3 | upper | trim %} abc {% endset %}{{ t3 }}|
{% macro m1(a, b=2, c='x' ~ b) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m1(1) }} {{ m1(1, 3) }} {{ m1(1, c=5) }} {{ m1(b=1, a=0) }} {{ m1() }} {{ m1(*[1, 2]) }} {{ m1(**{'a': 9}) }}
{% macro f1(n) %}{% if n > 0 %}{{ n }}{{ f1(n - 1) }}{% endif %}{% endmacro %}{{ f1(5) }} {{ f1(3)|length }} {% macro g1() %}{{ i }}{{ caller(1) }}{% endmacro %}{% call(x) g1() %}<{{ x }}>{% endcall %}
{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ namespace is callable }} {% set j2 = joiner('; ') %}{{ j2() }}a{{ j2() }}b{{ j2() }}c {{ strftime_now('%Y-%m-%d %H:%M %d %b %B %A %j') }} {{ strftime_now('') }}
{# comment #}a{#- b -#} c {# multi #}
{% raw %}{{ not }} {% this %}{% endraw %} {%- raw -%} {{ x }} {%- endraw -%} |
{% if i > 5 %}big{% elif i > 3 %}mid{% else %}small{% endif %}{% if f %}x{% elif n %}y{% endif %}{% if not f and (t or f) and l|length == 3 %}ok{% endif %}
{{ "a" "b" 'c' }} {{ '\x41\u00e9\n\t\'\"\\\d' }} {{ "{{ }}" }} {{ '%}' }} {{ 1_000 }} {{ [1, 2, ] }} {{ {'a': 1, } }} {{ ([1, 2][0]) }} {{ "a" if "b" else "c" }} {{ True }} {{ None }}
{{ l|map('string')|map('upper')|list|length > 2 and 'many' }} {{ (l|length > 2)|string }} {{ l|length + 1 }} {{ not l|length }} {{ -(l|length) }} {{ 'a' ~ 'b'|upper }} {{ 1 in [1] == true }} {{ i is odd and t }} {{ t if i is odd else f }}
{{ 1 if missing else 2 }} {{ missing|list }} {{ missing|join(',') }}| {{ missing|trim }}| {{ missing|upper }}| {{ missing ~ 'x' }} {{ [missing] }} {{ missing|first }}| {{ missing is string }} {{ missing|string }}|
{{ d.items }}{{ d.update({'c': 1}) }}
{{ l.append(4) }}
{{ missing.foo }}
{{ missing['foo'] }}
{{ missing() }}
{{ missing + 1 }}
{{ 'a' + 1 }}
{{ none + 'a' }}
{{ n.foo.bar }}
{{ 1 // 0 }}
{{ none|length }}
{{ 5|first }}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{{ 'a'|nofilter }}
{{ 'a' is notest }}
{{ raise_exception('stop here') }}
{{ 'a' < 1 }}
{{ missing|tojson }}
{{ range(1000000) }}
{{ 1 + }}
{% if %}x{% endif %}
{% endif %}
{% for x in l %}
{{ [1, 2 }}
{{ 'abc }}
{% unknown %}
{{ 'x'.format }}{{ ''.zz }}{{ 'x'.zz.yy }}
{{ m1(1) }}
{% set l.x = 1 %}
{% macro m2(a) %}{{ a }}{% endmacro %}{{ m2(1, 2) }}
{% macro m3(a) %}{{ a }}{% endmacro %}{{ m3(zz=2) }}
{{ none|map('upper')|list }} {{ n|selectattr('x', 'equalto', 1)|list }} {{ 0|reject|list }} {{ f|rejectattr('x')|list|length }} {{ ''|map('nofilter')|list }} {{ none|map|list }}
{{ '{:>5}|{:<5}|{:^5}|{:*^7}|{:05d}|{:+}|{: }|{:,}|{:_}'.format('a', 'b', 'c', 'd', 42, 7, 7, 1234567, 1234567) }} {{ '{:5}|{:5}|{:.2}|{:>6.2}|{:é>4}'.format('ab', 5, 'abc', 'abc', 1) }}
{{ '{:.2f} {:8.3f} {:<8.1f}| {:e} {:.3e} {:g} {:G} {:%} {:.1%} {:010.2f} {:+.1f} {:,.2f}'.format(3.14159, 2.5, 2.5, 12345.678, 0.00012, 1e10, 1e-7, 0.25, 0.5, -3.14159, 2.0, 1234567.891) }}
{{ '{:b} {:o} {:x} {:X} {:#x} {:#b} {:c} {:d} {:08b} {:#010x} {:n}'.format(10, 8, 255, 255, 255, 5, 65, true, 5, 255, 12) }} {{ '{:x}'.format(-255) }} {{ '{:,}'.format(-1234) }} {{ '{:010,}'.format(1234) }} {{ '{:_x}'.format(1048575) }} {{ '{:=+6}'.format(5) }}
{{ '{!r} {!s} {!a} {!r:>6}'.format('é', 'é', 'é', 'x') }} {{ '{0[b]} {0[a][k][1]} {1[0]} {2.b}'.format(d, l, d) }} {{ '{:{}}|{:{w}.{p}f}'.format('a', 4, 2.345, w=8, p=1) }} {{ '{a[b]}'.format(a=d) }} {{ '{n:>3}'.format_map({'n': 1}) }}
{{ '{:.3} {:.1} {:5} {:} {}'.format(1234.5, 2.0, 1.5, 1.0, none) }} {{ '{:05}'.format('a') }} {{ '{:5}'.format(true) }} {{ '{}'.format(true) }} {{ '{:.0f} {:.0f}'.format(0.5, 1.5) }} {{ '{:.1e}'.format(0.0) }}
{{ '%+d|% d|%05d|%-5d|%5d' % (1, 2, 3, 4, 5) }} {{ '%o %X %#x %e %.2e %g %G %c %c %i %u' % (8, 255, 255, 1.5, 1.5, 1e-7, 1e20, 65, 'z', 3, 4) }} {{ '%(a)s-%(b)d' % {'a': 1, 'b': 2} }} {{ '%*d|%-*d|%.*f' % (4, 1, 4, 2, 1, 2.55) }} {{ '%.2s|%5.1s|%a' % ('abc', 'xyz', 'é') }} {{ '%(a)s'|format(a=5) }} {{ '%5s|%-6.2f|%06.1f' % (none, 2.5, -2.5) }}
{% set tree = [{'n': 'a', 'c': [{'n': 'b', 'c': []}, {'n': 'c', 'c': [{'n': 'd', 'c': []}]}]}, {'n': 'e', 'c': []}] %}{% for t in tree recursive %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.index }}{{ t.n }}({{ loop(t.c) }}){% else %}-{% endfor %}
{% for t in [1, [2, [3, 4]], 5] recursive %}{% if t is iterable %}[{{ loop(t) }}]{% else %}{{ t }}{% if not loop.last %},{% endif %}{% endif %}{% endfor %} {% for x in [3, 0, [1, 0]] if x recursive %}{{ loop(x)|upper if x is sequence else x }};{% endfor %}
{% for a in [1] %}{% for b in [2] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}
{% for a in [1] %}{{ loop([2]) }}{% endfor %}
{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, true) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(11, false, '...', 0) }} {{ u|truncate(5, true, '…', 0) }} {{ ('word ' * 60)|truncate|length }}
{{ 'x'|truncate(2) }}
{{ l|slice(2)|list }} {{ [1, 2, 3, 4, 5]|slice(3, 0)|list }} {{ []|slice(2)|list }} {{ [1]|slice(3, 'x')|list }} {{ [7]|random }} {{ 'z'|random }} {{ []|random }}|
{{ 'abcabc'.find('c', 3) }} {{ 'abcabc'.find('a', 1, 3) }} {{ 'abcabc'.rfind('a', 0, 3) }} {{ 'ééa'.find('a', -1) }} {{ 'abcabc'.count('b', 2) }} {{ 'abc'.find('', 3) }} {{ 'abc'.find('', 4) }} {{ 'abcabc'.index('c', 3) }} {{ 'abc'.count('') }} {{ 'aaa'.count('a', -2) }}
{{ 'a\tb\n\tc'.expandtabs() }} {{ 'a\tb'.expandtabs(4) }} {{ 'abc'.isascii() }} {{ 'é'.isascii() }} {{ 'a\n'.isprintable() }} {{ ''.isprintable() }} {{ 'Hello World'.istitle() }} {{ 'hello'.istitle() }} {{ '1'.istitle() }} {{ '²'.isdigit() }} {{ '½'.isdigit() }} {{ '½'.isnumeric() }} {{ '²'.isdecimal() }}
{{ 'hello'[-3:-1] }} {{ 'hello'[10:] }} {{ 'hello'[3:1] }} {{ 'hello'[::2] }} {{ 'hello'[4:0:-2] }} {{ u[::-1] }} {{ u[::3] }} {{ 'hello'[-100:100] }} {{ 'hello'[:2:-1] }} {{ ''[::-1] }}| {{ l[5:0:-1] }} {{ l[::-2] }} {{ 'ab'[0:0] }}|
{{ 'aXbXc'.rsplit('X', 1) }} {{ 'XaX'.split('X') }} {{ 'a'.split('abc') }} {{ '  '.split() }} {{ 'ab'.rsplit('b') }} {{ 'a\x0bb\x1cc\u2028d'.splitlines() }} {{ '\r\n'.splitlines() }}
{%- set ns = namespace(multi_step_tool=true, last_query_index=rows|length - 1) %}{%- for row in rows[::-1] %}{%- set index = (rows|length - 1) - loop.index0 %}{{ index }}{{ row.n }}{%- endfor %}{{ ns.last_query_index }}{{ ns.multi_step_tool }}
{{ '<think>\na\n</think>\n\nb'.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}|{{ '<think>a</think>\nb'.split('</think>')[-1].lstrip('\n') }}|{{ '</think>' in 'a</think>' }}
{%- macro extra(o, handled) -%}{%- if o is mapping %}{%- for key in o if key not in handled %}{%- if o[key] is mapping or (o[key] is sequence and o[key] is not string) %}{{ '\n<' ~ key ~ '>' ~ (o[key] | tojson | safe) ~ '</' ~ key ~ '>' }}{%- else %}{{ '\n<' ~ key ~ '>' ~ (o[key] | string) ~ '</' ~ key ~ '>' }}{%- endif %}{%- endfor %}{%- endif %}{%- endmacro %}{{ extra(d, ['x']) }}{{ extra(d, ['a']) }}
{{ rows | map(attribute='n') | join(', ') }} {{ (rows|first).items() | list }} {{ (rows|last).n }} {{ rows | map(attribute='v') | select('defined') | list }}
{%- if l is sequence and (l is not string and l is not mapping) %}list{% endif %} {% if d.a is not none and d.a.k is defined %}nested{% endif %} {% if missing is defined and missing %}x{% else %}absent{% endif %}
{{ raise_exception('no') if f else 'fine' }} {% if rows[0]['n'] != 'x' %}{{ raise_exception('first') }}{% endif %}{{ (loop_messages is defined) ~ '' }}
{%- set loop_messages = rows[1:] if rows[0]['n'] == 'x' else rows %}{{ loop_messages|length }} {% for m in loop_messages %}{% if (m['n'] == 'y') != (loop.index0 % 2 == 0) %}odd{% endif %}{{ m['n'] + ':' + (m['v']|string) }} {% endfor %}
{{ 'some' if (rows|selectattr('v', 'defined')|list) else 'none' }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%B %Y') }} {{ rows|selectattr('v', 'undefined')|list|length }}
{% for k, v in d|items %}{{ k }}: {{ v|tojson }}{{ '' if loop.last else ', ' }}{% endfor %} {% for k, v in d|dictsort %}{{ k|upper }}{% endfor %} {{ d | dictsort | map('first') | join(' ') }}
{% set content = [{'type': 'text', 'text': ' one '}, {'type': 'image'}, {'type': 'text', 'text': 'two'}] %}{% if content is string %}{{ content|trim }}{% else %}{% for item in content if item.type == 'text' %}{{ item.text|trim }}{% if not loop.last %}, {% endif %}{% endfor %}{% endif %}
{{ ['a', 'b'] | tojson(indent=4) | replace('\n', '\n  ') }} {{ {'type': ['string', 'null']}['type'] | join('|') }} {{ 'A.b'.split('.')|first|lower }} {{ (['x'] + ['y'])|last }}
{%- set ns = namespace(is_first=false, is_tool=false, system='') -%}{%- for row in rows %}{%- if row.n == 'x' %}{% set ns.system = ns.system + row.n %}{% set ns.is_first = true %}{%- endif %}{%- endfor -%}{{ ns.system }}{{ ns.is_first and not ns.is_tool }}
{% set t = none %}{{ (t or {}).get('a', 'unset') }} {{ (d.get('zz') or [])|length }} {{ 'functions.get_weather:0'.split('.')[1].split(':')[0] }} {{ '  x\n'|trim|length }} {{ 'x'|string|length > 0 }}
""".strip("\n").split("\n")

# White-space control, and constructs over several lines.
BLOCKS = [
    "a\n{% if t %}\n  b\n{% endif %}\nc\n", "a\n  {% if t %}  \n  b\n  {% endif %}\nc\n\n", "x {% if t %}\ny{% endif %} z",
    "  {%- if t -%}  \n  b  \n {%- endif -%}  c", "  {%+ if t %}\n b{%+ endif %}\n", "{% if t +%}\nb{% endif +%}\nc",
    "  {# note #}\n  x\n", "  {# note #} y\n\t{#- z -#}\n w", "a\n\n  {{ i }}  \n\n  {{- i -}}  \n b", "{{ i }}\n", "{{ i }}\n\n", "\n{{ i }}",
    "{% for v in l %}\n- {{ v }}\n{% endfor %}\nend", "{% for v in l -%}\n  {{ v }},\n{%- endfor %}", "a\r\n{% if t %}\r\nb\r\n{% endif %}\r\n",
    "  {% raw %}\n  {{ x }}\n  {% endraw %}\n z", "{{ 'a\nb' }}\n{{\n i\n}}", "{%- set x = [\n 1,\n 2\n] -%}\n{{ x }}", "{ {{ i }} } {x} {", "a{#b\n\n#}c\n",
    "    {% if t %}{% if t %}\n  x\n{% endif %}{% endif %}\n y", "{{ '}}' }}{{ {'a': {'b': 1}}['a'] }}", "{{ {'a': {'b': 1}}}}", "{% set q = '%}' %}{{ q }}",
    "{#- -#}", "", "\n", "\n\n", "x\n{%- if t %} y{% endif %}\n  \n{%- if t %}\n z {%- endif %}",
]


def render(source, context):
    try:
        return environment().from_string(source).render(**context)
    except Exception:
        return None


def main():
    cases = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text()
        for name, context in CONVERSATIONS.items():
            text = render(source, {**TOKENS, **context})
            cases.append({"name": f"{path.stem}/{name}", "file": f"templates/{path.name}", "conversation": name, "text": text})
    for i, source in enumerate(SNIPPETS + BLOCKS):
        cases.append({"name": f"snippet/{i}", "template": source, "text": render(source, VALUES)})
    document = {
        "about": "text: what jinja2 prints, null where it raises. Templates with a file get its conversation and the tokens; the others get values.",
        "jinja2": jinja2.__version__, "now": "2026-03-07T09:05:03Z", "tokens": TOKENS, "values": VALUES,
        "conversations": CONVERSATIONS, "cases": cases}
    (HERE / "template_goldens.json").write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    failed = [case["name"] for case in cases if case["text"] is None]
    print(len(cases), "cases,", len(failed), "raise:", *failed)


if __name__ == "__main__":
    main()
