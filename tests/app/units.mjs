// The parts of the page that need no browser, run by test_page.py with node: streams of events, blocks of Markdown,
// files of conversations. The page's folder is the first argument.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

// What modules look at when they are loaded.
globalThis.location = { hash: "", pathname: "/", search: "" };
globalThis.sessionStorage = { getItem: () => null, setItem() {} };
globalThis.localStorage = { getItem: () => null, setItem() {} };
globalThis.addEventListener = () => {};

const page = pathToFileURL(`${process.argv[2]}/`);
const load = (name) => import(new URL(`js/${name}.js`, page));
const { EventParser } = await load("api");
const { splitBlocks } = await load("markdown");
const { readFile } = await load("store");
const { asRequestMessages, titleOf } = await load("chat");
const { bytes } = await load("dom");
const { countPages, gridLayout } = await load("pages");

const tests = {
  events_wherever_the_network_cuts_them() {
    for (const end of ["\n", "\r\n", "\r"]) {
      const lines = [": prompt 1/2", "event: session", "data: {\"a\":1}", "", "data: x", "data: y", "", "data:z", "", ""];
      const text = lines.join(end);
      for (let cut = 0; cut <= text.length; cut += 1) {
        const got = [];
        const parser = new EventParser((type, data) => got.push([type, data]), (c) => got.push([":", c]));
        parser.push(text.slice(0, cut));
        parser.push(text.slice(cut));
        parser.push(end);
        assert.deepEqual(got, [[":", "prompt 1/2"], ["session", "{\"a\":1}"], ["message", "x\ny"], ["message", "z"]],
          `${JSON.stringify(end)} at ${cut}`);
      }
    }
  },

  blocks() {
    const types = (text) => splitBlocks(text.split("\n")).map((b) => b.type).join(" ");
    assert.equal(types("# a\n\ntext\nmore\n- one\n- two\n\n  still two\n\nend"), "heading paragraph list paragraph");
    assert.equal(types("```c\nint a;\n\n# no heading\n```\nafter"), "code paragraph");
    assert.equal(types("~~~\nopen to the end\n\n# no"), "code");
    assert.equal(types("a | b\n--|--\n1 | 2\n\n> q\nlazy\n\n---"), "table quote rule");
    assert.equal(types("1. a\n2. b\n- c"), "list list");
    assert.equal(types("- a\n---\n- b"), "list rule list");
    assert.equal(types(""), "");
    assert.equal(splitBlocks("```\nx".split("\n"))[0].closed, false);
    // What stands at the end changes, what stands before does not: so an answer grows.
    const long = "para\n\n- a\n- b\n\n```js\nlet x = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend of it";
    for (let n = 1; n < long.length; n += 1) {
      const now = splitBlocks(long.slice(0, n).split("\n"));
      const then = splitBlocks(long.slice(0, n + 1).split("\n"));
      now.slice(0, -2).forEach((block, i) => assert.deepEqual(block.lines, then[i].lines, `at ${n}`));
    }
  },

  blocks_of_100_kB_in_linear_time() {
    for (const line of [">", "- ", "|", "`", "* ", "1. ", "#", "  - a\n"]) {
      const started = performance.now();
      splitBlocks(line.repeat(100000 / line.length).split("\n"));
      splitBlocks(`${line}\n`.repeat(20000).split("\n"));
      assert.ok(performance.now() - started < 2000, `${JSON.stringify(line)}: ${performance.now() - started} ms`);
    }
  },

  files_of_conversations() {
    const wrong = (value, words) => assert.throws(() => readFile(value), (e) => e.message.includes(words));
    wrong("{", "not JSON");
    wrong("null", "no conversations");
    wrong('{"format":"weir-conversations","conversations":{}}', "no conversations");
    wrong('{"format":"weir-conversations","conversations":[null]}', "Conversation 1");
    wrong('{"format":"weir-conversations","conversations":[{"messages":[{"role":"system"}]}]}', "Message 1");
    const [c] = readFile(JSON.stringify({ format: "weir-conversations", conversations: [{
      id: "../../etc", title: 7, created: "x", savedName: "../x", messages: [
        { role: "assistant", content: 5, state: "streaming", toolCalls: [{ name: 1 }, null], stats: { tokens: "x" } },
        { role: "user", content: "a".repeat(100000) }] }] }));
    assert.match(c.id, /^[0-9a-f]{16}$/);
    assert.deepEqual([c.title, c.savedName, c.messages[0].content, c.messages[0].state], ["Imported", null, "", "cut"]);
    assert.deepEqual(c.messages[0].toolCalls[1], { id: "", name: "", arguments: "" });
    assert.equal(c.messages[1].content.length, 100000);
  },

  messages_of_a_request() {
    const messages = asRequestMessages({ system: "Be brief.", messages: [
      { role: "user", content: "q" },
      { role: "assistant", content: "", reasoning: "", toolCalls: [], state: "error" },
      { role: "assistant", content: "", reasoning: "t", toolCalls: [{ id: "c", name: "f", arguments: "{}" }] },
      { role: "tool", content: "r", tool_call_id: "c", name: "f" }] });
    assert.deepEqual(messages, [
      { role: "system", content: "Be brief." }, { role: "user", content: "q" },
      { role: "assistant", content: "", reasoning_content: "t",
        tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }] },
      { role: "tool", tool_call_id: "c", content: "r" }]);
  },

  titles_and_numbers() {
    assert.equal(titleOf("  one line\nand more"), "one line");
    assert.equal(titleOf(" \n "), "New conversation");
    assert.ok(titleOf("word ".repeat(100)).length <= 61);
    assert.deepEqual([bytes(0), bytes(1536), bytes(6 << 20), bytes(123 << 20), bytes(null)],
      ["0 bytes", "1.5 KiB", "6.0 MiB", "123 MiB", "–"]);
  },

  pages() {
    assert.deepEqual(countPages("##.*x"), { pool: 3, out: 1, back: 1, lost: 1 });
    for (const n of [1, 31, 32, 500, 5000, 20000]) {
      const { cell, columns, rows } = gridLayout(n, 330);
      assert.ok(columns * rows >= n && columns * cell <= 330, `${n} pages`);
    }
  },
};

for (const [name, test] of Object.entries(tests)) {
  test();
  console.log(`ok  ${name}`);
}
