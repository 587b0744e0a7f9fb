// Jinja against Python: templates, what the reference implementation (Jinja 3.1 in transformers' environment) made of
// them, and the kind of error where it failed. This file has statements, whitespace and errors.
#include <gtest/gtest.h>

#include "text/template_fixture.h"

namespace braid::text {
namespace {

const Rendered kStatements[] = {
    {"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ "
     "loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.depth0 }}{{ "
     "loop.cycle('a','b') }}{{ loop.changed(x > 1) }};{% endfor %}",
     "10TrueFalse332110aTrue;21FalseFalse3213210bTrue;32FalseTrue310110aTrue;"},
    {"{% for x in l %}{{ x }}{% else %}none{% endfor %}{% for x in [] %}{{ x }}{% else %}none{% endfor %}", "312none"},
    {"{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{{ loop.index }}{% else %}none{% endfor %} {% for x in l if x > "
     "9 %}{{ x }}{% else %}none{% endfor %}",
     "321222 none"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for c in s %}{{ c "
     "}}.{% endfor %} {% for a, b in [[1,2],(3,4)] %}{{ a }}{{ b }}{% endfor %} {% for (a, b), c in [[[1,2],3]] %}{{ a "
     "}}{{ b }}{{ c }}{% endfor %} {% for a, b in ['xy'] %}{{ b }}{{ a }}{% endfor %}",
     "b=1;a=[1, 2];items=5; baitems H.e.l.l.o. .W.o.r.l.d. 1234 123 yx"},
    {"{% for x in missing %}x{% else %}e{% endfor %}", "e"},
    {"{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "3121"},
    {"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "7"},
    {"{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
    {"{% for i in [1,2] %}{{ y }}{% set y = i %}{{ y }}{% endfor %}{{ y }}", "12"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }} {% set t2 = 1, %}{{ t2 }} {% set (p, q) = "
     "[8, 9] %}{{ p }}{{ q }}",
     "1221 (1,) 89"},
    {"{% set ns = namespace() %}{% set ns.a, z = 1, 2 %}{{ ns.a }}{{ z }}", "12"},
    {"{% set x %}a{{ i }}b{% endset %}{{ x }} {% set x | upper %}abc{% endset %}{{ x }} {% set x | replace('a', 'b') | "
     "upper %}abc{% endset %}{{ x }}",
     "a7b ABC BBC"},
    {"{% set x %}{% set q = 1 %}{% endset %}{{ q }}|", "|"},
    {"{% macro f(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c='y') }}{{ "
     "f(b=1, a=2) }}{{ f() }}",
     "[12x][13x][12y][21x][2x]"},
    {"{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, none) }}", "11 1None"},
    {"{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, x=3) }} {{ f() }}", "(1, 2){'x': 3} (){}"},
    {"{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}{% call f() %}x{{ i }}{% endcall %}", "x7x7"},
    {"{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}-{{ b }}{% endcall %}", "1-2"},
    {"{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}", "False"},
    {"{% macro f() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ f() }}{% set x = 6 %}{{ f() }}", "56"},
    {"{% for x in [1] %}{% macro g() %}{{ x }}{% endmacro %}{{ g() }}{% endfor %}{{ g is defined }}", "1False"},
    {"{% macro f(x) %}{% set i = x %}{{ i }}{% endmacro %}{{ f(99) }}{{ i }}", "997"},
    {"{% macro f() %}  a  {% endmacro %}[{{ f() }}] [{{ f()|trim }}] {{ f() is string }} {{ f()|length }}",
     "[  a  ] [a] True 5"},
    {"{% filter upper %}abc{{ s }}{% endfilter %} {% filter replace('a', 'b')|upper %}abc{% endfilter %}",
     "ABCHELLO WORLD BBC"},
    {"{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}| {% with %}x{% endwith %} {% with a = i %}{% set i = 1 "
     "%}{{ i }}{{ a }}{% endwith %}{{ i }}",
     "12| x 177"},
    {"{% generation %}abc{{ i }}{% endgeneration %} {% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}",
     "abc7 1"},
    {"{% raw %}{{ x }} {% if %}{% endraw %} {%- raw -%}  a  {%- endraw -%}  b", "{{ x }} {% if %}ab"},
    {R"(
  {# c #}
x{# c #}
y
{#- c -#}
z)",
     R"(
xyz)"},
    {R"(
  {% if true %}
  a
  {% endif %}
b)",
     R"(
  a
b)"},
    {R"(
  {%+ if true %}
  a
  {%+ endif +%}
b)",
     R"(
    a
  
b)"},
    {R"(
  {%- if true -%}
  a
  {%- endif -%}
b)",
     "ab"},
    {"a  {% if true %}  b  {% endif %}  c", "a    b    c"},
    {R"(  {{ i }}
  {{- i }}
  {{ i -}}
 x
)",
     R"(  77
  7x)"},
    {R"(

)",
     R"(
)"},
    {R"(a
)",
     "a"},
    {R"(a

)",
     R"(a
)"},
    {R"({{ i }}
)",
     "7"},
    {R"({% set x = 1 %}

a{% set y = 1 -%}

b)",
     R"(
ab)"},
    {R"({% if true %}
{{ i }}
{% endif %}
  {% for x in l %}
  {{ x }}
  {% endfor %}
end)",
     R"(7
  3
  1
  2
end)"},
    {R"(  {% raw %}  
 x 
 {% endraw %}
y)",
     R"(  
 x 
y)"},
    {R"({%- raw %}
 x {%- endraw %}
y)",
     R"(
 xy)"},
    {R"({{ '%}' }}{{ "{{" }}{{ '}}' }}{% set x = '%}' %}{{ x }}{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{}}}})",
     "%}{{}}%}1{'a': {}}"},
    {"{% for i in [[1,[2,[3]]],4] recursive %}{% if i is iterable %}[{{ loop(i) }}]{% else %}{{ i }}{{ loop.depth }}{% "
     "endif %}{% endfor %}",
     "[12[23[34]]]41"},
    {"{{ loop }}|{{ loop is defined }}", "|False"},
    {"{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "123112321233"},
    {"{% for i in l %}{% set outer = loop %}{% for j in [1,2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% "
     "endfor %}",
     "11 12 21 22 31 32 "},
    {"{% for i in [1,1,2,2] %}{{ loop.changed(i) }}{% endfor %}", "TrueFalseTrueFalse"},
    {"{% for i in l %}{{ loop.nope }}{{ loop['index'] }}{{ loop|length }}{% endfor %}", "132333"},
    {"{% for m in m %}{{ m.role }}{% endfor %}{{ m|length }}", "userassistantuser3"},
    {"{% for x in range(3) %}{% if loop.first %}a{% elif loop.last %}z{% else %}m{% endif %}{% endfor %}", "amz"},
    {"{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}{% if '' %}a{% elif [] %}b{% elif {} %}x{% else %}c{% endif %}",
     "bc"},
    {"{% if true: %}a{% endif %}{% for x in l: %}{{ x }}{% endfor %}", "a312"},
    {"{% if m[0].role == 'user' and m[0]['content'] is string and 'hi' in m[0].content %}yes{% endif %}", "yes"},
    {"{% set first = m[0] %}{% set rest = m[1:] %}{{ first.role }}{{ rest|length }}{{ (rest|first).role }}{{ "
     "m[-1]['content'] is none }}{{ m[::-1][0].role }}",
     "user2assistantTrueuser"},
    {"{% set ns = namespace(found=false, items=[]) %}{% for x in m %}{% set ns.items = ns.items + [x.role] %}{% endfor "
     "%}{{ ns.items }}{{ ns }}|",
     "['user', 'assistant', 'user']<Namespace {'found': False, 'items': ['user', 'assistant', 'user']}>|"},
    {"{{ m|map(attribute='content')|select('string')|join(',') }} {{ m|selectattr('role', 'eq', "
     "'user')|map(attribute='content')|first }} {{ (m|last).role }} {{ m|map(attribute='role')|unique|list }} {{ "
     "m|rejectattr('content')|list|length }}",
     "hi,yo hi user ['user', 'assistant'] 1"},
    {"{{ (l|map('int')|list)[0] }} {{ (m|selectattr('role','equalto','user')|list)[-1].role }} {{ l|join(',')|upper }} "
     "{{ [l, l]|map('join', '-')|join('|') }} {{ [l,l]|map('first')|list }}",
     "3 user 3,1,2 3-1-2|3-1-2 [3, 3]"},
    {"{{ 'a' if l else 'b' }}{{ 'x' if missing is defined and missing else 'y' }}{{ ('a' if t else 'b') ~ 'c' }}",
     "ayac"},
    {R"({% set content = '<think>\nabc\n</think>\n\nfoo' %}{{ content.split('</think>')[-1].lstrip('\n') }}{{ content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }})",
     "fooabc"},
    {R"({{- '<|im_start|>' + m[0].role + '\n' + m[0].content + '<|im_end|>' + '\n' }})", R"(<|im_start|>user
hi<|im_end|>
)"},
    {R"({{ "a" "b"|upper }} {{ 'x'.upper().lower().title() }} {{ [1,2][0] }} {{ {'a':1}.a }} {{ (1,2)[1] }} {{ 'abc'[1] }} {{ 'abc'[1:][0] }} {{ [1,[2,3]][1][0] }} {{ "a"|length }})",
     "AB X 1 1 2 b b 2 1"},
    {"{{ l == [3,1,2] }} {{ d == {'a': [1,2], 'b': 1, 'items': 5} }} {{ (1,2) == [1,2] }} {{ 1 == '1' }} {{ none == "
     "false }} {{ [] == [] }} {{ 'a' == 'a' }} {{ l != [3] }} {{ {1:2} == {1.0:2} }}",
     "True True False False False True True True True"},
    {"{{ s[1:3] ~ s[-2:] }} {{ l[1:][::-1] }} {{ m[1:]|map(attribute='role')|list }} {{ m[:-1]|length }} {{ "
     "m[loop_index|default(1)].role }}",
     "elld [2, 1] ['assistant', 'user'] 2 assistant"},
    {"{% macro a() %}{% macro b() %}in{% endmacro %}{{ b() }}{% endmacro %}{{ a() }}{{ b is defined }}", "inFalse"},
    {"{% macro f(messages, flag=true) -%}{% for x in messages %}{{ x.role if flag else x.content }}{% if not loop.last "
     "%},{% endif %}{% endfor %}{%- endmacro %}{{ f(m) }} {{ f(m, flag=false) }}",
     "user,assistant,user hi,yo,None"},
    {"{{ d.items()|sort }} {{ d.values()|list }} {{ d.keys()|sort|join }} {{ d.items()|first }} {{ d.items()|length }} "
     "{% for k, v in d|items %}{{ k }}{{ loop.last }}{% endfor %} {% for k, v in d|dictsort %}{{ k }}{% endfor %}",
     "[('a', [1, 2]), ('b', 1), ('items', 5)] [1, [1, 2], 5] abitems ('b', 1) 3 bFalseaFalseitemsTrue abitems"},
    {"{{ 1.5e3|int }} {{ (i/2)|int }} {{ (i/2)|round|int }} {{ 10//3*3 }} {{ '%.2f'|format(3.14159) }} {{ 5|string|int "
     "+ 1 }} {{ 3.0|int }} {{ 3.0 }} {{ 1/3 }} {{ 2/3*3 }} {{ 1e3 }} {{ 100000000000000000000.0 }} {{ 1e100 }}",
     "1500 3 4 9 3.14 6 3 3.0 0.3333333333333333 2.0 1000.0 1e+20 1e+100"},
};

TEST(Jinja, StatementsAndWhitespace) {
  for (const Rendered& row : kStatements) EXPECT_EQ(render(row.source, table_variables()), row.text) << row.source;
}

using Kind = TemplateError::Kind;
struct Failing {
  const char* source;
  Kind kind;
};

const Failing kFailing[] = {
    {"{{ 1 / 0 }}", Kind::type},
    {"{{ 1 % 0 }}", Kind::type},
    {"{{ 1 // 0.0 }}", Kind::type},
    {"{{ 0 ** -1 }}", Kind::type},
    {"{{ 1 < 'a' }}", Kind::type},
    {"{{ none < 1 }}", Kind::type},
    {"{{ [] < () }}", Kind::type},
    {"{{ 'a' + 1 }}", Kind::type},
    {"{{ 1 + 'a' }}", Kind::type},
    {"{{ [1] + (2,) }}", Kind::type},
    {"{{ {} + {} }}", Kind::type},
    {"{{ none + 1 }}", Kind::type},
    {"{{ missing + 1 }}", Kind::undefined},
    {"{{ 1 + missing }}", Kind::undefined},
    {"{{ 'a' + missing }}", Kind::undefined},
    {"{{ missing < 1 }}", Kind::undefined},
    {"{{ missing.foo }}", Kind::undefined},
    {"{{ missing['foo'] }}", Kind::undefined},
    {"{{ missing() }}", Kind::undefined},
    {"{{ s.nope.more }}", Kind::undefined},
    {"{{ s.nope() }}", Kind::undefined},
    {"{{ none.foo.bar }}", Kind::undefined},
    {"{{ l[10].x }}", Kind::undefined},
    {"{{ l[::0] }}", Kind::type},
    {"{{ l['a':] }}", Kind::type},
    {"{{ d[1:] }}", Kind::type},
    {"{{ missing[1:] }}", Kind::undefined},
    {"{{ range(1,2,0) }}", Kind::type},
    {"{{ range('a') }}", Kind::type},
    {"{{ range() }}", Kind::type},
    {"{{ 1 in s }}", Kind::type},
    {"{{ 1 in 5 }}", Kind::type},
    {"{{ 1 in none }}", Kind::type},
    {"{{ {[]: 1} }}", Kind::type},
    {"{{ cycler() }}", Kind::type},
    {"{{ '{:>6}'.format(none) }}", Kind::type},
    {"{{ '{:5}'.format(l) }}", Kind::type},
    {"{{ '{:>6}'.format(missing) }}", Kind::type},
    {"{{ '%x' % 2.5 }}", Kind::type},
    {"{{ '%o' % 2.0 }}", Kind::type},
    {"{{ 'x' | filesizeformat }}", Kind::type},
    {"a{# b", Kind::syntax},
    {"a{% raw %} b", Kind::syntax},
    {"{{ 007 }}", Kind::syntax},
    {R"({{ 'a\)", Kind::syntax},
    {"{{ 'abc }}", Kind::syntax},
    {"{{ x y }}", Kind::syntax},
    {"{{ }}", Kind::syntax},
    {"{% %}", Kind::syntax},
    {"{{ 1 + }}", Kind::syntax},
    {"{{ (1 }}", Kind::syntax},
    {"{{ 1) }}", Kind::syntax},
    {"{{ [1} }}", Kind::syntax},
    {"{{ {1:2 }}", Kind::syntax},
    {"{% if %}{% endif %}", Kind::syntax},
    {"{% if 1 %}", Kind::syntax},
    {"{% endif %}", Kind::syntax},
    {"{% foo %}", Kind::syntax},
    {"{% for x in %}{% endfor %}", Kind::syntax},
    {"{% for x l %}{% endfor %}", Kind::syntax},
    {"{% for 1 in l %}{% endfor %}", Kind::syntax},
    {"{% set 1 = 2 %}", Kind::syntax},
    {"{% set true = 2 %}", Kind::syntax},
    {"{% set x.y.z = 2 %}", Kind::syntax},
    {"{{ x|nofilter }}", Kind::syntax},
    {"{% if true %}{{ x|nofilter }}{% endif %}ok", Kind::tmpl},
    {"{{ x is notest }}", Kind::syntax},
    {"{% if true %}{{ x is notest }}{% endif %}", Kind::tmpl},
    {"{{ 1 if false else 2 }} {{ 1 if true }} {{ 1 if false }}| {{ 1 if 0 else 2 if 0 else 3 }} {{ (1 if false).foo }}",
     Kind::undefined},
    {"{{ 'a,b,,c'.split(',') }} {{ 'a b  c '.split() }} {{ ' a b  c '.split(none, 1) }} {{ 'a,b,c'.split(',', 1) }} {{ "
     "'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a b'.split(maxsplit=1) }} {{ ''.split() }} {{ "
     "''.split(',') }} {{ 'abc'.split('') }}",
     Kind::type},
    {"{{ 'abc'.split('') }}", Kind::type},
    {"{{ 'abc'.split(1) }}", Kind::type},
    {"{{ 'abc'.startswith(1) }}", Kind::type},
    {"{{ 'abc'.startswith(['a']) }}", Kind::type},
    {"{{ 'abc'.index('x') }}", Kind::type},
    {"{{ 'a'.center(4, 'ab') }}", Kind::type},
    {"{{ ','.join([1]) }}", Kind::type},
    {"{{ ','.join(5) }}", Kind::type},
    {"{{ l.append(1) }}", Kind::tmpl},
    {"{{ l.append.x }}", Kind::tmpl},
    {"{{ l.pop() }}", Kind::tmpl},
    {"{{ d.update({}) }}", Kind::tmpl},
    {"{{ d.pop('b') }}", Kind::tmpl},
    {"{{ s.__class__.x }}", Kind::tmpl},
    {"{{ s.__class__() }}", Kind::tmpl},
    {"{{ l.index(99) }}", Kind::type},
    {"{{ s.upper(1) }}", Kind::type},
    {"{{ s.replace('a') }}", Kind::type},
    {"{{ d.get() }}", Kind::type},
    {"{{ l|sort }} {{ w|sort }} {{ w|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ "
     "m|sort(attribute='role')|map(attribute='content')|list }} {{ m|sort(attribute='role,content') }}",
     Kind::type},
    {"{{ [1,'a']|sort }}", Kind::type},
    {"{{ ['a']|sum }}", Kind::type},
    {"{{ 5|join }}", Kind::type},
    {"{{ 5|length }}", Kind::type},
    {"{{ none|length }}", Kind::type},
    {"{{ missing|default('x') }} {{ ''|default('x') }}| {{ ''|default('x', true) }} {{ none|default('x') }} {{ "
     "none|d('x', boolean=true) }} {{ missing|d }}| {{ missing.x|default('y') }}",
     Kind::undefined},
    {"{{ missing|int }}", Kind::undefined},
    {"{{ 's'|abs }}", Kind::type},
    {"{{ 2.5|round(1, 'x') }}", Kind::tmpl},
    {"{{ 's'|round }}", Kind::type},
    {"{{ l|map|list }}", Kind::tmpl},
    {"{{ true|map('abs')|list }}", Kind::type},
    {"{{ 5|select|list }}", Kind::type},
    {"{{ l|map('nofilter')|list }}", Kind::tmpl},
    {"{{ m|selectattr('role', 'in', ['user'])|list|length }} {{ m|selectattr('nest.x')|list }}", Kind::undefined},
    {"{{ m|selectattr|list }}", Kind::tmpl},
    {"{{ l|select('notest')|list }}", Kind::tmpl},
    {"{{ (l|select('odd'))|length }}", Kind::type},
    {"{{ l|items|list }}", Kind::type},
    {"{{ l|dictsort }}", Kind::type},
    {"{{ {'b':1}|dictsort(by='x') }}", Kind::tmpl},
    {"{{ [[1]]|unique|list }}", Kind::type},
    {"{{ '%d' % 'a' }}", Kind::type},
    {"{{ '%s %s' % 1 }}", Kind::type},
    {"{{ '%s' % (1, 2) }}", Kind::type},
    {"{{ 'a' % 1 }}", Kind::type},
    {"{{ '{}'.format() }}", Kind::type},
    {"{{ '{'.format() }}", Kind::type},
    {"{{ '}'.format() }}", Kind::type},
    {"{{ '{x}'.format() }}", Kind::type},
    {"{{ '{:d}'.format('a') }}", Kind::type},
    {"{{ '{:d}'.format(1.5) }}", Kind::type},
    {"{{ missing|tojson }}", Kind::type},
    {"{{ {(1,2): 3}|tojson }}", Kind::type},
    {"{{ range(3)|tojson }}", Kind::type},
    {"{{ d.items()|tojson }}", Kind::type},
    {"{{ 's' is odd }}", Kind::type},
    {"{{ 1 is odd is even }}", Kind::syntax},
    {"{{ s|upper|lower|title }} {{ (s|upper).lower() }} {{ s|upper() }} {{ s | upper | length + 1 }} {{ -5|abs }} {{ 1 "
     "+ 2|string|length }} {{ 'a' ~ 'b'|upper }} {{ l|length > 2 and true }} {{ 2 * 3 ~ 'x' }} {{ 1 ~ 2 + 3 }}",
     Kind::type},
    {"{{ strftime_now(5) }}", Kind::type},
    {"{{ raise_exception('boo') }}", Kind::tmpl},
    {"{{ raise_exception(5) }}", Kind::tmpl},
    {"{{ foo(1) }}", Kind::undefined},
    {"{{ s(1) }}", Kind::type},
    {"{% for a, b in [[1,2,3]] %}{% endfor %}", Kind::type},
    {"{% for a, b in [[1]] %}{% endfor %}", Kind::type},
    {"{% for a, b in [1] %}{% endfor %}", Kind::type},
    {"{% for x in 5 %}{% endfor %}", Kind::type},
    {"{% for x in none %}{% endfor %}", Kind::type},
    {"{% set s.x = 1 %}", Kind::tmpl},
    {"{% set nope.x = 1 %}", Kind::tmpl},
    {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", Kind::type},
    {"{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", Kind::type},
    {"{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}", Kind::type},
    {"{% macro f() %}{% endmacro %}{% call f() %}x{% endcall %}", Kind::type},
    {"{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}", Kind::undefined},
    {"{% call s %}{% endcall %}", Kind::syntax},
    {"{# comment #}a{#- c -#} b {# x", Kind::syntax},
    {"{% for i in [1] %}{{ loop([2]) }}{% endfor %}", Kind::type},
    {"{% for i in l %}{{ loop.cycle() }}{% endfor %}", Kind::type},
    {"{% if missing %}a{% else %}b{% endif %}{% if missing.x %}{% endif %}", Kind::undefined},
    {"{% set x = [] %}{% set _ = x.append(1) %}{{ x }}", Kind::tmpl},
    {"{% do l %}", Kind::syntax},
    {"{{ none }}{{ None }}{{ True }}{{ False }}{{ true }}{{ 1 is None }}", Kind::syntax},
    {"{{ x.y.z }}", Kind::undefined},
    {"{{ x|upper }}| {{ x|trim }}| {{ x|list }} {{ x|first }} {{ x|tojson|default('a') }}", Kind::type},
};

TEST(Jinja, Errors) {
  for (const Failing& row : kFailing) {
    try {
      ADD_FAILURE() << row.source << " gave " << render(row.source, table_variables());
    } catch (const TemplateError& e) {
      EXPECT_EQ(e.kind(), row.kind) << row.source << ": " << e.what();
      EXPECT_GT(e.line(), 0) << row.source;
    }
  }
}

}  // namespace
}  // namespace braid::text
