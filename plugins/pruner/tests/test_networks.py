from __future__ import annotations

import numpy as np
import pytest
import torch
from autotune_pruner.networks import (
    FLOW_LENGTH,
    Normaliser,
    PaCMNetwork,
    RankingNetwork,
    Scale,
    TenSetNetwork,
    folded,
    gathered,
    give_weights,
    normaliser_in,
    queries_and_keys,
    summed_attention,
    weights_of,
)
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError

COUNTS = [3, 1, 4, 2]


def _inputs(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    programs = torch.repeat_interleave(torch.arange(len(COUNTS)), torch.tensor(COUNTS))
    statements = torch.rand(len(programs), 174, generator=generator)
    return statements, programs, torch.rand(len(COUNTS), 8, 23, generator=generator)


def _network(kind: type[RankingNetwork] = PaCMNetwork) -> RankingNetwork:
    torch.manual_seed(1)
    return kind()


def _scores(
    network: RankingNetwork,
    statements: torch.Tensor,
    programs: torch.Tensor,
    dataflow: torch.Tensor,
) -> torch.Tensor:
    """Every statement and access given for itself, whether it is one of another program or not."""
    accesses = dataflow.flatten(0, 1)
    which, places = torch.arange(len(statements)), torch.arange(len(accesses))
    found: torch.Tensor = network(statements, which, programs, accesses, places.view(-1, 8))
    return found


def _flow(network: RankingNetwork, dataflow: torch.Tensor) -> torch.Tensor:
    rows = dataflow.flatten(0, 1)
    places = torch.arange(len(rows)).view(-1, FLOW_LENGTH)
    found: torch.Tensor = network.flow(
        tuple(gathered(table, places) for table in network.encode_accesses(rows))
    )
    return found


@pytest.mark.parametrize(("kind", "count"), [(PaCMNetwork, 417_409), (TenSetNetwork, 242_433)])
def test_parameters(kind: type[RankingNetwork], count: int) -> None:
    assert sum(parameter.numel() for parameter in kind().parameters()) == count


def test_attention_summed_is_the_sum_of_attention() -> None:
    network = _network()
    x = torch.randn(6, FLOW_LENGTH, 128)
    wanted = network.attention(x, x, x, need_weights=False)[0].sum(dim=1)
    projected = queries_and_keys(network.attention, x.flatten(0, 1)).unflatten(0, (6, -1))
    found = summed_attention(network.attention, x, projected.transpose(1, 2))
    torch.testing.assert_close(found, wanted)


@given(st.permutations(range(FLOW_LENGTH)))
def test_the_order_of_accesses_makes_no_difference(order: list[int]) -> None:
    network = _network()
    _, _, dataflow = _inputs()
    torch.testing.assert_close(_flow(network, dataflow[:, order]), _flow(network, dataflow))


def test_without_data_flow_the_branch_is_a_constant() -> None:
    network = _network()
    found = _flow(network, torch.zeros(5, FLOW_LENGTH, 23))
    torch.testing.assert_close(found, found[:1].expand_as(found))
    statements, programs, dataflow = _inputs()
    network.eval()
    scores = _scores(network, statements, programs, torch.zeros_like(dataflow))
    assert len(set(scores.tolist())) == len(COUNTS)


@pytest.mark.parametrize("kind", [PaCMNetwork, TenSetNetwork])
def test_statements_count_for_their_program_only(kind: type[RankingNetwork]) -> None:
    network = _network(kind).eval()
    statements, programs, dataflow = _inputs()
    scores = _scores(network, statements, programs, dataflow)
    order = torch.randperm(len(programs), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        _scores(network, statements[order], programs[order], dataflow), scores
    )
    changed = statements.clone()
    changed[programs == 2] += 1.0
    different = _scores(network, changed, programs, dataflow) != scores
    assert different.tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", [PaCMNetwork, TenSetNetwork])
def test_what_is_given_once_counts_wherever_it_is_used(kind: type[RankingNetwork]) -> None:
    network = _network(kind).double()
    statements, programs, dataflow = (item.double() for item in _inputs())
    programs, accesses = programs.long(), dataflow.flatten(0, 1)[:5]
    which, places = torch.arange(len(programs)) % 3, torch.arange(32).view(4, 8) % 5
    found: list[list[torch.Tensor]] = []
    for scores in (
        network(statements[:3], which, programs, accesses, places),
        _scores(network, statements[which], programs, accesses[places]),
    ):
        network.zero_grad()
        (scores * torch.arange(4)).sum().backward()
        found.append([scores.detach(), *(item.grad.clone() for item in network.parameters())])
    for once, repeated in zip(*found, strict=True):
        torch.testing.assert_close(once, repeated)


@pytest.mark.parametrize("kind", [PaCMNetwork, TenSetNetwork])
def test_folding_the_normaliser_changes_nothing(kind: type[RankingNetwork]) -> None:
    rng = np.random.default_rng(0)
    statement, access = (
        Scale(
            rng.uniform(-20, 20, columns).astype(np.float32),
            rng.uniform(0.1, 5.0, columns).astype(np.float32),
        )
        for columns in (174, 23)
    )
    network = _network(kind)
    statements, programs, dataflow = (item.double() for item in _inputs())
    scaled = (
        (statements - torch.tensor(statement.shift)) / torch.tensor(statement.width),
        programs.long(),
        (dataflow - torch.tensor(access.shift)) / torch.tensor(access.width),
    )
    before = {name: value.clone() for name, value in network.state_dict().items()}
    result = folded(network, Normaliser(statement, access))
    assert not result.training and network.training
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    wanted = _scores(network.double().eval(), *scaled)
    found = _scores(result.double(), statements, programs.long(), dataflow)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_a_network_gets_what_fits_it() -> None:
    scales = (
        Scale(np.arange(n, dtype=np.float32), np.full(n, 2, dtype=np.float32)) for n in (174, 23)
    )
    normaliser, network = Normaliser(*scales), PaCMNetwork()
    weights = weights_of(PaCMNetwork(), normaliser)
    give_weights(network, weights)
    for name, array in weights_of(network, normaliser_in(weights)).items():
        np.testing.assert_array_equal(array, weights[name])
    with pytest.raises(InvalidValueError, match="do not fit a TenSetNetwork"):
        give_weights(TenSetNetwork(), weights)
    with pytest.raises(InvalidValueError, match="not weights"):
        give_weights(network, {})
