"""Threads, lifetimes and memory."""
import collections
import gc
import multiprocessing
import os
import random
import subprocess
import sys
import threading
import time
import unittest

from common import MODEL, QUESTION, ModelTest, text_of, tokens_of, weir

FOREVER = weir.GenerateFlags.IGNORE_EOS


class Threads(ModelTest):
    def test_cancel_from_another_thread(self):
        """A hundred answers, each cancelled at another place: the session has the tokens of the events, no others."""
        session = self.session(context_tokens=4096, policy="sink", budget_tokens=64)
        wanted, at = threading.Semaphore(0), [0]

        def stop():
            for _ in range(100):
                wanted.acquire()
                time.sleep(at[0] % 7 * 0.0004)
                session.cancel()
        thread = threading.Thread(target=stop, daemon=True)
        thread.start()
        n_stopped = 0
        for i in range(100):
            session.clear_cancel()
            n = len(session.prompt(QUESTION)[1]) and len(session.tokens)
            events = []
            for event in session.events(flags=FOREVER, max_tokens=200):
                events.append(event)
                if len(events) == 1 + i % 3:
                    at[0] = i
                    wanted.release()
            self.assertEqual(session.tokens[n:], tokens_of(events))
            self.assertEqual(text_of(events), self.model.detokenize(tokens_of(events)).decode(errors="replace"))
            n_stopped += events[-1].stop == weir.StopReason.CANCELLED
        thread.join()
        self.assertEqual(n_stopped, 100)

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
        session, entered, results = self.session(), threading.Event(), []
        session.prompt(QUESTION)

        def generate():
            session.generate(flags=FOREVER, max_tokens=60, on_token=lambda event: entered.set())
        thread = threading.Thread(target=generate, daemon=True)
        thread.start()
        entered.wait()
        for call in (session.next, session.reset, lambda: session.tokens, lambda: session.step(1)):
            try:
                call()
                results.append("called")
            except weir.BusyError as error:
                results.append(str(error))
        self.assertTrue(session.stats.n_tokens > 0)  # any thread
        thread.join()
        self.assertEqual(results, ["another call is inside this Session"] * 4)
        self.assertEqual(weir.BusyError.status, weir.Status.BUSY)

    def test_closing_while_another_thread_is_inside(self):
        """It takes effect when that thread has left."""
        for _ in range(5):
            session, entered, seen = self.session(), threading.Event(), []
            session.prompt(QUESTION)

            def run():
                try:
                    for event in session.events(flags=FOREVER):
                        seen.append(event)
                        entered.set()
                except weir.ClosedError as error:
                    seen.append(error)
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            entered.wait()
            session.close()
            thread.join()
            self.assertIsInstance(seen[-1], weir.ClosedError)

    def test_any_calls_of_many_threads(self):
        """Two seconds of calls in any order: each returns or is one of the errors; then everything is given back."""
        with weir.Runtime(n_threads=1) as runtime, weir.Model(MODEL, runtime) as model:
            before = runtime.memory.bytes
            end, unexpected, counts = time.monotonic() + 2, [], collections.Counter()
            sessions = [weir.Session(model, context_tokens=256, batch_tokens=16) for _ in range(3)]
            tokens = model.tokenize("hello world")

            def work(seed):
                random_ = random.Random(seed)
                while time.monotonic() < end and not unexpected:
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
        for _ in range(3):
            weir.Session(model, context_tokens=256).prompt(QUESTION)
        after = runtime.memory
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
        for _ in range(5):
            use()
        gc.collect()
        before = resident()
        for _ in range(50):
            use()
        gc.collect()
        self.assertLess(resident() - before, 2 << 20)  # a session has 5 MB
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
