# What the tests of weir serve share: starting the program, asking it, and reading streams, with nothing but Python's
# standard library.
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

PROGRAM = os.environ.get("WEIR_PROGRAM", "build/bin/weir")
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(SOURCE, "samples/models/weir-tiny-reasoner-q8_0.gguf")
MODEL_ID = "weir-tiny-reasoner-q8_0"
JSON = b"Content-Type: application/json\r\n"  # of a raw request


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def model_with_template(path, template):
    """The tiny model with another chat template, written to path (as tests/cli/cli_test.h does it)."""
    data = bytearray(open(MODEL, "rb").read())
    at = data.find(b"tokenizer.chat_template")
    data[at:at + 1] = b"T"
    more = b""

    def add(key, value):
        nonlocal more
        more += len(key).to_bytes(8, "little") + key + (8).to_bytes(4, "little")
        more += len(value).to_bytes(8, "little") + value

    add(b"tokenizer.chat_template", template.encode())
    filler = b"general.filler"
    add(filler, b" " * (32 - (len(more) + 8 + len(filler) + 4 + 8) % 32))
    data[16] += 2
    data[24:24] = more
    with open(path, "wb") as f:
        f.write(data)
    return path


class Server:
    """A running server. Usable as a context: it is then ended by SIGTERM and must end well."""

    def __init__(self, *arguments, model=MODEL):
        command = [PROGRAM, "serve", "-m", model, "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        match = re.fullmatch(r"listening on (http://(.*):(\d+)/)\n", line)
        if not match:
            _, err = self.process.communicate(timeout=20)
            if "without cpp-httplib" in err:
                skip(err.strip())
            raise AssertionError(f"first line {line!r}, stderr: {err}")
        self.address = match.group(1)
        self.host = match.group(2).strip("[]")
        self.port = int(match.group(3))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None:
            self.process.kill()
            self.process.wait()
            return
        status, err = self.end()
        assert status == 0, f"status {status}: {err}"
        assert err == "", err

    def end(self, number=signal.SIGTERM, seconds=15):
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, err

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) * 1024

    def connect(self, timeout=60):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and the body, parsed where it is JSON."""
        connection = self.connect()
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        kind = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, path, data, dict(kind, **(headers or {})))
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        is_json = response.getheader("Content-Type", "").startswith("application/json")
        return response.status, dict(response.getheaders()), json.loads(raw) if is_json and raw else raw

    def get(self, path):
        status, _, body = self.ask("GET", path)
        assert status == 200, (path, status, body)
        return body

    def post(self, path, body):
        status, _, answer = self.ask("POST", path, body)
        assert status == 200, (path, status, answer)
        return answer

    def chat(self, text="Hello", **fields):
        body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 8}
        body.update(fields)
        return self.post("/v1/chat/completions", body)

    def stream(self, path, body):
        """A Stream of the answer; the status must be 200."""
        return Stream(self, path, body)

    def raw(self, data, timeout=5):
        """Sends bytes as they are; what comes back until the server closes or is silent for so long."""
        s = socket.create_connection((self.host, self.port), timeout=timeout)
        got = b""
        try:
            s.sendall(data)
            while True:
                part = s.recv(65536)
                if not part:
                    break
                got += part
        except (socket.timeout, ConnectionError):
            pass
        finally:
            s.close()
        return got


class Stream:
    def __init__(self, server, path, body=None):
        self.connection = server.connect()
        if body is None:
            self.connection.request("GET", path)
        else:
            self.connection.request("POST", path, json.dumps(dict(body, stream=True)),
                                    {"Content-Type": "application/json"})
        self.socket = self.connection.sock
        self.response = self.connection.getresponse()
        assert self.response.status == 200, (self.response.status, self.response.read())
        self.comments = []

    def events(self):
        """(name, data) of each event, the data parsed but for [DONE]."""
        name = None
        while True:
            try:
                line = self.response.readline()
            except (ConnectionError, http.client.IncompleteRead):
                return
            if not line:
                return
            line = line.decode().rstrip("\n")
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
            elif line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                text = line[6:]
                yield name, text if text == "[DONE]" else json.loads(text)
                name = None

    def close(self):
        self.response.close()
        self.connection.close()

    def hang_up(self):
        """From another thread than the one that reads, which then comes to the end."""
        self.socket.shutdown(socket.SHUT_RDWR)


def chat_body(text="Hello", **fields):
    body = {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 8}
    body.update(fields)
    return body


def endless(text="Hello", **fields):
    """A request whose answer ends only with its 8,000 tokens: the one that ends answers is forbidden."""
    return chat_body(text, **dict({"max_tokens": 8000, "logit_bias": {"1630": -100}}, **fields))


# Tabs, line ends and spaces, of which the tiny model writes as many between marks of JSON as it may.
NO_SPACE = {"9": -100, "10": -100, "13": -100, "32": -100}


def wait_until(what, seconds=10):
    end = time.time() + seconds
    while time.time() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def error_of(server, path, body, status=400):
    """The error that the server answers with."""
    got, _, answer = server.ask("POST", path, body)
    assert got == status, (body, got, answer)
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert error["message"], error
    return error


def run_all(tests):
    """Runs functions and prints a line for each; returns how many failed."""
    only = sys.argv[1:]
    unknown = set(only) - {test.__name__ for test in tests}
    if unknown:
        sys.exit("there is no test " + ", ".join(sorted(unknown)))
    n_run = 0
    failed = 0
    begun = time.time()
    for test in tests:
        if only and test.__name__ not in only:
            continue
        n_run += 1
        start = time.time()
        try:
            test()
            print(f"ok   {test.__name__} ({time.time() - start:.1f} s)", flush=True)
        except SystemExit:
            raise
        except BaseException as e:  # a failed check tells its line
            failed += 1
            trace = e.__traceback__
            lines = []
            while trace is not None:
                lines.append(f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}")
                trace = trace.tb_next
            print(f"FAIL {test.__name__}: {type(e).__name__}: {e} at {' '.join(lines[1:])}", flush=True)
    print(f"{n_run - failed} of {n_run} passed in {time.time() - begun:.1f} s")
    return failed
