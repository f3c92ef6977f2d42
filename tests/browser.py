"""A headless Chromium for the tests of web pages, steered through its debugging pipe."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60


def find_chromium() -> str:
    """The program; skips the test where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium: the page is not looked at in a browser")
    return found


class Page:
    """A page in a window of 1300 x 1000 pixels, with a mouse."""

    def __init__(self, path: Path, downloads: Path, *, dark: bool = False):
        self.path, self.downloads, self.dark = path, downloads, dark
        self.number, self.session, self.faults, self.rest = 0, None, [], b""

    def __enter__(self):
        # The browser reads from its descriptor 3 and writes to 4.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (*os.pipe(), *os.pipe())]
        theirs_in, self.ours_out, self.ours_in, theirs_out = ends
        command = [
            find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-background-networking", "--window-size=1300,1000",
            f"--user-data-dir={self.downloads / 'profile'}", "--remote-debugging-pipe",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "chromium", *command],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for part in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{part}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0,
                  downloadThroughput=0, uploadThroughput=0)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=self.path.resolve().as_uri())
        self.until("document.readyState === 'complete' && typeof plots === 'object'")
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            self.session = None
            self.call("Browser.close")
        self.process.kill()
        self.process.wait()
        os.close(self.ours_in)
        os.close(self.ours_out)

    def call(self, method: str, **parameters) -> dict:
        """What the browser answers to a command of its protocol."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.ours_out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.faults.append(answer["params"])
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.ours_in], [], [], SECONDS)
            block = os.read(self.ours_in, 1 << 20) if ready else b""
            assert block, "the browser does not answer"
            self.rest += block
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def value(self, expression: str):
        """A value of the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str):
        """Wait for something to be true in the page."""
        end = time.monotonic() + SECONDS
        while not self.value(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.05)

    def mouse(self, kind: str, x: float, y: float):
        """``kind``: mouseMoved, mousePressed or mouseReleased, at a place of the window."""
        button = {"button": "none"} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def click(self, x: float, y: float):
        """Press and release."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def picture(self, path: Path):
        """What is to be seen."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
