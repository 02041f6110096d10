"""Against `weir serve` itself, with the model of the repository."""

import json
import re
import subprocess
import tempfile
import urllib.request

from browser import Keys, ROOT, check, equal, expects
from flows import Flows


class Real(Flows):
    def begin_real(self, *arguments):
        """Starts `weir serve` with the model of the repository and opens its page; returns where it is."""
        folder = tempfile.mkdtemp(prefix="weir-app-")
        self.process = subprocess.Popen(
            [self.program, "serve", "-m", self.model, "--port", "0", "--save-dir", folder, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        match = re.match(r"listening on (http://\S+)", line)
        check(match, f"weir serve says {line!r}")
        self.browser.open(match.group(1))
        return match.group(1)

    def end_real(self):
        self.browser.driver.get("about:blank")      # a page that stays would miss its server
        self.process.terminate()
        equal(self.process.wait(20), 0, "the exit status of weir serve")

    REAL_QUESTION = ("Start: x0 = 97, x1 = 57, x2 = 60. Rule: x[n] = x[n-3] - x[n-1]. Work modulo 100. "
                     "Find x60.")

    def real_flow_answer_and_gauge(self):
        b = self.browser
        self.begin_real()
        b.send(self.REAL_QUESTION)
        b.answered(120)
        check("x60 =" in b.text(".message.answer .text"), b.text(".message.answer .text"))
        # Token for token: the count of the thought is that of the usage.
        check(int(b.text(".thought-count").split()[0].replace(",", "")) > 500, b.text(".thought-count"))
        b.wait("!document.querySelector('#gauge').classList.contains('empty')", "a session holds the conversation")
        check(re.match(r"[\d.]+ (bytes|KiB|MiB)", b.text(".gauge-now")), b.text(".gauge-now"))
        b.click("#pages-open")
        b.wait("/^\\d+ pages?:/.test(document.querySelector('.grid').getAttribute('aria-label'))", "its pages")
        b.check_page("names", "structure", "contrast")
        b.action(".message.answer", "Regenerate")
        b.wait("document.querySelector('.versions')", "another answer")
        b.answered(120)
        self.end_real()

    def real_flow_stop_and_go_on(self):
        b = self.browser
        self.begin_real()
        b.send(self.REAL_QUESTION)
        b.wait("Number(document.querySelector('.thought-count')?.innerText.match(/\\d+/)?.[0]) > 20", "it thinks", 60)
        b.js("document.querySelector('#stop').click()")
        b.answered()
        check("Stopped" in b.text(".note-box"), "stopped within its thought")
        thought = b.js("document.querySelector('.thought').open = true;"
                       "return document.querySelector('.thought-text').textContent")
        b.click(".go-on")
        b.wait("document.querySelector('.text').innerText.includes('x60 =') || document.querySelector('.note.error')",
               "it goes on to the answer", 120)
        b.answered(120)
        equal(b.count(".note.error"), 0, "errors")
        whole = b.js("return document.querySelector('.thought-text').textContent")
        check(whole.startswith(thought) and len(whole) > len(thought), "the same thought goes on")
        self.end_real()

    def real_flow_finish_thinking(self):
        b = self.browser
        self.begin_real()
        b.send(self.REAL_QUESTION.replace("x60", "x600"))
        b.wait("!document.querySelector('#finish').hidden", "the button", 60)
        b.click("#finish")
        b.wait("document.querySelector('.text').innerText.length > 0 || document.querySelector('#stop').hidden",
               "the answer begins", 60)
        b.js("document.querySelector('#stop').hidden || document.querySelector('#stop').click()")
        b.answered(120)
        equal(b.count(".note.error"), 0, "errors")
        self.end_real()

    def real_flow_hang_up_frees_the_session(self):
        b = self.browser
        url = self.begin_real()
        b.send(self.REAL_QUESTION.replace("x60", "x600"))
        b.wait("document.querySelector('.thought-count')?.innerText", "it thinks", 60)
        b.driver.get("about:blank")
        b.wait(lambda: all(s["state"] == "idle" for s in json.load(urllib.request.urlopen(
            url + "v1/weir/sessions"))["sessions"]), "the sessions are idle", 10)
        b.open(url)
        b.wait("document.querySelector('.note.cut')", "the page has kept what came")
        self.end_real()

    @expects("status of 4")
    def real_flow_settings(self):
        b = self.browser
        self.begin_real()
        b.click("#settings-open")
        b.wait("document.querySelector('.verdict')", "the plan", 60)
        check(b.count(".choice") > 10, "policies and presets")
        check(b.js("return [...document.querySelectorAll('.choice span')].every((s) => s.innerText.length > 10 || "
                   "!s.checkVisibility())"), "each with a sentence")
        b.js("[...document.querySelectorAll('.fit')].find((c) => c.title.startsWith('arkvale, 512')).click()")
        b.wait("document.querySelector('#policy-policy-arkvale').checked", "chosen")
        b.wait("document.querySelector('.verdict.yes')", "it fits")
        b.click(".apply")
        b.wait("document.querySelector('.apply-note').innerText.startsWith('Applied')", "applied", 60)
        b.check_page("names", "structure", "contrast")
        b.keys(Keys.ESCAPE)
        b.wait("document.querySelector('#chip').innerText.includes('arkvale')", "the chip says so")
        self.end_real()

    def real_flow_saved(self):
        b = self.browser
        self.begin_real()
        b.send(self.REAL_QUESTION)
        b.answered(120)
        title = b.text("#title")
        b.menu(title, "Save on the server")
        b.wait("document.querySelectorAll('.entry.saved').length === 1", "saved")
        b.click(".entry.saved .entry-open")
        b.wait("document.querySelector('#toasts').innerText.includes('Restored')", "restored")
        b.send("Hello")
        b.answered(120)
        equal(b.count(".note.error"), 0, "and it goes on")
        self.end_real()

    def real_flow_page_headers(self):
        url = self.begin_real()
        for path, kind in (("", "text/html"), ("app.css", "text/css"), ("js/app.js", "text/javascript")):
            with urllib.request.urlopen(url + path) as answer:
                check(answer.headers["Content-Type"].startswith(kind), f"{path}: {answer.headers['Content-Type']}")
                policy = answer.headers["Content-Security-Policy"]
                check("default-src 'none'" in policy and "unsafe" not in policy, policy)
                local = (ROOT / "tools/weir/server/page" / (path or "index.html")).read_bytes()
                check(answer.read() == local, f"/{path} is the file of the repository")
        self.end_real()
