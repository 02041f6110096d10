#!/usr/bin/env python3
"""Writes src/Native.g.cs and src/Data.g.cs from the public headers; `--check` compares them (headers.emit_main).

Native.g.cs   the C functions (LibraryImport for .NET 8, else DllImport), structs, types of callbacks, constants
Data.g.cs     what needs no decisions in C#'s own types: enums, classes of what the library fills, and classes of
              options with their conversion to structs
The documentation of fields and values is that of the headers.
"""
import pathlib
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True
import headers  # noqa: E402

SCALARS = {"char": "byte", "int8_t": "sbyte", "uint8_t": "byte", "int16_t": "short", "uint16_t": "ushort",
           "int32_t": "int", "uint32_t": "uint", "int64_t": "long", "uint64_t": "ulong", "float": "float",
           "double": "double"}
KEYWORDS = {"out", "event", "params", "base", "ref", "in", "is", "as", "object", "string", "lock", "fixed", "operator",
            "checked", "default", "internal", "null", "this", "new"}

# What the library fills, and the callbacks' arguments: the names of their classes.
RECORDS = {"weir_progress_info": "Progress", "weir_log_info": "LogLine", "weir_memory_counters": "MemoryCounters",
           "weir_device_info": "DeviceInfo", "weir_model_info": "ModelInfo", "weir_tensor_info": "TensorInfo",
           "weir_token_info": "TokenInfo", "weir_special_tokens": "SpecialTokens", "weir_chat_info": "ChatInfo",
           "weir_plan_info": "Plan", "weir_memory_info": "MemoryInfo", "weir_session_stats": "Stats",
           "weir_page_state": "PageState", "weir_logprob": "TokenLogprob", "weir_token_event": "TokenEvent",
           "weir_generate_result": "GenerateResult", "weir_event": "Event", "weir_prompt_report": "PromptReport",
           "weir_span": "Span"}
# What the caller fills.
OPTIONS = {"weir_runtime_options": "RuntimeOptions", "weir_model_options": "ModelOptions",
           "weir_tokenize_options": "TokenizeOptions", "weir_chat_message": "Message",
           "weir_chat_options": "ChatOptions", "weir_session_options": "SessionOptions",
           "weir_sampling_options": "SamplingOptions", "weir_generate_options": "GenerateOptions",
           "weir_prompt_options": "PromptOptions"}
# Structs that only the code of the safe layer sees.
PLAIN = {"weir_key_value", "weir_alloc_info", "weir_token_bias", "weir_text", "weir_mask_info", "weir_write_info",
         "weir_read_info"}
# Callbacks in options: their type, and where what is passed to them goes. Hooks for memory are pointers, for those
# whose memory comes from native code.
CALLBACKS = {"weir_progress_fn": ("Func<Progress, bool>", "Progress", "progress_user"),
             "weir_log_fn": ("Action<LogLine>", "Log", "log_user"),
             "weir_token_fn": ("Func<TokenEvent, bool>", "Token", "user")}

NATIVE_HEAD = """// The C functions and structs of libweir.
// Longer than 600 lines because generate.py writes it from include/weir.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Weir
{
    internal static unsafe partial class Native
    {"""
DATA_HEAD = """// Enums, results and options. Longer than 600 lines because generate.py writes it from include/weir.
using System;
using System.Collections.Generic;

namespace Weir
{"""


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


def class_of_enum(enum):
    name = enum.name[len("weir_"):]
    if name == "status_code":
        return "Status"
    if name.endswith("_ability_bits"):
        return camel(name[:-len("_ability_bits")]) + "Abilities"
    return camel(name[:-len("_flag_bits")]) + "Flags" if enum.is_bits else camel(name)


def property_of(name):
    """n_tokens is TokenCount."""
    if not name.startswith("n_"):
        return camel(name)
    return camel(name[2:-1] if name.endswith("s") else name[2:]) + "Count"


def identifier(name):
    return "@" + name if name in KEYWORDS else name


def summary(text, indent):
    """A comment of the language's own form."""
    text = headers.plain(text.split("@since")[0]).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    lines = textwrap.wrap(f"<summary>{text}</summary>", 116 - len(indent), break_on_hyphens=False)
    return [f"{indent}/// {line}" for line in lines] if text else []


# --------------------------------------------------------------------------------------------------------------- native

def native_type(api, type_):
    """Handles and functions are IntPtr; texts are bytes."""
    kind = api.kind(type_.base)
    if kind in ("callback", "function"):
        return "IntPtr" + "*" * type_.depth
    if kind == "opaque":
        return "IntPtr" + "*" * (type_.depth - 1)
    if kind == "alias":
        return SCALARS[api.find(type_.base).target.base] + "*" * type_.depth
    return SCALARS.get(type_.base, type_.base) + "*" * type_.depth


def arguments_of(api, function):
    return [f"{'IntPtr' if native_type(api, p.type) == 'void*' else native_type(api, p.type)} {identifier(p.name)}"
            for p in function.parameters]


def wrapped(text, indent):
    return textwrap.wrap(text, 120, initial_indent=indent, subsequent_indent=indent + "    ", break_on_hyphens=False)


def native(api):
    deep = " " * 8
    out = [NATIVE_HEAD]
    for constant in api.constants:
        type_ = {int: "uint", float: "float", str: "string"}[type(constant.value)]
        value = f'"{constant.value}"' if type_ == "string" else f"{constant.value}"
        out.append(f"{deep}internal const {type_} {constant.name} = {value};")
    out += [f"{deep}internal const int {value.name} = {value.value};" for value in
            api.find("weir_status_code").values]
    for callback in api.callbacks:
        if callback.name == "weir_function":
            continue
        text = f"internal delegate int {callback.name}({', '.join(arguments_of(api, callback))});"
        out += ["", f"{deep}[UnmanagedFunctionPointer(CallingConvention.Cdecl)]"] + wrapped(text, deep)
    for struct in api.structs:
        out += ["", f"{deep}[StructLayout(LayoutKind.Sequential)]", f"{deep}internal struct {struct.name}", f"{deep}{{"]
        for field in struct.fields:
            type_, name = native_type(api, field.type), identifier(field.name)
            out.append(f"{deep}    internal fixed {type_} {name}[{field.array}];" if field.array is not None else
                       f"{deep}    internal {type_} {name};")
        out.append(f"{deep}}}")
    declarations = [(native_type(api, f.returns), f.name, ", ".join(arguments_of(api, f))) for f in api.functions]
    out += ["", "#if NET8_0_OR_GREATER", f'{deep}internal const string Name = "weir";']
    for returns, name, arguments in declarations:
        out += [f"{deep}[LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] {{ typeof(CallConvCdecl) }})]"]
        out += wrapped(f"internal static partial {returns} {name}({arguments});", deep)
    soname = f"libweir.so.{api.version[0]}"
    out += ["#else", f'{deep}internal const string Name = "{soname}";']
    for returns, name, arguments in declarations:
        out += [f"{deep}[DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]"]
        out += wrapped(f"internal static extern {returns} {name}({arguments});", deep)
    return "\n".join(out + ["#endif", "    }", "}", ""])


# ----------------------------------------------------------------------------------------------------------------- data

def enum_lines(enum):
    base = "uint" if enum.is_bits else "int"
    out = [""] + summary(enum.doc.text or f"Values of enum {enum.name}.", "    ")
    out += ["    [Flags]"] * enum.is_bits + [f"    public enum {class_of_enum(enum)} : {base}", "    {"]
    if enum.is_bits:
        out += ["        /// <summary>None of them.</summary>", "        None = 0,"]
    for value in enum.values:
        short = value.short[4:] if value.short.startswith("ERR_") else value.short
        out += summary(value.doc.text or value.name, " " * 8) + [f"        {camel(short)} = {value.value},"]
    return out + ["    }"]


def is_left_out(field):
    return field.name == "struct_size" or field.name.startswith("reserved")


def length_of(fields, i):
    """The field that holds the length of text number i, or None: the one behind it."""
    if i + 1 < len(fields) and fields[i + 1].name in (f"{fields[i].name}_bytes", "bytes", "n_bytes"):
        return fields[i + 1].name
    return None


def record_lines(api, struct, name):
    entries, skip = [], set()
    for i, field in enumerate(struct.fields):
        if is_left_out(field) or field.name in skip:
            continue
        type_, enum, read, public = field.type, api.enum_of(field), f"s->{field.name}", property_of(field.name)
        if type_.base == "char" and type_.depth == 1:
            length, made = length_of(struct.fields, i), "string"
            if length:
                skip.add(length)
                made = "byte[]" if field.name == "bytes" else "string"
                read = f"Utf8.{'Bytes' if made == 'byte[]' else 'Of'}({read}, s->{length})"
            else:
                read = f"Utf8.Of({read})"
        elif type_.base == "char":
            made, read = "string", f"Utf8.Of({read})"
        elif field.array is not None:
            made = f"IReadOnlyList<{SCALARS[type_.base]}>"
            read = "new[] { " + ", ".join(f"s->{field.name}[{n}]" for n in range(field.array)) + " }"
        elif type_.depth:
            of = RECORDS[type_.base]
            skip.add(f"n_{field.name}")
            made, read = f"IReadOnlyList<{of}>", f"Weir.{of}.ListOf({read}, s->n_{field.name})"
        elif enum:
            made = class_of_enum(enum)
            read = f"({made}){read}"
        elif field.name.startswith("is_"):
            made, read = "bool", f"{read} != 0"
        else:
            made = native_type(api, type_)
        entries.append((field, public, made, read))
    entries = [entry for entry in entries if entry[0].name not in skip]
    out = [""] + summary(struct.doc.text, "    ") + [f"    public sealed unsafe class {name}", "    {"]
    for field, public, made, _ in entries:
        out += summary(field.doc.text, " " * 8) + [f"        public {made} {public} {{ get; }}"]
    out += ["", f"        internal {name}(Native.{struct.name}* s)", "        {"]
    out += [f"            {public} = {read};" for _, public, _, read in entries]
    out += ["        }"]
    if not struct.has_size or name == "DeviceInfo":
        out += ["", f"        internal static {name}[] ListOf(Native.{struct.name}* s, ulong n)", "        {",
                "            if (n == 0)", f"                return Array.Empty<{name}>();",
                f"            var all = new {name}[n];", "            for (ulong i = 0; i < n; i++)",
                f"                all[i] = new {name}(s + i);", "            return all;", "        }"]
    return out + ["    }"]


def option_entry(api, field, i, fields):
    """(type, statement that fills the struct `s`) of an option."""
    type_, enum, name = field.type, api.enum_of(field), field.name
    public, kind = property_of(name), api.kind(type_.base)
    if kind == "callback":
        if type_.base not in CALLBACKS:
            return "IntPtr", f"s->{name} = {public};"
        made, method, user = CALLBACKS[type_.base]
        return made, f"s->{name} = a.{method}({public}, out s->{user});"
    if kind == "void":
        return "IntPtr", f"s->{name} = (void*){public};"
    if type_.base == "char":
        length = length_of(fields, i)
        if length:
            return "string", f"s->{name} = a.Sized({public}, out s->{length});"
        return "string", f's->{name} = a.Text("{public}", {public});'
    if type_.base == "weir_key_value":
        return "IDictionary<string, string>", f"s->{name} = a.KeyValues({public}, out s->n_{name});"
    if type_.base == "weir_text":
        return "IList<string>", f"s->{name} = a.Texts({public}, out s->n_{name});"
    if type_.base == "weir_token_bias":
        return "IDictionary<int, float>", f"s->{name} = a.Biases({public}, out s->n_{name});"
    if kind == "struct":
        return OPTIONS[type_.base], f"s->{name} = {public} == null ? null : {public}.ToNative(a);"
    if enum:
        return class_of_enum(enum), f"s->{name} = ({SCALARS[type_.base]}){public};"
    return native_type(api, type_), f"s->{name} = {public};"


def option_lines(api, struct, name):
    fields = struct.fields
    lengths = {length_of(fields, i) for i in range(len(fields)) if fields[i].type.base == "char"}
    lists = {f"n_{field.name}" for field in fields if field.type.depth}
    users = {user for _, _, user in CALLBACKS.values()}
    out = [""] + summary(struct.doc.text, "    ") + [f"    public sealed unsafe partial class {name}", "    {"]
    fills = ["s->struct_size = (uint)sizeof(Native.%s);" % struct.name] if struct.has_size else []
    for i, field in enumerate(fields):
        if field.name == "message_bytes":
            fills.append("s->message_bytes = (uint)sizeof(Native.weir_chat_message);")
        if is_left_out(field) or field.name in lengths | lists | users | {"message_bytes"}:
            continue
        made, fill = option_entry(api, field, i, fields)
        out += summary(field.doc.text, " " * 8) + [f"        public {made} {property_of(field.name)} {{ get; set; }}"]
        fills.append(fill)
    out += ["", f"        internal Native.{struct.name}* ToNative(Arena a)", "        {",
            f"            var s = (Native.{struct.name}*)a.New(sizeof(Native.{struct.name}));",
            "            Fill(a, s);", "            return s;", "        }", "",
            f"        internal void Fill(Arena a, Native.{struct.name}* s)", "        {"]
    return out + ["            " + fill for fill in fills] + ["        }", "    }"]


def data(api):
    for struct in api.structs:
        if struct.name not in RECORDS.keys() | OPTIONS.keys() | PLAIN:
            raise SystemExit(f"generate.py: {struct.name} is new: name it in RECORDS, OPTIONS or PLAIN")
    out = [DATA_HEAD]
    for enum in api.enums:
        out += enum_lines(enum)
    for struct in api.structs:
        if struct.name in RECORDS:
            out += record_lines(api, struct, RECORDS[struct.name])
        elif struct.name in OPTIONS:
            out += option_lines(api, struct, OPTIONS[struct.name])
    out[1:2] = out[1:2] if out[1] else []
    return "\n".join(out + ["}", ""])


if __name__ == "__main__":
    headers.emit_main(lambda api: {"src/Native.g.cs": native(api), "src/Data.g.cs": data(api)}, HERE)
