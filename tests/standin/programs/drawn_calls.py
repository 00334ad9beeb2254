"""Draws calls of PyTorch's own samples, on the CPU, and prints those that a watched program sees.

Each is made twice: as the program on the stand-in makes it, and without what watches it there.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import itertools
import json
import random
import sys
import types
import unittest
from typing import Any

import torch
from torch import _C
from torch.utils._pytree import tree_leaves, tree_map

from gmlake.standin import answers

# PyTorch's samples import it for tests of their own.
sys.modules["expecttest"] = types.ModuleType("expecttest")
vars(sys.modules["expecttest"])["TestCase"] = unittest.TestCase


class Kept(torch.Tensor):
    """A subclass that does what PyTorch's own tensors do."""


def copied(tree: Any, kind: str) -> Any:
    def one(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = leaf.detach().clone()
        return made.as_subclass(Kept) if kind == "subclass" else made

    return tree_map(one, tree)


def outcome(call: Any, given: Any, named: Any, kind: str) -> list[Any]:
    """Return what became of a call: its result or error, and its operands afterwards."""
    torch.manual_seed(0)
    given, named = copied((given, named), kind)
    try:
        if kind in {"inference", "no_grad"}:
            with torch.inference_mode(kind == "inference"), torch.no_grad():
                given, named = copied((given, named), kind)
                made = call(*given, **named)
        elif kind == "vmap":
            made = torch.func.vmap(lambda one: call(one, *given[1:], **named))(given[0][None])
        else:
            made = call(*given, **named)
    except Exception as error:  # noqa: BLE001 (whatever it raises)
        made = f"{type(error).__name__}: {error}"
    return [type(made).__name__, *tree_leaves((made, given, named)), torch.rand(1)]


def is_same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return type(one) is type(other) and (one == other or repr(one) == repr(other))
    with _C.DisableTorchFunction():
        about = [(x.dtype, x.shape, x.layout, type(x), x.requires_grad) for x in (one, other)]
        if about[0] != about[1] or (one.layout is torch.strided and one.stride() != other.stride()):
            return False
        return one.is_sparse or repr(one) == repr(other)


def main() -> None:
    """Draw as many calls as are asked for, print the names of those that differ."""
    from torch.testing._internal.common_methods_invocations import op_db

    drawn = random.Random(int(sys.argv[2]))  # noqa: S311 (a repeatable draw)
    seen, differing = 0, []
    while seen < int(sys.argv[1]):
        op: Any = drawn.choice(op_db)
        kind = drawn.choice(("plain", "no_grad", "inference", "vmap", "subclass"))
        dtype = drawn.choice((torch.float32, torch.int64, torch.bool))
        call = drawn.choice((op.op, op.method_variant, op.inplace_variant))
        if call is None or "empty" in op.name or dtype not in op.supported_dtypes("cpu"):
            continue
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype), 12))
        if not samples:
            continue
        sample = drawn.choice(samples)
        given, named = (sample.input, *sample.args), sample.kwargs
        if kind == "vmap" and not isinstance(sample.input, torch.Tensor):
            continue
        watched = outcome(call, given, named, kind)
        answers.MODE.__exit__(None, None, None)
        alone = outcome(call, given, named, kind)
        answers.MODE.__enter__()
        if len(alone) != len(watched) or not all(map(is_same, watched, alone)):
            differing.append(f"{op.name} {kind} {getattr(call, '__name__', call)}")
        seen += 1
    print(json.dumps({"seen": seen, "differing": differing}))


main()
