"""Save a page's first screens and its pictures: screenshots.py PAGE FOLDER [light|dark]."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

from browsing import Browser

FIRST_SCREENS = ((1400, 1000), (1280, 720))


def main(page: Path, folder: Path, scheme: str) -> None:
    """Write one PNG per section, named after its kind, the second of a kind with a 2 behind it."""
    browser = Browser(str(shutil.which("chromium")), str(shutil.which("chromedriver")))
    browser.emulate(prefers_color_scheme=scheme)
    browser.open(page.resolve(), folder)
    ending = "" if scheme == "light" else f"-{scheme}"
    for width, height in FIRST_SCREENS:
        browser.resize(width, height)
        browser.driver.save_screenshot(str(folder / f"first-{width}x{height}{ending}.png"))
    kinds = Counter(section.get_attribute("class") for section in browser.find_all("section"))
    for kind, count in kinds.items():
        for number in range(1, count + 1):
            name = kind if number == 1 else f"{kind}{number}"
            browser.save(f"section.{kind}", folder / f"{name}{ending}.png", number - 1)
    browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), (*sys.argv[3:], "light")[0])
