"""Sessions: answers, edits, constraints, callbacks, saved conversations."""
import asyncio
import gc
import io
import json
import math
import unittest
import weakref

from common import MODEL, QUESTION, ModelTest, text_of, tokens_of, weir

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20},
                                           "kind": {"enum": ["number", "name"]}},
          "required": ["answer", "kind"], "additionalProperties": False}


class Answers(ModelTest):
    def test_events(self):
        session = self.session()
        report, spans = session.prompt(QUESTION)
        self.assertEqual((report.n_tokens, report.n_read), (len(session.tokens), len(session.tokens)))
        self.assertEqual(self.model.detokenize(session.tokens[spans[0].first:spans[0].end]), b"Who are you?")
        events = list(session.events(max_tokens=8))
        self.assertEqual([event.kind for event in events], [weir.EventKind.TOKEN] * 8 + [weir.EventKind.END])
        self.assertEqual((events[-1].stop, events[-1].index), (weir.StopReason.LENGTH, 8))
        self.assertEqual(tokens_of(events), session.tokens[report.n_tokens:])
        self.assertEqual(text_of(events), self.model.detokenize(tokens_of(events)).decode())
        message, is_malformed = session.answer()
        self.assertEqual((message.role, message.content, is_malformed), ("assistant", text_of(events), False))
        self.assertTrue(all(math.isnan(event.logprob) and event.top == () for event in events))

    def test_push_is_pull(self):
        pulled, pushed, shown = self.session(), self.session(), []
        pulled.prompt(QUESTION)
        pushed.prompt(QUESTION)
        events = list(pulled.events(max_tokens=20))
        result = pushed.generate(max_tokens=20, on_token=shown.append)
        self.assertEqual([event.token for event in shown], tokens_of(events))
        self.assertEqual((result.n_tokens, result.stop), (20, weir.StopReason.LENGTH))
        self.assertEqual(pulled.tokens, pushed.tokens)

    def test_stop_strings_and_logprobs(self):
        session = self.session()
        session.prompt(QUESTION)
        events = list(session.events(stop=["no such text", " small"], n_top=3))
        self.assertEqual((events[-1].stop, events[-1].stop_index), (weir.StopReason.STRING, 1))
        self.assertEqual(text_of(events), "I am a")
        first = events[0]
        self.assertEqual((len(first.top), first.top[0].token), (3, first.token))
        self.assertAlmostEqual(first.top[0].logprob, first.logprob)
        self.assertLessEqual(first.logprob, 0)

    def test_sampling(self):
        def drawn(**options):
            session = self.session()
            session.prompt(QUESTION)
            session.set_sampling(**options)
            return tokens_of(session.events(max_tokens=12))
        self.assertEqual(drawn(temperature=1.0, seed=3), drawn(temperature=1.0, seed=3))
        self.assertNotEqual(drawn(temperature=20.0, seed=3), drawn(temperature=20.0, seed=4))
        first = drawn()[0]
        self.assertNotEqual(drawn(bias={first: -100.0})[0], first)

    def test_steps_by_hand(self):
        session, other = self.session(), self.session()
        session.prefill(self.model.chat_tokenize(QUESTION, flags=weir.ChatFlags.ADD_ASSISTANT))
        other.prompt(QUESTION)
        for event in other.events(max_tokens=5):
            if event.kind == weir.EventKind.TOKEN:
                logits = session.logits()
                self.assertEqual(len(logits), 1664)
                self.assertEqual(max(range(1664), key=lambda token: logits[token]), event.token)
                self.assertEqual(session.sample(), event.token)
                session.step(event.token)
        self.assertEqual(session.tokens, other.tokens)

    def test_logits_are_a_view(self):
        session = self.session()
        session.prompt(QUESTION)
        logits = session.logits()
        first = list(logits)
        with self.assertRaises(TypeError):
            logits[0] = 1.0
        session.step(session.sample())
        self.assertNotEqual(first, list(logits))
        session.close()  # the memory stays as long as the view
        self.assertEqual(len(list(logits)), 1664)
        with self.assertRaises(weir.ClosedError):
            session.logits()

    def test_logits_in_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        session = self.session()
        session.prompt(QUESTION)
        view = session.logits()
        array = numpy.asarray(view)
        self.assertEqual((array.dtype, array.shape, int(array.argmax())), (numpy.float32, (1664,), session.sample()))
        self.assertTrue(numpy.shares_memory(array, numpy.frombuffer(view, numpy.float32)))

    def test_edit_and_regenerate(self):
        session = self.session()
        messages = [weir.Message("user", "Who are you?")]
        first = session.prompt(messages)[0]
        answer = text_of(session.events(max_tokens=20))
        # Another answer: nothing is read but the last token again.
        again = session.prompt(messages)[0]
        self.assertEqual(again.n_kept + again.n_read, first.n_tokens)
        self.assertIn(again.n_forgotten, (20, 21))  # the last token of the question may be read again
        self.assertLessEqual(again.n_read, 1)
        self.assertEqual(text_of(session.events(max_tokens=20)), answer)
        # The next turn keeps the answer that was drawn.
        messages += [session.answer()[0], weir.Message("user", "What can you do?")]
        turn = session.prompt(messages)[0]
        self.assertGreaterEqual(turn.n_kept, first.n_tokens + 19)
        # An edited question.
        messages[2] = weir.Message("user", "What is your name?")
        edited, spans = session.prompt(messages)
        self.assertGreaterEqual(edited.n_kept, first.n_tokens + 19)
        self.assertLess(edited.n_read, turn.n_read + 5)
        self.assertEqual(self.model.detokenize(session.tokens[spans[2].first:spans[2].end]), b"What is your name?")
        measured = session.prompt(QUESTION, flags=weir.PromptFlags.MEASURE)[0]
        self.assertEqual((measured.n_tokens, len(session.tokens)), (first.n_tokens, edited.n_tokens))

    def test_prompt_tokens_rewind_fork(self):
        session = self.session()
        tokens = self.model.chat_tokenize(QUESTION, flags=weir.ChatFlags.ADD_ASSISTANT)
        session.prompt_tokens(tokens)
        drawn = tokens_of(session.events(max_tokens=6))
        fork = session.fork()
        self.assertEqual(fork.tokens, tokens + drawn)
        fork.rewind(len(tokens))
        with self.assertRaises(weir.StateError):
            fork.logits()
        report = fork.prompt_tokens(tokens)
        self.assertEqual(report.n_kept + report.n_read, len(tokens))
        self.assertEqual(tokens_of(fork.events(max_tokens=6)), drawn)
        self.assertEqual(session.tokens, tokens + drawn)
        session.reset()
        self.assertEqual((session.tokens, fork.stats.n_tokens), ([], len(tokens) + 6))

    def test_json_by_schema(self):
        for kind, text in ((weir.ConstraintKind.JSON_SCHEMA, SCHEMA),
                           (weir.ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA))):
            session = self.session()
            with weir.Constraint(self.model, kind, text) as constraint:
                session.set_constraint(constraint)
            session.prompt([weir.Message("user", "What is the capital of France?")])
            events = list(session.events(max_tokens=300))
            self.assertIn(events[-1].stop, (weir.StopReason.EOS, weir.StopReason.CONSTRAINT))
            said = json.loads("".join(e.text for e in events if e.segment == weir.Segment.ANSWER))
            self.assertEqual(sorted(said), ["answer", "kind"])
            self.assertIn(said["kind"], ("number", "name"))
            self.assertLessEqual(len(said["answer"]), 20)
            session.set_constraint(None)
            session.prompt(QUESTION)
            self.assertEqual(text_of(session.events(max_tokens=4)), "I am a small")
        with self.assertRaisesRegex(weir.UnsupportedError, "uniqueItems"):
            weir.Constraint(self.model, weir.ConstraintKind.JSON_SCHEMA, {"type": "array", "uniqueItems": True})

    def test_grammar_and_tools(self):
        session = self.session()
        session.set_constraint(weir.Constraint(self.model, weir.ConstraintKind.GBNF, 'root ::= "yes" | "no"'))
        session.prompt(QUESTION)
        events = list(session.events())
        self.assertIn("".join(e.text for e in events if e.segment == weir.Segment.ANSWER), ("yes", "no"))
        tools = [{"type": "function", "function": {"name": "weather", "parameters": {
            "type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
            "additionalProperties": False}}}]
        session.set_constraint(weir.Constraint(self.model, weir.ConstraintKind.TOOLS, tools))
        session.prompt(QUESTION)
        said = "".join(e.text for e in session.events(max_tokens=300, thinking_budget=8)
                       if e.segment == weir.Segment.ANSWER)
        self.assertIn(json.loads(said), [{"name": "weather", "arguments": {"city": "Paris"}},
                                         {"name": "weather", "arguments": {"city": "Rome"}}])

    def test_token_mask(self):
        session, allowed, seen = weir.Session(self.model, context_tokens=1024), self.model.tokenize("abc"), []

        def mask(info):
            seen.append(list(info.tokens))
            self.assertEqual((info.vocab_size, len(info.words)), (1664, 52))
            for i in range(len(info.words)):
                info.words[i] = 0
            for token in allowed:
                info.words[token // 32] |= 1 << token % 32

        session.set_token_mask(mask)
        session.prompt(QUESTION)
        drawn = tokens_of(session.events(max_tokens=5))
        self.assertTrue(set(drawn) <= set(allowed))
        self.assertEqual(seen, [drawn[:n] for n in range(5)])
        fork = session.fork()
        function = weakref.ref(mask)
        session.close()
        del session, mask  # the fork has the function, too
        gc.collect()
        self.assertIsNotNone(function())
        self.assertTrue(set(tokens_of(fork.events(max_tokens=3))) <= set(allowed))
        fork.set_token_mask(None)
        self.assertIsNone(function())
        self.assertFalse(set(tokens_of(fork.events(max_tokens=8))) <= set(allowed))

    def test_views_of_a_mask_end_with_it(self):
        session, kept = self.session(), []
        session.set_token_mask(lambda info: kept.append(info.words))
        session.prompt(QUESTION)
        list(session.events(max_tokens=1))
        with self.assertRaisesRegex(ValueError, "released"):
            kept[0][0]

    def test_callbacks_that_throw(self):
        session = self.session()
        session.prompt(QUESTION)
        n = len(session.tokens)

        def third(event):
            if event.index == 2:
                raise KeyError("of the callback")
        with self.assertRaisesRegex(KeyError, "of the callback"):
            session.generate(on_token=third, max_tokens=10)
        self.assertEqual(len(session.tokens), n + 3)
        with self.assertRaises(weir.CancelledError):
            session.generate(on_token=lambda event: False, max_tokens=10)
        with self.assertRaises(ZeroDivisionError):
            session.prefill(self.model.tokenize("a b c d e f"), progress=lambda progress: 1 // 0)
        with self.assertRaises(KeyboardInterrupt):
            self.model.tokenize("word " * 100, progress=self.interrupted)
        session.set_token_mask(lambda info: 1 // 0)
        with self.assertRaises(ZeroDivisionError):
            list(session.events())
        session.set_token_mask(None)
        with self.assertRaises(ZeroDivisionError):
            session.save(lambda data: 1 // 0)
        with self.assertRaises(ZeroDivisionError):
            weir.Model(MODEL, self.runtime, progress=lambda progress: 1 // 0)
        session.prompt(QUESTION)
        self.assertEqual(text_of(session.events(max_tokens=2)), "I am")

    @staticmethod
    def interrupted(progress):
        raise KeyboardInterrupt

    def test_an_exception_of_the_log_is_no_failure(self):
        import sys
        unraisable, old = [], sys.unraisablehook
        sys.unraisablehook = lambda what: unraisable.append(what.exc_type)
        try:
            with weir.Runtime(n_threads=1, log_level=weir.LogLevel.DEBUG, log=lambda line: 1 // 0) as runtime:
                self.assertEqual(len(unraisable), 1)
                weir.Model(MODEL, runtime).close()
        finally:
            sys.unraisablehook = old
        self.assertEqual(set(unraisable), {ZeroDivisionError})

    def test_a_callback_inside_its_session(self):
        session, errors = self.session(), []
        session.prompt(QUESTION)

        def inside(event):
            session.stats, session.memory  # which are allowed
            try:
                session.tokens
            except weir.BusyError as error:
                errors.append(str(error))
        session.generate(on_token=inside, max_tokens=2)
        self.assertEqual(errors, ["another call is inside this Session"] * 2)

    def test_save_and_restore(self):
        session, file = self.session(), io.BytesIO()
        session.prompt(QUESTION)
        list(session.events(max_tokens=5))
        session.save(file.write)
        rest = tokens_of(session.events(max_tokens=5))
        other = self.session()
        file.seek(0)
        other.restore(file.read)
        self.assertEqual(tokens_of(other.events(max_tokens=5)), rest)
        with self.assertRaises(weir.FormatError):
            other.restore(io.BytesIO(b"no session at all" * 10).read)
        with self.assertRaises(weir.FormatError):
            other.restore(io.BytesIO(file.getvalue()[:-1]).read)
        with self.assertRaisesRegex(ValueError, "were asked for"):
            other.restore(lambda n: bytes(n + 1))
        with self.assertRaisesRegex(OSError, "write took 1 of"):
            session.save(lambda data: 1)
        self.assertEqual(other.tokens, [])

    def test_pins_pages_memory(self):
        session = self.session(policy="raas", budget_tokens=128)
        session.prompt(QUESTION)
        list(session.events(max_tokens=40, flags=weir.GenerateFlags.IGNORE_EOS))
        session.pin(0, 16)
        pages = session.pages()
        n_streams = self.model.plan().n_streams
        self.assertEqual(len(pages), -(-len(session.tokens) // 16))
        self.assertEqual((sum(pages[0][:3]), pages[0].pinned), (n_streams, n_streams))
        session.unpin(0, 16)
        self.assertEqual(session.pages()[0].pinned, 0)
        memory = session.memory
        self.assertEqual((memory.bytes, memory.allocs_while_decoding),
                         (self.model.plan(context_tokens=1024, batch_tokens=64, policy="raas",
                                          budget_tokens=128).total_bytes, 0))

    def test_thinking(self):
        session = self.session()
        session.prompt([weir.Message("user", "Start: x0 = 11, x1 = 48. Rule: x[n] = x[n-1] + x[n-2]. Find x20.")])
        events = list(session.events(thinking_budget=5, max_tokens=60))
        self.assertIn(weir.Segment.THOUGHT, {event.segment for event in events})
        self.assertLess(sum(event.segment == weir.Segment.THOUGHT for event in events), 10)
        session.prompt([weir.Message("user", "Start: x0 = 11, x1 = 48. Rule: x[n] = x[n-1] + x[n-2]. Find x20.")])
        n = 0
        for event in session.events(max_tokens=60):
            n += event.segment == weir.Segment.THOUGHT
            if n == 3:
                session.finish_thinking()
        self.assertLess(n, 10)
        self.assertTrue(session.answer()[0].thought)

    def test_many(self):
        sessions, alone = [self.session() for _ in range(3)], self.session()
        questions = ["Who are you?", "What can you do?", "Hello"]
        for session, question in zip(sessions, questions):
            session.prompt([weir.Message("user", question)])
            session.begin(max_tokens=6)
        texts, n_running = [""] * 3, 3
        while n_running:
            events, n_running = weir.next_many(sessions)
            texts = [text + event.text for text, event in zip(texts, events)]
        for text, question in zip(texts, questions):
            alone.prompt([weir.Message("user", question)])
            self.assertEqual(text, text_of(alone.events(max_tokens=6)))
        weir.step_many(sessions, [5, 6, 7])
        self.assertEqual([session.tokens[-1] for session in sessions], [5, 6, 7])
        with self.assertRaisesRegex(weir.InvalidArgError, "twice|same"):
            weir.step_many([sessions[0], sessions[0]], [5, 6])
        with self.assertRaises(ValueError):
            weir.step_many(sessions, [5])


class Async(ModelTest):
    def test_stream(self):
        session, other = self.session(), self.session()
        session.prompt(QUESTION)
        other.prompt(QUESTION)

        async def run():
            return [event async for event in session.stream(max_tokens=12)]
        self.assertEqual(tokens_of(asyncio.run(run())), tokens_of(other.events(max_tokens=12)))

    def test_a_cancelled_task_leaves_the_session_usable(self):
        session = self.session()

        async def consume(seen):
            async for event in session.stream(flags=weir.GenerateFlags.IGNORE_EOS):
                seen.append(event.token)

        async def run():
            seen = []
            task = asyncio.create_task(consume(seen))
            while len(seen) < 3:
                await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            tokens = session.tokens
            await asyncio.sleep(0.02)
            self.assertEqual(session.tokens, tokens)  # no step was running any more
            self.assertIn(seen, (tokens[-len(seen):], tokens[-len(seen) - 1:-1]))  # one more may not have been seen
        for _ in range(10):
            session.prompt(QUESTION)
            asyncio.run(run())
        session.prompt(QUESTION)
        self.assertEqual(text_of(session.events(max_tokens=2)), "I am")


if __name__ == "__main__":
    unittest.main()
