"""samples/desktop on a display of its own: questions, stop, the gauge, errors, and every way to close it.

Usage: test_desktop.py PROGRAM MODEL LIBRARY [PICTURE.png]

Drives the window as a user does, with keys and clicks. The talk is read from the clipboard, the gauge from the pixels.
One test builds the sample anew, with $CC and the address sanitizer, beside LIBRARY, libweir.so. PICTURE.png is written
for the documentation.
Ends with 77 and says why where Xvfb, xdotool or xclip are missing.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from display import Display, missing_tools, wait_for

PROGRAM, MODEL, LIBRARY, PICTURE = "", "", "", None
ROOT = pathlib.Path(__file__).parents[2]
SENDS, STOPS = (53, 132, 228), (224, 27, 36)  # colours of the two buttons in GTK's own theme
# As draw_gauge in samples/desktop/main.c paints them.
SEGMENTS = {"kept": (26, 143, 128), "dense": (159, 159, 159), "mark": (217, 28, 36)}
BUDGET_TOKENS = 512


def question(steps):
    """A chain that the embedded model solves, and the values of all its steps."""
    values = [88, 28, 12, 79, 76, 65, 35, 40, 19, 89, 20, 83]
    start = ", ".join(f"x{i} = {value}" for i, value in enumerate(values))
    for i in range(12, 12 + steps):
        values.append((values[i - 12] - values[i - 11]) % 100)
    return f"Start: {start}. Rule: x[n] = x[n-12] - x[n-11]. Work modulo 100. Find x{11 + steps}.", values


def is_like(colour, wanted, distance=14):
    return all(abs(a - b) <= distance for a, b in zip(colour, wanted))


class Window:
    """The program on its own display."""

    def __init__(self, *arguments, program=None, environment=None):
        self.display = Display()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([program or PROGRAM, *arguments], stderr=self.errors,
                                        env=dict(self.display.environment, **environment or {}))

    def __enter__(self):
        self.id = wait_for("the window", self._find)
        x, y, self.width, self.height = (
            int(value) for value in re.findall(r"(?:X|Y|WIDTH|HEIGHT)=(\d+)",
                                               self.display.do("getwindowgeometry", "--shell", self.id)))
        assert (x, y) == (0, 0)
        self.display.do("windowfocus", "--sync", self.id)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.errors.close()
        self.display.__exit__()

    def _find(self):
        if self.process.poll() is not None:
            raise AssertionError(f"ended with {self.process.returncode}: {self.said()}")
        found = self.display.do("search", "--onlyvisible", "--pid", self.process.pid)
        return found.split()[0] if found else None

    def said(self):
        """What came on standard error, without what GTK 4.8 says where a text outgrows its window between layout and
        drawing: the slider of the scroll bar is then shown before it has a place."""
        self.errors.seek(0)
        return re.sub(r"\n\S+ Gtk-WARNING \*\*: \S+ Trying to snapshot GtkGizmo \S+ without a current allocation\n", "",
                      self.errors.read().decode())

    def ended(self, keys=None):
        """The exit status, after keys."""
        if keys is not None:
            self.display.do("key", keys)
        return self.process.wait(20)

    def picture(self):
        return self.display.picture().part(0, 0, self.width, self.height)

    def title(self):
        return self.display.do("getwindowname", self.id)

    def wait_until_open(self):
        wait_for("the name of the model", lambda: self.title() == "Weir Tiny Reasoner")
        wait_for("the Send button", lambda: self.button(SENDS))

    def ask(self, text):
        self.display.do("type", "--delay", 1, text)
        self.display.do("key", "Return")

    def button(self, colour):
        """The middle of the button of this colour in the lower right corner; None where it is not to be seen."""
        picture = self.picture()
        found = [(x, y) for y in range(picture.height * 2 // 3, picture.height, 4)
                 for x in range(picture.width - 120, picture.width, 4) if is_like(picture.at(x, y), colour, 24)]
        if len(found) < 20:
            return None
        return sum(x for x, _ in found) // len(found), sum(y for _, y in found) // len(found)

    def talk(self):
        """All text of the talk."""
        self.display.click(self.width // 2, self.height // 3)
        self.display.do("key", "ctrl+a", "ctrl+c")
        text = self.display.copied()
        self.display.do("key", "Tab")
        return text

    def message(self):
        """The text of the bar; "" while it comes up."""
        time.sleep(0.5)  # for clicks that are no more of the last ones
        self.display.click(200, 70, 3)  # marks it
        self.display.do("key", "ctrl+c")
        return self.display.copied()

    def gauge(self):
        """Where the two bars and the mark end, in pixels from the left end of the bars; 0: not there."""
        picture = self.picture()
        first = picture.height * 3 // 4
        mark = [x for x in range(picture.width) if sum(is_like(picture.at(x, y), SEGMENTS["mark"], 4)
                                                       for y in range(first, picture.height)) >= 20]
        kept = {y: [x for x in range(picture.width) if is_like(picture.at(x, y), SEGMENTS["kept"], 4)]
                for y in range(first, picture.height)}
        row = max(kept, key=lambda y: len(kept[y]))
        if not mark or not kept[row]:
            return {"mark": len(mark), "kept": 0, "dense": 0}
        left = min(kept[row])
        dense, end = 0, picture.width
        for y in range(row + 8, min(row + 30, picture.height)):
            grey = [x for x in range(left, end) if is_like(picture.at(x, y), SEGMENTS["dense"])]
            if len(grey) > dense and grey[0] <= left + 1:
                dense = grey[-1] + 1 - left
        return {"mark": min(mark) - left, "kept": max(kept[row]) + 1 - left, "dense": dense}


class Desktop(unittest.TestCase):
    def test_answers_stop_and_gauge(self):
        with Window("--budget", str(BUDGET_TOKENS), MODEL) as window:
            window.wait_until_open()
            text, values = question(100)
            window.ask(text)
            wait_for("the Stop button", lambda: window.button(STOPS))
            # The gauge lives while the answer comes: the upper bar ends at the mark, the lower one beyond it.
            half = wait_for("the lower bar beyond the mark",
                            lambda: (lambda g: g if g["dense"] > g["mark"] > 0 else None)(window.gauge()))
            self.assertLessEqual(half["kept"], half["mark"] + 2)
            wait_for("the end of the answer", lambda: window.button(SENDS))
            gauge = window.gauge()
            self.assertAlmostEqual(gauge["kept"], gauge["mark"], delta=2)
            # As many tokens as the chain took, against the budget: 108 of the question, 18 or so of each step.
            self.assertAlmostEqual(gauge["dense"] / gauge["mark"], (108 + 1.02 * 18 * 100) / BUDGET_TOKENS, delta=0.4)
            if PICTURE is not None:
                window.display.do("mousemove", 839, 679)  # out of the picture
                window.picture().write_png(PICTURE)
            talk = window.talk()
            self.assertIn("Find x111.", talk)
            self.assertEqual([int(value) for value in re.findall(r"= (\d+)\.$", talk, re.M)][:100], values[12:])
            self.assertTrue(talk.rstrip().endswith(f"\nx111 = {values[-1]}."), talk[-80:])

            # The second turn goes on with the first. Stop ends it early, and what was said stays.
            self.ask_and_stop(window)
            self.assertEqual((window.ended("ctrl+q"), window.said()), (0, ""))

    def ask_and_stop(self, window):
        text, values = question(400)
        window.ask(text)
        x, y = wait_for("the Stop button", lambda: window.button(STOPS))
        wait_for("text", lambda: "x20 = x8 - x9" in window.talk().rpartition("Find x411.")[2])
        window.display.click(x, y)
        wait_for("the Send button", lambda: window.button(SENDS), 10)
        said = window.talk().rpartition("Find x411.")[2]
        self.assertIn(f"= {values[12]}.", said)
        self.assertNotIn("x411 =", said)
        self.assertEqual(window.talk().rpartition("Find x411.")[2], said)  # no more comes

    def test_closing_in_an_answer(self):
        closers = {"ctrl+q": lambda w: w.display.do("key", "ctrl+q"),
                   "ctrl+w": lambda w: w.display.do("key", "ctrl+w"),
                   "button": lambda w: w.display.click(w.width - 28, 26),
                   "SIGTERM": lambda w: os.kill(w.process.pid, signal.SIGTERM)}
        for name, close in closers.items():
            with self.subTest(name), Window("--budget", str(BUDGET_TOKENS), MODEL) as window:
                window.wait_until_open()
                window.ask(question(600)[0])
                wait_for("the Stop button", lambda: window.button(STOPS))
                close(window)
                self.assertEqual((window.ended(), window.said()), (0, ""))

    def test_nothing_leaks_and_nothing_is_used_after_its_end(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "weir-desktop"
            sources = sorted((ROOT / "samples/desktop").glob("*.c"))
            flags = subprocess.run(["pkg-config", "--cflags", "--libs", "gtk4"], check=True, text=True,
                                   stdout=subprocess.PIPE).stdout.split()
            built = subprocess.run([os.environ.get("CC", "cc"), "-g", "-O1", "-fsanitize=address,undefined",
                                    "-fno-sanitize-recover=all", *sources, "-I", ROOT / "include", *flags, LIBRARY,
                                    f"-Wl,-rpath,{pathlib.Path(LIBRARY).parent}", "-lm", "-o", program], check=False,
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if re.search(r"cannot find .*(asan|ubsan)", built.stdout):
                self.skipTest("the compiler has no address sanitizer here")
            self.assertEqual(built.returncode, 0, built.stdout)
            # Fontconfig and drivers keep what they have until the process ends.
            known = pathlib.Path(folder) / "known.txt"
            known.write_text("leak:libfontconfig\nleak:libpango\nleak:libGL\n", encoding="utf-8")
            options = {"LSAN_OPTIONS": f"suppressions={known}:print_suppressions=0"}
            for arguments in ((MODEL, "--budget", str(BUDGET_TOKENS)), ("/no/such/model.gguf",)):
                with self.subTest(arguments), Window(*arguments, program=program, environment=options) as window:
                    if arguments[0] == MODEL:
                        window.wait_until_open()
                        window.ask(question(30)[0])
                        wait_for("the end of the answer", lambda: "x41 =" in window.talk().rpartition("\n")[2])
                        window.ask(question(600)[0])
                        wait_for("the Stop button", lambda: window.button(STOPS))
                        wait_for("text", lambda: "x20 =" in window.talk().rpartition("Find x611.")[2])
                    self.assertEqual((window.ended("ctrl+q"), window.said()), (0, ""))

    def test_closing_while_it_opens(self):
        with Window(MODEL) as window:
            os.kill(window.process.pid, signal.SIGTERM)
            self.assertEqual((window.ended(), window.said()), (0, ""))

    def test_what_cannot_be_opened(self):
        with tempfile.NamedTemporaryFile(suffix=".gguf") as broken:
            broken.write(pathlib.Path(MODEL).read_bytes()[:3000])
            broken.flush()
            cases = {("/no/such/model.gguf",): "/no/such/model.gguf", (broken.name,): pathlib.Path(broken.name).name,
                     ("--preset", "none", MODEL): "none", ("--budget", "-5", MODEL): "budget"}
            for arguments, words in cases.items():
                with self.subTest(arguments), Window(*arguments) as window:
                    wait_for("the bar", lambda: is_like(window.picture().at(6, 66), (164, 38, 44)))
                    message = wait_for("the message", window.message)
                    self.assertTrue(message.startswith("The model cannot be opened: "), message)
                    self.assertIn(words, message)
                    self.assertIsNone(window.button(SENDS))
                    self.assertEqual((window.ended("ctrl+q"), window.said()), (0, ""))

    def test_no_model(self):
        result = subprocess.run([PROGRAM], stderr=subprocess.PIPE, check=False, timeout=20)
        self.assertEqual(result.returncode, 2)
        self.assertIn(b"MODEL.gguf is missing", result.stderr)

if __name__ == "__main__":
    if missing_tools():
        print("skipped, not installed:", ", ".join(missing_tools()))
        sys.exit(77)
    PROGRAM, MODEL, LIBRARY = sys.argv[1:4]
    PICTURE = sys.argv[4] if len(sys.argv) > 4 else None
    unittest.main(argv=sys.argv[:1], verbosity=2)
