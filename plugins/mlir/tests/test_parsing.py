"""Contexts, and messages in one line."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_mlir import parsing
from autotune_mlir.emit import payload
from autotune_mlir.parsing import brief

from autotune.ir.workloads import gemm

PROGRAM = payload(gemm(m=16, n=32, k=8))


def test_contexts_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_CONTEXT_USES", 3)
    monkeypatch.setattr(parsing, "_contexts", parsing._Contexts())
    modules = [parsing.parse_payload(PROGRAM) for _ in range(7)]
    contexts = [id(module.context) for module in modules]
    assert len(set(contexts)) == 3
    assert contexts == sorted(contexts, key=contexts.index)


def test_messages_are_brief() -> None:
    error: Any = RuntimeError('Failed:\nerror: "-":1:2:  it is   wrong\n note: so\n')
    assert brief(error) == 'Failed: error: "-":1:2: it is wrong note: so'
    shown = 'error: wrong\n note: "-":3:4: see current operation: %0 = "a" ' + "x" * 1000
    assert brief(RuntimeError(shown)) == "error: wrong"
    assert len(brief(RuntimeError("word " * 500))) < 500
    assert brief(ValueError("")) == "no message"
