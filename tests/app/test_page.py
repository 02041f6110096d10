#!/usr/bin/env python3
"""The page's files, without a browser: what they name exists, nothing is inline, and its modules are JavaScript. With
node also the parts that need no page (units.mjs). The mock server is checked against the routes of the real one."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import mock_server

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "tools/weir/server/page"
TEXTS = {p: p.read_text(encoding="utf-8") for p in sorted(PAGE.rglob("*")) if p.is_file()}
SCRIPTS = {p: text for p, text in TEXTS.items() if p.suffix == ".js"}
problems = []


def check(condition, message):
    if not condition:
        problems.append(message)


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.references, self.inside = [], [], None

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        where = f"index.html:{self.getpos()[0]}"
        check("style" not in attributes, f"{where}: a style attribute")
        check(not any(name.startswith("on") for name in attributes), f"{where}: a handler in an attribute")
        check(tag != "style", f"{where}: a style element")
        check(tag != "script" or attributes.get("src"), f"{where}: an inline script")
        if "id" in attributes:
            self.ids.append(attributes["id"])
        for name in ("src", "href"):
            if attributes.get(name, "").startswith("/"):
                self.references.append(attributes[name])
        for name in ("aria-controls", "for"):
            if name in attributes:
                self.references.append("#" + attributes[name])
        if tag == "button":
            check(attributes.get("type") in ("button", "submit"), f"{where}: a button without a type")


def test_index():
    page = Page()
    page.feed(TEXTS[PAGE / "index.html"])
    check(len(page.ids) == len(set(page.ids)), f"ids twice: {sorted(i for i in page.ids if page.ids.count(i) > 1)}")
    for reference in page.references:
        if reference.startswith("#"):
            check(reference[1:] in page.ids, f"index.html names {reference}, which is not there")
        else:
            check((PAGE / reference[1:]).is_file(), f"index.html names {reference}, which is not there")
    used = {i for text in SCRIPTS.values() for i in re.findall(r'byId\("([\w-]+)"\)', text)}
    check(used, "no byId() was found")
    for name in sorted(used - set(page.ids)):
        check(any(f'id: "{name}"' in text for text in SCRIPTS.values()), f'byId("{name}"): there is no such element')


def test_modules():
    for path, text in SCRIPTS.items():
        exports = {}
        for target in re.findall(r'(?:from|import\()\s*"([^"]+)"', text):
            check(target.startswith("./") and (path.parent / target).is_file(), f"{path.name} imports {target}")
        for names, target in re.findall(r'import \{([^}]*)\} from "([^"]+)"', text):
            other = (path.parent / target).read_text(encoding="utf-8")
            exports = set(re.findall(r"export (?:async )?(?:function|class|const|let) (\w+)", other))
            for name in filter(None, (n.strip() for n in names.split(","))):
                check(name in exports, f"{path.name} imports {name}, which {target} does not export")
                check(len(re.findall(rf"\b{name}\b", text)) > 1, f"{path.name} imports {name} and does not use it")
        for pattern in (r"\.innerHTML\b", r"\bouterHTML\b", r"insertAdjacentHTML", r"document\.write", r"\beval\(",
                        r"new Function\(", r"createContextualFragment", r"DOMParser", r"setAttribute\(\"style"):
            check(not re.search(pattern, text), f"{path.name}: {pattern} is not used here")
    check(len(SCRIPTS) > 10, f"only {len(SCRIPTS)} scripts")


def test_style():
    text = TEXTS[PAGE / "app.css"]
    check("@import" not in text and "url(" not in text, "app.css loads something")
    check(text.count("{") == text.count("}"), "app.css: braces")
    names = set(re.findall(r"(--[\w-]+):", text))
    for name in set(re.findall(r"var\((--[\w-]+)", text)):
        check(name in names or name == "--part", f"app.css: {name} has no value")
    dark = re.findall(r"(?:data-theme=\"(?:dark|system)\"\])\s*\{(.*?)\}", text, re.S)
    check(len(dark) == 2 and re.sub(r"\s+", " ", dark[0]) == re.sub(r"\s+", " ", dark[1]),
          "app.css: the dark colours of the switch and those of the system differ")


def test_lines():
    for path, text in TEXTS.items():
        for number, line in enumerate(text.splitlines(), 1):
            check(len(line) <= 120 or "data:image" in line, f"{path.name}:{number}: {len(line)} columns")
    check(not any(re.search(r"https?://(?!www\.w3\.org|localhost)", text.replace("https?://", ""))
                  for path, text in TEXTS.items() if path.suffix in (".html", ".css")), "something from elsewhere")


def test_with_node():
    node = shutil.which("node")
    if not node:
        print("node is not here: the modules were not parsed")
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page"
        shutil.copytree(PAGE, copy)
        (copy / "package.json").write_text('{"type": "module"}')
        for path in sorted((copy / "js").glob("*.js")):
            run = subprocess.run([node, "--check", path], capture_output=True, text=True, check=False)
            check(run.returncode == 0, f"{path.name}: {run.stderr.strip()}")
        run = subprocess.run([node, ROOT / "tests/app/units.mjs", copy], capture_output=True, text=True, check=False)
        print(run.stdout, end="")
        check(run.returncode == 0, f"units.mjs: {run.stderr.strip()}")


def test_mock_server():
    server = mock_server.serve()
    try:
        for path in ("", "app.css", "js/app.js", "v1/weir/model", "v1/weir/settings", "v1/weir/plan", "v1/weir/fits",
                     "v1/weir/policies", "v1/weir/sessions", "v1/weir/saved", "health"):
            with urllib.request.urlopen(server.url + path) as answer:
                check("unsafe" not in answer.headers["Content-Security-Policy"], path)
                if path.startswith("v1"):
                    json.load(answer)
        for path in ("js/../app.css", "etc/passwd", "js/none.js", "v1/none"):
            try:
                urllib.request.urlopen(server.url + path)
                check(False, f"/{path} is served")
            except urllib.error.HTTPError as error:
                check(error.code == 404 and "message" in json.load(error)["error"], f"/{path}: {error.code}")
        source = (ROOT / "tools/weir/server/routes.cpp").read_text(encoding="utf-8")
        served = set(re.findall(r'"(/v1/weir/\w+)', source))
        mocked = set(re.findall(r'(/v1/weir/\w+)', Path(mock_server.__file__).read_text(encoding="utf-8")))
        asked = {p for text in SCRIPTS.values() for p in re.findall(r'/v1/weir/\w+', text)}
        check(asked <= mocked, f"the mock lacks {asked - mocked}")
        check(not served or asked <= served, f"the server lacks {asked - served}")
    finally:
        server.shutdown()


def main():
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    for test in tests:
        before = len(problems)
        test()
        print(f"{'ok' if len(problems) == before else 'FAIL'}  {test.__name__}")
    for problem in problems:
        print(f"    {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
