"""Lightning's Trainer under gmlake, with memory in its logs and a page at the end.

gmlake run examples/howto/lightning_fit.py
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from gmlake.integrations.lightning import GmlakeCallback

WIDTH, BATCH = 256, 16


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    """A few layers that are trained towards random classes."""

    def __init__(self) -> None:
        """Build the layers."""
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, 16)
        )

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch: inputs [n, WIDTH] and classes [n]."""
        return nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        """Log the loss of a batch."""
        self.log("validation_loss", self.training_step(batch, index))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    """Train for two epochs."""
    rows = torch.utils.data.TensorDataset(
        torch.randn(6 * BATCH, WIDTH), torch.randint(16, (6 * BATCH,))
    )
    loader = torch.utils.data.DataLoader(rows, batch_size=BATCH)
    trainer = lightning.Trainer(
        max_epochs=2,
        log_every_n_steps=2,
        logger=CSVLogger("logs"),  # or any other: it gets the lines, too
        callbacks=[GmlakeCallback(page="memory.html")],
    )
    trainer.fit(Classifier(), loader, loader)


if __name__ == "__main__":
    main()
