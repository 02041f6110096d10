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
                try { status = function((void*)pin.AddrOfPinnedObject(), (ulong)guess, &n); }
                finally { pin.Free(); }
                if (status != Native.WEIR_ERR_BUFFER_TOO_SMALL || n < (ulong)guess)
                {
                    Library.Check(status);
                    Array.Resize(ref items, (int)n);
                    return items;
                }
                guess = checked((int)n + 1); // texts of metadata end with a NUL that is not counted
            }
        }

        /// <summary>The first entry says how large the caller's are.</summary>
        internal static void* Sized(void* items, int size)
        {
            *(uint*)items = (uint)size;
            return items;
        }

        /// <summary>Tokens or logits, of 4 bytes each.</summary>
        internal static T[] Copy<T>(void* first, uint n) => Of<T>((int)n, (items, capacity, count) =>
        {
            Buffer.MemoryCopy(first, items, 4L * n, 4L * n);
            *count = n;
            return Native.WEIR_OK;
        });

        internal static string Text(int guess, Filler function) =>
            System.Text.Encoding.UTF8.GetString(Of<byte>(guess, function));
    }

    /// <summary>Stops the calls of all sessions it is given to, from any thread; it outlives what it stops.</summary>
    public sealed unsafe partial class Cancel : WeirObject
    {
        /// <summary>One that is not set.</summary>
        public Cancel()
        {
            Library.Load();
            Create();
        }
    }

    /// <summary>Worker threads, backends and hooks; for any number of threads.</summary>
    public sealed unsafe partial class Runtime : WeirObject
    {
        /// <summary>Starts the threads.</summary>
        public Runtime(RuntimeOptions options = null)
        {
            Library.Load();
            Create(options);
        }
    }

    /// <summary>Weights, tokenizer and chat template of a GGUF file; for any number of sessions and threads.</summary>
    public sealed unsafe partial class Model : WeirObject
    {
        /// <summary>Opens a file. Without a runtime it gets one of its own, with all defaults, that ends with
        /// it.</summary>
        public Model(string path, Runtime runtime = null, ModelOptions options = null)
        {
            Runtime = runtime ?? new Runtime();
            owned = runtime == null ? Runtime : null;
            try { Create(Runtime, path, options); }
            catch { Dispose(); throw; }
        }

        /// <summary>The runtime it was opened with.</summary>
        public Runtime Runtime { get; }

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

        /// <summary>Options with a context, budget and store whose plan takes at most so many bytes.</summary>
        public SessionOptions Fit(ulong bytes, SessionOptions options = null)
        {
            using (Use use = Enter())
            using (var a = new Arena())
            {
                Native.weir_session_options* s = (options ?? new SessionOptions()).ToNative(a);
                Library.Check(Native.weir_session_options_fit(use.Pointer, bytes, s));
                return (options ?? new SessionOptions()).With(s, false);
            }
        }
    }

    /// <summary>Turns tokens into text piece by piece and never splits a character; for one thread at a time.</summary>
    public sealed unsafe partial class Detokenizer : WeirObject
    {
        /// <summary>Begins a text.</summary>
        public Detokenizer(Model model, DetokenizeFlags flags = 0) { Create(model, flags); }
    }

    /// <summary>A JSON schema, a grammar or a list of tools that answers obey; for any session of its model.</summary>
    public sealed unsafe partial class Constraint : WeirObject
    {
        /// <summary>Compiles it. The text of schemas and tools is JSON.</summary>
        public Constraint(Model model, ConstraintKind kind, string text = null) { Create(model, kind, text); }
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
