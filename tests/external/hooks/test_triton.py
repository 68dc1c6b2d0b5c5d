"""Triton's timings: read from the file that it wrote, and heard from its own autotuner.

``scale.autotune.json`` was written by triton 3.9.0, with made-up times. With Triton installed, its
autotuner runs here as it is, but for the launch of kernels, which needs a GPU.
"""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import InvalidValueError
from autotune.external.ask_tell import AskTell
from autotune.external.hooks import triton as hook
from autotune.external.hooks.triton import KernelTimings, timings_of
from autotune.store.jsonl import read_lines, record_line
from autotune.store.records import Record
from autotune.store.sqlite import open_database
from autotune.targets import preset

WRITTEN = Path(__file__).parent / "scale.autotune.json"
BLOCKS, WARPS = (64, 128, 256), (2, 4)


def config(block: int, warps: int, **more: Any) -> dict[str, Any]:
    """The attributes of a configuration of Triton."""
    launch = {"num_warps": warps, "num_ctas": 1, "num_stages": 3, "maxnreg": None}
    return {"kwargs": {"BLOCK": block}, **launch, "pre_hook": None, "ir_override": None, **more}


def milliseconds(block: int, warps: int) -> float:
    return math.inf if block == 256 else 1.0 / block + warps


def timings(key: tuple[Any, ...], times: Mapping[tuple[int, int], float]) -> KernelTimings:
    return timings_of("scale", key, [(config(*it), time) for it, time in times.items()])


def test_the_cache_that_triton_wrote() -> None:
    found = hook.read_timings(WRITTEN)
    assert found.program == "scale[512]"
    assert {it.name: it.values for it in found.parameters} == {
        "BLOCK": BLOCKS,
        "num_warps": WARPS,
        "num_ctas": (1,),
        "num_stages": (3,),
    }
    for known, outcome in zip(found.configs, found.outcomes, strict=True):
        block, warps = known["BLOCK"], known["num_warps"]
        assert isinstance(block, int) and isinstance(warps, int)
        time = milliseconds(block, warps)
        assert outcome.latency == (pytest.approx(time * 1e-3) if time < math.inf else None)
        if outcome.ok:
            assert outcome.readings["triton.p80"] == pytest.approx(1.1e-3 * time)
    assert found.space().count() == len(found.configs) == 6


def test_records_are_what_databases_and_lines_hold() -> None:
    found = hook.read_timings(WRITTEN)
    records = found.records(preset("h100"), "3.9.0", "imported", 1.7e9)
    read = list(read_lines(io.BytesIO(b"".join(map(record_line, records)))))
    assert read == records
    with open_database(":memory:") as database:
        assert database.append_missing(records) == 6
        assert database.append_missing(records) == 0
        (best,) = database.fastest_of_each()
    space = found.space()
    assert space.decode(space.encode(found.configs[2])) == dict(found.configs[2])
    assert best.candidate == space.encode({**found.configs[0], "BLOCK": 128, "num_warps": 2})


def test_a_search_learns_from_timings() -> None:
    found = hook.read_timings(WRITTEN)
    search = AskTell(found.parameters, strategy="random", configs=found.configs)
    for known, outcome in zip(found.configs, found.outcomes, strict=True):
        search.learn(known, outcome.latency, failed=None if outcome.ok else outcome.message)
    assert search.best is not None and search.best.config["BLOCK"] == 128
    assert search.ask() == []


ENTRY = '[{"kwargs": {"a": 1}}, 1.0]'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "needs 'key' and 'configs_timings'"),
        ('{"key": [1]}', "needs 'key' and 'configs_timings'"),
        ('{"key": 1, "configs_timings": []}', "needs 'key'"),
        ('{"key": [1], "configs_timings": []}', "have no configuration"),
        ('{"key": [1], "configs_timings": [[{"a": 1}, 1.0]]}', "not a configuration of Triton"),
        ('{"key": [1], "configs_timings": [[{"kwargs": {}}, "1"]]}', "'1' as a time"),
        (f'{{"key": [], "configs_timings": [{ENTRY}, {ENTRY}]}}', "a configuration twice"),
    ],
)
def test_files_that_are_no_cache(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "scale.autotune.json"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=message):
        hook.read_timings(path)


def test_other_names_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"is called KERNEL\.autotune\.json"):
        hook.read_timings(tmp_path / "scale.json")
    with pytest.raises(InvalidValueError, match="cannot be read: No such file"):
        hook.read_timings(tmp_path / "scale.autotune.json")


def test_times_that_cannot_be_true_are_no_latencies() -> None:
    found = timings((1,), {(64, 2): 0.0, (64, 4): math.nan, (128, 2): 1.0})
    assert [it.status for it in found.outcomes] == ["implausible", "build_error", "ok"]


def test_values_of_any_kind() -> None:
    """A value that only some configurations set is a parameter; types are known by their text."""
    some = [config(64, 2, maxnreg=128), config(64, 2), config(128, 2, kwargs={"DTYPE": bytes})]
    found = timings_of("scale", (1, "torch.float16"), [(it, 1.0) for it in some])
    values = {it.name: it.values for it in found.parameters}
    assert values["maxnreg"] == (128, "None")
    assert values["BLOCK"] == (64, "None") and values["DTYPE"] == ("None", "builtins.bytes")
    assert found.program == "scale[1,torch.float16]"


MEASURED = {(b, w): milliseconds(b, w) for b, w in itertools.product(BLOCKS, WARPS)}


def test_a_model_of_other_keys() -> None:
    model = hook.RecordedModel.of([timings((512,), MEASURED)])
    assert model(BLOCK=128, num_warps=2, num_ctas=1, num_stages=3) == pytest.approx(1.0)
    slower = model(BLOCK=64, num_warps=4, num_ctas=1, num_stages=3)
    assert slower == pytest.approx(milliseconds(64, 4) / milliseconds(128, 2))
    assert model(BLOCK=256, num_warps=2, num_ctas=1, num_stages=3) == math.inf
    # Between 64 and 128, and nearer to two warps than to four.
    unknown = model(BLOCK=96, num_warps=2, num_ctas=1, num_stages=3)
    assert 1.0 < unknown < slower


def test_the_nearest_key_counts() -> None:
    slow_warps = {
        (block, warps): time * (10 if warps == 2 else 1)
        for (block, warps), time in MEASURED.items()
    }
    both = [timings((512,), MEASURED), timings((4096,), slow_warps)]
    model = hook.RecordedModel.of(both, ["n"])
    fixed = {"num_ctas": 1, "num_stages": 3}
    for n, best in ((400, 2), (9000, 4)):
        times = {warps: model(n=n, BLOCK=128, num_warps=warps, **fixed) for warps in WARPS}
        assert min(times, key=times.__getitem__) == best
    without = hook.RecordedModel.of(both)
    mean = math.sqrt(1.0 * model(n=9000, BLOCK=128, num_warps=2, **fixed))
    assert without(BLOCK=128, num_warps=2, **fixed) == pytest.approx(mean)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hook.prune_by_timings([], 3), "no timings"),
        (lambda: hook.prune_by_timings([timings((1,), {(256, 2): math.inf})], 3), "no timings"),
        (lambda: hook.prune_by_timings([timings((1,), MEASURED)], 0), "top_k is a whole number"),
        (
            lambda: hook.prune_by_timings([timings((1,), MEASURED)], 1, argument_names=("m", "n")),
            "fewer parts",
        ),
        (lambda: hook.prune_by_strategy(0), "count is a whole number"),
    ],
)
def test_mistakes(call: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        call()


class Launches:
    """In place of the driver and the launch: remembers arguments, and says what they take."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        self.timed: list[tuple[int, int]] = []

    def run(self, *_: Any, **arguments: Any) -> None:
        self.last = arguments

    def bench(self, call: Any, quantiles: tuple[float, ...]) -> list[float]:
        from triton.runtime.errors import OutOfResources

        call()
        block, warps = self.last["BLOCK"], self.last["num_warps"]
        self.timed.append((block, warps))
        time = milliseconds(block, warps)
        if time == math.inf:
            raise OutOfResources(300, 200, "shared memory")
        return [time, 0.9 * time, 1.1 * time]


needs_triton = pytest.mark.needs("triton")


@pytest.fixture
def triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Triton, that takes this machine for one with an H100."""
    import triton as package
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Driver:
        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

    monkeypatch.setattr(package.knobs.cache, "dir", str(tmp_path))
    driver.set_active(Driver())
    yield package
    driver.set_active(None)


def tuned(triton: Any, launches: Launches, **options: Any) -> Any:
    """A kernel of which Triton tunes the block and the warps."""
    made = [
        triton.Config({"BLOCK": block}, num_warps=warps)
        for block, warps in itertools.product(BLOCKS, WARPS)
    ]
    from kernel_of_triton import scale

    kernel = triton.autotune(made, key=["n"], do_bench=launches.bench, **options)(scale)
    kernel.fn.run = launches.run
    return kernel


@needs_triton
def test_what_triton_writes_is_as_it_was(triton: Any, tmp_path: Path) -> None:
    tuned(triton, Launches(), cache_results=True).run(1, 512)
    (path,) = tmp_path.rglob("*.autotune.json")
    assert path.name == WRITTEN.name
    now, then = hook.read_timings(path), hook.read_timings(WRITTEN)
    assert (now.key, now.configs, now.outcomes) == (then.key, then.configs, then.outcomes)


@needs_triton
def test_the_listener_records_every_timing(triton: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Record] = []
    target = preset("h100")
    listener = hook.listen(heard.append, target, "serving", lambda: 1.7e9)
    monkeypatch.setattr(triton.knobs.autotuning, "listener", listener)
    kernel = tuned(triton, Launches(), cache_results=True)
    kernel.run(1, 512)
    version = triton.__version__
    assert heard == hook.read_timings(WRITTEN).records(target, version, "serving", 1.7e9)
    kernel.run(1, 512)
    kernel.cache.clear()
    kernel.run(1, 512)
    assert len(heard) == 6, "what comes from the cache was recorded before"
    kernel.run(1, 1024)
    assert [it.trial for it in heard] == list(range(12))
    assert len({it.candidate.sketch.workload.digest for it in heard}) == 2


@needs_triton
def test_a_strategy_says_what_is_timed(triton: Any) -> None:
    always = {"BLOCK": 64, "num_warps": 4, "num_ctas": 1, "num_stages": 3}
    timed = []
    for seed in (1, 1, 2):
        launches = Launches()
        prune = hook.prune_by_strategy(3, strategy="random", seed=seed, always=[always])
        tuned(triton, launches, prune_configs_by=prune).run(1, 512)
        timed.append(launches.timed)
    assert timed[0] == timed[1] and timed[0] != timed[2]
    assert all(len(set(it)) == 3 and it[0] == (64, 4) for it in timed)
    launches = Launches()
    every = hook.prune_by_strategy(6, strategy="random")
    tuned(triton, launches, prune_configs_by=every).run(1, 512)
    assert len(launches.timed) == 6


@needs_triton
def test_hooks_of_configurations_tell_them_apart_and_equal_ones_are_one(triton: Any) -> None:
    def clear(_: Any) -> None: ...

    plain = triton.Config({"BLOCK": 64}, num_warps=2)
    hooked = triton.Config({"BLOCK": 64}, num_warps=2, pre_hook=clear)
    other = triton.Config({"BLOCK": 128}, num_warps=2)
    prune = hook.prune_by_strategy(3, strategy="grid")["early_config_prune"]
    kept = prune([plain, plain, hooked, other], {})
    assert sorted(map(id, kept)) == sorted(map(id, [plain, hooked, other]))


@needs_triton
def test_timings_of_another_key_say_what_is_timed(triton: Any) -> None:
    launches = Launches()
    prune = hook.prune_by_timings([hook.read_timings(WRITTEN)], 2, argument_names=["n"])
    kernel = tuned(triton, launches, prune_configs_by=prune)
    kernel.run(1, 1024)
    assert sorted(launches.timed) == [(64, 2), (128, 2)]
    assert kernel.best_config.kwargs == {"BLOCK": 128}


def test_the_golden_file_is_json_with_infinities() -> None:
    assert "Infinity" in WRITTEN.read_text()
    assert len(json.loads(WRITTEN.read_text())["configs_timings"]) == 6
