"""Trainings with the callbacks of gmlake.integrations; prints what was seen as JSON.

Arguments: transformers, lightning or accelerate; a folder to write to; on or off, for gmlake, or
fails, for a training that ends the program.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gmlake
from gmlake.pytorch import phases

ROWS, WIDTH = 32, 64
FAILS_AT = 4  # batches before one fails, where it shall


class PlannedError(Exception):
    """The training fails, as it shall."""


class Told:
    """What a recording is told: steps, and phases by name."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def enter_named(self, named: phases.Named) -> None:
        """Note the name."""
        self.seen.append(named.name)

    def leave_named(self) -> None:
        """Note the end."""
        self.seen.append("left")

    def step_begins(self) -> None:
        """Note a step."""
        self.seen.append("step")


class Network(nn.Module):
    """A few layers, which fail at some batch if they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, 16))
        self.batches_left = -1

    def forward(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return a loss, as models of transformers do."""
        self.batches_left -= 1
        if self.batches_left == 0:
            raise PlannedError
        return {"loss": self.layers(inputs).square().mean()}


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Rows of ones."""

    def __len__(self) -> int:
        """Return how many there are."""
        return ROWS

    def __getitem__(self, _: int) -> dict[str, torch.Tensor]:
        """Return one."""
        return {"inputs": torch.ones(WIDTH)}


class WithTransformers:
    """Trains with transformers' Trainer. Who writes its logs was there before the callback."""

    def __init__(self, folder: Path, **options: Any) -> None:
        import transformers

        from gmlake.integrations.transformers import GmlakeCallback

        outer = self

        class Writer(transformers.TrainerCallback):
            def on_log(self, _args: object, state: Any, *_: object, **named: Any) -> None:
                outer.logged.append({**named["logs"], "step": state.global_step})

        self.logged: list[dict[str, Any]] = []
        self.callback: Any = GmlakeCallback(**options)
        self.arguments = transformers.TrainingArguments(
            output_dir=str(folder),
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=4,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        self.writers = [Writer()]
        self.trainer_of = transformers.Trainer

    def train(self, network: Network) -> list[dict[str, Any]]:
        """Return what was logged."""
        self.logged.clear()
        trainer = self.trainer_of(
            network,
            self.arguments,
            train_dataset=Rows(),
            eval_dataset=Rows(),
            callbacks=[*self.writers, self.callback],
        )
        trainer.train()
        for told, kept in zip(self.logged, trainer.state.log_history, strict=True):
            assert {name: kept.get(name) for name in told} == told, (told, kept)
        return list(self.logged)


class WithLightning:
    """Trains with Lightning's Trainer."""

    def __init__(self, folder: Path, **options: Any) -> None:
        from gmlake.integrations.lightning import GmlakeCallback

        self.folder = folder
        self.callback: Any = GmlakeCallback(**options)

    def train(self, network: Network) -> list[dict[str, Any]]:
        """Return what was logged."""
        import lightning
        from lightning.pytorch.loggers import CSVLogger

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.network = network

            def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
                return self.network(batch["inputs"])["loss"]  # type: ignore[no-any-return]

            def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
                self.network(batch["inputs"])

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return torch.optim.AdamW(self.parameters())

        logger = CSVLogger(str(self.folder))
        loader = torch.utils.data.DataLoader(Rows(), batch_size=4)
        trainer = lightning.Trainer(
            accumulate_grad_batches=2,
            max_epochs=1,
            val_check_interval=4,
            num_sanity_val_steps=0,
            log_every_n_steps=1,
            logger=logger,
            callbacks=[self.callback],
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            accelerator="gpu",
            devices=1,
        )
        trainer.fit(Module(), loader, loader)
        with (Path(logger.log_dir) / "metrics.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return [{name: float(value) for name, value in row.items() if value} for row in rows]


class WithAccelerate:
    """Trains with a loop of Accelerate."""

    def __init__(self, folder: Path, **options: Any) -> None:
        from accelerate import Accelerator
        from accelerate.tracking import GeneralTracker

        from gmlake.integrations.accelerate import GmlakeTraining

        del folder
        outer = self

        class Tracker(GeneralTracker):
            name = "kept"
            requires_logging_directory = False
            tracker = None

            def log(self, values: dict[str, Any], step: int | None = None, **_: object) -> None:
                outer.logged.append({**values, "step": step})

        self.logged: list[dict[str, Any]] = []
        self.accelerator = Accelerator(gradient_accumulation_steps=2, log_with=Tracker(_blank=True))
        self.accelerator.init_trackers("test")
        self.callback: Any = GmlakeTraining(self.accelerator, **options)

    def train(self, network: Network) -> list[dict[str, Any]]:
        """Return what was logged."""
        self.logged.clear()
        accelerator = self.accelerator
        model, optimizer, loader = accelerator.prepare(
            network,
            torch.optim.AdamW(network.parameters()),
            torch.utils.data.DataLoader(Rows(), batch_size=4),
        )
        with self.callback as training:
            for index, batch in enumerate(loader):
                with training.step(), accelerator.accumulate(model):
                    accelerator.backward(model(batch["inputs"])["loss"])
                    optimizer.step()
                    optimizer.zero_grad()
                if accelerator.sync_gradients:
                    training.log({"loss": 0.0}, step=(index + 1) // 2)
                if index in (3, 7):
                    with training.evaluation(), torch.inference_mode():
                        model(batch["inputs"])
        return list(self.logged)


TRAINERS: dict[str, Any] = {
    "transformers": WithTransformers,
    "lightning": WithLightning,
    "accelerate": WithAccelerate,
}


def main() -> None:
    """Train twice, fail once, train again; and once with a plan where gmlake is on."""
    name, folder, is_on = sys.argv[1], Path(sys.argv[2]), sys.argv[3] != "off"
    if is_on:
        gmlake.enable()
    told, page = Told(), folder / "memory.html"
    phases.add_listener(told)
    trainer = TRAINERS[name](folder, page=page)
    results: dict[str, Any] = {"seen": [], "logged": [], "pages": []}

    def train(network: Network) -> None:
        told.seen.clear()
        try:
            results["logged"].append(trainer.train(network))
        finally:
            results["seen"].append(list(told.seen))
            results["pages"].append(page.read_text() if page.exists() else "")
            page.unlink(missing_ok=True)

    failing = Network()
    failing.batches_left = FAILS_AT
    if sys.argv[3] == "fails":
        trainer.train(failing)
    train(Network())
    train(Network())
    try:
        train(failing)
    except PlannedError:
        results["is_in_step"] = phases.is_in_step()
    train(Network())
    results["is_in_step_at_the_end"] = phases.is_in_step()
    results["is_recording"] = gmlake.stop_recording() is not None
    results["keeps_history"] = torch._C._cuda_isHistoryEnabled()  # noqa: SLF001 (its only name)
    results["is_enabled"] = gmlake.is_enabled()
    if is_on:
        with gmlake.record():
            try:
                trainer.train(Network())
            except RuntimeError as error:
                results["refusal"] = str(error)
        planned = TRAINERS[name](folder / "planned", plan=True)
        results["planned_logged"] = planned.train(Network())
        results["planned_kinds"] = [report.kind for report in planned.callback.plan.reports]
    print("\n" + json.dumps(results))


if __name__ == "__main__":
    main()
