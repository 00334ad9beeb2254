"""SGLang: its engine boots, generates, releases its memory and takes it back.

FlashInfer compiles a kernel for it: with CUDA's compiler, nvcc, and the headers beside PyTorch.
"""

# Every package here may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import os
import tempfile
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import torch
from sglang.srt.entrypoints import engine as sglang_engine
from sglang.srt.managers.scheduler import run_scheduler_process
from transformers import LlamaConfig

from gmlake.standin.launcher import find_library
from others.made import LLAMA_1B, NEW_TOKENS, memory, note, prompts, told, write_tokenizer

PLACE = "GMLAKE_OTHERS_SOCKET"
"""The variable that says where the process that has the model is asked for its memory."""

CAN_RELEASE = "expandable_segments:True" not in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
"""torch_memory_saver, by which SGLang releases memory, refuses expandable segments."""


def answer() -> None:
    """Tell each caller the memory of this process."""
    with Listener(os.environ[PLACE]) as listener:
        while True:
            with listener.accept() as caller:
                caller.send(memory())


def run_scheduler(*given: Any, **named: Any) -> Any:  # noqa: ANN401 (SGLang's)
    """Run SGLang's scheduler, which has the model, and answer beside it."""
    threading.Thread(target=answer, daemon=True).start()
    return run_scheduler_process(*given, **named)


class Engine(sglang_engine.Engine):  # type: ignore[misc]
    """SGLang's, whose scheduler answers."""

    run_scheduler_process_func = staticmethod(run_scheduler)


def generate(engine: Engine) -> int:
    """Generate from prompts of several lengths; return how many tokens came."""
    wanted = {"max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    done = engine.generate(input_ids=prompts(), sampling_params=wanted)
    return sum(len(each["output_ids"]) for each in done)


def let_compile(folder: Path) -> None:
    """Let CUDA's compiler find the headers, and libraries to link with."""
    beside = Path(torch.__file__).parents[1] / "nvidia" / "cu13"
    (folder / "libcudart.so").symlink_to(beside / "lib" / "libcudart.so.13")
    (folder / "libcuda.so").symlink_to(find_library())
    os.environ.update(CPATH=str(beside / "include"), LIBRARY_PATH=str(folder))


def main() -> None:
    """Serve, and note the memory at each moment."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model"
        LlamaConfig(**LLAMA_1B).save_pretrained(model)
        write_tokenizer(model)
        let_compile(folder)
        os.environ[PLACE] = f"{name}/socket"
        engine = Engine(
            model_path=str(model),
            load_format="dummy",
            skip_tokenizer_init=True,
            enable_memory_saver=CAN_RELEASE,
            sampling_backend="pytorch",
        )

        def look(moment: str) -> None:
            with Client(os.environ[PLACE]) as server:
                note(moment, server.recv())

        look("booted")
        told["tokens"] = generate(engine)
        look("generated")
        if CAN_RELEASE:
            engine.release_memory_occupation()
            look("asleep")
            engine.resume_memory_occupation(tags=["weights"])
            look("weights awake")
            engine.resume_memory_occupation(tags=["kv_cache", "cuda_graph"])
            look("awake")
            told["tokens"] += generate(engine)
        engine.shutdown()


if __name__ == "__main__":
    main()
