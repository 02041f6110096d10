"""Handles: who may be inside one, when it is given back, and calls with them."""
import os
import threading
from contextlib import ExitStack
from ctypes import byref, c_void_p, sizeof
from typing import Any, Callable, List, NoReturn, Optional, TypeVar

from ._data import BufferTooSmallError, BusyError
from ._library import lib

H = TypeVar("H", bound="Handle")
R = TypeVar("R")


class ClosedError(ValueError):
    """The object was closed, or it belongs to the process that this one was forked from."""


# used: not empty once a handle was made. forked: not empty in a process that was forked from one that had made a
# handle; nothing of the library may be called there, not even to free.
used: List[None] = []
forked: List[None] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: forked.extend(used))


class Use:
    """Somebody is inside a handle, and gets the pointer. The last one who leaves a closed handle gives it back.

    is_alone: for what one thread at a time may do, until the result is copied that the next call overwrites.

    Nobody waits here, as a signal's handler or a finalizer may run between any two steps and use the same handle: who
    comes says so and then looks whether it is closed, who closes says so and then looks who is inside, each by one step
    that nothing divides. So one of the two sees the other."""

    def __init__(self, handle: "Handle", is_alone: bool = False) -> None:
        self.handle, self.is_alone = handle, is_alone

    def __enter__(self) -> Optional[int]:
        handle = self.handle
        if handle._is_closed or forked or self.is_alone and not handle._alone.acquire(False):
            handle._refuse()
        if not self.is_alone:  # the one who gives it back would have had to be alone
            handle._inside.append(None)
            if handle._is_closed:
                self.__exit__()
                handle._refuse()
        return handle._pointer

    def __exit__(self, *_: Any) -> None:
        if self.is_alone:
            self.handle._alone.release()
        else:
            self.handle._inside.pop()
        if self.handle._is_closed:
            self.handle._give_back()


class Handle:
    """An object of the library. `with` closes it; so does whoever drops the last reference to it. Closing it while
    another thread is inside takes effect when that call has returned; what was made from it lives on."""

    _destroy = ""
    _pointer: Optional[int] = None
    _inside: List[None]
    _is_closed = False

    def _create(self, function: Any, *arguments: Any) -> None:
        """Make it by a function whose last argument is where the handle goes."""
        self._alone, self._inside = threading.Lock(), []  # for one; one entry for each of the others
        if forked:
            self._refuse()
        used[:] = [None]
        pointer = c_void_p()
        call(function, *arguments, byref(pointer))
        self._pointer = pointer.value

    def _refuse(self) -> NoReturn:
        name = type(self).__name__
        if forked:
            raise ClosedError(f"{name}: the process was forked from one that used the library, so that it cannot; "
                              "start processes with spawn")
        raise ClosedError(f"this {name} is closed") if self._is_closed else \
            BusyError(f"another call is inside this {name}")

    def _give_back(self) -> None:
        if not forked and not self._inside and self._alone.acquire(False):  # which nobody has any more from then on
            getattr(lib, self._destroy)(self._pointer)

    def _info(self, type_: Any, of: Callable[[Any], R], function: Any, *arguments: Any) -> R:
        """A structure that the library fills, as a tuple."""
        info = sized(type_)
        with Use(self) as pointer:
            function(pointer, *arguments, byref(info))
            return of(info)

    def close(self) -> None:
        if self._pointer is not None and not self._is_closed and not forked:
            self._is_closed = True
            self._give_back()

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def sized(type_: Any) -> Any:
    """A structure that says how large the caller's is."""
    return type_(sizeof(type_))


def call(function: Any, *arguments: Any) -> Any:
    """A call in which a Use stands for the pointer of its handle."""
    with ExitStack() as stack:
        return function(*[stack.enter_context(a) if isinstance(a, Use) else a for a in arguments])


def filled(type_: Any, guess: int, n_type: Any, function: Any, *arguments: Any) -> Any:
    """What a function writes into an array of the caller; it tells the length, also where that was too small."""
    n = n_type()
    while True:
        items = (type_ * guess)()
        if guess and hasattr(type_, "struct_size"):
            items[0].struct_size = sizeof(type_)
        try:
            call(function, *arguments, items, guess, byref(n))
            return items[:n.value]
        except BufferTooSmallError:
            if n.value < guess:
                raise
            guess = n.value + 1  # texts of metadata end with a NUL that is not counted
