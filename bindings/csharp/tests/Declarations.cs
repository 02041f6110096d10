using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;

namespace Weir.Tests
{
    internal static partial class Test
    {
        private static IEnumerable<KeyValuePair<string, Action>> Declarations()
        {
            yield return Of("structs are laid out as the C compiler does", Layouts);
            yield return Of("versions", Versions);
        }

        // layouts.txt: `weir_event 80`, then `weir_event kind 4` for each field.
        private static void Layouts()
        {
            int n = 0;
            foreach (string line in File.ReadLines(Path.Combine(Scratch, "layouts.txt")))
            {
                string[] words = line.Split(' ');
                Type type = typeof(Model).Assembly.GetType("Weir.Native+" + words[0], true);
                if (words.Length == 2)
                    Is(Marshal.SizeOf(type) == int.Parse(words[1]), line + ": the size is " + Marshal.SizeOf(type));
                else
                    Is((int)Marshal.OffsetOf(type, words[1]) == int.Parse(words[2]),
                       line + ": the offset is " + Marshal.OffsetOf(type, words[1]));
                n++;
            }
            Is(n > 250, n + " sizes and offsets");
        }

        [DllImport("libdl.so.2", EntryPoint = "dlopen")]
        private static extern IntPtr OpenLibrary(string path, int flags);

        [DllImport("libdl.so.2", EntryPoint = "dlsym")]
        private static extern IntPtr Symbol(IntPtr library, string name);

        private static void Versions()
        {
            Same(Library.Version, Library.PackageVersion);
            // Other libraries of the process do not get functions of this one, unless mono gives all to all.
            if (Type.GetType("Mono.Runtime") == null)
                Same(Symbol(IntPtr.Zero, "weir_version"), IntPtr.Zero);
            Is(Library.Policies.Contains("raas") && Library.Presets.Contains("reason-fixed"), "policies and presets");
            Is(Library.WeightTypes.Contains("q8_0"), string.Join(" ", Library.WeightTypes));
        }
    }

    internal static partial class Test
    {
        private static IEnumerable<KeyValuePair<string, Action>> Libraries()
        {
            yield return Of("a library of another version names both", OtherVersion);
            yield return Of("a library that is not found names the places", NotFound);
        }

        private static string VersionIn(Dictionary<string, string> environment)
        {
            string host = Process.GetCurrentProcess().MainModule.FileName; // mono or dotnet
            var start = new ProcessStartInfo(host, "\"" + typeof(Test).Assembly.Location + "\" version")
            {
                UseShellExecute = false, RedirectStandardOutput = true
            };
            foreach (string name in new[] { "WEIR_LIBRARY", "WEIR_DIR", "LD_LIBRARY_PATH" })
                start.EnvironmentVariables.Remove(name);
            foreach (KeyValuePair<string, string> pair in environment)
                start.EnvironmentVariables[pair.Key] = pair.Value;
            using (Process process = Process.Start(start))
            {
                string said = process.StandardOutput.ReadToEnd();
                process.WaitForExit();
                return said;
            }
        }

        private static void OtherVersion()
        {
            foreach (string version in new[] { "2.3.4", "0.9.0", "1.0.0" })
            {
                string library = Path.Combine(Scratch, "other-" + version + ".so");
                string said = VersionIn(new Dictionary<string, string> { ["WEIR_LIBRARY"] = library });
                Has(said, library + " is Weir " + version + ", and this package is for " + Library.PackageVersion);
            }
            string none = Path.Combine(Scratch, "no-weir.so");
            Has(VersionIn(new Dictionary<string, string> { ["WEIR_LIBRARY"] = none }), none + " is no libweir");
        }

        private static void NotFound()
        {
            string said = VersionIn(new Dictionary<string, string> { ["WEIR_DIR"] = "/no/such/folder" });
            Has(said, "LibraryException: libweir was not found. It was looked for at:");
            Has(said, "/no/such/folder/lib/libweir.so.1 (WEIR_DIR of the environment): ");
            said = VersionIn(new Dictionary<string, string> { ["WEIR_LIBRARY"] = "/no/such/libweir.so" });
            Has(said, "/no/such/libweir.so (WEIR_LIBRARY of the environment): ");
            string rid = "linux-" + RuntimeInformation.ProcessArchitecture.ToString().ToLowerInvariant();
            said = VersionIn(new Dictionary<string, string>());
            if (said.StartsWith("LibraryException"))
            {
                Has(said, "/runtimes/" + rid + "/native/libweir.so.1 (of the package): ");
                Has(said, "libweir.so.1 (the loader's places");
            }
            string native = Path.Combine(Scratch, "runtimes", rid, "native");
            Directory.CreateDirectory(native);
            string copy = Path.Combine(native, "libweir.so.1");
            File.Copy(Path.Combine(Environment.GetEnvironmentVariable("WEIR_DIR"), "lib", "libweir.so.1"), copy, true);
            try
            {
                Same(VersionIn(new Dictionary<string, string>()).Trim(), Library.Version);
            }
            finally
            {
                File.Delete(copy);
            }
        }
    }
}
