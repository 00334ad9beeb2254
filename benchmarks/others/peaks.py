"""Run a program as `python` would; print peaks, losses and what it told last, as JSON.

python peaks.py SCRIPT | -m MODULE [ARGUMENT ...]
"""

from __future__ import annotations

import json
import runpy
import sys


def main() -> None:
    """Run it; it may exit with 0 by itself."""
    words = sys.argv[1:]
    is_module = words[0] == "-m"
    sys.argv = words[is_module:]
    try:
        if is_module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        if ended.code:
            raise
    import torch

    torch.cuda.synchronize()
    from others.made import losses, told

    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    seen = dict(zip(("live_bytes", "reserved_bytes"), peaks, strict=True))
    print(
        json.dumps(
            {
                **seen,
                "device": torch.cuda.get_device_name(),
                "losses": [float(loss).hex() for loss in losses],
                **told,
            }
        )
    )


if __name__ == "__main__":
    main()
