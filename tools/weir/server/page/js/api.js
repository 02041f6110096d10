// The server, as SERVER's endpoints: one function for JSON, one for streams of server-sent events. An answer that says
// no becomes an ApiError with the server's own words.

const TOKEN_KEY = "weir.token";

// `--open` passes the token behind #, which no server sees; it stays in this tab and out of the address bar.
function readToken() {
  const match = /(?:^#|&)token=([^&]+)/.exec(location.hash);
  try {
    if (match) {
      sessionStorage.setItem(TOKEN_KEY, decodeURIComponent(match[1]));
      history.replaceState(null, "", location.pathname + location.search);
    }
    return sessionStorage.getItem(TOKEN_KEY);
  } catch {
    return match ? decodeURIComponent(match[1]) : null;
  }
}
let token = readToken();

export function setToken(text) {
  token = text;
  try {
    sessionStorage.setItem(TOKEN_KEY, text);
  } catch {
    // For as long as the page is open.
  }
}

export class ApiError extends Error {
  constructor(status, error, retryAfter = null) {
    super(error.message || `The server answered with status ${status}.`);
    this.status = status;
    this.type = error.type || null;
    this.param = error.param || null;
    this.code = error.code || null;
    this.retryAfter = retryAfter;
  }

  // What a message keeps of it.
  record() {
    const { message, status, type, param, code, retryAfter } = this;
    return { message, status, type, param, code, retryAfter };
  }
}

// The server is not there, or the connection broke.
export class NetworkError extends Error {}

async function request(path, { method = "GET", body = undefined, signal = undefined } = {}) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new NetworkError("The server does not answer.");
  }
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error || {};
  } catch {
    // Not JSON: the status says what there is to say.
  }
  const retry = Number.parseInt(response.headers.get("Retry-After") || "", 10);
  throw new ApiError(response.status, error, Number.isFinite(retry) ? retry : null);
}

export async function getJson(path, signal) {
  return (await request(path, { signal })).json();
}

export async function send(method, path, body) {
  const response = await request(path, { method, body });
  const text = await response.text();
  return text ? JSON.parse(text) : {};
}

export const post = (path, body) => send("POST", path, body);

// Reads text/event-stream: calls onEvent(type, data) for each event and onComment(text) for each comment. Lines end
// with LF, CRLF or CR, wherever the network cut them. Returns when the stream ends; throws NetworkError when it breaks.
export async function stream(path, { method = "GET", body, signal, onOpen, onEvent, onComment }) {
  const response = await request(path, { method, body, signal });
  if (onOpen) onOpen(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser(onEvent, onComment);
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (signal?.aborted) throw new DOMException("aborted", "AbortError");
      throw new NetworkError("The connection broke.");
    }
    if (part.done) return;
    parser.push(part.value);
  }
}

export class EventParser {
  constructor(onEvent, onComment = () => {}) {
    this.onEvent = onEvent;
    this.onComment = onComment || (() => {});
    this.rest = "";
    this.type = "";
    this.data = [];
    this.afterCr = false;
  }

  push(text) {
    // An LF that opens a part belongs to a CR that ended the last one.
    if (this.afterCr && text.startsWith("\n")) text = text.slice(1);
    this.afterCr = text.endsWith("\r");
    const lines = (this.rest + text).split(/\r\n|\n|\r/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === "") {
      if (this.data.length > 0) this.onEvent(this.type || "message", this.data.join("\n"));
      this.type = "";
      this.data = [];
      return;
    }
    if (line.startsWith(":")) {
      this.onComment(line.slice(1).trim());
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "event") this.type = value;
    else if (field === "data") this.data.push(value);
  }
}
