"""A headless Chromium for the tests of the HTML report; absent where there is none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with a profile of its own, recording requests and console messages."""
    selenium = pytest.importorskip("selenium.webdriver")
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        if os.environ.get("OOMCTL_NEED_BROWSER"):
            raise RuntimeError("chromium and chromedriver are needed and not on the path")
        pytest.skip("needs chromium and chromedriver on the path")
    options = selenium.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = selenium.ChromeService(driver)
    browser = selenium.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()


def resize(browser: Any, width: int, height: int = 900) -> None:
    """Sets the viewport, also below the least width of a window."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def media(browser: Any, scheme: str = "light", kind: str = "") -> None:
    """Emulates a colour scheme, and a medium unless it is left to what is done with the page."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": features})


def requests(browser: Any) -> list[str]:
    """Addresses requested since the last call."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
