// The KV gauge: what the cache of this conversation takes, against the red mark of its budget, and below it what a
// dense cache would take for the same tokens. Below both a ribbon of the pages. The scale grows in steps, so that a bar
// that does not move is seen not to move.

import { bytes, el, replace } from "./dom.js";
import { countPages, drawRibbon } from "./pages.js";

const STEPS = [1.25, 1.7, 2.3, 3.2, 4.5, 6.4, 9, 12.8, 18, 26, 36, 52, 73, 104, 147, 208, 294, 416, 588, 832, 1180];

export class Gauge {
  constructor(root, openPages) {
    this.now = el("strong", { class: "gauge-now" }, "–");
    this.budget = el("span", { class: "gauge-budget" });
    this.budgetKey = el("span", { class: "key budget" });
    this.denseText = el("span", { class: "gauge-dense" });
    this.times = el("span", { class: "gauge-times" });
    this.fill = el("div", { class: "fill" });
    this.mark = el("div", { class: "mark-line" });
    this.dense = el("div", { class: "dense" });
    this.meter = el("div", { class: "lanes", role: "meter", aria: { label: "KV cache", valuemin: "0", valuemax: "1",
      valuenow: "0" } },
    el("div", { class: "lane ours" }, this.fill), el("div", { class: "lane theirs" }, this.dense), this.mark);
    this.ribbon = el("canvas", { class: "ribbon", aria: { hidden: "true" } });
    this.button = el("button", { type: "button", class: "ribbon-button", title: "Pages",
      aria: { label: "Show the pages" }, on: { click: openPages } }, this.ribbon);
    replace(root,
      el("div", { class: "gauge-text" },
        el("p", { class: "gauge-left" }, el("span", { class: "key ours" }), el("span", { class: "gauge-name" },
          "KV memory "), this.now, this.budgetKey, this.budget),
        el("p", { class: "gauge-right" }, el("span", { class: "key theirs" }), this.denseText, this.times)),
      this.meter, this.button);
    this.root = root;
    this.scale = 0;
    new ResizeObserver(() => this.drawPages()).observe(this.ribbon);
  }

  // session: of this conversation, or null where no session holds it; plan: of the settings
  show(session, plan, returned) {
    const budget = session?.kv_budget_bytes || plan?.kv_bytes || 0;
    const now = session?.kv_bytes || 0;
    const dense = session?.dense_bytes || 0;
    const most = Math.max(now, dense, 1);
    const step = STEPS.find((s) => s * budget >= most * 1.02) || STEPS.at(-1);
    const scale = budget > 0 ? Math.max(step * budget, most * 1.02) : most;
    this.fill.style.width = `${(100 * now) / scale}%`;
    this.dense.style.width = `${(100 * dense) / scale}%`;
    this.mark.hidden = budget === 0;
    this.mark.style.left = `${(100 * budget) / scale}%`;
    this.mark.classList.toggle("at-end", budget > scale * 0.7);
    const near = budget > 0 && now > budget * 0.97;
    this.root.classList.toggle("near", near);
    this.root.classList.toggle("empty", !session);
    this.now.textContent = bytes(now);
    this.budget.textContent = budget ? `budget ${bytes(budget)}` : "";
    this.budgetKey.hidden = budget === 0;
    this.denseText.textContent = dense ? `a dense cache ${bytes(dense)}` : "a dense cache grows with every token";
    const ratio = now > 0 ? dense / now : 0;
    this.times.textContent = ratio >= 1.15 ? `${ratio.toFixed(1)} ×` : "";
    this.meter.setAttribute("aria-valuemax", String(budget || scale));
    this.meter.setAttribute("aria-valuenow", String(Math.min(now, budget || scale)));
    this.meter.setAttribute("aria-valuetext",
      `${bytes(now)} of a budget of ${bytes(budget)}; a dense cache would take ${bytes(dense)}`);
    this.pages = session?.pages || "";
    this.returned = returned;
    this.button.hidden = this.pages === "";
    const n = countPages(this.pages);
    this.button.setAttribute("aria-label", this.pages ? `Show the pages: ${n.pool} in the pool, ${n.out} outside` :
      "Show the pages");
    this.drawPages();
  }

  drawPages() {
    if (this.pages) drawRibbon(this.ribbon, this.pages, this.returned);
  }
}

