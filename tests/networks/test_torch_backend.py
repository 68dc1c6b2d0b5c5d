"""``torch.compile(backend="autotune")``."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from entry_points import installed_as_declared

import autotune as package
from autotune.errors import InvalidValueError
from autotune.networks.torch_backend import BackendOptions, autotune

OPTIONS = {"threads": 1, "fallback": "eager"}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing that torch compiled before."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with what compiling the model with a budget records."""
    path = tmp_path_factory.mktemp("records") / "records.db"
    compiled = torch.compile(
        model(), backend=autotune, options={**OPTIONS, "trials": 4, "database": str(path)}
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.ones(8, 32))
    torch._dynamo.reset()
    return path


def model() -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16)
    return torch.nn.Sequential(*layers).eval()


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_records_are_used_and_nothing_is_measured(tuned: Path) -> None:
    with package.open_database(tuned, read_only=True) as database:
        measured = database.count()
    assert measured > 0
    before = tuned.read_bytes()
    compiled = torch.compile(model(), backend=autotune, options=OPTIONS)
    x = torch.randn(8, 32)
    with torch.no_grad(), package.database(tuned), warnings.catch_warnings():
        warnings.simplefilter("error")
        close(compiled(x), model()(x))
        close(compiled(x * 2), model()(x * 2))
    assert tuned.read_bytes() == before


def test_each_new_shape_is_looked_up_and_compiled(tuned: Path) -> None:
    compiled = torch.compile(
        model(), backend=autotune, options={**OPTIONS, "database": str(tuned)}
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (8, 5, 7, 5):
            x = torch.randn(rows, 32)
            close(compiled(x), model()(x))


def test_gradients_flow_through_it(tuned: Path) -> None:
    ours, theirs = model(), model()
    compiled = torch.compile(ours, backend=autotune, options={**OPTIONS, "database": str(tuned)})
    x = torch.randn(8, 32)
    compiled(x).square().sum().backward()
    theirs(x).square().sum().backward()
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(mine.grad, its.grad)


@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 3, 1), (3, 1, 0, 2)])
def test_results_lie_in_memory_as_those_of_torch(tuned: Path, layout: tuple[int, ...]) -> None:
    def scaled(x: Any) -> Any:
        # Only in this layout is the last one a view.
        return torch.relu(x), x.sum(1), x[:, :1] * 2, x.permute(layout).view(-1) + 1

    made = torch.randn([(2, 3, 4, 5)[axis] for axis in layout])
    x = made.permute(*(layout.index(axis) for axis in range(4)))
    options = {**OPTIONS, "database": str(tuned)}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found, wanted = torch.compile(scaled, backend=autotune, options=options)(x), scaled(x)
    for mine, its in zip(found, wanted, strict=True):
        close(mine, its)
        pairs = zip(mine.shape, mine.stride(), its.stride(), strict=True)
        assert all(here == there for extent, here, there in pairs if extent > 1)


def test_what_is_not_supported_is_left_to_another_with_one_line(tuned: Path) -> None:
    def singular(x: Any) -> Any:
        return torch.linalg.svdvals(x) + 1

    compiled = torch.compile(
        singular, backend=autotune, options={**OPTIONS, "database": str(tuned)}
    )
    x = torch.randn(6, 4)
    with pytest.warns(
        RuntimeWarning, match=r"a subgraph of \d+ operators is left to eager: .*svd"
    ):
        close(compiled(x), singular(x))


F = torch.nn.functional

DRAWING = {
    "dropout": lambda x: F.dropout(x, 0.5, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "rrelu": lambda x: F.rrelu(x, training=True),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "randint": lambda x: x + torch.randint(0, 9, (4,)),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "normal": lambda x: torch.normal(x, 1.0),
    "uniform_": lambda x: x + torch.empty_like(x).uniform_(),
    "poisson": lambda x: torch.poisson(x.exp()),
    "gumbel_softmax": F.gumbel_softmax,
}


@pytest.mark.parametrize("name", list(DRAWING))
def test_random_numbers_are_those_of_eager(name: str, tuned: Path) -> None:
    """Of two calls, also with a fallback that has another generator, and after the calls."""
    function = DRAWING[name]
    compiled = torch.compile(
        function, backend=autotune, options={"threads": 1, "database": str(tuned)}
    )
    x = torch.randn(2, 3, 4, 4)

    def drawn(call: Any) -> list[Any]:
        torch.manual_seed(1)
        return [call(x), call(x), torch.rand(3)]

    with torch.no_grad():
        with pytest.warns(RuntimeWarning, match=r"left to eager: node '.* draws random numbers"):
            found = drawn(compiled)
        torch.testing.assert_close(found, drawn(function), rtol=0, atol=0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x, 0.5, False) + 1,
        lambda x: F.alpha_dropout(x, 0.5, False) + 1,
        lambda x: F.scaled_dot_product_attention(x, x, x),
    ],
)
def test_what_could_draw_and_does_not_is_compiled(function: Any, tuned: Path) -> None:
    compiled = torch.compile(
        function, backend=autotune, options={**OPTIONS, "database": str(tuned)}
    )
    x = torch.randn(1, 2, 4, 4)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        close(compiled(x), function(x))


class Norms(torch.nn.Module):  # type: ignore[misc]
    """Each of its inputs, normalised by a part of its own."""

    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def forward(self, *inputs: Any) -> Any:
        return tuple(part(x) for part, x in zip(self.parts, inputs, strict=True))


def in_training() -> Any:
    """Norms with and without factors and statistics, of rows, signals and images."""
    return Norms(
        torch.nn.BatchNorm1d(3),
        torch.nn.BatchNorm1d(3, track_running_stats=False),
        torch.nn.BatchNorm2d(3, momentum=0.3),
        torch.nn.BatchNorm2d(3, affine=False),
        torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        torch.nn.InstanceNorm1d(3),
    ).train()


IMAGES = (2, 3, 4, 4)
SHAPES: list[tuple[int, ...]] = [(8, 3), (8, 3), IMAGES, IMAGES, IMAGES, (2, 3, 5)]


@pytest.mark.parametrize("grad", [True, False])
def test_norms_in_training_use_the_batch_and_update_what_they_hold(
    grad: bool, tuned: Path
) -> None:
    ours, theirs = in_training(), in_training()
    compiled = torch.compile(ours, backend=autotune, options={**OPTIONS, "database": str(tuned)})
    inputs = [torch.randn(shape) * 3 + 5 for shape in SHAPES]
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("error")
        for factor in (1.0, 2.0):
            given = [x * factor for x in inputs]
            found, wanted = compiled(*given), theirs(*given)
            close(found, wanted)
    if grad:
        for outputs in (found, wanted):
            sum(it.square().sum() for it in outputs if it.requires_grad).backward()
        for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
            # Of what a norm has centred the sum is 0, but for rounding.
            torch.testing.assert_close(mine.grad, its.grad, rtol=1e-4, atol=1e-4)
    for key, value in theirs.state_dict().items():
        close(ours.state_dict()[key], value)


def test_gradients_of_norms_use_their_moments(tuned: Path) -> None:
    """The forward graph returns the moments as further outputs of the norm."""
    ours, theirs = (
        Norms(
            torch.nn.LayerNorm(6),
            torch.nn.GroupNorm(2, 4),
            torch.nn.InstanceNorm2d(3, affine=True),
            torch.nn.RMSNorm(6),
        )
        for _ in range(2)
    )
    compiled = torch.compile(ours, backend=autotune, options={**OPTIONS, "database": str(tuned)})
    shapes = (5, 6), (2, 4, 3, 3), IMAGES, (5, 6)
    inputs = [torch.randn(shape) * 3 + 5 for shape in shapes]
    weights = [torch.randn(shape) for shape in shapes]
    mine, its = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call, given in ((compiled, mine), (theirs, its)):
            sum((y * w).sum() for y, w in zip(call(*given), weights, strict=True)).backward()
    for one, other in zip((*mine, *ours.parameters()), (*its, *theirs.parameters()), strict=True):
        close(one.grad, other.grad)


def test_what_is_written_in_place_is_seen_by_the_caller(tuned: Path) -> None:
    class Counting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Any, y: Any) -> Any:
            self.calls.add_(1)
            y[:, 0].mul_(2)
            return F.relu(x, inplace=True) * self.calls

    ours, theirs = Counting(), Counting()
    compiled = torch.compile(ours, backend=autotune, options={**OPTIONS, "database": str(tuned)})
    given = [torch.randn(3, 4) for _ in range(2)]
    mine, its = [it.clone() for it in given], [it.clone() for it in given]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            close(compiled(*mine), theirs(*its))
            close(mine, its)
    assert ours.calls == 2


def test_without_database_and_budget_it_says_what_to_name(tmp_path: Path) -> None:
    options = {**OPTIONS, "database": str(tmp_path / "nothing.db")}
    compiled = torch.compile(model(), backend=autotune, options=options)
    x = torch.randn(8, 32)
    with torch.no_grad(), pytest.warns(RuntimeWarning, match=r"no database .*nothing\.db.*trials"):
        close(compiled(x), model()(x))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trails": 3}, "no option 'trails'.*Did you mean 'trials'"),
        ({"trials": 0}, "trials"),
        ({"time": -1.0}, "time"),
        ({"threads": 10**6}, "threads must be at most"),
        ({"fallback": "none"}, "fallback is one of inductor, eager, not 'none'"),
    ],
)
def test_options_are_checked(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        BackendOptions.read(given)


@pytest.mark.slow
@pytest.mark.promise(
    "two processes compile with `torch.compile` into one database at once",
    "both compute what torch does, and every record is there once",
)
def test_two_processes_record_into_one_database(tmp_path: Path) -> None:
    """Torch finds the backend by its name there."""
    path = tmp_path / "records.db"
    script = (
        "import sys, torch, autotune\n"
        "torch.manual_seed(0)\n"
        "own = torch.nn.Linear(64, int(sys.argv[2]))\n"
        "model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), own).eval()\n"
        "options = {'threads': 1, 'fallback': 'eager', 'trials': 4}\n"
        "x = torch.ones(8, 32)\n"
        "with torch.no_grad(), autotune.database(sys.argv[1]):\n"
        "    found = torch.compile(model, backend='autotune', options=options)(x)\n"
        "    print(torch.allclose(found, model(x), rtol=1e-4, atol=1e-5))\n"
    )
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", script, str(path)]
    with installed_as_declared(tmp_path) as environment:
        running = [
            subprocess.Popen([*command, width], stdout=subprocess.PIPE, text=True, env=environment)
            for width in ("16", "24")
        ]
        said = [process.communicate(timeout=600)[0].split()[-1:] for process in running]
    assert said == [["True"], ["True"]]
    with package.open_database(path, read_only=True) as database:
        runs, records = database.runs(), list(database.records())
        database.check()
    assert [run.status for run in runs] == ["finished"] * 2
    places = {(record.run_id, record.trial) for record in records}
    assert len(places) == len(records) > 0
