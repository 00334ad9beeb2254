"""The architecture, read from the sources: who includes whom, and who may name what."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from places import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CSRC = ROOT / "csrc"
LAB = ROOT / "lab"
LAB_SOURCES = sorted(path for path in LAB.rglob("*.[ch]"))
SOURCES = sorted((*CSRC.rglob("*.[ch]"), *CSRC.rglob("*.cpp")))
# From csrc/README.md: a folder includes only itself and those before it in the table.
ORDER = re.findall(
    r"^\| `(\w+)/` \|", (CSRC / "README.md").read_text(encoding="utf-8"), re.MULTILINE
)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def includes(path: Path) -> list[tuple[str, str]]:
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def layer(path: Path) -> str:
    return path.relative_to(CSRC).parts[0]


ANNEXES = {path.parent.name for path in CSRC.glob("*/annex.cmake")}
"""Folders beside the allocator: they may include its layers, and nothing includes them."""


def code_of(path: Path) -> str:
    """The text without comments and strings."""
    text = path.read_text(encoding="utf-8")
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.DOTALL)


@pytest.fixture(params=SOURCES, ids=lambda path: str(path.relative_to(CSRC)))
def source(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_every_folder_is_a_layer() -> None:
    assert ORDER[:2] == ["include", "base"]
    assert {layer(path) for path in SOURCES} - ANNEXES == set(ORDER)


def opened(source: Path, *folders: Path) -> list[Path]:
    """What a file includes by a name in quotes, looked for beside it and in the folders."""
    found = []
    for kind, name in includes(source):
        places = [folder / name for folder in (source.parent, *folders)]
        target = next((place for place in places if kind == '"' and place.exists()), None)
        assert kind == "<" or target is not None, f"{name} is in none of the folders"
        found += [target.resolve()] if target is not None else []
    return found


def test_includes_point_down(source: Path) -> None:
    own = layer(source)
    below = ANNEXES & {own} | set(ORDER[: ORDER.index(own) + 1] if own in ORDER else ORDER)
    for target in opened(source, CSRC, CSRC / "include", CSRC / own / "include", CSRC / "python"):
        assert target.is_relative_to(CSRC), f"{target} is not in csrc"
        assert layer(target) in below, target


def test_the_lab_opens_csrc_and_is_linked_into_nothing_that_ships() -> None:
    assert LAB_SOURCES
    for source in LAB_SOURCES:
        for target in opened(source, LAB, *LAB.glob("*"), CSRC, *CSRC.glob("**/include")):
            is_binding = source.is_relative_to(LAB / "python")
            assert target.is_relative_to(LAB) or is_binding or layer(target) != "python"
    for build in (ROOT / "CMakeLists.txt", *CSRC.glob("**/CMakeLists.txt")):
        assert "gmlake_lab" not in build.read_text(encoding="utf-8")


def test_python_is_named_in_the_bindings_only(source: Path) -> None:
    names = {name for _, name in includes(source)}
    if "python" not in source.relative_to(CSRC).parts:
        assert not {"Python.h", "structmember.h"} & names
        # c10::impl::PyInterpreter is a table of functions and none of Python's types.
        assert not re.search(r"\bPy(?!Interpreter\b)[A-Z_]\w*", code_of(source))


# As much of NVIDIA's headers as PyTorch's need, for the adapter that includes those.
STANDS_FOR_CUDA = "torch/native/cuda/"
# The adapter implements PyTorch's C++ interface, whose types are CUDA's.
SPEAKS_CUDA = "torch/native/"
# A library of its own that is CUDA for a program: it has its headers and names, reads its settings
# from the environment, and says on standard error what a program did wrong.
IS_CUDA = "standin"


def test_cuda_headers_are_included_nowhere(source: Path) -> None:
    for _, name in includes(source):
        if layer(source) == IS_CUDA or source.relative_to(CSRC).as_posix().startswith(
            STANDS_FOR_CUDA
        ):
            continue
        assert (
            not re.match(r"(cuda|cublas|nvml|hip)[\w/]*\.h$", name)
            or (source.parent / name).exists()
        )
        assert name not in ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h")


def test_driver_functions_are_named_in_the_driver_only(source: Path) -> None:
    is_named = source.relative_to(CSRC).as_posix().startswith(SPEAKS_CUDA)
    if layer(source) not in ("driver", IS_CUDA) and not is_named:
        assert re.findall(r"\b(?:cu|cuda)[A-Z]\w*|\bCU[a-z]\w*", code_of(source)) == []


# A library of its own that starts inside of programs which know nothing of it.
INJECTED = "inject.c"
OPENS_LIBRARIES = ("driver/cuda_", "torch/native/")


def test_libraries_are_opened_where_they_belong(source: Path) -> None:
    is_named = source.relative_to(CSRC).as_posix().startswith(OPENS_LIBRARIES)
    if source.name != INJECTED and layer(source) != IS_CUDA and not is_named:
        assert re.findall(r"\bdlopen\b|\bdlsym\b", code_of(source)) == []


def test_the_library_neither_prints_nor_exits(source: Path) -> None:
    forbidden = r"\b(?:printf|fprintf|puts|putchar|perror|exit|_exit|abort|assert|system)\s*\("
    assert layer(source) == IS_CUDA or re.findall(forbidden, code_of(source)) == []


def test_the_library_reads_no_environment(source: Path) -> None:
    if source.name != INJECTED and layer(source) != IS_CUDA:
        assert re.findall(r"\bgetenv\s*\(", code_of(source)) == []


def test_a_lake_is_opened_up_by_its_room_only(source: Path) -> None:
    """Its lock and what it guards: the rooms above call the functions of lake/lake.h."""
    if layer(source) != "lake":
        assert re.findall(r"\blake\s*->\s*\w+", code_of(source)) == []


MAX_FILE_LINES = 900
# The first line of a function, and the lines of its body.
FUNCTION = re.compile(r"^(\w[^\n;{}=]*\()[^;{}]*\) \{\n(.*?)^\}$", re.MULTILINE | re.DOTALL)


def test_files_and_functions_stay_short(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_FILE_LINES
    for head, body in FUNCTION.findall(text):
        assert body.count("\n") <= 60, f"{head} is too long"


def test_the_layers_test_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "x.c"
    path.write_text('#  include "a.h"\n/* cuInit */ int x; // exit()\n"cuMemMap"', encoding="utf-8")
    assert includes(path) == [('"', "a.h")]
    assert code_of(path).split() == ["#", "include", "int", "x;"]


# ---- circles ---------------------------------------------------------------------------------

DEFINED = re.compile(r"^(?!static |typedef )\w[\w *]*?\b(gml_\w+)\([^;{}]*\) \{$", re.MULTILINE)
NAMED = re.compile(r"\bgml_\w+\b")


def calls_between(texts: dict[str, list[str]]) -> dict[str, set[str]]:
    """Which room names functions that which other room defines; texts: code by room."""
    home = {
        name: room
        for room, codes in texts.items()
        for code in codes
        for name in DEFINED.findall(code)
    }
    return {
        room: {home[name] for code in codes for name in NAMED.findall(code) if name in home}
        - {room}
        for room, codes in texts.items()
    }


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Nodes that reach themselves, with those on the way; by taking away what reaches none."""
    left = {node: set(others) for node, others in graph.items()}
    while ends := {node for node, others in left.items() if not others & left.keys()}:
        for node in ends:
            del left[node]
    while starts := left.keys() - {other for others in left.values() for other in others}:
        for node in starts:
            del left[node]
    return [set(left)] if left else []


def test_no_rooms_call_each_other_in_a_circle() -> None:
    """A room is a folder. Files of one room may call each other as they like."""
    texts: dict[str, list[str]] = {}
    for path in SOURCES:
        if path.suffix != ".h":
            room = path.parent.relative_to(CSRC).as_posix()
            texts.setdefault(room, []).append(code_of(path))
    assert circles(calls_between(texts)) == []


def test_a_circle_is_found() -> None:
    texts = {
        "a": ["void gml_a(void) {\n    gml_b();\n}\n"],
        "b": ["void gml_b(void) {\n    gml_d();\n}\n", "void gml_d(void) {\n    gml_c();\n}\n"],
        "c": ["void gml_c(void) {\n    gml_b();\n}\n"],
    }
    assert circles(calls_between(texts)) == [{"b", "c"}]
    assert circles(calls_between({"b": texts["b"] + texts["c"]})) == []


# ---- Python ----------------------------------------------------------------------------------

PACKAGE = ROOT / "src/gmlake"
MODULES = sorted(PACKAGE.rglob("*.py"))
LATE = ("torch", "numpy", "rich", "bokeh", "gmlake.pytorch")
"""What functions may import: what takes long, or need not be there. gmlake.pytorch loads torch."""

ALSO_LATE = {
    # Data that reads, writes and draws itself by what is built upon it.
    "lake.py": {"gmlake.snapshots.whole"},
    "trace/trace.py": {
        *("gmlake.trace.binary", "gmlake.snapshots.opening", "gmlake.snapshots.reading"),
        "gmlake.snapshots.writing",
    },
    # These import CuPy and Numba.
    "interop/__init__.py": {"gmlake.interop.on_cupy", "gmlake.interop.on_numba"},
    # The next one on the path of the program that is run.
    "pytorch/startup/sitecustomize.py": {"sitecustomize"},
}


def modules_of(node: ast.AST) -> list[str]:
    """What an import names: modules, or what may be a module or a name in one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if file_of(name) else str(node.module) for name in names]
    return []


def file_of(module: str) -> Path | None:
    """The file of a module of ours; None for everything else."""
    path = PACKAGE.parent / module.replace(".", "/")
    places = (path / "__init__.py", path.with_suffix(".py"))
    return next((place for place in places if place.exists()), None)


def late_imports(tree: ast.Module) -> set[str]:
    """What functions import, but for what each of them may."""
    functions = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    found = {
        name for function in functions for node in ast.walk(function) for name in modules_of(node)
    }
    return {name for name in found if not f"{name}.".startswith(tuple(f"{m}." for m in LATE))}


def test_functions_import_nothing() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): late_imports(ast.parse(path.read_bytes()))
        for path in MODULES
    }
    assert {name: modules for name, modules in found.items() if modules} == ALSO_LATE


COMPUTED = "(computed)"
HIDDEN = {
    "snapshots/capture.py": {
        # Snapshots of running lakes, which PyTorch's part of the package opens and records.
        *("gmlake.pytorch.lakes", "gmlake.pytorch.call_sites", "gmlake.pytorch.recording"),
    },
    "pytorch/session.py": {"gmlake.pytorch.compat"},  # loads torch; asked only where it is loaded
    "compat/sglang.py": {"gmlake.compat.torch_memory_saver"},  # reads the environment at import
    "commands/__init__.py": {COMPUTED},  # one command of those it lists
    "annexes.py": {COMPUTED},  # what annexes bring
    "lazily.py": {COMPUTED},  # the module that a package's table names
}
"""Modules of ours reached by name, past the import statements."""


def hidden_imports(tree: ast.Module) -> set[str]:
    """Modules of ours that import_module() or sys.modules reach, by the names written there."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")
            is_import = called[2] in ("import_module", "__import__")
            if is_import or called[0] == "sys.modules":
                name = node.args[0] if node.args else None
                if isinstance(name, ast.Constant):
                    found.add(str(name.value))
                elif is_import:
                    found.add(COMPUTED)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            found |= {str(node.slice.value)} if ast.unparse(node.value) == "sys.modules" else set()
    return {name for name in found if name == COMPUTED or f"{name}.".startswith("gmlake.")}


def test_modules_reached_by_name_are_listed() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): hidden_imports(ast.parse(path.read_bytes()))
        for path in MODULES
    }
    unlisted = {name: modules - HIDDEN.get(name, set()) for name, modules in found.items()}
    assert {name: modules for name, modules in unlisted.items() if modules} == {}


def early_imports(node: ast.AST) -> set[str]:
    """What is imported as a module is: neither in functions nor for types only."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return set()
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
        return {name for child in node.orelse for name in early_imports(child)}
    inner = (early_imports(child) for child in ast.iter_child_nodes(node))
    return set(modules_of(node)).union(*inner)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {
        str(path): {
            str(file)
            for name in early_imports(ast.parse(path.read_bytes()))
            if (file := file_of(name)) is not None
        }
        - {str(path)}
        for path in MODULES
    }
    assert sum(map(len, graph.values())) > len(MODULES)
    assert circles(graph) == []


def test_imports_in_functions_are_found() -> None:
    tree = ast.parse("import a\ndef f():\n    import b.c, torch.cuda\n    from gmlake import lake")
    assert late_imports(tree) == {"b.c", "gmlake.lake"}
    assert early_imports(tree) == {"a"}
    assert early_imports(ast.parse("if TYPE_CHECKING:\n    import a")) == set()


def test_hidden_imports_are_found() -> None:
    tree = ast.parse(
        "import_module('gmlake.a')\nimportlib.import_module(x)\nimport_module('numpy')"
    )
    assert hidden_imports(tree) == {"gmlake.a", COMPUTED}
    tree = ast.parse("sys.modules.get('gmlake.b')\nsys.modules['gmlake.c']\nsys.modules.pop(x)")
    assert hidden_imports(tree) == {"gmlake.b", "gmlake.c"}


# ---- names -----------------------------------------------------------------------------------

TYPE = re.compile(r"^(?:typedef )?(?:struct|enum|union) (gml_\w+) \{", re.MULTILINE)


def test_one_name_is_one_type() -> None:
    homes: dict[str, set[str]] = {}
    for path in SOURCES:
        for name in TYPE.findall(code_of(path)):
            homes.setdefault(name, set()).add(path.name)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
