#!/usr/bin/env python3
# weir serve over HTTP, with Python's standard library: addresses, fields of requests and errors, sessions, events.
import json
import os
import shutil
import sys
import tempfile
import threading
import time

from server_test import MODEL_ID, NO_SPACE, Server, Stream, chat_body, endless, error_of, model_with_template, run_all

FOLDER = tempfile.mkdtemp(prefix="weir-server-")

# Thoughts and calls are text with these tags, so that the tiny model can be made to write both.
TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is true %}<mm:think>{% endif %}{% endif %}{# </mm:think> #}")
TOOLS = [
    {"type": "function", "function": {"name": "get_time", "parameters": {
        "type": "object", "properties": {"zone": {"enum": ["UTC", "local"]}}, "required": ["zone"],
        "additionalProperties": False}}},
    {"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"const": 7}}, "required": ["a"], "additionalProperties": False}}}]

server = None  # of most tests


def test_addresses():
    status, headers, page = server.ask("GET", "/")
    assert status == 200 and page.startswith(b"<!"), page[:80]
    csp = headers["Content-Security-Policy"]
    for part in ("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:",
                 "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
        assert part in csp, csp
    assert "unsafe" not in csp
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert server.get("/health") == {"status": "ok", "sessions": 2, "waiting": 0}
    models = server.get("/v1/models")
    assert models["object"] == "list" and models["data"][0]["id"] == MODEL_ID
    assert server.get("/v1/models/" + MODEL_ID)["object"] == "model"
    model = server.get("/v1/weir/model")
    for key in ("id", "file", "architecture", "name", "parameters", "weight_bytes", "context_tokens",
                "trained_context_tokens", "device", "threads", "version", "chat", "machine", "saves"):
        assert key in model, key
    assert model["file"] == MODEL_ID + ".gguf" and model["parameters"] == 13228416
    assert model["saves"] is True
    assert set(model["chat"]) == {"has_template", "has_thoughts", "has_tools", "has_thinking_switch"}
    assert model["machine"]["memory_bytes"] > model["machine"]["available_bytes"] > 0
    for path in ("/nothing", "/v1/nothing", "/../etc/passwd", "/js/../../CMakeLists.txt", "/%2e%2e/%2e%2e/etc/passwd",
                 "/v1/models/other", "/index.html/", "//etc/passwd"):
        status, headers, answer = server.ask("GET", path)
        assert status == 404, (path, status)
        assert answer["error"]["type"] == "not_found_error"
        assert "Content-Security-Policy" in headers
    assert server.ask("PUT", "/health")[0] == 405
    assert server.ask("GET", "/v1/chat/completions")[0] == 404
    assert server.ask("HEAD", "/health")[0] == 200


def test_chat():
    a = server.chat()
    assert a["object"] == "chat.completion" and a["model"] == MODEL_ID and a["id"].startswith("chatcmpl-")
    choice = a["choices"][0]
    assert choice["finish_reason"] == "length" and choice["message"]["role"] == "assistant"
    usage = a["usage"]
    assert usage["completion_tokens"] == 8 and usage["total_tokens"] == usage["prompt_tokens"] + 8
    assert usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    again = server.chat()
    assert again["choices"][0]["message"]["content"] == choice["message"]["content"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 1
    whole = server.chat(max_tokens=200)
    assert whole["choices"][0]["finish_reason"] == "stop", whole
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    b = server.post("/v1/chat/completions", chat_body(messages=[{"role": "user", "content": parts}]))
    assert b["choices"][0]["message"]["content"] == choice["message"]["content"]


def test_stream():
    whole = server.chat(max_tokens=20)["choices"][0]["message"]["content"]
    s = server.stream("/v1/chat/completions", chat_body(max_tokens=20, stream_options={"include_usage": True},
                                                        weir={"conversation": "talk 1"}))
    assert s.response.getheader("Content-Type").startswith("text/event-stream")
    chunks = [data for _, data in s.events()]
    assert chunks[-1] == "[DONE]"
    chunks = chunks[:-1]
    assert len({c["id"] for c in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    first = chunks[0]["weir"]
    assert first["conversation"] == "talk 1" and first["session"] in (0, 1)
    assert 0 < first["cached_tokens"] <= first["prompt_tokens"]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert text == whole, (text, whole)
    last = [c for c in chunks if c["choices"] and c["choices"][0]["finish_reason"]]
    assert len(last) == 1 and last[0]["choices"][0]["finish_reason"] == "stop"
    assert set(last[0]["weir"]) == {"tokens_per_second", "kv_bytes", "kv_budget_bytes", "dense_bytes",
                                    "recalled_pages", "dropped_pages", "stop_string"}
    assert last[0]["weir"]["kv_bytes"] > 0
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 17
    assert all(c["usage"] is None for c in chunks[:-1])
    s = server.stream("/v1/chat/completions", chat_body(max_tokens=2))
    assert all("usage" not in c for _, c in s.events() if c != "[DONE]")


def test_fields_of_chat():
    base = server.chat(max_tokens=12)["choices"][0]["message"]["content"]

    def content(**fields):
        return server.chat(**dict({"max_tokens": 12}, **fields))["choices"][0]["message"]["content"]

    assert content(max_completion_tokens=3) == server.chat(max_tokens=3)["choices"][0]["message"]["content"]
    word = base.split()[2]
    stopped = server.chat(max_tokens=12, stop=word)
    assert stopped["choices"][0]["finish_reason"] == "stop" and stopped["weir"]["stop_string"] == word
    assert stopped["choices"][0]["message"]["content"] == base[:base.index(word)]
    assert content(stop=["nothing of this", word]) == base[:base.index(word)]
    assert content(seed=5, temperature=1.5) == content(seed=5, temperature=1.5)
    assert content(seed=-1, temperature=0) == base
    wild = {"min_p": 0, "repeat_penalty": 1}
    draws = {server.chat("zzz", temperature=2, seed=i, weir=wild)["choices"][0]["message"]["content"] for i in range(6)}
    assert len(draws) > 1, draws
    assert content(temperature=2, top_p=0.0001, seed=1) == base
    for seed in range(3):
        assert content(temperature=2, top_p=0, seed=seed, weir=wild) == content(weir=wild)
    assert content(temperature=2, weir={"top_k": 1}) == base
    assert content(temperature=2, weir={"min_p": 0.9999}, seed=1) == base
    several = server.chat("zzz", n=3, temperature=2, seed=1, weir=wild, logit_bias={"1630": -100})
    assert [c["index"] for c in several["choices"]] == [0, 1, 2]
    assert len({c["message"]["content"] for c in several["choices"]}) > 1
    assert several["usage"]["completion_tokens"] == 24
    lp = server.chat(logprobs=True, top_logprobs=3, max_tokens=4)
    entries = lp["choices"][0]["logprobs"]["content"]
    assert len(entries) == 4
    for e in entries:
        assert e["logprob"] <= 0 and len(e["top_logprobs"]) == 3
        assert e["top_logprobs"][0]["token"] == e["token"]  # greedy
        assert bytes(e["bytes"]).decode(errors="replace") == e["token"]
    assert "".join(e["token"] for e in entries) == lp["choices"][0]["message"]["content"]
    # A token that was drawn is among the most probable ones, or behind them.
    drawn = server.chat("zzz", logprobs=True, top_logprobs=1, temperature=2, seed=1, weir=wild, max_tokens=30,
                        logit_bias={"1630": -100})["choices"][0]["logprobs"]["content"]
    assert all(any(t["token"] == e["token"] for t in e["top_logprobs"]) for e in drawn), drawn
    assert any(len(e["top_logprobs"]) == 2 for e in drawn)
    raw = server.post("/v1/completions", {"prompt": "zzz", "logprobs": 1, "temperature": 2, "seed": 1, "weir": wild,
                                          "max_tokens": 30})["choices"][0]["logprobs"]
    assert all(token in top for token, top in zip(raw["tokens"], raw["top_logprobs"])), raw
    plain = server.chat(logprobs=True, max_tokens=2)["choices"][0]["logprobs"]["content"]
    assert len(plain) == 2 and plain[0]["top_logprobs"] == []
    assert server.chat(max_tokens=2)["choices"][0]["logprobs"] is None
    # What a stop string takes from the text it takes from the tokens, too: " me" is read before it is known for one.
    whole = server.chat(max_tokens=12)["choices"][0]["message"]["content"]
    stop = " " + " ".join(whole.split()[2:4])
    cut = server.chat(max_tokens=12, stop=stop, logprobs=True)["choices"][0]
    said = "".join(e["token"] for e in cut["logprobs"]["content"])
    assert said == cut["message"]["content"] == whole[:whole.index(stop)], (said, cut, stop)
    assert content(logit_bias={"5": 0}) == base
    forbidden = content(logit_bias={str(i): -100 for i in range(200)})
    assert forbidden != base
    # The same prompt as plain text.
    prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    raw = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0})
    assert raw["choices"][0]["text"] == base
    assert content(presence_penalty=2, frequency_penalty=2) != "" and content(presence_penalty=0) == base
    assert content(weir={"repeat_penalty": 1}) == base
    assert content(user="me", metadata={"a": "b"}, store=False, service_tier="auto", modalities=["text"],
                   safety_identifier="x", prompt_cache_key="y", parallel_tool_calls=True, tool_choice="none") == base
    assert content(model=MODEL_ID) == base
    assert content(stop=None, seed=None, n=None, tools=None, response_format={"type": "text"}) == base


def test_format():
    schema = {"type": "object", "properties": {"name": {"enum": ["Anna", "Otto"]}, "age": {"type": "integer",
              "minimum": 1, "maximum": 99}}, "required": ["name", "age"], "additionalProperties": False}
    a = server.chat(max_tokens=300, logit_bias=NO_SPACE, weir={"thinking_budget": 4}, response_format={
        "type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}})
    value = json.loads(a["choices"][0]["message"]["content"])
    assert value["name"] in ("Anna", "Otto") and 1 <= value["age"] <= 99
    assert a["choices"][0]["finish_reason"] == "stop"
    error = error_of(server, "/v1/chat/completions", chat_body(response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "not": {}}}}))
    assert error["param"] == "response_format"
    b = server.chat(max_tokens=100, temperature=1, seed=3, response_format={"type": "json_object"})
    if b["choices"][0]["finish_reason"] == "stop":
        assert isinstance(json.loads(b["choices"][0]["message"]["content"]), dict)
    else:
        assert b["choices"][0]["message"]["content"][:1] in ("", "{")
    # Nothing of it stays behind.
    assert not server.chat()["choices"][0]["message"]["content"].startswith("{")


def test_errors_of_chat():
    wrong = [
        ({"temperature": "hot"}, "temperature"), ({"temperature": 3}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"), ({"n": 0}, "n"), ({"n": 17}, "n"), ({"n": 1.5}, "n"), ({"n": "2"}, "n"),
        ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": -3}, "max_tokens"), ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"presence_penalty": 3}, "presence_penalty"), ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"seed": 1.5}, "seed"), ({"seed": "x"}, "seed"), ({"stop": 3}, "stop"), ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"), ({"stop": "x" * 300}, "stop"), ({"stop": ["a", 1]}, "stop"),
        ({"logprobs": 1}, "logprobs"), ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logit_bias": []}, "logit_bias"), ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"), ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": "1"}}, "logit_bias"),
        ({"stream": "yes"}, "stream"), ({"stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
         "response_format.json_schema.schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 1}}},
         "response_format.json_schema.schema"),
        ({"tools": {}}, "tools"), ({"tools": [1]}, "tools"), ({"tools": TOOLS}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"), ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"reasoning_effort": "huge"}, "reasoning_effort"), ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"store": True}, "store"), ({"service_tier": "flex"}, "service_tier"),
        ({"modalities": ["text", "audio"]}, "modalities"), ({"audio": {}}, "audio"),
        ({"prediction": {}}, "prediction"), ({"web_search_options": {}}, "web_search_options"),
        ({"verbosity": "low"}, "verbosity"), ({"functions": []}, "functions"),
        ({"function_call": "auto"}, "function_call"), ({"nonsense": 1}, "nonsense"), ({"top_k": 3}, "top_k"),
        ({"weir": 1}, "weir"), ({"weir": {"x": 1}}, "weir.x"),
        ({"weir": {"conversation": "x" * 65}}, "weir.conversation"),
        ({"weir": {"min_p": 1}}, "weir.min_p"), ({"weir": {"top_k": -1}}, "weir.top_k"),
        ({"weir": {"repeat_penalty": -1}}, "weir.repeat_penalty"),
        ({"weir": {"repeat_penalty": 0}}, "weir.repeat_penalty"), ({"weir": {"continue": True}}, "weir.continue"),
        ({"weir": {"thinking_budget": "x"}}, "weir.thinking_budget"),
        ({"messages": []}, "messages"), ({"messages": "x"}, "messages"), ({"messages": None}, "messages"),
        ({"messages": ["x"]}, "messages[0]"), ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "god", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x", "y": 1}]}, "messages[0].y"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
         "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant", "content": "x", "audio": {}}]}, "messages[0].audio"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "tool", "content": "x", "tool_call_id": "a"}]},
         "messages[1]"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "a\0b"}]}, "messages[0].tool_call_id"),
    ]
    for fields, param in wrong:
        error = error_of(server, "/v1/chat/completions", chat_body(**fields))
        assert error["param"] == param, (fields, error)
        assert error["type"] == "invalid_request_error", error
    error = error_of(server, "/v1/chat/completions", chat_body(model="gpt-4"), 404)
    assert error["code"] == "model_not_found" and error["param"] == "model"
    for body in ("", "{", "[]", "3", '"x"', '{"messages": [}', "\xff\xfe", '{"a": 1} x', "[" * 100000):
        error_of(server, "/v1/chat/completions", body.encode("latin-1"))
    many = "{" + ",".join(f'"k{i}": 1' for i in range(20000)) + "}"
    assert "names" in error_of(server, "/v1/chat/completions", many)["message"]
    long = error_of(server, "/v1/chat/completions", chat_body("word " * 20000))
    assert long["code"] == "context_length_exceeded" and long["param"] == "messages"


def test_continue():
    base = server.chat(max_tokens=12)["choices"][0]["message"]["content"]
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": base[:6]}]
    a = server.chat(messages=messages, weir={"continue": True}, max_tokens=20)
    assert a["choices"][0]["message"]["content"].startswith(base[6:20]), a


def test_sessions_and_prefixes():
    # Two conversations in turns: each finds its own session again.
    def turn(name, text, so_far):
        so_far.append({"role": "user", "content": text})
        a = server.post("/v1/chat/completions", chat_body(messages=so_far, weir={"conversation": name}, max_tokens=30))
        so_far.append(a["choices"][0]["message"])
        return a
    one, two = [], []
    for round in range(3):
        a, b = turn("one", f"Number {round}", one), turn("two", f"Colour {round}", two)
        if round > 0:
            for x, talk in ((a, one), (b, two)):
                usage = x["usage"]
                n_new = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
                assert n_new < 40, usage
            assert a["weir"]["session"] != b["weir"]["session"]
    sessions = server.get("/v1/weir/sessions")["sessions"]
    assert {s["conversation"] for s in sessions} == {"one", "two"}
    for s in sessions:
        assert s["state"] == "idle" and s["kv_bytes"] <= s["kv_budget_bytes"] and s["dense_bytes"] > 0
        assert len(s["pages"]) == (s["tokens"] + 15) // 16 and set(s["pages"]) <= set("#.*x")


def test_completions():
    a = server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 5, "temperature": 0})
    assert a["object"] == "text_completion" and a["id"].startswith("cmpl-")
    text = a["choices"][0]["text"]
    assert a["usage"]["completion_tokens"] == 5
    b = server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 5, "temperature": 0, "echo": True})
    assert b["choices"][0]["text"] == "Hello" + text
    c = server.post("/v1/completions", {"prompt": ["Hello", "Bye"], "max_tokens": 5, "temperature": 0, "n": 2})
    assert [x["index"] for x in c["choices"]] == [0, 1, 2, 3]
    assert c["choices"][0]["text"] == c["choices"][1]["text"] == text
    d = server.post("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 3, "temperature": 0, "logprobs": 2})
    lp = d["choices"][0]["logprobs"]
    assert len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == len(lp["text_offset"]) == 3
    assert all(len(t) == 2 for t in lp["top_logprobs"])
    s = server.stream("/v1/completions", {"prompt": "Hello", "max_tokens": 5, "temperature": 0, "echo": True,
                                          "stream_options": {"include_usage": True}})
    chunks = [data for _, data in s.events()]
    assert chunks[-1] == "[DONE]" and chunks[-2]["usage"]["completion_tokens"] == 5
    assert "".join(x["choices"][0]["text"] for x in chunks[:-2]) == "Hello" + text
    for fields, param in (({"suffix": "x"}, "suffix"), ({"best_of": 3}, "best_of"), ({"echo": True, "logprobs": 1},
                          "echo"), ({"logprobs": 6}, "logprobs"), ({"prompt": 3}, "prompt"), ({"prompt": []}, "prompt"),
                          ({"prompt": [[99999]]}, "prompt"), ({"prompt": [[]]}, "prompt"), ({"prompt": ""}, "prompt"),
                          ({"prompt": ["a"] * 17}, "prompt"), ({"n": 9, "prompt": ["a", "b"]}, "n"),
                          ({"messages": []}, "messages"), ({"tools": []}, "tools"), ({"prompt": None}, "prompt")):
        assert error_of(server, "/v1/completions", dict({"prompt": "x"}, **fields))["param"] == param, fields


def test_responses():
    a = server.post("/v1/responses", {"input": "Hello", "max_output_tokens": 8, "temperature": 0})
    assert a["object"] == "response" and a["status"] == "incomplete"
    assert a["incomplete_details"]["reason"] == "max_output_tokens"
    text = a["output"][0]["content"][0]["text"]
    assert text == server.chat()["choices"][0]["message"]["content"]
    assert a["usage"]["output_tokens"] == 8
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
    b = server.post("/v1/responses", {"input": items, "instructions": "Be brief.", "max_output_tokens": 200,
                                      "temperature": 0})
    assert b["instructions"] == "Be brief."
    s = server.stream("/v1/responses", {"input": "Hello", "max_output_tokens": 200, "temperature": 0})
    events = list(s.events())
    assert all(name == data["type"] for name, data in events)
    assert [d["sequence_number"] for _, d in events] == list(range(len(events)))
    kinds = [name for name, _ in events]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
    said = "".join(d["delta"] for n, d in events if n == "response.output_text.delta")
    assert said == events[-1][1]["response"]["output"][-1]["content"][0]["text"] and said.startswith(text)
    for fields, param in (({"input": 3}, "input"), ({"input": []}, "input"), ({"input": None}, "input"),
                          ({"tools": TOOLS}, "tools"), ({"previous_response_id": "x"}, "previous_response_id"),
                          ({"store": True}, "store"), ({"background": True}, "background"),
                          ({"truncation": "auto"}, "truncation"), ({"max_output_tokens": 0}, "max_output_tokens"),
                          ({"text": {"format": {"type": "x"}}}, "text.format.type"), ({"n": 2}, "n"),
                          ({"reasoning": {"effort": "x"}}, "reasoning.effort"), ({"include": ["x"]}, "include"),
                          ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
                           "input[0].content[0].type"), ({"input": [{"type": "function_call"}]}, "input[0].type")):
        assert error_of(server, "/v1/responses", dict({"input": "x"}, **fields))["param"] == param, fields


def test_tools_and_thoughts():
    model = model_with_template(os.path.join(FOLDER, "tools.gguf"), TEMPLATE)
    with Server("--sessions", "1", model=model) as s:
        info = s.get("/v1/weir/model")["chat"]
        assert info["has_tools"] and info["has_thoughts"], info
        for choice, name in (("required", None), ({"type": "function", "function": {"name": "add"}}, "add"),
                             ({"type": "function", "function": {"name": "get_time"}}, "get_time")):
            a = s.chat(tools=TOOLS, tool_choice=choice, max_tokens=300, logit_bias=NO_SPACE)
            got = a["choices"][0]
            assert got["finish_reason"] == "tool_calls", got
            call = got["message"]["tool_calls"][0]
            assert call["type"] == "function" and call["id"] and (name is None or call["function"]["name"] == name)
            arguments = json.loads(call["function"]["arguments"])
            assert arguments == {"a": 7} or arguments["zone"] in ("UTC", "local")
            assert got["message"]["content"] is None
            # And the result of the tool goes back.
            messages = [{"role": "user", "content": "Hello"}, got["message"],
                        {"role": "tool", "tool_call_id": call["id"], "content": "12:00"}]
            b = s.chat(messages=messages, tools=TOOLS)
            assert b["usage"]["prompt_tokens"] > a["usage"]["prompt_tokens"]
        stream = s.stream("/v1/chat/completions",
                          chat_body(tools=TOOLS, tool_choice="required", max_tokens=300, logit_bias=NO_SPACE))
        calls = [c["choices"][0]["delta"]["tool_calls"] for _, c in stream.events()
                 if c != "[DONE]" and "tool_calls" in c["choices"][0]["delta"]]
        assert len(calls) == 1 and calls[0][0]["index"] == 0, calls
        json.loads(calls[0][0]["function"]["arguments"])
        assert s.chat(tools=TOOLS)["choices"][0]["message"]["content"]  # auto: it only talks
        assert s.chat(tools=TOOLS, tool_choice="none")["choices"][0]["finish_reason"] == "length"
        for fields, param in (({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
                               "tool_choice"),
                              ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
                              ({"tools": TOOLS + TOOLS}, "tools")):
            status, _, answer = s.ask("POST", "/v1/chat/completions", chat_body(**fields))
            assert status == 400 and answer["error"]["param"] == param, (fields, answer)
    thinks = TEMPLATE.replace("enable_thinking is defined and enable_thinking is true",
                              "enable_thinking is not defined or enable_thinking")
    model = model_with_template(os.path.join(FOLDER, "thinks.gguf"), thinks)
    with Server("--sessions", "1", model=model) as s:
        assert s.get("/v1/weir/model")["chat"]["has_thinking_switch"]
        a = s.chat(weir={"thinking_budget": 5}, max_tokens=40)
        got = a["choices"][0]["message"]
        assert got["reasoning_content"], a
        assert a["usage"]["completion_tokens_details"]["reasoning_tokens"] >= 5, a
        assert "mm:think" not in got["content"] + got["reasoning_content"]
        b = s.chat(reasoning_effort="none")
        assert "reasoning_content" not in b["choices"][0]["message"], b
        assert b["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
        assert s.chat(reasoning_effort="low", max_tokens=4)["choices"][0]["message"]["reasoning_content"]
        stream = s.stream("/v1/chat/completions", chat_body(weir={"thinking_budget": 5}, max_tokens=40))
        deltas = [c["choices"][0]["delta"] for _, c in stream.events() if c != "[DONE]"]
        assert "".join(d.get("reasoning_content", "") for d in deltas) == got["reasoning_content"]
        assert "".join(d.get("content", "") for d in deltas) == got["content"]
        r = s.post("/v1/responses", {"input": "Hello", "temperature": 0, "max_output_tokens": 40,
                                     "weir": {"thinking_budget": 5}})
        assert [item["type"] for item in r["output"]] == ["reasoning", "message"]
        assert [item["status"] for item in r["output"]] == ["completed", "incomplete"], r
        # The items of a stream have the status of the response.
        for n_tokens, statuses in ((3, ["incomplete", "incomplete"]), (40, ["completed", "incomplete"])):
            stream = s.stream("/v1/responses", {"input": "Hello", "temperature": 0, "max_output_tokens": n_tokens,
                                                "weir": {"thinking_budget": 5}})
            events = list(stream.events())
            done = [d["item"]["status"] for n, d in events if n == "response.output_item.done"]
            last = events[-1][1]["response"]
            assert last["status"] == "incomplete" and done == statuses, (n_tokens, done)
            assert [item["status"] for item in last["output"]] == statuses
        # To completions a thought is text as the rest.
        prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<mm:think>"
        c = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 1})
        assert c["usage"]["completion_tokens"] == 12 and len(c["choices"][0]["logprobs"]["tokens"]) == 12, c
        assert c["choices"][0]["text"] == "".join(c["choices"][0]["logprobs"]["tokens"]), c
        # A thought that is ended by hand.
        stream = s.stream("/v1/chat/completions", endless())
        done = False
        said = ""
        for _, c in stream.events():
            if c == "[DONE]":
                break
            if not done:
                done = s.post("/v1/weir/finish_thinking", {"id": c["id"]})["done"]
            said += c["choices"][0]["delta"].get("content", "")
            if said:
                break
        stream.close()
        assert done and said


def test_events():
    s = Stream(server, "/v1/weir/events")
    events = s.events()
    name, data = next(events)
    assert name == "sessions" and len(data["sessions"]) == 2
    answer = threading.Thread(target=lambda: server.post(
        "/v1/chat/completions", endless(max_tokens=3000, weir={"conversation": "watched"})))
    answer.start()  # so long that it takes longer than the time between two events
    states, n = set(), 0
    for name, data in events:
        if name == "session" and data["conversation"] == "watched":
            states.add(data["state"])
            n += 1
            if data["state"] == "idle":
                break
    answer.join()
    s.close()
    assert {"decode", "idle"} <= states, states
    assert n >= 2


def test_plans_and_settings():
    policies = server.get("/v1/weir/policies")["policies"]
    names = {p["name"] for p in policies if p["kind"] == "policy"}
    assert {"dense", "sink", "h2o", "tova", "quest", "raas", "hybrid", "arkvale"} <= names
    assert any(p["kind"] == "preset" and p["name"] == "reason-fixed" for p in policies)
    assert all(p["sentence"] for p in policies), policies
    now = server.get("/v1/weir/settings")
    assert now["preset"] == "chat" and now["sessions"] == 2
    plan = server.get("/v1/weir/plan?preset=exact")
    assert plan["per_session_bytes"] == plan["kv_bytes"] + plan["scratch_bytes"] + plan["store_bytes"]
    assert plan["state_bytes"] == 0  # its layers all have attention
    assert plan["total_bytes"] == 2 * plan["per_session_bytes"] + plan["weight_bytes"]
    assert plan["fits"] is True and plan["message"] is None
    small = server.get("/v1/weir/plan?policy=raas&budget=512&context=8192")
    assert small["budget_tokens"] == 512 and small["kv_bytes"] < small["dense_kv_bytes"]
    assert server.get("/v1/weir/plan?preset=reason-fixed&context=16384")["kv_bytes"] < plan["kv_bytes"]
    for query, param in (("policy=x", "policy"), ("preset=x", "preset"), ("budget=x", "budget"),
                         ("budget=1&policy=raas", "budget"), ("policy=raas&preset=reason-fixed", "preset")):
        status, _, answer = server.ask("GET", "/v1/weir/plan?" + query)
        assert status == 400 and answer["error"]["param"] == param, (query, answer)
    fits = server.get("/v1/weir/fits")
    rows = {r["policy"]: r["budgets"] for r in fits["rows"]}
    assert len(rows["dense"]) == 1 and len(rows["raas"]) > 3 and "reason-fixed" in rows
    assert rows["exact"] == rows["dense"], rows["exact"]  # the whole context, not one of 512 tokens
    assert all(b["total_bytes"] > 0 for r in rows.values() for b in r)
    with Server("--sessions", "2") as s:
        before = s.get("/v1/weir/plan")
        new = s.post("/v1/weir/settings", {"policy": "raas", "budget_tokens": 512, "sessions": 3})
        assert new["policy"] == "raas" and new["budget_tokens"] == 512 and new["sessions"] == 3
        assert len(s.get("/v1/weir/sessions")["sessions"]) == 3
        assert s.chat()["usage"]["completion_tokens"] == 8
        # What is gone for good is told with the answer that it is gone for, and not with the next.
        assert s.post("/v1/chat/completions", chat_body(max_tokens=2))["weir"]["dropped_pages"] == 0
        long = s.post("/v1/chat/completions", chat_body("so " * 900, max_tokens=2))["weir"]
        assert long["dropped_pages"] > 0, long
        assert s.post("/v1/chat/completions", chat_body("Hi", max_tokens=2))["weir"]["dropped_pages"] == 0
        assert s.get("/v1/weir/plan")["per_session_bytes"] < before["per_session_bytes"]
        for body, param in (({"policy": "x"}, "policy"), ({"preset": "x"}, "preset"), ({"x": 1}, "x"),
                            ({"policy": "raas", "budget_tokens": 1}, "budget_tokens"), ({"sessions": 0}, "sessions"),
                            ({"recall": "maybe"}, "recall"), ({"policy": 3}, "policy")):
            status, _, answer = s.ask("POST", "/v1/weir/settings", body)
            assert status == 400 and answer["error"]["param"] == param, (body, answer)
        # What is more than the machine has is refused before a session is given up.
        for body, param in (({"policy": "dense", "sessions": 256, "context_tokens": 1 << 20}, "sessions"),
                            ({"policy": "dense", "context_tokens": 1 << 30}, "context_tokens")):
            status, _, answer = s.ask("POST", "/v1/weir/settings", body)
            assert status == 400 and answer["error"]["param"] == param, (body, answer)
        assert s.get("/v1/weir/settings") == new
        assert s.post("/v1/weir/settings", {"preset": "reason-fixed"})["preset"] == "reason-fixed"
        assert s.post("/v1/weir/settings", {"policy": "dense"})["policy"] == "dense"


def test_saved():
    folder = os.path.join(FOLDER, "saved")
    server.chat("Remember me", weir={"conversation": "keep"})
    name = server.post("/v1/weir/saved", {"conversation": "keep", "title": "A title\u202e"})["name"]
    assert len(name) == 32 and set(name) <= set("0123456789abcdef")
    assert sorted(os.listdir(folder)) == [name + ".json", name + ".weir"]
    for file in os.listdir(folder):
        assert os.stat(os.path.join(folder, file)).st_mode & 0o077 == 0
    listed = server.get("/v1/weir/saved")["saved"]
    assert len(listed) == 1 and listed[0]["name"] == name and listed[0]["title"] == "A title\u202e"
    assert listed[0]["tokens"] > 0 and listed[0]["bytes"] > 0 and abs(listed[0]["created"] - time.time()) < 100
    for i in range(3):
        server.chat(f"Other talk {i}", weir={"conversation": f"other {i}"})
        server.chat(f"Yet another {i}", weir={"conversation": f"more {i}"})
    # Files that somebody has changed: of the one nothing but its name is left, the other is damaged.
    odd, bad = "0" * 32, "1" * 32
    for other in (odd, bad):
        shutil.copy(os.path.join(folder, name + ".weir"), os.path.join(folder, other + ".weir"))
        with open(os.path.join(folder, other + ".json"), "w") as f:
            f.write('{"title": 3, "tokens": "x", "created": [], "conversation": {}}')
    with open(os.path.join(folder, bad + ".weir"), "r+b") as f:
        f.seek(os.path.getsize(f.name) // 2)
        f.write(b"damage" * 100)
    assert {x["name"] for x in server.get("/v1/weir/saved")["saved"]} == {name, odd, bad}
    session = server.post(f"/v1/weir/saved/{odd}/restore", {})["session"]
    assert server.get("/v1/weir/sessions")["sessions"][session]["conversation"] is None
    message = error_of(server, f"/v1/weir/saved/{bad}/restore", {})["message"]
    assert "damaged" in message and folder not in message, message
    assert "keep" not in [x["conversation"] for x in server.get("/v1/weir/sessions")["sessions"]]
    for other in (odd, bad):
        assert server.ask("DELETE", f"/v1/weir/saved/{other}")[0] == 200
    session = server.post(f"/v1/weir/saved/{name}/restore", {})["session"]
    state = server.get("/v1/weir/sessions")["sessions"][session]
    assert state["conversation"] == "keep" and state["tokens"] == listed[0]["tokens"]
    again = server.chat("Remember me", weir={"conversation": "keep"})
    assert again["weir"]["session"] == session
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= again["usage"]["prompt_tokens"] - 1
    # When two sessions have one name, the one that was used last is saved, and not while it runs.
    older = server.stream("/v1/chat/completions", endless(weir={"conversation": "twin"}))
    events = older.events()
    _, first = next(events)
    server.chat("A word", max_tokens=4, weir={"conversation": "twin"})
    states = server.get("/v1/weir/sessions")["sessions"]
    assert [x["conversation"] for x in states] == ["twin", "twin"], states
    twin = server.post("/v1/weir/saved", {"conversation": "twin"})["name"]
    saved = [x for x in server.get("/v1/weir/saved")["saved"] if x["name"] == twin][0]
    assert saved["tokens"] == [x["tokens"] for x in states if x["state"] == "idle"][0]
    newer = server.stream("/v1/chat/completions", endless("A word", weir={"conversation": "twin"}))
    next(newer.events())
    server.post("/v1/weir/cancel", {"id": first["id"]})
    list(events)
    assert error_of(server, "/v1/weir/saved", {"conversation": "twin"}, 409)["code"] == "busy"
    newer.close()
    older.close()
    assert server.ask("DELETE", f"/v1/weir/saved/{twin}")[0] == 200
    assert error_of(server, "/v1/weir/saved", {"conversation": "unknown"}, 404)["param"] == "conversation"
    assert error_of(server, "/v1/weir/saved", {})["param"] == "conversation"
    assert error_of(server, "/v1/weir/saved", {"conversation": "keep", "title": "x" * 2000})["param"] == "title"
    secret = os.path.join(FOLDER, "secret.weir")
    open(secret, "w").write("x")
    for bad in ("../secret", "..%2fsecret", "%2e%2e/secret", name[:-1], name.upper() + "0", name + "0", "",
                name + ".weir", "." * 32, "/" * 32, name + "/../" + name, "..", "%00" + name):
        for method, path in (("DELETE", f"/v1/weir/saved/{bad}"), ("POST", f"/v1/weir/saved/{bad}/restore")):
            status, _, _ = server.ask(method, path, "{}" if method == "POST" else None)
            assert status == 404, (method, path, status)
    assert os.path.exists(secret)
    assert server.ask("DELETE", f"/v1/weir/saved/{name}")[0] == 200
    assert server.ask("DELETE", f"/v1/weir/saved/{name}")[0] == 404
    assert os.listdir(folder) == []


def main():
    global server
    try:
        with Server("--save-dir", os.path.join(FOLDER, "saved")) as server:
            failed = run_all([test_addresses, test_chat, test_stream, test_fields_of_chat, test_format,
                              test_errors_of_chat, test_continue,
                              test_sessions_and_prefixes, test_completions,
                              test_responses, test_tools_and_thoughts, test_events,
                              test_plans_and_settings, test_saved])
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
