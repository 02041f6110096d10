using System;
using System.Collections.Generic;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Weir
{
    internal unsafe delegate int Filler(void* items, ulong capacity, ulong* n);

    internal static unsafe class Arrays
    {
        /// <summary>What a function writes into an array of the caller; it tells the length, also where that was too
        /// small.</summary>
        internal static T[] Of<T>(int guess, Filler function)
        {
            for (;;)
            {
                var items = new T[guess];
                ulong n = 0;
                GCHandle pin = GCHandle.Alloc(items, GCHandleType.Pinned);
                int status;
                try
                {
                    status = function((void*)pin.AddrOfPinnedObject(), (ulong)guess, &n);
                }
                finally
                {
                    pin.Free();
                }
                if (status != Native.WEIR_ERR_BUFFER_TOO_SMALL || n < (ulong)guess)
                {
                    Library.Check(status);
                    Array.Resize(ref items, (int)n);
                    return items;
                }
                guess = checked((int)n + 1); // texts of metadata end with a NUL that is not counted
            }
        }

        internal static string Text(int guess, Filler function)
        {
            byte[] text = Of<byte>(guess, function);
            fixed (byte* first = text)
                return Utf8.Of(first, (ulong)text.Length);
        }
    }

    /// <summary>Stops the calls of all sessions it is given to, from any thread; it outlives what it stops.</summary>
    public sealed unsafe class Cancel : WeirObject
    {
        /// <summary>One that is not set.</summary>
        public Cancel()
        {
            Library.Load();
            Create();
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create()
        {
            IntPtr made = IntPtr.Zero;
            int status = Native.weir_cancel_create(&made);
            Take(status, new CancelHandle(made));
        }

        /// <summary>Stops them, now and until it is cleared.</summary>
        public void Set() { using (Use use = Enter()) Native.weir_cancel_set(use.Pointer); }

        /// <summary>Lets calls run again.</summary>
        public void Clear() { using (Use use = Enter()) Native.weir_cancel_clear(use.Pointer); }
    }

    /// <summary>Worker threads, backends and hooks; for any number of threads.</summary>
    public sealed unsafe class Runtime : WeirObject
    {
        /// <summary>Starts the threads.</summary>
        public Runtime(RuntimeOptions options = null)
        {
            Library.Load();
            using (var a = new Arena())
            {
                Native.weir_runtime_options* given = (options ?? new RuntimeOptions()).ToNative(a);
                Log = a.Kept;
                Create(given);
            }
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Create(Native.weir_runtime_options* options)
        {
            IntPtr made = IntPtr.Zero;
            int status = Native.weir_runtime_create(options, &made);
            Take(status, new RuntimeHandle(made));
        }

        /// <summary>The log's function, for as long as anything holds the runtime.</summary>
        internal Registration Log { get; }

        /// <summary>What its models and sessions have allocated.</summary>
        public MemoryCounters Memory
        {
            get
            {
                var info = new Native.weir_memory_counters { struct_size = (uint)sizeof(Native.weir_memory_counters) };
                using (Use use = Enter())
                    Library.Check(Native.weir_runtime_memory(use.Pointer, &info));
                return new MemoryCounters(&info);
            }
        }

        /// <summary>Threads that compute, the caller's included.</summary>
        public uint ThreadCount
        {
            get { using (Use use = Enter()) return Native.weir_runtime_thread_count(use.Pointer); }
        }

        /// <summary>Which code for processors is used.</summary>
        public string CpuTarget
        {
            get { using (Use use = Enter()) return Utf8.Of(Native.weir_runtime_cpu_target(use.Pointer)); }
        }

        /// <summary>Devices that sessions could run on, and why not.</summary>
        public IReadOnlyList<DeviceInfo> Devices()
        {
            using (Use use = Enter())
            {
                IntPtr runtime = use.Pointer;
                Native.weir_device_info[] found = Arrays.Of<Native.weir_device_info>(4, (items, capacity, n) =>
                {
                    var devices = (Native.weir_device_info*)items;
                    uint count = 0;
                    devices->struct_size = (uint)sizeof(Native.weir_device_info);
                    int status = Native.weir_runtime_devices(runtime, devices, (uint)capacity, &count);
                    *n = count;
                    return status;
                });
                fixed (Native.weir_device_info* first = found)
                    return DeviceInfo.ListOf(first, (ulong)found.Length);
            }
        }

        /// <summary>Any chat template with any variables, as text to look at.</summary>
        public string Render(string template, string variablesJson = "{}", long unixTime = 0)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                IntPtr runtime = use.Pointer;
                byte* source = a.Sized(template, out ulong sourceBytes);
                byte* given = a.Sized(variablesJson, out ulong givenBytes);
                return Arrays.Text(4096, (text, capacity, n) => Native.weir_template_render(
                    runtime, source, sourceBytes, given, givenBytes, unixTime, (byte*)text, capacity, n));
            }
        }
    }

    /// <summary>Weights, tokenizer and chat template of a GGUF file; for any number of sessions and threads.</summary>
    public sealed unsafe class Model : WeirObject
    {
        /// <summary>Opens a file. Without a runtime it gets one of its own, with all defaults.</summary>
        public Model(string path, Runtime runtime = null, ModelOptions options = null)
        {
            if (path == null)
                throw new ArgumentNullException(nameof(path));
            Runtime = runtime ?? new Runtime();
            Open(path, options ?? new ModelOptions());
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        private void Open(string path, ModelOptions options)
        {
            using (Use use = Runtime.Enter())
            using (var a = new Arena())
            {
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_model_open(use.Pointer, a.Text(nameof(path), path), options.ToNative(a),
                                                    &made);
                Take(status, new ModelHandle(made));
            }
        }

        /// <summary>The runtime it was opened with.</summary>
        public Runtime Runtime { get; }

        /// <summary>What the file says of the model.</summary>
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

        /// <summary>What its chat template can do.</summary>
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

        /// <summary>Tokens that begin and end texts.</summary>
        public SpecialTokens SpecialTokens
        {
            get
            {
                var info = new Native.weir_special_tokens { struct_size = (uint)sizeof(Native.weir_special_tokens) };
                using (Use use = Enter())
                    Library.Check(Native.weir_model_special_tokens(use.Pointer, &info));
                return new SpecialTokens(&info);
            }
        }

        /// <summary>Keys and values of the file, as text.</summary>
        public IReadOnlyList<KeyValuePair<string, string>> Metadata()
        {
            using (Use use = Enter())
            {
                IntPtr model = use.Pointer, key = IntPtr.Zero;
                var all = new KeyValuePair<string, string>[Native.weir_model_metadata_count(model)];
                for (uint i = 0; i < all.Length; i++)
                {
                    uint index = i;
                    string value = Arrays.Text(64, (text, capacity, n) =>
                    {
                        byte* name = null;
                        int status = Native.weir_model_metadata(model, index, &name, (byte*)text, capacity, n);
                        key = (IntPtr)name;
                        return status;
                    });
                    all[i] = new KeyValuePair<string, string>(Utf8.Of((byte*)key), value);
                }
                return all;
            }
        }

        /// <summary>One of its tensors, from 0 to Info.TensorCount.</summary>
        public TensorInfo Tensor(uint index)
        {
            var info = new Native.weir_tensor_info { struct_size = (uint)sizeof(Native.weir_tensor_info) };
            using (Use use = Enter())
            {
                Library.Check(Native.weir_model_tensor_info(use.Pointer, index, &info));
                return new TensorInfo(&info);
            }
        }

        /// <summary>What a token is.</summary>
        public TokenInfo Token(int token)
        {
            var info = new Native.weir_token_info { struct_size = (uint)sizeof(Native.weir_token_info) };
            using (Use use = Enter())
            {
                Library.Check(Native.weir_token_get_info(use.Pointer, token, &info));
                return new TokenInfo(&info);
            }
        }

        /// <summary>A text as tokens.</summary>
        public int[] Tokenize(string text, TokenizeOptions options = null)
        {
            if (text == null)
                throw new ArgumentNullException(nameof(text));
            return Tokenize(Utf8.Strict.GetBytes(text), options);
        }

        /// <summary>Bytes as tokens, which need not be UTF-8.</summary>
        public int[] Tokenize(byte[] text, TokenizeOptions options = null)
        {
            using (Use use = Enter())
            using (var a = new Arena())
                fixed (byte* first = text)
                {
                    IntPtr model = use.Pointer, bytes = (IntPtr)first;
                    Native.weir_tokenize_options* given = (options ?? new TokenizeOptions()).ToNative(a);
                    return Arrays.Of<int>(text.Length / 2 + 16, (tokens, capacity, n) => Native.weir_tokenize_with(
                        model, (byte*)bytes, (ulong)text.Length, given, (int*)tokens, capacity, n));
                }
        }

        /// <summary>Bytes, as the end may be inside a character; a Detokenizer gives text piece by piece.</summary>
        public byte[] Detokenize(int[] tokens, DetokenizeFlags flags = 0)
        {
            using (Use use = Enter())
                fixed (int* first = tokens)
                {
                    IntPtr model = use.Pointer, ids = (IntPtr)first;
                    return Arrays.Of<byte>(8 * tokens.Length + 8, (text, capacity, n) => Native.weir_detokenize(
                        model, (int*)ids, (ulong)tokens.Length, (uint)flags, (byte*)text, capacity, n));
                }
        }

        /// <summary>Messages as the tokens that its chat template makes of them.</summary>
        public int[] ChatTokenize(IReadOnlyList<Message> messages, ChatOptions options = null)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                IntPtr model = use.Pointer;
                Native.weir_chat_message* all = Message.ToNative(messages, a);
                Native.weir_chat_options* given = (options ?? new ChatOptions()).ToNative(a);
                return Arrays.Of<int>(1024, (tokens, capacity, n) => Native.weir_chat_tokenize(
                    model, all, (ulong)messages.Count, given, (int*)tokens, capacity, n));
            }
        }

        /// <summary>As text to look at; sessions are fed by Session.Prompt.</summary>
        public string ChatRender(IReadOnlyList<Message> messages, ChatOptions options = null)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                IntPtr model = use.Pointer;
                Native.weir_chat_message* all = Message.ToNative(messages, a);
                Native.weir_chat_options* given = (options ?? new ChatOptions()).ToNative(a);
                return Arrays.Text(4096, (text, capacity, n) => Native.weir_chat_render_with(
                    model, all, (ulong)messages.Count, given, (byte*)text, capacity, n));
            }
        }

        /// <summary>The exact bytes of a session with these options; nothing is allocated.</summary>
        public Plan Plan(SessionOptions options = null)
        {
            var info = new Native.weir_plan_info { struct_size = (uint)sizeof(Native.weir_plan_info) };
            using (Use use = Enter())
            using (var a = new Arena())
                Library.Check(Native.weir_plan(use.Pointer, (options ?? new SessionOptions()).ToNative(a), &info));
            return new Plan(&info);
        }

        /// <summary>Options with a context, budget and store whose plan takes at most so many bytes.</summary>
        public SessionOptions Fit(ulong bytes, SessionOptions options = null)
        {
            options = options ?? new SessionOptions();
            using (Use use = Enter())
            using (var a = new Arena())
            {
                Native.weir_session_options* s = options.ToNative(a);
                Library.Check(Native.weir_session_options_fit(use.Pointer, bytes, s));
                return options.With(s, false);
            }
        }
    }

    /// <summary>Turns tokens into text piece by piece and never splits a character; for one thread at a time.</summary>
    public sealed unsafe class Detokenizer : WeirObject
    {
        /// <summary>Begins a text.</summary>
        public Detokenizer(Model model, DetokenizeFlags flags = 0)
        {
            using (Use use = model.Enter())
            {
                IntPtr made = IntPtr.Zero;
                int status = Native.weir_detokenizer_create(use.Pointer, (uint)flags, &made);
                Take(status, new DetokenizerHandle(made));
            }
        }

        /// <summary>The text that is complete with this token.</summary>
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

        /// <summary>What no token completes any more.</summary>
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

    /// <summary>A JSON schema, a grammar or a list of tools that answers obey; for any session of its model.</summary>
    public sealed unsafe class Constraint : WeirObject
    {
        /// <summary>Compiles it. The text of schemas and tools is JSON.</summary>
        public Constraint(Model model, ConstraintKind kind, string text = null)
        {
            using (Use use = model.Enter())
            using (var a = new Arena())
            {
                IntPtr made = IntPtr.Zero;
                byte* given = a.Sized(text, out ulong n);
                int status = Native.weir_constraint_create(use.Pointer, (int)kind, given, n, &made);
                Take(status, new ConstraintHandle(made));
            }
        }
    }

    public sealed unsafe partial class Message
    {
        /// <summary>An empty one.</summary>
        public Message() { }

        /// <summary>What somebody says: "system", "user", "assistant", "tool".</summary>
        public Message(string role, string content)
        {
            Role = role;
            Content = content;
        }

        internal static Native.weir_chat_message* ToNative(IReadOnlyList<Message> messages, Arena a)
        {
            var all = (Native.weir_chat_message*)a.New(messages.Count * sizeof(Native.weir_chat_message));
            for (int i = 0; i < messages.Count; i++)
                messages[i].Fill(a, all + i);
            return all;
        }
    }

    public sealed unsafe partial class SessionOptions
    {
        /// <summary>Options with policy, budget and policy options of a preset, such as "reason-fixed".</summary>
        public static SessionOptions FromPreset(string name, SessionOptions options = null)
        {
            Library.Load();
            return OfPreset(name, options ?? new SessionOptions());
        }

        [MethodImpl(MethodImplOptions.NoInlining)]
        private static SessionOptions OfPreset(string name, SessionOptions options)
        {
            using (var a = new Arena())
            {
                Native.weir_session_options* s = options.ToNative(a);
                Library.Check(Native.weir_session_options_preset(a.Text(nameof(name), name), s));
                return options.With(s, true);
            }
        }

        /// <summary>A copy with what the library has filled in.</summary>
        internal SessionOptions With(Native.weir_session_options* s, bool hasPolicy)
        {
            var made = (SessionOptions)MemberwiseClone();
            made.ContextTokens = s->context_tokens;
            made.BudgetTokens = s->budget_tokens;
            made.BudgetBytes = s->budget_bytes;
            made.SpillBudgetBytes = s->spill_budget_bytes;
            if (!hasPolicy)
                return made;
            made.SpillFlags = (SpillFlags)s->spill_flags;
            made.Policy = Utf8.Of(s->policy);
            made.PolicyOptions = new Dictionary<string, string>();
            for (uint i = 0; i < s->n_policy_options; i++)
                made.PolicyOptions[Utf8.Of(s->policy_options[i].key)] = Utf8.Of(s->policy_options[i].value);
            return made;
        }
    }
}
