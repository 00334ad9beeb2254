"""`gmlake run`: what the program sees, and when gmlake is let in; PyTorch is a fake here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import gmlake
from running import refused

STARTUP = str(Path(gmlake.__file__).parent / "pytorch" / "startup")
RUN = (sys.executable, "-m", "gmlake", "run")

SHOW = """
import json, os, sys
json.dump({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "package": __package__, "is_main": sys.modules["__main__"].__dict__ is globals(),
    "original": sys.orig_argv[1:], "optimize": sys.flags.optimize, "pid": os.getpid(),
}, sys.stdout)
"""

TORCH = """
import os, sys
order = sys.modules["__main__"].__dict__.setdefault("order", [])
loader = type(__spec__.loader).__name__
order.append(f"torch begins, {loader} {type(__loader__).__name__}, X={os.environ.get('X')}")
if os.environ.get("FAIL") == "1":
    os.environ["FAIL"] = "0"
    raise ImportError("torch is broken")
complete = _C = True
"""

ACTIVATION = """
import sys
def activate():
    import torch
    assert torch.complete
    sys.modules["__main__"].__dict__["order"].append("activated")
"""


def run(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def paths(*folders: str | Path) -> str:
    """Return a PYTHONPATH with these folders first."""
    return os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))


@pytest.fixture
def show(tmp_path: Path) -> Path:
    """A script that prints what it sees, beside itself as a folder and as a zip file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "show.py", folder / "__main__.py"):
        path.write_text(SHOW)
    with zipfile.ZipFile(tmp_path / "show.zip", "w") as file:
        file.writestr("__main__.py", SHOW)
    return tmp_path


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A folder with a torch that notes when it runs, and a gmlake that notes when it is let in."""
    (tmp_path / "torch.py").write_text(TORCH)
    package = tmp_path / "gmlake" / "pytorch"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "activation.py").write_text(ACTIVATION)
    return tmp_path


def order_of(folder: Path, code: str, **variables: str) -> list[str]:
    """Run code beside the fakes under `gmlake run`; return what was noted."""
    script = folder / "script.py"
    script.write_text(f"order = []\n{code}\nimport json; print(json.dumps(order))")
    done = run(*RUN, script, env=os.environ | variables, cwd="/")
    assert (done.returncode, done.stderr) == (0, "")
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


# ---- the program is run as python runs it


@pytest.mark.parametrize(
    "program",
    [
        ["show.py", "--policy", "x", "-h", "-m", "--", "a b"],
        ["-m", "show", "--policy", "x"],
        ["-m", "folder", "x"],
        ["-c", SHOW, "-m", "x"],
        ["-", "--policy"],
        ["folder", "x"],
        ["show.zip", "x"],
        ["./show.py"],
    ],
    ids=lambda program: program[0] + program[1][:8] if len(program) > 1 else program[0],
)
def test_a_program_sees_what_python_shows_it(program: list[str], show: Path) -> None:
    plain = run(sys.executable, "-B", *program, cwd=show, input=SHOW)
    served = run(sys.executable, "-B", *RUN[1:], *program, cwd=show, input=SHOW)
    assert (served.returncode, served.stderr) == (0, "")
    seen, expected = json.loads(served.stdout), json.loads(plain.stdout)
    del seen["pid"], expected["pid"]
    assert seen == expected


def test_two_dashes_may_end_the_options(show: Path) -> None:
    done = run(*RUN, "--policy", "caching", "--", "show.py", "x", cwd=show)
    assert json.loads(done.stdout)["argv"] == ["show.py", "x"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-u", "-X", "dev", "-O", "-m"], ["-u", "-X", "dev", "-O"]),
        (["-uOm"], ["-uO"]),
        (["-m"], []),
    ],
)
def test_options_of_python_are_passed_on(
    options: list[str], expected: list[str], show: Path
) -> None:
    done = run(sys.executable, *options, "gmlake", "run", "show.py", cwd=show)
    seen = json.loads(done.stdout)
    assert seen["original"] == [*expected, "show.py"]
    assert seen["optimize"] == int("O" in "".join(expected))


def test_the_installed_command_passes_them_on_too(show: Path) -> None:
    command = Path(sys.executable).parent / "gmlake"
    done = run(sys.executable, "-u", command, "run", "show.py", cwd=show)
    assert json.loads(done.stdout)["original"] == ["-u", "show.py"]


def test_the_process_stays_the_same(show: Path) -> None:
    with subprocess.Popen([*RUN, "show.py"], cwd=show, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert json.load(process.stdout)["pid"] == process.pid


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit(3)",
        "import sys; sys.exit('a reason')",
        "raise SystemExit",
        "def f():\n    1 / 0\nf()",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os; os._exit(7)",
        "this is no Python",
        "import nothing_of_that_name",
    ],
)
def test_it_ends_as_under_python(code: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(code)
    plain = run(sys.executable, "script.py", cwd=tmp_path)
    served = run(*RUN, "script.py", cwd=tmp_path)
    assert (served.returncode, served.stdout) == (plain.returncode, plain.stdout)
    assert served.stderr == plain.stderr


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_reaches_the_program(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    with subprocess.Popen([*RUN, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "interrupted\n"
    assert process.returncode == 0


def test_output_may_be_closed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; sys.exit(5 if sys.stdout is None else 6)")
    done = run("/bin/sh", "-c", 'exec "$@" >&-', "sh", *RUN, script)
    assert (done.returncode, done.stderr) == (5, "")


def test_output_of_the_command_itself_may_be_closed() -> None:
    done = run("/bin/sh", "-c", 'exec "$@" >&-', "sh", *RUN, "--help")
    assert (done.returncode, done.stderr) == (0, "")


# ---- settings


VARIABLES = "import json, os; print(json.dumps(dict(os.environ)))"


def variables_of(*arguments: str, **variables: str) -> dict[str, str]:
    others = {name: text for name, text in os.environ.items() if not name.startswith("GMLAKE_")}
    done = run(*RUN, *arguments, env=others | variables)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_settings_become_variables() -> None:
    options = ["--policy", "caching", "--capacity", "3GiB", "--report"]
    sets = ["--set", "growth=4MiB", "--set", "frag_limit=2MiB", "--set", "optimize_for=Memory"]
    found = variables_of(*options, *sets, "-c", VARIABLES)
    ours = {name: value for name, value in found.items() if name.startswith("GMLAKE_")}
    assert set(ours.pop("GMLAKE_SET").split(",")) == {
        "growth=4MiB",
        "frag_limit=2MiB",
        "optimize_for=memory",
    }
    assert ours == {
        "GMLAKE_RUN": "1",
        "GMLAKE_POLICY": "caching",
        "GMLAKE_CAPACITY": str(3 << 30),
        "GMLAKE_REPORT": "1",
    }


def test_a_recording_has_one_place_wherever_a_process_runs(tmp_path: Path) -> None:
    path = os.path.relpath(tmp_path / "memory.pickle")
    found = variables_of("--record", path, "-c", VARIABLES)
    recorded = Path(found["GMLAKE_RECORD"])
    assert recorded.is_absolute()
    assert recorded.resolve() == tmp_path / "memory.pickle"
    assert "GMLAKE_RECORD" not in variables_of("-c", VARIABLES)


def test_variables_hold_where_no_option_is_given() -> None:
    found = variables_of("-c", VARIABLES, GMLAKE_POLICY="expandable", GMLAKE_SET="growth=8MiB")
    assert found["GMLAKE_POLICY"] == "expandable"
    assert found["GMLAKE_SET"] == "growth=8MiB"
    assert "GMLAKE_REPORT" not in found
    found = variables_of("--policy", "caching", "-c", VARIABLES, GMLAKE_POLICY="expandable")
    assert found["GMLAKE_POLICY"] == "caching"


def test_one_run_inside_another_changes_its_settings_only() -> None:
    inner = ["--policy", "caching", "-c", VARIABLES]
    nested = variables_of(
        "--capacity", "3GiB", "-m", "gmlake", "run", *inner, PYTHONPATH=paths("/a", "/b")
    )
    assert nested["GMLAKE_POLICY"] == "caching"
    assert nested["GMLAKE_CAPACITY"] == str(3 << 30)
    assert nested["PYTHONPATH"] == paths(STARTUP, "/a", "/b")


# ---- wrong arguments


@pytest.mark.parametrize(
    ("shebang", "advice"), [("#!/usr/bin/env python3", "the script {}"), ("#!/bin/sh", "")]
)
def test_a_command_is_told_its_script(
    shebang: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "serve"
    command.write_text(f"{shebang}\n", encoding="utf-8")
    command.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.chdir(tmp_path.parent)
    said = refused("run", "serve", "x", PATH=path)
    assert "serve: no such file; name a script" in said
    assert ("that command is" in said) is bool(advice)
    assert advice.format(command) in said


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("GMLAKE_POLICY", "magic", "GMLAKE_POLICY: no policy is called 'magic'"),
        ("GMLAKE_MODE", "half", "GMLAKE_MODE: no mode is called 'half'"),
        ("GMLAKE_CAPACITY", "much", "GMLAKE_CAPACITY: 'much' is not a size"),
        ("GMLAKE_SET", "growth", "GMLAKE_SET: 'growth' is not"),
        (
            "GMLAKE_SET",
            "optimize_for=fast",
            "GMLAKE_SET: optimize_for is 'fast', but must be time, balance",
        ),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, reason: str) -> None:
    assert reason in refused("run", "-c", "", **{name: value})


@pytest.mark.parametrize("option", ["-I", "-E"])
def test_a_python_that_heeds_no_variables_is_refused(option: str) -> None:
    done = run(sys.executable, option, "-m", "gmlake", "run", "-c", "")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "options -E, -I and -S" in done.stderr


# ---- when gmlake is let in


PLAIN = "torch begins, SourceFileLoader SourceFileLoader, X=None"


def test_gmlake_comes_after_torch_and_not_earlier(fakes: Path) -> None:
    code = """
import os, sys
order.append("gmlake" in sys.modules)
os.environ["X"] = "set by the script"
import torch
order.append("torch ends")
order.append(type(torch.__spec__.loader).__name__)
import torch
order.append(any("Torch" in type(finder).__name__ for finder in sys.meta_path))
"""
    assert order_of(fakes, code) == [
        False,
        "torch begins, SourceFileLoader SourceFileLoader, X=set by the script",
        "activated",
        "torch ends",
        "SourceFileLoader",
        False,
    ]


def test_to_look_for_torch_is_not_to_import_it(fakes: Path) -> None:
    code = """
from importlib.util import find_spec
spec = find_spec("torch")
order += [spec.name, spec.loader.get_filename("torch") == spec.origin]
import copy; copy.copy(spec.loader)
import torch
"""
    assert order_of(fakes, code) == ["torch", True, PLAIN, "activated"]


def test_an_import_that_failed_may_be_tried_again(fakes: Path) -> None:
    code = """
try:
    import torch
except ImportError as error:
    order.append(str(error))
import torch
"""
    assert order_of(fakes, code, FAIL="1") == [PLAIN, "torch is broken", PLAIN, "activated"]


def test_torch_need_not_be_there(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import sys; sys.path[:] = [sys.path[0]]\n"
        "try:\n    import torch\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    done = run(*RUN, "script.py", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("No module named 'torch'\n", "")


def test_any_thread_may_import_torch(fakes: Path) -> None:
    code = """
import threading
def work():
    import torch
    order.append(torch.complete)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    assert order_of(fakes, code) == [PLAIN, "activated", *[True] * 4]


@pytest.mark.parametrize("kind", ["subprocess", "spawn", "forkserver", "fork"])
def test_processes_that_a_program_starts_are_served(kind: str, fakes: Path) -> None:
    if kind == "subprocess":
        child = "order = []\nimport torch, json; print(json.dumps(order))"
        (fakes / "child.py").write_text(child)
        code = f"""
import json, subprocess, sys
out = subprocess.check_output([sys.executable, {str(fakes / "child.py")!r}])
order += json.loads(out)
"""
        assert order_of(fakes, code) == [PLAIN, "activated"]
        return
    code = f"""
import multiprocessing, sys
def work(queue):
    sys.modules["__main__"].order = []
    import torch
    queue.put(sys.modules["__main__"].order)
if __name__ == "__main__":
    context = multiprocessing.get_context({kind!r})
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    order += queue.get()
    process.join()
"""
    assert order_of(fakes, code) == [PLAIN, "activated"]


def startup(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that finds our sitecustomize first, then those of a folder."""
    variables["PYTHONPATH"] = paths(STARTUP, folder)
    return run(sys.executable, "-c", code, env=os.environ | variables)


def test_without_the_variable_nothing_happens(fakes: Path) -> None:
    code = "order = []; import torch; print(order)"
    assert startup(fakes, code, GMLAKE_RUN="0").stdout == f"{[PLAIN]}\n"
    assert startup(fakes, code, GMLAKE_RUN="1").stdout == f"{[PLAIN, 'activated']}\n"


def test_torch_may_be_there_at_the_start(fakes: Path) -> None:
    """As where a .pth file imports it."""
    code = """
order = []
import sys, torch
sys.modules.pop("sitecustomize", None)
sys.path.insert(0, sys.argv[1])
import os; os.environ["GMLAKE_RUN"] = "1"
import sitecustomize
print(order)
"""
    variables = os.environ | {"PYTHONPATH": paths(fakes)}
    done = run(sys.executable, "-c", code, STARTUP, env=variables)
    assert done.stdout == f"{[PLAIN, 'activated']}\n"


def test_the_sitecustomize_of_the_user_runs_as_ever(tmp_path: Path) -> None:
    own = tmp_path / "sitecustomize.py"
    own.write_text("import sys; sys.own = (__name__, __file__, sys.path[1])")
    done = startup(
        tmp_path,
        "import sys; print(sys.own, sys.modules['sitecustomize'].__file__, sys.path[1])",
        GMLAKE_RUN="1",
    )
    seen = ("sitecustomize", str(own), str(tmp_path))
    # At the start sys.path has no entry for the script yet.
    assert done.stderr == ""
    assert str(seen[:2])[:-1] in done.stdout
    assert done.stdout.endswith(f" {own} {tmp_path}\n")
    assert STARTUP not in done.stdout


def test_a_sitecustomize_of_the_user_that_fails_is_said_as_ever(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import nothing_of_that_name")
    variables = os.environ | {"PYTHONPATH": paths(tmp_path)}
    plain = run(sys.executable, "-c", "print(1)", env=variables)
    done = startup(tmp_path, "print(1)", GMLAKE_RUN="1")
    assert "nothing_of_that_name" in plain.stderr
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)


def test_a_python_without_gmlake_says_so_and_goes_on(fakes: Path) -> None:
    (fakes / "gmlake" / "pytorch" / "activation.py").write_text("import nothing_of_that_name")
    done = startup(fakes, "import torch; print(torch.complete)", GMLAKE_RUN="1")
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert done.stderr.startswith(f"gmlake: {sys.executable} runs without gmlake, which it cannot")
    assert done.stderr.count("\n") == 1
