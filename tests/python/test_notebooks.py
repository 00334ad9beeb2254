"""The notebooks of examples/, run from top to bottom."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
LONGEST_S = 900  # of a cell, on a machine that does much else
HOW = "pip install 'gmlake[test]'"


def pictures(cells: list[dict[str, Any]]) -> int:
    """Return how many outputs are pictures."""
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    return sum("image/png" in output.get("data", {}) for output in outputs)


def with_what_it_needs(path: Path) -> Any:
    needs_torch = "import torch" in path.read_text(encoding="utf-8")
    return pytest.param(path, marks=[pytest.mark.torch] if needs_torch else [], id=path.stem)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of what runs notebooks, not of what is run
@pytest.mark.parametrize("path", [with_what_it_needs(path) for path in NOTEBOOKS])
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
