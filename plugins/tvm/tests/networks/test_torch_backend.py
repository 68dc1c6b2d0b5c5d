"""``torch.compile(backend="autotune")``, and torch's way through Relax."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_cuda
import pytest
import torch
from autotune_tvm import relax_pipelines, torch_backend
from autotune_tvm.torch_backend import BackendOptions, autotune
from entry_points import installed_as_declared

import autotune as package
from autotune.errors import InvalidValueError

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
    "dropout1d": lambda x: F.dropout1d(x[0], 0.5, True),
    "dropout2d": lambda x: F.dropout2d(x, 0.5, True),
    "dropout3d": lambda x: F.dropout3d(x[None], 0.5, True),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, True),
    "native_dropout": lambda x: torch.native_dropout(x, 0.5, True)[0],
    "rrelu": lambda x: F.rrelu(x, training=True),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    "rand": lambda x: x + torch.rand(4),
    "randn": lambda x: x + torch.randn(4),
    "randn_like": lambda x: x + torch.randn_like(x),
    "randint": lambda x: x + torch.randint(0, 9, (4,)),
    "randperm": lambda x: x + torch.randperm(4),
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
    "multinomial": lambda x: torch.multinomial(x[0, 0].softmax(-1), 3),
    "normal": lambda x: torch.normal(x, 1.0),
    "uniform_": lambda x: x + torch.empty_like(x).uniform_(),
    "normal_": lambda x: x + torch.empty_like(x).normal_(),
    "exponential_": lambda x: x + torch.empty_like(x).exponential_(),
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


NORMS = {
    "batch norm": (lambda: torch.nn.BatchNorm1d(3), (8, 3)),
    "images": (lambda: torch.nn.BatchNorm2d(3, momentum=0.3), (2, 3, 4, 4)),
    "without factors": (lambda: torch.nn.BatchNorm2d(3, affine=False), (2, 3, 4, 4)),
    "without statistics": (lambda: torch.nn.BatchNorm1d(3, track_running_stats=False), (8, 3)),
    "instance norm": (
        lambda: torch.nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
        (2, 3, 4, 4),
    ),
    "plain instance norm": (lambda: torch.nn.InstanceNorm1d(3), (2, 3, 5)),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", list(NORMS))
def test_norms_in_training_use_the_batch_and_update_what_they_hold(
    name: str, grad: bool, tuned: Path
) -> None:
    make, shape = NORMS[name]
    ours, theirs = make().train(), make().train()
    compiled = torch.compile(ours, backend=autotune, options={**OPTIONS, "database": str(tuned)})
    x = torch.randn(shape) * 3 + 5
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("error")
        for factor in (1.0, 2.0):
            found, wanted = compiled(x * factor), theirs(x * factor)
            close(found, wanted)
    if grad and list(ours.parameters()):
        found.square().sum().backward()
        wanted.square().sum().backward()
        for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
            # Of what a norm has centred the sum is 0, but for rounding.
            torch.testing.assert_close(mine.grad, its.grad, rtol=1e-4, atol=1e-4)
    for key, value in theirs.state_dict().items():
        close(ours.state_dict()[key], value)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: torch.nn.LayerNorm(6), (5, 6)),
        (lambda: torch.nn.GroupNorm(2, 4), (2, 4, 3, 3)),
        (lambda: torch.nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
        (lambda: torch.nn.RMSNorm(6), (5, 6)),
    ],
)
def test_gradients_of_norms_use_their_moments(make: Any, shape: Any, tuned: Path) -> None:
    """Which the forward graph returns as further outputs of the norm."""
    ours, theirs = make(), make()
    compiled = torch.compile(ours, backend=autotune, options={**OPTIONS, "database": str(tuned)})
    x, weights = torch.randn(shape) * 3 + 5, torch.randn(shape)
    mine, its = x.clone().requires_grad_(), x.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (compiled(mine) * weights).sum().backward()
    (theirs(its) * weights).sum().backward()
    close(mine.grad, its.grad)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
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


def test_torch_finds_it_by_name(tuned: Path, tmp_path: Path) -> None:
    script = (
        "import sys, torch, autotune\n"
        "model = torch.nn.Linear(32, 64).eval()\n"
        "compiled = torch.compile(model, backend='autotune', options={'threads': 1})\n"
        "x = torch.ones(8, 32)\n"
        "with torch.no_grad(), autotune.database(sys.argv[1]):\n"
        "    print(torch.allclose(compiled(x), model(x), atol=1e-5))\n"
    )
    with installed_as_declared(tmp_path) as environment:
        done = subprocess.run(
            [sys.executable, "-W", "error::RuntimeWarning", "-c", script, str(tuned)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.stdout.split() == ["True"], done.stderr


@pytest.mark.slow
@pytest.mark.promise(
    "two processes compile with `torch.compile` into one database at once",
    "both compute what torch does, and every record is there once",
)
def test_two_processes_record_into_one_database(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    script = (
        "import sys, torch\n"
        "from autotune_tvm.torch_backend import autotune\n"
        "torch.manual_seed(0)\n"
        "own = torch.nn.Linear(64, int(sys.argv[2]))\n"
        "model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), own).eval()\n"
        "options = {'threads': 1, 'fallback': 'eager', 'trials': 4, 'database': sys.argv[1]}\n"
        "x = torch.ones(8, 32)\n"
        "with torch.no_grad():\n"
        "    found = torch.compile(model, backend=autotune, options=options)(x)\n"
        "    print(torch.allclose(found, model(x), rtol=1e-4, atol=1e-5))\n"
    )
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", script, str(path)]
    running = [
        subprocess.Popen([*command, width], stdout=subprocess.PIPE, text=True)
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


def test_the_way_through_relax(tuned: Path) -> None:
    """What torch's own backend of TVM offers once it goes through Relax."""
    from tvm.relax.frontend.torch import relax_dynamo

    relax_pipelines.register()
    x = torch.randn(8, 32)
    with torch.no_grad(), package.database(tuned):
        compiled = torch.compile(model(), backend=relax_dynamo(pipeline="autotune"))
        close(compiled(x), model()(x))


def graph_on_cuda(function: Any, *shapes: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """What torch captures of a function of tensors on a CUDA device, which need not be there."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode() as mode:
        inputs = [torch.empty(shape, device="cuda") for shape in shapes]
        graph = make_fx(lambda *tensors: (function(*tensors),), tracing_mode="real")(*inputs)
    assert mode is not None
    return graph, inputs


def test_subgraphs_on_a_cuda_device_are_compiled_for_it(
    fake_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Any, y: Any) -> Any:
        return torch.relu(x @ y + torch.full((6,), 2.0, device=x.device))

    fake_cuda.install(fake_driver, tmp_path, monkeypatch)
    path = tmp_path / "records.db"
    package.open_database(path).close()
    graph, inputs = graph_on_cuda(function, (4, 8), (8, 6))
    options = BackendOptions.read({"target": "cuda", "database": str(path)})
    compiled = torch_backend._compiled(options, graph, inputs)
    # Tensors of the host are copied to the device.
    x, y = torch.randn(4, 8), torch.randn(8, 6)
    (found,) = compiled(x, y)
    close(found, function(x, y))
    assert any("cuda" in str(node.kwargs) for node in graph.graph.nodes), "the graph was changed"

    asked = BackendOptions.read({"target": "cpu", "database": str(path)})
    with pytest.raises(torch_backend._NotCompiled, match="on cuda:0, and target 'cpu' is of kind"):
        torch_backend._compiled(asked, graph, inputs)
    with pytest.raises(torch_backend._NotCompiled, match="on cpu, cuda:0; subgraphs are compiled"):
        torch_backend._compiled(options, graph, [inputs[0], torch.ones(8, 6)])


def attention_of_gpus(q: Any, k: Any, v: Any, bias: Any) -> Any:
    """By the kernels that torch would launch on a GPU: with a mask, with a scale, and causal."""
    aten = torch.ops.aten
    masked = aten._scaled_dot_product_efficient_attention.default(q, k, v, bias, False)[0]
    scaled = aten._scaled_dot_product_flash_attention.default(q, k, masked, scale=0.2)[0]
    kernel = aten._scaled_dot_product_cudnn_attention.default
    return kernel(q, k, scaled, None, False, 0.0, True)[0]


def test_attention_of_gpus_is_compiled(
    fake_driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cuda.install(fake_driver, tmp_path, monkeypatch)
    path = tmp_path / "records.db"
    package.open_database(path).close()
    shapes = [(1, 2, 3, 8)] * 3 + [(1, 2, 3, 3)]
    graph, inputs = graph_on_cuda(attention_of_gpus, *shapes)
    options = BackendOptions.read({"target": "cuda", "database": str(path)})
    compiled = torch_backend._compiled(options, graph, inputs)
    q, k, v, bias = (torch.randn(shape) for shape in shapes)
    plain = torch.nn.functional.scaled_dot_product_attention
    wanted = plain(q, k, plain(q, k, plain(q, k, v, attn_mask=bias), scale=0.2), is_causal=True)
    close(compiled(q, k, v, bias)[0], wanted)

    # Gradients need more than the result: torch's own kernel is asked for it.
    def for_gradients(q: Any, k: Any, v: Any) -> Any:
        return torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, v)[1]

    graph, inputs = graph_on_cuda(for_gradients, *shapes[:3])
    with pytest.raises(torch_backend._NotCompiled, match="_scaled_dot_product_flash_attention"):
        torch_backend._compiled(options, graph, inputs)


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_a_model_on_a_cuda_device_is_compiled_for_it(tmp_path: Path) -> None:
    options = {**OPTIONS, "target": "cuda", "trials": 4, "database": str(tmp_path / "records.db")}
    there = model().cuda()
    x = torch.randn(8, 32, device="cuda")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", "autotune:")
        found = torch.compile(there, backend=autotune, options=options)(x)
    assert found.is_cuda
    close(found.cpu(), model()(x.cpu()))


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
def test_compiled_models_are_called_on_torchs_stream(tmp_path: Path) -> None:
    """Ten calls are begun behind work that takes long, and see weights as they are by then."""
    options = {**OPTIONS, "target": "cuda", "trials": 4, "database": str(tmp_path / "records.db")}
    there, plain = model().cuda(), model().cuda()
    compiled = torch.compile(there, backend=autotune, options=options)
    x = torch.randn(8, 32, device="cuda")
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        compiled(x)
        busy = torch.randn(8192, 8192, device="cuda")
        for _ in range(50):
            busy = (busy @ busy).sin()
        done = torch.cuda.Event()
        done.record()
        found = []
        for factor in range(10):
            for one, other in zip(there.parameters(), plain.parameters(), strict=True):
                one.copy_(other * (1 + factor))
            found.append(compiled(x + factor))
        assert not done.query(), "the host has waited"
        for factor, tensor in enumerate(found):
            scaled = model().cuda()
            for one, other in zip(scaled.parameters(), plain.parameters(), strict=True):
                one.copy_(other * (1 + factor))
            torch.testing.assert_close(tensor, scaled(x + factor), rtol=1e-3, atol=1e-3)


class Attending(torch.nn.Module):  # type: ignore[misc]
    """Attention of four heads beside its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = torch.nn.Linear(64, 192)
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x: Any) -> Any:
        parts = self.inputs(self.norm(x)).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return x + mixed.transpose(1, 2).reshape(x.shape)


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_attention_on_a_cuda_device_is_left_to_nobody(tmp_path: Path, dtype: Any) -> None:
    """Whichever kernel torch would take, on a device that the model's process uses already."""
    kept = torch.zeros(1 << 30, device="cuda")
    options = {**OPTIONS, "target": "cuda", "trials": 4, "database": str(tmp_path / "records.db")}
    there = Attending().cuda().to(dtype).eval()
    x = torch.randn(2, 48, 64, device="cuda", dtype=dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", "autotune:")
        found = torch.compile(there, backend=autotune, options=options)(x)
        wanted = there.double()(x.double())
    assert found.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    assert kept.sum() == 0
