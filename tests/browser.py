"""A real browser for tests: Chromium, spoken to over a pipe, so that nothing has to be installed
beside it.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)
# The browser listens at descriptor 3 and speaks at 4, whichever the pipes have.
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for end, wanted in zip(ends, (3, 4)):
    os.dup2(end, wanted)
os.execv(sys.argv[3], sys.argv[3:])
"""
DEADLINE = 30.0
# Texts of one picture may touch by a pixel: their boxes are higher than what is seen of them.
COLLIDING = """
[...document.querySelectorAll("svg")].flatMap((svg) => {
  const page = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")]
    .map((text) => [text.textContent.trim(), text.getBoundingClientRect()])
    .filter(([name, box]) => name && box.width);
  const out = texts.filter(([, box]) => box.left < page.left - 1 || box.right > page.right + 1
    || box.top < page.top - 1 || box.bottom > page.bottom + 1);
  const pairs = texts.flatMap(([one, a], at) => texts.slice(at + 1)
    .filter(([, b]) => a.left + 1 < b.right && b.left + 1 < a.right
      && a.top + 1 < b.bottom && b.top + 1 < a.bottom)
    .map(([other]) => `${one} | ${other}`));
  return [...pairs, ...out.map(([name]) => `${name} leaves the picture`)];
})
"""


class Page:
    """A page, and what went wrong in it: exceptions, console errors, and requests to a network."""

    def __init__(self, write: int, read: int) -> None:
        self._write = os.fdopen(write, "wb", buffering=0)
        self._read = os.fdopen(read, "rb", buffering=0)
        self._number = 0
        self._session: str | None = None
        self._rest = b""
        self._events: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """The result of a method of the DevTools protocol."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path: Path) -> None:
        """Load a file and wait until it is there."""
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + DEADLINE
        while "Page.loadEventFired" not in self._events:
            if time.monotonic() > end:
                raise TimeoutError(f"{path} was not loaded")
            self.evaluate("0")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def window(self, width: int, scheme: str = "light") -> None:
        """Make the window so wide, and its reader one who prefers this colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def colliding_texts(self) -> list[str]:
        """The texts of each picture in SVG that cover another, or leave the picture."""
        found: list[str] = self.evaluate(COLLIDING)
        return found

    def picture(self) -> bytes:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = self._read.read(1 << 16)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._rest += piece
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self._events.append(message["method"])
            self._complain(message["method"], message["params"])
        return message

    def _complain(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "about:", "data:")):
                self.errors.append(f"asked for {url}")


@contextmanager
def browser() -> Iterator[Page]:
    """A page of a browser of its own, which ends with the block."""
    assert FOUND is not None
    ours, write = os.pipe()
    read, theirs = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", LAUNCH, str(ours), str(theirs), FOUND),
                *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
                *("--no-first-run", "--disable-background-networking", "--window-size=1200,900"),
                f"--user-data-dir={profile}",
            ],
            pass_fds=(ours, theirs),
            stderr=subprocess.DEVNULL,
        )
        os.close(ours)
        os.close(theirs)
        try:
            yield Page(write, read)
        finally:
            process.terminate()
            process.wait(DEADLINE)
