"""How a process ends that has said everything."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def end_process() -> NoReturn:
    """End with 0, without ending the interpreter.

    Before CPython 3.14 a thread that asks for the interpreter while that ends is unwound, and C++
    terminates the process for it. Where a backward pass ran Python hooks, a thread of PyTorch does
    so now and then, with any allocator.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
