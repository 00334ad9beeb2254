"""The tensors that an operator is given, and those that it returns."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from gmlake.diagnosis.operators.modules import tensors_of
from gmlake.diagnosis.operators.storages import parts_of, storage_of

if TYPE_CHECKING:
    from gmlake.diagnosis.operators.recipes import Recipe


def tensors_given(
    recipe: Recipe, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[tuple[torch.Tensor, int, torch.UntypedStorage]]:
    """Yield an operator's argument tensors, their roles, and their storages."""
    roles = recipe.roles
    for place, value in enumerate(args):
        if value is not None and place < len(roles):
            for tensor, storage in with_storages(tensors_in(value)):
                yield tensor, roles[place], storage
    for name, value in kwargs.items():
        role = recipe.by_name.get(name, recipe.other)
        for tensor, storage in with_storages(tensors_in(value)):
            yield tensor, role, storage


def with_storages(
    tensors: Iterable[torch.Tensor],
) -> Iterator[tuple[torch.Tensor, torch.UntypedStorage]]:
    """Yield the parts of the tensors that have memory, with their storages."""
    for tensor in tensors:
        for part in parts_of(tensor):
            storage = storage_of(part)
            if storage is not None:
                yield part, storage


def tensors_in(value: object) -> Iterable[torch.Tensor]:
    """Return the tensors in a value, which may be a nested list."""
    if isinstance(value, torch.Tensor):
        return (value,)
    return tensors_of(value) if isinstance(value, list | tuple | dict) else ()


def has_tensors(value: object) -> bool:
    """Return whether a value contains a tensor."""
    return any(True for _ in tensors_in(value))
