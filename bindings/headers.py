"""The public headers of Weir as data, for generators and checks of bindings. Python 3.9, standard library only.

    import sys; sys.path.insert(0, ".../bindings")
    import headers

    api = headers.read()            # include/weir/*.h of this source tree, without experimental.h; or read(FOLDER)
    api.version                     # (1, 1, 0)
    api.functions, .structs, .opaques, .enums, .callbacks, .aliases, .constants     # lists in the order of the headers
    api.find("weir_event")          # the entry of that name, of whichever list; KeyError otherwise
    api.kind("weir_event")          # "void" "scalar" "alias" "opaque" "struct" "callback" "function"
    api.enum_of(field)              # the Enum that a field or parameter takes, by its comment ("WEIR_STOP_*"), or None
    api.layouts(cc="cc")            # {"weir_event": Layout(size, align, {"kind": (offset, size), ...}), ...}, by cc
    headers.emit_main(files, folder)    # the main program of bindings/LANG/generate.py, see there
    headers.RECORDS, OPTIONS, PLAIN     # all structs, by what a binding makes of them, with their usual names

An entry has `name`, `doc` (Doc) and `header` ("session.h"), and further:

    Function   returns (Type), parameters ([Parameter])
    Callback   the same: a typedef of a pointer to a function, such as weir_token_fn; `user` comes first. Also
               weir_function, a pointer to a function of any type, whose kind is "function"
    Struct     fields ([Field]); has_size: it begins with struct_size
    Opaque     nothing: a struct that has a name only, such as weir_session
    Enum       values ([Value]); is_bits: values are flags; prefix: what all names begin with ("WEIR_STOP_")
    Alias      target (Type): weir_status and weir_token
    Constant   value: an int, float or str of a macro, such as WEIR_VERSION_MAJOR

    Parameter  name, type, doc (the text of @param)
    Field      name, type, doc; array: number of elements, or None
    Value      name ("WEIR_STOP_EOS"), value, doc, short ("EOS"; of WEIR_ERR_BUSY "BUSY")

    Type       base ("weir_session", "uint64_t", "void", ...), is_const (the base is), pointers: for each `*`, from the
               left, whether it is const itself. `weir_session *const *` is base weir_session, pointers (True, False).
               str(type) is C again; depth is the number of `*`.
    Doc        text (all of it, without marks of the comment), summary (first paragraph), body (what comes before the
               first tag), params ({name: text}), returns, threads, owner, since ("1.1" or ""). Of comments behind
               fields and values text, which is the body, too, and since only.

Bases are C's fixed-width integers, float, char and void, or names of this API. Every int32_t that stands for an enum
stays int32_t. A declaration that is not understood is an error that names file and line: nothing is left out silently.
headers.plain(text) makes "@p name" and "@ref name" of a comment `name`, and one line of it; headers.of_values(text)
also leaves out what is said of C's texts and pointers.
"""
import dataclasses
import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Callable as _Callable, Dict, List, Optional, Tuple, Union

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "include" / "weir"
# In this order, which is that of inclusion: whatever a header uses stands before it.
ORDER = ["base.h", "runtime.h", "model.h", "text.h", "session.h", "constraint.h", "save.h"]
LEFT_OUT = {"experimental.h", "weir.h"}
SCALARS = {"char": 1, "int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4,
           "int64_t": 8, "uint64_t": 8, "float": 4, "double": 8}


class HeaderError(Exception):
    """A header has something that this parser does not know."""


@dataclasses.dataclass
class Doc:
    text: str = ""
    summary: str = ""
    body: str = ""
    params: Dict[str, str] = dataclasses.field(default_factory=dict)
    returns: str = ""
    threads: str = ""
    owner: str = ""
    since: str = ""


@dataclasses.dataclass(frozen=True)
class Type:
    base: str
    is_const: bool = False
    pointers: Tuple[bool, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.pointers)

    def __str__(self) -> str:
        stars = "".join("*const " if is_const else "*" for is_const in self.pointers).rstrip()
        return ("const " if self.is_const else "") + self.base + (" " + stars if stars else "")


@dataclasses.dataclass
class Parameter:
    name: str
    type: Type
    doc: str = ""


@dataclasses.dataclass
class Field:
    name: str
    type: Type
    array: Optional[int] = None
    doc: Doc = dataclasses.field(default_factory=Doc)


@dataclasses.dataclass
class Value:
    name: str
    value: int
    doc: Doc
    short: str = ""


@dataclasses.dataclass
class Entry:
    name: str
    doc: Doc
    header: str


@dataclasses.dataclass
class Function(Entry):
    returns: Type = Type("void")
    parameters: List[Parameter] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Callback(Function):
    pass


@dataclasses.dataclass
class Struct(Entry):
    fields: List[Field] = dataclasses.field(default_factory=list)

    @property
    def has_size(self) -> bool:
        return self.fields[0].name == "struct_size"


@dataclasses.dataclass
class Opaque(Entry):
    pass


@dataclasses.dataclass
class Enum(Entry):
    values: List[Value] = dataclasses.field(default_factory=list)

    @property
    def is_bits(self) -> bool:
        return self.name.endswith("_bits")

    @property
    def prefix(self) -> str:
        common = os.path.commonprefix([value.name for value in self.values])
        return common[:common.rfind("_", 0, len(common) if len(self.values) > 1 else len(common) - 1) + 1]


@dataclasses.dataclass
class Alias(Entry):
    target: Type = Type("void")


@dataclasses.dataclass
class Constant(Entry):
    value: Union[int, float, str] = 0


@dataclasses.dataclass
class Layout:
    size: int
    align: int
    fields: Dict[str, Tuple[int, int]]


class Api:
    def __init__(self) -> None:
        self.functions: List[Function] = []
        self.structs: List[Struct] = []
        self.opaques: List[Opaque] = []
        self.enums: List[Enum] = []
        self.callbacks: List[Callback] = []
        self.aliases: List[Alias] = []
        self.constants: List[Constant] = []
        self.folder = FOLDER
        self._names: Dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        if entry.name in self._names:
            raise HeaderError(f"{entry.header}: {entry.name} is declared twice")
        self._names[entry.name] = entry
        lists = {Function: self.functions, Struct: self.structs, Opaque: self.opaques, Enum: self.enums,
                 Callback: self.callbacks, Alias: self.aliases, Constant: self.constants}
        lists[type(entry)].append(entry)  # type: ignore[attr-defined]

    def find(self, name: str) -> Entry:
        return self._names[name]

    def kind(self, name: str) -> str:
        if name == "void":
            return "void"
        if name in SCALARS:
            return "scalar"
        return type(self._names[name]).__name__.lower() if name != "weir_function" else "function"

    @property
    def version(self) -> Tuple[int, int, int]:
        numbers = [self.find(f"WEIR_VERSION_{part}") for part in ("MAJOR", "MINOR", "PATCH")]
        return tuple(number.value for number in numbers)  # type: ignore[attr-defined,return-value]

    def enum_of(self, item: Union[Field, Parameter]) -> Optional[Enum]:
        if item.type.base == "weir_status" and not item.type.pointers:
            return self.find("weir_status_code")  # type: ignore[return-value]
        if item.type.base not in ("int32_t", "uint32_t") or item.type.pointers:
            return None
        text = item.doc if isinstance(item.doc, str) else item.doc.text
        named = re.search(r"\benum (weir_\w+)", text)
        if named:
            return self.find(named.group(1))  # type: ignore[return-value]
        for prefix in re.findall(r"\b(WEIR_[A-Z_]+_)\*", text):
            for enum in self.enums:
                if enum.prefix == prefix:
                    return enum
        return None

    def layout_program(self) -> str:
        """A C program that prints the layout of each struct as JSON."""
        lines = ["#include <stddef.h>", "#include <stdio.h>", "#include <weir/weir.h>", "",
                 "#define SIZE(type, field) ((unsigned long)sizeof(((type *)0)->field))",
                 "#define LAYOUT(type) struct { char c; type t; }", "", "int main(void) {", '    printf("{");']
        for i, struct in enumerate(self.structs):
            comma = "," if i else ""
            lines.append(f'    printf("{comma}\\n  \\"{struct.name}\\": {{\\"size\\": %lu, \\"align\\": %lu, '
                         f'\\"fields\\": {{", (unsigned long)sizeof({struct.name}), '
                         f'(unsigned long)offsetof(LAYOUT({struct.name}), t));')
            for j, field in enumerate(struct.fields):
                lines.append(f'    printf("{", " if j else ""}\\"{field.name}\\": [%lu, %lu]", '
                             f'(unsigned long)offsetof({struct.name}, {field.name}), '
                             f'SIZE({struct.name}, {field.name}));')
            lines.append('    printf("}}");')
        lines += ['    printf("\\n}\\n");', "    return 0;", "}", ""]
        return "\n".join(lines)

    def layouts(self, cc: str = "") -> Dict[str, Layout]:
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
            pathlib.Path(source).write_text(self.layout_program())
            subprocess.run([cc or os.environ.get("CC") or "cc", "-I", str(self.folder.parent), source, "-o", program],
                           check=True)
            printed = json.loads(subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout)
        return {name: Layout(entry["size"], entry["align"], {k: tuple(v) for k, v in entry["fields"].items()})
                for name, entry in printed.items()}


# ------------------------------------------------------------------------------------------------------------- comments

def clean(comment: str) -> str:
    """The text of a comment, without its marks, lines as they are."""
    text = re.sub(r"^/\*\*<?|\*/$", "", comment.strip())
    lines = [re.sub(r"^[ \t]*\*(?: {1,2}|$)", "", line) if i else line for i, line in enumerate(text.splitlines())]
    return "\n".join(line.rstrip() for line in lines).strip()


def plain(text: str) -> str:
    """One line, with the names that are marked in backquotes."""
    return re.sub(r"@(?:p|ref) (\w+)", r"`\1`", " ".join(text.split()))


def of_values(text: str, null: str = "NULL", is_copy: bool = False) -> str:
    """The same for a language whose texts know their length: nothing of a NUL at their end, that language's word for
    NULL, and of what is copied nothing of the time for which C's texts live."""
    text = re.sub(r"[,;] NUL-terminated(?=[,.;:])|\bNUL-terminated(?:, | (?=JSON))|,? and no NUL after them", "",
                  plain(text))
    if is_copy:
        text = re.sub(r"[;,] (?:static|lives as long as the model|valid (?:during|until)[^.;]*)(?=[.;])"
                      r"| (?:Lives as long as the model|Static|Valid (?:during|until)[^.;]*)\.", "", text)
    return re.sub(r"\bNULL\b", null, text).strip()


def parse_doc(comment: str) -> Doc:
    text = clean(comment)
    parts = re.split(r"^@(?=(?:param|return|threads|owner|since|paper)\b)", text, flags=re.M)
    doc = Doc(text=text, body=parts[0].strip())
    doc.summary = plain(doc.body.split("\n\n")[0])
    for part in parts[1:]:
        tag, _, rest = part.partition(" ")
        rest = rest.strip()
        if tag == "param":
            name, _, words = rest.partition(" ")
            doc.params[name] = " ".join(words.split())
        elif tag == "return":
            doc.returns = "\n".join(line[8:] if line.startswith(" " * 8) else line for line in rest.splitlines())
        elif tag in ("threads", "owner", "since"):
            setattr(doc, tag, " ".join(rest.split()))
    return doc


def parse_short_doc(comment: str) -> Doc:
    text = " ".join(clean(comment).split())
    since = re.search(r"\s*@since (\S+)", text)
    text = re.sub(r"\s*@since \S+", "", text)
    return Doc(text=text, body=text, since=since.group(1) if since else "")


# --------------------------------------------------------------------------------------------------------- declarations

COMMENT = re.compile(r"/\*.*?\*/", re.S)


def parse_declarator(text: str) -> Tuple[Type, str, Optional[int]]:
    """Type, name and array length of `const weir_token *tokens` or `char name[256]`."""
    match = re.fullmatch(r"\s*(const\s+)?(?:struct\s+)?(\w+)\s*((?:\*\s*(?:const\b\s*)?)*)(\w+)?\s*(?:\[(\d+)\])?\s*",
                         text)
    if not match:
        raise HeaderError(f"`{text.strip()}` is not understood")
    pointers = tuple("const" in star for star in re.findall(r"\*\s*(?:const\b)?", match.group(3)))
    return (Type(match.group(2), bool(match.group(1)), pointers), match.group(4) or "",
            int(match.group(5)) if match.group(5) else None)


def parse_parameters(text: str, doc: Doc) -> List[Parameter]:
    if text.strip() in ("", "void"):
        return []
    parameters = []
    for part in text.split(","):
        type_, name, array = parse_declarator(part)
        if array is not None or not name:
            raise HeaderError(f"parameter `{part.strip()}` is not understood")
        parameters.append(Parameter(name, type_, doc.params.get(name, "")))
    return parameters


def parse_fields(body: str) -> List[Field]:
    fields = []
    rest = body
    while rest.strip():
        match = re.match(r"\s*([^;/]+);\s*(/\*\*<.*?\*/)?", rest, re.S)
        if not match:
            raise HeaderError(f"field `{rest.strip()[:40]}` is not understood")
        type_, name, array = parse_declarator(match.group(1))
        fields.append(Field(name, type_, array, parse_short_doc(match.group(2) or "")))
        rest = rest[match.end():]
    return fields


def parse_values(body: str) -> List[Value]:
    values = []
    rest = body
    while rest.strip():
        match = re.match(r"\s*(WEIR_\w+)\s*=\s*(-?\d+)\s*,?\s*(/\*\*<.*?\*/)?", rest, re.S)
        if not match:
            raise HeaderError(f"value `{rest.strip()[:40]}` is not understood")
        values.append(Value(match.group(1), int(match.group(2)), parse_short_doc(match.group(3) or "")))
        rest = rest[match.end():]
    return values


def parse_declaration(text: str, doc: Doc, header: str) -> Optional[Entry]:
    """An entry of a declaration without its semicolon; comments are in it only behind fields and values."""
    match = re.fullmatch(r"typedef struct (\w+)\s*\{(.*)\}\s*(\w+)", text, re.S)
    if match:
        if match.group(1) != match.group(3):
            raise HeaderError(f"struct {match.group(1)} has another name as a type")
        return Struct(match.group(1), doc, header, parse_fields(match.group(2)))
    match = re.fullmatch(r"enum (\w+)\s*\{(.*)\}", text, re.S)
    if match:
        enum = Enum(match.group(1), doc, header, parse_values(match.group(2)))
        for value in enum.values:
            value.short = re.sub(r"^ERR_", "", value.name[len(enum.prefix):])
        return enum
    text = " ".join(COMMENT.sub(" ", text).split())
    match = re.fullmatch(r"typedef struct (\w+) (\w+)", text)
    if match:
        return Opaque(match.group(2), doc, header)
    match = re.fullmatch(r"typedef (.+?)\(\*(\w+)\)\((.*)\)", text)
    if match:
        return Callback(match.group(2), doc, header, parse_declarator(match.group(1))[0],
                        parse_parameters(match.group(3), doc))
    match = re.fullmatch(r"typedef (\w+) (\w+)", text)
    if match:
        return Alias(match.group(2), doc, header, Type(match.group(1)))
    match = re.fullmatch(r"WEIR_API (.+?)(\w+)\s*\((.*)\)", text)
    if match:
        return Function(match.group(2), doc, header, parse_declarator(match.group(1))[0],
                        parse_parameters(match.group(3), doc))
    raise HeaderError(f"`{text[:60]}` is not understood")


def parse_macro(line: str, doc: Doc, header: str) -> Optional[Constant]:
    """A macro that is a number or a text; others, such as WEIR_API and initialisers, are for C alone."""
    match = re.match(r"#\s*define\s+(WEIR_\w+)\s+(.*)", line, re.S)
    if not match:
        return None
    value = COMMENT.sub("", match.group(2)).strip()
    comment = re.search(r"/\*\*<.*?\*/", match.group(2), re.S)
    if comment:
        doc = parse_short_doc(comment.group())
    if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[uUlL]*", value):
        return Constant(match.group(1), doc, header, int(value.rstrip("uUlL"), 0))
    if re.fullmatch(r"-?\d+\.\d*(?:[eE][-+]?\d+)?f?", value):
        return Constant(match.group(1), doc, header, float(value.rstrip("f")))
    if re.fullmatch(r'"[^"\\]*"', value):
        return Constant(match.group(1), doc, header, value[1:-1])
    return None


def end_of_declaration(text: str, start: int) -> int:
    """Position of the semicolon that ends it, or of the brace that ends an inline function."""
    depth = 0
    is_inline = text.startswith("static", start)
    for match in re.compile(r"/\*.*?\*/|[{};]", re.S).finditer(text, start):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if depth == 0 and (match.group() == ";" and not is_inline or match.group() == "}" and is_inline):
            return match.start()
    raise HeaderError("a declaration does not end")


def parse_header(api: Api, path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^#\s*ifdef __cplusplus\n.*?^#\s*endif[^\n]*\n", lambda m: "\n" * m.group().count("\n"), text,
                  flags=re.M | re.S)
    at, doc = 0, Doc()
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        try:
            if text[at].isspace():
                at += 1
            elif text.startswith("/*", at):
                comment = COMMENT.match(text, at)
                if not comment:
                    raise HeaderError("a comment does not end")
                doc = parse_doc(comment.group()) if comment.group().startswith("/**") else Doc()
                at = comment.end()
            elif text[at] == "#":
                directive = re.compile(r"#(?:[^\n\\]|\\.|\\\n|/\*.*?\*/)*", re.S).match(text, at)
                assert directive
                constant = parse_macro(directive.group().replace("\\\n", " "), doc, path.name)
                if constant:
                    api.add(constant)
                at, doc = directive.end(), Doc()
            else:
                end = end_of_declaration(text, at)
                if not text.startswith("static", at):
                    entry = parse_declaration(text[at:end].strip(), doc, path.name)
                    if entry:
                        api.add(entry)
                at, doc = end + 1, Doc()
        except HeaderError as error:
            raise HeaderError(f"{path}:{line}: {error}") from None


def check_types(api: Api) -> None:
    """Every name that is used has been declared before."""
    used: List[Tuple[str, Type]] = []
    for function in api.functions + api.callbacks:
        used += [(function.name, function.returns)] + [(function.name, p.type) for p in function.parameters]
    for struct in api.structs:
        used += [(f"{struct.name}.{field.name}", field.type) for field in struct.fields]
    for where, type_ in used:
        try:
            api.kind(type_.base)
        except KeyError:
            raise HeaderError(f"{where}: there is no type {type_.base}") from None


def read(folder: Union[str, pathlib.Path] = FOLDER) -> Api:
    """All of the C API in these headers."""
    api = Api()
    api.folder = pathlib.Path(folder).resolve()
    there = {path.name for path in api.folder.glob("*.h")} - LEFT_OUT
    for name in [name for name in ORDER if name in there] + sorted(there - set(ORDER)):
        parse_header(api, api.folder / name)
    if not api.functions:
        raise HeaderError(f"no functions in {api.folder}")
    check_types(api)
    return api


# ---------------------------------------------------------------------------------------------- names in the languages

def camel(name: str, is_type: bool = True) -> str:
    """ChatOptions of chat_options, or chatOptions."""
    words = [word.capitalize() for word in name.split("_")]
    return "".join(words if is_type else [words[0].lower(), *words[1:]])


def class_of_enum(name: str) -> str:
    """TokenFlags of weir_token_flag_bits, ChatAbilities of weir_chat_ability_bits, Status of weir_status_code."""
    name = name[len("weir_"):]
    for end, plural in (("_flag_bits", "_flags"), ("_ability_bits", "_abilities"), ("_code", "")):
        if name.endswith(end):
            name = name[:-len(end)] + plural
    return camel(name)


# What the caller fills, and what the library fills, with the arguments of callbacks: usual names, of which a language
# may have others where its own words are better.
OPTIONS = {name: camel(name[len("weir_"):]) for name in (
    "weir_runtime_options", "weir_model_options", "weir_tokenize_options", "weir_chat_options", "weir_session_options",
    "weir_sampling_options", "weir_generate_options", "weir_prompt_options")}
OPTIONS["weir_chat_message"] = "Message"
RECORDS = {name: camel(name[len("weir_"):]) for name in (
    "weir_memory_counters", "weir_device_info", "weir_model_info", "weir_tensor_info", "weir_token_info",
    "weir_special_tokens", "weir_chat_info", "weir_memory_info", "weir_page_state", "weir_logprob", "weir_token_event",
    "weir_generate_result", "weir_event", "weir_prompt_report", "weir_span")}
RECORDS.update({"weir_progress_info": "Progress", "weir_log_info": "LogLine", "weir_plan_info": "Plan",
                "weir_session_stats": "Stats"})
# What only the code of a safe layer sees.
PLAIN = {"weir_key_value", "weir_alloc_info", "weir_token_bias", "weir_text", "weir_mask_info", "weir_write_info",
         "weir_read_info"}


def check_structs(api: Api) -> None:
    """Each struct has its place in these tables."""
    named, there = {*OPTIONS, *RECORDS, *PLAIN}, {struct.name for struct in api.structs}
    if named != there:
        raise HeaderError("put into RECORDS, OPTIONS or PLAIN of bindings/headers.py, or take from them: "
                          + ", ".join(sorted(named ^ there)))


def is_left_out(field: Field) -> bool:
    """It says nothing to the users of a binding."""
    return field.name == "struct_size" or field.name.startswith("reserved")


def length_of(struct: Struct, field: Field) -> Optional[str]:
    """The field with the length of a text or list, or None: it ends with NUL, or is neither."""
    names = {other.name for other in struct.fields} if field.type.depth else set()
    return next((name for name in (f"{field.name}_bytes", f"n_{field.name}") if name in names), None)


# ------------------------------------------------------------------------------------------------------------- programs

# Comments of the languages by the endings of their files, strings too: what looks like a comment in one is none.
STRING = r'"(?:\\.|[^"\\\n])*"'
SLASHES = re.compile(rf"{STRING}|//[^\n]*|/\*.*?\*/", re.S)
HASHES = re.compile(rf'"""(?:.*?)"""|{STRING}|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*', re.S)


def without_comments(text: str, suffix: str) -> str:
    """A source of a language, without its comments and the lines that they leave empty."""
    pattern = HASHES if suffix in (".py", ".pyi") else SLASHES
    code = pattern.sub(lambda m: " " if m.group().startswith(("//", "/*", "#", '"""')) else m.group(), text)
    return "\n".join(line.rstrip() for line in code.splitlines() if line.strip())


def unchanged(text: str, suffix: str) -> str:
    return text


def emit_main(files: _Callable[[Api], Dict[str, str]], folder: Union[str, pathlib.Path]) -> None:
    """The main program of a generator. `files` gives the text of each generated file by its path in `folder`.

    generate.py                    writes them
    generate.py --check            compares them with those that are there; a difference is printed, exit status 1.
                                   One of comments alone is none, unless --strict is there, too
    generate.py --headers FOLDER   reads other headers, with --check as well"""
    arguments = [argument for argument in sys.argv[1:] if argument != "--strict"]
    compared = unchanged if "--strict" in sys.argv else without_comments
    headers_folder = FOLDER
    if "--headers" in arguments:
        at = arguments.index("--headers")
        headers_folder = pathlib.Path(arguments[at + 1])
        del arguments[at:at + 2]
    if arguments not in ([], ["--check"]):
        print((emit_main.__doc__ or "").strip(), file=sys.stderr)
        sys.exit(2)
    status = 0
    api = read(headers_folder)
    check_structs(api)
    for name, text in files(api).items():
        path = pathlib.Path(folder) / name
        if not arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            continue
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if compared(old, path.suffix) != compared(text, path.suffix):
            status = 1
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), str(path),
                                                       "what the generator writes", n=1))
    sys.exit(status)


