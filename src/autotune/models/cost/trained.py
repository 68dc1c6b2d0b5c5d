"""Pretrained weights of a cost model: a file, or a model that a plugin ships."""

from __future__ import annotations

import os

from autotune.errors import UnknownNameError
from autotune.models.cost.model_file import ModelFile
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part

__all__ = ["trained_model"]


def trained_model(given: str | os.PathLike[str]) -> ModelFile:
    """The pretrained weights of a cost model.

    Args:
        given: Name of a trained model that a plugin brings, or the path of a file. A file in the
            current folder that is called like a trained model is meant by ``./`` before its name.

    Raises:
        UnknownNameError: it could be a name, but is none, and there is no such file.
        InvalidValueError: the file cannot be read.
    """
    names = manager().names("trained_model")
    if given in names:
        return ModelFile.at(create_part("trained_model", str(given)))
    # What has a suffix or a folder is meant to be a file.
    is_plain = isinstance(given, str) and given.replace("-", "").replace("_", "").isalnum()
    if is_plain and not os.path.exists(given):
        extra = manager().where_it_may_be("trained_model", str(given))
        raise UnknownNameError(
            "trained model", str(given), names, extra or "There is no such file either."
        )
    return ModelFile.at(given)
