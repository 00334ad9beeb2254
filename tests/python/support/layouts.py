"""Draws machines with programs on them, and call paths through those, with who owns each file.

A machine has a Python with packages, and a user who keeps projects somewhere, in some layout. Each
file is made together with its owner: the user, or others. The line of a path that a person would
name is the innermost frame in a file of the user's; that is known here without looking at a path.
The shapes are those of tracebacks that people posted; all names are invented.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS: Final = (
    *("alpaca", "bolt", "cedar", "delta", "ember", "falcon", "garnet", "heron", "iris", "juniper"),
    *("koala-lm", "Lotus", "maple2", "nova_rl", "otter", "Pine-Diffusion", "quartz", "raven"),
)
LIBRARIES: Final = (
    *("transformers", "vllm", "megatron", "diffusers", "deepspeed", "lightning", "flash_attn"),
    *("accelerate", "sglang", "peft", "trl", "verl", "timm", "xformers", "detectron2", "nemo"),
    *("torchtune", "ray", "click", "IPython", "gmlake", "triton", "torchvision"),
)
PLAIN: Final = (
    "models",
    "utils",
    "nets",
    "layers",
    "core",
    "engine",
    "ops",
    "data",
    "train",
    "lib",
)
OF_PYTHON: Final = ("logging", "types", "queue", "profile", "random", "email", "code", "copy")
FILES: Final = ("model", "attention", "losses", "trainer", "nn_utils", "blocks", "optim", "memory")
CALLS: Final = ("forward", "step", "loss", "build", "<lambda>", "Net.forward", "__init__", "run")
USERS: Final = ("me", "anna", "j.doe", "ubuntu", "李", "ma 2257")
COPIES: Final = (
    *("third_party", "3rdparty", "thirdparty", "vendor", "external", "submodules", "extern"),
    *("deps", "_vendor", "third-party"),
)
VERSIONS: Final = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


@dataclass(frozen=True)
class Line:
    """A frame, and whose file it is in: "user", "library", or "none": Python, PyTorch, C."""

    text: str
    owner: str


@dataclass(frozen=True)
class Drawn:
    """A call path, innermost first, in a layout."""

    layout: str
    lines: tuple[Line, ...]

    @property
    def frames(self) -> tuple[str, ...]:
        return tuple(line.text for line in self.lines)

    @property
    def own(self) -> list[str]:
        """The user's frames, innermost first."""
        return [line.text for line in self.lines if line.owner == "user"]

    @property
    def libraries(self) -> list[str]:
        return [line.text for line in self.lines if line.owner == "library"]


@dataclass
class Machine:
    """Where Python and its packages lie; home: where the user's projects do."""

    home: str
    prefix: str
    python: str
    site: str
    bin: str
    sep: str = "/"
    sources: tuple[str, ...] = ("??",)
    is_bare: bool = False
    cells: list[str] = field(default_factory=list)

    def join(self, *parts: str) -> str:
        first, *rest = [part for each in parts for part in each.split("/")]
        return self.sep.join([first, *filter(None, rest)])


class Layouts:
    """Draws from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 (test data)
        self.at = self.machine()

    # ---- parts

    def one(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def word(self) -> str:
        return self.rng.choice(WORDS)

    def line(self, owner: str, *place: str, name: str = "") -> Line:
        call = name or self.rng.choice(CALLS)
        return Line(f"{call}  {self.at.join(*place)}:{self.rng.randint(1, 2500)}", owner)

    def file(self) -> str:
        return f"{self.rng.choice(FILES)}.py"

    def deeper(self, least: int = 0) -> str:
        """A folder within a project: plain words, and now and then what misleads."""
        parts = []
        for _ in range(self.rng.randint(least, 3)):
            kind = self.rng.random()
            pool = PLAIN if kind < 0.6 else WORDS if kind < 0.8 else LIBRARIES
            parts.append(self.rng.choice(pool if kind < 0.95 else OF_PYTHON))
        return "/".join(parts)

    # ---- machines

    def machine(self) -> Machine:
        kinds: tuple[Callable[[str, str], Machine], ...] = (
            *(self._debian, self._conda, self._conda, self._venv, self._uv, self._pyenv),
            *(self._poetry, self._windows, self._windows, self._portable, self._hosted, self._mac),
        )
        return self.rng.choice(kinds)(self.rng.choice(USERS), self.rng.choice(VERSIONS))

    def _home(self, user: str) -> str:
        return self.one(
            *(f"/home/{user}", f"/home/{user}/code", f"/home/{user}/a/b/c", "/root", "/workspace"),
            *(f"/data/{user}", f"/mnt/ssd4/{user}/code", "/srv/studio", "/fsx/ubuntu", "/app"),
            *("/usr/src/app", "/opt/ml/code", "/code", "/mnt/batch/tasks/job-1/wd", "/sgl-work"),
            *(f"/lustre/fsw/portfolios/x/users/{user}", f"/gpfs/p/{user}/llm", "/tmp/work"),  # noqa: S108
        )

    def _debian(self, user: str, version: str) -> Machine:
        site = self.one(
            *(f"/usr/local/lib/python{version}/dist-packages", "/usr/lib/python3/dist-packages"),
            f"/usr/local/lib/python{version}/site-packages",
        )
        python = f"/usr/lib/python{version}"
        sources = (f"/build/python{version}-{version}.4/Python", "./build/../Objects")
        return Machine(
            self._home(user), "/usr/local/", python, site, "/usr/local/bin", "/", sources
        )

    def _conda(self, user: str, version: str) -> Machine:
        home = self._home(user)
        root = self.one(
            *("/opt/conda", f"/home/{user}/miniconda3/envs/ml", f"{home}/anaconda3"),
            *(f"/home/{user}/.conda/envs/{self.word()}", "/julia/libs/mambaforge/envs/x"),
        )
        built = ("/croot/python-split_17/work/Python", "/usr/local/src/conda/python-3/Objects")
        return self._unix(home, root, version, built)

    def _unix(self, home: str, root: str, version: str, built: tuple[str, ...]) -> Machine:
        lib = f"{root}/lib/python{version}"
        return Machine(home, f"{root}/", lib, f"{lib}/site-packages", f"{root}/bin", "/", built)

    def _venv(self, user: str, version: str) -> Machine:
        home = self._home(user)
        root = self.one(f"{home}/.venv", f"{home}/venv", "/opt/venv", f"{home}/env/ml", "/venv")
        at = self._unix(home, root, version, ("??",))
        at.python = f"/usr/lib/python{version}"
        return at

    def _uv(self, user: str, version: str) -> Machine:
        at = self._venv(user, version)
        at.python = (
            f"/root/.local/share/uv/python/cpython-{version}.1-linux-x86_64-gnu/lib/python{version}"
        )
        if self.chance(0.3):
            at.site = f"/home/{user}/.cache/uv/archive-v0/Xy9{self.rng.randint(0, 999)}"
        return at

    def _pyenv(self, user: str, version: str) -> Machine:
        root = f"/home/{user}/.pyenv/versions/{version}.12"
        if self.chance(0.3):
            root += f"/envs/{self.word()}"
        return self._unix(self._home(user), root, version, (f"/opt/build/Python-{version}",))

    def _poetry(self, user: str, version: str) -> Machine:
        root = f"/home/{user}/.cache/pypoetry/virtualenvs/{self.word()}-K8dc-py{version}"
        return self._unix(self._home(user), root, version, ("??",))

    def _hosted(self, user: str, version: str) -> Machine:
        home, site = self.rng.choice(
            [
                ("/content", "/usr/local/lib/python3.10/dist-packages"),
                ("/content/drive/My Drive", "/usr/local/lib/python3.10/dist-packages"),
                ("/kaggle/working", "/opt/conda/lib/python3.10/site-packages"),
                (
                    f"/Workspace/Repos/{user}@x.com",
                    "/databricks/python/lib/python3.11/site-packages",
                ),
                (
                    f"/Workspace/Users/{user}@x.com",
                    "/local_disk0/.ephemeral_nfs/envs/pythonEnv-1/lib/python3.11/site-packages",
                ),
                (
                    "/teamspace/studios/this_studio",
                    "/home/zeus/miniconda3/envs/cloudspace/lib/python3.10/site-packages",
                ),
            ]
        )
        prefix = site.partition("lib/python")[0]
        return Machine(home, prefix, f"/usr/lib/python{version}", site, f"{prefix}bin")

    def _mac(self, user: str, version: str) -> Machine:
        root = self.one(
            *(
                f"/Library/Frameworks/Python.framework/Versions/{version}",
                "/opt/homebrew/Caskroom/mambaforge/base",
            ),
            f"/Users/{user}/Library/Caches/pypoetry/virtualenvs/{self.word()}",
        )
        return self._unix(
            f"/Users/{user}/{self.one('Documents', 'git', 'x/y')}", root, version, ("??",)
        )

    def _windows(self, user: str, version: str) -> Machine:
        number = version.replace(".", "")
        home = self.one(rf"C:\Users\{user}\Desktop", "D:", r"E:\work\ml", rf"c:\users\{user}")
        root = self.one(
            *(
                rf"C:\Users\{user}\AppData\Local\Programs\Python\Python{number}",
                rf"C:\Python{number}",
            ),
            *(r"C:\ProgramData\anaconda3", rf"C:\Users\{user}\miniconda3\envs\x", r"D:\miniconda3"),
        )
        lib = root + self.one(r"\Lib", r"\lib")
        prefix = root if self.chance(0.6) else rf"{home}\venv"
        site = lib + r"\site-packages" if prefix == root else rf"{prefix}\Lib\site-packages"
        sources = (rf"C:\A\{number}\s\Objects", r"D:\a\1\s\Python")
        return Machine(home, f"{prefix}\\", lib, site, rf"{prefix}\Scripts", "\\", sources)

    def _portable(self, _user: str, _version: str) -> Machine:
        root = self.one(r"C:\Comfy_portable", r"D:\ai\Comfy-aki-v1.2")
        at = self.one(rf"{root}\python_embeded", rf"{root}\python")
        site = at + r"\Lib\site-packages"
        return Machine(root, f"{at}\\", "", site, at + r"\Scripts", "\\", is_bare=True)

    # ---- what is not the user's

    def stdlib(self, file: str, name: str) -> Line:
        if self.at.is_bare:  # a Python in a zip knows its modules by their names alone
            return self.line("none", file.rpartition("/")[2], name=name)
        return self.line("none", self.at.python, file, name=name)

    def torch(self, *, most: int = 4) -> list[Line]:
        files = [
            *(("linear", "nn/functional.py"), ("_call_impl", "nn/modules/module.py")),
            *(("decorate_context", "utils/_contextlib.py"), ("apply", "autograd/function.py")),
            *(("_fn", "_dynamo/eval_frame.py"), ("wrapper", "optim/optimizer.py")),
            *(("wrapped", "_tensor.py"), ("checkpoint", "utils/checkpoint.py")),
            *(("__call__", "_ops.py"), ("inner", "nn/parallel/distributed.py")),
        ]
        chosen = self.rng.sample(files, self.rng.randint(0, most))
        return [self.line("none", self.at.site, "torch", file, name=name) for name, file in chosen]

    def library(self, name: str = "", count: int = 0) -> list[Line]:
        package = name or self.rng.choice(
            [one for one in LIBRARIES if one not in ("gmlake", "triton")]
        )
        count = count or self.rng.randint(1, 3)
        found = []
        for _ in range(count):
            found.append(self.line("library", self.at.site, package, self.deeper(), self.file()))
            found += self.torch(most=1)
        return found

    def between(self) -> list[Line]:
        """What may stand between two of the user's frames, or between one and the request."""
        kind = self.rng.random()
        if kind < 0.4:
            return self.torch()
        if kind < 0.65:
            return [*self.torch(most=2), *self.library()]
        if kind < 0.7:
            return [self.stdlib("contextlib.py", "inner"), *self.torch(most=1)]
        if kind < 0.75:
            return [Line("__init__  <string>:3", "none"), self.stdlib("copy.py", "deepcopy")]
        if kind < 0.85:
            return [*self.torch(most=1), *self.fetched(), *self.torch(most=2)]
        return []

    def fetched(self) -> list[Line]:
        """Code that was generated, downloaded, or that others wrote and pip put outside."""
        at, home = self.at, self.at.home
        word, letters = (
            self.word(),
            "".join(self.rng.choices("abcdefghijklmnopqrstuvwxyz234567", k=50)),
        )
        kinds = [
            ("none", f"/tmp/torchinductor_me/{letters[:2]}/c{letters}.py"),  # noqa: S108
            ("none", f"/scratch/rank0/{letters[:2]}/c{letters}.py"),
            ("none", "<eval_with_key>.42"),
            ("none", "<attrs generated forward net.Config>"),
            ("none", at.join(home, "unsloth_compiled_cache/UnslothSFTTrainer.py")),
            ("none", "<frozen importlib._bootstrap>"),
            (
                "library",
                f"/root/.cache/huggingface/modules/transformers_modules/o/{word}/modeling.py",
            ),
            ("library", f"/home/x/.cache/torch/hub/o_{word}_main/{word}/layers.py"),
            ("library", f"{at.site}{at.sep}{word}-0.1-py3.10.egg{at.sep}{word}{at.sep}core.py"),
            ("none", "/opt/pytorch/pytorch/torch/nn/modules/linear.py"),
        ]
        if at.prefix.startswith(("/opt/", "/venv", "/home")) and not home.startswith(at.prefix):
            kinds.append(("other", f"{at.prefix}src/{word}/{word}/net.py"))
        owner, file = self.rng.choice(kinds)
        return [Line(f"{self.one('call', 'forward')}  {file}:{self.rng.randint(1, 900)}", owner)]

    def native(self, lines: list[Line]) -> list[Line]:
        """Add C frames, as with stacks="all"."""
        inner = [
            *("torch::unwind::unwind()  ??:0", "c10::cuda::CUDACachingAllocator::malloc(int)  :0"),
            *(
                "at::native::addmm_out_cuda_impl  Blas.cpp:0",
                "at::_ops::addmm::call(at::Tensor)  ??:0",
            ),
            *(
                "launch  /home/me/proj/csrc/kernels.cu:88",
                "__pyx_pw_4fast  /home/me/proj/fast.pyx:12",
            ),
            "c10::wrap  /opt/pytorch/pytorch/aten/src/ATen/core/boxing/impl.h:22",
        ]
        calls = ("_PyEval_EvalFrameDefault", "method_vectorcall", "_PyObject_Call", "slot_tp_call")
        woven = [Line(one, "none") for one in inner if self.chance(0.5)]
        for line in lines:
            for call in self.rng.sample(calls, self.rng.randint(0, 3)):
                source = self.rng.choice(self.at.sources)
                place = (
                    "??:0"
                    if source == "??"
                    else f"{source}{self.at.sep}ceval.c:{self.rng.randint(1, 99)}"
                )
                woven.append(Line(f"{call}  {place}", "none"))
            woven.append(line)
        return [*woven, Line("_start  ??:0", "none")] if self.chance(0.7) else woven

    # ---- what starts a program, outermost last

    def starter(self) -> list[Line]:
        at, site = self.at, self.at.site
        runpy = [Line("_run_code  <frozen runpy>:88", "none")]
        if not at.python.startswith("/") or self.chance(0.2):
            return self.rng.choice([[], runpy, [self.stdlib("runpy.py", "_run_code")]])
        module, cli = "<module>", "main"
        kinds = [
            [],
            runpy,
            [
                self.line("none", site, "torch/distributed/run.py", name=cli),
                self.line("none", at.bin, "torchrun", name=module),
            ],
            [
                self.line("library", site, "accelerate/commands/launch.py", name=cli),
                self.line("none", at.bin, "accelerate", name=module),
            ],
            [
                self.line("none", site, "gmlake/commands/run.py"),
                *runpy,
            ],
            [
                self.line(
                    "none", "/pkg/modal/_runtime/container_io_manager.py", name="call_function"
                ),
                self.line("none", "/pkg/modal/_container_entrypoint.py", name=module),
            ],
            [
                self.line("library", site, "ray/_private/worker.py", name="main_loop"),
                self.line("library", site, "ray/_private/workers/default_worker.py", name=module),
            ],
            [
                self.line("library", site, "_pytest/python.py", name="pytest_pyfunc_call"),
                self.line("library", site, "pluggy/_callers.py", name="_multicall"),
                self.line("none", at.bin, "pytest", name=module),
            ],
            [
                self.line(
                    "library",
                    "/root/.vscode-server/extensions/ms-python.debugpy-2024/bundled/libs/debugpy/server/cli.py",
                    name="run_file",
                ),
                *runpy,
            ],
            [
                self.line(
                    "library", "/opt/pycharm/plugins/python/helpers/pydev/pydevd.py", name=module
                )
            ],
            [
                self.line("library", site, "click/core.py"),
                self.line("library", site, "hydra/main.py"),
            ],
            [
                self.stdlib("multiprocessing/process.py", "run"),
                self.stdlib("multiprocessing/spawn.py", "_main"),
                Line("<module>  <string>:1", "none"),
            ],
            [self.stdlib("threading.py", "run"), self.stdlib("threading.py", "_bootstrap_inner")],
        ]
        return self.rng.choice(kinds)

    def kernel(self) -> list[Line]:
        site = self.at.site
        return [
            self.line("library", site, "IPython/core/interactiveshell.py", name="run_code"),
            self.line("library", site, "ipykernel/zmqshell.py", name="run_cell"),
            self.line("library", site, "ipykernel_launcher.py", name="<module>"),
        ]

    def cell(self) -> str:
        number = self.rng.randint(1, 10**6)
        if self.at.sep == "\\":
            return rf"C:\Users\me\AppData\Local\Temp\ipykernel_{number}\{number * 7}.py"
        return self.one(
            f"/tmp/ipykernel_{number}/{number * 7}.py",  # noqa: S108 (a name)
            *(f"<ipython-input-{number}-abcdef123456>", f"<command-{number}>", "<stdin>"),
            *(f"/root/.ipykernel/15/command-{number}-12", "/tmp/marimo_4/__marimo__cell_Hb_.py"),  # noqa: S108
        )

    # ---- programs: the user's frames, innermost first, and what else is innermost of them

    def draw(self) -> Drawn:
        self.at = self.machine()
        layouts: tuple[tuple[int, Callable[[], list[Line]]], ...] = (
            *((3, self.flat), (3, self.package), (3, self.source), (3, self.workspace)),
            *((2, self.monorepo), (2, self.siblings), (3, self.notebook), (2, self.checkout)),
            *((2, self.vendored), (2, self.below_copies), (1, self.bazel), (1, self.zipped)),
            *((2, self.worker), (1, self.text), (1, self.targeted), (1, self.packed)),
            *((2, self.library_alone), (1, self.torch_alone), (1, self.linked), (1, self.plain)),
        )
        ((_, made),) = self.rng.choices(layouts, [weight for weight, _ in layouts])
        lines = made()
        if self.chance(0.4):
            lines = self.native(lines)
        last = max(
            (n for n, one in enumerate(lines) if one.owner in ("user", "library")), default=0
        )
        if self.chance(0.1) and made not in (self.vendored, self.targeted, self.text):
            lines = lines[: last + 1]  # as deep as PyTorch was told to look
        return Drawn(made.__name__, tuple(lines))

    def calls(self, own: list[Line], starter: list[Line] | None = None) -> list[Line]:
        """Put own frames in a path: what they call, what is between them, what started them."""
        lines: list[Line] = []
        for line in own:
            lines += [*self.between(), line]
        return [*lines, *(self.starter() if starter is None else starter)]

    def root(self) -> str:
        return self.at.join(self.at.home, self.one("", self.word(), f"{self.word()}/{self.word()}"))

    def script(self, folder: str) -> list[Line]:
        file = self.at.join(folder, self.one("train.py", "main.py", "run.py", "bench.py", "app.py"))
        found = [self.line("user", file, name="main")] if self.chance(0.5) else []
        return [*found, self.line("user", file, name="<module>")]

    def within(self, folder: str, most: int = 3) -> list[Line]:
        count = self.rng.randint(1, most)
        return [self.line("user", folder, self.deeper(), self.file()) for _ in range(count)]

    def flat(self) -> list[Line]:
        root = self.root()
        own = self.within(root, 2) if self.chance(0.7) else []
        return self.calls([*own, *self.script(root)])

    def package(self) -> list[Line]:
        """A folder with a package of its own name, or of a library's."""
        name = self.one(*WORDS, *LIBRARIES)
        root = self.at.join(self.at.home, name)
        package = self.at.join(root, name.replace("-", "_").lower())
        scripts = self.one(root, *(self.at.join(root, one) for one in ("scripts", "tools", "a/b")))
        return self.calls([*self.within(package), *self.script(scripts)])

    def source(self) -> list[Line]:
        name, root = self.word(), self.root()
        code = self.at.join(root, self.one("src", "python", "lib"), name.lower())
        scripts = self.at.join(root, self.one("scripts", "examples/pytorch/lm", "notebooks", "x"))
        return self.calls([*self.within(code), *self.script(scripts)])

    def workspace(self) -> list[Line]:
        """Several packages in one repository, each in a folder of its own name."""
        root, name = self.root(), self.one(*WORDS, *LIBRARIES)
        middle = self.one("", "packages", "libs", "projects")
        code = self.at.join(root, middle, name, self.one("", "src"), name.replace("-", "_"))
        other = self.at.join(root, self.one("apps/train", "lab_bench", "services/x/src/x"))
        own = [*self.within(code), *(self.within(other, 1) if self.chance(0.5) else [])]
        return self.calls([*own, *self.script(other)])

    def monorepo(self) -> list[Line]:
        root = self.root()
        teams = [self.at.join(root, self.word(), self.deeper()) for _ in range(3)]
        own = [line for team in teams for line in self.within(team, 2)]
        return self.calls([*own, *self.script(teams[-1])])

    def siblings(self) -> list[Line]:
        """Two projects of the user's, or a clone that is installed as editable, anywhere."""
        other = self.at.join(self.at.home, self.one("part1", "lib-a", *LIBRARIES), self.deeper())
        if self.at.sep == "/" and self.chance(0.4):
            other = f"/opt/{self.one('Megatron-LM', 'NeMo', 'sglang/python')}/{self.deeper(1)}"
        root = self.at.join(self.at.home, self.one("part2", "exp"), self.deeper())
        return self.calls([*self.within(other), *self.script(root)])

    def notebook(self) -> list[Line]:
        cell = self.cell()
        clone = self.at.join(self.at.home, self.one(*WORDS, *LIBRARIES), self.deeper())
        own = [] if self.chance(0.4) else self.within(clone)
        cells = [self.line("user", cell, name="<module>")]
        if self.chance(0.4):
            cells.insert(0, self.line("user", cell, name="train"))
        return self.calls([*own, *cells], self.kernel())

    def checkout(self) -> list[Line]:
        """Who develops a framework starts it from its checkout."""
        name = self.rng.choice([one for one in LIBRARIES if one not in ("gmlake", "triton")])
        root = self.at.join(self.at.home, f"{name}{self.one('', '-main', '-fork')}")
        code = self.at.join(root, self.one("", "src", "python"), name)
        place = self.one("benchmarks", "examples/pytorch/x", "tests/unit", "")
        return self.calls([*self.within(code), *self.script(self.at.join(root, place))])

    def vendored(self) -> list[Line]:
        root, copies, name = self.root(), self.rng.choice(COPIES), self.word()
        copy = self.at.join(root, self.one("", "src", "pkg"), copies, name, self.deeper())
        if self.at.sep == "/" and self.chance(0.15):
            copy = f"/opt/{copies}/{name}/{self.deeper()}"
        theirs = [self.line("other", copy, self.file()) for _ in range(self.rng.randint(1, 2))]
        own = [*(self.within(root, 2) if self.chance(0.6) else []), *self.script(root)]
        return [*self.torch(), *theirs, *self.calls(own, None if self.chance(0.5) else [])]

    def below_copies(self) -> list[Line]:
        """A project of the user's in a folder of that name: all of it lies there."""
        parent = self.at.join(self.at.home, self.rng.choice(COPIES), self.word())
        return self.calls([*self.within(parent), *self.script(parent)], [])

    def bazel(self) -> list[Line]:
        self.at = self._debian("me", "3.11")
        out = "/home/me/.cache/bazel/_bazel_me/a1b2/execroot/ws/bazel-out/k8-opt/bin"
        runfiles = f"{out}/{self.deeper()}/train.runfiles"
        self.at.site = (
            f"{runfiles}/{self.one('pip_torch', 'rules_python~~pip~pip_311_torch')}/site-packages"
        )
        self.at.python = f"{runfiles}/python_3_11/lib/python3.11"
        return self.calls([*self.within(f"{runfiles}/ws"), *self.script(f"{runfiles}/ws/app")], [])

    def zipped(self) -> list[Line]:
        archive = self.at.join(self.at.home, self.one("train.pyz", "app.zip", "x.par"))
        main = self.line("user", archive, "__main__.py", name="<module>")
        return self.calls([*self.within(archive), main], [])

    def worker(self) -> list[Line]:
        """A task of Ray's, or of a cluster: the user's code was copied to where it runs."""
        self.at = self._conda("ray", "3.10")
        root = self.one(
            "/tmp/ray/session_2025-01-01_1/runtime_resources/working_dir_files/_ray_pkg_1f2e",  # noqa: S108
            *("/mnt/azureml/cr/j/0a1b/exe/wd", "/opt/job/rl/rl", "/var/task"),
        )
        starter = self.rng.choice(
            [self.library("ray", 3), [*self.library("click", 2), *self.kernel()]]
        )
        return self.calls(self.within(root), starter)

    def text(self) -> list[Line]:
        place = "<string>"
        own = [self.line("user", place, name=self.one("f", "<module>"))]
        return [*self.torch(), *own, self.line("user", place, name="<module>")]

    def targeted(self) -> list[Line]:
        """Packages that lie in a folder of another name: pip install --target."""
        self.at.site = self.at.join(self.at.home, self.one("pypkgs", "libs39"))
        name = self.word()
        theirs = [self.line("other", self.at.site, name, self.file())]
        root = self.at.join(self.at.home, "exp")
        torch = self.line("none", self.at.site, "torch/nn/modules/module.py", name="_call_impl")
        return [torch, *theirs, torch, *self.within(root, 2), *self.script(root)]

    def packed(self) -> list[Line]:
        """An environment within the project, and packages in it that pip cloned."""
        root = self.root()
        self.at = self._unix(
            self.at.home, self.at.join(root, self.one(".venv", "env")), "3.12", ("??",)
        )
        if "\\" in root:
            return self.flat()
        theirs = self.line("other", f"{self.at.prefix}src/{self.word()}/net/{self.file()}")
        own = [*self.within(root, 2), *self.script(root)]
        torch = self.line("none", self.at.site, "torch/nn/modules/module.py", name="_call_impl")
        return [torch, *([theirs] if self.chance(0.5) else []), torch, *own]

    def library_alone(self) -> list[Line]:
        """A server or a recipe that was started by its own command."""
        name = self.one("vllm", "sglang", "torchtune", "axolotl", "tgi_server")
        ends = [self.line("none", self.at.bin, name, name="<module>")]
        if self.at.sep == "\\":
            ends = [self.line("none", self.at.bin, f"{name}.exe", "__main__.py", name="<module>")]
        if self.chance(0.4):
            ends = [self.stdlib("threading.py", "run"), *self.library("ray", 1)]
        below = self.library("flash_attn", 1) if self.chance(0.3) else []
        return [*self.torch(), *below, *self.library(name, self.rng.randint(2, 4)), *ends]

    def torch_alone(self) -> list[Line]:
        named = self.line("none", self.at.site, "torch/optim/adamw.py", name="step")
        return [*self.torch(most=2), named, self.stdlib("threading.py", "run")]

    def linked(self) -> list[Line]:
        """One project by two ways: a link, and where it leads."""
        if self.at.sep == "\\":
            return self.flat()
        name = self.word()
        own = self.within(f"/mnt/nfs-hot-02/{name}/code")
        return self.calls([*own, *self.script(self.at.join(self.at.home, name))])

    def plain(self) -> list[Line]:
        """A script that is run by its name, without an ending, in a folder of that name or not."""
        if self.at.sep == "\\":
            return self.flat()
        root = self.root()
        file = f"{root}/{self.one('bin/train', 'train', 'tools/launch')}"
        own = [self.line("user", file, name="main"), self.line("user", file, name="<module>")]
        return self.calls([*(self.within(root, 2) if self.chance(0.5) else []), *own], [])
