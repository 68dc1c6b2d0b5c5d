/* Operators without a schedule, as autotune/networks/graph/host.py defines them.

   Each takes a description of its arrays, operands and then results, which are contiguous and in
   row-major order, and returns 0, or -1 behind a message. Numbers are read as double, int64_t or
   uint64_t whatever their type is, and rounded once when they are written. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef HOST_FUNCTION
#define HOST_FUNCTION __attribute__((unused)) static
#endif

enum {
  BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64,
  FLOAT16, BFLOAT16, FLOAT32, FLOAT64
};

typedef struct {
  int32_t type, rank;
  const int64_t *shape;
} host_tensor;

/* `tensors` are operands and then results; the other attributes are in the order in which the
   operator reads them. */
typedef struct {
  const char *label;
  const host_tensor *tensors;
  int32_t operands, results;
  const int64_t *integers;
  const double *numbers;
} host_call;

static _Thread_local char message[512];

__attribute__((format(printf, 1, 2))) static int failed(const char *text, ...) {
  va_list given;
  va_start(given, text);
  vsnprintf(message, sizeof message, text, given);
  va_end(given);
  return -1;
}

static int no_memory(const host_call *call, int64_t bytes) {
  return failed("%s: %lld bytes of memory cannot be had", call->label, (long long)bytes);
}

/* Elements. */

static int is_float(int type) { return type >= FLOAT16; }

static int is_unsigned(int type) { return type == BOOL || (type >= UINT8 && type <= UINT64); }

static int64_t bytes_of(int type) {
  static const int8_t sizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8};
  return sizes[type];
}

static int64_t count_of(const host_tensor *tensor) {
  int64_t count = 1;
  for (int axis = 0; axis < tensor->rank; ++axis) count *= tensor->shape[axis];
  return count;
}

/* The two formats of 16 bits: bits of the fraction, and the exponent of the least normal number. */
static int fraction_bits(int type) { return type == FLOAT16 ? 10 : 7; }

static int least_exponent(int type) { return type == FLOAT16 ? -14 : -126; }

static double widened(int type, uint16_t bits) {
  int places = fraction_bits(type), least = least_exponent(type);
  int fraction = bits & ((1 << places) - 1), exponent = (bits & 0x7FFF) >> places;
  double found;
  if (exponent == 0x7FFF >> places) found = fraction ? NAN : INFINITY;
  else if (!exponent) found = ldexp(fraction, least - places);
  else found = ldexp(fraction + (1 << places), exponent - 1 + least - places);
  return bits >> 15 ? -found : found;
}

static uint16_t narrowed(int type, double number) {
  int places = fraction_bits(type), least = least_exponent(type), exponent;
  uint16_t sign = signbit(number) ? 0x8000 : 0, infinity = (uint16_t)(0x7FFF >> places << places);
  double size = fabs(number);
  if (isnan(number)) return sign | infinity | (uint16_t)(1 << (places - 1));
  if (isinf(number)) return sign | infinity;
  frexp(size, &exponent);
  exponent = size == 0 || exponent - 1 < least ? least : exponent - 1;
  /* In units of the last place, which is exact; a number that is rounded up to the next power of
     two carries into the exponent. */
  double units = nearbyint(ldexp(size, places - exponent));
  if (exponent > 1 - least) return sign | infinity;
  int64_t bits = ((int64_t)(exponent - least) << places) + (int64_t)units;
  return sign | (uint16_t)(bits < infinity ? bits : infinity);
}

static double real_at(int type, const void *array, int64_t at) {
  switch (type) {
    case FLOAT16: case BFLOAT16: return widened(type, ((const uint16_t *)array)[at]);
    case FLOAT32: return ((const float *)array)[at];
    default: return ((const double *)array)[at];
  }
}

static void put_real(int type, void *array, int64_t at, double number) {
  switch (type) {
    case FLOAT16: case BFLOAT16: ((uint16_t *)array)[at] = narrowed(type, number); break;
    case FLOAT32: ((float *)array)[at] = (float)number; break;
    default: ((double *)array)[at] = number;
  }
}

/* An integer, extended by its sign where it has one. */
static int64_t integer_at(int type, const void *array, int64_t at) {
  switch (type) {
    case BOOL: return ((const uint8_t *)array)[at] != 0;
    case INT8: return ((const int8_t *)array)[at];
    case INT16: return ((const int16_t *)array)[at];
    case INT32: return ((const int32_t *)array)[at];
    case UINT8: return ((const uint8_t *)array)[at];
    case UINT16: return ((const uint16_t *)array)[at];
    case UINT32: return ((const uint32_t *)array)[at];
    default: return ((const int64_t *)array)[at];
  }
}

static void put_integer(int type, void *array, int64_t at, int64_t number) {
  switch (bytes_of(type)) {
    case 1: ((uint8_t *)array)[at] = type == BOOL ? number != 0 : (uint8_t)number; break;
    case 2: ((uint16_t *)array)[at] = (uint16_t)number; break;
    case 4: ((uint32_t *)array)[at] = (uint32_t)number; break;
    default: ((int64_t *)array)[at] = number;
  }
}

/* A number whose order is that of elements, of whatever type; NaN is the largest. */
static uint64_t key_at(int type, const void *array, int64_t at) {
  const uint64_t top = UINT64_C(1) << 63;
  if (!is_float(type)) return (uint64_t)integer_at(type, array, at) ^ (is_unsigned(type) ? 0 : top);
  double number = real_at(type, array, at) + 0.0; /* -0 and 0 are equal */
  if (isnan(number)) return UINT64_MAX;
  uint64_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits & top ? ~bits : bits | top;
}

/* Extents before an axis, of it, and behind it. */
typedef struct { int64_t outer, length, inner; } around;

static around around_axis(const host_tensor *tensor, int64_t axis) {
  around found = {1, tensor->shape[axis], 1};
  for (int64_t at = 0; at < axis; ++at) found.outer *= tensor->shape[at];
  for (int64_t at = axis + 1; at < tensor->rank; ++at) found.inner *= tensor->shape[at];
  return found;
}

/* Functions of one element, or of two that broadcast. Integers: which. */

static double gamma_log(double number) {
  int sign;
  return lgamma_r(number, &sign);
}

static double (*const one_number[])(double) = {
  tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh, expm1, log1p, exp2, log2, log10, gamma_log
};

static double (*const two_numbers[])(double, double) = {atan2, hypot};

enum { OF_ONE = sizeof one_number / sizeof *one_number, NEXT_AFTER = OF_ONE + 2 };

/* The next number of a format of 16 bits, whose bits but the sign are in the order of sizes. */
static uint16_t next_half(uint16_t from, uint16_t to) {
  double first = widened(FLOAT16, from), second = widened(FLOAT16, to);
  if (isnan(first) || isnan(second)) return 0x7E00;
  if (first == second) return to;
  if (first == 0) return (to & 0x8000) | 1;
  return (first < second) == (first > 0) ? from + 1 : from - 1;
}

static void put_next(int type, void *result, int64_t at, const void *from, int64_t first,
                     const void *to, int64_t second) {
  if (type == FLOAT16)
    ((uint16_t *)result)[at] = next_half(((uint16_t *)from)[first], ((uint16_t *)to)[second]);
  else if (type == FLOAT64)
    put_real(type, result, at, nextafter(((double *)from)[first], ((double *)to)[second]));
  else
    put_real(type, result, at,
             nextafterf((float)real_at(type, from, first), (float)real_at(type, to, second)));
}

enum { BIT_AND, BIT_OR, BIT_XOR, BIT_NOT, SHIFT_LEFT, SHIFT_RIGHT };

static int64_t of_bits(int type, int64_t which, int64_t left, int64_t right) {
  int64_t width = 8 * bytes_of(type);
  int is_wide = right < 0 || right >= width;
  switch (which) {
    case BIT_AND: return left & right;
    case BIT_OR: return left | right;
    case BIT_XOR: return left ^ right;
    case BIT_NOT: return type == BOOL ? !left : ~left;
    case SHIFT_LEFT: return is_wide ? 0 : (int64_t)((uint64_t)left << right);
    default:
      if (is_unsigned(type)) return is_wide ? 0 : (int64_t)((uint64_t)left >> right);
      return is_wide ? (left < 0 ? -1 : 0) : left >> right;
  }
}

enum { MOST_AXES = 64 };

/* Where an element of the result is in two operands, one after the other. */
typedef struct {
  int64_t place[MOST_AXES], step[2][MOST_AXES], at[2];
} walk;

static void begin(walk *own, const host_call *call) {
  const host_tensor *result = &call->tensors[call->operands];
  memset(own, 0, sizeof *own);
  for (int operand = 0; operand < call->operands; ++operand) {
    const host_tensor *given = &call->tensors[operand];
    int64_t step = 1;
    for (int axis = given->rank - 1; axis >= 0; --axis) {
      own->step[operand][axis + result->rank - given->rank] = given->shape[axis] > 1 ? step : 0;
      step *= given->shape[axis];
    }
  }
}

static void advance(walk *own, const host_tensor *result) {
  for (int axis = result->rank - 1; axis >= 0; --axis) {
    own->at[0] += own->step[0][axis];
    own->at[1] += own->step[1][axis];
    if (++own->place[axis] < result->shape[axis]) return;
    own->at[0] -= own->step[0][axis] * result->shape[axis];
    own->at[1] -= own->step[1][axis] * result->shape[axis];
    own->place[axis] = 0;
  }
}

HOST_FUNCTION int host_function(const host_call *call, void *const *arrays) {
  const host_tensor *result = &call->tensors[call->operands];
  int64_t which = call->integers[0], count = count_of(result);
  int type = result->type;
  void *found = arrays[call->operands];
  if (which < OF_ONE) {
    for (int64_t at = 0; at < count; ++at)
      put_real(type, found, at, one_number[which](real_at(type, arrays[0], at)));
    return 0;
  }
  walk own;
  begin(&own, call);
  for (int64_t at = 0; at < count; ++at, advance(&own, result)) {
    if (which == NEXT_AFTER)
      put_next(type, found, at, arrays[0], own.at[0], arrays[1], own.at[1]);
    else
      put_real(type, found, at, two_numbers[which - OF_ONE](real_at(type, arrays[0], own.at[0]),
                                                           real_at(type, arrays[1], own.at[1])));
  }
  return 0;
}

HOST_FUNCTION int host_bitwise(const host_call *call, void *const *arrays) {
  const host_tensor *result = &call->tensors[call->operands];
  int64_t which = call->integers[0], count = count_of(result);
  int type = result->type;
  walk own;
  begin(&own, call);
  for (int64_t at = 0; at < count; ++at, advance(&own, result)) {
    int64_t left = integer_at(type, arrays[0], own.at[0]);
    int64_t right = call->operands > 1 ? integer_at(type, arrays[1], own.at[1]) : 0;
    put_integer(type, arrays[call->operands], at, of_bits(type, which, left, right));
  }
  return 0;
}

/* As the elements are, in another shape. */
HOST_FUNCTION int host_reshape(const host_call *call, void *const *arrays) {
  memcpy(arrays[1], arrays[0], (size_t)(count_of(call->tensors) * bytes_of(call->tensors->type)));
  return 0;
}

/* The order of rows of keys, in which equal ones stay as they are; `spare` has as much room. */

static int is_behind(const uint64_t *keys, int64_t columns, int64_t left, int64_t right) {
  const uint64_t *one = keys + left * columns, *other = keys + right * columns;
  for (int64_t at = 0; at < columns; ++at)
    if (one[at] != other[at]) return one[at] > other[at];
  return 0;
}

static void sort_rows(const uint64_t *keys, int64_t rows, int64_t columns, int64_t *order,
                      int64_t *spare) {
  int64_t *from = order, *to = spare;
  for (int64_t row = 0; row < rows; ++row) order[row] = row;
  for (int64_t width = 1; width < rows; width *= 2) {
    for (int64_t first = 0; first < rows; first += 2 * width) {
      int64_t middle = first + width < rows ? first + width : rows;
      int64_t end = middle + width < rows ? middle + width : rows;
      for (int64_t at = first, left = first, right = middle; at < end; ++at)
        if (left < middle &&
            (right == end || !is_behind(keys, columns, from[left], from[right])))
          to[at] = from[left++];
        else
          to[at] = from[right++];
    }
    int64_t *other = from;
    from = to;
    to = other;
  }
  if (from != order) memcpy(order, from, (size_t)rows * sizeof *order);
}

/* The first elements along an axis in order, and where they were. Integers: the axis, whether
   order is descending, how many. NaN is the largest number; equal elements keep their order. */
HOST_FUNCTION int host_sort(const host_call *call, void *const *arrays) {
  int64_t axis = call->integers[0], descending = call->integers[1], kept = call->integers[2];
  around all = around_axis(call->tensors, axis);
  int type = call->tensors->type;
  int64_t size = bytes_of(type), bytes = 3 * all.length * (int64_t)sizeof(int64_t);
  int64_t *order = malloc((size_t)bytes + 1), *spare = order + all.length;
  uint64_t *keys = (uint64_t *)(spare + all.length);
  if (!order) return no_memory(call, bytes);
  for (int64_t outer = 0; outer < all.outer; ++outer)
    for (int64_t inner = 0; inner < all.inner; ++inner) {
      int64_t from = outer * all.length * all.inner + inner, to = outer * kept * all.inner + inner;
      for (int64_t at = 0; at < all.length; ++at) {
        uint64_t key = key_at(type, arrays[0], from + at * all.inner);
        keys[at] = descending ? ~key : key;
      }
      sort_rows(keys, all.length, 1, order, spare);
      for (int64_t at = 0; at < kept; ++at) {
        memcpy((char *)arrays[1] + (to + at * all.inner) * size,
               (char *)arrays[0] + (from + order[at] * all.inner) * size, (size_t)size);
        ((int64_t *)arrays[2])[to + at * all.inner] = order[at];
      }
    }
  free(order);
  return 0;
}

/* Places of what is not zero, then -1, and how many there are. */
HOST_FUNCTION int host_nonzero(const host_call *call, void *const *arrays) {
  const host_tensor *given = call->tensors;
  int64_t count = count_of(given), rank = given->rank, found = 0, *places = arrays[1];
  for (int64_t at = 0; at < count; ++at) {
    int here = is_float(given->type) ? real_at(given->type, arrays[0], at) != 0
                                     : integer_at(given->type, arrays[0], at) != 0;
    if (!here) continue;
    int64_t rest = at;
    for (int64_t axis = rank - 1; axis >= 0; --axis) {
      places[found * rank + axis] = rest % given->shape[axis];
      rest /= given->shape[axis];
    }
    ++found;
  }
  for (int64_t at = found * rank; at < count * rank; ++at) places[at] = -1;
  *(int64_t *)arrays[2] = found;
  return 0;
}

/* As numpy has it: NaN equals NaN among numbers, and not within slices. */
static int is_same(const host_tensor *of, const uint64_t *keys, int64_t columns, int64_t one,
                   int64_t other) {
  int is_apart = is_float(of->type) && of->rank > 1;
  for (int64_t at = 0; at < columns; ++at) {
    uint64_t key = keys[one * columns + at];
    if (key != keys[other * columns + at] || (is_apart && key == UINT64_MAX)) return 0;
  }
  return 1;
}

/* Different slices along an axis: values, where each is first, which one each slice is, how often
   each occurs, how many there are. Integers: the axis, whether they are sorted. */
HOST_FUNCTION int host_unique(const host_call *call, void *const *arrays) {
  around all = around_axis(call->tensors, call->integers[0]);
  int type = call->tensors->type, is_sorted = call->integers[1] != 0;
  int64_t size = bytes_of(type), columns = all.outer * all.inner, found = 0;
  int64_t bytes = (3 + columns) * all.length * (int64_t)sizeof(int64_t);
  int64_t *first = arrays[2], *inverse = arrays[3], *counts = arrays[4];
  int64_t *order = calloc(1, (size_t)bytes + 1), *spare = order + all.length;
  int64_t *rank = spare + all.length;
  uint64_t *keys = (uint64_t *)(rank + all.length);
  if (!order) return no_memory(call, bytes);
  for (int64_t at = 0; at < all.length; ++at)
    for (int64_t column = 0; column < columns; ++column)
      keys[at * columns + column] =
          key_at(type, arrays[0],
                 (column / all.inner * all.length + at) * all.inner + column % all.inner);
  sort_rows(keys, all.length, columns, order, spare);
  for (int64_t at = 0; at < all.length; ++at) {
    found += !at || !is_same(call->tensors, keys, columns, order[at - 1], order[at]);
    inverse[order[at]] = found - 1;
    rank[at] = is_sorted ? at : -1;
  }
  int64_t next = 0;
  for (int64_t at = 0; at < all.length; ++at) {
    if (rank[inverse[at]] < 0) rank[inverse[at]] = next++;
    inverse[at] = rank[inverse[at]];
    first[at] = counts[at] = 0;
  }
  memset(arrays[1], 0, (size_t)(all.length * columns * size));
  for (int64_t at = all.length; at-- > 0;) first[inverse[at]] = at;
  for (int64_t at = 0; at < all.length; ++at) ++counts[inverse[at]];
  for (int64_t group = 0; group < found; ++group)
    for (int64_t outer = 0; outer < all.outer; ++outer)
      memcpy((char *)arrays[1] + (outer * all.length + group) * all.inner * size,
             (char *)arrays[0] + (outer * all.length + first[group]) * all.inner * size,
             (size_t)(all.inner * size));
  *(int64_t *)arrays[5] = found;
  free(order);
  return 0;
}

/* Elements that are written, or combined with what is there. Sums and products of floats are
   rounded once, behind the last of them. */

enum { REPLACED, ADDED, MULTIPLIED, LARGEST, SMALLEST };

static double combined_reals(int64_t how, double left, double right) {
  switch (how) {
    case ADDED: return left + right;
    case MULTIPLIED: return left * right;
    case LARGEST: return isnan(left) || left > right ? left : right;
    default: return isnan(left) || left < right ? left : right;
  }
}

static int64_t combined_integers(int type, int64_t how, int64_t left, int64_t right) {
  int is_less = is_unsigned(type) ? (uint64_t)left < (uint64_t)right : left < right;
  switch (how) {
    case ADDED: return (int64_t)((uint64_t)left + (uint64_t)right);
    case MULTIPLIED: return (int64_t)((uint64_t)left * (uint64_t)right);
    case LARGEST: return is_less ? right : left;
    default: return is_less ? left : right;
  }
}

typedef struct {
  int type;
  int64_t how, count;
  void *result;
  double *wide;
} updated;

static int begin_updates(updated *own, const host_call *call, void *const *arrays, int64_t how) {
  const host_tensor *given = call->tensors;
  int64_t count = count_of(given);
  *own = (updated){given->type, how, count, arrays[3], 0};
  memcpy(arrays[3], arrays[0], (size_t)(count * bytes_of(given->type)));
  if (!is_float(given->type) || how == REPLACED) return 0;
  own->wide = malloc((size_t)count * sizeof(double) + 1);
  if (!own->wide) return no_memory(call, count * (int64_t)sizeof(double));
  for (int64_t at = 0; at < count; ++at) own->wide[at] = real_at(given->type, arrays[0], at);
  return 0;
}

static void update(updated *own, int64_t to, const void *updates, int64_t from) {
  int64_t size = bytes_of(own->type);
  if (own->how == REPLACED)
    memcpy((char *)own->result + to * size, (const char *)updates + from * size, (size_t)size);
  else if (own->wide)
    own->wide[to] = combined_reals(own->how, own->wide[to], real_at(own->type, updates, from));
  else
    put_integer(own->type, own->result, to,
                combined_integers(own->type, own->how, integer_at(own->type, own->result, to),
                                  integer_at(own->type, updates, from)));
}

static int end_updates(updated *own) {
  for (int64_t at = 0; own->wide && at < own->count; ++at)
    put_real(own->type, own->result, at, own->wide[at]);
  free(own->wide);
  return 0;
}

static int64_t wrapped(int64_t index, int64_t extent) { return index < 0 ? index + extent : index; }

/* Along an axis, at indices that are each at their own place of the other axes. Integers: the
   axis, and how. */
HOST_FUNCTION int host_scatter_along(const host_call *call, void *const *arrays) {
  const host_tensor *given = &call->tensors[0], *indices = &call->tensors[1];
  int64_t axis = call->integers[0], count = count_of(indices);
  updated own;
  if (begin_updates(&own, call, arrays, call->integers[1])) return -1;
  for (int64_t at = 0; at < count; ++at) {
    int64_t rest = at, step = 1, to = 0;
    for (int along = given->rank - 1; along >= 0; --along) {
      int64_t place = rest % indices->shape[along];
      if (along == axis)
        place = wrapped(integer_at(indices->type, arrays[1], at), given->shape[along]);
      to += place * step;
      rest /= indices->shape[along];
      step *= given->shape[along];
    }
    update(&own, to, arrays[2], at);
  }
  return end_updates(&own);
}

/* Slices at places along the last axis of the indices. Integers: how. */
HOST_FUNCTION int host_scatter_nd(const host_call *call, void *const *arrays) {
  const host_tensor *given = &call->tensors[0], *indices = &call->tensors[1];
  int64_t depth = indices->shape[indices->rank - 1], count = count_of(indices) / depth, slice = 1;
  for (int64_t axis = depth; axis < given->rank; ++axis) slice *= given->shape[axis];
  updated own;
  if (begin_updates(&own, call, arrays, call->integers[0])) return -1;
  for (int64_t at = 0; at < count; ++at) {
    int64_t to = 0;
    for (int64_t axis = 0; axis < depth; ++axis)
      to = to * given->shape[axis] +
           wrapped(integer_at(indices->type, arrays[1], at * depth + axis), given->shape[axis]);
    for (int64_t inner = 0; inner < slice; ++inner)
      update(&own, to * slice + inner, arrays[2], at * slice + inner);
  }
  return end_updates(&own);
}

/* Boxes. */

static double smaller(double left, double right) {
  return combined_reals(SMALLEST, left, right);
}

static double larger(double left, double right) { return combined_reals(LARGEST, left, right); }

/* Lower and upper corners. */
typedef struct { double low[2], high[2]; } box;

static box box_at(int type, const void *boxes, int64_t at, int64_t is_centred) {
  box found;
  for (int axis = 0; axis < 2; ++axis) {
    double first = real_at(type, boxes, 4 * at + axis);
    double second = real_at(type, boxes, 4 * at + axis + 2);
    found.low[axis] = is_centred ? first - second / 2 : smaller(first, second);
    found.high[axis] = is_centred ? first + second / 2 : larger(first, second);
  }
  return found;
}

static double area(const box *of) {
  return (of->high[0] - of->low[0]) * (of->high[1] - of->low[1]);
}

/* The share of the union of two boxes that is in both. */
static double overlap(const box *one, const box *other) {
  double both = 1;
  for (int axis = 0; axis < 2; ++axis)
    both *= larger(smaller(one->high[axis], other->high[axis]) -
                   larger(one->low[axis], other->low[axis]), 0);
  double whole = area(one) + area(other) - both;
  return whole > 0 ? both / whole : 0;
}

/* Batch, class and box of what is kept, then -1, and how many there are. Integers: how many of a
   class at most, whether boxes are centres and sizes, how many there is room for. Numbers: the
   overlap and the score that are too much and too little. */
HOST_FUNCTION int host_non_max_suppression(const host_call *call, void *const *arrays) {
  const host_tensor *boxes = &call->tensors[0], *scores = &call->tensors[1];
  int64_t most = call->integers[0], is_centred = call->integers[1], bound = call->integers[2];
  int64_t batches = scores->shape[0], kinds = scores->shape[1], count = scores->shape[2];
  int64_t bytes = 4 * count * (int64_t)sizeof(int64_t), kept = 0, *places = arrays[2];
  int64_t *order = malloc((size_t)bytes + 1), *spare = order + count, *chosen = spare + count;
  uint64_t *keys = (uint64_t *)(chosen + count);
  if (!order) return no_memory(call, bytes);
  for (int64_t line = 0; line < batches * kinds; ++line) {
    int64_t batch = line / kinds, own = 0;
    for (int64_t at = 0; at < count; ++at) {
      double falling = -real_at(scores->type, arrays[1], line * count + at);
      keys[at] = key_at(FLOAT64, &falling, 0);
    }
    sort_rows(keys, count, 1, order, spare);
    for (int64_t at = 0; at < count && own < most; ++at) {
      if (!(real_at(scores->type, arrays[1], line * count + order[at]) > call->numbers[1]))
        continue;
      box one = box_at(boxes->type, arrays[0], batch * count + order[at], is_centred);
      int is_free = 1;
      for (int64_t before = 0; is_free && before < own; ++before) {
        box other = box_at(boxes->type, arrays[0], batch * count + chosen[before], is_centred);
        is_free = !(overlap(&one, &other) > call->numbers[0]);
      }
      if (!is_free) continue;
      chosen[own++] = order[at];
      places[3 * kept] = batch;
      places[3 * kept + 1] = line % kinds;
      places[3 * kept++ + 2] = order[at];
    }
  }
  for (int64_t at = 3 * kept; at < 3 * bound; ++at) places[at] = -1;
  *(int64_t *)arrays[3] = kept;
  free(order);
  return 0;
}

/* Of the matrices in the last two axes, by elimination with the largest pivot of each column. */
static double eliminated(double *rows, int64_t order) {
  double found = 1;
  for (int64_t column = 0; column < order; ++column) {
    int64_t pivot = column;
    for (int64_t row = column + 1; row < order; ++row)
      if (fabs(rows[row * order + column]) > fabs(rows[pivot * order + column])) pivot = row;
    found *= rows[pivot * order + column];
    if (rows[pivot * order + column] == 0) return found;
    if (pivot != column) found = -found;
    for (int64_t at = column; at < order; ++at) {
      double held = rows[pivot * order + at];
      rows[pivot * order + at] = rows[column * order + at];
      rows[column * order + at] = held;
    }
    for (int64_t row = column + 1; row < order; ++row) {
      double factor = rows[row * order + column] / rows[column * order + column];
      for (int64_t at = column; at < order; ++at)
        rows[row * order + at] -= factor * rows[column * order + at];
    }
  }
  return found;
}

HOST_FUNCTION int host_determinant(const host_call *call, void *const *arrays) {
  const host_tensor *given = call->tensors;
  int64_t order = given->shape[given->rank - 1], size = order * order;
  int64_t count = count_of(&call->tensors[1]), bytes = size * (int64_t)sizeof(double);
  double *rows = malloc((size_t)bytes + 1);
  if (!rows) return no_memory(call, bytes);
  for (int64_t matrix = 0; matrix < count; ++matrix) {
    for (int64_t at = 0; at < size; ++at)
      rows[at] = real_at(given->type, arrays[0], matrix * size + at);
    put_real(call->tensors[1].type, arrays[1], matrix, eliminated(rows, order));
  }
  free(rows);
  return 0;
}
