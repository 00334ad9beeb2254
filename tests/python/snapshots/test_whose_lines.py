"""Whose line a path is named by: drawn machines and paths, and recordings of strangers."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from gmlake.pictures.figures import Blocks, Moments
from gmlake.snapshots import Site, report_of
from gmlake.snapshots.comparing import compare
from gmlake.snapshots.frames import Origin, frame_of, named_frame, own_frame
from gmlake.snapshots.queries import query
from gmlake.snapshots.sites import OwnLines, told_apart
from layouts import Layouts
from recording import BASE, MIB, alloc, block, event, figure, load, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from layouts import Drawn

DRAWS = 5000
LEAST_RIGHT = 0.995
SITE = "/opt/venv/lib/python3.12/site-packages"


# ---- drawn


def is_right(drawn: Drawn) -> bool:
    """Whether a path is named by the user's line, else a library's, else PyTorch's."""
    named = named_frame(drawn.frames)
    if drawn.own:
        return named == own_frame(drawn.frames) == drawn.own[0]
    if own_frame(drawn.frames):
        return False
    if drawn.libraries:
        return named == drawn.libraries[0]
    return frame_of(named).origin is Origin.TORCH


def test_drawn_paths_are_named_as_a_person_would() -> None:
    layouts = Layouts(1)
    drawn = [layouts.draw() for _ in range(DRAWS)]
    wrong = Counter(one.layout for one in drawn if not is_right(one))
    assert wrong.total() <= (1 - LEAST_RIGHT) * DRAWS, wrong


PATHS = {
    # What stands innermost: what others wrote below the user's line, wherever that lies.
    "third_party/apex/apex/optimizers/adam.py": "/w/proj/train.py",
    "/opt/Bridge/3rdparty/LM/core/attention.py": "/opt/Bridge/scripts/run.py",
    "/opt/venv/src/net/net/blocks.py": "/home/me/train.py",
    "/home/me/.cache/torch/hub/org_dino_main/dino/layers.py": "/home/me/train.py",
    "/data/hub/org_dino_main/dino/layers.py": "/home/me/train.py",
    "/data/hf/modules/transformers_modules/o/m/modeling.py": "<stdin>",
    "/home/me/.cache/x/core.py": "/home/me/train.py",
    "/home/me/ft/unsloth_compiled_cache/GRPOTrainer.py": "/home/me/ft/grpo.py",
    "/tmp/tmpab12cd_9/kernel.py": "/tmp/ipykernel_3/44.py",  # noqa: S108
    "/tmp/torchinductor_me/ab/x.py": "/home/me/train.py",  # noqa: S108
    "/x/.triton/cache/AB/launcher.py": "/home/me/train.py",
    "/src/pytorch/torch/nn/functional.py": "/home/me/train.py",
    "/src/pytorch/test/common.py": "/home/me/train.py",
    "torch/utils/checkpoint.py": "/home/me/train.py",
    "/work/gmlake/src/gmlake/standin/values.py": "/home/me/train.py",
    "/usr/lib/python3.12/copy.py": "/home/me/train.py",
    "/usr/lib/x/tool.py": "/home/me/train.py",
    r"C:\Python310\lib\copy.py": r"D:\x\train.py",
    r"C:\Python310\Lib\asyncio\events.py": r"D:\x\train.py",
    "threading.py": r"D:\x\train.py",
    "/a/python311.zip/copy.py": "/home/me/train.py",
    "/q/pkg-1.egg/pkg/core.py": "/home/me/train.py",
    "/q/uv/archive-v0/Xy/pkg/core.py": "/home/me/train.py",
}
MINE = (
    *("/home/me/transformers/src/transformers/modeling.py", "/home/me/a/torch/nets.py"),
    *("/home/me/tiny-net/tiny_net/model.py", "/root/model.py", "/usr/src/app/net/model.py"),
    *("/home/me/lib/logging/model.py", "/home/me/lib/copy.py", r"E:\x\lib\logging\model.py"),
    *("/home/me/gmlake/model.py", "/home/me/triton/model.py", r"C:\x\Scripts\model.py"),
    *("/home/me/python3.11-try/lib/python-x/model.py", "/home/me/tmp/model.py"),
    *("/tmp/ray/session_1/working_dir_files/_ray_pkg_1f/model.py", "/q/kv_cache/model.py"),  # noqa: S108
    *("/home/me/proj.pyz/model.py", "/content/drive/My Drive/model.py", "<ipython-input-3-ab>"),
)
"""The user's own, whatever their folders are called."""


@pytest.mark.parametrize("inner", [*PATHS, *MINE])
def test_the_innermost_frame_that_is_not_installed_is_the_users(inner: str) -> None:
    script = PATHS.get(inner, "/home/me/work/train.py")
    root = script.rpartition("/")[0]
    inner = f"{root}/{inner}" if inner.startswith("third") else inner
    path = [f"linear  {SITE}/torch/nn/functional.py:3", f"forward  {inner}:5"]
    path += [f"linear  {SITE}/torch/nn/functional.py:3"] * (inner != "/src/pytorch/test/common.py")
    path += ["run  /src/pytorch/torch/nn/modules/module.py:4"] * ("pytorch" in inner)
    path += [f"<module>  {script}:7", "<module>  /pkg/cloud/_entrypoint.py:9"]
    wanted = f"<module>  {script}:7" if inner.rpartition("proj/")[2] in PATHS else path[1]
    assert own_frame(path) == wanted


@pytest.mark.parametrize(
    "folder", ["/data/external/lab", r"C:\ml\vendor\lab", "/x/.cache/lab", "/q/tmpab12cd_9"]
)
def test_a_project_in_a_folder_of_copies_is_the_users(folder: str) -> None:
    path = [f"forward  {folder}/net/model.py:5", f"<module>  {folder}/train.py:7"]
    assert own_frame(path) == path[0]


@pytest.mark.parametrize(
    ("packages", "model"),
    [("/w/p/lib/python3.12/site-packages", "/w/p/src/net/model.py"), ("/w/p", "/w/p/net/model.py")],
)
def test_what_lies_where_the_script_does_is_the_users(packages: str, model: str) -> None:
    torch = f"linear  {packages}/torch/nn/functional.py:3"
    path = [torch, f"forward  {model}:5", torch, "<module>  /w/p/scripts/train.py:7"]
    assert own_frame(path) == path[1]
    assert own_frame([*path[:3], "<module>  /w/q/train.py:7"]) == "<module>  /w/q/train.py:7"


@pytest.mark.parametrize(
    ("command", "package", "wanted"),
    [
        ("/opt/conda/bin/serve:8", "/opt/conda/lib/python3.11/site-packages/vllm", ""),
        ("/usr/local/bin/vllm:8", "/usr/lib/python3/dist-packages/vllm", ""),
        ("/home/me/bin/train:8", "/opt/conda/lib/python3.11/site-packages/vllm", "me"),
        (r"C:\x\Scripts\vllm.exe\__main__.py:7", r"C:\x\Lib\site-packages\vllm", ""),
        (r"C:\x\Scripts\vllm-script.py:7", r"C:\x\Lib\site-packages\vllm", ""),
    ],
)
def test_a_command_of_an_environment_is_not_the_users(
    command: str, package: str, wanted: str
) -> None:
    path = [f"load  {package}/worker.py:5", f"<module>  {command}"]
    assert own_frame(path) == (path[1] if wanted else "")
    assert named_frame(path) == path[1 if wanted else 0]


TEXT = "<module>  <string>:1"


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (["f  <string>:3", TEXT], "f  <string>:3"),  # python -c
        (["__init__  <string>:3", TEXT], TEXT),
        ([f"f  {SITE}/x/y.py:1", "inner  <string>:3", f"g  {SITE}/x/z.py:1"], ""),
        (
            [f"f  {SITE}/x/y.py:1", "_main  /usr/lib/python3.12/multiprocessing/spawn.py:3", TEXT],
            "",
        ),
        (["step  <string>:3", "<module>  /home/me/train.py:1"], "<module>  /home/me/train.py:1"),
    ],
)
def test_a_program_given_as_a_text_is_the_users(path: list[str], wanted: str) -> None:
    assert own_frame(path) == wanted


# ---- names


def test_drawn_sites_are_told_apart_by_their_own_paths() -> None:
    """Names differ where own paths do, and say the line first."""
    layouts = Layouts(2)
    for _ in range(200):
        drawn = [layouts.draw() for _ in range(8)]
        lines = OwnLines({number: Site(frames=one.frames) for number, one in enumerate(drawn)})
        ways: dict[str, set[tuple[str, ...]]] = {}
        for number, one in enumerate(drawn):
            if is_right(one) and one.own:
                ways.setdefault(lines.name(number), set()).add(tuple(one.own))
                assert lines.name(number).startswith(lines.line(number))
        assert all(len(own) == 1 for own in ways.values())


HELPER = "softmax  /w/p/nn_utils.py:6"
CALLS = ("attention  /w/p/model.py:434", "loss  /w/p/loss.py:9")
ENDS = ("<module>  /w/p/train.py:88", "<module>  /w/p/test.py:5")


def test_a_helper_is_named_with_the_callers_that_tell() -> None:
    ways = [(HELPER, call, end) for call in CALLS for end in ENDS]
    lines = OwnLines(dict(enumerate(Site(frames=way) for way in ways)))
    assert lines.line(0) == "nn_utils.py:6 in softmax()"
    assert (
        lines.name(0) == "nn_utils.py:6 in softmax() <- model.py:434 in attention() <- train.py:88"
    )
    assert OwnLines({1: Site(frames=ways[0])}).name(1) == "nn_utils.py:6 in softmax()"


def test_callers_beside_the_lines_are_named_relative_to_them() -> None:
    calls = ("step  /w/bench/run.py:3", "step  /elsewhere/run.py:4", r"step  C:\bench\run.py:5")
    lines = OwnLines({n: Site(frames=(HELPER, call)) for n, call in enumerate(calls)})
    said = [lines.name(n).removeprefix("nn_utils.py:6 in softmax() <- ") for n in range(3)]
    assert said == [
        f"{place} in step()"
        for place in ("../bench/run.py:3", "/elsewhere/run.py:4", r"C:\bench\run.py:5")
    ]
    deep = "softmax  /w/a/b/c/nn_utils.py:6"
    far = OwnLines({n: Site(frames=(deep, call)) for n, call in enumerate(calls)})
    assert far.name(0).endswith(" <- /w/bench/run.py:3 in step()")


def test_callers_that_all_share_are_left_out_if_they_are_many() -> None:
    deep = tuple(f"f{n}  /w/p/deep.py:{n}" for n in range(9))
    lines = OwnLines({n: Site(frames=(*deep, end)) for n, end in enumerate(ENDS)})
    assert lines.name(0) == "deep.py:0 in f0() <- ... <- train.py:88"


def rows_of(lines: OwnLines, held: dict[int, int]) -> Counter[str]:
    rows: Counter[str] = Counter()
    for number, size in held.items():
        rows[lines.owner(number)] += size
    return rows


@pytest.mark.parametrize("seed", range(30))
def test_no_line_has_more_than_half_if_its_callers_differ(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (test data)
    calls = [f"f{n}  /w/p/a{n % 3}.py:{n}" for n in range(4)]
    ways = [tuple(rng.choices(calls, k=rng.randint(1, 5))) for _ in range(rng.randint(2, 40))]
    lines = OwnLines(dict(enumerate(Site(frames=(HELPER, *way)) for way in ways)))
    tables = [
        {n: rng.randint(1, 1000) for n in range(len(ways)) if rng.random() < 0.8} for _ in "ab"
    ]
    for held in tables:
        lines.split(held)
    for held in tables:
        for name, size in rows_of(lines, held).items():
            mine = {ways[n] for n in held if lines.owner(n) == name}
            assert 2 * size <= sum(held.values()) or len(mine) == 1, name
    assert len({lines.owner(n) for n in range(len(ways))}) <= len(set(ways))


def test_a_line_is_split_no_further_than_needed() -> None:
    ways = [(HELPER, call, end) for call in CALLS for end in ENDS]
    lines = OwnLines(dict(enumerate(Site(frames=way) for way in ways)))
    lines.split({0: 1, 1: 1, 2: 1, 3: 1})
    names = [
        f"nn_utils.py:6 in softmax() <- {one}()"
        for one in ("model.py:434 in attention", "loss.py:9 in loss")
    ]
    assert [lines.owner(n) for n in range(4)] == [names[0], names[0], names[1], names[1]]
    other = OwnLines(
        {0: Site(frames=ways[0]), 1: Site(frames=ways[2]), 2: Site(frames=ways[0][2:])}
    )
    other.split({0: 1, 1: 1, 2: 2})
    assert other.owner(0) == "nn_utils.py:6 in softmax()"


def test_one_line_that_calls_an_engine_is_split_by_the_engines_lines() -> None:
    call = "<module>  /w/p/serve.py:3"
    engine = [f"load  {SITE}/vllm/weights.py:1", f"make  {SITE}/vllm/cache.py:2"]
    lines = OwnLines({n: Site(frames=(one, call)) for n, one in enumerate(engine)})
    lines.split({0: 5, 1: 5})
    assert [lines.owner(n) for n in (0, 1)] == [
        "serve.py:3 via vllm/weights.py:1 in load()",
        "serve.py:3 via vllm/cache.py:2 in make()",
    ]


# ---- recordings


def frames(*paths: tuple[str, str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "filename": file, "line": line} for name, file, line in paths]


def recorded(folder: Path, *paths: list[dict[str, Any]]) -> gmlake.Snapshot:
    """A recording with one block of 32 MiB for each path."""
    size = 32 * MIB
    held = [
        {**block(BASE + number * size, size, size), "frames": path}
        for number, path in enumerate(paths)
    ]
    events = [event("segment_alloc", BASE, size * len(paths))]
    events += [alloc(BASE + number * size, size, frames=path) for number, path in enumerate(paths)]
    return load(folder, snapshot(events, [segment(BASE, size * len(paths), held)]))


def said_of(seen: gmlake.Snapshot) -> tuple[str, str, list[str]]:
    """The sentences about the peak, and the rows of the table."""
    report = report_of(seen)
    moments = figure(report, Moments)
    first, *more = moments.moments[moments.shown].says
    return first, " ".join(more), [row.site for row in figure(report, Blocks).rows]


def test_the_users_line_is_found_below_very_many_frames(tmp_path: Path) -> None:
    engine = "torch::autograd::Engine::thread_main(x)"
    deep = [(f"_PyEval_{number}", "Python/ceval.c", number) for number in range(150)]
    deep += [("forward", f"{SITE}/torch/nn/modules/container.py", n) for n in range(80)]
    seen = recorded(
        tmp_path,
        frames(*deep[:90], (engine, "??", 0), *deep[90:], ("main", "/home/me/train.py", 3)),
    )
    assert said_of(seen)[2] == ["train.py:3 in main()"]
    (site,) = seen.sites.values()
    assert len(site.frames) == 64
    assert site.frames[0].startswith("_PyEval_0  ")
    assert f"{engine}  ??:0" in site.frames  # by which inferred categories know a backward pass


@pytest.mark.parametrize("history", [None, 3, [], [None], [{}], {}, [{"real_size": "x"}]])
def test_a_strange_history_is_passed_over(tmp_path: Path, history: object) -> None:
    held = {"size": 2 * MIB, "state": "active_allocated", "history": history}
    seen = load(tmp_path, {"segments": [segment(BASE, 2 * MIB, [held])], "device_traces": [[]]})
    assert seen[0].blocks["requested_bytes"].tolist() == [2 * MIB]


# ---- tables


def helpers(*, native: bool = False) -> list[list[dict[str, Any]]]:
    """Paths that begin with one line of the user's, and differ before or behind it."""
    helper = ("softmax", "/w/p/nn_utils.py", 6)
    calls = [("attention", "/w/p/model.py", 434), ("loss", "/w/p/loss.py", 9)]
    inner = [
        ("linear", f"{SITE}/torch/nn/functional.py", 7),
        ("exp", f"{SITE}/torch/_tensor.py", 8),
    ]
    if native:
        inner += [("at::_ops::exp::call(at::Tensor)", "??", 0), ("at::_ops::mm::call()", "??", 0)]
    return [
        frames(one, helper, call, ("<module>", "/w/p/train.py", 88))
        for one in inner
        for call in calls
    ]


def test_no_two_rows_of_a_table_look_alike(tmp_path: Path) -> None:
    seen = recorded(tmp_path, *helpers(native=True), [], [])
    answer = query(seen, by="owner").to_dict()["answers"][0]
    shown = [(row["key"], row["category"], row["one_bytes"]) for row in answer["rows"]]
    assert len(set(shown)) == len(shown) == 9  # blocks without a path are one row
    told = "nn_utils.py:6 in softmax() <- model.py:434 in attention() · via at::_ops::mm::call()"
    assert told in {key for key, *_ in shown}
    (blocks, *_) = [part for part in report_of(seen).figures if isinstance(part, Blocks)]
    assert sorted(row.site for row in blocks.rows) == sorted(
        row["key"] if row["key"] != "not known" else "" for row in answer["rows"]
    )
    lines = query(seen, by="line").to_dict()["answers"][0]
    assert [row["share"] for row in lines["rows"]] == [0.4, 0.4, 0.2]
    assert {row["key"] for row in lines["rows"]} == {
        *(
            f"nn_utils.py:6 in softmax() <- {one}()"
            for one in ("model.py:434 in attention", "loss.py:9 in loss")
        ),
        "a line that was not recorded",
    }


def test_rows_of_two_recordings_match_whatever_holds_more_than_half_of_either(
    tmp_path: Path,
) -> None:
    first, second = helpers()[:2]
    other = frames(("load", "/w/p/data.py", 3), ("<module>", "/w/p/train.py", 80))
    before = recorded(tmp_path, first, second, *[other] * 5)
    after = recorded(tmp_path, first, second, *[other])  # two thirds: split
    changes = compare(before, after).to_dict()["comparisons"][0]["rows"]
    assert {row["key"]: row["what"] for row in changes} == {
        "data.py:3 in load()": "shrank",
        "nn_utils.py:6 in softmax() <- model.py:434 in attention()": "same",
        "nn_utils.py:6 in softmax() <- loss.py:9 in loss()": "same",
    }
    both = compare(after, before).to_dict()["comparisons"][0]["rows"]
    assert {row["key"] for row in both} == {row["key"] for row in changes}


def test_rows_of_owners_are_told_apart_where_only_their_sizes_differ(tmp_path: Path) -> None:
    path = frames(("load", "/w/p/data.py", 3))
    sizes = [2 * MIB, 4 * MIB, 4 * MIB]
    events = [event("segment_alloc", BASE, 64 * MIB)]
    events += [alloc(BASE + n * 8 * MIB, size, frames=path) for n, size in enumerate(sizes)]
    before, after = (load(tmp_path, snapshot(events[: 3 + n])) for n in range(2))
    rows = compare(before, after, by="owner").to_dict()["comparisons"][0]["rows"]
    assert {row["key"]: row["what"] for row in rows} == {
        "data.py:3 in load() · 2.00 MiB each": "same",
        "data.py:3 in load() · 4.00 MiB each": "grew",
    }


def test_rows_that_nothing_tells_apart_are_numbered() -> None:
    assert told_apart(["a", "b", "a"], [1, 1, 1], lambda rows: [["x"] * len(rows)]) == [
        "a (1)",
        "b",
        "a (2)",
    ]
    assert told_apart(["a", "a"], [1, 2], lambda _: []) == ["a", "a"]


def test_blocks_of_a_size_are_one_row_however_much_of_it_was_asked_for(tmp_path: Path) -> None:
    held = [block(BASE + n * MIB, MIB, MIB - 100 * n) for n in range(3)]
    seen = load(tmp_path, snapshot([], [segment(BASE, 3 * MIB, held)]))
    (row,) = query(seen, by="owner").answers[0].rows
    assert (row.count, row.size_bytes) == (3, 3 * MIB)
