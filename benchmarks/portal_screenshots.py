"""Makes the pictures of the portal's pages for the docs.

    bin/portal-screenshots [FOLDER]

Three real jobs on the embedded scheduler (one fails, one goes on) and some hundred generated ones,
a real portal, a headless Chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable, List

from benchmarks.generated_history import generate
from tests.browser import BROWSERS, Browser

WAIT_S = 180.0
PROGRAM = """
import math, os, random, sys, time
import tony
fails, steps, rate = sys.argv[1] == "fails", int(sys.argv[2]), float(sys.argv[3])
index = int(os.environ["TASK_INDEX"])
for step in range(steps):
    loss = 3 * math.exp(-step * rate) + 0.3 + random.random() * 0.12 + index * 0.05
    tony.report(step=step, progress=step / steps, metrics={
        "loss": loss, "accuracy": 1 - 0.9 * math.exp(-step * rate), "samples_per_s": 1234 + loss})
    print(f"step {step}: loss {loss:.4f}", flush=True)
    if fails and index == 1 and step == steps * 2 // 3:
        raise ValueError("batch 17 of train-00017.tfrecord has no labels")
    time.sleep(0.1)
if index == 0:
    tony.result({"loss": loss, "accuracy": 0.947})
"""


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images").absolute()
    target.mkdir(parents=True, exist_ok=True)
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        sys.exit(f"portal_screenshots: no browser on the PATH: {', '.join(BROWSERS)}")
    with tempfile.TemporaryDirectory(prefix="tony-pictures-") as name:
        folder = Path(name)
        os.environ["TONY_HOME"] = str(folder / "home")
        _generate(folder / "site")
        (folder / "src").mkdir()
        (folder / "src" / "train.py").write_text(PROGRAM)
        failed = _submit(folder, "speech-finetune", "fails 90 0.04")
        done = _submit(folder, "recommendation-train", "works 120 0.04")
        other = _submit(folder, "recommendation-train", "works 120 0.02")
        for app_id in (failed, done, other):
            _wait(lambda app_id=app_id: _state(app_id) in ("FAILED", "SUCCEEDED"), f"{app_id} ends")  # type: ignore[misc]
        running = _submit(folder, "vision-pretrain", "works 6000 0.02")
        portal, url = _start_portal(folder)
        browser = Browser(program, folder / "browser")
        try:
            time.sleep(25)  # some metrics of the running job
            _take(browser, url, target, failed, done, other, running)
        finally:
            browser.close()
            portal.terminate()
            portal.wait(30)
            _tony("kill", running)


def _take(browser: Browser, url: str, target: Path, *ids: str) -> None:
    failed, _, _, running = (f"{url}/jobs/{app_id}/" for app_id in ids)
    tab = browser.open("about:blank")

    def take(
        name: str, address: str, high: int, wide: int = 1280, dark: bool = False, then: str = "0"
    ) -> None:
        browser.shape(tab, wide, high, dark)
        browser.call("Page.navigate", tab, url=address)
        browser.wait_for(tab, f"location.href == {address!r} && document.readyState == 'complete'")
        time.sleep(1.5)
        browser.run(tab, then)
        time.sleep(0.5)
        (target / f"{name}.png").write_bytes(browser.picture(tab))
        print(f"{name}.png")

    keys = "".join(
        f"s.dispatchEvent(new KeyboardEvent('keydown', {{key: {key!r}}}));"
        for key in ("Enter", *["ArrowLeft"] * 9)
    )
    larger = (
        "const s = Array.from(document.querySelectorAll('.chart'))"
        ".find(chart => chart.querySelector('b').textContent == 'loss').querySelector('svg');"
        f"s.focus(); {keys} scrollTo(0, 0)"
    )
    take("portal-jobs", f"{url}/jobs?limit=30", 860)
    take("portal-job", failed, 1080)
    take("portal-running", running, 900, dark=True)
    take("portal-metrics", f"{running}metrics", 860, then=larger)
    take("portal-log", f"{running}log/worker:0/stdout", 760)
    take("portal-compare", f"{url}/compare?job={ids[1]}&job={ids[2]}", 1000)
    take("portal-queues", f"{url}/queues?since=90d", 480)
    take("portal-trends", f"{url}/trends?since=90d", 760)
    link = "(document.querySelector('td a[href*=fraud]') || {}).href"
    take("portal-trend", str(browser.run(tab, link)), 1000)
    take("portal-phone", failed, 780, wide=360, dark=True)


def _generate(root: Path) -> None:
    generate(root, 600, 0)
    for path in [root, *root.rglob("*")]:
        os.chown(path, os.geteuid(), os.getegid())


def _submit(folder: Path, name: str, arguments: str) -> str:
    words = ["--executes", f"train.py {arguments}", "--src_dir", "src", "--detach"]
    for key, value in {
        "tony.application.name": name,
        "tony.application.framework": "pytorch",
        "tony.application.tags": f"airflow.dag:nightly,airflow.task:{name},team:speech",
        "tony.worker.instances": "3",
        "tony.worker.memory": "512m",
    }.items():
        words += ["--conf", f"{key}={value}"]
    return _tony("submit", *words, cwd=folder).split()[0]


def _state(app_id: str) -> str:
    found: Any = json.loads(_tony("status", app_id, "--json"))
    return str(found["state"])


def _start_portal(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    history = [f"site={folder / 'site'}", f"local={folder / 'home' / 'history'}"]
    words = [each for place in history for each in ("--history", place)]
    portal = subprocess.Popen(
        [*_command(), "portal", "--port", str(port), *words],
        stdout=subprocess.DEVNULL, stderr=(folder / "portal.log").open("wb"),
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    _wait(lambda: _answers(f"{url}/api/jobs"), "the portal answers")
    _wait(lambda: json.loads(_get(f"{url}/api/jobs"))["total"] > 600, "all histories are read")
    return portal, url


def _wait(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > end:
            sys.exit(f"portal_screenshots: waited {WAIT_S:g} s and still not: {what}")
        time.sleep(0.5)


def _answers(url: str) -> bool:
    try:
        return bool(_get(url))
    except OSError:
        return False


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: bytes = answer.read()
        return found


def _command() -> List[str]:
    return [sys.executable, "-m", "tony_core.cli.main"]


def _tony(*words: str, cwd: Path | None = None) -> str:
    checkout = Path(__file__).resolve().parent.parent
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        [*_command(), *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=WAIT_S
    )
    if done.returncode and words[0] != "kill":
        sys.exit(f"portal_screenshots: tony {words[0]} failed: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
