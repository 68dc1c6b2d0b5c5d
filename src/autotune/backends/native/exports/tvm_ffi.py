"""The functions of a kernel for TVM-FFI: what checks tensors, and calls them.

The text needs no header of TVM-FFI: its binary interface, and DLPack's, are declared here. The
one function of its library that is called makes an error, and is looked up then: a program that
calls this library by TVM-FFI has it. Where TVM's runtime loads the library, it fills in the
function that starts tasks on its threads, which stays null elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from autotune.backends.native.exports.c_interface import header
from autotune.backends.native.exports.kernel import Argument, Call, Kernel, Size

__all__ = ["Entry", "Taken", "ffi_file", "ffi_network"]

# Codes of DLPack.
_KINDS = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}

_TENSORS = r"""
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

typedef struct {
  int32_t type;
  uint32_t padding;
  union { int64_t integer; void *pointer; } value;
} any;

typedef struct { uint8_t code, bits; uint16_t lanes; } data_type;

typedef struct {
  void *data;
  struct { int32_t type, id; } device;
  int32_t rank;
  data_type type;
  int64_t *shape, *strides;
  uint64_t offset;
} tensor;

typedef struct {
  const char *name, *type_name;
  int rank;
  data_type type;
  const int64_t *shape;
} expected;

enum { NONE = 0, INTEGER = 1, TENSOR_POINTER = 7, TENSOR_OBJECT = 70, OBJECT_HEAD = 24, CPU = 1 };

/* TVM-FFI's, which may have been loaded behind this library. */
typedef void set_raised(const char *kind, const char *message);

__attribute__((format(printf, 2, 3))) static int error(const char *kind, const char *text, ...) {
  char message[512];
  va_list values;
  va_start(values, text);
  vsnprintf(message, sizeof message, text, values);
  va_end(values);
  set_raised *raised = (set_raised *)dlsym(0, "TVMFFIErrorSetRaisedFromCStr");
  if (raised) raised(kind, message);
  else fprintf(stderr, "%s: %s\n", kind, message);
  return -1;
}

static void listed(char *text, size_t size, int rank, const int64_t *shape) {
  size_t used = 0;
  text[0] = 0;
  for (int dim = 0; dim < rank && used < size; ++dim)
    used += snprintf(text + used, size - used, dim ? ", %lld" : "%lld", (long long)shape[dim]);
}

static int taken(const char *function, int number, const any *given, const expected *wanted,
                 void **data) {
  const tensor *found = given->value.pointer;
  if (given->type == TENSOR_OBJECT) found = (const tensor *)((const char *)found + OBJECT_HEAD);
  else if (given->type != TENSOR_POINTER)
    return error("TypeError", "%s: argument %d (%s) is no tensor", function, number, wanted->name);
  if (found->device.type != CPU)
    return error("ValueError", "%s: argument %d (%s) is not in the memory of the CPU", function,
                 number, wanted->name);
  if (found->type.code != wanted->type.code || found->type.bits != wanted->type.bits ||
      found->type.lanes != 1)
    return error("TypeError", "%s: argument %d (%s) has to be of %s (code %d, %d bits), not of "
                 "code %d, %d bits, %d lanes", function, number, wanted->name, wanted->type_name,
                 wanted->type.code, wanted->type.bits, found->type.code, found->type.bits,
                 found->type.lanes);
  int same = found->rank == wanted->rank;
  for (int dim = 0; same && dim < wanted->rank; ++dim)
    same = found->shape[dim] == wanted->shape[dim];
  if (!same) {
    char have[160], want[160];
    listed(have, sizeof have, found->rank, found->shape);
    listed(want, sizeof want, wanted->rank, wanted->shape);
    return error("ValueError", "%s: argument %d (%s) has to have shape [%s], not [%s]", function,
                 number, wanted->name, want, have);
  }
  int64_t stride = 1;
  for (int dim = wanted->rank - 1; found->strides && dim >= 0; --dim) {
    if (wanted->shape[dim] != 1 && found->strides[dim] != stride)
      return error("ValueError", "%s: argument %d (%s) is not contiguous in row-major order",
                   function, number, wanted->name);
    stride *= wanted->shape[dim];
  }
  *data = (char *)found->data + found->offset;
  if (!*data || (uintptr_t)*data % 64)
    return error("ValueError", "%s: argument %d (%s) begins at address %p, which is no multiple "
                 "of 64", function, number, wanted->name, *data);
  return 0;
}

"""

_SUPPORT = r"""
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Scratch memory of a thread, which keeps it until it ends. */
typedef struct { size_t size; void *memory; } room;

static pthread_key_t key;
static pid_t owner;

static void freed(void *held) {
  free(((room *)held)->memory);
  free(held);
}

__attribute__((constructor)) static void begin(void) {
  pthread_key_create(&key, freed);
  owner = getpid();
}

__attribute__((destructor)) static void end(void) {
  room *held = pthread_getspecific(key);
  if (held) freed(held);
  pthread_key_delete(key);
}

static void *scratch_of(size_t size) {
  room *held = pthread_getspecific(key);
  if (!held && !((held = calloc(1, sizeof *held)) && !pthread_setspecific(key, held))) {
    free(held);
    return 0;
  }
  if (held->size < size) {
    free(held->memory);
    held->memory = aligned_alloc(64, (size + 63) / 64 * 64);
    held->size = held->memory ? size : 0;
  }
  return held->memory;
}

/* Parallel loops on the threads of TVM's runtime, as many as there are and at most THREADS. */
typedef struct { void *sync; int32_t count; } group;
typedef struct { autotune_task *task; void *const *arrays; int64_t count; } work;

EXPORTED __attribute__((weak)) int (*__TVMBackendParallelLaunch)(
    int (*)(int, group *, void *), void *, int);

/* A forked process has no threads but the one that forked it. */
static int has_threads(void) {
  return THREADS > 1 && __TVMBackendParallelLaunch && getpid() == owner;
}

static int part(int number, group *all, void *data) {
  const work *own = data;
  int64_t parts = all->count < THREADS ? all->count : THREADS;
  int64_t begin = own->count * number / parts, end = own->count * (number + 1) / parts;
  if (number < parts) own->task(own->arrays, begin, end, number);
  return 0;
}

static void launched(void *pool, autotune_task *task, void *const *arrays, int64_t count) {
  work all = {task, arrays, count};
  (void)pool;
  if (__TVMBackendParallelLaunch(part, &all, 0)) task(arrays, 0, count, 0);
}

static int finished(const char *function, int result) {
  if (result == AUTOTUNE_OK) return 0;
  if (result == AUTOTUNE_NO_PROCESSOR)
    return error("RuntimeError", "%s: this processor lacks instructions that it was built with",
                 function);
  return error("RuntimeError", "%s: failed with status %d", function, result);
}
"""


@frozen
class Taken:
    """A tensor that a function of TVM-FFI takes.

    Attributes:
        argument: What it has to be.
        numbers: Which arguments, of the function that is called, it becomes.
    """

    argument: Argument
    numbers: tuple[int, ...]


@frozen(eq=False)
class Entry:
    """A function as TVM-FFI looks it up.

    Attributes:
        name: The name that it is found by.
        kernel: The name of the kernel that it is of.
        call: The function that it calls.
        taken: Its tensors, which become all arguments of that.
    """

    name: str
    kernel: str
    call: Call
    taken: tuple[Taken, ...]

    @staticmethod
    def of(kernel: Kernel, call: Call, name: str = "") -> Entry:
        """A function of a kernel by its own name, or another one, with its own arguments."""
        taken = (Taken(argument, (number,)) for number, argument in enumerate(call.arguments))
        return Entry(name or call.name, kernel.name, call, tuple(taken))


def ffi_file(
    kernels: Sequence[Kernel], entries: Sequence[Entry], sizes: Sequence[Size] = ()
) -> str:
    """A source file of C that defines functions as TVM-FFI looks them up.

    Args:
        kernels: Those of one number of threads, which the file calls.
        entries: Functions that call theirs.
        sizes: What says how much memory packed constants take.
    """
    constants = (
        '#define EXPORTED __attribute__((visibility("default")))\n'
        f"enum {{ THREADS = {kernels[0].threads} }};\n"
    )
    return "\n".join(
        [
            *map(header, kernels),
            constants,
            _TENSORS,
            _SUPPORT,
            *map(_sized, sizes),
            *map(_called, entries),
        ]
    )


def _head(name: str) -> str:
    parameters = "void *self, const any *given, int32_t count, any *result"
    return f"EXPORTED int __tvm_ffi_{name}({parameters}) {{\n  (void)self;\n"


def _sized(size: Size) -> str:
    return (
        f"{_head(size.name)}  (void)given;\n"
        f'  if (count) return error("TypeError", "{size.name}: takes no argument");\n'
        "  result->type = INTEGER;\n  result->padding = 0;\n"
        f"  result->value.integer = (int64_t){size.name}();\n  return 0;\n}}\n"
    )


def _called(entry: Entry) -> str:
    call, name, count = entry.call, entry.name, len(entry.taken)
    lines = [
        f"  if (count != {count})",
        f'    return error("TypeError", "{name}: takes {count} tensors, not %d arguments", '
        "(int)count);",
        f"  void *arrays[{count}];",
    ]
    given = [""] * len(call.arguments)
    for number, taken in enumerate(entry.taken):
        lines += _checked(name, number, taken.argument, entry.kernel)
        for at in taken.numbers:
            given[at] = f"arrays[{number}]"
    before = []
    if call.scratch is not None:
        _, size = call.scratch
        given += ["scratch", "bytes", "THREADS", "launch", "0"]
        before = [
            "  autotune_launch *launch = has_threads() ? launched : 0;",
            f"  size_t bytes = {size.name}(THREADS);",
            "  void *scratch = bytes ? scratch_of(bytes) : 0;",
            f'  if (bytes && !scratch) return error("MemoryError", "{name}: %zu bytes of '
            'scratch memory cannot be had", bytes);',
        ]
    lines += [*before, f"  int status = {call.name}({', '.join(given)});"]
    lines += [
        "  result->type = NONE;",
        "  result->padding = 0;",
        "  result->value.integer = 0;",
        f'  return finished("{name}", status);',
    ]
    return _head(name) + "\n".join(lines) + "\n}\n"


def _checked(function: str, number: int, argument: Argument, kernel: str) -> list[str]:
    """The check of one tensor; memory without an element type is a row of bytes."""
    dtype = argument.dtype or "uint8"
    extents = ", ".join(map(str, argument.shape)) or "1"
    if not argument.dtype:
        extents = f"(int64_t){kernel}_{argument.name}_bytes()"
    own, rank = f"wanted{number}", len(argument.shape)
    about = _expected(f'"{argument.name}"', dtype, rank, f"shape{number}")
    return [
        f"  const int64_t shape{number}[] = {{{extents}}};",
        f"  const expected {own} = {about};",
        f'  if (taken("{function}", {number + 1}, &given[{number}], &{own}, &arrays[{number}]))',
        "    return -1;",
    ]


def _expected(name: str, dtype: str, rank: int, shape: str) -> str:
    """Print what a tensor has to be, in C; its name is text of C, its shape a name there."""
    kind = dtype.rstrip("0123456789")
    bits = 8 if dtype == "bool" else int(dtype.removeprefix(kind))
    return f'{{{name}, "{dtype}", {rank}, {{{_KINDS[kind]}, {bits}, 1}}, {shape}}}'


def ffi_network(
    tensors: Sequence[tuple[str, str, int, str]], inputs: int, run: str, error: str
) -> str:
    """C that defines the function ``main`` of a network, which takes inputs and then outputs.

    Args:
        tensors: Of each the name as text of C, the element type, the number of dimensions, and
            the name of its shape in C.
        inputs: How many are inputs.
        run: The function of C that is called with the arrays of both, and returns 0.
        error: The function that says what was wrong else.
    """
    rows = ",\n  ".join(_expected(*tensor) for tensor in tensors)
    count, outputs = len(tensors), len(tensors) - inputs
    return f"""{_TENSORS}
static const expected expected_tensors[] = {{
  {rows}
}};

{_head("main")}  if (count != {count})
    return error("TypeError", "main: takes {count} tensors, {inputs} inputs and then {outputs} "
                 "outputs, not %d arguments", (int)count);
  void *arrays[{count}];
  for (int at = 0; at < {count}; ++at)
    if (taken("main", at + 1, &given[at], &expected_tensors[at], &arrays[at])) return -1;
  result->type = NONE;
  result->padding = 0;
  result->value.integer = 0;
  if (!{run}((const void *const *)arrays, arrays + {inputs})) return 0;
  return error("RuntimeError", "main: %s", {error}());
}}
"""
