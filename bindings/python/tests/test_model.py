"""Runtimes and models: facts, tokens, templates, plans, options, texts that are no good."""
import ctypes
import gc
import json
import math
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import weakref

from common import MODEL, QUESTION, ModelTest, weir


class Models(ModelTest):
    def test_info(self):
        info = self.model.info
        self.assertEqual((info.architecture, info.name, info.weight_type, info.vocab_size, info.n_layers),
                         ("llama", "Weir Tiny Reasoner", "q8_0", 1664, 8))
        self.assertEqual(info.file_bytes, os.path.getsize(MODEL))
        self.assertEqual(dict(self.model.metadata())["general.architecture"], "llama")
        self.assertGreater(len(dict(self.model.metadata())["tokenizer.chat_template"]), 64)  # more than a first guess
        self.assertIn("q8_0", weir.weight_types())

    def test_tensors(self):
        tensors = [self.model.tensor(i) for i in range(self.model.info.n_tensors)]
        self.assertEqual(sum(tensor.bytes for tensor in tensors), self.model.info.weights_bytes)
        self.assertEqual(tensors[0].dims, (1664, 384, 1, 1))
        for index in (len(tensors), -1, 1 << 32):
            with self.assertRaisesRegex(weir.InvalidArgError if index == len(tensors) else ValueError, f"{index}"):
                self.model.tensor(index)

    def test_tokens(self):
        tokens = self.model.tokenize("Who are you? \u00e4\u20ac\U0001f600")
        self.assertEqual(self.model.detokenize(tokens).decode(), "Who are you? \u00e4\u20ac\U0001f600")
        self.assertEqual(b"".join(self.model.token(t).bytes for t in tokens), self.model.detokenize(tokens))
        self.assertEqual(self.model.tokenize(""), [])
        self.assertEqual(self.model.detokenize([]), b"")
        long = "word " * 5000  # more tokens than the first guess has room for
        self.assertEqual(self.model.detokenize(self.model.tokenize(long)), long.encode())
        eos = self.model.special_tokens.eos
        self.assertTrue(self.model.token(eos).flags & weir.TokenFlags.END_OF_GENERATION)
        self.assertEqual(self.model.tokenize(self.model.token(eos).text, flags=weir.TokenizeFlags.SPECIAL), [eos])
        with self.assertRaisesRegex(ValueError, r"tokens\[1\] is 4294967296"):
            self.model.detokenize([5, 1 << 32])
        with self.assertRaises(weir.InvalidArgError):
            self.model.detokenize([1664])

    def test_detokenizer(self):
        tokens = self.model.tokenize("a \u20ac b")
        with weir.Detokenizer(self.model) as detokenizer:
            pieces = [detokenizer.push(token) for token in tokens]
            self.assertEqual("".join(pieces) + detokenizer.flush(), "a \u20ac b")
            cut = self.model.tokenize("\u20ac")[:-1]  # a part of a character
            self.assertEqual([detokenizer.push(token) for token in cut], ["", ""])
            self.assertEqual(detokenizer.flush(), "\ufffd")

    def test_progress(self):
        seen = []
        with weir.Model(MODEL, self.runtime, progress=lambda progress: seen.append(progress)):
            pass
        self.assertEqual(seen[-1], (os.path.getsize(MODEL), os.path.getsize(MODEL)))
        with self.assertRaises(weir.CancelledError):
            weir.Model(MODEL, self.runtime, progress=lambda progress: False)

    def test_chat_text(self):
        text = self.model.chat_render(QUESTION, flags=weir.ChatFlags.ADD_ASSISTANT)
        self.assertIn("<|im_start|>user\nWho are you?<|im_end|>", text)
        tokens = self.model.chat_tokenize(QUESTION, flags=weir.ChatFlags.ADD_ASSISTANT)
        self.assertEqual(tokens, self.model.tokenize(text, flags=weir.TokenizeFlags.SPECIAL))
        self.assertEqual(self.model.chat_tokenize([{"role": "user", "content": "Who are you?"}]),
                         self.model.chat_tokenize(QUESTION))
        self.assertTrue(self.model.chat_info.can & weir.ChatAbilities.THOUGHTS)
        self.assertEqual(self.model.chat_info.thought_end, "</think>")
        with self.assertRaisesRegex(weir.NotFoundError, "colour"):
            self.model.chat_tokenize(QUESTION, variables={"colour": 1})

    def test_tools_in_a_template(self):
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        calls = [{"name": "weather", "arguments": {"city": "Paris"}, "id": "abc"}]
        template = "{% for m in messages %}{% if m.role == 'tool' %}{{ m.name }}={% endif %}{{ m.content }}" \
                   "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %};{% endfor %}" \
                   "{% for t in tools %}{{ t.function.name }}{% endfor %}"
        text = self.model.chat_render(
            [weir.Message("user", "Rain?"), weir.Message("assistant", "", tool_calls=calls),
             weir.Message("tool", "no", tool_call_id="abc", name="weather")], tools=tools, template_text=template)
        self.assertEqual(text, "Rain?;[weather];weather=no;weather")

    def test_template(self):
        text = self.runtime.render("{% for m in messages %}{{ m.content }}{% endfor %}{{ strftime_now('%Y') }}",
                                   {"messages": [{"content": "a"}, {"content": "b"}]}, unix_time=86400)
        self.assertEqual(text, "ab1970")
        with self.assertRaisesRegex(weir.FormatError, "line 1"):
            self.runtime.render("{% for %}", {})

    def test_plan_equals_the_program(self):
        program = os.environ.get("WEIR_PROGRAM")
        if not program:
            self.skipTest("WEIR_PROGRAM is not set")
        for arguments, options in ((["--policy", "raas", "--budget", "512"], {"policy": "raas", "budget_tokens": 512}),
                                   (["--policy", "arkvale", "--budget", "256"],
                                    {"policy": "arkvale", "budget_tokens": 256}),
                                   ([], {})):
            run = subprocess.run([program, "plan", "-m", MODEL, "--json", *arguments], check=True,
                                 stdout=subprocess.PIPE)
            printed = json.loads(run.stdout)
            with weir.Runtime() as runtime, weir.Model(MODEL, runtime) as model:  # as many threads as the program
                plan = model.plan(**options)
            compared = [name for name in plan._fields if name in printed and name != "device"]
            self.assertGreater(len(compared), 20)
            for name in compared:
                self.assertEqual(getattr(plan, name), printed[name], f"{name} of {options}")
            self.assertEqual(plan.device.name.lower(), printed["device"])

    def test_presets_and_fit(self):
        self.assertIn("raas", weir.policies())
        options = weir.preset("reason-fixed", context_tokens=4096)
        self.assertEqual((options.policy, options.context_tokens), ("raas", 4096))
        self.assertGreater(options.budget_tokens, 0)
        whole = self.model.plan()
        fitted = self.model.fit(whole.total_bytes // 2, weir.SessionOptions(policy="raas"))
        plan = self.model.plan(fitted)
        self.assertLessEqual(plan.total_bytes, whole.total_bytes // 2)
        self.assertGreater(fitted.budget_tokens + fitted.budget_bytes, 0)
        with self.assertRaisesRegex(weir.NotFoundError, "reason-fixed"):
            weir.preset("no-such")
        with self.assertRaises(weir.BudgetError):
            self.model.fit(1000)
        self.assertEqual(weir.preset("reason-recall").spill_flags, weir.SpillFlags.HALF)

    def test_policy_options(self):
        sink = weir.SessionOptions(policy="sink", budget_tokens=256)
        with self.assertRaisesRegex(weir.NotFoundError, '"no_such"; it has: .*window'):
            self.model.plan(sink, policy_options={"no_such": "1"})
        with self.assertRaisesRegex(weir.InvalidArgError, "window"):
            self.model.plan(sink, policy_options={"window": "wide"})
        with self.assertRaisesRegex(weir.BudgetError, "sinks=1024 needs a budget"):
            self.model.plan(sink, policy_options={"window": "16", "sinks": "1024"})
        self.assertEqual(weir.preset("stream").policy_options, {"positions": "incache"})
        self.assertEqual(weir.preset("exact").policy_options, {})
        with self.assertRaisesRegex(ValueError, "a key has a NUL"):
            self.model.plan(sink, policy_options={"win\0dow": "1"})

    def test_runtime(self):
        self.assertEqual(self.runtime.n_threads, 1)
        self.assertTrue(self.runtime.cpu_target)
        self.assertGreater(self.runtime.memory.n_allocs, 0)
        devices = self.runtime.devices()
        self.assertEqual((devices[0].name, devices[0].kind), ("CPU", weir.DeviceKind.CPU))
        self.assertTrue(devices[0].is_usable)

    def test_log(self):
        lines = []
        with weir.Runtime(n_threads=1, log=lines.append, log_level=weir.LogLevel.DEBUG) as runtime:
            with weir.Model(MODEL, runtime), self.assertRaises(weir.IoError):
                weir.Model("/no/such.gguf", runtime)
        self.assertTrue(all(isinstance(line.message, str) and line.level in weir.LogLevel for line in lines))
        self.assertTrue(lines)

    def test_hooks_for_memory(self):
        """Given as functions of ctypes, here of the C library."""
        libc = ctypes.CDLL(None)
        libc.aligned_alloc.restype = ctypes.c_void_p
        libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
        libc.free.argtypes = [ctypes.c_void_p]
        counts = [0, 0]

        @weir.native.weir_alloc_fn
        def alloc(user, info, out):
            counts[0] += 1
            alignment = max(info.contents.alignment, 16)
            out[0] = libc.aligned_alloc(alignment, -(-info.contents.bytes // alignment) * alignment)
            return 0 if out[0] else -2

        @weir.native.weir_free_fn
        def free(user, info):
            counts[1] += 1
            libc.free(info.contents.ptr)
            return 0

        with weir.Runtime(n_threads=1, alloc=alloc, free=free) as runtime, weir.Model(MODEL, runtime) as model, \
                weir.Session(model, context_tokens=256) as session:
            session.prompt(QUESTION)
        self.assertGreater(counts[0], 10)
        self.assertEqual(counts[0], counts[1])

    def test_hooks_live_as_long_as_what_was_made(self):
        """The library calls them for whatever a runtime's model made, also where its user dropped both."""
        for make in (weir.Detokenizer, weir.Constraint):
            runtime = weir.Runtime(n_threads=1, log=print)
            kept, made = weakref.ref(runtime), make(weir.Model(MODEL, runtime))
            del runtime
            gc.collect()
            self.assertIsNotNone(kept(), make)
            made.close()
            del made
            gc.collect()
            self.assertIsNone(kept(), make)


class BadInput(ModelTest):
    def test_an_error_has_the_text(self):
        with self.assertRaisesRegex(weir.IoError, "/no/such/model.gguf") as caught:
            weir.Model("/no/such/model.gguf", self.runtime)
        self.assertEqual(caught.exception.status, weir.Status.IO)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "no model.gguf")
            path.write_bytes(b"no model" * 100)
            with self.assertRaises(weir.FormatError):
                weir.Model(path, self.runtime)
        with self.assertRaisesRegex(weir.NotFoundError, "no-such-policy"):
            self.model.plan(policy="no-such-policy")

    def test_nul_in_texts(self):
        with self.assertRaisesRegex(ValueError, "path has a NUL at byte 3"):
            weir.Model("abc\0def", self.runtime)
        with self.assertRaisesRegex(ValueError, "policy has a NUL"):
            self.model.plan(policy="dense\0")
        with self.assertRaisesRegex(ValueError, "role has a NUL"):
            self.model.chat_tokenize([weir.Message("us\0er", "a")])
        # Where the length counts, a NUL is a character as others.
        self.assertEqual(self.model.detokenize(self.model.tokenize("a\0b")), b"a\0b")
        self.assertIn("a\0b", self.model.chat_render([weir.Message("user", "a\0b")]))

    def test_lone_surrogates(self):
        for bad in ("\ud800", "a\udfffb"):
            with self.assertRaises(UnicodeEncodeError):
                self.model.tokenize(bad)
            with self.assertRaises(UnicodeEncodeError):
                self.session().prompt([weir.Message("user", bad)])
            with self.assertRaises(UnicodeEncodeError):
                self.session().events(stop=[bad])

    def test_invalid_utf8(self):
        for data in (b"\xff", b"a\xc3", b"\xed\xa0\x80"):
            self.assertEqual(self.model.detokenize(self.model.tokenize(data)), data)
            session = self.session()
            session.prompt(QUESTION)
            with self.assertRaises(weir.InvalidArgError):
                session.begin(stop=[data])
        # A message of such bytes is what the library makes of it: tokens or an error, never a crash.
        session = self.session()
        try:
            session.prompt([weir.Message("user", b"\xff\xfe")])
            self.assertGreater(len(session.tokens), 0)
        except weir.WeirError as error:
            self.assertTrue(str(error))

    def test_numbers_that_do_not_fit(self):
        with self.assertRaisesRegex(ValueError, "context_tokens is 4294967296"):
            self.model.plan(context_tokens=1 << 32)
        with self.assertRaisesRegex(ValueError, "max_tokens is -1"):
            self.session().begin(max_tokens=-1)
        session, model, big = self.session(), self.model, 1 << 64
        # Each parameter that is a number, by its name.
        for name, call in (
                ("n_tokens", lambda n: session.rewind(n)), ("flags", lambda n: session.rewind(0, n)),
                ("token", session.step), ("first", lambda n: session.pin(n, 1)), ("end", lambda n: session.pin(0, n)),
                ("first", lambda n: session.unpin(n, 1)), ("end", lambda n: session.unpin(0, n)),
                ("token", model.token), ("index", model.tensor), ("n_bytes", model.fit),
                ("flags", lambda n: model.detokenize([1], n)), ("flags", lambda n: weir.Detokenizer(model, n)),
                ("token", lambda n: weir.Detokenizer(model).push(n)), ("kind", lambda n: weir.Constraint(model, n)),
                ("unix_time", lambda n: self.runtime.render("a", {}, n)),
                (r"tokens\[0\]", lambda n: session.prefill([n])),
                (r"tokens\[0\]", lambda n: session.prompt_tokens([n])),
                (r"tokens\[0\]", lambda n: weir.step_many([session], [n])),
                ("a token", lambda n: session.set_sampling(bias={n: 1.0}))):
            for number in (-big, big):
                with self.assertRaisesRegex(ValueError, f"{name} is {number}, which is not in"):
                    call(number)
            with self.assertRaises(TypeError):
                call(1.5)
        self.assertEqual(session.tokens, [])
        with self.assertRaises(TypeError):
            self.model.plan(no_such_field=1)

    def test_floats_that_do_not_fit(self):
        """A float of C would become infinity; what it can hold goes to the library, which knows what it takes."""
        session = self.session()
        for name in ("temperature", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty"):
            for number in (1e39, -1e300, 10 ** 400):
                with self.assertRaisesRegex(ValueError, f"{name} is {re.escape(str(number))}, which is more"):
                    session.set_sampling(**{name: number})
            for number in (1e38, math.inf, -math.inf, math.nan):
                with self.assertRaisesRegex(weir.InvalidArgError, name):
                    session.set_sampling(**{name: number})
            with self.assertRaises(TypeError):
                session.set_sampling(**{name: "1"})
        with self.assertRaisesRegex(ValueError, r"bias\[7\] is 1e\+39"):
            session.set_sampling(bias={7: 1e39})

    def test_closed(self):
        with weir.Runtime(n_threads=1) as runtime:
            model = weir.Model(MODEL, runtime)
            session = weir.Session(model, context_tokens=256)
            constraint = weir.Constraint(model)
            session.close()
            session.close()
            with self.assertRaisesRegex(weir.ClosedError, "Session is closed"):
                session.prompt(QUESTION)
            with self.assertRaises(weir.ClosedError):
                next(session._rest())
            for call in (session.cancel, session.next, session.fork, session.pages, lambda: session.stats,
                         lambda: session.tokens):
                with self.assertRaises(weir.ClosedError):
                    call()
            model.close()
            with self.assertRaisesRegex(weir.ClosedError, "Model is closed"):
                weir.Session(model)
            with self.assertRaises(weir.ClosedError):
                model.tokenize("a")
            constraint.close()
        with self.assertRaises(weir.ClosedError):
            weir.Model(MODEL, runtime)


if __name__ == "__main__":
    unittest.main()
