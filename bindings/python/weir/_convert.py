"""Values between Python and the structures of _native.py: texts, lists, numbers, callbacks."""
import json
import os
import threading
from array import array
from ctypes import CFUNCTYPE, Structure, c_float, c_int32, c_void_p, cast, py_object, string_at
from functools import lru_cache
from math import isinf
from operator import index
from types import GeneratorType
from typing import Any, Callable, Generator, Iterable, List, Mapping, Optional, Sequence, Tuple, Type, Union

from ._native import WEIR_ERR_CANCELLED, WEIR_OK, weir_key_value, weir_text, weir_token_bias

Text = Union[str, bytes]
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Pending(threading.local):
    """What a callback of this thread has raised; the call that it stopped raises it."""

    error: Optional[BaseException] = None


pending = Pending()


def encoded(text: Text) -> bytes:
    """Text as UTF-8; UnicodeEncodeError says where a lone surrogate is. Bytes stay what they are."""
    return text.encode() if isinstance(text, str) else bytes(text)


def c_text(name: str, text: Optional[Text]) -> Optional[bytes]:
    """A text that ends at its first NUL in C, so that it may have none."""
    if text is None:
        return None
    data = encoded(text)
    if 0 in data:
        raise ValueError(f"{name} has a NUL at byte {data.index(0)}, where the library would take it to end")
    return data


def path_text(name: str, path: Optional[Path]) -> Optional[bytes]:
    return None if path is None else c_text(name, os.fsencode(path))


def json_text(name: str, value: Any) -> Optional[bytes]:
    return c_text(name, value if value is None or isinstance(value, (str, bytes)) else json.dumps(value))


def sized_text(text: Optional[Text]) -> Tuple[Optional[bytes], int]:
    data = None if text is None else encoded(text)
    return data, len(data or b"")


def array_of(type_: Type[Any], items: Sequence[Any]) -> Tuple[Any, int]:
    return (type_ * len(items))(*items) if items else None, len(items)


def key_values(items: Mapping[str, str]) -> Tuple[Any, int]:
    return array_of(weir_key_value, [weir_key_value(c_text("a key", key), c_text(key, value))
                                     for key, value in items.items()])


def texts(items: Sequence[Text]) -> Tuple[Any, int]:
    return array_of(weir_text, [weir_text(*sized_text(item)) for item in items])


def biases(items: Mapping[int, float]) -> Tuple[Any, int]:
    return array_of(weir_token_bias, [weir_token_bias(integer("a token", token, False),
                                                      real(f"bias[{token}]", bias))
                                      for token, bias in items.items()])


def tokens_of(ids: Iterable[int]) -> Tuple[Any, int]:
    """ids as C has them."""
    ids = list(ids)
    try:
        values = array("i", ids)
    except OverflowError:
        values = array("i", [integer(f"tokens[{i}]", token, False) for i, token in enumerate(ids)])
    return (c_int32 * len(values)).from_buffer(values) if values else None, len(values)


def names_of(function: Callable[[int], Optional[bytes]]) -> List[str]:
    names: List[str] = []
    while (name := function(len(names))) is not None:
        names.append(decoded(name))
    return names


def integer(name: str, value: int, is_unsigned: bool = True, bits: int = 32) -> int:
    """ctypes cuts numbers off without a word."""
    value = index(value)
    low = 0 if is_unsigned else -1 << (bits - 1)
    if not low <= value < low + (1 << bits):
        raise ValueError(f"{name} is {value}, which is not in {low} .. {low + (1 << bits) - 1}")
    return value


def real(name: str, value: float) -> float:
    """ctypes makes infinity of what a float of C cannot hold, without a word."""
    try:
        if not isinf(c_float(value).value) or isinf(value):
            return value
    except OverflowError:  # of an int
        pass
    raise ValueError(f"{name} is {value}, which is more than a float of C can hold")


def offset_of(type_: Type[Structure], field: str) -> int:
    return int(getattr(type_, field).offset)


def address_at(structure: Any, offset: int = 0) -> Optional[int]:
    """What a pointer points to: one of ctypes, or a field of a structure."""
    return c_void_p.from_buffer(structure, offset).value


def bytes_at(address: Optional[int], n_bytes: int) -> bytes:
    """Also those behind a NUL."""
    return string_at(address, n_bytes) if address and n_bytes else b""


def str_at(address: Optional[int], n_bytes: int) -> str:
    return bytes_at(address, n_bytes).decode(errors="replace")


def view_of(type_: Any, pointer: Any, n: int, code: str) -> Tuple[Any, memoryview]:
    """Memory of the library: what it belongs to, and the view."""
    owner = (type_ * n).from_address(address_at(pointer))
    return owner, memoryview(owner).cast("B").cast(code)  # type: ignore[call-overload]


def decoded(text: Optional[bytes]) -> str:
    return (text or b"").decode(errors="replace")


def guarded(function: Callable[[Any], Any]) -> Generator[int, Any, None]:
    """A callback whose exception, and whose False, stops its call. Where a function begins, the handler of a signal may
    raise, such as that of Ctrl-C, and ctypes drops what is raised there. This is resumed inside its `try`."""
    def entry() -> Generator[int, Any, None]:
        status = WEIR_OK
        while True:
            try:
                status = WEIR_ERR_CANCELLED if function((yield status)) is False else WEIR_OK
            except GeneratorExit:
                return
            except BaseException as error:
                pending.error, status = error, WEIR_ERR_CANCELLED
    made = entry()
    next(made)
    return made


@lru_cache(maxsize=None)
def _resume(type_: Any) -> Any:
    return cast(CFUNCTYPE(type_._restype_, py_object, *type_._argtypes_[1:])(GeneratorType.send), type_)


def resumed(type_: Any, entry: Optional[Generator[int, Any, None]]) -> Tuple[Any, Optional[int]]:
    """A callback and its `user`, which the caller keeps."""
    return (type_(), None) if entry is None else (_resume(type_), id(entry))


def callback(owner: Any, type_: Any, function: Optional[Callable[[Any], Any]], of: Callable[[Any], Any]) -> Any:
    """A callback that gets the tuple of its structure, and its `user`. It lives as long as its owner."""
    owner.entry = None if function is None else guarded(lambda info: function(of(info.contents)))
    return resumed(type_, owner.entry)


def log_callback(type_: Any, function: Optional[Callable[[Any], Any]], of: Callable[[Any], Any]) -> Any:
    """Its exceptions go to sys.unraisablehook, as no call fails because of them."""
    def entry(user: Optional[int], info: Any) -> int:
        assert function
        function(of(info.contents))
        return WEIR_OK
    return type_() if function is None else type_(entry)


def hook(type_: Any, function: Any) -> Any:
    return type_() if function is None else function
