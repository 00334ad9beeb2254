"""What of the tests on the stand-in GPU holds with which version of PyTorch.

.venv/bin/python benchmarks/versions.py [--interface] 2.13.0 2.15.0

Each version is installed beside the others (6 GB on disk), tested and removed again, unless it was
there before; build/standin*.log keeps what it printed. What was found replaces what
benchmarks/results/versions.json and the table in docs/pytorch.md said of that version.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import time
from typing import Any

import machine

DOCUMENT = machine.ROOT / "docs" / "pytorch.md"
RESULT = machine.RESULTS / "versions.json"
TABLE = re.compile(r"(?<=<!-- versions -->\n).*?(?=<!-- end of versions -->)", re.DOTALL)
COUNTS = re.compile(r"^=* ?(.*(?:passed|failed|error|skipped).*) in [\d.]+s", re.MULTILINE)
COUNT = re.compile(r"(\d+) (\w+?)s?(?:,|$)")
BROKEN = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
ABOUT = "import torch; print(torch.__version__, torch.version.cuda)"


def make(target: str, version: str) -> subprocess.CompletedProcess[str]:
    """Run make for one version, showing and returning what it prints."""
    command = ("make", "--no-print-directory", target, f"STANDIN_TORCH={version}")
    print(*command, flush=True)
    done = subprocess.run(  # noqa: S603 (what is written here)
        command,
        cwd=machine.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout[-2000:], flush=True)
    return done


def try_version(version: str, target: str) -> dict[str, Any]:
    """Install one version, make its tests, and tell what became of them."""
    name = "standin" if version == "2.11.0" else f"standin-{version}"
    environment = machine.ROOT / f".venv-{name}"
    was_there = (environment / ".ready").exists()
    try:
        if make("standin", version).returncode:
            return {"obstacle": "the stand-in GPU cannot be built for it"}
        about = subprocess.run(  # noqa: S603
            [environment / "bin" / "python", "-c", ABOUT],
            capture_output=True,
            text=True,
            check=True,
        )
        build, cuda = about.stdout.split()
        started = time.monotonic()
        said = make(target, version).stdout
        seconds = round(time.monotonic() - started)
        (machine.ROOT / "build" / f"{name}.log").write_text(said, encoding="utf-8")
    finally:
        if not was_there:
            shutil.rmtree(environment, ignore_errors=True)
            shutil.rmtree(machine.ROOT / "build" / name, ignore_errors=True)
    summary = COUNTS.findall(said)
    return {
        "torch": build,
        "cuda": cuda,
        "target": target,
        "counts": {kind: int(number) for number, kind in COUNT.findall("".join(summary[-1:]))},
        "broken": sorted(set(BROKEN.findall(said))),
        "seconds": seconds,
    }


def table(known: dict[str, Any]) -> str:
    """Return the table of all versions, as the document has it."""
    lines = [
        "| PyTorch | CUDA | `make` | passed | failed | skipped | commit, date |",
        "|---|---|---|---|---|---|---|",
    ]
    for version, found in known.items():
        when = f"{found['run']['commit']}, {found['run']['date']}"
        if "obstacle" in found:
            lines.append(f"| {version} | | {found['obstacle']} | | | | {when} |")
            continue
        counts = {"passed": 0, "failed": 0, "error": 0, "skipped": 0} | found["counts"]
        failed = counts["failed"] + counts["error"]
        what = f"{version} | {found['cuda']} | `{found['target']}`"
        lines.append(f"| {what} | {counts['passed']:,} | {failed} | {counts['skipped']} | {when} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Try the versions that the command line names, and write down what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("versions", nargs="+", metavar="VERSION")
    add("--interface", action="store_true", help="only what touches PyTorch's private parts")
    options = parser.parse_args()
    target = "test-interface" if options.interface else "test-standin"
    run = machine.describe(gpu="none: the stand-in GPU of tests/standin")
    for version in options.versions:
        found = try_version(version, target)
        known = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
        known[version] = {"run": run, **found}
        known = dict(sorted(known.items(), key=lambda item: [*map(int, item[0].split("."))]))
        RESULT.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        text = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(TABLE.sub(table(known), text), encoding="utf-8")


if __name__ == "__main__":
    main()
