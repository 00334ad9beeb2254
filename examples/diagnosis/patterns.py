#!/usr/bin/env python3
"""The ten patterns of memory inefficiency, each in a few calls, and each fixed.

    python examples/diagnosis/patterns.py                      # all: found, and what the fix saves
    python examples/diagnosis/patterns.py "dead write" -o page.html

Sizes are of a program that works on blocks of 64 MiB. docs/diagnose.md shows what each looks like.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import gmlake
from gmlake.diagnosis import Part, TraceBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from gmlake.diagnosis import ObjectTrace

MIB: Final = 1 << 20
BLOCK: Final = 64 * MIB
ROWS: Final = 8


@dataclass(frozen=True)
class Example:
    """A pattern: a program that has it, and the same program without."""

    pattern: str
    wasteful: Callable[[TraceBuilder], None]
    fixed: Callable[[TraceBuilder], None]

    def trace(self, *, is_fixed: bool = False) -> ObjectTrace:
        """Return what the program did."""
        builder = TraceBuilder(f"{self.pattern}, fixed" if is_fixed else self.pattern)
        (self.fixed if is_fixed else self.wasteful)(builder)
        return builder.build()


def _work(builder: TraceBuilder, calls: int = 1) -> None:
    """Use 64 MiB for a while."""
    scratch = builder.alloc(BLOCK, name="scratch")
    builder.set("cudaMemset", writes=[scratch])
    for _ in range(calls):
        builder.kernel("smooth", reads=[scratch], writes=[scratch])
    builder.kernel("sum", reads=[scratch])
    builder.free(scratch)


def early(builder: TraceBuilder) -> None:
    """The result has its memory while something else is computed."""
    result = builder.alloc(BLOCK, name="result")
    _work(builder)
    builder.kernel("solve", writes=[result])
    builder.copy("cudaMemcpy D2H", reads=[result])
    builder.free(result)


def early_fixed(builder: TraceBuilder) -> None:
    """It is allocated where it is written."""
    _work(builder)
    result = builder.alloc(BLOCK, name="result")
    builder.kernel("solve", writes=[result])
    builder.copy("cudaMemcpy D2H", reads=[result])
    builder.free(result)


def late(builder: TraceBuilder) -> None:
    """The input stays until the end, where everything is freed."""
    data = builder.alloc(BLOCK, name="input")
    builder.copy("cudaMemcpy H2D", writes=[data])
    builder.kernel("load", reads=[data])
    _work(builder)
    builder.free(data)


def late_fixed(builder: TraceBuilder) -> None:
    """It is freed after the call that needs it last."""
    data = builder.alloc(BLOCK, name="input")
    builder.copy("cudaMemcpy H2D", writes=[data])
    builder.kernel("load", reads=[data])
    builder.free(data)
    _work(builder)


def redundant(builder: TraceBuilder) -> None:
    """Two buffers of one size, the second of which begins where the first has ended."""
    first = builder.alloc(BLOCK, name="first half")
    second = builder.alloc(BLOCK, name="second half")
    for buffer in (first, second):
        builder.copy("cudaMemcpy H2D", writes=[buffer])
        builder.kernel("transform", reads=[buffer], writes=[buffer])
        builder.copy("cudaMemcpy D2H", reads=[buffer])
    builder.free(first)
    builder.free(second)


def redundant_fixed(builder: TraceBuilder) -> None:
    """One buffer serves both."""
    buffer = builder.alloc(BLOCK, name="half")
    for _ in range(2):
        builder.copy("cudaMemcpy H2D", writes=[buffer])
        builder.kernel("transform", reads=[buffer], writes=[buffer])
        builder.copy("cudaMemcpy D2H", reads=[buffer])
    builder.free(buffer)


def unused(builder: TraceBuilder) -> None:
    """A buffer for a case that does not occur."""
    columns = builder.alloc(BLOCK, name="columns")
    _work(builder)
    builder.free(columns)


def unused_fixed(builder: TraceBuilder) -> None:
    """It is allocated where it is needed, which is nowhere."""
    _work(builder)


def leak(builder: TraceBuilder) -> None:
    """Nobody frees the table."""
    table = builder.alloc(BLOCK, name="table")
    builder.copy("cudaMemcpy H2D", writes=[table])
    builder.kernel("look up", reads=[table])
    _work(builder)


def leak_fixed(builder: TraceBuilder) -> None:
    """Who looked up in it frees it."""
    table = builder.alloc(BLOCK, name="table")
    builder.copy("cudaMemcpy H2D", writes=[table])
    builder.kernel("look up", reads=[table])
    builder.free(table)
    _work(builder)


def idle(builder: TraceBuilder) -> None:
    """What the forward pass computed waits for the backward pass."""
    activation = builder.alloc(BLOCK, name="activation")
    builder.kernel("forward", writes=[activation])
    _work(builder, calls=2)
    builder.kernel("backward", reads=[activation])
    builder.free(activation)


def idle_fixed(builder: TraceBuilder) -> None:
    """It waits in the host's memory."""
    activation = builder.alloc(BLOCK, name="activation")
    builder.kernel("forward", writes=[activation])
    builder.copy("cudaMemcpy D2H", reads=[activation])
    builder.free(activation)
    _work(builder, calls=2)
    again = builder.alloc(BLOCK, name="activation")
    builder.copy("cudaMemcpy H2D", writes=[again])
    builder.kernel("backward", reads=[again])
    builder.free(again)


def dead(builder: TraceBuilder) -> None:
    """Weights are set to zero, and then copied in."""
    weights = builder.alloc(BLOCK, name="weights")
    builder.set("cudaMemset", writes=[weights])
    builder.copy("cudaMemcpy H2D", writes=[weights])
    builder.kernel("convolve", reads=[weights])
    builder.free(weights)


def dead_fixed(builder: TraceBuilder) -> None:
    """They are copied in."""
    weights = builder.alloc(BLOCK, name="weights")
    builder.copy("cudaMemcpy H2D", writes=[weights])
    builder.kernel("convolve", reads=[weights])
    builder.free(weights)


def over(builder: TraceBuilder) -> None:
    """Room for 64 sequences, of which three come."""
    cache = builder.alloc(BLOCK, name="cache", element_bytes=2)
    for sequence in range(3):
        rows = Part(cache, ((sequence * MIB, MIB),))
        builder.kernel(f"sequence {sequence}", writes=[rows])
        builder.kernel(f"attention {sequence}", reads=[rows])
    builder.free(cache)


def over_fixed(builder: TraceBuilder) -> None:
    """Room for those that come."""
    cache = builder.alloc(3 * MIB, name="cache", element_bytes=2)
    for sequence in range(3):
        rows = Part(cache, ((sequence * MIB, MIB),))
        builder.kernel(f"sequence {sequence}", writes=[rows])
        builder.kernel(f"attention {sequence}", reads=[rows])
    builder.free(cache)


def uneven(builder: TraceBuilder) -> None:
    """A few rows of an embedding are looked up far more often than the rest."""
    table = builder.alloc(BLOCK, name="embedding", element_bytes=4)
    builder.copy("cudaMemcpy H2D", writes=[table])
    builder.kernel(
        "embedding",
        reads=[Part(table, ((0, MIB, MIB, 1, 40), (MIB, 7 * MIB, 7 * MIB, 9, 2)))],
    )
    builder.free(table)


def uneven_fixed(builder: TraceBuilder) -> None:
    """The hot rows are kept in shared memory: each is read once, the others as before."""
    table = builder.alloc(BLOCK, name="embedding", element_bytes=4)
    builder.copy("cudaMemcpy H2D", writes=[table])
    builder.kernel("embedding", reads=[Part(table, ((0, BLOCK, BLOCK, 1, 2),))])
    builder.free(table)


def structured(builder: TraceBuilder) -> None:
    """Each iteration works on a row of its own."""
    matrix = builder.alloc(BLOCK, name="R", element_bytes=4)
    row_bytes = BLOCK // ROWS
    for row in range(ROWS):
        part = Part(matrix, ((row * row_bytes, row_bytes),))
        builder.kernel(f"row {row}", reads=[part], writes=[part])
    builder.free(matrix)


def structured_fixed(builder: TraceBuilder) -> None:
    """One row serves all iterations."""
    row_bytes = BLOCK // ROWS
    matrix = builder.alloc(row_bytes, name="a row of R", element_bytes=4)
    for row in range(ROWS):
        builder.kernel(f"row {row}", reads=[matrix], writes=[matrix])
    builder.free(matrix)


EXAMPLES: Final = {
    example.pattern: example
    for example in (
        Example("early allocation", early, early_fixed),
        Example("late deallocation", late, late_fixed),
        Example("redundant allocation", redundant, redundant_fixed),
        Example("unused allocation", unused, unused_fixed),
        Example("memory leak", leak, leak_fixed),
        Example("temporary idleness", idle, idle_fixed),
        Example("dead write", dead, dead_fixed),
        Example("overallocation", over, over_fixed),
        Example("non-uniform access frequency", uneven, uneven_fixed),
        Example("structured access", structured, structured_fixed),
    )
}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="The ten patterns, each in a few calls.")
    parser.add_argument("pattern", nargs="?", choices=EXAMPLES)
    parser.add_argument("-o", "--output", metavar="FILE", help="a page of one pattern")
    options = parser.parse_args()
    for name in [options.pattern] if options.pattern else EXAMPLES:
        example = EXAMPLES[name]
        found = gmlake.find_inefficiencies(example.trace(), patterns=[name])
        fixed = gmlake.find_inefficiencies(example.trace(is_fixed=True), patterns=[name])
        print(found)
        print(f"fixed: {fixed.peak_bytes / MIB:.0f} MiB at the peak\n")
        if options.output:
            if not options.pattern:
                sys.exit("-o needs the name of one pattern")
            found.write_html(options.output)


if __name__ == "__main__":
    main()
