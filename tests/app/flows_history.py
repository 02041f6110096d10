"""What was said is changed: versions, edits, rewinding, forks; tools and their results."""

from browser import Keys, check, equal
from flows import Flows


class History(Flows):
    def flow_regenerate_keeps_versions(self):
        b = self.browser
        b.ask("Tell me")
        b.action(".message.answer", "Regenerate")
        b.wait("document.querySelector('.text').innerText.startsWith('Answer 2')", "another answer")
        b.answered()
        equal(b.text(".versions span"), "2 / 2", "two versions")
        b.action(".message.answer", "Earlier version")
        b.wait("document.querySelector('.text').innerText.startsWith('Answer 1')", "the earlier one")
        b.ask("More")
        equal(self.requests()[-1]["messages"][1]["content"], "Answer 1: you said “Tell me”.", "the one shown is sent")
        equal(b.count(".message.answer"), 2, "two answers")

    def flow_edit_a_question(self):
        b = self.browser
        b.ask("First wording")
        b.ask("Second question")
        b.hover(b.all(".message.user")[0])
        b.js("document.querySelector('.message.user [aria-label=\"Edit and ask again\"]').click()")
        area = b.one(".editing textarea")
        equal(area.get_attribute("value"), "First wording", "the text to edit")
        area.send_keys(" changed", Keys.ENTER)
        b.wait("document.querySelector('.text').innerText.includes('changed')", "the new answer")
        b.answered()
        equal(b.count(".message.user"), 1, "what followed is gone")
        b.click(".toast .link")
        b.wait("document.querySelectorAll('.message.user').length === 2", "undone")
        check("First wording" in b.js("return document.querySelector('.message.user').innerText"), "as it was")

    def flow_edit_is_left_with_escape(self):
        b = self.browser
        b.ask("Stays")
        b.action(".message.user", "Edit and ask again")
        b.one(".editing textarea").send_keys(" not", Keys.ESCAPE)
        equal(b.count(".editing"), 0, "left")
        check(b.text(".bubble").strip() == "Stays", b.text(".bubble"))
        equal(len(self.requests()), 1, "nothing was asked")

    def flow_rewind(self):
        b = self.browser
        b.ask("One")
        b.ask("Two")
        b.ask("Three")
        b.hover(b.all(".message.answer")[0])
        b.js("document.querySelector('.message.answer [aria-label=\"Rewind to here\"]').click()")
        b.wait("document.querySelectorAll('.message').length === 2", "only the first turn is left")
        b.click(".toast .link")
        b.wait("document.querySelectorAll('.message').length === 6", "undone")
        b.action(".message.user", "Rewind to here")
        b.wait("document.querySelectorAll('.message').length === 4", "the last turn is gone")
        equal(b.js("return document.querySelector('#input').value"), "Three", "its question is in the box")

    def flow_fork(self):
        b = self.browser
        b.ask("Root")
        b.ask("Branch A")
        original = self.current()
        b.hover(b.all(".message.answer")[0])
        b.js("document.querySelector('.message.answer [aria-label=\"Fork from here\"]').click()")
        b.wait("document.querySelector('#title').innerText === 'Root (fork)'", "the fork is open")
        equal(b.count(".message"), 2, "messages up to there")
        b.ask("Branch B")
        check(self.current() != original, "another conversation")
        equal(b.count(".entry"), 2, "entries")
        b.js("[...document.querySelectorAll('.entry-open')].find((e) => e.innerText === 'Root').click()")
        b.wait("document.querySelector('#title').innerText === 'Root'", "the original")
        equal(b.count(".message"), 4, "it is as it was")
        check("Branch A" in b.text(".message.user"), "with its own branch")

    def flow_tool_call(self):
        b = self.browser
        b.ask("mock: tool")
        equal(b.text(".call header b"), "weather", "the tool's name")
        check('"city": "Łódź"' in b.text(".call code"), "its arguments")
        b.check_page("names", "structure")
        b.one(".call textarea").send_keys("14 degrees, rain")
        b.click(".give")
        b.wait("document.querySelectorAll('.message.answer').length === 2", "the answer to the result")
        equal(b.answered(), "The tool says: 14 degrees, rain.", "the answer")
        check("14 degrees, rain" in b.text(".call .result"), "the card shows the result")
        equal(b.count(".call textarea"), 0, "nothing to type any more")
        sent = self.requests()[-1]["messages"]
        equal(sent[-1], {"role": "tool", "tool_call_id": "call_1_0", "content": "14 degrees, rain"}, "the result")
        equal(sent[-2]["tool_calls"][0]["function"], {"name": "weather", "arguments": '{"city": "Łódź", "days": 3}'},
              "the call goes back as it came")

    def flow_two_tool_calls(self):
        b = self.browser
        b.ask("mock: tools")
        areas = [a for a in b.all(".call textarea") if a.is_displayed()]
        equal(len(areas), 2, "a place for each result")
        areas[0].send_keys("sunny")
        areas[1].send_keys("noon", Keys.CONTROL, Keys.ENTER)
        b.wait("document.querySelectorAll('.message.answer').length === 2", "answered")
        equal(b.answered(), "The tool says: sunny; noon.", "both results")
