#!/usr/bin/env python3
"""Writes Sources/Weir/Generated.swift from the C headers: enums, flags, and structs of options and of facts, with their
comments. What it takes from a C struct and how is in the tables below; everything else follows from types and names.
bindings/check compares the committed file with what this writes. Usage: generate.py [--check] [--headers FOLDER]"""
import functools
import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True
import headers  # noqa: E402

FILE = "Sources/Weir/Generated.swift"

ENUM_NAMES = {"weir_device_type": "Device"}  # of the others see headers.class_of_enum
MESSAGE = "weir_chat_message"
OPTIONS = {name: swift for name, swift in headers.OPTIONS.items() if name != MESSAGE}
FACTS = {**headers.RECORDS, "weir_memory_info": "SessionMemory", "weir_session_stats": "SessionStats",
         "weir_span": "TextSpan", "weir_alloc_info": "AllocationRequest"}
# Facts that one call fills; others come from a session's handle, in lists, or from callbacks.
FILLED = {"weir_memory_counters", "weir_model_info", "weir_tensor_info", "weir_token_info", "weir_special_tokens",
          "weir_chat_info", "weir_plan_info", "weir_event"}

# Functions that only read: of a handle to facts, a number or a text; and of an index to a name.
GETTERS = {
    "weir_runtime_memory": "memory", "weir_runtime_thread_count": "threadCount", "weir_runtime_cpu_target": "cpuTarget",
    "weir_model_special_tokens": "specialTokens", "weir_model_chat_info": "chatInfo",
    "weir_session_get_stats": "stats", "weir_session_memory": "memory",
}
# Functions that do something to a handle, with at most a token.
ACTIONS = {
    "weir_cancel_set": "set", "weir_cancel_clear": "clear", "weir_session_reset": "reset", "weir_session_step": "step",
    "weir_session_finish_thinking": "finishThinking", "weir_session_cancel": "cancel",
    "weir_session_clear_cancel": "clearCancel",
}
NAMES = {"weir_policy_name": "policies", "weir_preset_name": "presets", "weir_weight_type_name": "weightTypes"}

# Enums without a comment of their own.
ENUM_DOCS = {"weir_status_code": "Result of a call: success, or which kind of error."}
# Numbers whose bits matter; all others become Int.
UNSIGNED = {"fingerprint", "seed"}

# Fields of options that become one property: name, type, default, lines that fill the C struct, and the C fields that
# these lines fill, too.
LIST = "raw.{0} = call.list({1})\n        raw.n_{0} = UInt32({2}.count)"
HOOK = "if let {0} {{ (call.{0}, raw.{0}, raw.{0}_user) = ({0}, {0}Hook, call.user) }}"
ALLOCATOR = "if let {0} {{\n            call.{0} = {0}\n" \
            "            (raw.{1}alloc, raw.{1}free, raw.{1}alloc_user) = (allocHook, freeHook, call.user)\n        }}"
SPECIAL = {
    "alloc": ("allocator", "(any Allocator)?", "nil", ALLOCATOR.format("allocator", ""), ["free", "alloc_user"]),
    "device_alloc": ("deviceAllocator", "(any Allocator)?", "nil", ALLOCATOR.format("deviceAllocator", "device_"),
                     ["device_free", "device_alloc_user"]),
    "log": ("log", "LogHandler?", "nil", HOOK.format("log"), ["log_user"]),
    "progress": ("progress", "ProgressHandler?", "nil", HOOK.format("progress"), ["progress_user"]),
    "policy_options": ("policyOptions", "[String: String]", "[:]",
                       "var pairs: [weir_key_value] = []\n"
                       "        for (key, value) in policyOptions.sorted(by: { $0.key < $1.key }) {\n"
                       "            let key = try call.text(key, \"policyOptions\")\n"
                       "            pairs.append(weir_key_value(key: key, "
                       "value: try call.text(value, \"policyOptions\")))\n        }\n        "
                       + LIST.format("policy_options", "pairs", "pairs"), ["n_policy_options"]),
    "bias": ("bias", "[Token: Float]", "[:]",
             LIST.format("bias", "bias.map { weir_token_bias(token: $0.key, bias: $0.value) }", "bias"), ["n_bias"]),
    "stop": ("stop", "[String]", "[]", LIST.format("stop", "stop.map(call.copy)", "stop"), ["n_stop"]),
    "chat": ("chat", "ChatOptions?", "nil", "if let chat { raw.chat = call.list([try chat.raw(call)]) }", []),
    "on_token": (None, None, None, None, ["user"]),  # an argument of Session.generate
    "message_bytes": (None, None, None, "raw.message_bytes = UInt32(MemoryLayout<weir_chat_message>.size)", []),
}
# A binding's caller who gives options of a chat wants an answer, as one who gives none does.
DEFAULTS = {("weir_chat_options", "flags"): ".addAssistant"}
DEFAULT_NOTES = {("weir_chat_options", "flags"): "Here the default is `ChatFlags.addAssistant`."}


camel = functools.partial(headers.camel, is_type=False)


def name_of(enum):
    return ENUM_NAMES.get(enum.name) or headers.class_of_enum(enum.name)


class Writer:
    def __init__(self, api):
        self.api = api
        self.lines = ["// Written by generate.py from the C headers; do not edit.",
                      "// Longer than 600 lines because the headers are.",
                      "import CWeir", ""]
        self.values = {}
        for enum in api.enums:
            for value in enum.values:
                self.values[value.name] = f"{name_of(enum)}.{self.case_of(value)}"
        self.fields = {field.name for struct in api.structs for field in struct.fields if "_" in field.name}
        self.prefixes = {enum.prefix + "*": name_of(enum) for enum in api.enums}

    @staticmethod
    def case_of(value):
        name = camel(value.short)
        return {"internal": "internalError", "continue": "continueAnswer"}.get(name, name)  # words of the language

    def doc(self, doc, indent="", note="", is_copy=False):
        text = headers.of_values(doc.body if isinstance(doc, headers.Doc) else doc, "nil", is_copy)
        for c_name, name in sorted(self.prefixes.items(), key=lambda item: -len(item[0])):
            text = text.replace(c_name, f"`{name}`")
        text = re.sub(r"\bWEIR_[A-Z0-9_]+\b", lambda m: f"`{self.values[m.group()]}`" if m.group() in self.values
                      else m.group(), text)
        text = re.sub(r"(?<!`)\bweir_[a-z_]+(?:\.[a-z_]+)?\b(?!`)", lambda m: f"`{m.group()}`", text)
        text = re.sub(r"(?<![\w.`])[a-z]+(?:_[a-z]+)+\b(?!`)",
                      lambda m: f"`{camel(m.group())}`" if m.group() in self.fields else m.group(), text)
        since = getattr(doc, "since", "")
        text += (" " + note if note else "") + (f" Since {since}." if since and since != "1.0" else "")
        for line in textwrap.wrap(text.strip(), 116 - len(indent), break_long_words=False, break_on_hyphens=False):
            self.lines.append(f"{indent}/// {line}")

    def enum(self, enum):
        name = name_of(enum)
        self.doc(enum.doc.body or ENUM_DOCS[enum.name])
        kind, raw = ("OptionSet, Sendable", "UInt32") if enum.is_bits else \
            ("RawRepresentable, Hashable, Sendable, CustomStringConvertible", "Int32")
        self.lines += [f"public struct {name}: {kind} {{", f"    public var rawValue: {raw}",
                       f"    public init(rawValue: {raw}) {{ self.rawValue = rawValue }}"]
        for value in enum.values:
            self.doc(value.doc, "    ")
            self.lines.append(f"    public static let {self.case_of(value)} = {name}(rawValue: {value.value})")
        if not enum.is_bits:
            self.lines += ["    /// The name, or of a value that this version does not know the number.",
                           "    public var description: String {", "        switch rawValue {"]
            self.lines += [f'        case {value.value}: "{self.case_of(value)}"' for value in enum.values]
            self.lines += ['        default: "\\(rawValue)"', "        }", "    }"]
        self.lines += ["}", ""]

    def number_type(self, struct, field):
        """Swift's type of a field that is a number, and what makes it of the C value and back."""
        enum = self.api.enum_of(field)
        raw = f"raw.{field.name}"
        name = camel(field.name)
        if enum:
            return name_of(enum), f"{name_of(enum)}(rawValue: {raw})", f"{name}.rawValue", \
                "[]" if enum.is_bits else f".{self.case_of(enum.values[0])}"
        if field.type.base == "weir_token":
            return "Token", raw, name, "0"
        if field.type.base == "float":
            return "Float", raw, name, "0"
        if field.name.startswith(("is_", "add_")):
            return "Bool", f"{raw} != 0", f"{name} ? 1 : 0", "false"
        if field.name in UNSIGNED:
            return "UInt64", raw, name, "0"
        return "Int", f"Int({raw})", f'try call.number({name}, "{name}")', "0"

    def property_of(self, struct, field):
        """(name, type, default, lines to fill raw, expression that reads raw or None) of a field of options."""
        name, raw = camel(field.name), f"raw.{field.name}"
        if field.type.base == "char" and field.type.depth == 1:
            return name, "String?", "nil", f'{raw} = try call.text({name}, "{name}")', \
                f"{raw}.map {{ String(cString: $0) }}"
        if field.type.depth or field.array or self.api.kind(field.type.base) not in ("scalar", "alias"):
            raise headers.HeaderError(f"{struct.name}.{field.name}: tell in SPECIAL what becomes of it")
        type_, read, write, default = self.number_type(struct, field)
        return name, type_, default, f"{raw} = {write}", read

    def options(self, struct):
        name = OPTIONS[struct.name]
        filled = {extra for field in struct.fields for extra in SPECIAL.get(field.name, [None] * 4 + [[]])[4]}
        properties = []
        for field in struct.fields:
            if headers.is_left_out(field) or field.name in filled:
                continue
            if field.name in SPECIAL:
                properties.append((field, *SPECIAL[field.name][:4], None))
            else:
                properties.append((field, *self.property_of(struct, field)))
        self.doc(struct.doc.summary)
        self.lines.append(f"public struct {name}: Options, Sendable {{")
        for field, prop, type_, default, _, _ in properties:
            if prop:
                self.doc(field.doc, "    ", DEFAULT_NOTES.get((struct.name, field.name), ""))
                self.lines.append(f"    public var {prop}: {type_}")
        arguments = [f"{prop}: {type_} = {DEFAULTS.get((struct.name, field.name), default)}"
                     for field, prop, type_, default, _, _ in properties if prop]
        self.lines += ["    /// All defaults but for what is given."] + \
            wrapped("    public init(", arguments, ") {")
        self.lines += [f"        self.{prop} = {prop}" for _, prop, _, _, _, _ in properties if prop]
        self.lines += ["    }", f"    func raw(_ call: Call) throws(WeirError) -> {struct.name} {{",
                       f"        var raw = {struct.name}()",
                       f"        raw.struct_size = UInt32(MemoryLayout<{struct.name}>.size)"]
        self.lines += [f"        {write}" for _, _, _, _, write, _ in properties if write]
        self.lines += ["        return raw", "    }"]
        if struct.name == "weir_session_options":  # presets and fitted budgets come back
            self.lines += [f"    init(_ raw: {struct.name}) {{"]
            self.lines += [f"        {prop} = {read}" for _, prop, _, _, _, read in properties if read]
            self.lines += ["        policyOptions = [:]", "        for i in 0..<Int(raw.n_policy_options) {",
                           "            policyOptions[String(cString: raw.policy_options[i].key)] = "
                           "String(cString: raw.policy_options[i].value)", "        }", "    }"]
        self.lines += ["}", ""]

    def facts(self, struct):
        name = FACTS[struct.name]
        lengths = {field.name: headers.length_of(struct, field) for field in struct.fields}
        self.doc(struct.doc.summary)
        self.lines.append(f"public struct {name}: Sendable {{")
        reads = []
        for field in struct.fields:
            raw, prop = f"raw.{field.name}", camel(field.name)
            if headers.is_left_out(field) or field.name in lengths.values():
                continue
            if field.name == "top":
                type_ = "[Logprob]"
                read = "UnsafeBufferPointer(start: raw.top, count: Int(raw.n_top)).map(Logprob.init)"
            elif field.type.base == "char" and field.name == "bytes":
                type_, read = "[UInt8]", f"bytesOf({raw}, raw.{lengths[field.name]})"
            elif field.type.base == "char" and lengths[field.name]:
                type_, read = "String", f"textOf({raw}, raw.{lengths[field.name]})"
            elif field.type.base == "char" and field.array:
                type_, read = "String", f"textIn({raw})"
            elif field.type.base == "char":
                type_, read = "String", f'{raw}.map {{ String(cString: $0) }} ?? ""'
            elif field.type.base == "void":
                type_, read = "UnsafeMutableRawPointer?", raw
            elif field.array:
                type_, read = "[Int]", "[" + ", ".join(f"Int({raw}.{i})" for i in range(field.array)) + "]"
            else:
                type_, read, _, _ = self.number_type(struct, field)
            self.doc(field.doc, "    ", is_copy=True)
            unsafe = "nonisolated(unsafe) " if field.type.base == "void" else ""
            self.lines.append(f"    public {unsafe}let {prop}: {type_}")
            reads.append(f"        {prop} = {read}")
        self.lines += [f"    init(_ raw: {struct.name}) {{"] + reads + ["    }"]
        if struct.name in FILLED:
            self.lines.append(f"    init(_ fill: Fill<{struct.name}>) throws(WeirError) "
                              "{ self.init(try .filled(fill)) }")
        self.lines += ["}", ""]

    def message(self, struct):
        names = {field.name for field in struct.fields}
        fields = [field for field in struct.fields if not field.name.endswith("_bytes")]
        self.doc(struct.doc.summary.split(". It may grow")[0] + ".")
        self.lines.append("public struct Message: Hashable, Sendable {")
        arguments, reads, writes = [], [], []
        for field in fields:
            name, is_always = camel(field.name), field.name in ("role", "content")
            self.doc(field.doc, "    ", is_copy=True)
            self.lines.append(f"    public var {name}: String{'' if is_always else '?'}")
            arguments.append(f"{name}: String" + ("" if is_always else "? = nil"))
            if field.name + "_bytes" in names:
                reads.append(f"{name} = " + ("" if is_always else f"raw.{field.name}.map {{ _ in ")
                             + f"textOf(raw.{field.name}, raw.{field.name}_bytes)" + ("" if is_always else " }"))
                writes += [f"let {name}Copy = " + (f"call.copy({name})" if is_always else f"{name}.map(call.copy)"),
                           f"raw.{field.name} = {name}Copy{'' if is_always else '?'}.text",
                           f"raw.{field.name}_bytes = {name}Copy" + (".bytes" if is_always else "?.bytes ?? 0")]
            else:
                reads.append(f"{name} = raw.{field.name}.map {{ String(cString: $0) }}"
                             + (' ?? ""' if is_always else ""))
                writes.append(f'raw.{field.name} = try call.text({name}, "{name}")')
        self.lines += wrapped("    public init(", arguments, ") {") + \
            [f"        self.{camel(field.name)} = {camel(field.name)}" for field in fields] + \
            ["    }", f"    init(_ raw: {struct.name}) {{"] + [f"        {line}" for line in reads] + \
            ["    }", f"    func raw(_ call: Call) throws(WeirError) -> {struct.name} {{",
             f"        var raw = {struct.name}()"] + [f"        {line}" for line in writes] + \
            ["        return raw", "    }", "}", ""]

    def getter(self, function):
        owner = function.parameters[0].type.base[len("weir_"):].capitalize()
        name = GETTERS[function.name]
        self.lines.append(f"extension {owner} {{")
        self.doc(function.doc.body, "    ")
        if len(function.parameters) == 2:
            facts = FACTS[function.parameters[1].type.base]
            read = f".init(try handle.read({function.name}))" if owner == "Session" else \
                f"try .init {{ {function.name}(raw, $0) }}"
            nonisolated = "nonisolated " if owner == "Session" else ""
            self.lines.append(f"    public {nonisolated}func {name}() throws(WeirError) -> {facts} {{ {read} }}")
        else:
            type_, make = ("String", "String(cString: ") if function.returns.base == "char" else ("Int", "Int(")
            self.lines.append(f"    public var {name}: {type_} {{ {make}{function.name}(raw)) }}")
        self.lines += ["}", ""]

    def action(self, function):
        owner = function.parameters[0].type.base[len("weir_"):].capitalize()
        parameters = ", ".join(f"_ {camel(p.name)}: Token" for p in function.parameters[1:])
        arguments = ", ".join(["$0"] + [camel(p.name) for p in function.parameters[1:]])
        self.lines.append(f"extension {owner} {{")
        self.doc(function.doc.body, "    ")
        head = f"func {ACTIONS[function.name]}({parameters})"
        if owner != "Session":
            self.lines.append(f"    public {head} {{ {function.name}(raw) }}")
        elif function.returns.base == "void":  # any thread may call it
            self.lines.append(f"    public nonisolated {head} {{ handle.briefly {{ {function.name}({arguments}) }} }}")
        else:
            self.lines.append(f"    public {head} throws(WeirError) {{ try call {{ {function.name}({arguments}) }} }}")
        self.lines += ["}", ""]

    def names(self):
        self.lines.append("extension Library {")
        for function in self.api.functions:
            if function.name in NAMES:
                words = re.sub("([A-Z])", lambda m: " " + m.group().lower(), NAMES[function.name])
                self.doc(re.sub(r"^Name of .* number @p index", f"The names of all {words}", function.doc.body), "    ")
                self.lines += [f"    public static var {NAMES[function.name]}: [String] {{",
                               "        Array(sequence(state: UInt32(0)) { index in",
                               "            defer { index += 1 }",
                               f"            return {function.name}(index).map {{ String(cString: $0) }}",
                               "        })", "    }"]
        self.lines += ["}", ""]

    def text(self):
        for enum in self.api.enums:
            self.enum(enum)
        for struct in self.api.structs:
            if struct.name in OPTIONS:
                self.options(struct)
            elif struct.name in FACTS:
                self.facts(struct)
            elif struct.name == MESSAGE:
                self.message(struct)
        for function in self.api.functions:
            if function.name in GETTERS:
                self.getter(function)
            if function.name in ACTIONS:
                self.action(function)
        self.names()
        sized = [struct.name for struct in self.api.structs if struct.has_size]
        self.lines += [f"extension {name}: SizedStruct {{}}" for name in sized]
        version = ".".join(str(number) for number in self.api.version)
        self.lines += ["", "extension Library {",
                       "    /// Version of this package: that of the headers which it was written from.",
                       f'    public static let bindingVersion = "{version}"', "}"]
        return "\n".join(self.lines) + "\n"


def wrapped(head, arguments, tail):
    lines, line = [], head
    for i, argument in enumerate(arguments):
        piece = argument + (", " if i + 1 < len(arguments) else tail)
        if len(line) + len(piece) > 118 and line.strip():
            lines.append(line.rstrip())
            line = "        "
        line += piece
    return lines + [line]


headers.emit_main(lambda api: {FILE: Writer(api).text()}, HERE)
