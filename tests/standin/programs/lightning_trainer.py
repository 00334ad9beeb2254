"""A Lightning Trainer, as anybody writes it; prints what it logged of memory as JSON.

Argument: a folder to write to.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import DeviceStatsMonitor
from lightning.pytorch.loggers import CSVLogger
from torch import nn

MONITORED = "DeviceStatsMonitor.on_train_batch_end/"


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    """A few layers that are trained towards random classes."""

    def __init__(self) -> None:
        """Build the layers."""
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 16))
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """Return the loss of a batch: inputs [n, 256] and classes [n]."""
        inputs, classes = batch
        loss = nn.functional.cross_entropy(self.layers(inputs), classes)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        """Log the loss of a batch."""
        self.log("validation_loss", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters())


def logged(path: Path) -> list[dict[str, int]]:
    """Return the statistics of memory after each step, by the names that memory_stats() has."""
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row[f"{MONITORED}num_ooms"]]
    return [
        {
            name.removeprefix(MONITORED): int(float(value))
            for name, value in row.items()
            if name.startswith(MONITORED) and value
        }
        for row in rows
    ]


def main() -> None:
    """Train, validate, write a checkpoint, and print."""
    rows = torch.utils.data.TensorDataset(torch.randn(96, 256), torch.randint(16, (96,)))
    loader = torch.utils.data.DataLoader(rows, batch_size=16, pin_memory=True)
    logger = CSVLogger(sys.argv[1])
    model = Classifier()
    trainer = lightning.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=2,
        precision="bf16-mixed",
        log_every_n_steps=1,
        logger=logger,
        callbacks=[DeviceStatsMonitor()],
        default_root_dir=sys.argv[1],
        enable_progress_bar=False,
    )
    trainer.fit(model, loader, loader)
    results = {
        "backend": torch.cuda.get_allocator_backend(),
        "losses": model.losses,
        "logged": logged(Path(logger.log_dir) / "metrics.csv"),
        "steps": trainer.global_step,
        "stats": torch.cuda.memory_stats(),
    }
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
