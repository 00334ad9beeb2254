"""Blocks of gmlake.diagnose(): lives of tensors, places, what is refused, what stays as it was."""

# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"

from __future__ import annotations

import copy
import inspect
import os
import sys
import threading
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("_few_objects")]
torch = pytest.importorskip("torch")

from operator_traces import record  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import gmlake  # noqa: E402
from gmlake.diagnosis.object_layout import BEFORE, KEPT  # noqa: E402
from gmlake.diagnosis.operators import diagnose  # noqa: E402


def here() -> str:
    """File and line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno}"


# ---- lives --------------------------------------------------------------------------------------


def test_a_tensor_lives_until_nothing_holds_it() -> None:
    def run() -> None:
        first = torch.zeros(3)
        view = first[1:]
        del first
        view.sum()
        del view
        torch.ones(3)

    recorded = record(run)
    apis = recorded.apis(with_memory=True)
    assert apis[:6] == [
        ("alloc", "alloc"),
        ("set", "zeros"),
        ("alloc", "alloc"),
        ("kernel", "sum"),
        ("free", "free"),
        ("free", "free"),
    ]


def test_watching_keeps_nothing_alive() -> None:
    with diagnose():
        tensor = torch.zeros(3)
        storage = weakref.ref(tensor.untyped_storage())
        (tensor + 1).sum()
        del tensor
        assert storage() is None


def flags_of(report: Any, name: str) -> int:
    trace = report.devices["cpu"].trace
    return int(trace.objects["flags"][trace.names.index(name)])


def test_what_lives_on_is_no_leak() -> None:
    with diagnose() as report:
        kept = torch.zeros(3)
    assert flags_of(report, "kept") == KEPT
    assert "memory leak" not in {found.pattern for found in report.findings}
    del kept


def test_in_a_whole_program_it_is_one() -> None:
    with diagnose(whole_program=True) as report:
        kept = torch.zeros(3)
    assert flags_of(report, "kept") == 0
    assert "memory leak" in {found.pattern for found in report.findings}
    del kept


def test_what_was_there_before_is_known_to_be() -> None:
    older = torch.zeros(2, 3)
    with diagnose() as report:
        older.sum()
    assert flags_of(report, "tensor [2x3 float32]") == BEFORE | KEPT


def test_what_was_there_before_is_no_leak_of_a_whole_program() -> None:
    older = torch.zeros(2, 3)
    with diagnose(whole_program=True) as report:
        older.sum()
    assert "memory leak" not in {found.pattern for found in report.findings}


def test_what_was_there_before_may_be_freed() -> None:
    held = [torch.zeros(2, 3)]
    with diagnose() as report:
        held[0].sum()
        held.clear()
        torch.ones(2)
    assert flags_of(report, "tensor [2x3 float32]") == BEFORE


def test_what_is_never_accessed_is_not_mentioned() -> None:
    older = torch.zeros(2, 3)
    with diagnose() as report:
        pass
    assert report.devices == {}
    assert "no operator" in str(report)
    assert older is not None


def test_what_numpy_made_in_the_block_arrives() -> None:
    numpy = pytest.importorskip("numpy")

    def run() -> None:
        array = torch.from_numpy(numpy.ones(3))
        array.sum()

    recorded = record(run)
    assert recorded.apis()[0] == ("copy", "from outside")
    assert not any(recorded.trace.objects["flags"])


def found_with_alias(share: Any) -> set[str]:
    def run() -> None:
        shared = torch.ones(1000)
        alias = share(shared)
        shared.fill_(2)
        shared.fill_(3)
        del shared
        torch.ones(3)
        del alias

    with diagnose(whole_program=True) as report:
        run()
    return {one.pattern for one in report.findings if one.object_name == "shared"}


def test_what_others_hold_may_be_read_by_them_at_any_time() -> None:
    pytest.importorskip("numpy")
    unwanted = {"dead write", "late deallocation"}
    assert found_with_alias(lambda m: m.view(-1)) >= unwanted
    assert not found_with_alias(lambda m: m.numpy()) & unwanted
    assert not found_with_alias(lambda m: m.__dlpack__()) & unwanted


def test_memory_of_an_array_is_its_own_to_read() -> None:
    numpy = pytest.importorskip("numpy")

    def run() -> None:
        array = numpy.ones(1000)
        tensor = torch.from_numpy(array)
        for value in range(3):
            tensor.fill_(value)
            assert array[0] == value

    with diagnose(whole_program=True) as report:
        run()
    assert "dead write" not in {one.pattern for one in report.findings}


def test_a_kernel_that_is_given_an_address_is_seen() -> None:
    def run() -> None:
        buffer = torch.ones(4)
        assert buffer.data_ptr()

    assert record(run).flags("buffer") == [("ones", "W"), ("data_ptr", "T")]


def test_what_is_saved_is_used_until_then(tmp_path: Path) -> None:
    def run() -> None:
        copied = torch.ones(4)
        torch.save({"copied": copied}, tmp_path / "saved.pt")

    assert record(run).flags("copied")[-1] == ("data_ptr", "T")


def test_methods_are_as_before_afterwards() -> None:
    before = {name: vars(torch.Tensor).get(name) for name in ("numpy", "tolist", "__dlpack__")}
    with diagnose():
        assert vars(torch.Tensor)["numpy"] is not before["numpy"]
    assert before == {name: vars(torch.Tensor).get(name) for name in before}


def test_a_storage_that_changes_its_size_is_another_object() -> None:
    def run() -> None:
        shard = torch.ones(4)
        shard.untyped_storage().resize_(0)
        torch.zeros(2)
        shard.untyped_storage().resize_(16)
        shard.fill_(1)

    recorded = record(run)
    kinds = [kind for kind, _ in recorded.apis(with_memory=True)]
    assert kinds[:3] == ["alloc", "set", "free"]
    assert recorded.trace.objects["size_bytes"].tolist() == [16, 8, 16]


def test_a_tensor_that_grows_takes_its_content_along() -> None:
    def run() -> None:
        grown = torch.ones(4)
        grown.resize_(8)
        grown.sum()

    recorded = record(run)
    assert recorded.trace.names.count("grown") == 2
    assert ("copy", "resize_") in recorded.apis()


def test_resizing_is_as_before_afterwards() -> None:
    original = torch.UntypedStorage.resize_
    with diagnose():
        assert torch.UntypedStorage.resize_ is not original
    assert torch.UntypedStorage.resize_ is original


def test_out_of_no_size_is_allocated_by_the_operator() -> None:
    def run() -> None:
        out = torch.empty(0)
        torch.add(torch.ones(3), 1, out=out)

    assert record(run).trace.objects["size_bytes"].tolist() == [12, 12]


# ---- places -------------------------------------------------------------------------------------


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.inner(x) * 2


def test_every_api_has_a_line_of_the_program() -> None:
    def run() -> None:
        lines.append(here()), (tensor := torch.zeros(3))  # type: ignore[func-returns-value]
        lines.append(here()), tensor.add_(1)  # type: ignore[func-returns-value]

    lines: list[str] = []
    trace = record(run).trace
    places = [trace.place(api).frames[0] for api in range(3)]
    assert [place.split("  ")[1] for place in places] == [lines[0], lines[0], lines[1]]
    assert "run" in places[0]


def test_only_so_many_frames_are_kept() -> None:
    deep = record(lambda: torch.zeros(3), frames=2).trace
    assert {len(place.frames) for place in deep.places[1:]} == {2}
    none = record(lambda: torch.zeros(3), frames=0).trace
    assert {place.frames for place in none.places} == {()}


def test_no_frame_is_pytorch_s_own() -> None:
    model = Doubled()
    trace = record(lambda: model(torch.ones(2, 3)).sum().backward(), model=model).trace
    paths = {frame for place in trace.places for frame in place.frames}
    own = str(Path(torch.__file__).parent)
    assert paths
    assert not any(own in frame for frame in paths)


def test_no_line_is_python_s_own() -> None:
    recorded = record(lambda: copy.deepcopy(torch.ones(3)))
    places = [place for place in recorded.trace.places if place.frames]
    assert places
    assert not any("copy.py" in frame for place in places for frame in place.frames)


def test_a_lambda_is_no_name_of_what_it_makes() -> None:
    def run() -> None:
        make = lambda: torch.ones(3)  # noqa: E731
        made = make()
        made.sum()

    assert record(run).trace.names[0] == "ones [3 float32]"


def test_what_was_made_unseen_may_hold_nothing_yet() -> None:
    with diagnose(whole_program=True) as report:
        copy.deepcopy(torch.ones(3))
    assert "dead write" not in {finding.pattern for finding in report.findings}


def test_modules_and_parameters_are_named() -> None:
    model = Doubled()
    recorded = record(lambda: model(torch.ones(2, 3)).sum().backward(), model=model)
    assert recorded.flags("inner.weight")
    scopes = {place.scope for place in recorded.trace.places}
    assert {"inner (forward)", "inner (backward)"} <= scopes


def test_gradients_are_named_after_their_parameters() -> None:
    model = Doubled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run() -> None:
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()

    names = record(run, model=model).trace.names
    assert "gradient of inner.weight" in names


# ---- autograd, compilers, threads ---------------------------------------------------------------


def test_the_backward_pass_is_seen() -> None:
    def run() -> None:
        weight = torch.ones(3, 3, requires_grad=True)
        (weight @ weight).relu().sum().backward()

    labels = [label for _, label in record(run).apis()]
    assert "threshold_backward" in labels
    assert labels.count("mm") == 3


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_what_a_checkpoint_computes_again_is_seen(*, is_reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU())

    def run() -> None:
        x = torch.ones(2, 3, requires_grad=True)
        checkpoint(model, x, use_reentrant=is_reentrant).sum().backward()

    labels = [label for _, label in record(run).apis()]
    assert labels.count("addmm") == 4


def test_a_compiled_function_runs_without_its_compiler() -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, backend="eager")
    compiled(torch.ones(3))
    labels = [label for _, label in record(lambda: compiled(torch.ones(3))).apis()]
    assert labels == ["ones", "mul", "add"]


def test_a_compiler_lets_the_collector_alone() -> None:
    compiled = torch.compile(lambda x: (x.sin() + 1).cos(), backend="eager")
    operands = [torch.ones(size, 5) for size in range(2, 5)]
    for operand in operands:
        compiled(operand)
    for operand in operands:
        labels = [label for _, label in record(partial(compiled, operand)).apis()]
        assert labels == ["sin", "add", "cos"]


def test_other_threads_are_not_seen_but_what_they_made_is_known_later() -> None:
    made: list[Any] = []

    def run() -> None:
        thread = threading.Thread(target=lambda: made.append(torch.zeros(3)))
        thread.start()
        thread.join()
        made[0].sum()

    assert record(run).apis() == [("copy", "from outside"), ("kernel", "sum")]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_is_not_watched() -> None:
    with diagnose() as report:
        block: Any = report._block  # noqa: SLF001 (nothing else tells)
        collector = block.collector
        process = os.fork()
        if not process:
            torch.zeros(3)
            os._exit(len(collector._lanes))  # noqa: SLF001
        _, status = os.waitpid(process, 0)
        torch.ones(3)
    assert status == 0
    assert "ones" in report.devices["cpu"].trace.labels


def test_a_tensor_may_die_in_another_thread() -> None:
    def run() -> None:
        held = [torch.zeros(3)]
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        torch.ones(3)

    kinds = [kind for kind, _ in record(run).apis(with_memory=True)]
    assert kinds == ["alloc", "set", "free", "alloc", "set", "free"]


def test_results_are_the_same_as_without() -> None:
    def run() -> Any:
        torch.manual_seed(3)
        model = Doubled()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
        return model.inner.weight.detach().clone()

    alone = run()
    with diagnose():
        watched = run()
    assert torch.equal(alone, watched)


# ---- what is refused ----------------------------------------------------------------------------


def test_blocks_are_not_nested() -> None:
    with diagnose() as outer:
        torch.zeros(3)
        with pytest.raises(RuntimeError, match="cannot be nested"), diagnose():
            pass
        torch.ones(3)
    assert outer.devices["cpu"].trace.labels.count("ones") == 1


def test_a_block_is_used_once() -> None:
    block = diagnose()
    with block:
        pass
    with pytest.raises(RuntimeError, match="has ended"), block:
        pass


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"indices": "sometimes"}, ValueError, "always, cpu only, never"),
        ({"frames": -1}, ValueError, "frames is -1"),
        ({"frames": "many"}, TypeError, "whole number"),
        ({"idle_apes": 2}, TypeError, "idle_apes"),
        ({"accessed_percent": 101}, ValueError, "accessed_percent"),
        ({"model": 3}, TypeError, "iterable|Module"),
    ],
)
def test_options_are_checked_before_anything_runs(
    options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        diagnose(**options)


def test_an_error_in_the_block_is_the_block_s_and_what_ran_is_reported() -> None:
    def run() -> None:
        torch.zeros(3)
        raise ZeroDivisionError

    report = diagnose()
    with pytest.raises(ZeroDivisionError), report:
        run()
    assert [label for label in report.devices["cpu"].trace.labels if label == "zeros"] == ["zeros"]
    with diagnose():
        pass


def test_an_operator_that_fails_did_nothing() -> None:
    def run() -> None:
        matrix = torch.zeros(2, 3)
        with pytest.raises(RuntimeError):
            matrix @ matrix

    assert record(run).flags("matrix") == [("zeros", "W")]


# ---- the report ---------------------------------------------------------------------------------


def wasteful() -> None:
    early = torch.empty(1000)
    torch.zeros(2000).sum()
    early.fill_(1).sum()


def test_a_report_prints_what_to_change() -> None:
    with diagnose() as report:
        assert "nothing seen yet" in str(report)
        wasteful()
    text = str(report)
    assert "allocated early" in text
    assert "`early`" in text
    assert "1 findings" not in repr(report)
    assert repr(report).startswith("<gmlake.diagnose():")


def test_patterns_that_are_asked_for_are_shown_by_their_names() -> None:
    with diagnose(patterns=["early allocation"]) as report:
        wasteful()
    assert "early allocation" in str(report)


def test_what_could_go_to_the_host_is_folded_unless_asked_for() -> None:
    def idle() -> None:
        first = torch.ones(1000)
        for _ in range(3):
            torch.ones(1000).sum()
        first.sum()

    with diagnose() as report:
        idle()
    assert "1 more could be copied to the host" in str(report)
    assert "temporary idleness" not in str(report)
    with diagnose(show_all=True) as report:
        idle()
    assert "temporary idleness" in str(report)


def test_a_page_is_written_without_bokeh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with diagnose() as report:
        wasteful()
    monkeypatch.setitem(sys.modules, "bokeh", None)
    report.devices["cpu"].write_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "allocated early" in page
    assert "pictures need Bokeh" in page


def kept_at_the_end(*, with_graph: bool, backward: bool) -> list[str]:
    """Return the lines named where the block ends before the list of what each round made."""
    model, kept = nn.Linear(64, 64), []
    with diagnose() as report:
        for _ in range(5):
            out = model(torch.randn(512, 64))
            loss = out.square().sum()
            if backward:
                loss.backward()
                model.zero_grad()
            kept.append(loss if with_graph else out)
    return [advice.line.rpartition(":")[2] for advice in report.advice]


def test_what_outlives_the_block_is_named_where_each_round_adds_to_it() -> None:
    first = kept_at_the_end.__code__.co_firstlineno
    assert kept_at_the_end(with_graph=False, backward=True)[0] == str(first + 5)
    assert kept_at_the_end(with_graph=True, backward=False)[0] == str(first + 6)
    assert kept_at_the_end(with_graph=True, backward=True) == []


def test_a_graph_that_a_second_backward_pass_needs_is_not_retained_for_nothing() -> None:
    model = nn.Linear(64, 64)
    with diagnose() as report:
        for _ in range(3):
            out = model(torch.zeros(512, 64))
            out.square().sum().backward(retain_graph=True)
            out.abs().sum().backward()
            model.zero_grad()
    assert all("retain" not in advice.cause for advice in report.advice)


def test_thresholds_are_passed_on() -> None:
    with diagnose(early_apis=100, patterns=["early allocation"]) as report:
        wasteful()
    assert report.findings == ()


def test_findings_are_ranked_over_all_devices() -> None:
    with diagnose() as report:
        wasteful()
    savings = [found.saving_bytes for found in report.findings]
    assert savings == sorted(savings, reverse=True)
    assert report.to_dict()["devices"].keys() == {"cpu"}


def test_only_the_devices_asked_for_are_looked_at() -> None:
    with diagnose(devices="cuda") as report:
        wasteful()
    assert report.devices == {}


def test_every_finding_can_be_fixed() -> None:
    model = Doubled()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    with diagnose(model=model) as report:
        for _ in range(2):
            model(torch.randn(8, 3)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    found = report.devices["cpu"]
    assert found.findings
    found.check()


def test_the_trace_can_be_kept(tmp_path: Path) -> None:
    with diagnose() as report:
        wasteful()
    file = tmp_path / "block.gmobjects"
    report.devices["cpu"].trace.save(file)
    again = gmlake.find_inefficiencies(file)
    assert [found.pattern for found in again.findings] == [
        found.pattern for found in report.findings
    ]
