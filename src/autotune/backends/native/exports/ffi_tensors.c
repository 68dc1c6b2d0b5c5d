/* Tensors that a function of TVM-FFI is given. Its binary interface, and DLPack's, are declared
   here. */
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

/* All arguments of a function, of which `about` says how many there are. */
static int all_taken(const char *function, const char *about, const any *given, int32_t count,
                     int32_t needed, const expected *wanted, void **arrays) {
  if (count != needed)
    return error("TypeError", "%s: takes %s, not %d arguments", function, about, (int)count);
  for (int32_t at = 0; at < count; ++at)
    if (taken(function, at + 1, &given[at], &wanted[at], &arrays[at])) return -1;
  return 0;
}

static int returned(any *result, int32_t type, int64_t integer) {
  result->type = type;
  result->padding = 0;
  result->value.integer = integer;
  return 0;
}
