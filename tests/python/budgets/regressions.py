"""Changes of the project that cost GPU memory, and the line at which each must be found."""

from __future__ import annotations

from typing import NamedTuple


class Regression(NamedTuple):
    """What is replaced in a file, the test that finds it, and the line that then holds memory."""

    file: str
    old: str
    new: str
    test: str
    line: str


_TRAINING = "training.py"

REGRESSIONS = {
    "a kept graph": Regression(
        _TRAINING,
        "        loss.backward()\n        total += float(loss.detach())",
        "        loss.backward(retain_graph=True)\n        total = total + loss",
        "test_two_losses",
        "return x + self.down(functional.gelu(self.up(x)))",
    ),
    "a copy in float32": Regression(
        _TRAINING,
        "(logits * logits).mean()",
        "(logits.float() * logits.float()).mean()",
        "test_half_precision",
        "loss = (logits.float() * logits.float()).mean()",
    ),
    "a cache that grows": Regression(
        _TRAINING, "            kept = kept[-2:]\n", "", "test_generation", "return self.head(x)"
    ),
    "a missing no_grad": Regression(
        _TRAINING,
        "    with torch.no_grad():\n        return model",
        "    if True:\n        return model",
        "test_evaluation",
        "return x + self.down(functional.gelu(self.up(x)))",
    ),
    "a hook": Regression(
        _TRAINING,
        "seen.append(output.mean())",
        "seen.append(output * 2)",
        "test_features",
        "seen.append(output * 2)",
    ),
    "an optimizer's state doubled": Regression(
        _TRAINING,
        "lr=1e-4)",
        "lr=1e-4, amsgrad=True)",
        "test_training",
        "optimizer.step()",
    ),
    "a longer padding": Regression(
        _TRAINING,
        "longest = max(lengths)",
        "longest = -(-max(lengths) // 128) * 128",
        "test_padding",
        "return x + self.down(functional.gelu(self.up(x)))",
    ),
    "checkpointing off": Regression(
        "model.py",
        "if self.checkpointed else",
        "if False else",
        "test_checkpointed",
        "return x + self.down(functional.gelu(self.up(x)))",
    ),
    "a list of losses": Regression(
        _TRAINING,
        "        losses.append(loss.detach())",
        "        losses.append(loss_of(model, tokens))",
        "test_many_steps",
        "return x + self.down(functional.gelu(self.up(x)))",
    ),
    "a view that holds its base": Regression(
        _TRAINING,
        "logits[:, -1].clone()",
        "logits[:, -1]",
        "test_last_words",
        "return self.head(x)",
    ),
}
