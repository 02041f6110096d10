// What builds the page: elements, icons, numbers. Text always becomes text nodes; nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

// el("button", {class: "x", on: {click: f}, aria: {label: "y"}, data: {id: 1}}, "text", child, [more], null)
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "on") for (const [type, f] of Object.entries(value)) node.addEventListener(type, f);
    else if (key === "aria") {
      for (const [name, v] of Object.entries(value)) if (v !== undefined) node.setAttribute(`aria-${name}`, v);
    } else if (key === "data") for (const [name, v] of Object.entries(value)) node.dataset[name] = v;
    else if (key === "value" || key === "checked" || key === "open") node[key] = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

export function add(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

export function replace(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

export const byId = (id) => document.getElementById(id);

// Strokes on a grid of 24.
const ICONS = {
  add: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h10",
  more: "M6 12h.01M12 12h.01M18 12h.01",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  again: "M20 12a8 8 0 1 1-2.4-5.7M20 4v4.5h-4.5",
  rewind: "M9 7L4 12l5 5M4 12h10a6 6 0 0 1 6 6",
  fork: "M7 4v16M7 13c0-4 10-2 10-7M17 4v2M4.5 6.5L7 4l2.5 2.5M14.5 6L17 3.5 19.5 6",
  goOn: "M5 5v14l8-7zM17 5v14",
  pages: "M4 5h4v4H4zM10 5h4v4h-4zM16 5h4v4h-4zM4 11h4v4H4zM10 11h4v4h-4zM16 11h4v4h-4zM4 17h4v2H4zM10 17h4v2h-4z",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M5 19l1.5-1.5" +
    "M17.5 6.5L19 5",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  half: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  keys: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
  down: "M12 5v14M6 13l6 6 6-6",
  left: "M15 6l-6 6 6 6",
  right: "M9 6l6 6-6 6",
  tool: "M14 6a4 4 0 0 0 5 5l-8.5 8.5a2.1 2.1 0 0 1-3-3z",
  file: "M7 3h7l4 4v14H7zM14 3v4h4",
  upload: "M12 16V5M7 9.5L12 5l5 4.5M5 19h14",
  download: "M12 5v11M7 11.5L12 16l5-4.5M5 19h14",
  disk: "M5 4h11l3 3v13H5zM8 4v5h7V4M8 20v-6h8v6",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM15.5 15.5L20 20",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

// A button with an icon and a name that is read, and shown as its title.
export function iconButton(name, label, click, props = {}) {
  return el("button", { type: "button", class: "icon-button", title: label, aria: { label }, on: { click }, ...props },
    icon(name));
}

const whole = new Intl.NumberFormat("en");
export const count = (n) => whole.format(Math.round(n || 0));
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = n;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  // Three digits, as many as a gauge needs; a budget that is hit exactly should read as such.
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

export function duration(ms) {
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

export function ago(time, now = Date.now()) {
  const days = Math.floor((new Date(now).setHours(0, 0, 0, 0) - new Date(time).setHours(0, 0, 0, 0)) / 86400000);
  if (days <= 0) return "Today";
  if (days === 1) return "Yesterday";
  if (days < 7) return "This week";
  if (days < 31) return "This month";
  return "Earlier";
}

// Ids need not be secret, only different; randomUUID is missing outside of secure contexts.
export function newId() {
  const random = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No permission, or no secure context: the old way.
    const area = el("textarea", { class: "visually-hidden", aria: { hidden: "true" } });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export function downloadFile(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Says something to screen readers, politely, one text after the other.
export function announce(text) {
  const region = byId("announcements");
  const line = el("p", {}, text);
  region.append(line);
  while (region.childElementCount > 20) region.firstElementChild.remove();
}

// A line at the bottom that goes away, perhaps with something to do about it.
export function toast(text, action = null, { error = false, seconds = 8 } = {}) {
  const box = el("div", { class: error ? "toast error" : "toast", role: error ? "alert" : "status" },
    el("span", { dir: "auto" }, text));
  const remove = () => box.remove();
  if (action) {
    box.append(el("button", {
      type: "button", class: "link", on: { click: () => { remove(); action.run(); } },
    }, action.label));
  }
  box.append(iconButton("close", "Dismiss", remove));
  byId("toasts").append(box);
  while (byId("toasts").childElementCount > 3) byId("toasts").firstElementChild.remove();
  setTimeout(remove, seconds * 1000);
}
