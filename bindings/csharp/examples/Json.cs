// Answers that a program can read: whatever the model would say, the answer is JSON of this schema.
//
//     Json MODEL.gguf [QUESTION]
using System;
using Weir;

internal static class Json
{
    private const string Schema =
        "{\"type\": \"object\"," +
        " \"properties\": {" +
        "   \"answer\": {\"type\": \"string\", \"maxLength\": 80}," +
        "   \"kind\": {\"enum\": [\"number\", \"name\", \"other\"]}," +
        "   \"confidence\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 100}}," +
        " \"required\": [\"answer\", \"kind\", \"confidence\"]," +
        " \"additionalProperties\": false}";

    private static int Main(string[] arguments)
    {
        if (arguments.Length < 1)
        {
            Console.Error.WriteLine("usage: Json MODEL.gguf [QUESTION]");
            return 2;
        }
        string question = arguments.Length > 1 ? arguments[1] : "What is the capital of France? Answer in JSON.";
        try
        {
            using (var model = new Model(arguments[0]))
            using (var session = new Session(model))
            {
                // Compiled once, for any number of sessions. A keyword that is not supported is an error here.
                using (var constraint = new Constraint(model, ConstraintKind.JsonSchema, Schema))
                    session.SetConstraint(constraint);
                session.Prompt(new[] { new Message("user", question) });
                var stop = StopReason.None;
                foreach (Event e in session.Events(new GenerateOptions { MaxTokens = 2048 }))
                {
                    if (e.Segment == Segment.Answer) // what it thinks is free
                        Console.Write(e.Text);
                    stop = e.Stop;
                }
                Console.WriteLine();
                return stop == StopReason.Eos || stop == StopReason.Constraint ? 0 : 1;
            }
        }
        catch (WeirException error)
        {
            Console.Error.WriteLine(error.Status + ": " + error.Message);
            return 1;
        }
    }
}
