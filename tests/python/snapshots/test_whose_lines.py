"""Whose line a call path is named by: drawn paths, and recordings as strangers have them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmlake
from gmlake.pictures.figures import Blocks, Moments
from gmlake.snapshots import Site
from gmlake.snapshots.frames import Origin, frame_of, named_frame, own_frame
from gmlake.snapshots.sites import OwnLines
from recording import BASE, MIB, alloc, block, event, figure, load, segment, snapshot
from stacks import Stacks

if TYPE_CHECKING:
    from pathlib import Path

    from stacks import Drawn

DRAWS = 2000
LEAST_RIGHT = 0.995
SITE = "/opt/venv/lib/python3.12/site-packages"


# ---- drawn


def wrong(drawn: Drawn) -> list[frozenset[str]]:
    """What a person would name in the paths that are named by another frame."""
    return [
        right
        for path, right in zip(drawn.paths, drawn.right, strict=True)
        if not (is_named(path, right) if right else is_nobodys(path))
    ]


def is_named(path: tuple[str, ...], right: frozenset[str]) -> bool:
    return named_frame(path) in right


def is_nobodys(path: tuple[str, ...]) -> bool:
    """Whether no line is claimed to be the user's, and what is named is PyTorch's."""
    return not own_frame(path) and named_frame(path).startswith(("torch::autograd", "at::"))


@pytest.mark.parametrize("seed", [1, 2])
def test_drawn_paths_are_named_as_a_person_would(seed: int) -> None:
    stacks = Stacks(seed)
    drawn = [stacks.recording() for _ in range(DRAWS)]
    failed = [one for one in drawn if wrong(one)]
    assert len(failed) <= (1 - LEAST_RIGHT) * DRAWS, Counter(one.kind for one in failed)
    # A user's own folder torch/optim cannot be told from PyTorch's in a checkout.
    missed = {frame for one in failed for right in wrong(one) for frame in right}
    assert all("/torch/optim/losses.py" in frame for frame in missed)


@pytest.mark.parametrize("seed", [3])
def test_lines_of_drawn_recordings_are_those_frames(seed: int) -> None:
    """OwnLines, which knows all paths of a recording, names no other frame than one path alone."""
    stacks = Stacks(seed)
    for _ in range(300):
        drawn = stacks.recording()
        lines = OwnLines({number: Site(frames=path) for number, path in enumerate(drawn.paths)})
        for number, path in enumerate(drawn.paths):
            function, _, place = named_frame(path).rpartition("  ")
            shown = lines.line(number)
            assert place.rpartition(":")[2] in shown or frame_of(path[0]).origin is Origin.NATIVE
            assert function in shown or function == "<module>" or "::" in function
            assert not shown or not any(bad in shown for bad in (".c:", ".o:", "??", "unwind"))


# ---- frames


@pytest.mark.parametrize(
    ("frame", "origin"),
    [
        ("cfunction_call  /usr/local/src/conda/python-3.12.3/Objects/methodobject.c:537", "NATIVE"),
        ("_PyEval_EvalFrameDefault  Python/generated_cases.c.h:812", "NATIVE"),
        ("_PyObject_Call  /home/me/.pyenv/sources/3.11.4/Python-3.11.4/Objects/call.c:1", "NATIVE"),
        ("execute_native_thread_routine  thread48.o:0", "NATIVE"),
        ("torch::unwind::unwind()  ??:0", "NATIVE"),
        ("clone  ../sysdeps/unix/sysv/linux/x86_64/clone.S:81", "NATIVE"),
        ("my_op  /home/me/proj/csrc/op.cu:12", "NATIVE"),
        ("operator()  /usr/include/c++/11/functional:3", "NATIVE"),
        ("layers.3  forward:0", "NATIVE"),
        ("", "NATIVE"),
        ("_run_code  <frozen runpy>:88", "PYTHON"),
        (r"run  C:\Program Files\Python311\Lib\threading.py:3", "PYTHON"),
        (
            "run  /root/.local/share/uv/python/cpython-3.12.3-linux/lib/python3.12/runpy.py:1",
            "PYTHON",
        ),
        ("main  /opt/conda/bin/torchrun:8", "STARTER"),
        (r"<module>  C:\env\Scripts\torchrun.exe\__main__.py:7", "STARTER"),
        (r"run_cell  D:\env\Lib\site-packages\IPython\core\interactiveshell.py:1", "STARTER"),
        ("call  /tmp/torchinductor_me/p6/cp6jhj.py:9935", "COMPILED"),
        ("forward  <eval_with_key>.3:12", "COMPILED"),
        ("__init__  <string>:3", "COMPILED"),
        ("launch  /root/.triton/cache/AB12/__triton_launcher.py:4", "COMPILED"),
        (r"linear  C:\env\Lib\site-packages\torch\nn\functional.py:1", "TORCH"),
        ("linear  torch/nn/functional.py:1", "TORCH"),
        ("f  /home/me/.cache/uv/archive-v0/Xy1/vllm/worker/worker.py:1", "LIBRARY"),
        ("f  /root/.cache/huggingface/modules/transformers_modules/q/modeling.py:1", "LIBRARY"),
        ("f  /databricks/python/lib/python3.11/site-packages/peft/model.py:1", "LIBRARY"),
        ("f  <string>:1", "TEXT"),
        ("f  <stdin>:1", "PROMPT"),
        ("f  <ipython-input-3-abc>:1", "PROMPT"),
        ("f  /tmp/ipykernel_1/123.py:1", "PROMPT"),
        (r"f  C:\Users\me\AppData\Local\Temp\ipykernel_9\1.py:1", "PROMPT"),
        ("f  /root/.ipykernel/1533/command-12-34:1", "PROMPT"),
        (r"f  D:\ComfyUI\execution.py:1", "PROJECT"),
        ("f  /usr/src/app/train.py:1", "PROJECT"),
        ("f  /home/me/proj/train:7", "PROJECT"),
        ("f  /home/me/c10/ar/cart.py:7", "PROJECT"),
    ],
)
def test_frames_are_told_by_what_they_are(frame: str, origin: str) -> None:
    assert frame_of(frame).origin.name == origin


def test_without_a_users_line_the_first_librarys_innermost_function_is_named() -> None:
    path = (
        "c10::cuda::malloc  ??:0",
        f"wrapped  {SITE}/torch/_tensor.py:3",
        f"_allocate_kv_cache  {SITE}/vllm/worker/cache_engine.py:83",
        f"__init__  {SITE}/vllm/worker/cache_engine.py:61",
        f"_run  {SITE}/ray/_private/workers/default_worker.py:1",
        "<module>  /opt/venv/bin/vllm:8",
    )
    lines = OwnLines({1: Site(frames=path)})
    assert lines.line(1) == "vllm/worker/cache_engine.py:83 in _allocate_kv_cache()"
    assert own_frame(path) == ""


def test_a_program_that_the_users_own_starter_runs_is_the_script() -> None:
    path = (
        "forward  /home/me/proj/model.py:5",
        "<module>  /home/me/proj/train.py:9",
        "_run_code  <frozen runpy>:88",
        "run_path  <frozen runpy>:291",
        "<module>  /home/me/tools/launch.py:3",
    )
    assert own_frame(path) == path[0]


@pytest.mark.parametrize(
    ("frames", "said"),
    [
        (["at::(anonymous namespace)::empty(int)  R.cpp:0"], "at::empty()"),
        (
            ["torch::unwind::unwind()  ??:0", "at::_ops::mm::call(at::Tensor)  ??:0"],
            "at::_ops::mm::call()",
        ),
        (
            [
                "at::_ops::mm::call(T)  ??:0",
                "torch::autograd::generated::MmBackward0::apply(V)  ??:0",
            ],
            "MmBackward0::apply()",
        ),
        (
            [
                "call  /tmp/torchinductor_me/p6/cp6jhj.py:9",
                f"_fn  {SITE}/torch/_dynamo/eval_frame.py:1",
            ],
            "cp6jhj.py:9, compiled, in call()",
        ),
        (["_PyEval_EvalFrameDefault  ??:0", "run  /usr/lib/python3.11/threading.py:1"], ""),
        (["torch::unwind::unwind()  ??:0", "start_thread  ./nptl/pthread_create.c:442"], ""),
        (["f  /src/torch/optim/adam.py:1"], "torch/optim/adam.py:1 in f()"),
    ],
)
def test_where_only_pytorch_is_known_its_function_is_named(frames: list[str], said: str) -> None:
    assert OwnLines({1: Site(frames=tuple(frames))}).line(1) == said


def test_a_module_says_more_than_a_line_of_pytorch() -> None:
    lines = OwnLines({1: Site("layers.3", "forward", ("f  /src/torch/optim/adam.py:1",))})
    assert lines.name(1) == "forward · layers.3"


def test_paths_of_windows_and_cells_are_short() -> None:
    sites = {
        1: Site(frames=(r"f  C:\Users\me\proj\a\x.py:1",)),
        2: Site(frames=(r"f  C:\Users\me\proj\b\y.py:2",)),
        3: Site(frames=("f  /tmp/ipykernel_1/2.py:3",)),
    }
    lines = OwnLines(sites)
    assert [lines.line(number) for number in sites] == [
        r"a\x.py:1 in f()",
        r"b\y.py:2 in f()",
        "/tmp/ipykernel_1/2.py:3 in f()",  # noqa: S108 (a name)
    ]
    elsewhere = {**sites, 4: Site(frames=(r"f  D:\other\z.py:1",))}
    assert OwnLines(elsewhere).line(1) == r"C:\Users\me\proj\a\x.py:1 in f()"


@given(st.lists(st.text(alphabet="ab/\\.<>:?( )_-", max_size=60), max_size=8))
def test_any_texts_have_a_line_or_none(texts: list[str]) -> None:
    assert own_frame(texts) in {*texts, ""}
    assert isinstance(OwnLines({1: Site(frames=tuple(texts))}).name(1), str)


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
    report = gmlake.report_of(seen)
    moments = figure(report, Moments)
    first, *more = moments.moments[moments.shown].says
    return first, " ".join(more), [row.site for row in figure(report, Blocks).rows]


def test_the_users_line_is_found_between_frames_of_pythons_c(tmp_path: Path) -> None:
    source = "/usr/local/src/conda/python-3.12.3/Objects"

    def path(line: int) -> list[dict[str, Any]]:
        return frames(
            ("torch::unwind::unwind()", "??", 0),
            ("c10::cuda::malloc", "CUDACachingAllocator.cpp", 0),
            ("cfunction_call", f"{source}/methodobject.c", 537),
            ("_PyObject_MakeTpCall", f"{source}/call.c", 240),
            ("einsum", f"{SITE}/torch/functional.py", 407),
            ("_PyEval_EvalFrameDefault", "Python/ceval.c", 4),
            ("forward", "/home/me/train.py", line),
            ("PyCFunction_Call", f"{source}/call.c", 387),
        )

    first, most, rows = said_of(recorded(tmp_path, path(10), path(11)))
    assert "32.0 MiB came last, asked for at train.py:11 in forward()." in first
    assert most == "Most is held by train.py:10 in forward(): 32.0 MiB in one block."
    assert rows == ["train.py:10 in forward()", "train.py:11 in forward()"]


def test_compiled_code_is_a_detail_of_the_users_line(tmp_path: Path) -> None:
    def path(line: int) -> list[dict[str, Any]]:
        return frames(
            ("call", "/tmp/torchinductor_me/p6/cp6jhj.py", line),  # noqa: S108 (a name)
            ("run", f"{SITE}/torch/_inductor/utils.py", 2128),
            ("forward", "/home/me/transformer.py", 57),
        )

    seen = recorded(tmp_path, *(path(9900 + number) for number in range(4)))
    _, most, rows = said_of(seen)
    assert "Most is held by transformer.py:57 in forward(): 128 MiB in 4 blocks" in most
    assert rows[0] == "transformer.py:57 in forward() · compiled: cp6jhj.py:9900"


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


def old_block(size: int, *uses: dict[str, Any], state: str = "active_allocated") -> dict[str, Any]:
    """A block as PyTorch 2.0 writes it."""
    return {"size": size, "state": state, "history": list(uses)}


def test_blocks_of_pytorch_2_0_are_named_by_their_latest_use(tmp_path: Path) -> None:
    size = 32 * MIB
    now = frames(("allocate", "/home/me/load.py", 190), ("<module>", "/home/me/main.py", 7))
    then = frames(("warm_up", "/home/me/load.py", 12))
    blocks = [
        old_block(
            size,
            {"addr": BASE, "real_size": size - 1000, "frames": now},
            {"addr": BASE, "real_size": size, "frames": then},
        ),
        old_block(size, {"addr": BASE + size, "real_size": size, "frames": then}, state="inactive"),
        old_block(size, {"addr": BASE + 2 * size, "real_size": 7 * size, "frames": 5}),
        old_block(size),
    ]
    document = {"segments": [segment(BASE, 4 * size, blocks)], "device_traces": [[]]}
    seen = load(tmp_path, document)
    _, most, rows = said_of(seen)
    assert rows == ["before the recording", "load.py:190 in allocate()"]
    assert "Most is held by before the recording: 64.0 MiB in 2 blocks." in most
    assert seen[0].blocks["requested_bytes"].tolist() == [size - 1000, size, size]
    assert next(iter(seen.sites.values())).frames[1] == "<module>  /home/me/main.py:7"


@pytest.mark.parametrize("history", [None, 3, [], [None], [{}], {}, [{"real_size": "x"}]])
def test_a_strange_history_is_passed_over(tmp_path: Path, history: object) -> None:
    held = {"size": 2 * MIB, "state": "active_allocated", "history": history}
    seen = load(tmp_path, {"segments": [segment(BASE, 2 * MIB, [held])], "device_traces": [[]]})
    assert seen[0].blocks["requested_bytes"].tolist() == [2 * MIB]
