"""A server of vLLM's on the stand-in GPU, where vLLM is installed beside gmlake."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.standin import forecasting

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("vllm", reason="vLLM is not installed")

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 4096,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}
BYTES_PER_TOKEN = 2 * 2 * 2 * 64 * 2  # keys and values, layers, heads, numbers, bytes of each


def booted(
    folder: Path, model: dict[str, Any], *words: str, rank: int = 0
) -> tuple[dict[str, Any], str]:
    (folder / "config.json").write_text(json.dumps(model), encoding="utf-8")
    ours = ("--on", "l4", "--context", "100", "--rank", str(rank), "--show-output", "--json")
    done = forecasting.run("forecast", *ours, "vllm", "serve", str(folder), *words)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)["figures"], done.stderr


@pytest.mark.long
def test_the_engine_boots_without_weights_and_says_what_it_holds(tmp_path: Path) -> None:
    found, log = booted(tmp_path, MODEL, "--max-model-len", "1024")
    said = re.findall(r"GPU KV cache size: (\S+) tokens", log)
    assert f"{found['tokens']:,}" == said[0]  # the first that it says is its own
    assert found["tokens"] == found["blocks"] * found["settings"]["block_size"]
    cache = found["tokens"] * BYTES_PER_TOKEN
    assert 0 <= found["available_bytes"] - cache < (1 << 20)
    assert found["reserved_bytes"] > cache + found["weights_bytes"]
    beside = found["in_use_bytes"] - found["reserved_bytes"]
    assert beside > found["cuda_bytes"]  # graphs lie there, too
    at_once = dict(map(tuple, found["concurrency"]))
    assert at_once == pytest.approx({1024: found["tokens"] / 1024, 100: found["tokens"] / 112})


@pytest.mark.long
def test_one_rank_of_two_has_half_of_the_heads(tmp_path: Path) -> None:
    found, _ = booted(tmp_path, MODEL, "--enforce-eager", "--tensor-parallel-size", "2")
    assert 0 <= found["available_bytes"] - found["tokens"] * BYTES_PER_TOKEN // 2 < (1 << 20)


@pytest.mark.long
def test_the_last_stage_of_a_pipeline_boots_alone(tmp_path: Path) -> None:
    found, _ = booted(tmp_path, MODEL, "--pipeline-parallel-size", "2", rank=1)
    assert (found["ranks"], found["rank"]) == (2, 1)
    # One of two layers, and the head: each block holds twice as many tokens.
    assert 0 <= found["available_bytes"] - found["tokens"] * BYTES_PER_TOKEN // 2 < (1 << 20)
    assert found["weights_bytes"] < 1_000_000 * 2 + 2 * 1000 * 256


@pytest.mark.long
def test_layers_that_gptq_quantised_are_known_without_weights(tmp_path: Path) -> None:
    layers = {"bits": 4, "group_size": 128, "desc_act": False, "sym": True, "quant_method": "gptq"}
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "head_dim": 256}
    model = {**MODEL, **sizes, "torch_dtype": "float16", "quantization_config": layers}
    found, _ = booted(tmp_path, model, "--enforce-eager")
    assert found["weights_bytes"] < 2.4 * 1024 * (3072 + 3 * 4096)  # before, 2 bytes for each of 2


def test_a_model_without_a_configuration_is_refused_in_one_line(tmp_path: Path) -> None:
    done = forecasting.run("forecast", "vllm", "serve", str(tmp_path))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "has no config.json; the one of the model's card is enough" in done.stderr
