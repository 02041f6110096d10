#!/usr/bin/env python3
"""Makes the wheel, with the library inside: build_wheel.py [FOLDER]. Also the backend of pyproject.toml, for pip.

WEIR_DIR names a folder like that of an installation: lib/libweir.so.1 goes into the wheel, stripped where there is a
strip, and share/licenses/weir beside it. The name of the wheel tells what it needs: manylinux_2_N where the library
needs nothing but glibc 2.N and what such systems have, linux otherwise. Same files, same bytes."""
import base64
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What PEP 600 lets a manylinux wheel need, of those that libweir could.
ALLOWED = re.compile(r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-x86-64|ld-linux-aarch64)\.so\.")
OLDEST_GLIBC = 28  # that the project promises, docs/packaging.md
SUMMARY = "Language models that reason at length in a fixed memory footprint"


def version():
    return re.search(r'^VERSION = "(.*)"', (HERE / "weir/_native.py").read_text(), re.M).group(1)


def platform_tag(library):
    """By what the library needs, as readelf shows it."""
    machine = platform.machine()
    if shutil.which("readelf") is None:
        return f"linux_{machine}"
    shown = subprocess.run(["readelf", "-W", "-d", "-V", str(library)], check=True, stdout=subprocess.PIPE, text=True,
                           env={**os.environ, "LC_ALL": "C"}).stdout
    others = [name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", shown) if not ALLOWED.match(name)]
    glibc = max((int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", shown)), default=5)
    if others:
        print(f"build_wheel.py: the library needs {', '.join(others)}, so the wheel is for systems that have them; "
              "configure with -DWEIR_SELF_CONTAINED=ON for one that runs on others", file=sys.stderr)
        return f"linux_{machine}"
    return f"manylinux_2_{max(glibc, OLDEST_GLIBC)}_{machine}"


def library_of(folder):
    library = pathlib.Path(folder) / "lib" / f"libweir.so.{version().split('.')[0]}"
    if not folder or not library.exists():
        sys.exit(f"build_wheel.py: WEIR_DIR is {folder!r}, and there is no {library}; "
                 "`./dev install FOLDER` makes such a folder")
    return library


def stripped(library, scratch):
    copy = pathlib.Path(scratch) / library.name
    shutil.copyfile(library, copy)
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", str(copy)], check=True)
    return copy.read_bytes()


def contents(folder, scratch):
    """Path in the wheel and bytes of each file but RECORD, and the wheel's tag."""
    library = library_of(folder)
    tag = f"py3-none-{platform_tag(library)}"
    info = f"weir-{version()}.dist-info"
    files = {f"weir/{path.name}": path.read_bytes() for path in sorted((HERE / "weir").iterdir())
             if path.suffix == ".py" or path.name == "py.typed"}
    files[f"weir/lib/{library.name}"] = stripped(library, scratch)
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    files[f"{info}/METADATA"] = (f"Metadata-Version: 2.1\nName: weir\nVersion: {version()}\nSummary: {SUMMARY}\n"
                                 "Requires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n"
                                 f"{readme}").encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: weir\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    licences = sorted((pathlib.Path(folder) / "share/licenses/weir").glob("*.txt"))
    for path in licences:
        files[f"{info}/licenses/{path.name}"] = path.read_bytes()
    if not licences:
        print(f"build_wheel.py: {folder} has no share/licenses/weir, so the licences of what is inside of the library "
              "are missing: not to be given away; `./dev install FOLDER` installs them", file=sys.stderr)
    return files, tag, info


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Hook of PEP 517; the name of the wheel."""
    with tempfile.TemporaryDirectory() as scratch:
        files, tag, info = contents(os.environ.get("WEIR_DIR", ""), scratch)
    record = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    files[f"{info}/RECORD"] = ("\n".join(record + [f"{info}/RECORD,,"]) + "\n").encode()
    name = f"weir-{version()}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """Hook of PEP 517."""
    raise NotImplementedError("there is no source distribution, as the wheel needs the library; use the whole source")


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    print(build_wheel(sys.argv[1] if len(sys.argv) == 2 else "."))
