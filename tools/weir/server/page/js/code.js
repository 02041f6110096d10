// Blocks of code: the language, a button that copies, and colours. The colours come from one scanner for comments,
// texts, numbers and the words of many languages, which is wrong at times and harmless always: it only makes spans.

import { copyText, el, icon, replace } from "./dom.js";

const COLOURED = 60000;    // characters; longer code has no colours

const WORDS = new Set(`abstract and as assert async await auto bool boolean break byte case catch char class const
constexpr continue def default defer del do double elif else end enum except export extends extern false False final
finally float fn for foreach from func function go if impl implements import in instanceof int interface internal is let
long loop match mod module mut namespace new nil None nonlocal not null nullptr of or override package pass private
protected pub public raise readonly ref return self short signed sizeof static static_assert string struct super switch
template this throw trait true True try type typedef typename typeof union unsigned use using val var virtual void
volatile where while with yield SELECT FROM WHERE INSERT UPDATE DELETE JOIN ON GROUP BY ORDER LIMIT CREATE TABLE then fi
done esac echo local`.split(/\s+/));

// Languages in which # begins a comment; in the others it is the preprocessor's, or part of a colour.
const HASH = new Set(["python", "py", "sh", "bash", "shell", "zsh", "ruby", "rb", "yaml", "yml", "toml", "make",
  "cmake", "dockerfile", "perl", "r", "conf", "ini", ""]);
const DASHES = new Set(["sql", "lua", "haskell", "hs"]);
const PROSE = new Set(["text", "txt", "plain", "markdown", "md", "console", "output"]);

function scanner(language) {
  const comments = ["\\/\\*[\\s\\S]*?(?:\\*\\/|$)", "<!--[\\s\\S]*?(?:-->|$)"];
  if (HASH.has(language)) comments.push("(?<![\\w$&])#[^\\n]*");
  if (DASHES.has(language)) comments.push("--[^\\n]*");
  if (!HASH.has(language) && !DASHES.has(language)) comments.push("(?<!:)\\/\\/[^\\n]*");
  const texts = ['"""[\\s\\S]*?(?:"""|$)', '"(?:\\\\.|[^"\\\\\\n])*"?', "'(?:\\\\.|[^'\\\\\\n])*'",
    "`(?:\\\\.|[^`\\\\])*`"];
  const number = "(?<![\\w.])\\d[\\w.]*";
  return new RegExp(`(${comments.join("|")})|(${texts.join("|")})|(${number})|([A-Za-z_]\\w*)(\\s*\\()?`, "g");
}

function colour(code, text, language) {
  const pattern = scanner(language);
  let at = 0;
  const span = (name, part) => code.append(el("span", { class: name }, part));
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    const [whole, comment, string, number, word, call] = match;
    const name = comment ? "c-comment" : string ? "c-text" : number ? "c-number" : WORDS.has(word) ? "c-word" :
      call !== undefined ? "c-call" : null;
    if (!name) continue;
    if (match.index > at) code.append(text.slice(at, match.index));
    span(name, name === "c-call" ? word : name === "c-word" ? word : whole);
    at = match.index + (name === "c-call" || name === "c-word" ? word.length : whole.length);
    pattern.lastIndex = at;
  }
  code.append(text.slice(at));
}

export function codeBlock(text, language) {
  const code = el("code", {});
  if (text.length > COLOURED || PROSE.has(language.toLowerCase())) code.append(text);
  else colour(code, text, language.toLowerCase());
  const copy = el("button", { type: "button", class: "copy", aria: { label: "Copy code" }, title: "Copy code" },
    icon("copy"));
  copy.addEventListener("click", async () => {
    const done = await copyText(text);
    replace(copy, icon(done ? "check" : "close"));
    copy.setAttribute("aria-label", done ? "Copied" : "Could not copy");
    setTimeout(() => {
      replace(copy, icon("copy"));
      copy.setAttribute("aria-label", "Copy code");
    }, 1500);
  });
  return el("div", { class: "code", dir: "ltr" },
    el("div", { class: "code-head" }, el("span", {}, language || "text"), copy),
    el("pre", { tabindex: "0", role: "region", aria: { label: language ? `Code, ${language}` : "Code" } }, code));
}
