"""Networks on the command line: the source that is read, and commands that tune nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from attrs import evolve, frozen

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import argument, command_of, nested, option
from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import read_database, tuning
from autotune.cli.output import Output, notify
from autotune.cli.progress import ReadingLines
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.networks.api import Coverage, ModelOptions
    from autotune.networks.fixed_inputs import AskedInputs
    from autotune.networks.frontend import NetworkProgram
    from autotune.networks.model_result import ModelResult
    from autotune.networks.source import Source
    from autotune.search.schedulers.task_scheduler import Objective
    from autotune.tuning.options import TuneOptions

__all__ = [
    "AskedModel",
    "bench_model",
    "build_model",
    "library_option",
    "model_tasks",
    "notify_remarks",
    "read_objective",
    "timed_and_saved",
]

SOURCE_HELP = (
    "SOURCE is a function that returns a model and its example inputs, package.module:function, "
    "or a file that a frontend reads (`autotune plugins` lists those that are installed): graph "
    "reads ONNX (.onnx) and exported programs of torch (.pt2), relax reads Relax as JSON (.json) "
    "and TVMScript (.py), mlir reads MLIR (.mlir)."
)


@frozen
class AskedModel:
    """The model that a command line asks for.

    Attributes:
        given: The source, or None.
        network: The network of a plugin in its place, or None.
        sizes: Sizes of that network, as texts.
        frontend: Name of the part that reads it, or None.
        passes: Replacements of passes, as texts.
        precision: What a module of torch is converted to, or None.
        dims: Lengths of axes, as texts.
        inputs: Shapes, examples and values of inputs, as texts.
        verbose: Whether to show every pass.
        no_check: Whether outputs are not compared with the model's.
        is_timed: Whether programs of it are timed, for which there must be a machine.
        is_recorded: Whether it is made of records, for which there must be a database.
    """

    given: str | None = argument("[SOURCE]", InputFile())
    network: str | None = option(
        "--network NAME",
        "In place of SOURCE: a network that a plugin builds, such as autotune-zoo.",
    )
    sizes: tuple[str, ...] = option(
        "--size K=V,...",
        "Sizes of that network that are not the published ones, such as layers=2.",
    )
    frontend: str | None = option(
        "--frontend NAME", "What reads SOURCE; by default the first installed part that does."
    )
    passes: tuple[str, ...] = option(
        "--pass NAME=off|MODULE:FUNCTION",
        "Leave a graph pass out, or replace it; may be repeated. -v shows their names.",
    )
    precision: str | None = option(
        "--precision float16|bfloat16",
        "Convert a module of torch to half precision: its weights, inputs and outputs. Outputs "
        "are compared with those of the module as it was.",
    )
    dims: tuple[str, ...] = option(
        "--dim AXIS=LENGTH,...",
        "Lengths of axes that the model names instead, such as batch=1; may be repeated.",
    )
    inputs: tuple[str, ...] = option(
        "--input NAME=SHAPE|FILE.npy|VALUE",
        "What an input is: its shape, x=1,3,320,480; an example of it, x=FILE.npy; or, of one "
        "element, a value that it has in every call, sr=16000. May be repeated.",
    )
    verbose: bool = option("-v --verbose", "Show every graph pass with its seconds.")
    no_check: bool = option("--no-check", "Do not compare the outputs with those of the model.")
    is_timed: bool = False
    is_recorded: bool = False

    def __attrs_post_init__(self) -> None:
        given, network = self.given, self.network
        if given is not None and network is not None:
            raise InvalidValueError(f"--network {network} and SOURCE {given!r} exclude each other")
        if self.sizes and network is None:
            raise InvalidValueError("--size needs the network that it is of: --network NAME")
        if network is not None:
            from autotune.networks.source import check_network

            check_network(network)
        elif given is None:
            raise InvalidValueError(
                "Missing argument 'SOURCE': a function package.module:function, a file, or "
                "--network NAME"
            )

    @property
    def is_own(self) -> bool:
        """True if it is a network of a plugin."""
        return self.network is not None

    @property
    def text(self) -> str:
        """The source, or the network of a plugin."""
        return str(self.given if self.network is None else self.network)

    def source(self, options: TuneOptions) -> Source:
        """The model, which may take long to import: first it is checked what is known without.

        Raises:
            AutotuneError: there is no such model, or it cannot be made; or the database that the
                command reads cannot be read, or programs cannot be timed on the target.
        """
        from autotune.networks.source import in_precision, read_network, read_source, with_inputs

        self._check_before(options)
        asked = self.asked()
        if self.is_own:
            read = read_network(self.text, self.own_sizes)
        else:
            read = read_source(self.text, self.frontend)
        return in_precision(with_inputs(read, asked), self.precision)

    def asked(self) -> AskedInputs:
        """Inputs as the command line describes them.

        Raises:
            InvalidValueError: a text is of another form, or a name is there twice.
        """
        from autotune.networks.fixed_inputs import read_asked

        return read_asked(self.dims, self.inputs)

    def _check_before(self, options: TuneOptions) -> None:
        from autotune.networks.api import check_measuring
        from autotune.store.sqlite import open_database

        if self.is_recorded:
            with open_database(options.database, read_only=True):
                pass
        if self.is_timed:
            check_measuring(self.reading(), options)

    @property
    def own_sizes(self) -> dict[str, int]:
        """Sizes of a network of the package.

        Raises:
            InvalidValueError: one is no whole number, or given twice.
        """
        from autotune.plugins.workload_names import parse_assignments

        sizes = parse_assignments(",".join(self.sizes), "--size")
        return {key: _whole(key, text) for key, text in sizes.items()}

    def reading(self) -> ModelOptions:
        """Options of reading the model.

        Raises:
            AutotuneError: there is no such frontend, or a pass is not replaced as it can be.
        """
        from autotune.networks.api import ModelOptions
        from autotune.networks.loading import read_passes
        from autotune.networks.source import check_precision
        from autotune.plugins.parts import check_part

        self.asked()  # refuses what is wrong of it before the model is read
        check_precision(self.precision)
        if self.frontend is not None:
            check_part("frontend", self.frontend)
        passes = read_passes(self.passes)
        return ModelOptions(frontend=self.frontend, passes=passes, check=not self.no_check)


def _whole(key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidValueError(f"--size: {key} must be a whole number, not {text!r}")
    return int(text)


def read_objective(text: str | None) -> tuple[Objective | None, dict[str, float]]:
    """Read ``--objective``: a function, or weights of tasks by their names.

    Raises:
        InvalidValueError: it is neither, or a weight is no positive number.
    """
    from autotune.networks.source import imported_function
    from autotune.plugins.workload_names import parse_assignments

    if text is None:
        return None, {}
    if "=" in text:
        given = parse_assignments(text, "--objective")
        return None, {name: _weight(name, weight) for name, weight in given.items()}
    if ":" not in text:
        raise InvalidValueError(
            f"--objective {text!r} is neither a function, package.module:function, nor a list of "
            "weights, TASK=WEIGHT,..."
        )
    purpose = "takes the latencies of the tasks and returns a number"
    return cast("Objective", imported_function(text, purpose)), {}


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InvalidValueError(f"--objective: {name} must be a positive number, not {text!r}")
    return weight


def notify_remarks(network: NetworkProgram) -> None:
    """Say what was chosen of a model's inputs that nobody gave."""
    for remark in network.fixed.remarks if network.fixed else ():
        notify(f"autotune: {remark}")


# Inferences that timing a network takes at least: two that are timed, and two by task.
_TIMED_CALLS = 4
_MOST_UNDECIDED = 0.25
BUILD_MODEL_EPILOG = """\b
Examples:
  autotune build-model --network mobilenet_v2 -o mobilenet.so
  autotune build-model model.onnx --database records.db -o model.so
  autotune build-model model.mlir -o library.mlir
  autotune build-model --network resnet_50 --target h100 -o resnet.cuda
"""


def library_option() -> Any:
    """``--output FILE``, of a network that is built."""
    text = (
        "Write the network with its weights to this file, a shared library; for CUDA devices an "
        "archive of machine code; of an MLIR module, the schedules of its functions as a "
        "transform library."
    )
    return option("--output -o FILE", text, OutputFile("library"))


@frozen
class _Build:
    model: AskedModel = nested(AskedModel, is_recorded=True)
    options: TuneOptions = tuning("target", "threads", "backend", "database")
    library_path: str | None = library_option()


@command_of(
    "build-model",
    _Build,
    BUILD_MODEL_EPILOG,
    "Build a network with the fastest schedules that the database has for its tasks, and time "
    "it. Tasks without a record are run by the backend's default schedule.\n\n" + SOURCE_HELP,
)
def build_model(asked: _Build, output: Output) -> int:
    from autotune.networks.api import build_recorded

    model = asked.model
    options = evolve(asked.options, listeners=[ReadingLines(model.verbose)])
    reading = model.reading()
    recorded = build_recorded(model.source(asked.options), reading, options)
    notify_remarks(recorded.network)
    result = timed_and_saved(recorded, asked.library_path, not model.no_check)
    output.json(result.to_json())
    output.table(result.table())
    return OK


def timed_and_saved(
    result: ModelResult,
    library_path: str | None,
    check: bool,
    most_seconds: float = math.inf,
    left: Callable[[], float] = lambda: math.inf,
) -> ModelResult:
    """Build a network, write it where a path is given, and time it.

    Args:
        result: What is run for its tasks.
        library_path: Where to; ``"-"`` is refused, for a library is no text.
        check: Whether its outputs are compared with the model's.
        most_seconds: About how long it may be timed.
        left: Seconds that there are, once it has been built. A network that would take longer, or
            that needs a device that is not here, is not called: the result says what was
            ``skipped``.

    Raises:
        AutotuneError: the network cannot be built, computes something else, or cannot be written.
    """
    from autotune.networks.model_result import DEFAULT, percent_text
    from autotune.networks.running import TIMING_SECONDS, check_network, saving_seconds

    compiled = result.build(check=False)
    saving = saving_seconds(result.network.weight_bytes) if library_path else 0.0

    def calls(then: float) -> float:
        """Number of inferences there is time for, with so many seconds kept for what follows."""
        if compiled.lacks:
            return 0.0
        return max(left() - then, TIMING_SECONDS) / max(result.expected, 1e-9)

    checks = check and calls(saving) >= 1
    if checks and not check_network(result.network, compiled, target=result.target):
        notify(
            f"autotune: warning: {result.name}: its outputs were not compared: the model itself "
            "does not run here"
        )
    if result.undecided > _MOST_UNDECIDED:
        names = [it.name for it in result.tasks if it.run_by == DEFAULT]
        notify(
            f"autotune: warning: {result.name}: {len(names)} of {len(result.tasks)} tasks have no "
            f"record, which are {percent_text(result.undecided, 1.0)} of its time: tune it longer "
            "(autotune tune-model)"
        )
    if library_path is not None:
        for remark in compiled.save(Path(library_path)):
            notify(remark)
    times = calls(0.0) >= _TIMED_CALLS
    skipped = [
        name
        for name, is_left_out in (("checked", check and not checks), ("timed", not times))
        if is_left_out
    ]
    result = evolve(result, skipped=tuple(skipped), lacks=compiled.lacks)
    return result.timed(compiled, most_seconds) if times else result


BENCH_MODEL_EPILOG = """\b
Examples:
  autotune bench-model --network mobilenet_v2
  autotune bench-model model.onnx --database records.db --only autotune,onnxruntime --json b.json
  autotune bench-model --network resnet_50 --target cuda --precision float16
"""


@frozen
class _Bench:
    model: AskedModel = nested(AskedModel, without=("no_check",))
    database: str = read_database()
    target: str = option(
        "--target NAME",
        "Where: cpu, or a CUDA device of this machine: cuda, cuda:1, cuda-tf32.",
        shown="cpu",
    )
    threads: int | None = option(
        "--threads", "Threads of each; by default all CPUs.", click.IntRange(min=1)
    )
    only: str | None = option("--only NAME,...", "Only these runtimes.")
    turns: int = option("--turns", "Turns of each.", click.IntRange(1, 1000), shown=5)
    seconds: float = option(
        "--seconds", "How long a turn is.", click.FloatRange(0.01, 600.0), shown=1.0
    )
    quiet: bool = option("--quiet", "Show no progress.")


@command_of(
    "bench-model",
    _Bench,
    BENCH_MODEL_EPILOG,
    "Time a network as it is tuned in the database beside other runtimes that run it here: the "
    "same compiler untuned, torch, torch.compile, and on CPUs ONNX Runtime and OpenVINO. Each is "
    "in a process of its own, and they take turns; their outputs are compared.\n\n" + SOURCE_HELP,
)
def bench_model(asked: _Bench, output: Output) -> int:
    from autotune.networks.bench import BenchOptions, bench_model
    from autotune.networks.bench.bench import bench_table
    from autotune.tuning.options import checked_target

    model, target, threads = asked.model, asked.target, asked.threads
    model.reading()  # refuses what is wrong of it before anything is started
    on_device = checked_target(target, None).kind == "cuda"
    only: dict[str, Any] = {}
    if asked.only is not None:
        only["runtimes"] = tuple(name.strip() for name in asked.only.split(","))
    options = BenchOptions(
        database=asked.database,
        target=target,
        threads=None if on_device and threads is None else checked_target("cpu", threads).cores,
        precision=model.precision,
        turns=asked.turns,
        seconds=asked.seconds,
        frontend=model.frontend,
        passes=model.passes,
        dims=model.dims,
        inputs=model.inputs,
        **only,
    )
    _check_database(asked.database)
    sizes = model.own_sizes if model.is_own else None
    result = bench_model(
        model.text, options, sizes=sizes, say=_say_nothing if asked.quiet else notify
    )
    output.json(result.to_json())
    if all(row.latency is None for row in result.rows):
        for row in result.rows:
            notify(f"autotune: {row.runtime}: {row.problem}")
        notify("autotune: error: nothing here runs this network")
        return NOTHING_FOUND
    output.table(bench_table(result))
    return OK


def _say_nothing(text: str) -> None:
    pass


def _check_database(path: str) -> None:
    """Refuse a database that a person has named and that cannot be read.

    Without the usual one, the network is timed as it is untuned.
    """
    from autotune.store.sqlite import open_database

    context = click.get_current_context()
    if context.get_parameter_source("database") != click.core.ParameterSource.DEFAULT:
        with open_database(path, read_only=True):
            pass


MODEL_TASKS_EPILOG = """\b
Examples:
  autotune model-tasks --network mobilenet_v2
  autotune model-tasks my_package.models:small_bert -v
  autotune model-tasks model.onnx --dim batch=1 --input image=1,3,320,480 --json tasks.json
"""


@frozen
class _Tasks:
    model: AskedModel = nested(AskedModel, without=("no_check",))
    options: TuneOptions = tuning("target", "threads", parts=("search_space",))


@command_of(
    "model-tasks",
    _Tasks,
    MODEL_TASKS_EPILOG,
    "List the tasks of a network with their calls and flop, and which can be tuned. Graph passes "
    "depend on --target and --threads: those of tune-model list its tasks.\n\n" + SOURCE_HELP,
)
def model_tasks(asked: _Tasks, output: Output) -> int:
    from autotune.networks.api import coverage_table, model_tasks

    model = asked.model
    options = evolve(asked.options, listeners=[ReadingLines(model.verbose)])
    reading = model.reading()
    coverage = model_tasks(model.source(asked.options), reading, options)
    notify_remarks(coverage.network)
    output.json(coverage_json(coverage))
    output.table(coverage_table(coverage))
    return OK


def coverage_json(coverage: Coverage) -> dict[str, Any]:
    """Tunable share of a network, as JSON."""
    return {
        "network": coverage.network.name,
        "backend": coverage.network.backend,
        "space": coverage.space,
        "flop": coverage.flop,
        "tunable_flop": coverage.tunable_flop,
        "passes": [
            {"name": it.name, "seconds": it.seconds, "note": it.note}
            for it in coverage.network.passes
        ],
        "tasks": [
            {
                "name": it.task.name,
                "names": list(it.task.names),
                "nodes": list(it.task.nodes),
                "digest": None if it.task.workload is None else it.task.workload.digest,
                "occurrences": it.task.occurrences,
                "flop": it.task.flop,
                "view": it.task.view,
                "tunable": it.task.is_tunable,
                "refusal": it.task.refusal,
                "sketches": it.sketches,
                "configurations": it.configurations,
                "space": it.space or None,
            }
            for it in coverage.tasks
        ],
    }
