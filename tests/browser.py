"""A headless Chromium for tests, driven over pipes.

It needs no open port and no package besides the browser.

Promise: requests and complaints of a page are recorded from before it loads. The browser is ended by its own process
group, and its profile is removed with its folder.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
# A busy machine starts a browser slowly; a longer wait means that it hangs.
PATIENCE_S = 60.0


def installed() -> str | None:
    """The path of an installed Chromium, or None."""
    return next((found for found in map(shutil.which, NAMES) if found), None)


class Page:
    """One page of a browser. Keys of `media`: prefers-color-scheme, prefers-reduced-motion."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._requested: dict[str, str] = {}
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command of the DevTools protocol and returns its answer.

        Raises:
            RuntimeError: the browser refused the command.
            TimeoutError: the browser did not answer.
        """
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._send, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next(PATIENCE_S)
            if message is None:
                raise TimeoutError(f"{method} was not answered within {PATIENCE_S:g} s")
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])
            self._note(message)

    @property
    def requests(self) -> list[str]:
        """The addresses that the page requested, without those that its policy refused."""
        return list(self._requested.values())

    def open(self, url: str, width: int = 1280, height: int = 900, media: Mapping[str, str] | None = None) -> None:
        """Loads a page in a window of this size and waits until it is drawn."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        features = [{"name": name, "value": value} for name, value in (media or {}).items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Page.navigate", url="about:blank"
        )  # otherwise an address that differs only after # is not loaded again
        self._requested.clear()
        self.complaints.clear()
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Evaluates an expression in the page.

        Raises:
            AssertionError: the expression threw.
        """
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Waits until an expression is true."""
        self.until(script, lambda: bool(self.run(script)))

    def until(self, what: str, done: Callable[[], bool]) -> None:
        """Waits for what the browser reports."""
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, f"never true: {what}"
            self.settle(0.05)

    def settle(self, seconds: float = 0.3) -> None:
        """Processes the browser's events for some seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            message = self._next(left)
            if message is not None:
                self._note(message)

    def press(self, key: str, shift: bool = False) -> None:
        """Presses and releases a key."""
        codes = {
            "Tab": 9,
            "Enter": 13,
            "Escape": 27,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            "End": 35,
            "Home": 36,
        }
        of_key = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 if shift else 0}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **of_key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **of_key)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Writes a PNG of the page, or of its window."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(taken["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def _next(self, seconds: float) -> dict[str, Any] | None:
        until = time.monotonic() + seconds
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            read = os.read(self._receive, 1 << 20)
            assert read, "the browser has exited"
            self._buffer += read
        message, self._buffer = self._buffer.split(b"\0", 1)
        return dict(json.loads(message))

    def _note(self, message: Mapping[str, Any]) -> None:
        about = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent" and about["request"]["url"] != "about:blank":
            self._requested[about["requestId"]] = about["request"]["url"]
        elif message.get("method") == "Network.loadingFailed" and about.get("blockedReason") == "csp":
            self._requested.pop(about["requestId"], None)  # announced, then blocked by the policy
        elif message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"]))
        elif message.get("method") == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(about["args"]))
        elif message.get("method") == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Starts a browser with an empty profile in a folder, and ends it afterwards."""
    program = installed()
    assert program, "no Chromium is installed"
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    # The protocol's pipes must be descriptors 3 (read) and 4 (write); the shell moves them there.
    shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"]  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", shell, "bash", *words], pass_fds=(theirs_in, theirs_out), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_out, ours_in)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
        os.close(ours_in)
        os.close(ours_out)
