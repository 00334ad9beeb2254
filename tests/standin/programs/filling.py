"""Elastic tensors that fill a device and give way; prints what was seen as JSON.

Runs on a stand-in of two devices of 1 GiB whose memory has bytes.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import gc
import json
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from tests.standin.failures import failure

import gmlake
from gmlake.pytorch import relief
from gmlake.pytorch.elastic import Elastic

if TYPE_CHECKING:
    from collections.abc import Callable

Result = dict[str, Any]
MIB = 1 << 20
LEFT = 32 * MIB
ROW_BYTES = 1 << 10
PAGE_ROWS = 16


def cache_of(rows: int = 4 << 20, device: int = 0) -> Elastic:
    """Return an elastic tensor of rows of 1 KiB; as many as it may have are more than fit."""
    return gmlake.elastic((rows, 256), torch.float32, device)


def free(device: int = 0) -> int:
    """Return what the device has left."""
    return int(torch.cuda.mem_get_info(device)[0])


def taken(size: int) -> torch.Tensor:
    """Return memory of that size."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


class Giver:
    """Gives what is asked for, or as `answer` says; notes what it was asked."""

    def __init__(self, answer: Callable[[int], int] = lambda rows: rows) -> None:
        self.asked: list[int] = []
        self.answer = answer

    def __call__(self, rows: int) -> int:
        self.asked.append(rows)
        return self.answer(rows)


def fills() -> Result:
    """It takes what the device has, less what is to be left, and again what has come free."""
    with cache_of() as cache:
        before = free()
        first = cache.fill(leave=LEFT)
        left, rows = free(), cache.rows
        cache.resize(1000)
        torch.cuda.empty_cache()
        other = taken(100 * MIB)
        second = cache.fill(leave=LEFT)
        fewer = rows - cache.rows
        del other
        torch.cuda.empty_cache()
        cache.fill(leave=LEFT)
        with cache_of(rows=1 << 16) as nothing_left, cache_of(rows=1000, device=1) as small:
            no_rows = nothing_left.fill().shape[0]
            whole = small.fill().shape[0]
        torch.cuda.set_per_process_memory_fraction(0.5, 1)
        with cache_of(device=1) as limited:
            half = limited.fill(leave=0).shape[0] * ROW_BYTES
        torch.cuda.set_per_process_memory_fraction(1.0, 1)
        return {
            "leaves": LEFT <= left < LEFT + 2 * cache.chunk_bytes,
            "takes": abs(before - LEFT - rows * ROW_BYTES) < 2 * cache.chunk_bytes,
            "same_address": first.data_ptr() == second.data_ptr() == cache.whole.data_ptr(),
            "less": abs(fewer * ROW_BYTES - 100 * MIB) < 4 * cache.chunk_bytes,
            "again": cache.rows == rows,
            "leaves_by_default": no_rows == 0,
            "no_more_than_it_has": whole == 1000,
            "as_it_may": 480 * MIB < half <= 512 * MIB,
        }


def gives_way() -> Result:
    """A request that would be refused has rows; those that stay are as they were."""
    with cache_of() as cache:
        give = Giver(lambda rows: rows - 1)  # not at the end of a chunk
        rows = cache.fill(give, leave=LEFT).shape[0]
        kept = torch.arange(256 * 1000, dtype=torch.float32).view(1000, 256)
        cache.tensor[:1000].copy_(kept)
        first = taken(100 * MIB)
        after = cache.rows
        with torch.cuda.stream(torch.cuda.Stream()):
            on_another = taken(100 * MIB)
        many = [taken(3 * MIB) for _ in range(20)]
        seen = torch.equal(cache.tensor[:1000].cpu(), kept)
        given = (rows - cache.rows) * ROW_BYTES
        held = 260 * MIB
        del first, on_another, many
        return {
            "asked_for_enough": (rows - give.asked[0]) * ROW_BYTES >= 100 * MIB - LEFT,
            "asked_for_no_more": (rows - after) * ROW_BYTES <= 104 * MIB - LEFT,
            "once": len(give.asked) < 25,
            "as_answered": cache.rows == give.asked[-1] - 1,
            "kept": seen,
            "adds_up": held - LEFT - 8 * MIB <= given <= held + 8 * MIB,
        }


def refuses() -> Result:
    """What is not given is refused, and no row is lost."""
    with cache_of() as cache:
        rows = cache.fill(leave=LEFT).shape[0]
        nobody = failure(lambda: taken(100 * MIB))
        same = cache.rows == rows
        few = Giver(lambda rows: max(rows, cache.rows - 4096))
        cache.fill(few, leave=LEFT)
        slowly = taken(100 * MIB)
        calls = len(few.asked)
        none = Giver(lambda rows: rows + (1 << 20))
        rows = cache.fill(none, leave=LEFT).shape[0]
        refused = failure(lambda: taken(100 * MIB))
        asked = len(none.asked)
        in_vain = failure(lambda: taken(1000 * MIB))
        del slowly
        return {
            "nobody": nobody.startswith("OutOfMemoryError"),
            "same": same,
            "slowly": 10 < calls < 40,
            "refused": refused.startswith("OutOfMemoryError"),
            "asked": asked == 1,
            "in_vain": in_vain.startswith("OutOfMemoryError") and len(none.asked) == asked,
            "has_all": cache.rows == rows,
        }


def broken(_rows: int) -> int:
    """Fail where rows are asked for."""
    raise ValueError("no idea")


def heard_interrupt() -> bool:
    """Whether Ctrl-C in give() arrives; Python drops one that arrives while it frees an object."""
    try:
        failure(lambda: taken(100 * MIB))
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        return True
    return False


def fails() -> Result:
    """An exception means that there is nothing to give; Ctrl-C is for the main thread."""

    def interrupted(_rows: int) -> int:
        raise KeyboardInterrupt

    def hungry(rows: int) -> int:
        refused_too.append(failure(lambda: taken(900 * MIB)))
        return rows

    refused_too: list[str] = []
    with cache_of() as cache:
        rows = cache.fill(broken, leave=LEFT).shape[0]
        refused = failure(lambda: taken(100 * MIB))
        has_all = cache.rows == rows
        cache.fill(lambda _: -1, leave=LEFT)
        negative = failure(lambda: taken(100 * MIB))
        cache.fill(interrupted, leave=LEFT)
        is_interrupted = any(heard_interrupt() for _ in range(5))
        cache.fill(hungry, leave=LEFT)
        served = taken(100 * MIB)
        del served
        torch.cuda.empty_cache()
        within: list[str] = []

        def resizing(rows: int) -> int:
            within.append(failure(lambda: cache.resize(rows)))
            return rows

        cache.fill(resizing, leave=LEFT)
        served = taken(100 * MIB)
        del served
        torch.cuda.empty_cache()
        cache.fill(lambda _: None, leave=LEFT)  # type: ignore[arg-type,return-value]
        nothing = failure(lambda: taken(100 * MIB))
        cache.fill(lambda _: True, leave=LEFT)
        truth = failure(lambda: taken(100 * MIB))
        texts = [
            failure(lambda: cache.fill(7)),  # type: ignore[arg-type]
            failure(lambda: cache.fill(leave=-1)),
        ]
    return {
        "refused": refused.startswith("OutOfMemoryError"),
        "has_all": has_all,
        "negative": negative.startswith("OutOfMemoryError"),
        "nothing": nothing.startswith("OutOfMemoryError"),
        "truth": truth.startswith("OutOfMemoryError"),
        "interrupted": is_interrupted,
        "not_within": within
        == ["RuntimeError: an elastic tensor cannot change while it is asked to give rows"],
        "texts": texts
        == [
            "TypeError: give is called with a number of rows; 7 cannot be",
            "ValueError: leave is a number of bytes, not -1",
        ],
        "not_again": len(refused_too) == 1 and refused_too[0].startswith("OutOfMemoryError"),
    }


def beside() -> Result:
    """One that fails keeps no other from giving, and is no affair of the one that grows."""
    with cache_of() as first, cache_of() as second, cache_of() as growing:
        give = Giver()
        rows = first.fill(broken, leave=300 * MIB).shape[0]
        second.fill(give, leave=LEFT)
        served = taken(100 * MIB)
        by_second = len(give.asked)
        grown = growing.resize(50 << 10).shape[0]
        by_growing = len(give.asked)
        itself = failure(lambda: second.resize(second.rows + (100 << 10)))
        by_itself = len(give.asked)
        second.resize(0)
        torch.cuda.empty_cache()
        second.fill(leave=LEFT)
        refused = failure(lambda: growing.resize(200 << 10))
        del served
        return {
            "second": by_second == 1,
            "grows": grown == 50 << 10 and by_growing == 2,
            "itself": itself.startswith("OutOfMemoryError") and by_itself == 2,
            "refused": refused.startswith("OutOfMemoryError: an elastic tensor on cuda:0 cannot"),
            "kept": first.rows == rows,
        }


def apart() -> Result:
    """What is given serves other lakes: a region, what grows in it, and a region that wakes."""
    with cache_of() as cache, cache_of(device=1) as roomy:
        give, far_give = Giver(), Giver()
        roomy.fill(far_give, leave=300 * MIB)
        rows = cache.fill(give, leave=LEFT).shape[0]
        with gmlake.region("apart"):
            inside = taken(100 * MIB)
            far = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda:1")
            by_region = len(give.asked)
            kept = cache.rows
            with cache_of() as growing:
                grown = growing.resize(100 << 10).shape[0]
                by_growing = len(give.asked)
        gmlake.sleep("apart")
        torch.cuda.empty_cache()
        cache.fill(give, leave=LEFT)
        full = cache.rows
        gmlake.wake("apart")
        by_waking = len(give.asked)
        left = cache.rows
        is_far_asked = far_give.asked != []
        gmlake.sleep("apart")
        cache.resize(100)
        torch.cuda.empty_cache()
        roomy.fill(far_give, leave=LEFT)
        gmlake.wake("apart")
        is_asked = len(give.asked) > 3
        del inside, far
    return {
        "region": by_region == 1 and kept >= rows - (102 << 10),
        "grows": by_growing == 2 and grown == 100 << 10,
        "wakes": by_waking == 3 and full - (70 << 10) <= left < full,
        "far": (is_far_asked, len(far_give.asked), is_asked) == (False, 1, False),
    }


def asleep() -> Result:
    """One whose region sleeps has nothing on the device, and keeps its rows."""
    give = Giver()
    with gmlake.region("asleep"):
        cache = cache_of()
    with cache:
        rows = cache.fill(give, leave=600 * MIB).shape[0]
        gmlake.sleep("asleep")
        torch.cuda.empty_cache()
        most = taken(800 * MIB)
        refused = failure(lambda: taken(300 * MIB))
        del most
        torch.cuda.empty_cache()
        seen = (give.asked == [], cache.rows == rows)
        gmlake.wake("asleep")
    return {
        "refused": refused.startswith("OutOfMemoryError"),
        "not_asked": seen[0],
        "kept": seen[1],
    }


def elsewhere() -> Result:
    """Who asks may be another thread, another elastic tensor, or a pool; not another device."""
    with cache_of() as cache, cache_of() as other:
        give = Giver()
        cache.fill(give, leave=LEFT)
        told: list[str] = []
        thread = threading.Thread(target=lambda: told.append(str(taken(64 * MIB).shape[0])))
        thread.start()
        thread.join()
        by_thread = len(give.asked)
        grown = other.resize(100 << 10).shape[0]
        by_other = len(give.asked)
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            pooled = taken(200 * MIB)
        by_pool = len(give.asked)
        torch.cuda.set_device(1)
        far = failure(lambda: taken(2 << 30))
        torch.cuda.set_device(0)
        by_far = len(give.asked)
        del pooled, pool
        return {
            "thread": told == [str(64 * MIB)] and by_thread >= 1,
            "other": grown == 100 << 10 and by_other > by_thread,
            "pool": by_pool > by_other,
            "far": far.startswith("OutOfMemoryError") and by_far == by_pool,
        }


def run_both(work: Callable[[], None]) -> bool:
    """Run it in two threads at once; whether both ended."""
    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return not any(thread.is_alive() for thread in threads)


def together() -> Result:
    """Threads that lack memory at once wait for each other's rows, but not inside of give()."""
    lock = threading.Lock()
    refused: list[str] = []

    def slow(rows: int) -> int:
        time.sleep(0.02)
        return rows

    def greedy(rows: int) -> int:
        slow(rows)
        failure(lambda: taken(700 * MIB))  # the other one is busy, too, by then
        return rows

    with cache_of() as cache, cache_of() as other:

        def work() -> None:
            for _ in range(10):
                why = failure(lambda: taken(100 * MIB))
                refused.extend([why] if why else [])
                torch.cuda.empty_cache()
                with lock:
                    cache.fill(slow, leave=LEFT)

        def try_some() -> None:
            for _ in range(5):
                failure(lambda: taken(64 * MIB))

        cache.fill(slow, leave=LEFT)
        are_served = run_both(work) and not refused
        cache.resize(cache.rows // 2)
        torch.cuda.empty_cache()
        other.fill(greedy, leave=LEFT)
        cache.fill(greedy, leave=LEFT)
        vars(relief)["_PATIENCE_SECONDS"] = 1000.0  # who waits in vain is not over in time
        have_ended = run_both(try_some)
    return {"served": are_served, "ended": have_ended}


def locked() -> Result:
    """Who has the program's lock is asked at once, all others when it is free, or not at all."""
    lock = threading.RLock()
    order: list[str] = []

    def other() -> None:
        taken(100 * MIB)
        order.append("other")

    class Waited:
        """A lock that nobody gets."""

        def acquire(self, *, timeout: float) -> bool:
            order.append(str(timeout))
            return False

        def release(self) -> None:
            order.append("released")

    with cache_of() as cache:
        cache.fill(lambda rows: rows, leave=LEFT, lock=lock)
        with lock:
            thread = threading.Thread(target=other, daemon=True)
            thread.start()
            mine = taken(100 * MIB)
            order.append("mine")
        thread.join(60)
        cache.fill(lambda rows: rows, leave=LEFT, lock=Waited())
        refused = failure(lambda: taken(500 * MIB))
        del mine
    return {
        "order": order[:2] == ["mine", "other"],
        "refused": refused.startswith("OutOfMemoryError") and order[2:] == ["5.0"],
    }


def ended() -> Result:
    """Who is closed, gone, or told nothing any more is not asked; nor anybody in a capture."""
    give = Giver()
    with cache_of() as cache:
        cache.fill(give, leave=LEFT)
    closed = taken(100 * MIB)
    torch.cuda.empty_cache()
    cache = cache_of()
    cache.fill(give, leave=LEFT)
    cache.fill(leave=LEFT)
    silent = failure(lambda: taken(100 * MIB))
    cache.fill(give, leave=LEFT)

    def capture() -> None:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            taken(100 * MIB)

    in_a_capture = failure(capture)
    torch.cuda.synchronize()
    asked = len(give.asked)
    del cache
    gc.collect()
    torch.cuda.empty_cache()
    gone = taken(900 * MIB)
    del closed, gone
    return {
        "silent": silent.startswith("OutOfMemoryError"),
        "in_a_capture": "OutOfMemoryError" in in_a_capture and asked == 0,
        "gone": len(give.asked) == 0,
    }


@dataclass
class Request:
    """Pages of a cache, and what was written to the first and to the last of them."""

    pages: list[int]
    written: float

    def places(self) -> list[int]:
        """Return the rows that were written to."""
        return [page * PAGE_ROWS for page in (self.pages[0], self.pages[-1])]


def serves() -> Result:
    """A server of 1,000 requests of random length, whose cache has what the rest leaves.

    Each finds what it wrote when it ends; other memory is written all over meanwhile.
    """
    chance = random.Random(0)  # noqa: S311 (no secret)
    running: list[Request] = []
    spare: list[int] = []
    noise = torch.full((40 * MIB,), 255, dtype=torch.uint8)
    kept, begun, preempted = True, 0, 0

    def give(rows: int) -> int:
        """Let requests that have pages behind `rows` begin anew later."""
        nonlocal preempted
        for request in [each for each in running if (max(each.pages) + 1) * PAGE_ROWS > rows]:
            running.remove(request)
            spare.extend(request.pages)
            preempted += 1
        spare[:] = [page for page in spare if (page + 1) * PAGE_ROWS <= rows]
        return rows

    with cache_of() as cache:
        served, fullest = 0, 0.0
        size = torch.cuda.mem_get_info()[1]
        while served < 1000:
            torch.cuda.empty_cache()
            before = cache.rows // PAGE_ROWS
            rows = cache.fill(give, leave=8 * MIB).shape[0]
            spare.extend(range(before, rows // PAGE_ROWS))
            while len(spare) > 400 and len(running) < 64:
                begun += 1
                pages = [spare.pop() for _ in range(chance.randrange(1, 400))]
                running.append(Request(pages, float(begun)))
                for place in running[-1].places():
                    cache.whole[place].copy_(torch.full((256,), float(begun)))
            work = [taken(chance.randrange(MIB, 40 * MIB)) for _ in range(3)]
            for each in work:
                each.copy_(noise[: len(each)])
            fullest = max(fullest, 1 - free() / size)
            del work
            running.sort(key=lambda request: len(request.pages))
            served += len(running[:8])
            for request in running[:8]:
                for place in request.places():
                    kept &= bool((cache.whole[place].cpu() == request.written).all())
                spare.extend(request.pages)
            del running[:8]
    return {
        "served": served >= 1000,
        "fullest": fullest > 0.98,
        "gave": preempted > 0,
        "kept": kept,
    }


def main() -> int:
    """Run all parts, and print."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
    torch.cuda.init()
    gmlake.enable()
    parts: list[Callable[[], Result]] = [
        fills, gives_way, refuses, fails, beside, apart, asleep, elsewhere, together, locked,
        ended, serves,
    ]  # fmt: skip
    results: Result = {}
    for part in parts:
        results[part.__name__] = part()
        gc.collect()
        torch.cuda.empty_cache()
    print(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
