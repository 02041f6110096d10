// Simple methods of objects. Longer than 600 lines because generate.py writes it from include/weir.
using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;
using System.Threading;

namespace Weir
{
    internal sealed class CancelHandle : Handle
    {
        internal CancelHandle(IntPtr pointer) : base(pointer) { }
        protected override void Destroy(IntPtr pointer) => Native.weir_cancel_release(pointer);
    }

    internal sealed class RuntimeHandle : Handle
    {
        internal RuntimeHandle(IntPtr pointer) : base(pointer) { }
        protected override void Destroy(IntPtr pointer) => Native.weir_runtime_destroy(pointer);
    }

    internal sealed class ModelHandle : Handle
    {
        internal ModelHandle(IntPtr pointer) : base(pointer) { }
        protected override void Destroy(IntPtr pointer) => Native.weir_model_close(pointer);
    }

    internal sealed class DetokenizerHandle : Handle
    {
        internal DetokenizerHandle(IntPtr pointer) : base(pointer) { }
        protected override void Destroy(IntPtr pointer) => Native.weir_detokenizer_destroy(pointer);
    }

    internal sealed class ConstraintHandle : Handle
    {
        internal ConstraintHandle(IntPtr pointer) : base(pointer) { }
        protected override void Destroy(IntPtr pointer) => Native.weir_constraint_destroy(pointer);
    }

    internal sealed class SessionHandle : Handle
    {
        internal SessionHandle(IntPtr pointer) : base(pointer) { }
        protected override void Destroy(IntPtr pointer) => Native.weir_session_destroy(pointer);
    }

    internal static unsafe partial class Callbacks
    {
        // The delegates must live as long as the pointers to them.
        private static readonly Native.weir_log_fn theLog = OnLog;
        internal static readonly IntPtr LogEntry =
            Marshal.GetFunctionPointerForDelegate(theLog);
        private static readonly Native.weir_progress_fn theProgress = OnProgress;
        internal static readonly IntPtr ProgressEntry =
            Marshal.GetFunctionPointerForDelegate(theProgress);

        private static int OnProgress(IntPtr user, Native.weir_progress_info* info)
        {
            try { return Stop(((Func<Progress, bool>)Of(user))(new Progress(info))); }
            catch (Exception thrown) { return Fail(thrown); }
        }

        private static readonly Native.weir_token_fn theToken = OnToken;
        internal static readonly IntPtr TokenEntry =
            Marshal.GetFunctionPointerForDelegate(theToken);

        private static int OnToken(IntPtr user, Native.weir_token_event* info)
        {
            try { return Stop(((Func<TokenEvent, bool>)Of(user))(new TokenEvent(info))); }
            catch (Exception thrown) { return Fail(thrown); }
        }

        private static readonly Native.weir_mask_fn theMask = OnMask;
        internal static readonly IntPtr MaskEntry =
            Marshal.GetFunctionPointerForDelegate(theMask);
        private static readonly Native.weir_write_fn theWrite = OnWrite;
        internal static readonly IntPtr WriteEntry =
            Marshal.GetFunctionPointerForDelegate(theWrite);
        private static readonly Native.weir_read_fn theRead = OnRead;
        internal static readonly IntPtr ReadEntry =
            Marshal.GetFunctionPointerForDelegate(theRead);
    }

    public sealed unsafe partial class Cancel
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create()
        {
            using (var a = new Arena())
            {
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_cancel_create(&made);
                Take(status, new CancelHandle(made), a);
            }
        }

        /// <summary>Stop the calls of the sessions that look at it, as weir_session_cancel stops them, those that run
        /// and all later ones until weir_cancel_clear: a call that ends because of it does not clear it, as it may
        /// serve several sessions.</summary>
        public void Set()
        {
            using (Use use = Enter())
            {
                Native.weir_cancel_set(use.Pointer);
            }
        }

        /// <summary>Let the calls of these sessions go on. As with weir_session_clear_cancel, whoever takes the clicks
        /// on a Stop button calls it when a new turn begins, before the thread that computes gets the turn.</summary>
        public void Clear()
        {
            using (Use use = Enter())
            {
                Native.weir_cancel_clear(use.Pointer);
            }
        }
    }

    public sealed unsafe partial class Runtime
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create(RuntimeOptions options = null)
        {
            using (var a = new Arena())
            {
                Native.weir_runtime_options* given = (options ?? new RuntimeOptions()).ToNative(a);
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_runtime_create(given, &made);
                Take(status, new RuntimeHandle(made), a);
            }
        }

        /// <summary>Memory that the runtime and everything made from it have allocated, on the host and on devices.
        /// Mapped model files are not included, copied ones are.</summary>
        public MemoryCounters Memory
        {
            get
            {
                var info = new Native.weir_memory_counters { struct_size = (uint)sizeof(Native.weir_memory_counters) };
                using (Use use = Enter())
                {
                    Library.Check(Native.weir_runtime_memory(use.Pointer, &info));
                    return new MemoryCounters(&info);
                }
            }
        }

        /// <summary>Number of threads that compute, the caller's included.</summary>
        public uint ThreadCount
        {
            get
            {
                using (Use use = Enter())
                {
                    return Native.weir_runtime_thread_count(use.Pointer);
                }
            }
        }

        /// <summary>Name of the CPU instruction set in use, such as "AVX3_DL" or "NEON".</summary>
        public string CpuTarget
        {
            get
            {
                using (Use use = Enter())
                {
                    return Utf8.Of(Native.weir_runtime_cpu_target(use.Pointer));
                }
            }
        }

        /// <summary>The devices of this machine, usable or not: the CPU, then those of CUDA and of Vulkan, by index.
        /// Opens none. The modules of both backends are loaded; the devices of one that is missing or finds no driver
        /// are not in the list, and an information line of the log says why.</summary>
        public IReadOnlyList<DeviceInfo> Devices()
        {
            using (Use use = Enter())
            {
                IntPtr pointer = use.Pointer;
                Native.weir_device_info[] found = Arrays.Of<Native.weir_device_info>(256, (items, capacity, n) =>
                    Native.weir_runtime_devices(pointer, (Native.weir_device_info*)Arrays.Sized(items,
                    sizeof(Native.weir_device_info)), (uint)capacity, (uint*)n));
                fixed (Native.weir_device_info* first = found)
                    return DeviceInfo.ListOf(first, (ulong)found.Length);
            }
        }

        /// <summary>Render a chat template, given as text, with any variables: to look at, and to try out
        /// templates.</summary>
        public string Render(string templateText, string variablesJson, long unixTime = 0)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                byte* templateTextAt = a.Sized(templateText, out ulong templateTextBytes);
                byte* variablesJsonAt = a.Sized(variablesJson, out ulong variablesJsonBytes);
                IntPtr pointer = use.Pointer;
                return Arrays.Text(4096, (items, capacity, n) => Native.weir_template_render(pointer, templateTextAt,
                    templateTextBytes, variablesJsonAt, variablesJsonBytes, unixTime, (byte*)items, capacity, n));
            }
        }
    }

    public sealed unsafe partial class Model
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create(Runtime parent, string path, ModelOptions options = null)
        {
            using (Use use = parent.Enter())
            using (var a = new Arena())
            {
                Native.weir_model_options* given = (options ?? new ModelOptions()).ToNative(a);
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_model_open(use.Pointer, a.Text("path", path), given, &made);
                Take(status, new ModelHandle(made), a);
            }
        }

        /// <summary>Facts about the model.</summary>
        public ModelInfo Info
        {
            get
            {
                var info = new Native.weir_model_info { struct_size = (uint)sizeof(Native.weir_model_info) };
                using (Use use = Enter())
                {
                    Library.Check(Native.weir_model_get_info(use.Pointer, &info));
                    return new ModelInfo(&info);
                }
            }
        }

        /// <summary>What the chat template of a model can do. Tags that it does not have are looked for in the
        /// vocabulary.</summary>
        public ChatInfo ChatInfo
        {
            get
            {
                var info = new Native.weir_chat_info { struct_size = (uint)sizeof(Native.weir_chat_info) };
                using (Use use = Enter())
                {
                    Library.Check(Native.weir_model_chat_info(use.Pointer, &info));
                    return new ChatInfo(&info);
                }
            }
        }

        /// <summary>The special tokens of a model.</summary>
        public SpecialTokens SpecialTokens
        {
            get
            {
                var info = new Native.weir_special_tokens { struct_size = (uint)sizeof(Native.weir_special_tokens) };
                using (Use use = Enter())
                {
                    Library.Check(Native.weir_model_special_tokens(use.Pointer, &info));
                    return new SpecialTokens(&info);
                }
            }
        }

        /// <summary>Describe tensor number `index` in file order.</summary>
        public TensorInfo Tensor(uint index)
        {
            var info = new Native.weir_tensor_info { struct_size = (uint)sizeof(Native.weir_tensor_info) };
            using (Use use = Enter())
            {
                Library.Check(Native.weir_model_tensor_info(use.Pointer, index, &info));
                return new TensorInfo(&info);
            }
        }

        /// <summary>Describe one token.</summary>
        public TokenInfo Token(int token)
        {
            var info = new Native.weir_token_info { struct_size = (uint)sizeof(Native.weir_token_info) };
            using (Use use = Enter())
            {
                Library.Check(Native.weir_token_get_info(use.Pointer, token, &info));
                return new TokenInfo(&info);
            }
        }

        /// <summary>Turn text into tokens, as weir_tokenize does, and tell how far it is.</summary>
        public int[] Tokenize(string text, TokenizeOptions options = null)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                byte* textAt = a.Sized(text, out ulong textBytes);
                Native.weir_tokenize_options* given = (options ?? new TokenizeOptions()).ToNative(a);
                IntPtr pointer = use.Pointer;
                return Arrays.Of<int>(1024, (items, capacity, n) => Native.weir_tokenize_with(pointer, textAt,
                    textBytes, given, (int*)items, capacity, n));
            }
        }

        /// <summary>Turn tokens into the bytes they stand for.</summary>
        public byte[] Detokenize(int[] tokens, DetokenizeFlags flags = 0)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                int* tokensAt = a.Tokens(tokens);
                IntPtr pointer = use.Pointer;
                return Arrays.Of<byte>(1024, (items, capacity, n) => Native.weir_detokenize(pointer, tokensAt,
                    (ulong)tokens.Length, (uint)flags, (byte*)items, capacity, n));
            }
        }

        /// <summary>Turn a conversation into tokens as the chat template of the model's file does: what to prefill
        /// before an answer.</summary>
        public int[] ChatTokenize(IReadOnlyList<Message> messages, ChatOptions options = null)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                Native.weir_chat_message* all = Message.ToNative(messages, a);
                Native.weir_chat_options* given = (options ?? new ChatOptions()).ToNative(a);
                IntPtr pointer = use.Pointer;
                return Arrays.Of<int>(1024, (items, capacity, n) => Native.weir_chat_tokenize(pointer, all,
                    (ulong)messages.Count, given, (int*)items, capacity, n));
            }
        }

        /// <summary>Render a conversation as the chat template of the model's file does, as text to look at.</summary>
        public string ChatRender(IReadOnlyList<Message> messages, ChatOptions options = null)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                Native.weir_chat_message* all = Message.ToNative(messages, a);
                Native.weir_chat_options* given = (options ?? new ChatOptions()).ToNative(a);
                IntPtr pointer = use.Pointer;
                return Arrays.Text(4096, (items, capacity, n) => Native.weir_chat_render_with(pointer, all,
                    (ulong)messages.Count, given, (byte*)items, capacity, n));
            }
        }

        /// <summary>Compute the exact number of bytes that a session with these options takes. Allocates nothing from
        /// the hooks.</summary>
        public Plan Plan(SessionOptions options = null)
        {
            var info = new Native.weir_plan_info { struct_size = (uint)sizeof(Native.weir_plan_info) };
            using (Use use = Enter())
            using (var a = new Arena())
            {
                Native.weir_session_options* given = (options ?? new SessionOptions()).ToNative(a);
                Library.Check(Native.weir_plan(use.Pointer, given, &info));
                return new Plan(&info);
            }
        }
    }

    public sealed unsafe partial class Detokenizer
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create(Model parent, DetokenizeFlags flags = 0)
        {
            using (Use use = parent.Enter())
            using (var a = new Arena())
            {
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_detokenizer_create(use.Pointer, (uint)flags, &made);
                Take(status, new DetokenizerHandle(made), a);
            }
        }

        /// <summary>Feed one token and get the text that is now complete, always whole UTF-8 sequences, perhaps none.
        /// Allocates nothing.</summary>
        public string Push(int token)
        {
            byte* text = null;
            ulong n = 0;
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_detokenizer_push(use.Pointer, token, &text, &n));
                return Utf8.Of(text, n);
            }
        }

        /// <summary>End the text: what is still incomplete comes out as U+FFFD, and the detokenizer starts
        /// anew.</summary>
        public string Flush()
        {
            byte* text = null;
            ulong n = 0;
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_detokenizer_flush(use.Pointer, &text, &n));
                return Utf8.Of(text, n);
            }
        }
    }

    public sealed unsafe partial class Constraint
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create(Model parent, ConstraintKind kind, string text)
        {
            using (Use use = parent.Enter())
            using (var a = new Arena())
            {
                byte* textAt = a.Sized(text, out ulong textBytes);
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_constraint_create(use.Pointer, (int)kind, textAt, textBytes, &made);
                Take(status, new ConstraintHandle(made), a);
            }
        }
    }

    public sealed unsafe partial class Session
    {
        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create(Model parent, SessionOptions options = null)
        {
            using (Use use = parent.Enter())
            using (var a = new Arena())
            {
                Native.weir_session_options* given = (options ?? new SessionOptions()).ToNative(a);
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_session_create(use.Pointer, given, &made);
                Take(status, new SessionHandle(made), a);
            }
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create(Session parent)
        {
            using (Use use = parent.EnterAlone())
            using (var a = new Arena())
            {
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_session_fork(use.Pointer, &made);
                Take(status, new SessionHandle(made), a);
            }
        }

        /// <summary>Forget the conversation: all pages are free, position 0, the sampler's random state starts anew, a
        /// pending cancel is cleared. Sampling options and counters stay.</summary>
        public void Reset()
        {
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_reset(use.Pointer));
            }
        }

        /// <summary>Make the conversation exactly these tokens: keep the longest common beginning, go back to it, read
        /// the rest.</summary>
        public PromptReport PromptTokens(int[] tokens, PromptOptions options = null, CancellationToken token =
            default(CancellationToken))
        {
            var info = new Native.weir_prompt_report { struct_size = (uint)sizeof(Native.weir_prompt_report) };
            using (Use use = EnterAlone())
            using (var stop = new Stop(this, token))
            using (var a = new Arena())
            {
                int* tokensAt = a.Tokens(tokens);
                Native.weir_prompt_options* given = (options ?? new PromptOptions()).ToNative(a);
                stop.Check(Native.weir_session_prompt_tokens(use.Pointer, tokensAt, (ulong)tokens.Length, given,
                    &info));
                return new PromptReport(&info);
            }
        }

        /// <summary>Append prompt tokens, many at a time, and compute the logits after the last.</summary>
        public void Prefill(int[] tokens, Func<Progress, bool> progress = null, CancellationToken token =
            default(CancellationToken))
        {
            using (Use use = EnterAlone())
            using (var stop = new Stop(this, token))
            using (var a = new Arena())
            {
                int* tokensAt = a.Tokens(tokens);
                IntPtr entry = a.Progress(progress, out void* user);
                stop.Check(Native.weir_session_prefill(use.Pointer, tokensAt, (ulong)tokens.Length, entry,
                    (IntPtr)user));
            }
        }

        /// <summary>Go back to the first `n_tokens` of the conversation, as if the tokens after them had never
        /// come.</summary>
        public void Rewind(uint nTokens, RewindFlags flags = 0)
        {
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_rewind(use.Pointer, nTokens, (uint)flags));
            }
        }

        /// <summary>Append one token as a decode step and compute the logits after it. Allocates nothing.</summary>
        public void Step(int token)
        {
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_step(use.Pointer, token));
            }
        }

        /// <summary>Set how tokens are drawn, and restart the random state from the seed. The recent tokens that the
        /// penalties look at are kept.</summary>
        public void SetSampling(SamplingOptions options = null)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
            {
                Native.weir_sampling_options* given = (options ?? new SamplingOptions()).ToNative(a);
                Library.Check(Native.weir_session_set_sampling(use.Pointer, given));
            }
        }

        /// <summary>Let answers of a session be texts of a constraint, from their first token on. Each answer begins it
        /// anew: weir_session_begin and weir_session_generate; for weir_session_sample a prefill, a prompt or this call
        /// does.</summary>
        public void SetConstraint(Constraint constraint, uint segments = 0)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
            {
                IntPtr other = a.Hold(constraint);
                Library.Check(Native.weir_session_set_constraint(use.Pointer, other, segments));
            }
        }

        /// <summary>Draw the next token from the logits; it is not appended. Allocates nothing.</summary>
        public int Sample()
        {
            int made = 0;
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_sample(use.Pointer, &made));
                return made;
            }
        }

        /// <summary>Generate an answer: draw a token, show it to the callback and append it, until the answer ends.
        /// Allocates nothing.</summary>
        public GenerateResult Generate(GenerateOptions options = null, CancellationToken token =
            default(CancellationToken))
        {
            var info = new Native.weir_generate_result { struct_size = (uint)sizeof(Native.weir_generate_result) };
            using (Use use = EnterAlone())
            using (var stop = new Stop(this, token))
            using (var a = new Arena())
            {
                Native.weir_generate_options* given = (options ?? new GenerateOptions()).ToNative(a);
                stop.Check(Native.weir_session_generate(use.Pointer, given, &info));
                return new GenerateResult(&info);
            }
        }

        /// <summary>Begin an answer that is then pulled, one event a call, by weir_session_next. An answer that was
        /// begun before ends.</summary>
        public void Begin(GenerateOptions options = null)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
            {
                Native.weir_generate_options* given = (options ?? new GenerateOptions()).ToNative(a);
                Library.Check(Native.weir_session_begin(use.Pointer, given));
            }
        }

        /// <summary>The next event of the answer that weir_session_begin began. It computes at most one step and
        /// allocates nothing.</summary>
        public Event Next()
        {
            var info = new Native.weir_event { struct_size = (uint)sizeof(Native.weir_event) };
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_next(use.Pointer, &info));
                return new Event(&info);
            }
        }

        /// <summary>The tokens of the conversation, in order: what was prefilled, and what was appended by
        /// steps.</summary>
        public int[] Tokens()
        {
            int* first = null;
            uint n = 0;
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_tokens(use.Pointer, &first, &n));
                return Arrays.Copy<int>(first, n);
            }
        }

        /// <summary>The logits after the last token.</summary>
        public float[] Logits()
        {
            float* first = null;
            uint n = 0;
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_logits(use.Pointer, &first, &n));
                return Arrays.Copy<float>(first, n);
            }
        }

        /// <summary>Stop the call that runs in this session, or else the next one: a prefill, prompt, step, generate or
        /// next, or a weir_step_many that has the session in its list. In a loop of weir_session_sample and steps of
        /// what it drew it is the next sample.</summary>
        public void Cancel()
        {
            using (Use use = Enter())
            {
                Native.weir_session_cancel(use.Pointer);
            }
        }

        /// <summary>Take a pending weir_session_cancel back; nothing happens when there is none.</summary>
        public void ClearCancel()
        {
            using (Use use = Enter())
            {
                Native.weir_session_clear_cancel(use.Pointer);
            }
        }

        /// <summary>End the thought that is open: the next token of the answer begins its end, as
        /// weir_generate_options.thinking_budget does. Nothing happens where no thought is open when that token comes,
        /// or no answer has begun.</summary>
        public void FinishThinking()
        {
            using (Use use = Enter())
            {
                Native.weir_session_finish_thinking(use.Pointer);
            }
        }

        /// <summary>Counters of the session.</summary>
        public Stats Stats
        {
            get
            {
                var info = new Native.weir_session_stats { struct_size = (uint)sizeof(Native.weir_session_stats) };
                using (Use use = Enter())
                {
                    Library.Check(Native.weir_session_get_stats(use.Pointer, &info));
                    return new Stats(&info);
                }
            }
        }

        /// <summary>Memory of the session.</summary>
        public MemoryInfo Memory
        {
            get
            {
                var info = new Native.weir_memory_info { struct_size = (uint)sizeof(Native.weir_memory_info) };
                using (Use use = Enter())
                {
                    Library.Check(Native.weir_session_memory(use.Pointer, &info));
                    return new MemoryInfo(&info);
                }
            }
        }

        /// <summary>Let the session's calls look at `cancel` as well as at weir_session_cancel. weir_session_reset and
        /// weir_session_restore do not clear it, and a fork does not look at it.</summary>
        public void SetCancel(Cancel cancel)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
            {
                IntPtr other = a.Hold(cancel);
                Library.Check(Native.weir_session_set_cancel(use.Pointer, other));
            }
        }

        /// <summary>Pin positions: the pages that hold any of [first, end) never leave, and every step attends
        /// them.</summary>
        public void Pin(uint first, uint end)
        {
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_pin(use.Pointer, first, end));
            }
        }

        /// <summary>Unpin all pages that hold any of [first, end). Takes back the pins of weir_session_pin and also
        /// those that policies give to prompts, so that old turns may leave.</summary>
        public void Unpin(uint first, uint end)
        {
            using (Use use = EnterAlone())
            {
                Library.Check(Native.weir_session_unpin(use.Pointer, first, end));
            }
        }

        /// <summary>Where the conversation's pages are, for a picture of it: page i holds the positions from 16 * i
        /// on.</summary>
        public IReadOnlyList<PageState> Pages()
        {
            using (Use use = EnterAlone())
            {
                IntPtr pointer = use.Pointer;
                Native.weir_page_state[] found = Arrays.Of<Native.weir_page_state>(256, (items, capacity, n) =>
                    Native.weir_session_pages(pointer, (Native.weir_page_state*)items, (uint)capacity, (uint*)n));
                fixed (Native.weir_page_state* first = found)
                    return PageState.ListOf(first, (ulong)found.Length);
            }
        }

        /// <summary>Save the conversation as a stream of bytes: tokens, pages with what the policy knows of them, the
        /// last logits, the sampler's options (all but bias, presence and frequency penalty), recent tokens and random
        /// state, and the beginning of a character that generate has not shown. docs/formats/session.md describes every
        /// byte.</summary>
        public void Save(Stream stream)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
            {
                IntPtr entry = a.Callback(stream, Callbacks.WriteEntry, out void* user);
                Library.Check(Native.weir_session_save(use.Pointer, entry, (IntPtr)user));
            }
        }

        /// <summary>Replace the conversation by one that weir_session_save wrote. It goes on as if it had never
        /// stopped, also with the sampling options that were saved; on the device and with the backend of this session,
        /// whose results may differ in rounding. Bias, presence and frequency penalty are not in the file: they stay
        /// what weir_session_set_sampling made them in this session.</summary>
        public void Restore(Stream stream)
        {
            using (Use use = EnterAlone())
            using (var a = new Arena())
            {
                IntPtr entry = a.Callback(stream, Callbacks.ReadEntry, out void* user);
                Library.Check(Native.weir_session_restore(use.Pointer, entry, (IntPtr)user));
            }
        }
    }
}
