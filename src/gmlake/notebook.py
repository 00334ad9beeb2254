"""The cell magic %%gmlake: runs a cell of a notebook under gmlake and shows what it did.

    %load_ext gmlake

    %%gmlake --policy stitch
    train()

IPython loads this, so nothing here imports it.
"""

from __future__ import annotations

import argparse
import ast
import shlex
import warnings
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, NoReturn

import gmlake
from gmlake.commands import common
from gmlake.errors import Error, GmlakeWarning
from gmlake.lake import Lake
from gmlake.pictures.page import in_notebook
from gmlake.snapshots import report_of
from gmlake.tables import new_table
from gmlake.units import format_size

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from gmlake.pictures.figures import Report
    from gmlake.planning import PlanReport
    from gmlake.pytorch.recording import Recording
    from gmlake.replaying import ReplayReport
    from gmlake.snapshots import Snapshot
    from gmlake.trace import Trace

MAGIC: Final = "gmlake"
_WIDTH: Final = 100

# A frame with a variable __tracebackhide__ is left out of what IPython shows of an error.
_DESCRIPTION: Final = """Run a cell with its GPU memory served by gmlake, and show what it did:
its memory over time, where it lay, and the largest blocks at the peak. Lakes that the cell's
variables hold are shown as a table. Where the cell fails, the report still comes, and then the
error."""


def load_ipython_extension(shell: Any) -> None:  # noqa: ANN401 (IPython is not imported)
    """Make the magic known; what `%load_ext gmlake` calls."""

    def run(line: str, cell: str) -> None:
        __tracebackhide__ = True
        _run(shell, line, cell)

    run.__doc__ = _parser().format_help()
    shell.register_magic_function(run, magic_kind="cell", magic_name=MAGIC)


def unload_ipython_extension(shell: Any) -> None:  # noqa: ANN401
    """Forget the magic."""
    shell.magics_manager.magics["cell"].pop(MAGIC, None)


def show(source: Snapshot | Trace | ReplayReport | PlanReport) -> Drawn:
    """Return something that a notebook draws, as the last value of a cell: with zoom and hover.

    Raises TraceError for a trace that contradicts itself, TypeError for anything else.
    """
    return Drawn(report_of(source), source)


class Drawn:
    """A report that a notebook draws; its text where nothing can draw it."""

    def __init__(self, report: Report, source: object) -> None:
        """Keep what to draw, and what it was made of."""
        self.report = report
        self._source = source

    def __repr__(self) -> str:
        """Return plain text."""
        return str(self._source)

    def _repr_html_(self) -> str:
        """Return pictures that need nothing from the network; without Bokeh tables."""
        return in_notebook(self.report)


class Shown:
    """Tables and lines that a notebook draws as HTML, and a terminal as text."""

    def __init__(self, *parts: RenderableType) -> None:
        """Keep what to draw, one below the other."""
        self._parts = parts

    def __repr__(self) -> str:
        """Return plain text."""
        console = _console()
        console.print(*self._parts, sep="\n")
        return "\n".join(line.rstrip() for line in console.export_text().splitlines())

    def _repr_html_(self) -> str:
        """Return HTML whose colours of text and page are the notebook's, which may be dark."""
        console = _console()
        console.print(*self._parts, sep="\n")
        style = "line-height:normal;overflow-x:auto;font-family:monospace"
        return console.export_html(
            inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
        )


def _console() -> Console:
    """Return a console that shows nothing by itself, as rich would in a notebook."""
    from rich.console import Console

    return Console(file=StringIO(), record=True, width=_WIDTH, force_jupyter=False)


# ---- the magic


class _Parser(argparse.ArgumentParser):
    """Says what is wrong as IPython says it, instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        _refuse(f"{message}; see %%{MAGIC}?")


def _parser() -> _Parser:
    parser = _Parser(
        prog=f"%%{MAGIC}", description=_DESCRIPTION, add_help=False, allow_abbrev=False
    )
    add = parser.add_argument
    add("name", nargs="?", help="a variable that shall hold the snapshot")
    add("--policy", metavar="NAME", help="who places memory (default: stitch)")
    add("--mode", default="auto", metavar="MODE", help="full, pool or auto (default)")
    add("--capacity", type=common.size_argument, metavar="SIZE", help="most memory to hold")
    common.add_settings_option(parser)
    add("--frames", action="store_true", help="note the Python call path of each request; slower")
    add("--quiet", action="store_true", help="show nothing; for use with a name")
    return parser


def _run(shell: Any, line: str, cell: str) -> None:  # noqa: ANN401
    __tracebackhide__ = True
    try:
        options = _parser().parse_args(shlex.split(line))
    except ValueError as error:
        _refuse(error)
    if options.name is not None and not options.name.isidentifier():
        _refuse(f"{options.name!r} is not the name of a variable")
    code = _compiled(shell, cell)
    before = _lakes(shell.user_ns)
    served, outcome = _serve(options)
    try:
        with served:
            _execute(shell, code)
    finally:
        _tell(shell, options, outcome, before)


class _Outcome:
    """What became of a cell's tensors: a snapshot, or why there is none."""

    def __init__(self, absence: str, recording: Recording | None = None) -> None:
        self.absence = absence
        self._recording = recording

    @property
    def snapshot(self) -> Snapshot | None:
        """What was recorded; None before the end, and where nothing was asked of a GPU."""
        found = None if self._recording is None else self._recording.snapshot
        return found if found is not None and found.devices else None


def _serve(options: argparse.Namespace) -> tuple[ExitStack, _Outcome]:
    """Begin to serve and to record; the first of the two ends it."""
    if find_spec("torch") is None:
        return ExitStack(), _Outcome("PyTorch is not installed")
    with ExitStack() as stack:
        try:
            region = gmlake.enabled(
                options.policy,
                mode=options.mode,
                capacity=options.capacity,
                **dict(options.settings),
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", GmlakeWarning)  # the report says the same
                stack.enter_context(region)
            if region.mode == "off":
                return stack.pop_all(), _Outcome(region.why)
            recording = stack.enter_context(gmlake.record(frames=options.frames))
        except (Error, ValueError, RuntimeError) as error:
            _refuse(error)
        return stack.pop_all(), _Outcome("the cell asked for no memory of a GPU", recording)


def _compiled(shell: Any, cell: str) -> tuple[Any, Any]:  # noqa: ANN401
    """Return the code of a cell: its statements, and the expression at its end, if it has one."""
    __tracebackhide__ = True
    text = shell.transform_cell(cell)
    name = shell.compile.cache(text, raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(text, filename=name))
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
        last = shell.compile(ast.Expression(tree.body.pop().value), name, "eval")
    return shell.compile(tree, name, "exec"), last


def _execute(shell: Any, code: tuple[Any, Any]) -> None:  # noqa: ANN401
    __tracebackhide__ = True
    statements, last = code
    exec(statements, shell.user_ns)  # noqa: S102 (the cell that the user wrote)
    if last is not None:
        value = eval(last, shell.user_ns)  # noqa: S307
        if value is not None:
            _display(value)


def _refuse(reason: object) -> NoReturn:
    """End the magic with one line, and no traceback."""
    usage_error: type[Exception] = import_module("IPython.core.error").UsageError
    raise usage_error(str(reason)) from None


def _display(value: object) -> None:
    import_module("IPython.display").display(value)


# ---- what it did

_Stats = dict[str, Any]


def _lakes(variables: dict[str, Any]) -> dict[str, tuple[gmlake.Lake, _Stats]]:
    """Return the open lakes that variables hold, by name, with their counters."""
    return {
        name: (lake, dict(lake.stats()))
        for name, lake in variables.items()
        if isinstance(lake, Lake) and not lake.closed and not name.startswith("_")
    }


def _tell(
    shell: Any,  # noqa: ANN401
    options: argparse.Namespace,
    outcome: _Outcome,
    before: dict[str, tuple[gmlake.Lake, _Stats]],
) -> None:
    """Keep and show what a cell did."""
    from rich.text import Text

    snapshot = outcome.snapshot
    if options.name is not None:
        shell.user_ns[options.name] = snapshot
    if options.quiet:
        return
    if snapshot is None:
        _display(Shown(Text(f"gmlake served no tensor: {outcome.absence}")))
    else:
        _display(show(snapshot))
    after = _lakes(shell.user_ns)
    used = {name: entry for name, entry in after.items() if entry != before.get(name)}
    if used:
        _display(Shown(_lakes_table(used, before)))


def _lakes_table(
    lakes: dict[str, tuple[gmlake.Lake, _Stats]], before: dict[str, tuple[gmlake.Lake, _Stats]]
) -> Table:
    from rich.text import Text

    table = new_table(Text("lakes that the cell used"))
    table.add_column("variable")
    for name in ("live", "reserved", "reserved\nat most", "served", "driver\ncalls"):
        table.add_column(name, justify="right")
    for name, (lake, stats) in lakes.items():
        old_lake, old = before.get(name, (None, {}))
        counted = old if old_lake is lake else {}
        calls = _difference(stats["driver_calls"], counted.get("driver_calls", {}))
        cells = [
            format_size(stats["live_bytes"]),
            format_size(stats["reserved_bytes"]),
            format_size(stats["peak_reserved_bytes"]),
            _counts(stats["states"], counted.get("states", {})),
            f"{sum(calls.values()):,}",
        ]
        table.add_row(Text(name), *cells)
    return table


def _difference(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: count - before.get(name, 0) for name, count in now.items()}


def _counts(now: dict[str, int], before: dict[str, int]) -> str:
    """Return how requests were served since, as "exact 12, split 3"."""
    counts = _difference(now, before)
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count) or "nothing"
