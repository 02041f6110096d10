#!/usr/bin/env python3
# weir serve as the `openai` package from PyPI meets it. Skipped where the package is missing: pip install openai.
import json
import os
import shutil
import sys
import tempfile
import threading

from server_test import MODEL_ID, NO_SPACE, Server, endless, model_with_template, run_all, skip, wait_until

try:
    import openai
except ImportError:
    skip("there is no openai package; pip install openai")

FOLDER = tempfile.mkdtemp(prefix="weir-openai-")
TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is not defined or enable_thinking %}<mm:think>{% endif %}{% endif %}{# </mm:think> #}")
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
                   "additionalProperties": False}}}
HELLO = [{"role": "user", "content": "Hello"}]

server = client = thinker = None


def chat(**fields):
    return client.chat.completions.create(**dict({"model": MODEL_ID, "messages": HELLO, "temperature": 0,
                                                  "max_tokens": 8}, **fields))


def text_of(answer):
    return answer.choices[0].message.content


def refused(kind, call, param=None):
    try:
        call()
    except kind as e:
        if param is not None:
            assert e.body["param"] == param, e.body
        return e
    raise AssertionError("it was not refused")


def test_models_list():
    assert [m.id for m in client.models.list()] == [MODEL_ID]


def test_models_retrieve():
    assert client.models.retrieve(MODEL_ID).owned_by == "weir"


def test_models_unknown():
    assert refused(openai.NotFoundError, lambda: client.models.retrieve("gpt-4")).code == "model_not_found"


def test_chat():
    a = chat()
    assert a.object == "chat.completion" and a.choices[0].message.role == "assistant" and text_of(a)


def test_usage():
    u = chat().usage
    assert u.total_tokens == u.prompt_tokens + u.completion_tokens and u.completion_tokens == 8
    assert u.prompt_tokens_details.cached_tokens >= 0 and u.completion_tokens_details.reasoning_tokens == 0


def test_cached_tokens():
    chat()
    u = chat().usage
    assert u.prompt_tokens_details.cached_tokens >= u.prompt_tokens - 1


def test_finish_reasons():
    assert chat().choices[0].finish_reason == "length"
    assert chat(max_tokens=200).choices[0].finish_reason == "stop"


def test_max_completion_tokens():
    a = client.chat.completions.create(model=MODEL_ID, messages=HELLO, temperature=0, max_completion_tokens=3)
    assert a.usage.completion_tokens == 3


def test_stream():
    whole = text_of(chat(max_tokens=30))
    chunks = list(chat(max_tokens=30, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason


def test_stream_usage():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 8


def test_stream_close():
    stream = chat(**endless(), stream=True)
    next(iter(stream))
    stream.close()
    assert wait_until(lambda: all(s["state"] == "idle" for s in server.get("/v1/weir/sessions")["sessions"]), 5)


def test_stream_helper():
    with client.chat.completions.stream(model=MODEL_ID, messages=HELLO, temperature=0, max_tokens=30) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert text_of(final) == text_of(chat(max_tokens=30))


def test_roles():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And?"}]
    assert chat(messages=messages).usage.prompt_tokens > chat().usage.prompt_tokens


def test_developer_role():
    assert text_of(chat(messages=[{"role": "developer", "content": "Be brief."}] + HELLO)) is not None


def test_answer_goes_back():
    a = chat()
    messages = HELLO + [a.choices[0].message, {"role": "user", "content": "More"}]
    b = chat(messages=messages)
    assert b.usage.prompt_tokens_details.cached_tokens >= a.usage.prompt_tokens + 8


def test_answer_dumped_goes_back():
    a = chat()
    assert text_of(chat(messages=HELLO + [a.choices[0].message.model_dump(), {"role": "user", "content": "More"}]))


def test_content_parts():
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert text_of(chat(messages=[{"role": "user", "content": parts}])) == text_of(chat())


def test_image_refused():
    parts = [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]
    refused(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": parts}]),
            "messages[0].content[0].type")


def test_stop():
    whole = text_of(chat(max_tokens=12))
    word = whole.split()[2]
    a = chat(max_tokens=12, stop=[word])
    assert text_of(a) == whole[:whole.index(word)] and a.choices[0].finish_reason == "stop"


def test_n():
    a = chat(n=4, temperature=2, seed=3, logit_bias={"1630": -100})
    assert [c.index for c in a.choices] == [0, 1, 2, 3] and a.usage.completion_tokens == 32


def test_n_stream():
    said = {}
    for chunk in chat(n=2, stream=True, temperature=1, seed=3):
        for c in chunk.choices:
            said[c.index] = said.get(c.index, "") + (c.delta.content or "")
    whole = chat(n=2, temperature=1, seed=3)
    assert [said[0], said[1]] == [c.message.content for c in whole.choices]


def test_seed():
    assert text_of(chat(seed=7, temperature=1.5)) == text_of(chat(seed=7, temperature=1.5))


def test_top_p():
    assert text_of(chat(temperature=2, top_p=0.00001)) == text_of(chat())


def test_penalties():
    assert text_of(chat(presence_penalty=1.5, frequency_penalty=1.5)) is not None
    refused(openai.BadRequestError, lambda: chat(presence_penalty=5), "presence_penalty")


def test_logit_bias():
    first = chat(logprobs=True, max_tokens=1).choices[0].logprobs.content[0].token
    ids = {str(i): -100 for i in range(1000)}
    assert chat(logit_bias=ids, logprobs=True, max_tokens=1).choices[0].logprobs.content[0].token is not None
    assert first


def test_logprobs():
    a = chat(logprobs=True, top_logprobs=5)
    content = a.choices[0].logprobs.content
    assert len(content) == 8 and all(len(t.top_logprobs) == 5 for t in content)
    assert "".join(t.token for t in content) == text_of(a)


def test_logprobs_stream():
    tokens = []
    for chunk in chat(logprobs=True, top_logprobs=2, stream=True):
        if chunk.choices[0].logprobs:
            tokens += chunk.choices[0].logprobs.content
    assert len(tokens) == 8


def test_json_object():
    a = chat(response_format={"type": "json_object"}, max_tokens=60, extra_body={"weir": {"thinking_budget": 4}})
    assert text_of(a).startswith("{")


def test_json_schema():
    schema = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
              "additionalProperties": False}
    a = chat(max_tokens=300, logit_bias=NO_SPACE, extra_body={"weir": {"thinking_budget": 4}},
             response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
    assert json.loads(text_of(a))["city"] in ("Rome", "Oslo")


def test_json_schema_refused():
    schema = {"type": "object", "not": {}}
    refused(openai.BadRequestError, lambda: chat(response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}), "response_format")


def test_unknown_field():
    refused(openai.BadRequestError, lambda: chat(extra_body={"nonsense": 1}), "nonsense")


def test_unserved_field():
    refused(openai.BadRequestError, lambda: chat(store=True), "store")


def test_extension():
    a = chat(extra_body={"weir": {"conversation": "from python", "top_k": 1}})
    assert a.model_extra["weir"]["conversation"] == "from python"


def test_wrong_model():
    refused(openai.NotFoundError, lambda: chat(model="gpt-4"), "model")


def test_too_long():
    e = refused(openai.BadRequestError, lambda: chat(messages=[{"role": "user", "content": "word " * 20000}]))
    assert e.code == "context_length_exceeded"


def test_tools_required():
    a = thinker.chat.completions.create(
        model="tools", messages=HELLO, tools=[WEATHER], tool_choice="required", temperature=0, max_tokens=300,
        logit_bias=NO_SPACE, extra_body={"weir": {"thinking_budget": 4}})
    call = a.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
    assert a.choices[0].finish_reason == "tool_calls"
    messages = HELLO + [a.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}]
    b = thinker.chat.completions.create(model="tools", messages=messages, tools=[WEATHER], temperature=0, max_tokens=8)
    assert b.usage.prompt_tokens > a.usage.prompt_tokens


def test_tools_by_name():
    a = thinker.chat.completions.create(
        model="tools", messages=HELLO, tools=[WEATHER], temperature=0, max_tokens=300,
        logit_bias=NO_SPACE, parallel_tool_calls=False,
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        extra_body={"weir": {"thinking_budget": 4}})
    assert len(a.choices[0].message.tool_calls) == 1


def test_tools_stream():
    stream = thinker.chat.completions.create(model="tools", messages=HELLO, tools=[WEATHER], tool_choice="required",
                                             temperature=0, max_tokens=300, stream=True,
                                             logit_bias=NO_SPACE,
                                             extra_body={"weir": {"thinking_budget": 4}})
    calls = [c.choices[0].delta.tool_calls for c in stream if c.choices[0].delta.tool_calls]
    assert len(calls) == 1 and json.loads(calls[0][0].function.arguments)


def test_tools_refused():
    refused(openai.BadRequestError, lambda: chat(tools=[WEATHER]), "tools")


def test_reasoning():
    a = thinker.chat.completions.create(model="tools", messages=HELLO, temperature=0, max_tokens=60,
                                        extra_body={"weir": {"thinking_budget": 6}})
    assert a.choices[0].message.model_extra["reasoning_content"]
    assert a.usage.completion_tokens_details.reasoning_tokens >= 6


def test_reasoning_effort():
    a = thinker.chat.completions.create(model="tools", messages=HELLO, temperature=0, max_tokens=20,
                                        reasoning_effort="none")
    assert "reasoning_content" not in (a.choices[0].message.model_extra or {})
    refused(openai.BadRequestError, lambda: chat(reasoning_effort="extreme"), "reasoning_effort")


def test_completions():
    a = client.completions.create(model=MODEL_ID, prompt="Hello", max_tokens=5, temperature=0)
    b = client.completions.create(model=MODEL_ID, prompt="Hello", max_tokens=5, temperature=0, echo=True)
    assert b.choices[0].text == "Hello" + a.choices[0].text and a.usage.completion_tokens == 5


def test_completions_logprobs():
    a = client.completions.create(model=MODEL_ID, prompt="Hello", max_tokens=3, temperature=0, logprobs=2)
    assert len(a.choices[0].logprobs.tokens) == 3 and len(a.choices[0].logprobs.top_logprobs[0]) == 2


def test_completions_stream():
    parts = client.completions.create(model=MODEL_ID, prompt="Hello", max_tokens=5, temperature=0, stream=True)
    whole = client.completions.create(model=MODEL_ID, prompt="Hello", max_tokens=5, temperature=0)
    assert "".join(p.choices[0].text for p in parts) == whole.choices[0].text


def test_completions_suffix():
    refused(openai.BadRequestError, lambda: client.completions.create(model=MODEL_ID, prompt="a", suffix="b"), "suffix")


def test_responses():
    r = client.responses.create(model=MODEL_ID, input="Hello", max_output_tokens=200, temperature=0)
    assert r.status == "completed" and r.output_text == text_of(chat(max_tokens=200))
    assert r.usage.output_tokens > 0


def test_responses_items():
    r = client.responses.create(model=MODEL_ID, instructions="Be brief.", temperature=0, max_output_tokens=8, input=[
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}])
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens"
    again = client.responses.create(model=MODEL_ID, max_output_tokens=8, input=[
        {"role": "user", "content": "Hello"}, *[o.model_dump() for o in r.output], {"role": "user", "content": "More"}])
    assert again.output_text


def test_responses_stream():
    said, kinds = "", []
    for event in client.responses.create(model=MODEL_ID, input="Hello", max_output_tokens=200, temperature=0,
                                         stream=True):
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            said += event.delta
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed" and said


def test_responses_refused():
    refused(openai.BadRequestError, lambda: client.responses.create(model=MODEL_ID, input="x",
                                                                    previous_response_id="resp_1"),
            "previous_response_id")


def test_parallel_clients():
    answers = [None] * 6

    def one(i):
        answers[i] = text_of(chat(messages=[{"role": "user", "content": f"Hello {i % 3}"}], max_tokens=20))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(answers) and answers[:3] == answers[3:]


def test_async():
    import asyncio

    async def ask():
        c = openai.AsyncOpenAI(base_url=server.address + "v1", api_key="t0ken", max_retries=0)
        said = ""
        stream = await c.chat.completions.create(model=MODEL_ID, messages=HELLO, temperature=0, max_tokens=8,
                                                 stream=True)
        async for chunk in stream:
            said += chunk.choices[0].delta.content or ""
        await c.close()
        return said
    assert asyncio.run(ask()) == text_of(chat())


def test_token():
    bad = openai.OpenAI(base_url=server.address + "v1", api_key="wrong", max_retries=0)
    refused(openai.AuthenticationError, lambda: bad.models.list())


class TokenServer(Server):
    """Asks with the token of the server."""

    def ask(self, method, path, body=None, headers=None):
        return super().ask(method, path, body, dict({"Authorization": "Bearer t0ken"}, **(headers or {})))


def main():
    global server, client, thinker
    try:
        model = model_with_template(os.path.join(FOLDER, "tools.gguf"), TEMPLATE)
        with TokenServer("--token", "t0ken") as server, Server("--sessions", "1", model=model) as other:
            client = openai.OpenAI(base_url=server.address + "v1", api_key="t0ken", max_retries=0)
            thinker = openai.OpenAI(base_url=other.address + "v1", api_key="none", max_retries=0)
            failed = run_all([value for name, value in globals().items() if name.startswith("test_")])
            client.close()
            thinker.close()
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
