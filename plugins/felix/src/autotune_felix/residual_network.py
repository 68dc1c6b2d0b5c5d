"""The network of `felix-mlp`: a set of statements to one number, several members at once."""

from __future__ import annotations

import math

import torch
from torch import nn

__all__ = ["ResidualEnsemble"]


class _Dense(nn.Module):  # type: ignore[misc]
    """A linear layer of each member: ``[members, n, inputs]`` to ``[members, n, outputs]``."""

    def __init__(self, members: int, inputs: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__()
        bound = gain * math.sqrt(3.0 / inputs)
        weight = torch.empty(members, inputs, outputs).uniform_(-bound, bound)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class ResidualEnsemble(nn.Module):  # type: ignore[misc]
    """Members that differ in their first weights; each maps programs to a residual.

    As in Felix (ASPLOS'24, section on the cost model) the statements of a program are encoded,
    summed, and read by residual layers; here by layers with a smooth activation, with what the
    analytic estimate says of the program beside the sum. The last layer begins with zeros: what
    has learned nothing predicts no residual.

    Args:
        members: Number of members.
        statement: Columns of a statement.
        program: Columns of a program.
        width: Width of all layers.
    """

    def __init__(self, members: int, statement: int, program: int, width: int) -> None:
        super().__init__()
        self.members = members
        self.first = _Dense(members, statement, width)
        self.second = _Dense(members, width, width)
        self.beside = _Dense(members, program, width)
        self.third = _Dense(members, width, width)
        self.last = _Dense(members, width, 1, gain=0.0)
        self.act = nn.SiLU()

    def forward(self, statements: torch.Tensor, programs: torch.Tensor) -> torch.Tensor:
        """Residuals ``[members, n]``.

        Args:
            statements: Scaled columns ``[n, statements, columns]``; all programs have as many.
            programs: Scaled columns ``[n, columns]``.
        """
        count, each, width = statements.shape
        rows = statements.reshape(1, count * each, width).expand(self.members, -1, -1)
        hidden = self.act(self.second(self.act(self.first(rows))))
        pooled = hidden.reshape(self.members, count, each, -1).sum(dim=2)
        pooled = pooled + self.beside(programs.expand(self.members, -1, -1))
        pooled = pooled + self.act(self.third(self.act(pooled)))
        result: torch.Tensor = self.last(self.act(pooled))[:, :, 0]
        return result
