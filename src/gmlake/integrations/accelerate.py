"""GmlakeTraining for loops with Accelerate, which has no callbacks.

with GmlakeTraining(accelerator, page="memory.html") as training:
    for batch in loader:
        with training.step(), accelerator.accumulate(model):
            ...
        training.log({"loss": loss.item()})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmlake.integrations.training import Training

if TYPE_CHECKING:
    from typing_extensions import Self


class GmlakeTraining:
    """Plans steps, logs memory, and draws a page.

    It begins with the `with` statement, and can be used again after its end.

    accelerator: the accelerate.Accelerator of the loop.
    page: a file to write at the end, also after an exception.
    plan: True, or what plans steps: plan them; it enables gmlake. `plan` has it afterwards.

    Raises FileNotFoundError if the folder of the page does not exist, and TypeError for any other
    plan or accelerator.
    """

    def __init__(
        self,
        accelerator: Any,  # noqa: ANN401 (accelerate need not be there where types are checked)
        *,
        page: str | Path | None = None,
        plan: object = False,
    ) -> None:
        if not hasattr(accelerator, "sync_gradients"):
            raise TypeError(f"accelerator is an accelerate.Accelerator, not {accelerator!r}")
        self._accelerator = accelerator
        self._training = Training(page, plan)
        self.plan = self._training.plan

    def __enter__(self) -> Self:
        self._training.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._training.end()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Return a context for a step: around each batch, outside accelerator.accumulate().

        Where gradients are accumulated, the step goes on until the batch that ends with them.
        """
        self._training.begin_step()
        try:
            yield
        except BaseException:
            self._training.end_step()
            raise
        if self._accelerator.sync_gradients:
            self._training.end_step()

    def log(self, values: Mapping[str, Any] | None = None, step: int | None = None) -> None:
        """Log values and memory to the accelerator's trackers, as Accelerator.log() does."""
        self._accelerator.log({**(values or {}), **self._training.lines()}, step=step)
