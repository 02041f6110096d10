// What a token costs in C#: the partner of ../bench.c, which ../bench.py starts by turns with it.
using System;
using System.Diagnostics;
using System.Globalization;
using Weir;

internal static class Bench
{
    private static long bytes;

    private static void Push(Session session, GenerateOptions options)
    {
        options.OnToken = e => { bytes += e.Text.Length; return true; };
        session.Generate(options);
        options.OnToken = null;
    }

    private static void Pull(Session session, GenerateOptions options)
    {
        foreach (Event e in session.Events(options))
            bytes += e.Text.Length;
    }

    // Prints as bench.c does: nanoseconds a token of a pushed and a pulled answer, in all and outside of the library.
    // The first round, in which the code is compiled, is not counted.
    private static int Main(string[] arguments)
    {
        uint n = uint.Parse(arguments[1]);
        var options = new GenerateOptions { MaxTokens = n, Flags = GenerateFlags.IgnoreEos };
        using (var runtime = new Runtime(new RuntimeOptions { ThreadCount = 1 }))
        using (var model = new Model(arguments[0], runtime))
            foreach (bool isCounted in new[] { false, true })
                using (var session = new Session(model, new SessionOptions
                       {
                           ContextTokens = n + 64, Policy = "sink", BudgetTokens = 64, BatchTokens = 16
                       }))
                    foreach (var answer in new Action<Session, GenerateOptions>[] { Push, Pull })
                    {
                        session.Reset();
                        session.Prompt(new[] { new Message("user", "Who are you?") });
                        double inside = session.Stats.DecodeNs;
                        var watch = Stopwatch.StartNew();
                        answer(session, options);
                        double elapsed = watch.ElapsedTicks * 1e9 / Stopwatch.Frequency;
                        double outside = elapsed - (session.Stats.DecodeNs - inside);
                        if (isCounted)
                            Console.WriteLine(string.Format(CultureInfo.InvariantCulture, "{0:F1} {1:F1}", elapsed / n,
                                                            outside / n));
                    }
        return bytes > 0 ? 0 : 1;
    }
}
