using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Threading;

namespace Weir.Tests
{
    internal static partial class Test
    {
        private static readonly GenerateOptions Endless = new GenerateOptions { Flags = GenerateFlags.IgnoreEos };

        private static IEnumerable<KeyValuePair<string, Action>> Threads()
        {
            yield return Of("cancelled from another thread, 100 times", CancelledAHundredTimes);
            yield return Of("cancellation tokens", CancellationTokens);
            yield return Of("a Cancel of several sessions", Cancels);
            yield return Of("two threads with a session each", TwoThreads);
            yield return Of("a session used from two threads", OneSessionInTwoThreads);
            yield return Of("disposed while another thread is inside", DisposedInside);
            yield return Of("cancellation tokens of prompts", TokensOfPrompts);
            yield return Of("a model disposed before its session", ModelBeforeSession);
            yield return Of("a runtime that belongs to its model", RuntimeOfItsModel);
            yield return Of("a call keeps what it is inside of", KeptByACall);
            yield return Of("50 sessions in flat memory", FiftySessions);
        }

        private static void CancelledAHundredTimes()
        {
            using (Session session = NewSession())
            using (var wanted = new AutoResetEvent(false))
            using (var done = new AutoResetEvent(false))
            {
                var other = new Other(() =>
                {
                    for (int i = 0; i < 100 && wanted.WaitOne(Patience); i++)
                    {
                        session.Cancel();
                        done.Set();
                    }
                });
                Action cancel = () => { wanted.Set(); Is(done.WaitOne(Patience), "it was not cancelled"); };
                for (int i = 0; i < 100; i++)
                {
                    session.Prompt(Question);
                    int n = session.Tokens().Length, at = 1 + i % 7;
                    var seen = new List<int>();
                    if (i % 3 == 0) // between two calls
                        foreach (Event e in session.Events(Endless))
                        {
                            if (e.Kind == EventKind.Token)
                                seen.Add(e.Token);
                            else
                                Same(e.Stop, StopReason.Cancelled);
                            if (seen.Count == at && e.Kind == EventKind.Token)
                                cancel();
                        }
                    else if (i % 3 == 1) // inside one, which draws its token all the same
                    {
                        session.SetTokenMask(mask => { if (mask.Tokens.Length == at - 1) cancel(); return true; });
                        List<Event> events = session.Events(Endless).ToList();
                        session.SetTokenMask(null);
                        Same(events.Last().Stop, StopReason.Cancelled);
                        seen.AddRange(TokensOf(events));
                    }
                    else
                        Fails(Status.Cancelled, () => session.Generate(new GenerateOptions
                        {
                            Flags = GenerateFlags.IgnoreEos,
                            OnToken = e =>
                            {
                                seen.Add(e.Token);
                                if (seen.Count == at)
                                    cancel();
                                return true;
                            }
                        }));
                    Same(seen.Count, at);
                    SameList(session.Tokens().Skip(n), seen);
                }
                other.Join();
            }
        }

        private static void CancellationTokens()
        {
            using (Session session = NewSession())
            {
                session.Prompt(Question);
                int n = session.Tokens().Length;
                var events = new List<Event>();
                using (var source = new CancellationTokenSource())
                {
                    Throws<OperationCanceledException>(() =>
                    {
                        foreach (Event e in session.Events(Endless, source.Token))
                        {
                            events.Add(e);
                            if (events.Count == 3)
                                source.Cancel();
                        }
                    });
                    Same(events.Last().Stop, StopReason.Cancelled);
                    SameList(session.Tokens().Skip(n), TokensOf(events));
                    Throws<OperationCanceledException>(() => session.Prompt(Question, null, source.Token));
                    Throws<OperationCanceledException>(() => session.Events(Endless, source.Token));
                }
                // What it has stopped does not stop the next call.
                session.Prompt(Question);
                Same(TextOf(EventsOf(session, 2)), "I am");
                using (var source = new CancellationTokenSource())
                {
                    Func<TokenEvent, bool> stop = e => { source.Cancel(); return true; };
                    Throws<OperationCanceledException>(
                        () => session.Generate(new GenerateOptions { OnToken = stop }, source.Token));
                }
                session.Prompt(Question);
                using (var source = new CancellationTokenSource())
                    foreach (Event e in session.Events(Endless, source.Token))
                        break;
                Same(TextOf(EventsOf(session, 1)), " am");
            }
        }

        private static void TokensOfPrompts()
        {
            using (Session session = NewSession())
            {
                int[] tokens = Enumerable.Repeat(65, 300).ToArray();
                var calls = new Action<Func<Progress, bool>, CancellationToken>[]
                {
                    (progress, token) => session.Prefill(tokens, progress, token),
                    (progress, token) => session.PromptTokens(tokens, new PromptOptions { Progress = progress }, token)
                };
                foreach (Action<Func<Progress, bool>, CancellationToken> call in calls)
                {
                    session.Reset();
                    using (var source = new CancellationTokenSource())
                    {
                        ulong done = 0;
                        Throws<OperationCanceledException>(() => call(p =>
                        {
                            done = p.Done;
                            if (done >= 64)
                                source.Cancel();
                            return true;
                        }, source.Token));
                        Is(done >= 64 && done < 300, done + " tokens were read");
                        Same(session.Tokens().Length, 0); // what was read of them is taken back
                        Throws<OperationCanceledException>(() => call(null, source.Token));
                    }
                    call(null, new CancellationTokenSource().Token); // what was cancelled before is over
                    Same(session.Tokens().Length, 300);
                    session.Reset();
                    Fails(Status.Cancelled, () => call(p => p.Done < 128, CancellationToken.None));
                    Same(session.Tokens().Length, 0);
                }
            }
        }

        private static void Cancels()
        {
            var cancel = new Cancel();
            using (Session a = NewSession(), b = NewSession())
            {
                foreach (Session session in new[] { a, b })
                {
                    session.SetCancel(cancel);
                    session.Prompt(Question);
                }
                cancel.Set();
                Same(EventsOf(a, 2).Last().Stop, StopReason.Cancelled);
                Same(EventsOf(b, 2).Last().Stop, StopReason.Cancelled);
                cancel.Clear();
                Same(EventsOf(a, 2).Last().Stop, StopReason.Length);
                cancel.Set();
                cancel.Dispose();
                Same(EventsOf(a, 2).Last().Stop, StopReason.Cancelled);
                a.SetCancel(null);
                Same(EventsOf(a, 2).Last().Stop, StopReason.Length);
                Throws<ObjectDisposedException>(cancel.Set);
            }
        }

        private static string AnswerOf(string question)
        {
            using (Session session = NewSession())
            {
                session.Prompt(new[] { new Message("user", question) });
                return TextOf(EventsOf(session, 30));
            }
        }

        private static void TwoThreads()
        {
            string[] questions = { "Who are you?", "What can you do?" };
            string[] alone = questions.Select(AnswerOf).ToArray();
            var together = new string[2];
            Other[] threads = Enumerable.Range(0, 2).Select(i => new Other(() =>
            {
                for (int n = 0; n < 3; n++)
                    together[i] += AnswerOf(questions[i]);
            })).ToArray();
            foreach (Other thread in threads)
                thread.Join();
            SameList(together, alone.Select(text => text + text + text));
        }

        private static void OneSessionInTwoThreads()
        {
            using (Session session = NewSession())
            using (var entered = new ManualResetEventSlim())
            using (var leave = new ManualResetEventSlim())
            {
                session.Prompt(Question);
                var other = new Other(() => session.Generate(Waiting(entered, leave)));
                Await(entered);
                foreach (Action call in new Action[]
                         {
                             () => session.Next(), session.Reset, () => session.Tokens(), () => session.Step(1),
                             () => session.Fork(), () => session.SetTokenMask(null),
                             () => Session.NextMany(new[] { session }, out _)
                         })
                    Same(Fails(Status.Busy, call).Message, "another call is inside this Session");
                Is(session.Stats.TokenCount > 0 && session.Memory.Bytes > 0, "any thread"); // and cancel
                leave.Set();
                other.Join();
                Same(session.Stats.DecodeCount, 3ul);
            }
        }

        // An answer of three tokens that waits in the first.
        private static GenerateOptions Waiting(ManualResetEventSlim entered, ManualResetEventSlim leave) =>
            new GenerateOptions { MaxTokens = 3, OnToken = e => { entered.Set(); Await(leave); return true; } };

        private static void DisposedInside()
        {
            using (var own = new Runtime(new RuntimeOptions { ThreadCount = 1 }))
            using (var of = new Model(ModelPath, own))
            using (var entered = new ManualResetEventSlim())
            using (var leave = new ManualResetEventSlim())
            {
                ulong before = own.Memory.Bytes;
                var session = new Session(of, new SessionOptions { ContextTokens = 256, BatchTokens = 64 });
                session.Prompt(Question);
                GenerateResult result = null;
                var other = new Other(() => result = session.Generate(Waiting(entered, leave)));
                Await(entered);
                ulong inside = own.Memory.Bytes;
                session.Dispose();
                Same(own.Memory.Bytes, inside); // it takes effect when the call has returned
                Fails(Status.Busy, () => session.Next());
                leave.Set();
                other.Join();
                Throws<ObjectDisposedException>(() => session.Next());
                Throws<ObjectDisposedException>(session.Cancel);
                Throws<ObjectDisposedException>(() => session.Stats.ToString());
                Same(result.TokenCount, 3u);
                Is(inside > before, "the session's memory");
                Same(own.Memory.Bytes, before);
            }
            Session left = NewSession();
            left.Prompt(Question);
            Throws<ObjectDisposedException>(() =>
            {
                foreach (Event e in left.Events(Endless))
                    left.Dispose();
            });
        }

        private static void ModelBeforeSession()
        {
            var own = new Model(ModelPath, new Runtime(new RuntimeOptions { ThreadCount = 1 }));
            using (var session = new Session(own, new SessionOptions { ContextTokens = 256 }))
            {
                own.Runtime.Dispose();
                own.Dispose();
                session.Prompt(Question);
                Same(TextOf(EventsOf(session, 2)), "I am");
            }
        }

        private static int ThreadsOfProcess() => Directory.GetDirectories("/proc/self/task").Length;

        private static void RuntimeOfItsModel()
        {
            var own = new Model(ModelPath);
            var session = new Session(own, new SessionOptions { ContextTokens = 256 });
            own.Dispose();
            Throws<ObjectDisposedException>(() => own.Runtime.Devices());
            session.Prompt(Question);
            Same(TextOf(EventsOf(session, 2)), "I am");
            session.Dispose();
            using (var given = new Runtime(new RuntimeOptions { ThreadCount = 3 }))
            {
                new Model(ModelPath, given).Dispose();
                Same(given.ThreadCount, 3u);
            }
            // Nothing of a runtime stays where the file cannot be opened; each has a thread for each core.
            int before = ThreadsOfProcess();
            for (int i = 0; i < 30; i++)
            {
                Fails(Status.Io, () => new Model("/no/such/file.gguf"));
                Throws<ArgumentException>(() => new Model("a\0b"));
            }
            Is(ThreadsOfProcess() < before + 10, "threads stay: " + before + ", then " + ThreadsOfProcess());
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        private static Session Masked(Func<TokenMask, bool> function)
        {
            Session session = NewSession();
            session.Prompt(Question);
            session.SetTokenMask(function);
            session.Begin(Endless);
            return session;
        }

        // Nobody but the call holds the sessions, while the mask of the first collects.
        private static void KeptByACall()
        {
            int n = 0;
            Func<TokenMask, bool> collect = mask => { Collect(() => false); return true; };
            Session.NextMany(new[] { Masked(collect), Masked(mask => { n++; return true; }) }, out _);
            Same(n, 1);
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        private static Session Used(Model of)
        {
            var session = new Session(of, new SessionOptions { ContextTokens = 256, BatchTokens = 64 });
            session.SetTokenMask(mask => true);
            session.Prompt(Question);
            EventsOf(session, 2);
            return session;
        }

        private static long ResidentBytes() =>
            long.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[1]) * Environment.SystemPageSize;

        private static void FiftySessions()
        {
            using (var own = new Runtime(new RuntimeOptions { ThreadCount = 1 }))
            using (var of = new Model(ModelPath, own))
            {
                ulong bytes = own.Memory.Bytes;
                long least = long.MaxValue;
                for (int round = 0; round < 3; round++)
                {
                    long resident = ResidentBytes();
                    for (int i = 0; i < 50; i++)
                        if (i % 2 == 0)
                            Used(of).Dispose();
                        else // forgotten; in a thread of its own, as mono's collector looks at all that a stack has
                            new Other(() => Used(of)).Join();
                    Collect(() => own.Memory.Bytes == bytes);
                    Same(own.Memory.Bytes, bytes);
                    // Heaps grow in the first round, and perhaps in one more; what sessions left, they would in each.
                    least = Math.Min(least, ResidentBytes() - resident);
                }
                Is(least < 4 << 20, "50 sessions took " + least + " bytes");
            }
        }
    }
}
