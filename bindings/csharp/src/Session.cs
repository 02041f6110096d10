using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.InteropServices;
using System.Threading;

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
        public int[] Tokens
        {
            get
            {
                var tokens = new int[Info->n_tokens];
                if (tokens.Length > 0)
                    Marshal.Copy((IntPtr)info->tokens, tokens, 0, tokens.Length);
                return tokens;
            }
        }

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
        private Registration mask;

        /// <summary>An empty conversation; all its memory is had here.</summary>
        public Session(Model model, SessionOptions options = null)
        {
            Model = model;
            using (Use use = model.Enter())
            using (var a = new Arena())
            {
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_session_create(use.Pointer, (options ?? new SessionOptions()).ToNative(a),
                                                        &made);
                Take(status, new SessionHandle(made));
            }
        }

        private Session(Session other)
        {
            Model = other.Model;
            using (Use use = other.EnterAlone())
            {
                IntPtr made = IntPtr.Zero;
                mask = other.mask;
                int status = Native.weir_session_fork(use.Pointer, &made);
                Take(status, new SessionHandle(made));
            }
        }

        /// <summary>The model it was made from.</summary>
        public Model Model { get; }

        /// <summary>A second session that goes on where this one is.</summary>
        public Session Fork() => new Session(this);

        /// <summary>Forgets the conversation.</summary>
        public void Reset() { using (Use use = EnterAlone()) Library.Check(Native.weir_session_reset(use.Pointer)); }

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

        /// <summary>Makes the conversation exactly these tokens.</summary>
        public PromptReport PromptTokens(int[] tokens, PromptOptions options = null,
                                         CancellationToken token = default(CancellationToken))
        {
            var report = new Native.weir_prompt_report { struct_size = (uint)sizeof(Native.weir_prompt_report) };
            using (Use use = EnterAlone())
            using (var stop = new Stop(this, token))
            using (var a = new Arena())
                fixed (int* first = tokens)
                    stop.Check(Native.weir_session_prompt_tokens(use.Pointer, first, (ulong)tokens.Length,
                                                                 (options ?? new PromptOptions()).ToNative(a),
                                                                 &report));
            return new PromptReport(&report);
        }

        /// <summary>Appends tokens. False from progress stops it.</summary>
        public void Prefill(int[] tokens, Func<Progress, bool> progress = null,
                            CancellationToken token = default(CancellationToken))
        {
            using (Use use = EnterAlone())
            using (var stop = new Stop(this, token))
            using (var a = new Arena())
                fixed (int* first = tokens)
                {
                    IntPtr entry = a.Progress(progress, out void* user);
                    stop.Check(Native.weir_session_prefill(use.Pointer, first, (ulong)tokens.Length, entry,
                                                           (IntPtr)user));
                }
        }

        /// <summary>Goes back to the first so many tokens.</summary>
        public void Rewind(uint tokenCount, RewindFlags flags = 0)
        {
            using (Use use = EnterAlone())
                Library.Check(Native.weir_session_rewind(use.Pointer, tokenCount, (uint)flags));
        }

        /// <summary>Appends one token.</summary>
        public void Step(int token)
        {
            using (Use use = EnterAlone())
                Library.Check(Native.weir_session_step(use.Pointer, token));
        }

        /// <summary>The conversation, a copy; after very long ones its end.</summary>
        public int[] Tokens()
        {
            int* first = null;
            uint n = 0;
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_tokens(use.Pointer, &first, &n));
                var tokens = new int[n];
                if (n > 0)
                    Marshal.Copy((IntPtr)first, tokens, 0, tokens.Length);
                return tokens;
            }
        }

        /// <summary>Of the token that comes next, one of each token; a copy, into an array that is given if it
        /// fits.</summary>
        public float[] Logits(float[] into = null)
        {
            float* first = null;
            uint n = 0;
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_logits(use.Pointer, &first, &n));
                float[] logits = into != null && into.Length == n ? into : new float[n];
                Marshal.Copy((IntPtr)first, logits, 0, logits.Length);
                return logits;
            }
        }

        /// <summary>Writes the conversation.</summary>
        public void Save(Stream stream)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
            {
                IntPtr entry = a.Callback(stream, Callbacks.WriteEntry, out void* user);
                Library.Check(Native.weir_session_save(use.Pointer, entry, (IntPtr)user));
            }
        }

        /// <summary>Goes on with a conversation that was saved.</summary>
        public void Restore(Stream stream)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
            {
                IntPtr entry = a.Callback(stream, Callbacks.ReadEntry, out void* user);
                Library.Check(Native.weir_session_restore(use.Pointer, entry, (IntPtr)user));
            }
        }

        /// <summary>How tokens are drawn from now on.</summary>
        public void SetSampling(SamplingOptions options)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
                Library.Check(Native.weir_session_set_sampling(use.Pointer,
                                                               (options ?? new SamplingOptions()).ToNative(a)));
        }

        /// <summary>What answers obey; null: nothing. Of the constraint the session keeps what it needs.</summary>
        public void SetConstraint(Constraint constraint, uint segments = 0)
        {
            using (Use use = EnterAlone())
                if (constraint == null)
                    Library.Check(Native.weir_session_set_constraint(use.Pointer, IntPtr.Zero, segments));
                else
                    using (Use other = constraint.Enter())
                        Library.Check(Native.weir_session_set_constraint(use.Pointer, other.Pointer, segments));
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
                mask = made;
            }
        }

        /// <summary>Draws a token, which is not appended.</summary>
        public int Sample()
        {
            int token = 0;
            using (Use use = EnterAlone())
                Library.Check(Native.weir_session_sample(use.Pointer, &token));
            return token;
        }

        /// <summary>An answer that is pushed into OnToken; false from it is Status.Cancelled here.</summary>
        public GenerateResult Generate(GenerateOptions options, CancellationToken token = default(CancellationToken))
        {
            var result = new Native.weir_generate_result { struct_size = (uint)sizeof(Native.weir_generate_result) };
            using (Use use = EnterAlone())
            using (var stop = new Stop(this, token))
            using (var a = new Arena())
                stop.Check(Native.weir_session_generate(use.Pointer, (options ?? new GenerateOptions()).ToNative(a),
                                                        &result));
            return new GenerateResult(&result);
        }

        /// <summary>Begins an answer, which Next gives piece by piece.</summary>
        public void Begin(GenerateOptions options = null)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
                Library.Check(Native.weir_session_begin(use.Pointer, (options ?? new GenerateOptions()).ToNative(a)));
        }

        /// <summary>The next event of the answer that was begun.</summary>
        public Event Next()
        {
            var info = new Native.weir_event { struct_size = (uint)sizeof(Native.weir_event) };
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_next(use.Pointer, &info));
                return new Event(&info);
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

        /// <summary>Stops the call that runs, or the next one. Any thread.</summary>
        public void Cancel() { using (Use use = Enter()) Native.weir_session_cancel(use.Pointer); }

        /// <summary>Lets calls run again. Any thread.</summary>
        public void ClearCancel() { using (Use use = Enter()) Native.weir_session_clear_cancel(use.Pointer); }

        /// <summary>Ends the thought that the answer is in. Any thread.</summary>
        public void FinishThinking() { using (Use use = Enter()) Native.weir_session_finish_thinking(use.Pointer); }

        /// <summary>Counters. Any thread.</summary>
        public Stats Stats
        {
            get
            {
                var info = new Native.weir_session_stats { struct_size = (uint)sizeof(Native.weir_session_stats) };
                using (Use use = Enter())
                    Library.Check(Native.weir_session_get_stats(use.Pointer, &info));
                return new Stats(&info);
            }
        }

        /// <summary>Its memory. Any thread.</summary>
        public MemoryInfo Memory
        {
            get
            {
                var info = new Native.weir_memory_info { struct_size = (uint)sizeof(Native.weir_memory_info) };
                using (Use use = Enter())
                    Library.Check(Native.weir_session_memory(use.Pointer, &info));
                return new MemoryInfo(&info);
            }
        }

        /// <summary>What stops it, together with others; null: nothing.</summary>
        public void SetCancel(Cancel cancel)
        {
            using (Use use = EnterAlone())
                if (cancel == null)
                    Library.Check(Native.weir_session_set_cancel(use.Pointer, IntPtr.Zero));
                else
                    using (Use other = cancel.Enter())
                        Library.Check(Native.weir_session_set_cancel(use.Pointer, other.Pointer));
        }

        /// <summary>Keeps the pages of these positions.</summary>
        public void Pin(uint first, uint end)
        {
            using (Use use = EnterAlone())
                Library.Check(Native.weir_session_pin(use.Pointer, first, end));
        }

        /// <summary>Lets them go again.</summary>
        public void Unpin(uint first, uint end)
        {
            using (Use use = EnterAlone())
                Library.Check(Native.weir_session_unpin(use.Pointer, first, end));
        }

        /// <summary>Where each page of the conversation is.</summary>
        public IReadOnlyList<PageState> Pages()
        {
            using (Use use = EnterAlone())
            {
                IntPtr session = use.Pointer;
                Native.weir_page_state[] found = Arrays.Of<Native.weir_page_state>(256, (items, capacity, n) =>
                {
                    uint count = 0;
                    int status = Native.weir_session_pages(session, (Native.weir_page_state*)items, (uint)capacity,
                                                            &count);
                    *n = count;
                    return status;
                });
                fixed (Native.weir_page_state* first = found)
                    return PageState.ListOf(first, (ulong)found.Length);
            }
        }

        /// <summary>One step of several conversations of one model, which reads the weights once.</summary>
        public static void StepMany(IReadOnlyList<Session> sessions, int[] tokens)
        {
            if (tokens.Length != sessions.Count)
                throw new ArgumentException(sessions.Count + " sessions and " + tokens.Length + " tokens",
                                            nameof(tokens));
            using (var all = new Uses(sessions))
                fixed (IntPtr* pointers = all.Pointers)
                fixed (int* ids = tokens)
                    Library.Check(Native.weir_step_many(pointers, ids, (uint)tokens.Length));
        }

        /// <summary>The next event of each session, and how many answers go on.</summary>
        public static Event[] NextMany(IReadOnlyList<Session> sessions, out uint runningCount)
        {
            using (var all = new Uses(sessions))
            using (var a = new Arena())
                fixed (IntPtr* pointers = all.Pointers)
                {
                    var events = new Event[sessions.Count];
                    var infos = (Native.weir_event*)a.New(events.Length * sizeof(Native.weir_event));
                    uint running = 0;
                    for (int i = 0; i < events.Length; i++)
                        infos[i].struct_size = (uint)sizeof(Native.weir_event);
                    Library.Check(Native.weir_next_many(pointers, infos, (uint)events.Length, &running));
                    for (int i = 0; i < events.Length; i++)
                        events[i] = new Event(infos + i);
                    runningCount = running;
                    return events;
                }
        }
    }

    /// <summary>Alone inside several sessions. One that is there twice counts once, so that the library names
    /// it.</summary>
    internal sealed class Uses : IDisposable
    {
        internal readonly IntPtr[] Pointers;
        private readonly Dictionary<Session, Use> all = new Dictionary<Session, Use>();

        internal Uses(IReadOnlyList<Session> sessions)
        {
            Pointers = new IntPtr[sessions.Count];
            try
            {
                for (int i = 0; i < Pointers.Length; i++)
                {
                    if (!all.ContainsKey(sessions[i]))
                        all[sessions[i]] = sessions[i].EnterAlone();
                    Pointers[i] = all[sessions[i]].Pointer;
                }
            }
            catch
            {
                Dispose();
                throw;
            }
        }

        public void Dispose()
        {
            foreach (Use use in all.Values)
                use.Dispose();
        }
    }
}
