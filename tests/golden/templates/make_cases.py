#!/usr/bin/env python3
"""Writes what jinja2 makes of the templates of this folder: for each conversation (cases.jsonl), and of each small
template (small.jsonl, whose sources stay what they are). See README.md."""
import datetime
import json
import pathlib
import traceback

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

HERE = pathlib.Path(__file__).resolve().parent
NOON = datetime.datetime(2026, 11, 26, 12, 0, 0)


class Generation(jinja2.ext.Extension):
    """{% generation %} blocks render what they hold."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOON.strftime
    return env


def user(text):
    return {"role": "user", "content": text}


def answer(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, id="call00001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "  Be brief.\n"}
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a place.\nIn °C.",
        "parameters": {"type": "object", "required": ["place"], "properties": {
            "place": {"type": "string", "description": "A <town>"},
            "unit": {"type": ["string", "null"], "enum": ["C", "F"]},
            "days": {"type": "array", "items": {"type": "integer"}, "default": [1, 2.5]},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}}}}}}},
    {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {
        "type": "object", "properties": {}}}},
]
ARGUMENTS = {"place": "Zürich \"am See\"", "days": [1, 2], "deep": {"a": None, "b": True, "c": 0.1, "d": 1e20}}
CASES = {
    "one": {"messages": [user("Hello, who are you?")]},
    "system": {"messages": [SYSTEM, user("Name a prime.")]},
    "turns": {"messages": [SYSTEM, user("Name a prime."), answer("7"), user("Another <|end|> one: \"x\" & 'y'")]},
    "closed": {"messages": [user("a"), answer("b")], "add_generation_prompt": False},
    "thoughts": {"messages": [user("2+2?"), answer("<think>\nTwo and two.\n</think>\n\n4"), user("3+3?"),
                              answer("6", reasoning_content="Three,\nthree.\n"), user("Next?")]},
    "no-thoughts": {"messages": [user("Count.")], "variables": {"enable_thinking": False}},
    "tools": {"messages": [SYSTEM, user("Weather?")], "tools": TOOLS},
    "calls": {"messages": [user("Weather?"), answer(None, tool_calls=[call("get_weather", ARGUMENTS), call(
        "now", {}, "call00002")]), {"role": "tool", "name": "get_weather", "tool_call_id": "call00001",
                                    "content": "{\"t\": -3.5}"},
        {"role": "tool", "name": "now", "tool_call_id": "call00002", "content": "12:00"}], "tools": TOOLS},
    "calls-done": {"messages": [user("Weather?"), answer("", tool_calls=[call("now", {})]),
                                {"role": "tool", "name": "now", "content": "noon"}, answer("It is noon."),
                                user("Thanks")], "tools": TOOLS},
    "parts": {"messages": [user([{"type": "text", "text": "What is "}, {"type": "image"},
                                 {"type": "text", "text": "this?"}])]},
    "bad-order": {"messages": [user("a"), user("b")]},
    "unicode": {"messages": [user("\u00a0ÄÖ straße \U0001F600\u200d! \u2028\t"), answer(" ΣΑΣ ñ "),
                             user("é\r\n\r\nx  ")]},
    "empty": {"messages": []},
}


def line_of(error):
    """The line of the template at which it failed."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    return getattr(error, "lineno", None) or lines[-1]


def make_small(env):
    path = HERE / "small.jsonl"
    first, *cases = [json.loads(line) for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        out.write(json.dumps(first, ensure_ascii=False) + "\n")
        for case in cases:
            line = {"source": case["source"]}
            try:
                line["text"] = env.from_string(case["source"]).render(**first["variables"])
            except Exception as error:
                line["error"] = f"{type(error).__name__}: {error}"[:100]
                line["line"] = line_of(error)
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def main():
    env = environment()
    make_small(env)
    with open(HERE / "cases.jsonl", "w", encoding="utf-8", newline="\n") as out:
        for path in sorted(HERE.glob("*.jinja")):
            template = env.from_string(path.read_bytes().decode())
            for name, case in CASES.items():
                line = {"template": path.name, "case": name, **case}
                variables = {"messages": case["messages"], "bos_token": "<s>", "eos_token": "</s>",
                             "add_generation_prompt": case.get("add_generation_prompt", True)}
                if "tools" in case:
                    variables["tools"] = case["tools"]
                variables.update(case.get("variables", {}))
                try:
                    line["text"] = template.render(**variables)
                except Exception as error:  # whatever Python raises, the template refuses
                    line["error"] = f"{type(error).__name__}: {error}"
                out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
