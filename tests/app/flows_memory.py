"""The gauge, the pages, the settings."""

import json
import time

from browser import ActionChains, Keys, check, equal, expects
from flows import Flows


class Memory(Flows):
    def flow_gauge(self):
        b = self.browser
        b.ask("mock: tokens 100")
        b.wait("!document.querySelector('#gauge').classList.contains('empty')", "a session holds it")
        equal(b.text(".gauge-budget"), "budget 6.0 MiB", "the budget")
        self.grow(160)
        b.wait("document.querySelector('.gauge-now').innerText === '1.9 MiB'", "160 tokens")
        self.grow(4096, 64)
        b.wait("document.querySelector('.gauge-now').innerText === '6.0 MiB'", "at the budget")
        check("48.0 MiB" in b.text(".gauge-dense"), b.text(".gauge-dense"))
        equal(b.text(".gauge-times"), "8.0 ×", "the ratio")
        time.sleep(0.6)
        fill, mark, dense = b.js("""const r = (c) => document.querySelector(c).getBoundingClientRect();
            return [r('.fill').right, r('.mark-line').left, r('.dense').right]""")
        check(abs(fill - mark) < 4, f"the bar ends at the mark: {fill}, {mark}")
        check(dense > mark * 1.3, f"the dense one goes far beyond: {dense}, {mark}")
        value = b.js("return document.querySelector('[role=meter]').getAttribute('aria-valuetext')")
        equal(value, "6.0 MiB of a budget of 6.0 MiB; a dense cache would take 48.0 MiB", "in words")
        self.grow(20000, 512)
        b.wait("document.querySelector('.gauge-dense').innerText.includes('234 MiB')", "20,000 tokens")
        equal(b.text(".gauge-now"), "6.0 MiB", "the bar has not moved")

    def pixels(self, css):
        """How many colours a canvas has."""
        return self.browser.js("""const c = document.querySelector(arguments[0]);
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            const seen = new Map();
            for (let i = 0; i < d.length; i += 4) {
              const k = [d[i], d[i + 1], d[i + 2], d[i + 3]].join();
              seen.set(k, (seen.get(k) || 0) + 1);
            }
            return [...seen].filter(([, n]) => n > 20).length""", css)

    def flow_pages_drawer(self):
        b = self.browser
        b.ask("Grow")
        b.click("#pages-open")
        check(b.js("return document.activeElement.closest('#drawer') !== null"), "the focus is in the drawer")
        self.grow(2048, 16)
        b.wait("document.querySelector('.legend').innerText.includes('32 in the pool')", "the pool is full")
        label = b.js("return document.querySelector('.grid').getAttribute('aria-label')")
        check(label.startswith("128 pages: 32 in the pool, 96 outside"), label)
        check(self.pixels(".grid") >= 3 and self.pixels(".river") >= 2, "pictures")
        tiles = b.text(".tiles")
        check("tokens a second" in tiles and "2.4 ×" in tiles and "2,048" in tiles, tiles)
        grid = b.one(".grid")
        size = grid.size
        corner = (5 - size["width"] // 2, 5 - size["height"] // 2)
        ActionChains(b.driver).move_to_element_with_offset(grid, *corner).perform()
        b.wait("document.querySelector('.tip').innerText.startsWith('Page 1, tokens 1 to 16: in the pool')", "the tip")
        b.check_page("names", "structure", "contrast")
        b.click("#drawer .drawer-head button")
        check(b.js("return document.activeElement.id === 'pages-open'"), "the focus is back")

    def flow_thousands_of_pages(self):
        b = self.browser
        b.ask("Grow")
        b.click("#pages-open")
        self.grow(80000, 4000)
        b.wait("document.querySelector('.grid').getAttribute('aria-label').startsWith('5,000 pages')", "5,000 pages")
        check("3,4" in b.text(".legend"), b.text(".legend"))     # lost ones
        box = b.js("const r = document.querySelector('.grid').getBoundingClientRect(); return [r.width, r.height]")
        check(box[1] < 420, f"the strip is {box}")
        took = b.js("""const t = performance.now();
            for (let i = 0; i < 10; i += 1) window.dispatchEvent(new Event('resize'));
            return performance.now() - t""")
        check(took < 500, f"{took} ms")
        check(self.pixels(".ribbon") >= 2, "the ribbon")

    def flow_sessions_of_others(self):
        b = self.browser
        b.ask("Mine")
        b.click("#new")
        b.click("#pages-open")
        check("No session holds this conversation" in b.text("#drawer"), "it says so")
        b.wait("document.querySelector('.sessions').innerText.includes('Mine')", "the sessions are listed")

    def flow_settings_policy_plan_fits(self):
        b = self.browser
        b.click("#settings-open")
        b.wait("document.querySelectorAll('.choice').length === 10", "all policies")
        check(b.js("return document.querySelector('#policy-preset-chat').checked"), "the one that runs")
        check("what was said early comes back" in b.text("#panel-memory"), "its sentence")
        b.wait("document.querySelector('.verdict')?.classList.contains('yes')", "the plan fits")
        b.check_page("names", "structure", "contrast")
        b.js("document.querySelector('#policy-preset-exact').click()")
        b.wait("document.querySelector('.verdict.no')", "exact does not fit")
        check("do not fit" in b.text(".verdict"), b.text(".verdict"))
        check(b.js("return document.querySelector('.apply').disabled"), "and cannot be applied")
        b.js("[...document.querySelectorAll('.fit')].find((c) => c.title.startsWith('reason-fixed, 2,048')).click()")
        b.wait("document.querySelector('#policy-preset-reason-fixed').checked", "a cell chooses the policy")
        equal(b.js("return document.querySelector('#budget').value"), "2048", "and the budget")
        b.wait("document.querySelector('.verdict.yes')", "which fits")
        b.click(".apply")
        b.wait("document.querySelector('.apply-note').innerText.startsWith('Applied')", "applied")
        equal(self.server.mock.settings["preset"], "reason-fixed", "the server's policy")
        equal(self.server.mock.settings["budget_tokens"], 2048, "the server's budget")
        b.keys(Keys.ESCAPE)
        b.wait("document.querySelector('#chip').innerText.includes('reason-fixed')", "the chip says so")

    @expects("status of 409", "status of 400")
    def flow_settings_refused(self):
        b = self.browser
        self.flag(busy=True)
        b.click("#settings-open")
        b.wait("document.querySelector('.verdict')", "the plan")
        b.click(".apply")
        b.wait("document.querySelector('.apply-note').innerText.includes('An answer is running')", "the server's words")

    def flow_settings_of_answers(self):
        b = self.browser
        b.click("#settings-open")
        b.js("document.querySelector('#tab-answers').click()")
        for key, value in (("temperature", "0.3"), ("max_tokens", "77"), ("min_p", "0.1"), ("thinking_budget", "50")):
            b.one(f"#answer-{key}").send_keys(value, Keys.TAB)
        b.one("#answer-top_p").send_keys("7", Keys.TAB)
        equal(b.js("return document.querySelector('#answer-top_p').getAttribute('aria-invalid')"), "true",
              "out of range")
        b.js("""const e = document.querySelector('#effort'); e.value = 'low';
                e.dispatchEvent(new Event('change'))""")
        b.check_page("names", "structure", "contrast")
        b.keys(Keys.ESCAPE)
        b.ask("With settings")
        sent = self.requests()[0]
        equal([sent.get("temperature"), sent.get("max_tokens"), sent.get("reasoning_effort"), sent.get("top_p")],
              [0.3, 77, "low", None], "fields")
        equal([sent["weir"]["min_p"], sent["weir"]["thinking_budget"]], [0.1, 50], "fields of Weir")
        b.driver.refresh()
        b.wait("document.body.classList.contains('ready')", "reloaded")
        b.ask("Again")
        equal(self.requests()[1].get("temperature"), 0.3, "they are kept")

    def flow_instructions_and_tools(self):
        b = self.browser
        b.click("#settings-open")
        b.js("document.querySelector('#tab-conversation').click()")
        b.one("#system").send_keys("Be brief.")
        b.one("#tools").send_keys("[{", Keys.TAB)
        check("no JSON yet" in b.text("#panel-conversation"), "a problem is told")
        tools = '[{"type": "function", "function": {"name": "weather"}}]'
        b.one("#tools").clear()
        b.one("#tools").send_keys(tools, Keys.TAB)
        b.check_page("names", "structure", "contrast")
        b.keys(Keys.ESCAPE)
        b.ask("Weather?")
        equal(self.requests()[0]["messages"][0], {"role": "system", "content": "Be brief."}, "the system message")
        equal(self.requests()[0]["tools"], json.loads(tools), "the tools")
        b.click("#new")
        b.ask("Another")
        check("tools" not in self.requests()[1], "they are this conversation's")

    def flow_machine(self):
        b = self.browser
        b.click("#settings-open")
        b.js("document.querySelector('#tab-machine').click()")
        text = b.text("#panel-machine")
        check("mock-0.5b-q8_0.gguf" in text and "16.0 GiB" in text and "1.1.0" in text, text)
        b.check_page("names", "structure", "contrast")
