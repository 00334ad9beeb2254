"""`gmlake run --without-gpu`: the program runs on the stand-in GPU, from its start to its end."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from gmlake.pytorch import notices
from gmlake.standin import launcher
from gmlake.standin.devices import DEFAULT, DEVICES, device_of


class WithoutGpu:
    """What the option adds to the command."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add --without-gpu, and --on for it."""
        parser.add_argument(
            "--without-gpu",
            action="store_true",
            help="run on a stand-in for a GPU, which serves memory and computes nothing",
        )
        parser.add_argument(
            "--on",
            metavar="NAME|SIZE",
            help=f"what it stands for: {', '.join(DEVICES)}, 40GiB or NAME:40GiB ({DEFAULT})",
        )

    def variables(self, args: argparse.Namespace, others: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a process on the stand-in, or the others where none is wanted.

        Says in a line that no GPU is there. Raises ValueError for an unknown device,
        StandinMissingError.
        """
        if not args.without_gpu:
            if args.on is not None:
                raise ValueError(
                    "--on is for --without-gpu; CUDA_VISIBLE_DEVICES chooses among real ones"
                )
            return dict(others)
        device = device_of(DEFAULT if args.on is None else args.on)
        launcher.check_pytorch()
        found = {**others, **launcher.environment(device.settings() | {"answers": "1"})}
        found.pop("CUDA_VISIBLE_DEVICES", None)  # it numbers the devices of the machine
        notices.say(f"no GPU is there: nothing is computed on {device.settings()['name']}")
        return found


RUN: Final = WithoutGpu()
