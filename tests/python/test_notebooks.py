"""The notebooks of examples/, run from top to bottom, and the cell magic %%gmlake."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

import gmlake
from places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
MOST_BYTES = 400_000
LONGEST_S = 900  # of a cell, on a machine that does much else
HOW = "pip install 'gmlake[test]'"


def test_there_are_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS} >= {"quickstart", "out_of_memory", "plan_and_compare"}


def pictures(cells: list[dict[str, Any]]) -> int:
    """Return how many outputs are pictures."""
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_they_show_is_kept(path: Path) -> None:
    """Sites that show notebooks run no scripts: `python tests/browser/notebooks.py` keeps it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert pictures(cells) >= 1
    assert path.stat().st_size < MOST_BYTES
    for cell in code:
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert "<script" not in str(output.get("data", {}).get("text/html", ""))
            assert "<iframe" not in str(output.get("data", {}).get("text/html", ""))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of what runs notebooks, not of what is run
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason=HOW)
    nbformat = pytest.importorskip("nbformat", reason=HOW)
    pytest.importorskip("ipykernel", reason=HOW)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))  # neither read nor written at home
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("import sys; print(sys.prefix)"))
    resources = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(
        notebook, timeout=LONGEST_S, kernel_name="python3", resources=resources
    ).execute()
    (prefix,) = notebook.cells.pop()["outputs"]
    frames = str(notebook.cells).count("srcdoc=")
    assert frames == pictures(json.loads(path.read_text(encoding="utf-8"))["cells"])
    assert prefix["text"].strip() == sys.prefix, "the kernel is that of another Python"
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert outputs
    for output in outputs:
        assert output["output_type"] != "error"
        page = output.get("data", {}).get("text/html", "")
        assert 'src="http' not in page
        assert 'href="http' not in page


# ---- the magic


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """IPython with the extension loaded, and gmlake imported."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    interactive = pytest.importorskip("IPython.core.interactiveshell", reason=HOW)
    config = pytest.importorskip("traitlets.config").Config({"HistoryManager": {"enabled": False}})
    made = interactive.InteractiveShell.instance(config=config)
    made.run_line_magic("load_ext", "gmlake")
    made.user_ns["gmlake"] = gmlake
    yield made
    made.user_ns.clear()
    interactive.InteractiveShell.clear_instance()


class Ran:
    """A cell that was run: whether it worked, what it printed, what it showed."""

    def __init__(self, shell: Any, cell: str) -> None:
        with import_module("IPython.utils.capture").capture_output() as captured:
            result = shell.run_cell(cell)
        self.error = result.error_in_exec or result.error_before_exec
        self.printed: str = captured.stdout
        self.all: str = captured.stdout + captured.stderr
        self.shown = [output.data for output in captured.outputs]

    @property
    def text(self) -> str:
        """What was shown, as text."""
        return "\n".join(shown["text/plain"] for shown in self.shown)


def test_a_cell_runs_as_ever(shell: Any) -> None:
    ran = Ran(shell, "%%gmlake\nimport math\nx = 6\nprint('hello')\n!echo there\nx * 7")
    assert ran.error is None
    assert ran.printed.split() == ["hello", "there"]
    assert ran.shown[0]["text/plain"] == "42"
    assert shell.user_ns["x"] == 6
    assert "math" in shell.user_ns
    assert all(shown["text/plain"] != "42" for shown in Ran(shell, "%%gmlake\nx * 7;").shown)


def test_without_a_gpu_it_says_so_in_one_line(shell: Any) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    ran = Ran(shell, "%%gmlake\n1;")
    (shown,) = ran.shown
    assert shown["text/plain"].startswith("gmlake served no tensor: ")
    assert shown["text/plain"].count("\n") == 0
    assert ran.all == ""
    assert not gmlake.is_enabled()


def test_lakes_that_a_cell_uses_are_shown(shell: Any) -> None:
    Ran(
        shell, "busy, idle = gmlake.Lake('sim'), gmlake.Lake('sim')\nblock = busy.allocate(1 << 30)"
    )
    ran = Ran(
        shell, "%%gmlake\nbusy.free(block)\nmore = [busy.allocate(1 << 29), busy.allocate(1)];"
    )
    rows = {line.split()[0]: line for line in ran.text.splitlines() if line.strip()}
    assert "idle" not in rows
    assert "512 MiB" in rows["busy"]
    assert "1.00 GiB" in rows["busy"]
    assert "split 2" in rows["busy"]
    assert "busy" not in Ran(shell, "%%gmlake\nidle.allocate(1);").text
    assert "new" in Ran(shell, "%%gmlake\nnew = gmlake.Lake('sim')\nnew.allocate(1);").text


def test_html_brings_no_colours_of_page_or_text(shell: Any) -> None:
    ran = Ran(shell, "%%gmlake\nlake = gmlake.Lake('sim')\nlake.allocate(1);")
    page = ran.shown[-1]["text/html"]
    assert page.startswith("<pre")
    assert "background" not in page
    assert "lake" in page
    assert "<script" not in page


def test_a_name_is_shown_as_text(shell: Any) -> None:
    ran = Ran(shell, "%%gmlake\nraise ValueError('<script>')")
    assert isinstance(ran.error, ValueError)
    assert all("<script" not in shown.get("text/html", "") for shown in ran.shown)


def test_a_cell_that_fails_is_reported_then_fails(shell: Any) -> None:
    ran = Ran(shell, "%%gmlake\nlake = gmlake.Lake('sim', capacity='2MiB')\nlake.allocate(1 << 30)")
    assert isinstance(ran.error, gmlake.OutOfMemoryError)
    assert "oom 1" in ran.text
    assert "lake.allocate(1 << 30)" in ran.all
    assert "notebook.py" not in ran.all
    assert not gmlake.is_enabled()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--policy magic", "no policy is called 'magic'"),
        ("--mode magic", "magic"),
        ("--capacity much", "'much' is not a size"),
        ("--set growth", "'growth' is not NAME=VALUE"),
        ("--polcy stitch", "--polcy"),
        ("a b", "unrecognized arguments: b"),
        ("a-b", "'a-b' is not the name of a variable"),
        ("'", "No closing quotation"),
    ],
)
def test_a_wrong_option_is_one_line(shell: Any, line: str, reason: str) -> None:
    if line.startswith(("--policy", "--mode")):
        pytest.importorskip("torch")  # without it there is nothing that they are about
    ran = Ran(shell, f"%%gmlake {line}\nwas_run = True")
    assert isinstance(ran.error, import_module("IPython.core.error").UsageError)
    assert reason in str(ran.error)
    assert "Traceback" not in ran.all
    assert "was_run" not in shell.user_ns


def test_a_cell_that_is_no_python(shell: Any) -> None:
    ran = Ran(shell, "%%gmlake\nfoo(")
    assert isinstance(ran.error, SyntaxError)


def test_quiet_keeps_what_it_did_in_a_variable(shell: Any) -> None:
    shell.user_ns["seen"] = 1
    ran = Ran(shell, "%%gmlake seen --quiet\nlake = gmlake.Lake('sim')\nlake.allocate(1);")
    assert ran.shown == []
    assert shell.user_ns["seen"] is None, "without a GPU there is no snapshot"


def test_help_is_there(shell: Any) -> None:
    assert (
        "--policy NAME"
        in Ran(shell, "print(get_ipython().find_cell_magic('gmlake').__doc__)").printed
    )


def test_it_can_be_unloaded(shell: Any) -> None:
    shell.run_line_magic("unload_ext", "gmlake")
    assert shell.find_cell_magic("gmlake") is None
