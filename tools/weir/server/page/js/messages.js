// The messages of a conversation as articles. Each message has one view that is kept while the message is there; an
// answer that grows changes the end of its text only, at most once a frame, and later frames wait longer the longer it
// is. Screen readers get whole paragraphs, politely, as they are finished.

import { announce, copyText, count, duration, el, icon, iconButton, plural, replace } from "./dom.js";
import { codeBlock } from "./code.js";
import { MarkdownView } from "./markdown.js";

const FOLD = 3000;          // characters of a question; longer ones are folded
const FOLDED = 1200;

export class Messages {
  constructor(root, scroll, chats, act) {
    this.root = root;
    this.scroll = scroll;
    this.chats = chats;
    this.act = act;              // what leads out of here: {fork, rewind, refresh}
    this.views = new Map();
    this.conversation = null;
    this.dirty = new Set();
    this.frame = 0;
    this.drawn = 0;
    this.stick = true;
    scroll.addEventListener("scroll", () => {
      this.stick = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
      this.act.scrolled(this.stick);
    }, { passive: true });
    new ResizeObserver(() => this.follow()).observe(root);
  }

  show(conversation) {
    if (this.conversation?.id !== conversation.id) {
      this.views.clear();
      this.root.replaceChildren();
      this.stick = true;
    }
    this.conversation = conversation;
    const shown = conversation.messages.filter((m) => m.role !== "tool");
    const ids = new Set(shown.map((m) => m.id));
    for (const [id, view] of this.views) {
      if (ids.has(id)) continue;
      view.root.remove();
      this.views.delete(id);
    }
    let before = null;
    for (const message of shown) {
      let view = this.views.get(message.id);
      if (!view) {
        view = message.role === "user" ? new QuestionView(this) : new AnswerView(this);
        this.views.set(message.id, view);
      }
      const place = before ? before.nextSibling : this.root.firstChild;
      if (view.root !== place) this.root.insertBefore(view.root, place);
      before = view.root;
      view.update(message, conversation);
    }
    this.follow();
  }

  // A message has changed: drawn with the next frame, or a later one where drawing takes long.
  later(message) {
    this.dirty.add(message);
    if (this.frame) return;
    const length = (message.content?.length || 0) + (message.reasoning?.length || 0);
    const wait = Math.max(0, Math.min(length / 200, 400) - (performance.now() - this.drawn));
    this.frame = setTimeout(() => requestAnimationFrame(() => this.draw()), wait);
  }

  draw() {
    this.frame = 0;
    this.drawn = performance.now();
    for (const message of this.dirty) this.views.get(message.id)?.update(message, this.conversation);
    this.dirty.clear();
    this.follow();
  }

  follow() {
    if (this.stick) this.scroll.scrollTop = this.scroll.scrollHeight;
  }

  toEnd() {
    this.stick = true;
    this.follow();
  }

  edit(id) {
    this.views.get(id)?.edit?.();
  }
}

// --- what a user said ------------------------------------------------------------------------------------------------

class QuestionView {
  constructor(list) {
    this.list = list;
    this.bubble = el("div", { class: "bubble" });
    this.actions = el("div", { class: "actions" });
    this.root = el("article", { class: "message user", aria: { label: "You" } }, this.bubble, this.actions);
    this.text = null;
    this.editing = false;
  }

  update(message) {
    this.message = message;
    if (message.content === this.text || this.editing) return;
    this.text = message.content;
    const whole = message.content;
    if (whole.length <= FOLD) replace(this.bubble, paragraph(whole));
    else this.fold(whole);
    replace(this.actions,
      iconButton("copy", "Copy", () => copyText(this.message.content)),
      iconButton("edit", "Edit and ask again", () => this.edit()),
      iconButton("rewind", "Rewind to here", () => this.list.act.rewind(this.message.id)),
      iconButton("fork", "Fork from here", () => this.list.act.fork(this.message.id)));
  }

  fold(whole) {
    const text = paragraph(`${whole.slice(0, FOLDED)}…`);
    const toggle = el("button", { type: "button", class: "link", aria: { expanded: "false" } },
      `Show all, ${count(whole.length)} characters`);
    let open = false;
    toggle.addEventListener("click", () => {
      open = !open;
      text.textContent = open ? whole : `${whole.slice(0, FOLDED)}…`;
      toggle.textContent = open ? "Show less" : `Show all, ${count(whole.length)} characters`;
      toggle.setAttribute("aria-expanded", String(open));
    });
    replace(this.bubble, text, toggle);
  }

  edit() {
    if (this.editing || this.list.chats.busy(this.list.conversation)) return;
    this.editing = true;
    this.root.classList.add("editing");
    const area = el("textarea", { rows: "3", dir: "auto", aria: { label: "Your message, edited" } });
    area.value = this.message.content;
    const end = () => {
      this.editing = false;
      this.text = null;
      this.root.classList.remove("editing");
      this.update(this.message);
    };
    const ask = () => {
      const text = area.value.trim();
      if (!text) return;
      const { conversation, chats } = this.list;
      const { id } = this.message;
      end();
      chats.edit(conversation, id, text);
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        end();
        this.actions.querySelector("button")?.focus();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        ask();
      }
    });
    replace(this.bubble, area, el("div", { class: "row" },
      el("button", { type: "button", class: "quiet", on: { click: end } }, "Cancel"),
      el("button", { type: "button", class: "solid", on: { click: ask } }, "Ask again")));
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
    this.root.scrollIntoView({ block: "nearest" });
  }
}

// Each line finds its own direction.
function paragraph(text) {
  return el("div", { class: "plain", dir: "auto" }, text);
}

// --- what the model said ---------------------------------------------------------------------------------------------

class AnswerView {
  constructor(list) {
    this.list = list;
    this.thoughtName = el("span", { class: "thought-name" });
    this.thoughtCount = el("span", { class: "thought-count" });
    this.thoughtTail = el("span", { class: "thought-tail", dir: "auto", aria: { hidden: "true" } });
    this.thoughtText = el("div", { class: "thought-text", dir: "auto" });
    this.thought = el("details", { class: "thought" },
      el("summary", {}, icon("right"), this.thoughtName, this.thoughtCount, this.thoughtTail), this.thoughtText);
    this.thought.hidden = true;
    this.thought.addEventListener("toggle", () => this.showThought());
    this.text = el("div", { class: "text" });
    this.markdown = new MarkdownView(this.text, (block) => {
      if (this.message?.state === "streaming" && block) announce(block);
    });
    this.calls = el("div", { class: "calls" });
    this.status = el("div", { class: "status" });
    this.note = el("div", { class: "note-box" });
    this.actions = el("div", { class: "actions" });
    this.root = el("article", { class: "message answer", aria: { label: "Answer" } },
      this.thought, this.text, this.calls, this.status, this.note, this.actions);
    this.keys = {};
    this.state = null;
    this.drafts = new Map();      // call id -> what was typed as its result
  }

  // Builds a part anew when what it depends on has changed.
  part(name, key, build) {
    if (this.keys[name] === key) return;
    this.keys[name] = key;
    replace(this[name], build());
  }

  update(message, conversation) {
    this.message = message;
    this.conversation = conversation;
    const run = this.list.chats.runs.get(conversation.id);
    const running = run?.message === message ? run : null;
    const last = conversation.messages.at(-1) === message;
    const streaming = message.state === "streaming";
    this.root.classList.toggle("streaming", streaming);
    this.root.setAttribute("aria-busy", String(streaming));
    this.updateThought(message, running);
    this.markdown.update(message.content);
    this.updateCalls(message, conversation, last);
    this.updateStatus(message, running);
    this.part("note", JSON.stringify([message.state, message.error, message.finish, last, !message.content]),
      () => this.buildNote(message, last));
    this.part("actions", JSON.stringify([message.id, streaming, message.version, message.versions?.length,
      message.stats, last]), () => (streaming ? null : this.buildActions(message, last)));
    if (this.state === "streaming" && !streaming) announce(`${this.markdown.last()} ${ENDS[message.state] || ""}`);
    if (this.state !== "streaming" && streaming) announce("The answer begins.");
    this.state = message.state;
  }

  updateThought(message, running) {
    this.thought.hidden = !message.reasoning;
    if (!message.reasoning) return;
    const thinking = running !== null && running.thoughtFrom !== null;
    this.thought.classList.toggle("thinking", thinking);
    const time = message.reasoningMs > 0 ? ` for ${duration(message.reasoningMs)}` : "";
    this.thoughtName.textContent = thinking ? "Thinking" : `Thought${time}`;
    this.thoughtCount.textContent = plural(message.reasoningTokens, "token");
    const tail = thinking && !this.thought.open ? message.reasoning.slice(-200).trimEnd().split("\n").at(-1) : "";
    this.thoughtTail.textContent = tail.slice(-90);
    this.showThought();
  }

  // Only while it is open: a folded thought costs nothing.
  showThought() {
    const text = this.thought.open ? this.message.reasoning : "";
    const node = this.thoughtText.firstChild;
    const box = this.thoughtText;
    const follows = this.thought.classList.contains("thinking") &&
      (!node || box.scrollHeight - box.scrollTop - box.clientHeight < 40);
    if (node && text.startsWith(node.data)) {
      if (text.length > node.data.length) node.appendData(text.slice(node.data.length));
    } else if (!node || node.data !== text) {
      replace(this.thoughtText, text);
    }
    if (this.thought.open) this.thoughtTail.textContent = "";
    if (follows) box.scrollTop = box.scrollHeight;
  }

  updateStatus(message, running) {
    const waits = message.state === "streaming" && !message.content && !message.reasoning && !message.toolCalls.length;
    const prompt = running?.prompt;
    const elsewhere = message.state === "streaming" && !running;
    this.part("status", JSON.stringify([waits, prompt, elsewhere]), () => {
      if (elsewhere) return el("p", { class: "waits" }, "Another tab writes this answer.");
      if (prompt && waits) {
        return el("p", { class: "waits" }, `Reading ${count(prompt.done)} of ${count(prompt.of)} tokens`,
          el("progress", { max: prompt.of, value: prompt.done, aria: { label: "Tokens read" } }));
      }
      return waits ? el("p", { class: "waits dots", aria: { label: "Waiting for the first word" } },
        el("span"), el("span"), el("span")) : null;
    });
  }

  buildNote(message, last) {
    const { list, conversation } = this;
    const goOn = () => last && (message.content || message.reasoning) &&
      el("button", { type: "button", class: "solid go-on",
        on: { click: () => list.chats.goOn(conversation, message.id) } }, icon("goOn"), "Go on");
    const again = (text) => el("button", { type: "button", class: "quiet retry",
      on: { click: () => list.chats.regenerate(conversation, message.id) } }, icon("again"), text);
    if (message.state === "cut") {
      return el("div", { class: "note cut" }, el("p", {},
        message.content || message.reasoning ? "The connection broke here. What came is kept." :
          "The connection broke before anything came."), goOn(),
        again("Again"));
    }
    if (message.state === "stopped") return el("div", { class: "note stopped" }, el("p", {}, "Stopped."), goOn());
    if (message.state === "error") return this.buildError(message, again, goOn);
    if (message.state !== "done") return null;
    if (message.finish === "length") {
      return el("div", { class: "note" }, el("p", {}, "The answer reached its length."), goOn());
    }
    if (!message.content.trim() && message.toolCalls.length === 0) {
      return el("div", { class: "note" }, el("p", {}, "The answer is empty."), again("Again"));
    }
    return null;
  }

  buildError(message, again, goOn) {
    const { error } = message;
    const details = [error.status && `status ${error.status}`, error.param && `field ${error.param}`,
      error.code && `code ${error.code}`].filter(Boolean).join(", ");
    return el("div", { class: "note error" },
      el("p", { dir: "auto" }, error.message || "The server says that something failed."),
      details && el("p", { class: "small" }, details),
      error.retryAfter && el("p", { class: "small" }, `It asks to try again in ${plural(error.retryAfter, "second")}.`),
      goOn(), again("Try again"));
  }

  buildActions(message, last) {
    const { list, conversation } = this;
    const { chats } = list;
    const versions = message.versions?.length || 0;
    const { tokens, tokensPerSecond, cachedTokens, promptTokens } = message.stats || {};
    const facts = [tokens && plural(tokens, "token"), tokensPerSecond && `${tokensPerSecond.toFixed(1)} tok/s`,
      cachedTokens && promptTokens && `${Math.round((100 * cachedTokens) / promptTokens)} % of the prompt reused`];
    return [
      versions > 1 && el("div", { class: "versions", role: "group", aria: { label: "Versions of this answer" } },
        iconButton("left", "Earlier version", () => chats.showVersion(conversation, message.id, message.version - 1),
          { disabled: !last || message.version === 0 }),
        el("span", {}, `${message.version + 1} / ${versions}`),
        iconButton("right", "Later version", () => chats.showVersion(conversation, message.id, message.version + 1),
          { disabled: !last || message.version === versions - 1 })),
      iconButton("copy", "Copy answer", () => copyText(message.content)),
      iconButton("again", "Regenerate", () => chats.regenerate(conversation, message.id)),
      iconButton("rewind", "Rewind to here", () => list.act.rewind(message.id)),
      iconButton("fork", "Fork from here", () => list.act.fork(message.id)),
      el("span", { class: "facts" }, facts.filter(Boolean).join(" · ")),
    ];
  }

  // --- tools ---

  updateCalls(message, conversation, last) {
    const at = conversation.messages.indexOf(message);
    const results = new Map(conversation.messages.slice(at + 1).filter((m) => m.role === "tool")
      .map((m) => [m.tool_call_id, m.content]));
    const open = last && message.toolCalls.length > 0 && ["done", "cut", "stopped"].includes(message.state);
    this.part("calls", JSON.stringify([message.toolCalls, [...results], open]), () =>
      this.buildCalls(message, results, open));
  }

  buildCalls(message, results, open) {
    if (message.toolCalls.length === 0) return null;
    const areas = new Map();
    const cards = message.toolCalls.map((call, i) => {
      const result = results.get(call.id);
      const id = `result-${message.id}-${i}`;
      let below = null;
      if (result !== undefined) {
        below = el("div", { class: "result" }, el("h4", {}, "Result"), paragraph(result || "(nothing)"));
      } else if (open) {
        const area = el("textarea", { id, rows: "2", dir: "auto", spellcheck: "false",
          value: this.drafts.get(call.id) || "", placeholder: "What the tool gives back" });
        area.addEventListener("input", () => this.drafts.set(call.id, area.value));
        areas.set(call.id, area);
        below = el("div", { class: "result" }, el("label", { for: id }, `Result of ${call.name || "the tool"}`), area);
      }
      return el("section", { class: "call", aria: { label: `Call of ${call.name || "a tool"}` } },
        el("header", {}, icon("tool"), el("b", { dir: "ltr" }, call.name || "…"), el("span", {}, "tool call")),
        codeBlock(prettyJson(call.arguments), "json"), below);
    });
    if (areas.size === 0) return cards;
    const submit = () => this.list.chats.answerTools(this.conversation,
      new Map([...areas].map(([id, area]) => [id, area.value])));
    for (const area of areas.values()) {
      area.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit();
      });
    }
    return [cards, el("button", { type: "button", class: "solid give", on: { click: submit } },
      areas.size === 1 ? "Give the result and go on" : "Give the results and go on")];
  }
}

const ENDS = {
  done: "The answer is complete.", stopped: "The answer was stopped.", cut: "The connection broke.",
  error: "The server reports an error.",
};

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
