"""The commit that is measured. As a program: prints that of a clean tree, or says why not.

GMLAKE_COMMIT names it where only the files of a clean tree were taken, to a machine without the
clone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _git(*words: str) -> str:
    command = ("git", "-C", str(ROOT), *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def _is_cloned() -> bool:
    return _git("rev-parse", "--show-toplevel") == str(ROOT) and bool(_git("rev-parse", "HEAD"))


def _has_changed() -> bool:
    """Return whether the tree differs from its commit; results change no other result."""
    return bool(_git("status", "--porcelain", "--", ".", ":!benchmarks/results"))


def commit() -> str:
    """Return the commit, marked where the tree differs."""
    if not _is_cloned():
        return os.environ.get("GMLAKE_COMMIT") or "unknown"
    name = _git("rev-parse", "--short=7", "HEAD")
    return f"{name}-dirty" if _has_changed() else name


def main() -> None:
    """Print the commit of a clean tree."""
    name = commit()
    if name == "unknown":
        sys.exit("this is no clone, and GMLAKE_COMMIT does not name the commit of these files")
    if name.endswith("-dirty"):
        sys.exit("the tree has changes; commit them first, for a result names its commit")
    if not re.fullmatch(r"[0-9a-f]{7,40}", name):
        sys.exit(f"GMLAKE_COMMIT is '{name}', which is no commit of a clean tree")
    print(name)


if __name__ == "__main__":
    main()
