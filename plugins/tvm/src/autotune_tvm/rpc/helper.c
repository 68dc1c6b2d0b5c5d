/* Linked into every program that goes to an RPC server: times it without leaving the machine, and
 * says what machine that is. Needs a C library with POSIX calls, and nothing of TVM but the layout
 * of the arguments of its functions (tvm/ffi/c_api.h, dlpack/dlpack.h). */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  int32_t type_index;
  uint32_t padding;
  union {
    int64_t integer;
    double real;
    void *pointer;
  } value;
} Any;

typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;

enum { SIGNED = 0, UNSIGNED = 1, FLOAT = 2, BOOLEAN = 6 };
enum { INTEGER = 1, REAL = 3, TENSOR_OBJECT = 70, OBJECT_HEADER_BYTES = 24 };

/* Of the library that runs programs; not every server lets those it loads see it. */
__attribute__((weak)) void TVMFFIGetVersion(uint32_t *);

int32_t __tvm_ffi_main(void *, const Any *, int32_t, Any *);

/* TVM's server in Python serves no more after a session whose process a signal has ended, though
 * it goes on running. One that ends by itself does no harm to it. */
static void leave(int number) {
  (void)number;
  _exit(0);
}

__attribute__((constructor)) static void leave_on_faults(void) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  stack_t stack = {.ss_size = 1 << 16};
  stack.ss_sp = malloc(stack.ss_size);
  if (stack.ss_sp) sigaltstack(&stack, NULL);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = leave;
  action.sa_flags = stack.ss_sp ? SA_ONSTACK : 0;
  for (size_t which = 0; which < sizeof faults / sizeof *faults; ++which)
    sigaction(faults[which], &action, NULL);
}

static Tensor *tensor_of(const Any *argument) {
  char *pointer = argument->value.pointer;
  if (argument->type_index == TENSOR_OBJECT) pointer += OBJECT_HEADER_BYTES;
  return (Tensor *)pointer;
}

static char *bytes_of(const Tensor *tensor, size_t *count) {
  *count = ((size_t)tensor->bits * tensor->lanes + 7) / 8;
  for (int32_t axis = 0; axis < tensor->ndim; ++axis) *count *= (size_t)tensor->shape[axis];
  return (char *)tensor->data + tensor->byte_offset;
}

static void set_integer(Any *result, int64_t value) {
  result->type_index = INTEGER;
  result->padding = 0;
  result->value.integer = value;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* (number, arguments...): seconds per call of the program, over that many calls. */
__attribute__((visibility("default"))) int32_t __tvm_ffi_autotune_time(void *self, const Any *args,
                                                                       int32_t count, Any *result) {
  int64_t number = args[0].value.integer;
  double begin = now();
  for (int64_t call = 0; call < number; ++call) {
    Any nothing = {0, 0, {0}};
    int32_t failed = __tvm_ffi_main(self, args + 1, count - 1, &nothing);
    if (failed) return failed;
  }
  result->type_index = REAL;
  result->padding = 0;
  result->value.real = (now() - begin) / (double)number;
  return 0;
}

/* (pairs of tensors of one size...): position of the first pair that differs, -1 for none. */
__attribute__((visibility("default"))) int32_t __tvm_ffi_autotune_differs(void *self,
                                                                          const Any *args,
                                                                          int32_t count,
                                                                          Any *result) {
  (void)self;
  set_integer(result, -1);
  for (int32_t pair = 0; pair + 1 < count; pair += 2) {
    size_t first, second;
    char *one = bytes_of(tensor_of(args + pair), &first);
    char *other = bytes_of(tensor_of(args + pair + 1), &second);
    if (first != second || memcmp(one, other, first) != 0) {
      set_integer(result, pair / 2);
      return 0;
    }
  }
  return 0;
}

static int within_float(const float *result, const float *reference, const float *bound,
                        size_t count) {
  for (size_t at = 0; at < count; ++at) {
    float error = result[at] - reference[at];
    /* Not a number is within no bound. */
    if (!((error < 0 ? -error : error) <= bound[at])) return 0;
  }
  return 1;
}

static int within_double(const double *result, const double *reference, const float *bound,
                         size_t count) {
  for (size_t at = 0; at < count; ++at) {
    double error = result[at] - reference[at];
    if (!((error < 0 ? -error : error) <= bound[at])) return 0;
  }
  return 1;
}

/* (number of pairs, pairs of inputs and their copies..., result, reference, bound, ...): whether
 * inputs are as they were, and each element of the results is known to differ from its reference
 * by no more than its bound, which is a float. Of types that are exact every byte has to be the
 * same; of others that are not compared here nothing is known. */
__attribute__((visibility("default"))) int32_t __tvm_ffi_autotune_within(void *self,
                                                                         const Any *args,
                                                                         int32_t count,
                                                                         Any *result) {
  int32_t inputs = 1 + 2 * (int32_t)args[0].value.integer;
  int32_t failed = __tvm_ffi_autotune_differs(self, args + 1, inputs - 1, result);
  if (failed || result->value.integer >= 0) {
    set_integer(result, 0);
    return failed;
  }
  set_integer(result, 0);
  for (int32_t output = inputs; output + 2 < count; output += 3) {
    const Tensor *type = tensor_of(args + output), *limit = tensor_of(args + output + 2);
    size_t size, expected, limits;
    const char *got = bytes_of(type, &size);
    const char *wanted = bytes_of(tensor_of(args + output + 1), &expected);
    const char *bound = bytes_of(limit, &limits);
    int is_exact = type->code == SIGNED || type->code == UNSIGNED || type->code == BOOLEAN;
    int has_bounds = type->code == FLOAT && type->lanes == 1 && limit->code == FLOAT &&
                     limit->bits == 32 && limits / 4 == size / (type->bits / 8);
    if (size != expected) return 0;
    if (is_exact) {
      if (memcmp(got, wanted, size) != 0) return 0;
    } else if (has_bounds && type->bits == 32) {
      if (!within_float((const float *)got, (const float *)wanted, (const float *)bound, size / 4))
        return 0;
    } else if (has_bounds && type->bits == 64) {
      if (!within_double((const double *)got, (const double *)wanted, (const float *)bound,
                         size / 8))
        return 0;
    } else {
      return 0;
    }
  }
  set_integer(result, 1);
  return 0;
}

/* (tensors...): fills each with what no right program computes, as the host does with its own. */
__attribute__((visibility("default"))) int32_t __tvm_ffi_autotune_poison(void *self,
                                                                         const Any *args,
                                                                         int32_t count,
                                                                         Any *result) {
  (void)self;
  for (int32_t which = 0; which < count; ++which) {
    const Tensor *tensor = tensor_of(args + which);
    size_t size, step = tensor->bits / 8;
    char *bytes = bytes_of(tensor, &size);
    if (tensor->code == SIGNED && step > 0) {
      memset(bytes, 0, size);
      for (size_t end = step; end <= size; end += step) bytes[end - 1] = (char)0x80;
    } else {
      memset(bytes, tensor->code == BOOLEAN ? 1 : 0xFF, size);
    }
  }
  set_integer(result, 0);
  return 0;
}

/* (tensor of bytes): the start of /proc/cpuinfo and more, as lines; how many bytes that is. */
__attribute__((visibility("default"))) int32_t __tvm_ffi_autotune_machine(void *self,
                                                                          const Any *args,
                                                                          int32_t count,
                                                                          Any *result) {
  (void)self;
  (void)count;
  static const char *files[] = {"/proc/sys/kernel/random/boot_id", "/proc/cpuinfo"};
  size_t room, used = 0;
  char *text = bytes_of(tensor_of(args), &room);
  struct utsname name;
  if (uname(&name) == 0)
    used += (size_t)snprintf(text, room, "host: %s\nkernel: %s\narchitecture: %s\ncores: %ld\n",
                             name.nodename, name.release, name.machine,
                             sysconf(_SC_NPROCESSORS_ONLN));
  if (TVMFFIGetVersion && used < room) {
    uint32_t version[3] = {0, 0, 0};
    TVMFFIGetVersion(version);
    used += (size_t)snprintf(text + used, room - used, "ffi: %u.%u.%u\n", version[0], version[1],
                             version[2]);
  }
  for (int which = 0; which < 2 && used < room; ++which) {
    FILE *file = fopen(files[which], "r");
    if (!file) continue;
    if (which == 0 && room - used > 6) {
      memcpy(text + used, "boot: ", 6);
      used += 6;
    }
    used += fread(text + used, 1, room - used, file);
    fclose(file);
  }
  set_integer(result, (int64_t)(used < room ? used : room));
  return 0;
}

/* (): seconds of a fixed chain of operations, the least of several times: how fast the clock is. */
__attribute__((visibility("default"))) int32_t __tvm_ffi_autotune_reference(void *self,
                                                                            const Any *args,
                                                                            int32_t count,
                                                                            Any *result) {
  (void)self;
  (void)args;
  (void)count;
  double least = 1e9;
  for (int attempt = 0; attempt < 7; ++attempt) {
    volatile double start = 1.0;
    double value = start, begin = now();
    for (int step = 0; step < 2000000; ++step) value = value * 0.999999 + 1e-6;
    start = value;
    double seconds = now() - begin;
    if (seconds < least) least = seconds;
  }
  result->type_index = REAL;
  result->padding = 0;
  result->value.real = least;
  return 0;
}
