"""Trainings that PyTorch records as ever, and that note beside it what each address is for.

python -m tests.standin benchmarks/labelled.py NAME SNAPSHOT [SKIPPED [STEPS]]

Prints the notes as JSON: [allocations before, category, addresses]. "forward", "backward", "idle"
and "refused" are no categories but where a phase begins. Recording begins behind SKIPPED of STEPS.
"""

# mypy: allow-untyped-calls, allow-subclassing-any, disable-error-code="import-not-found"
# ruff: noqa: SLF001 (the names of PyTorch's recorder)

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from examples.train_gpt import GPT, Config, random_batch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

CONFIG = Config(layers=6, width=512, heads=8, context=512, vocab=16000)
CUDA = torch.device("cuda")


class Noted:
    """Notes what addresses are for, counting allocations, and records behind `skipped` steps."""

    def __init__(self, path: str, skipped: int = 0, steps: int = 5) -> None:
        self.steps = steps
        self.notes: list[tuple[int, str, list[int]]] = []
        self.path = path
        self._skipped = skipped
        self._before = 0
        if not skipped:
            self._record()

    def _record(self) -> None:
        self._before = self._count()
        torch.cuda.memory._record_memory_history(stacks="python", max_entries=10**7)

    def _count(self) -> int:
        return int(torch.cuda.memory_stats().get("allocation.all.allocated", 0)) - self._before

    def note(self, what: str, tensors: Iterable[Any] = ()) -> None:
        """Note that these tensors are alive now, and what for."""
        found = [
            one.untyped_storage().data_ptr()
            for one in tensors
            if isinstance(one, Tensor) and one.is_cuda
        ]
        self.notes.append((self._count(), what, found))

    def dump(self) -> None:
        """End the recording; what is still alive lives to its end."""
        torch.cuda.memory._dump_snapshot(self.path)

    def step(self, number: int) -> None:
        """Begin a step; recording begins with the first that is not skipped."""
        if number == self._skipped and number:
            self.notes.clear()
            self._record()

    def knows(self, *models: nn.Module) -> None:
        """Note the parameters, buffers and gradients of models."""
        for model in models:
            self.note("parameter", [*model.parameters(), *model.buffers()])
            self.note("gradient", [one.grad for one in model.parameters()])

    def knows_states(self, *optimizers: torch.optim.Optimizer) -> None:
        """Note what optimizers keep."""
        for optimizer in optimizers:
            for state in optimizer.state.values():
                self.note("optimizer state", state.values())

    @contextmanager
    def forward(self) -> Iterator[None]:
        """Note what autograd saves meanwhile."""

        def saved(tensor: Tensor) -> Tensor:
            self.note("activation", [tensor])
            return tensor

        self.note("forward")
        with torch.autograd.graph.saved_tensors_hooks(saved, lambda tensor: tensor):
            yield

    def backward(self, loss: Tensor, *models: nn.Module) -> None:
        """Compute gradients, and note them."""
        self.knows(*models)
        self.note("backward")
        loss.backward()
        self.note("idle")
        self.knows(*models)


def language_loss(model: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Return the loss of foretelling each token from those before it."""
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def gpt(noted: Noted, *, has_checkpoints: bool = False) -> GPT:
    """Return a GPT on the device, its parameters noted."""
    with CUDA:
        model = GPT(CONFIG, has_checkpoints=has_checkpoints)
    noted.knows(model)
    return model


def tokens(step: int = 0) -> Tensor:
    """Return a batch, each step's of another length where `step` counts."""
    return random_batch(CONFIG, 4, CONFIG.context - 37 * step, CUDA)


def train(  # noqa: PLR0913 (what programs differ in)
    noted: Noted,
    make: Callable[..., torch.optim.Optimizer],
    *,
    dtype: torch.dtype | None = torch.bfloat16,
    has_checkpoints: bool = False,
    keeps_gradients: bool = False,
    parts: int = 1,
    clears_first: bool = False,
    evaluates: bool = False,
    is_varying: bool = False,
) -> None:
    """Train a GPT. dtype: of autocast. parts: batches for each step of the optimizer."""
    model = gpt(noted, has_checkpoints=has_checkpoints)
    optimizer = make(model.parameters())
    scaler = GradScaler("cuda", enabled=dtype == torch.float16)
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)
        if clears_first:
            optimizer.zero_grad()
        for _ in range(parts):
            batch = tokens(number if is_varying else 0)
            with noted.forward(), torch.autocast("cuda", dtype, enabled=dtype is not None):
                loss = language_loss(model, batch)
            noted.backward(scaler.scale(loss), model)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        noted.knows(model)
        scaler.step(optimizer)
        scaler.update()
        noted.knows_states(optimizer)
        if not clears_first:
            optimizer.zero_grad(set_to_none=not keeps_gradients)
        if evaluates and number % 2:
            noted.note("idle")
            evaluate(model)
            noted.note("idle")
    noted.dump()


def evaluate(model: nn.Module) -> None:
    """Add up losses without gradients."""
    total = torch.zeros((), device=CUDA)
    with torch.no_grad():
        for _ in range(3):
            total += language_loss(model, tokens())


def lora(noted: Noted) -> None:
    """Tune adapters of a language model whose own parameters are frozen."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=16000,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    model = get_peft_model(
        LlamaForCausalLM(config).to(torch.bfloat16).cuda(),
        LoraConfig(r=16, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"]),
    )
    noted.knows(model)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)
        batch = torch.randint(16000, (4, 512), device=CUDA)
        with noted.forward():
            loss = model(input_ids=batch, labels=batch).loss
        noted.backward(loss, model)
        optimizer.step()
        noted.knows_states(optimizer)
        optimizer.zero_grad()
    noted.dump()


def convolutions(noted: Noted) -> None:
    """Train a network with buffers, on pictures that come from the processor's memory."""
    layers: list[nn.Module] = []
    for inner, outer in ((3, 64), (64, 64), (64, 128), (128, 256), (256, 512)):
        layers += [nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 25, 1000)).cuda()
    noted.knows(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)
        pictures = torch.zeros(32, 3, 160, 160).to(CUDA)
        labels = torch.zeros(32, dtype=torch.long).to(CUDA)
        with noted.forward():
            loss = functional.cross_entropy(model(pictures), labels)
        noted.backward(loss, model)
        optimizer.step()
        noted.knows_states(optimizer)
        optimizer.zero_grad()
    noted.dump()


def closure(noted: Noted) -> None:
    """Let the optimizer call forward and backward, as Lightning does."""
    model = gpt(noted)
    optimizer = torch.optim.Adam(model.parameters())
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)

        def compute() -> Tensor:
            optimizer.zero_grad()
            batch = tokens()
            with noted.forward():
                loss = language_loss(model, batch)
            noted.backward(loss, model)
            return loss

        optimizer.step(compute)
        noted.knows_states(optimizer)
    noted.dump()


def two_networks(noted: Noted) -> None:
    """Train two networks against each other, each with an optimizer of its own."""
    sizes = ((256, 1024), (1024, 2048), (2048, 4096))
    layers = [layer for pair in sizes for layer in (nn.Linear(*pair), nn.ReLU())]
    maker = nn.Sequential(*layers).cuda()
    sizes = ((4096, 2048), (2048, 512), (512, 1))
    judge = nn.Sequential(
        *[nn.Sequential(nn.Linear(*pair), nn.LeakyReLU()) for pair in sizes]
    ).cuda()
    noted.knows(maker, judge)
    optimizers = [torch.optim.Adam(one.parameters(), betas=(0.5, 0.999)) for one in (maker, judge)]
    truth = functional.binary_cross_entropy_with_logits
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(maker, judge)
        noted.knows_states(*optimizers)
        ones = torch.ones(4096, 1, device=CUDA)
        real = torch.randn(4096, 4096, device=CUDA)
        optimizers[1].zero_grad()
        with noted.forward():
            made = maker(torch.randn(4096, 256, device=CUDA))
            loss = truth(judge(real), ones) + truth(judge(made.detach()), 1 - ones)
        noted.backward(loss, maker, judge)
        optimizers[1].step()
        noted.knows_states(*optimizers)
        optimizers[0].zero_grad()
        with noted.forward():
            loss = truth(judge(made), ones)
        noted.backward(loss, maker, judge)
        optimizers[0].step()
        noted.knows_states(*optimizers)
    noted.dump()


def refused(noted: Noted) -> None:
    """Double the batch until memory runs out, which frees everything."""
    model = gpt(noted)
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(20):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)
        batch = random_batch(CONFIG, 4 << number, CONFIG.context, CUDA)
        with noted.forward(), torch.autocast("cuda", torch.bfloat16):
            loss = language_loss(model, batch)
        noted.backward(loss, model)
        optimizer.step()
        noted.knows_states(optimizer)
        optimizer.zero_grad()


def by_hand(noted: Noted) -> None:
    """Train tensors that no module holds, with an optimizer of one's own."""
    with torch.no_grad():
        weights = [torch.randn(2048, 2048, device=CUDA) * 0.02 for _ in range(8)]
    for one in weights:
        one.requires_grad_()
    averages = [torch.zeros_like(one) for one in weights]
    for number in range(noted.steps):
        noted.step(number)
        noted.note("parameter", weights)
        noted.note("optimizer state", averages)
        value = torch.randn(4096, 2048, device=CUDA)
        with noted.forward():
            for one in weights:
                value = torch.tanh(value @ one)
            loss = value.square().mean()
        noted.note("backward")
        loss.backward()
        noted.note("idle")
        noted.note("gradient", [one.grad for one in weights])
        with torch.no_grad():
            for one, average in zip(weights, averages, strict=True):
                assert one.grad is not None  # noqa: S101 (for the checker of types)
                average.mul_(0.9).add_(one.grad)
                one.sub_(0.1 * average)
                one.grad = None
    noted.dump()


class VisionTransformer(nn.Module):
    """A transformer for pictures [batch, 3, 128, 128], in patches of 16."""

    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.Parameter(torch.zeros(64, width))
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, pictures: Tensor) -> Tensor:
        patches = self.patches(pictures).flatten(2).transpose(1, 2)
        out: Tensor = self.head(self.layers(patches + self.places).mean(1))
        return out


def averaged(noted: Noted) -> None:
    """Train a vision transformer by RMSprop and keep an average of its weights."""
    model = VisionTransformer().cuda()
    average = torch.optim.swa_utils.AveragedModel(model)
    noted.knows(model, average)
    optimizer = torch.optim.RMSprop(model.parameters(), momentum=0.9)
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model, average)
        noted.knows_states(optimizer)
        pictures = torch.randn(64, 3, 128, 128).to(CUDA)
        labels = torch.zeros(64, dtype=torch.long).to(CUDA)
        with noted.forward():
            scores = model(pictures)
            loss = functional.cross_entropy(scores, labels, label_smoothing=0.1)
        optimizer.zero_grad()
        noted.backward(loss, model)
        optimizer.step()
        average.update_parameters(model)
        noted.knows_states(optimizer)
    noted.dump()


def recurrent(noted: Noted) -> None:
    """Train a recurrent network on a stream of text, with a state that outlives each step."""
    with CUDA:
        names = nn.Embedding(8000, 512)
        cells = nn.ModuleList(nn.LSTMCell(512, 512) for _ in range(2))
        head = nn.Linear(512, 8000)
    model = nn.ModuleList([names, cells, head])
    noted.knows(model)
    optimizer = torch.optim.Adagrad(model.parameters())
    states = [(torch.zeros(64, 512, device=CUDA), torch.zeros(64, 512, device=CUDA)) for _ in cells]
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)
        text = torch.randint(8000, (33, 64), device=CUDA)
        optimizer.zero_grad()
        with noted.forward():
            losses = []
            for now, following in pairwise(text):
                value = names(now)
                for place, cell in enumerate(cells):
                    states[place] = cell(value, states[place])
                    value = states[place][0]
                losses.append(functional.cross_entropy(head(value), following))
            loss = torch.stack(losses).mean()
        noted.backward(loss, model)
        optimizer.step()
        noted.knows_states(optimizer)
        states = [(hidden.detach(), cell.detach()) for hidden, cell in states]
    noted.dump()


def bert(noted: Noted) -> None:
    """Train a model of `transformers` whose layers are computed again, by nested passes."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=12000, hidden_size=384, num_hidden_layers=6, num_attention_heads=6
    )
    model = BertForMaskedLM(config).cuda()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    noted.knows(model)
    optimizer = torch.optim.NAdam(model.parameters())
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)
        text = torch.randint(12000, (16, 256 - 16 * number), device=CUDA)
        with noted.forward():
            loss = model(input_ids=text, labels=text).loss
        noted.backward(loss, model)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        noted.knows_states(optimizer)
        model.zero_grad()
    noted.dump()


def generation(noted: Noted) -> None:
    """Extend texts token by token with keys and values that are kept; train nothing."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=16000,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=6,
        num_attention_heads=8,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
    noted.knows(model)
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        text = torch.randint(16000, (8, 64 + 16 * number), device=CUDA)
        noted.note("idle")
        with torch.no_grad():
            found = model(text, use_cache=True)
            for _ in range(24):
                text = found.logits[:, -1:].argmax(-1)
                found = model(text, past_key_values=found.past_key_values, use_cache=True)
        noted.note("idle")
    noted.dump()


def compiled(noted: Noted) -> None:
    """Train a GPT that PyTorch has compiled."""
    model = gpt(noted)
    run = torch.compile(model)
    optimizer = ADAM(model.parameters())
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)
        batch = tokens()
        noted.note("forward")  # hooks on what autograd saves would be compiled too
        with torch.autocast("cuda", torch.bfloat16):
            loss = language_loss(run, batch)
        noted.backward(loss, model)
        optimizer.step()
        noted.knows_states(optimizer)
        optimizer.zero_grad()
    noted.dump()


def distributed(noted: Noted) -> None:
    """Train as the only one of a group, with gradients in buckets; needs memory with real bytes."""
    from torch.distributed import destroy_process_group, init_process_group

    group = f"file://{noted.path}.group"
    init_process_group("gloo", init_method=group, rank=0, world_size=1)
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(12)]).cuda()
    noted.knows(model)
    run = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = ADAM(model.parameters())
    for number in range(noted.steps):
        noted.step(number)
        noted.knows(model)
        noted.knows_states(optimizer)
        batch = torch.zeros(512, 1024, device=CUDA)
        with noted.forward():
            loss = run(batch).square().mean()
        noted.backward(loss, model)
        optimizer.step()
        noted.knows_states(optimizer)
        optimizer.zero_grad()
    noted.dump()
    destroy_process_group()


ADAM = torch.optim.AdamW
PROGRAMS: dict[str, Callable[[Noted], None]] = {
    "GPT, AdamW": partial(train, make=ADAM),
    "SGD with momentum, gradients set to zero": partial(
        train, make=partial(torch.optim.SGD, lr=0.1, momentum=0.9), dtype=None, keeps_gradients=True
    ),
    "recomputation": partial(train, make=ADAM, has_checkpoints=True),
    "gradient accumulation, varying lengths": partial(train, make=ADAM, parts=4, is_varying=True),
    "fused AdamW, cleared before the step": partial(
        train, make=partial(ADAM, fused=True), clears_first=True
    ),
    "Adam one by one, float16 with a scaler": partial(
        train, make=partial(torch.optim.Adam, foreach=False), dtype=torch.float16
    ),
    "evaluation in between": partial(train, make=ADAM, evaluates=True),
    "LoRA": lora,
    "convolutions": convolutions,
    "closure": closure,
    "two networks": two_networks,
    "out of memory": refused,
    "without modules": by_hand,
    "vision transformer, RMSprop, averaged": averaged,
    "recurrent, Adagrad": recurrent,
    "BERT, NAdam, nested passes": bert,
    "generation": generation,
    "compiled": compiled,
    "distributed, gradients in buckets": distributed,
}


def main(name: str, path: str, *steps: str) -> None:
    """Run a program, and print what it noted."""
    noted = Noted(path, *map(int, steps))
    try:
        PROGRAMS[name](noted)
    except torch.OutOfMemoryError:
        noted.note("refused")
    if PROGRAMS[name] is refused:
        noted.dump()
    print(json.dumps({"notes": noted.notes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
