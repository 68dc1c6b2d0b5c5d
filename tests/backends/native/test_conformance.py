"""The built-in backend keeps what every backend promises."""

from __future__ import annotations

import pytest

from autotune.backends import Backend
from autotune.backends.native import NativeBackend
from autotune.testing.backend_suite import BackendSuite
from autotune.testing.expression_suite import ExpressionSuite


class TestNativeBackend(BackendSuite):
    heavy_modules = ("llvmlite", "tvm", "torch", "mlir")

    @pytest.fixture
    def backend(self) -> Backend:
        return NativeBackend()


class TestExpressions(ExpressionSuite):
    @pytest.fixture
    def backend(self) -> Backend:
        return NativeBackend()
