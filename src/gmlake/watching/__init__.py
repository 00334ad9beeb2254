"""Counters that a running process publishes, for others of the same user to follow."""

from __future__ import annotations

from gmlake.watching.counters import Counters, CountersError
from gmlake.watching.publishing import publish
from gmlake.watching.reader import Source, find, read

__all__ = ["Counters", "CountersError", "Source", "find", "publish", "read"]
