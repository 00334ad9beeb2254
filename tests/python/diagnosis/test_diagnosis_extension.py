"""The extension of the diagnosis: memory does not grow, and what it has is declared."""

from __future__ import annotations

import subprocess
import sys


def test_without_pytorch_a_line_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['torch'] = None\nimport gmlake\n"
        "try:\n    gmlake.diagnose()\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("gmlake.diagnose needs PyTorch, which is not installed")
