"""The dashboard in a headless Chromium, as its tests use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from support import eventually

PICTURES = Path(__file__).resolve().parents[2] / "build/test-results"
DESKTOP = (1440, 1400)
PHONE = (390, 844)


def start_browser(chromium: str, chromedriver: str) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))


class Page:
    """One open dashboard."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self.browser = browser
        self.may_complain = False  # the test provokes what the browser's console will tell

    def open(self, base_url: str) -> None:
        self.browser.get(f"{base_url}/polykv/")

    def open_live(self, base_url: str) -> None:
        self.open(base_url)
        self.wait_live()

    def wait_live(self) -> None:
        eventually(lambda: self.text("#connection") == "Live", "the page is live")

    def find(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def script(self, code: str, *arguments: Any) -> Any:
        return self.browser.execute_script(code, *arguments)

    def texts(self, selector: str) -> list[str]:
        """What each match shows, all of one moment: the page may replace them while one looks."""
        return self.script(
            "return [...document.querySelectorAll(arguments[0])]"
            ".map((node) => node.innerText.trim().split(/\\s*\\n\\s*/).join(' '));",
            selector,
        )

    def text(self, selector: str) -> str:
        return self.script(
            "const node = document.querySelector(arguments[0]);"
            "return node === null || node.hidden ? '' : node.textContent.trim();",
            selector,
        )

    def is_shown(self, selector: str) -> bool:
        return self.find(selector).is_displayed()

    def click(self, selector: str) -> None:
        self.find(selector).click()

    def press(self, *keys: str) -> None:
        webdriver.ActionChains(self.browser).send_keys(*keys).perform()

    def focused(self) -> Any:
        """What has the focus: its id, its pool or its action, whichever it has."""
        return self.script(
            "const node = document.activeElement;"
            "return node.id || node.dataset.pool || node.dataset.action || node.textContent;"
        )

    def pools(self) -> dict[str, dict[str, Any]]:
        """The rows of the tree by the names that they show."""
        rows = self.script(
            """
            return [...document.querySelectorAll('#tree tr')].map((row) => {
              const cells = [...row.querySelectorAll('td[data-label]')];
              const facts = cells.map((cell) => [cell.dataset.label, cell.textContent]);
              return {
                ...Object.fromEntries(facts),
                name: row.querySelector('.name').textContent,
                level: Number(row.getAttribute('aria-level')),
                badges: [...row.querySelectorAll('.badge')].map((badge) => badge.textContent),
                selected: row.getAttribute('aria-selected') === 'true',
              };
            });
            """
        )
        return {row["name"]: row for row in rows}

    def sessions(self) -> dict[str, dict[str, str]]:
        """The rows of sessions that exist in the page, by the names that they show."""
        rows = self.script(
            """
            return [...document.querySelectorAll('#session-rows .session')].map((row) => ({
              name: row.querySelector('.name').textContent,
              pool: row.querySelector('.id').textContent,
              state: row.querySelector('.badge').textContent,
              rate: row.querySelector('.rate').textContent,
              context: row.querySelector('.context').textContent,
              kv: row.children[5].textContent,
              ttft: row.children[6].textContent,
              under: row.hasAttribute('data-under'),
            }));
            """
        )
        return {row["name"]: row for row in rows}

    def select(self, pool_name: str) -> None:
        """Selects a pool by clicking its row."""
        eventually(lambda: pool_name in self.pools(), f"{pool_name} is in the tree")
        rows = {row.find_element(By.CLASS_NAME, "name").text: row for row in self.all("#tree tr")}
        rows[pool_name].click()
        eventually(lambda: self.text("#inspector h3") == pool_name, f"{pool_name} is selected")

    def act(self, action: str, *options: str) -> None:
        """Presses the action's button and confirms, with these boxes checked."""
        self.click(f"[data-action={action}]")
        for option in options:
            self.click(f"#action-options [value={option}]")
        self.click("#action-do")

    def emulate(self, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        self.browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.browser.save_screenshot(str(PICTURES / f"dashboard-{name}.png"))

    def complaints(self) -> list[str]:
        """What the console has said since the last call."""
        return [entry["message"] for entry in self.browser.get_log("browser")]


ESCAPE, ENTER, TAB = Keys.ESCAPE, Keys.ENTER, Keys.TAB
UP, DOWN, LEFT, RIGHT, HOME, END = (
    Keys.ARROW_UP,
    Keys.ARROW_DOWN,
    Keys.ARROW_LEFT,
    Keys.ARROW_RIGHT,
    Keys.HOME,
    Keys.END,
)
