using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.RegularExpressions;

namespace Weir.Tests
{
    internal static partial class Test
    {
        private static readonly string Schema =
            ("{'type': 'object', 'properties': {'answer': {'type': 'string', 'maxLength': 20}, 'kind': {'enum': " +
             "['number', 'name']}}, 'required': ['answer', 'kind'], 'additionalProperties': false}").Replace("'", "\"");

        private static IEnumerable<KeyValuePair<string, Action>> Answers()
        {
            yield return Of("events of an answer", EventsOfAnAnswer);
            yield return Of("pushed and pulled answers are the same", PushIsPull);
            yield return Of("stop strings and log-probabilities", StopStrings);
            yield return Of("edit and regenerate", Edit);
            yield return Of("steps, logits, sampling, rewind, fork, reset", Steps);
            yield return Of("JSON by a schema, a grammar, tools", Json);
            yield return Of("a token mask", Mask);
            yield return Of("a token mask that refuses", MaskThatRefuses);
            yield return Of("a thought that is ended", FinishedThought);
            yield return Of("callbacks that throw", CallbacksThatThrow);
            yield return Of("save and restore", SaveAndRestore);
            yield return Of("texts of errors", Errors);
            yield return Of("bad texts", BadTexts);
            yield return Of("the plan of the program", PlanOfTheProgram);
            yield return Of("what a model tells", ModelTells);
            yield return Of("presets, fit, pins and pages", Presets);
            yield return Of("several sessions at once", Several);
            yield return Of("logs", Logs);
            yield return Of("memory hooks", MemoryHooks);
        }

        private static void EventsOfAnAnswer()
        {
            using (Session session = NewSession())
            {
                PromptReport report = session.Prompt(Question, out Span[] spans);
                Same((int)report.TokenCount, session.Tokens().Length);
                int[] question = session.Tokens().Skip((int)spans[0].First).Take((int)(spans[0].End - spans[0].First))
                    .ToArray();
                Same(Encoding.UTF8.GetString(model.Detokenize(question)), "Who are you?");
                List<Event> events = EventsOf(session, 8);
                Same(events.Count, 9);
                Event end = events[8];
                Is(end.Kind == EventKind.End && end.Stop == StopReason.Length && end.Index == 8, "the end");
                Is(events.All(e => float.IsNaN(e.Logprob) && e.Top.Count == 0), "log-probabilities without n_top");
                SameList(TokensOf(events), session.Tokens().Skip((int)report.TokenCount));
                Same(TextOf(events), Encoding.UTF8.GetString(model.Detokenize(TokensOf(events))));
                Message answer = session.Answer(out bool isMalformed);
                Same(answer.Role + answer.Content + isMalformed, "assistant" + TextOf(events) + "False");
                Same(TextOf(events).Substring(0, 12), "I am a small");
            }
        }

        private static void PushIsPull()
        {
            using (Session pulled = NewSession(), pushed = NewSession())
            {
                pulled.Prompt(Question);
                pushed.Prompt(Question);
                var shown = new List<int>();
                GenerateResult result = pushed.Generate(new GenerateOptions
                {
                    MaxTokens = 20,
                    OnToken = e => { shown.Add(e.Token); return true; }
                });
                SameList(shown, TokensOf(EventsOf(pulled, 20)));
                Is(result.TokenCount == 20 && result.Stop == StopReason.Length, "the result");
                SameList(pulled.Tokens(), pushed.Tokens());
            }
        }

        private static void StopStrings()
        {
            using (Session session = NewSession())
            {
                session.Prompt(Question);
                var options = new GenerateOptions { Stop = new[] { "no such text", " small" }, TopCount = 3 };
                List<Event> events = session.Events(options).ToList();
                Event end = events.Last();
                Is(end.Stop == StopReason.String && end.StopIndex == 1, "the stop string");
                Same(TextOf(events), "I am a");
                Is(events[0].Top.Count == 3 && events[0].Top[0].Token == events[0].Token, "the best token");
                Is(events[0].Logprob <= 0 && events[0].Top[0].Logprob == events[0].Logprob, "its log-probability");
            }
        }

        private static void Edit()
        {
            using (Session session = NewSession())
            {
                var messages = new List<Message> { new Message("user", "Who are you?") };
                PromptReport first = session.Prompt(messages);
                string answer = TextOf(EventsOf(session, 20));
                PromptReport again = session.Prompt(messages);
                Same(again.KeptCount + again.ReadCount, first.TokenCount);
                Is(again.ReadCount <= 1 && again.ForgottenCount >= 20, "regenerating reads one token at most");
                Same(TextOf(EventsOf(session, 20)), answer);
                messages.Add(session.Answer());
                messages.Add(new Message("user", "What can you do?"));
                PromptReport turn = session.Prompt(messages);
                Is(turn.KeptCount >= first.TokenCount + 19, "the next turn keeps the answer");
                messages[2] = new Message("user", "What is your name?");
                PromptReport edited = session.Prompt(messages);
                Is(edited.KeptCount >= first.TokenCount + 19 && edited.ReadCount < turn.ReadCount + 5, "an edit");
                PromptReport measured = session.Prompt(Question, new PromptOptions { Flags = PromptFlags.Measure });
                Same(measured.TokenCount, first.TokenCount);
                Same(session.Tokens().Length, (int)edited.TokenCount);
            }
        }

        private static void Steps()
        {
            using (Session session = NewSession(), other = NewSession())
            {
                int[] tokens = model.ChatTokenize(Question, new ChatOptions { Flags = ChatFlags.AddAssistant });
                var seen = new List<ulong>();
                session.Prefill(tokens, progress => { seen.Add(progress.Done); return true; });
                Is(seen.Count > 0 && seen[0] == 0, "progress");
                other.PromptTokens(tokens);
                List<Event> events = EventsOf(other, 5);
                foreach (int token in TokensOf(events))
                {
                    float[] logits = session.Logits();
                    Same(Array.IndexOf(logits, logits.Max()), token);
                    Same(session.Sample(), token);
                    session.Step(token);
                }
                SameList(session.Tokens(), other.Tokens());
                session.SetSampling(new SamplingOptions
                {
                    Bias = new Dictionary<int, float> { [session.Sample()] = -100 }, Seed = 3
                });
                int second = session.Sample();
                session.SetSampling(null);
                Is(session.Sample() != second, "a bias forbids the best token");
                using (Session fork = session.Fork())
                {
                    SameList(fork.Tokens(), session.Tokens());
                    fork.Rewind((uint)tokens.Length);
                    Fails(Status.State, () => fork.Logits());
                    fork.PromptTokens(tokens);
                    SameList(TokensOf(EventsOf(fork, 5)), TokensOf(events));
                    session.Reset();
                    Same(session.Tokens().Length, 0);
                    Same(fork.Stats.TokenCount, (uint)tokens.Length + 5);
                }
                Same(session.Memory.AllocsWhileDecoding, 0ul);
            }
        }

        private static string AnswerUnder(Session session, ConstraintKind kind, string text)
        {
            using (var constraint = new Constraint(model, kind, text))
                session.SetConstraint(constraint);
            session.Prompt(Question);
            var options = new GenerateOptions { MaxTokens = 300, ThinkingBudget = 8 };
            List<Event> events = session.Events(options).ToList();
            // White space behind a call of a tool is allowed, and this model likes it.
            Is(events.Last().Stop == StopReason.Eos || events.Last().Stop == StopReason.Constraint ||
               kind == ConstraintKind.Tools, events.Last().Stop + ": " + TextOf(events));
            return TextOf(events.Where(e => e.Segment == Segment.Answer));
        }

        private static void Json()
        {
            using (Session session = NewSession())
            {
                string said = AnswerUnder(session, ConstraintKind.JsonSchema, Schema);
                Is(Regex.IsMatch(said.Replace("\"", "'"), "^\\s*{\\s*'answer'\\s*:\\s*'.{0,40}'\\s*,\\s*" +
                                                         "'kind'\\s*:\\s*'(number|name)'\\s*}\\s*$"), said);
                said = AnswerUnder(session, ConstraintKind.Gbnf, "root ::= \"yes\" | \"no\"");
                Is(said == "yes" || said == "no", said);
                said = AnswerUnder(session, ConstraintKind.Tools,
                    ("[{'type': 'function', 'function': {'name': 'weather', 'parameters': {'type': 'object', " +
                     "'properties': {'city': {'enum': ['Paris']}}, 'required': ['city'], " +
                     "'additionalProperties': false}}}]").Replace("'", "\""));
                Has(said, "\"weather\"");
                Has(said, "\"Paris\"");
                session.SetConstraint(null);
                session.Prompt(Question);
                Same(TextOf(EventsOf(session, 4)), "I am a small");
            }
            const string unique = "{\"type\": \"array\", \"uniqueItems\": true}";
            Has(Fails(Status.Unsupported, () => new Constraint(model, ConstraintKind.JsonSchema, unique)).Message,
                "uniqueItems");
        }

        private static void Mask()
        {
            int[] allowed = model.Tokenize("abc");
            TokenMask kept = null;
            using (Session session = NewSession())
            {
                session.Prompt(Question);
                int n = 0;
                session.SetTokenMask(mask =>
                {
                    Is(mask.VocabSize == 1664 && mask.Tokens.Length == n++ && mask[allowed[0]], "the question");
                    mask.Clear();
                    foreach (int token in allowed)
                        mask[token] = true;
                    kept = mask;
                    return true;
                });
                Is(TokensOf(EventsOf(session, 5)).All(allowed.Contains) && n == 5, "tokens that are allowed");
                using (Session fork = session.Fork())
                {
                    session.Dispose();
                    GC.Collect();
                    GC.WaitForPendingFinalizers();
                    n = 0;
                    Is(TokensOf(EventsOf(fork, 3)).All(allowed.Contains) && n == 3, "a fork has the function");
                    fork.SetTokenMask(null);
                    Is(!TokensOf(EventsOf(fork, 8)).All(allowed.Contains), "no mask");
                }
            }
            Throws<InvalidOperationException>(() => kept.Clear());
        }

        private static void MaskThatRefuses()
        {
            using (Session session = NewSession())
            {
                session.Prompt(Question);
                int[] before = session.Tokens();
                session.SetTokenMask(mask => false);
                Fails(Status.Cancelled, () => EventsOf(session, 3));
                Fails(Status.Cancelled, () => session.Sample());
                Fails(Status.Cancelled, () => session.Generate(new GenerateOptions { MaxTokens = 3 }));
                SameList(session.Tokens(), before);
                session.SetTokenMask(mask => mask.Tokens.Length < 2);
                var events = new List<Event>();
                Fails(Status.Cancelled, () =>
                {
                    foreach (Event e in session.Events())
                        events.Add(e);
                });
                Same(TextOf(events), "I am");
                SameList(session.Tokens(), before.Concat(TokensOf(events)));
                session.SetTokenMask(null);
                Same(session.Next().Text, " a");
            }
        }

        private static void FinishedThought()
        {
            const string problem = "Start: x0 = 11, x1 = 48, x2 = 85, x3 = 22, x4 = 59, x5 = 96, x6 = 33, x7 = 70, " +
                "x8 = 7, x9 = 44, x10 = 81, x11 = 18. Rule: x[n] = x[n-12] + x[n-5]. Work modulo 100. Find x60.";
            var counts = new List<int>();
            foreach (bool isEnded in new[] { false, true })
                using (Session session = NewSession())
                {
                    session.FinishThinking(); // there is no thought yet
                    session.Prompt(new[] { new Message("user", problem) });
                    var events = new List<Event>();
                    foreach (Event e in session.Events(new GenerateOptions { MaxTokens = 300 }))
                    {
                        events.Add(e);
                        if (isEnded && events.Count == 20)
                            new Other(session.FinishThinking).Join();
                    }
                    counts.Add(events.Count(e => e.Segment == Segment.Thought));
                    Is(events.Take(20).Skip(1).All(e => e.Segment == Segment.Thought), "it thinks");
                    Same(events.Last().Stop, isEnded ? StopReason.Eos : StopReason.Length);
                    Same(TextOf(events.Where(e => e.Segment == Segment.Answer)).Length > 0, isEnded);
                }
            Is(counts[0] > 290 && counts[1] < 40, "thoughts of " + string.Join(" and ", counts) + " tokens");
        }

        private sealed class OfCallback : Exception
        {
            internal OfCallback() : base("of the callback") { }
        }

        private static bool Thrown()
        {
            throw new OfCallback();
        }

        private static void CallbacksThatThrow()
        {
            using (Session session = NewSession())
            {
                session.Prompt(Question);
                int n = session.Tokens().Length;
                OfCallback thrown = Throws<OfCallback>(() => session.Generate(new GenerateOptions
                {
                    MaxTokens = 10,
                    OnToken = e => e.Index == 2 ? Thrown() : true
                }));
                Same(thrown.Message, "of the callback");
                Same(session.Tokens().Length, n + 3);
                Fails(Status.Cancelled, () => session.Generate(new GenerateOptions { OnToken = e => false }));
                Throws<OfCallback>(() => session.Prefill(model.Tokenize("a b c d"), p => { throw new OfCallback(); }));
                session.SetTokenMask(mask => { throw new OfCallback(); });
                Throws<OfCallback>(() => EventsOf(session, 3));
                session.SetTokenMask(null);
                Throws<OfCallback>(() => new Model(ModelPath, runtime, new ModelOptions
                {
                    Progress = p => { throw new OfCallback(); }
                }));
                var stream = new MemoryStream(new byte[16], false);
                Throws<NotSupportedException>(() => session.Save(stream));
                session.Prompt(Question);
                Same(TextOf(EventsOf(session, 2)), "I am");
            }
        }

        private static void SaveAndRestore()
        {
            using (Session session = NewSession(), other = NewSession())
            {
                session.Prompt(Question);
                EventsOf(session, 5);
                var stream = new MemoryStream();
                session.Save(stream);
                stream.Position = 0;
                other.Restore(stream);
                SameList(TokensOf(EventsOf(other, 5)), TokensOf(EventsOf(session, 5)));
                Fails(Status.Format, () => other.Restore(new MemoryStream(stream.ToArray(), 0, 100)));
                Same(other.Tokens().Length, 0);
            }
        }

        private static void Errors()
        {
            Has(Fails(Status.Io, () => new Model("/no/such/file.gguf", runtime)).Message, "/no/such/file.gguf");
            Has(Fails(Status.NotFound, () => NewSession(new SessionOptions { Policy = "none such" })).Message,
                "none such");
            using (Session session = NewSession())
            {
                Fails(Status.State, () => session.Next());
                Fails(Status.InvalidArg, () => session.Step(1 << 20));
                Fails(Status.ContextFull, () => session.Prefill(new int[2000]));
            }
            Session closed = NewSession();
            closed.Dispose();
            closed.Dispose();
            Same(Throws<ObjectDisposedException>(() => closed.Tokens()).ObjectName, "Session");
            Throws<ObjectDisposedException>(() => closed.Cancel());
            var gone = new Model(ModelPath, runtime);
            gone.Dispose();
            Throws<ObjectDisposedException>(() => new Session(gone));
        }

        private static void BadTexts()
        {
            using (Session session = NewSession())
            {
                Throws<ArgumentException>(() => session.Prompt(new[] { new Message("user", "half \ud800 a pair") }));
                Throws<ArgumentException>(() => model.Tokenize("\udc00"));
                var bad = new[] { new Message("us\0er", "Hello") };
                Same(Throws<ArgumentException>(() => session.Prompt(bad)).ParamName, "Role");
                Has(Throws<ArgumentException>(() => new Model("a\0b", runtime)).Message, "NUL at 1");
                session.Prompt(new[] { new Message("user", "a NUL \0 inside, \U0001f600 and é") });
                Has(Encoding.UTF8.GetString(model.Detokenize(session.Tokens())), "a NUL \0 inside, \U0001f600 and é");
            }
        }

        private static void PlanOfTheProgram()
        {
            var start = new ProcessStartInfo(Environment.GetEnvironmentVariable("WEIR_PROGRAM"),
                "plan --json --device cpu --threads 1 --context 4096 --policy arkvale --budget 256 \"" +
                ModelPath + "\"")
            {
                UseShellExecute = false, RedirectStandardOutput = true
            };
            string said;
            using (Process process = Process.Start(start))
                said = process.StandardOutput.ReadToEnd();
            var options = new SessionOptions
            {
                Device = DeviceType.Cpu, ContextTokens = 4096, Policy = "arkvale", BudgetTokens = 256
            };
            Plan plan = model.Plan(options);
            var numbers = new Dictionary<string, ulong>
            {
                ["context_tokens"] = plan.ContextTokens, ["budget_tokens"] = plan.BudgetTokens,
                ["page_tokens"] = plan.PageTokens, ["pages_per_stream"] = plan.PagesPerStream,
                ["n_streams"] = plan.StreamCount, ["page_bytes"] = plan.PageBytes,
                ["weights_bytes"] = plan.WeightsBytes,
                ["kv_bytes"] = plan.KvBytes, ["digest_bytes"] = plan.DigestBytes, ["table_bytes"] = plan.TableBytes,
                ["workspace_bytes"] = plan.WorkspaceBytes, ["sampler_bytes"] = plan.SamplerBytes,
                ["session_bytes"] = plan.SessionBytes, ["staging_bytes"] = plan.StagingBytes,
                ["spill_bytes"] = plan.SpillBytes, ["spill_raw_bytes"] = plan.SpillRawBytes,
                ["spill_compressed_bytes"] = plan.SpillCompressedBytes, ["spill_tokens"] = plan.SpillTokens,
                ["total_bytes"] = plan.TotalBytes, ["device_bytes"] = plan.DeviceBytes
            };
            foreach (KeyValuePair<string, ulong> number in numbers)
                Has(said, "\"" + number.Key + "\":" + number.Value + ",");
            using (var session = new Session(model, options))
                Same(session.Memory.PlanBytes, plan.TotalBytes);
        }

        private static void ModelTells()
        {
            ModelInfo info = model.Info;
            Is(info.VocabSize == 1664 && info.LayerCount > 0 && info.Architecture.Length > 0, "the model's numbers");
            Is(model.Metadata().Count > 10 && model.Metadata().Any(p => p.Key == "general.architecture" &&
                                                                        p.Value == info.Architecture), "metadata");
            Is(model.Tensor(0).Name.Length > 0 && model.Tensor(0).Dims.Count == 4, "a tensor");
            Fails(Status.InvalidArg, () => model.Tensor(info.TensorCount));
            Is(model.ChatInfo.ThoughtBegin == "<think>", "the tag of thoughts");
            Is(model.SpecialTokens.Eos >= 0, "special tokens");
            int[] tokens = model.Tokenize("Hello, world é");
            SameList(tokens.SelectMany(token => model.Token(token).Bytes), model.Detokenize(tokens));
            using (var detokenizer = new Detokenizer(model))
                Has(string.Concat(tokens.Select(detokenizer.Push)) + detokenizer.Flush(), "Hello, world é");
            Has(model.ChatRender(Question, new ChatOptions { Flags = ChatFlags.AddAssistant }), "Who are you?");
            Same(runtime.Render("{{ a }} b", "{\"a\": 1}"), "1 b");
            Is(runtime.ThreadCount == 1 && runtime.CpuTarget.Length > 0, "the runtime");
            Is(runtime.Memory.Bytes > 0 && runtime.Devices().All(d => d.IsUsable || d.WhyNot.Length > 0), "devices");
            Is(model.Tokenize(new string('a', 200000)).Length > 1000, "a long text");
        }

        private static void Presets()
        {
            SessionOptions options = SessionOptions.FromPreset("reason-fixed");
            Is(options.Policy.Length > 0 && options.BudgetTokens > 0, "a preset");
            Has(Fails(Status.NotFound, () => SessionOptions.FromPreset("none such")).Message, "none such");
            SessionOptions fit = model.Fit(16 << 20, new SessionOptions { BatchTokens = 64 });
            Is(fit.BatchTokens == 64 && model.Plan(fit).TotalBytes <= 16 << 20, "what fits");
            options = new SessionOptions { Policy = "raas", BudgetTokens = 128 };
            options.PolicyOptions = new Dictionary<string, string> { ["none"] = "1" };
            Has(Fails(Status.NotFound, () => NewSession(options)).Message, "none");
            using (Session session = NewSession(new SessionOptions { Policy = "raas", BudgetTokens = 128 }))
            {
                session.Prompt(Question);
                session.Pin(0, 4);
                Is(session.Pages()[0].Pinned > 0, "a pinned page");
                session.Unpin(0, 4);
                Same((int)session.Pages()[0].Pinned, 0);
                Same(session.Pages().Count, (session.Tokens().Length + 15) / 16);
            }
        }

        private static void Several()
        {
            using (Session a = NewSession(), b = NewSession())
            {
                var both = new[] { a, b };
                foreach (Session session in both)
                    session.Prompt(Question);
                Session.StepMany(both, new[] { a.Sample(), b.Sample() });
                SameList(a.Tokens(), b.Tokens());
                foreach (Session session in both)
                    session.Begin(new GenerateOptions { MaxTokens = 3 });
                string text = "";
                for (uint n = 2; n > 0;)
                    text += Session.NextMany(both, out n)[1].Text;
                Same(text, " am a small");
                Fails(Status.InvalidArg, () => Session.StepMany(new[] { a, a }, new[] { 1, 1 }));
                Throws<ArgumentException>(() => Session.StepMany(both, new[] { 1 }));
            }
        }

        private static void Logs()
        {
            var lines = new List<string>();
            var options = new RuntimeOptions { ThreadCount = 1, LogLevel = LogLevel.Debug };
            options.Log = line => lines.Add(line.Message);
            using (var other = new Runtime(options))
                new Model(ModelPath, other).Dispose();
            Is(lines.Count > 0, "no line");
            options.Log = line => { throw new OfCallback(); };
            Throws<OfCallback>(() => new Model(ModelPath, new Runtime(options)));
            Same(new Model(ModelPath, runtime).Info.VocabSize, 1664u);
        }

        // The hooks of tests/hooks.c: how many bytes they have given, and whether they refuse.
        private static unsafe void MemoryHooks()
        {
            IntPtr library = OpenLibrary(Path.Combine(Scratch, "hooks.so"), 2);
            var state = stackalloc long[2];
            var options = new RuntimeOptions
            {
                ThreadCount = 1, Alloc = Symbol(library, "hooks_alloc"), Free = Symbol(library, "hooks_free"),
                AllocUser = (IntPtr)state
            };
            using (var own = new Runtime(options))
            using (var of = new Model(ModelPath, own))
            {
                long before = state[0];
                Is(before > 0 && own.Memory.Bytes <= (ulong)before, before + " bytes");
                var small = new SessionOptions { ContextTokens = 256, BatchTokens = 64 };
                using (var session = new Session(of, small))
                {
                    session.Prompt(Question);
                    Same(TextOf(EventsOf(session, 2)), "I am");
                    Is(state[0] - before >= (long)of.Plan(small).TotalBytes, "a session's bytes");
                    state[1] = 1;
                    Fails(Status.OutOfMemory, () => session.Fork());
                    Same(TextOf(EventsOf(session, 2)), " a small");
                    state[1] = 0;
                }
                Same(state[0], before);
            }
            Same(state[0], 0L);
        }
    }
}
