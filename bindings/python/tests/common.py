"""What the tests have in common: the package of this source tree, and the model."""
import os
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent.parent
SOURCE = FOLDER.parent.parent
sys.path.insert(0, str(FOLDER))
import weir  # noqa: E402

MODEL = os.environ.get("WEIR_MODEL", str(SOURCE / "samples/models/weir-tiny-reasoner-q8_0.gguf"))
QUESTION = [weir.Message("user", "Who are you?")]


class ModelTest(unittest.TestCase):
    """One model for all tests of a class."""

    @classmethod
    def setUpClass(cls):
        cls.runtime = weir.Runtime(n_threads=1)
        cls.model = weir.Model(MODEL, cls.runtime)

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        cls.runtime.close()

    def session(self, **options):
        options.setdefault("context_tokens", 1024)
        options.setdefault("batch_tokens", 64)
        session = weir.Session(self.model, **options)
        self.addCleanup(session.close)
        return session


def tokens_of(events):
    return [event.token for event in events if event.kind == weir.EventKind.TOKEN]


def text_of(events):
    return "".join(event.text for event in events)
