"""Copies with real bytes, then a capture that is broken; prints what was seen as JSON.

Runs on a stand-in whose memory has bytes. Kernels compute nothing there either, but what was
copied is found again.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import torch

from gmlake.standin import control

Result = dict[str, Any]


def numbers(*shape: int) -> torch.Tensor:
    """Return a tensor on the host with no two numbers alike."""
    count = torch.Size(shape).numel()
    return torch.arange(count, dtype=torch.float32).reshape(shape)


def copies() -> Result:
    """Send numbers to a device, to the other, and back."""
    host = numbers(300, 1000)
    here = host.to("cuda:0")
    there = here.to("cuda:1")
    inside = torch.empty_like(there).copy_(there)
    late = host.pin_memory().to("cuda:0", non_blocking=True)
    view = here[100:200]
    return {
        "return": torch.equal(here.cpu(), host),
        "peer": torch.equal(there.cpu(), host),
        "inside": torch.equal(inside.cpu(), host),
        "late": torch.equal(late.cpu(), host),
        "view": torch.equal(view.cpu(), host[100:200]),
        "item": here[7, 5].item() == 7005.0,
        "list": here[0, :3].tolist() == [0.0, 1.0, 2.0],
    }


def memory_is_used_again() -> Result:
    """Find in a new tensor what the last owner of its block left there."""
    first = numbers(1000, 1000).cuda()
    address = first.data_ptr()
    del first
    second = torch.empty(1000, 1000, device="cuda")
    return {
        "same_block": second.data_ptr() == address,
        "old_bytes": torch.equal(second.cpu(), numbers(1000, 1000)),
    }


def copies_wait_for_their_turn() -> Result:
    """Look at the host while a copy to it is pending, and when it is done."""
    device = numbers(1000).cuda()
    target = torch.zeros(1000).pin_memory()
    stream = torch.cuda.Stream()
    with control.paced("manual"), torch.cuda.stream(stream):
        target.copy_(device, non_blocking=True)
        is_early = bool(target.any())
        control.advance(stream.cuda_stream, 1)
    return {"pending": not is_early, "done": torch.equal(target, numbers(1000))}


def replays() -> Result:
    """Copy within a graph whose input changes between replays."""
    static, out = torch.empty(1000, device="cuda"), torch.empty(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.copy_(static)
    results = {}
    for name, first in (("first_replay", 1), ("second_replay", 2)):
        static.copy_(numbers(1000) + first)
        graph.replay()
        results[name] = torch.equal(out.cpu(), numbers(1000) + first)
    return results


def threads() -> Result:
    """Copy on four threads, each on a stream of its own."""
    is_right = [False] * 4

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            rounds = [
                torch.equal((numbers(5000) + index + i).cuda().cpu(), numbers(5000) + index + i)
                for i in range(50)
            ]
            is_right[index] = all(rounds)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(len(is_right))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"threads": all(is_right)}


def refusal() -> Result:
    """Ask for more than there is."""
    try:
        torch.empty(1 << 30, device="cuda")
    except torch.OutOfMemoryError as error:
        return {"refusal": str(error)}
    return {"refusal": "it was granted"}


def broken_capture() -> Result:
    """Wait within a capture. PyTorch cannot tidy up after that, so this is the last thing."""
    graph, answers = torch.cuda.CUDAGraph(), []
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        for call in (torch.cuda.synchronize, graph.capture_end):
            try:
                call()
            except RuntimeError as error:
                answers.append(str(error).splitlines()[0])
    return {"broken_capture": answers}


def main() -> None:
    """Do it all in order."""
    results: Result = {}
    for step in (
        *(copies, memory_is_used_again, copies_wait_for_their_turn, replays, threads),
        *(refusal, broken_capture),
    ):
        results |= step()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
