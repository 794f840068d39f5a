"""The HTML report in a real browser: no network, no errors, no sideways scrolling, and everything works."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oomctl.report import render
from oomctl.report.texts import count, percent
from oomctl.units import format_size

from .browser import chromium, media, requests, resize
from .samples import SAMPLES, hostile

AXE = (Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
WIDTHS = (360, 600, 800, 1280, 1920)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {name: render(make(), "html") for name, make in SAMPLES.items()}
    made["long"] = render(hostile("x" * 10_000), "html")
    made["right_to_left"] = render(hostile("\u202e\u05d0\u05d1 \U0001f4a5 <b>'\"</b>"), "html")
    for name, text in made.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in made}


def visit(browser: Any, page: Path, width: int = 1280) -> None:
    resize(browser, width)
    media(browser)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.dataset.ready") == "true"


@pytest.mark.parametrize("name", [*SAMPLES, "long", "right_to_left"])
def test_quiet_and_never_wider_than_the_window(browser: Any, pages: dict[str, Path], name: str) -> None:
    requests(browser)
    browser.get_log("browser")
    for width in WIDTHS:
        visit(browser, pages[name], width)
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} at {width}"
    assert {url for url in requests(browser) if not url.startswith("data:")} == {pages[name].as_uri()}
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.querySelectorAll('script, img, b > script').length") == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", SAMPLES)
def test_accessible(browser: Any, pages: dict[str, Path], name: str, scheme: str) -> None:
    visit(browser, pages[name])
    media(browser, scheme)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true;")
    browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE})
    faults = browser.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then((r) => done(r.violations.map("
        "(v) => [v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 200), v.nodes[0].failureSummary])));"
    )
    assert faults == []


@pytest.mark.parametrize("name", ["fragmentation", "leak", "text_only"])
def test_the_numbers_are_those_of_the_json(browser: Any, pages: dict[str, Path], name: str) -> None:
    visit(browser, pages[name])
    data = json.loads(browser.execute_script("return document.getElementById('oomctl-report').textContent"))
    cells = browser.execute_script(
        "return [...document.querySelectorAll('[data-bytes]')].map((e) => [Number(e.dataset.bytes), e.textContent])"
    )
    assert cells
    assert all(text == format_size(size) for size, text in cells)
    if data["budget"]["device_total"] is not None:
        assert sum(size for size, _ in cells) == data["budget"]["device_total"]
    rows = browser.execute_script(
        "return [...document.querySelectorAll('.culprits tbody tr:has(.tag)')].map("
        "(row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent))"
    )
    assert [[r[0], r[1], r[3]] for r in rows] == [
        [format_size(c["bytes"]), percent(c["share"]), count(c["blocks"])] for c in data["culprits"]
    ]
    headline = browser.execute_script("return document.querySelector('h1').textContent")
    assert headline.lower() == data["verdict"]["headline"].lower()


def until(browser: Any, true: Callable[[], bool]) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, 10, 0.05).until(lambda _: true())


def pointer(browser: Any, kind: str, x: float, y: float, buttons: int = 0) -> None:
    event = {"type": kind, "x": x, "y": y, "button": "left" if buttons or kind == "mouseReleased" else "none"}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {**event, "buttons": buttons, "clickCount": 1})


def box(browser: Any, query: str) -> tuple[float, float, float, float]:
    browser.execute_script(f"document.querySelector('{query}').scrollIntoView({{block: 'center'}})")
    # Scrolling hides the tip, and its event comes with the next frame.
    browser.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))"
    )
    found = browser.execute_script(
        f"const b = document.querySelector('{query}').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
    )
    return tuple(found)


def view_box(browser: Any) -> list[float]:
    text = browser.execute_script(
        "return document.querySelector('[data-plot=timeline] .inner').getAttribute('viewBox')"
    )
    return [float(part) for part in text.split()]


def test_hover_zoom_and_keys_on_the_timeline(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["fragmentation"])
    x, y, wide, high = box(browser, "[data-plot=timeline] .frame")
    pointer(browser, "mouseMoved", x + wide / 2, y + high / 2)
    tip = browser.find_element("css selector", ".tip")
    assert tip.is_displayed()
    assert "live" in tip.text
    assert "holes.py:12 fill" in tip.text
    pointer(browser, "mousePressed", x + wide * 0.25, y + high / 2, 1)
    pointer(browser, "mouseMoved", x + wide * 0.5, y + high / 2, 1)
    pointer(browser, "mouseReleased", x + wide * 0.5, y + high / 2)
    start, _, shown, _ = view_box(browser)
    assert 490 <= start <= 510
    assert 490 <= shown <= 510
    for tool, wanted in (("out", 1000), ("all", 2000), ("in", 1000)):
        browser.find_element("css selector", f"[data-do={tool}]").click()
        assert view_box(browser)[2] == pytest.approx(wanted, abs=10)
    figure = browser.find_element("css selector", "[data-plot=timeline]")
    figure.send_keys("0")
    assert view_box(browser)[2] == 2000
    figure.send_keys("\ue011")  # Home
    assert "event 0" in tip.text
    figure.send_keys("\ue014")  # right
    assert "event 12" in tip.text
    figure.send_keys("\ue00c")  # Escape
    assert not tip.is_displayed()
    before = browser.execute_script("return document.querySelector('.inner path').getAttribute('d')")
    browser.execute_script(
        "const s = document.querySelector('[data-do=axis]'); s.value = 'clock'; s.dispatchEvent(new Event('change'))"
    )
    assert browser.execute_script("return document.querySelector('.inner path').getAttribute('d')") != before
    assert " s" in browser.execute_script("return document.querySelector('.axis').textContent")


def test_segments_selection_theme_copy(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["fragmentation"])
    x, y, wide, _ = box(browser, ".map")
    pointer(browser, "mouseMoved", x + wide * 0.2, y + 8)
    assert "holes.py:12 fill" in browser.find_element("css selector", ".tip").text
    browser.find_element("css selector", "[data-plot=segments]").send_keys("\ue014")
    assert "0x7f0000000000" in browser.find_element("css selector", ".picked").text
    row = browser.find_element("css selector", ".legend [data-owner=o1] button")
    row.send_keys("\ue007")
    assert browser.execute_script("return document.querySelectorAll('.dim path.chosen').length") >= 2
    row.click()
    assert browser.execute_script("return document.querySelectorAll('.dim').length") == 0
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(ground)
    theme = browser.find_element("css selector", ".theme")
    theme.click()
    assert browser.execute_script(ground) == light
    theme.click()
    assert theme.text == "Theme: dark"
    assert browser.execute_script(ground) != light
    theme.click()
    copy = browser.find_element("css selector", ".copy")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", copy)
    copy.click()
    until(browser, lambda: copy.text == "Copied")


def test_one_device_at_a_time_and_deep_links(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["ranks"])
    shown = "return [...document.querySelectorAll('.device')].map((d) => getComputedStyle(d).display !== 'none')"
    assert browser.execute_script(shown) == [True, False, False]
    browser.find_elements("css selector", ".switch a")[2].click()
    assert browser.execute_script(shown) == [False, False, True]
    browser.get("about:blank")
    browser.get(pages["ranks"].as_uri() + "#d2-culprits")
    assert browser.execute_script(shown) == [False, False, True]
    resize(browser, 1280)
    browser.get("about:blank")
    browser.get(pages["fragmentation"].as_uri() + "#remedy")
    assert 0 <= browser.execute_script("return document.getElementById('remedy').getBoundingClientRect().top") < 900


def test_readable_without_a_script(browser: Any, pages: dict[str, Path]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(pages["ranks"].as_uri())
        source = browser.find_element("css selector", "main").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "7.82 GiB of the 14.22 GiB reserved are idle" in source
    assert "kept_losses" in source
    assert "export PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync" in source


@pytest.mark.parametrize("name", ["fragmentation", "leak", "text_only", "healthy"])
def test_prints_on_two_pages(browser: Any, pages: dict[str, Path], name: str) -> None:
    visit(browser, pages[name])
    paper = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(paper["data"]).count(b"/Type /Page\n") <= 2
