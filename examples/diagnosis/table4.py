#!/usr/bin/env python3
"""Eight programs of the DrGPUM paper as small traces, each with its inefficiencies and fixed.

    python examples/diagnosis/table4.py                       # all: what is found, what a fix saves
    python examples/diagnosis/table4.py darknet --all         # one, with everything found
    python examples/diagnosis/table4.py darknet -o darknet.gmobjects
    gmlake diagnose darknet.gmobjects

Each program asks for memory as the CUDA program of its name does, in sizes for which the changes of
the paper's Table 4 (Lin, Zhou, Su, "DrGPUM", ASPLOS 2023) lower the peak by the figure given there.
Table 1 of the paper marks more patterns than Table 4 names; `patterns` has as many for each.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gmlake
from gmlake.diagnosis import Diagnosis, ObjectTrace, Part, TraceBuilder
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gmlake.diagnosis.builder import Item

MIB: Final = 1 << 20
EARLY, LATE = "early allocation", "late deallocation"
REDUNDANT, UNUSED = "redundant allocation", "unused allocation"
LEAK, IDLE, DEAD = "memory leak", "temporary idleness", "dead write"
OVER, UNEVEN = "overallocation", "non-uniform access frequency"


class Device:
    """What a program asks of its device, written down with the line that asks."""

    def __init__(self, name: str) -> None:
        """Begin with an empty device."""
        self.builder = TraceBuilder(name)
        self.live_bytes = 0
        self.peak_bytes = 0
        self._sizes: dict[int, int] = {}

    def malloc(self, name: str, size_bytes: float, *, element_bytes: int = 4) -> int:
        """Allocate."""
        size = int(size_bytes)
        number = self.builder.alloc(
            size, name=name, element_bytes=element_bytes, frames=_call_path()
        )
        self._sizes[number] = size
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return number

    def free(self, *objects: int) -> None:
        """Free some objects, one after another."""
        for number in objects:
            self.builder.free(number, frames=_call_path())
            self.live_bytes -= self._sizes.pop(number)

    def upload(self, item: Item, stream: int = 0) -> None:
        """Copy from the host."""
        self.builder.copy("cudaMemcpy H2D", writes=(item,), stream=stream, frames=_call_path())

    def download(self, item: Item, stream: int = 0) -> None:
        """Copy to the host."""
        self.builder.copy("cudaMemcpy D2H", reads=(item,), stream=stream, frames=_call_path())

    def memset(self, item: Item) -> None:
        """Write one value everywhere."""
        self.builder.set("cudaMemset", writes=(item,), frames=_call_path())

    def launch(
        self, label: str, reads: Sequence[Item] = (), writes: Sequence[Item] = (), stream: int = 0
    ) -> None:
        """Run a kernel."""
        self.builder.kernel(label, reads=reads, writes=writes, stream=stream, frames=_call_path())


def _call_path() -> tuple[str, ...]:
    frame = sys._getframe(2)  # noqa: SLF001 (as the standard library's own tools do)
    return (f"{frame.f_code.co_name}  {Path(frame.f_code.co_filename).name}:{frame.f_lineno}",)


# ---- the programs


def huffman(device: Device, *, fixed: bool) -> None:
    """Rodinia's: an array for tests is always allocated, the input lives on while packing."""
    source = device.malloc("d_sourceData", 30 * MIB)
    encoded = device.malloc("d_destData", 2 * MIB)
    codewords = device.malloc("d_codewords", 1 * MIB)
    unused = () if fixed else (device.malloc("d_cw32", 42 * MIB),)
    device.upload(source)
    device.upload(codewords)
    index = device.malloc("cindex", 64 << 10)
    device.memset(index)
    frequent = Part(codewords, ((0, 4096, 4096, 1, 100), (4096, MIB - 4096)))
    device.launch("vlc_encode", reads=(source, frequent), writes=(encoded, index))
    if fixed:
        device.free(source)
    packed = device.malloc("d_destDataPacked", 25 * MIB)
    device.launch("pack2", reads=(encoded, index), writes=(packed,))
    device.download(packed)
    device.free(packed, encoded, codewords, index, *unused)
    if not fixed:
        device.free(source)


def dwt2d(device: Device, *, fixed: bool) -> None:
    """Rodinia's: everything is allocated at the start, one component waits for the other."""
    component = 8 * MIB
    early = [] if fixed else [device.malloc("c_r_out", component)]
    unused = () if fixed else (device.malloc("backup", 1.88 * component),)
    image = device.malloc("src", 1.12 * component)
    device.memset(image)
    device.upload(image)
    red = device.malloc("c_r", component)
    green = device.malloc("c_g", component)
    device.launch("rgbToComponents", reads=(image,), writes=(red, green))
    device.free(image)
    if fixed:
        device.download(green)
        device.free(green)
        early = [device.malloc("c_r_out", component)]
    scratch = device.malloc("scratch", 0.85 * component)
    device.launch("fdwt53 of c_r", reads=(red,), writes=(early[0], scratch))
    device.free(scratch)
    if fixed:
        green = device.malloc("c_g", component)
        device.upload(green)
    out = red if fixed else device.malloc("c_g_out", component)
    device.launch("fdwt53 of c_g", reads=(green,), writes=(out,))
    device.download(early[0])
    device.download(out)
    device.free(*{*early, out, red, green}, *unused)


def columns(device: Device, *, fixed: bool) -> None:
    """PyTorch's convolution: its columns are allocated also where a matrix product needs none."""
    weight = device.malloc("weight", 7 * MIB)
    bias = device.malloc("bias", 1 * MIB)
    device.upload(weight)
    device.upload(bias)
    image = device.malloc("input", 39 * MIB)
    device.upload(image)
    unused = () if fixed else (device.malloc("columns", 3 * MIB),)
    output = device.malloc("output", 50 * MIB)
    device.launch("aten::slow_conv2d_forward", reads=(image, weight, bias), writes=(output,))
    device.free(*unused)
    device.launch("aten::relu_", reads=(output,), writes=(output,))
    device.free(image)
    pooled = device.malloc("pooled", 1 * MIB)
    device.launch("aten::avg_pool2d", reads=(output,), writes=(pooled,))
    device.free(output)
    device.download(pooled)
    device.free(pooled, weight, bias)


def laghos(device: Device, *, fixed: bool) -> None:
    """Two vectors of QUpdate live until the end; their last use is in UpdateQuadratureData()."""
    mesh = device.malloc("mesh", 20 * MIB)
    device.memset(mesh)
    device.upload(mesh)
    offsets = device.malloc("quad_offsets", 1 * MIB)
    unused = device.malloc("q_e", 1 * MIB)
    q_dx = device.malloc("q_dx", 18 * MIB)
    q_dy = device.malloc("q_dy", 17 * MIB)
    device.launch("QKernel", reads=(mesh, offsets), writes=(q_dx, q_dy))
    stress = device.malloc("stress", 3 * MIB)
    device.launch("UpdateQuadratureData", reads=(q_dx, q_dy), writes=(stress,))
    if fixed:
        device.free(q_dx, q_dy)
    force = device.malloc("force", 40 * MIB)
    device.launch("ForceMult", reads=(stress,), writes=(force,))
    device.launch("EnergyMassCG", reads=(mesh, force), writes=(force,))
    device.free(force, stress, mesh, unused)
    if not fixed:
        device.free(q_dx, q_dy)


def darknet(device: Device, *, fixed: bool) -> None:
    """Weights are written twice, outputs allocated while parsing, gradients never used."""
    layers, unit = 10, 512 << 10
    image = device.malloc("net.input_gpu", 4096)
    device.upload(image)
    weights, outputs, unused = [], [], []
    for _ in range(layers):
        weights.append(device.malloc("l.weights_gpu", unit))
        if not fixed:
            device.upload(weights[-1])
            outputs.append(device.malloc("l.output_gpu", 12 * unit))
            unused.append(device.malloc("l.delta_gpu", 7 * unit))
    for weight in weights:
        device.upload(weight)
    before = image
    for layer, weight in enumerate(weights):
        if fixed:
            outputs.append(device.malloc("l.output_gpu", 12 * unit))
        device.launch(
            "forward_convolutional_layer", reads=(before, weight), writes=(outputs[layer],)
        )
        if layer > 0:
            device.free(before)
        before = outputs[layer]
    device.download(before)
    device.free(before, *weights, *unused)


def xsbench(device: Device, *, fixed: bool) -> None:
    """One array is never freed; of another, each thread uses one of very many chunks."""
    concs = device.malloc("GSD.concs", 6 * MIB)
    device.upload(concs)
    device.launch("sample_materials", reads=(concs,))
    if fixed:
        device.free(concs)
    nuclides = device.malloc("GSD.nuclide_grid", 34 * MIB)
    device.upload(nuclides)
    chunk = int(1.5 * MIB)
    index = device.malloc("GSD.index_grid", 2 * chunk if fixed else 60 * MIB)
    chunks = Part(index, ((0, chunk), (chunk if fixed else 30 * MIB, chunk)))
    device.launch("build_index", reads=(nuclides,), writes=(chunks,))
    device.launch("xs_lookup", reads=(nuclides, chunks))
    device.free(index)
    device.launch("verify", reads=(nuclides,))
    device.free(nuclides)


def minimdock(device: Device, *, fixed: bool) -> None:
    """Room for 1000 runs of 2048 genotypes is allocated, one run of 150 is made."""
    genotype_bytes, used_bytes, population = 64 * 4, 21 * 4, 150
    grids = device.malloc("fgrids", 272 * MIB)
    energies = device.malloc("energies", 4 * MIB)
    room = population if fixed else 1000 * 2048
    conformations = device.malloc("pMem_conformations", room * genotype_bytes)
    device.upload(grids)
    seeds = device.malloc("prng_states", 5.25 * MIB)
    device.launch("init_prng", writes=(seeds,))
    genotypes = Part(conformations, ((0, used_bytes, genotype_bytes, population),))
    device.upload(genotypes)
    # Most atoms are near the pocket: a hundredth of the grid serves them.
    pocket = 272 * MIB // 100 // 4 * 4
    map_reads = Part(grids, ((0, pocket, pocket, 1, 40), (pocket, 272 * MIB - pocket)))
    device.launch("gpu_calc_initpop", reads=(map_reads, genotypes), writes=(energies,))
    device.launch("gpu_gen_and_eval", reads=(map_reads, genotypes, seeds), writes=(genotypes,))
    device.launch("gpu_sum_evals", reads=(energies,))
    device.download(genotypes)
    device.free(grids, conformations, energies, seeds)


def simple_multi_copy(device: Device, *, fixed: bool) -> None:
    """CUDA's sample: four buffers on two streams, of which two at a time are in use."""
    size = 16 * MIB
    in_1 = device.malloc("d_data_in1", size)
    device.memset(in_1)
    if fixed:
        device.download(in_1)
        device.free(in_1)
    else:
        out_1 = device.malloc("d_data_out1", size)
    in_2 = device.malloc("d_data_in2", size)
    device.memset(in_2)
    out_2 = device.malloc("d_data_out2", size)
    device.launch("incKernel", reads=(in_2,), writes=(out_2,), stream=1)
    if fixed:
        device.free(in_2)
    device.download(out_2, stream=1)
    if fixed:
        device.free(out_2)
        in_1 = device.malloc("d_data_in1", size)
        device.upload(in_1)
        out_1 = device.malloc("d_data_out1", size)
    device.launch("incKernel", reads=(in_1,), writes=(out_1,))
    device.download(out_1)
    device.memset(out_1)
    device.upload(out_1)
    device.download(out_1)
    device.free(in_1, out_1)
    if not fixed:
        device.free(in_2, out_2)


# ---- what the paper says about them


@dataclass(frozen=True)
class Program:
    """One program. percent: how much lower its peak is with the changes of Table 4.

    fixes: the pattern and the object of each change. patterns: all that a diagnosis finds.
    """

    name: str
    run: Callable[..., None]
    percent: int
    fixes: tuple[tuple[str, str], ...]
    patterns: frozenset[str]

    def trace(self, *, fixed: bool = False) -> tuple[ObjectTrace, int]:
        """Run it; return its trace, and the highest sum of bytes that were live."""
        device = Device(f"{self.name}, fixed" if fixed else self.name)
        self.run(device, fixed=fixed)
        return device.builder.build(), device.peak_bytes

    def fixed_findings(self, diagnosis: Diagnosis) -> list[int]:
        """Return the numbers of the findings that the changes of Table 4 fix."""
        return [
            finding.number
            for finding in diagnosis.findings
            if (finding.pattern, finding.object_name) in self.fixes
        ]


PROGRAMS: Final = (
    Program(
        "huffman",
        huffman,
        67,
        ((UNUSED, "d_cw32"), (LATE, "d_sourceData")),
        frozenset((EARLY, LATE, UNUSED, IDLE, UNEVEN)),
    ),
    Program(
        "dwt2d",
        dwt2d,
        48,
        ((EARLY, "c_r_out"), (REDUNDANT, "c_g_out"), (UNUSED, "backup"), (IDLE, "c_g")),
        frozenset((EARLY, LATE, REDUNDANT, UNUSED, IDLE, DEAD)),
    ),
    Program(
        "pytorch",
        columns,
        3,
        ((UNUSED, "columns"),),
        frozenset((EARLY, LATE, REDUNDANT, UNUSED, IDLE)),
    ),
    Program(
        "laghos",
        laghos,
        35,
        ((LATE, "q_dx"), (LATE, "q_dy")),
        frozenset((EARLY, LATE, UNUSED, LEAK, IDLE, DEAD)),
    ),
    Program(
        "darknet",
        darknet,
        83,
        ((DEAD, "l.weights_gpu"), (EARLY, "l.output_gpu"), (UNUSED, "l.delta_gpu")),
        frozenset((EARLY, LATE, REDUNDANT, UNUSED, LEAK, IDLE, DEAD)),
    ),
    Program(
        "xsbench",
        xsbench,
        63,
        ((LEAK, "GSD.concs"), (OVER, "GSD.index_grid")),
        frozenset((LEAK, OVER)),
    ),
    Program(
        "minimdock",
        minimdock,
        64,
        ((OVER, "pMem_conformations"),),
        frozenset((EARLY, LATE, IDLE, OVER, UNEVEN)),
    ),
    Program(
        "simplemulticopy",
        simple_multi_copy,
        50,
        (
            (IDLE, "d_data_in1"),
            (EARLY, "d_data_out1"),
            (LATE, "d_data_in2"),
            (LATE, "d_data_out2"),
        ),
        frozenset((EARLY, LATE, IDLE, DEAD)),
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Diagnose the programs that are named; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    names = [program.name for program in PROGRAMS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--all", action="store_true", help="print everything that is found")
    parser.add_argument("--fixed", action="store_true", help="the programs with their fixes")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the trace of one program")
    args = parser.parse_args(arguments)
    unknown = set(args.names) - set(names)
    if unknown:
        parser.error(f"no program is called {', '.join(sorted(unknown))}")
    chosen = [program for program in PROGRAMS if program.name in args.names or not args.names]
    if args.output is not None:
        if len(chosen) != 1:
            parser.error("-o takes one program")
        chosen[0].trace(fixed=args.fixed)[0].save(args.output)
        return 0
    for program in chosen:
        _show(program, fixed=args.fixed, show_all=args.all)
    return 0


def _show(program: Program, *, fixed: bool, show_all: bool) -> None:
    from rich.console import Console

    from gmlake.diagnosis.report import diagnosis_tables

    trace, peak_bytes = program.trace(fixed=fixed)
    diagnosis = gmlake.find_inefficiencies(trace)
    console = Console()
    for part in diagnosis_tables(diagnosis, show_all=show_all):
        console.print(part)
    if not fixed:
        twin_bytes = program.trace(fixed=True)[1]
        foreseen = diagnosis.peak_with(program.fixed_findings(diagnosis))
        print(
            f"the fixes of the paper: {format_size(foreseen)} foreseen, "
            f"{format_size(twin_bytes)} measured, "
            f"{100 * (twin_bytes / peak_bytes - 1):.1f} % (paper: -{program.percent} %)\n"
        )


if __name__ == "__main__":
    sys.exit(main())
