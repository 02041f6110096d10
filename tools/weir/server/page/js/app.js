// The page as a whole: what is open, what is beside it, keys and sheets.

import { getJson, post, send, setToken } from "./api.js";
import { announce, byId, bytes, count, downloadFile, el, icon, iconButton, plural, replace, toast } from "./dom.js";
import { Chats, newConversation } from "./chat.js";
import { Gauge } from "./gauge.js";
import { Live } from "./live.js";
import { Messages } from "./messages.js";
import { forgetColours, PagesDrawer } from "./pages.js";
import { Settings } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { Store, TAB } from "./store.js";

const CURRENT = "weir.current";
const narrow = matchMedia("(max-width: 860px)");

const store = new Store();
const live = new Live();
const notice = (text, action = null, error = false) => toast(text, action, { error });
const chats = new Chats(store, changed, notice);
let conversation = newConversation();
let entries = [];
let saves = false;
let asked = 0;

const messages = new Messages(byId("messages"), byId("scroll"), chats, {
  rewind(id) {
    const text = chats.rewind(conversation, id);
    if (text) {
      input.value = text;
      grow();
    }
    input.focus();
  },
  async fork(id) {
    const copy = await chats.fork(conversation, id);
    await refreshList();
    await open(copy.id);
    toast("This is the fork. The conversation that it came from stays as it was.");
  },
  scrolled(atEnd) {
    byId("to-end").hidden = atEnd;
  },
});
const gauge = new Gauge(byId("gauge"), () => toggleDrawer());
const drawer = new PagesDrawer(byId("drawer"), () => toggleDrawer(false));
const settings = new Settings(byId("settings"), live, {
  conversation: () => conversation,
  saveConversation: (changedOne) => keep(changedOne),
  applied: async () => {
    await live.refresh();
    showLive();
  },
});
const sidebar = new Sidebar(byId("list"), byId("search"), {
  open: async (id) => {
    await open(id);
    if (narrow.matches) closeSheets();
    input.focus();
  },
  rename, remove, fork: forkWhole, exportOne, saveOnServer, restore, removeSaved,
});

const input = byId("input");

// --- what is shown ---------------------------------------------------------------------------------------------------

function changed(which, message) {
  if (which.id !== conversation.id) {
    if (!message) refreshList();
    return;
  }
  if (message) {
    messages.later(message);
    showComposer();
    return;
  }
  show();
  refreshList();
}

function show() {
  const empty = conversation.messages.length === 0;
  byId("title").textContent = conversation.title;
  document.title = empty ? "Weir" : `${conversation.title} – Weir`;
  byId("hello").hidden = !empty;
  messages.show(conversation);
  showComposer();
  showLive();
}

function showComposer() {
  const run = chats.runs.get(conversation.id);
  const running = run !== undefined;
  byId("send").hidden = running;
  byId("stop").hidden = !running;
  byId("finish").hidden = !running || run.thoughtFrom === null || !run.id;
  byId("hint").hidden = !running;
  byId("hint").textContent = running ? hintOf(run) : "";
  byId("send").disabled = input.value.trim() === "";
}

function hintOf(run) {
  const { message } = run;
  if (run.prompt) return `Reading ${count(run.prompt.done)} of ${count(run.prompt.of)} tokens`;
  if (!message.content && !message.reasoning && live.waiting > 0) return `${plural(live.waiting, "request")} waiting`;
  return plural(message.stats.tokens || 0, "token");
}

async function refreshList() {
  const mine = ++asked;
  const list = await store.list();
  if (mine !== asked) return;
  entries = list;
  sidebar.show(entries, conversation.id, new Set(chats.runs.keys()));
}

function titles(id) {
  return entries.find((entry) => entry.id === id)?.title || "another conversation";
}

function showLive() {
  const session = live.sessionOf(conversation.id);
  gauge.show(session, live.plan, live.returned.get(conversation.id));
  if (!byId("drawer").hidden) {
    drawer.show(session, live.history.get(conversation.id), live.returned.get(conversation.id), live.sessions.values(),
      live.waiting, titles);
  }
}

function showModel() {
  const { model, settings: set } = live;
  if (!model) return;
  const chip = byId("chip");
  chip.hidden = false;
  replace(chip, el("b", {}, model.name || model.id), el("span", {}, set ? set.preset || set.policy : ""));
  if (set?.budget_tokens) chip.append(el("span", {}, `${count(set.budget_tokens)} tokens`));
  saves = Boolean(model.saves);
  showHello();
  refreshSaved();
}

function showHello() {
  const { model, plan, settings: set } = live;
  const promise = plan && set ? el("p", { class: "promise" },
    "This conversation may grow to ", el("b", {}, `${count(set.context_tokens)} tokens`),
    ". Its KV memory stays within ", el("b", {}, bytes(plan.kv_bytes)),
    plan.store_bytes > 0 ? `, with at most ${bytes(plan.store_bytes)} outside of it` : "",
    plan.dense_kv_bytes > plan.kv_bytes * 1.05 ? `, where a dense cache would take ${bytes(plan.dense_kv_bytes)}.` :
      ".") : null;
  replace(byId("hello"),
    el("div", { class: "hello-mark" }, byId("sidebar").querySelector(".mark").cloneNode(true)),
    el("h2", {}, model ? `Think it through with ${model.name || model.id}` : "Weir"),
    promise,
    el("div", { class: "starts" }, STARTS.map(([title, text]) => el("button", {
      type: "button", on: { click: () => { input.value = text; grow(); showComposer(); input.focus(); } },
    }, el("b", {}, title), el("span", {}, text)))));
}

const STARTS = [
  ["A chain of steps", "Start: x0 = 97, x1 = 57, x2 = 60. Rule: x[n] = x[n-3] - x[n-1]. Work modulo 100. Find x90."],
  ["Something to remember", "My bicycle lock is 4417. Tell me how a lock keeper fills a lock, then what my number is."],
  ["A little code", "Write a function that merges two sorted lists, and say why it is linear."],
];

function showConnection() {
  const banner = byId("banner");
  if (live.connected) {
    banner.hidden = true;
    return;
  }
  banner.hidden = false;
  if (live.problem?.status === 401) {
    const field = el("input", { type: "password", id: "token", autocomplete: "off", placeholder: "Token",
      aria: { label: "Token of the server" } });
    replace(banner, el("span", {}, live.problem.message), field, el("button", { type: "button", class: "solid", on: {
      click: () => { setToken(field.value); dispatchEvent(new Event("online")); } } }, "Use it"));
    return;
  }
  replace(banner, live.problem ? live.problem.message : "The server does not answer. Trying again…");
}

// --- opening and keeping ---------------------------------------------------------------------------------------------

async function open(id) {
  const run = chats.runs.get(id);
  const loaded = run ? run.conversation : await store.load(id);
  if (!loaded) {
    toast("This conversation is not there any more.", null, { error: true });
    return;
  }
  conversation = loaded;
  if (chats.settle(conversation)) await chats.save(conversation);
  remember();
  show();
  messages.toEnd();
  sidebar.show(entries, conversation.id, new Set(chats.runs.keys()));
}

function remember() {
  try {
    sessionStorage.setItem(CURRENT, conversation.id);
    localStorage.setItem(CURRENT, conversation.id);
  } catch {
    // The next load begins anew, then.
  }
}

function startNew() {
  conversation = newConversation();
  remember();
  show();
  sidebar.show(entries, conversation.id, new Set(chats.runs.keys()));
  if (narrow.matches) closeSheets();
  input.focus();
}

// An empty conversation is kept only when there is something to keep.
function keep(which) {
  if (which.rev === 0 && which.messages.length === 0 && !which.system && !which.tools) return;
  chats.save(which).then(refreshList);
}

async function loadedOr(id) {
  if (id === conversation.id) return conversation;
  return chats.runs.get(id)?.conversation || store.load(id);
}

async function rename(id) {
  const which = await loadedOr(id);
  const name = await question("Rename", "Title", which.title, "Rename");
  if (!name) return;
  which.title = name.slice(0, 200);
  which.named = true;
  await chats.save(which);
  changed(which, null);
}

async function remove(id) {
  const which = await loadedOr(id);
  if (chats.isRunning(which)) await chats.stop(which);
  const copy = await store.load(id);
  await store.remove(id);
  if (id === conversation.id) startNew();
  await refreshList();
  toast(`Deleted: ${copy?.title || "the conversation"}`, { label: "Undo", run: async () => {
    if (!copy) return;
    copy.rev = 0;
    await store.save(copy);
    await refreshList();
    await open(copy.id);
  } });
}

async function forkWhole(id) {
  const which = await loadedOr(id);
  const last = which.messages.at(-1);
  if (!last) return;
  const copy = await chats.fork(which, last.id);
  await refreshList();
  await open(copy.id);
}

const fileName = (title) => `${title.normalize("NFKD").replace(/[^\w-]+/g, "-").slice(0, 40) || "weir"}.json`;

async function exportOne(id) {
  downloadFile(fileName(titles(id)), await store.exported([id]));
}

async function exportAll() {
  if (entries.length === 0) {
    toast("There is no conversation to export yet.");
    return;
  }
  downloadFile(`weir-conversations-${new Date().toISOString().slice(0, 10)}.json`, await store.exported());
}

async function importFile(file) {
  try {
    const ids = await store.imported(await file.text());
    await refreshList();
    if (ids.length > 0) await open(ids[0]);
    toast(`${plural(ids.length, "conversation")} imported.`);
  } catch (error) {
    toast(error.message, null, { error: true });
  }
}

// --- saved on the server ---

async function refreshSaved() {
  if (!saves) {
    sidebar.showSaved(null);
    return;
  }
  try {
    sidebar.showSaved((await getJson("/v1/weir/saved")).saved);
  } catch {
    sidebar.showSaved(null);
  }
}

async function saveOnServer(id) {
  const which = await loadedOr(id);
  try {
    const { name } = await post("/v1/weir/saved", { conversation: id, title: which.title });
    which.savedName = name;
    await chats.save(which);
    await refreshList();
    await refreshSaved();
    toast("The server has saved the session: it goes on without reading the conversation again.");
  } catch (error) {
    toast(error.message, null, { error: true });
  }
}

async function restore(saved) {
  try {
    await post(`/v1/weir/saved/${saved.name}/restore`, {});
  } catch (error) {
    toast(error.message, null, { error: true });
    return;
  }
  for (const entry of entries) {
    if (entry.savedName !== saved.name) continue;
    await open(entry.id);
    toast("Restored: the next answer goes on from what the server has.");
    return;
  }
  toast("The session is restored, but its messages are not in this browser. Import them to go on.");
}

async function removeSaved(saved) {
  if (!await confirmation("Delete what the server saved?", `${saved.title || saved.name}, ${bytes(saved.bytes)}. ` +
    "The messages in this browser stay.", "Delete")) return;
  try {
    await send("DELETE", `/v1/weir/saved/${saved.name}`);
  } catch (error) {
    toast(error.message, null, { error: true });
  }
  await refreshSaved();
}

// --- small dialogs ---

function ask(title, body, label, value) {
  const dialog = byId("question");
  return new Promise((resolve) => {
    const done = (result) => {
      dialog.removeEventListener("cancel", cancel);
      dialog.close();
      resolve(result);
    };
    const cancel = () => done(null);
    const form = el("form", { on: { submit: (event) => { event.preventDefault(); done(value()); } } },
      el("h2", {}, title), body,
      el("div", { class: "row" }, el("button", { type: "button", class: "quiet", on: { click: cancel } }, "Cancel"),
        el("button", { type: "submit", class: "solid" }, label)));
    dialog.setAttribute("aria-label", title);
    replace(dialog, form);
    dialog.addEventListener("cancel", cancel);
    dialog.showModal();
  });
}

function question(title, label, text, button) {
  const field = el("input", { id: "question-field", type: "text", dir: "auto", value: text, maxlength: "200" });
  const result = ask(title, el("div", { class: "field" }, el("label", { for: "question-field" }, label), field), button,
    () => field.value.trim());
  field.select();
  return result;
}

const confirmation = (title, text, button) => ask(title, el("p", { dir: "auto" }, text), button, () => true);

// --- sheets, theme, keys ---------------------------------------------------------------------------------------------

function toggleDrawer(wanted = byId("drawer").hidden) {
  const root = byId("drawer");
  const focusInside = root.contains(document.activeElement);
  root.hidden = !wanted;
  byId("pages-open").setAttribute("aria-expanded", String(wanted));
  document.body.classList.toggle("drawer-open", wanted);
  sheets();
  showLive();
  if (wanted) root.querySelector("button").focus();
  else if (focusInside) byId("pages-open").focus();
}

function toggleSidebar(wanted) {
  document.body.classList.toggle("sidebar-open", wanted);
  byId("sidebar-open").setAttribute("aria-expanded", String(wanted));
  sheets();
  if (!narrow.matches) return;
  if (wanted) byId("new").focus();
  else byId("sidebar-open").focus();
}

// On a narrow screen the list and the drawer lie above the rest, which then takes no focus.
function sheets() {
  const list = document.body.classList.contains("sidebar-open");
  const pages = !byId("drawer").hidden;
  byId("sidebar").inert = narrow.matches && !list;
  byId("main").inert = narrow.matches && (list || pages);
  byId("drawer").inert = narrow.matches && list;
  byId("shade").hidden = !narrow.matches || !(list || pages);
}

function closeSheets() {
  if (document.body.classList.contains("sidebar-open")) toggleSidebar(false);
  else if (!byId("drawer").hidden) toggleDrawer(false);
}

const THEMES = { system: ["light", "half"], light: ["dark", "sun"], dark: ["system", "moon"] };

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("weir.theme", theme);
  } catch {
    // For this page.
  }
  showTheme();
}

function showTheme() {
  const { theme } = document.documentElement.dataset;
  const button = byId("theme");
  replace(button, icon(THEMES[theme][1]));
  button.setAttribute("aria-label", `Theme: ${theme}; change to ${THEMES[theme][0]}`);
  button.title = button.getAttribute("aria-label");
  forgetColours();
  showLive();
}

const lastOf = (role) => conversation.messages.findLast((m) => m.role === role);

const KEYS = [
  ["Enter", "Send; Shift+Enter begins a new line"],
  ["Escape", "Stop the answer, or close what is open"],
  ["Alt+N", "New conversation", "KeyN", () => startNew()],
  ["Alt+↑ ↓", "The conversation above or below"],
  ["Alt+T", "Finish thinking", "KeyT", () => chats.finishThinking(conversation)],
  ["Alt+O", "Open or fold the last thought", "KeyO", () => {
    const thought = [...document.querySelectorAll("details.thought:not([hidden])")].at(-1);
    if (thought) thought.open = !thought.open;
  }],
  ["Alt+R", "Regenerate the last answer", "KeyR", () => {
    const last = conversation.messages.at(-1);
    if (last?.role === "assistant") chats.regenerate(conversation, last.id);
  }],
  ["Alt+E", "Edit the last question", "KeyE", () => lastOf("user") && messages.edit(lastOf("user").id)],
  ["Alt+G", "Go on with an answer that was cut", "KeyG", () => document.querySelector(".go-on")?.click()],
  ["Alt+P", "Pages and speed", "KeyP", () => toggleDrawer()],
  ["Alt+S", "Settings", "KeyS", () => settings.open()],
  ["Alt+L", "Light, dark, or as the system", "KeyL", () => setTheme(THEMES[document.documentElement.dataset.theme][0])],
  ["Alt+I", "To the message box", "KeyI", () => input.focus()],
  ["Alt+K", "Search conversations", "KeyK", () => {
    if (narrow.matches) toggleSidebar(true);
    byId("search").focus();
  }],
  ["Alt+/", "These keys", "Slash", () => openHelp()],
];

function onKey(event) {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    if (!byId("shade").hidden) closeSheets();
    else if (chats.isRunning(conversation)) chats.stop(conversation);
    else if (!byId("drawer").hidden) toggleDrawer(false);
    return;
  }
  if (!event.altKey || event.ctrlKey || event.metaKey || document.querySelector("dialog[open]")) return;
  if (event.code === "ArrowUp" || event.code === "ArrowDown") {
    event.preventDefault();
    const at = entries.findIndex((entry) => entry.id === conversation.id);
    const next = entries[at + (event.code === "ArrowDown" ? 1 : -1)];
    if (next) open(next.id);
    return;
  }
  const key = KEYS.find(([, , code]) => code === event.code);
  if (!key) return;
  event.preventDefault();
  key[3]();
}

function openHelp() {
  const dialog = byId("help");
  replace(dialog,
    el("div", { class: "dialog-head" }, el("h2", {}, "Keys"), iconButton("close", "Close", () => dialog.close())),
    el("dl", { class: "keys" }, KEYS.map(([keys, what]) => el("div", {},
      el("dt", {}, keys.split("+").map((k, i) => [i > 0 && "+", el("kbd", {}, k)])), el("dd", {}, what)))));
  dialog.showModal();
}

// --- the composer ---

function grow() {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight, innerHeight * 0.4)}px`;
}

async function submit() {
  const text = input.value;
  if (!text.trim() || chats.busy(conversation)) return;
  input.value = "";
  grow();
  messages.toEnd();
  remember();
  await chats.ask(conversation, text);
}

function label(id, iconName, text) {
  replace(byId(id), icon(iconName), el("span", {}, text));
}

function wire() {
  label("new", "add", "New conversation");
  label("import", "upload", "Import");
  label("export", "download", "Export");
  for (const [id, name, text] of [["sidebar-open", "menu"], ["sidebar-close", "close"], ["send", "send"],
    ["stop", "stop"], ["to-end", "down"], ["pages-open", "pages", "Pages and speed"],
    ["settings-open", "settings", "Settings"], ["help-open", "keys", "Keys"]]) {
    replace(byId(id), icon(name));
    if (text) byId(id).setAttribute("aria-label", text);
    byId(id).title = byId(id).getAttribute("aria-label");
  }
  const onClick = {
    new: startNew, import: () => byId("import-file").click(), export: exportAll,
    "sidebar-open": () => toggleSidebar(true), "sidebar-close": () => toggleSidebar(false), shade: closeSheets,
    "pages-open": () => toggleDrawer(), "settings-open": () => settings.open(), "help-open": openHelp,
    theme: () => setTheme(THEMES[document.documentElement.dataset.theme][0]),
    stop: () => chats.stop(conversation), finish: () => chats.finishThinking(conversation),
    "to-end": () => messages.toEnd(),
  };
  for (const [id, f] of Object.entries(onClick)) byId(id).addEventListener("click", f);
  byId("import-file").addEventListener("change", (event) => {
    const [file] = event.target.files;
    if (file) importFile(file);
    event.target.value = "";
  });
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  input.addEventListener("input", () => {
    grow();
    showComposer();
  });
  input.addEventListener("keydown", (event) => {
    // A key that ends a composition, as of Japanese, is not meant for sending; on a phone Enter is a new line.
    if (event.key !== "Enter" || event.shiftKey || event.altKey || event.isComposing) return;
    if (matchMedia("(pointer: coarse)").matches && !event.ctrlKey) return;
    event.preventDefault();
    submit();
  });
  addEventListener("keydown", onKey);
  narrow.addEventListener("change", sheets);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  addEventListener("storage", (event) => {
    if (event.key === "weir.theme" && event.newValue) setTheme(event.newValue);
  });
}

// Another tab has changed something.
async function onOtherTab({ id, rev, tab }) {
  if (tab === TAB) return;
  await refreshList();
  if (id !== conversation.id || chats.isRunning(conversation)) return;
  if (rev === null) {
    toast("Another tab deleted this conversation.");
    startNew();
    return;
  }
  const loaded = await store.load(id);
  if (!loaded || loaded.rev <= conversation.rev || chats.isRunning(conversation) || id !== conversation.id) return;
  conversation = loaded;
  show();
}

async function main() {
  wire();
  showTheme();
  sheets();
  showHello();
  live.onChange((kind) => {
    if (kind === "model") showModel();
    if (kind === "connection") showConnection();
    showLive();
    showComposer();
  });
  if (!await store.open()) {
    toast("This browser keeps nothing: conversations are gone when the page is closed. Export them.", null,
      { error: true, seconds: 20 });
  }
  store.onChange(onOtherTab);
  await refreshList();
  let last = null;
  try {
    last = sessionStorage.getItem(CURRENT) || localStorage.getItem(CURRENT);
  } catch {
    last = null;
  }
  if (last && entries.some((entry) => entry.id === last)) await open(last);
  else show();
  // Answers of tabs that are gone.
  setInterval(async () => {
    if (chats.isRunning(conversation) || !chats.settle(conversation)) return;
    await chats.save(conversation);
    show();
  }, 2000);
  document.body.classList.add("ready");
  input.focus();
  live.start();
}

main().catch((error) => {
  announce(error.message);
  toast(`The page could not start: ${error.message}`, null, { error: true, seconds: 600 });
  throw error;
});
