#!/usr/bin/env python3
"""Writes src/*.g.cs from the public headers; `--check` compares them (headers.emit_main).

Native.g.cs   the C functions (LibraryImport for .NET 8, else DllImport), structs, types of callbacks, constants
Methods.g.cs  methods of objects whose arguments are of a known pattern
Data.g.cs     what needs no decisions in C#'s own types: enums, classes of what the library fills, and classes of
              options with their conversion to structs
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
from headers import OPTIONS, camel, class_of_enum, is_left_out, length_of  # noqa: E402

SCALARS = {"char": "byte", "int8_t": "sbyte", "uint8_t": "byte", "int16_t": "short", "uint16_t": "ushort",
           "int32_t": "int", "uint32_t": "uint", "int64_t": "long", "uint64_t": "ulong", "float": "float",
           "double": "double"}
KEYWORDS = {"out", "event", "params", "base", "ref", "in", "is", "as", "object", "string", "lock", "fixed", "operator",
            "checked", "default", "internal", "null", "this", "new"}

RECORDS = {**headers.RECORDS, "weir_logprob": "TokenLogprob"}
# Callbacks in options: their type, and where what is passed to them goes. Hooks for memory are pointers, for those
# whose memory comes from native code.
CALLBACKS = {"weir_progress_fn": ("Func<Progress, bool>", "Progress", "progress_user"),
             "weir_log_fn": ("Action<LogLine>", "Log", "log_user"),
             "weir_token_fn": ("Func<TokenEvent, bool>", "Token", "user")}
# Callbacks that are streams.
STREAMS = {"weir_write_fn": "WriteEntry", "weir_read_fn": "ReadEntry"}
CREATORS = {"Cancel": ["weir_cancel_create"], "Runtime": ["weir_runtime_create"], "Model": ["weir_model_open"],
            "Detokenizer": ["weir_detokenizer_create"], "Constraint": ["weir_constraint_create"],
            "Session": ["weir_session_create", "weir_session_fork"]}
DESTROY = {"Cancel": "weir_cancel_release", "Runtime": "weir_runtime_destroy", "Model": "weir_model_close",
           "Detokenizer": "weir_detokenizer_destroy", "Constraint": "weir_constraint_destroy",
           "Session": "weir_session_destroy"}
METHODS = {
    "Cancel": {"Set": "weir_cancel_set", "Clear": "weir_cancel_clear"},
    "Runtime": {"Memory": "weir_runtime_memory", "ThreadCount": "weir_runtime_thread_count",
                "CpuTarget": "weir_runtime_cpu_target", "Devices": "weir_runtime_devices",
                "Render": "weir_template_render"},
    "Model": {"Info": "weir_model_get_info", "ChatInfo": "weir_model_chat_info",
              "SpecialTokens": "weir_model_special_tokens", "Tensor": "weir_model_tensor_info",
              "Token": "weir_token_get_info", "Tokenize": "weir_tokenize_with", "Detokenize": "weir_detokenize",
              "ChatTokenize": "weir_chat_tokenize", "ChatRender": "weir_chat_render_with", "Plan": "weir_plan"},
    "Detokenizer": {"Push": "weir_detokenizer_push", "Flush": "weir_detokenizer_flush"},
    "Constraint": {},
    "Session": {"Reset": "weir_session_reset", "PromptTokens": "weir_session_prompt_tokens",
                "Prefill": "weir_session_prefill", "Rewind": "weir_session_rewind", "Step": "weir_session_step",
                "SetSampling": "weir_session_set_sampling", "SetConstraint": "weir_session_set_constraint",
                "Sample": "weir_session_sample", "Generate": "weir_session_generate", "Begin": "weir_session_begin",
                "Next": "weir_session_next", "Tokens": "weir_session_tokens", "Logits": "weir_session_logits",
                "Cancel": "weir_session_cancel", "ClearCancel": "weir_session_clear_cancel",
                "FinishThinking": "weir_session_finish_thinking", "Stats": "weir_session_get_stats",
                "Memory": "weir_session_memory", "SetCancel": "weir_session_set_cancel", "Pin": "weir_session_pin",
                "Unpin": "weir_session_unpin", "Pages": "weir_session_pages",
                "Save": "weir_session_save", "Restore": "weir_session_restore"}}
ANY_THREAD = {"Cancel", "ClearCancel", "FinishThinking", "Stats", "Memory"}
STOPPABLE = {"PromptTokens", "Prefill", "Generate"}

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


def property_of(name):
    """n_tokens is TokenCount."""
    if not name.startswith("n_"):
        return camel(name)
    return camel(name[2:-1] if name.endswith("s") else name[2:]) + "Count"


def identifier(name):
    return "@" + name if name in KEYWORDS else name


def summary(text, indent, is_copy=False):
    """A comment of the language's own form."""
    text = headers.of_values(text, "null", is_copy)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
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
    out = [""] + summary(enum.doc.body or f"Values of enum {enum.name}.", "    ")
    out += ["    [Flags]"] * enum.is_bits + [f"    public enum {class_of_enum(enum.name)} : {base}", "    {"]
    if enum.is_bits:
        out += ["        /// <summary>None of them.</summary>", "        None = 0,"]
    for value in enum.values:
        out += summary(value.doc.body or value.name, " " * 8) + [f"        {camel(value.short)} = {value.value},"]
    return out + ["    }"]


def record_lines(api, struct, name):
    entries, skip = [], set()
    for field in struct.fields:
        if is_left_out(field) or field.name in skip:
            continue
        type_, enum, read, public = field.type, api.enum_of(field), f"s->{field.name}", property_of(field.name)
        if type_.base == "char" and type_.depth == 1:
            length, made = length_of(struct, field), "string"
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
            made = class_of_enum(enum.name)
            read = f"({made}){read}"
        elif field.name.startswith("is_"):
            made, read = "bool", f"{read} != 0"
        else:
            made = native_type(api, type_)
        entries.append((field, public, made, read))
    entries = [entry for entry in entries if entry[0].name not in skip]
    out = [""] + summary(struct.doc.body, "    ", True) + [f"    public sealed unsafe class {name}", "    {"]
    for field, public, made, _ in entries:
        out += summary(field.doc.body, " " * 8, True) + [f"        public {made} {public} {{ get; }}"]
    out += ["", f"        internal {name}(Native.{struct.name}* s)", "        {"]
    out += [f"            {public} = {read};" for _, public, _, read in entries]
    out += ["        }"]
    if not struct.has_size or name == "DeviceInfo":
        out += ["", f"        internal static {name}[] ListOf(Native.{struct.name}* s, ulong n)", "        {",
                "            if (n == 0)", f"                return Array.Empty<{name}>();",
                f"            var all = new {name}[n];", "            for (ulong i = 0; i < n; i++)",
                f"                all[i] = new {name}(s + i);", "            return all;", "        }"]
    return out + ["    }"]


def option_entry(api, struct, field):
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
        length = length_of(struct, field)
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
        return class_of_enum(enum.name), f"s->{name} = ({SCALARS[type_.base]}){public};"
    return native_type(api, type_), f"s->{name} = {public};"


def option_lines(api, struct, name):
    fields = struct.fields
    lengths = {length_of(struct, field) for field in fields}
    users = {user for _, _, user in CALLBACKS.values()}
    out = [""] + summary(struct.doc.body, "    ") + [f"    public sealed unsafe partial class {name}", "    {"]
    fills = ["s->struct_size = (uint)sizeof(Native.%s);" % struct.name] if struct.has_size else []
    for field in fields:
        if field.name == "message_bytes":
            fills.append("s->message_bytes = (uint)sizeof(Native.weir_chat_message);")
        if is_left_out(field) or field.name in lengths | users | {"message_bytes"}:
            continue
        made, fill = option_entry(api, struct, field)
        out += summary(field.doc.body, " " * 8) + [f"        public {made} {property_of(field.name)} {{ get; set; }}"]
        fills.append(fill)
    out += ["", f"        internal Native.{struct.name}* ToNative(Arena a)", "        {",
            f"            var s = (Native.{struct.name}*)a.New(sizeof(Native.{struct.name}));",
            "            Fill(a, s);", "            return s;", "        }", "",
            f"        internal void Fill(Arena a, Native.{struct.name}* s)", "        {"]
    return out + ["            " + fill for fill in fills] + ["        }", "    }"]


def data(api):
    out = []
    for enum in api.enums:
        out += enum_lines(enum)
    for struct in api.structs:
        if struct.name in RECORDS:
            out += record_lines(api, struct, RECORDS[struct.name])
        elif struct.name in OPTIONS:
            out += option_lines(api, struct, OPTIONS[struct.name])
    return "\n".join([DATA_HEAD, *out[1:], "}", ""])


# -------------------------------------------------------------------------------------------------------------- methods

def local(name):
    """content_bytes is contentBytes."""
    return identifier(camel(name, is_type=False))


def arguments(api, function, is_stoppable, first=1):
    """(parameters of C#, statements that come first, arguments for C, what is left: the results)."""
    public, setup, given, rest = [], [], [], list(function.parameters[first:])
    while rest:
        p, base, name = rest[0], rest[0].type.base, local(rest[0].name)
        kind, enum = api.kind(base), api.enum_of(rest[0])
        n = 2
        if kind == "struct" and base in OPTIONS and base != "weir_chat_message" and p.type.is_const:
            of = OPTIONS[base]
            public.append(f"{of} {name} = null")
            setup.append(f"Native.{base}* given = ({name} ?? new {of}()).ToNative(a);")
            given, n = given + ["given"], 1
        elif base == "weir_chat_message" and p.type.is_const:
            public.append(f"IReadOnlyList<Message> {name}")
            setup.append(f"Native.weir_chat_message* all = Message.ToNative({name}, a);")
            given += ["all", f"(ulong){name}.Count"]
        elif kind == "opaque" and p.type.depth == 1:
            public.append(f"{camel(base[len('weir_'):])} {name}")
            setup.append(f"IntPtr other = a.Hold({name});")
            given, n = given + ["other"], 1
        elif base in STREAMS:
            public.append("Stream stream")
            setup.append(f"IntPtr entry = a.Callback(stream, Callbacks.{STREAMS[base]}, out void* user);")
            given += ["entry", "(IntPtr)user"]
        elif kind == "callback":
            public.append(f"Func<Progress, bool> {name} = null")
            setup.append(f"IntPtr entry = a.Progress({name}, out void* user);")
            given += ["entry", "(IntPtr)user"]
        elif base == "char" and p.type.depth == 1 and p.type.is_const and rest[1].type.base != "uint64_t":
            public.append(f"string {name}")
            given, n = given + [f'a.Text("{name}", {name})'], 1
        elif base == "char" and p.type.depth == 1 and p.type.is_const:
            public.append(f"string {name}")
            setup.append(f"byte* {name}At = a.Sized({name}, out ulong {name}Bytes);")
            given += [f"{name}At", f"{name}Bytes"]
        elif base == "weir_token" and p.type.depth == 1 and p.type.is_const:
            public.append(f"int[] {name}")
            setup.append(f"int* {name}At = a.Tokens({name});")
            given += [f"{name}At", f"(ulong){name}.Length"]
        elif p.type.depth == 0:
            made = class_of_enum(enum.name) if enum else native_type(api, p.type)
            public.append(f"{made} {name}" + (" = 0" if name in ("flags", "unixTime", "segments") else ""))
            given, n = given + [f"({native_type(api, p.type)}){name}" if enum else name], 1
        else:
            break
        del rest[:n]
    if is_stoppable:
        public.append("CancellationToken token = default(CancellationToken)")
    return public, setup, given, rest


def method(api, function, name, is_alone, is_stoppable):
    public, setup, given, rest = arguments(api, function, is_stoppable)
    call = lambda more=(), first="use.Pointer": f"Native.{function.name}({', '.join([first] + given + list(more))})"
    check = lambda *more: f"{'stop' if is_stoppable else 'Library'}.Check({call(more)});"
    returns, before, body = "void", [], []
    if not rest and function.returns.base == "void":
        body = [call() + ";"]
    elif not rest and function.returns.base == "weir_status":
        body = [check()]
    elif not rest:
        returns = "string" if function.returns.base == "char" else native_type(api, function.returns)
        body = [f"return Utf8.Of({call()});" if returns == "string" else f"return {call()};"]
    elif len(rest) == 1 and rest[0].type.base in RECORDS:
        base = rest[0].type.base
        returns = RECORDS[base]
        before = [f"var info = new Native.{base} {{ struct_size = (uint)sizeof(Native.{base}) }};"]
        body = [check("&info"), f"return new {returns}(&info);"]
    elif len(rest) == 1 and rest[0].type.depth == 1:
        returns = native_type(api, rest[0].type)[:-1]
        before, body = [f"{returns} made = 0;"], [check("&made"), "return made;"]
    elif len(rest) == 2 and rest[0].type.base in ("weir_token", "float"):
        made = native_type(api, rest[0].type)[:-1]
        returns, before = f"{made[:-1]}[]", [f"{made} first = null;", "uint n = 0;"]
        body = [check("&first", "&n"), f"return Arrays.Copy<{made[:-1]}>(first, n);"]
    elif len(rest) == 2 and rest[0].type.base == "char" and rest[0].type.depth == 2:
        returns, before = "string", ["byte* text = null;", "ulong n = 0;"]
        body = [check("&text", "&n"), "return Utf8.Of(text, n);"]
    elif len(rest) == 3:
        made = native_type(api, rest[0].type)
        numbers = ["capacity", "n"] if rest[1].type.base == "uint64_t" else ["(uint)capacity", "(uint*)n"]
        of = f"(items, capacity, n) => {call([f'({made})items', *numbers], 'pointer')}"
        setup.append("IntPtr pointer = use.Pointer;")
        if rest[0].type.base in RECORDS:
            record = RECORDS[rest[0].type.base]
            returns = f"IReadOnlyList<{record}>"
            if api.find(rest[0].type.base).has_size:
                of = of.replace(f"({made})items", f"(Native.{made})Arrays.Sized(items, sizeof(Native.{made[:-1]}))")
            else:
                of = of.replace(f"({made})items", f"(Native.{made})items")
            body = [f"Native.{made[:-1]}[] found = Arrays.Of<Native.{made[:-1]}>(256, {of});",
                    f"fixed (Native.{made} first = found)", f"    return {record}.ListOf(first, (ulong)found.Length);"]
        elif made == "byte*" and function.name != "weir_detokenize":
            returns, body = "string", [f"return Arrays.Text(4096, {of});"]
        else:
            returns, body = f"{made[:-1]}[]", [f"return Arrays.Of<{made[:-1]}>(1024, {of});"]
    else:
        raise SystemExit(f"generate.py: {function.name} is of no known pattern")
    deep = " " * 8
    out = [""] + summary(function.doc.summary, deep)
    is_property = not public and returns != "void" and len(rest) < 2 and name not in ("Sample", "Next")
    out += [f"{deep}public {returns} {name}"] if is_property else \
        wrapped(f"public {returns} {name}({', '.join(public)})", deep)
    if is_property:
        out += [f"{deep}{{", f"{deep}    get"]
        deep += "    "
    out += [f"{deep}{{"] + [f"{deep}    {line}" for line in before]
    out.append(f"{deep}    using (Use use = {'EnterAlone' if is_alone else 'Enter'}())")
    if is_stoppable:
        out.append(f"{deep}    using (var stop = new Stop(this, token))")
    if any(re.search(r"\ba\b", line) for line in setup):
        out.append(f"{deep}    using (var a = new Arena())")
    out.append(f"{deep}    {{")
    for line in setup + body:
        out += wrapped(line, deep + "        ") if line[0] != " " else [deep + "        " + line]
    out += [f"{deep}    }}", f"{deep}}}"]
    return out + ([f"{deep[4:]}}}"] if is_property else [])


def creator(api, of, function):
    """What makes an object, for its constructor. Not inlined, see Library.Load."""
    parent = function.parameters[0].type if len(function.parameters) > 1 else None
    has_parent = parent is not None and api.kind(parent.base) == "opaque"
    public, setup, given, _ = arguments(api, function, False, int(has_parent))
    deep = " " * 12
    if has_parent:
        parent = camel(parent.base[len("weir_"):])
        public, given = [f"{parent} parent"] + public, ["use.Pointer"] + given
    out = ["        [MethodImpl(MethodImplOptions.NoInlining)]"] + \
        wrapped(f"private void Create({', '.join(public)})", " " * 8) + ["        {"]
    if has_parent:
        out.append(f"{deep}using (Use use = parent.{'EnterAlone' if parent == 'Session' else 'Enter'}())")
    out += [f"{deep}using (var a = new Arena())", f"{deep}{{"]
    for line in setup + ["IntPtr made = IntPtr.Zero;",
                         f"int status = Native.{function.name}({', '.join(given + ['&made'])});",
                         f"Take(status, new {of}Handle(made), a);"]:
        out += wrapped(line, deep + "    ")
    return out + [f"{deep}}}", "        }"]


def methods(api):
    out = ["// Simple methods of objects. Longer than 600 lines because generate.py writes it from include/weir.",
           "using System;", "using System.Collections.Generic;", "using System.IO;",
           "using System.Runtime.CompilerServices;",
           "using System.Runtime.InteropServices;",            "using System.Threading;", "", "namespace Weir", "{"]
    for name, destroy in DESTROY.items():
        out += [f"    internal sealed class {name}Handle : Handle", "    {",
                f"        internal {name}Handle(IntPtr pointer) : base(pointer) {{ }}",
                f"        protected override void Destroy(IntPtr pointer) => Native.{destroy}(pointer);", "    }", ""]
    out += ["    internal static unsafe partial class Callbacks", "    {",
            "        // The delegates must live as long as the pointers to them."]
    for callback in api.callbacks:
        name = camel(callback.name[len("weir_"):-len("_fn")])
        if callback.name not in CALLBACKS and name not in ("Mask", "Write", "Read"):
            continue
        out += [f"        private static readonly Native.{callback.name} the{name} = On{name};",
                f"        internal static readonly IntPtr {name}Entry =",
                f"            Marshal.GetFunctionPointerForDelegate(the{name});"]
        function = CALLBACKS.get(callback.name, [""])[0]
        if function.startswith("Func"):
            base = callback.parameters[1].type.base
            of = RECORDS[base]
            out += ["", f"        private static int On{name}(IntPtr user, Native.{base}* info)",
                    "        {", f"            try {{ return Stop((({function})Of(user))(new {of}(info))); }}",
                    "            catch (Exception thrown) { return Fail(thrown); }", "        }", ""]
    out += ["    }", ""]
    for of, entries in METHODS.items():
        out += [f"    public sealed unsafe partial class {of}", "    {"]
        lines = []
        for function in CREATORS[of]:
            lines += [""] + creator(api, of, api.find(function))
        for name, function in entries.items():
            is_alone = of in ("Session", "Detokenizer") and name not in ANY_THREAD
            lines += method(api, api.find(function), name, is_alone, name in STOPPABLE)
        out += lines[1:] + ["    }", ""]
    return "\n".join(out[:-1] + ["}", ""])


if __name__ == "__main__":
    headers.emit_main(lambda api: {"src/Native.g.cs": native(api), "src/Methods.g.cs": methods(api),
                                   "src/Data.g.cs": data(api)}, HERE)
