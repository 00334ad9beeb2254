"""SGLang's memory saver over gmlake's regions: `gmlake run -m sglang.launch_server ...`.

SGLang finds register() by itself, as a plugin (the entry point sglang.srt.plugins). Where gmlake
serves the process, `--enable-memory-saver` then uses gmlake.compat.torch_memory_saver instead of
torch_memory_saver, which need not be installed. Otherwise SGLang is left as it is, unless an annex
watches it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

from gmlake import annexes
from gmlake.pytorch.session import is_enabled

_NAME: Final = "torch_memory_saver"
_ADAPTER: Final = "sglang.srt.utils.torch_memory_saver_adapter"


def register() -> None:
    """Make gmlake's module importable as torch_memory_saver, even after SGLang looked for it."""
    for watch in annexes.hooked("sglang"):
        watch()
    if not is_enabled():
        return
    ours = import_module("gmlake.compat.torch_memory_saver")  # reads the environment
    sys.modules[_NAME] = ours
    adapter = sys.modules.get(_ADAPTER)
    if adapter is not None:
        vars(adapter).update(
            torch_memory_saver=ours, _memory_saver=ours.torch_memory_saver, import_error=None
        )
