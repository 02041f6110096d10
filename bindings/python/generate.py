#!/usr/bin/env python3
"""Writes weir/_native.py and weir/_data.py from the public headers; `--check` compares them (headers.emit_main).

_native.py   ctypes: structures, types of callbacks, and the functions of a loaded library, as the headers have them
_data.py     what needs no decisions in Python's own types: enums, an exception for each status, named tuples of what
             the library fills, dataclasses of options with their conversion to structures
The documentation of fields and values is that of the headers.
"""
import pathlib
import re
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True
import headers  # noqa: E402
from headers import OPTIONS, RECORDS, camel, class_of_enum, is_left_out, length_of  # noqa: E402

CTYPES = {"char": "c_char", "int8_t": "c_int8", "uint8_t": "c_uint8", "int16_t": "c_int16", "uint16_t": "c_uint16",
          "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64",
          "float": "c_float", "double": "c_double"}

# More than any enum of these has values.
MEMBERS = 64
def comment(text, width=112, is_copy=False):
    """Lines of a comment."""
    return textwrap.wrap(headers.of_values(text, "None", is_copy), width, break_on_hyphens=False) or [""]


def docstring(text, indent="    ", is_copy=False):
    lines = comment(text.replace("\\", "\\\\"), 116 - len(indent), is_copy)
    if len(lines) == 1 and len(indent + lines[0]) + 6 <= 120:
        return [f'{indent}"""{lines[0]}"""']
    return [f'{indent}"""' + lines[0]] + [indent + line for line in lines[1:]] + [f'{indent}"""']


# --------------------------------------------------------------------------------------------------------------- native

CHECKED = {"int32_t": "Int32", "uint32_t": "UInt32", "int64_t": "Int64", "uint64_t": "UInt64", "weir_token": "Int32"}


def ctype(api, type_, is_parameter=False):
    """The type of ctypes. Handles are void pointers; so are pointers whose target ctypes need not see."""
    kind = api.kind(type_.base)
    if is_parameter and type_.depth == 0 and type_.base in CHECKED:
        return CHECKED[type_.base]
    if kind == "void":
        base, depth = ("c_void_p", type_.depth - 1) if type_.depth else ("None", 0)
    elif kind == "opaque":
        base, depth = "c_void_p", type_.depth - 1
    elif type_.base == "char" and type_.depth:
        # Text that the library writes into is an array of the caller.
        base, depth = ("c_char_p" if type_.is_const else "POINTER(c_char)"), type_.depth - 1
    else:
        base, depth = CTYPES.get(type_.base, type_.base), type_.depth
    for _ in range(depth):
        base = f"POINTER({base})"
    return base


def python_type(api, field):
    """What reading a field of a structure gives."""
    type_ = field.type
    text = ctype(api, type_)
    if field.array is not None:
        return "Bytes" if type_.base == "char" else "Any"
    if text == "c_char_p":
        return "Optional[Bytes]"
    if text == "c_void_p":
        return "Optional[int]"
    if type_.depth or api.kind(type_.base) in ("callback", "struct"):
        return "Any"
    return "float" if type_.base in ("float", "double") else "int"


def native(api):
    major, minor, patch = api.version
    out = ['"""The C functions and structures of libweir, by ctypes. Longer than 600 lines because generate.py',
           'writes it from include/weir."""',
           "import ctypes", "from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_float, c_int32, "
           "c_int64, c_uint16,", "                    c_uint32, c_uint64, c_void_p)",
           "from typing import Any, Callable, Dict, List, Optional, Tuple", "",
           "Bytes = bytes  # which is the name of a field, too", f'VERSION = "{major}.{minor}.{patch}"', ""]
    for name, (signed, bits) in {"Int32": (1, 32), "UInt32": (0, 32), "Int64": (1, 64), "UInt64": (0, 64)}.items():
        low = f"-{2 ** (bits - 1)}" if signed else "0"
        out += ["", f"class {name}:", '    """An argument; ctypes itself would cut a number off that does not fit."""',
                "", "    @staticmethod", "    def from_param(value: int) -> Any:",
                f"        if not {low} <= value <= {2 ** (bits - signed) - 1}:",
                f'            raise ValueError(f"{{value}} is no {"" if signed else "u"}int{bits}_t")',
                f'        return c_{"" if signed else "u"}int{bits}(value)', ""]
    out.append("")
    for alias in api.aliases:
        out.append(f"{alias.name} = {CTYPES[alias.target.base]}")
    for constant in api.constants:
        out.append(f"{constant.name} = {constant.value!r}")
    for enum in api.enums:
        out.append("")
        out += [f"{value.name} = {value.value}" for value in enum.values]
    order = {path: i for i, path in enumerate(headers.ORDER)}
    done = set()

    def needs(entry):
        types = [f.type for f in entry.fields] if isinstance(entry, headers.Struct) else \
            [entry.returns] + [p.type for p in entry.parameters]
        return {t.base for t in types if api.kind(t.base) in ("struct", "callback", "function")}

    left = sorted([*api.structs, *api.callbacks], key=lambda entry: order.get(entry.header, 99))
    while left:
        entry = next(entry for entry in left if needs(entry) <= done)
        left.remove(entry)
        done.add(entry.name)
        if isinstance(entry, headers.Callback):
            arguments = [ctype(api, entry.returns)] + [ctype(api, p.type) for p in entry.parameters]
            out += ["", "", f"{entry.name} = CFUNCTYPE({', '.join(arguments)})"]
            continue
        out += ["", "", f"class {entry.name}(Structure):"]
        out += [f"    {field.name}: {python_type(api, field)}" for field in entry.fields]
        out.append("    _fields_ = [")
        for field in entry.fields:
            array = f" * {field.array}" if field.array is not None else ""
            out.append(f'        ("{field.name}", {ctype(api, field.type)}{array}),')
        out.append("    ]")
    out += ["", "", "# Result and arguments of each function.",
            "FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {"]
    for function in api.functions:
        arguments = ", ".join(ctype(api, p.type, True) for p in function.parameters)
        lines = textwrap.wrap(f'"{function.name}": ({ctype(api, function.returns)}, [{arguments}]),', 112,
                              subsequent_indent=" " * 8)
        out += ["    " + line for line in lines]
    out += ["}", "", "", "class Library:", '    """The functions of a loaded library. What returns a status goes '
            'through `check`, as errcheck of ctypes."""', ""]
    for function in api.functions:
        result = ctype(api, function.returns)
        result = {"None": "None", "c_char_p": "Optional[bytes]", "c_void_p": "Optional[int]"}.get(result, "int")
        if api.kind(function.returns.base) == "function":
            result = "Any"
        out.append(f"    {function.name}: Callable[..., {result}]")
    out += ["", "    def __init__(self, library: ctypes.CDLL, check: Callable[..., Any]) -> None:",
            "        for name, (result, arguments) in FUNCTIONS.items():",
            "            function = getattr(library, name)",
            "            function.restype = result",
            "            function.argtypes = arguments",
            "            if result is weir_status:",
            "                function.errcheck = check",
            "            setattr(self, name, function)", ""]
    return "\n".join(out)


# ----------------------------------------------------------------------------------------------------------------- data

def enum_lines(enum):
    base = "IntFlag" if enum.is_bits else "Open"
    out = ["", "", f"class {class_of_enum(enum.name)}({base}):"]
    out += docstring(enum.doc.body or f"Values of enum {enum.name}.") + [""]
    for value in enum.values:
        name = value.short
        out += [f"    #: {line}" for line in comment(value.doc.text)] if value.doc.text else []
        out.append(f"    {name} = {value.value}")
    return out


def errors(api):
    out, table = [], []
    for value in api.find("weir_status_code").values:
        if value.value == 0:
            continue
        short = value.short
        name = camel(short) + "Error"
        table.append(f"    {value.value}: {name},")
        out += ["", "", f"class {name}(WeirError):"] + docstring(value.doc.text) + [f"    status = Status.{short}"]
    return out + ["", "", "ERRORS: Dict[int, Type[WeirError]] = {", *table, "}"]


def record_lines(api, struct, name):
    entries, constants, skip, texts = [], [], set(), []
    for field in struct.fields:
        if is_left_out(field) or field.name in skip:
            continue
        type_, enum, read = field.type, api.enum_of(field), f"s.{field.name}"
        if type_.base == "char" and type_.depth == 1:
            length = length_of(struct, field)
            python, read = "str", f"decoded({read})"
            if length:
                skip.add(length)
                python = "bytes" if field.name == "bytes" else "str"
                constant = f"_{name.upper()}_{field.name.upper()}"
                constants.append(f'{constant} = offset_of({struct.name}, "{field.name}")')
                if "NUL-terminated" in field.doc.text and struct.name != "weir_token_info":
                    # As ctypes reads it, unless there is a NUL inside.
                    texts.append((field.name, length, constant))
                    read = f"{field.name}.decode()"
                else:
                    read = f"{python}_at(address_at(s, {constant}), s.{length})"
        elif type_.base == "char":
            python, read = "str", f"decoded({read})"
        elif field.array is not None:
            python, read = "Tuple[int, ...]", f"tuple({read})"
        elif type_.depth:  # a list with its number of entries
            of, n = RECORDS[type_.base], f"s.n_{field.name}"
            skip.add(f"n_{field.name}")
            python, read = f"Sequence[{of}]", f"[{snake(of)}_of(item) for item in {read}[:{n}]] if {n} else ()"
        elif enum:
            python = class_of_enum(enum.name)
            read = f"{python}({read})" if enum.is_bits else f"_{python.upper()}[{read}]"
        elif field.name.startswith("is_"):
            python, read = "bool", f"bool({read})"
        else:
            python = "float" if type_.base in ("float", "double") else "int"
        entries.append((field, python, read))
    # A length may stand before what it belongs to.
    entries = [entry for entry in entries if entry[0].name not in skip]
    out = ["", "", f"class {name}(NamedTuple):"]
    out += docstring(struct.doc.body, is_copy=True) + [""]
    for field, python, _ in entries:
        out += [f"    #: {line}" for line in comment(field.doc.text, is_copy=True)]
        ignored = "  # type: ignore[assignment]" if field.name in ("index", "count") else ""  # methods of tuples
        out.append(f"    {field.name}: {python}{ignored}")
    out += ["", "", *constants, "", ""] if constants else ["", ""]
    out.append(f"def {snake(name)}_of(s: {struct.name}) -> {name}:")
    for text, length, constant in texts:
        out += [f'    {text} = s.{text} or b""', f"    if len({text}) != s.{length}:",
                f"        {text} = bytes_at(address_at(s, {constant}), s.{length})"]
    # Without the constructor, which is a function of Python.
    arguments = ", ".join(read for _, _, read in entries)
    call = textwrap.wrap(f"return tuple.__new__({name}, ({arguments},))", 112, subsequent_indent=" " * 8)
    return out + ["    " + line for line in call]


def snake(name):
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


# Type and conversion of callbacks in options. Hooks for memory are given as ctypes has them: they are for those whose
# memory comes from native code.
CALLBACKS = {"weir_progress_fn": ("Callable[[Progress], Optional[bool]]", "callback(s, {0}, self.{1}, progress_of)"),
             "weir_log_fn": ("Callable[[LogLine], None]", "log_callback({0}, self.{1}, log_line_of)"),
             "weir_token_fn": ("Callable[[TokenEvent], Optional[bool]]", "callback(s, {0}, self.{1}, token_event_of)"),
             "weir_alloc_fn": ("Any", "hook({0}, self.{1})"), "weir_free_fn": ("Any", "hook({0}, self.{1})")}


def option_entry(api, struct, field):
    """(name, type, default, statement that fills the structure `s`) of an option."""
    type_, enum, name = field.type, api.enum_of(field), field.name
    kind = api.kind(type_.base)
    if kind == "callback":
        python, convert = CALLBACKS[type_.base]
        python = python if python == "Any" else f"Optional[{python}]"
        user = struct.fields[struct.fields.index(field) + 1].name
        both = f", s.{user}" if convert.startswith("callback") else ""
        return name, python, "None", f"s.{name}{both} = {convert.format(type_.base, name)}"
    if type_.base == "char":
        length = length_of(struct, field)
        if name.endswith("_json"):
            short = name[:-len("_json")]
            return short, "Any", "None", f's.{name} = json_text("{short}", self.{short})'
        if name.endswith(("_path", "_dir")):
            return name, "Optional[Path]", "None", f's.{name} = path_text("{name}", self.{name})'
        if length:
            return name, "Optional[Text]", "None", f's.{name}, s.{length} = sized_text(self.{name})'
        default = "None"
        return name, "Optional[Text]", default, f's.{name} = c_text("{name}", self.{name})'
    if kind == "struct" and type_.base == "weir_key_value":
        return name, "Mapping[str, str]", "{}", f"s.{name}, s.n_{name} = key_values(self.{name})"
    if kind == "struct" and type_.base == "weir_text":
        return name, "Sequence[Text]", "()", f"s.{name}, s.n_{name} = texts(self.{name})"
    if kind == "struct" and type_.base == "weir_token_bias":
        return name, "Mapping[int, float]", "{}", f"s.{name}, s.n_{name} = biases(self.{name})"
    if kind == "struct":
        of = OPTIONS[type_.base]
        return name, f"Optional[{of}]", "None", \
            f"s.{name} = None if self.{name} is None else pointer(self.{name}.to_native())"
    if enum:
        python = class_of_enum(enum.name)
        first = "0" if enum.is_bits else enum.values[0].short
        default = f"{python}(0)" if enum.is_bits else f"{python}.{first}"
        return name, "int", default, f's.{name} = integer("{name}", self.{name}, {type_.base[0] == "u"})'
    if type_.base in ("float", "double"):
        return name, "float", "0.0", f's.{name} = real("{name}", self.{name})'
    bits = 64 if "64" in type_.base else 32
    extra = ", 64" if bits == 64 else ""
    return name, "int", "0", f's.{name} = integer("{name}", self.{name}, {type_.base[0] == "u"}{extra})'


def option_lines(api, struct, name):
    out = ["", "", "@dataclass", f"class {name}:"]
    out += docstring(struct.doc.body) + [""]
    fields = struct.fields
    lengths = {length_of(struct, field) for field in struct.fields}
    fills = []
    for field in fields:
        if is_left_out(field) or field.name in lengths or re.search(r"(^|_)user$", field.name) \
                or field.name == "message_bytes":
            continue
        entry, python, default, fill = option_entry(api, struct, field)
        if field.name == "role":
            python, default = "str", ""
        if name == "Message" and field.name == "content":
            python, default = "Text", '""'
        out += [f"    #: {line}" for line in comment(field.doc.text)]
        if default == "{}":
            default = "field(default_factory=dict)"
        out.append(f"    {entry}: {python}" + (f" = {default}" if default else ""))
        fills.append(fill)
    out += ["", f"    def to_native(self) -> {struct.name}:", f"        s = {struct.name}()"]
    if struct.has_size:
        out.append("        s.struct_size = sizeof(s)")
    if any(field.name == "message_bytes" for field in fields):
        out.append("        s.message_bytes = sizeof(weir_chat_message)")
    out += ["        " + line for fill in fills for line in textwrap.wrap(fill, 110, subsequent_indent="    ")]
    return out + ["        return s"]


def data(api):
    natives = sorted([*RECORDS, *OPTIONS] + [c for c in CALLBACKS])
    names = textwrap.wrap(", ".join(natives), 112)
    out = ['"""Enums, errors, results and options. Longer than 600 lines because generate.py writes it from '
           'include/weir."""',
           "from ctypes import pointer, sizeof", "from dataclasses import dataclass, field",
           "from enum import IntEnum, IntFlag",
           "from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type", "",
           "from ._convert import (Path, Text, address_at, biases, bytes_at, c_text, callback, decoded, hook, integer, "
           "json_text,",
           "                       key_values, log_callback, offset_of, path_text, real, sized_text, str_at, texts)",
           "from ._native import ("]
    out += ["    " + line for line in names] + [")", "", "",
            "class Open(IntEnum):", '    """An enum of which a newer library may have more values."""', "",
            "    @classmethod", '    def _missing_(cls, value: object) -> "Open":',
            "        assert isinstance(value, int)", "        new = int.__new__(cls, value)",
            '        new._name_, new._value_ = f"UNKNOWN_{value}", value', "        return new"]
    for enum in api.enums:
        out += enum_lines(enum)
    out += ["", "", "class WeirError(Exception):",
            '    """A call of the library failed; str() is the library\'s text, which names the cause."""', "",
            "    status: Status = Status.INTERNAL"]
    out += errors(api)
    used = {class_of_enum(enum.name): enum for enum in api.enums if not enum.is_bits}
    assert all(0 <= value.value < MEMBERS // 2 for name, enum in used.items() if name != "Status"
               for value in enum.values)
    out += ["", "", "def _members(of: Any) -> List[Any]:",
            '    """By number, those of newer libraries too, as a list is faster than a call of the class."""',
            f"    return [of(value) for value in range({MEMBERS})]", "", ""]
    out += [f"_{name.upper()} = _members({name})" for name in used
            if any(api.enum_of(f) is used[name] for s in RECORDS for f in api.find(s).fields)]
    for struct in sorted(api.structs, key=lambda s: s.name != "weir_logprob"):
        if struct.name in RECORDS:
            out += record_lines(api, struct, RECORDS[struct.name])
    for struct in api.structs:
        if struct.name in OPTIONS:
            out += option_lines(api, struct, OPTIONS[struct.name])
    public = sorted([*(class_of_enum(enum.name) for enum in api.enums), *RECORDS.values(), *OPTIONS.values(),
                     "WeirError", *(camel(v.short) + "Error" for v in api.find("weir_status_code").values if v.value)])
    out += ["", "", "__all__ = ["]
    out += ["    " + line for line in textwrap.wrap(", ".join(f'"{name}"' for name in public) + ",", 112)] + ["]", ""]
    return "\n".join(out)


if __name__ == "__main__":
    headers.emit_main(lambda api: {"weir/_native.py": native(api), "weir/_data.py": data(api)}, HERE)
