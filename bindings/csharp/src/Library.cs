using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.InteropServices;

namespace Weir
{
    /// <summary>There is no libweir, or one that this package cannot use; the text names the places.</summary>
    public sealed class LibraryException : Exception
    {
        internal LibraryException(string text) : base(text) { }
    }

    /// <summary>A call failed. Its text is the library's, which names the cause and what would fit.</summary>
    public sealed class WeirException : Exception
    {
        internal WeirException(Status status, string text) : base(text) { Status = status; }

        /// <summary>What kind of error it is.</summary>
        public Status Status { get; }
    }

    /// <summary>What belongs to no object: versions and lists of names. It finds and loads libweir.</summary>
    public static unsafe class Library
    {
        private delegate uint VersionFunction();

        private static readonly object gate = new object();
        private static bool isLoaded;

        /// <summary>The version of the library that is loaded.</summary>
        public static string Version => Name(i => (IntPtr)Native.weir_version_string(), 0);

        /// <summary>The version of the headers that this package is made from, which is the package's own.</summary>
        public static string PackageVersion =>
            Native.WEIR_VERSION_MAJOR + "." + Native.WEIR_VERSION_MINOR + "." + Native.WEIR_VERSION_PATCH;

        /// <summary>Values of SessionOptions.Policy.</summary>
        public static IReadOnlyList<string> Policies => Names(i => (IntPtr)Native.weir_policy_name(i));

        /// <summary>Names that SessionOptions.FromPreset takes.</summary>
        public static IReadOnlyList<string> Presets => Names(i => (IntPtr)Native.weir_preset_name(i));

        /// <summary>Types of weights that the library computes with.</summary>
        public static IReadOnlyList<string> WeightTypes => Names(i => (IntPtr)Native.weir_weight_type_name(i));

        internal static void Check(int status)
        {
            if (status != Native.WEIR_OK || Callbacks.HasFailed)
                Throw(status);
        }

        private static void Throw(int status)
        {
            Callbacks.Rethrow();
            string text = Utf8.Of(Native.weir_last_error());
            throw new WeirException((Status)status, string.IsNullOrEmpty(text)
                                        ? Utf8.Of(Native.weir_status_name(status)) : text);
        }

        /// <summary>Before any other function. Where a function that calls the library is compiled, mono looks for the
        /// library, so that whoever calls this leaves the rest to another function.</summary>
        internal static void Load()
        {
            lock (gate)
            {
                if (!isLoaded)
                    Find();
                isLoaded = true;
            }
        }

        private static string Name(Func<uint, IntPtr> nameOf, uint i)
        {
            Load();
            return Utf8.Of((byte*)nameOf(i));
        }

        private static List<string> Names(Func<uint, IntPtr> nameOf)
        {
            var names = new List<string>();
            for (string name; (name = Name(nameOf, (uint)names.Count)) != null;)
                names.Add(name);
            return names;
        }

        /// <summary>Where the library may be, and why there. Who names one means that one.</summary>
        private static List<string[]> Places()
        {
            bool isWindows = RuntimeInformation.IsOSPlatform(OSPlatform.Windows);
            bool isMac = RuntimeInformation.IsOSPlatform(OSPlatform.OSX);
            uint major = Native.WEIR_VERSION_MAJOR;
            string name = isWindows ? "weir.dll" : isMac ? "libweir." + major + ".dylib" : "libweir.so." + major;
            string rid = (isWindows ? "win-" : isMac ? "osx-" : "linux-") +
                RuntimeInformation.ProcessArchitecture.ToString().ToLowerInvariant();
            string file = Environment.GetEnvironmentVariable("WEIR_LIBRARY");
            string folder = Environment.GetEnvironmentVariable("WEIR_DIR");
            if (!string.IsNullOrEmpty(file))
                return new List<string[]> { new[] { file, "WEIR_LIBRARY of the environment" } };
            if (!string.IsNullOrEmpty(folder))
                return new List<string[]> { new[] { folder + "/lib/" + name, "WEIR_DIR of the environment" } };
            return new List<string[]>
            {
                new[] { Path.Combine(AppContext.BaseDirectory, "runtimes", rid, "native", name), "of the package" },
                new[] { Path.Combine(AppContext.BaseDirectory, name), "beside the program" },
                new[] { name, "the loader's places: LD_LIBRARY_PATH, ldconfig" }
            };
        }

        private static void Find()
        {
            string looked = "";
            foreach (string[] place in Places())
            {
                IntPtr library = Open(place[0], out string error);
                if (library != IntPtr.Zero)
                {
                    IntPtr function = Symbol(library, "weir_version");
                    if (function == IntPtr.Zero)
                        throw new LibraryException(place[0] + " is no libweir: it has no weir_version");
                    CheckVersion(place[0], Marshal.GetDelegateForFunctionPointer<VersionFunction>(function)());
                    Use(library);
                    return;
                }
                looked += "\n  " + place[0] + " (" + place[1] + "): " + error;
            }
            throw new LibraryException("libweir was not found. It was looked for at:" + looked);
        }

        private static void CheckVersion(string path, uint version)
        {
            uint major = version >> 16, minor = version >> 8 & 255;
            if (major != Native.WEIR_VERSION_MAJOR || minor < Native.WEIR_VERSION_MINOR)
                throw new LibraryException(
                    path + " is Weir " + major + "." + minor + "." + (version & 255) + ", and this package is for " +
                    PackageVersion + ": it needs a library of " + Native.WEIR_VERSION_MAJOR + "." +
                    Native.WEIR_VERSION_MINOR + " or a later " + Native.WEIR_VERSION_MAJOR + ".x");
        }

#if NET8_0_OR_GREATER
        private static IntPtr Open(string path, out string error)
        {
            error = null;
            try
            {
                return NativeLibrary.Load(path);
            }
            catch (Exception e) when (e is DllNotFoundException || e is BadImageFormatException)
            {
                error = e.Message;
                return IntPtr.Zero;
            }
        }

        private static IntPtr Symbol(IntPtr library, string name) =>
            NativeLibrary.TryGetExport(library, name, out IntPtr address) ? address : IntPtr.Zero;

        private static void Use(IntPtr library) =>
            NativeLibrary.SetDllImportResolver(typeof(Native).Assembly,
                                               (name, assembly, path) => name == Native.Name ? library : IntPtr.Zero);
#else
        // On Linux: a library that is loaded already is the one that its soname means, as that is what DllImport names.
        [DllImport("libdl.so.2")] private static extern IntPtr dlopen(string path, int flags);

        [DllImport("libdl.so.2")] private static extern byte* dlerror();

        [DllImport("libdl.so.2", EntryPoint = "dlsym")]
        private static extern IntPtr Symbol(IntPtr library, string name);

        private static IntPtr Open(string path, out string error)
        {
            try
            {
                IntPtr library = dlopen(path, 2 /* RTLD_NOW; its names are for nobody else */);
                error = library == IntPtr.Zero ? Utf8.Of(dlerror()) : null;
                return library;
            }
            catch (DllNotFoundException)
            {
                error = "without .NET 8 only Linux is supported";
                return IntPtr.Zero;
            }
        }

        private static void Use(IntPtr library) { }
#endif
    }
}
