"""GmlakeCallback for transformers' Trainer.

trainer = Trainer(model, arguments, callbacks=[GmlakeCallback(page="memory.html")])

The callback does not enable gmlake: use `gmlake run`, gmlake.enable(), or plan=True.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import sys
from typing import Any

try:
    from transformers import DefaultFlowCallback, TrainerCallback
except ImportError as problem:
    raise ImportError(
        "gmlake.integrations.transformers needs transformers: pip install transformers"
    ) from problem

from pathlib import Path

from gmlake.integrations.training import Training


class GmlakeCallback(TrainerCallback):
    """Plans steps, adds memory to the Trainer's logs, and draws a page.

    Each line that the Trainer logs, of evaluations too, has memory/live_gib and others beside the
    loss: on the console, in `state.log_history`, and in what `report_to` names. A step is one of
    the optimizer, with all its micro-batches.

    page: a file to write when training ends. If training fails, it is written when the next one
        begins or the process ends.
    plan: True, or what plans steps: plan them; it enables gmlake. `plan` has it afterwards.

    Raises FileNotFoundError if the folder of the page does not exist, and TypeError for any other
    plan.
    """

    def __init__(self, *, page: str | Path | None = None, plan: object = False) -> None:
        self._training = Training(page, plan)
        self.plan = self._training.plan

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Begin, before the callbacks that write logs."""
        self._go_first(sys._getframe(1).f_locals.get("self"))  # noqa: SLF001
        self._training.begin()

    def _go_first(self, handler: object) -> None:
        """Move right behind the callback that controls the schedule.

        The Trainer puts log writers before the callbacks it is given. It passes neither itself nor
        its callback handler to them; the handler is the caller.
        """
        callbacks = getattr(handler, "callbacks", None)
        if not isinstance(callbacks, list) or self not in callbacks:
            return
        callbacks.remove(self)
        flows = [isinstance(callback, DefaultFlowCallback) for callback in callbacks]
        callbacks.insert(flows.index(True) + 1 if True in flows else 0, self)

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Begin a step, before its first micro-batch."""
        self._training.begin_step()

    def on_step_end(self, *_: object, **__: object) -> None:
        """End it, after the optimizer."""
        self._training.end_step()

    def on_prediction_step(self, *_: object, **__: object) -> None:
        """End a step that is open: an evaluation is none."""
        self._training.end_step()

    def on_log(
        self,
        _args: object,
        state: Any,  # noqa: ANN401
        _control: object,
        logs: dict[str, float],
        **_: object,
    ) -> None:
        """Add memory to the logs, and to the history entry that already exists."""
        lines = self._training.lines()
        logs.update(lines)
        if state.log_history:
            state.log_history[-1].update(lines)

    def on_train_end(self, *_: object, **__: object) -> None:
        """End, and write the page."""
        self._training.end()
