"""The backend "gmlake" of vLLM's sleep mode, for `--sleep-mode-backend gmlake`."""

# mypy: disable-error-code="import-not-found, misc, unused-ignore"

from __future__ import annotations

from vllm.device_allocator.sleep_mode_backend import CuMemBackend

from gmlake.pytorch.session import is_enabled


class GmlakeBackend(CuMemBackend):
    """vLLM's own backend, over gmlake's allocator; unsupported if gmlake does not serve."""

    @classmethod
    def is_supported(cls) -> bool:
        """Whether gmlake serves this process: start it by `gmlake run`."""
        return is_enabled()
