"""What a thread allocates inside of something comes from other lakes than those of the devices."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import TYPE_CHECKING

from gmlake import _core
from gmlake.pytorch.region import is_enabled

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Inside(ContextDecorator):
    """Lets the thread that enters it be served by the lakes of a region, as number() says."""

    def __init__(self, title: str, *, everywhere: bool = False) -> None:
        """Nothing begins yet.

        title: what an error calls it. everywhere: whether it holds for all threads that are inside
        of nothing themselves, too.
        """
        self._title = title
        self._everywhere = everywhere
        self._before: list[tuple[int, int]] = []

    def number(self) -> int:
        """Return the core's number of the region, see gml_torch_enter_region()."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Begin."""
        if not is_enabled():
            raise RuntimeError(
                f"{self._title}: gmlake does not serve this process; call gmlake.enable() first, "
                "or start it by `gmlake run`"
            )
        number = self.number()
        others = _core.torch_enter_region_everywhere(number) if self._everywhere else 0
        self._before.append((_core.torch_enter_region(number), others))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End: the thread allocates where it did before."""
        own, others = self._before.pop()
        _core.torch_enter_region(own)
        if self._everywhere:
            _core.torch_enter_region_everywhere(others)
