"""A KV cache in vLLM that takes what the device has left: `GMLAKE_VLLM_CACHE=1 gmlake run ...`.

vLLM plans as many blocks as ever, by its gpu_memory_utilization. They lie in one elastic tensor,
each row of which has the keys and values of all layers for one block. Blocks without a row are not
in vLLM's pool. Between two steps of the engine blocks come and go: where a request for memory would
be refused, vLLM preempts the requests that hold the last blocks, and they begin anew later; once a
second, where requests wait, the cache grows. During a step the engine itself has the rows that are
kept for that, and blocks that no request holds.

vLLM 0.26 has no interface for that, so three of its functions are wrapped. Other versions, and what
refusal() and unsuited() name, are left as they are.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import wraps
from importlib import import_module
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Any, Final

import torch

from gmlake.errors import UnsupportedError
from gmlake.pytorch import elastic, notices
from gmlake.pytorch.session import is_enabled
from gmlake.pytorch.sharing import sharing
from gmlake.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE: Final = "GMLAKE_VLLM_CACHE"
_VERSION: Final = "0.26."
_ROWS: Final = "gmlake_rows"  # what a model runner's elastic tensor is called
_LEAVE_BYTES: Final = 256 << 20
_GROWTH_SECONDS: Final = 1.0
_GIVEN_PART: Final = 16  # of all blocks are given at least,
_TAKEN_PART: Final = 64  # and taken at least of others' idle memory


class Turns:
    """A lock that threads have in the order in which they ask; who has it may take it again."""

    def __init__(self) -> None:
        self._door, self._lock = Lock(), Lock()
        self._owner, self._depth = 0, 0

    def acquire(self, *, timeout: float = -1) -> bool:
        """Take it, and return whether that was possible in so many seconds; -1: in any time.

        The engine steps without a pause. Who waits stands in the door, before its next step.
        """
        if self._owner != get_ident():
            if not self._door.acquire(timeout=timeout):
                return False
            try:
                if not self._lock.acquire(timeout=timeout):
                    return False
            finally:
                self._door.release()
            self._owner = get_ident()
        self._depth += 1
        return True

    def release(self) -> None:
        """Let the next thread have it, unless this one took it more than once."""
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._lock.release()


class Cache:
    """The blocks of an engine's pool that have memory.

    Blocks 0 to `limit` are in the pool. The rows behind, `spare` of them if there are so many, are
    for what a step of the engine allocates: nobody else is given them.
    """

    def __init__(self, engine: Any, rows: elastic.Elastic, spare_bytes: int) -> None:  # noqa: ANN401
        self._scheduler: Any = engine.scheduler
        self._manager: Any = self._scheduler.kv_cache_manager
        self._pool: Any = self._manager.block_pool
        self._rows = rows
        self._spare_bytes = spare_bytes
        self._spare = -(-spare_bytes // rows.shape[1])
        self._least = rows.rows
        self._turns, self._is_stepping, self._next_growth = Turns(), False, 0.0
        self._stream = torch.cuda.current_stream(rows.device)  # the engine's
        self._withhold(self._least)
        self._grow()
        engine.step_fn = self._between(engine.step_fn, is_step=True)
        for name in ("add_request", "finish_requests", "reset_prefix_cache"):
            setattr(self._scheduler, name, self._between(getattr(self._scheduler, name)))

    @property
    def limit(self) -> int:
        """How many blocks are in the pool."""
        return int(self._pool.num_gpu_blocks)

    def _between(self, call: Callable[..., Any], *, is_step: bool = False) -> Callable[..., Any]:
        """Return the engine's function that no other thread interferes with."""

        @wraps(call)
        def called(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (vLLM's)
            self._turns.acquire()
            try:
                if is_step:
                    self._stream = torch.cuda.current_stream(self._rows.device)
                    self._settle()
                    self._is_stepping = True
                return call(*arguments, **named)
            finally:
                self._is_stepping = self._is_stepping and not is_step
                self._turns.release()

        return called

    def _settle(self) -> None:
        """Before a step: replace what the last one took of the spare rows, or grow."""
        if (most := max(self._rows.rows - self._spare, self._least)) < self.limit:
            self._make_do(most)
        elif (
            self._scheduler.waiting
            and self.limit < self._rows.shape[0] - self._spare
            and time.monotonic() >= self._next_growth
        ):
            self._grow()

    def _grow(self) -> None:
        """Take what the device has left, and what others have idle; the contents are zeros.

        Kernels read all slots of a block and multiply those behind its tokens by 0: no NaN may be
        there.
        """
        self._next_growth = time.monotonic() + _GROWTH_SECONDS
        before, (all_rows, row_bytes), device = self._rows.rows, self._rows.shape, self._rows.device
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        leave = _LEAVE_BYTES + max(0, self._spare_bytes - idle)  # for the engine's steps
        more = sum(other.idle_bytes for other in sharing(device.index).others)
        more = (more + max(0, idle - self._spare_bytes)) // row_bytes
        self._rows.fill(self._give, leave=leave, lock=self._turns)
        if more >= all_rows // _TAKEN_PART:
            with suppress(torch.OutOfMemoryError):
                self._rows.reserve(min(self._rows.rows + more, all_rows))
            self._rows.fill(self._give, leave=leave, lock=self._turns)
        self._rows.tensor[before:].zero_()
        self._admit(max(self._rows.rows - self._spare, self._least))

    def _give(self, fewer: int) -> int:
        """Make do with so many rows, or fewer; return how many stay.

        Each time it is asked it waits for a step, and who begins asks for one tensor after another.
        """
        if self._is_stepping:  # in the engine's own thread, see Turns
            self._withhold(fewer)
            return max(fewer, self.limit)
        self._next_growth = time.monotonic() + _GROWTH_SECONDS
        here = torch.cuda.current_stream(self._rows.device)
        here.wait_stream(self._stream)
        fewer = min(fewer, self._rows.rows - self._rows.shape[0] // _GIVEN_PART)
        self._make_do(max(fewer - self._spare, self._least))
        self._stream.wait_stream(here)
        return max(fewer, self.limit + self._spare)

    def _make_do(self, limit: int) -> None:
        """Preempt the requests that hold blocks behind the first ones, as vLLM itself does.

        What they have computed is moved to blocks that stay, as far as there are such: vLLM finds
        it by its prefix when they begin anew.
        """
        scheduler, blocks = self._scheduler, self._pool.blocks
        held: list[int] = []
        for request in reversed(scheduler.running.copy()):
            numbers = [n for of in self._manager.get_block_ids(request.request_id) for n in of]
            if max(numbers, default=0) < limit:
                continue
            scheduler.running.remove(request)
            scheduler._preempt_request(request, time.monotonic())  # noqa: SLF001
            # As in reset_prefix_cache(): tokens that are under way are computed again.
            request.async_tokens_to_discard += request.num_output_placeholders
            request.num_output_placeholders = 0
            scheduler.prev_step_scheduled_req_ids.discard(request.request_id)
            held[:0] = [n for n in numbers if blocks[n].block_hash is not None]
        free = [n for n in range(1, limit) if not blocks[n].ref_cnt] if held else []
        kept = dict.fromkeys(held[: len(free)])  # of those who begin first
        for source, target in zip(
            (n for n in kept if n >= limit), (n for n in free if n not in kept), strict=False
        ):
            self._pool.evict_blocks({target})
            self._rows.whole[target].copy_(self._rows.whole[source])
            self._pool.move_block_hashes(blocks[source], blocks[target])
            self._pool.free_block_queue.remove(blocks[target])
            self._pool.free_block_queue.append(blocks[target])
        self._withhold(limit)

    def _withhold(self, limit: int) -> None:
        """Take free blocks out of the pool, from the last one on, until so many are in it."""
        last = self.limit
        while last > limit and not self._pool.blocks[last - 1].ref_cnt:
            last -= 1
            self._pool.free_block_queue.remove(self._pool.blocks[last])
        self._pool.evict_blocks(set(range(last, self.limit)))
        self._pool.num_gpu_blocks = last

    def _admit(self, limit: int) -> None:
        """Put blocks back into the pool, before those that may be found again by their prefix."""
        queue = self._pool.free_block_queue
        put = queue.prepend_n if self._pool.enable_caching else queue.append_n
        put(self._pool.blocks[self.limit : limit])
        self._pool.num_gpu_blocks = max(self.limit, limit)


def refusal(config: Any) -> str:  # noqa: ANN401 (a VllmConfig)
    """Return why the cache of an engine with this configuration cannot be elastic; "" if it can."""
    parallel, cache = config.parallel_config, config.cache_config
    reasons = {
        "gmlake does not serve this process": not is_enabled(),
        "it needs model runner V1 (VLLM_USE_V2_MODEL_RUNNER=0)": config.use_v2_model_runner,
        "the engine has several workers or replicas": parallel.world_size > 1
        or parallel.data_parallel_size > 1,
        "the worker is in another process": parallel.distributed_executor_backend != "uni",
        "a KV connector has the cache, too": config.kv_transfer_config is not None,
        "speculative decoding is on": config.speculative_config is not None,
        "sleep mode is on": config.model_config.enable_cumem_allocator,
        "the cache has a fixed size": cache.kv_cache_memory_bytes is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def unsuited(runner: Any, config: Any) -> str:  # noqa: ANN401 (of vLLM)
    """Return why blocks of this KVCacheConfig cannot be rows; "" if they can."""
    groups = config.kv_cache_groups
    spec = groups[0].kv_cache_spec
    is_by_blocks = getattr(spec, "indexes_kv_by_block_stride", False)
    if len(groups) > 1 or not is_by_blocks or spec.page_size_padded is not None:
        return "its layers are of several kinds, or their memory is not ordered by blocks"
    if runner._kernel_block_sizes != [spec.block_size]:  # noqa: SLF001
        return f"its kernels do not take blocks of {spec.block_size} tokens"
    return ""


def _say(reason: str) -> None:
    notices.say(f"{VARIABLE}: vLLM's KV cache is as without it: {reason}")


def _made(runner: Any, config: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 (of vLLM)
    """Return all layers' memory, by their names; there is as much as one request may need.

    Raises ValueError where the device has less, UnsupportedError where no tensor can be elastic.
    """
    tensors = config.kv_cache_tensors
    pages = [each.size // config.num_blocks for each in tensors]
    rows = elastic.elastic((config.num_blocks, sum(pages)), torch.int8, runner.device)
    spec = config.kv_cache_groups[0].kv_cache_spec
    longest = runner.vllm_config.model_config.max_model_len
    least = min(-(-longest // spec.block_size) + 1, config.num_blocks)  # block 0 is vLLM's own
    try:
        rows.resize(least).zero_()
    except torch.OutOfMemoryError as error:
        needed = format_size(least * sum(pages))
        raise ValueError(f"max_model_len={longest} needs {needed} of KV cache: {error}") from None
    for number, each in enumerate(tensors):
        each.offset, each.block_stride = sum(pages[:number]), sum(pages)
        each.size = config.num_blocks * sum(pages)
    setattr(runner, _ROWS, rows)
    return {name: rows.whole.view(-1) for each in tensors for name in each.shared_by}


def _init_device(given: Callable[[Any], None], module: Any) -> Callable[[Any], None]:  # noqa: ANN401
    """Return Worker.init_device for a cache that begins with what there is, be it little."""

    @wraps(given)
    def init_device(worker: Any) -> None:  # noqa: ANN401
        worker.has_elastic_cache = not (why := refusal(worker.vllm_config))
        if why:
            _say(why)
            return given(worker)
        checked = module.request_memory
        module.request_memory = lambda found, cache: int(
            found.total_memory * cache.gpu_memory_utilization
        )
        try:
            given(worker)
        finally:
            module.request_memory = checked
        worker.model_runner.has_elastic_cache = True
        return None

    return init_device


def _allocate(given: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return GPUModelRunner._allocate_kv_cache_tensors that makes one elastic tensor."""

    @wraps(given)
    def allocate(runner: Any, config: Any) -> Any:  # noqa: ANN401
        is_final = runner.cache_config.num_gpu_blocks == config.num_blocks  # not to profile graphs
        if not is_final or not getattr(runner, "has_elastic_cache", False):
            return given(runner, config)
        why = unsuited(runner, config)
        try:
            if not why:
                return _made(runner, config)
        except UnsupportedError as error:
            why = str(error)
        _say(why)
        return given(runner, config)

    return allocate


def _init(given: Callable[..., None]) -> Callable[..., None]:
    """Return EngineCore.__init__ that tells the scheduler which blocks have memory."""

    @wraps(given)
    def init(engine: Any, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        given(engine, *arguments, **named)
        worker = getattr(getattr(engine.model_executor, "driver_worker", None), "worker", None)
        rows = getattr(getattr(worker, "model_runner", None), _ROWS, None)
        if rows is not None:
            Cache(engine, rows, worker.peak_activation_memory * 9 // 8)  # type: ignore[union-attr]

    return init


def register() -> None:
    """Wrap what an elastic cache needs, if the environment asks for one; once per process.

    Raises ValueError for a value of GMLAKE_VLLM_CACHE that is neither 0 nor 1.
    """
    asked = os.environ.get(VARIABLE, "").strip() or "0"
    if asked not in ("0", "1"):
        raise ValueError(f"{VARIABLE} is {asked[:60]!r}, but must be 0 or 1")
    if asked == "0":
        return
    version = import_module("vllm").__version__
    if not version.startswith(_VERSION):
        _say(f"this is vLLM {version}, not {_VERSION}x")
        return
    worker: Any = import_module("vllm.v1.worker.gpu_worker")
    runner: Any = import_module("vllm.v1.worker.gpu_model_runner").GPUModelRunner
    engine: Any = import_module("vllm.v1.engine.core").EngineCore
    given = runner._allocate_kv_cache_tensors  # noqa: SLF001
    if not hasattr(given, "__wrapped__"):
        runner._allocate_kv_cache_tensors = _allocate(given)  # noqa: SLF001
        worker.Worker.init_device = _init_device(worker.Worker.init_device, worker)
        engine.__init__ = _init(engine.__init__)
