"""Programs in which gmlake serves PyTorch from its start; each prints what it saw as JSON.

The argument names one of the functions below.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import sys
import threading
import warnings
from contextlib import ExitStack
from typing import Any

import torch
from tests.standin.quiet import wait_for_other_threads
from tests.standin.refusal import refused

import gmlake
from gmlake.pytorch import Session
from gmlake.standin import control

MIB = 1 << 20
SIZE = 8 * MIB


def block(size: int = SIZE) -> torch.Tensor:
    """Return a tensor of so many bytes."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def server() -> str:
    """Tell who serves: PyTorch's algorithm takes 20 MiB for what stitch takes 4 MiB for."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    held = block(3 * MIB)
    grown = torch.cuda.memory_reserved() - before
    del held
    torch.cuda.empty_cache()
    return {4 * MIB: "stitch", 20 * MIB: "caching"}.get(grown, str(grown))


def sessions() -> dict[str, Any]:
    """Nest sessions, leave them by exceptions and in other orders, and from other threads."""
    seen: dict[str, Any] = {"before": [gmlake.is_enabled(), torch.cuda.is_initialized()]}
    outer = gmlake.enabled()
    with outer as session:
        seen["starts_nothing"] = not torch.cuda.is_initialized()
        seen["empty"] = [session.mode, session.policy, list(session.devices), session.stats()]
        seen["no_lake"] = refused(session.lake)
        seen["entered_twice"] = refused(outer.__enter__)
        seen["inside"] = server()
        seen["enabled"] = gmlake.is_enabled()
        with gmlake.enabled(policy="caching") as inner:
            seen["nested"] = [server(), inner.policy, inner.mode]
            with gmlake.enabled("stitch"):
                seen["nested_twice"] = server()
        seen["inside_again"] = server()
        seen["other_knobs"] = refused(gmlake.enabled(max_views=64).__enter__)
        seen["other_policy"] = refused(gmlake.enabled("expandable").__enter__)
        seen["text"] = repr(session)
        seen["trimmed"] = [session.trim(), session.stats()["reserved_bytes"]]
        held = block()
        seen["lake"] = session.lake().stats()["live_bytes"]
        del held
    seen["outside"] = [server(), gmlake.is_enabled(), repr(outer)]
    with outer:
        seen["reused"] = server()
    try:
        with gmlake.enabled():
            raise KeyError("a program fails")  # noqa: TRY301
    except KeyError:
        seen["after_exception"] = [server(), gmlake.is_enabled()]
    seen["orders"] = _cross_over()
    seen["threads"] = _share_with_thread()
    seen["lasting"] = _enable_and_disable()
    seen["misuses"] = control.misuses()
    return seen


def _cross_over() -> list[str]:
    """Leave the outer of two sessions first."""
    first, second = gmlake.enabled("stitch"), gmlake.enabled("caching")
    found = []
    with ExitStack() as one, ExitStack() as two:
        one.enter_context(first)
        two.enter_context(second)
        found.append(server())
        one.close()
        found.append(server())
        one.enter_context(first)
        found.append(server())
        two.close()
        found.append(server())
    return [*found, server()]


def _share_with_thread() -> list[str]:
    """A session of one thread serves every thread; the last one to begin decides."""
    begun, done = threading.Event(), threading.Event()
    found = []

    def serve() -> None:
        with gmlake.enabled():
            begun.set()
            done.wait()

    thread = threading.Thread(target=serve)
    thread.start()
    begun.wait()
    found.append(server())
    with gmlake.enabled("caching"):
        done.set()
        thread.join()
        found.append(server())
    found.append(server())
    return found


def _enable_and_disable() -> list[Any]:
    session = gmlake.enable()
    found = [server(), gmlake.enable() is session, gmlake.enable("stitch") is session]
    found.append(refused(gmlake.enable, "caching"))
    gmlake.disable()
    gmlake.disable()
    return [*found, server(), gmlake.is_enabled()]


def fixed() -> dict[str, Any]:
    """Let the first session that uses a device settle for all later ones what serves them."""
    with gmlake.enabled("expandable"):
        pass  # which uses none
    with gmlake.enabled("caching", max_split_size="64MiB"):
        seen: dict[str, Any] = {"server": server()}
    with gmlake.enabled() as session:
        seen["later"] = [session.policy, server()]
    with gmlake.enabled("caching", max_split_size=64 * MIB) as session:
        seen["same"] = session.policy
    seen["other"] = refused(gmlake.enabled("stitch").__enter__)
    seen["enabled"] = gmlake.is_enabled()
    return seen


def unused() -> dict[str, Any]:
    """Change settings that nothing was served with yet, as a script under `gmlake run` may."""
    first = gmlake.enable()
    second = gmlake.enable("expandable")
    seen: dict[str, Any] = {"replaced": [first.mode, second.policy, second.mode]}
    with gmlake.enabled("stitch", capacity="1GiB") as session:
        kept = block()
        seen["inside"] = [server(), session.settings.capacity_bytes]
    seen["too_late"] = refused(gmlake.enable, "caching", capacity="2GiB")
    gmlake.disable()
    seen["decorated"] = [gmlake.enabled()(server)(), gmlake.enabled("caching")(server)(), server()]
    del kept
    return seen


def training() -> dict[str, Any]:
    """Train, in a session and outside of it; a step that repeats itself asks the driver nothing."""
    from tests.standin.training import Trainer, memory_calls

    with gmlake.enabled() as session:
        trainer = Trainer(torch.bfloat16, has_checkpoints=True)
        for _ in range(4):
            trainer.step()
        held = torch.cuda.memory_reserved()
        control.reset_calls()
        for _ in range(3):
            trainer.step()
        calls = memory_calls(control.calls())
        grown = torch.cuda.memory_reserved() - held
        session.lake().check()
    for _ in range(2):
        trainer.step()
    session.lake().check()
    control.reset_calls()
    with gmlake.enabled():
        trainer.step()
    again = memory_calls(control.calls())
    peak = torch.cuda.max_memory_reserved()
    live = torch.cuda.max_memory_allocated()
    del trainer
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001
    torch.cuda.empty_cache()
    return {
        "policy": session.policy,
        "calls": calls,
        "grown": grown,
        "again": again,
        "peak": [live, peak],
        "left": [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()],
        "misuses": control.misuses(),
    }


def out_of_memory() -> dict[str, Any]:
    """Run out of memory again and again, and go on; for a small device."""
    from tests.standin.training import Trainer

    with gmlake.enabled() as session:
        trainer = Trainer(torch.bfloat16)
        trainer.step()
        try:
            block(torch.cuda.get_device_properties(0).total_memory * 2)
        except torch.OutOfMemoryError as error:
            text = str(error)
        trainer.step()
        before = [*_held(session), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]
        count = 0
        for _ in range(1000):
            try:
                block(1 << 40)
            except torch.OutOfMemoryError:
                count += 1
        after = [*_held(session), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]
        sizes = _shrink()
        trainer.step()
        session.lake().check()
        return {
            "text": text,
            "count": count,
            "before": before,
            "after": after,
            "sizes": sizes,
            "ooms": torch.cuda.memory_stats()["num_ooms"],
            "misuses": control.misuses(),
        }


def _held(session: Session) -> list[int]:
    stats = session.stats()
    return [torch.cuda.memory_allocated(), stats["live_blocks"], stats["reserved_bytes"]]


def _shrink() -> list[int]:
    """Do what a script does that looks for the largest batch: halve it until it fits."""
    tried = []
    size = torch.cuda.get_device_properties(0).total_memory
    while True:
        tried.append(size // MIB)
        try:
            parts = [block(size // 4) for _ in range(4)]
        except torch.OutOfMemoryError:
            parts = []
            size //= 2
        else:
            del parts
            return tried


def limits() -> dict[str, Any]:
    """Set the share of the device that PyTorch may hold; PYTORCH_ALLOC_CONF set one before."""
    gmlake.enable()
    torch.cuda.init()
    found: dict[str, Any] = {"from_variable": torch.cuda.get_per_process_memory_fraction()}
    total = torch.cuda.get_device_properties(0).total_memory
    found["above_variable"] = refused(block, total // 2 + 64 * MIB)[:16]
    torch.cuda.set_per_process_memory_fraction(0.25)
    found["set"] = torch.cuda.get_per_process_memory_fraction()
    found["other_device"] = torch.cuda.get_per_process_memory_fraction(1)
    found["below"] = refused(block, total // 4 - 64 * MIB)
    found["above"] = refused(block, total // 4 + 64 * MIB)[:16]
    torch.cuda.set_per_process_memory_fraction(1.0)
    found["without"] = refused(block, total // 2 + 64 * MIB)
    found["on_other"] = refused(torch.empty, total // 4, dtype=torch.uint8, device="cuda:1")
    return found


def forks() -> dict[str, Any]:
    """Fork before and after CUDA is used; a child tells by its exit code.

    Asking PyTorch whether there is CUDA would be a use.
    """
    context = multiprocessing.get_context("fork")

    def child(uses_cuda: Any, expected: Any) -> int:
        def run() -> None:
            is_right = gmlake.is_enabled() is expected
            if uses_cuda:
                held = torch.ones(10, device="cuda")
                is_right = is_right and torch.cuda.memory_allocated() == 512
                del held
            else:
                is_right = is_right and torch.cuda.memory_allocated() == 0
                is_right = is_right and torch.cuda.memory_snapshot() == []
            os._exit(0 if is_right else 1)

        process = context.Process(target=run)
        process.start()
        process.join(600)
        return process.exitcode if process.exitcode is not None else -1

    with gmlake.enabled() as session:
        before = child(uses_cuda=True, expected=True)
        held = block()
        after = child(uses_cuda=False, expected=False)
        inside = os.fork()
        if inside == 0:
            session.__exit__(None, None, None)
            session.trim()
            os._exit(0 if repr(session).endswith("not open>") else 1)
        left = os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1])
        return {
            "codes": [before, after, left],
            "parent": [gmlake.is_enabled(), torch.cuda.memory_allocated() - held.nbytes],
        }


def unserved() -> dict[str, Any]:
    """Run where gmlake cannot begin: a session of its own has nothing to work on."""
    session = gmlake.enable()
    with gmlake.enabled("expandable") as inner:
        seen = {"modes": [session.mode, inner.mode, gmlake.is_enabled()], "why": session.why}
        block()
    return seen | {"region": refused(gmlake.region("weights").__enter__)}


def backend() -> dict[str, Any]:
    """Run under PYTORCH_ALLOC_CONF=backend:cudaMallocAsync."""
    torch.cuda.init()  # it may be in use already
    with gmlake.enabled() as session:
        held = block()
        inside = session.stats()["live_bytes"]
    after = block()
    outside = session.stats()["live_bytes"]
    del held, after
    return {
        "inside": inside,
        "outside": outside,
        "backend": torch.cuda.get_allocator_backend(),
    }


def main() -> None:
    """Do what the argument names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = globals()[sys.argv[1]]()
    said = [str(w.message) for w in caught if w.category is gmlake.GmlakeWarning]
    where = {w.filename for w in caught if w.category is gmlake.GmlakeWarning}
    backend = torch.cuda.get_allocator_backend()
    results |= {"warnings": said, "is_ours": where <= {__file__}, "installed": backend}
    json.dump(results, sys.stdout)
    # Else the threads of PyTorch's backward passes may end the process: docs/compatibility.md.
    wait_for_other_threads()


if __name__ == "__main__":
    main()
