// The pages of a conversation's cache as pictures: a ribbon, a grid with a cell a page, and the river, in which every
// line is a moment, the latest on top. '#' in the pool, '*' there since just now, '.' outside in the host's store,
// 'x' lost. Drawn on canvases, so that thousands of pages cost no elements; what they show is also said in words.

import { bytes, count, el, iconButton, plural, replace } from "./dom.js";

const GLOW = 1800;           // ms in which a page that came back fades to one that is there
const GRID_HEIGHT = 230;     // px that the grid may take before its cells become smaller
const CELLS = [14, 12, 10, 8, 7, 6, 5, 4, 3];
const RIVER_ROW = 2;         // px of a moment

export function countPages(pages) {
  const n = { pool: 0, out: 0, back: 0, lost: 0 };
  for (const c of pages) {
    if (c === "#") n.pool += 1;
    else if (c === ".") n.out += 1;
    else if (c === "*") {
      n.back += 1;
      n.pool += 1;
    } else if (c === "x") n.lost += 1;
  }
  return n;
}

let colours = null;
export function forgetColours() {
  colours = null;
}
function palette() {
  if (colours) return colours;
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  colours = { pool: get("--page-pool"), out: get("--page-out"), edge: get("--page-edge"), back: get("--page-back"),
    lost: get("--page-lost"), ground: get("--surface") };
  for (const [name, value] of Object.entries(colours)) colours[`${name}Rgb`] = rgb(value);
  return colours;
}

function rgb(hex) {
  const n = Number.parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

const mix = (a, b, t) => `rgb(${a.map((x, i) => Math.round(x + (b[i] - x) * t)).join(" ")})`;

// Sizes a canvas for its place on the screen; null where it has none.
function prepare(canvas, height) {
  const width = canvas.clientWidth;
  if (width === 0 || height === 0) return null;
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, ratio };
}

// How new a page is: 1 when it has just come back, 0 when it is one of many.
function glow(returned, page, c) {
  const when = returned?.get(page);
  if (c === "*") return 1;
  return when === undefined ? 0 : Math.max(0, 1 - (performance.now() - when) / GLOW);
}

function colourOf(c, fresh) {
  const p = palette();
  if (c === ".") return p.out;
  if (c === "x") return p.lost;
  return fresh > 0 ? mix(p.poolRgb, p.backRgb, fresh) : p.pool;
}

export function drawRibbon(canvas, pages, returned) {
  const place = prepare(canvas, 6);
  if (!place) return;
  const { context, width } = place;
  const n = pages.length;
  const step = Math.min(width / n, 12);
  const gap = step >= 4 ? 1 : 0;
  if (step >= 1) {
    for (let i = 0; i < n; i += 1) {
      context.fillStyle = colourOf(pages[i], glow(returned, i, pages[i]));
      context.fillRect(i * step, 0, Math.max(step - gap, 0.6), 6);
    }
    return;
  }
  // More pages than pixels: a pixel shows what matters most of its pages.
  for (let x = 0; x < width; x += 1) {
    const [c, i] = strongest(pages, Math.floor((x * n) / width), Math.max(Math.floor(((x + 1) * n) / width), 1));
    context.fillStyle = colourOf(c, glow(returned, i, c));
    context.fillRect(x, 0, 1, 6);
  }
}

const STRENGTH = { "*": 3, "#": 2, x: 1, ".": 0 };
function strongest(pages, first, end) {
  let best = first;
  for (let i = first; i < end; i += 1) if ((STRENGTH[pages[i]] ?? 0) > (STRENGTH[pages[best]] ?? 0)) best = i;
  return [pages[best], best];
}

export function gridLayout(n, width) {
  for (const cell of CELLS) {
    const columns = Math.max(Math.floor(width / cell), 1);
    const rows = Math.ceil(n / columns);
    if (rows * cell <= GRID_HEIGHT || cell === CELLS.at(-1)) return { cell, columns, rows };
  }
  return null;
}

function drawGrid(canvas, pages, returned) {
  const width = canvas.clientWidth;
  if (width === 0 || pages.length === 0) return;
  const { cell, columns, rows } = gridLayout(pages.length, width);
  const place = prepare(canvas, rows * cell);
  if (!place) return;
  const { context } = place;
  const p = palette();
  const size = cell - (cell >= 10 ? 3 : cell >= 6 ? 2 : 1);
  const round = cell >= 8 ? 2 : 0;
  const box = (x, y, inset) => {
    context.beginPath();
    if (round) context.roundRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset, round);
    else context.rect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
  };
  for (let i = 0; i < pages.length; i += 1) {
    const x = (i % columns) * cell;
    const y = Math.floor(i / columns) * cell;
    const c = pages[i];
    const fresh = glow(returned, i, c);
    if (c === ".") {
      context.fillStyle = p.out;
      box(x, y, 0);
      context.fill();
      if (cell >= 6) {
        context.strokeStyle = p.edge;
        context.lineWidth = 1;
        box(x, y, 0.5);
        context.stroke();
      }
    } else if (c === "x") {
      context.fillStyle = p.lost;
      const dot = Math.max(size / 3, 1);
      context.fillRect(x + (size - dot) / 2, y + (size - dot) / 2, dot, dot);
    } else {
      context.fillStyle = colourOf(c, fresh);
      box(x, y, 0);
      context.fill();
      if (fresh > 0.05 && cell >= 6) {
        context.strokeStyle = `rgb(${p.backRgb.join(" ")} / ${fresh})`;
        context.lineWidth = 1.5;
        box(x - 1, y - 1, -0.5);
        context.stroke();
      }
    }
  }
}

function drawRiver(canvas, rows) {
  const height = Math.max(rows.length, 40) * RIVER_ROW;
  const place = prepare(canvas, Math.min(height, 320));
  if (!place || rows.length === 0) return;
  const { context } = place;
  const p = palette();
  const n = rows.at(-1).length;
  const image = context.createImageData(canvas.width, canvas.height);
  const lines = Math.floor(canvas.height / (RIVER_ROW * place.ratio));
  const perLine = Math.round(RIVER_ROW * place.ratio);
  const table = { "#": p.poolRgb, "*": p.backRgb, ".": p.outRgb, x: p.lostRgb };
  for (let line = 0; line < Math.min(lines, rows.length); line += 1) {
    const pages = rows[rows.length - 1 - line];
    const row = line * perLine * canvas.width * 4;
    for (let x = 0; x < canvas.width; x += 1) {
      const first = Math.floor((x * n) / canvas.width);
      const end = Math.max(Math.floor(((x + 1) * n) / canvas.width), first + 1);
      if (first >= pages.length) break;
      const colour = table[strongest(pages, first, Math.min(end, pages.length))[0]] || p.outRgb;
      const at = row + x * 4;
      image.data[at] = colour[0];
      image.data[at + 1] = colour[1];
      image.data[at + 2] = colour[2];
      image.data[at + 3] = 255;
    }
    for (let copy = 1; copy < perLine; copy += 1) {
      image.data.copyWithin(row + copy * canvas.width * 4, row, row + canvas.width * 4);
    }
  }
  context.putImageData(image, 0, 0);
}

// --- the drawer ------------------------------------------------------------------------------------------------------

const LEGEND = [["pool", "in the pool"], ["out", "outside"], ["back", "just came back"], ["lost", "lost"]];

export class PagesDrawer {
  constructor(root, close) {
    this.root = root;
    this.tiles = Object.fromEntries([["speed", "tokens a second"], ["recalled", "pages recalled"],
      ["ratio", "compressed"], ["tokens", "tokens held"]].map(([key, label]) => [key, tile(label)]));
    this.grid = el("canvas", { class: "grid", role: "img", aria: { label: "No pages yet" } });
    this.river = el("canvas", { class: "river", role: "img", aria: { label: "The pages over time" } });
    this.tip = el("p", { class: "tip" });
    this.counts = Object.fromEntries(LEGEND.map(([key]) => [key, el("b", {}, "0")]));
    this.empty = el("p", { class: "empty-note" },
      "No session holds this conversation now. Its pages appear with the next answer.");
    this.body = el("div", { class: "drawer-body" },
      el("div", { class: "tiles" }, Object.values(this.tiles).map((t) => t.node)),
      el("h3", {}, "Pages"),
      el("ul", { class: "legend" }, LEGEND.map(([key, text]) =>
        el("li", {}, el("span", { class: `swatch ${key}` }), this.counts[key], ` ${text}`))),
      this.grid, this.tip,
      el("h3", {}, "The last moments"),
      el("p", { class: "note" }, "Each line is a moment, the latest on top; pages go from left to right."),
      this.river);
    this.others = el("div", { class: "others" });
    replace(root,
      el("div", { class: "drawer-head" }, el("h2", {}, "Memory"), iconButton("close", "Close the drawer", close)),
      this.empty, this.body, this.others);
    this.grid.addEventListener("pointermove", (event) => this.point(event));
    this.grid.addEventListener("pointerleave", () => this.say(null));
    new ResizeObserver(() => this.draw()).observe(root);
    this.session = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.frame = 0;
  }

  show(session, rows, returned, all, waiting, titles) {
    this.session = session;
    this.rows = rows || [];
    this.returned = returned;
    this.empty.hidden = session !== null;
    this.body.hidden = session === null;
    if (session) this.numbers(session);
    replace(this.others, el("h3", {}, "Sessions"),
      el("ul", { class: "sessions" }, [...all].map((s) => el("li", {},
        el("span", { class: `state ${s.state}` }, STATES[s.state] || s.state),
        el("span", { class: "session-title", dir: "auto" }, s.conversation ? titles(s.conversation) : "free"),
        el("span", { class: "session-bytes" }, `${count(s.tokens)} tok · ${bytes(s.kv_bytes)}`)))),
      waiting > 0 ? el("p", { class: "note" }, `${plural(waiting, "request")} waiting.`) : null);
    this.draw();
  }

  numbers(session) {
    const { tiles } = this;
    tiles.speed.set(session.tokens_per_second > 0 ? session.tokens_per_second.toFixed(1) : "–");
    tiles.recalled.set(count(session.recalled_pages));
    const [raw, stored] = [session.store_raw_bytes, session.store_bytes];
    const ratio = stored > 0 ? raw / stored : 0;
    tiles.ratio.set(ratio >= 1.05 ? `${ratio.toFixed(1)} ×` : "–", stored === 0 ? "nothing outside" :
      ratio >= 1.05 ? `${bytes(raw)} in ${bytes(stored)}` : `${bytes(stored)}, not compressed`);
    tiles.tokens.set(count(session.tokens));
    const n = countPages(session.pages || "");
    this.counts.pool.textContent = count(n.pool);
    this.counts.out.textContent = count(n.out);
    this.counts.back.textContent = count(n.back);
    this.counts.lost.textContent = count(n.lost);
    const words = `${plural((session.pages || "").length, "page")}: ${n.pool} in the pool, ${n.out} outside, ` +
      `${n.back} just came back, ${n.lost} lost`;
    this.grid.setAttribute("aria-label", words);
    this.river.setAttribute("aria-label", `The pages over the last ${plural(this.rows.length, "moment")}. ${words}.`);
  }

  draw() {
    if (this.root.hidden || !this.session) return;
    const pages = this.session.pages || "";
    const returned = this.still.matches ? null : this.returned;
    drawGrid(this.grid, pages, returned);
    drawRiver(this.river, this.rows);
    cancelAnimationFrame(this.frame);
    // As long as something fades.
    const now = performance.now();
    if (returned && [...returned.values()].some((when) => now - when < GLOW)) {
      this.frame = requestAnimationFrame(() => drawLater(this));
    }
  }

  point(event) {
    const pages = this.session?.pages;
    if (!pages) return;
    const { cell, columns } = gridLayout(pages.length, this.grid.clientWidth);
    const box = this.grid.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left) / cell);
    const page = Math.floor((event.clientY - box.top) / cell) * columns + x;
    this.say(x < columns && page < pages.length ? page : null);
  }

  say(page) {
    if (page === null) {
      this.tip.textContent = "";
      return;
    }
    const size = 16;
    const what = { "#": "in the pool", ".": "outside, in the host's memory", "*": "just came back", x: "lost" };
    this.tip.textContent = `Page ${count(page + 1)}, tokens ${count(page * size + 1)} to ` +
      `${count(Math.min((page + 1) * size, this.session.tokens || Infinity))}: ${what[this.session.pages[page]] || ""}`;
  }
}

const STATES = { idle: "idle", prompt: "reading", decode: "writing" };

function drawLater(drawer) {
  drawGrid(drawer.grid, drawer.session?.pages || "", drawer.returned);
  const now = performance.now();
  if (drawer.root.hidden || ![...(drawer.returned?.values() || [])].some((when) => now - when < GLOW)) return;
  drawer.frame = requestAnimationFrame(() => drawLater(drawer));
}

function tile(label) {
  const value = el("strong", {}, "–");
  const more = el("span", { class: "tile-more" });
  return {
    node: el("div", { class: "tile" }, value, el("span", { class: "tile-label" }, label), more),
    set(text, under = "") {
      value.textContent = text;
      more.textContent = under;
    },
  };
}
