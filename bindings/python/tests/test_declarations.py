"""What generate.py wrote: layouts as the C compiler has them, every function with the right number of arguments."""
import ctypes
import os
import shutil
import sys
import unittest

from common import FOLDER, weir
sys.path.insert(0, str(FOLDER.parent))
import headers  # noqa: E402
from weir import _data, native  # noqa: E402


class Declarations(unittest.TestCase):
    def setUp(self):
        self.api = headers.read()

    @unittest.skipUnless(shutil.which(os.environ.get("CC", "cc")), "there is no C compiler")
    def test_layouts(self):
        for name, layout in self.api.layouts().items():
            structure = getattr(native, name)
            self.assertEqual((ctypes.sizeof(structure), ctypes.alignment(structure)), (layout.size, layout.align), name)
            fields = {field[0]: getattr(structure, field[0]) for field in structure._fields_}
            self.assertEqual({name: (f.offset, f.size) for name, f in fields.items()}, layout.fields, name)

    def test_functions(self):
        self.assertEqual(sorted(native.FUNCTIONS), sorted(f.name for f in self.api.functions))
        for function in self.api.functions:
            self.assertEqual(len(native.FUNCTIONS[function.name][1]), len(function.parameters), function.name)

    def test_enums(self):
        for enum in self.api.enums:
            for value in enum.values:
                self.assertEqual(getattr(native, value.name), value.value)
        self.assertEqual(weir.StopReason.STRING, 6)
        self.assertEqual(weir.Status.BUSY, -9)
        self.assertEqual(weir.StopReason(77).name, "UNKNOWN_77")  # of a newer library
        self.assertEqual(weir.ModelFlags.COPY | weir.ModelFlags.PREFETCH, 6)

    def test_an_exception_for_each_status(self):
        for value in self.api.find("weir_status_code").values:
            if value.value != 0:
                error = _data.ERRORS[value.value]
                self.assertTrue(issubclass(error, weir.WeirError))
                self.assertEqual(error.status, value.value)

    def test_every_field_of_an_event(self):
        """The tuple that is read at once has what each field has."""
        event = native.weir_event(64, 0, 5, 6, 7, 3, -1, 2, b"text", 4, 0.5, 0, None)
        self.assertEqual(_data.event_of(event), (weir.EventKind.TOKEN, 5, 6, 7, weir.StopReason.CONTEXT, -1,
                                                 weir.Segment.TOOL_CALL, "text", 0.5, ()))
        top = (native.weir_logprob * 2)(native.weir_logprob(3, -1.5), native.weir_logprob(4, -2.0))
        buffer = ctypes.create_string_buffer(b"a\0b")
        event.text, event.text_bytes, event.n_top, event.top = ctypes.cast(buffer, ctypes.c_char_p), 3, 2, top
        read = _data.event_of(event)
        self.assertEqual((read.text, read.top), ("a\0b", [(3, -1.5), (4, -2.0)]))

    def test_version(self):
        self.assertEqual(weir.__version__, ".".join(map(str, self.api.version)))
        self.assertEqual(weir.version(), weir.__version__)


if __name__ == "__main__":
    unittest.main()
