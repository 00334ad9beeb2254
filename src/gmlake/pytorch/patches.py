"""What PyTorch refuses under a foreign allocator, answered by gmlake instead, in full mode."""

# mypy: allow-untyped-calls

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import torch

from gmlake.pytorch import compat, notices, snapshots, statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_fractions: dict[int, float] = {}  # by device, as set; 1.0 elsewhere
_IN_NATIVE_MODE: Final = 'it works in mode "native"; see docs/pytorch.md'


def install() -> None:
    """Replace what does not work; what this PyTorch does not have is passed over."""
    for name, answer in _ANSWERS.items():
        compat.replace(name, answer)
    _remember_fractions()
    _refuse_pools()
    _refuse_sharing()
    _spare_cudnn()
    _tell_of_what_is_ignored()


# ---- statistics


def _memory_stats(device: int) -> dict[str, Any]:
    return statistics.nested(device)


def _is_allocator_initialized() -> bool:
    return bool(torch.cuda.is_initialized())


def _empty_cache() -> None:
    torch.cuda.empty_cache()


def _memory_fraction(device: int) -> float:
    return _fractions.get(device, 1.0)


# ---- snapshots and histories


def _snapshot(wanted: Sequence[Any] | None = None) -> dict[str, Any]:
    """Take what PyTorch's takes: None, the two numbers of a pool, or these and a bool.

    The bool says whether events are wanted. Memory of pools is not told apart here.
    """
    parts = tuple(wanted or ())
    found = snapshots.snapshot(has_events=all(parts[2:]))
    if any(parts[:2]):
        found["segments"] = []
    return found


def _record_history(  # noqa: PLR0913, PLR0917 (PyTorch's own list)
    enabled: str | None,
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = snapshots.MOST_EVENTS,
    clear_history: bool = False,  # noqa: FBT001, FBT002
    compile_context: bool = False,  # noqa: ARG001, FBT001, FBT002
    global_record_annotations: bool = False,  # noqa: ARG001, FBT001, FBT002
    skip_actions: Sequence[str] = (),
    record_pinned_host_memory: bool = False,  # noqa: FBT001, FBT002 (this and the next since 2.14)
    record_cuda: bool = True,  # noqa: FBT001, FBT002
) -> None:
    for what, value, known in (
        ("state", enabled, ("state", "all", None)),
        ("context", context, ("state", "alloc", "all", None)),
        ("stacks", stacks, ("python", "all")),
    ):
        if value not in known:
            raise RuntimeError(f"expected {what} to be one of {known}, not {value!r}")
    if record_pinned_host_memory:
        notices.once(
            "host history",
            "no events of the host's memory are recorded while gmlake is the allocator",
        )
    if not record_cuda:
        return
    if enabled is not None and context is not None:
        _say_no_frames()
    # As PyTorch has it, "state" keeps one event and the stack traces of what is live.
    kept = {"all": max(1, max_entries), "state": 1}.get(enabled or "", 0)
    snapshots.record(kept, skip_actions, is_clear=clear_history)


def _record_history_legacy(
    enabled: bool,  # noqa: FBT001
    record_context: bool = True,  # noqa: FBT001, FBT002
    trace_alloc_max_entries: int = 1,
    *_: object,
) -> None:
    if enabled and record_context:
        _say_no_frames()
    snapshots.record(max(1, trace_alloc_max_entries) if enabled else 0)


def _say_no_frames() -> None:
    notices.once(
        "frames", "events of memory are recorded without stack traces while gmlake is the allocator"
    )


def _attach_observer(_observer: Callable[..., None]) -> None:
    notices.once(
        "observer",
        "an observer of the end of memory is not called while gmlake is PyTorch's allocator; "
        "catch torch.OutOfMemoryError instead",
    )


# ---- what stays impossible


def _refusal(what: str, advice: str = _IN_NATIVE_MODE) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise RuntimeError(f"{what} cannot work while gmlake is PyTorch's allocator; {advice}")

    return refuse


_graph_trees = _refusal(
    'torch.compile(mode="reduce-overhead")',
    'set torch._inductor.config.triton.cudagraph_trees = False, or use mode "native"; '
    "see docs/pytorch.md",
)


def _refuse_pools() -> None:
    torch.cuda.MemPool.__init__ = _refusal("torch.cuda.MemPool")  # type: ignore[method-assign]


def _refuse_sharing() -> None:
    compat.replace_sharing(
        _refusal(
            "sharing CUDA tensors between processes", "send them by the CPU; see docs/pytorch.md"
        )
    )


def _spare_cudnn() -> None:
    """Keep cudnn.benchmark off: its search asks the allocator for its largest free block."""
    set_benchmark = compat.function("benchmark_cudnn")

    def refuse_benchmark(is_wanted: bool) -> None:  # noqa: FBT001
        if is_wanted:
            notices.once(
                "cudnn",
                "torch.backends.cudnn.benchmark stays off: PyTorch cannot search while gmlake is "
                "its allocator; cuDNN's heuristics choose",
            )
        if set_benchmark is not None:
            set_benchmark(False)

    compat.replace("benchmark_cudnn", refuse_benchmark)
    vars(type(torch.backends.cudnn))["benchmark"].setter = refuse_benchmark
    if compat.is_cudnn_benchmarking():
        refuse_benchmark(True)  # noqa: FBT003


def _remember_fractions() -> None:
    def remember(fraction: float, device: int) -> None:
        _fractions[device] = fraction

    _also("set_fraction", remember)


def _tell_of_what_is_ignored() -> None:
    """Say once what PyTorch takes without complaint, and a foreign allocator never hears of."""

    def tell_of_settings(settings: str) -> None:
        if any(not part.strip().startswith("pinned_") for part in settings.split(",") if part):
            notices.once(
                "settings",
                "settings of PyTorch's allocator reach gmlake by PYTORCH_ALLOC_CONF, before the "
                "program starts; those of a running program change nothing",
            )

    def tell_of_caching(is_wanted: bool) -> None:  # noqa: FBT001
        if not is_wanted:
            notices.once("caching", "memory is cached on, which gmlake cannot do without")

    def tell_of_metadata(text: str) -> None:
        if text:
            notices.once("metadata", "events of memory are recorded without metadata")

    _also("set_settings", tell_of_settings)
    _also("enable_caching", tell_of_caching)
    _also("set_metadata", tell_of_metadata)


def _also(name: str, then: Callable[..., None]) -> None:
    """Let a function of PyTorch that returns nothing call another one when it is done."""
    first = compat.function(name)
    if first is None:
        return

    def both(*arguments: Any) -> None:  # noqa: ANN401 (as PyTorch has it)
        first(*arguments)
        then(*arguments)

    compat.replace(name, both)


_ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "stats": _memory_stats,
    "reset_peaks": statistics.reset_peaks,
    "reset_accumulated": statistics.reset_accumulated,
    "accelerator_has_begun": _is_allocator_initialized,
    "accelerator_stats": _memory_stats,
    "accelerator_reset_peaks": statistics.reset_peaks,
    "accelerator_reset_accumulated": statistics.reset_accumulated,
    "accelerator_empty_cache": _empty_cache,
    "memory_fraction": _memory_fraction,
    "snapshot": _snapshot,
    "record_history": _record_history,
    "record_history_legacy": _record_history_legacy,
    "is_recording": snapshots.is_recording,
    "attach_observer": _attach_observer,
    "check_pool": _graph_trees,
    "pool_state": _graph_trees,
    "restore_pool": _graph_trees,
}
