"""A display of its own for a graphical program: Xvfb, keys and clicks by xdotool, and pictures of what is shown.

Standard library only: the picture is the display's own frame buffer, a file in the format of xwd.
"""
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time
import zlib


def missing_tools():
    """Names of what is not installed, of all that a Display needs."""
    return [tool for tool in ("Xvfb", "xdotool", "xclip") if shutil.which(tool) is None]


class Picture:
    """Pixels of a display or a part of it: rows of RGB bytes."""

    def __init__(self, width, height, rows):
        self.width, self.height, self.rows = width, height, rows

    def at(self, x, y):
        return tuple(self.rows[y][3 * x:3 * x + 3])

    def part(self, x, y, width, height):
        return Picture(width, height, [row[3 * x:3 * (x + width)] for row in self.rows[y:y + height]])

    def write_png(self, path):
        """With the difference to the row above: text on a plain ground becomes small."""
        raw, above = bytearray(), bytes(3 * self.width)
        for row in self.rows:
            raw += b"\x02" + bytes((a - b) & 255 for a, b in zip(row, above))
            above = row
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        pathlib.Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) +
                                       chunk(b"IDAT", zlib.compress(bytes(raw), 9)) + chunk(b"IEND", b""))


class Display:
    """An X server without a screen; with a `with` statement."""

    def __init__(self, width=840, height=680):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-display-")
        read_end, write_end = os.pipe()
        self.log = open(pathlib.Path(self.folder.name) / "log", "w", encoding="utf-8")
        self.server = subprocess.Popen(
            ["Xvfb", "-displayfd", str(write_end), "-screen", "0", f"{width}x{height}x24", "-fbdir", self.folder.name,
             "-nolisten", "tcp", "-noreset"], pass_fds=[write_end], stdout=self.log, stderr=self.log)
        os.close(write_end)
        with os.fdopen(read_end) as number:
            self.name = ":" + number.readline().strip()
        if self.name == ":":
            raise RuntimeError("Xvfb did not start: " + pathlib.Path(self.log.name).read_text(encoding="utf-8"))
        # No session bus, no accessibility bus, no theme of the user, and the processor draws.
        self.environment = dict(os.environ, DISPLAY=self.name, GDK_BACKEND="x11", GSK_RENDERER="cairo",
                                GTK_A11Y="none", GTK_THEME="Adwaita", LC_ALL="C.UTF-8", HOME=self.folder.name,
                                XDG_RUNTIME_DIR=self.folder.name, DBUS_SESSION_BUS_ADDRESS="disabled:",
                                GSETTINGS_BACKEND="memory", NO_AT_BRIDGE="1")
        self.environment.pop("WAYLAND_DISPLAY", None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.terminate()
        self.server.wait()
        self.log.close()
        self.folder.cleanup()

    def do(self, *words):
        """A command of xdotool; its output."""
        return subprocess.run(["xdotool", *map(str, words)], env=self.environment, check=False, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()

    def click(self, x, y, count=1):
        self.do("mousemove", x, y, "click", "--repeat", count, "--delay", 60, 1)

    def copied(self):
        """The text on the clipboard; "" where there is none."""
        result = subprocess.run(["xclip", "-o", "-selection", "clipboard"], env=self.environment, check=False,
                                timeout=60, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return result.stdout.decode("utf-8", "replace")

    def picture(self):
        data = (pathlib.Path(self.folder.name) / "Xvfb_screen0").read_bytes()
        field = struct.unpack(">25I", data[:100])
        head_bytes, width, height, byte_order, bits, row_bytes, n_colours = (
            field[0], field[4], field[5], field[7], field[11], field[12], field[19])
        if bits != 32 or byte_order != 0:
            raise RuntimeError(f"a frame buffer of {bits} bits, byte order {byte_order}")
        first, rows = head_bytes + 12 * n_colours, []
        for y in range(height):
            line = data[first + y * row_bytes:first + y * row_bytes + 4 * width]
            row = bytearray(3 * width)
            row[0::3], row[1::3], row[2::3] = line[2::4], line[1::4], line[0::4]  # blue, green, red, unused
            rows.append(bytes(row))
        return Picture(width, height, rows)


def wait_for(what, condition, seconds=30.0):
    """The first true value of the condition; an error that says what did not come."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.05)
