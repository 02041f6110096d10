// Conversations and the answers that run in them. A conversation is a list of messages; an answer is one message that
// grows. Nothing here touches the page's elements: `changed(conversation)` tells the view.
//
// States of an answer: streaming, done, stopped (by the user), cut (by the network or a reload), error (the server said
// no, before or within the answer). A part of an answer is always kept; stopped and cut ones can go on.

import { ApiError, NetworkError, post, stream } from "./api.js";
import { newId } from "./dom.js";
import { Conflict, preferences, TAB } from "./store.js";

const SAVE_EVERY = 400;        // ms, while an answer grows
const OWNER_GONE = 6000;       // ms without a sign of the tab that an answer runs in
const TITLE = 60;

export function newConversation(fields = {}) {
  const now = Date.now();
  return {
    id: newId(), rev: 0, title: "New conversation", created: now, updated: now, system: "", tools: "", savedName: null,
    messages: [], ...fields,
  };
}

const newAnswer = () => ({
  id: newId(), role: "assistant", content: "", reasoning: "", reasoningTokens: 0, reasoningMs: 0, toolCalls: [],
  state: "streaming", finish: null, at: Date.now(), error: null, stats: {}, owner: TAB, beat: Date.now(),
});

// What another answer to the same question replaces, and what is kept of each.
const VERSION_FIELDS = ["id", "content", "reasoning", "reasoningTokens", "reasoningMs", "toolCalls", "state", "finish",
  "at", "error", "stats"];
const asVersion = (message) => Object.fromEntries(VERSION_FIELDS.map((key) => [key, message[key]]));

export function titleOf(text) {
  const line = text.trim().split("\n", 1)[0].trim();
  if (line.length <= TITLE) return line || "New conversation";
  const cut = line.slice(0, TITLE);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), TITLE / 2)).trimEnd()}…`;
}

// As the server gets them. Answers that have nothing and errors are no messages.
export function asRequestMessages(conversation, upTo = conversation.messages.length) {
  const messages = [];
  if (conversation.system.trim()) messages.push({ role: "system", content: conversation.system });
  for (const message of conversation.messages.slice(0, upTo)) {
    if (message.role === "user") messages.push({ role: "user", content: message.content });
    else if (message.role === "tool") {
      messages.push({ role: "tool", tool_call_id: message.tool_call_id, content: message.content });
    } else if (message.content || message.reasoning || message.toolCalls?.length) {
      const answer = { role: "assistant", content: message.content };
      if (message.reasoning) answer.reasoning_content = message.reasoning;
      if (message.toolCalls?.length) {
        answer.tool_calls = message.toolCalls.map((call) => ({
          id: call.id, type: "function", function: { name: call.name, arguments: call.arguments },
        }));
      }
      messages.push(answer);
    }
  }
  return messages;
}

const NUMBERS = ["temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "max_tokens"];
const WEIR_NUMBERS = ["min_p", "top_k", "repeat_penalty", "thinking_budget"];

export function asRequest(conversation, upTo, goOn) {
  const wish = preferences();
  const body = {
    messages: asRequestMessages(conversation, upTo), stream: true, stream_options: { include_usage: true },
    weir: { conversation: conversation.id },
  };
  for (const key of NUMBERS) if (Number.isFinite(wish[key])) body[key] = wish[key];
  for (const key of WEIR_NUMBERS) if (Number.isFinite(wish[key])) body.weir[key] = wish[key];
  if (wish.reasoning_effort) body.reasoning_effort = wish.reasoning_effort;
  const tools = conversation.tools.trim() ? JSON.parse(conversation.tools) : [];
  if (tools.length > 0) body.tools = tools;
  if (goOn) body.weir.continue = true;
  return body;
}

export class Chats {
  constructor(store, changed, notice) {
    this.store = store;
    this.changed = changed;      // (conversation, message or null)
    this.notice = notice;        // (text, action or null, isError)
    this.runs = new Map();       // conversation id -> {controller, message, id, ...}
    addEventListener("pagehide", () => {
      for (const { conversation, message } of this.runs.values()) store.keepPending(conversation, message);
    });
  }

  isRunning(conversation) {
    return this.runs.has(conversation.id);
  }

  // An answer that another tab writes, as far as one can tell.
  runsElsewhere(conversation) {
    const last = conversation.messages.at(-1);
    return last?.state === "streaming" && !this.isRunning(conversation) && last.owner !== TAB &&
      Date.now() - last.beat < OWNER_GONE;
  }

  // After a load: an answer whose page is gone was cut.
  settle(conversation) {
    let settled = false;
    for (const message of conversation.messages) {
      if (message.state !== "streaming" || this.runs.get(conversation.id)?.message.id === message.id) continue;
      if (message.owner !== TAB && Date.now() - message.beat < OWNER_GONE) continue;
      message.state = "cut";
      settled = true;
    }
    return settled;
  }

  async save(conversation) {
    try {
      await this.store.save(conversation);
    } catch (error) {
      if (error instanceof Conflict) await this.keepBoth(conversation);
      else this.notice(`The browser could not keep the conversation: ${error?.message || error}`, null, true);
    }
  }

  // Another tab wrote the same conversation meanwhile: this tab's version goes on under another id.
  async keepBoth(conversation) {
    const run = this.runs.get(conversation.id);
    this.runs.delete(conversation.id);
    conversation.id = newId();
    conversation.rev = 0;
    conversation.savedName = null;
    conversation.title = `${conversation.title} (this tab)`;
    if (run) this.runs.set(conversation.id, run);
    await this.store.save(conversation);
    this.notice("Another tab changed this conversation at the same time. Both are kept.");
    this.changed(conversation, null);
  }

  busy(conversation) {
    if (!this.isRunning(conversation) && !this.runsElsewhere(conversation)) return false;
    this.notice("An answer is being written; stop it first.");
    return true;
  }

  // --- what a user does ---

  async ask(conversation, text) {
    if (this.busy(conversation)) return false;
    if (conversation.messages.length === 0 && !conversation.named) conversation.title = titleOf(text);
    conversation.messages.push({ id: newId(), role: "user", content: text, at: Date.now() });
    return this.answer(conversation);
  }

  // The results of all calls of the last answer go to the model. results: call id -> text
  async answerTools(conversation, results) {
    if (this.busy(conversation)) return false;
    const last = conversation.messages.at(-1);
    for (const call of last.toolCalls) {
      conversation.messages.push({
        id: newId(), role: "tool", tool_call_id: call.id, name: call.name, content: results.get(call.id),
        at: Date.now(),
      });
    }
    return this.answer(conversation);
  }

  answer(conversation, versions = null) {
    const message = newAnswer();
    if (versions) {
      message.versions = [...versions, null];
      message.version = versions.length;
    }
    conversation.messages.push(message);
    return this.run(conversation, message, false);
  }

  // Another answer in place of this one, which is kept as a version if nothing followed it.
  async regenerate(conversation, id) {
    if (this.busy(conversation)) return;
    const index = conversation.messages.findIndex((m) => m.id === id);
    const old = conversation.messages[index];
    const undo = this.undoable(conversation);
    const followed = index < conversation.messages.length - 1;
    conversation.messages.length = index;
    const versions = old.versions ? [...old.versions] : [null];
    versions[old.version || 0] = asVersion(old);
    if (followed) this.notice("The messages behind this answer were removed.", undo);
    const useful = versions.filter((v) => v && (v.content || v.reasoning || v.toolCalls.length > 0));
    await this.answer(conversation, useful.length > 0 ? useful : null);
  }

  async goOn(conversation, id) {
    if (this.busy(conversation)) return;
    const message = conversation.messages.find((m) => m.id === id);
    if (message !== conversation.messages.at(-1)) return;
    if (!message.content && !message.reasoning) {
      await this.regenerate(conversation, id);
      return;
    }
    Object.assign(message, { state: "streaming", owner: TAB, beat: Date.now(), error: null, finish: null });
    await this.run(conversation, message, true);
  }

  showVersion(conversation, id, version) {
    const message = conversation.messages.find((m) => m.id === id);
    if (!message?.versions || this.isRunning(conversation)) return;
    message.versions[message.version] = asVersion(message);
    const { id: ignored, ...fields } = message.versions[version];
    Object.assign(message, fields, { version });
    conversation.updated = Date.now();
    this.save(conversation);
    this.changed(conversation, null);
  }

  // Restores the messages as they are now.
  undoable(conversation) {
    const messages = structuredClone(conversation.messages);
    return {
      label: "Undo",
      run: () => {
        if (this.busy(conversation)) return;
        conversation.messages = messages;
        this.save(conversation);
        this.changed(conversation, null);
      },
    };
  }

  async edit(conversation, id, text) {
    if (this.busy(conversation)) return;
    const index = conversation.messages.findIndex((m) => m.id === id);
    const undo = this.undoable(conversation);
    if (index < conversation.messages.length - 1) this.notice("What followed the message was removed.", undo);
    conversation.messages.length = index;
    if (index === 0 && !conversation.named) conversation.title = titleOf(text);
    await this.ask(conversation, text);
  }

  // Back to this message: an answer stays and what follows goes; a question goes too, and its text is returned, to be
  // asked in other words.
  rewind(conversation, id) {
    if (this.busy(conversation)) return "";
    const index = conversation.messages.findIndex((m) => m.id === id);
    const message = conversation.messages[index];
    const undo = this.undoable(conversation);
    conversation.messages.length = message.role === "user" ? index : index + 1;
    conversation.updated = Date.now();
    this.notice("Rewound.", undo);
    this.save(conversation);
    this.changed(conversation, null);
    return message.role === "user" ? message.content : "";
  }

  // A conversation of its own with the messages up to this one.
  async fork(conversation, id) {
    const index = conversation.messages.findIndex((m) => m.id === id);
    const messages = structuredClone(conversation.messages.slice(0, index + 1));
    for (const message of messages) if (message.state === "streaming") message.state = "cut";
    const copy = newConversation({
      title: `${conversation.title} (fork)`, named: true, system: conversation.system, tools: conversation.tools,
      messages,
    });
    await this.save(copy);
    return copy;
  }

  async stop(conversation) {
    const run = this.runs.get(conversation.id);
    if (!run) return;
    run.stopped = true;
    // The hang-up ends the answer as well; this ends it also where a proxy keeps the connection.
    if (run.id) post("/v1/weir/cancel", { id: run.id }).catch(() => {});
    run.controller.abort();
  }

  async finishThinking(conversation) {
    const run = this.runs.get(conversation.id);
    if (!run?.id) return;
    try {
      const { done } = await post("/v1/weir/finish_thinking", { id: run.id });
      if (!done) this.notice("The model was not thinking any more.");
    } catch (error) {
      this.notice(error.message, null, true);
    }
  }

  // --- an answer ---

  async run(conversation, message, goOn) {
    const index = conversation.messages.indexOf(message);
    const run = {
      conversation, message, controller: new AbortController(), id: null, stopped: false, prompt: null,
      saved: Date.now(), started: performance.now(), thoughtFrom: null, complete: false, tokens: 0,
      // What the message had before, so that counts go on.
      before: { reasoningMs: message.reasoningMs, reasoningTokens: message.reasoningTokens,
        tokens: (goOn && message.stats?.tokens) || 0 },
    };
    this.runs.set(conversation.id, run);
    conversation.updated = Date.now();
    this.changed(conversation, null);
    await this.save(conversation);
    this.changed(conversation, null);
    // A tab that only waits still has to show that it is there.
    const beat = setInterval(() => this.keepSaving(run, true), 2000);
    try {
      await stream("/v1/chat/completions", {
        method: "POST", body: asRequest(conversation, goOn ? index + 1 : index, goOn), signal: run.controller.signal,
        onEvent: (type, data) => this.take(run, data),
        onComment: (text) => {
          const match = /^prompt (\d+)\/(\d+)/.exec(text);
          if (!match) return;
          run.prompt = { done: Number(match[1]), of: Number(match[2]) };
          this.changed(conversation, message);
        },
      });
      if (message.state === "streaming") message.state = run.complete ? "done" : "cut";
    } catch (error) {
      this.fail(run, error);
    } finally {
      clearInterval(beat);
      this.endThought(run);
      message.stats.ms = performance.now() - run.started;
      delete message.owner;
      delete message.beat;
      this.runs.delete(run.conversation.id);
      conversation.updated = Date.now();
      this.changed(conversation, null);
      await this.save(conversation);
      this.changed(conversation, null);
    }
    return true;
  }

  fail(run, error) {
    const { message } = run;
    if (run.stopped) message.state = "stopped";
    else if (error instanceof ApiError) Object.assign(message, { state: "error", error: error.record() });
    else if (error instanceof NetworkError) message.state = "cut";
    else if (error.name === "AbortError") message.state = "cut";
    else {
      // A field that cannot be sent, such as tools that are not JSON.
      Object.assign(message, { state: "error", error: { message: error.message } });
    }
  }

  take(run, data) {
    const { message } = run;
    if (data === "[DONE]") {
      run.complete = true;
      return;
    }
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      // A part of an event: whatever broke, the stream's end tells.
      return;
    }
    if (chunk.error) {
      Object.assign(message, { state: run.stopped ? "stopped" : "error", error: chunk.error });
      return;
    }
    if (chunk.id) run.id = chunk.id;
    if (chunk.weir) takeNumbers(message, chunk.weir);
    const choice = chunk.choices?.[0];
    if (choice) this.takeDelta(run, choice.delta || {});
    if (choice?.finish_reason) {
      message.finish = choice.finish_reason;
      run.complete = true;
    }
    if (chunk.usage) takeUsage(run, chunk.usage);
    this.changed(run.conversation, message);
    this.keepSaving(run, false);
  }

  takeDelta(run, delta) {
    const { message } = run;
    if (delta.reasoning_content) {
      run.thoughtFrom ??= performance.now();
      message.reasoning += delta.reasoning_content;
      message.reasoningTokens += 1;
      message.reasoningMs = run.before.reasoningMs + performance.now() - run.thoughtFrom;
    }
    if (delta.content) {
      this.endThought(run);
      message.content += delta.content;
    }
    for (const part of delta.tool_calls || []) {
      this.endThought(run);
      const call = (message.toolCalls[part.index ?? message.toolCalls.length] ??= { id: "", name: "", arguments: "" });
      if (part.id) call.id = part.id;
      if (part.function?.name) call.name += part.function.name;
      if (part.function?.arguments) call.arguments += part.function.arguments;
    }
    if (delta.reasoning_content || delta.content || delta.tool_calls) {
      run.prompt = null;
      run.tokens += 1;
      message.stats.tokens = run.before.tokens + run.tokens;
    }
  }

  endThought(run) {
    if (run.thoughtFrom === null) return;
    run.before.reasoningMs += performance.now() - run.thoughtFrom;
    run.message.reasoningMs = run.before.reasoningMs;
    run.thoughtFrom = null;
  }

  keepSaving(run, beat) {
    const now = Date.now();
    if (run.message.state !== "streaming" || (now - run.saved < SAVE_EVERY && !beat)) return;
    // A write that takes longer than the next one should wait is not piled up.
    if (run.saving) return;
    run.saved = now;
    run.message.beat = now;
    run.saving = true;
    this.save(run.conversation).finally(() => { run.saving = false; });
  }
}

function takeNumbers(message, weir) {
  const fields = {
    prompt_tokens: "promptTokens", cached_tokens: "cachedTokens", tokens_per_second: "tokensPerSecond",
    recalled_pages: "recalled", kv_bytes: "kv", kv_budget_bytes: "budget", dense_bytes: "dense",
  };
  for (const [from, to] of Object.entries(fields)) if (Number.isFinite(weir[from])) message.stats[to] = weir[from];
}

function takeUsage(run, usage) {
  const { message, before } = run;
  if (Number.isFinite(usage.completion_tokens)) message.stats.tokens = before.tokens + usage.completion_tokens;
  if (Number.isFinite(usage.prompt_tokens)) message.stats.promptTokens = usage.prompt_tokens;
  if (Number.isFinite(usage.prompt_tokens_details?.cached_tokens)) {
    message.stats.cachedTokens = usage.prompt_tokens_details.cached_tokens;
  }
  const thought = usage.completion_tokens_details?.reasoning_tokens;
  if (Number.isFinite(thought) && message.reasoning) message.reasoningTokens = before.reasoningTokens + thought;
}
