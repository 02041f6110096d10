// What the server tells by itself: sessions, pages, speed, the queue. One stream of events for the page, opened again
// when it breaks, later each time; what hangs on it learns of every change.

import { ApiError, getJson, stream } from "./api.js";

const ROWS = 320;        // pictures of the pages that are kept for each conversation
const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

export class Live {
  constructor() {
    this.sessions = new Map();
    this.waiting = 0;
    this.connected = null;       // null: not tried yet
    this.problem = null;         // an ApiError where the server refuses
    this.model = null;
    this.settings = null;
    this.plan = null;
    this.history = new Map();    // conversation id -> list of strings of pages, the latest last
    this.returned = new Map();   // conversation id -> Map(page -> when it came back)
    this.listeners = [];
  }

  onChange(listener) {
    this.listeners.push(listener);
  }

  tell(kind) {
    for (const listener of this.listeners) listener(kind);
  }

  // The session that holds a conversation, or null.
  sessionOf(conversationId) {
    for (const session of this.sessions.values()) if (session.conversation === conversationId) return session;
    return null;
  }

  async start() {
    for (let wait = FIRST_WAIT; ; wait = Math.min(wait * 2, LONGEST_WAIT)) {
      try {
        await this.refresh();
        await stream("/v1/weir/events", {
          onOpen: () => {
            wait = FIRST_WAIT / 2;
            this.set(true, null);
          },
          onEvent: (type, data) => this.take(type, JSON.parse(data)),
        });
        this.set(false, null);
      } catch (error) {
        this.set(false, error instanceof ApiError ? error : null);
      }
      await new Promise((resolve) => {
        const timer = setTimeout(done, wait);
        function done() {
          clearTimeout(timer);
          removeEventListener("online", done);
          resolve();
        }
        addEventListener("online", done);
      });
    }
  }

  set(connected, problem) {
    const same = this.connected === connected && this.problem?.message === problem?.message;
    this.connected = connected;
    this.problem = problem;
    if (!same) this.tell("connection");
  }

  // What is asked for, not told: the model, the settings, and the plan that they make.
  async refresh() {
    this.model = await getJson("/v1/weir/model");
    this.settings = await getJson("/v1/weir/settings");
    this.tell("model");
    try {
      this.plan = await getJson("/v1/weir/plan");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.plan = null;
    }
    this.tell("model");
  }

  take(type, data) {
    if (type === "sessions") {
      this.sessions.clear();
      for (const session of data.sessions || []) this.put(session);
    } else if (type === "session") {
      this.put(data);
    } else if (type === "queue") {
      this.waiting = data.waiting;
    } else {
      return;
    }
    this.tell("sessions");
  }

  put(session) {
    this.sessions.set(session.id, session);
    const id = session.conversation;
    if (!id || typeof session.pages !== "string") return;
    const rows = this.history.get(id) || [];
    if (rows.at(-1) !== session.pages) rows.push(session.pages);
    if (rows.length > ROWS) rows.shift();
    this.history.set(id, rows);
    const returned = this.returned.get(id) || new Map();
    const now = performance.now();
    for (let i = session.pages.indexOf("*"); i >= 0; i = session.pages.indexOf("*", i + 1)) returned.set(i, now);
    for (const [page, when] of returned) if (now - when > 4000) returned.delete(page);
    this.returned.set(id, returned);
  }
}
