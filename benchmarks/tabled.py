"""A function for each table of a document that a result makes: `table(result) -> str`, pure."""

from __future__ import annotations

import json
import shlex
import statistics
from collections import Counter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from gpu.frontier import medians
from gpu.settings import FRONTIERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence


# ---- Markdown ------------------------------------------------------------------------------------


GIB = 1 << 30
MIB = 1 << 20
SOURCE = "{source}"
"""Where a caption names its result; whoever knows the document puts a link in its place."""

_COUNTS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_RECORDINGS = (".gmtrace", ".pickle")
_AFTER_COMMAND = ("--output", "--write")
"""Options that say where figures go, and nothing of what was measured."""


def grid(headings: str, rows: Iterable[Sequence[str]]) -> str:
    """Return a table. headings: `left | right :`, where a colon moves a column to the right."""
    names = [name.strip() for name in headings.split("|")]
    lines = [[name.removesuffix(" :") for name in names]]
    lines += [list(row) for row in rows]
    marks = "|".join("---:" if name.endswith(":") else "---" for name in names)
    shown = ["|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in lines]
    return "\n".join([shown[0], f"|{marks}|", *shown[1:]])


def number(value: float | None, digits: int = 2, unit: float = 1) -> str:
    """Return a figure as tables have it; nothing where there is none."""
    return "" if value is None else f"{value / unit:,.{digits}f}"


def marked(figure: str, runs: int) -> str:
    """Return a figure with a mark where it rests on one run alone."""
    return f"{figure} †" if figure and runs == 1 else figure


def spread(values: Sequence[float], digits: int, unit: float = 1) -> str:
    """Return the median of several runs with the least and the most, or the mark of one run."""
    median = number(statistics.median(values), digits, unit)
    if len(values) == 1:
        return marked(median, 1)
    least, most = (number(value, digits, unit) for value in (min(values), max(values)))
    return f"{median} ({least} to {most})"


def counted(many: int, what: str = "run") -> str:
    """Return how many there are, in words."""
    said = _COUNTS[many] if 0 < many < len(_COUNTS) else f"{many:,}"
    return f"{said} {what}" if many == 1 else f"{said} {what}s"


def command_of(run: dict[str, Any]) -> str:
    """Return the command of a run in short.

    Left out is where its figures go; several files of one folder are one pattern, and files from
    outside of the checkout have no name.
    """
    kept: list[str] = []
    is_name = False
    for word in shlex.split(run["command"]):
        if is_name and not word.startswith("-"):
            is_name = False
            continue
        is_name = word in _AFTER_COMMAND
        said = _in_short(word)
        if not is_name and not (said != word and said == kept[-1]):
            kept.append(said)
    return " ".join(kept)


def _in_short(word: str) -> str:
    if word.startswith(("/", "..")):
        return "FILE..."
    path = PurePosixPath(word)
    return f"{path.parent}/*{path.suffix}" if path.suffix in _RECORDINGS else word


def caption(run: dict[str, Any], runs: Collection[int] | str, *, versions: str = "") -> str:
    """Return the line that says where the figures above are from.

    runs: on how many runs the figures rest, or what they are in words. versions: what else ran,
    such as PyTorch's.
    """
    gpu = run.get("gpu", "none")
    several, single = [runs] if isinstance(runs, str) else [], ""
    if not isinstance(runs, str):
        several = [counted(each) for each in sorted(set(runs)) if each > 1]
        single = "† one run" if 1 in runs else ""
    said = (
        f"`{command_of(run)}`",
        f"commit {run['commit']}",
        run["date"],
        run["processor"] if gpu.startswith("none") else gpu,
        ", ".join(filter(None, (versions, f"Python {run['python']}"))),
        " or ".join(several),
        single,
    )
    return f"<sub>{SOURCE}: {'; '.join(filter(None, said))}.</sub>"


def torch_of(versions: dict[str, str] | str | None) -> str:
    """Return PyTorch's version as captions have it."""
    version = versions.get("torch") if isinstance(versions, dict) else versions
    return f"PyTorch {version}" if version else ""


def table(headings: str, rows: Iterable[Sequence[str]], *captions: str) -> str:
    """Return a table with its captions below."""
    return "\n\n".join([grid(headings, rows), "<br>\n".join(dict.fromkeys(captions))])


ALLOCATORS = ("expandable", "default", "gmlake")
NAMES = {
    "expandable": "expandable segments",
    "default": "PyTorch's default",
    "gmlake": "gmlake",
}


# ---- gpu.against ---------------------------------------------------------------------------------


PROGRAMS = {
    "llama-1b": "Llama 1.1B, all parameters trained",
    "llama-1b-checkpoint": "Llama 1.1B, checkpointed",
    "llama-3b": "Llama 3B, all parameters trained",
    "llama-3b-checkpoint": "Llama 3B, checkpointed",
    "lora": "LoRA 1.1B",
    "moe": "mixture of experts, random routing",
    "convnet": "convolutions, mixed resolutions",
    "generate": "text generation",
    "fsdp2": "Llama 2.2B, FSDP2",
}


def programs(result: dict[str, Any]) -> str:
    """Return a row for each program and GPU: the peak reserved and the time, by allocator."""
    rows: dict[str, list[tuple[list[str], str]]] = {name: [] for name in PROGRAMS}
    for part in result.get("parts", [result]):
        many = [row["finished"] for row in part["summary"]]
        source = caption(part["run"], many, versions=torch_of(part["versions"]))
        gpu = part["run"]["gpu"].removeprefix("NVIDIA ").split()[0]
        for name in part["steps"]:
            found = {
                row["allocator"]: row
                for row in part["summary"]
                if row["program"] == name and row["finished"]
            }
            if found.keys() >= set(ALLOCATORS):
                rows[name].append(([PROGRAMS[name], gpu, *_compared(found)], source))
    every = [each for of_name in rows.values() for each in of_name]
    return table(
        f"program | GPU | runs : | live, GiB : | reserved, GiB: {NAMES['expandable']} : "
        f"| {NAMES['default']} : | gmlake : | seconds: {NAMES['expandable']} : "
        f"| {NAMES['default']} : | gmlake :",
        [row for row, _ in every],
        *(source for _, source in every),
    )


def _compared(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return the runs, what lives under gmlake, and what each allocator reserved and took."""
    runs = {each: found[each]["finished"] for each in ALLOCATORS}
    live = found["gmlake"]["peak_allocated_bytes"]["median"]
    return [
        *(" or ".join(map(str, sorted(set(runs.values())))), number(live, 2, GIB)),
        *(
            marked(number(found[each][what]["median"], 2, unit), runs[each])
            for what, unit in (("peak_reserved_bytes", GIB), ("late_seconds", 1))
            for each in ALLOCATORS
        ),
    ]


# ---- gpu.turns -----------------------------------------------------------------------------------


_BASES = ("expandable", "default")
_OF_TURNS = {
    **PROGRAMS,
    "lora": "LoRA of twelve layers of Llama 1.1B",
    "moe": "half of a mixture of experts, random routing",
    "launch-bound": "Llama of 22 narrow layers, which launches bound",
}


def _ratio(ratio: dict[str, float] | None, processes: int) -> str:
    if ratio is None:
        return ""
    said = f"{ratio['ratio']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
    return marked(said, processes)


def turns(result: dict[str, Any]) -> str:
    """Return a row for each program: the ratio of its pairs of steps to each other allocator."""
    found = [told for told in result["comparisons"] if "failed" not in told]
    if different := [told["program"] for told in found if not told["has_same_losses"]]:
        raise ValueError(f"losses differ: {different}")
    many = Counter((told["program"], told["side"], told["base"]) for told in found)
    rows: dict[str, dict[str, list[str]]] = {}
    captions = []
    for told in (each for each in found if each["side"] == "gmlake"):
        processes = many[told["program"], "gmlake", told["base"]]
        rows.setdefault(told["program"], {})[told["base"]] = [
            _ratio(told["ratios"].get("wall"), processes),
            f"{told['pairs']}",
            number(told["driver_per_step"]["gmlake"]["ms"], 2),
        ]
        run = told.get("run") or result["run"]
        captions.append(caption(run, [processes], versions=torch_of(told["torch"])))
    groups = (f"{NAMES[base]}: time of a step | pairs : | driver, ms :" for base in _BASES)
    return table(
        " | ".join(["program", *groups]),
        [
            [_OF_TURNS[name], *(cell for base in _BASES for cell in by_base[base])]
            for name, by_base in rows.items()
        ],
        *captions,
    )


# ---- gpu.frontier --------------------------------------------------------------------------------


_SHOWN = 3
"""Of each model the longest lengths."""
_ORDER = ("expandable", "default", "async", "gmlake")
_WITH_ASYNC = {**NAMES, "async": "`cudaMallocAsync`"}


def _runs_of(result: dict[str, Any], model: str) -> list[dict[str, Any]]:
    """Return the runs of a model that tell anything."""
    return [run for run in result["runs"] if run["model"] == model and "failed" not in run]


def _captions(result: dict[str, Any], runs: list[dict[str, Any]]) -> list[str]:
    """Return what made the runs of a model, and how many each allocator has of it."""
    by_maker: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_maker.setdefault(json.dumps(run.get("run") or result["run"]), []).append(run)
    captions = []
    for maker, those in by_maker.items():
        counts = {sum(run["allocator"] == each["allocator"] for run in those) for each in those}
        of_several = " or ".join(map(counted, sorted(counts)))
        captions.append(
            caption(
                json.loads(maker),
                counts if len(by_maker) == 1 else of_several,
                versions=torch_of(those[0]["torch"]),
            )
        )
    return captions


def speeds(result: dict[str, Any]) -> str:
    """Return a row for each model and length: tokens a second, and gmlake's time in the driver."""
    rows, captions = [], []
    for model in dict.fromkeys(run["model"] for run in result["runs"]):
        runs = _runs_of(result, model)
        found = medians(runs)
        title = FRONTIERS[model]
        lengths = sorted({length for by_length in found.values() for length in by_length})
        for longest in lengths[-_SHOWN:]:
            cells, shares = [], []
            for name in _ORDER:
                there = [
                    told
                    for run in runs
                    for told in run["lengths"]
                    if run["allocator"] == name and told["longest"] == longest
                ]
                is_through = longest in found.get(name, {})
                cells.append(number(found[name][longest][1], 0) if is_through else "")
                if name == "gmlake" and is_through:
                    shares = [told["driver_ns"] / told["timed_seconds"] / 1e7 for told in there]
            rows.append([title, f"{longest:,}", *cells, spread(shares, 1) if shares else ""])
            title = ""
        captions += _captions(result, runs)
    return table(
        f"model | longest sequence : | {' : | '.join(_WITH_ASYNC[name] for name in _ORDER)} : "
        "| gmlake's calls of the driver, % of the time :",
        rows,
        *captions,
    )


# ---- forecast/compare.py -------------------------------------------------------------------------


_WITHIN = (1, 2)


def errors(result: dict[str, Any]) -> str:
    """Return the errors of all programs of one device, in percent of what was measured."""
    told = list(result["programs"].values())
    found = {"live": [each["live"]["error"] for each in told]}
    for what, words in (("reserved", "reserved"), ("in_use", "in use on the device")):
        for allocator in ALLOCATORS:
            found[f"{words}: {NAMES[allocator]}"] = [
                each[allocator][what]["error"] for each in told
            ]
    rows = []
    for title, values in found.items():
        percents = sorted(100 * abs(value) for value in values)
        within = (sum(percent <= most for percent in percents) for most in _WITHIN)
        middle = number(statistics.median(percents), 2)
        rows.append([title, middle, number(percents[-1], 2), *map(str, within)])
    run = result["run"]
    about = f"{len(told)} programs, each measured once"
    return table(
        "error, % | median : | largest : | programs within 1 % : | within 2 % :",
        rows,
        caption(run, about, versions=torch_of(result["versions"])),
    )


# ---- gpu.handing ---------------------------------------------------------------------------------


_HANDING = {
    "shared": '`share="device"`',
    "default": "PyTorch's default, `empty_cache()`",
    "expandable": "expandable segments, `empty_cache()`",
}


def handing(result: dict[str, Any]) -> str:
    """Return a row for each way: how long a turn waited for its memory, in ms."""
    rows = []
    for way, name in _HANDING.items():
        told = result["ways"].get(way)
        if told is None:
            continue
        rows.append(
            [
                name,
                str(told["turns"]),
                *(
                    marked(number(told[which] * 1e3, 0), 1)
                    for which in ("median_seconds", "p99_seconds", "most_seconds")
                ),
                str(len(told["refused"])),
                "equal" if told["has_same_bits"] else "differ",
                f"{100 * told['used_after_the_kill']:.1f} %",
            ]
        )
    handed = number(result["ways"]["shared"]["handed_bytes"], 1, GIB)
    return table(
        "allocator | turns : | median, ms : | 99th percentile : | longest : | refused : | bits "
        "| of the device, after the kill :",
        rows,
        caption(result["run"], f"{handed} GiB handed over in each turn; † one run"),
    )


# ---- gpu.sleeping --------------------------------------------------------------------------------


_SLEEPERS = {
    "gmlake": "`gmlake.sleep`, `gmlake.wake`",
    "compat": "the same by torch_memory_saver's interface",
    "torch_memory_saver": "torch_memory_saver, default settings",
    "torch_memory_saver_retained": "torch_memory_saver, `retain_cpu_backup`",
}


def sleeping(result: dict[str, Any]) -> str:
    """Return a row for each way to let a model sleep; the first sleep takes host memory."""
    rows = []
    ran = {way: told for way, told in result["ways"].items() if "failed" not in told}
    for way, title in _SLEEPERS.items():
        if way not in ran:
            continue
        told = ran[way]
        rows.append(
            [
                title,
                number(told["first_sleep_seconds"], 2),
                *(spread(told[f"{part}_seconds"], 3) for part in ("sleep", "wake")),
                *(number(statistics.median(told["copies"][side]), 3) for side in ("out", "in")),
                number(told["stays_bytes"], 0, MIB),
            ]
        )
    if different := [way for way, told in ran.items() if not told["has_same_logits"]]:
        raise ValueError(f"logits differ: {different}")
    told = next(iter(ran.values()))
    rounds = f"{counted(len(told['sleep_seconds']), 'round')} after the first, in one process"
    return table(
        "way | first sleep, s : | sleep, s : | wake, s : | plain copy out, s : | in, s : "
        "| stays, MiB :",
        rows,
        caption(result["run"], rounds, versions=torch_of(told)),
    )


# ---- gpu/engines.py ------------------------------------------------------------------------------


_SERVED_BY = {
    "default": "PyTorch's default",
    "expandable": "expandable segments",
    "gmlake": "gmlake",
}


def _engines(
    result: dict[str, Any], work: str, headings: str, cells: Callable[[dict[str, Any]], list[str]]
) -> str:
    """Return a row for each process of a work; all gave the same answers, and none failed."""
    runs = result["works"][work]
    every = [told for rounds in runs.values() for told in rounds]
    if len({told["answers"] for told in every}) != 1:
        raise ValueError(f"answers of {work} differ")
    rows = [
        [_SERVED_BY[allocator], *cells(told)]
        for allocator, rounds in runs.items()
        for told in rounds
    ]
    said = torch_of(every[0]["versions"]) + f", vLLM {every[0]['versions']['vllm']}"
    return table(
        f"allocator | {headings}",
        rows,
        caption(result["run"], "rounds in one process each", versions=said),
    )


def serving(result: dict[str, Any]) -> str:
    """Return what a server took, in time and in memory."""
    return _engines(
        result,
        "serve-eager",
        "100 prompts, s : | reserved, GiB : | device in use, GiB : | KV blocks :",
        lambda told: [
            spread(told["seconds"], 2),
            number(told["peak_reserved_bytes"], 2, GIB),
            number(told["used_at_end_bytes"], 2, GIB),
            number(told["kv_blocks"], 0),
        ],
    )


def engine_sleep(result: dict[str, Any]) -> str:
    """Return the seconds of each move of vLLM's sleep mode; the first sleep takes host memory."""
    moves = ("sleep_1", "wake_1", "sleep_2", "wake_2_weights", "wake_2_cache")
    return _engines(
        result,
        "sleep",
        "first sleep : | level 1: sleep : | wake : | level 2: sleep : | weights wake : "
        "| cache wakes :",
        lambda told: [
            number(told["sleep_1"][0], 2),
            *(spread(told[move][move == "sleep_1" :], 3) for move in moves),
        ],
    )


# ---- utilization.py ------------------------------------------------------------------------------


def reserved(result: dict[str, Any]) -> str:
    """Return live bytes as a share of what was reserved, and the price of all driver calls."""
    traces: dict[str, dict[str, Any]] = {}
    for told in result["results"]:
        traces.setdefault(told["trace"], {})[told["policy"]] = told
    rows = [
        [
            name,
            number(found["stitch"]["peak_live_bytes"], 2, GIB),
            *(
                number(found[each]["utilization"], 4)
                for each in ("caching", "expandable", "stitch")
            ),
            *(number(found[each]["driver_time_ns"], 0, 1e6) for each in ("expandable", "stitch")),
        ]
        for name, found in traces.items()
    ]
    return table(
        "trace | live GiB : | caching : | expandable : | stitch : "
        "| driver ms: expandable : | stitch :",
        rows,
        caption(result["run"], "a replay comes to the same each time"),
    )


TABLES: dict[tuple[str, str], Callable[[dict[str, Any]], str]] = {
    ("forecast_errors", "errors"): errors,
    ("gpu_engines", "serving"): serving,
    ("gpu_engines", "sleep"): engine_sleep,
    ("gpu_frontier", "speeds"): speeds,
    ("gpu_handing", "turns"): handing,
    ("gpu_sleeping", "ways"): sleeping,
    ("gpu_turns", "turns"): turns,
    ("gpu_varying", "programs"): programs,
    ("utilization_varying", "reserved"): reserved,
}
"""By the name of the result and that of the table: `<!-- from gpu_turns: turns -->`."""
