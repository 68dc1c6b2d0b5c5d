"""Command lines that are refused: one line says why, and nothing is written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from command_lines import IN_PROCESS, TUNE, refused
from toy_parts import REFERENCE_BACKEND

G = "gemm:m=8,n=8,k=8"
SHOW = ("show", "--backend", REFERENCE_BACKEND, "--target", "skylake-avx512-2core")
FILES = {
    "list.json": {
        "tasks": [{"workload": "gemm", "shape": {"m": 4, "n": 4, "k": 4}, "name": "square-4"}]
    },
    "other.jsonl": {"event": "run_started"},
    "study.jsonl": {
        "kind": "study",
        "schema": "autotune.compare",
        "version": 1,
        "budget": {"trials": 7, "seconds": None},
        "common": [],
    },
}
"""Files that command lines name."""

Row = tuple[Sequence[str], str]

REFUSED: Mapping[tuple[str, ...], Sequence[Row]] = {
    (): [
        (["best", "--database", "none.db"], "none.db"),
        (["show", "--database", "none.db"], "none.db"),
        (["best", "--shape", "m=1"], "--shape needs a workload"),
        (["best", "gemm", "--shape", "z=1"], "unknown shape parameter of gemm 'z'"),
        (["best", "gemm", "--shape", "m=x"], "m must be a whole number"),
        (["best", "--target", "haswel"], "Did you mean 'haswell'"),
        (["tuen"], "unknown command 'tuen'.*Did you mean 'tune'"),
        (["best", "-c", "file.json"], "^(?!.*--tasks)"),
        (
            ["tune-external", "spec.toml", "--protocol", "deadlines.run=1"],
            "unknown setting of --protocol 'deadlines.run'; .*max_rounds, min_rounds, resolution",
        ),
    ],
    ("tune",): [
        (["gem", "--shape", "m=1"], "unknown workload 'gem'; .*Did you mean 'gemm'"),
        (
            ["gone.mlir"],
            "'gone.mlir' is no name of a workload; .* is given by --mlir gone.mlir,",
        ),
        (["gemm", "--shape", "m=8,n=8"], "gemm: the shape lacks k; it takes m, n, k"),
        (["gemm"], "the shape lacks m, n, k"),
        (
            ["gemm", "--shape", "m=8,n=8,k=8", "--strategy", "grid", "--pruning-model", "psa"],
            "strategy 'grid' asks no pruning model: leave out --pruning-model psa, or choose",
        ),
        (
            ["gemm", "--shape", "m=8,n=8,k=8,q=2"],
            "unknown shape parameter of gemm 'q'.*k, m, n",
        ),
        (["gemm", "--shape", "m=8,n=0,k=8"], "n must be a positive integer, not 0"),
        (["gemm", "--shape", "m=8,n=-3,k=8"], "n must be a positive integer, not -3"),
        (["gemm", "--shape", "m=8,n=2.5,k=8"], "n must be a whole number, not '2.5'"),
        (["gemm", "--shape", "m=8,n=x,k=8"], "n must be a whole number, not 'x'"),
        (["gemm", "--shape", "m=8,n,k=8"], "--shape 'n' is not of the form name=value"),
        (["gemm", "--shape", "m=8,m=9"], "--shape names 'm' twice"),
        ([], "Missing argument 'WORKLOAD', a file, --mlir FILE, or a list, --tasks LIST"),
        (["--function", "f"], "--function needs the file that it is in: --mlir FILE"),
        (["gemm", "--mlir", "a.mlir"], "--mlir and WORKLOAD exclude each other"),
        (["gemm", "--db", "1"], "No such option '--db'. Did you mean '--database'"),
        (["gemm", "--trial", "1"], "No such option '--trial'. Did you mean '--trials'"),
        (["gemm", "--thr", "1"], "No such option '--thr'. Did you mean '--threads'"),
        (
            ["gemm", "--stragety", "1"],
            "No such option '--stragety'. Did you mean '--strategy'",
        ),
        (
            ["gemm", "--time-limit", "1"],
            "No such option '--time-limit'. Did you mean '--time'",
        ),
        (["gemm", "--qqq"], r"No such option '--qqq'\.$"),
        (["gemm", "--tasks", "list.json"], "--tasks and workload exclude each other"),
        (["--tasks", "list.json", "--shape", "m=8"], "--tasks and --shape exclude each other"),
        (["--tasks", "list.json", "--vendor"], "--tasks and --vendor exclude each other"),
        (["--tasks", "list.json", "--only", "squar-4"], "Did you mean 'square-4'"),
        (["--tasks", "gone.json"], "task list 'gone.json' cannot be read"),
        (["--tasks", "cpu60"], "unknown task list 'cpu60'; .* Did you mean 'cpu-60'"),
        (["gemm", "--only", "square-4"], "--only needs the list that the task is of"),
    ],
    TUNE: [
        (
            ["--strategy", "random"],
            "strategy 'random' asks no cost model: leave out --cost-model random, or choose",
        ),
        (["--pruning-model-option", "figures"], "is not of the form name=value"),
        (
            ["--dtype", "float31"],
            r"unknown dtype 'float31'; allowed: .*float32.*\. Did you mean 'float32'",
        ),
        (["--strategy", "evolutionry"], "Did you mean 'evolutionary'"),
        (["--backend", "refrence"], "unknown backend 'refrence'"),
        (["--space", "sketh"], "Did you mean 'sketch'"),
        (["--cost-model", "gdbt"], "Did you mean 'gbdt'"),
        (["--target", "haswel"], "Did you mean 'haswell'"),
        (["--target", "nowhere.json"], "cannot read the target file 'nowhere.json'"),
        (["--trials", "0"], "trials must be a whole number of at least 1, not 0"),
        (["--trials", "many"], "'many' is not a valid integer"),
        (["--time", "0"], "time must be a positive number"),
        (["--threads", "0"], "threads must be"),
        (["--warm-start", "--fresh"], "fresh .--fresh. ignores it: leave out one of"),
        (["--strategy-option", "epsilon"], "is not of the form name=value"),
        (["--strategy-option", "epsilom=1"], "Did you mean 'epsilon'"),
        (["--strategy-option", "epsilon=7"], "epsilon"),
        (["--cost-model-option", "x"], "is not of the form name=value"),
        (["--json", "nowhere/out.json"], "there is no directory 'nowhere'"),
        (["--database", "nowhere/records.db"], "nowhere"),
        (["--trils", "3"], "No such option.*--trils"),
        (["more"], "unexpected extra argument"),
        (["--cost-model", "xgb"], "XGBoost's trees are 'gbdt' here."),
        (["--cost-model", "mlp"], "TenSet's network is 'tenset-mlp' here."),
        (["--cost-model", "pam"], "all of it is the preset 'pruner-published'."),
        (["--strategy", "gridsearch"], "AutoTVM's tuner is 'grid' here."),
        (["--target", "cuda -model=a10"], "unknown model of GPU 'a10'"),
    ],
    (*TUNE, *IN_PROCESS): [
        (
            ["--log", "nowhere/run.jsonl"],
            "--log 'nowhere/run.jsonl' cannot be written: No such",
        ),
        (["--log", "."], "--log '.' cannot be written: Is a directory"),
        (["--log", "/dev/full"], "--log '/dev/full' cannot be written: No space left"),
        (["--log", "out", "--json", "out"], "--log and --json both name 'out'"),
        (["--log", "./out", "--json", "out"], "--log and --json both name './out'"),
        (["--log", "-", "--json", "-"], "--log and --json both name '-'"),
        (["--log", "run.jsonl", "--trials", "0"], "trials must be a whole number"),
        (["--quiet", "--progress", "plain"], "--quiet contradicts --progress plain"),
        (["--progress", "live"], "--progress live needs a terminal"),
        (["--progress", "loud"], "'loud' is not one of 'auto', 'live', 'plain', 'quiet'"),
    ],
    SHOW: [
        (["gemm", "--shape", "m=8,n=32,k=8", "--sketch", "dircet"], "'direct'"),
        (["gemm", "--shape", "m=8,n=32", "--sketch", "direct"], "the shape lacks k"),
        (["--sketch", "direct"], "--sketch needs a workload"),
        (["--record", "a/1", "--sketch", "direct"], "exclude each other"),
        (["--part", "script", "--sketch", "direct"], "--part script needs a record"),
        (["gemm", "--space", "sketch"], "--space goes with --sketch"),
        (["gemm", "--sketches", "--sketch", "direct"], "--sketches and --sketch exclude"),
        (["gemm", "--sketches", "--tape"], "--sketches and --part tape exclude"),
        (["--record", "a/1", "--sketches"], "--record and --sketches exclude"),
    ],
    ("replay",): [
        ([], "name a recorded space"),
        (["a.json", "--against", "grd"], "unknown strategy to compare"),
        (["a.json", "--strategies", ","], "--strategies names none"),
        (["a.json", "--strategy-option", "x=1"], "not of the form NAME.K=V"),
        (["a.json", "--strategy-option", "x.y=1"], "not among the strateg"),
        *(
            (["a.json", option, "0"], "0 is not in the range")
            for option in ("--budget", "--seeds", "--jobs")
        ),
    ],
    ("compare",): [
        ([], "Missing argument 'WORKLOAD'"),
        (["gemm:m=8,n=8,k=8"], "nothing to compare: name --strategies, --presets"),
        (["gem:m=8", "--strategies", "random"], "unknown workload 'gem'.*Did you mean 'gemm'"),
        (["gemm:m=8,n=8", "--strategies", "grid"], "the shape lacks k"),
        (["gemm:", "--strategies", "grid"], "'gemm:': its shape is missing"),
        (["gemm:m=8,n=8,k=8", "--shape", "m=8", "--strategies", "grid"], "without a shape"),
        (["gemm", "softmax", "--shape", "m=8", "--strategies", "grid"], "for one WORKLOAD"),
        (["none.mlir", "--strategies", "grid"], "none.mlir|backend imports mlir files"),
        (
            ["gemm:m=8,n=8,k=8", "gemm:k=8,n=8,m=8", "--strategies", "grid"],
            "two workloads are",
        ),
        ([G, "--strategies", "evolutionry"], "unknown strategy.*Did you mean 'evolutionary'"),
        ([G, "--presets", "prunr"], "unknown preset 'prunr'; available: "),
        ([G, "--strategies", "grid,grid"], "two contenders are called 'grid': rename one"),
        ([G, "--contender", "random=--strategy grid"], "two contenders are called 'random'"),
        ([G, "--contender", "--strategy grid"], "is not of the form NAME=OPTIONS"),
        ([G, "--contender", "mine"], "is not of the form NAME=OPTIONS"),
        ([G, "--contender", "mine=grid"], "'grid' is no option; for a strategy, write"),
        (
            [G, "--contender", "mine=--strategy 'grid"],
            "contender 'mine': no closing quotation",
        ),
        (
            [G, "--contender", "mine=--stratgy grid"],
            "contender 'mine': No such option.*--strat",
        ),
        ([G, "--contender", "mine=--seed 3"], "'mine': --seed is no choice of a contender"),
        ([G, "--contender", "mine=--database x"], "--database is no choice of a contender"),
        ([G, "--contender", "mine=--help"], "contender 'mine': No such option.*--help"),
        ([G, "--strategies", "grid", "--trials", "8"], "8 is less than one round of 'random'"),
        ([G, "--strategies", "grid", "--trials", "0"], "trials must be a whole number"),
        ([G, "--strategies", "grid", "--seeds", "0"], "0 is not in the range"),
        ([G, "--strategies", "grid", "--backend", "tvm,mlir"], "a comparison has one backend"),
        ([G, "--strategies", "grid", "--results", "-"], "--results '-' is standard output"),
        ([G, "--strategies", "grid", "--csv", "x", "--json", "x"], "both name 'x'"),
        ([G, "--strategies", "grid", "--results", "other.jsonl"], "no file of results"),
        ([G, "other.jsonl", "--plot", "other.jsonl", "--force"], "would replace it"),
        ([G, "--strategies", "grid", "--results", "study.jsonl"], "results of another study"),
        ([G, "--contender", "a=--protocol quick"], "--protocol is no choice of a contender"),
        ([G, "--protocol", "quik"], "Did you mean 'quick'"),
    ],
}
"""Rows by what their command lines begin with: further arguments, and what the line says."""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((*first, *rest), said) for first, rows in REFUSED.items() for rest, said in rows],
)
def test_one_line_says_why_and_nothing_is_written(
    arguments: Sequence[str], said: str, cli: Any
) -> None:
    for name, content in FILES.items():
        (cli.folder / name).write_text(json.dumps(content) + "\n")
    before = {path: path.read_bytes() for path in cli.folder.iterdir()}
    line = refused(cli(*arguments))
    assert line.startswith("autotune: error: ")
    assert said in line or re.search(said, line), line
    assert {path: path.read_bytes() for path in cli.folder.iterdir()} == before
