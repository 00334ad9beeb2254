"""gmlake inside PyTorch. PyTorch is imported when gmlake begins to serve it, not before."""

from gmlake.pytorch.session import Session, disable, enable, enabled, is_enabled
from gmlake.pytorch.session_settings import Settings

__all__ = ["Session", "Settings", "disable", "enable", "enabled", "is_enabled"]
