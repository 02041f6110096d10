// Checks of the page as it stands, run in it by test_app.py: each function returns a list of problems, one line each.
// What they look for is what tools such as axe look for: names, roles, contrast, what overflows.

const visible = (node) => {
  if (!node.checkVisibility({ checkOpacity: false, checkVisibilityCSS: true })) return false;
  if (node.closest("[inert], [aria-hidden=true]")) return false;
  const box = node.getBoundingClientRect();
  return box.width > 0 && box.height > 0;
};

const describe = (node) => {
  const id = node.id ? `#${node.id}` : "";
  const name = typeof node.className === "string" && node.className ? `.${node.className.split(" ").join(".")}` : "";
  return `<${node.tagName.toLowerCase()}${id}${name}> "${(node.textContent || "").trim().slice(0, 40)}"`;
};

function nameOf(node) {
  const label = node.getAttribute("aria-label");
  if (label && label.trim()) return label.trim();
  const by = node.getAttribute("aria-labelledby");
  if (by) return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent || "").join(" ").trim();
  if (node.labels && node.labels.length > 0) return [...node.labels].map((l) => l.textContent).join(" ").trim();
  if (["INPUT", "TEXTAREA", "SELECT"].includes(node.tagName)) return "";
  return node.textContent.trim();
}

const CONTROLS = "button, a[href], input, select, textarea, summary, [role=button], [role=tab], [role=menuitem], " +
  "[tabindex]:not([tabindex='-1'])";

function names() {
  const problems = [];
  for (const node of document.querySelectorAll(CONTROLS)) {
    if (!visible(node)) continue;
    if (!nameOf(node)) problems.push(`${describe(node)} has no name`);
  }
  for (const node of document.querySelectorAll("canvas, svg, img, progress, [role=meter], dialog[open], nav, aside, form")) {
    if (!visible(node)) continue;
    if (!nameOf(node)) problems.push(`${describe(node)} has no name and is not hidden`);
  }
  return problems;
}

const ROLES = new Set(["log", "status", "alert", "meter", "img", "menu", "menuitem", "tab", "tablist", "tabpanel", "region",
  "group"]);

function structure() {
  const problems = [];
  const ids = new Map();
  for (const node of document.querySelectorAll("[id]")) ids.set(node.id, (ids.get(node.id) || 0) + 1);
  for (const [id, n] of ids) if (n > 1) problems.push(`id ${id} is there ${n} times`);
  for (const node of document.querySelectorAll("[role]")) {
    if (!ROLES.has(node.getAttribute("role"))) problems.push(`${describe(node)} has an unknown role`);
  }
  for (const attribute of ["aria-controls", "aria-labelledby", "aria-describedby"]) {
    for (const node of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of node.getAttribute(attribute).split(/\s+/)) {
        if (!document.getElementById(id)) problems.push(`${describe(node)}: ${attribute} names ${id}, which is not there`);
      }
    }
  }
  for (const tab of document.querySelectorAll("[role=tab]")) {
    if (!tab.closest("[role=tablist]")) problems.push(`${describe(tab)} is in no tablist`);
  }
  for (const item of document.querySelectorAll("[role=menuitem]")) {
    if (!item.closest("[role=menu]")) problems.push(`${describe(item)} is in no menu`);
  }
  for (const item of document.querySelectorAll("li")) {
    if (!["UL", "OL"].includes(item.parentElement.tagName)) problems.push(`${describe(item)} is in no list`);
  }
  if (document.querySelectorAll("main").length !== 1) problems.push("there is not one main");
  if (document.querySelectorAll("h1").length !== 1) problems.push("there is not one h1");
  if (!document.documentElement.lang) problems.push("the page has no language");
  if (!document.title) problems.push("the page has no title");
  const live = document.getElementById("announcements");
  if (live.getAttribute("aria-live") !== "polite") problems.push("#announcements is not polite");
  for (const node of document.querySelectorAll("[tabindex]")) {
    if (Number(node.getAttribute("tabindex")) > 0) problems.push(`${describe(node)} has a tabindex above 0`);
  }
  for (const node of document.querySelectorAll("a[target=_blank]")) {
    if (!/noopener/.test(node.rel) || !/noreferrer/.test(node.rel)) problems.push(`${describe(node)}: rel is ${node.rel}`);
  }
  for (const node of document.querySelectorAll("*")) {
    for (const { name } of node.attributes) if (name.startsWith("on")) problems.push(`${describe(node)} has ${name}`);
  }
  return problems;
}

// --- contrast ---

function colourOf(text) {
  const canvas = (colourOf.canvas ??= new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }));
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = "#000";
  canvas.fillStyle = text;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}

const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);

function backgroundOf(node) {
  const layers = [];
  for (let at = node; at; at = at.parentElement) {
    const colour = colourOf(getComputedStyle(at).backgroundColor);
    if (colour[3] > 0) layers.push(colour);
    if (colour[3] === 1) break;
    if (at.tagName === "DIALOG") break;
  }
  return layers.reverse().reduce((below, top) => over(top, below), colourOf(getComputedStyle(document.body).backgroundColor));
}

function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map((c) => {
    const v = c / 255;
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}

function ratio(a, b) {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

function contrast(least) {
  const problems = new Set();
  let seen = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    const node = text.parentElement;
    if (!text.data.trim() || !visible(node) || node.closest(":disabled, noscript, .visually-hidden, .skip")) continue;
    const style = getComputedStyle(node);
    if (style.webkitBackgroundClip === "text" || style.backgroundClip === "text") continue;
    seen += 1;
    const below = backgroundOf(node);
    const value = ratio(over(colourOf(style.color), below), below);
    if (value < least) problems.add(`${describe(node)}: contrast ${value.toFixed(2)}`);
  }
  for (const field of document.querySelectorAll("input[placeholder], textarea[placeholder]")) {
    if (!visible(field)) continue;
    seen += 1;
    const below = backgroundOf(field);
    const value = ratio(over(colourOf(getComputedStyle(field, "::placeholder").color), below), below);
    if (value < least) problems.add(`${describe(field)}: contrast of its placeholder ${value.toFixed(2)}`);
  }
  if (seen < 10) problems.add(`only ${seen} texts were seen`);
  return [...problems];
}

// The accent of a control's icon, and what the gauge and the strip say by colour alone: 3 against what is around.
function graphics(least) {
  const problems = [];
  const style = getComputedStyle(document.documentElement);
  const get = (name) => colourOf(style.getPropertyValue(name));
  for (const [mark, ground] of [["--budget", "--ground"], ["--page-pool", "--ground"], ["--page-pool", "--surface"],
    ["--page-pool", "--page-out"], ["--dense", "--ground"], ["--accent", "--surface"]]) {
    const value = ratio(get(mark), get(ground));
    if (value < least) problems.push(`${mark} on ${ground}: ${value.toFixed(2)}`);
  }
  const back = ratio(get("--page-back"), get("--page-pool"));
  if (back < 1.5) problems.push(`--page-back and --page-pool differ by ${back.toFixed(2)} only`);
  return problems;
}

function wider() {
  const width = document.documentElement.clientWidth;
  const problems = [];
  if (document.documentElement.scrollWidth > width) problems.push(`the page is ${document.documentElement.scrollWidth} wide`);
  for (const node of document.querySelectorAll("body *")) {
    if (!visible(node)) continue;
    // What scrolls within a box of its own may be wider.
    let scrolls = false;
    for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) {
      if (["auto", "scroll", "hidden"].includes(getComputedStyle(at).overflowX)) scrolls = true;
    }
    if (scrolls) continue;
    const box = node.getBoundingClientRect();
    if (box.right > width + 1 || box.left < -1) {
      problems.push(`${describe(node)} goes from ${Math.round(box.left)} to ${Math.round(box.right)} of ${width}`);
    }
  }
  for (const id of ["scroll", "messages", "dock"]) {
    const node = document.getElementById(id);
    if (node.scrollWidth > node.clientWidth + 1) problems.push(`#${id} scrolls sideways: ${node.scrollWidth}`);
  }
  return problems;
}

// Targets of fingers.
function small(least) {
  const problems = [];
  for (const node of document.querySelectorAll("button, select, input:not([type=radio]), summary")) {
    if (!visible(node) || node.matches(".ribbon-button, .visually-hidden, .link, .fit")) continue;
    const box = node.getBoundingClientRect();
    if (box.width < least - 0.5 || box.height < least - 0.5) {
      problems.push(`${describe(node)} is ${Math.round(box.width)} x ${Math.round(box.height)}`);
    }
  }
  return problems;
}

return { names, structure, contrast, graphics, wider, small }[arguments[0]](arguments[1]);
