"""Counters of a running process, for others of the same user to follow."""

from __future__ import annotations

from gmlake.watching.publishing import publish

__all__ = ["publish"]
