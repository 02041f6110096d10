// Markdown as models write it, as DOM nodes: text of a model never passes through a parser of HTML. What is not
// understood stays as it was written. Links are http and https alone, pictures are shown as links.
//
// All passes are linear in the text, or look ahead for a bounded number of characters: an answer may have 100 kB in one
// line. MarkdownView keeps the blocks that a longer text has in common with the last one, so that an answer grows at
// its end.

import { el } from "./dom.js";
import { codeBlock } from "./code.js";

const DEPTH = 12;         // of lists and quotes in each other; deeper ones are shown as text
const LINK_LOOK = 600;    // characters of a link's label and of its address

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|)$/;
const DELIMITER_ROW = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

// --- blocks ----------------------------------------------------------------------------------------------------------

function opensBlock(line, next) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || isTable(line, next) ||
    /^ {0,3}(?:[-*+]|1[.)])[ \t]+\S/.test(line);
}

function isTable(line, next) {
  return next !== undefined && line.includes("|") && next.includes("-") && next.includes("|") &&
    DELIMITER_ROW.test(next) && cells(line).length === cells(next).length;
}

// Where the block that begins at `at` ends, and what it is.
function blockAt(lines, at) {
  const line = lines[at];
  let end = at + 1;
  const fence = FENCE.exec(line);
  if (fence) {
    const mark = fence[2];
    const closes = (l) => {
      const text = l.trim();
      return text.length >= mark.length && text[0] === mark[0] && text.split(mark[0]).join("") === "";
    };
    while (end < lines.length && !closes(lines[end])) end += 1;
    return { type: "code", end: Math.min(end + 1, lines.length), closed: end < lines.length };
  }
  if (HEADING.test(line)) return { type: "heading", end };
  if (RULE.test(line)) return { type: "rule", end };
  if (QUOTE.test(line)) {
    while (end < lines.length && lines[end].trim() !== "" &&
      (QUOTE.test(lines[end]) || !opensBlock(lines[end], lines[end + 1]))) end += 1;
    return { type: "quote", end };
  }
  const item = ITEM.exec(line);
  if (item) return { type: "list", end: listEnd(lines, at, item) };
  if (isTable(line, lines[at + 1])) {
    end = at + 2;
    while (end < lines.length && lines[end].includes("|") && lines[end].trim() !== "") end += 1;
    return { type: "table", end };
  }
  while (end < lines.length && lines[end].trim() !== "" && !opensBlock(lines[end], lines[end + 1])) end += 1;
  return { type: "paragraph", end };
}

const isNumber = (mark) => mark.length > 1;

function listEnd(lines, at, first) {
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    if (line.trim() === "") {
      let next = end + 1;
      while (next < lines.length && lines[next].trim() === "") next += 1;
      const item = next < lines.length ? ITEM.exec(lines[next]) : null;
      const goesOn = next < lines.length && (/^(?: {2,}|\t)/.test(lines[next]) ||
        (item && isNumber(item[2]) === isNumber(first[2]) && !RULE.test(lines[next])));
      if (!goesOn) return end;
      end = next;
      continue;
    }
    const item = ITEM.exec(line);
    if (item && isNumber(item[2]) !== isNumber(first[2]) && item[1].length <= first[1].length) return end;
    if (!item && !/^(?: {2,}|\t)/.test(line) && opensBlock(line, lines[end + 1])) return end;
    if (RULE.test(line)) return end;
    end += 1;
  }
  return end;
}

// The blocks of a text: {type, source, closed}.
export function splitBlocks(lines) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const { type, end, closed } = blockAt(lines, at);
    blocks.push({ type, lines: lines.slice(at, end), closed: closed !== false });
    at = end;
  }
  return blocks;
}

export function renderBlock(block, depth = 0) {
  const { type, lines } = block;
  if (type === "code") return renderCode(block);
  if (type === "heading") {
    const [, marks, text] = HEADING.exec(lines[0]);
    // h1 is the page's; the headings of an answer are below that of the message.
    return inline(el(`h${Math.min(marks.length + 2, 6)}`, { dir: "auto", class: `h${marks.length}` }), text);
  }
  if (type === "rule") return el("hr");
  if (type === "quote" && depth < DEPTH) {
    const inner = lines.map((line) => line.replace(/^ {0,3}> ?/, ""));
    return el("blockquote", { dir: "auto" }, splitBlocks(inner).map((b) => renderBlock(b, depth + 1)));
  }
  if (type === "list" && depth < DEPTH) return renderList(lines, depth);
  if (type === "table") return renderTable(lines);
  return inline(el("p", { dir: "auto" }), lines.map((line) => line.replace(/^[ \t]+/, "")).join("\n"));
}

function renderCode({ lines, closed }) {
  const [, indent, mark, info] = FENCE.exec(lines[0]);
  const body = lines.slice(1, closed && lines.length > 1 ? -1 : undefined)
    .map((line) => line.replace(new RegExp(`^ {0,${indent.length}}`), ""));
  return codeBlock(body.join("\n"), info.trim().split(/\s/)[0].slice(0, 30), mark);
}

function renderList(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const ordered = isNumber(first[2]);
  const list = el(ordered ? "ol" : "ul", { dir: "auto" });
  const start = Number.parseInt(first[2], 10);
  if (ordered && start !== 1) list.setAttribute("start", start);
  let at = 0;
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    // The text of an item begins behind its mark; what is indented as far belongs to it.
    const width = item[1].length + item[2].length + Math.min(Math.max((item[3] || " ").length, 1), 4);
    const inner = [item[4] || ""];
    const gap = new RegExp(`^(?: {1,${width}}|\t)`);
    at += 1;
    while (at < lines.length) {
      const next = ITEM.exec(lines[at]);
      if (next && next[1].length < width - 1 && next[1].length <= first[1].length + 1) break;
      inner.push(lines[at].replace(gap, ""));
      at += 1;
    }
    list.append(renderItem(inner, depth));
  }
  return list;
}

function renderItem(lines, depth) {
  const li = el("li", { dir: "auto" });
  const task = /^\[([ xX])\][ \t]+/.exec(lines[0]);
  if (task) {
    li.className = "task";
    li.append(el("span", { class: "box", role: "img", aria: { label: task[1] === " " ? "open" : "done" } },
      task[1] === " " ? "☐" : "☑"), " ");
    lines[0] = lines[0].slice(task[0].length);
  }
  const blocks = splitBlocks(lines);
  // The items of a tight list are no paragraphs.
  const loose = lines.slice(0, -1).some((line, i) => line.trim() === "" && lines[i + 1].trim() !== "");
  for (const block of blocks) {
    if (block.type === "paragraph" && !loose) inline(li, block.lines.map((l) => l.trim()).join("\n"));
    else li.append(renderBlock(block, depth + 1));
  }
  return li;
}

function cells(line) {
  const row = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return row.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function renderTable(lines) {
  const aligns = cells(lines[1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "end") : null);
  const row = (line, tag) => el("tr", {}, cells(line).slice(0, aligns.length).map((cell, i) =>
    inline(el(tag, { dir: "auto", class: aligns[i], scope: tag === "th" ? "col" : null }), cell)));
  return el("div", { class: "table-wrap", tabindex: "0", role: "region", aria: { label: "Table" } },
    el("table", {}, el("thead", {}, row(lines[0], "th")), el("tbody", {}, lines.slice(2).map((l) => row(l, "td")))));
}

// --- text within blocks ----------------------------------------------------------------------------------------------

const PLAIN = /[^\\`*_~[!\nh]+/y;
const URL_HERE = /https?:\/\/[^\s<>"`\\^{|}]+/y;
// The rest of a link behind `](`: an address, perhaps in < >, perhaps a title, and the end.
const ADDRESS =
  /^[ \t]*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'))?[ \t]*\)/;
const PUNCTUATION = /[!-/:-@[-`{-~]/;

// A list with neighbours, so that wrapping what lies between two marks costs what is wrapped once.
class Chain {
  constructor() {
    this.head = { node: null };
    this.tail = this.head;
  }

  push(item) {
    item.prev = this.tail;
    this.tail.next = item;
    this.tail = item;
    return item;
  }
}

// Appends the text to `parent` as nodes.
export function inline(parent, text, depth = 0) {
  const chain = new Chain();
  let buffer = "";
  const flush = () => {
    if (buffer) chain.push({ node: document.createTextNode(buffer) });
    buffer = "";
  };
  const put = (node) => {
    flush();
    chain.push({ node });
  };
  const lacking = new Set();    // lengths of runs of backticks that nothing closes any more
  let at = 0;
  while (at < text.length) {
    PLAIN.lastIndex = at;
    const plain = PLAIN.exec(text);
    if (plain) {
      buffer += plain[0];
      at = PLAIN.lastIndex;
      continue;
    }
    const c = text[at];
    if (c === "\\" && at + 1 < text.length && PUNCTUATION.test(text[at + 1])) {
      buffer += text[at + 1];
      at += 2;
    } else if (c === "\n") {
      buffer = buffer.replace(/[ \t]+$/, "");
      put(el("br"));
      at += 1;
    } else if (c === "`") {
      const run = /`+/y;
      run.lastIndex = at;
      const marks = run.exec(text)[0];
      const close = lacking.has(marks.length) ? -1 : closingTicks(text, at + marks.length, marks.length);
      if (close < 0) {
        lacking.add(marks.length);
        buffer += marks;
        at += marks.length;
      } else {
        let code = text.slice(at + marks.length, close).replaceAll("\n", " ");
        if (/^ .*[^ ].* $/.test(code)) code = code.slice(1, -1);
        put(el("code", { dir: "ltr" }, code));
        at = close + marks.length;
      }
    } else if (c === "*" || c === "_" || c === "~") {
      flush();
      at = pushMarks(chain, text, at);
    } else if ((c === "[" || (c === "!" && text[at + 1] === "[")) && depth < 3) {
      const link = linkAt(text, c === "!" ? at + 1 : at);
      if (link) {
        put(linkNode(link, c === "!", depth));
        at = link.end;
      } else {
        buffer += c;
        at += 1;
      }
    } else if (c === "h") {
      URL_HERE.lastIndex = at;
      const url = /[\p{L}\p{N}]/u.test(text[at - 1] || " ") || depth > 0 ? null : URL_HERE.exec(text);
      if (url) {
        const address = trimAddress(url[0]);
        put(anchor(address, address) || document.createTextNode(address));
        at += address.length;
      } else {
        buffer += c;
        at += 1;
      }
    } else {
      buffer += c;
      at += 1;
    }
  }
  flush();
  emphasise(chain);
  for (let item = chain.head.next; item; item = item.next) parent.append(item.node ?? item.marks);
  return parent;
}

function closingTicks(text, from, length) {
  const ticks = /`+/g;
  ticks.lastIndex = from;
  for (let run = ticks.exec(text); run; run = ticks.exec(text)) if (run[0].length === length) return run.index;
  return -1;
}

// What follows an address in prose is not of it: a full stop, a bracket that it does not open.
function trimAddress(url) {
  let end = url.length;
  for (;;) {
    const last = url[end - 1];
    if (/[.,:;!?'*_~]/.test(last)) end -= 1;
    else if (last === ")" && !url.slice(0, end).includes("(")) end -= 1;
    else if (last === "]" && !url.slice(0, end).includes("[")) end -= 1;
    else return url.slice(0, end);
  }
}

function linkAt(text, open) {
  const limit = Math.min(text.length, open + LINK_LOOK);
  let level = 0;
  let close = -1;
  for (let i = open; i < limit; i += 1) {
    if (text[i] === "\\") i += 1;
    else if (text[i] === "[") level += 1;
    else if (text[i] === "]" && --level === 0) {
      close = i;
      break;
    }
  }
  if (close < 0 || text[close + 1] !== "(") return null;
  const match = ADDRESS.exec(text.slice(close + 2, close + 2 + LINK_LOOK));
  if (!match) return null;
  return { label: text.slice(open + 1, close), address: match[1] ?? match[2], end: close + 2 + match[0].length };
}

// A link that opens elsewhere and tells nobody where it was; null for all that is not http or https.
export function anchor(address, label) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, label);
}

function linkNode({ label, address }, picture, depth) {
  const link = anchor(address, "");
  if (link) return picture ? (link.append(`picture: ${label || address}`), link) : inline(link, label, depth + 1);
  // Nothing that could be followed: both parts are shown.
  const span = inline(el("span", {}), label, depth + 1);
  span.append(` (${address})`);
  return span;
}

function pushMarks(chain, text, at) {
  const c = text[at];
  let end = at;
  while (text[end] === c) end += 1;
  const before = text[at - 1] ?? " ";
  const after = text[end] ?? " ";
  const space = /\s/;
  const word = /[\p{L}\p{N}]/u;
  const punctuation = /[\p{P}\p{S}]/u;
  const left = !space.test(after) && (!punctuation.test(after) || space.test(before) || punctuation.test(before));
  const right = !space.test(before) && (!punctuation.test(before) || space.test(after) || punctuation.test(after));
  const open = c === "_" ? left && !word.test(before) : left;
  const close = c === "_" ? right && !word.test(after) : right;
  const usable = c !== "~" || end - at === 2;
  chain.push({ marks: text.slice(at, end), open: usable && open, close: usable && close, node: null });
  return end;
}

// Pairs of marks become elements. Each opener is used or left behind once: linear.
function emphasise(chain) {
  const openers = { "*": [], _: [], "~": [] };
  for (let item = chain.head.next; item; item = item.next) {
    if (item.marks === undefined) continue;
    const stack = openers[item.marks[0]];
    while (item.close && item.marks && stack.length > 0) {
      const opener = stack[stack.length - 1];
      const c = item.marks[0];
      const n = c === "~" ? 2 : Math.min(opener.marks.length, item.marks.length, 2);
      const node = el(c === "~" ? "del" : n === 2 ? "strong" : "em");
      for (let inner = opener.next; inner !== item; inner = inner.next) {
        node.append(inner.node ?? inner.marks);
        // Marks within are spent.
        if (inner.marks !== undefined) inner.spent = true;
      }
      const wrapped = { node, prev: opener, next: item };
      opener.next = wrapped;
      item.prev = wrapped;
      opener.marks = opener.marks.slice(n);
      item.marks = item.marks.slice(n);
      if (!opener.marks) stack.pop();
      for (const kind of Object.values(openers)) while (kind.at(-1)?.spent) kind.pop();
    }
    if (item.open && item.marks) stack.push(item);
  }
}

// --- a text that grows -----------------------------------------------------------------------------------------------

export class MarkdownView {
  constructor(root, onBlock = null) {
    this.root = root;
    this.blocks = [];
    this.text = "";
    this.onBlock = onBlock;    // called with the text of each block that is finished while the answer grows
  }

  update(text) {
    if (text === this.text) return;
    this.text = text;
    const blocks = splitBlocks(text.replaceAll("\r\n", "\n").split("\n"));
    let same = 0;
    while (same < blocks.length && same < this.blocks.length && isSame(blocks[same], this.blocks[same])) same += 1;
    while (this.root.childNodes.length > same) this.root.lastChild.remove();
    for (let i = same; i < blocks.length; i += 1) this.root.append(renderBlock(blocks[i]));
    if (this.onBlock) {
      for (let i = Math.max(this.blocks.length - 1, 0); i < blocks.length - 1; i += 1) this.onBlock(spoken(blocks[i]));
    }
    this.blocks = blocks;
  }

  // The block at the end, which no other has followed yet.
  last() {
    return this.blocks.length > 0 ? spoken(this.blocks[this.blocks.length - 1]) : "";
  }
}

function isSame(a, b) {
  return a.type === b.type && a.closed === b.closed && a.lines.length === b.lines.length &&
    a.lines.every((line, i) => line === b.lines[i]);
}

function spoken({ type, lines }) {
  return type === "code" ? "A block of code." : lines.join(" ").replace(/[*_`#>|]+/g, "").slice(0, 1000);
}
