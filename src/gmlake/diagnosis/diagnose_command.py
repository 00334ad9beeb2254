"""gmlake diagnose."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group

from gmlake.budget import Budget
from gmlake.commands import common
from gmlake.diagnosis.detect import Diagnosis, find_inefficiencies
from gmlake.diagnosis.object_trace import ObjectTrace
from gmlake.diagnosis.programs import Accesses, watch_program
from gmlake.diagnosis.report import diagnosis_tables
from gmlake.diagnosis.words import Pattern

_USAGE = """gmlake diagnose [options] FILE ...
       gmlake diagnose [options] -- PROGRAM [ARGUMENT ...]"""
_MOST_GRANULE = 65536
_EXIT_CODES = (
    "A program runs as it is, with CUPTI telling of every call to the CUDA driver; with --accesses "
    "its kernels are patched, and tell what they read and write. One of PyTorch "
    "is better diagnosed from inside, by `with gmlake.diagnose():`. "
    "exit code: 0 if every file was read or the program ended with 0, whatever was found, 1 if the "
    "output could not be written, 2 for a wrong argument, a file that could not be diagnosed or a "
    "program that could not be watched; else the program's"
)


class DiagnoseCommand(common.Command):
    """Find patterns of memory inefficiency in traces of objects, each with the line to change."""

    takes_program = True

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = _USAGE
        parser.epilog = _EXIT_CODES
        parser.add_argument(
            "files",
            nargs="*",
            metavar="FILE",
            help="a trace of objects, as ObjectTrace.save() writes it (.gmobjects)",
        )
        parser.add_argument(
            "--pattern",
            action="append",
            type=_pattern,
            dest="patterns",
            metavar="NAME",
            help=f"look for this pattern only; may be given several times: "
            f"{', '.join(pattern.words for pattern in Pattern)}",
        )
        parser.add_argument(
            "--all",
            action="store_true",
            help="also show what saves nothing of the peak by itself",
        )
        parser.add_argument(
            "-o",
            "--output",
            metavar="PAGE",
            help="write a page that shows calls, objects and what to change",
        )
        parser.add_argument(
            "--save", metavar="FILE", help="write the trace of a program, to be diagnosed again"
        )
        _add_access_options(parser)
        common.add_json_option(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Diagnose each file, or a program; print a table for each, or one JSON."""
        _check_usage(args)
        found: list[Diagnosis] = []
        if args.program is None:
            code = common.run_each(
                args.files, lambda path: found.append(_diagnose(path, args.patterns))
            )
        else:
            code = _watch(args, found)
        if args.json:
            common.print_json({"results": [one.to_dict() for one in found]})
        else:
            for one in found:
                common.print_report(Group(*diagnosis_tables(one, show_all=args.all)))
        return _write_files(args, found) or code


def _add_access_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--accesses",
        action="store_true",
        help="patch the kernels of a program, to see which bytes each reads and writes, and how "
        "often: needs nvidia-cuda-sanitizer-api",
    )
    parser.add_argument(
        "--granule",
        type=_granule,
        metavar="BYTES",
        help=f"with --accesses, count the accesses to each so many bytes, a power of two "
        f"({Accesses().granule_bytes}); 0: see which objects a kernel accesses, which is faster",
    )
    parser.add_argument(
        "--every",
        type=common.count_argument,
        metavar="N",
        help="with --accesses, look at each N-th launch of a kernel with the same objects (1)",
    )


def _check_usage(args: argparse.Namespace) -> None:
    if not args.accesses and (args.granule is not None or args.every is not None):
        raise ValueError("--granule and --every say how --accesses looks at kernels; add it")
    if args.program is None and args.accesses:
        raise ValueError("--accesses patches the kernels of a program; there is none after --")
    if args.program is None:
        if not args.files:
            raise ValueError("name a trace of objects, or a program after --")
        if args.save is not None:
            raise ValueError("--save writes the trace of a program; there is none after --")
    elif args.files or not args.program:
        raise ValueError("name either traces of objects, or one program after --")


def _watch(args: argparse.Namespace, found: list[Diagnosis]) -> int:
    """Run a program and diagnose each of its processes; return its exit code."""
    try:
        watched = watch_program(args.program, _accesses(args))
    except (FileNotFoundError, PermissionError) as error:
        raise ValueError(f"cannot run {args.program[0]}: {error.strerror}") from None
    for note in watched.notes:
        common.print_error(note)
    found += [find_inefficiencies(trace, patterns=args.patterns) for trace in watched.traces]
    return watched.code


def _accesses(args: argparse.Namespace) -> Accesses | None:
    if not args.accesses:
        return None
    granule = Accesses().granule_bytes if args.granule is None else args.granule
    return Accesses(granule, args.every or 1)


def _write_files(args: argparse.Namespace, found: Sequence[Diagnosis]) -> int:
    """Write the requested files; for several traces, one numbered file each."""
    for number, one in enumerate(found):
        for name, write in ((args.output, one.write_html), (args.save, one.trace.save)):
            if name is None:
                continue
            path = _numbered(Path(name), number if len(found) > 1 else None)
            try:
                write(path)
            except OSError as error:
                common.print_error(f"cannot write {path}: {error.strerror}")
                return common.CANNOT_WRITE
    return 0


def _numbered(path: Path, number: int | None) -> Path:
    return path if number is None else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _diagnose(path: str, patterns: list[str] | None) -> Diagnosis:
    with Budget(path):
        trace = ObjectTrace.load(path)
    return find_inefficiencies(trace, patterns=patterns)


# ---- arguments


@common.argument
def _pattern(text: str) -> str:
    return Pattern.of(text).words


@common.argument
def _granule(text: str) -> int:
    bits = int(text[:6]) if text.isascii() and text.isdigit() else -1
    if bits < 0 or bits & (bits - 1) or bits > _MOST_GRANULE:
        raise ValueError(f"{text[:40]!r} is neither 0 nor a power of two up to {_MOST_GRANULE}")
    return bits


COMMAND = DiagnoseCommand()
