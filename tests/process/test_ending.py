from __future__ import annotations

import os

from autotune.process.ending import ending_with


class Owner:
    pass


def test_actions_happen_once_and_in_order() -> None:
    owner, done = Owner(), list[str]()
    end = ending_with(owner, lambda: done.append("first"), lambda: done.append("second"))
    assert done == []
    end()
    assert done == ["first", "second"]
    end()
    del owner
    assert done == ["first", "second"]


def test_they_happen_when_the_owner_is_forgotten() -> None:
    owner, done = Owner(), list[str]()
    ending_with(owner, lambda: done.append("ended"))
    del owner
    assert done == ["ended"]


def test_a_forked_copy_ends_nothing() -> None:
    reader, writer = os.pipe()
    owner = Owner()
    end = ending_with(owner, lambda: os.write(writer, b"ended "))
    child = os.fork()
    if child == 0:
        end()
        os.write(writer, b"child ")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    end()
    assert os.read(reader, 100) == b"child ended "
    os.close(reader)
    os.close(writer)
