"""The architecture, read from the sources: who includes whom, and who may name what."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from places import ROOT
from sources import offenders, text_of, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CSRC = ROOT / "csrc"
LAB = ROOT / "lab"
LAB_SOURCES = sorted(path for path in LAB.rglob("*.[ch]"))
SOURCES = sorted((*CSRC.rglob("*.[ch]"), *CSRC.rglob("*.cpp")))
# From csrc/README.md: a folder includes only itself and those before it in the table.
ORDER = re.findall(r"^\| `(\w+)/` \|", text_of(CSRC / "README.md"), re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ANNEXES = {path.parent.name for path in CSRC.glob("*/annex.cmake")}
"""Folders beside the allocator: they may include its layers, and nothing includes them."""


def includes(path: Path) -> list[tuple[str, str]]:
    return INCLUDE.findall(text_of(path))


def place(path: Path) -> str:
    return path.relative_to(CSRC).as_posix()


def layer(path: Path) -> str:
    return path.relative_to(CSRC).parts[0]


@cache
def code_of(path: Path) -> str:
    """The text without comments and strings."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, " ", text_of(path), flags=re.DOTALL)


def test_every_folder_is_a_layer() -> None:
    assert ORDER[:2] == ["include", "base"]
    assert {layer(path) for path in SOURCES} - ANNEXES == set(ORDER)


def opened(source: Path, *folders: Path) -> dict[str, Path | None]:
    """What a file includes by a name in quotes, looked for beside it and in the folders."""
    places = [source.parent, *folders]
    return {
        name: next((file.resolve() for each in places if (file := each / name).exists()), None)
        for kind, name in includes(source)
        if kind == '"'
    }


# ---- each check returns what is wrong with a file ------------------------------------------------

# As much of NVIDIA's headers as PyTorch's need, for the adapter that includes those.
STANDS_FOR_CUDA = "torch/native/cuda/"
# The adapter implements PyTorch's C++ interface, whose types are CUDA's.
SPEAKS_CUDA = "torch/native/"
# A library of its own that is CUDA for a program: it has its headers and names, reads its settings
# from the environment, and says on standard error what a program did wrong.
IS_CUDA = "standin"
# A library of its own that starts inside of programs which know nothing of it.
INJECTED = "inject.c"
OPENS_LIBRARIES = ("driver/cuda_",)
MAX_FILE_LINES = 900
MAX_FUNCTION_LINES = 60
# The first line of a function, and the lines of its body.
FUNCTION = re.compile(r"^(\w[^\n;{}=]*\()[^;{}]*\) \{\n(.*?)^\}$", re.MULTILINE | re.DOTALL)


def includes_from_above(source: Path) -> list[str]:
    own = layer(source)
    below = ANNEXES & {own} | set(ORDER[: ORDER.index(own) + 1] if own in ORDER else ORDER)
    targets = opened(source, CSRC, CSRC / "include", CSRC / own / "include", CSRC / "python")
    return [
        name
        for name, target in targets.items()
        if target is None or not target.is_relative_to(CSRC) or layer(target) not in below
    ]


def python_outside_the_bindings(source: Path) -> list[str]:
    if "python" in source.relative_to(CSRC).parts:
        return []
    headers = {"Python.h", "structmember.h"} & {name for _, name in includes(source)}
    # c10::impl::PyInterpreter is a table of functions and none of Python's types.
    return [*headers, *re.findall(r"\bPy(?!Interpreter\b)[A-Z_]\w*", code_of(source))]


def headers_of_cuda(source: Path) -> list[str]:
    if layer(source) == IS_CUDA or place(source).startswith(STANDS_FOR_CUDA):
        return []
    return [
        name
        for _, name in includes(source)
        if name in ("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h")
        or (
            re.match(r"(cuda|cublas|nvml|hip)[\w/]*\.h$", name)
            and not (source.parent / name).exists()
        )
    ]


def driver_functions(source: Path) -> list[str]:
    if layer(source) in ("driver", IS_CUDA) or place(source).startswith(SPEAKS_CUDA):
        return []
    return re.findall(r"\b(?:cu|cuda)[A-Z]\w*|\bCU[a-z]\w*", code_of(source))


def opened_libraries(source: Path) -> list[str]:
    is_named = source.name == INJECTED or place(source).startswith(OPENS_LIBRARIES)
    if layer(source) == IS_CUDA or is_named:
        return []
    return re.findall(r"\bdlopen\b|\bdlsym\b", code_of(source))


def prints_and_exits(source: Path) -> list[str]:
    forbidden = r"\b(?:printf|fprintf|puts|putchar|perror|exit|_exit|abort|assert|system)\s*\("
    return [] if layer(source) == IS_CUDA else re.findall(forbidden, code_of(source))


def read_environment(source: Path) -> list[str]:
    if source.name == INJECTED or layer(source) == IS_CUDA:
        return []
    return re.findall(r"\bgetenv\s*\(", code_of(source))


def opened_lakes(source: Path) -> list[str]:
    """Its lock and what it guards: the rooms above call the functions of lake/lake.h."""
    return [] if layer(source) == "lake" else re.findall(r"\blake\s*->\s*\w+", code_of(source))


def too_long(source: Path) -> list[str]:
    text = text_of(source)
    lines = text.count("\n")
    found = [f"{lines} lines"] if lines > MAX_FILE_LINES else []
    for head, body in FUNCTION.findall(text):
        length = body.count("\n")
        found += [f"{head} of {length} lines"] if length > MAX_FUNCTION_LINES else []
    return found


CHECKS: dict[Callable[[Path], list[str]], dict[str, str]] = {
    includes_from_above: {
        "base/x.c": '#include "lake/y.h"',
        "lake/x.c": '#include "gone.h"',
        "replay/x.c": '#include "../../above.h"',
    },
    python_outside_the_bindings: {
        "lake/x.c": "#include <Python.h>",
        "lake/z.c": "PyObject *x;",
    },
    headers_of_cuda: {"driver/x.c": "#include <cuda.h>", "lake/x.c": '#include "cublas_v2.h"'},
    driver_functions: {"lake/x.c": "int x = cuInit(0);", "lake/z.c": "CUresult x;"},
    opened_libraries: {"driver/x.c": "void *x = dlopen(0, 0);"},
    prints_and_exits: {"driver/x.c": "exit (1);", "torch/native/x.cpp": "printf();"},
    read_environment: {"driver/x.c": "getenv(x);"},
    opened_lakes: {"torch/x.c": "int x = lake->lock;"},
    too_long: {
        "lake/x.c": "\n" * (MAX_FILE_LINES + 1),
        "lake/z.c": "int f(void) {\n" + "    g();\n" * (MAX_FUNCTION_LINES + 1) + "}\n",
    },
}
"""Each with files in which it must find something."""


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_no_source_of_c_has(check: Callable[[Path], list[str]]) -> None:
    assert offenders(SOURCES, check) == {}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_source_of_c_is_found_that_has(
    check: Callable[[Path], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "CSRC", tmp_path / "csrc")
    for name in ("csrc/lake/y.h", "above.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name, text in CHECKS[check].items():
        path = tmp_path / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        assert check(path), text


def test_who_is_excepted_is_there_and_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {"IS_CUDA": "-", "INJECTED": "-", "OPENS_LIBRARIES": ("-",)}
    excepted: dict[Callable[[Path], list[str]], dict[str, object]] = {
        headers_of_cuda: {"STANDS_FOR_CUDA": "-"},
        driver_functions: {"SPEAKS_CUDA": "-"},
        opened_libraries: names,
        prints_and_exits: {"IS_CUDA": "-"},
        read_environment: {"IS_CUDA": "-", "INJECTED": "-"},
    }
    for check, tables in excepted.items():
        for table, nobody in tables.items():
            each = globals()[table]
            with monkeypatch.context() as without:
                without.setitem(globals(), table, nobody)
                found = offenders(SOURCES, check)
            for one in [each] if isinstance(each, str) else each:
                assert any(one in name for name in found), f"{table}: {one} is not needed"


def test_the_lab_opens_csrc_and_is_linked_into_nothing_that_ships() -> None:
    def reached(source: Path) -> list[str]:
        targets = opened(source, LAB, *LAB.glob("*"), CSRC, *CSRC.glob("**/include"))
        is_binding = source.is_relative_to(LAB / "python")
        return [
            name
            for name, target in targets.items()
            if target is None
            or not (target.is_relative_to(LAB) or is_binding or layer(target) != "python")
        ]

    assert offenders(LAB_SOURCES, reached) == {}
    for build in (ROOT / "CMakeLists.txt", *CSRC.glob("**/CMakeLists.txt")):
        assert "gmlake_lab" not in text_of(build)


def test_what_is_read_of_a_file(tmp_path: Path) -> None:
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
LATE = ("torch", "rich", "shtab", "gmlake.pytorch")
"""What functions may import: what takes long, or need not be there. gmlake.pytorch loads torch."""

ALSO_LATE = {
    # Data that reads, writes and draws itself by what is built upon it.
    "lake.py": {"gmlake.snapshots.whole"},
    "trace/trace.py": {
        "gmlake.trace.binary",
    },
    # What only an option, or a file of another kind, needs.
    "commands/view.py": {"gmlake.replaying"},
    "planner/plan_view.py": {
        *("gmlake.planner.api", "gmlake.planner.plan_files", "gmlake.planner.saved"),
    },
    # These import CuPy and Numba.
    "interop/__init__.py": {"gmlake.interop.on_cupy", "gmlake.interop.on_numba"},
    # What a run of pytest with marked tests needs, and what one does at its end.
    "budgets/plugin.py": {"gmlake.budgets.baselines", "gmlake.budgets.running"},
    "budgets/running.py": {"gmlake.budgets.measuring"},
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


def is_late(name: str) -> bool:
    return f"{name}.".startswith(tuple(f"{late}." for late in LATE))


def imports_in_functions(tree: ast.Module) -> set[str]:
    functions = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return {
        name for function in functions for node in ast.walk(function) for name in modules_of(node)
    }


def late_imports(tree: ast.Module) -> set[str]:
    """What functions import, but for what each of them may."""
    return {name for name in imports_in_functions(tree) if not is_late(name)}


def by_module(found_in: Callable[[ast.Module], set[str]]) -> dict[str, set[str]]:
    """What is found in modules of the package, but for those in which it is nothing."""
    found = {path.relative_to(PACKAGE).as_posix(): found_in(tree_of(path)) for path in MODULES}
    return {name: modules for name, modules in found.items() if modules}


def test_functions_import_what_is_listed_and_no_more_is_listed() -> None:
    there = {name: told for name, told in ALSO_LATE.items() if (PACKAGE / name).exists()}
    assert by_module(late_imports) == there  # annexes may be left out
    late = {name for names in by_module(imports_in_functions).values() for name in names}
    unused = {name for name in LATE if not any(f"{each}.".startswith(f"{name}.") for each in late)}
    assert unused == set() or there != ALSO_LATE


COMPUTED = "(computed)"
HIDDEN = {
    "pytorch/session.py": {"gmlake.pytorch.compat"},  # loads torch; asked only where it is loaded
    "compat/sglang.py": {"gmlake.compat.torch_memory_saver"},  # reads the environment at import
    "commands/__init__.py": {COMPUTED},  # one command of those it lists
    "annexes.py": {COMPUTED},  # what annexes bring
    "snapshots/whole.py": {"gmlake.pytorch.documents"},  # PyTorch's memory, where there is PyTorch
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


def test_modules_reached_by_name_are_listed_and_no_others() -> None:
    assert by_module(hidden_imports) == HIDDEN


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
            for name in early_imports(tree_of(path))
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
