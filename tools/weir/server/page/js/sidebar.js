// The list of conversations: by day, with a search, a menu each, and below what the server has saved.

import { ago, el, icon, iconButton, plural, bytes, replace } from "./dom.js";

export class Sidebar {
  // act: {open, rename, remove, fork, exportOne, saveOnServer, restore, removeSaved}
  constructor(root, search, act) {
    this.root = root;
    this.act = act;
    this.search = search;
    this.entries = [];
    this.saved = null;
    this.current = null;
    this.running = new Set();
    search.addEventListener("input", () => this.draw());
    root.addEventListener("keydown", (event) => this.key(event));
  }

  show(entries, current, running) {
    this.entries = entries;
    this.current = current;
    this.running = running;
    this.draw();
  }

  showSaved(saved) {
    this.saved = saved;
    this.draw();
  }

  draw() {
    const focused = this.root.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const wanted = this.search.value.trim().toLowerCase();
    const shown = this.entries.filter((entry) => entry.title.toLowerCase().includes(wanted));
    const groups = new Map();
    for (const entry of shown) {
      const name = ago(entry.updated);
      groups.set(name, [...(groups.get(name) || []), entry]);
    }
    replace(this.root,
      [...groups].map(([name, entries]) => [el("h2", {}, name), el("ul", {}, entries.map((e) => this.row(e)))]),
      shown.length === 0 && el("p", { class: "note" }, wanted ? "Nothing is called that." : "No conversations yet."),
      this.saved && this.savedPart());
    if (focused) this.root.querySelector(`[data-key="${focused}"]`)?.focus();
  }

  row(entry) {
    const isCurrent = entry.id === this.current;
    return el("li", { class: isCurrent ? "entry current" : "entry" },
      el("button", {
        type: "button", class: "entry-open", data: { key: `open-${entry.id}` }, title: entry.title,
        aria: { current: isCurrent ? "true" : undefined }, on: { click: () => this.act.open(entry.id) },
      }, el("span", { class: "entry-title", dir: "auto" }, entry.title),
      this.running.has(entry.id) && el("span", { class: "entry-runs" }, el("span", { class: "visually-hidden" },
        " is being answered"))),
      iconButton("more", `More for ${entry.title}`, (event) => this.menu(event.currentTarget, entry),
        { "aria-haspopup": "menu", "data-key": `more-${entry.id}` }));
  }

  savedPart() {
    return [el("h2", {}, "Saved on the server"),
      this.saved.length === 0 ? el("p", { class: "note" }, "Nothing yet. The menu of a conversation saves it.") :
        el("ul", {}, this.saved.map((saved) => el("li", { class: "entry saved" },
          el("button", {
            type: "button", class: "entry-open", data: { key: `saved-${saved.name}` },
            title: `Restore: ${plural(saved.tokens, "token")}, ${bytes(saved.bytes)}`,
            on: { click: () => this.act.restore(saved) },
          }, icon("disk"), el("span", { class: "entry-title", dir: "auto" }, saved.title || saved.name),
          el("span", { class: "entry-size" }, bytes(saved.bytes))),
          iconButton("trash", `Delete ${saved.title || saved.name} on the server`, () => this.act.removeSaved(saved),
            { "data-key": `unsave-${saved.name}` }))))];
  }

  menu(button, entry) {
    openMenu(button, [
      { label: "Rename", icon: "edit", run: () => this.act.rename(entry.id) },
      { label: "Fork", icon: "fork", run: () => this.act.fork(entry.id) },
      { label: "Export as JSON", icon: "download", run: () => this.act.exportOne(entry.id) },
      this.saved && { label: "Save on the server", icon: "disk", run: () => this.act.saveOnServer(entry.id) },
      { label: "Delete", icon: "trash", run: () => this.act.remove(entry.id), danger: true },
    ].filter(Boolean));
  }

  key(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const buttons = [...this.root.querySelectorAll(".entry-open")];
    const at = buttons.indexOf(document.activeElement);
    if (at < 0) return;
    event.preventDefault();
    buttons[at + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
  }
}

// A menu below a button: arrow keys, Home, End, Escape; the focus goes back to the button.
export function openMenu(button, items) {
  document.querySelector(".menu")?.remove();
  const menu = el("div", { class: "menu", role: "menu", aria: { label: button.getAttribute("aria-label") || "Menu" } });
  const close = (back) => {
    menu.remove();
    button.removeAttribute("aria-expanded");
    removeEventListener("pointerdown", outside, true);
    if (back) button.focus();
  };
  const outside = (event) => {
    if (!menu.contains(event.target)) close(false);
  };
  for (const item of items) {
    menu.append(el("button", {
      type: "button", role: "menuitem", tabindex: "-1", class: item.danger ? "danger" : null,
      on: { click: () => { close(true); item.run(); } },
    }, icon(item.icon), item.label));
  }
  menu.addEventListener("keydown", (event) => {
    const buttons = [...menu.children];
    const at = buttons.indexOf(document.activeElement);
    const go = { ArrowDown: at + 1, ArrowUp: at - 1 + buttons.length, Home: 0, End: buttons.length - 1 }[event.key];
    if (go !== undefined) {
      event.preventDefault();
      buttons[go % buttons.length].focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close(true);
    }
  });
  button.setAttribute("aria-expanded", "true");
  document.body.append(menu);
  const box = button.getBoundingClientRect();
  const { offsetHeight: height, offsetWidth: width } = menu;
  menu.style.top = `${Math.max(8, Math.min(box.bottom + 4, innerHeight - height - 8))}px`;
  menu.style.left = `${Math.max(8, Math.min(box.right - width, innerWidth - width - 8))}px`;
  menu.firstElementChild.focus();
  addEventListener("pointerdown", outside, true);
}
