"""Make a checkout ready for an index of packages, whose pages know no folder of ours.

    python .ci/links.py URL TAG

URL is where the repository is public, TAG what the release is called there. Links and pictures in
README.md become absolute, and pyproject.toml gets the project's pages. Both files are rewritten.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LINK: Final = re.compile(r'(?P<before>\]\(|(?:src|srcset|href)=")(?!\w+:|#)(?P<path>[^)"#]*)')
BEHIND: Final = "\n[project.optional-dependencies]\n"


def absolute(text: str, url: str, tag: str) -> str:
    """Return a page whose links no longer depend on where it is shown."""

    def of(found: re.Match[str]) -> str:
        path = found["path"]
        kind = "raw" if Path(path).suffix in (".png", ".svg") else "blob"
        return f"{found['before']}{url}/{kind}/{tag}/{path}"

    return LINK.sub(of, text)


def with_pages(text: str, url: str, tag: str) -> str:
    """Return pyproject.toml with the project's pages."""
    pages = {
        "Source": url,
        "Documentation": f"{url}/tree/{tag}/docs",
        "Changelog": f"{url}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{url}/issues",
    }
    lines = "".join(f'{name} = "{page}"\n' for name, page in pages.items())
    if text.count(BEHIND) != 1:
        sys.exit("pyproject.toml has no [project.optional-dependencies] to put the pages before")
    return text.replace(BEHIND, f"\n[project.urls]\n{lines}{BEHIND}")


def main() -> None:
    """Rewrite both files."""
    _, url, tag = sys.argv
    for name, change in (("README.md", absolute), ("pyproject.toml", with_pages)):
        path = ROOT / name
        path.write_text(change(path.read_text(encoding="utf-8"), url, tag), encoding="utf-8")


if __name__ == "__main__":
    main()
