"""Write the entry points of the stand-in: the functions that bear NVIDIA's names.

The names are those that the headers of the libraries declare and that libcudart exports, and those
of names.txt, which several versions of PyTorch leave undefined beside them, less those that the
object files of the stand-in define. A function that NVIDIA's headers declare is defined with that
very declaration, so the compiler checks it; any other one becomes ``int name(void)``.

What a function does is, in this order:

- what the C function ``standin_NAME`` does, with the lock held: CUDA's two APIs, see standin.h;
- for the driver API, what the runtime API does in ``SAME``;
- a line of C in ``BODIES``, or the ranges that ``touching()`` finds: the libraries;
- nothing. It then says its name once unless it is known to need no behaviour, and answers success,
  or what ``ANSWERS`` says.

    python generate_stubs.py --runtime .../libcudart.so.13 --declarations entries.h
    python generate_stubs.py --runtime .../libcudart.so.13 --names names.txt \
        [--torch .../torch/lib] --output entries.c object.o ...
    python generate_stubs.py --runtime .../libcudart.so.13 --names names.txt \
        --torch .../torch/lib --collect

The last adds to names.txt what that version of PyTorch wants beside what is declared and exported.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# Libraries whose functions are ours to answer. The real ones that work without a device (NVRTC,
# which PyTorch asks for its functions directly, nvJitLink, cuFile) or that are never reached
# (NVSHMEM) stay themselves.
OURS = re.compile(
    r"(__cuda|cuda[A-Z]|cu(?!File)[A-Z]|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nccl)"
)

# Libraries of which every function that a header declares is defined, whoever calls it.
LIBRARIES = re.compile(r"cublas|cudnn|cufft|cusolver|cusparse|cupti|nccl")

OUTPUT = Path("build/standin/standin-entries/entries.c")  # beside the header of declarations

# What another function does too: with the same arguments, or with these of its own.
SAME = {
    "cuCtxSynchronize": "cudaDeviceSynchronize",
    "cuDeviceCanAccessPeer": "cudaDeviceCanAccessPeer",
    "cuDeviceGetAttribute": "cudaDeviceGetAttribute",
    "cuDriverGetVersion": "cudaDriverGetVersion",
    "cuEventCreate": "cudaEventCreateWithFlags",
    "cuEventDestroy": "cudaEventDestroy",
    "cuEventQuery": "cudaEventQuery",
    "cuEventRecord": "cudaEventRecordWithFlags({0}, {1}, cudaEventRecordDefault)",
    "cuEventSynchronize": "cudaEventSynchronize",
    "cuGraphDestroy": "cudaGraphDestroy",
    "cuLaunchCooperativeKernel": (
        "cuLaunchKernel({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, NULL)"
    ),
    "cuMemFree": "cudaFree((void *){0})",
    "cuMemGetInfo": "cudaMemGetInfo",
    "cuMemFreeHost": "cudaFreeHost",
    "cuMemHostAlloc": "cudaHostAlloc",
    "cuMemHostGetDevicePointer": "cudaHostGetDevicePointer((void **){0}, {1}, {2})",
    "cuMemHostRegister": "cudaHostRegister",
    "cuMemHostUnregister": "cudaHostUnregister",
    "cuMemcpyDtoHAsync": "cudaMemcpyAsync({0}, (void *){1}, {2}, cudaMemcpyDefault, {3})",
    "cuMemcpyHtoDAsync": "cudaMemcpyAsync((void *){0}, {1}, {2}, cudaMemcpyDefault, {3})",
    "cuMemcpyDtoH": "cudaMemcpy({0}, (void *){1}, {2}, cudaMemcpyDefault)",
    "cuMemcpyHtoD": "cudaMemcpy((void *){0}, {1}, {2}, cudaMemcpyDefault)",
    "cuModuleLoadDataEx": "cuModuleLoadData({0}, {1})",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor({0}, {1}, {2}, {3})"
    ),
    "cuStreamBeginCapture": "cudaStreamBeginCapture",
    "cuStreamCreate": "cudaStreamCreateWithPriority({0}, {1}, 0)",
    "cuStreamDestroy": "cudaStreamDestroy",
    "cuStreamEndCapture": "cudaStreamEndCapture",
    "cuStreamIsCapturing": "cudaStreamIsCapturing",
    "cuStreamSynchronize": "cudaStreamSynchronize",
    "cuStreamWaitEvent": "cudaStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode": "cudaThreadExchangeStreamCaptureMode",
    "cudaEventCreate": "cudaEventCreateWithFlags({0}, cudaEventDefault)",
    "cudaEventRecord": "cudaEventRecordWithFlags({0}, {1}, cudaEventRecordDefault)",
    "cudaGraphInstantiateWithFlags": "cudaGraphInstantiate",
    "cudaLaunchCooperativeKernel": "cudaLaunchKernel",
    "cudaLaunchKernelExC": (
        "cudaLaunchKernel({1}, {0}->gridDim, {0}->blockDim, {2}, {0}->dynamicSmemBytes, "
        "{0}->stream)"
    ),
    "cudaMallocHost": "cudaHostAlloc({0}, {1}, cudaHostAllocDefault)",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": (
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor({0}, {1}, {2}, {3})"
    ),
    "cudaRuntimeGetVersion": "cudaDriverGetVersion",
    "cudaStreamCreate": "cudaStreamCreateWithPriority({0}, cudaStreamDefault, 0)",
    "cudaStreamCreateWithFlags": "cudaStreamCreateWithPriority({0}, {1}, 0)",
}

# Handles by the type of the parameter: each is looked up before the function is called, so that the
# C files need not ask whether there is such a thing.
CHECKS = {
    "CUdevice": "standin_check_device({0})",
    "CUevent": "standin_check_handle({0}, STANDIN_EVENT)",
    "CUgraph": "standin_check_handle({0}, STANDIN_GRAPH)",
    "CUstream": "standin_check_driver_stream({0})",
    "cudaEvent_t": "standin_check_handle({0}, STANDIN_EVENT)",
    "cudaGraphExec_t": "standin_check_handle({0}, STANDIN_EXECUTABLE)",
    "cudaGraphNode_t": "standin_check_handle({0}, STANDIN_NODE)",
    "cudaGraph_t": "standin_check_handle({0}, STANDIN_GRAPH)",
    "cudaMemPool_t": "standin_check_pool({0})",
    "cudaStream_t": "standin_check_stream({0})",
}
DEVICE = re.compile(r"device|(peer|src|dst)Device")  # an int of the runtime API

# The driver API gives no context to a thread that did not ask for one: these need it, and so does a
# default stream, whatever the function.
NEEDS_CONTEXT = re.compile(
    r"cuCtx(Synchronize|PopCurrent|GetDevice)|cuMem(Alloc|Free|GetInfo|cpy\w+)"
    r"|cu(Event|Stream)Create|cuModuleLoad\w*|cuLaunchKernelEx"
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
        r"__cudaRegister(HostVar|ManagedVar|UnifiedTable|FatBinaryEnd)",
        r"cupti\w*",
        r"nccl\w*",
        r"cublas[SDCZI]\w+|cublasCs\w+|cublasZd\w+|cublas[GS]et(Matrix|Vector)Async",
        r"cublasLtMatmul(Desc|Preference)SetAttribute",
        r"cusolver\w+",
        r"cusparse\w+",
        r"cufft\w+",
        r"curand\w+",
        r"cudnn(Destroy|Set|BackendFinalize)\w*",
        r"cudnnSpatialTf\w+",
        r"cuLink\w+|cuCtxSetLimit",
    )
)

# What to answer where success would be a lie that does harm, with the reason.
ANSWERS: tuple[tuple[re.Pattern[str], str], ...] = (
    # The profiler then says that it cannot see the device, and goes on.
    (re.compile(r"cupti"), "CUPTI_ERROR_NOT_SUPPORTED"),
    # Processes that talk to each other do so over gloo; see ncclGetLastError and nccl.c.
    (re.compile(r"nccl(?!Group)"), "ncclInvalidUsage"),
    # Memory, copies and objects that nobody makes. What PyTorch calls of these has behaviour.
    (
        re.compile(
            r"cuda(Malloc|Memcpy|Memset|MemPool|Graph|Stream|Event|Create(Surf|Text)|Import)\w+"
            r"|cudaDevice([GS]etMemPool|\w*GraphMem)\w*"
        ),
        "cudaErrorNotSupported",
    ),
    # Sharing plain memory between processes would need a service that owns the memory.
    (re.compile(r"cudaIpc"), "cudaErrorNotSupported"),
    (re.compile(r"cuMem(Export|Import)"), "CUDA_ERROR_NOT_SUPPORTED"),
    # NVIDIA's own libraries ask for tables that no header describes, and go on without.
    (re.compile(r"cuGetExportTable"), "CUDA_ERROR_NOT_FOUND"),
    # The older convolutions, which PyTorch calls with TORCH_CUDNN_V8_API_DISABLED=1 alone, and what
    # fills structures of cuDNN that nothing here has.
    (
        re.compile(r"cudnn\w*(Convolution|Pooling|RNN|CTC|Dropout|Filter)"),
        "CUDNN_STATUS_NOT_SUPPORTED",
    ),
    # Its descriptors are structures of the caller that nothing here would fill.
    (re.compile(r"cusparseLt"), "10 /* CUSPARSE_STATUS_NOT_SUPPORTED */"),
)

# What a function of the libraries does, in C, by the names that the header gives its parameters.
# Sizes of work areas are made up: small, but not nothing, so that the memory is asked for.
BODIES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), body)
    for pattern, body in (
        (r"cudnnCreateTensorDescriptor", "*{0} = calloc(1, sizeof **{0});"),
        # Handles. cuBLAS forgets the workspace that it was given when the stream changes.
        (
            r"(cublas|cublasLt|cudnn|cusolverDn|cusparse)Create(_v2)?",
            "*{0} = (__typeof__(*{0}))standin_new_handle();",
        ),
        (
            r"(cu(blas|blasLt|dnn)Destroy(_v2)?|(cusolverDn|cusparse)Destroy\w*|cublasLt\w+Destroy)",
            "free((void *){0});",
        ),
        (
            r"(cublas|cudnn|cusolverDn|cusparse)SetStream(_v2)?",
            "standin_set_stream((standin_handle *){0}, {1}, NULL, 0);",
        ),
        (r"cudnnGetStream", "*{1} = ((standin_handle *){0})->stream;"),
        (
            r"cublasSetWorkspace_v2",
            "standin_set_stream((standin_handle *){0}, ((standin_handle *){0})->stream, {1}, {2});",
        ),
        (r"cublasSet(Pointer|Math)Mode(_v2)?", "((standin_handle *){0})->{lower}_mode = {1};"),
        (
            r"cublasGet(Pointer|Math)Mode(_v2)?",
            "*{1} = (__typeof__(*{1}))((standin_handle *){0})->{lower}_mode;",
        ),
        # Other objects, which nobody looks into.
        (
            r"(cublasLt\w+(Desc|Preference)Create)",
            "*{0} = (__typeof__(*{0}))standin_new_handle();",
        ),
        (
            r"(cu(solver|sparse)\w*[Cc]reate(?!Identity)\w*|cuLinkCreate)",
            "*{handle} = (__typeof__(*{handle}))standin_new_handle();",
        ),
        (
            r"cudnnCreate(?!Conv|Pool|RNN|CTC|Drop|Filter)\w+",
            "*{0} = (__typeof__(*{0}))standin_new_handle();",
        ),
        (r"cudnnDestroy(?!Conv|Pool|RNN|CTC|Drop|Filter)\w+", "free((void *){0});"),
        (r"cuLinkComplete", "*{1} = {0};\n*{2} = sizeof(standin_handle);"),
        (r"cufftCreate", "*{0} = 1;"),
        (r"cuCtxGetLimit", "*{0} = {1} == CU_LIMIT_MALLOC_HEAP_SIZE ? (size_t)8 << 20 : 1024;"),
        (r"cufftXtMakePlanMany", "*workSize = 4096;"),
        (
            r"(cusolver|cusparse)\w+(_bufferSize(Ext)?|SpGEMM_workEstimation|SpGEMM_compute)",
            "{sizes}",
        ),
        (r"cublas[SDCZ](getrs|geqrf|gels)Batched", "*info = 0;"),
        (r"cusparse\w+_zeroPivot", "*position = -1;"),
        (r"cusparseXcsrgeam2Nnz", "*nnzTotalDevHostPtr = 0;"),
        (r"cusparseSpMatGetSize", "*rows = *cols = *nnz = 0;"),
        (
            r"cudnnGetBatchNormalization(ForwardTraining|Backward)ExWorkspaceSize",
            "*{last} = 2 * standin_tensor_range({scale}, {scale}).size_bytes;",
        ),
        (r"cudnnGetBatchNormalizationTrainingExReserveSpaceSize", "*{last} = 0;"),
        # Words and numbers.
        (r"cu(blas|fft|solver|sparse)GetVersion(_v2)?", "*{last} = {api}_VERSION;"),
        (
            r"cu(blas|blasLt|fft|solver|sparse)GetProperty",
            "*{1} = (int[]){{{api}_VER_MAJOR, {api}_VER_MINOR, {api}_VER_PATCH}}[{0}];",
        ),
        (r"cublasLtGetVersion", "return CUBLAS_VERSION;"),
        (r"cudnnGetVersion", "return CUDNN_VERSION;"),
        (r"(cublas|cublasLt|cudnn)GetCudartVersion", "return CUDART_VERSION;"),
        (r"cudnnGetMaxDeviceVersion", "return 1200;"),
        (
            r"cudnnGetProperty",
            "*{1} = (int[]){{CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL}}[{0}];",
        ),
        (
            r"(cudnn|cusparse)GetError(String|Name)|cublas(Lt)?GetStatus(String|Name)",
            'return {0} ? "the stand-in GPU does not do this" : "success";',
        ),
        (r"cudnnGetLastErrorString", '(void)snprintf({0}, {1}, "the stand-in keeps no message");'),
        (r"ncclGetVersion", "*{0} = NCCL_VERSION_CODE;"),
        # NCCL of one rank, see nccl.c.
        (r"ncclGetUniqueId", "*{0} = (ncclUniqueId){{{{0}}}};"),
        (r"ncclCommInitRank(Config)?", "return standin_communicate({0}, {1}, {3});"),
        (r"ncclCommInitRankScalable", "return standin_communicate({0}, {1}, {2});"),
        (
            r"ncclCommSplit",
            "return standin_communicate({3}, {1} == NCCL_SPLIT_NOCOLOR ? 0 : 1, 0);",
        ),
        (r"ncclCommFinalize", "return ncclSuccess;"),
        (r"ncclComm(Destroy|Abort)", "free({0});"),
        (r"ncclComm(GetAsyncError|UserRank)", "*{1} = 0;"),
        (r"ncclCommCount", "*{1} = 1;"),
        (r"ncclCommCuDevice", "*{1} = {0}->device;"),
        (
            r"nccl(AllReduce|ReduceScatter|AllGather)",
            "return standin_reduce(comm, {0}, {1}, {2}, {3}, stream);",
        ),
        (
            r"nccl(Reduce|Broadcast)",
            "return root ? ncclInvalidArgument : standin_reduce(comm, {0}, {1}, {2}, {3}, stream);",
        ),
        (
            r"ncclBcast",
            "return root ? ncclInvalidArgument : standin_reduce(comm, {0}, {0}, {1}, {2}, stream);",
        ),
        (
            r"ncclGet(LastError|ErrorString)",
            'return "the stand-in GPU has no NCCL between ranks: use gloo";',
        ),
        (r"cuptiGetVersion", "*{0} = CUPTI_API_VERSION;"),
        (r"cuptiGetResultString", '*{1} = "the stand-in GPU cannot be profiled";'),
    )
)

# cuBLAS's letters.
TYPES = {"S": "CUDA_R_32F", "D": "CUDA_R_64F", "C": "CUDA_C_32F", "Z": "CUDA_C_64F"}

# Products of matrices, of a matrix and a vector, of two vectors: each is transposed or not, its
# rows, columns and inner length, and its operands with the step between columns. A vector is a
# matrix of one row. The result of the last is a number, which nobody checks.
PRODUCTS: dict[re.Pattern[str], tuple[tuple[str, ...], dict[str, str]]] = {
    re.compile(r"cublas(?P<type>[SDCZ]?)[gG]emm(Ex|_v2|StridedBatched|StridedBatchedEx)"): (
        ("transa", "transb", "m", "n", "k"),
        {"A": "lda", "B": "ldb", "C": "ldc"},
    ),
    re.compile(r"cublas(?P<type>[SDCZ])gemv_v2"): (
        (
            "CUBLAS_OP_N",
            "trans == CUBLAS_OP_N ? CUBLAS_OP_T : CUBLAS_OP_N",
            "1",
            "trans == CUBLAS_OP_N ? m : n",
            "trans == CUBLAS_OP_N ? n : m",
        ),
        {"x": "abs(incx)", "A": "lda", "y": "abs(incy)"},
    ),
    re.compile(r"cublas(?P<type>[SDCZ]?)[dD]ot[cu]?(_v2|Ex)"): (
        ("CUBLAS_OP_N", "CUBLAS_OP_T", "1", "1", "n"),
        {"x": "abs(incx)", "y": "abs(incy)"},
    ),
}

# Functions of the driver API that nobody links to, but looks up.
LOOKED_UP = (
    "cuCtxGetLimit",
    "cuCtxSetLimit",
    "cuFuncSetCacheConfig",
    "cuGetExportTable",
    "cuLinkAddData",
    "cuLinkComplete",
    "cuLinkCreate",
    "cuLinkDestroy",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
)

HEADERS = (
    "standin/libraries/libraries.h",
    "standin/libraries/dnn.h",
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
    plain: str
    """What the header maps to the function's name: cuMemAlloc for cuMemAlloc_v2."""

    @property
    def names(self) -> list[str]:
        """The names of the parameters; none for ``(void)``."""
        found = (re.search(r"(\w+)(\[\d*\])*$", part) for part in self.parameters)
        return [match[1] for match in found if match and match[1] != "void"]

    @property
    def types(self) -> list[str]:
        """The types of the parameters, as a cast wants them."""
        return [
            part.removesuffix(name).strip()
            for part, name in zip(self.parameters, self.names, strict=False)
        ]


def run(command: list[str], text: str = "") -> str:
    """Return what a command prints. Raises SystemExit with its own message if it fails."""
    done = subprocess.run(  # noqa: S603 (a compiler, and nm)
        command, input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"generate_stubs: {command[0]} failed: {done.stderr.strip()[:2000]}")
    return done.stdout


def symbols(files: Iterable[Path], *options: str) -> set[str]:
    """Return the names that ``nm`` lists, without symbol versions."""
    lines = run(["nm", "--format=posix", *options, *map(str, files)]).splitlines()
    return {line.split()[0].split("@")[0] for line in lines if " " in line}


def declarations(
    runtime: Path, compiler: str, headers: Iterable[str], written: Path
) -> dict[str, Declaration]:
    """Return what NVIDIA's headers declare, as the compiler sees it after its preprocessor."""
    here = Path(__file__).resolve().parent
    folders = [written.parent, here, here / "headers", here.parent / "include", here.parent]
    folders += sorted(runtime.parents[2].glob("*/include"))
    includes = "".join(f"#include <{header}>\n" for header in headers)
    options = [f"-I{folder}" for folder in folders]
    text = run([compiler, "-E", "-P", "-xc", "-D_GNU_SOURCE", *options, "-"], includes)
    macros = run([compiler, "-E", "-dM", "-xc", *options, "-"], includes)
    mapped = re.findall(r"#define (cu[A-Z]\w+) (?:__CUDA_API_\w+\()?(cu[A-Z]\w+_v\d)\b", macros)
    plain = {exported: name for name, exported in mapped}
    text = re.sub(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)", " ", text)
    text = re.sub(r"\s+", " ", text)
    found: dict[str, Declaration] = {}
    pattern = r"([\w\s*]+?)\b(\w+) ?\(((?:[^()]|\([^()]*\))*)\) ?;"
    for result, name, parameters in re.findall(pattern, text):
        kind = re.sub(r"\b(extern|static|inline)\b", "", result).strip()
        if OURS.match(name) and kind and "return" not in kind and "typedef" not in kind:
            split = [" ".join(part.split()) for part in parameters.split(",")]
            found.setdefault(name, Declaration(kind, split, plain.get(name, name)))
    return found


def product(name: str, declared: Declaration) -> str | None:
    """Return a call with the exact ranges of a product in device memory; None for another."""
    kinds = ((pattern.fullmatch(name), each) for pattern, each in PRODUCTS.items())
    found, (shape, operands) = next((each for each in kinds if each[0]), (None, ((), {})))
    if not found:
        return None
    matrices = []
    for data, leading in operands.items():
        names = {each.lower(): each for each in declared.names}
        kind = names.get(f"{data.lower()}type") or TYPES[found["type"]]
        stride = names.get(f"stride{data.lower()}", "0")
        matrices.append(f"{{{data}, {kind}, .leading = {leading}, .stride = {stride}}}")
    batches = "batchCount" if "batchCount" in declared.names else "1"
    return (
        f"return standin_multiply((standin_handle *)handle, {', '.join(shape)}, {batches},\n"
        f"(standin_matrix[3]){{{', '.join(matrices)}}});"
    )


def touching(name: str, declared: Declaration) -> str | None:
    """Return a call with the ranges of cuDNN's operations on tensors; None for another.

    A pointer belongs to the descriptor of a tensor before it, or to the size after it.
    """
    if not re.fullmatch(r"cudnnBatchNormalization(Forward|Backward)\w+", name):
        return None
    ranges, descriptor = [], ""
    pairs = [*zip(declared.types, declared.names, strict=True), ("", "")]
    for (kind, each), (next_kind, following) in pairwise(pairs):
        if "cudnnTensorDescriptor_t" in kind:
            descriptor = each
        elif "void" in kind and next_kind == "size_t":
            ranges.append(f"standin_range_of({each}, {following})")
        elif "void" in kind and descriptor:
            ranges.append(f"standin_tensor_range({descriptor}, {each})")
    text = f"(standin_range[]){{{', '.join(ranges)}}}, {len(ranges)}"
    return f"return standin_cudnn_run(handle, {text});"


def library_body(name: str, declared: Declaration) -> str | None:
    """Return what a function of the libraries does; None where that is nothing."""
    for pattern, body in BODIES:
        if found := pattern.fullmatch(declared.plain):
            names = declared.names
            typed = [*zip(names, declared.types, strict=True)]
            library = LIBRARIES.match(declared.plain)
            words = {
                "api": library[0].upper() if library else "",
                "lower": (found[1] or "").lower() if pattern.groups else "",
                "handle": next((n for n, t in typed if re.fullmatch(r"(\w+_t|CU\w+) ?\*", t)), ""),
                "sizes": "\n".join(
                    f"*{n} = 4096;" for n, t in typed if re.fullmatch(r"(int|size_t) ?\*", t)
                ),
                "last": names[-1] if names else "",
                "scale": next((n for n in names if "nScaleBias" in n), ""),
            }
            return body.format(*names, **words)
    return product(name, declared) or touching(name, declared)


def entry(declared: Declaration, called: str, known: dict[str, Declaration]) -> str:
    """Return the body of a function of CUDA's APIs, which a C function does with the lock held."""
    if "(" in called:
        call = f"standin_{called.format(*declared.names)}"
    else:
        types = known[called].types if called in known else declared.types
        given = zip(types, declared.types, declared.names, strict=True)
        values = (each if wanted == own else f"({wanted}){each}" for wanted, own, each in given)
        call = f"standin_{called}({', '.join(values)})"
    checks = [
        CHECKS[kind].format(each)
        for kind, each in zip(declared.types, declared.names, strict=True)
        if kind in CHECKS
    ]
    checks += [
        f"standin_check_device({each})"
        for kind, each in zip(declared.types, declared.names, strict=True)
        if kind == "int" and DEVICE.fullmatch(each)
    ]
    if NEEDS_CONTEXT.fullmatch(declared.plain):
        checks.insert(0, "standin_check_context()")
    api = "standin_return" if declared.result == "cudaError_t" else "standin_return_driver"
    first, *rest = (*checks, call)
    lines = ["standin_begin(&call);", f"cudaError_t error = {first};"]
    lines += [f"error = error == cudaSuccess ? {step} : error;" for step in rest]
    return "\n".join((*lines, f"return {api}(error);"))


def body_of(name: str, declared: Declaration, known: dict[str, Declaration], done: set[str]) -> str:
    """Return what a declared function does. Raises SystemExit for one that must be written in C."""
    implementation = declared.plain
    if f"standin_{implementation}" in done:
        return entry(declared, implementation, {})
    if same := SAME.get(implementation):
        return entry(declared, same, known)
    if text := library_body(name, declared):
        is_whole = "return" in text or declared.result == "void"
        ending = "" if is_whole else f"\nreturn ({declared.result}){{0}};"
        return f"standin_count(&call);\n{text}{ending}"
    if "*" in declared.result or declared.result == "size_t":
        raise SystemExit(
            f"generate_stubs: {name} returns {declared.result}, not a status: write it in C, for "
            "nobody could use a made-up one"
        )
    return ""


def definition(
    name: str, declared: Declaration | None, known: dict[str, Declaration], done: set[str]
) -> str:
    """Return one function in C."""
    body = body_of(name, declared, known, done) if declared else ""
    result, parameters, _ = declared or Declaration("int", ["void"], name)
    if not body:
        called = declared.plain if declared else name
        answer = next((value for pattern, value in ANSWERS if pattern.match(called)), "")
        answer = answer or f"({result}){{0}}"
        is_quiet = any(pattern.fullmatch(called) for pattern in KNOWN)
        body = f"standin_count_unanswered(&call, {str(is_quiet).lower()});"
        body += "" if result == "void" else f"\nreturn {answer};"
    head = f"{result} {name}({', '.join(parameters) or 'void'})"
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    call = f'    static standin_call call = {{.name = "{name}"}};\n'
    return f"{head};\n{head}\n{{\n{call}{lines}}}\n"


def prototypes(known: dict[str, Declaration]) -> str:
    """Return what the C files have to define for a function of CUDA's two APIs."""
    return "".join(
        f"cudaError_t standin_{each.plain}({', '.join(each.parameters) or 'void'});\n"
        for each in known.values()
        if each.result in ("cudaError_t", "CUresult")
    )


def wanted_by(libraries: Path) -> set[str]:
    """Return the names of NVIDIA's functions that PyTorch's libraries leave undefined."""
    files = sorted(libraries.glob("*.so"))
    if not files:
        raise SystemExit(f"generate_stubs: no libraries in {libraries}")
    return {name for name in symbols(files, "--dynamic", "--undefined-only") if OURS.match(name)}


def main() -> None:
    """Read the symbols and the headers, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--runtime", type=Path, help="libcudart.so.13, beside NVIDIA's headers")
    add("--declarations", type=Path, help="write the header of what the C files define, and end")
    add("--torch", type=Path, help="folder of PyTorch's libraries")
    add("--names", type=Path, help="the list of names that several PyTorch want")
    add("--collect", action="store_true", help="add what --torch wants to that list, and end")
    add("--compiler", default="cc", help="a C compiler, for its preprocessor")
    add("--output", type=Path, default=OUTPUT, help=f"the C file to write, {OUTPUT}")
    add("objects", type=Path, nargs="*", help="object files of the stand-in")
    arguments = parser.parse_args()

    if arguments.declarations:
        known = declarations(
            arguments.runtime,
            arguments.compiler,
            ("cuda.h", "cuda_runtime_api.h"),
            arguments.declarations,
        )
        arguments.declarations.write_text(prototypes(known))
        return
    listed = set(arguments.names.read_text().split()) if arguments.names.exists() else set()
    if arguments.torch and arguments.torch.is_dir():
        listed |= wanted_by(arguments.torch)
    known = declarations(arguments.runtime, arguments.compiler, HEADERS, arguments.output)
    wanted = symbols([arguments.runtime], "--dynamic", "--defined-only")
    wanted |= {name for name in known if LIBRARIES.match(name)}
    if arguments.collect:
        arguments.names.write_text("".join(f"{name}\n" for name in sorted(listed - wanted)))
        return
    done = symbols(arguments.objects, "--defined-only", "--extern-only")
    wanted |= listed | {
        name
        for name, each in known.items()
        if each.plain in (*SAME, *LOOKED_UP) or f"standin_{each.plain}" in done
    }
    names = sorted(name for name in wanted - done if OURS.match(name))

    text = "/* Written by generate_stubs.py. */\n#include <stdlib.h>\n#include <stdio.h>\n"
    text += "".join(f"#include <{header}>\n" for header in HEADERS)
    for warning in ("unused-parameter", "deprecated-declarations", "conversion"):
        text += f'#pragma GCC diagnostic ignored "-W{warning}"\n'
    text += "#pragma GCC visibility push(default)\n\n"
    text += "\n".join(definition(name, known.get(name), known, done) for name in names)
    arguments.output.write_text(text + "\n#pragma GCC visibility pop\n")


if __name__ == "__main__":
    main()
