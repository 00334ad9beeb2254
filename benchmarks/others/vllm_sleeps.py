"""vLLM, its engine in a process of its own: boots, generates, sleeps at both levels and wakes."""

# Every package here may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from transformers import LlamaConfig
from vllm import LLM, SamplingParams

from others.made import LLAMA_1B, NEW_TOKENS, memory, note, prompts, told, write_tokenizer

# What vLLM itself lets one choose. Kernels say how many tokens a step of its second model runner
# has, and they compute nothing here; FlashInfer compiles kernels with CUDA's compiler.
CHOSEN = {
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
}


class Memory:
    """What the process that has the model is asked for, by vLLM's `worker_extension_cls`."""

    def memory(self) -> dict[str, int]:
        """Return the bytes of that process."""
        return memory()


def generate(llm: LLM) -> int:
    """Generate from prompts of several lengths; return how many tokens came."""
    given = [{"prompt_token_ids": words} for words in prompts()]
    wanted = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    done = llm.generate(given, wanted, use_tqdm=False)
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

        def look(moment: str) -> None:
            note(moment, *llm.collective_rpc("memory"))

        look("booted")
        told["tokens"] = generate(llm)
        look("generated")
        llm.sleep(level=1)
        look("asleep")
        llm.wake_up(tags=["weights"])
        look("weights awake")
        llm.wake_up(tags=["kv_cache"])
        look("awake")
        told["tokens"] += generate(llm)
        llm.sleep(level=2)
        look("asleep, level 2")
        llm.wake_up()
        look("awake again")
        llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
