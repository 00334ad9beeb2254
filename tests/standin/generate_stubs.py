"""Write the C file that answers every function which PyTorch wants and the stand-in lacks.

The names are those that PyTorch's libraries leave undefined and those that libcudart exports, less
those that the object files of the stand-in define. A function that NVIDIA's headers declare is
defined with exactly that declaration, so the compiler checks it; any other one becomes
``int name(void)``. Each counts its call, says its name once unless it is known to need no
behaviour, and answers success, or what ``ANSWERS`` says.

    python generate_stubs.py --torch .../torch/lib --runtime .../libcudart.so.13 \
        --output unanswered.c object.o ...
"""

import argparse
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

# Libraries whose functions are ours to answer. The real ones that work without a device (NVRTC,
# which PyTorch asks for its functions directly, nvJitLink, cuFile) or that are never reached
# (NVSHMEM) stay themselves.
OURS = re.compile(
    r"(__cuda|cuda[A-Z]|cu(?!File)[A-Z]|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nccl)"
)

# No behaviour is needed, so no line is printed. The libraries' computations write device memory
# only, whose bytes mean nothing here; their setters and destructors concern handles that nobody
# looks into.
KNOWN = tuple(
    re.compile(pattern)
    for pattern in (
        r"cudaProfiler(Start|Stop)",
        r"cu(da)?FuncSet\w*",
        r"cudaDeviceSet(CacheConfig|Limit|SharedMemConfig)",
        r"cudaCtxResetPersistingL2Cache",
        r"cudaMem(Advise|Prefetch\w*)",
        r"__cudaRegister(HostVar|ManagedVar|UnifiedTable)",
        r"cupti\w*",
        r"nccl\w*",
        r"cublas[SDCZI]\w+|cublasCs\w+|cublasZd\w+",
        r"cusolverDn\w+",
        r"cusparse\w+",
        r"cufft(Set|Destroy)\w*",
        r"curand\w+",
        r"cudnn(Destroy|Set)\w*",
        r"cudnnSpatialTf\w+",
    )
)

# What to answer where success would be a lie that does harm, with the reason.
ANSWERS: tuple[tuple[re.Pattern[str], str], ...] = (
    # The profiler then says that it cannot see the device, and goes on.
    (re.compile(r"cupti"), "CUPTI_ERROR_NOT_SUPPORTED"),
    # Processes that talk to each other do so over gloo; see ncclGetLastError. What a program calls
    # while it gives up must work, or PyTorch ends the process.
    (re.compile(r"nccl(?!Group|Comm(Abort|Destroy|Finalize))"), "ncclInvalidUsage"),
    # Memory, copies and objects that nobody makes. What PyTorch calls of these has behaviour.
    (
        re.compile(
            r"cuda(Malloc|Memcpy|Memset|MemPool|Graph|Stream|Event|Create(Surf|Text)|Import)\w+"
        ),
        "cudaErrorNotSupported",
    ),
    # The older convolutions, which PyTorch calls with TORCH_CUDNN_V8_API_DISABLED=1 alone.
    (re.compile(r"cudnn\w*(Convolution|Pooling)"), "CUDNN_STATUS_NOT_SUPPORTED"),
    # Its descriptors are structures of the caller that nothing here would fill.
    (re.compile(r"cusparseLt"), "10 /* CUSPARSE_STATUS_NOT_SUPPORTED */"),
)

# Outputs on the host: function, type of the parameter, and what is written through it. Sizes of
# work areas are made up: small, but not nothing, so that the memory is asked for.
OUTPUTS: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...] = (
    (
        re.compile(r"cu(solver|sparse)\w*[Cc]reate\w*"),
        re.compile(r"\w+_t \*"),
        "standin_new_handle()",
    ),
    (
        re.compile(r"\w+(_bufferSize(Ext)?|SpGEMM_workEstimation|SpGEMM_compute)"),
        re.compile(r"(int|size_t) \*"),
        "4096",
    ),
    (re.compile(r"cublas[SDCZ](getrs|geqrf|gels)Batched"), re.compile(r"int \*info"), "0"),
    (re.compile(r"cusparse\w+_zeroPivot"), re.compile(r"int \*"), "-1"),
    (re.compile(r"cusparseXcsrgeam2Nnz"), re.compile(r"int \*nnzTotal"), "0"),
    (re.compile(r"cusparseSpMatGetSize"), re.compile(r"int64_t \*"), "0"),
)

# Outputs that may be on the device: function, parameter, and the statement that writes there. A
# solver tells whether it succeeded, one number for each member of a batch; a norm is a number.
DEVICE_OUTPUTS: tuple[tuple[re.Pattern[str], re.Pattern[str], str], ...] = (
    (
        re.compile(r"cusolverDn\w+"),
        re.compile(r"int ?\* ?(d_info|devInfo|info|infoArray)"),
        'standin_cusolver_success("{name}", handle, {output}, {batches});',
    ),
    (
        re.compile(r"cublas[SDCZ]getrfBatched|cublas[SDCZ]gelsBatched"),
        re.compile(r"int ?\* ?(info|devInfoArray)"),
        'standin_cublas_success("{name}", handle, {output}, {batches});',
    ),
    (
        re.compile(r"cublas\w+(nrm2|asum|amax|amin)_v2"),
        re.compile(r"\w+ ?\* ?(result)"),
        'standin_cublas_number("{name}", handle, {output}, sizeof *{output});',
    ),
)

HEADERS = (
    "libraries/libraries.h",
    "cudnn.h",
    "cusolverDn.h",
    "cusparse.h",
    "cufftXt.h",
    "cupti.h",
    "nccl.h",
)


class Declaration(NamedTuple):
    """A function as a header declares it."""

    result: str
    parameters: list[str]


def run(command: list[str], text: str = "") -> str:
    """Return what a command prints. Raises SystemExit with its own message if it fails."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"generate_stubs: {command[0]} failed: {done.stderr.strip()[:2000]}")
    return done.stdout


def symbols(files: Iterable[Path], *options: str) -> set[str]:
    """Return the names that ``nm`` lists, without symbol versions."""
    lines = run(["nm", "--format=posix", *options, *map(str, files)]).splitlines()
    return {line.split()[0].split("@")[0] for line in lines if " " in line}


def declarations(runtime: Path, compiler: str) -> dict[str, Declaration]:
    """Return what NVIDIA's headers declare, as the compiler sees it after its preprocessor."""
    here = Path(__file__).resolve().parent
    folders = [here, here.parents[1] / "csrc" / "include", here.parents[1] / "csrc"]
    folders += sorted(runtime.parents[2].glob("*/include"))
    includes = "".join(f"#include <{header}>\n" for header in HEADERS)
    options = [f"-I{folder}" for folder in folders]
    text = run([compiler, "-E", "-P", "-xc", "-D_GNU_SOURCE", *options, "-"], includes)
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    text = re.sub(r"\s+", " ", text)
    found: dict[str, Declaration] = {}
    pattern = r"([\w\s*]+?)\b(\w+) ?\(((?:[^()]|\([^()]*\))*)\) ?;"
    for result, name, parameters in re.findall(pattern, text):
        kind = re.sub(r"\b(extern|static|inline)\b", "", result).strip()
        if OURS.match(name) and kind and "return" not in kind and "typedef" not in kind:
            split = [" ".join(part.split()) for part in parameters.split(",")]
            found.setdefault(name, Declaration(kind, split))
    return found


def assignments(name: str, parameters: list[str]) -> list[str]:
    """Return the statements that write the function's outputs."""
    lines = []
    batches = "1"
    if "Batched" in name:
        batches = next((p.split()[-1] for p in parameters if p.endswith("batchSize")), "1")
    for function, pattern, statement in DEVICE_OUTPUTS:
        matches = map(pattern.fullmatch, parameters if function.fullmatch(name) else [])
        lines += [
            statement.format(name=name, output=found[1], batches=batches)
            for found in matches
            if found
        ]
    for function, kind, value in OUTPUTS:
        for parameter in parameters if function.fullmatch(name) else []:
            spaced = re.sub(r" ?\* ?", " *", parameter)
            if kind.match(spaced):
                lines.append(f"{spaced.partition(' ')[2]} = {value};")
    return lines


def definition(name: str, declaration: Declaration | None) -> str:
    """Return one function in C. Raises SystemExit for one that must have behaviour."""
    answer = next((value for pattern, value in ANSWERS if pattern.match(name)), None)
    is_known = any(pattern.fullmatch(name) for pattern in KNOWN)
    body = [
        f'static standin_call call = {{.name = "{name}"}};',
        f"standin_count_unanswered(&call, {str(is_known).lower()});",
    ]
    if declaration is None:
        body.append(f"return {answer or 0};")
        head = f"STANDIN_API int {name}(void);\nint\n{name}(void)"
    else:
        result, parameters = declaration
        if "*" in result or result == "size_t":
            raise SystemExit(
                f"generate_stubs: {name} returns {result}, not a status: write it in C, for "
                "nobody could use a made-up one"
            )
        body += assignments(name, parameters)
        if result != "void":
            body.append(f"return {answer};" if answer else f"return ({result}){{0}};")
        head = f"{result}\n{name}({', '.join(parameters) or 'void'})"
        if not any(parameters):  # "()" in a header is no prototype in C
            head = f"{result} {name}(void);\n{result}\n{name}(void)"
    lines = "".join(f"    {line}\n" for line in body)
    return f"{head}\n{{\n{lines}}}\n"


def main() -> None:
    """Read the symbols and the headers, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--torch", type=Path, required=True, help="folder of PyTorch's libraries")
    parser.add_argument("--runtime", type=Path, required=True, help="libcudart.so.13")
    parser.add_argument("--compiler", default="cc", help="a C compiler, for its preprocessor")
    parser.add_argument("--output", type=Path, required=True, help="the C file to write")
    parser.add_argument("objects", type=Path, nargs="+", help="object files of the stand-in")
    arguments = parser.parse_args()

    libraries = sorted(arguments.torch.glob("*.so"))
    if not libraries:
        raise SystemExit(f"generate_stubs: no libraries in {arguments.torch}")
    wanted = symbols(libraries, "--dynamic", "--undefined-only")
    wanted |= symbols([arguments.runtime], "--dynamic", "--defined-only")
    answered = symbols(arguments.objects, "--defined-only", "--extern-only")
    names = sorted(name for name in wanted - answered if OURS.match(name))
    declared = declarations(arguments.runtime, arguments.compiler)

    text = "/* Written by generate_stubs.py: functions without behaviour. */\n"
    text += "".join(f"#include <{header}>\n" for header in HEADERS)
    for warning in ("unused-parameter", "deprecated-declarations"):
        text += f'#pragma GCC diagnostic ignored "-W{warning}"\n'
    text += "#pragma GCC visibility push(default)\n\n"
    text += "\n".join(definition(name, declared.get(name)) for name in names)
    arguments.output.write_text(text + "\n#pragma GCC visibility pop\n")


if __name__ == "__main__":
    main()
