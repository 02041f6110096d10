#!/usr/bin/env python3
"""The chat page in a real browser: Debian's Chromium, driven by Selenium, mostly against tests/app/mock_server.py.

    tests/app/test_app.py [--program build/bin/weir --model FILE] [-k TEXT] [--show] [--shots FOLDER]

Every flow is a method flow_* of a file flows_*.py; each has a server of its own, so that it begins with an empty
browser. After each the console must have no errors but those that the flow expects. With --program the flows
real_flow_* run against `weir serve` as well. --shots writes the screenshots of docs/images, for which fonts-inter and
fonts-jetbrains-mono should be there. Ends with 77 where Chromium, its driver or Selenium is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from browser import ROOT, Browser, Failed, WebDriverException
from flows_access import Access
from flows_answers import Answers
from flows_history import History
from flows_keeping import Keeping
from flows_memory import Memory
from flows_real import Real
from flows_texts import Texts
from shots import take_shots


class AllFlows(Answers, History, Texts, Keeping, Memory, Access, Real):
    """The flows, in this order."""


def run_flow(flows, name, flow, table):
    browser = flows.browser
    browser.reset()
    started = time.time()
    problem = None
    try:
        if name.startswith("flow_"):
            flows.begin()
        flow()
    except (AssertionError, WebDriverException, OSError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}".strip()
        if not isinstance(error, Failed):
            problem += "\n" + traceback.format_exc(limit=-3)
        if os.environ.get("WEIR_APP_SHOTS"):
            browser.shot(Path(os.environ["WEIR_APP_SHOTS"]) / f"{name}.png")
    if name != "flow_inline_is_refused":
        allowed = "|".join(getattr(flow, "expected", ())) or r"(?!)"
        errors = [e["message"] for e in browser.console() if not re.search(allowed, e["message"])]
        if errors and not problem:
            problem = "the console has: " + "; ".join(errors[:4])
    if flows.server:
        flows.server.shutdown()
        flows.server.server_close()
        flows.server = None
    process = getattr(flows, "process", None)
    if process and process.poll() is None:
        process.kill()
    table.append((name, time.time() - started, problem))
    print(f"{'FAIL' if problem else 'ok'}  {name}  {time.time() - started:.1f} s", flush=True)
    if problem:
        print(f"    {problem}", flush=True)


def has_serve(program):
    return subprocess.run([program, "serve", "--help"], capture_output=True, check=False).returncode == 0


def main():
    parser = argparse.ArgumentParser(description="The chat page in Chromium")
    parser.add_argument("--program", help="the weir program, for the flows against the real server")
    parser.add_argument("--model", default=str(ROOT / "samples/models/weir-tiny-reasoner-q8_0.gguf"))
    parser.add_argument("-k", default="", help="only flows whose name contains one of these, separated by commas")
    parser.add_argument("--show", action="store_true", help="with a window")
    parser.add_argument("--shots", type=Path, help="write the screenshots into this folder instead")
    arguments = parser.parse_args()
    downloads = Path(tempfile.mkdtemp(prefix="weir-app-downloads-"))
    browser = Browser(downloads, arguments.show)
    flows = AllFlows(browser, downloads, arguments.program, arguments.model)
    try:
        if arguments.shots:
            take_shots(flows, arguments.shots)
            return 0
        wanted = arguments.k.split(",")
        # As they stand in the files.
        names = [n for kind in AllFlows.__bases__ for n in vars(kind) if n.startswith("flow_")]
        if arguments.program and has_serve(arguments.program):
            names += [n for n in vars(Real) if n.startswith("real_flow_")]
        elif arguments.program:
            print(f"{arguments.program} has no serve: the flows against it are left out")
        table = []
        for name in names:
            if any(part in name for part in wanted):
                run_flow(flows, name, getattr(flows, name), table)
        failed = [name for name, _, problem in table if problem]
        print(f"{len(table)} flows, {len(failed)} failed, {sum(t for _, t, _ in table):.0f} s")
        for name in failed:
            print(f"failed: {name}")
        return 1 if failed or not table else 0
    finally:
        browser.driver.quit()
        shutil.rmtree(downloads, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
