"""The exception of the planner."""

from __future__ import annotations

from gmlake.errors import Error


class PlanError(Error):
    """A plan, a placement or a plan file is damaged, of another version, or invalid."""
