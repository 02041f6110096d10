"""Threads, lifetimes and memory."""
import collections
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

from common import MODEL, QUESTION, ModelTest, text_of, tokens_of, weir
from weir import _handle

FOREVER = weir.GenerateFlags.IGNORE_EOS


class Threads(ModelTest):
    def test_cancel_from_another_thread(self):
        """A hundred answers, each cancelled at another place: the session has the tokens of the events, no others."""
        session = self.session(context_tokens=4096, policy="sink", budget_tokens=64)
        wanted, cancelled, at = threading.Semaphore(0), threading.Semaphore(0), [0]

        def stop():
            for _ in range(100):
                wanted.acquire()
                time.sleep(at[0] % 7 * 0.0004)
                session.cancel()
                cancelled.release()
        thread = threading.Thread(target=stop, daemon=True)
        thread.start()
        for i in range(100):
            session.clear_cancel()
            n = session.prompt(QUESTION)[0].n_tokens
            events, stops = [], collections.Counter()
            # Nothing else ends the answer: it ignores ends, and before the context is full it waits for the thread.
            for event in session.events(flags=FOREVER, max_tokens=500):
                events.append(event)
                stops[event.stop] += 1
                if len(events) == 1 + i % 3:
                    at[0] = i
                    wanted.release()
                if len(events) == 400:
                    cancelled.acquire()
            if len(events) < 400:
                cancelled.acquire()
            self.assertEqual(stops, {weir.StopReason.NONE: len(events) - 1, weir.StopReason.CANCELLED: 1})
            self.assertEqual(session.tokens[n:], tokens_of(events))
            self.assertEqual(text_of(events), self.model.detokenize(tokens_of(events)).decode(errors="replace"))
        thread.join()

    def test_cancel_objects(self):
        cancel = weir.Cancel()
        sessions = [self.session(), self.session()]
        for session in sessions:
            session.set_cancel(cancel)
            session.prompt(QUESTION)
        cancel.set()
        for session in sessions:
            self.assertEqual(list(session.events())[-1].stop, weir.StopReason.CANCELLED)
        cancel.clear()
        self.assertEqual(list(sessions[0].events(max_tokens=2))[-1].stop, weir.StopReason.LENGTH)
        cancel.set()
        cancel.close()  # the session has a reference of its own
        self.assertEqual(list(sessions[0].events())[-1].stop, weir.StopReason.CANCELLED)
        sessions[0].set_cancel(None)
        self.assertEqual(list(sessions[0].events(max_tokens=2))[-1].stop, weir.StopReason.LENGTH)
        with self.assertRaises(weir.ClosedError):
            cancel.set()

    def test_two_threads_with_a_session_each(self):
        def answer(question):
            session = self.session()
            session.prompt([weir.Message("user", question)])
            return text_of(session.events(max_tokens=30))
        questions = ["Who are you?", "What can you do?"]
        alone = [answer(question) for question in questions]
        together = [None, None]

        def run(i):
            together[i] = [answer(questions[i]) for _ in range(3)]
        threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, [[text] * 3 for text in alone])

    def test_one_session_in_two_threads(self):
        session, entered, leave, results = self.session(), threading.Event(), threading.Event(), []
        session.prompt(QUESTION)

        def generate():
            session.generate(flags=FOREVER, max_tokens=2, on_token=lambda event: entered.set() or leave.wait() or None)
        thread = threading.Thread(target=generate, daemon=True)
        thread.start()
        entered.wait()
        for call in (session.next, session.reset, lambda: session.tokens, lambda: session.step(1)):
            try:
                call()
                results.append("called")
            except weir.BusyError as error:
                results.append(str(error))
        self.assertGreater(session.stats.n_tokens, 0)  # any thread
        leave.set()
        thread.join()
        self.assertEqual(results, ["another call is inside this Session"] * 4)
        self.assertEqual(weir.BusyError.status, weir.Status.BUSY)

    def test_closing_while_another_thread_is_inside(self):
        """It takes effect when that thread has left."""
        with weir.Runtime(n_threads=1) as runtime, weir.Model(MODEL, runtime) as model:
            before = runtime.memory.bytes
            session, entered, leave, seen = weir.Session(model, context_tokens=256), threading.Event(), \
                threading.Event(), []
            session.prompt(QUESTION)

            def run():
                seen.append(session.generate(flags=FOREVER, max_tokens=3,
                                             on_token=lambda event: entered.set() or leave.wait() or None))
                try:
                    session.next()
                except weir.ClosedError as error:
                    seen.append(error)
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            entered.wait()
            held = runtime.memory.bytes
            session.close()
            self.assertEqual(runtime.memory.bytes, held)
            self.assertGreater(held, before)
            leave.set()
            thread.join()
            self.assertEqual((seen[0].n_tokens, seen[0].stop), (3, weir.StopReason.LENGTH))
            self.assertIsInstance(seen[1], weir.ClosedError)
            self.assertEqual(runtime.memory.bytes, before)

    def test_closing_between_the_events_of_another_thread(self):
        for _ in range(5):
            session, entered, seen = self.session(), threading.Event(), []
            session.prompt(QUESTION)

            def run():
                try:
                    for event in session.events(flags=FOREVER, max_tokens=500):
                        seen.append(event)
                        entered.set()
                        if len(seen) == 400:
                            closed.wait()
                except weir.ClosedError as error:
                    seen.append(error)
            closed = threading.Event()
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            entered.wait()
            session.close()
            closed.set()
            thread.join()
            self.assertIsInstance(seen[-1], weir.ClosedError)

    def test_calls_from_a_signal_handler_or_finalizer(self):
        """At each step of the interpreter in the bookkeeping of a call, what a signal's handler or a finalizer may do
        there with the same object: nothing waits for itself, and all is given back, once."""
        for name, interrupt in (("call", lambda session, views: session.stats), ("cancel", lambda s, views: s.cancel()),
                                ("drop", lambda session, views: views.clear()), ("close", lambda s, views: s.close())):
            at, n_done, results = 0, 0, collections.Counter()
            with weir.Runtime(n_threads=1) as runtime, weir.Model(MODEL, runtime) as model:
                before = runtime.memory.bytes
                while n_done == at:
                    session = weir.Session(model, context_tokens=64, batch_tokens=16)
                    session.prompt_tokens([5])
                    views, left = [session.logits()], [at]

                    def trace(frame, what, argument):
                        if frame.f_code.co_filename != _handle.__file__:
                            return None
                        frame.f_trace_opcodes = True
                        if what == "opcode":
                            left[0] -= 1
                            if left[0] == -1:
                                interrupt(session, views)
                        return trace

                    def work():
                        sys._getframe().f_trace_opcodes = True  # 3.12 traces none unless a frame wants it before
                        sys.settrace(trace)
                        try:
                            results[session.stats.n_tokens] += 1
                        except weir.ClosedError:
                            results["closed"] += 1
                        finally:
                            sys.settrace(None)
                    thread = threading.Thread(target=work, daemon=True)
                    thread.start()
                    thread.join(60)
                    self.assertFalse(thread.is_alive(), f"{name} at step {at} waits for itself")
                    n_done += left[0] < 0
                    at += 1
                    session.close()
                    views.clear()
                    self.assertEqual(runtime.memory.bytes, before, f"{name} at step {at - 1}")
                self.assertGreater(n_done, 30)
                self.assertEqual(results["closed"] > 0, name == "close", results)
                self.assertGreater(results[1], 0)

    @unittest.skipUnless(hasattr(signal, "raise_signal"), "there are no signals")
    def test_interrupted(self):
        """Ctrl-C while the library computes ends what has a callback, by KeyboardInterrupt, and is never lost: its
        handler runs where the callback begins."""
        session, wanted, unraisable, old = self.session(), threading.Semaphore(0), [], sys.unraisablehook
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

        def press():
            while wanted.acquire() and not is_done:
                os.kill(os.getpid(), signal.SIGINT)

        def once(*_):
            if len(calls) == 0:
                wanted.release()
            calls.append(None)
            if len(calls) > 300:  # it would be raised here, at the latest
                time.sleep(10)
        is_done = []
        thread = threading.Thread(target=press, daemon=True)
        thread.start()
        sys.unraisablehook = lambda what: unraisable.append(what.exc_type)
        try:
            for _ in range(5):
                for call in (lambda: session.generate(flags=FOREVER, max_tokens=500, on_token=once),
                             lambda: [once(), session.generate(flags=FOREVER, max_tokens=500, on_token=bool)],
                             lambda: [session.set_token_mask(once), list(session.events(flags=FOREVER))],
                             lambda: [session.prefill([5] * 16, progress=once) for _ in range(50)],
                             lambda: [session.save(once) for _ in range(1000)]):
                    calls = []
                    session.set_token_mask(None)
                    session.prompt(QUESTION)
                    with self.assertRaises(KeyboardInterrupt):
                        call()
        finally:
            sys.unraisablehook = old
            is_done.append(True)
            wanted.release()
            thread.join()
            signal.signal(signal.SIGINT, handler)
        self.assertEqual(unraisable, [])
        session.set_token_mask(None)
        session.prompt(QUESTION)
        self.assertEqual(text_of(session.events(max_tokens=2)), "I am")

    def test_any_calls_of_many_threads(self):
        """Calls in any order: each returns or is one of the errors; then everything is given back."""
        with weir.Runtime(n_threads=1) as runtime, weir.Model(MODEL, runtime) as model:
            before = runtime.memory.bytes
            least, most, unexpected, counts = time.monotonic() + 1.5, time.monotonic() + 120, [], collections.Counter()
            sessions = [weir.Session(model, context_tokens=256, batch_tokens=16) for _ in range(3)]
            tokens = model.tokenize("hello world")

            def work(seed):
                random_ = random.Random(seed)
                while not unexpected and (time.monotonic() < least or time.monotonic() < most and not (
                        counts["returned"] and counts["closed"] and counts["BusyError"])):
                    i = random_.randrange(3)
                    s = sessions[i]
                    call = random_.choice([
                        s.cancel, s.clear_cancel, s.finish_thinking, s.next, s.reset, s.close, s.pages, s.logits,
                        lambda: s.stats, lambda: s.memory, lambda: s.tokens, lambda: s.prompt_tokens(tokens),
                        lambda: s.begin(max_tokens=5), lambda: list(s.events(max_tokens=3)), lambda: s.fork().close(),
                        lambda: s.generate(max_tokens=3, on_token=lambda event: None),
                        lambda: weir.next_many(sessions), lambda: weir.step_many(sessions, [5, 6, 7])])
                    try:
                        call()
                        counts["returned"] += 1
                    except weir.ClosedError:
                        counts["closed"] += 1
                        sessions[i] = weir.Session(model, context_tokens=256, batch_tokens=16)
                    except (weir.BusyError, weir.StateError, weir.CancelledError, weir.ContextFullError) as error:
                        counts[type(error).__name__] += 1
                    except BaseException as error:
                        unexpected.append(error)
            threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(unexpected, [])
            self.assertGreater(min(counts["returned"], counts["closed"], counts["BusyError"]), 0, counts)
            sessions.clear()
            gc.collect()
            self.assertEqual(runtime.memory.bytes, before)

    def test_a_model_dropped_before_its_session(self):
        with weir.Runtime(n_threads=1) as runtime:
            model = weir.Model(MODEL, runtime)
            session = weir.Session(model, context_tokens=256)
            constraint = weir.Constraint(model)
            model.close()
            del model
        gc.collect()
        session.prompt(QUESTION)
        self.assertEqual(text_of(session.events(max_tokens=2)), "I am")
        session.set_constraint(constraint)
        fork = session.fork()
        session.close()
        fork.prompt(QUESTION)
        fork.close()

    def test_dropped_without_close(self):
        runtime = weir.Runtime(n_threads=1)
        model = weir.Model(MODEL, runtime)
        before = runtime.memory
        gc.disable()  # which would also find what only a cycle keeps
        try:
            for _ in range(3):
                weir.Session(model, context_tokens=256).prompt(QUESTION)
            after = runtime.memory
        finally:
            gc.enable()
        self.assertEqual(after.bytes, before.bytes)
        self.assertGreater(after.n_frees, before.n_frees)

    def test_fifty_sessions(self):
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def use():
            with weir.Session(self.model, context_tokens=1024, batch_tokens=64) as session:
                session.prompt(QUESTION)
                text_of(session.events(max_tokens=3, stop=["x"], on_token=None))
                session.set_token_mask(lambda info: None)
                session.logits()
        held, grown = self.runtime.memory.bytes, []
        for _ in range(5):
            use()
        for _ in range(3):  # what else the process does adds to some rounds, what is lost to all
            gc.collect()
            before = resident()
            for _ in range(50):
                use()
            gc.collect()
            grown.append(resident() - before)
            self.assertEqual(self.runtime.memory.bytes, held)
        self.assertLess(min(grown), 256 << 10, grown)  # 50 sessions, each of 5 MB
        self.assertEqual(gc.collect(), 0)

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_fork(self):
        """In a child nothing of the library is called: an error, no hang, and nothing at its end."""
        session = self.session()
        session.prompt(QUESTION)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            for call in (session.next, lambda: session.tokens, lambda: session.stats, session.cancel, session.fork,
                         lambda: self.model.tokenize("a"), weir.Cancel, weir.Runtime):
                try:
                    call()
                    os.write(write, b"called;")
                except weir.ClosedError as error:
                    os.write(write, b"forked;" if "forked" in str(error) else b"closed;")
                except BaseException as error:
                    os.write(write, repr(error).encode())
            session.close()
            del session
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            self.assertEqual(file.read(), "forked;" * 8)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(text_of(session.events(max_tokens=2)), "I am")

    @unittest.skipUnless(hasattr(os, "fork"), "there is no fork")
    def test_fork_before_anything_was_made(self):
        """As servers do that import an application and then start its processes."""
        program = ("import os, sys, weir\n"
                   "if os.fork() == 0:\n"
                   "    with weir.Model(sys.argv[1], weir.Runtime(n_threads=2)) as model:\n"
                   "        weir.Session(model, context_tokens=256).prompt([weir.Message('user', 'Who are you?')])\n"
                   "    os._exit(3)\n"
                   "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n")
        run = subprocess.run([sys.executable, "-c", program, MODEL], stderr=subprocess.PIPE, text=True, timeout=120,
                             env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(weir.__file__))})
        self.assertEqual((run.returncode, run.stderr), (3, ""))

    def test_spawn(self):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            self.assertEqual(pool.apply(in_a_process), "I am")


def in_a_process():
    with weir.Model(MODEL, weir.Runtime(n_threads=1)) as model, weir.Session(model, context_tokens=256) as session:
        session.prompt(QUESTION)
        return text_of(session.events(max_tokens=2))


if __name__ == "__main__":
    unittest.main()
