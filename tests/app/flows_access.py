"""Themes, contrast, keyboard, names for screen readers, a phone."""

import time

from browser import ActionChains, Keys, check, equal, expects
from flows import Flows


class Access(Flows):
    def flow_theme(self):
        b = self.browser
        ground = lambda: b.js("return getComputedStyle(document.body).backgroundColor")
        b.media(prefers_color_scheme="light")
        light = ground()
        b.media(prefers_color_scheme="dark")
        dark = ground()
        check(light != dark, "the system's choice is followed")
        b.media(prefers_color_scheme="light")
        b.click("#theme")
        b.click("#theme")
        equal(b.js("return document.documentElement.dataset.theme"), "dark", "switched")
        equal(ground(), dark, "dark on a light system")
        b.driver.refresh()
        b.wait("document.body.classList.contains('ready')", "reloaded")
        equal(ground(), dark, "it is kept")
        b.click("#theme")
        equal(ground(), light, "as the system again")

    def flow_contrast(self):
        b = self.browser
        for theme in ("light", "dark"):
            b.media(prefers_color_scheme=theme)
            b.click("#new")
            b.check_page("contrast", "graphics")
            b.ask("mock: markdown")
            b.ask("mock: story")
            b.click(".thought summary")
            b.check_page("contrast")
            b.ask("mock: tool")
            b.check_page("contrast")
            b.ask("mock: length")
            b.check_page("contrast")
            b.click("#pages-open")
            b.check_page("contrast")
            b.click("#help-open")
            b.check_page("contrast", "names", "structure")
            b.keys(Keys.ESCAPE)
            b.click("#settings-open")
            b.wait("document.querySelector('.verdict')", "the plan")
            b.js("document.querySelector('.more').open = true")
            b.check_page("contrast")
            b.keys(Keys.ESCAPE)
            b.click("#pages-open")

    @expects("status of 429")
    def flow_contrast_of_errors(self):
        b = self.browser
        for theme in ("light", "dark"):
            b.media(prefers_color_scheme=theme)
            b.ask("mock: 429")
            b.action(".message.user", "Fork from here")
            b.wait("document.querySelector('.toast')", "a notice")
            b.check_page("contrast")

    def flow_keyboard_only(self):
        b = self.browser
        # The skip link is the first of all, and is seen when it has the focus.
        equal(b.js("return document.querySelector('a, button, input').className"), "skip", "first")
        b.js("document.querySelector('.skip').focus()")
        b.wait("document.querySelector('.skip').getBoundingClientRect().top >= 0", "it is seen")
        b.keys(Keys.ENTER)
        equal(b.js("return document.activeElement.id"), "input", "the skip link leads to the box")
        b.keys("By keyboard", Keys.ENTER)
        b.answered()
        # Back to the actions of the answer: all of them can be reached, each with a visible focus.
        seen = []
        for _ in range(30):
            ActionChains(b.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()
            name, outline, width = b.js("""const a = document.activeElement; const s = getComputedStyle(a);
                return [a.getAttribute('aria-label') || a.textContent, s.outlineStyle, s.outlineWidth]""")
            seen.append(name)
            check(outline == "solid" and width != "0px", f"{name} has no visible focus: {outline} {width}")
            if name == "Copy answer":
                break
        for wanted in ("Fork from here", "Rewind to here", "Regenerate", "Copy answer"):
            check(wanted in seen, f"{wanted} was not reached: {seen}")
        actions = b.js("return getComputedStyle(document.activeElement.closest('.actions')).opacity")
        equal(actions, "1", "what has the focus is seen")

    def flow_focus_order(self):
        b = self.browser
        b.ask("Order")
        b.js("document.querySelector('.skip').focus()")
        order = []
        for _ in range(60):
            b.keys(Keys.TAB)
            where = b.js("""const a = document.activeElement; if (a === document.body) return null;
                return a.id || a.closest('[id]')?.id""")
            if where is None or (order and where == order[0]):
                break
            if not order or order[-1] != where:
                order.append(where)
        wanted = ["new", "search", "list", "import", "export", "pages-open", "settings-open", "theme", "help-open",
                  "messages", "gauge", "input"]
        places = [order.index(w) for w in wanted if w in order]
        check(len(places) == len(wanted), f"not reached: {set(wanted) - set(order)}")
        equal(places, sorted(places), f"the order is that of the eye: {order}")

    def flow_shortcuts(self):
        b = self.browser
        b.ask("One")
        b.alt("n")
        b.wait("document.querySelectorAll('.message').length === 0", "Alt+N")
        b.ask("Two")
        b.alt(Keys.ARROW_DOWN)
        b.wait("document.querySelector('#title').innerText === 'One'", "Alt+Down")
        b.alt("p")
        b.wait("!document.querySelector('#drawer').hidden", "Alt+P")
        b.alt("p")
        b.wait("document.querySelector('#drawer').hidden", "Alt+P again")
        b.alt("s")
        b.wait("document.querySelector('#settings').open", "Alt+S")
        b.keys(Keys.ESCAPE)
        b.alt("r")
        b.wait("document.querySelector('.versions')", "Alt+R")
        b.answered()
        b.alt("e")
        b.wait("document.querySelector('.editing textarea')", "Alt+E")
        b.keys(Keys.ESCAPE)
        b.alt("k")
        equal(b.js("return document.activeElement.id"), "search", "Alt+K")
        b.alt("i")
        equal(b.js("return document.activeElement.id"), "input", "Alt+I")
        b.alt("/")
        b.wait("document.querySelector('#help').open", "Alt+/")
        listed = b.text("#help")
        for key in "NTOREGPSLIK":
            check(f"Alt\n+\n{key}\n" in listed or f"Alt+{key}" in listed, f"Alt+{key} is listed: {listed!r}")
        b.keys(Keys.ESCAPE)
        equal(b.js("return document.querySelector('#help').open"), False, "Escape closes it")

    def flow_menu_by_keyboard(self):
        b = self.browser
        b.ask("Menu")
        b.js("document.querySelector('.entry .icon-button').focus()")
        b.keys(Keys.ENTER)
        b.check_page("names", "structure", "contrast")
        first = b.js("return document.activeElement.textContent")
        b.keys(Keys.ARROW_DOWN)
        check(b.js("return document.activeElement.textContent") != first, "arrows move")
        b.keys(Keys.END)
        equal(b.js("return document.activeElement.textContent"), "Delete", "End")
        b.keys(Keys.ESCAPE)
        equal(b.count(".menu"), 0, "closed")
        check("More for Menu" == b.js("return document.activeElement.getAttribute('aria-label')"), "the focus is back")

    def flow_answers_are_announced(self):
        b = self.browser
        b.js("""window.said = []; new MutationObserver((m) => m.forEach((r) => r.addedNodes.forEach((n) =>
                window.said.push(n.textContent))))
                .observe(document.querySelector('#announcements'), {childList: true})""")
        b.ask("mock: markdown")
        said = b.js("return window.said")
        equal(said[0], "The answer begins.", "first")
        check(said[-1].endswith("The answer is complete."), f"last: {said[-1]}")
        check(any("A block of code." in s for s in said), "code is not read out")
        check(3 < len(said) < 30, f"{len(said)} announcements")
        equal(b.js("return document.querySelector('#messages').getAttribute('aria-live')"), "off", "not each word")

    def flow_phone(self):
        b = self.browser
        b.size(360, 740, phone=True)
        b.driver.refresh()
        b.wait("document.body.classList.contains('ready')", "reloaded")
        b.check_page("wider", "names", "structure", "small")
        b.type("mock: markdown")
        b.click("#send")
        b.answered()
        b.type("mock: tool")
        b.click("#send")
        b.answered()
        b.check_page("wider", "names", "contrast", "small")
        check(b.js("return document.querySelector('#sidebar').inert"), "the list is away")
        b.click("#sidebar-open")
        b.wait("document.body.classList.contains('sidebar-open')", "the list is a sheet")
        time.sleep(0.3)
        check(b.js("return document.querySelector('#main').inert && document.activeElement.id === 'new'"),
              "with the focus")
        b.check_page("wider", "names", "small")
        b.keys(Keys.ESCAPE)
        b.wait("!document.body.classList.contains('sidebar-open')", "Escape closes it")
        self.grow(3000, 64)
        b.click("#pages-open")
        time.sleep(0.3)
        b.check_page("wider", "names", "contrast")
        box = b.js("""const r = document.querySelector('#drawer').getBoundingClientRect();
                      return [r.left, r.right, r.bottom]""")
        equal(box, [0, 360, 740], "the drawer is a sheet at the bottom")
        b.js("document.querySelector('#shade').click()")
        b.wait("document.querySelector('#drawer').hidden", "a tap beside it closes it")
        b.click("#settings-open")
        b.wait("document.querySelector('.verdict')", "the plan")
        b.check_page("wider", "names", "contrast")
        for tab in ("answers", "conversation", "machine"):
            b.js(f"document.querySelector('#tab-{tab}').click()")
            b.check_page("wider")

    def flow_reduced_motion(self):
        b = self.browser
        b.media(prefers_reduced_motion="reduce")
        b.send("mock: think 30")
        b.wait("document.querySelector('.thinking')", "thinking")
        moving = b.js("""return [...document.querySelectorAll('*')].filter((e) =>
            getComputedStyle(e).animationName !== 'none').length""")
        equal(moving, 0, "what moves")
        b.answered()

    def flow_names_and_roles(self):
        b = self.browser
        b.check_page("names", "structure")
        b.ask("mock: think 2")
        b.ask("mock: script")
        b.check_page("names", "structure")
        b.click("#pages-open")
        b.click("#settings-open")
        b.wait("document.querySelector('.verdict')", "the plan")
        b.check_page("names", "structure")

    def flow_jump_to_the_end(self):
        b = self.browser
        b.ask("mock: long 30")
        b.js("document.querySelector('#scroll').scrollTop = 0")
        b.wait("!document.querySelector('#to-end').hidden", "the button appears")
        b.click("#to-end")
        b.wait("document.querySelector('#to-end').hidden", "and goes at the end")
        b.send("mock: slow 50")
        b.wait("document.querySelector('#messages').innerText.includes('word3')", "it writes")
        b.js("document.querySelector('#scroll').scrollTop = 0")
        time.sleep(0.6)
        equal(b.js("return document.querySelector('#scroll').scrollTop"), 0, "who reads above is left there")
        b.answered()

    def flow_inline_is_refused(self):
        """The policy of the headers works in this browser: what is inline does not run."""
        b = self.browser
        b.js("""const s = document.createElement('script'); s.textContent = 'window.inline = 1';
                document.body.append(s);""")
        check(b.js("return window.inline === undefined"), "inline script")
        entries = b.console()
        check(any("Content Security Policy" in e["message"] for e in entries), "the browser reports it")
