"""A model of the user."""

import torch

SCALE = 2.0


class Scaled(torch.nn.Module):
    def forward(self, values):
        return values * SCALE
