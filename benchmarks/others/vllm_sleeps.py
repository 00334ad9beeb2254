"""vLLM, its engine in a process of its own: boots, generates, sleeps at both levels and wakes."""

# Every package here may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from transformers import LlamaConfig
from vllm import LLM, SamplingParams

from others.made import drawn_lengths, told, write_tokenizer

# What vLLM itself lets one choose. Kernels say how many tokens a step of its second model runner
# has, and they compute nothing here; FlashInfer compiles kernels with CUDA's compiler.
CHOSEN = {
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
}
LLAMA_1B = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 4096,
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
}
PROMPTS, NEW_TOKENS = 64, 32


class Memory:
    """What the process that has the model is asked for, by vLLM's `worker_extension_cls`."""

    def memory(self) -> dict[str, int]:
        """Return its bytes: live and reserved as PyTorch says, and what is used of the device."""
        import torch

        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return {
            "live_bytes": torch.cuda.memory_allocated(),
            "reserved_bytes": torch.cuda.memory_reserved(),
            "used_bytes": total - free,
        }

    def peaks(self) -> dict[str, int]:
        """Return PyTorch's peaks."""
        import torch

        return {
            "live_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
        }


def generate(llm: LLM) -> int:
    """Generate from prompts of several lengths; return how many tokens came."""
    lengths = (drawn_lengths() * PROMPTS)[:PROMPTS]
    prompts = [{"prompt_token_ids": list(range(1, length // 2 + 1))} for length in lengths]
    wanted = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    done = llm.generate(prompts, wanted, use_tqdm=False)
    return sum(len(each.outputs[0].token_ids) for each in done)


def main() -> None:
    """Serve, and note the memory at each moment."""
    with tempfile.TemporaryDirectory() as folder:
        LlamaConfig(**LLAMA_1B).save_pretrained(folder)
        write_tokenizer(Path(folder))
        os.environ.update(CHOSEN, VLLM_CACHE_ROOT=f"{folder}/cache")
        llm = LLM(
            folder,
            load_format="dummy",
            enable_sleep_mode=True,
            max_model_len=2048,
            worker_extension_cls="others.vllm_sleeps.Memory",
        )
        moments = told["moments"] = {}

        def note(moment: str) -> None:
            (moments[moment],) = llm.collective_rpc("memory")

        note("booted")
        told["tokens"] = generate(llm)
        note("generated")
        llm.sleep(level=1)
        note("asleep, level 1")
        llm.wake_up(tags=["weights"])
        note("weights awake")
        llm.wake_up(tags=["kv_cache"])
        note("awake")
        told["tokens"] += generate(llm)
        llm.sleep(level=2)
        note("asleep, level 2")
        llm.wake_up()
        note("awake again")
        told.update(*llm.collective_rpc("peaks"))
        llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
