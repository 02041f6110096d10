#!/usr/bin/env python3
# weir serve and those who mean it no good, or are only slow: other hosts and origins, no token, requests beyond the
# limits, clients that hang up, read nothing or send byte by byte, a full queue, the end, and the memory that stays.
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from server_test import JSON, MODEL, PROGRAM, Server, Stream, chat_body, endless, error_of, run_all, wait_until

server = None  # of most tests


def test_host_and_origin():
    own = f"127.0.0.1:{server.port}"
    for headers in ({"Host": own}, {"Host": f"localhost:{server.port}"}, {"Host": f"LOCALHOST:{server.port}"},
                    {"Host": f"[::1]:{server.port}"}, {"Host": own, "Origin": "http://" + own}):
        assert server.ask("GET", "/health", headers=headers)[0] == 200, headers
    for headers in ({"Host": "evil.example"}, {"Host": f"evil.example:{server.port}"}, {"Host": "127.0.0.1"},
                    {"Host": f"127.0.0.1:{server.port + 1}"}, {"Host": ""}, {"Host": f"127.0.0.1.evil:{server.port}"},
                    {"Host": own, "Origin": "http://evil.example"}, {"Host": own, "Origin": "null"},
                    {"Host": own, "Origin": "https://" + own},
                    {"Host": own, "Origin": f"http://localhost:{server.port}"}):
        for method, path in (("GET", "/health"), ("GET", "/"), ("POST", "/v1/chat/completions")):
            status, _, answer = server.ask(method, path, None if method == "GET" else "{}", headers)
            assert status == 403, (headers, path, status)
            assert answer["error"]["type"] == "invalid_request_error"
    assert b" 403 " in server.raw(b"GET /health HTTP/1.0\r\n\r\n").split(b"\r\n")[0]


def test_token():
    with Server("--token", "s3cret", "--sessions", "1") as s:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer s3cre"},
                        {"Authorization": "Bearer s3crets"}, {"Authorization": "Basic s3cret"},
                        {"Authorization": "s3cret"}, {"Authorization": "Bearer "}):
            for method, path in (("GET", "/v1/models"), ("GET", "/v1/weir/events"), ("GET", "/v1/nothing"),
                                 ("POST", "/v1/chat/completions"), ("DELETE", "/v1/weir/saved/x")):
                status, got, answer = s.ask(method, path, "{}" if method == "POST" else None, headers)
                assert status == 401, (headers, path, status)
                assert answer["error"]["code"] == "invalid_api_key" and got["WWW-Authenticate"] == "Bearer"
        assert s.ask("GET", "/v1/models", headers={"Authorization": "Bearer s3cret"})[0] == 200
        assert s.ask("GET", "/")[0] == 200 and s.ask("GET", "/health")[0] == 200


def test_sites():
    # A request that another site's page makes is refused; a link to the page is followed.
    own = f"127.0.0.1:{server.port}"
    for headers, path, status in (
            ({"Sec-Fetch-Site": "cross-site"}, "/health", 403), ({"Sec-Fetch-Site": "cross-site"}, "/", 403),
            ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, "/", 200),
            ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, "/v1/models", 403),
            ({"Sec-Fetch-Site": "same-origin"}, "/v1/models", 200), ({"Sec-Fetch-Site": "none"}, "/", 200)):
        assert server.ask("GET", path, headers=dict(headers, Host=own))[0] == status, (headers, path)
    got, _, answer = server.ask("POST", "/v1/chat/completions", chat_body(), {"Sec-Fetch-Site": "cross-site"})
    assert got == 403 and answer["error"]["type"] == "invalid_request_error"


def test_kinds_of_bodies():
    # What a form of another page sends without asking, and what curl -d sends by itself, is no JSON.
    body = json.dumps(chat_body(max_tokens=1))
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/jsonx", "multipart/form-data"):
        for data in (body, body + " " * 10000):
            status, _, answer = server.ask("POST", "/v1/chat/completions", data, {"Content-Type": kind})
            assert status == 415 and "application/json" in answer["error"]["message"], (kind, status, answer)
    for kind in ("application/json; charset=utf-8", "Application/JSON"):
        assert server.ask("POST", "/v1/chat/completions", body, {"Content-Type": kind})[0] == 200, kind
    own = b"Host: 127.0.0.1:%d\r\n" % server.port
    got = server.raw(b"POST /v1/completions HTTP/1.1\r\n" + own + b"Content-Length: 2\r\n\r\n{}")
    assert b" 415 " in got.split(b"\r\n")[0], got
    # Without a length there is no body, and the next request is one.
    start = time.time()
    got = server.raw(b"POST /v1/completions HTTP/1.1\r\n" + own + b"\r\nGET /health HTTP/1.1\r\n" + own +
                     b"Connection: close\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400 ") and got.count(b"HTTP/1.1 200 ") == 1, got
    assert time.time() - start < 3


def test_bodies_together():
    # A body in chunks counts with its size once it was read: more of them than 32 MiB / 8 MiB can be answered.
    body = json.dumps(chat_body(max_tokens=1)).encode()
    request = (b"POST /v1/chat/completions HTTP/1.1\r\n" + JSON + b"Host: 127.0.0.1:%d\r\n"
               b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (server.port, len(body), body))
    connections = []
    try:
        for _ in range(6):  # each stays open after its reply
            s = socket.create_connection((server.host, server.port), timeout=20)
            connections.append(s)
            s.sendall(request)
            assert s.recv(12) == b"HTTP/1.1 200", len(connections)
    finally:
        for s in connections:
            s.close()


def test_limits():
    big = b'{"messages": "' + b"x" * (9 << 20) + b'"}'
    status, _, answer = server.ask("POST", "/v1/chat/completions", b"{}", {"Content-Length": str(9 << 20)})
    assert status == 413, (status, answer)
    got = server.raw(b"POST /v1/chat/completions HTTP/1.1\r\n" + JSON +
                     b"Host: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n"
                     % (server.port, len(big)) + big)
    assert b" 413 " in got.split(b"\r\n")[0], got[:200]
    chunks = b"".join(b"%x\r\n" % len(big[i:i + 65536]) + big[i:i + 65536] + b"\r\n" for i in range(0, len(big), 65536))
    got = server.raw(b"POST /v1/chat/completions HTTP/1.1\r\n" + JSON +
                     b"Host: 127.0.0.1:%d\r\nTransfer-Encoding: chunked\r\n\r\n"
                     % server.port + chunks + b"0\r\n\r\n")
    assert b" 413 " in got.split(b"\r\n")[0] or b" 400 " in got.split(b"\r\n")[0], got[:200]
    # A body in chunks that is not too large is taken.
    body = json.dumps(chat_body(max_tokens=1)).encode()
    got = server.raw(b"POST /v1/chat/completions HTTP/1.1\r\n" + JSON +
                     b"Host: 127.0.0.1:%d\r\nTransfer-Encoding: chunked\r\n"
                     b"Connection: close\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (server.port, len(body), body))
    assert b" 200 " in got.split(b"\r\n")[0], got[:200]
    own = b"Host: 127.0.0.1:%d\r\n" % server.port
    for name, request, statuses in (
            ("one long header", b"GET /health HTTP/1.1\r\n" + own + b"X: " + b"a" * 100000 + b"\r\n\r\n",
             (400, 413, 431)),
            ("many headers", b"GET /health HTTP/1.1\r\n" + own + b"X: y\r\n" * 50000 + b"\r\n", (400, 413, 431)),
            ("long address", b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n" + own + b"\r\n", (414,)),
            ("address of 600", b"GET /" + b"a" * 600 + b" HTTP/1.1\r\n" + own + b"\r\n", (414,)),
            ("no HTTP", b"hello\r\n\r\n", (400,)), ("binary", bytes(range(256)) * 4 + b"\r\n\r\n", (400,)),
            ("negative length", b"POST /v1/completions HTTP/1.1\r\n" + own + b"Content-Length: -1\r\n\r\n", (400,)),
            ("huge length", b"POST /v1/completions HTTP/1.1\r\n" + own + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
             (413,)),
            ("two lengths", b"POST /v1/completions HTTP/1.1\r\n" + own + b"Content-Length: 2\r\n"
             b"Content-Length: 3\r\n\r\n{}x", (400,)),
            ("length and chunks", b"POST /v1/completions HTTP/1.1\r\n" + own + b"Content-Length: 2\r\n"
             b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
            ("gzip", b"POST /v1/completions HTTP/1.1\r\n" + own + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n"
             b"{}", (415,)),
            ("multipart", b"POST /v1/completions HTTP/1.1\r\n" + own + b"Content-Length: 2\r\n"
             b"Content-Type: multipart/form-data; boundary=x\r\n\r\n{}", (415,)),
            ("range", b"GET / HTTP/1.1\r\n" + own + b"Connection: close\r\nRange: bytes=0-1\r\n\r\n", (200,)),
            ("wild range", b"GET / HTTP/1.1\r\n" + own + b"Connection: close\r\nRange: bytes=" + b"0-1," * 1900
             + b"\r\n\r\n", (200, 400, 416)),
            ("old method", b"TRACE / HTTP/1.1\r\n" + own + b"\r\n", (400, 405))):
        got = server.raw(request)
        assert got.startswith(b"HTTP/1.1 "), (name, got[:200])
        status = int(got.split(b" ")[1])
        assert status in statuses, (name, status)
        assert status == 200 or b'"error"' in got, (name, got)
    status, headers, _ = server.ask("GET", "/", headers={"Accept-Encoding": "gzip, br"})
    assert "Content-Encoding" not in headers
    server.chat(max_tokens=1)  # and it is still there


def test_many_connections():
    idle = []
    try:
        for _ in range(160):
            idle.append(socket.create_connection((server.host, server.port)))
        time.sleep(0.3)
        refused = 0
        for s in idle:
            s.setblocking(False)
            try:
                if b" 503 " in s.recv(1000):
                    refused += 1
            except BlockingIOError:
                pass
        assert 0 < refused < 160, refused
        # The idle ones make room for others after two seconds.
        assert wait_until(lambda: b" 200 " in server.raw(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                                                         b"Connection: close\r\n\r\n" % server.port))
    finally:
        for s in idle:
            s.close()
    assert wait_until(lambda: server.ask("GET", "/health")[0] == 200)


def busy():
    return [s for s in server.get("/v1/weir/sessions")["sessions"] if s["state"] != "idle"]


def test_hang_up():
    # Long answers whose clients go: within a step they end, streamed or not, thoughts or prompts.
    for body in (endless(stream=True), endless(), endless("so " * 6000)):
        data = json.dumps(body).encode()
        s = socket.create_connection((server.host, server.port))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + JSON + b"Host: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n"
                  % (server.port, len(data)) + data)
        assert wait_until(busy)
        time.sleep(0.1)
        s.close()
        start = time.time()
        assert wait_until(lambda: not busy(), 5), busy()
        assert time.time() - start < 3
    # How soon: what was computed behind the last token that the client saw.
    talk = server.stream("/v1/chat/completions", endless(logprobs=True))
    seen = 0
    for _, data in talk.events():
        if "weir" in data:
            seen += data["weir"]["prompt_tokens"]
            session = data["weir"]["session"]
        seen += len((data["choices"][0]["logprobs"] or {"content": []})["content"])
        if seen > 50:
            break
    talk.close()
    assert wait_until(lambda: not busy())
    late = server.get("/v1/weir/sessions")["sessions"][session]["tokens"] - seen
    assert late < 20, late
    # One that waits in the queue.
    streams = [server.stream("/v1/chat/completions", endless()) for _ in range(3)]
    assert wait_until(lambda: server.get("/health")["waiting"] == 1)
    streams[2].close()
    streams[0].close()
    assert wait_until(lambda: server.get("/health")["waiting"] == 0)
    streams[1].close()
    assert wait_until(lambda: not busy())
    server.chat(max_tokens=1)


def test_cancel():
    s = server.stream("/v1/chat/completions", endless())
    events = s.events()
    _, first = next(events)
    assert server.post("/v1/weir/cancel", {"id": first["id"]}) == {"cancelled": True}
    last = None
    for _, last in events:
        pass
    assert last["error"]["code"] == "cancelled", last
    assert server.post("/v1/weir/cancel", {"id": first["id"]}) == {"cancelled": False}
    assert server.post("/v1/weir/finish_thinking", {"id": "x"}) == {"done": False}
    assert error_of(server, "/v1/weir/cancel", {})["param"] == "id"
    assert error_of(server, "/v1/weir/cancel", {"id": "x", "y": 1})["param"] == "y"


def test_queue():
    with Server("--sessions", "1", "--queue", "2") as s:
        streams = [s.stream("/v1/chat/completions", endless()) for _ in range(3)]
        assert wait_until(lambda: s.get("/health")["waiting"] == 2)
        status, headers, answer = s.ask("POST", "/v1/chat/completions", chat_body())
        assert status == 429 and "Retry-After" in headers, (status, headers)
        assert answer["error"]["type"] == "rate_limit_error"
        assert s.ask("POST", "/v1/weir/settings", {"policy": "dense"})[0] == 409
        for stream in streams:
            stream.close()
        assert wait_until(lambda: s.ask("POST", "/v1/chat/completions", chat_body(max_tokens=1))[0] == 200)


def test_waiting_is_cancelled():
    # Who waits and is cancelled, or hangs up, leaves the queue although no session becomes idle.
    with Server("--sessions", "1", "--queue", "1") as s:
        talker = s.stream("/v1/chat/completions", endless())
        next(talker.events())
        waiting = s.stream("/v1/responses", {"input": "Hello"})
        events = waiting.events()
        _, first = next(events)
        assert s.get("/health")["waiting"] == 1
        assert s.post("/v1/weir/cancel", {"id": first["response"]["id"]}) == {"cancelled": True}
        assert list(events)[-1][0] == "response.failed"
        assert s.get("/health")["waiting"] == 0
        waiting = s.stream("/v1/responses", {"input": "Hello"})
        assert s.get("/health")["waiting"] == 1
        waiting.close()
        assert wait_until(lambda: s.get("/health")["waiting"] == 0, 3)
        assert s.get("/v1/weir/sessions")["sessions"][0]["state"] == "decode"
        talker.close()


def test_short_prompt_beside_a_long_one():
    # A short prompt is read and answered while a long one is read in the other session.
    reader = server.stream("/v1/chat/completions", chat_body("so " * 900, max_tokens=1))
    assert wait_until(lambda: any(x["state"] == "prompt" for x in busy()))
    server.chat(max_tokens=1)
    assert any(x["state"] == "prompt" for x in busy()), busy()
    # And the long one ends as it should.
    last = [data for _, data in reader.events()]
    assert last[-1] == "[DONE]", last[-1]


def test_prompts_between_steps():
    # While a long prompt is read, an answer goes on, and the prompt's stream tells how far it is.
    talker = server.stream("/v1/chat/completions", endless())
    events = talker.events()
    next(events)
    times = []

    def listen():
        for _, data in events:
            times.append(time.time())

    thread = threading.Thread(target=listen)
    thread.start()
    start = time.time()
    # No session has read the beginning of this one.
    reader = server.stream("/v1/chat/completions", chat_body("between " + "as " * 700, max_tokens=1))
    for _ in reader.events():
        pass
    end = time.time()
    talker.hang_up()
    thread.join()
    during = [t for t in times if start < t < end]
    assert len(during) > 3, (len(during), end - start)
    gaps = [b - a for a, b in zip(during, during[1:])]
    assert max(gaps) < max(1.0, (end - start) / 2), max(gaps)
    assert end - start < 0.3 or any(c.startswith("prompt ") for c in reader.comments), reader.comments


def test_slow_clients():
    with Server("--client-timeout", "1", "--sessions", "2") as s:
        # One that sends its request byte by byte does not hold up others, and one that never reads is dropped.
        slow = socket.create_connection((s.host, s.port))
        slow.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHo")
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect((s.host, s.port))
        body = json.dumps(endless(max_tokens=16000, stream=True, logprobs=True, top_logprobs=20)).encode()
        deaf.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + JSON +
                     b"Host: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n"
                     % (s.port, len(body)) + body)
        start = time.time()
        assert s.chat(max_tokens=4)["usage"]["completion_tokens"] == 4
        assert time.time() - start < 5
        assert wait_until(lambda: all(x["state"] == "idle" for x in s.get("/v1/weir/sessions")["sessions"]), 15)
        deaf.close()
        slow.close()


def test_memory():
    with Server("--sessions", "2", "--policy", "raas", "--budget", "512") as s:
        at_start = s.rss()  # the program and what the drivers of devices took
        def round():
            threads = [threading.Thread(target=s.chat, args=(f"{i} Hello",), kwargs={"max_tokens": 60})
                       for i in range(6)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        def hang():
            stream = s.stream("/v1/chat/completions", endless())
            assert wait_until(lambda: any(x["tokens"] > 560 for x in s.get("/v1/weir/sessions")["sessions"]), 30)
            stream.close()
        for _ in range(2):  # after these the pools of both sessions were full once
            round()
            hang()
        before = s.rss()
        for _ in range(2):
            round()
            hang()
        assert wait_until(lambda: all(x["state"] == "idle" for x in s.get("/v1/weir/sessions")["sessions"]))
        grown = s.rss() - before
        assert grown < 3 << 20, grown
        plan = s.get("/v1/weir/plan")["total_bytes"]
        assert s.rss() < at_start + plan + (8 << 20), (s.rss(), at_start, plan)
        budget = s.get("/v1/weir/plan")["kv_bytes"]
        for state in s.get("/v1/weir/sessions")["sessions"]:
            assert state["kv_budget_bytes"] == budget and state["kv_bytes"] <= budget


def test_end():
    for number in (signal.SIGTERM, signal.SIGINT):
        s = Server("--sessions", "1")
        streams = [s.stream("/v1/chat/completions", endless()) for _ in range(2)]
        watcher = Stream(s, "/v1/weir/events")
        idle = s.connect()
        idle.request("GET", "/health")
        idle.getresponse().read()
        assert wait_until(lambda: s.get("/health")["waiting"] == 1)
        ended = []

        def listen(stream):
            last = None
            for _, last in stream.events():
                pass
            ended.append(last)

        threads = [threading.Thread(target=listen, args=(stream,)) for stream in streams]
        for t in threads:
            t.start()
        start = time.time()
        status, err = s.end(number)
        assert status == 0 and err == "", (status, err)
        assert time.time() - start < 5
        for t in threads:
            t.join()
        assert all("error" in last for last in ended), ended
        watcher.close()


def test_token_of_environment():
    os.environ["WEIR_TOKEN"] = "s3cret-._~+/="
    try:
        with Server("--sessions", "1") as s:
            assert s.ask("GET", "/v1/models")[0] == 401
            assert s.ask("GET", "/v1/models", headers={"Authorization": "Bearer s3cret-._~+/="})[0] == 200
            assert b"s3cret" not in open(f"/proc/{s.process.pid}/cmdline", "rb").read()
    finally:
        del os.environ["WEIR_TOKEN"]


def test_end_at_the_beginning():
    # Signals at any moment from the start of the program until it has listened for a while.
    for wait in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3):
        process = subprocess.Popen([PROGRAM, "serve", "-m", MODEL, "--port", "0"], stdout=subprocess.PIPE)
        time.sleep(wait)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=15)
        assert process.returncode in (0, -signal.SIGTERM), (wait, process.returncode)


def test_command_line():
    def fails(status, *arguments):
        done = subprocess.run([PROGRAM, "serve", *arguments], capture_output=True, text=True, timeout=30)
        assert done.returncode == status, (arguments, done)
        assert done.stdout == "" and done.stderr.count("\n") == 1, done
        return done.stderr
    assert "--token" in fails(2, "-m", MODEL, "--host", "0.0.0.0")
    assert "--token" in fails(2, "-m", MODEL, "--host", "127.evil.example")
    for token in ("a b", "a\tb", "caf\u00e9", "a,b", ""):
        assert "token" in fails(2, "-m", MODEL, "--token", token)
    assert "--model" in fails(2)
    fails(2, "-m", MODEL, "--sessions", "0")
    fails(2, "-m", MODEL, "--port", "65536")
    fails(2, "-m", MODEL, "--policy", "nonsense")
    fails(1, "-m", "/nonexistent.gguf")
    assert "--save-dir" in fails(1, "-m", MODEL, "--save-dir", "/proc/nothing")
    message = fails(1, "-m", MODEL, "--port", str(server.port))
    assert str(server.port) in message and "--port 0" in message
    with Server("--host", "::1", "--sessions", "1") as s:
        assert s.address == f"http://[::1]:{s.port}/"
        assert s.get("/health")["status"] == "ok"


def main():
    global server
    with Server() as server:
        failed = run_all([test_host_and_origin, test_sites, test_kinds_of_bodies, test_bodies_together,
                          test_token, test_token_of_environment, test_end_at_the_beginning,
                          test_limits, test_many_connections, test_hang_up,
                          test_cancel, test_queue, test_waiting_is_cancelled, test_short_prompt_beside_a_long_one,
                          test_prompts_between_steps,
                          test_slow_clients, test_memory, test_end, test_command_line])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
