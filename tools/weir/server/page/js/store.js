// Conversations in the browser's IndexedDB: a list of short entries and a record with the messages each. Every record
// has a revision; a tab that writes on an older one than is stored gets a Conflict and keeps its version under another
// id, so that two tabs never lose a message. Tabs tell each other with storage events.
//
// What an answer has got is written while it grows, and once more, at once, when the page goes away: IndexedDB may be
// cut then, so that goes to localStorage and is taken over by the next load.

import { newId } from "./dom.js";

const CHANGED = "weir.changed";
const PENDING = "weir.pending.";
const FORMAT = "weir-conversations";

export const TAB = (() => {
  try {
    const id = sessionStorage.getItem("weir.tab") || newId();
    sessionStorage.setItem("weir.tab", id);
    return id;
  } catch {
    return newId();
  }
})();

export class Conflict extends Error {}

const asPromise = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function opened() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("weir", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("entries", { keyPath: "id" });
      request.result.createObjectStore("records", { keyPath: "id" });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("blocked"));
  });
}

// The same in memory, for a browser that keeps nothing.
class Memory {
  constructor() {
    this.entries = new Map();
    this.records = new Map();
  }
}

export class Store {
  constructor() {
    this.db = null;
    this.memory = null;
    this.queue = new Map();      // id -> the write that the next one waits for
    this.listeners = [];
  }

  // False where nothing outlives the page.
  async open() {
    try {
      this.db = await opened();
      this.db.onversionchange = () => this.db.close();
    } catch {
      this.memory = new Memory();
    }
    addEventListener("storage", (event) => {
      if (event.key !== CHANGED || !event.newValue) return;
      const change = JSON.parse(event.newValue);
      for (const listener of this.listeners) listener(change);
    });
    await this.takePending();
    return this.memory === null;
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  tell(id, rev) {
    try {
      localStorage.setItem(CHANGED, JSON.stringify({ id, rev, tab: TAB, at: Date.now(), n: newId() }));
    } catch {
      // Other tabs see it when they load.
    }
  }

  async list() {
    const entries = this.memory ? [...this.memory.entries.values()] :
      await asPromise(this.db.transaction("entries").objectStore("entries").getAll());
    return entries.sort((a, b) => b.updated - a.updated);
  }

  async load(id) {
    const record = this.memory ? this.memory.records.get(id) :
      await asPromise(this.db.transaction("records").objectStore("records").get(id));
    return record ? structuredClone(record) : null;
  }

  // Writes one after the other. Throws Conflict where another tab has written since this one loaded.
  save(conversation) {
    const before = this.queue.get(conversation.id) || Promise.resolve();
    const write = before.catch(() => {}).then(() => this.write(conversation));
    this.queue.set(conversation.id, write);
    return write;
  }

  async write(conversation) {
    const next = structuredClone({ ...conversation, rev: (conversation.rev || 0) + 1 });
    const entry = {
      id: next.id, title: next.title, created: next.created, updated: next.updated, rev: next.rev,
      messages: next.messages.length, savedName: next.savedName || null,
    };
    if (this.memory) {
      this.memory.entries.set(entry.id, entry);
      this.memory.records.set(next.id, next);
    } else {
      await this.transaction((entries, records, abort) => {
        const get = entries.get(next.id);
        get.onsuccess = () => {
          // One that was deleted elsewhere meanwhile is written again: rather one too many than one lost.
          if (get.result && get.result.rev !== (conversation.rev || 0)) {
            abort(new Conflict("The conversation was changed in another tab."));
            return;
          }
          entries.put(entry);
          records.put(next);
        };
      });
    }
    conversation.rev = next.rev;
    this.tell(next.id, next.rev);
  }

  transaction(work) {
    return new Promise((resolve, reject) => {
      const transaction = this.db.transaction(["entries", "records"], "readwrite");
      let reason = null;
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(reason || transaction.error);
      transaction.onerror = () => {};
      work(transaction.objectStore("entries"), transaction.objectStore("records"), (error) => {
        reason = error;
        transaction.abort();
      });
    });
  }

  async remove(id) {
    if (this.memory) {
      this.memory.entries.delete(id);
      this.memory.records.delete(id);
    } else {
      await this.transaction((entries, records) => {
        entries.delete(id);
        records.delete(id);
      });
    }
    this.tell(id, null);
  }

  // --- an answer that was running when the page went away ---

  // Synchronous: the page is going.
  keepPending(conversation, message) {
    try {
      localStorage.setItem(PENDING + conversation.id, JSON.stringify(message));
    } catch {
      // Too large for it: what IndexedDB has is at most half a second older.
    }
  }

  async takePending() {
    let keys = [];
    try {
      keys = Object.keys(localStorage).filter((key) => key.startsWith(PENDING));
    } catch {
      return;
    }
    for (const key of keys) {
      try {
        const kept = JSON.parse(localStorage.getItem(key));
        localStorage.removeItem(key);
        const conversation = await this.load(key.slice(PENDING.length));
        const message = conversation?.messages.find((m) => m.id === kept.id);
        if (!message || message.state !== "streaming") continue;
        const length = (m) => (m.content || "").length + (m.reasoning || "").length;
        if (length(kept) >= length(message)) Object.assign(message, kept);
        message.state = "cut";
        await this.save(conversation);
      } catch {
        // Whatever it was, it is no reason not to start.
      }
    }
  }

  // --- files ---

  async exported(ids = null) {
    const entries = ids ? ids.map((id) => ({ id })) : await this.list();
    const conversations = [];
    for (const { id } of entries) {
      const record = await this.load(id);
      if (record) conversations.push(record);
    }
    return JSON.stringify({ format: FORMAT, version: 1, exported: new Date().toISOString(), conversations }, null, 1);
  }

  // Takes over the conversations of a file; ones that are here already, changed, come as copies. Returns their ids.
  async imported(text) {
    const conversations = readFile(text);
    const ids = [];
    for (const conversation of conversations) {
      const present = await this.load(conversation.id);
      if (present && said(present) === said(conversation)) {
        ids.push(present.id);
        continue;
      }
      if (present) conversation.id = newId();
      conversation.rev = 0;
      await this.save(conversation);
      ids.push(conversation.id);
    }
    return ids;
  }
}

// What was said in a conversation, without when and how.
const said = ({ messages }) => JSON.stringify(messages.map((m) => [m.role, m.content, m.reasoning, m.toolCalls]));

const STATS = ["tokens", "promptTokens", "cachedTokens", "tokensPerSecond", "ms", "recalled", "kv", "dense"];
const ROLES = ["user", "assistant", "tool"];
const asText = (value, limit) => (typeof value === "string" ? value.slice(0, limit) : "");
const asTime = (value) => (Number.isFinite(value) && value > 0 ? value : Date.now());

// The conversations of an exported file, each field checked: a file is somebody else's.
export function readFile(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}`);
  }
  if (file === null || typeof file !== "object" || file.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error(`This file has no conversations: its "format" is not "${FORMAT}".`);
  }
  return file.conversations.map((c, i) => {
    if (c === null || typeof c !== "object" || !Array.isArray(c.messages)) {
      throw new Error(`Conversation ${i + 1} of the file has no list of messages.`);
    }
    return {
      id: /^[0-9a-f]{8,32}$/.test(c.id) ? c.id : newId(), rev: 0, title: asText(c.title, 200) || "Imported",
      created: asTime(c.created), updated: asTime(c.updated), system: asText(c.system, 1e6),
      tools: asText(c.tools, 1e6), savedName: /^[0-9a-f]{1,64}$/.test(c.savedName) ? c.savedName : null,
      messages: c.messages.map((m, j) => readMessage(m, `Message ${j + 1} of conversation ${i + 1}`)),
    };
  });
}

function readMessage(m, where) {
  if (m === null || typeof m !== "object" || !ROLES.includes(m.role)) {
    throw new Error(`${where} has no role that is known: ${ROLES.join(", ")}.`);
  }
  const message = { id: newId(), role: m.role, content: asText(m.content, 2 ** 24), at: asTime(m.at) };
  if (m.role === "tool") {
    message.tool_call_id = asText(m.tool_call_id, 200);
    message.name = asText(m.name, 200);
  }
  if (m.role === "assistant") {
    message.reasoning = asText(m.reasoning, 2 ** 24);
    message.reasoningTokens = Number.isFinite(m.reasoningTokens) ? m.reasoningTokens : 0;
    message.reasoningMs = Number.isFinite(m.reasoningMs) ? m.reasoningMs : 0;
    message.state = m.state === "done" ? "done" : "cut";
    message.finish = asText(m.finish, 40) || null;
    message.toolCalls = (Array.isArray(m.toolCalls) ? m.toolCalls : []).map((call) => ({
      id: asText(call?.id, 200), name: asText(call?.name, 200), arguments: asText(call?.arguments, 2 ** 20),
    }));
    if (m.stats && typeof m.stats === "object") {
      message.stats = {};
      for (const key of STATS) {
        if (Number.isFinite(m.stats[key])) message.stats[key] = m.stats[key];
      }
    }
  }
  return message;
}

// --- preferences: small, and the same for all tabs -------------------------------------------------------------------

const PREFERENCES = "weir.preferences";

export function preferences() {
  try {
    const value = JSON.parse(localStorage.getItem(PREFERENCES) || "{}");
    return value && typeof value === "object" && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

export function setPreferences(changes) {
  const value = { ...preferences(), ...changes };
  for (const key of Object.keys(value)) if (value[key] === null || value[key] === "") delete value[key];
  try {
    localStorage.setItem(PREFERENCES, JSON.stringify(value));
  } catch {
    // For this page only, then.
  }
  return value;
}
