using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Threading;

namespace Weir.Tests
{
    /// <summary>The runner: each test is a function, and the process fails if one does.</summary>
    internal static partial class Test
    {
        internal static readonly string ModelPath = Environment.GetEnvironmentVariable("WEIR_MODEL");
        internal static readonly string Scratch = Environment.GetEnvironmentVariable("WEIR_SCRATCH");
        internal static readonly Message[] Question = { new Message("user", "Who are you?") };
        internal static Runtime runtime;
        internal static Model model;

        private static int Main(string[] arguments)
        {
            if (arguments.Length > 0 && arguments[0] == "version")
                return PrintVersion();
            int n = 0, failed = 0;
            var tests = Declarations().Concat(Answers()).Concat(Threads()).Concat(Libraries());
            foreach (KeyValuePair<string, Action> test in tests)
            {
                var watch = Stopwatch.StartNew();
                try
                {
                    if (model == null)
                    {
                        runtime = new Runtime(new RuntimeOptions { ThreadCount = 1 });
                        model = new Model(ModelPath, runtime);
                    }
                    test.Value();
                }
                catch (Exception thrown)
                {
                    Console.WriteLine("FAILED " + test.Key + ": " + thrown);
                    failed++;
                    continue;
                }
                Console.WriteLine("ok " + test.Key + " " + watch.ElapsedMilliseconds + " ms");
                n++;
            }
            Console.WriteLine(n + " tests" + (failed > 0 ? ", " + failed + " failed" : ""));
            return failed > 0 ? 1 : 0;
        }

        private static KeyValuePair<string, Action> Of(string name, Action run) =>
            new KeyValuePair<string, Action>(name, run);

        private static int PrintVersion()
        {
            try
            {
                Console.WriteLine(Library.Version);
                return 0;
            }
            catch (LibraryException error)
            {
                Console.WriteLine("LibraryException: " + error.Message);
                return 3;
            }
        }

        /// <summary>Longer than anything here takes, in milliseconds.</summary>
        internal const int Patience = 120000;

        /// <summary>A thread; who waits for it gets what it throws.</summary>
        internal sealed class Other
        {
            private readonly Thread thread;
            private Exception thrown;

            internal Other(Action run)
            {
                thread = new Thread(() =>
                {
                    try { run(); }
                    catch (Exception error) { thrown = error; }
                });
                thread.IsBackground = true;
                thread.Start();
            }

            internal void Join()
            {
                Is(thread.Join(Patience), "a thread hangs");
                if (thrown != null)
                    throw new Exception("of another thread", thrown);
            }
        }

        internal static void Await(ManualResetEventSlim signal)
        {
            Is(signal.Wait(Patience), "a signal did not come");
        }

        /// <summary>Collects what nobody holds, until that has happened.</summary>
        internal static void Collect(Func<bool> isDone)
        {
            for (int i = 0; i < 200 && !isDone(); i++)
            {
                GC.Collect();
                GC.WaitForPendingFinalizers();
            }
        }

        internal static Session NewSession(SessionOptions options = null)
        {
            options = options ?? new SessionOptions();
            options.ContextTokens = options.ContextTokens == 0 ? 1024 : options.ContextTokens;
            options.BatchTokens = 64;
            return new Session(model, options);
        }

        internal static List<Event> EventsOf(Session session, uint maxTokens, GenerateFlags flags = 0) =>
            session.Events(new GenerateOptions { MaxTokens = maxTokens, Flags = flags }).ToList();

        internal static string TextOf(IEnumerable<Event> events) => string.Concat(events.Select(e => e.Text));

        internal static int[] TokensOf(IEnumerable<Event> events) =>
            events.Where(e => e.Kind == EventKind.Token).Select(e => e.Token).ToArray();

        internal static void Is(bool holds, string what)
        {
            if (!holds)
                throw new Exception(what);
        }

        internal static void Same<T>(T got, T wanted)
        {
            Is(EqualityComparer<T>.Default.Equals(got, wanted), "got " + got + ", not " + wanted);
        }

        internal static void SameList<T>(IEnumerable<T> got, IEnumerable<T> wanted)
        {
            Is(got.SequenceEqual(wanted), "got [" + string.Join(" ", got) +
               "], not [" + string.Join(" ", wanted) + "]");
        }

        internal static void Has(string text, string part)
        {
            Is(text.Contains(part), "`" + text + "` has no `" + part + "`");
        }

        internal static E Throws<E>(Action action) where E : Exception
        {
            try
            {
                action();
            }
            catch (E thrown)
            {
                return thrown;
            }
            throw new Exception("no " + typeof(E).Name);
        }

        internal static WeirException Fails(Status status, Action action)
        {
            WeirException error = Throws<WeirException>(action);
            Same(error.Status, status);
            return error;
        }
    }
}
