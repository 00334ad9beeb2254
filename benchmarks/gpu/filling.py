"""A server whose cache takes what is left of the device, beside two with a static cache.

    PYTHONPATH=benchmarks python -m gpu.filling [--memory 4GiB] [--write]

A transformer serves requests of random length. Keys and values lie in pages of 16 tokens, and a
captured graph takes one step of all running requests. A request first computes its prompt, whose
temporary memory depends on its length; where a request has no page for its next token, the one that
began last is preempted, and begins anew later. Now and then something else needs more memory than
was left, for a moment. The servers are processes of their own, in so much
memory as a ballast leaves.

filled   the cache is a gmlake.elastic(): its addresses come first, then the graph and the longest
         prompt, then fill() takes what is left. It gives pages back where memory would be refused,
         and after each hundred steps takes what has come free.
static   the cache has --part of the memory, an estimate as servers make it, under gmlake, too
plain    the same under PyTorch's allocator

used: the most of the device that was in use after any step. refused: requests of memory that were
refused. All servers must answer every request with the same tokens; for those that differ from
`plain`, differing has the request, its first other token, and how often it began anew. Attention is
PyTorch's memory-efficient kernel: the one of cuDNN 9.19, which PyTorch prefers, may answer the same
call with other bits.
"""

# PyTorch is typed in part only, and may be absent where the types are checked.
# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import heapq
import json
import math
import operator
import random
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

import machine
from gmlake.units import parse_size
from gpu.ballast import ballast

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_PAGE_TOKENS = 16
_REFILLED = 100  # steps from one fill() to the next
_SCRATCHED = 150  # steps from one use of other memory to the next
_WAYS = ("filled", "static", "plain")


@dataclass(frozen=True)
class Sizes:
    """Of the model and the server.

    longest: tokens of a request, a multiple of a page's. leave_bytes: of the device, for libraries.
    scratch_bytes: more than these, which something else needs for a moment.
    """

    layers: int
    heads: int
    width: int
    words: int
    slots: int
    longest: int
    leave_bytes: int
    scratch_bytes: int

    @property
    def page_shape(self) -> tuple[int, ...]:
        """Keys and values of a page's tokens in every layer."""
        return (self.layers, 2, _PAGE_TOKENS, self.heads, self.width // self.heads)


SIZES = {
    "full": Sizes(
        layers=8,
        heads=16,
        width=2048,
        words=32000,
        slots=64,
        longest=512,
        leave_bytes=128 << 20,
        scratch_bytes=384 << 20,
    ),
    "tiny": Sizes(
        layers=2,
        heads=4,
        width=256,
        words=1000,
        slots=8,
        longest=256,
        leave_bytes=8 << 20,
        scratch_bytes=16 << 20,
    ),
}


@dataclass
class Request:
    """A prompt and how many tokens are to follow it; what has been answered, and its pages.

    begun_anew: how often all of the answer was dropped.
    """

    prompt: list[int]
    wanted: int
    answer: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    begun_anew: int = 0

    @property
    def length(self) -> int:
        """The tokens that have keys and values, the next one's included."""
        return len(self.prompt) + len(self.answer)


def requests_of(sizes: Sizes, count: int) -> list[Request]:
    """Return the requests, the same in each process."""
    chance = random.Random(0)  # noqa: S311 (no secret)
    found = []
    for _ in range(count):
        length = chance.randrange(_PAGE_TOKENS, sizes.longest * 3 // 4)
        wanted = chance.randrange(_PAGE_TOKENS, sizes.longest // 4)
        found.append(Request([chance.randrange(sizes.words) for _ in range(length)], wanted))
    return found


class Model:
    """A transformer over pages of keys and values; norms and positions are left out."""

    def __init__(self, sizes: Sizes, pages: Tensor) -> None:
        """Make the weights. pages: [pages, *page_shape], where addresses are for ever."""
        import torch

        torch.manual_seed(0)
        width = sizes.width

        def weight(*shape: int) -> Tensor:
            made = torch.randn(*shape, device="cuda", dtype=pages.dtype)
            return made.div_(shape[0] ** 0.5)

        self.sizes, self.pages = sizes, pages
        self.words = weight(sizes.words, width) * sizes.words**0.5
        self.layers = [
            (weight(width, 3 * width), weight(width, width), weight(width, 4 * width),
             weight(4 * width, width))
            for _ in range(sizes.layers)
        ]  # fmt: skip
        places = (sizes.slots,)
        self.tokens = torch.zeros(places, dtype=torch.long, device="cuda")
        self.lengths = torch.ones(places, dtype=torch.long, device="cuda")
        self.tables = torch.zeros(
            (sizes.slots, sizes.longest // _PAGE_TOKENS), dtype=torch.long, device="cuda"
        )
        self.graph = torch.cuda.CUDAGraph()
        self.answers = torch.zeros_like(self.tokens)

    def _heads(self, tensor: Tensor) -> Tensor:
        return tensor.view(*tensor.shape[:-1], self.sizes.heads, -1)

    def _mix(self, hidden: Tensor, layer: tuple[Tensor, ...], seen: Tensor) -> Tensor:
        """Add what attention saw, and what follows it."""
        import torch

        _, out, up, down = layer
        hidden = hidden + seen.flatten(-2) @ out
        hidden = hidden + torch.nn.functional.gelu(hidden @ up) @ down
        return torch.nn.functional.layer_norm(hidden, (self.sizes.width,))

    def prefill(self, request: Request) -> int:
        """Compute a prompt into its pages; return the first token of the answer."""
        import torch

        length = len(request.prompt)
        where = torch.arange(length, device="cuda")
        pages = torch.tensor(request.pages, device="cuda")[where // _PAGE_TOKENS]
        hidden = self.words[torch.tensor(request.prompt, device="cuda")]
        for number, layer in enumerate(self.layers):
            query, key, value = (self._heads(each) for each in (hidden @ layer[0]).chunk(3, -1))
            for which, each in enumerate((key, value)):
                self.pages[pages, number, which, where % _PAGE_TOKENS] = each
            asked, keys, values = (each.transpose(0, 1)[None] for each in (query, key, value))
            seen = torch.nn.functional.scaled_dot_product_attention(
                asked, keys, values, is_causal=True
            )
            hidden = self._mix(hidden, layer, seen[0].transpose(0, 1))
        return int((hidden[-1] @ self.words.T).argmax())

    def warm_up(self) -> None:
        """Compute prompts up to the longest: CUDA takes memory for their kernels itself."""
        longest = self.sizes.longest * 3 // 4
        for length in range(_PAGE_TOKENS, longest + 1, longest // 16):
            self.prefill(Request([0] * length, 1, pages=[0] * (length // _PAGE_TOKENS + 1)))

    def capture(self) -> None:
        """Capture one step of all slots."""
        import torch

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._decode()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self.graph):
            self._decode()

    def _decode(self) -> None:
        import torch

        sizes, last = self.sizes, self.lengths - 1
        pages = self.tables.gather(1, (last // _PAGE_TOKENS)[:, None])[:, 0]
        known = torch.arange(sizes.longest, device="cuda")[None] < self.lengths[:, None]
        hidden = self.words[self.tokens]
        for number, layer in enumerate(self.layers):
            query, key, value = (self._heads(each) for each in (hidden @ layer[0]).chunk(3, -1))
            for which, each in enumerate((key, value)):
                self.pages[pages, number, which, last % _PAGE_TOKENS] = each
            keys, values = (
                self.pages[self.tables, number, which].flatten(1, 2).transpose(1, 2)
                for which in range(2)
            )
            seen = torch.nn.functional.scaled_dot_product_attention(
                query[:, :, None], keys, values, attn_mask=known[:, None, None]
            )
            hidden = self._mix(hidden, layer, seen[:, :, 0])
        self.answers.copy_((hidden @ self.words.T).argmax(-1))

    def step(self, running: list[Request]) -> list[int]:
        """Return the next token of each."""
        import torch

        tables = torch.zeros(self.tables.shape, dtype=torch.long)
        lengths, tokens = (torch.full((self.sizes.slots,), fill) for fill in (1, 0))
        for slot, request in enumerate(running):
            tables[slot, : len(request.pages)] = torch.tensor(request.pages)
            lengths[slot] = request.length
            tokens[slot] = request.answer[-1]
        for to, source in ((self.tables, tables), (self.lengths, lengths), (self.tokens, tokens)):
            to.copy_(source)
        self.graph.replay()
        answers: list[int] = self.answers.tolist()
        return answers[: len(running)]


class Server:
    """Serves all requests, from the lowest pages. Page 0 is for slots that are empty."""

    def __init__(self, model: Model, requests: list[Request]) -> None:
        """Begin with every request waiting, and without pages."""
        self.model = model
        self.waiting = deque(requests)
        self.running: list[Request] = []
        self.prompting: Request | None = None  # whose prompt is being computed
        self.spare: list[int] = []  # a heap
        self.pages = 1  # that it may use
        self.given = self.steps = 0

    def may_use(self, pages: int) -> None:
        """Use so many pages from now on, if they are more than before."""
        if pages > self.pages:  # zeros: attention multiplies what lies behind a request by zero
            self.model.pages[self.pages : pages].zero_()
        for page in range(self.pages, pages):
            heapq.heappush(self.spare, page)
        self.pages = max(self.pages, pages)

    def give(self, pages: int) -> int:
        """Use no page behind so many: requests that have some begin anew.

        The first is always used, and those of a prompt that is being computed, which would write
        there.
        """
        pages = max([pages, 1, *(page + 1 for page in self._written())])
        for request in [each for each in self.running if max(each.pages) >= pages]:
            self._preempt(request)
        self.spare = [page for page in self.spare if page < pages]
        heapq.heapify(self.spare)
        self.given += self.pages - pages
        self.pages = pages
        return pages

    def _written(self) -> list[int]:
        return self.prompting.pages if self.prompting else []

    def _end(self, request: Request) -> None:
        self.running.remove(request)
        for page in request.pages:
            heapq.heappush(self.spare, page)
        request.pages = []

    def _preempt(self, request: Request) -> None:
        self._end(request)
        request.answer = []
        request.begun_anew += 1
        self.waiting.appendleft(request)

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.model.sizes.slots:
            request = self.waiting[0]
            needed = len(request.prompt) // _PAGE_TOKENS + 1
            if needed > len(self.spare):
                return
            self.waiting.popleft()
            request.pages = [heapq.heappop(self.spare) for _ in range(needed)]
            self.running.append(request)
            self.prompting = request
            request.answer.append(self.model.prefill(request))
            self.prompting = None

    def _make_room(self) -> None:
        for request in list(self.running):
            while request.pages and request.length > len(request.pages) * _PAGE_TOKENS:
                if not self.spare:
                    self._preempt(self.running[-1])
                else:
                    request.pages.append(heapq.heappop(self.spare))

    def serve(self, after_step: Callable[[], object]) -> None:
        """Take steps until all requests are answered."""
        while self.waiting or self.running:
            self._admit()
            self._make_room()
            going = list(self.running)
            for request, token in zip(going, self.model.step(going), strict=True):
                request.answer.append(token)
                if len(request.answer) >= request.wanted:
                    self._end(request)
            self.steps += 1
            after_step()


def measure(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Serve in this process; return what was seen."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import gmlake

    sizes, requests = SIZES[options.size], requests_of(SIZES[options.size], options.requests)
    torch.cuda.init()
    session = None if way == "plain" else gmlake.enable()
    left, total = torch.cuda.mem_get_info()
    row_shape = sizes.page_shape
    page_bytes = math.prod(row_shape) * torch.bfloat16.itemsize
    cache = None
    if way == "filled":
        cache = gmlake.elastic((total // page_bytes, *row_shape), torch.bfloat16, rows=1)
        pages = cache.whole
    else:
        count = int(options.part * left) // page_bytes
        pages = torch.zeros((count, *row_shape), dtype=torch.bfloat16, device="cuda")
    model = Model(sizes, pages)
    server = Server(model, list(requests))
    most_used, most_pages = 0, 0

    def after_step() -> None:
        nonlocal most_used, most_pages
        most_used = max(most_used, total - torch.cuda.mem_get_info()[0])
        most_pages = max(most_pages, sum(len(each.pages) for each in server.running))
        if server.steps % _SCRATCHED == 0:
            torch.empty(sizes.scratch_bytes, dtype=torch.uint8, device="cuda")
        if cache is not None and server.steps % _REFILLED == 0:
            server.may_use(cache.fill(server.give, leave=sizes.leave_bytes).shape[0])

    with torch.no_grad(), sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        model.warm_up()
        model.capture()
        if cache is None:
            server.may_use(len(pages))
        else:
            server.may_use(cache.fill(server.give, leave=sizes.leave_bytes).shape[0])
        torch.cuda.synchronize()
        began = time.perf_counter()
        server.serve(after_step)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    refused = session.stats()["states"]["oom"] if session else torch.cuda.memory_stats()["num_ooms"]
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "left_bytes": left,
        "total_bytes": total,
        "used": round(most_used / total, 5),
        "most_pages_bytes": most_pages * page_bytes,
        "cache_bytes": page_bytes * (len(pages) if cache is None else cache.rows),
        "refused": refused,
        "preempted": sum(each.begun_anew for each in requests),
        **{name: getattr(server, name) for name in ("given", "steps")},
        "served": sum(len(each.answer) >= each.wanted for each in requests),
        "seconds": round(seconds, 3),
        "answers": [each.answer for each in requests],
        "begun_anew": [each.begun_anew for each in requests],
    }


def ask(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a process of its own measured, or `failed`."""
    words = [sys.executable, "-m", "gpu.filling", "--one", way, "--size", options.size]
    words += ["--requests", str(options.requests), "--part", str(options.part)]
    return machine.told_by(words)


def compare(ways: dict[str, Any]) -> None:
    """Replace the answers of each server by those requests whose answer is not that of `plain`."""
    ran = [told for told in reversed(ways.values()) if "failed" not in told]
    answers = [told.pop("answers") for told in ran]
    for told, given in zip(ran, answers, strict=True):
        begun_anew = told.pop("begun_anew")
        told["differing"] = [
            {
                "request": number,
                "token": sum(takewhile(bool, map(operator.eq, answer, other))),
                "begun_anew": begun_anew[number],
            }
            for number, (answer, other) in enumerate(zip(given, answers[0], strict=True))
            if answer != other
        ]


def show(figures: dict[str, Any]) -> None:
    """Print a row for each server."""
    names = ("served", "refused", "used", "preempted", "given", "steps", "seconds", "differing")
    table = Table("cache", *names)
    for way, told in figures["ways"].items():
        if "failed" in told:
            table.add_row(way, told["failed"])
        else:
            figures_of = {**told, "differing": len(told["differing"])}
            table.add_row(way, *(f"{figures_of[name]}" for name in names))
    Console(width=110).print(table)


def main() -> int:
    """Measure, print, and keep it where asked; 1 where a server failed, or answers differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--memory", default="4GiB", help="of the device, for each server (4GiB)")
    parser.add_argument("--part", type=float, default=0.2, help="of it, for the static cache (0.2)")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--write", action="store_true", help="keep it as results/gpu_filling.json")
    parser.add_argument("--output", type=Path, metavar="FILE", help="keep it there instead")
    parser.add_argument("--one", choices=_WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options)))
        return 0
    figures: dict[str, Any] = {name: getattr(options, name) for name in ("size", "requests")}
    with ballast(parse_size(options.memory)) as left:
        figures |= {"memory_bytes": left, "ways": {way: ask(way, options) for way in _WAYS}}
    compare(figures["ways"])
    show(figures)
    ways = figures["ways"].values()
    if options.write or options.output:
        gpu = machine.devices_of(figures["ways"])
        print(machine.write("gpu_filling", figures, path=options.output, gpu=gpu))
    ran = [told for told in ways if "failed" not in told]
    return int(len(ran) < len(_WAYS) or any(told["differing"] for told in ran))


if __name__ == "__main__":
    sys.exit(main())
