"""Run a Python program on the stand-in GPU: `python -m gmlake.standin [options] script.py args`."""

from __future__ import annotations

import sys

from gmlake.standin.launcher import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
