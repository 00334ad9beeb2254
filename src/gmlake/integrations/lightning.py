"""GmlakeCallback for Lightning's Trainer.

trainer = lightning.Trainer(callbacks=[GmlakeCallback(page="memory.html")])

The callback does not enable gmlake: use `gmlake run`, gmlake.enable(), or plan=True.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError as problem:
    raise ImportError(
        "gmlake.integrations.lightning needs lightning: pip install lightning"
    ) from problem

from pathlib import Path

from gmlake.integrations.training import Training


class GmlakeCallback(Callback):
    """Plans steps, logs memory, and draws a page.

    Every `log_every_n_steps` steps, each of the Trainer's loggers gets memory/live_gib and others.
    A step goes from its first batch to the last that its optimizer needs.

    page: a file to write when training ends, also after an exception.
    plan: True, or what plans steps: plan them; it enables gmlake. `plan` has it afterwards.

    Raises FileNotFoundError if the folder of the page does not exist, and TypeError for any other
    plan.
    """

    def __init__(self, *, page: str | Path | None = None, plan: object = False) -> None:
        super().__init__()
        self._training = Training(page, plan)
        self.plan = self._training.plan
        self._steps = 0  # that were taken when the last one ended

    def on_train_start(self, trainer: Any, *_: object) -> None:  # noqa: ANN401
        self._training.begin()
        self._steps = trainer.global_step

    def on_train_batch_start(self, *_: object) -> None:
        """Begin a step, unless one is open."""
        self._training.begin_step()

    def on_train_batch_end(self, trainer: Any, *_: object) -> None:  # noqa: ANN401
        """End the step if the optimizer took it, and log."""
        steps = trainer.global_step
        if steps == self._steps:
            return  # gradients are accumulated
        self._steps = steps
        self._training.end_step()
        if trainer.loggers and trainer.log_every_n_steps and not steps % trainer.log_every_n_steps:
            lines = self._training.lines()
            for logger in trainer.loggers:
                logger.log_metrics(lines, step=steps - 1)  # Lightning logs a step by its index

    def on_validation_start(self, *_: object) -> None:
        """End a step that is open: an evaluation is none."""
        self._training.end_step()

    def on_train_end(self, *_: object) -> None:
        """End, and write the page."""
        self._training.end()

    def on_exception(self, *_: object) -> None:
        """End, and write the page."""
        self._training.end()
