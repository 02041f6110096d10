// The settings in four parts: memory (policy, budget, what fits), answers (sampling and thoughts), this conversation
// (instructions and tools), and what this page runs on. Memory belongs to the server and changes with "Apply"; the
// others belong to this browser and change as they are typed.

import { getJson, post } from "./api.js";
import { bytes, count, el, iconButton, replace } from "./dom.js";
import { preferences, setPreferences } from "./store.js";

const ANSWER_FIELDS = [
  ["temperature", "Temperature", "0 always takes the most probable word; 1 is as the model learnt it.", 0, 2, 0.1],
  ["top_p", "Top p", "Draws from the smallest set of words with this probability.", 0, 1, 0.05],
  ["min_p", "Min p", "Drops words less probable than this part of the best.", 0, 1, 0.01],
  ["top_k", "Top k", "Draws from this many words at most.", 0, 1000000, 1],
  ["repeat_penalty", "Repeat penalty", "Above 1 makes words less probable that were just said.", 0, 10, 0.05],
  ["max_tokens", "Longest answer", "In tokens; empty: what the context has room for.", 1, 10000000, 1],
  ["thinking_budget", "Longest thought", "In tokens; then the thought is ended and the answer begins.", 0, 10000000, 1],
  ["seed", "Seed", "The same seed draws the same answer; empty: another each time.", Number.MIN_SAFE_INTEGER,
    Number.MAX_SAFE_INTEGER, 1],
];
// The presets that are shown first, in this order; all others, and the policies by themselves, are folded.
const FIRST = ["exact", "chat", "reason-recall", "reason-fixed", "longdoc", "stream"];
const EFFORTS = [["", "as the model does"], ["none", "off"], ["low", "low"], ["medium", "medium"], ["high", "high"]];

export class Settings {
  constructor(dialog, live, host) {
    this.dialog = dialog;
    this.live = live;
    this.host = host;               // {conversation(), saveConversation(), toast(), applied()}
    this.policies = null;
    this.fits = null;
    this.choice = null;             // {policy or preset, budget, context}
    this.ask = 0;
  }

  async open(tab = "memory") {
    this.build();
    this.select(tab);
    if (!this.dialog.open) this.dialog.showModal();
    await this.load();
  }

  build() {
    const tabs = [["memory", "Memory"], ["answers", "Answers"], ["conversation", "Conversation"],
      ["machine", "Machine"]];
    this.tabs = new Map();
    this.panels = new Map();
    for (const [key, label] of tabs) {
      this.tabs.set(key, el("button", {
        type: "button", role: "tab", id: `tab-${key}`, tabindex: "-1",
        aria: { controls: `panel-${key}`, selected: "false" }, on: { click: () => this.select(key) },
      }, label));
      this.panels.set(key, el("div", {
        class: "panel", role: "tabpanel", id: `panel-${key}`, tabindex: "0", aria: { labelledby: `tab-${key}` },
      }));
    }
    const list = el("div", { class: "tabs", role: "tablist", aria: { label: "Parts of the settings" } },
      [...this.tabs.values()]);
    list.addEventListener("keydown", (event) => {
      const keys = [...this.tabs.keys()];
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = keys[(keys.indexOf(this.tab) + step + keys.length) % keys.length];
      this.select(next);
      this.tabs.get(next).focus();
    });
    replace(this.dialog,
      el("div", { class: "dialog-head" }, el("h2", {}, "Settings"),
        iconButton("close", "Close the settings", () => this.dialog.close())),
      list, [...this.panels.values()]);
    this.buildAnswers();
    this.buildConversation();
    this.buildMachine();
    replace(this.panels.get("memory"), el("p", { class: "note" }, "Asking the server…"));
  }

  select(key) {
    this.tab = key;
    for (const [name, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(name === key));
      tab.tabIndex = name === key ? 0 : -1;
      this.panels.get(name).hidden = name !== key;
    }
  }

  // --- memory ---

  async load() {
    try {
      const [policies, settings, fits] = await Promise.all([
        getJson("/v1/weir/policies"), getJson("/v1/weir/settings"), getJson("/v1/weir/fits")]);
      this.policies = policies.policies;
      this.settings = settings;
      this.fits = fits;
    } catch (error) {
      replace(this.panels.get("memory"), el("p", { class: "note error" }, error.message));
      return;
    }
    const { settings } = this;
    this.choice = { name: settings.preset || settings.policy, budget: settings.budget_tokens || 0,
      context: settings.context_tokens };
    this.buildMemory();
    await this.showPlan();
  }

  kindOf(name) {
    return this.policies.find((p) => p.name === name)?.kind || "policy";
  }

  budgets() {
    const all = new Set(this.fits.rows.flatMap((row) => row.budgets.map((b) => b.budget_tokens)));
    if (this.choice.budget) all.add(this.choice.budget);
    return [...all].filter((n) => n > 0).sort((a, b) => a - b);
  }

  buildMemory() {
    const radio = (p) => {
      const id = `policy-${p.kind}-${p.name}`;
      const input = el("input", { type: "radio", name: "policy", id, value: p.name });
      // A preset has a budget of its own; a policy by itself would take the whole context.
      input.addEventListener("change", () => this.choose({ name: p.name, budget: p.kind === "preset" ? 0 :
        this.choice.budget > 0 && this.choice.budget < this.choice.context ? this.choice.budget : 1024 }));
      return el("div", { class: "choice" }, input,
        el("label", { for: id }, el("b", {}, p.name), el("span", {}, p.sentence)));
    };
    const group = (legend, note, list) => list.length > 0 && el("fieldset", { class: "choices" },
      el("legend", {}, legend), el("p", { class: "note" }, note), list.map(radio));
    const presets = this.policies.filter((p) => p.kind === "preset");
    const first = FIRST.map((name) => presets.find((p) => p.name === name)).filter(Boolean);
    const more = el("details", { class: "more" }, el("summary", {}, "More presets, and policies by themselves"),
      group("Presets", "To compare with, and for special work.", presets.filter((p) => !first.includes(p))),
      group("Policies", "What a preset is made of, with the policy's own defaults.",
        this.policies.filter((p) => p.kind === "policy")));
    more.open = !first.some((p) => p.name === this.choice.name);
    this.budgetSelect = el("select", { id: "budget" });
    this.budgetSelect.addEventListener("change", () => this.choose({ budget: Number(this.budgetSelect.value) }));
    this.contextInput = el("input", { id: "context", type: "number", min: "16", step: "1",
      value: this.choice.context });
    this.contextInput.addEventListener("change", () => {
      const n = Math.floor(Number(this.contextInput.value));
      if (n > 0) this.choose({ context: n });
    });
    this.planBox = el("div", { class: "plan", aria: { live: "polite" } });
    this.applyButton = el("button", { type: "button", class: "solid apply", on: { click: () => this.apply() } },
      "Apply");
    this.applyNote = el("p", { class: "apply-note", role: "status" });
    this.fitsBox = el("div", { class: "table-wrap fits-box", tabindex: "0", role: "region",
      aria: { label: "What fits" } });
    replace(this.panels.get("memory"),
      group("What stays in memory", "One choice each for a way of working.", first),
      more,
      el("div", { class: "pair" },
        el("div", { class: "field" }, el("label", { for: "budget" }, "Budget"), this.budgetSelect,
          el("p", { class: "note" }, "Tokens that stay in the KV memory of each stream.")),
        el("div", { class: "field" }, el("label", { for: "context" }, "Context"), this.contextInput,
          el("p", { class: "note" }, "Most tokens of a conversation."))),
      this.planBox,
      el("h3", {}, "What fits?"),
      el("p", { class: "note" }, `All sessions and the weights, against ${bytes(this.fits.limit_bytes)} of this `,
        "machine, for budgets in tokens. A cell chooses its policy and budget."),
      this.fitsBox,
      el("div", { class: "apply-row" }, this.applyButton, this.applyNote));
    this.fillChoice();
  }

  fillChoice() {
    const { choice } = this;
    replace(this.budgetSelect, el("option", { value: "0" }, "its own"),
      this.budgets().map((n) => el("option", { value: n }, `${count(n)} tokens`)));
    this.budgetSelect.value = String(choice.budget || 0);
    for (const input of this.panels.get("memory").querySelectorAll('input[name="policy"]')) {
      input.checked = input.value === choice.name;
    }
    this.drawFits();
  }

  drawFits() {
    const { fits, choice } = this;
    const budgets = [...new Set(fits.rows.flatMap((r) => r.budgets.map((b) => b.budget_tokens)))]
      .filter((n) => n > 0).sort((a, b) => a - b);
    const all = fits.rows.flatMap((r) => r.budgets.map((b) => b.total_bytes));
    const most = Math.min(Math.max(...all, 1), fits.limit_bytes || Infinity);
    const cell = (row, b) => {
      const chosen = row.policy === choice.name && (b.budget_tokens === choice.budget || row.budgets.length === 1);
      const words = `${row.policy}, ${b.budget_tokens ? `${count(b.budget_tokens)} tokens` : "everything"}: ` +
        `${bytes(b.total_bytes)}, ${b.fits ? "fits" : "does not fit"}`;
      const button = el("button", {
        type: "button", class: `fit ${b.fits ? "yes" : "no"}${chosen ? " chosen" : ""}`, title: words,
        aria: { label: words, pressed: String(chosen) },
        on: { click: () => this.choose({ name: row.policy, budget: row.budgets.length === 1 ? 0 : b.budget_tokens }) },
      }, b.fits ? bytes(b.total_bytes) : el("s", {}, bytes(b.total_bytes)));
      button.style.setProperty("--part", `${Math.min(100, (100 * b.total_bytes) / most)}%`);
      return button;
    };
    const line = (row) => el("tr", {}, el("th", { scope: "row" }, row.policy),
      row.budgets.length === 1 ? el("td", { colspan: budgets.length, class: "whole" }, cell(row, row.budgets[0])) :
        budgets.map((n) => {
          const b = row.budgets.find((entry) => entry.budget_tokens === n);
          return el("td", {}, b ? cell(row, b) : "–");
        }));
    const rows = [...fits.rows].sort((a, b) => this.order(a.policy) - this.order(b.policy));
    replace(this.fitsBox, el("table", { class: "fits" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "policy"),
        budgets.map((n) => el("th", { scope: "col" }, count(n))))),
      el("tbody", {}, rows.map(line))));
  }

  // Where a name stands: the first presets, the others, the policies.
  order(name) {
    const first = FIRST.indexOf(name);
    if (first >= 0) return first;
    const at = this.policies.findIndex((p) => p.name === name);
    return FIRST.length + at + (this.kindOf(name) === "policy" ? this.policies.length : 0);
  }

  async choose(change) {
    Object.assign(this.choice, change);
    const focused = document.activeElement?.getAttribute("aria-label");
    this.fillChoice();
    if (focused) this.fitsBox.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
    await this.showPlan();
  }

  query() {
    const { name, budget, context } = this.choice;
    const query = new URLSearchParams({ [this.kindOf(name)]: name });
    if (budget) query.set("budget", budget);
    if (context) query.set("context", context);
    return query;
  }

  async showPlan() {
    const ask = ++this.ask;
    let plan;
    try {
      plan = await getJson(`/v1/weir/plan?${this.query()}`);
    } catch (error) {
      if (ask === this.ask) replace(this.planBox, el("p", { class: "note error" }, error.message));
      return;
    }
    if (ask !== this.ask) return;
    replace(this.planBox, planPicture(plan));
    this.applyButton.disabled = !plan.fits;
    this.applyNote.textContent = `${bytes(plan.total_bytes)} of ${bytes(plan.limit_bytes)}` +
      `${plan.fits ? "" : ": does not fit"}`;
    this.applyNote.className = plan.fits ? "apply-note" : "apply-note bad";
  }

  async apply() {
    const { name, budget, context } = this.choice;
    const body = { [this.kindOf(name)]: name };
    if (budget) body.budget_tokens = budget;
    if (context) body.context_tokens = context;
    this.applyNote.textContent = "Making the sessions anew…";
    this.applyNote.className = "apply-note";
    this.applyButton.disabled = true;
    try {
      this.settings = await post("/v1/weir/settings", body);
      this.applyNote.textContent = "Applied. The next answer reads its conversation again.";
      this.applyNote.classList.add("good");
      await this.host.applied();
    } catch (error) {
      this.applyNote.textContent = error.param ? `${error.param}: ${error.message}` : error.message;
      this.applyNote.classList.add("bad");
    } finally {
      this.applyButton.disabled = false;
    }
  }

  // --- answers ---

  buildAnswers() {
    const wish = preferences();
    const field = ([key, label, note, min, max, step]) => {
      const id = `answer-${key}`;
      const input = el("input", { id, type: "number", min, max, step, inputmode: "decimal", value: wish[key] ?? "",
        placeholder: "the server's", aria: { describedby: `${id}-note` } });
      input.addEventListener("change", () => {
        const value = input.value === "" ? null : Number(input.value);
        const ok = value === null || (Number.isFinite(value) && value >= min && value <= max &&
          (step < 1 || Number.isInteger(value)));
        input.setAttribute("aria-invalid", String(!ok));
        if (ok) setPreferences({ [key]: value });
      });
      return el("div", { class: "field" }, el("label", { for: id }, label), input,
        el("p", { class: "note", id: `${id}-note` }, note));
    };
    const chat = this.live.model?.chat;
    const effort = el("select", { id: "effort" }, EFFORTS.map(([value, label]) => el("option", { value }, label)));
    effort.value = wish.reasoning_effort || "";
    effort.addEventListener("change", () => setPreferences({ reasoning_effort: effort.value || null }));
    replace(this.panels.get("answers"),
      el("div", { class: "field" }, el("label", { for: "effort" }, "Thinking"), effort,
        el("p", { class: "note" }, chat && !chat.has_thinking_switch ?
          "This model has no switch for it; the server may refuse another choice." :
          "How much the model thinks before it answers.")),
      el("div", { class: "fields" }, ANSWER_FIELDS.map(field)));
  }

  // --- this conversation ---

  buildConversation() {
    const conversation = this.host.conversation();
    const system = el("textarea", { id: "system", rows: "4", dir: "auto", value: conversation.system,
      placeholder: "For example: Answer in one short paragraph." });
    system.addEventListener("change", () => {
      conversation.system = system.value;
      this.host.saveConversation(conversation);
    });
    const problem = el("p", { class: "note error", role: "alert" });
    const tools = el("textarea", { id: "tools", rows: "8", spellcheck: "false", class: "mono",
      value: conversation.tools, placeholder: TOOL_EXAMPLE, aria: { describedby: "tools-note" } });
    tools.addEventListener("input", () => {
      const wrong = toolsProblem(tools.value);
      problem.textContent = wrong || "";
      tools.setAttribute("aria-invalid", String(Boolean(wrong)));
    });
    tools.addEventListener("change", () => {
      if (toolsProblem(tools.value)) return;
      conversation.tools = tools.value;
      this.host.saveConversation(conversation);
    });
    const hasTools = this.live.model?.chat?.has_tools;
    replace(this.panels.get("conversation"),
      el("div", { class: "field" }, el("label", { for: "system" }, "Instructions"), system,
        el("p", { class: "note" }, "The system message, in front of everything.")),
      el("div", { class: "field" }, el("label", { for: "tools" }, "Tools"), tools, problem,
        el("p", { class: "note", id: "tools-note" }, "A list in JSON as OpenAI's API has it. Nothing runs: when the ",
          "model calls one, you type what it gives back.",
          hasTools === false ? " The chat template of this model has no place for tools." : "")));
  }

  // --- machine ---

  buildMachine() {
    const { model } = this.live;
    if (!model) {
      replace(this.panels.get("machine"), el("p", { class: "note" }, "The server has not answered yet."));
      return;
    }
    const rows = [
      ["Model", model.name || model.id], ["File", model.file], ["Architecture", model.architecture],
      ["Parameters", count(model.parameters)], ["Weights", bytes(model.weight_bytes)],
      ["Trained for", `${count(model.trained_context_tokens)} tokens`], ["Device", model.device],
      ["Threads", model.threads], ["Memory", `${bytes(model.machine?.memory_bytes)}, ` +
        `${bytes(model.machine?.available_bytes)} of it available`],
      model.machine?.device_bytes ? ["Memory of the device", bytes(model.machine.device_bytes)] : null,
      ["Weir", model.version]].filter(Boolean);
    replace(this.panels.get("machine"), el("dl", { class: "facts-list" },
      rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", { dir: "auto" }, String(value ?? "–"))))));
  }
}

const TOOL_EXAMPLE = `[{"type": "function", "function": {
  "name": "weather",
  "description": "The weather of a city",
  "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}}}}}]`;

function toolsProblem(text) {
  if (!text.trim()) return null;
  try {
    return Array.isArray(JSON.parse(text)) ? null : "This is JSON, but no list.";
  } catch (error) {
    return `This is no JSON yet: ${error.message}`;
  }
}

// What a plan takes, as one bar against what there is.
function planPicture(plan) {
  const limit = plan.limit_bytes;
  const sessions = plan.per_session_bytes > 0 ?
    Math.max(Math.round((plan.total_bytes - plan.weight_bytes) / plan.per_session_bytes), 1) : 1;
  const parts = [["weights", plan.weight_bytes], ["KV memory", plan.kv_bytes * sessions],
    ["store outside", plan.store_bytes * sessions], ["scratch", plan.scratch_bytes * sessions]];
  const most = Math.max(plan.total_bytes, limit || 0, 1);
  const bar = el("div", { class: "plan-bar", role: "img", aria: { label:
    `${bytes(plan.total_bytes)} of ${bytes(limit)}` } });
  parts.forEach(([, n], i) => {
    const piece = el("div", { class: `piece p${i}` });
    piece.style.width = `${(100 * n) / most}%`;
    bar.append(piece);
  });
  return [
    el("p", { class: plan.fits ? "verdict yes" : "verdict no" },
      el("b", {}, bytes(plan.total_bytes)), plan.fits ? ` of ${bytes(limit)}: fits.` :
        ` do not fit into ${bytes(limit)}.`, plan.message && !plan.fits ? ` ${plan.message}` : ""),
    bar,
    el("ul", { class: "plan-parts" }, parts.map(([name, n], i) =>
      el("li", {}, el("span", { class: `swatch p${i}` }), `${name} `, el("b", {}, bytes(n))))),
    el("p", { class: "note" }, `The cache of a session takes ${bytes(plan.kv_bytes)}; a dense one would take `,
      `${bytes(plan.dense_kv_bytes)} for ${count(plan.context_tokens)} tokens.`)];
}
