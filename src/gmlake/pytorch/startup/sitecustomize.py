"""Activates gmlake when a program imports PyTorch, not earlier.

`gmlake run` puts this folder first on PYTHONPATH, so every Python that the program starts runs this
file at its start. It imports nothing of gmlake before PyTorch is there, takes its folder out of
sys.path again, and then runs the sitecustomize that would have run without it.
"""  # noqa: INP001 (found by its path)

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import ModuleType

TYPE_CHECKING = False  # typing takes longer to import than all the rest
if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec

_PACKAGE = "torch"


def _is_pytorch(module: ModuleType) -> bool:
    return hasattr(module, "_C")  # a file called torch.py need not be PyTorch


def _activate() -> None:
    try:
        from gmlake.pytorch.activation import activate
    except ImportError as error:
        if sys.stderr is not None:
            print(  # noqa: T201 (nothing else can report it)
                f"gmlake: {sys.executable} runs without gmlake, which it cannot import: {error}",
                file=sys.stderr,
            )
        return
    activate()


class _LoaderThatActivates:
    """Stands in for a module's loader until the module runs, and leaves no trace of itself."""

    def __init__(self, loader: Loader, finder: _TorchFinder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> object:
        if name == "_loader":  # a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then activate gmlake; an import that fails may be tried again."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            if _is_pytorch(module):
                _activate()


class _TorchFinder:
    """Finds PyTorch by the other finders, with a loader that activates gmlake afterwards."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None for every other module."""
        if name != _PACKAGE:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _LoaderThatActivates(spec.loader, self)  # type: ignore[assignment]
                return spec
        return None


def _run_the_next() -> None:
    """Import the sitecustomize that this one hides; `site` reports its errors."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 (pathlib takes long)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 (another one)
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this


if os.environ.get("GMLAKE_RUN") == "1":
    if _PACKAGE not in sys.modules:
        sys.meta_path.insert(0, _TorchFinder())
    elif _is_pytorch(sys.modules[_PACKAGE]):
        _activate()
_run_the_next()
