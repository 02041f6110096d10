#!/usr/bin/env python3
"""Reads the public headers and writes two files; for the arguments see headers.emit_main.

 - weir-sys/src/bindings.rs: constants, types and functions with their documentation
 - weir/src/generated.rs: enums, options, results and simple methods of the safe layer, see generate_safe.py
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import headers  # noqa: E402
import generate_safe  # noqa: E402

SCALARS = {"char": "c_char", "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16", "int32_t": "i32",
           "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64", "float": "f32", "double": "f64", "void": "c_void"}
KEYWORDS = {"type", "match", "ref", "move", "in", "fn", "mod", "use", "self", "where", "loop", "box", "final"}
WIDTH = 120


def name_of(name):
    return f"r#{name}" if name in KEYWORDS else name


def type_of(type_):
    """A type in Rust. The first `const` is that of what the innermost pointer points to."""
    text = SCALARS.get(type_.base, type_.base)
    is_const = type_.is_const
    for pointer_is_const in type_.pointers:
        text = f"*{'const' if is_const else 'mut'} {text}"
        is_const = pointer_is_const
    return text


def result_of(function):
    return "" if str(function.returns) == "void" else f" -> {type_of(function.returns)}"


# -------------------------------------------------------------------------------------------------------- documentation

KNOWN = set()  # names that a comment may link to


def marked(name, path=""):
    """A name in a comment as code, and as a link if there is such a thing."""
    if name not in KNOWN:
        return f"`{name}`"
    return f"[`{name}`]({path}{name})" if path else f"[`{name}`]"


def escaped(text, path=""):
    """For rustdoc: names are code, and what is no link and no tag does not look like one."""
    parts = re.split(r"(`[^`]*`|\b(?:[A-Za-z][A-Za-z0-9]*_\w+(?:\.\w+)*|WEIR_[A-Z_]*)\*?)", headers.plain(text))
    return "".join(re.sub(r"([\[\]<>*\\])", r"\\\1", part) if i % 2 == 0 else
                   part if part[0] == "`" else marked(part, path) for i, part in enumerate(parts))


def wrapped(text, indent, first="", rest=""):
    """Lines of a doc comment; a piece between backquotes is not cut."""
    room = WIDTH - len(indent) - len("/// ")
    lines, line = [], first
    for word in re.findall(r"[^\s`]*`[^`]*`\S*|\S+", text):
        if len(line) + 1 + len(word) > room and line.strip():
            lines.append(line)
            line = rest
        line = line + word if line in (first, rest) and not line.strip(" -") else f"{line} {word}"
    lines.append(line)
    return [f"{indent}/// {line}".rstrip() for line in lines]


def paragraphs(text, indent, path=""):
    lines = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        for part in re.split(r"\n(?= - )", paragraph):
            if lines and not part.startswith(" - "):
                lines.append(f"{indent}///")
            is_item = part.lstrip().startswith("- ")
            lines += wrapped(escaped(part.strip()[2:] if is_item else part, path), indent,
                             *(["- ", "  "] if is_item else []))
    return lines


def short_doc(entry, indent):
    if not entry.doc.text:
        return [f"{indent}/// `{entry.name}`."]
    return paragraphs(entry.doc.text + (f" Since {entry.doc.since}." if entry.doc.since else ""), indent)


def type_doc(entry, indent=""):
    return paragraphs(entry.doc.body or f"`{entry.name}`.", indent)


def function_doc(function):
    indent = "    "
    lines = paragraphs(function.doc.body, indent)
    documented = [parameter for parameter in function.parameters if parameter.doc]
    if documented:
        lines += [f"{indent}///", f"{indent}/// # Parameters", f"{indent}///"]
        for parameter in documented:
            lines += wrapped(f"`{parameter.name}`: {escaped(parameter.doc)}", indent, "- ", "  ")
    lines += [f"{indent}///", f"{indent}/// # Returns", f"{indent}///", f"{indent}/// ```text"]
    lines += [f"{indent}/// {line}".rstrip() for line in re.sub(r"@(?:p|ref) ", "", function.doc.returns).splitlines()]
    lines += [f"{indent}/// ```", f"{indent}///", f"{indent}/// # Safety", f"{indent}///"]
    lines += wrapped(f"Threads: {escaped(function.doc.threads)}. Ownership: {escaped(function.doc.owner)}. "
                     f"Since {function.doc.since}.", indent)
    return lines


# --------------------------------------------------------------------------------------------------------- declarations

def constants(api):
    lines = ["constants! {"]
    for constant in api.constants:
        if not isinstance(constant.value, int):
            raise headers.HeaderError(f"{constant.name} is no whole number, which `constants!` is for")
        lines += short_doc(constant, "    ") + [f"    {constant.name}: u32 = {constant.value};"]
    return lines + ["}"]


def enums(api):
    lines = ["", "enumerations! {"]
    for enum in api.enums:
        kind = "u32" if enum.is_bits else "i32"
        lines += type_doc(enum, "    ") + [f"    {enum.name}: {kind} {{"]
        for value in enum.values:
            lines += short_doc(value, "        ")
            lines += [f"        {value.name} as {value.short} = {value.value};"]
        lines += ["    }", ""]
    return lines[:-1] + ["}"]


def signature(function):
    return ", ".join(f"{name_of(p.name)}: {type_of(p.type)}" for p in function.parameters)


def types(api):
    lines = []
    for alias in api.aliases:
        lines += [""] + type_doc(alias) + [f"pub type {alias.name} = {type_of(alias.target)};"]
    for opaque in api.opaques:
        lines += [""] + type_doc(opaque) + ["#[repr(C)]", f"pub struct {opaque.name} {{", "    _opaque: Opaque,", "}"]
    for callback in api.callbacks:
        lines += [""] + type_doc(callback)
        lines += [f"pub type {callback.name} =",
                  f"    Option<unsafe extern \"C\" fn({signature(callback)}){result_of(callback)}>;"]
    lines += ["", "structures! {"]
    for struct in api.structs:
        lines += type_doc(struct, "    ") + [f"    {struct.name}{' with struct_size' if struct.has_size else ''} {{"]
        for field in struct.fields:
            lines += short_doc(field, "        ")
            kind = type_of(field.type)
            lines += [f"        {name_of(field.name)}: {kind if field.array is None else f'[{kind}; {field.array}]'},"]
        lines += ["    }", ""]
    return lines[:-1] + ["}"]


def functions(api):
    lines = ["", "functions! {"]
    for function in api.functions:
        head = f"    fn {function.name}("
        line = f"{head}{signature(function)}){result_of(function)};"
        if len(line) > WIDTH:
            arguments = [f"        {name_of(p.name)}: {type_of(p.type)}," for p in function.parameters]
            arguments[-1] = arguments[-1][:-1]
            line = "\n".join([head] + arguments + [f"    ){result_of(function)};"])
        lines += function_doc(function) + line.split("\n") + [""]
    return lines[:-1] + ["}"]


def bindings(api):
    return "\n".join(["// Written by generate.py from include/weir/*.h; not to be edited.",
                      "// Longer than 600 lines because it has the headers' documentation.",
                      ""] + constants(api) + enums(api) + types(api) +
                     functions(api)) + "\n"


def files(api):
    for entry in api.functions + api.structs + api.opaques + api.enums + api.callbacks + api.aliases + api.constants:
        KNOWN.add(entry.name)
    KNOWN.update(value.name for enum in api.enums for value in enum.values)
    return {"weir/src/generated.rs": generate_safe.generated(api, sys.modules[__name__]),
            "weir-sys/src/bindings.rs": bindings(api)}


if __name__ == "__main__":
    headers.emit_main(files, pathlib.Path(__file__).resolve().parent)
