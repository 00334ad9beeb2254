"""Records every operator that runs, and the memory that it reads and writes.

The mode of a thread applies to the backward passes that it starts, too: autograd passes it to the
threads of its devices. Other threads, kernels outside operators (a Triton kernel launched by hand,
a custom extension) and replays of CUDA graphs are not seen.
"""

# mypy: allow-untyped-calls, allow-subclassing-any

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from gmlake.diagnosis.builder import Item
from gmlake.diagnosis.object_layout import READS, TOUCHES, WRITES, ApiKind
from gmlake.diagnosis.object_trace import Holder, Work
from gmlake.diagnosis.operators import indices, private
from gmlake.diagnosis.operators.modules import Modules, Observer
from gmlake.diagnosis.operators.outside import Sharing, Substitutes, watch
from gmlake.diagnosis.operators.places import Frames
from gmlake.diagnosis.operators.ranges import Run
from gmlake.diagnosis.operators.recipes import Recipe, recipe_of
from gmlake.diagnosis.operators.storages import (
    Entry,
    Lane,
    Storages,
    has_tensors,
    key_of,
    parts_of,
    storage_of,
    tensors_given,
    tensors_in,
    with_storages,
)
from gmlake.pytorch import compat

if TYPE_CHECKING:
    from torch import nn

    from gmlake.diagnosis import ObjectTrace

_Where = tuple[tuple[str, ...], str]


class Collector(Observer):
    """Makes a trace of objects for each device.

    frames: how many frames of a call path to keep. read: how indices are read.
    """

    def __init__(self, frames: int, read: indices.Reader) -> None:
        self.is_on = True
        self.failures = 0
        self.first_failure: Exception | None = None
        self._lock = threading.RLock()
        self._frames = Frames(frames)
        self._read = read
        self._recipes: dict[Any, Recipe] = {}
        self._lanes: dict[torch.device, Lane] = {}
        self._used: list[Lane] = []  # by the API that is being built
        self._storages = Storages(self._died)
        self._dead: deque[tuple[Entry, tuple[str, ...]]] = deque()
        self._names: dict[int, str] = {}  # of storages that were there before
        self._modules = Modules(self)
        self._mode = _Mode(self)
        self._substitutes = Substitutes()
        self._is_noting = False
        self._last_frames: tuple[str, ...] = ()
        self._of_models: set[int] = set()  # storages of parameters and buffers
        self._stateful: dict[int, int] = {}  # ids of optimizers, and for how many they have state
        self._task = -1  # the last backward pass
        self._pass: set[int] = set()  # ids of models that were called since the last boundary

    # ---- from when to when ----------------------------------------------------------------------

    def start(self, models: Iterable[nn.Module]) -> None:
        """Start recording the calling thread. If this fails, call stop()."""
        self._storages.remember()
        self._modules.start()
        for model in models:
            self._modules.name_model(model)
        self._substitutes.put(torch.UntypedStorage, "resize_", self._noting_resizes)
        watch(self._substitutes, self.note_outside)
        self._mode.__enter__()

    def stop(self) -> None:
        """Stop recording. May be interrupted anywhere; a further call completes it."""
        self._mode.leave()
        self.is_on = False
        self._substitutes.take_back()
        self._modules.stop()
        self._guard(self._bury)

    def abandon(self) -> None:
        """Stop recording in a forked child without the lock, which another thread may have held."""
        self.is_on = self._storages.is_on = False

    def traces(self, *, whole_program: bool) -> dict[str, ObjectTrace]:
        """Return the trace of each device that was used, and forget everything."""
        with self._lock:
            for entry in self._storages.live():
                if entry.number >= 0 and (entry.is_older or not whole_program):
                    entry.lane.builder.keep(entry.number)
            self._storages.close()
            return {lane.device: _built(lane) for lane in self._lanes.values() if lane.names}

    # ---- operators ------------------------------------------------------------------------------

    def recipe(self, operator: Any) -> Recipe:  # noqa: ANN401 (an operator of PyTorch)
        """Return what an operator does."""
        found = self._recipes.get(operator)
        if found is None:
            found = self._recipes[operator] = recipe_of(operator)
        return found

    def note(self, recipe: Recipe, args: Sequence[Any], kwargs: Any, result: Any) -> None:  # noqa: ANN401
        """Record an operator's accesses. A failure here must not end the program."""
        self._guard(self._note, recipe, args, kwargs, result)

    def note_outside(
        self, sharing: Sharing, label: str, given: torch.Tensor | torch.UntypedStorage
    ) -> None:
        """Record Python's accesses to a tensor's memory outside any operator."""
        with self._lock:
            if self.is_on and self._storages.is_on and not self._is_noting:
                self._guard(self._note_outside, sharing, label, given)

    def _guard(self, note: Callable[..., None], *given: Any) -> None:  # noqa: ANN401
        with self._lock:
            self._is_noting = True
            try:
                note(*given)
            except Exception as problem:  # noqa: BLE001
                self.failures += 1
                self.first_failure = self.first_failure or problem
                for lane in self._used:
                    _clear(lane)
                self._used.clear()
            finally:
                self._is_noting = False

    def _note_outside(
        self, sharing: Sharing, label: str, given: torch.Tensor | torch.UntypedStorage
    ) -> None:
        where = self._where()
        self._bury()
        if isinstance(given, torch.UntypedStorage):
            found = self._storages.find(key_of(given))
            if found is not None and found.number >= 0:
                found.lane.touches.append(found.number)
                self._use(found.lane)
        else:
            for tensor, storage in with_storages((given,)):
                entry = self._entry(tensor, storage, where)
                self._access(entry, tensor, sharing.role)
                entry.is_shared |= sharing.lasts
        self._emit(ApiKind.KERNEL, label, where)

    def _note(self, recipe: Recipe, args: Sequence[Any], kwargs: Any, result: Any) -> None:  # noqa: ANN401
        given = list(tensors_given(recipe, args, kwargs))
        if recipe.is_arrival:
            for tensor, _, storage in given:
                self._entry(tensor, storage, self._where(), is_filled=True)
            return
        keys = {key_of(storage) for _, _, storage in given}
        returned = [
            pair for pair in with_storages(tensors_in(result)) if key_of(pair[1]) not in keys
        ]
        fresh = [pair for pair in returned if self._is_fresh(pair[1])]
        if not fresh and not recipe.has_writes and has_tensors(result):
            return  # a view by another name
        where = self._where()
        self._bury()
        meant = self._meant(recipe, args) if recipe.rows else None
        used = []
        for place, (tensor, role, storage) in enumerate(given):
            if role:
                entry = self._entry(tensor, storage, where)
                used.append((tensor, role, entry))
                if meant and not place and tensor is args[0]:  # which may be the indices, too
                    self._access_rows(entry, tensor, *meant)
                else:
                    self._access(entry, tensor, role)
        made = []
        for tensor, storage in fresh:
            entry = self._born(tensor, storage, recipe, where)
            made.append(entry)
            if not recipe.is_empty:
                self._access(entry, tensor, WRITES)
        if recipe.has_writes or not recipe.is_empty:
            _know_contents(recipe, used, made, args, kwargs)
        is_equal = recipe.kind == ApiKind.COPY and _is_equal(given, fresh)
        work = self._work(given) | (Work.EQUAL if is_equal else 0)
        self._emit(recipe.kind, recipe.label, where, work)

    def _work(self, given: Sequence[tuple[torch.Tensor, int, torch.UntypedStorage]]) -> int:
        """Return the Work of an operator: part of a backward pass, or recorded for one."""
        task = compat.graph_task()
        if task != -1:
            if task > self._task and not self._pass:  # programs that call no model have rounds, too
                self._round_begins()
            self._task = max(task, self._task)
            return Work.BACKWARD | (Work.RETAINS if private.is_graph_kept() else 0)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor, _, _ in given):
            return Work.GRAPH
        return 0

    def _is_fresh(self, storage: torch.UntypedStorage) -> bool:
        return self._storages.find(key_of(storage)) is None

    def _meant(self, recipe: Recipe, args: Sequence[Any]) -> Any:  # noqa: ANN401 (a Found)
        assert recipe.rows is not None  # noqa: S101 (for the type)
        tensor = args[0]
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            return None
        return recipe.rows(args, self._read)

    # ---- accesses -------------------------------------------------------------------------------

    def _access(self, entry: Entry, tensor: torch.Tensor, role: int) -> None:
        if entry.number < 0:
            return
        item, is_exact = entry.item(tensor)
        if item is None:
            return
        lane = entry.lane
        if role & TOUCHES or entry.is_shared or (role & WRITES and not is_exact):
            lane.touches.append(item)  # a write may not be claimed for bytes that were left alone
        else:
            if role & READS:
                lane.reads.append(item)
            if role & WRITES:
                lane.writes.append(item)
        self._use(lane)

    def _access_rows(self, entry: Entry, tensor: torch.Tensor, runs: Any, role: int) -> None:  # noqa: ANN401
        if runs is None:
            self._access(entry, tensor, READS if role == READS else TOUCHES)
            return
        item = entry.part(runs) if entry.number >= 0 else None
        if item is None:
            return
        if entry.is_shared:
            entry.lane.touches.append(item)
        else:
            if role & READS:
                entry.lane.reads.append(item)
            if role & WRITES:
                entry.lane.writes.append(item)
        self._use(entry.lane)

    def _use(self, lane: Lane) -> None:
        if lane not in self._used:
            self._used.append(lane)

    def _emit(self, kind: ApiKind, label: str, where: _Where, work: int = 0) -> None:
        for lane in self._used:
            add = _adder(lane, kind)
            number = add(
                label,
                reads=lane.reads,
                writes=lane.writes,
                touches=lane.touches,
                stream=lane.stream(),
                frames=where[0],
                scope=where[1],
            )
            if work:
                lane.works.extend((number, work))
            _clear(lane)
        self._used.clear()

    # ---- births and deaths ----------------------------------------------------------------------

    def _lane(self, device: torch.device) -> Lane:
        lane = self._lanes.get(device)
        if lane is None:
            lane = self._lanes[device] = Lane(device)
        return lane

    def _entry(
        self,
        tensor: torch.Tensor,
        storage: torch.UntypedStorage,
        where: _Where,
        *,
        is_filled: bool = False,
    ) -> Entry:
        """Return the entry of an operator's argument. is_filled: a new one has contents already."""
        key = key_of(storage)
        entry = self._storages.find(key)
        if entry is not None:
            if entry.size_bytes != storage.nbytes():
                entry = self._resized(entry, storage, where, tensor.itemsize)
            return entry
        lane, size_bytes = self._lane(tensor.device), storage.nbytes()
        if not self._storages.was_before(key):
            return self._arrived(tensor, storage, where, is_filled=is_filled)
        number = -1
        if size_bytes:
            name = self._names.get(key, "")
            module = name.rpartition(".")[0]
            number = lane.builder.exists(size_bytes, element_bytes=tensor.itemsize, scope=module)
            lane.names.append(name or _shown("tensor", tensor))
        entry = Entry(lane, number, size_bytes, lane.stream(), is_older=True)
        entry.is_shared = not storage.resizable()
        self._storages.add(storage, entry)
        if key in self._of_models:
            lane.hold(number, Holder.MODEL)
        return entry

    def _arrived(
        self,
        tensor: torch.Tensor,
        storage: torch.UntypedStorage,
        where: _Where,
        *,
        is_filled: bool,
    ) -> Entry:
        """Add a storage that was made, and maybe filled, unseen: by NumPy or another thread."""
        entry = self._new(tensor, storage, where, "tensor")
        if entry.number >= 0:
            entry.lane.builder.copy(
                "from outside",
                writes=[entry.number] if is_filled else (),
                touches=() if is_filled else [entry.number],
                stream=entry.stream,
                frames=where[0],
                scope=where[1],
            )
        entry.is_shared = not storage.resizable()
        return entry

    def _born(
        self,
        tensor: torch.Tensor,
        storage: torch.UntypedStorage,
        recipe: Recipe,
        where: _Where,
    ) -> Entry:
        entry = self._storages.find(key_of(storage))
        return entry or self._new(tensor, storage, where, recipe.label)

    def _new(
        self, tensor: torch.Tensor, storage: torch.UntypedStorage, where: _Where, made_by: str
    ) -> Entry:
        lane = self._lane(tensor.device)
        stream = lane.stream()
        target = self._frames.target(where[0])
        name = _shown(made_by, tensor)
        if target.name:
            name = target.name if target.is_of(made_by) else f"{name} for {target.name}"
        number = _allocated(lane, storage.nbytes(), tensor.itemsize, stream, where, name)
        entry = Entry(lane, number, storage.nbytes(), stream)
        self._storages.add(storage, entry)
        return entry

    def _died(self, entry: Entry) -> None:
        """Note a death until the next operator: it may come at any time, in any thread."""
        if entry.number >= 0:
            self._dead.append((entry, self._frames.here() or self._last_frames))

    def _bury(self) -> None:
        while self._dead:
            entry, frames = self._dead.popleft()
            if entry.is_shared:  # until now, by other holders of its memory
                entry.lane.builder.kernel(
                    "outside", touches=[entry.number], stream=entry.stream, frames=frames
                )
            entry.lane.builder.free(entry.number, stream=entry.stream, frames=frames)

    # ---- storages that change their size --------------------------------------------------------

    def _resized(
        self, entry: Entry, storage: torch.UntypedStorage, where: _Where, item_bytes: int
    ) -> Entry:
        """Replace the object by one of the new size, with as much of the content as fits."""
        lane, size_bytes, stream = entry.lane, storage.nbytes(), entry.lane.stream()
        name = lane.names[entry.number] if entry.number >= 0 else _shown_bytes(size_bytes)
        number = _allocated(lane, size_bytes, item_bytes, stream, where, name)
        after = Entry(lane, number, size_bytes, stream)
        after.is_shared = entry.is_shared
        self._storages.add(storage, after)
        if entry.number >= 0:
            kept = min(size_bytes, entry.size_bytes)
            if kept:
                runs = ((0, kept, kept, 1, 1),)
                lane.builder.copy(
                    "resize_",
                    reads=_items(entry, runs),
                    writes=_items(after, runs),
                    stream=stream,
                    frames=where[0],
                    scope=where[1],
                )
            lane.builder.free(entry.number, stream=stream, frames=where[0])
        return after

    def _noting_resizes(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap resize_ to see at once when memory is freed and allocated again, as in FSDP."""

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:  # noqa: ANN401
            result = original(storage, size)
            if self.is_on:
                self._guard(self._note_resize, storage)
            return result

        return resize_

    def _note_resize(self, storage: torch.UntypedStorage) -> None:
        entry = self._storages.find(key_of(storage))
        if self._storages.is_on and entry and entry.size_bytes != storage.nbytes():
            self._bury()
            self._resized(entry, storage, self._where(), 1)

    # ---- places and names -----------------------------------------------------------------------

    def _where(self) -> _Where:
        """Return the call path, in autograd's threads that of backward(), and the module."""
        frames = self._frames.here()
        if frames:
            self._last_frames = frames
        return frames or self._last_frames, self._modules.scope()

    def pass_begins(self, model: nn.Module) -> None:
        """Begin another round if a model is called again."""
        if id(model) in self._pass:
            self._round_begins()
        self._pass.add(id(model))

    def _round_begins(self) -> None:
        self._pass.clear()
        with self._lock:
            for lane in self._lanes.values():
                lane.rounds.append(lane.builder.api_count)

    def model_found(self, model: nn.Module) -> None:
        """Name its parameters and buffers."""
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self._name(tensor, name)
            self._hold(tensor, Holder.MODEL)

    def optimizer_begins(self, optimizer: Any) -> None:  # noqa: ANN401 (torch has it untyped)
        """Name the gradients after their parameters."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    name = self._name_of(parameter)
                    self._name(parameter.grad, f"gradient of {name}" if name else "gradient")
                    self._hold(parameter.grad, Holder.GRADIENT)
        with self._lock:
            for lane in self._lanes.values():
                lane.updates.append(lane.builder.api_count)

    def optimizer_ends(self, optimizer: Any) -> None:  # noqa: ANN401
        """Mark the optimizer's state, and begin another round."""
        if self._stateful.get(id(optimizer)) != len(optimizer.state):
            self._stateful[id(optimizer)] = len(optimizer.state)
            for tensor in tensors_in(list(optimizer.state.values())):
                self._hold(tensor, Holder.STATE)
        self._round_begins()

    def _hold(self, tensor: torch.Tensor, held: Holder) -> None:
        with self._lock:
            for _, storage in with_storages((_local(tensor),)):
                key = key_of(storage)
                if held is Holder.MODEL:
                    self._of_models.add(key)
                entry = self._storages.find(key)
                if entry is not None:
                    entry.lane.hold(entry.number, held)

    def _name_of(self, tensor: torch.Tensor) -> str:
        storage = storage_of(_local(tensor))
        return "" if storage is None else self._names.get(key_of(storage), "")

    def _name(self, tensor: torch.Tensor, name: str) -> None:
        for part in parts_of(_local(tensor)):
            storage = storage_of(part)
            if storage is None:
                continue
            key = key_of(storage)
            entry = self._storages.find(key)
            self._names[key] = name
            if entry is not None and entry.number >= 0:
                entry.lane.names[entry.number] = name


class _Mode(private.DispatchMode):
    """Shows every operator to a collector."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Skip PyTorch's wrapper for modes: no compiler runs inside this one."""
        return False

    def __init__(self, collector: Collector) -> None:
        super().__init__()
        self._collector = collector

    def leave(self) -> None:
        """Leave the thread's modes; below another mode or in another thread, stay there, idle.

        An interrupt may have left PyTorch's flags and stack of modes inconsistent.
        """
        modes = private.dispatch_modes()
        if self.old_dispatch_mode_flags and self not in modes:
            private.push_dispatch_mode(self)
        elif not modes or modes[-1] is not self:
            return
        try:
            self.__exit__(None, None, None)
        except IndexError:  # the flags are back already
            private.pop_dispatch_mode()

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (PyTorch's own signature)
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run the operator and note its accesses."""
        arguments = kwargs or {}
        if not self._collector.is_on:
            return func(*args, **arguments)
        if types and any(map(_is_wrapper, types)):
            return NotImplemented  # it first turns into operators on the tensors inside it
        recipe = self._collector.recipe(func)
        if recipe.is_composite:
            with self:
                return func.decompose(*args, **arguments)
        result = func(*args, **arguments)
        if not recipe.is_nothing:
            self._collector.note(recipe, args, arguments, result)
        return result


private.left_uncompiled(_Mode.__torch_dispatch__)


def _know_contents(
    recipe: Recipe,
    used: Sequence[tuple[torch.Tensor, int, Entry]],
    made: list[Entry],
    args: Sequence[Any],
    kwargs: Any,  # noqa: ANN401
) -> None:
    """Number the contents that are computed from numbers alone, equal for equal numbers."""
    written, sources = made, []
    for tensor, role, entry in used:
        if role & (WRITES | TOUCHES):
            written.append(entry)
        if role != WRITES or tensor.nbytes < entry.size_bytes:
            sources.append(entry.content)
    content = 0
    if not recipe.is_random and all(sources) and not any(one.is_nested for one, _, _ in used):
        rest = [value for value in (*args, *kwargs.values()) if not has_tensors(value)]
        views = [(one.shape, one.stride(), one.storage_offset()) for one, _, _ in used]
        content = hash((recipe.label, tuple(sources), repr(rest), repr(views))) | 1
    for entry in written:
        if entry.content or content:
            entry.content = content
            entry.lane.contents[entry.number] = content


def _is_equal(given: Sequence[tuple[Any, ...]], fresh: Sequence[tuple[Any, ...]]) -> bool:
    """Return whether a copy has the same layout in memory as its source."""
    if len(given) != 1 or len(fresh) != 1 or given[0][0].is_nested:
        return False
    source: torch.Tensor = given[0][0]
    copy: torch.Tensor = fresh[0][0]
    return (
        source.dtype == copy.dtype
        and source.device == copy.device
        and source.layout == copy.layout == torch.strided
        and source.stride() == copy.stride()
    )


def _is_wrapper(kind: type) -> bool:
    return hasattr(kind, "__tensor_flatten__")


def _allocated(  # noqa: PLR0913, PLR0917 (each is a thing of its own)
    lane: Lane, size_bytes: int, item_bytes: int, stream: int, where: _Where, name: str
) -> int:
    """Return the number of a new object; -1 if there is nothing to allocate."""
    if not size_bytes:
        return -1
    lane.names.append(name)
    return lane.builder.alloc(
        size_bytes, element_bytes=item_bytes, stream=stream, frames=where[0], scope=where[1]
    )


def _adder(lane: Lane, kind: ApiKind) -> Any:  # noqa: ANN401 (a method of the builder)
    if kind == ApiKind.COPY:
        return lane.builder.copy
    return lane.builder.set if kind == ApiKind.SET else lane.builder.kernel


def _clear(lane: Lane) -> None:
    lane.reads, lane.writes, lane.touches = [], [], []


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a distributed tensor."""
    local: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return local


def _shown(name: str, tensor: torch.Tensor) -> str:
    sizes = "nested" if tensor.is_nested else "x".join(map(str, tensor.shape)) or "scalar"
    return f"{name} [{sizes} {str(tensor.dtype).removeprefix('torch.')}]"


def _shown_bytes(size_bytes: int) -> str:
    return f"storage [{size_bytes} bytes]"


def _items(entry: Entry, runs: Sequence[Run]) -> list[Item]:
    item = entry.part(runs)
    return [] if item is None else [item]


def _built(lane: Lane) -> ObjectTrace:
    trace = replace(lane.builder.build(), names=tuple(lane.names))
    return replace(trace, notes=lane.notes(len(trace.apis), len(trace.objects)))
