using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Threading;
using System.Threading.Tasks;

namespace Weir
{
    /// <summary>What a token mask is asked: which tokens may come next. For the time of the call.</summary>
    public sealed unsafe class TokenMask
    {
        private Native.weir_mask_info* info;

        internal TokenMask(Native.weir_mask_info* info) { this.info = info; }

        /// <summary>Tokens of the model.</summary>
        public int VocabSize => checked((int)Info->vocab_size);

        /// <summary>The answer so far.</summary>
        public int[] Tokens => Arrays.Copy<int>(Info->tokens, Info->n_tokens);

        /// <summary>Whether a token may be drawn; at first all that the session's constraint allows.</summary>
        public bool this[int token]
        {
            get { return (*Word(token) >> (token & 31) & 1) != 0; }
            set { *Word(token) = value ? *Word(token) | 1u << (token & 31) : *Word(token) & ~(1u << (token & 31)); }
        }

        private Native.weir_mask_info* Info =>
            info != null ? info : throw new InvalidOperationException("a token mask is for the time of its call");

        internal void End() { info = null; }

        /// <summary>Forbids all.</summary>
        public void Clear()
        {
            for (int token = 0; token < VocabSize; token += 32)
                *Word(token) = 0;
        }

        private uint* Word(int token)
        {
            if ((uint)token >= Info->vocab_size)
                throw new ArgumentOutOfRangeException(nameof(token));
            return info->words + token / 32;
        }
    }

    /// <summary>One conversation, for one thread at a time: a call while another one is inside throws a WeirException
    /// of Status.Busy, except where it says "any thread".</summary>
    public sealed unsafe partial class Session : WeirObject
    {
        /// <summary>An empty conversation; all its memory is had here.</summary>
        public Session(Model model, SessionOptions options = null)
        {
            Model = model;
            Create(model, options);
        }

        private Session(Session other)
        {
            Model = other.Model;
            from = other;
            Create(other);
            from = null;
        }

        /// <summary>The model it was made from.</summary>
        public Model Model { get; }

        /// <summary>A second session that goes on where this one is.</summary>
        public Session Fork() => new Session(this);

        /// <summary>Makes the session hold exactly these messages; what is there already is not read again.</summary>
        public PromptReport Prompt(IReadOnlyList<Message> messages, PromptOptions options = null,
                                   CancellationToken token = default(CancellationToken)) =>
            Prompt(messages, out _, options, token);

        /// <summary>The same, and says where each message is.</summary>
        public PromptReport Prompt(IReadOnlyList<Message> messages, out Span[] spans, PromptOptions options = null,
                                   CancellationToken token = default(CancellationToken))
        {
            var report = new Native.weir_prompt_report { struct_size = (uint)sizeof(Native.weir_prompt_report) };
            using (Use use = EnterAlone())
            using (var stop = new Stop(this, token))
            using (var a = new Arena())
            {
                var found = (Native.weir_span*)a.New(messages.Count * sizeof(Native.weir_span));
                stop.Check(Native.weir_session_prompt(
                    use.Pointer, Message.ToNative(messages, a), (ulong)messages.Count,
                    (options ?? new PromptOptions()).ToNative(a), found, &report));
                spans = Span.ListOf(found, (ulong)messages.Count);
            }
            return new PromptReport(&report);
        }

        /// <summary>A function that decides before each draw which tokens may come; false from it ends the
        /// answer.</summary>
        public void SetTokenMask(Func<TokenMask, bool> function)
        {
            using (Use use = EnterAlone())
            {
                Registration made = function == null ? null : new Registration(function);
                Library.Check(Native.weir_session_set_token_mask(
                    use.Pointer, made == null ? IntPtr.Zero : Callbacks.MaskEntry, (IntPtr)(made?.Id ?? 0)));
                Kept = made;
            }
        }

        /// <summary>The latest answer as a message to keep, and whether it has a call of a tool that could not be
        /// read.</summary>
        public Message Answer(out bool isMalformed)
        {
            var made = new Native.weir_chat_message();
            uint malformed = 0;
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_answer(use.Pointer, &made, (uint)sizeof(Native.weir_chat_message),
                                                         &malformed));
                isMalformed = malformed != 0;
                return new Message("assistant", Utf8.Of(made.content, made.content_bytes))
                {
                    Thought = made.thought_bytes == 0 ? null : Utf8.Of(made.thought, made.thought_bytes),
                    ToolCallsJson = Utf8.Of(made.tool_calls_json)
                };
            }
        }

        /// <summary>The latest answer as a message to keep.</summary>
        public Message Answer() => Answer(out _);

        /// <summary>One step of several conversations of one model, which reads the weights once.</summary>
        public static void StepMany(IReadOnlyList<Session> sessions, int[] tokens)
        {
            if (tokens.Length != sessions.Count)
                throw new ArgumentException(sessions.Count + " sessions and " + tokens.Length + " tokens",
                                            nameof(tokens));
            using (var a = new Arena())
                Library.Check(Native.weir_step_many(a.Sessions(sessions), a.Tokens(tokens), (uint)tokens.Length));
        }

        /// <summary>The next event of each session, and how many answers go on.</summary>
        public static Event[] NextMany(IReadOnlyList<Session> sessions, out uint runningCount)
        {
            using (var a = new Arena())
            {
                var events = new Event[sessions.Count];
                var infos = (Native.weir_event*)a.New(events.Length * sizeof(Native.weir_event));
                uint running = 0;
                for (int i = 0; i < events.Length; i++)
                    infos[i].struct_size = (uint)sizeof(Native.weir_event);
                Library.Check(Native.weir_next_many(a.Sessions(sessions), infos, (uint)events.Length, &running));
                for (int i = 0; i < events.Length; i++)
                    events[i] = new Event(infos + i);
                runningCount = running;
                return events;
            }
        }
    }

    /// <summary>A CancellationToken that stops the calls of a session for a time.</summary>
    internal sealed class Stop : IDisposable
    {
        private readonly Session session;
        private readonly CancellationToken token;
        private readonly CancellationTokenRegistration registration;

        internal Stop(Session session, CancellationToken token)
        {
            this.session = session;
            this.token = token;
            token.ThrowIfCancellationRequested();
            if (token.CanBeCanceled)
                registration = token.Register(Set, true);
        }

        private void Set(object isStopped)
        {
            try { if ((bool)isStopped) session.Cancel(); else session.ClearCancel(); }
            catch (ObjectDisposedException) { } // there is nothing left to stop
        }

        /// <summary>As Library.Check; what the token has stopped is its exception.</summary>
        internal void Check(int status)
        {
            if (status == Native.WEIR_ERR_CANCELLED && !Callbacks.HasFailed)
                token.ThrowIfCancellationRequested();
            Library.Check(status);
        }

        /// <summary>What the token has stopped must not stop the next call.</summary>
        public void Dispose()
        {
            registration.Dispose(); // which waits for Set
            if (token.IsCancellationRequested)
                Set(false);
        }
    }

    public sealed partial class Session
    {
        /// <summary>Begins an answer; its events, the last of kind End. It may be left at any of them. A token that is
        /// cancelled ends it with StopReason.Cancelled, and after that event with OperationCanceledException; each
        /// token whose event came is in the conversation, and no other.</summary>
        public IEnumerable<Event> Events(GenerateOptions options = null,
                                         CancellationToken token = default(CancellationToken))
        {
            token.ThrowIfCancellationRequested();
            Begin(options);
            return Rest(token);
        }

        private IEnumerable<Event> Rest(CancellationToken token)
        {
            using (var stop = new Stop(this, token))
            {
                Event next;
                do
                {
                    next = Next();
                    yield return next;
                }
                while (next.Kind != EventKind.End);
                if (next.Stop == StopReason.Cancelled)
                    token.ThrowIfCancellationRequested();
            }
        }

#if NET8_0_OR_GREATER
        /// <summary>The same, computed in threads of the pool.</summary>
        public async IAsyncEnumerable<Event> EventsAsync(GenerateOptions options = null,
                                                         [EnumeratorCancellation] CancellationToken token = default)
        {
            using (var stop = new Stop(this, token))
            {
                await Task.Run(() => Begin(options), CancellationToken.None).ConfigureAwait(false);
                Event next;
                do
                {
                    next = await Task.Run(Next, CancellationToken.None).ConfigureAwait(false);
                    yield return next;
                }
                while (next.Kind != EventKind.End);
                if (next.Stop == StopReason.Cancelled)
                    token.ThrowIfCancellationRequested();
            }
        }
#endif
    }
}
