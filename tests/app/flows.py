"""What flows of the chat page have in common."""

import json
import urllib.request

import mock_server


class Flows:
    """What all flows have: the browser, and a server of their own."""
    def __init__(self, browser, downloads, program, model):
        self.browser = browser
        self.downloads = downloads
        self.program = program
        self.model = model
        self.server = None


    def begin(self):
        self.server = mock_server.serve()
        self.browser.open(self.server.url)

    def requests(self):
        return self.server.mock.requests

    def flag(self, **flags):
        self.server.mock.flags.update(flags)

    def current(self):
        return self.browser.js("return sessionStorage.getItem('weir.current')")

    def grow(self, tokens, step=16, back=False):
        data = json.dumps({"conversation": self.current(), "tokens": tokens, "step": step, "back": back}).encode()
        urllib.request.urlopen(urllib.request.Request(self.server.url + "mock/session", data, method="POST")).read()
