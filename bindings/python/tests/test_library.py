"""Loading: another version, a file that is no library, none at all."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from common import FOLDER, weir

CC = os.environ.get("CC", "cc")


def imported(**environment):
    """What `import weir` says in a process of its own, with a copy of the package that has no library."""
    kept = {name: value for name, value in os.environ.items() if name not in ("WEIR_LIBRARY", "WEIR_DIR")}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(FOLDER / "weir", pathlib.Path(folder) / "weir",
                        ignore=shutil.ignore_patterns("lib", "__pycache__"))
        code = f"import sys; sys.path.insert(0, {folder!r}); sys.dont_write_bytecode = True\nimport weir"
        return subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True,
                              env={**kept, "LD_LIBRARY_PATH": "", **environment}).stderr


class Library(unittest.TestCase):
    def made(self, folder, source):
        library = os.path.join(folder, "libweir.so.1")
        subprocess.run([CC, "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
        return library

    @unittest.skipUnless(shutil.which(CC), "there is no C compiler")
    def test_another_version(self):
        for number, version in ((0x020304, "2.3.4"), (0x000900, "0.9.0"), (0x010000, "1.0.0")):
            with tempfile.TemporaryDirectory() as folder:
                library = self.made(folder, f"unsigned weir_version(void) {{ return {number}; }}\n")
                said = imported(WEIR_LIBRARY=library)
            self.assertIn("LibraryError", said)
            self.assertIn(f"{library} is Weir {version}, and this package is for {weir.__version__}", said)

    @unittest.skipUnless(shutil.which(CC), "there is no C compiler")
    def test_no_libweir(self):
        with tempfile.TemporaryDirectory() as folder:
            said = imported(WEIR_LIBRARY=self.made(folder, "int other(void) { return 1; }\n"))
            self.assertRegex(said, "LibraryError: .*libweir.so.1 is no libweir .*weir_version")
            said = imported(WEIR_LIBRARY=self.made(folder, "unsigned weir_version(void) { return 0x010900; }\n"))
            self.assertRegex(said, "LibraryError: .*undefined symbol: weir_")

    def test_not_found(self):
        said = imported()
        if "Traceback" not in said:
            self.skipTest("a libweir is installed in this system")
        self.assertIn("libweir was not found. It was looked for at:", said)
        self.assertRegex(said, r"weir/lib/libweir\.so\.1 \(of this package\): .*No such file")
        self.assertRegex(said, r"\n  libweir\.so\.1 \(the loader's places")
        said = imported(WEIR_DIR="/no/such/folder")
        self.assertRegex(said, r"/no/such/folder/lib/libweir\.so\.1 \(WEIR_DIR of the environment\)")
        self.assertNotIn("of this package", said)
        said = imported(WEIR_LIBRARY="/no/such/libweir.so")
        self.assertRegex(said, r"/no/such/libweir\.so \(WEIR_LIBRARY of the environment\)")


if __name__ == "__main__":
    unittest.main()
