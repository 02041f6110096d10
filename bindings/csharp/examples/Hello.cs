// The shortest whole program: open a model, ask one question, print the answer.
//
//     Hello MODEL.gguf [QUESTION]
using System;
using Weir;

internal static class Hello
{
    private static int Main(string[] arguments)
    {
        if (arguments.Length < 1)
        {
            Console.Error.WriteLine("usage: Hello MODEL.gguf [QUESTION]");
            return 2;
        }
        try
        {
            using (var model = new Model(arguments[0]))
            using (var session = new Session(model))
            {
                session.Prompt(new[] { new Message("user", arguments.Length > 1 ? arguments[1] : "Who are you?") });
                // With the marks of thoughts, such as <think>.
                var options = new GenerateOptions { MaxTokens = 512, Flags = GenerateFlags.SpecialText };
                foreach (Event e in session.Events(options))
                    Console.Write(e.Text);
                Console.WriteLine();
                return 0;
            }
        }
        catch (WeirException error)
        {
            Console.Error.WriteLine(error.Status + ": " + error.Message);
            return 1;
        }
    }
}
