"""The package as a whole: what importing costs, its types, the C interface it exports."""

from __future__ import annotations

import ctypes
import importlib.metadata
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gmlake
from gmlake import _core
from gmlake.lake import device_describe
from places import ROOT


def python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_no_module_has_the_name_of_something_public() -> None:
    """Whoever imports the module first would make gmlake.NAME the module."""
    folder = Path(gmlake.__file__).parent
    modules = {path.stem for path in folder.iterdir()}
    assert modules & set(gmlake.__all__) == set()


@pytest.mark.torch
def test_importing_loads_neither_torch_numpy_rich_nor_jinja() -> None:
    loaded = "print(*({'torch', 'numpy', 'rich', 'jinja2'} & set(sys.modules)))"
    assert python(f"import gmlake, sys; {loaded}") == ""


@pytest.mark.torch
def test_replaying_does_not_load_torch() -> None:
    program = (
        "import gmlake, sys, numpy; from gmlake.trace import REQUEST;"
        "seen = gmlake.Snapshot.of_events(numpy.zeros(0, REQUEST));"
        "print(gmlake.replay(seen)); print('torch' in sys.modules)"
    )
    assert python(program).endswith("False")


@pytest.mark.parametrize(
    "name", sorted({"AutoPlan", "enable", "phase", "publish", "record"} & {*gmlake.__all__})
)
def test_without_pytorch_a_line_says_what_to_install(name: str) -> None:
    program = f"""
import sys
sys.modules["torch"] = None
import gmlake
try:
    gmlake.{name}().__enter__()
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    said = python(program).replace("()", "")
    assert said == f"torch gmlake.{name} needs PyTorch, which is not installed: pip install torch"


@pytest.mark.torch
def test_every_public_name_is_there() -> None:
    assert len(gmlake.__all__) <= 40
    for name in gmlake.__all__:
        assert getattr(gmlake, name) is not None
        assert name in dir(gmlake)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = gmlake.nothing
    assert callable(gmlake.replay)


def test_the_version_is_one() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.*)"$', text, re.MULTILINE)
    assert gmlake.__version__ == version == importlib.metadata.version("gmlake")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(gmlake.__file__).parent / "py.typed").exists()


def test_stubs_and_extension_agree() -> None:
    stub = (ROOT / "src" / "gmlake" / "_core.pyi").read_text(encoding="utf-8")
    typed_dicts = set(re.findall(r"^class (\w+)\(TypedDict\)", stub, re.MULTILINE))
    names = set(re.findall(r"^(?:class |def )(\w+)|^(\w+): ", stub, re.MULTILINE))
    declared = {a or b for a, b in names} - typed_dicts - {"_Bytes", "_Server"}
    assert declared == vars(_core).keys() - vars(ModuleType("any")).keys() - {
        "__file__",
        "test_hooks",
    }
    for owner in (_core.Lake, _core.Block, _core.Replay):
        body = re.split(r"\n(?=\S)", re.split(rf"class {owner.__name__}\b", stub)[1])[0]
        methods = set(re.findall(r"def (\w+)\(", body))
        public = {name for name in vars(owner) if not name.startswith("_")}
        assert public <= methods
        assert {name for name in methods if not name.startswith("_")} == public
        for name in public:
            assert getattr(owner, name).__doc__, f"{owner.__name__}.{name} has no docstring"


def test_the_extension_types_are_closed() -> None:
    for name in ("Block", "Replay"):
        with pytest.raises(TypeError):
            type("Mine", (getattr(_core, name),), {})
    with pytest.raises(TypeError):
        _core.Lake.allocate = None  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        _core.Block()


def test_the_extension_exports_the_c_interface() -> None:
    header = (ROOT / "csrc" / "include" / "gmlake.h").read_text(encoding="utf-8")
    names = re.findall(r"^GML_API [^;(]*?\b(gml_\w+)\(", header, re.MULTILINE)
    assert len(names) > 20
    library = ctypes.CDLL(_core.__file__)
    for name in names:
        assert hasattr(library, name), f"{name} is declared but not exported"
    library.gml_version.restype = ctypes.c_char_p
    assert library.gml_version().decode() == gmlake.__version__


def test_every_header_is_installed(tmp_path: Path) -> None:
    cmake = shutil.which("cmake") or shutil.which("cmake", path=str(Path(sys.executable).parent))
    if cmake is None:
        pytest.skip("there is no cmake")
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    for words in (
        ("-S", str(ROOT), "-B", str(build)),
        ("--install", str(build), "--component", "headers", "--prefix", str(prefix)),
    ):
        subprocess.run([cmake, *words], check=True, capture_output=True)
    here = {path.name for path in ROOT.glob("csrc/**/include/*.h")}
    assert {path.name for path in (prefix / "include").iterdir()} == here
    listed = (ROOT / "csrc" / "README.md").read_text(encoding="utf-8")
    own = sorted(path.name for path in ROOT.glob("csrc/include/*.h"))
    assert [name for name in own if f"`{name}`" not in listed] == []


def test_a_second_interpreter_can_load_the_extension() -> None:
    code = "import gmlake; gmlake.Lake().close()"
    program = f"""
try:
    import _interpreters
    one = _interpreters.create("legacy")  # one GIL: an abi3 module cannot declare more
except ImportError:
    import _xxsubinterpreters as _interpreters
    one = _interpreters.create(isolated=False)
failed = _interpreters.run_string(one, {code!r})
_interpreters.destroy(one)
print("failed" if failed else "fine")
"""
    assert python(program) == "fine"


def test_errors_survive_pickling() -> None:
    error = gmlake.TraceError("odd", event=3, path="f")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "f: event 3: odd"
    assert (again.reason, again.event, again.path) == ("odd", 3, "f")
    assert issubclass(gmlake.TraceError, gmlake.Error)
    assert issubclass(gmlake.TraceError, ValueError)


def test_knobs_describe_themselves() -> None:
    for knob in gmlake.knobs():
        assert knob["minimum"] <= knob["default"] <= knob["maximum"]
        assert knob["help"]
        assert len(knob["words"]) in {0, knob["maximum"] + 1}
        assert set(knob["policies"].replace(",", " ").split()) <= set(gmlake.policies())
        with gmlake.Lake(**{knob["name"]: knob["default"]}):  # type: ignore[arg-type]
            pass


def test_devices_describe_themselves() -> None:
    about = device_describe("sim")
    assert about["granularity_bytes"] == 2 << 20
    assert about["has_virtual_memory"]
    assert 0 < about["free_bytes"] <= about["total_bytes"]
    with pytest.raises(ValueError, match="metal"):
        device_describe("metal")
    with pytest.raises(ValueError, match="negative"):
        device_describe("sim", -1)
