#!/usr/bin/env python3
"""A server that speaks as `weir serve` does, for tests of the page: the same endpoints, and answers on demand.

What it answers depends on the last message of the user: `mock: NAME [NUMBER]` asks for one of ANSWERS below, anything
else is repeated. It has no model: tokens are words, and pages leave and come back by a rule. GET /mock/requests lists
what was asked, POST /mock/set changes a flag, POST /mock/drop ends all streams of events.

    tests/app/mock_server.py [--port N] [--page FOLDER]
"""

import argparse
import json
import mimetypes
import random
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from mock_texts import MARKDOWN, RTL, SCRIPT, STORY, STORY_THOUGHT

PAGE = Path(__file__).resolve().parents[2] / "tools/weir/server/page"
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                               "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
PAGE_TOKENS = 16
TOKEN_BYTES = 12288
WEIGHT_BYTES = 412 << 20
LIMIT = 1 << 30

POLICIES = [
    ("exact", "preset", "Keeps everything; memory grows to the whole context."),
    ("chat", "preset", "Conversations in little memory: what was said early comes back when a question asks for it."),
    ("reason-recall", "preset", "Long reasoning: pages that nothing wants now wait outside and come back."),
    ("reason-fixed", "preset", "Memory that never grows; what is not read any more is forgotten."),
    ("stream", "preset", "Endless talk with a short memory: the first words and the latest."),
    ("dense", "policy", "Keeps and attends everything."),
    ("sink", "policy", "Keeps the first tokens and a window of recent ones."),
    ("raas", "policy", "Keeps the prompt, recent pages, and pages that attention still reads from."),
    ("quest", "policy", "Keeps everything and attends the best pages for each query."),
    ("arkvale", "policy", "Keeps everything, the budget of it in the pool; what a query wants comes back."),
]
PRESET_OF = {"exact": "dense", "chat": "arkvale", "reason-recall": "arkvale", "reason-fixed": "raas", "stream": "sink"}
BUDGETS = [512, 1024, 2048, 4096, 8192, 16384, 32768]


def words(text):
    """A text in parts as a model would draw them: words with the space in front."""
    return re.findall(r"\s*\S+|\s+$", text)


class Mock:
    def __init__(self):
        self.lock = threading.RLock()
        self.requests = []
        self.sessions = [self.free_session(0), self.free_session(1)]
        self.running = {}          # id of an answer -> {"cancel", "finish_thinking"}
        self.settings = {"policy": "arkvale", "preset": "chat", "budget_tokens": 512, "context_tokens": 32768,
                         "recall": "on", "sessions": 2}
        self.saved = []
        self.flags = {"saves": True, "token": None, "busy": False, "down": False, "delay": 0.012, "story_delay": 0.001}
        self.listeners = []
        self.answers = 0
        self.random = random.Random(7)
        self.generation = 0

    @staticmethod
    def free_session(number):
        return {"id": number, "state": "idle", "conversation": None, "tokens": 0, "tokens_per_second": 0,
                "recalled_pages": 0, "dropped_pages": 0, "pages": "", "store_raw_bytes": 0, "store_bytes": 0, "used": 0}

    def described(self, session):
        budget = self.settings["budget_tokens"] or self.settings["context_tokens"]
        return {**{k: v for k, v in session.items() if k != "used"},
                "kv_bytes": min(-(-session["tokens"] // PAGE_TOKENS) * PAGE_TOKENS, budget) * TOKEN_BYTES,
                "kv_budget_bytes": budget * TOKEN_BYTES, "dense_bytes": session["tokens"] * TOKEN_BYTES}

    def take_session(self, conversation, tokens):
        with self.lock:
            session = next((s for s in self.sessions if s["conversation"] == conversation), None) or \
                min((s for s in self.sessions if s["state"] == "idle"), key=lambda s: s["used"],
                    default=self.sessions[0])
            cached = min(session["tokens"], tokens) if session["conversation"] == conversation else 0
            if session["conversation"] != conversation:
                session.update(self.free_session(session["id"]))
            session.update(conversation=conversation, state="decode", used=time.time())
            self.grow(session, tokens)
            return session, cached

    def grow(self, session, tokens):
        """Recent pages and the first stay in the pool; of the others some come back now and then."""
        session["tokens"] = tokens
        n = -(-tokens // PAGE_TOKENS)
        room = max((self.settings["budget_tokens"] or self.settings["context_tokens"]) // PAGE_TOKENS, 2)
        old = session["pages"]
        if n <= room:
            session["pages"] = "#" * n
            return
        recent = set(range(n - room // 2, n)) | {0}
        kept = [i for i, c in enumerate(old) if c in "#*" and i not in recent]
        back = set()
        if self.random.random() < 0.3:
            outside = [i for i in range(1, n - room // 2) if i >= len(old) or old[i] == "."]
            # The same few places are wanted again and again, as facts are.
            wanted = [i for i in outside if (i * 7919) % 23 < 3] or outside
            back = set(self.random.sample(wanted, min(len(wanted), 2)))
        self.random.shuffle(kept)
        space = room - len(recent) - len(back)
        milestones = [i for i in kept if (i * 7919) % 23 < 3]
        rest = [i for i in kept if i not in milestones]
        pool = recent | set((milestones + sorted(rest, reverse=True))[:max(space, 0)])
        lost = max(0, n - 1500)
        session["pages"] = "".join("*" if i in back else "#" if i in pool else "x" if 0 < i < lost else "."
                                   for i in range(n))
        session["recalled_pages"] += len(back)
        session["store_raw_bytes"] = session["pages"].count(".") * PAGE_TOKENS * TOKEN_BYTES
        session["store_bytes"] = int(session["store_raw_bytes"] / 2.4)

    def tell(self):
        with self.lock:
            self.generation += 1

    def plan(self, name, budget, context):
        policy = PRESET_OF.get(name, name)
        budget = context if policy in ("dense", "quest") else min(budget or 1024, context)
        kv = budget * TOKEN_BYTES
        store = context * TOKEN_BYTES // 2 if policy == "arkvale" else 0
        scratch = 18 << 20
        per_session = kv + store + scratch
        total = WEIGHT_BYTES + self.settings["sessions"] * per_session
        fits = total <= LIMIT
        return {"policy": policy, "budget_tokens": budget, "context_tokens": context, "weight_bytes": WEIGHT_BYTES,
                "kv_bytes": kv, "dense_kv_bytes": context * TOKEN_BYTES, "scratch_bytes": scratch, "store_bytes": store,
                "total_bytes": total, "per_session_bytes": per_session, "fits": fits, "limit_bytes": LIMIT,
                "message": None if fits else "A smaller context or fewer sessions would fit."}

    def fits(self):
        context = self.settings["context_tokens"]
        rows = []
        for name, _, _ in POLICIES:
            whole = PRESET_OF.get(name, name) in ("dense", "quest")
            budgets = [context] if whole else [b for b in BUDGETS if b <= context]
            plans = [self.plan(name, b, context) for b in budgets]
            rows.append({"policy": name, "budgets": [
                {"budget_tokens": b, "total_bytes": p["total_bytes"], "fits": p["fits"]}
                for b, p in zip(budgets, plans)]})
        return {"limit_bytes": LIMIT, "rows": rows}


class Refused(Exception):
    def __init__(self, status, message, param=None, kind="invalid_request_error", code=None, headers=None):
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
        self.headers = headers or {}


class Gone(Exception):
    """The other side hung up, or the test asked for a connection that breaks."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mock = None
    page = PAGE

    def log_message(self, *_):
        pass

    # --- answers over HTTP ---

    def head(self, status, content_type, length=None, extra=None):
        self.send_response(status)
        for name, value in {**SECURITY, **(extra or {}), "Content-Type": content_type}.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def json(self, value, status=200, headers=None):
        data = json.dumps(value).encode()
        self.head(status, "application/json", len(data), headers)
        self.wfile.write(data)

    def chunk(self, text):
        data = text.encode()
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        except OSError as error:
            raise Gone from error

    def hang_up(self):
        """Without the last chunk: the browser sees a connection that broke."""
        self.close_connection = True
        raise Gone

    def do_GET(self):
        self.handle_any("GET")

    def do_POST(self):
        self.handle_any("POST")

    def do_DELETE(self):
        self.handle_any("DELETE")

    def handle_any(self, method):
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if self.mock.flags["down"]:
            self.close_connection = True
            return
        try:
            if url.path.startswith("/v1/"):
                self.check_token()
            route = f"{method} {url.path}"
            if route == "POST /v1/chat/completions":
                self.chat(json.loads(body))
            elif route == "GET /v1/weir/events":
                self.events()
            elif url.path.startswith(("/v1/", "/mock/", "/health")):
                self.json(self.call(method, url, json.loads(body) if body else {}))
            else:
                self.file(url.path)
        except Refused as refused:
            self.json(refused.body, refused.status, refused.headers)
        except Gone:
            self.close_connection = True
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def check_token(self):
        token = self.mock.flags["token"]
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            raise Refused(401, "This server needs a token: start it with --open, or type the token.")

    def file(self, path):
        name = "index.html" if path == "/" else path.lstrip("/")
        file = self.page / name
        if not re.fullmatch(r"index\.html|app\.css|js/[a-z_]+\.js", name) or not file.is_file():
            raise Refused(404, f"There is nothing at {path}.", kind="not_found_error")
        data = file.read_bytes()
        self.head(200, mimetypes.guess_type(name)[0] or "text/plain", len(data))
        self.wfile.write(data)

    # --- Weir's own ---

    def call(self, method, url, body):
        mock = self.mock
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        saved = re.fullmatch(r"/v1/weir/saved/([0-9a-f]+)(/restore)?", url.path)
        if saved:
            return self.saved_one(method, saved.group(1), bool(saved.group(2)))
        name = f"{method} {url.path}"
        if name == "GET /health":
            return {"status": "ok", "sessions": 2, "waiting": 0}
        if name == "GET /v1/weir/model":
            return {"id": "mock", "file": "mock-0.5b-q8_0.gguf", "architecture": "qwen2", "name": "Sample 0.5B",
                    "parameters": 494032768, "weight_bytes": WEIGHT_BYTES, "context_tokens": 32768,
                    "trained_context_tokens": 32768, "device": "cpu", "threads": 8, "version": "1.1.0",
                    "chat": {"has_template": True, "has_thoughts": True, "has_tools": True,
                             "has_thinking_switch": True},
                    "machine": {"memory_bytes": 16 << 30, "available_bytes": 9 << 30, "device": "cpu",
                                "device_bytes": None}, "saves": mock.flags["saves"]}
        if name == "GET /v1/weir/policies":
            return {"policies": [{"name": n, "kind": k, "sentence": s} for n, k, s in POLICIES]}
        if name == "GET /v1/weir/settings":
            return mock.settings
        if name == "POST /v1/weir/settings":
            return self.change_settings(body)
        if name == "GET /v1/weir/plan":
            chosen = query.get("preset") or query.get("policy") or mock.settings["preset"] or mock.settings["policy"]
            if chosen not in [n for n, _, _ in POLICIES]:
                raise Refused(400, f"There is no policy {chosen}.", "policy")
            return mock.plan(chosen, int(query.get("budget", mock.settings["budget_tokens"] or 0)),
                             int(query.get("context", mock.settings["context_tokens"])))
        if name == "GET /v1/weir/fits":
            return mock.fits()
        if name == "GET /v1/weir/sessions":
            return {"sessions": [mock.described(s) for s in mock.sessions]}
        if name == "POST /v1/weir/cancel":
            return self.mark(body, "cancel", "cancelled")
        if name == "POST /v1/weir/finish_thinking":
            return self.mark(body, "finish_thinking", "done")
        if name == "GET /v1/weir/saved" and mock.flags["saves"]:
            return {"saved": mock.saved}
        if name == "POST /v1/weir/saved" and mock.flags["saves"]:
            session = next((s for s in mock.sessions if s["conversation"] == body.get("conversation")), None)
            if session is None:
                raise Refused(404, "No session holds this conversation now.", "conversation", "not_found_error")
            entry = {"name": f"{len(mock.saved) + 0xa1:08x}", "bytes": session["tokens"] * TOKEN_BYTES // 3,
                     "tokens": session["tokens"], "created": int(time.time()), "title": body.get("title", "")}
            mock.saved.append(entry)
            return {"name": entry["name"]}
        if name == "GET /mock/requests":
            return mock.requests
        if name == "POST /mock/set":
            mock.flags.update(body)
            return mock.flags
        if name == "POST /mock/drop":
            with mock.lock:
                for listener in mock.listeners:
                    listener["drop"] = True
            return {}
        if name == "POST /mock/session":
            with mock.lock:
                session = next((s for s in mock.sessions if s["conversation"] == body["conversation"]), None)
                if session is None or body["tokens"] < session["tokens"]:
                    session, _ = mock.take_session(body["conversation"], 16)
                    mock.grow(session, 16)
                for tokens in range(session["tokens"], body["tokens"], body.get("step", 16)):
                    mock.grow(session, tokens)
                mock.grow(session, body["tokens"])
                # Those who draw pictures want a page that just came back.
                for _ in range(100 if body.get("back") else 0):
                    if "*" not in session["pages"]:
                        mock.grow(session, body["tokens"])
                session.update(state="idle")
            mock.tell()
            return {}
        raise Refused(404, f"There is nothing at {url.path}.", kind="not_found_error")

    def saved_one(self, method, name, is_restore):
        entry = next((s for s in self.mock.saved if s["name"] == name), None)
        if entry is None:
            raise Refused(404, "There is no saved session of this name.", kind="not_found_error")
        if method == "DELETE":
            self.mock.saved.remove(entry)
            return {}
        return {"session": 0} if is_restore else {}

    def change_settings(self, body):
        mock = self.mock
        if mock.flags["busy"] or any(s["state"] != "idle" for s in mock.sessions):
            raise Refused(409, "An answer is running; settings change when none is.")
        budget = body.get("budget_tokens")
        if budget is not None and budget < 32:
            raise Refused(400, "budget_tokens must be at least 32.", "budget_tokens")
        name = body.get("preset") or body.get("policy")
        if name:
            mock.settings.update(policy=PRESET_OF.get(name, name), preset=name if body.get("preset") else None)
        for key in ("budget_tokens", "context_tokens"):
            if key in body:
                mock.settings[key] = body[key]
        mock.sessions = [mock.free_session(0), mock.free_session(1)]
        mock.tell()
        return mock.settings

    def mark(self, body, flag, answer):
        run = self.mock.running.get(body.get("id"))
        if run:
            run[flag] = True
        return {answer: run is not None}

    def events(self):
        mock = self.mock
        me = {"drop": False}
        with mock.lock:
            mock.listeners.append(me)
        self.head(200, "text/event-stream")
        seen = {}
        try:
            with mock.lock:
                first = [mock.described(s) for s in mock.sessions]
            self.chunk(f"event: sessions\ndata: {json.dumps({'sessions': first})}\n\n")
            pinged = time.time()
            while not me["drop"]:
                with mock.lock:
                    now = [mock.described(s) for s in mock.sessions]
                for session in now:
                    text = json.dumps(session)
                    if seen.get(session["id"]) != text:
                        seen[session["id"]] = text
                        self.chunk(f"event: session\ndata: {text}\n\n")
                if time.time() - pinged > 5:
                    self.chunk(": ping\n\n")
                    pinged = time.time()
                time.sleep(0.1)
            self.hang_up()
        finally:
            with mock.lock:
                mock.listeners.remove(me)

    # --- chat ---

    def chat(self, body):
        mock = self.mock
        with mock.lock:
            mock.requests.append(body)
            mock.answers += 1
            number = mock.answers
        messages = body.get("messages") or []
        if not messages:
            raise Refused(400, "messages must have at least one message.", "messages")
        asked = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        match = re.match(r"mock: ([\w-]+) ?(\d*)", asked)
        name, value = (match.group(1), int(match.group(2) or 0)) if match else ("", 0)
        goes_on = body.get("weir", {}).get("continue", False)
        if name == "busy" and number % 2 == 1 or name == "429":
            raise Refused(429, "32 requests are waiting already.", kind="rate_limit_error", code="queue_full",
                          headers={"Retry-After": "3"})
        if name == "400":
            raise Refused(400, "temperature must be between 0 and 2, not 9.", "temperature")
        if name == "413":
            raise Refused(413, "The body has more than 8 MiB.")
        if name == "500":
            raise Refused(500, "The device was lost.", kind="server_error")
        count = sum(len(words(m.get("content") or "")) + len(words(m.get("reasoning_content") or "")) + 4
                    for m in messages) + value * (name == "tokens")
        session, cached = mock.take_session((body.get("weir", {}).get("conversation") or "")[:64], count)
        answer = f"chatcmpl-{number:08x}"
        run = {"cancel": False, "finish_thinking": False}
        mock.running[answer] = run
        self.head(200, "text/event-stream")
        try:
            self.stream(body, answer, run, session, cached, count, name, value, goes_on, number, asked)
        finally:
            mock.running.pop(answer, None)
            session["state"] = "idle"
            mock.tell()

    def stream(self, body, answer, run, session, cached, count, name, value, goes_on, number, asked):
        mock = self.mock
        made = {"thought": 0, "text": 0}
        started = time.time()

        def event(delta, finish=None, **extra):
            self.chunk("data: " + json.dumps({
                "id": answer, "object": "chat.completion.chunk", "created": int(started), "model": "mock",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **extra}) + "\n\n")

        def say(text, key="content", delay=None):
            for word in words(text):
                if run["cancel"]:
                    self.chunk('data: {"error": {"message": "The answer was cancelled.", "type": "server_error"}}\n\n')
                    self.chunk("")
                    raise Gone
                if key == "reasoning_content" and run["finish_thinking"]:
                    return
                made["thought" if key == "reasoning_content" else "text"] += 1
                with mock.lock:
                    mock.grow(session, count + made["thought"] + made["text"])
                    session["tokens_per_second"] = round((made["thought"] + made["text"]) /
                                                         max(time.time() - started, 0.01), 1)
                event({key: word})
                time.sleep(mock.flags["delay"] if delay is None else delay)

        if name == "prompt":
            for done in range(0, 2049, 256):
                self.chunk(f": prompt {done}/2048\n\n")
                time.sleep(0.15)
        event({"role": "assistant", "content": ""}, weir={"session": session["id"], "prompt_tokens": count,
              "conversation": session["conversation"], "cached_tokens": cached})
        finish = "stop"
        if goes_on:
            say(" and here it goes on, to the end.")
        elif body["messages"][-1]["role"] == "tool":
            results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
            say(f"The tool says: {'; '.join(results)}.")
        else:
            finish = self.one_of(name, value, say, event, number, asked) or "stop"
        seconds = max(time.time() - started, 0.001)
        described = mock.described(session)
        event({}, finish, weir={
            "tokens_per_second": (made["thought"] + made["text"]) / seconds, "kv_bytes": described["kv_bytes"],
            "kv_budget_bytes": described["kv_budget_bytes"], "dense_bytes": described["dense_bytes"],
            "recalled_pages": session["recalled_pages"], "dropped_pages": 0, "stop_string": None})
        if (body.get("stream_options") or {}).get("include_usage"):
            self.chunk("data: " + json.dumps({"id": answer, "choices": [], "usage": {
                "prompt_tokens": count, "completion_tokens": made["thought"] + made["text"],
                "total_tokens": count + made["thought"] + made["text"],
                "prompt_tokens_details": {"cached_tokens": cached},
                "completion_tokens_details": {"reasoning_tokens": made["thought"]}}}) + "\n\n")
        self.chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def one_of(self, name, value, say, event, number, asked):
        """Says the answer of this name; returns its finish_reason where that is not `stop`."""
        if name == "think":
            say("".join(f"\nStep {i}: one more thing to weigh." for i in range(1, (value or 20) + 1)),
                "reasoning_content", 0.02)
            say("After some thought: **42**.")
        elif name == "slow":
            say(" ".join(f"word{i}" for i in range(1, (value or 200) + 1)), delay=0.04)
        elif name == "cut":
            say("The first half of an answer", delay=0.02)
            self.hang_up()
        elif name == "cut-thinking":
            say("Half of a thought that", "reasoning_content", 0.02)
            self.hang_up()
        elif name == "end":
            say("An answer without an end")
            self.wfile.write(b"0\r\n\r\n")
            raise Gone
        elif name == "length":
            say("An answer that is as long as it may be")
            return "length"
        elif name == "empty":
            return None
        elif name == "error":
            say("Something, and then")
            self.chunk('data: {"error": {"message": "The device was lost.", "type": "server_error"}}\n\n')
            self.wfile.write(b"0\r\n\r\n")
            raise Gone
        elif name in ("tool", "tools"):
            say("I need to look that up.", "reasoning_content")
            calls = [("weather", {"city": "Łódź", "days": 3}), ("clock", {"zone": "UTC"})][:2 if name == "tools" else 1]
            for i, (tool, arguments) in enumerate(calls):
                event({"tool_calls": [{"index": i, "id": f"call_{number}_{i}", "type": "function",
                                       "function": {"name": tool, "arguments": ""}}]})
                for part in re.findall(r".{1,7}", json.dumps(arguments, ensure_ascii=False)):
                    event({"tool_calls": [{"index": i, "function": {"arguments": part}}]})
            return "tool_calls"
        elif name == "script":
            say(SCRIPT, delay=0.001)
        elif name == "markdown":
            say(MARKDOWN, delay=0.001)
        elif name == "rtl":
            say(RTL)
        elif name == "long":
            line = "All work and no play makes a long answer, with `code` and **weight** and *slant* in it. "
            text = "".join(line + ("\n\n" if i % 7 == 6 else "") for i in range((value or 100) * 1000 // len(line) + 1))
            for i in range(0, len(text), 2000):
                event({"content": text[i:i + 2000]})
        elif name == "line":
            text = ("*a **b `c [d _e ~~f https://x " * 4000)[:(value or 100) * 1000]
            for i in range(0, len(text), 5000):
                event({"content": text[i:i + 5000]})
        elif name == "story" or "stairs" in asked:
            say(STORY_THOUGHT, "reasoning_content", self.mock.flags["story_delay"])
            say(STORY, delay=self.mock.flags["story_delay"])
        else:
            say(f"Answer {number}: you said “{asked[:200]}”.")
        return None


def serve(port=0, page=PAGE):
    """A server that runs in a thread of its own. Returns it; .url is where, .mock what it knows."""
    mock = Mock()
    handler = type("BoundHandler", (Handler,), {"mock": mock, "page": Path(page)})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None      # browsers hang up as they like
    server.mock = mock
    server.url = f"http://127.0.0.1:{server.server_address[1]}/"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=8471)
    parser.add_argument("--page", default=PAGE)
    arguments = parser.parse_args()
    print(f"listening on {serve(arguments.port, arguments.page).url}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
