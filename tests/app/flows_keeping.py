"""Conversations are kept: reloads, two tabs, files, sessions that the server saves."""

import json

from browser import BROKEN, Keys, check, equal, expects
from flows import Flows


class Keeping(Flows):
    @expects(BROKEN)
    def flow_reload_in_an_answer(self):
        b = self.browser
        b.send("mock: slow 400")
        b.wait("document.querySelector('.message.answer .text').innerText.includes('word20')", "some words")
        before = b.text(".message.answer .text")
        b.driver.refresh()
        b.wait("document.querySelector('.note.cut')", "it is marked as cut")
        after = b.text(".message.answer .text")
        check(after.startswith(before), f"what came is kept: {before[-30:]!r}, {after[-30:]!r}")
        b.wait("document.querySelector('#banner').hidden", "connected")
        b.click(".go-on")
        b.wait("document.querySelector('.text').innerText.endsWith('the end.')", "it goes on")

    def flow_reload_keeps_everything(self):
        b = self.browser
        b.ask("mock: think 3")
        b.ask("mock: tool")
        b.driver.refresh()
        b.wait("document.querySelectorAll('.message').length === 4", "the messages")
        equal(b.count(".thought:not([hidden])"), 2, "thoughts")
        equal(b.text(".call header b"), "weather", "the call")
        check(b.one(".call textarea"), "its result can still be given")

    def other_tab(self):
        b = self.browser
        b.driver.switch_to.new_window("tab")
        b.open(self.server.url)

    def flow_two_tabs(self):
        b = self.browser
        b.ask("From the first tab")
        self.other_tab()
        b.click("#new")
        b.ask("From the second tab")
        equal(b.count(".entry"), 2, "entries in the second")
        b.driver.switch_to.window(b.first)
        b.wait("document.querySelectorAll('.entry').length === 2", "the first tab sees both")
        check("From the first tab" in b.text(".message.user"), "and stays where it was")

    def flow_two_tabs_one_conversation(self):
        b = self.browser
        b.ask("Shared")
        self.other_tab()
        b.wait("document.querySelectorAll('.message').length === 2", "the second tab opens the same")
        b.send("mock: slow 60")
        b.driver.switch_to.window(b.first)
        b.wait("document.querySelectorAll('.message').length === 4", "the first tab sees the answer begin")
        b.wait("document.querySelector('#messages').innerText.includes('word5')", "and grow")
        b.type("Me too")
        b.one("#input").send_keys(Keys.ENTER)
        b.wait("document.querySelector('.toast')", "it says that an answer is being written")
        equal(b.js("return document.querySelector('#input').value"), "Me too", "what was typed stays")
        b.wait("document.querySelector('#messages').innerText.includes('word60')", "the end arrives")

    def flow_two_tabs_at_the_same_time(self):
        b = self.browser
        b.ask("Shared")
        self.other_tab()
        second = b.driver.current_window_handle
        b.wait("document.querySelectorAll('.message').length === 2", "the second tab opens the same")
        # The second tab hears nothing of the first, as one that is frozen.
        b.js("addEventListener('storage', (e) => e.stopImmediatePropagation(), true)")
        b.js("window.dispatchEvent = () => true")
        store = "import('/js/store.js')"
        b.driver.switch_to.window(b.first)
        b.ask("From the first")
        b.driver.switch_to.window(second)
        # Whatever it knows, it writes on the old revision: the write must not win over the other's.
        result = b.driver.execute_async_script(f"""
            const done = arguments[arguments.length - 1];
            {store}.then(async ({{ Store }}) => {{
              const store = new Store();
              await store.open();
              const old = await store.load(arguments[0]);
              old.rev -= 1;
              old.messages.push({{id: 'x', role: 'user', content: 'lost?'}});
              try {{ await store.save(old); done('written'); }} catch (e) {{ done(e.constructor.name); }}
            }});""".replace("arguments[0]", json.dumps(self.current())))
        equal(result, "Conflict", "a write on an old revision")
        # The page itself keeps both.
        kept = b.driver.execute_async_script("""
            const done = arguments[arguments.length - 1];
            Promise.all([import('/js/store.js'), import('/js/chat.js')]).then(async ([{ Store }, { Chats }]) => {
              const store = new Store();
              await store.open();
              const chats = new Chats(store, () => {}, () => {});
              const old = await store.load(%s);
              old.rev -= 1;
              old.messages.push({id: 'x', role: 'user', content: 'kept'});
              await chats.save(old);
              done((await store.list()).length);
            });""" % json.dumps(self.current()))
        equal(kept, 2, "conversations: both versions are kept")

    def flow_answer_goes_on_in_the_background(self):
        b = self.browser
        b.send("mock: slow 150")
        b.wait("document.querySelector('.message.answer .text').innerText.includes('word3')", "it begins")
        b.click("#new")
        equal(b.count(".message"), 0, "a new conversation")
        b.wait("document.querySelector('.entry-runs')", "the list shows that the other one is answered")
        b.ask("Meanwhile")
        b.wait("!document.querySelector('.entry-runs')", "it ends", 30)
        b.js("[...document.querySelectorAll('.entry-open')].find((e) => e.innerText.includes('slow')).click()")
        b.wait("document.querySelector('.text')?.innerText.includes('word150')", "all of it is there")

    def flow_delete_and_undo(self):
        b = self.browser
        b.ask("Short-lived")
        b.menu("Short-lived", "Delete")
        b.wait("document.querySelectorAll('.entry').length === 0", "it is gone")
        equal(b.count(".message"), 0, "messages")
        b.click(".toast .link")
        b.wait("document.querySelectorAll('.message').length === 2", "it is back")

    def flow_delete_in_the_other_tab(self):
        b = self.browser
        b.ask("Short-lived")
        self.other_tab()
        b.menu("Short-lived", "Delete")
        b.wait("document.querySelectorAll('.entry').length === 0", "it is gone")
        b.driver.switch_to.window(b.first)
        b.wait("document.querySelectorAll('.message').length === 0", "the first tab leaves it")
        check("Another tab deleted" in b.text(".toast"), "and says why")

    def flow_rename_and_search(self):
        b = self.browser
        b.ask("Alpha question")
        b.click("#new")
        b.ask("Beta question")
        b.menu("Alpha", "Rename")
        field = b.one("#question-field")
        field.clear()
        field.send_keys("Gamma")
        b.check_page("names", "structure")
        b.keys(Keys.ENTER)
        b.wait("[...document.querySelectorAll('.entry-title')].some((e) => e.innerText === 'Gamma')", "renamed")
        b.one("#search").send_keys("gam")
        b.wait("document.querySelectorAll('.entry').length === 1", "found")
        b.one("#search").send_keys("zzz")
        b.wait("document.querySelector('#list').innerText.includes('Nothing is called that')", "and not found")

    def flow_export_and_import(self):
        b = self.browser
        b.ask("Keep me 🙂")
        b.ask("mock: think 2")
        for old in self.downloads.glob("*.json"):
            old.unlink()
        b.click("#export")
        b.wait(lambda: list(self.downloads.glob("*.json")), "the file")
        file = next(self.downloads.glob("*.json"))
        data = json.loads(file.read_text())
        equal([len(c["messages"]) for c in data["conversations"]], [4], "messages in the file")
        self.begin()                      # another server is another origin: an empty browser
        equal(b.count(".entry"), 0, "entries before")
        b.one_file = b.all("#import-file")[0]
        b.one_file.send_keys(str(file))
        b.wait("document.querySelectorAll('.message').length === 4", "imported and open")
        check("Keep me 🙂" in b.js("return document.querySelector('.message.user').innerText"), "the text")
        b.all("#import-file")[0].send_keys(str(file))
        b.wait("document.querySelector('#toasts').innerText.includes('imported')", "again")
        equal(b.count(".entry"), 1, "the same file twice is one conversation")

    def flow_import_of_something_else(self):
        b = self.browser
        for content, words in (("{", "not JSON"), ('{"a": 1}', "no conversations"), ('{"format": "weir-conversations", '
                               '"conversations": [{"messages": [{"role": "boss"}]}]}', "no role")):
            file = self.downloads / "bad.json"
            file.write_text(content)
            b.all("#import-file")[0].send_keys(str(file))
            b.wait(f"document.querySelector('#toasts').innerText.includes({json.dumps(words)})", words)
        equal(b.count(".entry"), 0, "nothing was taken over")

    def flow_saved_on_the_server(self):
        b = self.browser
        b.ask("Worth keeping")
        b.menu("Worth keeping", "Save on the server")
        b.wait("document.querySelectorAll('.entry.saved').length === 1", "it is listed")
        b.click("#new")
        b.click(".entry.saved .entry-open")
        b.wait("document.querySelectorAll('.message').length === 2", "restored and opened")
        b.hover(b.one(".entry.saved"))
        b.click(".entry.saved .icon-button")
        b.click("#question .solid")
        b.wait("document.querySelectorAll('.entry.saved').length === 0", "deleted there")
        equal(b.count(".entry"), 1, "and still here")
