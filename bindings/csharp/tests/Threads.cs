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
        private static IEnumerable<KeyValuePair<string, Action>> Threads()
        {
            yield return Of("cancelled from another thread, 100 times", CancelledAHundredTimes);
            yield return Of("cancellation tokens", CancellationTokens);
            yield return Of("a Cancel of several sessions", Cancels);
            yield return Of("two threads with a session each", TwoThreads);
            yield return Of("a session used from two threads", OneSessionInTwoThreads);
            yield return Of("disposed while another thread is inside", DisposedInside);
            yield return Of("a model disposed before its session", ModelBeforeSession);
            yield return Of("50 sessions in flat memory", FiftySessions);
        }

        private static void CancelledAHundredTimes()
        {
            using (Session session = NewSession(new SessionOptions
                   {
                       ContextTokens = 4096, Policy = "sink", BudgetTokens = 64
                   }))
            using (var wanted = new SemaphoreSlim(0))
            {
                int at = 0, stopped = 0;
                var thread = new Thread(() =>
                {
                    for (int i = 0; i < 100; i++)
                    {
                        wanted.Wait();
                        Thread.SpinWait(at % 7 * 3000);
                        session.Cancel();
                    }
                });
                thread.Start();
                for (int i = 0; i < 100; i++)
                {
                    session.ClearCancel();
                    session.Prompt(Question);
                    int n = session.Tokens().Length;
                    var events = new List<Event>();
                    var options = new GenerateOptions { Flags = GenerateFlags.IgnoreEos, MaxTokens = 400 };
                    foreach (Event e in session.Events(options))
                    {
                        events.Add(e);
                        if (events.Count != 1 + i % 3)
                            continue;
                        at = i;
                        wanted.Release();
                    }
                    SameList(session.Tokens().Skip(n), TokensOf(events));
                    stopped += events.Last().Stop == StopReason.Cancelled ? 1 : 0;
                }
                thread.Join();
                Same(stopped, 100);
            }
        }

        private static void CancellationTokens()
        {
            using (Session session = NewSession())
            {
                session.Prompt(Question);
                var options = new GenerateOptions { Flags = GenerateFlags.IgnoreEos };
                int n = session.Tokens().Length;
                var events = new List<Event>();
                using (var source = new CancellationTokenSource())
                {
                    Throws<OperationCanceledException>(() =>
                    {
                        foreach (Event e in session.Events(options, source.Token))
                        {
                            events.Add(e);
                            if (events.Count == 3)
                                source.Cancel();
                        }
                    });
                    Same(events.Last().Stop, StopReason.Cancelled);
                    SameList(session.Tokens().Skip(n), TokensOf(events));
                    Throws<OperationCanceledException>(() => session.Prompt(Question, null, source.Token));
                    Throws<OperationCanceledException>(() => session.Events(options, source.Token));
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
                    foreach (Event e in session.Events(options, source.Token))
                        break;
                Same(TextOf(EventsOf(session, 1)), " am");
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
            Thread[] threads = Enumerable.Range(0, 2).Select(i => new Thread(() =>
            {
                for (int n = 0; n < 3; n++)
                    together[i] += AnswerOf(questions[i]);
            })).ToArray();
            foreach (Thread thread in threads)
                thread.Start();
            foreach (Thread thread in threads)
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
                var thread = new Thread(() => session.Generate(new GenerateOptions
                {
                    MaxTokens = 3,
                    OnToken = e => { entered.Set(); leave.Wait(); return true; }
                }));
                thread.Start();
                entered.Wait();
                foreach (Action call in new Action[]
                         { () => session.Next(), session.Reset, () => session.Tokens(), () => session.Step(1) })
                    Same(Fails(Status.Busy, call).Message, "another call is inside this Session");
                Is(session.Stats.TokenCount > 0, "any thread"); // and memory, and cancel
                leave.Set();
                thread.Join();
                Same(session.Stats.DecodeCount, 3ul);
            }
        }

        private static void DisposedInside()
        {
            for (int i = 0; i < 5; i++)
            {
                Session session = NewSession();
                session.Prompt(Question);
                using (var entered = new ManualResetEventSlim())
                {
                    Exception thrown = null;
                    var thread = new Thread(() =>
                    {
                        try
                        {
                            foreach (Event e in session.Events(new GenerateOptions { Flags = GenerateFlags.IgnoreEos }))
                                entered.Set();
                        }
                        catch (Exception e)
                        {
                            thrown = e;
                        }
                    });
                    thread.Start();
                    entered.Wait();
                    session.Dispose();
                    thread.Join();
                    Is(thrown is ObjectDisposedException, "" + thrown);
                }
            }
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

        [MethodImpl(MethodImplOptions.NoInlining)]
        private static void Forgotten()
        {
            NewSession().Prompt(Question);
        }

        private static long ResidentBytes() =>
            long.Parse(File.ReadAllText("/proc/self/statm").Split(' ')[1]) * Environment.SystemPageSize;

        private static void FiftySessions()
        {
            ulong before = runtime.Memory.Bytes;
            long resident = 0;
            for (int i = 0; i < 60; i++)
            {
                if (i % 2 == 0)
                    using (Session session = NewSession())
                    {
                        session.Prompt(Question);
                        EventsOf(session, 2);
                    }
                else
                    Forgotten();
                GC.Collect();
                GC.WaitForPendingFinalizers();
                if (i == 9)
                    resident = ResidentBytes();
            }
            for (int i = 0; i < 50 && runtime.Memory.Bytes > before; i++)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
                Forgotten(); // what the stack still shows to the collector is another one then
                GC.Collect();
                GC.WaitForPendingFinalizers();
                Thread.Sleep(1);
            }
            ulong one = model.Plan(new SessionOptions { ContextTokens = 1024, BatchTokens = 64 }).TotalBytes;
            Is(runtime.Memory.Bytes <= before + one, "sessions left " + (runtime.Memory.Bytes - before) + " bytes");
            Is(ResidentBytes() - resident < 16 << 20, "50 sessions took " + (ResidentBytes() - resident) + " bytes");
        }
    }
}
