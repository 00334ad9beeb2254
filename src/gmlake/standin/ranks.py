"""One rank of a distributed program, alone: its process groups have all ranks, but one process.

PyTorch's fake process group completes every collective at once and leaves its result as it was.
What a program sends as Python objects is answered with its own.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

from gmlake.standin import private

_KEPT: Final = ("group_desc", "use_local_synchronization")


def install() -> None:
    """Replace what makes process groups, if this process is a rank of many."""
    world = int(os.environ.get("GMLAKE_FORECAST_RANKS", "1"))
    if world < 2 or not dist.is_available():  # noqa: PLR2004
        return
    rank = int(os.environ["RANK"])
    make: Callable[..., None] = dist.init_process_group
    make_group: Callable[..., Any] = dist.new_group

    @functools.wraps(make)
    def init_process_group(*_: Any, **given: Any) -> None:
        """Make the group of all ranks, whatever backend is asked for."""
        timeout = {"timeout": given["timeout"]} if given.get("timeout") is not None else {}
        make("fake", store=private.fake_store(), world_size=world, rank=rank, **timeout)

    @functools.wraps(make_group)
    def new_group(ranks: Sequence[int] | None = None, *_: Any, **given: Any) -> Any:
        """Make a group of some of them."""
        kept = {name: given[name] for name in _KEPT if name in given}
        return make_group(list(ranks) if ranks is not None else None, backend="fake", **kept)

    _put("init_process_group", init_process_group)
    _put("new_group", new_group)
    for answer in (all_gather_object, gather_object, scatter_object_list):
        _put(answer.__name__, answer)
    for name in ("broadcast_object_list", "monitored_barrier"):
        _put(name, _nothing)
    private.replace_shape_checks(_nothing)  # they sent nothing
    _answer_reducers()


def _answer_reducers() -> None:
    """Have DistributedDataParallel take each bucket of gradients as reduced.

    Its reducer wants the tensor from the group, which the fake one does not give. A hook of the
    program's own would get no more than this.
    """
    parallel: Any = torch.nn.parallel.DistributedDataParallel
    make, register = parallel.__init__, parallel.register_comm_hook

    @functools.wraps(make)
    def __init__(self: Any, *arguments: Any, **given: Any) -> None:  # noqa: N807 (wraps it)
        make(self, *arguments, **given)
        # PyTorch wants the types of a hook to be its own, or none, as a lambda has.
        register(self, None, lambda _, bucket: _done(bucket.buffer()))

    parallel.__init__ = __init__
    parallel.register_comm_hook = _nothing


def _done(result: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(result)
    return done


def _put(name: str, function: Callable[..., Any]) -> None:
    """Put a function in the place of PyTorch's, wherever PyTorch itself has it by name."""
    earlier = getattr(dist, name)
    for module in [dist, *sys.modules.values()]:
        names = getattr(module, "__dict__", {})  # what a program put there may have none
        if names.get(name) is earlier:
            setattr(module, name, function)


def _nothing(*_: object, **__: object) -> None:
    pass


def all_gather_object(object_list: list[Any], obj: Any, *_: object, **__: object) -> None:
    """Answer that all ranks have the same."""
    object_list[:] = [obj] * len(object_list)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, *_: object, **__: object
) -> None:
    """Answer that all ranks have the same."""
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    *_: object,
    **__: object,
) -> None:
    """Answer with the first object there is to give."""
    if scatter_object_input_list:
        scatter_object_output_list[0] = scatter_object_input_list[0]
