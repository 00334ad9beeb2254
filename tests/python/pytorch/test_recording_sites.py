"""Who asked for memory: places by module, phase and call path, and categories by rules."""

# mypy: allow-untyped-calls, allow-subclassing-any, allow-untyped-decorators

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import gmlake  # noqa: E402
from gmlake.pictures.figures import CATEGORIES  # noqa: E402
from gmlake.pytorch import call_sites, categories, recording, scopes  # noqa: E402
from gmlake.pytorch.call_sites import CallPaths  # noqa: E402
from gmlake.snapshots.peaks import lives_of  # noqa: E402
from gmlake.trace.layout import REQUEST, START_BLOCK, Kind  # noqa: E402
from gmlake.trace.trace import Trace  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator


class Told:
    """Instead of the core: the site of each thread, and the marks."""

    def __init__(self) -> None:
        self.table = call_sites.Table()
        self.numbers: dict[int, int] = {}
        self.marks: list[int] = []
        self.tracker = scopes.Tracker(self.table, self.set_site, self.marks.append)

    def set_site(self, number: int) -> None:
        self.numbers[threading.get_ident()] = number

    def site(self) -> call_sites.Site:
        """Where the calling thread is."""
        return self.table.sites()[self.numbers.get(threading.get_ident(), 0)]

    def here(self) -> tuple[str, str]:
        return self.site()[:2]

    def labels(self) -> list[str]:
        labels = self.table.labels()
        return [labels[number] for number in self.marks]


@pytest.fixture
def told() -> Iterator[Told]:
    told = Told()
    told.tracker.start()
    yield told
    told.tracker.stop()


class Probe(torch.autograd.Function):  # type: ignore[name-defined]
    """Notes where it is in the forward and in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Any, told: Told, seen: list[Any]) -> Any:
        ctx.told, ctx.seen = told, seen
        seen.append(told.here())
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.seen.append(ctx.told.here())
        return gradient, None, None


class Probed(nn.Module):
    """A linear layer that notes where it is."""

    def __init__(self, told: Told, seen: list[Any]) -> None:
        super().__init__()
        self.linear, self.told, self.seen = nn.Linear(4, 4), told, seen

    def forward(self, x: Any) -> Any:
        return Probe.apply(self.linear(x), self.told, self.seen)


class Model(nn.Module):
    """Two probed layers, with work of its own in front of, between and behind them."""

    def __init__(self, told: Told, *, reenters: bool | None = None) -> None:
        super().__init__()
        self.told, self.seen, self.reenters = told, [], reenters  # type: ignore[var-annotated]
        self.layers = nn.ModuleList(Probed(told, self.seen) for _ in range(2))

    def own(self, x: Any) -> Any:
        return Probe.apply(x, self.told, self.seen)

    def forward(self, x: Any) -> Any:
        x = self.own(x)
        for layer in self.layers:
            if self.reenters is None:
                x = layer(x)
            else:
                x = checkpoint(layer, x, use_reentrant=self.reenters)
            x = self.own(x)
        return x


def rows() -> Any:
    return torch.ones(2, 4, requires_grad=True)


def test_a_place_is_the_same_in_both_passes(told: Told) -> None:
    model = Model(told)
    model(rows()).sum().backward()
    places = ["Model", "layers.0", "Model", "layers.1", "Model"]
    assert model.seen == [
        *((place, "forward") for place in places),
        *((place, "backward") for place in reversed(places)),
    ]
    assert told.here() == ("", "between")
    assert told.labels() == ["forward", "between", "backward", "between"]


@pytest.mark.parametrize("reenters", [False, True])
def test_what_a_checkpoint_computes_again_is_in_the_backward_pass(
    told: Told, *, reenters: bool
) -> None:
    model = Model(told, reenters=reenters)
    model(rows()).sum().backward()
    assert {phase for _, phase in model.seen[:5]} == {"forward"}
    assert {phase for _, phase in model.seen[5:]} == {"backward"}
    # Its gradient; where the checkpoint does not stop as soon as it can, computed again as well.
    assert model.seen.count(("layers.0", "backward")) == 1 + reenters
    assert told.labels() == ["forward", "between", "backward", "between"]
    assert told.here() == ("", "between")


def test_a_pass_that_fails_leaves_nothing_behind(told: Told) -> None:
    model = Model(told)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 5))
    assert told.here() == ("", "between")
    output = model(rows())
    output.register_hook(lambda _gradient: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        output.sum().backward()
    model.seen.clear()
    model(rows())
    assert model.seen[1] == ("layers.0", "forward")
    assert told.here() == ("", "between")


def test_optimizers_and_named_phases(told: Told) -> None:
    layer = nn.Linear(4, 4)
    seen = []

    def closure() -> Any:
        seen.append(told.here())
        loss = layer(rows()).sum()
        seen.append(told.here())
        return loss

    with gmlake.phase("update"):
        seen.append(told.here())
        torch.optim.SGD(layer.parameters(), lr=0.1).step(closure)
        seen.append(told.here())
    inner = ("SGD", "optimizer")
    assert seen == [("", "update"), inner, inner, ("", "update")]
    assert told.labels()[:2] == ["update", "optimizer"]
    assert told.labels()[-3:] == ["update", "step 0", "between"]


def test_an_optimizer_that_fails_is_left_by_the_next_step(told: Told) -> None:
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    layer(rows()).sum().backward()
    optimizer.step()
    assert told.here() == ("", "between")
    assert told.labels().count("step 0") == 1


def test_models_are_named_apart_and_let_go(told: Told) -> None:
    first, second = Model(told), nn.Sequential(nn.Linear(4, 4))
    places = []
    second[0].register_forward_pre_hook(lambda *_: places.append(told.here()[0]))
    first(rows())
    second(rows())
    nn.MSELoss()(second(rows()), rows())
    assert places == ["Sequential.0"] * 2
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None


def test_wrappers_leave_no_trace_in_names(told: Told) -> None:
    places = []
    inner = nn.Sequential(nn.Linear(4, 4))
    inner[0].register_forward_pre_hook(lambda *_: places.append(told.here()[0]))
    inner.register_forward_pre_hook(lambda *_: places.append(told.here()[0]))
    outer = nn.Identity()
    outer.add_module("_fsdp_wrapped_module", inner)
    told.tracker.name_model(outer)
    inner(rows())
    assert places == ["Sequential", "0"]


def test_each_thread_is_somewhere_else(told: Told) -> None:
    model = Model(told)
    thread = threading.Thread(target=model, args=(rows(),))
    with gmlake.phase("mine"):
        thread.start()
        thread.join()
        assert told.here() == ("", "mine")
    assert len(model.seen) == 5


def test_the_end_takes_every_hook_away() -> None:
    told = Told()
    told.tracker.start()
    model = Model(told)
    output = model(rows())
    told.tracker.stop()
    model.seen.clear()
    marks = len(told.marks)
    output.sum().backward()
    model(rows())
    with gmlake.phase("later"):
        pass
    assert set(model.seen) == {("", "")}
    assert len(told.marks) == marks
    assert not nn.modules.module._global_forward_hooks  # noqa: SLF001
    assert not nn.modules.module._global_forward_pre_hooks  # noqa: SLF001


@pytest.mark.filterwarnings("ignore:Using .torch.compile:UserWarning")
def test_compilers_see_no_hooks(told: Told) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    compiled(rows()).sum().backward()
    assert told.labels() == ["forward", "between", "backward", "between"]
    assert {site.scope for site in told.table.sites().values()} == {"", "Sequential"}


# ---- tables


def test_a_full_table_says_so_and_keeps_what_it_has() -> None:
    table = call_sites.Table(most=3)
    first, second = table.number_of("a", "forward"), table.number_of("b", "forward")
    assert table.number_of("a", "forward") == first != second
    assert table.number_of("c", "forward") == 0
    assert table.number_at(first, sys._getframe(), 4) == first  # noqa: SLF001
    assert table.left_out == 2
    assert table.sites() == {
        0: call_sites.Site(),
        first: call_sites.Site("a", "forward"),
        second: call_sites.Site("b", "forward"),
    }


def test_numbers_of_an_earlier_recording_mean_nothing_later() -> None:
    first = call_sites.renew().number_of("a", "forward")
    assert first in call_sites.table()
    second = call_sites.renew().number_of("a", "forward")
    assert second > first
    assert first not in call_sites.table()


# ---- call paths


def paths_of(told: Told, depth: int = 24) -> CallPaths:
    return CallPaths(told.table, told.tracker.base, told.set_site, depth)


def sites_seen(told: Told) -> list[Any]:
    """A list that grows by each site that is asked for."""
    seen: list[Any] = []
    number_at = told.table.number_at

    def spy(base: int, frame: Any, depth: int) -> int:
        number = number_at(base, frame, depth)
        seen.append(told.table.sites()[number])
        return number

    told.table.number_at = spy  # type: ignore[method-assign]
    return seen


def test_a_call_path_begins_at_the_innermost_line(told: Told) -> None:
    paths, seen = paths_of(told), sites_seen(told)

    class Inner(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.relu()

    model = nn.Sequential(Inner())
    paths.start()
    try:
        model(rows())
    finally:
        paths.stop()
    site = next(site for site in seen if site.scope == "0")
    names = [frame.name.rpartition(".")[2] for frame in site.frames]
    # That of Inner, of nn.Sequential, and here: without the calls in between.
    assert names[:3] == [
        "forward",
        "forward",
        test_a_call_path_begins_at_the_innermost_line.__name__,
    ]
    assert site.frames[0].filename == site.frames[2].filename == __file__
    assert site.phase == "forward"
    assert told.site().frames == ()


def test_a_device_context_is_no_place(told: Told) -> None:
    paths, seen = paths_of(told), sites_seen(told)
    paths.start()
    try:
        with torch.device("cpu"):
            torch.ones(1)
    finally:
        paths.stop()
    assert [site.frames[0].filename for site in seen if site.frames][-1] == __file__


def test_call_paths_end_where_they_should(told: Told) -> None:
    paths = paths_of(told, depth=1)
    paths.start()
    torch.ones(1)
    assert told.site().frames == ()
    with torch.device("cpu"):
        paths.stop()
        assert torch.ones(1).device.type == "cpu"
    assert not torch.overrides._get_current_function_mode_stack()  # noqa: SLF001
    before = len(told.table.sites())
    torch.ones(1)
    assert len(told.table.sites()) == before


class Passing(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined]
    """A mode of the program's own."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_call_paths_are_in_no_modes_way(told: Told) -> None:
    def modes() -> list[Any]:
        return list(torch.overrides._get_current_function_mode_stack())  # noqa: SLF001

    paths = paths_of(told, depth=1)
    with torch.device("cpu"), Passing():
        paths.start()
        torch.ones(1)
    assert modes() == [paths]
    with Passing():
        paths.stop()
    assert modes() == []
    torch.set_default_device("cpu")
    try:
        with Passing():
            paths.start()
        torch.set_default_device("meta")
        paths.stop()
        assert torch.ones(1).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert modes() == []


def test_call_paths_see_functions_without_a_name(told: Told) -> None:
    class Nameless:
        def __call__(self, x: Any) -> Any:
            if torch.overrides.has_torch_function_unary(x):
                return torch.overrides.handle_torch_function(self, (x,), x)
            return x

    paths = paths_of(told, depth=1)
    paths.start()
    try:
        assert Nameless()(torch.ones(1)).item() == 1
    finally:
        paths.stop()


def test_functions_without_end_are_not_all_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_sites, "MOST_CODES", 100)
    table = call_sites.Table(most=4)
    made = []
    for number in range(300):
        scope: dict[str, Any] = {"at": lambda: table.number_at(0, sys._getframe(1), 1)}  # noqa: SLF001
        exec(f"def made_{number}(): return at()", scope)  # noqa: S102
        function = scope[f"made_{number}"]
        assert function() == function()
        made.append(weakref.ref(function.__code__))
        del function, scope
    gc.collect()
    assert sum(code() is not None for code in made) <= 110


def test_models_that_are_gone_are_not_remembered() -> None:
    settings = recording._Settings(10, frames=False, model=None, optimizers=None)  # noqa: SLF001
    ours = recording._Session(settings)  # noqa: SLF001
    ours._tracker.start()  # noqa: SLF001
    try:
        for _ in range(20):
            nn.Softmax(-1)(torch.ones(3))
        kept = nn.Softmax(-1)
        kept(torch.ones(3))
        gc.collect()
        assert len(ours._models) == 1  # noqa: SLF001
    finally:
        ours._tracker.stop()  # noqa: SLF001


# ---- categories


class Scenario:
    """Events by hand, each a microsecond after the one before."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.sites: list[int] = []
        self.labels: list[str] = []
        self.places = {0: call_sites.Site()}
        self.count = 0

    def mark(self, label: str) -> None:
        self.rows.append((len(self.labels), 0, 0, self.now, 0, Kind.MARK, 0))
        self.labels.append(label)
        self.sites.append(0)

    def alloc(self, address: int, phase: str = "") -> int:
        number = next((key for key, site in self.places.items() if site.phase == phase), 0)
        if phase and not number:
            number = len(self.places)
            self.places[number] = call_sites.Site("layer", phase)
        self.rows.append((self.count, 512, address, self.now, 0, Kind.ALLOC, 0))
        self.sites.append(number)
        self.count += 1
        return self.count - 1

    def free(self, identity: int) -> None:
        address = next(row[2] for row in self.rows if row[5] == Kind.ALLOC and row[0] == identity)
        for kind in (Kind.FREE_REQUESTED, Kind.FREE):
            self.rows.append((identity, 512, address, self.now, 0, kind, 0))
            self.sites.append(0)

    @property
    def now(self) -> int:
        return 1000 * (len(self.rows) + 1)

    def told(self, *notes: categories.Note) -> list[str]:
        events = np.array(self.rows, REQUEST)
        trace = Trace(events, start_blocks=np.zeros(0, START_BLOCK))
        site = np.array(self.sites, np.uint64)
        lives = lives_of(trace, site, np.zeros(0, np.uint64))
        found = categories.classify(lives, events, self.labels, self.places, notes)
        return [CATEGORIES[number] for number in found.tolist()]


def note(scenario: Scenario, category: str, *addresses: int) -> categories.Note:
    number = CATEGORIES.index(category)
    return categories.Note(0, number, scenario.now - 1, np.array(addresses, np.uint64))


def test_categories_follow_the_rules() -> None:
    scenario, notes = Scenario(), []
    scenario.alloc(0x1000)  # a parameter
    batch = scenario.alloc(0x2000)
    scenario.mark("forward")
    saved = scenario.alloc(0x3000, "forward")
    scratch = scenario.alloc(0x4000, "forward")
    scenario.free(scratch)
    output = scenario.alloc(0x5000, "forward")
    scenario.mark("between")
    loss = scenario.alloc(0x6000, "between")
    scenario.free(output)
    scenario.mark("backward")
    scenario.alloc(0x4000, "backward")  # a gradient, where the scratch was
    scenario.free(saved)
    scenario.free(loss)
    passing = scenario.alloc(0x3000, "backward")
    scenario.free(passing)
    scenario.mark("between")
    notes.append(note(scenario, "gradient", 0x4000, 0x9000))
    scenario.mark("optimizer")
    scenario.alloc(0x7000, "optimizer")
    scenario.mark("between")
    notes.append(note(scenario, "optimizer state", 0x7000))
    late = scenario.alloc(0x8000, "between")
    scenario.mark("forward")
    scenario.mark("between")
    scenario.mark("backward")
    scenario.free(late)
    scenario.free(batch)
    notes.append(note(scenario, "parameter", 0x1000))
    assert scenario.told(*notes) == [
        "parameter",
        "unknown",  # the batch
        "activation",
        "temporary",
        "unknown",  # the output: no backward pass found it
        "activation",  # the loss
        "gradient",
        "temporary",
        "optimizer state",
        "unknown",  # the next batch
    ]


def test_an_address_is_known_at_its_time_only() -> None:
    scenario = Scenario()
    early = note(scenario, "parameter", 0x1000)
    first = scenario.alloc(0x1000)
    during = note(scenario, "gradient", 0x1000)
    scenario.free(first)
    after = note(scenario, "parameter", 0x1000)
    scenario.alloc(0x1000)
    assert scenario.told(early, during, after) == ["gradient", "unknown"]
    assert scenario.told(during, note(scenario, "parameter", 0x1000)) == ["gradient", "parameter"]


def test_without_marks_nothing_is_temporary() -> None:
    scenario = Scenario()
    scenario.free(scenario.alloc(0x1000))
    assert scenario.told() == ["unknown"]
    assert Scenario().told() == []


def test_what_is_known_is_bounded() -> None:
    known = categories.Known(most=10)
    for time_ns in range(8):
        known.add(time_ns % 2, categories.PARAMETER, time_ns, [1, 2, 3])
    assert [note.time_ns for note in known.of(1)] == [5, 7]
    assert [note.time_ns for note in known.of(0)] == [6]


def test_a_million_events_are_classified_quickly() -> None:
    count = 250_000
    events = np.zeros(4 * count, REQUEST)
    events["kind"] = np.tile([Kind.ALLOC, Kind.FREE_REQUESTED, Kind.FREE, Kind.TRIM], count)
    events["id"] = np.repeat(np.arange(count), 4)
    events["address"] = np.repeat(512 * (1 + np.arange(count) % 1000), 4)
    events["size_bytes"] = 512
    events["time_ns"] = np.arange(len(events))
    trace = Trace(events)
    lives = lives_of(trace, np.zeros(len(events), np.uint64), np.zeros(0, np.uint64))
    addresses = 512 * (1 + np.arange(1000, dtype=np.uint64))
    notes = [categories.Note(0, categories.GRADIENT, 1000 * n, addresses) for n in range(1000)]
    found = categories.classify(lives, events, [], {}, notes)
    assert np.count_nonzero(found == categories.GRADIENT) == 1000


# ---- recordings without CUDA


@pytest.mark.parametrize("wrong", [{"max_events": 0}, {"frames": -1}])
def test_numbers_are_in_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is .* or more"):
        gmlake.record(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"max_events": "x"}, {"model": nn.Linear}, {"model": "x"}, {"optimizers": [1]}]
)
def test_arguments_are_what_they_should_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"is a .*, not "):
        gmlake.record(**wrong)


def test_where_there_is_no_cuda_nothing_is_recorded(recwarn: pytest.WarningsRecorder) -> None:
    from gmlake.pytorch import device, notices

    if not device.absence():
        pytest.skip("there is CUDA")
    notices._said.discard("recording")  # noqa: SLF001
    for _ in range(2):
        with gmlake.record() as recording:
            nn.Linear(4, 4)(rows())
        assert recording.snapshot.devices == ()
    assert [
        str(w.message).partition(":")[0] for w in recwarn if w.category is gmlake.GmlakeWarning
    ] == ["gmlake.record() records nothing"]
    assert gmlake.stop_recording() is None
