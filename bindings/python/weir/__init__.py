"""Weir: language models that reason at length in a fixed memory footprint.

    import weir
    with weir.Model("model.gguf") as model, weir.Session(model) as session:
        session.prompt([weir.Message("user", "Who are you?")])
        for event in session.events(max_tokens=100):
            print(event.text, end="")

Every call of the C API (include/weir) is a method of Runtime, Model, Session, Constraint, Cancel or Detokenizer, or a
function here; its rules are those of the headers. Options are dataclasses; a call takes one, or its fields, or both.
An error is an exception for its status, below WeirError. A Session and a Detokenizer are for one thread at a time, all
else for any.
"""
import asyncio
import dataclasses
import weakref
from contextlib import ExitStack
from ctypes import (POINTER, byref, c_char, c_char_p, c_float, c_int32, c_uint32, c_uint64, c_void_p, memmove, sizeof,
                    string_at)
from typing import (Any, AsyncIterator, Callable, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence,
                    Tuple, Type, Union)

from . import _data, _native as native
from ._convert import (Path, Text, address_at, c_text, decoded, encoded, guarded, integer, json_text, names_of,
                       offset_of, path_text, resumed, str_at, tokens_of, view_of)
from ._data import *  # noqa: F403
from ._handle import ClosedError as ClosedError, Handle, Use, call, filled, forked, sized
from ._library import LibraryError as LibraryError, check, lib

Messages = Iterable[Union[Message, Mapping[str, Any]]]
__version__ = native.VERSION


class MaskInfo(NamedTuple):
    """What a token mask is asked: bit i % 32 of words[i // 32] is that of token i, and cleared bits are not drawn. The
    views are released when the function returns."""

    vocab_size: int
    tokens: memoryview
    words: memoryview


def _given(type_: Type[Any], options: Any, fields: Mapping[str, Any]) -> Any:
    """Options as a structure."""
    return byref((type_(**fields) if options is None else dataclasses.replace(options, **fields)).to_native())


def _messages(messages: Messages) -> Tuple[Any, int]:
    made = [(m if isinstance(m, Message) else Message(**m)).to_native() for m in messages]
    return (native.weir_chat_message * len(made))(*made), len(made)


def version() -> str:
    """The version of the library that is loaded; __version__ is that of the headers."""
    return decoded(lib.weir_version_string())


def policies() -> List[str]:
    """Values of SessionOptions.policy."""
    return names_of(lib.weir_policy_name)


def presets() -> List[str]:
    """The names that preset() takes."""
    return names_of(lib.weir_preset_name)


def weight_types() -> List[str]:
    """The types of tensors that the library computes with."""
    return names_of(lib.weir_weight_type_name)


def preset(name: str, options: Optional[SessionOptions] = None, **fields: Any) -> SessionOptions:
    """Options with policy, budget and policy options of a preset, such as "reason-fixed"."""
    made = dataclasses.replace(options or SessionOptions(), **fields)
    s = made.to_native()
    lib.weir_session_options_preset(c_text("name", name), byref(s))
    pairs = s.policy_options[:s.n_policy_options] if s.n_policy_options else []
    return dataclasses.replace(made, policy=decoded(s.policy), budget_tokens=s.budget_tokens,
                               spill_flags=s.spill_flags,
                               policy_options={decoded(pair.key): decoded(pair.value) for pair in pairs})


class Cancel(Handle):
    """Stops the calls of all sessions it is given to (Session.set_cancel), and outlives what it stops."""

    _destroy = "weir_cancel_release"

    def __init__(self) -> None:
        self._create(lib.weir_cancel_create)

    def set(self) -> None:
        call(lib.weir_cancel_set, Use(self))

    def clear(self) -> None:
        call(lib.weir_cancel_clear, Use(self))


class Runtime(Handle):
    """Worker threads, backends and hooks. A model that is given none makes one, with all defaults."""

    _destroy = "weir_runtime_destroy"

    def __init__(self, options: Optional[RuntimeOptions] = None, **fields: Any) -> None:
        self._options = _given(RuntimeOptions, options, fields)  # whose callbacks the library goes on calling
        self._create(lib.weir_runtime_create, self._options)

    @property
    def memory(self) -> MemoryCounters:
        return self._info(native.weir_memory_counters, _data.memory_counters_of, lib.weir_runtime_memory)

    @property
    def n_threads(self) -> int:
        return int(call(lib.weir_runtime_thread_count, Use(self)))

    @property
    def cpu_target(self) -> str:
        return decoded(call(lib.weir_runtime_cpu_target, Use(self)))

    def devices(self) -> List[DeviceInfo]:
        found = filled(native.weir_device_info, 4, c_uint32, lib.weir_runtime_devices, Use(self))
        return [_data.device_info_of(device) for device in found]

    def render(self, template: Text, variables: Any, unix_time: int = 0) -> str:
        """Any chat template with any variables, a dict or JSON, as text to look at."""
        source, given = encoded(template), json_text("variables", variables) or b"{}"
        return decoded(filled(c_char, 4096, c_uint64, lib.weir_template_render, Use(self), source, len(source),
                              given, len(given), integer("unix_time", unix_time, False, 64)))


class Model(Handle):
    """Weights, tokenizer and chat template of a GGUF file; for any number of sessions and threads."""

    _destroy = "weir_model_close"

    def __init__(self, path: Path, runtime: Optional[Runtime] = None, options: Optional[ModelOptions] = None,
                 **fields: Any) -> None:
        self.runtime = runtime or Runtime()
        self._create(lib.weir_model_open, Use(self.runtime), path_text("path", path),
                     _given(ModelOptions, options, fields))

    @property
    def info(self) -> ModelInfo:
        return self._info(native.weir_model_info, _data.model_info_of, lib.weir_model_get_info)

    @property
    def chat_info(self) -> ChatInfo:
        return self._info(native.weir_chat_info, _data.chat_info_of, lib.weir_model_chat_info)

    @property
    def special_tokens(self) -> SpecialTokens:
        return self._info(native.weir_special_tokens, _data.special_tokens_of, lib.weir_model_special_tokens)

    def token(self, token: int) -> TokenInfo:
        return self._info(native.weir_token_info, _data.token_info_of, lib.weir_token_get_info,
                          integer("token", token, False))

    def tensor(self, index: int) -> TensorInfo:
        return self._info(native.weir_tensor_info, _data.tensor_info_of, lib.weir_model_tensor_info,
                          integer("index", index))

    def metadata(self) -> List[Tuple[str, str]]:
        """Keys and values of the file, as text."""
        key = c_char_p()
        with Use(self) as model:
            values = (filled(c_char, 64, c_uint64, lib.weir_model_metadata, model, i, byref(key))
                      for i in range(lib.weir_model_metadata_count(model)))
            return [(decoded(key.value), text) for text in map(decoded, values)]

    def tokenize(self, text: Text, options: Optional[TokenizeOptions] = None, **fields: Any) -> List[int]:
        data = encoded(text)
        return list(filled(c_int32, len(data) // 2 + 16, c_uint64, lib.weir_tokenize_with, Use(self), data, len(data),
                           _given(TokenizeOptions, options, fields)))

    def detokenize(self, tokens: Iterable[int], flags: int = 0) -> bytes:
        """Bytes, as the end may be inside a character; a Detokenizer gives text piece by piece."""
        ids, n_ids = tokens_of(tokens)
        return bytes(filled(c_char, 8 * n_ids, c_uint64, lib.weir_detokenize, Use(self), ids, n_ids,
                            integer("flags", flags)))

    def chat_tokenize(self, messages: Messages, options: Optional[ChatOptions] = None, **fields: Any) -> List[int]:
        return list(filled(c_int32, 1024, c_uint64, lib.weir_chat_tokenize, Use(self), *_messages(messages),
                           _given(ChatOptions, options, fields)))

    def chat_render(self, messages: Messages, options: Optional[ChatOptions] = None, **fields: Any) -> str:
        """As text to look at; sessions are fed by Session.prompt."""
        return decoded(filled(c_char, 4096, c_uint64, lib.weir_chat_render_with, Use(self), *_messages(messages),
                              _given(ChatOptions, options, fields)))

    def plan(self, options: Optional[SessionOptions] = None, **fields: Any) -> Plan:
        """The exact bytes of a session with these options."""
        return self._info(native.weir_plan_info, _data.plan_of, lib.weir_plan,
                          _given(SessionOptions, options, fields))

    def fit(self, n_bytes: int, options: Optional[SessionOptions] = None, **fields: Any) -> SessionOptions:
        """Options with a context, budget and store whose plan takes at most n_bytes."""
        made = dataclasses.replace(options or SessionOptions(), **fields)
        s = made.to_native()
        call(lib.weir_session_options_fit, Use(self), integer("n_bytes", n_bytes, bits=64), byref(s))
        return dataclasses.replace(made, context_tokens=s.context_tokens, budget_tokens=s.budget_tokens,
                                   budget_bytes=s.budget_bytes, spill_budget_bytes=s.spill_budget_bytes)


class Detokenizer(Handle):
    """Turns tokens into text piece by piece; never splits a character."""

    _destroy = "weir_detokenizer_destroy"

    def __init__(self, model: Model, flags: int = 0) -> None:
        self.model = model  # whose runtime has the callbacks that the library goes on calling
        self._create(lib.weir_detokenizer_create, Use(model), integer("flags", flags))

    def _text(self, function: Any, *arguments: int) -> str:
        text, n = c_char_p(), c_uint64()
        with Use(self, True) as detokenizer:
            function(detokenizer, *arguments, byref(text), byref(n))
            return string_at(text, n.value).decode()

    def push(self, token: int) -> str:
        return self._text(lib.weir_detokenizer_push, integer("token", token, False))

    def flush(self) -> str:
        return self._text(lib.weir_detokenizer_flush)


class Constraint(Handle):
    """A JSON schema, a grammar or a list of tools that answers obey; for any session of its model."""

    _destroy = "weir_constraint_destroy"

    def __init__(self, model: Model, kind: int = ConstraintKind.JSON, text: Any = None) -> None:
        """text: of schemas and tools JSON, or what becomes it; of a grammar its text."""
        data = json_text("text", text)
        self.model = model  # as of a Detokenizer
        self._create(lib.weir_constraint_create, Use(model), integer("kind", kind, False), data, len(data or b""))


class Session(Handle):
    """One conversation. A call while another one is inside is a BusyError, unless it says `any thread`."""

    _destroy = "weir_session_destroy"
    _mask: Tuple[Any, Any] = None, None

    def __init__(self, model: Model, options: Optional[SessionOptions] = None, **fields: Any) -> None:
        self.model = model
        self._create(lib.weir_session_create, Use(model), _given(SessionOptions, options, fields))

    def _call(self, function: Any, *arguments: Any) -> None:
        call(function, Use(self, True), *arguments)

    def fork(self) -> "Session":
        """A second session that goes on where this one is."""
        new = Session.__new__(Session)
        with Use(self, True) as session:
            new.model, new._mask = self.model, self._mask
            new._create(lib.weir_session_fork, session)
            if new._mask[1]:
                new.set_token_mask(new._mask[0])  # one that is its own, as it may be asked in another thread
        return new

    def reset(self) -> None:
        self._call(lib.weir_session_reset)

    # --- the conversation ---

    def prompt(self, messages: Messages, options: Optional[PromptOptions] = None, **fields: Any) \
            -> Tuple[PromptReport, List[Span]]:
        """Make the session hold exactly these messages, and say where each is."""
        made, n_made = _messages(messages)
        report, spans = sized(native.weir_prompt_report), (native.weir_span * n_made)()
        self._call(lib.weir_session_prompt, made, n_made, _given(PromptOptions, options, fields), spans, byref(report))
        return _data.prompt_report_of(report), [_data.span_of(span) for span in spans]

    def prompt_tokens(self, tokens: Iterable[int], options: Optional[PromptOptions] = None, **fields: Any) \
            -> PromptReport:
        """Make the conversation exactly these tokens."""
        report = sized(native.weir_prompt_report)
        self._call(lib.weir_session_prompt_tokens, *tokens_of(tokens), _given(PromptOptions, options, fields),
                   byref(report))
        return _data.prompt_report_of(report)

    def prefill(self, tokens: Iterable[int], progress: Optional[Callable[[Progress], Any]] = None) -> None:
        s = PromptOptions(progress=progress).to_native()
        self._call(lib.weir_session_prefill, *tokens_of(tokens), s.progress, s.progress_user)

    def rewind(self, n_tokens: int, flags: int = 0) -> None:
        self._call(lib.weir_session_rewind, integer("n_tokens", n_tokens), integer("flags", flags))

    def step(self, token: int) -> None:
        self._call(lib.weir_session_step, integer("token", token, False))

    @property
    def tokens(self) -> List[int]:
        """The conversation, a copy; after very long ones its end (weir_session_tokens)."""
        pointer, n = POINTER(c_int32)(), c_uint32()
        with Use(self, True) as session:
            lib.weir_session_tokens(session, byref(pointer), byref(n))
            return list(pointer[:n.value]) if n.value else []

    def logits(self) -> memoryview:
        """Logits of the token that comes next: [vocab_size] floats, the session's own memory, which its next call
        changes. numpy.asarray makes an array of it without copying."""
        pointer, n = POINTER(c_float)(), c_uint32()
        with Use(self, True) as session:
            lib.weir_session_logits(session, byref(pointer), byref(n))
            owner, view = view_of(c_float, pointer, n.value, "f")
            use = Use(self)  # until the view is gone, so that its memory stays
            use.__enter__()
            weakref.finalize(owner, use.__exit__)
            return view.toreadonly()

    def save(self, write: Callable[[bytes], Any]) -> None:
        """The conversation as bytes, to the `write` of a file, say."""
        def take(info: Any) -> None:
            n = write(string_at(info.contents.data, info.contents.n_bytes))
            if isinstance(n, int) and n != info.contents.n_bytes:  # as a file without a buffer may
                raise OSError(f"write took {n} of {info.contents.n_bytes} bytes")
        entry = guarded(take)
        self._call(lib.weir_session_save, *resumed(native.weir_write_fn, entry))

    def restore(self, read: Callable[[int], bytes]) -> None:
        """Go on with a conversation that was saved, from the `read` of a file, say."""
        def give(info_and_n_read: Any) -> None:
            info, n_read = info_and_n_read
            data = bytes(read(info.contents.n_bytes))
            if len(data) > info.contents.n_bytes:
                raise ValueError(f"read gave {len(data)} bytes where {info.contents.n_bytes} were asked for")
            memmove(info.contents.data, data, len(data))
            n_read[0] = len(data)
        entry = guarded(give)
        self._call(lib.weir_session_restore, native.weir_read_fn(lambda _, *given: entry.send(given)), None)

    # --- answers ---

    def set_sampling(self, options: Optional[SamplingOptions] = None, **fields: Any) -> None:
        self._call(lib.weir_session_set_sampling, _given(SamplingOptions, options, fields))

    def set_constraint(self, constraint: Optional[Constraint], segments: int = 0) -> None:
        self._call(lib.weir_session_set_constraint, constraint and Use(constraint), segments)

    def set_token_mask(self, function: Optional[Callable[[MaskInfo], Optional[bool]]]) -> None:
        """A function that decides before each draw which tokens may come."""
        def ask(info: Any) -> Any:
            s = info.contents
            with view_of(c_int32, s.tokens, s.n_tokens, "i")[1] as tokens, \
                    view_of(c_uint32, s.words, (s.vocab_size + 31) // 32, "I")[1] as words:
                assert function
                return function(MaskInfo(s.vocab_size, tokens, words))
        entry = None if function is None else guarded(ask)
        with Use(self, True) as session:
            lib.weir_session_set_token_mask(session, *resumed(native.weir_mask_fn, entry))
            self._mask = function, entry  # which the library calls from now on

    def sample(self) -> int:
        token = c_int32()
        self._call(lib.weir_session_sample, byref(token))
        return token.value

    def generate(self, options: Optional[GenerateOptions] = None, **fields: Any) -> GenerateResult:
        """An answer that is pushed into on_token; False from it is a CancelledError here."""
        result = sized(native.weir_generate_result)
        self._call(lib.weir_session_generate, _given(GenerateOptions, options, fields), byref(result))
        return _data.generate_result_of(result)

    def begin(self, options: Optional[GenerateOptions] = None, **fields: Any) -> None:
        self._call(lib.weir_session_begin, _given(GenerateOptions, options, fields))

    def next(self) -> Event:
        return next(self._rest())

    def events(self, options: Optional[GenerateOptions] = None, **fields: Any) -> Iterator[Event]:
        """Begin an answer; its events, the last of kind END. It may be left at any of them. An error ends this
        iterator, not the answer: `next` goes on with it."""
        self.begin(options, **fields)
        return self._rest()

    def _rest(self) -> Iterator[Event]:
        """Without Use and with what it needs at hand: after a step all that it looks at has left the caches."""
        native_event, end, of, step = sized(native.weir_event), EventKind.END, _data.event_of, lib.weir_session_next
        reference, pointer, alone = byref(native_event), self._pointer, self._alone
        while True:
            if self._is_closed or forked or not alone.acquire(False):
                self._refuse()
            try:
                status = step(pointer, reference)
                if status:
                    check(status)
                event = of(native_event)
            finally:
                alone.release()
                if self._is_closed:
                    self._give_back()
            yield event
            if event.kind is end:
                return

    async def stream(self, options: Optional[GenerateOptions] = None, **fields: Any) -> AsyncIterator[Event]:
        """The same, computed in the event loop's threads. A task that is cancelled ends when its step has; the token of
        that step is in the conversation."""
        events = self.events(options, **fields)
        while True:
            step = asyncio.get_running_loop().run_in_executor(None, next, events, None)
            try:
                event = await asyncio.shield(step)
            except asyncio.CancelledError:
                await asyncio.wait([step])
                raise
            if event is None:
                return
            yield event

    def answer(self) -> Tuple[Message, bool]:
        """The latest answer as a message to keep, and whether it has a call of a tool that could not be read."""
        m, is_malformed = native.weir_chat_message(), c_uint32()
        with Use(self, True) as session:
            lib.weir_session_answer(session, byref(m), sizeof(m), byref(is_malformed))
            content = str_at(address_at(m, _CONTENT), m.content_bytes)
            thought = str_at(address_at(m, _THOUGHT), m.thought_bytes)
            calls = None if m.tool_calls_json is None else decoded(m.tool_calls_json)
        return Message("assistant", content, thought or None, calls), bool(is_malformed.value)

    # --- any thread ---

    def cancel(self) -> None:
        """Stop the call that runs, or the next one. Any thread."""
        call(lib.weir_session_cancel, Use(self))

    def clear_cancel(self) -> None:
        """Any thread."""
        call(lib.weir_session_clear_cancel, Use(self))

    def finish_thinking(self) -> None:
        """Any thread."""
        call(lib.weir_session_finish_thinking, Use(self))

    @property
    def stats(self) -> Stats:
        """Any thread."""
        return self._info(native.weir_session_stats, _data.stats_of, lib.weir_session_get_stats)

    @property
    def memory(self) -> MemoryInfo:
        """Any thread."""
        return self._info(native.weir_memory_info, _data.memory_info_of, lib.weir_session_memory)

    # --- the rest ---

    def set_cancel(self, cancel: Optional[Cancel]) -> None:
        self._call(lib.weir_session_set_cancel, cancel and Use(cancel))

    def pin(self, first: int, end: int) -> None:
        self._call(lib.weir_session_pin, integer("first", first), integer("end", end))

    def unpin(self, first: int, end: int) -> None:
        self._call(lib.weir_session_unpin, integer("first", first), integer("end", end))

    def pages(self) -> List[PageState]:
        found = filled(native.weir_page_state, 256, c_uint32, lib.weir_session_pages, Use(self, True))
        return [_data.page_state_of(page) for page in found]


_CONTENT, _THOUGHT = (offset_of(native.weir_chat_message, name) for name in ("content", "thought"))


def _pointers(sessions: Sequence[Session], stack: ExitStack) -> Any:
    """Alone inside each; one that is there twice counts once, so that the library names it."""
    pointers = {session: stack.enter_context(Use(session, True)) for session in dict.fromkeys(sessions)}
    return (c_void_p * len(sessions))(*[pointers[session] for session in sessions])


def step_many(sessions: Sequence[Session], tokens: Sequence[int]) -> None:
    """One step of several conversations of one model, which reads the weights once."""
    sessions, (ids, n_ids) = list(sessions), tokens_of(tokens)
    if n_ids != len(sessions):
        raise ValueError(f"{len(sessions)} sessions and {n_ids} tokens")
    with ExitStack() as stack:
        lib.weir_step_many(_pointers(sessions, stack), ids, n_ids)


def next_many(sessions: Sequence[Session]) -> Tuple[List[Event], int]:
    """The next event of each session, and how many answers go on."""
    sessions = list(sessions)
    events = (native.weir_event * len(sessions))(*[sized(native.weir_event) for _ in sessions])
    n_running = c_uint32()
    with ExitStack() as stack:
        lib.weir_next_many(_pointers(sessions, stack), events, len(sessions), byref(n_running))
        return [_data.event_of(event) for event in events], n_running.value
