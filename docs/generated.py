"""Pages of the site that nobody writes by hand, and files of the repository that pages link to.

mkdocs calls this (mkdocs.yml, hooks). The references are made from the package, its docstrings and
the headers. Wants gmlake installed, and no PyTorch.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File

import gmlake
from gmlake import annexes
from gmlake.commands import COMMANDS, make_parser, subparsers
from gmlake.settings import policy_help

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
COPIES: Final = "repository"
"""Where in the site the files of the repository lie that pages link to."""

PYTHON: Final = {
    "Serving PyTorch": "enabled enable disable is_enabled pytorch.Session graphs_take_turns",
    "Several streams": "stream_pairs",
    "Steps that repeat": (
        "AutoPlan planner.StepReport planner.load_plans planner.save_plans planner.PlanFile "
        "planner.PlanError"
    ),
    "Sleeping": (
        "region regions sleep wake on_sleep pytorch.sleeping.MemoryRegion "
        "pytorch.sleeping.SleepReport pytorch.communicators.CommunicatorMemory"
    ),
    "Sharing a device": "sharing pytorch.sharing.Sharing",
    "Growing and shrinking": "elastic pytorch.elastic.Elastic lake.ElasticMemory",
    "For transports": "exportable is_exportable",
    "Seeing memory": (
        "record pytorch.recording.Recording snapshot memory_summary Snapshot load "
        "snapshots.report_of query snapshots.queries.QueryReport compare "
        "snapshots.comparing.CompareReport publish"
    ),
    "What wastes it": (
        "diagnose find_inefficiencies diagnosis.Diagnosis diagnosis.Advice diagnosis.ObjectTrace "
        "diagnosis.TraceBuilder"
    ),
    "Without a GPU": "forecast standin.forecasts.Forecast standin.forecasts.PolicyNeed",
    "Replaying what was recorded": (
        "replay replaying.ReplayReport replaying.ReplayResult fit fitting.FitReport"
    ),
    "Placing lifetimes": (
        "plan planner.PlanReport planner.PlanResult planner.StepResult planner.Plan planner.Profile"
    ),
    "A lake by itself": (
        "Lake lake.Block policies knobs lake.device_describe units.parse_size units.format_size"
    ),
    "Errors and warnings": (
        "Error OutOfMemoryError DriverError UnsupportedError TraceError GmlakeWarning"
    ),
}
"""What is in gmlake itself, and beside it what is in its modules, below that."""

TRAINERS: Final = (
    "transformers.GmlakeCallback",
    "lightning.GmlakeCallback",
    "accelerate.GmlakeTraining",
)
HEADERS: Final = {
    "gmlake.h": "The allocator",
    "gmlake_replay.h": "Replay",
    "gmlake_torch.h": "Below PyTorch",
    "gmlake_share.h": "Memory for other processes",
    "gmlake_sleep.h": "Memory that sleeps",
    "gmlake_elastic.h": "Memory that grows and shrinks",
    "gmlake_interop.h": "Other libraries",
    "gmlake_steps.h": "Steps that repeat",
    "gmlake_plan.h": "Plans",
    "gmlake_diagnose.h": "The diagnosis",
}

_OUTWARD: Final = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")
_SECTION: Final = re.compile(r"/\* ---- (.+?) -{4,}(?: \*/)?(?:\n|$)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and what pages link to outside of docs/."""
    made = {"python": python(), "c": c(), "settings": settings(), "commands": commands()}
    for name, text in made.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    files.append(File.generated(config, "index.md", content=index()))
    for page in files.documentation_pages():
        for link, _ in _OUTWARD.findall(page.content_string):
            path = _target(page.src_uri, link)
            uri = f"{COPIES}/{path}"
            is_copied = files.get_file_from_path(uri) is not None
            if not is_copied and not path.startswith("docs/") and (ROOT / path).is_file():
                content = (ROOT / path).read_bytes()
                files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_ignored: object) -> str:
    """Let links that leave docs/ lead to the copies. A folder has none: its name stays as text."""

    def replaced(found: re.Match[str]) -> str:
        path = _target(page.file.src_uri, found[1])
        if path.startswith("docs/"):
            return found[0]
        if not (ROOT / path).is_file():
            return "]"
        return f"]({'../' * page.file.src_uri.count('/')}{COPIES}/{path}{found[2] or ''})"

    return _OUTWARD.sub(replaced, markdown)


def _target(page: str, link: str) -> str:
    """Return the path of what a page links to, from the repository's folder."""
    path = ((ROOT / "docs" / page).parent / link).resolve()
    return path.relative_to(ROOT).as_posix()


def index() -> str:
    """Return the first page: README, whose links begin in the folder above."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\((?!https?:|#|docs/)", "](../", text)
    return text.replace("](docs/", "](").replace('="docs/', '="')


def python() -> str:
    """Return the reference of the package, in the order in which a reader may want it."""
    listed = {name for names in PYTHON.values() for name in names.split()}
    public = set(gmlake.__all__) - {"__version__"}
    if differing := {name for name in listed if "." not in name} ^ public:
        sys.exit(f"docs/generated.py: PYTHON and gmlake.__all__ differ: {differing}")
    homes = {name: module for module, text in annexes.names().items() for name in text.split()}
    lines = [
        "# Python",
        "",
        "All of `import gmlake`, and below it classes and helpers of its modules.",
        "Sizes are in bytes where nothing else is said.",
    ]
    for title, names in PYTHON.items():
        lines += ["", f"## {title}", ""]
        for name in names.split():
            module, _, last = f"{homes.get(name, 'gmlake')}.{name}".rpartition(".")
            found = None
            with suppress(ModuleNotFoundError):  # it needs PyTorch, so it is in Python
                found = getattr(import_module(module), last)
            is_in_c = getattr(found, "__module__", "").rpartition(".")[2].startswith("_")
            lines += _of_the_core(last, found) if is_in_c else [f"::: {module}.{last}"]
            lines.append("")
    lines += ["", "## Trainers", ""]
    for name in TRAINERS:
        lines += [f"::: gmlake.integrations.{name}", "    options:"]
        lines += ["      show_root_full_path: true", ""]
    return "\n".join(lines)


def _of_the_core(name: str, found: object) -> list[str]:
    """Return what C says of a name: its docstring, and of a class those of what it has."""
    lines = [f"### {name}", "", inspect.getdoc(found) or ""]
    if isinstance(found, type):
        for member, value in vars(found).items():
            if not member.startswith("_"):
                text = (inspect.getdoc(value) or "").replace("\n", " ")
                lines += ["", f"`{member}{_arguments(value)}`: {text}"]
    return lines


def _arguments(value: object) -> str:
    try:
        return str(inspect.signature(value)).replace("(self, /", "(").replace("(, ", "(")  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""  # it is no function


def c() -> str:
    """Return the reference of the C interface: each comment, and what it is of."""
    lines = [
        "# C",
        "",
        "The headers of `libgmlake`, in `csrc/include/`, and of its annexes, in `csrc/*/include/`.",
    ]
    for name, title in HEADERS.items():
        (path,) = (*ROOT.glob(f"csrc/include/{name}"), *ROOT.glob(f"csrc/*/include/{name}"))
        text = path.read_text(encoding="utf-8")
        about, _, rest = text.partition("*/\n")
        inside = rest.partition('extern "C" {\n#endif\n')[2].rpartition("#ifdef __cplusplus")[0]
        lines += ["", f"## {title}: `{name}`", "", _prose(about), ""]
        for part in re.split(r"\n\n(?=\S)", inside.strip()):
            lines += _of_header(part)
    return "\n".join(lines) + "\n"


def _of_header(part: str) -> list[str]:
    """Return a comment as text, and the declarations below it as they are."""
    lines: list[str] = []
    if part.startswith("#if defined(__GNUC__)"):
        return lines  # how functions are exported
    if section := _SECTION.match(part):
        lines += [f"### {section[1]}", ""]
        part = part[section.end() :]
        part = f"/*{part}" if part.startswith(" *") else part
    if part.startswith("/*"):
        comment, _, part = part.partition("*/")
        lines += [_prose(comment), ""]
    if part.strip():
        lines += ["```c", part.strip("\n").replace("GML_API ", ""), "```", ""]
    return lines


def _prose(comment: str) -> str:
    """Return the text of a comment; what is set in, as a list of words, stays as it is."""
    text = re.sub(r"^ ?(/\*|\*) ?", "", comment.strip(), flags=re.MULTILINE).strip()
    return re.sub(r"((?:^  .*\n?)+)", r"\n```text\n\1\n```\n", text, flags=re.MULTILINE)


def settings() -> str:
    """Return the settings of the policies, and the policies."""
    lines = ["# Settings of the policies", ""]
    lines += ["`gmlake.enabled(NAME=VALUE)`, `--set NAME=VALUE`, `GMLAKE_SET=NAME=VALUE,...`;"]
    lines += ["`gmlake info --knobs` prints the same."]
    lines += ["[Inside PyTorch](../pytorch.md#settings) has the rest."]
    lines += ["", "| policy | what it is |", "|---|---|"]
    for name, text in zip(gmlake.policies(), policy_help(), strict=True):
        lines.append(f"| `{name}` | {text} |")
    lines += ["", "| setting | policies | default | meaning |", "|---|---|---|---|"]
    for knob in gmlake.knobs():
        words = knob["words"]
        default = words[knob["default"]] if words else str(knob["default"])
        default = "no limit" if default == str(2**64 - 1) else default
        meaning = f"{', '.join(words)}: {knob['help']}" if words else knob["help"]
        lines.append(f"| `{knob['name']}` | {knob['policies']} | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def commands() -> str:
    """Return what each command says of itself."""
    lines = [
        "# Command line",
        "",
        "`gmlake completion bash` (zsh, fish, tcsh) lets a shell complete it;",
    ]
    lines += ["it needs `pip install gmlake[completion]`."]
    for name in COMMANDS:
        text = subparsers(make_parser(name))[name].format_help().rstrip()
        lines += ["", f"## gmlake {name}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"
