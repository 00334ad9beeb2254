"""Derives from an operator's schema how it accesses each of its arguments."""

# mypy: allow-untyped-calls

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import torch

from gmlake.diagnosis.object_layout import READS, TOUCHES, WRITES, ApiKind
from gmlake.diagnosis.operators import indices, private


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


_COPIES: Final = _named(
    "copy_ _copy_from _to_copy clone lift_fresh_copy copy _foreach_copy_ _local_scalar_dense "
    "detach_copy view_copy expand_copy t_copy transpose_copy permute_copy slice_copy"
)
_SETS: Final = _named(
    "zero_ zero fill_ fill zeros ones full zeros_like ones_like full_like new_zeros new_ones "
    "new_full scalar_tensor _foreach_zero_"
)
_EMPTY: Final = _named(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided "
    "_efficientzerotensor _empty_affine_quantized"
)
_SHAPED: Final = _named(
    "zeros_like ones_like full_like rand_like randn_like randint_like empty_like new_zeros "
    "new_ones new_full new_empty new_empty_strided"
)
"""These operators use only the shape of an argument."""

_OVERWRITING: Final = _named(
    "zero_ fill_ copy_ _foreach_copy_ _foreach_zero_ random_ uniform_ normal_ exponential_ "
    "bernoulli_ geometric_ cauchy_ log_normal_"
)
"""These operators overwrite their first argument without reading it."""

_NOTHING: Final = _named(
    "lift record_stream is_same_size is_pinned _is_any_true_view sym_size sym_numel "
    "sym_stride sym_storage_offset size stride dim numel storage_offset is_contiguous "
    "is_strides_like_format is_non_overlapping_and_dense _has_compatible_shallow_copy_type "
    "_is_zerotensor set_data requires_grad_ _version output_nr is_leaf layout device "
    "_nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets "
    "_sparse_coo_tensor_unsafe _values _indices values indices crow_indices col_indices "
    "_coalesced_ is_coalesced"
)
"""These operators use a tensor's metadata, not its contents."""

_STATISTICS: Final = _named("running_mean running_var")
"""Arguments that training changes, though some schemas do not say so."""

_QUIET: Final = frozenset(("profiler", "prim", "prims_debug", "sym", "_test_only"))
"""Namespaces of operators that access no memory."""


class Recipe(NamedTuple):
    """How one operator accesses memory.

    kind: of API. roles: of each positional argument: READS, WRITES, both, TOUCHES or 0. by_name: of
    arguments given by name. other: of those that it does not name. has_writes: whether any role is
    more than READS. is_empty: its result is uninitialized. rows: finds the bytes of its first
    argument that the others select. is_nothing: it accesses no memory. is_arrival: its argument is
    new and filled by Python. is_composite: it consists of other operators, which are recorded
    instead; in inference mode the caller must decompose it. is_random: its output differs each
    time.
    """

    label: str
    kind: ApiKind = ApiKind.KERNEL
    roles: tuple[int, ...] = ()
    by_name: Mapping[str, int] = {}
    other: int = 0
    has_writes: bool = False
    is_empty: bool = False
    rows: indices.Finder | None = None
    is_nothing: bool = False
    is_arrival: bool = False
    is_composite: bool = False
    is_random: bool = False


_OPAQUE: Final = 64
"""The number of arguments of an operator without a schema, all of which it may touch."""


def recipe_of(operator: Any) -> Recipe:  # noqa: ANN401 (an operator of PyTorch)
    """Return the recipe of an operator; one without a schema may touch all its arguments."""
    schema = getattr(operator, "_schema", None)
    if schema is None:
        roles = (TOUCHES,) * _OPAQUE
        return Recipe(str(operator), roles=roles, other=TOUCHES, has_writes=True)
    space, name = schema.name.split("::", 1)
    label = name if space == "aten" else f"{space}.{name}"
    if name == "lift_fresh":
        return Recipe(label, roles=(READS,), is_arrival=True)
    if space in _QUIET or (space == "aten" and name in _NOTHING):
        return Recipe(label, is_nothing=True)
    if private.is_composite(operator):
        return Recipe(label, is_composite=True)
    if _is_view(operator, schema):
        return Recipe(label, is_nothing=True)
    is_silent = space != "aten" and name.endswith("_") and not schema.is_mutable
    named: dict[str, int] = {}
    for argument in schema.arguments:
        if "Tensor" in str(argument.type):
            role = TOUCHES if is_silent else _role(argument, name)
            named[argument.name] = 0 if name in _SHAPED else role
    if name in _OVERWRITING:
        named[schema.arguments[0].name] = WRITES
    rows = None
    if space == "aten":
        rows = indices.FINDERS.get(f"{name}.{schema.overload_name}", indices.FINDERS.get(name))
    positional = tuple(
        named.get(argument.name, 0) for argument in schema.arguments if not argument.kwarg_only
    )
    return Recipe(
        label,
        kind=_kind(name),
        roles=positional,
        by_name=named,
        has_writes=any(role & (WRITES | TOUCHES) for role in named.values()),
        is_empty=name in _EMPTY,
        rows=rows,
        is_random=torch.Tag.nondeterministic_seeded in operator.tags,
    )


def _kind(name: str) -> ApiKind:
    if name in _COPIES:
        return ApiKind.COPY
    return ApiKind.SET if name in _SETS else ApiKind.KERNEL


def _role(argument: Any, name: str) -> int:  # noqa: ANN401 (torch has them untyped)
    alias = argument.alias_info
    if alias is None or not alias.is_write:
        return TOUCHES if argument.name in _STATISTICS else READS
    # An out= argument is written only; any other argument that changes is read, too.
    is_out = argument.kwarg_only and not name.endswith("_")
    return WRITES if is_out else READS | WRITES


def _is_view(operator: Any, schema: Any) -> bool:  # noqa: ANN401
    """Return whether it changes what a tensor views, or returns a tensor over the same memory."""
    if torch.Tag.inplace_view in operator.tags:
        return True
    aliases = [value.alias_info for value in schema.returns]
    return bool(aliases) and all(alias and not alias.is_write for alias in aliases)
