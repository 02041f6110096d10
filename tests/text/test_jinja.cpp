// text: the template language. What constructs give, the lines of errors, limits, and where characters came from.
#include "text/jinja/jinja.h"
#include "text/json_values.h"

#include <algorithm>
#include <array>

#include "tests/text/text_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
extern "C" {
#include <cmocka.h>
}

using namespace weir;

namespace {

constexpr int64_t kNoon = 1795694400;  // 2026-11-26 12:00

// A JSON object's entries as variables; all of them count as data but for "trusted".
struct Rendered {
  Rendered(std::string_view source, std::string_view variables, std::pmr::memory_resource* memory) : out(memory) {
    jinja::Template parsed(memory);
    status = parsed.parse(source);
    message = last_error_text();
    if (!status.ok()) return;
    jinja::Heap heap(memory);
    jinja::Value object;
    assert_true(jinja::read_json(heap, variables, "variables", object).ok());
    std::vector<jinja::Variable> list;
    for (const auto& entry : object.dict().entries) list.push_back({entry.key.view(), entry.value});
    list.push_back({"trusted", jinja::make_text(heap, "<|mark|>", false)});
    status = jinja::render(parsed, heap, list, kNoon, out);
    message = status.ok() ? "" : last_error_text();
  }

  // The text with [brackets] around what came from data.
  std::string marked() const {
    std::string text;
    size_t at = 0;
    for (const TextRange& range : out.said) {
      text.append(out.text, at, range.begin - at).append("[");
      text.append(out.text, range.begin, range.end - range.begin).append("]");
      at = range.end;
    }
    return text.append(out.text, at);
  }

  jinja::RenderedText out;
  Status status;
  std::string message;
};

Rendered render(std::string_view source, std::string_view variables = "{}") {
  return Rendered(source, variables, std::pmr::get_default_resource());
}

void expect(std::string_view source, std::string_view text, std::string_view variables = "{}") {
  const Rendered got = render(source, variables);
  if (got.out.text != text || !got.status.ok())
    fail_msg("%.*s\n  gives %s%s, not %.*s", static_cast<int>(source.size()), source.data(), got.out.text.c_str(),
             got.message.c_str(), static_cast<int>(text.size()), text.data());
}

void expect_error(std::string_view source, weir_status code, const char* text, std::string_view variables = "{}") {
  const Rendered got = render(source, variables);
  if (got.status.code() != code || got.message.find(text) == std::string::npos || !got.out.text.empty())
    fail_msg("%.*s\n  gives %d '%s', not %d '%s'", static_cast<int>(std::min<size_t>(source.size(), 200)),
             source.data(), got.status.code(), got.message.c_str(), code, text);
}

// What Python's jinja2 gives for each was looked up with it.
void jinja__white_space(void**) {
  expect("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc");
  expect("a\n  {%+ if true %}b{% endif +%}\nc", "a\n  b\nc");
  expect("a  {%- if true -%}  b  {%- endif -%}  c", "abc");
  expect("a {{- 1 -}} b\n", "a1b");
  expect("{# one #}\n{#- two -#}  x{# three +#}\ny", "x\ny");
  expect("a\r\n{{ 'b\r\nc' }}\rd\n\n", "a\nb\nc\nd\n");
  expect("  {{ 1 }}\n  {% set x = 1 %}  \n", "  1\n  ");
  expect("{{ {'a': {'b': 1}}['a']['b'] }}}", "1}");
}

void jinja__expressions(void**) {
  expect("{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }}",
         "3 -4 2 3.5 1024 0.5 4");
  expect("{{ 1 ~ 3 * 2 }} {{ 'a' 'b' ~ none }} {{ 1 < 2 < 3 }} {{ not 1 in [1] }} {{ 1 not in [2] }}",
         "16 abNone True False True");
  expect("{{ 'x' if false }}|{{ 'x' if 0 else 'y' }}|{{ 1 and [] or 'z' }}", "|y|z");
  expect("{{ 'abcde'[1:-1] }} {{ 'abc'[::-1] }} {{ [1,2,3,4][::2] }} {{ (1,2)[-1] }} {{ 'äöü'[1] }} {{ 'a'[5] }}",
         "bcd cba [1, 3] 2 ö ");
  expect("{{ [1, 'a', none, true, 1.5, (1,), {'k': \"it's\"}] }}", "[1, 'a', None, True, 1.5, (1,), {'k': \"it's\"}]");
  expect("{{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 123456789.5 }} {{ 1.5e3 }}",
         "1.0 1e+16 1e-05 0.30000000000000004 1e+22 123456789.5 1500.0");
  expect("{{ '\\u00e9\\n\\x41\\'' }}{{ \"\\d\" }}", "é\nA'\\d");
  expect("{{ 1 == 1.0 }} {{ 1 == true }} {{ 'a' == 1 }} {{ [1] == [1.0] }} {{ {'a': 1} == {'a': 1} }} {{ x == y }}",
         "True True False True True True");
  expect("{{ 'a' * 3 }} {{ [1] + [2] }} {{ 'a' in 'cat' }} {{ 'k' in {'k': 1} }}", "aaa [1, 2] True True");
  expect("{{ '%s is %d %5.2f %r %03d' % ('x', 3, 1.5, 'q', -7) }} {{ '{}-{}{k}{{}}'.format(1, 2, k=3) }}",
         "x is 3  1.50 'q' -07 1-23{}");
}

void jinja__statements(void**) {
  expect(
      "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ loop.index }}{{ k }}{{ v }}{% if not loop.last %},{% endif %}"
      "{% endfor %}",
      "1a1,2b2");
  expect(
      "{% for x in [1,2,3,4] if x is even %}{{ loop.length }}{{ x }}{% else %}none{% endfor %}"
      "{% for x in [] %}{% else %}none{% endfor %}",
      "2224none");
  expect(
      "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x }}"
      "{% endfor %}",
      "013");
  // As in jinja2, the other block follows where no pass came to its end.
  expect(
      "{% for x in [1, 2] %}{% continue %}{% else %}e{% endfor %}{% for x in [1] %}{% break %}{% else %}f{% endfor %}",
      "ef");
  expect("{% for x in [1,[2,[3]]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}", "123");
  expect("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "21");
  expect("{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "3");
  expect("{% set a, b = 1, 'z' %}{% set c %}<{{ a }}>{% endset %}{% set d | upper %}q{% endset %}{{ b ~ c ~ d }}",
         "z<1>Q");
  expect(
      "{% macro m(a, b='d', c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
      "{{ m(1) }} {{ m(1, c=3) }} {{ m(*[1, 2], **{'c': 3}) }}",
      "1dd 1d3 123");
  expect("{% macro m() %}[{{ caller('x') }}]{% endmacro %}{% call(v) m() %}{{ v }}!{% endcall %}", "[x!]");
  // A macro keeps the variables of the pass that it was made in.
  expect(
      "{% set ns = namespace(m=none) %}{% for x in [1, 2] %}{% if x == 1 %}{% macro m() %}{{ x }}{% endmacro %}"
      "{% set ns.m = m %}{% endif %}{% endfor %}{{ ns.m() }}",
      "1");
  expect("{% filter upper %}a{{ 'b' }}{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "AB3");
  expect("{% generation %}{{ 'x' }}{% endgeneration %}", "x");
  expect(
      "{% for x in 'ab' %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.revindex }}{{ loop.cycle('o', 'e') }}"
      "{% endfor %}",
      "b2oa1e");
}

void jinja__filters_and_tests(void**) {
  expect("{{ d | tojson }} {{ d | tojson(indent=2) }} {{ d | tojson(separators=(',', ':'), sort_keys=true) }}",
         "{\"b\": [1, 2.0, null], \"a\": \"é<\\\"\"} {\n  \"b\": [\n    1,\n    2.0,\n    null\n  ],\n  \"a\": "
         "\"é<\\\"\"\n} {\"a\":\"é<\\\"\",\"b\":[1,2.0,null]}",
         R"({"d": {"b": [1, 2.0, null], "a": "é<\""}})");
  expect("{{ n }} {{ l | tojson }} {{ n is number }} {{ n is integer }} {{ n == l[0] }} {{ n == 1 }} {{ 1 if n }}",
         "123456789012345678901 [123456789012345678901, -18446744073709551616] True True True False 1",
         R"({"n": 123456789012345678901, "l": [123456789012345678901, -18446744073709551616]})");
  expect_error("{{ n + 1 }}", WEIR_ERR_FORMAT, "unsupported operand types for +: 'int' and 'int'",
               R"({"n": 123456789012345678901})");
  expect("{{ {'B': 1, 'a': 2} | dictsort }} {{ ['b', 'A', 'c'] | sort | join(',') }} {{ [3, 1] | sort(reverse=true) }}",
         "[('a', 2), ('B', 1)] A,b,c [3, 1]");
  expect(
      "{{ m | map(attribute='r') | join('-') }} {{ m | selectattr('r', 'equalto', 'u') | list | length }} "
      "{{ m | rejectattr('x', 'defined') | map(attribute='r') | first }}",
      "s-u 1 u", R"({"m": [{"r": "s", "x": 1}, {"r": "u"}]})");
  expect("{{ [{'a': 1}, {'a': 2}] | sort(attribute='none') | map(attribute='a') | list }}", "[1, 2]");
  expect("{{ x | default('d') }} {{ '' | default('d') }} {{ '' | default('d', true) }} {{ 'aXb' | lower | title }}",
         "d  d Axb");
  expect("{{ 'a b' | replace('a', 'c') | upper | trim }} {{ ' x ' | trim }} {{ 'ab\ncd' | indent(2) }}",
         "C B x ab\n  cd");
  expect("{{ '3.7' | float | int }} {{ 'x' | int(5) }} {{ 2.5 | round }} {{ 2.567 | round(2) }} {{ [1, 2] | sum }}",
         "3 5 2.0 2.57 3");
  expect(
      "{{ x is defined }} {{ none is none }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is sequence }} "
      "{{ 3 is divisibleby 3 }} {{ 1 is not number }} {{ 2 is in [1, 2] }}",
      "False True True True True True False True");
  expect(
      "{{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ 'xabx'.strip('x') }} {{ 'aaa'.rsplit('aa') }} "
      "{{ 'a-b'.partition('-') }} {{ 'abc'.startswith(('x', 'a')) }} {{ ' a b '.split(none, 1) }}",
      "['a', 'b,c'] ['a', 'b'] ab ['a', ''] ('a', '-', 'b') True ['a', 'b ']");
  expect("{{ strftime_now('%d %b %Y, %A %H:%M') }}", "26 Nov 2026, Thursday 12:00");
  expect("{{ strftime_now('%F|%%F|%%%T|%R') }}", "2026-11-26|%F|%12:00:00|12:00");
  expect("{{ 'straße éa'.upper() }} {{ 'ÄÖ'.lower() }} {{ 'a\xE2\x80\x8B'.split() }}", "STRASSE ÉA äö ['a\\u200b']");
}

void jinja__errors_name_their_line(void**) {
  expect_error("a\n{{ raise_exception('no ' ~ 'way') }}", WEIR_ERR_INVALID_ARG, "chat template, line 2: no way");
  expect_error("\n\n{{ x.y.z }}", WEIR_ERR_FORMAT, "line 3: 'x' is undefined");
  expect_error("{{ m.y.z }}", WEIR_ERR_FORMAT, "line 1: there is no attribute 'y'", R"({"m": {}})");
  expect_error("{% if x %}\n{% else %}\n", WEIR_ERR_FORMAT, "line 2: expected endif");
  expect_error("\n{% for x %}{% endfor %}", WEIR_ERR_FORMAT, "line 2: expected in");
  expect_error("{{ 'a' + 1 }}", WEIR_ERR_FORMAT, "can only concatenate str (not \"int\") to str");
  expect_error("{{ 'a' }}\n{{ [1].append(2) }}", WEIR_ERR_FORMAT, "line 2: there is no attribute 'append'");
  expect_error("{{ 'a' | nothing }}", WEIR_ERR_FORMAT, "there is no filter 'nothing'");
  expect_error("{% include 'x' %}", WEIR_ERR_FORMAT, "the tag 'include' is not known here");
  expect_error("{{ 'a }}", WEIR_ERR_FORMAT, "a string has no end");
  expect_error("{{ (1 }}", WEIR_ERR_FORMAT, "unexpected '}'");
  expect_error("\n{{ 1 ", WEIR_ERR_FORMAT, "line 2: a tag has no end");
  expect_error("{# x", WEIR_ERR_FORMAT, "a comment has no end");
  expect_error("{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}", WEIR_ERR_FORMAT,
               "macro 'm' takes 1 arguments, not these");
  expect_error("{{ 1 // 0 }}", WEIR_ERR_FORMAT, "division by zero");
  expect_error("{{ 9223372036854775807 + 1 }}", WEIR_ERR_FORMAT, "more than 64 bits");
  expect_error("{{ [1, 'a'] | sort }}", WEIR_ERR_FORMAT, "cannot be ordered");
  expect_error("{% break %}", WEIR_ERR_FORMAT, "outside of a loop");
  // What Jinja has and no model's template needs is refused, not guessed at.
  expect_error("\n{% raw %}{% endraw %}", WEIR_ERR_FORMAT, "line 2: the tag 'raw' is not known here");
  expect_error("{{ 'a' | truncate(3) }}", WEIR_ERR_FORMAT, "there is no filter 'truncate'");
  expect_error("{{ 'a'.expandtabs() }}", WEIR_ERR_FORMAT, "there is no attribute 'expandtabs'");
  expect_error("{{ cycler(1) }}", WEIR_ERR_FORMAT, "'cycler' is undefined");
  expect_error("{{ 0x1F }}", WEIR_ERR_FORMAT, "a number cannot be read");
  expect_error("{{ '%e' % 1.5 }}", WEIR_ERR_FORMAT, "the format 'e' is not supported for 'float'");
  expect_error("{{ '{:>5}'.format('a') }}", WEIR_ERR_FORMAT, "format: there is no argument ':>5'");
  for (const char* index : {"1", "18446744073709551614", "18446744073709551615", "18446744073709551616"})
    expect_error("{{ '{" + std::string(index) + "}'.format('a') }}", WEIR_ERR_FORMAT, "there is no argument");
  expect_error("{{ '99999999999999999999' | int }}", WEIR_ERR_FORMAT, "integers beyond 64 bits are not supported");
  expect_error("{{ 1e20 | int }}", WEIR_ERR_FORMAT, "integers beyond 64 bits are not supported");
  expect_error("{{ [0] * 'a' }}", WEIR_ERR_FORMAT, "unsupported operand types for *: 'list' and 'str'");
  expect_error("{{ '\\N{BULLET}' }}", WEIR_ERR_FORMAT, "a string has a bad escape");
  expect_error("{{ strftime_now('%V') }}", WEIR_ERR_FORMAT, "the format %V is not supported");
  expect_error("{{ '\u65e5'.isalpha() }}", WEIR_ERR_FORMAT, "U+65E5");
  // What a function takes is checked once, by its table.
  expect_error("{{ 'a'.split(1) }}", WEIR_ERR_FORMAT, "split() takes no int");
  expect_error("{{ 'a'.split(',', 1, 2) }}", WEIR_ERR_FORMAT, "split() got an argument that it does not take");
  expect_error("{{ 'a'.split(',', sep=',') }}", WEIR_ERR_FORMAT, "split() got wrong arguments");
  expect_error("{{ 'a' | replace('b') }}", WEIR_ERR_FORMAT, "replace() got wrong arguments");
  expect_error("{{ 'a' | round }}", WEIR_ERR_FORMAT, "round() takes no str");
  expect_error("{{ x | dictsort }}", WEIR_ERR_FORMAT, "'x' is undefined");
}

std::string repeated(std::string_view text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

void jinja__bombs_end(void**) {
  const auto is_refused = [](const std::string& source, const char* text) {
    expect_error(source, WEIR_ERR_UNSUPPORTED, text);
  };
  is_refused("{% for a in range(1000000000) %}{% endfor %}", "range() makes at most");
  is_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "runs for too long");
  is_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply");
  is_refused("{{ 'abcdefgh' * 1000000000 }}", "too long");
  is_refused("{% set ns = namespace(x='abcdefgh') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
             "too long");
  is_refused("{% for i in range(99999) %}" + repeated("x", 9999) + "{% endfor %}", "too long");
  is_refused("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
             "the template");
  is_refused("{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
             "nested too deeply");
  is_refused(
      "{% set ns = namespace(x=[]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
      "the template");
  is_refused(
      "{% set ns = namespace(x=1) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}"
      "{{ ns.x | tojson }}",
      "nested too deeply");
  is_refused("{{ 1" + repeated(" + 1", 2000) + " }}", "nested too deeply");
  expect_error("{{ " + repeated("(", 500) + repeated(")", 500) + " }}", WEIR_ERR_FORMAT, "nested too deeply");
  expect_error(repeated("{% if 1 %}", 500), WEIR_ERR_FORMAT, "nested too deeply");
  expect_error("{{ " + repeated("- ", 500) + "1 }}", WEIR_ERR_FORMAT, "nested too deeply");
  expect_error(repeated("x", 300'000), WEIR_ERR_UNSUPPORTED, "262144 is the most");
  // Searching and comparing large texts counts, too.
  const std::string large = "{% set a = 'aaaaaaaaaa' * 100 * 3000 %}{% set b = a ~ 'b' %}{% set l = [a] * 99999 %}";
  for (const char* bomb :
       {"{{ (a * 2).find(b) }}", "{{ b in a * 2 }}", "{{ (a * 2).split(b) | length }}", "{{ (a * 2).count(b) }}",
        "{{ l | sort(case_sensitive=true) | length }}", "{{ l.count(a) }}", "{{ l | unique(true) | list | length }}"})
    is_refused(large + bomb, "runs for too long");
  // So does comparing texts of the template itself, also where they are in lists.
  const std::string one = "'" + repeated("x", 100'000) + "'", lists = "[a, a, a] == [b, b, b]";
  for (const std::string& compared : {std::string("a == b"), std::string("a < b"), lists})
    is_refused("{% set a = " + one + " %}{% set b = " + one + " %}{% for i in range(99999) %}{% if " + compared +
                   " %}{% endif %}{% endfor %}",
               "runs for too long");
  const auto as_key = [](const std::string& tuple, const char* then) {
    return "{% set ns = namespace(x=()) %}{% for i in range(99999) %}{% if i < 99 %}{% set ns.x = " + tuple +
           " %}{% endif %}{% set ns.y = (ns.y,) %}{% endfor %}" + then;
  };
  is_refused(as_key("ns.x", "{{ {ns.y: 1} | length }}"), "nested too deeply");
  is_refused(as_key("(ns.x, ns.x)", "{{ {ns.x: 1} | length }}"), "runs for too long");
  is_refused(as_key("(ns.x, ns.x)", "{{ {}.get(ns.x) }}"), "runs for too long");
  is_refused("{% set l = [1] * 3000000 %}{% for i in range(99999) %}{% if l | length %}{% endif %}{% endfor %}",
             "runs for too long");
  expect_error("{{ strftime_now('%F' * 1000) }}", WEIR_ERR_FORMAT, "line 1: strftime_now: the format has more than");
  // Long chains of objects and circles of them go without a deep recursion or a leak.
  expect("{% set ns = namespace(x=none) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ 1 }}", "1");
  expect("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a.b.a.b is defined }}", "True");
}

// What one rendering takes is nothing that another one lacks.
void jinja__renderings_change_no_template(void**) {
  const std::string text = "'" + repeated("x", 100'000) + "'";
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
  jinja::Template parsed(memory);
  const std::string equals = text + " == " + text;
  assert_true(parsed.parse("{% for i in range(9999) %}{% if not " + equals + " %}0{% endif %}{% endfor %}1").ok());
  for (int i = 0; i < 5; ++i) {
    jinja::Heap heap(memory);
    jinja::RenderedText out(memory);
    assert_true(jinja::render(parsed, heap, {}, kNoon, out).ok());
    assert_string_equal(out.text.c_str(), "1");
  }
}

void jinja__memory_comes_from_the_resource(void**) {
  std::pmr::set_default_resource(std::pmr::null_memory_resource());
  HostMemory memory({});
  {
    const Rendered got(
        "{% macro m(a) %}{{ a | upper | tojson }}{{ varargs }}{{ kwargs }}{% endmacro %}{% for x in l | sort %}"
        "{{ m(x, x, k=x) ~ x.split(',') }}{{ '%s' % x }}{{ '%(k)-5s' | format(k=x) }}{{ '{k}{}'.format(x, k=x) }}"
        "{{ [{'k': x}] | map(attribute='k', default=x) | list }}{{ [{'k': x}] | sort(attribute='k,k') }}"
        "{{ [{'k': x}] | groupby('k') }}{{ [x] | map('replace', 'a', x) | unique | list }}{{ x.rpartition(' ') }}"
        "{{ [x] | select('in', [x]) | batch(1, x) | list }}{{ {x: 1} | dictsort | tojson(sort_keys=true) }}"
        "{{ x.replace('o', x) | indent(x) | trim(x) }}{{ strftime_now('%c%d %B') if false }}{% endfor %}",
        R"({"l": ["a long enough text, for the heap", "another long text of the list"]})", &memory);
    assert_true(got.status.ok());
    assert_true(memory.n_allocs() > 0);
  }
  std::pmr::set_default_resource(nullptr);
  assert_int_equal(memory.bytes(), 0);
}

void jinja__every_refused_allocation(void**) {
  struct Limited final : std::pmr::memory_resource {
    void* do_allocate(size_t bytes, size_t alignment) override {
      if (left == 0) throw std::bad_alloc();
      --left;
      ++n_alive;
      return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    }
    void do_deallocate(void* ptr, size_t bytes, size_t alignment) override {
      --n_alive;
      std::pmr::new_delete_resource()->deallocate(ptr, bytes, alignment);
    }
    bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
    size_t left = 0;
    int64_t n_alive = 0;
  };
  bool is_done = false;
  for (size_t n = 0; !is_done; ++n) {
    Limited memory;
    memory.left = n;
    try {
      const Rendered got(
          "{% set ns = namespace(l=[]) %}{% for x in l %}{% set ns.l = ns.l + [x ~ x] %}{% endfor %}{{ ns.l | "
          "tojson(indent=2) }}{{ ns.l | map('upper') | join(',') }}{% set ns.self = ns %}",
          R"({"l": ["a long enough text, for the heap", {"a": [1]}]})", &memory);
      is_done = got.status.ok();
    } catch (const std::bad_alloc&) {
    }
    assert_int_equal(memory.n_alive, 0);
    assert_true(n < 10'000);
  }
}

void jinja__characters_keep_their_origin(void**) {
  const auto expect_marks = [](std::string_view source, std::string_view marked) {
    const Rendered got = render(source, R"({"x": "da,ta", "n": 5, "l": ["p", {"q": 1}], "s": "  pad  "})");
    if (got.marked() != marked)
      fail_msg("%.*s\n  gives %s%s, not %.*s", static_cast<int>(source.size()), source.data(), got.marked().c_str(),
               got.message.c_str(), static_cast<int>(marked.size()), marked.data());
  };
  expect_marks("<{{ x }}>{{ trusted }}", "<[da,ta]><|mark|>");
  expect_marks("{{ 'a' + x ~ 'b' }}", "a[da,ta]b");
  expect_marks("{{ ('a' + x)[0:3] }}{{ ('<' + x + '>') | upper }}", "a[da]<[DA,TA]>");
  expect_marks("{{ x.split(',') | join('<|end|>') }}", "[da]<|end|>[ta]");
  expect_marks("{{ ('<' ~ x ~ '>').split(',')[1] }}", "[ta]>");
  expect_marks("{{ x.replace(',', '<|>') }}{{ 'a-b' | replace('-', x) }}", "[da]<|>[ta]a[da,ta]b");
  expect_marks("{{ s | trim }}{{ ('<' + s).rstrip() }}{{ s.strip() + '!' }}", "[pad]<[  padpad]!");
  expect_marks("{{ l | tojson }}{{ ['a'] | tojson }}{{ l }}", "[[\"p\", {\"q\": 1}]][\"a\"][['p', {'q': 1}]]");
  expect_marks("{{ n }}{{ n + 1 }}{{ 1 + 1 }}{{ x | length }}", "[56]2[5]");
  expect_marks("{{ '%s|%s' % (x, 'c') }}{{ '{}<{}>'.format(n, x) }}", "[da,ta]|c[5]<[da,ta]>");
  expect_marks("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) | trim }}", "<[da,ta]>");
  expect_marks("{% set b %}<{{ x }}>{% endset %}{{ b }}{% if x == 'da,ta' %}same{% endif %}", "<[da,ta]>same");
  expect_marks("{% for k, v in l[1].items() %}{{ k }}={{ v }}{% endfor %}", "[q]=[1]");
  expect_marks("{% set n = namespace(a=x) %}{{ n }}{{ '%-7s|' % x }}", "[<Namespace {'a': 'da,ta'}>da,ta]  |");
  expect_marks("{{ ('<' ~ x).partition(',')[0] }}{{ ('a,' ~ x).rsplit(',', 1)[0] }}", "<[da]a,[da]");
  expect_marks("{% macro m() %}{{ varargs[0] }}{{ kwargs.k }}{% endmacro %}{{ m(x, k='<' ~ x) }}", "[da,ta]<[da,ta]");
  expect_marks("{{ (x ~ '!') | title }}{{ [x, 'a'] | join | capitalize }}{{ x[::-1] }}", "[Da,ta]![Da,ta]a[at,ad]");
}

// Steps follow the size of what is made: lists and texts as large as those of real tools are no bombs.
void jinja__large_values_are_no_bombs(void**) {
  const std::string lines = "{{ (s * 30000)", list = "{{ ([[1, 'ab']] * 30000)";
  const std::string_view s = R"({"s": "ab\n"})";
  expect(lines + ".replace('\n', '<br>') | length }}", "180000", s);
  expect(lines + " | indent(2) | length }}", "149998", s);
  expect(lines + ".split('\n') | join(', ') | length }}", "120000", s);
  expect(list + " | tojson | length }}", "330000");
  expect(list + " | tojson(indent=1) | length }}", "570002");
}

void jinja__reads_names(void**) {
  jinja::Template parsed(std::pmr::get_default_resource());
  assert_true(parsed.parse("{% if enable_thinking is defined and tools %}{{ x.y }}{% endif %}").ok());
  assert_true(parsed.reads("enable_thinking"));
  assert_true(parsed.reads("tools"));
  assert_false(parsed.reads("y"));
  assert_false(parsed.reads("documents"));
}

void jinja__json_is_strict(void**) {
  jinja::Heap heap(std::pmr::get_default_resource());
  jinja::Value value;
  const auto is_read = [&](std::string_view text) { return jinja::read_json(heap, text, "json", value).ok(); };
  assert_true(is_read(" {\"a\": [1, -0.5e3, \"\\u00e9\\ud83d\\ude00\", true, null], \"a\": {}} "));
  assert_true(value.dict().entries.size() == 1 && value.dict().find("a")->is_dict());
  for (const char* bad :
       {"",        "{",           "[1,]", "{\"a\":1,}", "01",       "1.",     ".5", "+1",  "'a'", "\"\n\"",
        "\"\\x\"", "\"\\ud800\"", "nul",  "1 2",        "\"\xff\"", "{1: 2}", "[1", "\"a", "NaN", "1 2 3"}) {
    if (is_read(bad)) fail_msg("%s was read", bad);
    assert_non_null(strstr(last_error_text(), "json, line "));
  }
  assert_false(is_read(repeated("[", 100'000)));
  assert_non_null(strstr(last_error_text(), "nested too deeply"));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(jinja__white_space),
      cmocka_unit_test(jinja__expressions),
      cmocka_unit_test(jinja__statements),
      cmocka_unit_test(jinja__filters_and_tests),
      cmocka_unit_test(jinja__errors_name_their_line),
      cmocka_unit_test(jinja__bombs_end),
      cmocka_unit_test(jinja__renderings_change_no_template),
      cmocka_unit_test(jinja__memory_comes_from_the_resource),
      cmocka_unit_test(jinja__every_refused_allocation),
      cmocka_unit_test(jinja__characters_keep_their_origin),
      cmocka_unit_test(jinja__large_values_are_no_bombs),
      cmocka_unit_test(jinja__reads_names),
      cmocka_unit_test(jinja__json_is_strict),
  };
  return cmocka_run_group_tests_name("text/jinja", tests, nullptr, nullptr);
}
