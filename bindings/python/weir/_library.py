"""Finds and loads libweir, and makes exceptions of its errors."""
import ctypes
import os
import pathlib
from typing import Any, Iterator, List, Tuple

from . import _native
from ._convert import decoded, pending
from ._data import ERRORS, Status, WeirError

SONAME = f"libweir.so.{_native.WEIR_VERSION_MAJOR}"


class LibraryError(ImportError):
    """There is no libweir, or one that this package cannot use."""


def places() -> Iterator[Tuple[str, str]]:
    """Where the library may be, and why there. Who names one means that one."""
    named = os.environ.get("WEIR_LIBRARY")
    folder = os.environ.get("WEIR_DIR")
    if named:
        yield named, "WEIR_LIBRARY of the environment"
    elif folder:
        yield str(pathlib.Path(folder, "lib", SONAME)), "WEIR_DIR of the environment"
    else:
        yield str(pathlib.Path(__file__).resolve().parent / "lib" / SONAME), "of this package"
        yield SONAME, "the loader's places: LD_LIBRARY_PATH, ldconfig"


def load() -> _native.Library:
    looked: List[str] = []
    for path, why in places():
        try:
            return checked(ctypes.CDLL(path), path)
        except OSError as error:
            looked.append(f"\n  {path} ({why}): " + str(error).removeprefix(f"{path}: "))
    raise LibraryError("libweir was not found. It was looked for at:" + "".join(looked))


def checked(library: ctypes.CDLL, path: str) -> _native.Library:
    """The functions of a library of the same major version that is not older than the headers."""
    try:
        library.weir_version.restype = ctypes.c_uint32
        number = library.weir_version()
        version = f"{number >> 16}.{number >> 8 & 255}.{number & 255}"
        if (number >> 16, number >> 8 & 255) < (_native.WEIR_VERSION_MAJOR, _native.WEIR_VERSION_MINOR) or \
                number >> 16 != _native.WEIR_VERSION_MAJOR:
            raise LibraryError(f"{path} is Weir {version}, and this package is for {_native.VERSION}: it needs a "
                               f"library of {_native.WEIR_VERSION_MAJOR}.{_native.WEIR_VERSION_MINOR} or a later "
                               f"{_native.WEIR_VERSION_MAJOR}.x")
        functions = _native.Library(library, check)
        del functions.weir_session_next.errcheck  # type: ignore[attr-defined]  # whose caller looks at the status
    except AttributeError as error:
        raise LibraryError(f"{path} is no libweir that this package can use: {error}") from None
    return functions


def check(status: int, function: Any = None, arguments: Any = None) -> int:
    """Called behind each function that returns a status: raises what a callback has raised, or the error."""
    error = pending.error
    if error is not None:
        pending.error = None
        raise error
    if status != Status.OK:
        failure = ERRORS.get(status, WeirError)(decoded(lib.weir_last_error()) or
                                               decoded(lib.weir_status_name(status)))
        failure.status = Status(status)
        raise failure
    return status


lib = load()
