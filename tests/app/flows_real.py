"""Against `weir serve` itself, with the model of the repository."""

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

    REAL_QUESTION = "a=5\nb=a+3\nc=b+4\nc?"

    def real_flow_answer_and_gauge(self):
        b = self.browser
        self.begin_real()
        b.send(self.REAL_QUESTION)
        b.answered(120)
        check(b.text(".message.answer .text") or b.text(".message.answer .thought-count"), "there is an answer")
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
        b.wait("document.querySelector('.message.answer .text').innerText.length + "
               "(document.querySelector('.thought-count')?.innerText.length || 0) > 3 || "
               "document.querySelector('#stop').hidden", "it begins", 60)
        b.js("const stop = document.querySelector('#stop'); if (!stop.hidden) stop.click()")
        b.answered()
        if b.count(".go-on"):
            b.click(".go-on")
            b.answered(120)
            equal(b.count(".note.error"), 0, "it goes on without an error")
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
        b.send("b?")
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
                local = (ROOT / "samples/server/page" / (path or "index.html")).read_bytes()
                check(answer.read() == local, f"/{path} is the file of the repository")
        self.end_real()
