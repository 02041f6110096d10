// A conversation at the keyboard: all messages are kept here, and the session is made to hold them before each answer.
//
//     Chat MODEL.gguf [SYSTEM]
//
// A line is a question. "/again" asks for another answer to the last one, "/undo" takes the last question and its
// answer back, and the end of the input ends the program. Ctrl-C stops an answer, and what was said of it stays.
using System;
using System.Collections.Generic;
using System.Text;
using Weir;

internal static class Chat
{
    private static int Main(string[] arguments)
    {
        if (arguments.Length < 1)
        {
            Console.Error.WriteLine("usage: Chat MODEL.gguf [SYSTEM]");
            return 2;
        }
        try
        {
            using (var model = new Model(arguments[0]))
            using (var session = new Session(model))
                Talk(session, arguments.Length > 1 ? arguments[1] : null);
            return 0;
        }
        catch (WeirException error)
        {
            Console.Error.WriteLine(error.Status + ": " + error.Message);
            return 1;
        }
    }

    private static void Talk(Session session, string system)
    {
        var messages = new List<Message>();
        if (system != null)
            messages.Add(new Message("system", system));
        int systemCount = messages.Count;
        session.SetSampling(new SamplingOptions { Temperature = 0.8f, MinP = 0.05f, Seed = 1 }); // another for others
        Console.CancelKeyPress += (sender, key) => { key.Cancel = true; session.Cancel(); };
        string line;
        for (Console.Write("> "); (line = Console.ReadLine()) != null; Console.Write("> "))
        {
            if (line == "/undo")
            {
                int first = Math.Max(systemCount, messages.Count - 2);
                messages.RemoveRange(first, messages.Count - first);
                continue;
            }
            if (line != "/again")
                messages.Add(new Message("user", line));
            else if (messages.Count > systemCount)
                messages.RemoveAt(messages.Count - 1);
            else
                continue;
            Answer(session, messages);
        }
        Console.WriteLine();
    }

    private static void Answer(Session session, List<Message> messages)
    {
        session.ClearCancel(); // what was meant for the turn before
        try
        {
            // When the context is full the oldest turns make room.
            session.Prompt(messages, new PromptOptions { Flags = PromptFlags.DropOldest, ReserveTokens = 64 });
        }
        catch (WeirException error)
        {
            Console.Error.WriteLine("read the messages: " + error.Message);
            messages.RemoveAt(messages.Count - 1);
            return;
        }
        // Marks such as <think> belong to what was said.
        var options = new GenerateOptions { MaxTokens = 2048, Flags = GenerateFlags.SpecialText };
        var text = new StringBuilder();
        foreach (Event e in session.Events(options))
        {
            Console.Write(e.Text);
            text.Append(e.Text);
            if (e.Kind == EventKind.End)
                Console.WriteLine(e.Stop == StopReason.Eos ? "" : " [stopped]");
        }
        messages.Add(new Message("assistant", text.ToString()));
    }
}
