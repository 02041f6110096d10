"""Debian's Chromium, driven by Selenium, and what one does with the chat page in it. Ends the program with 77 where
one of them is missing."""

import base64
import os
import re
import shutil
import sys
import time
from pathlib import Path

DEBIAN = "/usr/bin/python3"
try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    # Debian's package belongs to Debian's Python, which need not be the one that runs this.
    if sys.executable != DEBIAN and os.access(DEBIAN, os.X_OK) and "WEIR_APP_PYTHON" not in os.environ:
        os.environ["WEIR_APP_PYTHON"] = DEBIAN
        os.execv(DEBIAN, [DEBIAN, *sys.argv])
    print("skipped: python3-selenium is not installed (./dev test --app installs it)")
    sys.exit(77)

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHECKS = (HERE / "checks.js").read_text(encoding="utf-8")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
PATIENCE = 20          # seconds, for a busy machine
CONTRAST = 4.5

if not CHROMIUM or not DRIVER:
    print("skipped: chromium or its driver is not installed (./dev test --app installs them)")
    sys.exit(77)


class Failed(AssertionError):
    pass


def check(condition, message):
    if not condition:
        raise Failed(message)


def equal(got, wanted, what):
    check(got == wanted, f"{what}: {got!r}, not {wanted!r}")


class Browser:
    """One Chromium for all flows, and what one does with the page."""

    def __init__(self, downloads, show=False):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,980",
                         "--force-device-scale-factor=1", "--lang=en", "--disable-extensions", "--hide-scrollbars",
                         "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
                         "--disable-backgrounding-occluded-windows", "--force-color-profile=srgb"):
            options.add_argument(argument)
        if not show:
            options.add_argument("--headless=new")
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_script_timeout(60)
        self.driver.set_page_load_timeout(60)
        self.first = self.driver.current_window_handle

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def all(self, css):
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css):
        found = [node for node in self.all(css) if node.is_displayed()]
        check(found, f"nothing is shown at {css}")
        return found[-1]

    def wait(self, condition, what, seconds=PATIENCE):
        """condition: a JavaScript expression, or a function of Python; its value once it is true"""
        end = time.time() + seconds
        while True:
            try:
                value = self.js(f"return {condition}") if isinstance(condition, str) else condition()
                if value:
                    return value
            except (StaleElementReferenceException, Failed):
                pass
            if time.time() > end:
                raise Failed(f"waited {seconds} s in vain: {what}")
            time.sleep(0.03)

    def click(self, css):
        def once():
            node = self.one(css)
            self.js("arguments[0].scrollIntoView({block: 'nearest'})", node)
            try:
                node.click()
            except WebDriverException as error:
                # Below something that moves, such as a notice that goes away.
                if "click intercepted" not in str(error):
                    raise
                return False
            return True
        self.wait(once, f"a click on {css}")

    def hover(self, node):
        ActionChains(self.driver).move_to_element(node).perform()

    def text(self, css):
        return self.js("return [...document.querySelectorAll(arguments[0])].at(-1)?.innerText ?? null", css)

    def count(self, css):
        return self.js("return document.querySelectorAll(arguments[0]).length", css)

    def open(self, url):
        self.driver.get(url)
        self.wait("document.body.classList.contains('ready')", "the page starts")
        self.wait("document.querySelector('#banner').hidden", "the page has its events")

    def type(self, text):
        self.js("""const i = document.querySelector('#input'); i.focus(); i.value = arguments[0];
                   i.dispatchEvent(new Event('input', {bubbles: true}));""", text)

    def send(self, text):
        """Sends without waiting for the answer."""
        self.type(text)
        n = self.count(".message.user")
        self.one("#input").send_keys(Keys.ENTER)
        self.wait(f"document.querySelectorAll('.message.user').length > {n}", "the question is shown")

    def ask(self, text):
        """Sends and waits for the end of the answer; returns its text."""
        self.send(text)
        return self.answered()

    def answered(self, seconds=60):
        self.wait("document.querySelector('#stop').hidden && !document.querySelector('.message.streaming')",
                  "the answer ends", seconds)
        # What is kept of it is written by then.
        time.sleep(0.15)
        return self.text(".message.answer .text")

    def action(self, message_css, name):
        """The button with a name among the actions of the last such message."""
        node = self.all(message_css)[-1]
        self.js("arguments[0].scrollIntoView({block: 'end'})", node)
        self.hover(node)
        for button in node.find_elements(By.CSS_SELECTOR, ".actions button"):
            if button.get_attribute("aria-label") == name:
                button.click()
                return
        raise Failed(f"there is no {name} at {message_css}")

    def menu(self, title, item):
        """An entry's menu in the list of conversations."""
        # In one go: the list may be drawn anew at any time.
        self.wait(lambda: self.js("""const entry = [...document.querySelectorAll('.entry')].find((e) =>
            e.innerText.includes(arguments[0])); entry?.querySelector('.icon-button').click(); return Boolean(entry)""",
                                  title), f"an entry is called {title}")
        for button in self.all(".menu button"):
            if button.text.strip() == item:
                button.click()
                return
        raise Failed(f"the menu has no {item}")

    def keys(self, *keys):
        ActionChains(self.driver).send_keys(*keys).perform()

    def alt(self, key):
        ActionChains(self.driver).key_down(Keys.ALT).send_keys(key).key_up(Keys.ALT).perform()

    def check_page(self, *kinds):
        for kind in kinds or ("names", "structure"):
            least = {"contrast": CONTRAST, "graphics": 3, "small": 24}.get(kind)
            problems = self.js(CHECKS, kind, least)
            check(not problems, f"{kind}:\n    " + "\n    ".join(problems[:12]))

    def size(self, width, height, phone=False):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone})
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": phone})

    def media(self, **features):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]})

    def reset(self):
        for handle in self.driver.window_handles:
            if handle != self.first:
                self.driver.switch_to.window(handle)
                self.driver.close()
        self.driver.switch_to.window(self.first)
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
        self.media()
        self.driver.get("about:blank")
        self.driver.get_log("browser")

    def console(self):
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def shot(self, file, box=None):
        options = {"format": "png"}
        if box:
            options["clip"] = {**box, "scale": 1}
        file.write_bytes(base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))


BROKEN = (r"ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_(RESET|REFUSED)|ERR_EMPTY_RESPONSE|ERR_NETWORK|"
          r"ERR_SOCKET_NOT_CONNECTED")


def expects(*patterns):
    """Errors that the browser itself writes to the console in this flow, such as of a status or a cut."""
    def mark(flow):
        flow.expected = patterns
        return flow
    return mark
