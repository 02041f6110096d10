"""What texts may do and may not: markup, length, directions."""

import re
import time

from browser import Keys, check, equal
from flows import Flows


class Texts(Flows):
    def flow_script_of_the_model(self):
        b = self.browser
        b.ask("mock: script")
        b.send("<script>window.hacked = 8</script><img src=x onerror='window.hacked=9'>")
        b.answered()
        check(b.js("return window.hacked === undefined"), "nothing ran")
        equal(b.count("#messages :is(script, img, iframe, b b, i[onclick], style, link)"), 0, "elements of the text")
        check("<script>window.hacked = 1</script>" in b.js("return document.querySelector('.text').innerText"),
              "it is shown as text")
        links = b.js("return [...document.querySelectorAll('#messages a')].map((a) => [a.href, a.rel])")
        check(links and all(re.match(r"https?://", href) for href, _ in links), f"links: {links}")
        check(all("noopener" in rel and "noreferrer" in rel for _, rel in links), f"rel: {links}")
        equal(links[0][0], "https://example.org/a_(b)?q=", "the address ends before <")
        check("javascript:" in b.js("return document.querySelector('.text').innerText"), "a bad link is text")
        b.check_page("structure")

    def flow_script_in_names(self):
        b = self.browser
        b.ask("<b>title</b>")
        equal(b.count(".entry b, #title b"), 0, "elements in titles")
        equal(b.text("#title"), "<b>title</b>", "the title")
        b.menu("<b>title</b>", "Rename")
        field = b.one("#question-field")
        field.clear()
        field.send_keys("<img src=x onerror=window.hacked=1>", Keys.ENTER)
        b.wait("document.querySelector('#title').innerText.includes('<img')", "renamed")
        equal(b.count("#list img, #title img"), 0, "elements")
        check(b.js("return window.hacked === undefined"), "nothing ran")

    def flow_markdown(self):
        b = self.browser
        b.ask("mock: markdown")
        q = lambda css: b.js("return document.querySelector('.text').querySelectorAll(arguments[0]).length", css)
        t = lambda css: b.js("return document.querySelector('.text').querySelector(arguments[0])?.textContent", css)
        wanted = {"h3.h1": 1, "h4.h2": 1, "strong": 1, "em": 2, "del": 1, "a": 2, "ol > li": 3, "ol ul > li": 2,
                  "li.task": 2, "blockquote": 1, ".code": 1, "table": 1, "hr": 1, "td.end": 1}
        for css, n in wanted.items():
            equal(q(css), n, css)
        equal(t("h3.h1"), "A heading", "the heading")
        check("snake_case_names stay" in t("p"), "underscores within words")
        check("2 * 3 * 4 = 24" in b.text(".text"), "stars between spaces")
        equal(t("td"), "a | b", "an escaped bar")
        equal(t("td.end"), "1", "a cell at the right")
        check(q(".c-comment") == 2 and q(".c-word") >= 2, "colours of code")
        equal(b.js("return document.querySelector('.code code').textContent"),
              'def merge(a, b):\n    # Two sorted lists become one.\n    return sorted(a + b)  # "text"',
              "code verbatim")
        b.check_page("names", "structure", "contrast")

    def flow_long_answer(self):
        b = self.browser
        started = time.time()
        text = b.ask("mock: long 100")
        check(len(text) > 90000, f"{len(text)} characters are shown")
        check(time.time() - started < 30, f"it took {time.time() - started:.1f} s")
        check(b.count(".text code") > 1000, "and it is markdown")

    def flow_long_line_of_open_marks(self):
        b = self.browser
        started = time.time()
        text = b.ask("mock: line 100")
        check(len(text) > 60000, f"{len(text)} characters are shown")
        check(time.time() - started < 30, f"it took {time.time() - started:.1f} s")

    def flow_long_question(self):
        b = self.browser
        whole = "x" * 50 + " " + "Wörter und 词 " * 9000
        b.ask(whole)
        equal(self.requests()[0]["messages"][0]["content"], whole, "all of it was sent")
        equal(len(b.js("return document.querySelector('.bubble .plain').textContent")), 1201, "folded")
        b.js("document.querySelector('.bubble .link').click()")
        equal(b.js("return document.querySelector('.bubble .plain').textContent"), whole, "all of it is shown")
        b.driver.refresh()
        b.wait("document.querySelectorAll('.message').length === 2", "it is kept")

    def flow_emoji_and_right_to_left(self):
        b = self.browser
        b.ask("mock: rtl")
        dirs = b.js("""return [...document.querySelectorAll('.text p')].map((p) =>
                        [p.dir, getComputedStyle(p).direction])""")
        equal(dirs, [["auto", "rtl"], ["auto", "rtl"], ["auto", "ltr"]], "directions of paragraphs")
        check("👩‍👩‍👧‍👦 🏳️‍🌈 🇺🇦" in b.text(".text"), "emoji are whole")
        b.ask("שלום! מה שלומך? 🙂")
        bubble = b.js("return getComputedStyle([...document.querySelectorAll('.bubble .plain')].at(-1)).direction")
        equal(bubble, "rtl", "the question's direction")
        check("שלום! מה שלומך? 🙂" in b.text(".text"), "the answer repeats it")
