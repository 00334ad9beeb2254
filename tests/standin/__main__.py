"""Run a program on the stand-in GPU, with the Python of `make standin` where this one has no CUDA.

`python -m tests.standin [options] script.py args`, with the options of `python -m gmlake.standin`.
The program finds the folder `tests`, wherever it runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from tests.standin.places import ROOT


def refuse(why: str) -> NoReturn:
    """End with one line, as the launcher does."""
    sys.stderr.write(f"stand-in: {why}\n")
    sys.exit(2)


def find_python() -> Path:
    """Return a Python with the CUDA build of PyTorch: this one, or that of `make standin`.

    GMLAKE_STANDIN_PYTHON names another. Ends with one line where there is none.
    """
    named = os.environ.get("GMLAKE_STANDIN_PYTHON")
    if named:
        if not os.access(named, os.X_OK):
            refuse(f"{named}, which GMLAKE_STANDIN_PYTHON names, cannot be run")
        return Path(named)
    for python in (Path(sys.executable), ROOT / ".venv-standin" / "bin" / "python"):
        libraries = python.parent.parent.glob("lib*/python3*/site-packages/torch/lib")
        if any((folder / "libtorch_cuda.so").exists() for folder in libraries):
            return python
    refuse(
        "no CUDA build of PyTorch is there: run `make standin`, which fetches one (5.2 GB on disk)"
    )


def main() -> None:
    """Become the launcher."""
    python = find_python()
    folders = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    words = [str(python), "-m", "gmlake.standin", *sys.argv[1:]]
    os.execve(python, words, variables)  # noqa: S606 (no shell is meant to run)


if __name__ == "__main__":
    main()
