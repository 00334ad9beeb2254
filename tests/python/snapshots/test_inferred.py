"""Categories of ordinary snapshots: a training event by event, and what is inferred of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

import gmlake
from gmlake.commands import main
from gmlake.pictures.figures import CATEGORIES, Blocks, Moments, Timeline
from gmlake.snapshots import report_of
from gmlake.snapshots.inferred import infer
from gmlake.snapshots.sites import OwnLines
from recording import BASE, MIB, alloc, block, event, figure, free, load, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

TORCH: Final = "/env/lib/python3.11/site-packages/torch"
MODULE: Final = ("convert", f"{TORCH}/nn/modules/module.py")
FORWARD: Final = ("_call_impl", f"{TORCH}/nn/modules/module.py")
LOSS: Final = ("_make_grads", f"{TORCH}/autograd/__init__.py")
STATE: Final = ("_init_group", f"{TORCH}/optim/adam.py")
OPTIMIZER: Final = ("_multi_tensor_adam", f"{TORCH}/optim/adam.py")
CLEARED: Final = ("zero_grad", f"{TORCH}/optim/optimizer.py")
OWN: Final = ("main", "/home/me/project/train.py")
LAYERS: Final = 6
WORKSPACE: Final = 8_519_680


class Training:
    """A network of layers, trained; each block is made with what it is for.

    has_lines: the file has call paths. falls: each address is below the one before. workspace: the
    bytes that a library takes in the first backward pass and keeps.
    """

    def __init__(self, *, has_lines: bool, falls: bool = False, workspace: int = WORKSPACE) -> None:
        self._falls = falls
        self._workspace = workspace
        self.events: list[dict[str, Any]] = []
        self.live: list[dict[str, int]] = []
        self.held: dict[int, tuple[int, str]] = {}
        self._now = dict.fromkeys(CATEGORIES, 0)
        self._has_lines = has_lines
        self._taken = 0
        self._end = BASE + (1 << 40)
        self.parameters: list[int] = []
        self.gradients: list[int] = []
        self.states: list[int] = []
        self.loss = 0

    def _frames(self, path: tuple[str, str] | None) -> list[dict[str, Any]]:
        if not self._has_lines or path is None:
            return []
        return [
            {"name": name, "filename": file, "line": 7} for name, file in dict.fromkeys((path, OWN))
        ]

    def _note(self, size: int, what: str) -> None:
        self._now[what] += size
        self.live.append(dict(self._now))

    def make(self, size: int, what: str, path: tuple[str, str] | None) -> int:
        """Add a block and return its address."""
        rounded = -(-size // 512) * 512
        at = self._end - self._taken - rounded if self._falls else BASE + self._taken
        self._taken += rounded
        self.events.append(alloc(at, size, frames=self._frames(path)))
        self.held[at] = rounded, what
        self._note(rounded, what)
        return at

    def drop(self, *places: int, path: tuple[str, str] | None = OWN) -> None:
        """Free blocks."""
        for at in places:
            size, what = self.held.pop(at)
            self.events.append(free(at, size, frames=self._frames(path)))
            self._note(-size, what)

    def refuse(self) -> None:
        """Run out of memory."""
        self.events.append(event("oom", 0, 1 << 40, frames=self._frames(FORWARD)))
        self.live.append(dict(self._now))

    def build(self) -> None:
        for layer in range(LAYERS):
            self.parameters.append(self.make((layer + 1) * MIB, "parameter", MODULE))

    def forward(self, kept: str = "activation") -> list[int]:
        """Return what is held for the backward pass."""
        found = [self.make(3 * MIB, kept, OWN)]
        for layer in range(LAYERS):
            scratch = self.make(MIB + 4096, "temporary", FORWARD)
            found.append(self.make((layer + 5) * MIB, kept, FORWARD))
            self.drop(scratch, path=FORWARD)
        loss = self.make(4, kept, OWN)
        if self.loss:
            self.drop(self.loss)
        self.loss = loss
        return found

    def backward(self, activations: list[int], *, is_first: bool = False) -> None:
        seed = self.make(4, "temporary", LOSS)
        if is_first:
            self.make(self._workspace, "unknown", None)
        has_gradients = bool(self.gradients)
        for layer in reversed(range(LAYERS)):
            flowing = self.make(2 * MIB + 4096, "temporary", None)
            size = (layer + 1) * MIB
            made = self.make(size, "temporary" if has_gradients else "gradient", None)
            if has_gradients:
                self.drop(made, path=None)
            else:
                self.gradients.append(made)
            self.drop(activations.pop(), flowing, path=None)
        self.drop(*activations, path=None)
        self.drop(seed)

    def update(self) -> None:
        if not self.states:
            for layer in range(LAYERS):
                for _ in range(2):
                    size = (layer + 1) * MIB
                    self.states.append(self.make(size, "optimizer state", STATE))
        scratch = [self.make((layer + 1) * MIB, "temporary", OPTIMIZER) for layer in range(LAYERS)]
        self.drop(*scratch, path=OPTIMIZER)

    def clear(self) -> None:
        self.drop(*reversed(self.gradients), path=CLEARED)
        self.gradients = []

    def train(self, steps: int, *, keeps_gradients: bool = False) -> None:
        self.build()
        for step in range(steps):
            self.backward(self.forward(), is_first=step == 0)
            self.update()
            if not keeps_gradients:
                self.clear()

    def load(self, folder: Path, behind: int = 0) -> gmlake.Snapshot:
        """Return it as a file that is read; behind: how many events were lost."""
        blocks = [
            block(at, size, size) if at in self.held else block(at, size)
            for at, size in self._places()
        ]
        first = self._end - self._taken if self._falls else BASE
        held = [segment(first, self._taken, blocks)]
        path = folder / "memory.json"
        path.write_text(json.dumps(snapshot(self.events[behind:], held)))
        return gmlake.load(path)

    def _places(self) -> list[tuple[int, int]]:
        made = [each for each in self.events if each["action"] == "alloc"]
        return sorted((each["addr"], -(-each["size"] // 512) * 512) for each in made)

    def expected(self, what: str, behind: int = 0) -> list[int]:
        """Return the live bytes of a category behind each event."""
        return [each[what] for each in self.live[behind:]]


def timeline_of(seen: gmlake.Snapshot) -> Timeline:
    return next(each for each in seen.report().figures if isinstance(each, Timeline))


def assert_right(training: Training, seen: gmlake.Snapshot, behind: int = 0) -> Timeline:
    timeline = timeline_of(seen)
    nothing = np.zeros(len(timeline.at))
    for what in CATEGORIES:
        found = timeline.live.get(what, nothing).astype(int).tolist()
        assert found == training.expected(what, behind), what
    return timeline


@pytest.mark.parametrize("keeps_gradients", [False, True])
@pytest.mark.parametrize("has_lines", [True, False])
def test_a_training_is_told_apart(
    tmp_path: Path, *, has_lines: bool, keeps_gradients: bool
) -> None:
    training = Training(has_lines=has_lines)
    training.train(4, keeps_gradients=keeps_gradients)
    note = assert_right(training, training.load(tmp_path)).note
    sure = "call paths and lifetimes; certain for " if has_lines else "lifetimes and sizes alone"
    assert f"categories are inferred from {sure}" in note


def test_what_the_program_keeps_for_itself_is_not_known(tmp_path: Path) -> None:
    training = Training(has_lines=True)
    training.make(40 * MIB, "unknown", OWN)
    training.train(3)
    assert_right(training, training.load(tmp_path))


def test_copies_of_a_parameter_that_no_pass_trains_are_parameters(tmp_path: Path) -> None:
    """The gradient of their size belongs to the module's own parameter."""
    training = Training(has_lines=True)
    for _ in range(4):
        training.make(3 * MIB, "parameter", OWN)
    training.train(3)
    assert_right(training, training.load(tmp_path))


@pytest.mark.parametrize(("count", "what"), [(2, "unknown"), (3, "parameter")])
def test_a_library_has_a_workspace_at_most_twice(tmp_path: Path, count: int, what: str) -> None:
    training = Training(has_lines=False, workspace=7 * MIB)
    for _ in range(count):
        training.make(WORKSPACE, what, None)
    training.train(4)
    assert_right(training, training.load(tmp_path))


def test_gradients_of_a_pass_that_was_refused_are_not_sure(tmp_path: Path) -> None:
    training = Training(has_lines=True)
    training.train(2)
    activations = training.forward()
    training.make(4, "temporary", LOSS)
    made = []
    for layer in reversed(range(LAYERS)):
        made.append(training.make((layer + 1) * MIB, "gradient", None))
        training.drop(activations.pop(), path=None)
    training.refuse()
    seen = training.load(tmp_path)
    found = infer(seen[0], OwnLines(seen.sites))
    assert found is not None
    cut = np.isin(seen[0].lives.address, made)
    others = ~cut & (found.categories == CATEGORIES.index("gradient"))
    assert (found.categories[cut] == CATEGORIES.index("gradient")).all()
    assert not found.is_sure[cut].any()
    assert found.is_sure[others].all()
    assert others.any()


def one_number_while_others_go(count: int, kept_bytes: int) -> Training:
    """A program without call paths: blocks are freed, the youngest first, as others are made."""
    program = Training(has_lines=False)
    program.make(64 * MIB, "unknown", None)
    kept = program.make(kept_bytes, "unknown", None)
    older = [program.make(MIB, "unknown", None) for _ in range(count)]
    number = program.make(4, "unknown", None)
    for at in older[::-1]:
        made = [program.make(MIB // 2, "unknown", None) for _ in range(2)]
        program.drop(at, *made)
    program.drop(number, kept)
    return program


@pytest.mark.parametrize(
    ("count", "kept_bytes", "is_pass"),
    [(4, 512, False), (5, 512, True), (20, 30 * MIB, True), (20, 60 * MIB, False)],
)
def test_a_pass_frees_five_blocks_and_much_of_what_was_there(
    tmp_path: Path, count: int, kept_bytes: int, *, is_pass: bool
) -> None:
    seen = one_number_while_others_go(count, kept_bytes).load(tmp_path)
    assert ("inferred" in timeline_of(seen).note) == is_pass


@pytest.mark.parametrize("steps", [0, 2])
def test_what_is_live_when_memory_runs_out_is_an_activation(tmp_path: Path, steps: int) -> None:
    training = Training(has_lines=True)
    training.train(steps)
    activations = training.forward()
    training.refuse()
    training.drop(*activations, training.loss, *training.parameters, *training.states)
    assert_right(training, training.load(tmp_path))


# ---- before the recording


def used_only(folder: Path, path: tuple[str, str]) -> gmlake.Snapshot:
    """Two blocks from before the recording, which shows only how one more comes and goes."""
    size = 32 * MIB
    frames = [{"name": name, "filename": file, "line": 7} for name, file in (path, OWN)]
    at = BASE + 2 * size
    refused = event("oom", 0, 4 * size, device_free=0, frames=frames)
    events = [alloc(at, size, frames=frames), free(at, size, frames=frames), refused]
    held = [block(BASE, size, size), block(BASE + size, size, size), block(at, size)]
    return load(folder, snapshot(events, [segment(BASE, 3 * size, held)]))


@pytest.mark.parametrize(
    ("path", "site", "said"),
    [
        (FORWARD, "parameters (most likely) from before the recording", "Most is held by {site}: "),
        (
            ("load", "/home/me/project/data.py"),
            "memory from before the recording",
            "No line is known of 64.0 MiB in 2 blocks from before the first recorded event. To ",
        ),
    ],
)
def test_what_was_there_before_a_network_is_used_is_said_to_be_its_parameters(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    path: tuple[str, str],
    site: str,
    said: str,
) -> None:
    seen = used_only(tmp_path, path)
    moments = figure(report_of(seen), Moments)
    says = " ".join(moments.moments[moments.shown].says)
    assert said.format(site=site) in says
    assert figure(report_of(seen), Blocks).rows[0].site == site
    assert main(["replay", str(tmp_path / "scenario.pickle"), "--policy", "caching"]) == 0
    assert said.format(site=site) in " ".join(capsys.readouterr().out.split())
