"""Draws call paths as recordings of PyTorch have them, with the line that a person would name.

Folders, files, functions and depths are drawn; the shapes are of real machines: where Python, its C
sources, libraries and projects lie, what launches a program, what is generated, and what an
unwinder adds between.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

Frame = str
Path = list[Frame]
"""Innermost first, each "function  file:line"."""

WORDS: Final = (
    *("alpaca", "bolt", "cedar", "delta", "ember", "falcon", "garnet", "heron", "iris", "juniper"),
    *("koala", "lotus", "maple", "nova", "otter", "pine", "quartz", "raven", "sable", "tulip"),
    *("torch", "my-model", "llm", "nn", "lib", "bin.d", "python3.11-try", "c10", "GPT 2", "utils"),
)
FILES: Final = ("model", "losses", "layers", "attention", "data", "engine", "step", "train_utils")
CALLS: Final = ("forward", "step", "compute_loss", "load", "build", "<lambda>", "Net.forward")
USERS: Final = ("me", "anna", "j.doe", "ubuntu", "李")


CUT: Final = ("script", "package", "windows", "checkout", "compiled", "worker", "trainer")
"""Recordings of which some paths have lost their outer frames."""

PLACES: Final = (
    *("/usr/src/app", "/app", "/code", "/srv/train", "/opt/ml/code", "/kaggle/working"),
    *("/content/repo", "/workspaces/repo", "/home/user/app", "/var/task", "/root"),
    "/mnt/azureml/cr/j/0a1b2c3d4e5f/exe/wd",
    "/mnt/batch/tasks/shared/LS_root/jobs/ws/azureml/run_1/wd/azureml/run_1",
    "/tmp/ray/session_2024-05-01/runtime_resources/working_dir_files/_ray_pkg_1f2e",  # noqa: S108
    "/net/scratch2/u/me/exp/17",
    "/gpfs/alpine/proj-shared/abc123/me/llm",
    "/lustre/fsw/portfolios/x/users/me/code/llm",
)
"""Where hosted and shared machines keep the user's program."""


@dataclass(frozen=True)
class Drawn:
    """A recording's call paths, each with the frames that are right: any of them; none if empty."""

    kind: str
    paths: tuple[tuple[Frame, ...], ...]
    right: tuple[frozenset[Frame], ...]


@dataclass
class Machine:
    """Where Python and its libraries lie."""

    home: str
    python: str
    site: str
    sources: tuple[str, ...]
    bin: str
    sep: str = "/"
    runpy: str = ""
    extra: list[str] = field(default_factory=list)

    def join(self, *parts: str) -> str:
        return self.sep.join(part for each in parts for part in each.split("/"))


class Stacks:
    """Draws recordings from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 (test data)

    # ---- parts

    def one(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def chance(self, part: float) -> bool:
        return self.rng.random() < part

    def word(self) -> str:
        return self.rng.choice(WORDS)

    def frame(self, name: str, file: str, line: int | None = None) -> Frame:
        return f"{name}  {file}:{self.rng.randint(1, 2500) if line is None else line}"

    def machine(self, name: str = "") -> Machine:  # noqa: PLR0911 (a way to install each)
        user = self.rng.choice(USERS)
        home = self.one(f"/home/{user}", "/root", f"/Users/{user}", f"/data/{user}", "/workspace")
        minor = self.rng.randint(8, 13)
        version = f"3.{minor}"
        patch = f"{version}.{self.rng.randint(0, 18)}"
        digits = self.rng.randint(10**9, 10**10)
        name = name or self.one("conda", "pyenv", "debian", "uv", "venv", "user", "databricks")
        if name == "windows":
            home = self.one(rf"C:\Users\{user}", "D:", r"E:\work")
            root = self.one(
                rf"C:\Users\{user}\AppData\Local\Programs\Python\Python3{minor}",
                r"C:\ProgramData\anaconda3",
                rf"C:\Users\{user}\miniconda3\envs\ml",
                rf"C:\Python3{minor}",
                r"D:\ComfyUI_windows_portable\python_embeded",
            )
            library = root + self.one(r"\Lib", r"\lib")
            site = library + r"\site-packages"
            if self.chance(0.3):
                site = rf"{home}\{self.word()}\venv\Lib\site-packages"
            compiled = (rf"C:\A\{minor}\s\Objects\call.c", r"D:\a\1\s\Python\ceval.c", "??")
            return Machine(home, library, site, compiled, root + r"\Scripts", "\\")
        if name == "conda":
            root = self.one("/opt/conda", f"{home}/miniconda3", f"{home}/anaconda3/envs/ml")
            lib = f"{root}/lib/python{version}"
            built = self.one(
                f"/usr/local/src/conda/python-{patch}",
                f"/croot/python-split_{digits}/work",
                f"/home/conda/feedstock_root/build_artifacts/python-split_{digits}/work",
            )
            return Machine(home, lib, f"{lib}/site-packages", (built,), f"{root}/bin")
        if name == "pyenv":
            root = f"{home}/.pyenv/versions/{patch}"
            built = self.one(
                f"/tmp/python-build.{digits}.4711/Python-{patch}",  # noqa: S108 (a name)
                f"{home}/.pyenv/sources/{patch}/Python-{patch}",
            )
            lib = f"{root}/lib/python{version}"
            return Machine(home, lib, f"{lib}/site-packages", (built,), f"{root}/bin")
        if name == "uv":
            root = f"{home}/.local/share/uv/python/cpython-{patch}-linux-x86_64-gnu"
            site = self.one(
                f"{home}/.cache/uv/archive-v0/x{digits}Yz/lib/python{version}/site-packages",
                f"{home}/.cache/uv/environments-v2/s-{digits}/lib/python{version}/site-packages",
                f"{home}/{self.word()}/.venv/lib/python{version}/site-packages",
                f"{home}/.cache/uv/archive-v0/x{digits}Yz",
            )
            built = f"/build/Python-{patch}"
            return Machine(home, f"{root}/lib/python{version}", site, (built, "??"), f"{root}/bin")
        lib, sources = (
            f"/usr/lib/python{version}",
            (f"/build/python{version}-{patch}", "./build/.."),
        )
        if name == "venv":
            where = self.one(f"{home}/{self.word()}/.venv", f"{home}/env", "/opt/venv")
            site = f"{where}/{self.one('lib', 'lib64')}/python{version}/site-packages"
            return Machine(home, lib, site, sources, f"{where}/bin")
        if name == "user":
            site = f"{home}/.local/lib/python{version}/site-packages"
            return Machine(home, lib, site, ("??", "thread48.o"), f"{home}/.local/bin")
        if name == "databricks":
            root = self.one("/databricks/python", "/local_disk0/.ephemeral_nfs/envs/pythonEnv-1")
            site = f"{root}/lib/python{version}/site-packages"
            return Machine("/Workspace/Users/a@b.com", lib, site, sources, f"{root}/bin")
        site = self.one(
            f"/usr/local/lib/python{version}/dist-packages", "/usr/lib/python3/dist-packages"
        )
        return Machine(home, lib, site, sources, self.one("/usr/bin", "/usr/local/bin"))

    def torch(self, at: Machine) -> Path:
        """Frames of PyTorch's Python between the user's line and the allocator."""
        files = [
            ("linear", "nn/functional.py"),
            ("forward", "nn/modules/linear.py"),
            ("_call_impl", "nn/modules/module.py"),
            ("_wrapped_call_impl", "nn/modules/module.py"),
            ("einsum", "functional.py"),
            ("decorate_context", "utils/_contextlib.py"),
            ("wrapper", "optim/optimizer.py"),
            ("_fn", "_dynamo/eval_frame.py"),
            ("apply", "autograd/function.py"),
            ("wrapped", "_tensor.py"),
            ("to", "nn/modules/module.py"),
        ]
        chosen = self.rng.sample(files, self.rng.randint(0, 4))
        return [self.frame(name, at.join(at.site, "torch", file)) for name, file in chosen]

    def native_torch(self) -> Path:
        found = [
            "torch::unwind::unwind()  ??:0",
            "torch::CapturedTraceback::gather(bool, bool, bool)  ??:0",
            "c10::cuda::CUDACachingAllocator::Native::malloc(int, unsigned long)  :0",
            "at::detail::empty_generic(c10::ArrayRef<long>)  ??:0",
            "at::native::addmm_out_cuda_impl  Blas.cpp:0",
            "at::(anonymous namespace)::wrapper_CUDA_addmm  RegisterCUDA.cpp:0",
            "at::_ops::addmm::call(at::Tensor const&)  ??:0",
            "torch::autograd::THPVariable_einsum  python_torch_functions_0.cpp:0",
            "c10::impl::wrap  /opt/pytorch/pytorch/aten/src/ATen/core/boxing/impl.h:22",
            "launch  /home/me/proj/csrc/kernels.cu:88",
            "std::function<void ()>::operator()  /usr/include/c++/11/functional:590",
            "pybind11::cpp_function::dispatcher(_object*)  /w/third_party/pybind11/pybind11.h:1",
            "_custom_eval_frame_shim  eval_frame.c:0",
            "__pyx_pw_4fast  /home/me/proj/fast.pyx:12",
        ]
        kept = [one for one in found[2:] if self.chance(0.5)]
        return found[: self.rng.randint(0, 2)] + kept

    def interpreter(self, at: Machine) -> Path:
        """C frames of Python between two frames of Python."""
        names = {
            "cfunction_call": "Objects/methodobject.c",
            "_PyObject_MakeTpCall": "Objects/call.c",
            "_PyEval_EvalFrameDefault": self.one("Python/ceval.c", "Python/generated_cases.c.h"),
            "method_vectorcall": "Objects/classobject.c",
            "slot_tp_call": "Objects/typeobject.c",
            "_PyFunction_Vectorcall": "Objects/call.c",
            "PyObject_Call": "??",
        }
        found = []
        for name in self.rng.sample(sorted(names), self.rng.randint(1, 4)):
            source = self.rng.choice(at.sources)
            if source == "??" or names[name] == "??":
                found.append(f"{name}  ??:0")
            elif source.endswith((".c", ".o")):
                found.append(self.frame(name, source))
            else:
                found.append(self.frame(name, f"{source}/{names[name]}"))
        return found

    def bottom(self, at: Machine) -> Path:
        """What lies below the outermost frame of Python in a path with C frames."""
        return [
            self.frame("run_mod", f"{at.sources[0]}/Python/pythonrun.c"),
            "Py_BytesMain  ??:0",
            "__libc_start_call_main  ../sysdeps/nptl/libc_start_call_main.h:58",
            "__libc_start_main_impl  ../csu/libc-start.c:392",
            "_start  ??:0",
        ]

    def launcher(self, at: Machine) -> Path:
        """What runs the script, outermost last."""
        runpy = at.join(at.python, "runpy.py")
        runs = [
            [self.frame("_run_code", runpy), self.frame("_run_module_as_main", runpy)],
            ["_run_code  <frozen runpy>:88", "_run_module_as_main  <frozen runpy>:198"],
        ]
        if at.sep == "\\":
            return self.rng.choice([[], *runs])
        torchrun = [
            self.frame("run", f"{at.site}/torch/distributed/run.py"),
            self.frame("wrapper", f"{at.site}/torch/distributed/elastic/multiprocessing/errors.py"),
            f"<module>  {at.bin}/torchrun:8",
        ]
        gmlake = [
            self.frame("run_path", runpy),
            self.frame("run", f"{at.site}/gmlake/commands/run.py"),
            *runs[1],
        ]
        debugger = [
            self.frame(
                "_run_code",
                f"{at.home}/.vscode-server/extensions/ms-python.debugpy-2024.6.0/"
                "bundled/libs/debugpy/_vendored/pydevd/_pydevd_bundle/pydevd_runpy.py",
            ),
            self.frame(
                "run_file",
                f"{at.home}/.vscode-server/extensions/ms-python.debugpy-2024.6.0/"
                "bundled/libs/debugpy/server/cli.py",
            ),
            *runs[1],
        ]
        pycharm = [
            self.frame(
                "execfile", "/opt/pycharm-2024.1/plugins/python/helpers/pydev/_pydev_imps/_e.py"
            ),
            self.frame("<module>", "/opt/pycharm-2024.1/plugins/python/helpers/pydev/pydevd.py"),
        ]
        usual: list[Path] = [[], [], [], *runs, torchrun, gmlake, debugger, pycharm]
        return self.rng.choice(usual)

    def thread(self, at: Machine) -> Path:
        file = at.join(at.python, "threading.py")
        return [self.frame("run", file), self.frame("_bootstrap_inner", file)]

    def weave(self, at: Machine, path: Path, *, is_native: bool | None = None) -> tuple[Frame, ...]:
        """Add C frames, as with stacks="all", in some recordings."""
        if is_native is None:
            is_native = self.chance(0.5)
        if not is_native:
            return tuple(path)
        woven = self.native_torch()
        for frame in path:
            woven += [*(self.interpreter(at) if self.chance(0.8) else []), frame]
        return tuple(woven + (self.bottom(at) if self.chance(0.7) else []))

    # ---- recordings

    def recording(self) -> Drawn:
        kinds: tuple[tuple[int, Callable[[], Drawn]], ...] = (
            (6, self.script),
            (4, self.package),
            (3, self.notebook),
            (2, self.notebook_with_package),
            (4, self.windows),
            (3, self.library_alone),
            (4, self.checkout),
            (3, self.editable),
            (2, self.vendored),
            (4, self.compiled),
            (2, self.native_only),
            (1, self.torch_only),
            (2, self.prompt),
            (2, self.databricks),
            (2, self.worker),
            (1, self.bazel),
            (1, self.torch_from_source),
            (3, self.trainer),
            (1, self.plain_script),
            (1, self.nested),
            (1, self.helpers),
        )
        weights = [weight for weight, _ in kinds]
        (made,) = self.rng.choices([one for _, one in kinds], weights)
        return made()

    def drawn(self, kind: str, at: Machine, made: Callable[[], tuple[Path, set[Frame]]]) -> Drawn:
        paths, right = [], []
        is_native = self.chance(0.5)
        for _ in range(self.rng.randint(1, 5)):
            path, frames = made()
            if frames and kind in CUT and self.chance(0.1):  # as deep as PyTorch was told to look
                path = path[: 1 + max(map(path.index, frames))]
            paths.append(self.weave(at, path, is_native=is_native))
            right.append(frozenset(frames))
        return Drawn(kind, tuple(paths), tuple(right))

    def root(self, at: Machine) -> str:
        if at.sep == "/" and self.chance(0.3):
            return self.rng.choice(PLACES)
        return at.join(at.home, self.one("", "code/", "projects/", "external/") + self.word())

    def script(self) -> Drawn:
        """A script with modules beside and below it."""
        return self._script("script", self.machine())

    def windows(self) -> Drawn:
        return self._script("windows", self.machine("windows"))

    def _script(self, kind: str, at: Machine) -> Drawn:
        root, launcher = self.root(at), self.launcher(at)
        script = at.join(root, self.one("train.py", "main.py", "run.py", "app.py"))

        def made() -> tuple[Path, set[Frame]]:
            inner = [
                self.frame(
                    self.rng.choice(CALLS),
                    at.join(
                        root, self.one("", "models/", "src/x/") + f"{self.rng.choice(FILES)}.py"
                    ),
                )
                for _ in range(self.rng.randint(0, 3))
            ]
            own = [*inner, self.frame("main", script), self.frame("<module>", script)]
            cut = self.between(at, own)
            return [*self.torch(at), *cut, *launcher], {own[0]}

        return self.drawn(kind, at, made)

    def between(self, at: Machine, own: Path) -> Path:
        """Put frames of libraries between the user's, never innermost."""
        result = own[:1]
        for frame in own[1:]:
            if self.chance(0.4):
                result += self.torch(at)
            if self.chance(0.2):
                result.append(self.frame("train", at.join(at.site, "transformers/trainer.py")))
            if self.chance(0.1):
                result.append(self.frame("__init__", "<string>", 3))
            if self.chance(0.1):
                result.append(
                    self.frame("_call_with_frames_removed", "<frozen importlib._bootstrap>")
                )
            if self.chance(0.1):
                result.append(self.frame("inner", at.join(at.python, "contextlib.py")))
            result.append(frame)
        return result

    def package(self) -> Drawn:
        """A script in a folder of scripts, a package of the project's name elsewhere in it."""
        at = self.machine()
        name = self.one("alpaca", "bolt", "cedar", "delta", "heron", "my-model")
        root = at.join(at.home, name)
        package = name.replace("-", "_")
        code = self.one(f"{root}/{package}", f"{root}/src/{package}", f"{root}/python/{package}")
        script = f"{root}/{self.one('scripts', 'examples', 'tools', 'examples/pytorch')}/train.py"
        if self.chance(0.3):
            script = f"{code}/cli/train.py"  # python -m package.cli.train
        launcher = self.launcher(at)

        def made() -> tuple[Path, set[Frame]]:
            own = [
                *(
                    self.frame(
                        self.rng.choice(CALLS),
                        f"{code}/{self.one('models', 'core')}/{self.rng.choice(FILES)}.py",
                    )
                    for _ in range(self.rng.randint(1, 3))
                ),
                self.frame("<module>", script),
            ]
            return [*self.torch(at), *self.between(at, own), *launcher], {own[0]}

        return self.drawn("package", at, made)

    def kernel(self, at: Machine) -> Path:
        lib = at.site
        return [
            self.frame("run_code", at.join(lib, "IPython/core/interactiveshell.py")),
            self.frame("run_cell", at.join(lib, "ipykernel/zmqshell.py")),
            self.frame("start", at.join(lib, "tornado/platform/asyncio.py")),
            self.frame("_run_once", at.join(at.python, "asyncio/base_events.py")),
            self.frame("<module>", at.join(lib, "ipykernel_launcher.py")),
            *self.rng.choice([[], ["_run_code  <frozen runpy>:88"]]),
        ]

    def cell(self, at: Machine) -> str:
        number = self.rng.randint(1, 10**6)
        if at.sep == "\\":
            return self.one(
                rf"{at.home}\AppData\Local\Temp\ipykernel_{number}\{number * 7}.py",
                f"<ipython-input-{number}-abcdef123456>",
            )
        return self.one(
            f"/tmp/ipykernel_{number}/{number * 7}.py",  # noqa: S108 (a name)
            f"/var/folders/x1/abc/T/ipykernel_{number}/{number * 7}.py",
            f"<ipython-input-{number}-abcdef123456>",
        )

    def notebook(self) -> Drawn:
        at = self.machine(self.one("conda", "debian", "uv", "windows", ""))
        kernel = self.kernel(at)

        def made() -> tuple[Path, set[Frame]]:
            cell = self.frame("<module>", self.cell(at))
            inner = [
                self.frame(self.rng.choice(CALLS), self.cell(at))
                for _ in range(self.rng.randint(0, 2))
            ]
            library = [self.frame("fit", at.join(at.site, "lightning/pytorch/trainer/trainer.py"))]
            own = [*inner, cell]
            below = library if self.chance(0.3) else []
            return [*self.torch(at), *below, *self.between(at, own), *kernel], {own[0]}

        return self.drawn("notebook", at, made)

    def notebook_with_package(self) -> Drawn:
        """The code of one's own project beside a notebook is one's own; transformers is not."""
        at = self.machine("conda")
        kernel, root = self.kernel(at), self.root(at)
        is_library = self.chance(0.4)
        file = f"{root}/src/{self.rng.choice(FILES)}.py"
        if is_library:
            file = self.one(
                f"{at.home}/transformers/src/transformers/models/llama/modeling_llama.py",
                f"{at.home}/diffusers/src/diffusers/models/unet.py",
                f"{at.home}/code/vllm/vllm/worker/worker.py",
                f"{at.home}/flash-attention/flash_attn/flash_attn_interface.py",
            )

        def made() -> tuple[Path, set[Frame]]:
            cell = self.frame("<module>", self.cell(at))
            inner = self.frame("forward", file)
            return [*self.torch(at), inner, cell, *kernel], {cell if is_library else inner}

        return self.drawn("notebook with package", at, made)

    def library_alone(self) -> Drawn:
        """A server started by its own command: nothing in the path is the user's."""
        at = self.machine()
        trees = {
            "vllm": ("worker/cache_engine.py", "worker/worker.py", "engine/llm_engine.py"),
            "sglang": ("srt/mem_cache/memory_pool.py", "srt/managers/scheduler.py"),
            "trl": ("trainer/sft_trainer.py", "scripts/sft.py"),
            "axolotl": ("core/trainers/base.py", "cli/train.py"),
            "tgi_server": ("models/cache.py", "cli.py"),
        }
        name = self.rng.choice(sorted(trees))
        command = f"<module>  {at.bin}/{name}:8"
        outer = [
            self.frame("invoke", f"{at.site}/click/core.py"),
            self.frame("main", f"{at.site}/ray/_private/workers/default_worker.py"),
            self.frame("_run_once", f"{at.python}/asyncio/base_events.py"),
        ]

        def made() -> tuple[Path, set[Frame]]:
            files = trees[name]
            inner = [
                self.frame("_allocate_kv_cache" if not n else "run", f"{at.site}/{name}/{file}")
                for n, file in enumerate(files)
            ]
            helpers = [self.frame("forward", f"{at.site}/flash_attn/flash_attn_interface.py")]
            below = helpers if self.chance(0.3) else []
            launch = [one for one in outer if self.chance(0.5)]
            ends = self.thread(at) if self.chance(0.3) else [command]
            return [*self.torch(at), *below, *inner, *launch, *ends], {inner[0]}

        return self.drawn("library alone", at, made)

    def checkout(self) -> Drawn:
        """Somebody works in a checkout of a framework, and starts it from there."""
        at = self.machine(self.one("conda", "venv", "debian", "user"))
        home = self.one("/workspace", at.home, f"{at.home}/code", "/opt", "/fsx/users/me")
        repository, files, script = self.rng.choice(
            [
                (
                    "Megatron-LM",
                    ("megatron/core/tensor_parallel/layers.py", "megatron/training/training.py"),
                    "pretrain_gpt.py",
                ),
                (
                    "vllm",
                    ("vllm/worker/cache_engine.py", "vllm/engine/llm_engine.py"),
                    "vllm/entrypoints/api_server.py",
                ),
                ("vllm", ("vllm/worker/cache_engine.py",), "examples/offline_inference.py"),
                (
                    "verl",
                    ("verl/workers/fsdp_workers.py", "verl/single_controller/base/decorator.py"),
                    "",
                ),
                (
                    "sglang",
                    ("python/sglang/srt/model_executor/model_runner.py",),
                    "python/sglang/launch_server.py",
                ),
                ("torchtitan", ("torchtitan/models/llama/model.py",), "torchtitan/train.py"),
                ("nanoGPT", ("model.py",), "train.py"),
                (
                    "transformers",
                    ("src/transformers/models/llama/modeling_llama.py",),
                    "examples/pytorch/language-modeling/run_clm.py",
                ),
            ]
        )
        launcher = self.launcher(at)
        ray = [
            self.frame("main_loop", f"{at.site}/ray/_private/worker.py"),
            self.frame("<module>", f"{at.site}/ray/_private/workers/default_worker.py"),
        ]

        def made() -> tuple[Path, set[Frame]]:
            own = [
                self.frame(self.rng.choice(CALLS), f"{home}/{repository}/{file}") for file in files
            ]
            if script:
                own.append(self.frame("<module>", f"{home}/{repository}/{script}"))
            return [*self.torch(at), *self.between(at, own), *(launcher if script else ray)], {
                own[0]
            }

        return self.drawn("checkout", at, made)

    def editable(self) -> Drawn:
        """A script calls a library that is installed from a checkout elsewhere."""
        at = self.machine()
        script = f"{self.root(at)}/train.py"
        where = self.one(at.home, f"{at.home}/src", "/opt", "/workspace", f"{at.home}/code/deps")
        file = self.one(
            "transformers/src/transformers/models/llama/modeling_llama.py",
            "flash-attention/flash_attn/flash_attn_interface.py",
            "Megatron-LM/megatron/core/tensor_parallel/layers.py",
            "DeepSpeed/deepspeed/runtime/engine.py",
            "somelib/somelib/core.py",
            "some-lib/src/some_lib/core.py",
        )
        launcher = self.launcher(at)

        def made() -> tuple[Path, set[Frame]]:
            library = [
                self.frame("forward", f"{where}/{file}") for _ in range(self.rng.randint(1, 3))
            ]
            own = self.frame("<module>", script)
            mine = [self.frame("step", script), own] if self.chance(0.5) else [own]
            return [*self.torch(at), *library, *mine, *launcher], {mine[0]}

        return self.drawn("editable", at, made)

    def vendored(self) -> Drawn:
        """A library that lies within the project, or is checked out beside the script."""
        at = self.machine()
        root = self.root(at)
        file = self.one(
            "third_party/apex/apex/optimizers/fused_adam.py",
            "external/segment_anything/modeling/encoder.py",
            "vendor/somelib/core.py",
            "submodules/diff-gaussian-rasterization/diff_gaussian_rasterization/__init__.py",
            "transformers/src/transformers/models/llama/modeling_llama.py",
            "flash-attention/flash_attn/flash_attn_interface.py",
        )
        launcher = self.launcher(at)

        def made() -> tuple[Path, set[Frame]]:
            own = [
                self.frame("render", f"{root}/gaussian/render.py"),
                self.frame("<module>", f"{root}/train.py"),
            ][self.rng.randint(0, 1) :]
            return [*self.torch(at), self.frame("forward", f"{root}/{file}"), *own, *launcher], {
                own[0]
            }

        return self.drawn("vendored", at, made)

    def compiled(self) -> Drawn:
        """torch.compile: inductor's, dynamo's and Triton's files lie inside of the user's line."""
        at = self.machine()
        root, launcher = self.root(at), self.launcher(at)
        letters = "abcdefghijklmnopqrstuvwxyz234567"

        def made() -> tuple[Path, set[Frame]]:
            name = "c" + "".join(self.rng.choices(letters, k=51))
            cache = self.one(
                "/tmp/torchinductor_me",  # noqa: S108 (a name)
                "/tmp/torchtitan_fx_codegen",  # noqa: S108
                f"{at.home}/.inductor-cache",
                "/scratch/inductor/rank0",
            )
            generated = [self.frame("call", f"{cache}/{name[1:3]}/{name}.py")]
            if self.chance(0.4):
                triton = self.one(
                    f"{at.home}/.triton/cache/{name.upper()}/__triton_launcher.py",
                    f"{cache}/triton/0/{name.upper()}/kernel.py",
                )
                generated.insert(0, self.frame("launch", triton))
            if self.chance(0.3):
                generated = [self.frame("forward", f"<eval_with_key>.{self.rng.randint(0, 99)}")]
            middle = [
                self.frame("run", at.join(at.site, "torch/_inductor/utils.py")),
                self.frame("__call__", at.join(at.site, "torch/_functorch/_aot_autograd/utils.py")),
                self.frame("_fn", at.join(at.site, "torch/_dynamo/eval_frame.py")),
            ]
            call = self.one("forward", "torch_dynamo_resume_in_forward_at_57")
            own = [
                self.frame(call, f"{root}/transformer.py"),
                self.frame("<module>", f"{root}/train.py"),
            ][self.rng.randint(0, 1) :]
            return [*generated, *middle, *own, *launcher], {own[0]}

        return self.drawn("compiled", at, made)

    def native_only(self) -> Drawn:
        """PyTorch's threads of a backward pass: no line of Python at all."""
        at = self.machine()

        def made() -> tuple[Path, set[Frame]]:
            return [], set()

        drawn = self.drawn("native only", at, made)
        engine = (
            "torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)  ??:0",
            "torch::autograd::Engine::thread_main(std::shared_ptr<torch::GraphTask> const&)  ??:0",
            "execute_native_thread_routine()  thread48.o:0",
            "start_thread  ./nptl/pthread_create.c:442",
            "clone  ??:0",
        )
        paths = tuple((*self.native_torch(), *engine) for _ in drawn.paths)
        return Drawn(drawn.kind, paths, drawn.right)

    def torch_only(self) -> Drawn:
        """Nothing but PyTorch in the path: a hook in a thread, or a program in C++."""
        at = self.machine()

        def made() -> tuple[Path, set[Frame]]:
            named = [self.frame("step", at.join(at.site, "torch/optim/adamw.py"))]
            inner = [self.frame("_multi_tensor_adamw", at.join(at.site, "torch/optim/adamw.py"))]
            below = inner if self.chance(0.5) else []
            wrap = [
                self.frame("wrapper", at.join(at.site, "torch/optim/optimizer.py")),
                self.frame("decorate_context", at.join(at.site, "torch/utils/_contextlib.py")),
            ]
            return [*below, *named, *wrap, *self.thread(at)], {*named}

        return self.drawn("torch only", at, made)

    def prompt(self) -> Drawn:
        """Python's prompt, a console, or a program given with -c."""
        at = self.machine()
        file = self.one(
            "<stdin>", "<python-input-3>", "<input>", "<console>", "<string>", "<timed exec>"
        )
        below = self.kernel(at) if file == "<timed exec>" else []

        def made() -> tuple[Path, set[Frame]]:
            own = [self.frame(self.one("f", "g"), file), self.frame("<module>", file)]
            own = own[self.rng.randint(0, 1) :]
            return [*self.torch(at), *own, *below], {own[0]}

        return self.drawn("prompt", at, made)

    def databricks(self) -> Drawn:
        at = self.machine("databricks")
        number = self.rng.randint(10**6, 10**9)
        kernel = [
            self.frame("run_code", f"{at.site}/IPython/core/interactiveshell.py"),
            self.frame("run_cell", "/databricks/python_shell/dbruntime/kernel.py"),
            self.frame("<module>", "/databricks/python_shell/scripts/db_ipykernel_launcher.py"),
        ]

        def made() -> tuple[Path, set[Frame]]:
            name = self.one(
                f"<command-{number}>",
                f"<command-{number}-17>",
                f"/root/.ipykernel/1533/command-{number}-123456789",
            )
            own = [self.frame("<module>", name)]
            if self.chance(0.5):
                own.insert(0, self.frame("fit", f"{at.home}/proj/training.py"))
            return [*self.torch(at), *own, *kernel], {own[0]}

        return self.drawn("databricks", at, made)

    def worker(self) -> Drawn:
        """A process or thread that others start, in which the project's script is not run."""
        at = self.machine()
        root = self.root(at)
        spawn = self.one(
            at.join(at.python, "multiprocessing/spawn.py"),
            at.join(at.site, "torch/multiprocessing/spawn.py"),
        )
        below = [
            self.frame("run", at.join(at.python, "multiprocessing/process.py")),
            self.frame("_main", spawn),
            "<module>  <string>:1",
        ]
        if self.chance(0.5):
            below = [
                self.frame("run", at.join(at.python, "concurrent/futures/thread.py")),
                *self.thread(at),
            ]

        def made() -> tuple[Path, set[Frame]]:
            own = [
                self.frame("forward", f"{root}/net/{self.rng.choice(FILES)}.py"),
                self.frame("work", f"{root}/pool/workers.py"),
            ]
            return [*self.torch(at), *self.between(at, own), *below], {own[0]}

        return self.drawn("worker", at, made)

    def bazel(self) -> Drawn:
        at = self.machine("debian")
        runfiles = (
            f"{at.home}/.cache/bazel/_bazel_me/a1b2/execroot/ws/bazel-out/k8-opt/bin/app/"
            "train.runfiles"
        )
        at.site = f"{runfiles}/pip_deps_torch/site-packages"

        def made() -> tuple[Path, set[Frame]]:
            own = [
                self.frame("forward", f"{runfiles}/ws/app/{self.rng.choice(FILES)}.py"),
                self.frame("<module>", f"{runfiles}/ws/app/train.py"),
            ]
            return [*self.torch(at), *self.between(at, own)], {own[0]}

        return self.drawn("bazel", at, made)

    def torch_from_source(self) -> Drawn:
        """PyTorch in a checkout of its own, or with paths relative to one."""
        at = self.machine("venv")
        at.site = self.one("/workspace/pytorch", f"{at.home}/src/pytorch", "", "caffe2")
        root, launcher = self.root(at), self.launcher(at)

        def made() -> tuple[Path, set[Frame]]:
            own = [
                self.frame("step", f"{root}/model.py"),
                self.frame("<module>", f"{root}/main.py"),
            ]
            torch = [one.replace("  /torch/", "  torch/") for one in self.torch(at)]
            return [*torch, *own, *launcher], {own[0]}

        return self.drawn("torch from source", at, made)

    def trainer(self) -> Drawn:
        """A trainer of a library around the user's model, whose own helpers do the work."""
        at = self.machine(self.one("", "windows"))
        root, launcher = self.root(at), self.launcher(at)
        library = self.one("transformers", "lightning/pytorch", "accelerate", "trl")

        def made() -> tuple[Path, set[Frame]]:
            outer = [
                self.frame(name, at.join(at.site, f"{library}/trainer.py"))
                for name in ("training_step", "train")
            ]
            script = self.frame("<module>", at.join(root, "finetune.py"))
            model = self.frame("compute_loss", at.join(root, "trainer.py"))
            if self.chance(0.5):  # the library alone does the work
                return [*self.torch(at), *outer, script, *launcher], {script}
            helper = self.frame("helper", at.join(at.site, "peft/tuners/lora/layer.py"))
            return [*self.torch(at), helper, model, *outer, script, *launcher], {model}

        return self.drawn("trainer", at, made)

    def plain_script(self) -> Drawn:
        """A script that is run by its name, without an ending."""
        at = self.machine()
        root = self.root(at)

        def made() -> tuple[Path, set[Frame]]:
            own = [self.frame("main", f"{root}/train"), self.frame("<module>", f"{root}/train")]
            if self.chance(0.5):
                own.insert(0, self.frame("forward", f"{root}/net/model.py"))
            return [*self.torch(at), *self.between(at, own)], {own[0]}

        return self.drawn("plain script", at, made)

    def nested(self) -> Drawn:
        """Folders in folders of the same name, and the project in a folder named like a package."""
        at = self.machine()
        root, launcher = self.root(at), self.launcher(at)
        name = self.one("models", "data", "utils", "heron", "transformers")

        def made() -> tuple[Path, set[Frame]]:
            own = [
                self.frame("forward", f"{root}/{name}/{name}/x.py"),
                self.frame("<module>", f"{root}/{name}/train.py"),
            ]
            return [*self.torch(at), *self.between(at, own), *launcher], {own[0]}

        return self.drawn("nested", at, made)

    def helpers(self) -> Drawn:
        """A folder of the user's that PYTHONPATH names, beside the projects."""
        at = self.machine()
        common = self.one("common", "shared_code", "mylib", "losses", "tools", "src", "torch/nn")
        if self.chance(0.05):
            common = "torch/optim"  # as in PyTorch

        def made() -> tuple[Path, set[Frame]]:
            own = [
                self.frame("loss", f"{at.home}/work/{common}/losses.py"),
                self.frame("<module>", f"{at.home}/work/{self.word()}/train.py"),
            ]
            return [*self.torch(at), *own], {own[0]}

        return self.drawn("helpers", at, made)
