"""A loop with Accelerate under gmlake, with memory in its logs and a page at the end.

gmlake run examples/howto/accelerate_loop.py
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from torch import nn

from gmlake.integrations.accelerate import GmlakeTraining

WIDTH, BATCH = 256, 16


class Console(GeneralTracker):  # type: ignore[misc]
    """A tracker that prints; "tensorboard" or "wandb" in its place get the lines, too."""

    name = "console"
    requires_logging_directory = False
    tracker = None

    def log(self, values: dict[str, object], step: int | None = None, **_: object) -> None:
        """Print."""
        print(step, values)


def main() -> None:
    """Train with accumulated gradients, and evaluate at the end."""
    accelerator = Accelerator(gradient_accumulation_steps=2, log_with=Console(_blank=True))
    accelerator.init_trackers("howto")
    layers = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, 16))
    rows = torch.utils.data.TensorDataset(
        torch.randn(8 * BATCH, WIDTH), torch.randint(16, (8 * BATCH,))
    )
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH)
    optimizer = torch.optim.AdamW(layers.parameters())
    model, optimizer, loader = accelerator.prepare(layers, optimizer, loader)

    with GmlakeTraining(accelerator, page="memory.html") as training:
        for number, (inputs, classes) in enumerate(loader):
            with training.step(), accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), classes)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            training.log({"loss": loss.item()}, step=number)
        with torch.inference_mode():
            for inputs, _ in loader:
                model(inputs)
    accelerator.end_training()


if __name__ == "__main__":
    main()
