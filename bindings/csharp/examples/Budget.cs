// Long reasoning in a fixed footprint: the KV memory gets a budget before the first token and never exceeds it.
//
//     Budget MODEL.gguf [BUDGET_TOKENS]
//
// Plans a session, compares the plan with what the application can spare, lets the model think for longer than the
// budget holds, and compares the plan with what was really used.
using System;
using System.Linq;
using Weir;

internal static class Budget
{
    private const ulong SpareBytes = 64 << 20;
    private const int Start = 12, Steps = 120;

    // A chain of sums whose answer takes some two thousand tokens of thought.
    private static string Problem()
    {
        string start = string.Join(", ", Enumerable.Range(0, Start).Select(i => "x" + i + " = " + (37 * i + 11) % 100));
        return "Start: " + start + ". Rule: x[n] = x[n-" + Start + "] + x[n-5]. Work modulo 100. Find x" +
            (Start + Steps - 1) + ".";
    }

    private static int Main(string[] arguments)
    {
        if (arguments.Length < 1)
        {
            Console.Error.WriteLine("usage: Budget MODEL.gguf [BUDGET_TOKENS]");
            return 2;
        }
        try
        {
            return Think(arguments[0], arguments.Length > 1 ? uint.Parse(arguments[1]) : 1024) ? 0 : 1;
        }
        catch (WeirException error)
        {
            Console.Error.WriteLine(error.Status + ": " + error.Message);
            return 1;
        }
    }

    private static bool Think(string path, uint budget)
    {
        // RaaS keeps the prompt and the pages that the reasoning still looks at; the stalest page makes room.
        var options = new SessionOptions { Policy = "raas", BudgetTokens = budget };
        using (var model = new Model(path))
        {
            Plan plan = model.Plan(options); // allocates nothing
            Console.WriteLine("plan: " + plan.TotalBytes + " bytes, " + plan.KvBytes + " of them KV pages for " +
                              plan.BudgetTokens + " tokens a stream");
            if (plan.TotalBytes > SpareBytes)
            {
                Console.Error.WriteLine("that is more than the " + SpareBytes + " bytes to spare");
                return false;
            }
            using (var session = new Session(model, options))
            {
                Console.WriteLine("question: " + Problem());
                session.Prompt(new[] { new Message("user", Problem()) });
                string text = string.Concat(session.Events().Select(e => e.Text));
                Console.WriteLine("answer: " + text.Split('\n').Last());
                Stats stats = session.Stats;
                MemoryInfo memory = session.Memory;
                Console.WriteLine("thought for " + stats.DecodeCount + " tokens; " + stats.PagesEvicted +
                                  " pages left the KV memory, at most " + stats.PagesResidentMax + " were in it");
                Console.WriteLine("peak: " + memory.PeakBytes + " bytes; allocations while decoding: " +
                                  memory.AllocsWhileDecoding);
                return memory.PeakBytes == plan.TotalBytes && memory.AllocsWhileDecoding == 0;
            }
        }
    }
}
