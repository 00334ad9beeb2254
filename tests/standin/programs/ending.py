"""Ends right after a backward pass, while a recording is on."""

from __future__ import annotations

import json

import torch
from torch import nn

import gmlake

gmlake.enable()
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(100))).cuda()
recording = gmlake.record()
print(json.dumps({}), flush=True)
for _ in range(2):
    loss = model(torch.ones(8, 64, device="cuda")).sum()
    loss.backward()
    del loss
