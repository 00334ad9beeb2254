"""Names that changed: the old ones work for one release, with a warning that says the new one."""

from __future__ import annotations

import warnings


def warn(old: str, new: str) -> None:
    """Say, at the line that used the old name, which one it is now."""
    message = f"{old} is now {new}; the old name goes with the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
