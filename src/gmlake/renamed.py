"""Renamed names: the old ones work for one release, with a warning that names the new one."""

from __future__ import annotations

import warnings


def warn(old: str, new: str) -> None:
    """Warn, at the line that used the old name, and say the new one."""
    message = f"{old} is now {new}; the old name goes with the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
