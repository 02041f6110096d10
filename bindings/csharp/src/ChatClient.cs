#if WEIR_EXTENSIONS_AI && NET8_0_OR_GREATER
using System;
using System.Collections.Generic;
using System.Linq;
using System.Runtime.CompilerServices;
using System.Text;
using System.Threading;
using System.Threading.Tasks;
using AI = Microsoft.Extensions.AI;

namespace Weir
{
    /// <summary>A session as a chat client of Microsoft.Extensions.AI: each request makes it hold exactly its messages,
    /// of which what is there already is not read again. One request at a time; a second one waits. Answers are texts,
    /// or JSON where the options ask for it; thoughts are not given. Tools, and messages of anything but text, are a
    /// NotSupportedException.</summary>
    public sealed class WeirChatClient : AI.IChatClient
    {
        private readonly Session session;
        private readonly SemaphoreSlim isFree = new SemaphoreSlim(1);

        /// <summary>The session belongs to it from then on.</summary>
        public WeirChatClient(Session session) { this.session = session; }

        /// <summary>The session is disposed of, too.</summary>
        public void Dispose()
        {
            session.Dispose();
            isFree.Dispose();
        }

        /// <summary>The whole answer.</summary>
        public async Task<AI.ChatResponse> GetResponseAsync(IEnumerable<AI.ChatMessage> messages,
                                                            AI.ChatOptions options = null,
                                                            CancellationToken cancellationToken = default)
        {
            var text = new StringBuilder();
            AI.ChatFinishReason? reason = null;
            await foreach (AI.ChatResponseUpdate update in
                           GetStreamingResponseAsync(messages, options, cancellationToken).ConfigureAwait(false))
            {
                text.Append(update.Text);
                reason = update.FinishReason ?? reason;
            }
            return new AI.ChatResponse(new AI.ChatMessage(AI.ChatRole.Assistant, text.ToString()))
            {
                FinishReason = reason
            };
        }

        /// <summary>The answer piece by piece.</summary>
        public async IAsyncEnumerable<AI.ChatResponseUpdate> GetStreamingResponseAsync(
            IEnumerable<AI.ChatMessage> messages, AI.ChatOptions options = null,
            [EnumeratorCancellation] CancellationToken cancellationToken = default)
        {
            if (options?.Tools?.Count > 0)
                throw new NotSupportedException("WeirChatClient calls no tools; Session.SetConstraint with " +
                                                "ConstraintKind.Tools lets a session do so");
            List<Message> all = messages.Select(MessageOf).ToList();
            if (!string.IsNullOrEmpty(options?.Instructions))
                all.Insert(0, new Message("system", options.Instructions));
            await isFree.WaitAsync(cancellationToken).ConfigureAwait(false);
            try
            {
                session.SetSampling(SamplingOf(options));
                await Task.Run(() =>
                {
                    using (Constraint constraint = ConstraintOf(options?.ResponseFormat))
                        session.SetConstraint(constraint);
                    session.Prompt(all, null, cancellationToken);
                }, CancellationToken.None).ConfigureAwait(false);
                IAsyncEnumerable<Event> events = session.EventsAsync(LimitsOf(options), cancellationToken);
                await foreach (Event e in events.ConfigureAwait(false))
                {
                    bool isEnd = e.Kind == EventKind.End;
                    if (!isEnd && (e.Segment != Segment.Answer || e.Text.Length == 0))
                        continue;
                    string text = e.Segment == Segment.Answer ? e.Text : "";
                    yield return new AI.ChatResponseUpdate(AI.ChatRole.Assistant, text)
                    {
                        FinishReason = !isEnd ? null : e.Stop == StopReason.Length || e.Stop == StopReason.Context
                            ? AI.ChatFinishReason.Length : AI.ChatFinishReason.Stop
                    };
                }
            }
            finally
            {
                isFree.Release();
            }
        }

        /// <summary>Itself and its session.</summary>
        public object GetService(Type serviceType, object serviceKey = null) =>
            serviceKey != null ? null : serviceType.IsInstanceOfType(this) ? this
                : serviceType.IsInstanceOfType(session) ? session : null;

        private static Message MessageOf(AI.ChatMessage message)
        {
            foreach (AI.AIContent content in message.Contents)
                if (!(content is AI.TextContent || content is AI.TextReasoningContent || content is AI.UsageContent))
                    throw new NotSupportedException("a message of " + message.Role.Value + " has " +
                                                    content.GetType().Name + ", and WeirChatClient reads text alone");
            return new Message(message.Role.Value, message.Text);
        }

        private Constraint ConstraintOf(AI.ChatResponseFormat format)
        {
            if (!(format is AI.ChatResponseFormatJson json))
                return null;
            string schema = json.Schema?.ToString();
            return new Constraint(session.Model, schema == null ? ConstraintKind.Json : ConstraintKind.JsonSchema,
                                  schema);
        }

        private static SamplingOptions SamplingOf(AI.ChatOptions options) => new SamplingOptions
        {
            Temperature = options?.Temperature ?? 0, TopP = options?.TopP ?? 0, TopK = (uint)(options?.TopK ?? 0),
            Seed = (ulong)(options?.Seed ?? 0), PresencePenalty = options?.PresencePenalty ?? 0,
            FrequencyPenalty = options?.FrequencyPenalty ?? 0
        };

        private static GenerateOptions LimitsOf(AI.ChatOptions options) => new GenerateOptions
        {
            MaxTokens = (uint)(options?.MaxOutputTokens ?? 0), Stop = options?.StopSequences
        };
    }
}
#endif
