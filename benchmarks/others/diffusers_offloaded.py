"""diffusers: the parts of an SDXL move to the device one by one; pictures have several sizes."""

# Every package here may be absent where the types are checked.
# mypy: allow-untyped-calls, disable-error-code="import-not-found, unused-ignore"

from __future__ import annotations

import random

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

PICTURES, STEPS = 8, 4
UNET = {
    "sample_size": 128,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (320, 640, 1280),
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
    "use_linear_projection": True,
}
VAE = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
    "latent_channels": 4,
    "sample_size": 1024,
    "force_upcast": False,
}
TEXT = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 20,
    "projection_dim": 1280,
    "hidden_act": "gelu",
}


def made(kind: type[torch.nn.Module], *given: object, **named: object) -> torch.nn.Module:
    """Return a model of 16 bits on the host whose weights nobody initialised."""
    with torch.device("meta"):
        model = kind(*given, **named)
    return model.half().to_empty(device="cpu").eval()


def embeddings(encoder: torch.nn.Module, pictures: int) -> dict[str, torch.Tensor]:
    """Encode prompts, for which the encoder comes to the device and leaves it."""
    encoder.cuda()
    words = torch.randint(0, 40000, (pictures, 77)).cuda()
    seen = encoder(words, output_hidden_states=True)
    encoder.cpu()
    # The first of SDXL's two encoders is left out; its 768 columns are zeros.
    states = torch.nn.functional.pad(seen.hidden_states[-2], (768, 0))
    return {
        "prompt_embeds": states,
        "negative_prompt_embeds": torch.zeros_like(states),
        "pooled_prompt_embeds": seen.text_embeds,
        "negative_pooled_prompt_embeds": torch.zeros_like(seen.text_embeds),
    }


def main() -> None:
    """Make pictures of 512 to 1536 pixels a side, one to four at a time."""
    encoder = made(CLIPTextModelWithProjection, CLIPTextConfig(**TEXT))
    pipeline = StableDiffusionXLPipeline(
        vae=made(AutoencoderKL, **VAE),
        unet=made(UNet2DConditionModel, **UNET),
        scheduler=DDIMScheduler(),
        text_encoder=None,
        text_encoder_2=None,
        tokenizer=None,
        tokenizer_2=None,
        add_watermarker=False,
    )
    pipeline.enable_model_cpu_offload()
    pipeline.set_progress_bar_config(disable=True)
    chance = random.Random(0)  # noqa: S311 (no secret)
    with torch.no_grad():
        for _ in range(PICTURES):
            height, width = (64 * chance.randrange(8, 25) for _ in range(2))
            pipeline(
                **embeddings(encoder, chance.randrange(1, 5)),
                height=height,
                width=width,
                num_inference_steps=STEPS,
                output_type="pt",
            )


if __name__ == "__main__":
    main()
