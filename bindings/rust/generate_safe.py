"""Writes weir/src/generated.rs, a part of the safe layer, from the headers:

 - names of enums and plain structs
 - options, with a setter for each number, text and flag; lists and callbacks are set in options.rs, by hand
 - views of structs with texts, with a method for each field, and copies (messages and events)
 - methods of handles whose arguments are of a known pattern, see `Method`; a pattern that is not known is an error
"""
import re

import headers

# The types of the safe layer, by what they are made of: names for those of weir-sys, views of structs whose texts are
# the library's, copies, and builders of options with the type of what of them is set by hand.
ENUMS = {"weir_" + name: headers.class_of_enum("weir_" + name) for name in (
    "status_code", "segment", "event_kind", "device_type", "device_kind", "memory_kind", "log_level", "constraint_kind",
    "token_flag_bits", "chat_ability_bits", "detokenize_flag_bits", "rewind_flag_bits")}
ENUMS["weir_stop_reason"] = "Stop"
PLAIN = {"weir_memory_info": "SessionMemory", "weir_memory_counters": "RuntimeMemory", "weir_token": "Token",
         "weir_logprob": "LogProb"}
PLAIN.update({name: headers.RECORDS[name] for name in (
    "weir_plan_info", "weir_session_stats", "weir_page_state", "weir_span", "weir_prompt_report",
    "weir_generate_result", "weir_special_tokens")})
VIEWS = {name: headers.RECORDS[name] for name in (
    "weir_model_info", "weir_tensor_info", "weir_token_info", "weir_chat_info", "weir_device_info", "weir_token_event")}
COPIES = {"weir_chat_message": "Message", "weir_event": "Event"}
OPTIONS = {name: (rust, "") for name, rust in headers.OPTIONS.items() if name not in COPIES}
OPTIONS["weir_runtime_options"] = ("RuntimeOptions", "Arc<Hooks>")
OPTIONS["weir_prompt_options"] = ("PromptOptions", "Option<Arc<ChatOptions>>")
# What is not zero before anything is set.
NOTES = {"weir_chat_options": "What is not set has its default, but an answer is opened: `add_assistant` is set."}
STARTS = {"weir_chat_options": "flags: sys::WEIR_CHAT_ADD_ASSISTANT, "
                               "message_bytes: size_of::<sys::weir_chat_message>() as u32, "}
# Set by hand, or by the library's own rules.
OPTIONS_BY_HAND = {"log_level", "message_bytes", "n_policy_options", "n_bias", "n_stop", "n_messages"}
# Flags without a setter: of experimental functions, and without effect.
NO_FLAGS = {"WEIR_SESSION_TRACE", "WEIR_CHAT_ACCEPT_RESEMBLING"}
FLAG_NAMES = {"WEIR_CHAT_CONTINUE": "continue_turn"}
# Numbers of which -1 is none; what says nothing.
OPTIONAL = {"token": "Token", "stop_index": "u32"}
SILENT = {"chat_resembles", "n_top"}

HANDLES = {"weir_runtime": "Runtime", "weir_model": "Model", "weir_session": "Session", "weir_cancel": "Cancel",
           "weir_detokenizer": "Detokenizer", "weir_constraint": "Constraint"}
# Handles that all threads share: what a handle keeps alive, and what ends it.
SHARED = {"weir_runtime": ("Arc<Hooks>", "weir_runtime_destroy"), "weir_model": ("Runtime", "weir_model_close"),
          "weir_constraint": ("Model", "weir_constraint_destroy"), "weir_cancel": ("()", "weir_cancel_release")}
METHODS = {
    "weir_runtime": ["weir_runtime_memory", "weir_runtime_thread_count", "weir_runtime_cpu_target",
                     "weir_runtime_devices", "weir_template_render", "weir_policy_name", "weir_preset_name",
                     "weir_weight_type_name"],
    "weir_cancel": ["weir_cancel_set", "weir_cancel_clear"],
    "weir_model": ["weir_model_get_info", "weir_model_tensor_info", "weir_model_metadata_count", "weir_tokenize_with",
                   "weir_detokenize", "weir_token_get_info", "weir_model_special_tokens", "weir_model_chat_info",
                   "weir_chat_tokenize", "weir_chat_render_with", "weir_plan", "weir_session_options_fit",
                   "weir_constraint_create"],
    "weir_detokenizer": ["weir_detokenizer_push", "weir_detokenizer_flush"],
    "weir_session": ["weir_session_reset", "weir_session_prefill", "weir_session_rewind", "weir_session_prompt_tokens",
                     "weir_session_step", "weir_session_logits", "weir_session_tokens", "weir_session_set_sampling",
                     "weir_session_sample", "weir_session_begin", "weir_session_next", "weir_session_finish_thinking",
                     "weir_session_pin", "weir_session_unpin", "weir_session_set_constraint", "weir_session_set_cancel",
                     "weir_session_pages", "weir_session_get_stats", "weir_session_memory"],
}
NAMES = {"weir_policy_name": "policies", "weir_preset_name": "presets", "weir_weight_type_name": "weight_types",
         "weir_model_tensor_info": "tensor", "weir_token_get_info": "token", "weir_model_get_info": "info",
         "weir_session_get_stats": "stats", "weir_tokenize_with": "tokenize", "weir_chat_render_with": "chat_render",
         "weir_template_render": "render_template", "weir_session_next": "next_event",
         "weir_session_begin": "begin_answer", "weir_session_options_fit": "fit",
         "weir_constraint_create": "constraint"}
# Functions that leave the session as it is, or may be called between its other calls.
READS = {"weir_session_logits", "weir_session_tokens", "weir_session_finish_thinking", "weir_session_pages"}
# What is a byte in the result, and not text.
BYTES = {"weir_detokenize"}
# How long a list may well be, for the first call.
GUESSES = {"weir_tokenize_with": "text.len() + 2", "weir_detokenize": "8 * tokens.len()"}


WIDTH = 120


def folded(line):
    """A line of code as several that are not too wide."""
    if len(line) <= WIDTH or line.lstrip().startswith("//"):
        return [line]
    indent = line[:len(line) - len(line.lstrip())]
    block = re.fullmatch(r"(.*?unsafe \{) ((?:(?!unsafe).)*) \}(\S*)", line)
    if block:
        return folded(block.group(1)) + folded(f"{indent}    {block.group(2)}") + [f"{indent}}}{block.group(3)}"]
    at = max(line.rfind(", ", 0, WIDTH) + 2, line.rfind(").map(", 0, WIDTH) + 1, line.rfind(").then(", 0, WIDTH) + 1)
    if at <= len(indent) + 4:
        return [line]
    return [line[:at].rstrip()] + folded(f"{indent}    {line[at:]}")


class Safe:
    def __init__(self, api, tools):
        self.api, self.tools, self.lines = api, tools, []

    def doc(self, entry, indent, note="", is_copy=False):
        """The first paragraph for functions and structs: all of it is in weir-sys."""
        text = headers.of_values(entry.doc.summary or entry.doc.body, "None", is_copy)
        has_more = isinstance(entry, headers.Function) or "\n\n" in entry.doc.body
        text = " ".join([text or f"`{entry.name}`.", *[note] * bool(note), *[f"See {entry.name}."] * has_more])
        self.lines += self.tools.paragraphs(text, indent, "sys::")

    # ------------------------------------------------------------------------------------------------------------ types

    def rust_type(self, type_, item=None):
        """The type of a number: an enum where the comment names one."""
        enum = self.api.enum_of(item) if item is not None else None
        if enum is not None and enum.name in ENUMS:
            return ENUMS[enum.name]
        return PLAIN.get(type_.base, self.tools.SCALARS.get(type_.base))

    def names(self):
        self.lines += ["#[doc(inline)]", "pub use weir_sys::{"]
        self.lines += [f"    {name} as {rust}," for name, rust in sorted({**ENUMS, **PLAIN}.items())] + ["};"]

    def fields(self, struct):
        """Fields that say something: name, field, kind. Kinds: number array text bytes list."""
        taken = set()
        for field in struct.fields:
            if field.name in taken or headers.is_left_out(field) or \
                    field.name in SILENT and not struct.name.endswith("_options"):
                continue
            count = headers.length_of(struct, field)
            if field.type.depth == 0:
                if self.api.kind(field.type.base) not in ("scalar", "alias"):
                    continue
                yield field, "array" if field.array and field.type.base == "char" else "number", None
            elif field.type.base == "char":
                taken.add(count)
                yield field, "text" if count is None else "bytes", count
            elif count is not None:
                taken.add(count)
                yield field, "list", count

    # ---------------------------------------------------------------------------------------------------------- options

    def options(self):
        for name, (rust, by_hand) in OPTIONS.items():
            struct = self.api.find(name)
            more = {"more": by_hand} if by_hand else {}
            if any(field.name == "progress" for field in struct.fields):
                more["progress"] = "Option<Progress>"
            lists = {field.name: count for field, kind, count in self.fields(struct) if kind == "list"}
            for field in struct.fields:
                if field.name in lists:
                    more[field.name] = f"Vec<sys::{field.type.base}>"
            self.lines.append("")
            self.doc(struct, "", NOTES.get(name, "What is not set has its default."))
            self.lines += ["#[derive(Clone)]", f"pub struct {rust} {{", f"    pub(crate) raw: sys::{name},",
                           "    pub(crate) texts: Texts,"]
            self.lines += [f"    pub(crate) {field}: {type_}," for field, type_ in more.items()] + ["}"]
            self.lines += ["// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.",
                           f"unsafe impl Send for {rust} {{}}", f"unsafe impl Sync for {rust} {{}}",
                           f"impl Default for {rust} {{", "    fn default() -> Self {",
                           f"        let raw = sys::{name} {{ {STARTS.get(name, '')}..Default::default() }};",
                           f"        {rust} {{ raw, texts: Texts::default(), "
                           f"{''.join(f'{field}: Default::default(), ' for field in more)}}}",
                           "    }", "}", f"impl {rust} {{"]
            for field, kind, _ in self.fields(struct):
                if field.name not in OPTIONS_BY_HAND and kind != "list":
                    self.setter(field, kind)
            self.ready(name, more, lists)

    def ready(self, name, more, lists):
        self.lines += ["    /// The options so far, unless a text is wrong; they point into these.",
                       f"    pub(crate) fn ready(&self) -> Result<sys::{name}> {{"]
        changed = []
        for field, count in lists.items():
            self.lines.append(f"        let ({field}, {count}) = (self.{field}.as_ptr(), self.{field}.len() as u32);")
            changed += [field, count]
        if "progress" in more:
            self.lines.append("        let (progress, progress_user) = progress_of(self.progress.as_ref());")
            changed += ["progress", "progress_user"]
        value = f"sys::{name} {{ {', '.join(changed)}, ..self.raw }}" if changed else "self.raw"
        self.lines += [f"        self.texts.check().map(|()| {value})", "    }"]
        if "progress" in more:
            self.lines += ["    /// Calls `progress` with how much is done, and how much there is. `Break` ends the "
                           "call with",
                           "    /// [`Status::CANCELLED`]; a panic goes on in the caller.",
                           "    pub fn progress<F>(mut self, progress: F) -> Self",
                           "    where", "        F: Fn(u64, u64) -> ControlFlow<()> + Send + Sync + 'static,", "    {",
                           "        self.progress = Some(Arc::new(progress));", "        self", "    }"]
        self.lines.append("}")

    def setter(self, field, kind):
        enum = self.api.enum_of(field)
        if kind == "number" and enum is not None and enum.is_bits:
            for value in enum.values:
                if value.name not in NO_FLAGS:
                    self.doc(value, "    ")
                    prefix = field.name[:-len("flags")]
                    name = FLAG_NAMES.get(value.name, prefix + value.short.lower())
                    self.lines += [f"    pub fn {name}(mut self, is_set: bool) -> Self {{",
                                   f"        set_bits(&mut self.raw.{field.name}, sys::{value.name}, is_set);",
                                   "        self", "    }"]
            return
        self.doc(field, "    ")
        if kind == "text":
            self.lines += [f"    pub fn {field.name}(mut self, {field.name}: impl Into<Vec<u8>>) -> Self {{",
                           f"        self.raw.{field.name} = self.texts.keep(\"{field.name}\", {field.name});",
                           "        self", "    }"]
        else:
            rust = self.rust_type(field.type, field)
            value = field.name + (".0" if rust in ENUMS.values() else "")
            self.lines += [f"    pub fn {field.name}(mut self, {field.name}: {rust}) -> Self {{",
                           f"        self.raw.{field.name} = {value};", "        self", "    }"]

    # ------------------------------------------------------------------------------------------------- views and copies

    def views(self):
        for name, rust in VIEWS.items():
            struct = self.api.find(name)
            self.lines.append("")
            self.doc(struct, "", is_copy=True)
            self.lines += ["#[derive(Clone, Copy, Debug)]",
                           f"pub struct {rust}<'a>(sys::{name}, PhantomData<&'a ()>);",
                           "// SAFETY: its texts live for 'a and never change.",
                           f"unsafe impl Send for {rust}<'_> {{}}",
                           f"unsafe impl Sync for {rust}<'_> {{}}", f"impl<'a> {rust}<'a> {{",
                           "    /// # Safety", "    /// What it points to lives for 'a.",
                           f"    pub(crate) unsafe fn new(raw: sys::{name}) -> Self {{",
                           f"        {rust}(raw, PhantomData)",
                           "    }"]
            for field, kind, count in self.fields(struct):
                self.doc(field, "    ", is_copy=True)
                self.lines += self.getter(struct, rust, field, kind, count)
            self.lines.append("}")

    def number(self, struct, field, value):
        """The type of a number of the library's, and how it is made from the value."""
        type_ = self.rust_type(field.type, field)
        if field.array:
            return f"[{type_}; {field.array}]", value
        if field.name in OPTIONAL:
            return f"Option<{OPTIONAL[field.name]}>", f"({value} >= 0).then_some({value} as {OPTIONAL[field.name]})"
        if field.name.startswith("is_"):
            return "bool", f"{value} != 0"
        return type_, f"{type_}({value})" if type_ in ENUMS.values() else value

    @staticmethod
    def type_of(struct, name):
        return next(field.type.base for field in struct.fields if field.name == name)

    def getter(self, struct, rust, field, kind, count):
        name = self.tools.name_of(field.name)
        value = f"self.0.{name}"
        if kind == "number":
            result, value = self.number(struct, field, value)
        elif kind == "array":
            value, result = f"unsafe {{ text({value}.as_ptr()) }}", "Cow<'_, str>"
        elif kind == "text":
            value, result = f"unsafe {{ text({value}) }}", "Cow<'a, str>"
        else:
            part = "" if kind == "list" else ".cast()"
            into = ".into()" if self.type_of(struct, count) == "uint32_t" else ""
            value = f"unsafe {{ slice({value}{part}, self.0.{count}{into}) }}"
            result = f"&'a [{self.rust_type(field.type)}]" if kind == "list" else "&'a [u8]"
        if kind == "bytes" and rust == "TokenEvent":
            value, result = f"String::from_utf8_lossy({value})", "Cow<'a, str>"
        return [f"    pub fn {name}(&self) -> {result} {{", f"        {value}", "    }"]

    def copies(self):
        for name, rust in COPIES.items():
            struct = self.api.find(name)
            fields = list(self.fields(struct))
            self.lines.append("")
            self.doc(struct, "", is_copy=True)
            self.lines += [f"#[derive(Clone, Debug{', Default, PartialEq, Eq' * (rust == 'Message')})]",
                           "#[non_exhaustive]", f"pub struct {rust} {{"]
            copies = []
            for field, kind, count in fields:
                type_, copy = self.copied(struct, rust, field, kind, count)
                if type_ != "Text":
                    self.doc(field, "    ", is_copy=True)
                self.lines.append(f"    {'pub ' if type_ != 'Text' else ''}{field.name}: {type_},")
                copies.append(f"            {field.name}: {copy},")
            self.lines += ["}", f"impl {rust} {{", "    /// # Safety", "    /// What it points to is there.",
                           f"    pub(crate) unsafe fn from_raw(raw: &sys::{name}) -> Self {{", f"        {rust} {{"]
            self.lines += copies + ["        }", "    }"]
            if rust == "Event":
                self.doc(next(field for field, _, _ in fields if field.name == "text"), "    ", is_copy=True)
                self.lines += ["    pub fn text(&self) -> &str {", "        self.text.get()", "    }"]
            if rust == "Message":
                self.lines += ["    pub(crate) fn to_raw(&self, texts: &mut Texts) -> sys::weir_chat_message {",
                               "        sys::weir_chat_message {"]
                for field, kind, count in fields:
                    if kind == "text" and field.name == "role":
                        self.lines.append(f"            {field.name}: texts.keep(\"{field.name}\", "
                                          f"&*self.{field.name}),")
                    elif kind == "text":
                        self.lines.append(f"            {field.name}: texts.keep_some(\"{field.name}\", "
                                          f"self.{field.name}.as_ref()),")
                    elif field.name == "content":
                        self.lines += [f"            {field.name}: self.{field.name}.as_ptr().cast(),",
                                       f"            {count}: self.{field.name}.len() as u64,"]
                    else:
                        self.lines += [f"            {field.name}: self.{field.name}.as_ref().map_or(ptr::null(), "
                                       "|bytes| bytes.as_ptr().cast()),",
                                       f"            {count}: self.{field.name}.as_ref().map_or(0, "
                                       "|bytes| bytes.len() as u64),"]
                self.lines += ["        }", "    }"]
            self.lines.append("}")

    def copied(self, struct, rust, field, kind, count):
        value = f"raw.{field.name}"
        if kind == "number":
            return self.number(struct, field, value)
        if kind == "list":
            return f"Vec<{self.rust_type(field.type)}>", \
                f"unsafe {{ slice({value}, raw.{count}.into()) }}.to_vec()"
        if kind == "bytes" and rust == "Event":
            return "Text", f"Text::new(unsafe {{ slice({value}.cast(), raw.{count}) }})"
        if kind == "bytes":
            copy = f"unsafe {{ string({value}, raw.{count}) }}"
            return ("String", copy) if field.name != "thought" else \
                ("Option<String>", f"(!{value}.is_null()).then(|| {copy})")
        if field.name == "role":
            return "String", f"unsafe {{ text({value}) }}.into_owned()"
        return "Option<String>", f"(!{value}.is_null()).then(|| unsafe {{ text({value}) }}.into_owned())"

    # ---------------------------------------------------------------------------------------------------------- handles

    def handles(self):
        for name, (keep, destroy) in SHARED.items():
            rust = HANDLES[name]
            self.lines.append("")
            self.doc(self.api.find(name), "")
            self.lines += ["///",
                           f"/// A clone is the same {rust.lower()}. What is made from it, or uses it, keeps it alive.",
                           "#[derive(Clone)]", f"pub struct {rust}(pub(crate) Arc<Handle<sys::{name}, {keep}>>);",
                           "// SAFETY: any thread may call its functions, at any time.",
                           f"unsafe impl Shared for sys::{name} {{}}", f"impl {rust} {{",
                           f"    pub(crate) fn made<F>(keep: {keep}, create: F) -> Result<Self>", "    where",
                           f"        F: FnOnce(*mut *mut sys::{name}) -> sys::weir_status,", "    {",
                           f"        Handle::new(keep, |raw| unsafe {{ sys::{destroy}(raw) }}, create)"
                           f".map(|handle| {rust}(Arc::new(handle)))", "    }", "}"]

    # ---------------------------------------------------------------------------------------------------------- methods

    def methods(self):
        for handle, functions in METHODS.items():
            self.lines += ["", f"impl {HANDLES[handle]} {{"]
            for name in functions:
                self.lines += Method(self, self.api.find(name), handle).lines()
            self.lines.append("}")

    def text(self):
        self.lines = ["//! Written by generate.py from include/weir/*.h; not to be edited.",
                      "//! Longer than 600 lines because it has the headers' documentation.", "use super::*;",
                      "use std::borrow::Cow;", "use std::marker::PhantomData;", "use std::ops::ControlFlow;",
                      "use std::ptr;", "use std::sync::Arc;", ""]
        self.names()
        self.options()
        self.views()
        self.copies()
        self.handles()
        self.methods()
        return "\n".join(part for line in self.lines for part in folded(line)) + "\n"


class Method:
    """A method for a function of C, by the pattern of its parameters."""

    def __init__(self, safe, function, handle):
        self.safe, self.function, self.handle = safe, function, handle
        self.arguments, self.values, self.before = [], [], []
        self.result, self.wrap = None, None
        self.view, self.changed, self.made = None, None, None

    def parse(self):
        todo = list(self.function.parameters)
        if todo and todo[0].type.base == self.handle:
            self.values.append("self.0.raw")
            todo.pop(0)
        while todo:
            todo = todo[self.parameter(todo, [p.name for p in todo]):]

    def parameter(self, todo, names):
        """Takes one parameter, or those that belong together; gives their number."""
        p, base, depth = todo[0], todo[0].type.base, todo[0].type.depth
        second = names[1] if len(todo) > 1 else ""
        is_list = second in (f"{p.name}_bytes", f"n_{p.name}", re.sub("_(text|json)$", "_bytes", p.name))
        kind = self.safe.api.kind(base)
        if depth == 2 and p.type.is_const and is_list:
            self.view = "u8" if base == "char" else self.safe.rust_type(p.type)
            self.values += ["&mut first", "&mut n"]
            return 2
        if second == "capacity":
            element = f"{VIEWS[base]}<'static>" if base in VIEWS else self.safe.rust_type(p.type)
            self.result = "String" if base == "char" and self.function.name not in BYTES else \
                "Vec<u8>" if base == "char" else f"Vec<{element}>"
            self.values += ["out.cast()" if base == "char" else "out", "room", "n"]
            return 3
        if depth == 1 and p.type.is_const and is_list:
            if base == "weir_chat_message":
                self.arguments.append(f"{p.name}: &[Message]")
                self.before.append(f"let ({p.name}, _texts) = raw_messages({p.name})?;")
                self.values += [f"{p.name}.as_ptr()", f"{p.name}.len() as u64"]
            elif base == "char":
                self.arguments.append(f"{p.name}: impl AsRef<[u8]>")
                self.before.append(f"let {p.name} = {p.name}.as_ref();")
                self.values += [f"{p.name}.as_ptr().cast()", f"{p.name}.len() as u64"]
            else:
                self.arguments.append(f"{p.name}: &[{self.safe.rust_type(p.type)}]")
                self.values += [f"{p.name}.as_ptr()", f"{p.name}.len() as u64"]
            return 2
        if base in OPTIONS and depth == 1 and not p.type.is_const:
            self.arguments.append(f"mut {p.name}: {OPTIONS[base][0]}")
            self.before.append(f"{p.name}.raw = {p.name}.ready()?;")
            self.values.append(f"&mut {p.name}.raw")
            self.changed = (p.name, OPTIONS[base][0])
            return 1
        if depth == 2 and base in SHARED and base != self.handle:
            self.made = HANDLES[base]
            self.values.append("out")
            return 1
        if base in OPTIONS and depth == 1 and p.type.is_const:
            self.arguments.append(f"{p.name}: &{OPTIONS[base][0]}")
            self.before.append(f"let {p.name} = {p.name}.ready()?;")
            self.values.append(f"&{p.name}")
            return 1
        if base == "weir_progress_fn":
            self.arguments.append(f"{p.name}: Option<&Progress>")
            self.before.append(f"let ({p.name}, {second}) = progress_of({p.name});")
            self.values += [p.name, second]
            return 2
        if base in SHARED and depth == 1:
            self.arguments.append(f"{p.name}: Option<&{HANDLES[base]}>")
            self.values.append(f"{p.name}.map_or(ptr::null_mut(), |{p.name}| {p.name}.0.raw)")
            return 1
        if depth == 1 and not p.type.is_const and len(todo) == 1 and (kind in ("struct", "alias")):
            self.result = VIEWS.get(base) and f"{VIEWS[base]}<'_>" or COPIES.get(base) or PLAIN[base]
            self.values.append("out")
            return 1
        rust = self.safe.rust_type(p.type, p) if depth == 0 else None
        if rust is None:
            enum = self.safe.api.enum_of(p)
            raise ValueError(f"{self.function.name}: the parameter {p.name} is of no known pattern ({p.type}, {enum})")
        self.arguments.append(f"{p.name}: {rust}")
        self.values.append(p.name + (".0" if rust in ENUMS.values() else ""))
        return 1

    def lines(self):
        name = self.function.name
        self.safe.lines, before = [], self.safe.lines
        self.safe.doc(self.function, "    ")
        doc, self.safe.lines = self.safe.lines, before
        returns = str(self.function.returns)
        rust = NAMES.get(name) or re.sub(rf"^(?:{self.handle}_|weir_)", "", name)
        self.parse_names() if returns == "const char *" and len(self.function.parameters) == 1 and \
            self.function.parameters[0].name == "index" else self.parse()
        is_shared = self.handle not in ("weir_session", "weir_detokenizer") or name in READS or \
            self.function.parameters[0].type.is_const
        arguments = ", ".join(["&self" if is_shared else "&mut self"] + self.arguments)
        call = f"sys::{name}({', '.join(self.values)})"
        body, result = self.body(returns, call)
        is_visible = "pub" if rust != "begin_answer" else "pub(crate)"
        head = f"    {is_visible} fn {rust}({arguments}){f' -> {result}' if result else ''} {{"
        if len(head) > 120:
            head = head.replace("(&", "(\n        &", 1).replace(", ", ",\n        ").replace(") ->", ",\n    ) ->")
        return doc + [head] + [f"        {line}" for line in self.before + body] + ["    }"]

    def parse_names(self):
        self.values = ["index"]
        self.wrap = "names"

    def body(self, returns, call):
        if self.wrap == "names":
            return [f"names(|index| unsafe {{ {call} }})"], "Vec<Cow<'static, str>>"
        if returns == "const char *":
            return [f"unsafe {{ text({call}) }}"], "Cow<'static, str>"
        if returns == "void":
            return [f"unsafe {{ {call} }}"], ""
        if returns != "weir_status":
            return [f"unsafe {{ {call} }}"], self.safe.rust_type(self.function.returns)
        if self.view:
            body = ["let (mut first, mut n) = (ptr::null(), 0);", f"check(unsafe {{ {call} }})?;",
                    "// SAFETY: the view stays until a call that changes the object."]
            if self.view == "u8":
                return body + ["Ok(unsafe { std::str::from_utf8_unchecked(slice(first.cast(), n)) })"], "Result<&str>"
            return body + ["Ok(unsafe { slice(first, n.into()) })"], f"Result<&[{self.view}]>"
        if self.changed:
            return [f"check(unsafe {{ {call} }}).map(|()| {self.changed[0]})"], f"Result<{self.changed[1]}>"
        if self.made:
            return [f"{self.made}::made(self.clone(), |out| unsafe {{ {call} }})"], f"Result<{self.made}>"
        if self.result is None:
            return [f"check(unsafe {{ {call} }})"], "Result<()>"
        if "room" in self.values:
            guess = GUESSES.get(self.function.name, "1024")
            out = "out: *mut u8" if "out.cast()" in self.values else "out"
            after = {"String": ".map(utf8)"}.get(self.result, "")
            if "DeviceInfo" in self.result:
                return ["let devices = list(8, |out: *mut sys::weir_device_info, room, n| unsafe {",
                        "    out.write(Default::default());", f"    {call}", "})?;",
                        "Ok(devices.into_iter().map(|device| unsafe { DeviceInfo::new(device) }).collect())"], \
                    f"Result<{self.result}>"
            return [f"list({guess}, |{out}, room, n| unsafe {{ {call} }}){after}"], f"Result<{self.result}>"
        name = self.result.replace("<'_>", "")
        make = f".map(|raw| unsafe {{ {name}::new(raw) }})" if "<" in self.result else \
            ".map(|raw| unsafe { Event::from_raw(&raw) })" if self.result == "Event" else ""
        return [f"get(|out| unsafe {{ {call} }}){make}"], f"Result<{self.result}>"


def generated(api, tools):
    return Safe(api, tools).text()
