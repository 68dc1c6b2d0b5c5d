"""Knobs of scripts: read, chosen, written, and applied by MLIR's own interpreter."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autotune_mlir import bindings
from autotune_mlir.knobs import knobs_of, read_knobs, select, write_selected
from autotune_mlir.parsing import new_context
from autotune_mlir.transform_library import apply_schedule

import autotune
from autotune.errors import AutotuneError, InvalidValueError, UnsupportedWorkload
from autotune.spaces.parameters import parameter_space

MLIR_OPT = shutil.which("mlir-opt-22")

PAYLOAD = """
func.func @f(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>, %c: tensor<64x64xf32>)
    -> tensor<64x64xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<64x64xf32>, tensor<64x64xf32>)
      outs(%c : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
"""

TWO = "!transform.any_param, !transform.any_param"
BODY = f"""
    %mm = transform.structured.match ops{{["linalg.matmul"]}} in %arg0
        : (!transform.any_op) -> !transform.any_op
    %m = transform.tune.knob<"tile m"> options = [4, 8, 16] -> !transform.any_param
    %n = transform.tune.knob<"n"> = 8 from options = [4, 8] -> !transform.any_param
    transform.tune.alternatives<"form"> {{
      %t, %l:2 = transform.structured.tile_using_for %mm tile_sizes [%m, %n]
          : (!transform.any_op, {TWO})
          -> (!transform.any_op, !transform.any_op, !transform.any_op)
      transform.yield
    }}, {{
      %k = transform.tune.knob<"k"> options = [2, 4] -> !transform.any_param
      %t, %l = transform.structured.tile_using_forall %mm tile_sizes [%m, %k]
          : (!transform.any_op, {TWO}) -> (!transform.any_op, !transform.any_op)
      transform.yield
    }}
"""


def script(body: str) -> str:
    return (
        "module attributes {transform.with_named_sequence} {\n"
        "  transform.named_sequence @__transform_main"
        f"(%arg0: !transform.any_op {{transform.readonly}}) {{{body}\n"
        "    transform.yield\n  }\n}"
    )


def knob(options: str, name: str = "m") -> str:
    return f'\n%{name} = transform.tune.knob<"{name}"> options = {options} -> !transform.any_param'


def transformed(text: str) -> str:
    """The payload after a script."""
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        module = mlir.ir.Module.parse(PAYLOAD)
        apply_schedule(module, text)
        return str(module)


def tiles(program: str) -> set[tuple[str, ...]]:
    """Shapes of the products' results in a program."""
    return set(re.findall(r"linalg\.matmul .*-> tensor<(\d+)x(\d+)xf32>", program))


def test_what_is_read() -> None:
    found = read_knobs(script(BODY))
    described = {it.name: (it.values, it.default) for it in found.parameters}
    assert described == {
        "tile_m": ((4, 8, 16), None),
        "n": ((4, 8), 8),
        "form": ((0, 1), None),
        "k": ((2, 4), None),
    }
    assert found.constraints == ("(form == 1) or k == 2",)


def test_what_is_selected_is_what_mlir_does() -> None:
    text = script(BODY)
    for config, tile, loop in (
        ({"tile_m": 16, "n": 4, "form": 0, "k": 2}, ("16", "4"), "scf.for "),
        ({"tile_m": 4, "n": 8, "form": 1, "k": 4}, ("4", "4"), "scf.forall"),
    ):
        program = transformed(write_selected(text, config))
        assert tiles(program) == {tile} and loop in program


def test_the_generic_form_is_read_too() -> None:
    mlir = bindings.load()
    with new_context(), mlir.ir.Location.unknown():
        operation = mlir.ir.Module.parse(script(BODY)).operation
        generic = operation.get_asm(print_generic_op_form=True)
    assert knobs_of(generic) == knobs_of(script(BODY))
    config = {"tile_m": 8, "n": 8, "form": 0, "k": 2}
    assert select(generic, config) == select(script(BODY), config)


@pytest.mark.needs("mlir-opt")
def test_stock_mlir_opt_takes_what_is_written(tmp_path: Path) -> None:
    assert MLIR_OPT is not None
    library, payload = tmp_path / "script.mlir", tmp_path / "payload.mlir"
    library.write_text(select(script(BODY), {"tile_m": 8, "n": 8, "form": 1, "k": 2}))
    payload.write_text(PAYLOAD)
    passes = f"--transform-preload-library=transform-library-paths={library}"
    command = [MLIR_OPT, str(payload), passes, "--transform-interpreter"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    assert tiles(done.stdout) == {("8", "2")}


def test_every_choice_can_be_written_and_read_back() -> None:
    text = script(BODY)
    parameters, constraints = knobs_of(text)
    space = parameter_space("script", parameters, constraints)
    assert space.count() == 3 * 2 * 2 + 3 * 2 - 3 * 2 + 3 * 2
    programs = set()
    for candidate in space.enumerate():
        config = space.decode(candidate)
        written = select(text, config)
        assert {it.name: it.default for it in knobs_of(written)[0]} == config
        programs.add(written)
    assert len(programs) == space.count()


def test_options_of_any_kind() -> None:
    text = script(knob('[true, "a b", 1.5, 7 : i32, affine_map<(d0) -> (d0 * 2)>, unit]'))
    ((parameter,), constraints) = knobs_of(text)
    assert parameter.values == (True, "a b", 1.5, 7, "affine_map<(d0) -> (d0 * 2)>", "unit")
    assert not constraints
    for value, shown in (
        (True, "true from"),
        ("a b", '"a b" from'),
        (7, "7 : i32 from"),
        (parameter.values[4], "#map from"),
    ):
        assert f'<"m"> = {shown}' in select(text, {"m": value})


def constrain(body: str, names: Sequence[str] = ("m", "n"), options: str = "[1, 2, 3, 4]") -> str:
    """A script with knobs, and one operation with constraints on them."""
    kind = "!transform.any_param"
    knobs = "".join(knob(options, name) for name in names)
    operands = ", ".join(f"%{name}" for name in names)
    arguments = ", ".join(f"%{name}_: !smt.int" for name in names)
    kinds = ", ".join([kind] * len(names))
    return script(
        f"{knobs}\ntransform.smt.constrain_params({operands}) : ({kinds}) -> () {{\n"
        f"^bb0({arguments}):\n{body}\nsmt.yield\n}}"
    )


CONSTRAINTS = {
    "product": (
        "%c = smt.int.constant 6\n%p = smt.int.mul %m_, %n_\n"
        "%o = smt.int.cmp le %p, %c\nsmt.assert %o",
        lambda m, n: m * n <= 6,
    ),
    "divides": (
        "%z = smt.int.constant 0\n%r = smt.int.mod %m_, %n_\n"
        "%o = smt.eq %r, %z : !smt.int\nsmt.assert %o",
        lambda m, n: m % n == 0,
    ),
    "negative": (
        "%c = smt.int.constant -2\n%d = smt.int.sub %m_, %n_\n"
        "%o = smt.int.cmp lt %d, %c\n%q = smt.not %o\nsmt.assert %q",
        lambda m, n: m - n >= -2,
    ),
    "implies": (
        "%c = smt.int.constant 2\n%a = smt.int.cmp gt %m_, %c\n%b = smt.int.cmp ge %n_, %c\n"
        "%o = smt.implies %a, %b\nsmt.assert %o\n%d = smt.distinct %m_, %n_ : !smt.int\n"
        "smt.assert %d",
        lambda m, n: (m <= 2 or n >= 2) and m != n,
    ),
    "logic": (
        "%c = smt.int.constant 200\n%t = smt.constant true\n%s = smt.int.add %m_, %n_, %c\n"
        "%h = smt.int.div %s, %n_\n%a = smt.int.cmp lt %h, %c\n"
        "%b = smt.eq %m_, %n_ : !smt.int\n%x = smt.xor %a, %b\n"
        "%i = smt.ite %b, %t, %a : !smt.bool\n%o = smt.or %x, %i\n%f = smt.and %o, %t\n"
        "smt.assert %f",
        lambda m, n: ((m + n + 200) // n < 200) or (m == n),
    ),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_of_the_compiler(name: str) -> None:
    body, holds = CONSTRAINTS[name]
    parameters, constraints = knobs_of(constrain(body))
    space = parameter_space("script", parameters, constraints)
    found = {candidate.values for candidate in space.enumerate()}
    every = range(1, 5)
    assert found == {(m, n) for m in every for n in every if holds(m, n)}
    assert found


def test_constraints_in_a_region_hold_where_it_is_chosen() -> None:
    inner = constrain(CONSTRAINTS["product"][0]).partition("transform.readonly}) {")[2]
    inner = inner.rpartition("transform.yield")[0]
    body = (
        f'\ntransform.tune.alternatives<"form"> {{\n{inner}\ntransform.yield\n}}, '
        "{\ntransform.yield\n}"
    )
    parameters, constraints = knobs_of(script(body))
    space = parameter_space("script", parameters, constraints)
    found = [space.decode(candidate) for candidate in space.enumerate()]
    assert {(it["m"], it["n"]) for it in found if it["form"] == 1} == {(1, 1)}
    chosen = {(it["m"], it["n"]) for it in found if it["form"] == 0}
    assert chosen == {(m, n) for m in range(1, 5) for n in range(1, 5) if m * n <= 6}


def test_a_region_that_a_knob_chooses_is_no_knob_of_its_own() -> None:
    body = knob("[0, 1]") + (
        '\ntransform.tune.alternatives<"form"> selected_region = %m : !transform.any_param '
        "{\ntransform.yield\n}, {\ntransform.yield\n}"
    )
    parameters, constraints = knobs_of(script(body))
    assert [it.name for it in parameters] == ["m"] and not constraints


WRONG: dict[str, tuple[str, str]] = {
    "none": (script(""), "has no knobs"),
    "no list": (script(knob("{divides = 8}")), "a list of them is read"),
    "twice": (script(knob("[1, 2]") + knob("[1, 3]").replace("%m", "%x")), "two knobs are called"),
    "divisor": (
        constrain("%r = smt.int.mod %m_, %n_\n%o = smt.eq %r, %m_ : !smt.int\nsmt.assert %o",
                  options="[0, 1]"),
        "divides by n, which is not always positive",
    ),
    "operation": (
        constrain("%b = smt.int2bv %m_ : !smt.bv<8>\n%o = smt.eq %b, %b : !smt.bv<8>\n"
                  "smt.assert %o"),
        "smt.int2bv at the script:.* is not read; read are smt.int.add",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_read(wrong: str) -> None:
    text, message = WRONG[wrong]
    with pytest.raises(InvalidValueError, match=message):
        knobs_of(text)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tile_m": 5, "n": 4, "form": 0, "k": 2}, "'tile_m' cannot be 5"),
        ({"tile_m": 4, "n": 4, "form": 2, "k": 2}, "'form' cannot be 2"),
        ({"tile_m": 4, "n": 4, "form": 0}, "lacks k"),
    ],
)
def test_what_cannot_be_selected(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        select(script(BODY), config)


def test_errors_cross_the_process() -> None:
    with pytest.raises(UnsupportedWorkload, match="not MLIR: the script:1"):
        read_knobs("module {")
    with pytest.raises(AutotuneError, match="cannot be 5"):
        write_selected(script(BODY), {"tile_m": 5, "n": 4, "form": 0, "k": 2})


def test_knobs_are_what_a_search_asks_for() -> None:
    knobs = read_knobs(script(BODY))
    search = autotune.AskTell(knobs.parameters, knobs.constraints, strategy="random")
    while proposals := search.ask(8):
        for proposal in proposals:
            program = transformed(select(script(BODY), proposal.config))
            search.tell(proposal, seconds=1.0 / int(next(iter(tiles(program)))[0]))
    assert search.best is not None and search.best.config["tile_m"] == 16
    assert len(search.seen) == search.count
