"""The report as a person sees it: in a real browser, wide and narrow, light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver

from tests.integration_tests.courier_process import STEPS, Courier

PICTURES = Path(__file__).resolve().parents[4] / "build" / "test-results"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

# Texts of a drawing that reach out of it.
CUT_TEXTS = """
return [...document.querySelectorAll('svg')].flatMap((svg) => {
  const all = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.left < all.left - 1 || box.right > all.right + 1 || box.bottom > all.bottom + 1;
  }).map((text) => text.textContent);
});
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


def show(browser: webdriver.Chrome, scheme: str, width: int) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {"width": width, "height": 1600, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def style(browser: webdriver.Chrome, selector: str, name: str) -> Any:
    code = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    return browser.execute_script(code, selector, name)


def test_the_report_is_readable_in_a_browser(courier: Courier, browser: webdriver.Chrome) -> None:
    courier.start()
    courier.finish()
    browser.get((courier.folder / "report.html").as_uri())

    colours = set()
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)):
        show(browser, scheme, width)
        colours.add((scheme, style(browser, "body", "backgroundColor")))
        overflow = "return document.documentElement.scrollWidth - innerWidth"
        assert browser.execute_script(overflow) <= 0
        assert browser.execute_script(CUT_TEXTS) == []
        PICTURES.mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(PICTURES / f"courier-report-{scheme}-{width}.png"))
    assert len(colours) == 2

    show(browser, "light", 1280)
    drawings = browser.find_elements("css selector", "svg")
    assert len(drawings) == 3
    assert all(drawing.size["height"] > 20 for drawing in drawings)
    assert len(browser.find_elements("css selector", "rect.decode")) == len(STEPS)
    assert browser.find_elements("css selector", "polyline.mean")
    assert browser.find_element("css selector", "h1").text == "<img src=x onerror=alert(1)>"
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]

    summary = browser.find_element("css selector", "details summary")
    summary.click()
    assert browser.find_element("css selector", "details h3").is_displayed()
