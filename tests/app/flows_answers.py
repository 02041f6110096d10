"""Questions, answers, thoughts, stops, cuts, and what the server refuses."""

import re
import time
import urllib.request

import mock_server
from browser import BROKEN, Keys, check, equal, expects
from flows import Flows


class Answers(Flows):
    def flow_send_and_answer(self):
        b = self.browser
        text = b.ask("Hello there")
        equal(text, "Answer 1: you said “Hello there”.", "the answer")
        equal(self.requests()[0]["messages"], [{"role": "user", "content": "Hello there"}], "messages")
        check("tok/s" in b.text(".message.answer .facts"), "the speed stands below the answer")
        equal(b.text("#title"), "Hello there", "the title is the question's")
        equal(b.ask("And again")[:9], "Answer 2:", "a second answer")
        equal([m["role"] for m in self.requests()[1]["messages"]], ["user", "assistant", "user"], "roles")

    def flow_new_line_and_button(self):
        b = self.browser
        field = b.one("#input")
        field.send_keys("one", Keys.SHIFT, Keys.ENTER)
        field.send_keys(Keys.NULL, "two")
        equal(b.count(".message"), 0, "messages after Shift+Enter")
        b.click("#send")
        b.answered()
        equal(self.requests()[0]["messages"][0]["content"], "one\ntwo", "the text of two lines")

    def flow_empty_message_is_not_sent(self):
        b = self.browser
        check(b.js("return document.querySelector('#send').disabled"), "nothing to send")
        b.type("   \n ")
        b.one("#input").send_keys(Keys.ENTER)
        time.sleep(0.3)
        equal(b.count(".message"), 0, "messages")

    def flow_thoughts_are_folded_and_counted(self):
        b = self.browser
        b.send("mock: think 30")
        first = b.wait("Number(document.querySelector('.thought-count')?.innerText.match(/\\d+/)?.[0])", "a count")
        b.wait(f"Number(document.querySelector('.thought-count').innerText.match(/\\d+/)[0]) > {first} + 20",
               "the count runs")
        check("Thinking" in b.text(".thought-name"), "it says that it thinks")
        check(not b.js("return document.querySelector('.thought').open"), "folded")
        equal(b.js("return document.querySelector('.thought-text').textContent"), "", "nothing is drawn while folded")
        b.click(".thought summary")
        b.wait("document.querySelector('.thought-text').textContent.includes('Step 3:')", "the thought, opened")
        text = b.answered()
        equal(text, "After some thought: 42.", "the answer without the thought")
        check(re.fullmatch(r"Thought for .*s", b.text(".thought-name")), "how long it thought")
        equal(b.text(".thought-count"), "210 tokens", "the count of the usage")
        check(b.js("return document.querySelector('.thought-text').textContent").endswith("Step 30: one more thing to "
                                                                                         "weigh."), "all of it")

    def flow_finish_thinking(self):
        b = self.browser
        b.send("mock: think 400")
        b.wait("!document.querySelector('#finish').hidden", "the button appears")
        b.click("#finish")
        equal(b.answered(), "After some thought: 42.", "the answer follows at once")
        check(b.js("return document.querySelector('#finish').hidden"), "the button is gone")

    def flow_stop_keeps_what_came_and_goes_on(self):
        b = self.browser
        b.send("mock: slow 300")
        b.wait("document.querySelector('.message.answer .text').innerText.includes('word8')", "some words")
        b.click("#stop")
        text = b.answered()
        check("word8" in text and "word300" not in text, f"what came is kept: {text[-40:]}")
        check("Stopped" in b.text(".note-box"), "it says so")
        b.click(".go-on")
        b.wait("!document.querySelector('#stop').hidden || document.querySelector('.text').innerText.includes('end.')",
               "it goes on")
        check(b.answered().endswith("and here it goes on, to the end."), "the end of the text")
        last = self.requests()[-1]
        check(last["weir"]["continue"] is True and last["messages"][-1]["role"] == "assistant", "it continues")
        equal(last["messages"][-1]["content"].strip(), text.strip(), "from what came")
        equal(b.count(".message.answer"), 1, "one answer")

    def flow_escape_stops(self):
        b = self.browser
        b.send("mock: slow 300")
        b.wait("document.querySelector('.message.answer .text').innerText.includes('word3')", "some words")
        b.keys(Keys.ESCAPE)
        b.answered(10)
        check("Stopped" in b.text(".note-box"), "stopped")

    @expects(BROKEN)
    def flow_network_cut(self):
        b = self.browser
        text = b.ask("mock: cut")
        equal(text, "The first half of an answer", "what came is kept")
        check("connection broke" in b.text(".note-box"), "it says so")
        b.click(".go-on")
        b.wait("document.querySelector('.text').innerText.endsWith('the end.')", "it goes on")
        equal(b.answered(), "The first half of an answer and here it goes on, to the end.", "one text")
        equal(b.count(".note-box .note"), 0, "no note is left")

    @expects(BROKEN)
    def flow_network_cut_in_a_thought(self):
        b = self.browser
        b.ask("mock: cut-thinking")
        equal(b.text(".thought-count"), "5 tokens", "the thought is kept")
        b.click(".go-on")
        b.wait("document.querySelector('.text').innerText.includes('the end')", "it goes on")
        b.answered()
        equal(self.requests()[-1]["messages"][-1]["reasoning_content"], "Half of a thought that", "with its thought")

    def flow_stream_without_an_end(self):
        b = self.browser
        equal(b.ask("mock: end"), "An answer without an end", "what came")
        check("connection broke" in b.text(".note-box"), "no finish_reason, no [DONE]: it was cut")

    def flow_length_goes_on(self):
        b = self.browser
        b.ask("mock: length")
        check("reached its length" in b.text(".note-box"), "it says why it ended")
        b.click(".go-on")
        b.wait("document.querySelector('.text').innerText.endsWith('the end.')", "it goes on")

    def flow_empty_answer(self):
        b = self.browser
        b.ask("mock: empty")
        check("The answer is empty" in b.text(".note-box"), "it says so")
        b.ask("And now?")
        equal([m["role"] for m in self.requests()[-1]["messages"]], ["user", "user"], "an empty answer is no message")

    def flow_prompt_progress(self):
        b = self.browser
        b.send("mock: prompt")
        b.wait("/Reading [\\d,]+ of 2,048 tokens/.test(document.querySelector('.waits')?.innerText || '')", "the words")
        b.wait("document.querySelector('progress')?.value >= 512", "the bar")
        b.check_page("names")
        b.answered()
        equal(b.count("progress"), 0, "bars afterwards")

    @expects("status of 429")
    def flow_429_is_shown_and_tried_again(self):
        b = self.browser
        b.ask("mock: busy")
        note = b.text(".note-box")
        check("32 requests are waiting already." in note and "3 seconds" in note and "429" in note, note)
        b.click(".retry")
        b.wait("document.querySelector('.text').innerText.startsWith('Answer 2')", "the answer")
        b.answered()
        equal(b.count(".versions"), 0, "an error is no version")

    @expects("status of 400", "status of 413", "status of 500")
    def flow_4xx_and_5xx_as_they_are_said(self):
        b = self.browser
        for name, words in (("400", "temperature must be between 0 and 2, not 9."), ("413", "more than 8 MiB"),
                            ("500", "The device was lost.")):
            b.ask(f"mock: {name}")
            note = b.text(".note-box")
            check(words in note and name in note, note)
        check("field temperature" in b.js("return document.querySelector('.note.error').innerText"), "the field's name")

    def flow_error_within_an_answer(self):
        b = self.browser
        equal(b.ask("mock: error"), "Something, and then", "what came")
        check("The device was lost." in b.text(".note-box"), "the error is shown")
        check(b.one(".go-on"), "it can go on")

    @expects(BROKEN)
    def flow_server_goes_and_comes_back(self):
        b = self.browser
        b.ask("before")
        port = self.server.server_address[1]
        urllib.request.urlopen(urllib.request.Request(self.server.url + "mock/drop", b"{}", method="POST")).read()
        self.flag(down=True)          # connections that the browser keeps answer no more
        self.server.shutdown()
        self.server.server_close()
        b.wait("!document.querySelector('#banner').hidden", "the banner")
        b.ask("while it is away")
        check("connection broke" in b.text(".note-box"), "the answer is cut")
        check(b.count(".retry"), "it can be asked again")
        self.server = mock_server.serve(port)
        b.wait("document.querySelector('#banner').hidden", "the banner goes")
        b.click(".retry")
        b.wait("document.querySelector('.text')?.innerText && document.querySelector('#stop').hidden", "answered")
        check("while it is away" in b.answered(), "the answer")

    @expects("status of 401")
    def flow_token(self):
        b = self.browser
        self.flag(token="s3cret")
        b.driver.get("about:blank")
        b.driver.get(self.server.url)
        b.wait("document.querySelector('#banner input')", "the page asks for the token")
        b.check_page("names", "structure")
        b.one("#banner input").send_keys("s3cret")
        b.click("#banner button")
        b.wait("document.querySelector('#banner').hidden", "accepted")
        check("Answer" in b.ask("hello"), "an answer with the token")
        b.js("sessionStorage.clear()")
        b.driver.get("about:blank")
        b.open(self.server.url + "#token=s3cret")
        equal(b.js("return location.hash"), "", "the token is not left in the address")
