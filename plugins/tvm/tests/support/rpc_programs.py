"""Programs for RPC servers that misbehave as they are told, written in C."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

from autotune_tvm.artefact import LIBRARY
from autotune_tvm.rpc.toolchain import Toolchain

N = 8
"""Extent of the square matrices that they multiply."""

_SOURCE = """
#include <signal.h>
#include <stdint.h>
#include <unistd.h>
typedef struct { int32_t type_index; uint32_t padding; void *pointer; } Any;
typedef struct { float *data; } Tensor;
static float *data(const Any *it) {
  char *at = it->pointer;
  return ((Tensor *)(it->type_index == 70 ? at + 24 : at))->data;
}
int32_t __tvm_ffi_main(void *self, const Any *args, int32_t count, void *result) {
  float *A = data(args), *B = data(args + 1), *C = data(args + 2);
  static int calls = 0;
  ++calls;
  for (int i = 0; i < N; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = 0;
      for (int k = 0; k < N; ++k) sum += A[i * N + k] * B[k * N + j];
      C[i * N + j] = sum;
    }
  BODY
  return 0;
}
"""

BODIES = {
    "right": "",
    "wrong": "C[N * N - 1] += 1;",
    "writes_input": "A[0] += 1;",
    "crashes": "*(volatile int *)0 = 1;",
    "crashes_later": "if (calls > 3) *(volatile int *)0 = 1;",
    "exits": "_exit(3);",
    "aborts": "kill(getpid(), SIGABRT);",
    "hangs": "for (;;) pause();",
    "ends_server": "kill(getppid(), SIGKILL); kill(getpid(), SIGKILL);",
    "slow": "usleep(300000);",
}
"""What happens after the product, by name."""


def artefact(folder: Path, name: str) -> bytes:
    """The content of the artefact of a program."""
    source, library = folder / f"{name}.c", folder / f"{name}.so"
    source.write_text(
        _SOURCE.replace("BODY", BODIES[name]).replace("#include", f"#define N {N}\n#include", 1)
    )
    toolchain = Toolchain()
    helper = toolchain.probe(folder).with_name("autotune_helper.o")
    command = [*toolchain.check(), "-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([*command, str(source), str(helper)], check=True)
    path = folder / f"{name}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(LIBRARY, library.read_bytes())
        described = {"arguments": ["A", "B", "C"], "digest": name, "packed": []}
        archive.writestr("program.json", json.dumps(described))
    return path.read_bytes()
