#!/usr/bin/env python3
"""Makes lib/text/chat_known.inc: the chat templates that a family of lib/text/chat_families.cpp renders exactly.

By hand:  ninja -C build render_chat
          python3 known_templates.py ../../../build/tests/render_chat FOLDER > ../../../lib/text/chat_known.inc

FOLDER holds templates, one a file, NAME.jinja (of tokenizer_config.json or chat_template.jinja of a model, or of the
key tokenizer.chat_template of a GGUF file). The templates themselves are not a part of the project; the table keeps
their length and SHA-256, without the one line end that Jinja drops at the end. The packages jinja2 and transformers are
needed.

Every template is rendered by Jinja and by the family that it resembles, for a grid of conversations: with and without a
system message, one to three turns, asking for an answer or not, texts with white space at their ends, thoughts in
answers, control tokens in texts, roles in unusual orders; and as two stretches fed one after the other. It is listed
when both agree everywhere, but for these differences, which are wanted and told in lib/text/chat_template.h and with
each template on stderr:

  unasked   the opening of an answer comes although none was asked for, or does not come behind an answer: the template
            does not look at add_generation_prompt
  eos       the template ends with EOS when no answer is asked for
  system    the template refuses a system message, the family puts it before a question
  order     the family refuses an order of roles that the template renders
"""
import itertools
import struct
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from transformers.utils.chat_template_utils import _compile_jinja_template

HEAD = """\
// The chat templates that are known: WEIR_CHAT_TEMPLATE(Family, bytes, SHA-256, "models that have it"). Written by
// tests/golden/chat/known_templates.py, which has compared each with its family over a grid of conversations; do not
// add a line by hand."""
BOS, EOS = "<bos!>", "<eos!>"  # as in render_chat.cpp
ADD_ASSISTANT, CONTINUE = 1, 2
QUESTIONS = ["Hi", "  spaced \n", "", "two\n\nlines \"q\" 's'", "\u00fcn\u00ef \u3000x", "<|im_end|> [INST] </s>", "\n"]
ANSWERS = ["4", "<think>\nEasy.\n</think>\n\n4", " 4 \n", "<think>\n\n</think>\n\n4", "x</think>y",
           "a <think>b</think> c </think> d", "<think>only", "\n\n4\n\n", "", "<think>\nA\n</think>\n4</think>"]
SYSTEMS = ["Be brief.", " Sys \n", ""]


def grid():
    """(messages, whether an answer is asked for); a message is (role, content)."""
    for system in [None] + SYSTEMS:
        head = [] if system is None else [("system", system)]
        for question, asks in itertools.product(QUESTIONS, (True, False)):
            yield head + [("user", question)], asks
        for answer, asks in itertools.product(ANSWERS, (True, False)):
            said = [("user", "q"), ("assistant", answer)]
            yield head + said, asks
            yield head + said + [("user", "r")], asks
            yield head + [("user", "q"), ("assistant", "1"), ("user", "r"), ("assistant", answer)], asks
            yield head + said + [("user", "r"), ("assistant", answer), ("user", " t ")], asks
    for roles in ("uu", "uaau", "au", "usu", "uasu", "ssu", "s", "sau"):
        names = {"s": "system", "u": "user", "a": "assistant"}
        yield [(names[role], f"text {i}") for i, role in enumerate(roles)], True
    response = ("user", "<tool_response>x</tool_response>")
    yield [response], True
    yield [("user", "q"), ("assistant", "<think>\nz\n</think>\n\n4"), response], True


class Family:
    """render_chat as a child process, asked about one template."""

    def __init__(self, program):
        self.child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, conversations):
        """The name of the family, and for each conversation (flags, messages) its text, or None when refused."""
        out = [self.text(template), struct.pack("<I", len(conversations))]
        for flags, messages in conversations:
            out.append(struct.pack("<II", flags, len(messages)))
            out += [self.text(part) for message in messages for part in message]
        self.child.stdin.write(b"".join(out))
        self.child.stdin.flush()
        name, answers = self.read_text(), []
        for _ in conversations:
            status, = struct.unpack("<i", self.child.stdout.read(4))
            text = self.read_text()
            answers.append(text if status == 0 else None)
        return name, answers

    @staticmethod
    def text(text):
        data = text.encode()
        return struct.pack("<I", len(data)) + data

    def read_text(self):
        n, = struct.unpack("<I", self.child.stdout.read(4))
        return self.child.stdout.read(n).decode()


def render_jinja(compiled, messages, asks):
    """The template's text, or None when it refuses. Without a clock: a date is then the one that it falls back to."""
    messages = [{"role": role, "content": content} for role, content in messages]
    try:
        return compiled.render(messages=messages, tools=None, documents=None, add_generation_prompt=asks,
                               bos_token=BOS, eos_token=EOS)
    except Exception:  # raise_exception of the template, or a type error in it
        return None


def difference(messages, asks, wanted, got, got_other):
    """None when equal, a word of the list above when that is the difference, else "other". `got_other` is the
    family's text with asks turned round."""
    if wanted == got:
        return None
    if wanted is None:
        return "system" if any(role == "system" for role, _ in messages) else "other"
    if got is None:
        return "order"
    if wanted == got_other and (not asks or messages[-1][0] == "assistant"):
        return "unasked"
    return "eos" if not asks and wanted == got + EOS else "other"


def check(family, template):
    """(name of the family or None, differences, first conversation that differs otherwise or None)."""
    compiled = _compile_jinja_template(template)
    compiled.environment.globals.pop("strftime_now", None)
    compiled.globals.pop("strftime_now", None)
    cases = list(grid())
    requests = [(ADD_ASSISTANT if asks == turned else 0, messages)
                for messages, asks in cases for turned in (True, False)]
    name, texts = family.render(template, requests)
    found = set()
    for i, (messages, asks) in enumerate(cases):
        wanted = render_jinja(compiled, messages, asks)
        word = difference(messages, asks, wanted, texts[2 * i], texts[2 * i + 1])
        if word == "other":
            return name, found, (messages, asks, wanted, texts[2 * i])
        found.add(word)
    failure = check_continuing(family, template, compiled)
    return name, found - {None}, failure


def check_continuing(family, template, compiled):
    """Two turns fed one after the other, as a session is fed, are the conversation as a whole, or the difference."""
    for system in [None] + SYSTEMS[:2]:
        first = ([] if system is None else [("system", system)]) + [("user", "q")]
        wanted = render_jinja(compiled, first + [("assistant", "4"), ("user", "r")], True)
        _, (begin, end) = family.render(template, [(ADD_ASSISTANT, first), (ADD_ASSISTANT | CONTINUE, [("user", "r")])])
        if wanted is None or begin is None or end is None:
            continue
        # What the model says may begin with a space, and thoughts are gone in the conversation as a whole. Where the
        # system message moves to the last question, it has moved.
        begin = begin.removesuffix("<think>\n")
        unmoved = [text.replace(f"{system}\n\n", "", 1) for text in (begin + "4" + end, begin + " 4" + end, wanted)]
        if unmoved[2] not in unmoved[:2]:
            return first, "continued", wanted, begin + "4" + end
    return None


def main():
    program, folder = sys.argv[1:]
    family, lines = Family(program), {}
    for path in sorted(Path(folder).glob("*.jinja")):
        template = path.read_bytes().decode()
        bare = template[:-1] if template.endswith("\n") else template
        name, found, failure = check(family, bare)
        if not name:
            print(f"{path.stem}: resembles no family", file=sys.stderr)
        elif failure:
            print(f"{path.stem}: not what {name} renders, such as {failure}"[:400], file=sys.stderr)
        else:
            print(f"{path.stem}: listed as {name}", *sorted(found), file=sys.stderr)
            data = bare.encode()
            lines.setdefault((name, len(data), sha256(data).hexdigest()), []).append(path.stem)
    print(HEAD)
    for (name, n_bytes, digest), models in sorted(lines.items()):
        print(f'WEIR_CHAT_TEMPLATE({name}, {n_bytes}, "{digest}",\n                   "{", ".join(models)}")')


if __name__ == "__main__":
    main()
