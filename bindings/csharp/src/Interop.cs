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
    internal static unsafe class Callbacks
    {
        private static readonly ConcurrentDictionary<int, object> all = new ConcurrentDictionary<int, object>();
        private static int last;
        [ThreadStatic] private static ExceptionDispatchInfo failure;

        // The delegates must live as long as the pointers to them.
        private static readonly Native.weir_progress_fn progress = OnProgress;
        private static readonly Native.weir_log_fn log = OnLog;
        private static readonly Native.weir_token_fn token = OnToken;
        private static readonly Native.weir_mask_fn mask = OnMask;
        private static readonly Native.weir_write_fn write = OnWrite;
        private static readonly Native.weir_read_fn read = OnRead;
        internal static readonly IntPtr ProgressEntry = Marshal.GetFunctionPointerForDelegate(progress);
        internal static readonly IntPtr LogEntry = Marshal.GetFunctionPointerForDelegate(log);
        internal static readonly IntPtr TokenEntry = Marshal.GetFunctionPointerForDelegate(token);
        internal static readonly IntPtr MaskEntry = Marshal.GetFunctionPointerForDelegate(mask);
        internal static readonly IntPtr WriteEntry = Marshal.GetFunctionPointerForDelegate(write);
        internal static readonly IntPtr ReadEntry = Marshal.GetFunctionPointerForDelegate(read);

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

        private static int OnProgress(IntPtr user, Native.weir_progress_info* info)
        {
            try { return Stop(((Func<Progress, bool>)Of(user))(new Progress(info))); }
            catch (Exception thrown) { return Fail(thrown); }
        }

        private static int OnLog(IntPtr user, Native.weir_log_info* info)
        {
            try { ((Action<LogLine>)Of(user))?.Invoke(new LogLine(info)); }
            catch (Exception thrown) { return Fail(thrown); }
            return Native.WEIR_OK;
        }

        private static int OnToken(IntPtr user, Native.weir_token_event* info)
        {
            try { return Stop(((Func<TokenEvent, bool>)Of(user))(new TokenEvent(info))); }
            catch (Exception thrown) { return Fail(thrown); }
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

        /// <summary>A callback that a call leaves with the library.</summary>
        internal Registration Kept { get; private set; }

        public void Dispose()
        {
            foreach (IntPtr block in blocks)
                Marshal.FreeHGlobal(block);
            foreach (int id in callbacks)
                Callbacks.Remove(id);
            blocks.Clear();
            callbacks.Clear();
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
            if (n > 0)
                foreach (KeyValuePair<string, string> pair in pairs)
                    all[i++] = new Native.weir_key_value
                    {
                        key = Text("key", pair.Key), value = Text(pair.Key, pair.Value)
                    };
            return all;
        }

        internal Native.weir_token_bias* Biases(IDictionary<int, float> biases, out uint n)
        {
            n = (uint)(biases?.Count ?? 0);
            var all = n == 0 ? null : (Native.weir_token_bias*)New(n * sizeof(Native.weir_token_bias));
            int i = 0;
            if (n > 0)
                foreach (KeyValuePair<int, float> bias in biases)
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
