from __future__ import annotations

import gc

import pytest

from autotune.process.garbage import no_collection


@pytest.mark.parametrize("is_enabled", [True, False])
def test_collection_is_as_it_was_before(is_enabled: bool) -> None:
    assert gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        with pytest.raises(KeyError), no_collection():
            assert not gc.isenabled()
            raise KeyError
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()
