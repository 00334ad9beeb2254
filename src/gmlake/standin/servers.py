"""Foresees what a server of vLLM's or SGLang's holds: its own engine boots on the stand-in."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from gmlake.printable import printable
from gmlake.standin import launcher
from gmlake.standin.beyond import beyond
from gmlake.standin.devices import Device, device_of
from gmlake.standin.runs import MORE_TIME, SERVED_BYTES, ForecastError, end_of, title_of
from gmlake.tables import Printed, Tables, new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType

_HOST: Final = {"devices": str(launcher.MOST_DEVICES), "served": str(SERVED_BYTES)}
"""Devices for the ranks, and more memory than there is: what needs too much says how much."""

_VARIABLES: Final = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # compiled by nvcc at its first use,
    "VLLM_USE_DEEP_GEMM": "0",  # as these products are
    "FLASHINFER_USE_CUDA_NORM": "1",  # else by a CUDA runtime that the stand-in does not reach
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
}
"""Unless they are set."""

_ENGINES: Final = {"vllm": "vLLM", "sglang": "SGLang"}
"""By package."""

_COMMANDS: Final = {"vllm": "vllm.entrypoints.cli.main", "sglang": "sglang.cli.main"}

_IMPORTS: Final = re.compile(r"^\s*(from|import)\s+(vllm|sglang)\b", re.MULTILINE)
_PYTHONS: Final = re.compile(r"python(3(\.\d+)?)?$")

_VARIED: Final[tuple[tuple[str, Any], ...]] = (
    *(("tensor_parallel_size", ranks) for ranks in (1, 2, 4, 8)),
    ("kv_cache_dtype", "fp8"),
    *(("max_num_seqs", requests) for requests in (16, 128, 1024)),
)
"""Settings that `--vary` boots the engine with, one after the other."""


@dataclass(frozen=True)
class ServerForecast(Printed):
    """What an engine holds on a device; prints as an answer and tables. Sizes in bytes.

    figures: what engines.py found; `others` are the same server with another setting: its name,
    blocks and tokens of its cache (0 where it does not fit), requests of the longest context, and
    how that is known. error_bytes: by how much CUDA's own memory may differ.
    """

    program: str
    device: Device
    torch: str
    figures: Mapping[str, Any]
    error_bytes: int

    @property
    def fits(self) -> bool:
        """Whether the engine boots, and serves at least one request of the longest context."""
        return not self.figures["refused"] and self._left_bytes >= 0

    @property
    def _left_bytes(self) -> int:
        return self.device.memory_bytes - int(self.figures["peak_bytes"])

    def to_dict(self) -> dict[str, Any]:
        """Return every figure, as `gmlake forecast --json` prints it."""
        return {"schema": "gmlake-forecast-server-1", **asdict(self), "fits": self.fits}

    def _tables(self) -> Tables:
        known = self.figures
        context = known["settings"]["max_model_len"]
        limit = f"{known['longest']:,} tokens"
        if known["longest"] == known["longest_of_model"]:
            limit += ", the model's own limit"
        cache = f"{known['tokens']:,} tokens in {known['blocks']:,} blocks of cache"
        if not known["tokens"]:
            cache = f"no cache for a request of {context:,} tokens"
        yield Text(f"{cache}; the longest request that fits: {limit}", "bold")
        yield Text(self._fits_in_words(), "green" if self.fits else "red")
        at_once = (f"{count:,.1f} of {tokens:,} tokens" for tokens, count in known["concurrency"])
        yield Text(f"requests at once: {', '.join(at_once)}")
        yield self._parts()
        yield self._others(context)
        rank = f", rank {known['rank']} of {known['ranks']}" if known["ranks"] > 1 else ""
        yield Text(
            f"said by {known['engine']}, which booted {known['architecture']} "
            f"({known['dtype']}{rank}) without its weights on a stand-in for the GPU, with PyTorch "
            f"{self.torch}; CUDA's own give or take {format_size(self.error_bytes)}",
            "dim",
        )

    def _fits_in_words(self) -> str:
        known = self.figures
        within = f"{self.device.label} ({format_size(self.device.memory_bytes)})"
        each = f", each of {known['ranks']}," if known["ranks"] > 1 else ""
        in_use = format_size(known["in_use_bytes"])
        if self.fits:
            sure = (
                "" if self._left_bytes >= self.error_bytes else ", if CUDA takes what is foreseen"
            )
            return f"fits {within}{each} with {in_use} in use after the start{sure}"
        if not known["refused"]:
            return f"does not fit {within}{each}: {in_use} in use after the start"
        said = printable(known["refused"].partition(". ")[0])
        missing = format_size(known["missing_bytes"])
        return f"does not fit {within}{each}: {missing} are missing; it says: {said}"

    def _parts(self) -> RenderableType:
        known = self.figures
        parts = {
            "weights": known["weights_bytes"],
            "activations of the largest step": known["activation_bytes"],
            "KV cache": 0 if known["refused"] else known["available_bytes"],
            "CUDA graphs": known["graphs_bytes"],
            "CUDA's context, kernels, libraries": known["cuda_bytes"],
        }
        parts["left"] = max(self.device.memory_bytes - sum(parts.values()), 0)
        table = new_table(None, "memory", "")
        for name, size_bytes in parts.items():
            table.add_row(name, format_size(size_bytes))
        return table

    def _others(self, context: int) -> RenderableType:
        table = new_table(None, "with", "tokens", f"requests\nof {context:,}")
        table.add_column("")
        for setting, _, tokens, requests, how in self.figures["others"]:
            table.add_row(setting, f"{tokens:,}", f"{requests:,.1f}", printable(how))
        return table


def program_of(words: Sequence[str]) -> tuple[list[str], str] | None:
    """Return what follows `python`, and the package of the engine that this starts, or None."""
    if words and _PYTHONS.match(Path(words[0]).name):
        words = words[1:]
    if not words:
        return None
    command = Path(words[0]).name
    if command in _COMMANDS:
        return ["-m", _COMMANDS[command], *words[1:]], command
    if words[0] == "-m":
        package = words[1].partition(".")[0] if len(words) > 1 else ""
        return (list(words), package) if package in _ENGINES else None
    script = Path(words[0])
    if script.is_file():
        found = _IMPORTS.search(script.read_text(encoding="utf-8", errors="replace"))
        return (list(words), found[2]) if found else None
    return None


def forecast_server(
    server: tuple[list[str], str],
    args: argparse.Namespace,
    progress: Callable[[str], None] | None = None,
) -> ServerForecast:
    """Boot the engine that a program starts, and foresee what it holds.

    server: as program_of() returns it. args: those of `gmlake forecast`. Raises ForecastError,
    StandinMissingError, ValueError.
    """
    if args.batch or args.output or args.record:
        raise ValueError("--batch, --output and --record are for a training, not for a server")
    if any(context < 1 for context in args.context):
        raise ValueError("--context N: a request has at least one token")
    device, version = device_of(args.on), launcher.check_pytorch()
    program, package = server
    if find_spec(package) is None:
        reason = f"{_ENGINES[package]} is not installed in {sys.prefix}"
        raise ForecastError(reason, f"pip install {package}")

    def boot(**settings: object) -> dict[str, Any]:
        setting = "".join(f" with {name} {value}" for name, value in settings.items())
        if progress is not None:
            progress(f"booting {_ENGINES[package]}{setting}")
        asked = {"settings": settings, "contexts": args.context, "rank": args.rank}
        return _boot(program, device, asked, args.timeout, is_shown=args.show_output)

    found = boot()
    if args.vary:
        found["others"] += list(_varied(found["settings"], boot))
    error_bytes = beyond({}, world=found["ranks"], is_checked=device.is_checked).error_bytes
    return ServerForecast(title_of(program), device, version, found, error_bytes)


def _varied(own: Mapping[str, Any], boot: Callable[..., dict[str, Any]]) -> Iterator[list[Any]]:
    """Yield the server with other settings than its own, booted."""
    for name, value in _VARIED:
        if value in (own.get(name), own["cache_dtype"]):
            continue
        row = [f"{name} {value}", 0, 0, 0.0]
        try:
            other = boot(**{name: value})
        except ForecastError as error:
            yield [*row, error.reason]
            continue
        refused = other["refused"].partition(". ")[0]
        requests = dict(other["concurrency"])[own["max_model_len"]]
        yield [row[0], other["blocks"], other["tokens"], requests, refused or "booted"]


def _boot(
    program: Sequence[str], device: Device, asked: object, seconds: float, *, is_shown: bool
) -> dict[str, Any]:
    """Return what engines.py found in a process of this program. Raises ForecastError."""
    # vLLM knows kernels, and how they are tuned, by the device's name.
    settings = {**_HOST, **device.settings(), "name": device.label}
    variables = {**_VARIABLES, **launcher.environment(settings)}
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    # Nothing that is compiled and tuned here is for a GPU.
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "gmlake"
    variables |= {"VLLM_CACHE_ROOT": f"{cache}/vllm", "TRITON_CACHE_DIR": f"{cache}/triton"}
    variables["GMLAKE_FORECAST_ASKED"] = json.dumps(asked)
    with tempfile.TemporaryDirectory(prefix="gmlake-forecast-") as folder:
        written = Path(folder, "found.json")
        variables["GMLAKE_FORECAST_ENGINE"] = str(written)
        code, said = end_of(program, variables, seconds, Path(folder), is_shown=is_shown)
        if code is None:
            raise ForecastError(f"the engine did not boot within {seconds:.0f} s", MORE_TIME)
        if not written.exists():
            raise ForecastError(
                "no engine of vLLM's or SGLang's was booted", "It printed last:", said
            )
        found: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
    if "error" in found:
        reason = " ".join(found["error"].split()).rstrip(".")
        advice = "--show-output shows what it prints"
        raise ForecastError(f"the engine did not boot: {reason}", advice)
    return found
