"""Tables that say how the papers' trainings fare, from their result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from papers import published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from papers.published import Said

_WAYS = (
    *("caching", "expandable", "stitch", "stitch, memory", "plan"),
    *("gmlake-paper", "gmlake-paper, 2 MiB"),
)
_GIB = 1 << 30
_H200_BYTES = 141e9


def _markdown(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    headings = list(headings)
    rule = f"|---|{'---:|' * (len(headings) - 1)}"
    rest = [f"| {' | '.join(cells)} |" for cells in (headings, *rows)]
    return "\n".join([rest[0], rule, *rest[1:]])


def _range(said: Said | None) -> str:
    if said is None:
        return ""
    if said.low == said.high:
        return f"{said.low:.3g}"
    if said.low == 0:
        return f"< {said.high:.3g}"
    return f"> {said.low:.3g}" if said.high == 1 else f"{said.low:.3g} to {said.high:.3g}"


def said_of(job: dict[str, Any]) -> dict[str, Said]:
    """Return what the papers say of a job, by whose figures they are."""
    figure, strategy = job["figure"], job["strategy"]
    found: dict[str, Said] = {}
    if job["paper"] == "gmlake":
        if figure == "10" and strategy not in ("N", "R"):
            found = dict(published.STRATEGIES)
        if figure == "11":
            found[published.WITH_STITCHING] = published.RANKS_STITCHED
            if job["model"] == "opt-13b" and job["ranks"] in published.RANKS:
                found[published.STOCK] = published.RANKS[job["ranks"]]
        if figure == "13":
            found = dict(published.BATCHES)
        return found
    if figure == "8":
        found = dict(published.EXPERTS if job["model"] == "qwen1.5-moe" else published.DENSE)
        if job["model"] == "gpt2-345m" and strategy in published.GPT2:
            found[published.STOCK] = published.GPT2[strategy]
    elif figure in published.LARGER:
        found[published.WITH_PLANS] = published.LARGER[figure]
    return found


def _share(told: dict[str, Any]) -> str:
    return "refused" if told["refused"] else f"{told['utilization']:.4f}"


def _device(job: dict[str, Any]) -> str:
    size = job["capacity_bytes"]
    return f"{size // _GIB}" if size else "1024"


def _shares(paper: str, names: tuple[str, ...]) -> Callable[[dict[str, Any]], str]:
    def table(result: dict[str, Any]) -> str:
        rows = []
        for job in result["jobs"]:
            if job["paper"] != paper:
                continue
            told, said = job["policies"], said_of(job)
            rows.append(
                [
                    job["name"],
                    job["figure"],
                    _device(job),
                    f"{told['stitch']['live_bytes'] / _GIB:.1f}",
                    *(_share(told[way]) for way in _WAYS),
                    *(_range(said.get(name)) for name in names),
                ]
            )
        return _markdown(["training", "figure", "device", "live GiB", *_WAYS, *names], rows)

    return table


def costs(result: dict[str, Any]) -> str:
    """Return reserved memory, all of a figure, and the driver's part, the mean of it."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for job in result["jobs"]:
        groups.setdefault((job["paper"], job["figure"]), []).append(job["policies"])
    rows = []
    for (paper, figure), jobs in groups.items():
        sums = [sum(told[way]["wanted_bytes"] for told in jobs) / _GIB for way in _WAYS]
        times = [sum(told[way]["driver_ms"] for told in jobs) / len(jobs) for way in _WAYS]
        title = f"{'GMLake' if paper == 'gmlake' else 'STAlloc'}, {figure}"
        cells = [f"{size:,.1f}, {time:,.0f} ms" for size, time in zip(sums, times, strict=True)]
        rows.append([title, str(len(jobs)), *cells])
    return _markdown(["figure", "trainings", *_WAYS], rows)


def _batch(bracket: dict[str, Any], grain: int) -> str:
    fits, refused = bracket["fits"], bracket["refused"]
    if refused is None:
        return f"{fits} or more"
    return str(fits) if refused - fits <= grain else f"{fits} to {refused - grain}"


def largest(result: dict[str, Any]) -> str:
    """Return the largest batches of the jobs for which they were looked for."""
    rows = []
    ways: list[str] = []
    for job in result["jobs"]:
        for capacity, found in job.get("largest", {}).items():
            ways = list(found)
            cells = [_batch(bracket, job["grain"]) for bracket in found.values()]
            rows.append([job["name"], capacity.replace("GiB", " GiB"), str(job["grain"]), *cells])
    return _markdown(["training", "device", "in steps of", *ways], rows)


def fits(result: dict[str, Any]) -> str:
    """Return what fits the 141 GB of an H200, beside STAlloc's table 1."""
    words = {True: "fits", False: "refused"}
    rows = []
    for job in result["jobs"]:
        if job["name"] not in published.FITS_141:
            continue
        said = published.FITS_141[job["name"]]
        told = job["policies"]
        for way, other in (
            ("caching", "caching"),
            ("expandable", "expandable"),
            ("stitch", "plans"),
        ):
            reserved = told[way]["wanted_bytes"]
            name = (
                "STAlloc" if other == "plans" else "PyTorch" if other == "caching" else "PyTorch ES"
            )
            cells = [
                f"{reserved / 1e9:.1f}",
                words[reserved <= _H200_BYTES],
                f"{name}: {words[said[other]]}",
            ]
            rows.append([job["name"], way, *cells])
    return _markdown(["training", "policy", "reserved GB", "141 GB", "paper"], rows)


def exceptions(result: dict[str, Any]) -> str:
    """Return where `stitch` misses what is wanted of it."""
    rows = [
        [each["name"], "; ".join(each["missed"]), "; ".join(each["left"]) or "nothing"]
        for each in result["exceptions"]
    ]
    return _markdown(["training", "missed", "left with `optimize_for=memory`"], rows)


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "gmlake": _shares("gmlake", (published.STOCK, published.WITH_STITCHING)),
    "stalloc": _shares(
        "stalloc",
        (published.STOCK, published.GROWING, published.WITH_STITCHING, published.WITH_PLANS),
    ),
    "costs": costs,
    "largest": largest,
    "fits": fits,
    "exceptions": exceptions,
}
"""Functions that make a table from the result, by its name (tabled)."""


def tables(result: dict[str, Any]) -> dict[str, str]:
    """Return every table by its name."""
    return {name: make(result) for name, make in TABLES.items()}
