"""`gmlake forecast` of a server: what starts one, what is said of it, and what stops it.

server_h200.json is what vLLM 0.26.0 said of an 8B model on the stand-in: the figures that were
read from it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gmlake.commands import main
from gmlake.standin import forecast_command, launcher, servers
from gmlake.standin.devices import DEVICES
from gmlake.standin.runs import ForecastError

if TYPE_CHECKING:
    from collections.abc import Callable

FIGURES: dict[str, Any] = json.loads(
    Path(__file__).with_name("server_h200.json").read_text(encoding="utf-8")
)
MIB = 1 << 20


def said_of(**changed: Any) -> servers.ServerForecast:
    figures = {**FIGURES, **changed}
    return servers.ServerForecast("boot.py", DEVICES["h200"], "2.11.0", figures, 32 * MIB)


# ---- what starts an engine


@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("vllm serve m -tp 2", "-m vllm.entrypoints.cli.main serve m -tp 2"),
        ("/venv/bin/vllm bench latency", "-m vllm.entrypoints.cli.main bench latency"),
        ("-m vllm.entrypoints.openai.api_server --model m", None),
        ("python3.11 -m vllm.entrypoints.openai.api_server", None),
        ("python -m vllm serve m", None),
        ("sglang serve --model-path m", "-m sglang.cli.main serve --model-path m"),
        ("python -m sglang.launch_server --model-path m --tp 2", None),
    ],
)
def test_an_engine_is_started_by_its_own_commands(words: str, program: str | None) -> None:
    expected = program or words[words.index("-m") :]
    package = "sglang" if "sglang" in words else "vllm"
    assert servers.program_of(words.split()) == (expected.split(), package)


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("from vllm import LLM\n", "vllm"),
        ("def main():\n    import vllm\n", "vllm"),
        ("import sglang as sgl\n", "sglang"),
        ("from trl import GRPOConfig  # use_vllm=True\n", None),  # a training, engine and all
        ("import vllm_flash_attn\n", None),
    ],
)
def test_a_script_is_a_server_if_it_imports_an_engine_itself(
    text: str, package: str | None, tmp_path: Path
) -> None:
    script = tmp_path / "run.py"
    script.write_text(text)
    words = [str(script), "--model", "m"]
    expected = (words, package) if package else None
    assert servers.program_of(words) == servers.program_of(["python", *words]) == expected


@pytest.mark.parametrize("words", [[], ["train.py"], ["-m"], ["-m", "torch.distributed.run"]])
def test_others_are_none(words: list[str]) -> None:
    assert servers.program_of(words) is None


# ---- what is said


def test_the_answer_has_tokens_requests_parts_and_what_changes_them() -> None:
    said = " ".join(str(said_of()).split())
    tokens, blocks = FIGURES["tokens"], FIGURES["blocks"]
    assert said.startswith(f"{tokens:,} tokens in {blocks:,} blocks of cache; the longest request ")
    assert "131,072 tokens, the model's own limit fits NVIDIA H200 (140 GiB) with " in said
    for context, at_once in FIGURES["concurrency"]:
        assert f"{at_once:,.1f} of {context:,} tokens" in said
    for name, _, more, _, how in FIGURES["others"]:
        assert re.search(rf"{re.escape(name)} {more:,} [\d.]+ {how}", said)
    assert "said by vLLM 0.26.0, which booted LlamaForCausalLM (bfloat16) without its" in said


def test_the_parts_of_memory_are_all_of_the_device() -> None:
    rows = [line.split("  ") for line in str(said_of()).splitlines()]
    sizes = {row[0].strip(): row[-1].strip() for row in rows if len(row) > 1}
    assert sizes["weights"] == "15.0 GiB"
    parts = ("weights", "activations of the largest step", "KV cache", "CUDA graphs", "left")
    units = {"GiB": 1.0, "MiB": 1 / 1024}
    total = 0.0
    for part in (*parts, "CUDA's context, kernels, libraries"):
        number, unit = sizes[part].split()
        total += float(number) * units[unit]
    assert total == pytest.approx(DEVICES["h200"].memory_bytes / (1 << 30), abs=1)


def test_it_fits_if_the_engine_boots_and_never_has_more_than_the_device() -> None:
    room = DEVICES["h200"].memory_bytes
    assert "in use after the start\n" in str(said_of(peak_bytes=room - 32 * MIB))
    close = said_of(peak_bytes=room)
    assert close.fits
    assert "in use after the start, if CUDA takes what is foreseen\n" in str(close)
    over = said_of(peak_bytes=room + 1)
    assert not over.fits
    assert "does not fit NVIDIA H200 (140 GiB): " in str(over)
    refused = said_of(refused="No available memory. Try more.", missing_bytes=3 << 30, tokens=0)
    assert not refused.fits
    said = " ".join(str(refused).split())
    assert said.startswith("no cache for a request of 8,192 tokens; the longest request that fits:")
    assert "3.00 GiB are missing; it says: No available memory" in said
    assert "Try more" not in said


def test_one_rank_of_several_says_so() -> None:
    said = " ".join(str(said_of(ranks=8, rank=3)).split())
    assert "fits NVIDIA H200 (140 GiB), each of 8, with" in said
    assert "(bfloat16, rank 3 of 8)" in said


# ---- the command


@pytest.fixture
def booted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """Have every engine say what was recorded; keep what was booted, and how."""
    asked: list[tuple[list[str], dict[str, Any]]] = []

    def boot(program: list[str], _: Any, wanted: dict[str, Any], *__: Any, **___: Any) -> Any:
        asked.append((program, wanted))
        if wanted["settings"].get("tensor_parallel_size") == 8:
            raise ForecastError("heads cannot be divided", "advice")
        refused = "No memory. Try more." if wanted["settings"].get("max_num_seqs") == 16 else ""
        return {
            **FIGURES,
            "others": [*FIGURES["others"]],
            "refused": refused,
        }

    monkeypatch.setattr(servers, "_boot", boot)
    monkeypatch.setattr(launcher, "check_pytorch", lambda: "2.11.0")
    monkeypatch.setattr(servers, "find_spec", lambda _: object())
    return asked


def test_a_server_is_asked_by_the_same_command(
    booted: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--device", "h200", "--context", "100", "--context", "200", "--rank", "1", "--json"]
    assert main(["forecast", *words, "--", "vllm", "serve", "m", "--json", "x"]) == 0
    program = ["-m", "vllm.entrypoints.cli.main", "serve", "m", "--json", "x"]
    assert booted == [(program, {"settings": {}, "contexts": [100, 200], "rank": 1})]
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "gmlake-forecast-server-1"
    assert found["fits"] is True
    assert found["figures"]["tokens"] == FIGURES["tokens"]


def test_other_settings_are_booted_where_they_are_asked_for(
    booted: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forecast", "--on", "h200", "--json", "--vary", "vllm", "serve", "m"]) == 0
    first, *others = [wanted["settings"] for _, wanted in booted]
    assert first == {}
    assert {"kv_cache_dtype": "fp8"} in others
    assert {"tensor_parallel_size": 1} not in others  # its own
    rows = {row[0]: row[1:] for row in json.loads(capsys.readouterr().out)["figures"]["others"]}
    booted_row = [
        FIGURES["blocks"],
        FIGURES["tokens"],
        dict(FIGURES["concurrency"])[8192],
        "booted",
    ]
    assert rows["tensor_parallel_size 2"] == booted_row
    assert rows["max_num_seqs 16"] == [*booted_row[:3], "No memory"]
    assert rows["tensor_parallel_size 8"] == [0, 0, 0.0, "heads cannot be divided"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--batch", "B=1", "vllm", "serve", "m"], "are for a training, not for a server"),
        (["--context", "0", "vllm", "serve", "m"], "a request has at least one token"),
    ],
)
@pytest.mark.usefixtures("booted")
def test_what_a_server_cannot_be_asked(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forecast", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert why in said


@pytest.mark.usefixtures("booted")
@pytest.mark.parametrize("package", ["vllm", "sglang"])
def test_without_an_engine_the_remedy_is_said(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda name: None if name == package else object())
    assert main(["forecast", package, "serve", "m"]) == 2
    remedy = f"not installed in {sys.prefix}. pip install {package}\n"
    assert capsys.readouterr().err.endswith(remedy)


@pytest.mark.usefixtures("booted")
def test_what_does_not_fit_ends_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = said_of(refused="No available memory.", tokens=0)
    monkeypatch.setattr(forecast_command, "forecast_server", lambda *_: found)
    assert main(["forecast", "vllm", "serve", "m"]) == 1


# ---- the process


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Return how a script takes the place of a program that boots an engine."""
    library = next(
        path for path in Path("/proc/self/maps").read_text().split() if "libc.so" in path
    )
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):  # preloaded a second time
        (tmp_path / name).symlink_to(library)
    monkeypatch.setenv("GMLAKE_STANDIN_LIBRARY", str(tmp_path / "libcuda.so.1"))

    def run(text: str, seconds: float = 60) -> dict[str, Any]:
        script = tmp_path / "engine.py"
        script.write_text(f"import json, os, sys, time\n{text}")
        asked = {"settings": {"max_num_seqs": 8}, "contexts": [1], "rank": 0}
        device = DEVICES["l4"]
        return servers._boot(  # noqa: SLF001 (the process alone)
            [str(script)], device, asked, seconds, is_shown=False
        )

    return run


WRITE = "open(os.environ['GMLAKE_FORECAST_ENGINE'], 'w').write(json.dumps({}))"


def test_the_process_knows_what_is_asked_and_on_which_device(
    boot: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_DEEP_GEMM", "1")
    found = boot(WRITE.format("dict(os.environ)"))
    assert json.loads(found["GMLAKE_FORECAST_ASKED"])["settings"] == {"max_num_seqs": 8}
    assert found["GMLAKE_STANDIN_NAME"] == "NVIDIA L4"  # as vLLM looks for tuned kernels
    assert found["GMLAKE_STANDIN_CAPACITY"] == str(DEVICES["l4"].memory_bytes)
    assert found["VLLM_USE_DEEP_GEMM"] == "1"
    assert found["VLLM_USE_FLASHINFER_SAMPLER"] == "0"
    for name in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"):
        assert "/gmlake/" in found[name]  # what is tuned here stays out of the user's own


def test_an_engine_that_fails_says_why_in_its_words(boot: Callable[..., dict[str, Any]]) -> None:
    text = "print('the last line')\n" + WRITE.format("{'error': 'ValueError: no such\\n model'}")
    with pytest.raises(ForecastError, match="did not boot: ValueError: no such model") as failed:
        boot(text)
    assert failed.value.output == ()  # one line is enough
    with pytest.raises(ForecastError, match="no engine of vLLM's or SGLang's was booted") as failed:
        boot("print('nothing was done')")
    assert failed.value.output == ("nothing was done",)


def test_a_process_that_takes_too_long_is_ended_with_what_it_started(
    boot: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    text = (
        f"child = os.fork()\nif child: open({str(note)!r}, 'w').write(str(child))\ntime.sleep(99)"
    )
    began = time.monotonic()
    with pytest.raises(ForecastError, match="did not boot within 2 s"):
        boot(text, 2)
    assert time.monotonic() - began < 20
    child = Path("/proc", note.read_text())
    while child.exists() and "State:\tZ" not in (child / "status").read_text():
        assert time.monotonic() - began < 40
        time.sleep(0.1)
