"""Results that a notebook draws by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from gmlake import pictures

if TYPE_CHECKING:
    from gmlake.pictures.figures import Report


class Drawable(ABC):
    """Draws itself in a notebook."""

    @abstractmethod
    def report(self) -> Report:
        """Return the figures to be drawn."""

    def _repr_html_(self) -> str:
        return pictures.in_notebook(self.report())
