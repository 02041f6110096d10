"""Tests of headers.py and of check: what they read, and that they notice a header that a binding has not followed."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))
import headers  # noqa: E402

NEW_FUNCTION = """
/** A function that no binding has.
 *
 *  @param session in
 *  @return WEIR_OK
 *  @threads any thread
 *  @owner nothing changes
 *  @since 1.1 */
WEIR_API weir_status weir_session_planted(weir_session *session);
"""


class Headers(unittest.TestCase):
    def setUp(self):
        self.api = headers.read()

    def test_every_marked_function_is_read(self):
        text = "".join((headers.FOLDER / name).read_text() for name in headers.ORDER)
        self.assertEqual(len(self.api.functions), text.count("\nWEIR_API "))

    def test_every_struct_and_enum_is_read(self):
        text = "".join((headers.FOLDER / name).read_text() for name in headers.ORDER)
        opened = sum(line.startswith("typedef struct") and line.endswith("{") for line in text.splitlines())
        self.assertEqual(len(self.api.structs), opened)
        self.assertEqual(len(self.api.enums), sum(line.startswith("enum ") for line in text.splitlines()))

    def test_constants_are_those_of_the_abi_description(self):
        listed = (ROOT.parent / "docs/abi/constants.txt").read_text().split("\n")
        read = {f"{value.name} = {value.value}" for enum in self.api.enums for value in enum.values}
        self.assertGreater(len(read), 80)
        experimental = (headers.FOLDER / "experimental.h").read_text()
        self.assertEqual([line for line in listed if line not in read and line not in experimental], [])

    def test_types(self):
        def spelled(function):
            return [str(parameter.type) for parameter in self.api.find(function).parameters]
        self.assertEqual(spelled("weir_step_many"), ["weir_session *const *", "const weir_token *", "uint32_t"])
        self.assertEqual(spelled("weir_session_logits"), ["weir_session *", "const float **", "uint32_t *"])
        self.assertEqual(str(self.api.find("weir_last_error").returns), "const char *")
        self.assertEqual([self.api.kind(name) for name in
                          ("weir_event", "weir_model", "weir_token", "weir_token_fn", "weir_function", "uint16_t")],
                         ["struct", "opaque", "alias", "callback", "function", "scalar"])

    def test_fields_with_arrays_and_enums(self):
        device = {field.name: field for field in self.api.find("weir_device_info").fields}
        self.assertEqual(device["why_not"].array, 512)
        self.assertEqual(self.api.enum_of(device["kind"]).name, "weir_device_kind")
        self.assertEqual(self.api.enum_of(device["backend"]).name, "weir_device_type")
        event = {field.name: field for field in self.api.find("weir_event").fields}
        self.assertEqual(self.api.enum_of(event["stop"]).name, "weir_stop_reason")
        self.assertIsNone(self.api.enum_of(event["n_tokens"]))

    def test_types_of_enums(self):
        """Bits are unsigned and other values are not: the languages' enums have one type each."""
        told = [(item, f"{owner.name}: {item.name}") for owner in self.api.structs for item in owner.fields] + \
            [(item, f"{owner.name}: {item.name}") for owner in self.api.functions for item in owner.parameters]
        found = [(where, item.type.base, enum) for item, where in told for enum in [self.api.enum_of(item)] if enum]
        self.assertGreater(len(found), 20)
        for where, base, enum in found:
            if base != "weir_status":
                self.assertEqual(base, "uint32_t" if enum.is_bits else "int32_t", where)

    def test_docs(self):
        step = self.api.find("weir_session_step").doc
        self.assertEqual(step.summary, "Append one token as a decode step and compute the logits after it. "
                                       "Allocates nothing.")
        self.assertEqual((step.params["token"], step.since, step.threads),
                         ("in, id in [0, vocab_size)", "1.0", "one thread at a time"))
        self.assertTrue(step.returns.startswith("WEIR_OK\nWEIR_ERR_INVALID_ARG   NULL"), step.returns)
        for function in self.api.functions:
            self.assertTrue(function.doc.since and function.doc.summary, function.name)
        for struct in self.api.structs:
            for field in struct.fields:
                self.assertTrue(field.doc.text, f"{struct.name}.{field.name}")

    def test_names_in_the_languages(self):
        self.assertEqual((headers.camel("chat_options"), headers.camel("n_top", is_type=False), headers.camel("EOS")),
                         ("ChatOptions", "nTop", "Eos"))
        self.assertEqual([headers.class_of_enum(f"weir_{name}") for name in
                          ("status_code", "token_flag_bits", "chat_ability_bits", "stop_reason")],
                         ["Status", "TokenFlags", "ChatAbilities", "StopReason"])
        shorts = {value.name: value.short for enum in self.api.enums for value in enum.values}
        self.assertEqual([shorts[f"WEIR_{name}"] for name in ("ERR_BUSY", "LOG_ERROR", "OK")], ["BUSY", "ERROR", "OK"])

    def test_comments_without_what_c_alone_is_told(self):
        for text, words in (
                ("One line, NUL-terminated; valid during the call. As @p x.", "One line. As `x`."),
                ("The calls, NUL-terminated JSON. NULL: none.", "The calls, JSON. nil: none."),
                ("NUL-terminated, perhaps empty; NULLABLE.", "perhaps empty; NULLABLE."),
                ("Any bytes, and no NUL after them. Lives as long as the model.", "Any bytes."),
                ("Such as \"q8_0\"; static.", "Such as \"q8_0\".")):
            self.assertEqual(headers.of_values(text, "nil", is_copy=True), words)
        self.assertEqual(headers.of_values("A text; valid during the call."), "A text; valid during the call.")
        for struct in self.api.structs:
            for field in struct.fields:
                words = headers.of_values(field.doc.body, is_copy=True)
                self.assertTrue(words and not words.startswith((",", ";")), f"{struct.name}.{field.name}")
                self.assertNotRegex(words, r"[,;]\.|,[a-zA-Z]|\s[,;]|  ", f"{struct.name}.{field.name}")

    def test_lengths_and_what_is_left_out(self):
        def of(struct):
            struct = self.api.find(struct)
            return {field.name: headers.length_of(struct, field) for field in struct.fields
                    if not headers.is_left_out(field)}
        self.assertEqual(of("weir_token_info"), {"flags": None, "text": "text_bytes", "text_bytes": None,
                                                 "score": None, "bytes": "n_bytes", "n_bytes": None})
        self.assertEqual(of("weir_event")["top"], "n_top")
        self.assertNotIn("struct_size", of("weir_event"))

    def test_a_new_struct_needs_a_place(self):
        headers.check_structs(self.api)
        self.api.add(headers.Struct("weir_planted", headers.Doc(), "x.h"))
        with self.assertRaisesRegex(headers.HeaderError, "RECORDS, OPTIONS or PLAIN .*: weir_planted$"):
            headers.check_structs(self.api)

    def test_layouts_of_the_compiler(self):
        if not shutil.which(os.environ.get("CC", "cc")):
            self.skipTest("there is no C compiler")
        layouts = self.api.layouts()
        self.assertEqual(list(layouts), [struct.name for struct in self.api.structs])
        for struct in self.api.structs:
            layout = layouts[struct.name]
            end = 0
            for field in struct.fields:  # no hole is left out, no field read wrong
                offset, size = layout.fields[field.name]
                of_one = 8 if field.type.pointers else headers.SCALARS.get(
                    field.type.base, 4 if self.api.kind(field.type.base) == "alias" else 8)
                self.assertEqual((size, offset), (of_one * (field.array or 1), -(-end // of_one) * of_one),
                                 f"{struct.name}.{field.name}")
                end = offset + size
            self.assertEqual(layout.size, -(-end // layout.align) * layout.align, struct.name)

    def test_what_is_not_understood_is_an_error_with_its_line(self):
        for text, words in (("typedef union weir_u { int32_t a; } weir_u;\n", "x.h:2: "),
                            ("WEIR_API weir_missing *weir_f(void);\n", "no type weir_missing"),
                            ("enum weir_e {\n    WEIR_E_A,\n};\n", "x.h:2: value"),
                            ("WEIR_API weir_status weir_g(int32_t values[4]);\n", "x.h:2: parameter")):
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(headers.FOLDER / "base.h", folder)
                pathlib.Path(folder, "x.h").write_text("\n" + text)
                with self.assertRaisesRegex(headers.HeaderError, words):
                    headers.read(folder)


class Check(unittest.TestCase):
    def run_check(self, folder=headers.FOLDER, program=ROOT / "check"):
        return subprocess.run([sys.executable, "-B", str(program), "--headers", str(folder)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def bindings(self):
        return sorted(path.parent.name for path in ROOT.glob("*/layers.txt"))

    def test_a_new_function_fails_every_binding(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "weir"
            shutil.copytree(headers.FOLDER, copy)
            save = copy / "save.h"
            marker = "\n#ifdef __cplusplus\n}"
            self.assertIn(marker, save.read_text())
            save.write_text(save.read_text().replace(marker, NEW_FUNCTION + marker))
            run = self.run_check(copy)
        self.assertEqual(run.returncode, 1, run.stdout)
        for language in self.bindings():
            self.assertRegex(run.stdout, rf"bindings/{language}/\S*: weir_session_planted is not used in the safe")

    def test_a_new_comment_fails_the_strict_check_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "weir"
            shutil.copytree(headers.FOLDER, copy)
            base = (copy / "base.h").read_text()
            words = "Another thread is inside this session."
            self.assertIn(words, base)
            (copy / "base.h").write_text(base.replace(words, "Somebody else is inside."))
            self.assertEqual(self.run_check(copy).returncode, 0)
            run = subprocess.run([sys.executable, "-B", str(ROOT / "check"), "--strict", "--headers", str(copy)],
                                 stdout=subprocess.PIPE, text=True)
            self.assertEqual(run.returncode, 1)
            self.assertIn("Somebody else is inside.", run.stdout)
            generators = [path.parent.name for path in ROOT.glob("*/generate.py")]
            self.assertGreaterEqual(len(generators), 4)
            for language in generators:
                self.assertIn(f"bindings/{language}/generate.py: ", run.stdout)
            (copy / "base.h").write_text(base.replace("WEIR_ERR_BUSY = -9", "WEIR_ERR_BUSY = -19"))
            self.assertEqual(self.run_check(copy).returncode, 1)

    def made(self, raw, safe, exceptions="", layers="raw raw.rs\nsafe safe.rs\n", common=""):
        """Output of check for a binding of these files."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder) / "bindings"
            (root / "made").mkdir(parents=True)
            include = pathlib.Path(folder) / "include" / "weir"
            include.mkdir(parents=True)
            for name in ("check", "headers.py"):
                shutil.copy(ROOT / name, root)
            (root / "exceptions.txt").write_text(common)
            (include / "a.h").write_text("WEIR_API uint32_t weir_a(void);\nWEIR_API uint32_t weir_b(void);\n")
            for name, text in (("raw.rs", raw), ("safe.rs", safe), ("exceptions.txt", exceptions),
                               ("layers.txt", layers)):
                (root / "made" / name).write_text(text)
            return self.run_check(include, root / "check")

    def test_what_is_complete_passes(self):
        run = self.made("fn weir_a(); fn weir_b();", "weir_a(); weir_b();")
        self.assertEqual(run.returncode, 0, run.stdout)
        run = self.made("fn weir_a();", "weir_a();", "weir_b there is no use for it here\n")
        self.assertEqual(run.returncode, 0, run.stdout)
        run = self.made("fn weir_a();", "weir_a();", common="# For all.\nweir_b there is no use for it anywhere\n")
        self.assertEqual(run.returncode, 0, run.stdout)
        run = self.made("", "weir_a(); weir_b();", layers="raw headers\nsafe safe.rs\n")
        self.assertEqual(run.returncode, 0, run.stdout)

    def test_what_is_missing_fails(self):
        cases = (("fn weir_a(); fn weir_b();", "weir_a(); // weir_b();", "", "weir_b is not used"),
                 ("fn weir_a(); /* fn weir_b(); */", "weir_a(); weir_b();", "", "weir_b is not declared"),
                 ("fn weir_a();", "weir_a();", "weir_b because\n", "weir_b has no reason"),
                 ("fn weir_a();", "weir_a();", "weir_b is of no use\nweir_c is of no use\n", "weir_c is no function"),
                 ("fn weir_a(); fn weir_b();", "weir_a(); weir_b();", "weir_b is of no use\n", "so it is no exception"),
                 ("fn weir_a(); fn weir_b(); fn weir_c();", "weir_a(); weir_b();", "", "weir_c is not in the headers"))
        for raw, safe, exceptions, words in cases:
            run = self.made(raw, safe, exceptions)
            self.assertEqual(run.returncode, 1, words)
            self.assertIn(words, run.stdout)
            if exceptions:  # and so it is in the file of all languages
                run = self.made(raw, safe, common=exceptions)
                self.assertEqual(run.returncode, 1, words)
                self.assertRegex(run.stdout, rf"bindings/exceptions.txt: .*{words}")
        run = self.made("fn weir_a();", "weir_a();", "weir_b is of no use\n", common="weir_b is of no use\n")
        self.assertIn("made/exceptions.txt: weir_b stands in bindings/exceptions.txt already", run.stdout)


if __name__ == "__main__":
    unittest.main()
