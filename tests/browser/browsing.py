"""A page in headless Chromium: what it shows, what it says, and what it asked the network for."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--window-size=1280,1000",
)
_PATIENCE_SECONDS = 600  # of what hangs; nothing else is judged by a clock
_MODEL = "const plot = arguments[0].plot;"


class Browser:
    """One Chromium, used by a test after another."""

    def __init__(self, chromium: str, chromedriver: str) -> None:
        """Start it."""
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for option in _OPTIONS:
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        self.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

    def close(self) -> None:
        self.driver.quit()

    def open(self, page: str | Path, folder: Path) -> None:
        """Open a page, given as HTML or as a file, and wait until its pictures are drawn."""
        path = page if isinstance(page, Path) else folder / "page.html"
        if isinstance(page, str):
            path.write_text(page, encoding="utf-8")
        self._log("browser")
        self._log("performance")
        self.driver.get(path.as_uri())
        self.wait(lambda: self.run("return document.documentElement.dataset.ready") == "true")

    def wait(self, is_done: Callable[[], object]) -> None:
        """Return once is_done() is true; AssertionError after a while."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while not is_done():
            assert time.monotonic() < end, "the page does not get there"
            time.sleep(0.02)

    @contextmanager
    def before_pages(self, script: str) -> Iterator[None]:
        """Run a script in each page that is opened inside, before its own."""
        command = "Page.addScriptToEvaluateOnNewDocument"
        added = self.driver.execute_cdp_cmd(command, {"source": script})
        yield
        self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)

    def cpu_seconds(self) -> float:
        """Return the processor's time that the open page took, whatever else ran beside it."""
        told = self.driver.execute_cdp_cmd("Performance.getMetrics", {})
        return next(float(one["value"]) for one in told["metrics"] if one["name"] == "TaskDuration")

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def emulate(self, **features: str) -> None:
        """Pretend that the user prefers something, or that the page goes to a printer (media)."""
        media = features.pop("media", "")
        listed = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"media": media, "features": listed}
        )

    def resize(self, width: int, height: int) -> None:
        """Give the page this much to be seen in."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        time.sleep(0.5)  # pictures follow the window

    def _log(self, kind: str) -> list[dict[str, Any]]:
        """Return what was noted since the last call."""
        driver: Any = self.driver  # its logs have no types
        entries: list[dict[str, Any]] = driver.get_log(kind)
        return entries

    def complaints(self) -> list[str]:
        """Return warnings and errors of the console since the page was opened."""
        return [
            entry["message"]
            for entry in self._log("browser")
            if entry["level"] in {"WARNING", "SEVERE"}
        ]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened."""
        messages = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def save(self, selector: str, path: Path, number: int = 0) -> None:
        """Write what an element looks like as a PNG; of several, the one of that number."""
        path.parent.mkdir(parents=True, exist_ok=True)
        height = self.run("return document.documentElement.scrollHeight")
        self.resize(1280, height + 200)  # what is outside is cut off
        path.write_bytes(self.find_all(selector)[number].screenshot_as_png)


class Picture:
    """One drawn picture of the open page."""

    def __init__(self, browser: Browser, kind: str) -> None:
        """Find it; kind: the class of its section."""
        self.browser = browser
        self.section = browser.find(f"section.{kind}")
        self.box = self.section.find_element(By.CSS_SELECTOR, ".picture")
        browser.run("arguments[0].scrollIntoView({block: 'center'})", self.box)

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression about `plot`, a Plot of plot.js."""
        return self.browser.run(f"{_MODEL} return {expression};", self.box)

    def x_range(self) -> tuple[float, float]:
        start, end = self.ask("[plot.x.start, plot.x.end]")
        return start, end

    def y_range(self) -> tuple[float, float]:
        start, end = self.ask("[plot.y.start, plot.y.end]")
        return start, end

    def middle(self, name: str, index: int) -> tuple[float, float]:
        """Return the middle of one rectangle of a part, in the picture's own units."""
        x, y = self.ask(
            f"""(() => {{
                const {{ data }} = plot.part("{name}").source;
                const at = (column) => data[column][{index}];
                return [(at("left") + at("right")) / 2, (at("bottom") + at("top")) / 2];
            }})()"""
        )
        return x, y

    def press(self, selector: str) -> None:
        """Click what is around the picture."""
        self.section.find_element(By.CSS_SELECTOR, selector).click()

    def point_at(self, x: float, y: float) -> ActionChains:
        """Return the mouse, moved to a point given in the picture's own units."""
        left, top = self.browser.run(
            f"""{_MODEL}
            return [plot.left + plot.pixelX(arguments[1]) - plot.box.clientWidth / 2,
                    6 + plot.pixelY(arguments[2]) - plot.box.clientHeight / 2];
            """,
            self.box,
            x,
            y,
        )
        mouse = ActionChains(self.browser.driver, duration=50)
        return mouse.move_to_element_with_offset(self.box, round(left), round(top))

    def read_at(self, x: float, y: float) -> str:
        """Return what is said at a point."""
        self.point_at(x, y).move_by_offset(1, 0).perform()
        self.browser.wait(self._tooltip)
        return self._tooltip()

    def _tooltip(self) -> str:
        text: str = self.section.find_element(By.CSS_SELECTOR, ".tip").text
        return text
