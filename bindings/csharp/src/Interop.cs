using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.IO;
using System.Runtime.ExceptionServices;
using System.Runtime.InteropServices;
using System.Text;
using System.Threading;

namespace Weir
{
    internal static unsafe class Utf8
    {
        // A lone surrogate is an EncoderFallbackException, which is an ArgumentException.
        internal static readonly Encoding Strict = new UTF8Encoding(false, true);

        internal static string Of(byte* text)
        {
            ulong n = 0;
            while (text != null && text[n] != 0)
                n++;
            return text == null ? null : Of(text, n);
        }

        internal static string Of(byte* text, ulong n) =>
            text == null || n == 0 ? "" : Encoding.UTF8.GetString(text, checked((int)n));

        internal static byte[] Bytes(byte* data, ulong n)
        {
            var bytes = new byte[data == null ? 0 : n];
            if (bytes.Length > 0)
                Marshal.Copy((IntPtr)data, bytes, 0, bytes.Length);
            return bytes;
        }
    }

    /// <summary>Functions of the application that the library calls. What it hands back is a number and no address, so
    /// that it may also have one that nobody else has any more.</summary>
    internal static unsafe partial class Callbacks
    {
        private static readonly ConcurrentDictionary<int, object> all = new ConcurrentDictionary<int, object>();
        private static int last;
        [ThreadStatic] private static ExceptionDispatchInfo failure;

        internal static bool HasFailed => failure != null;

        internal static int Add(object function)
        {
            int id = Interlocked.Increment(ref last);
            all[id] = function;
            return id;
        }

        internal static void Remove(int id) => all.TryRemove(id, out _);

        /// <summary>Throws what a callback of this thread has thrown.</summary>
        internal static void Rethrow()
        {
            ExceptionDispatchInfo thrown = failure;
            failure = null;
            thrown?.Throw();
        }

        /// <summary>After a call that cannot fail.</summary>
        internal static void Forget() => failure = null;

        private static object Of(IntPtr user) => all.TryGetValue((int)user, out object function) ? function : null;

        private static int Stop(bool goesOn) => goesOn ? Native.WEIR_OK : Native.WEIR_ERR_CANCELLED;

        private static int Fail(Exception thrown)
        {
            failure = failure ?? ExceptionDispatchInfo.Capture(thrown);
            return Native.WEIR_ERR_CANCELLED;
        }

        private static int OnLog(IntPtr user, Native.weir_log_info* info)
        {
            try { ((Action<LogLine>)Of(user))?.Invoke(new LogLine(info)); }
            catch (Exception thrown) { return Fail(thrown); }
            return Native.WEIR_OK;
        }

        private static int OnMask(IntPtr user, Native.weir_mask_info* info)
        {
            var asked = new TokenMask(info);
            try { return Stop(((Func<TokenMask, bool>)Of(user))(asked)); }
            catch (Exception thrown) { return Fail(thrown); }
            finally { asked.End(); }
        }

        private static int OnWrite(IntPtr user, Native.weir_write_info* info)
        {
            try
            {
                byte[] bytes = Utf8.Bytes((byte*)info->data, info->n_bytes);
                ((Stream)Of(user)).Write(bytes, 0, bytes.Length);
                return Native.WEIR_OK;
            }
            catch (Exception thrown) { return Fail(thrown); }
        }

        private static int OnRead(IntPtr user, Native.weir_read_info* info, ulong* n_read)
        {
            try
            {
                var bytes = new byte[Math.Min(info->n_bytes, 1 << 20)];
                int n = ((Stream)Of(user)).Read(bytes, 0, bytes.Length);
                Marshal.Copy(bytes, 0, (IntPtr)info->data, n);
                *n_read = (ulong)n;
                return Native.WEIR_OK;
            }
            catch (Exception thrown) { return Fail(thrown); }
        }
    }

    /// <summary>A callback that stays for longer than a call, as long as somebody holds this.</summary>
    internal sealed class Registration
    {
        internal readonly int Id;

        internal Registration(object function) { Id = Callbacks.Add(function); }

        ~Registration() { Callbacks.Remove(Id); }
    }

    /// <summary>Memory and callbacks of one call's arguments.</summary>
    internal sealed unsafe class Arena : IDisposable
    {
        private readonly List<IntPtr> blocks = new List<IntPtr>();
        private readonly List<int> callbacks = new List<int>();
        private readonly List<Use> held = new List<Use>();

        /// <summary>A callback that a call leaves with the library.</summary>
        internal Registration Kept { get; private set; }

        public void Dispose()
        {
            foreach (IntPtr block in blocks)
                Marshal.FreeHGlobal(block);
            foreach (int id in callbacks)
                Callbacks.Remove(id);
            foreach (Use use in held)
                use.Dispose();
        }

        /// <summary>Zero bytes.</summary>
        internal void* New(long n)
        {
            byte* block = (byte*)Marshal.AllocHGlobal((IntPtr)Math.Max(n, 1));
            blocks.Add((IntPtr)block);
            for (long i = 0; i < n; i++)
                block[i] = 0;
            return block;
        }

        /// <summary>With its NUL; C would take a NUL inside for the end.</summary>
        internal byte* Text(string name, string text)
        {
            if (text == null)
                return null;
            int at = text.IndexOf((char)0);
            if (at >= 0)
                throw new ArgumentException("has a NUL at " + at + ", where the library would take it to end", name);
            return Sized(text, out _);
        }

        internal byte* Sized(string text, out ulong n)
        {
            n = 0;
            if (text == null)
                return null;
            byte[] bytes = Utf8.Strict.GetBytes(text);
            byte* copy = (byte*)New(bytes.Length + 1);
            Marshal.Copy(bytes, 0, (IntPtr)copy, bytes.Length);
            n = (ulong)bytes.Length;
            return copy;
        }

        internal int* Tokens(int[] tokens)
        {
            int* copy = (int*)New(4L * tokens.Length);
            Marshal.Copy(tokens, 0, (IntPtr)copy, tokens.Length);
            return copy;
        }

        /// <summary>Another object, for the time of the call, or none.</summary>
        internal IntPtr Hold(WeirObject other) => other == null ? IntPtr.Zero : Hold(other.Enter());

        private IntPtr Hold(Use use)
        {
            held.Add(use);
            return use.Pointer;
        }

        /// <summary>Alone inside each. One that is there twice counts once, so that the library names it.</summary>
        internal IntPtr* Sessions(IReadOnlyList<Session> sessions)
        {
            var seen = new Dictionary<Session, IntPtr>();
            var all = (IntPtr*)New(sessions.Count * sizeof(IntPtr));
            for (int i = 0; i < sessions.Count; i++)
            {
                if (!seen.ContainsKey(sessions[i]))
                    seen[sessions[i]] = Hold(sessions[i].EnterAlone());
                all[i] = seen[sessions[i]];
            }
            return all;
        }

        internal Native.weir_text* Texts(IList<string> texts, out uint n)
        {
            n = (uint)(texts?.Count ?? 0);
            var all = n == 0 ? null : (Native.weir_text*)New(n * sizeof(Native.weir_text));
            for (int i = 0; i < n; i++)
                all[i].text = Sized(texts[i], out all[i].bytes);
            return all;
        }

        internal Native.weir_key_value* KeyValues(IDictionary<string, string> pairs, out uint n)
        {
            n = (uint)(pairs?.Count ?? 0);
            var all = n == 0 ? null : (Native.weir_key_value*)New(n * sizeof(Native.weir_key_value));
            int i = 0;
            foreach (KeyValuePair<string, string> pair in pairs ?? new Dictionary<string, string>())
            {
                all[i].key = Text("key", pair.Key);
                all[i++].value = Text(pair.Key, pair.Value);
            }
            return all;
        }

        internal Native.weir_token_bias* Biases(IDictionary<int, float> biases, out uint n)
        {
            n = (uint)(biases?.Count ?? 0);
            var all = n == 0 ? null : (Native.weir_token_bias*)New(n * sizeof(Native.weir_token_bias));
            int i = 0;
            foreach (KeyValuePair<int, float> bias in biases ?? new Dictionary<int, float>())
                all[i++] = new Native.weir_token_bias { token = bias.Key, bias = bias.Value };
            return all;
        }

        internal IntPtr Progress(Func<Progress, bool> function, out void* user) =>
            Callback(function, Callbacks.ProgressEntry, out user);

        internal IntPtr Token(Func<TokenEvent, bool> function, out void* user) =>
            Callback(function, Callbacks.TokenEntry, out user);

        internal IntPtr Callback(object function, IntPtr entry, out void* user)
        {
            user = null;
            if (function == null)
                return IntPtr.Zero;
            int id = Callbacks.Add(function);
            callbacks.Add(id);
            user = (void*)id;
            return entry;
        }

        internal IntPtr Log(Action<LogLine> function, out void* user)
        {
            Kept = function == null ? null : new Registration(function);
            user = Kept == null ? null : (void*)Kept.Id;
            return Kept == null ? IntPtr.Zero : Callbacks.LogEntry;
        }
    }
}
