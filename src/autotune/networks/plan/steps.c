#include "steps.h"

#include <string.h>
#include <time.h>

/* As of autotune/networks/plan/steps.py. */
enum { CALL, HOST, COPY, CHECK, REPEAT };
enum { INPUT, OUTPUT, CONSTANT, ARENA };

typedef struct {
  const autotune_frame *frame;
  const int64_t *at; /* the word that is read next */
  int64_t rest;      /* where the time of what is no task's is kept */
  int64_t *trips;    /* of the loops around, the outermost first */
  void **arrays;     /* what the function that is called next is given */
} reader;

static int64_t word(reader *own) { return *own->at++; }

/* An array: what it lies in, which of them, how far behind the beginning, how far each trip moves
   it. */
static char *place(reader *own) {
  const autotune_frame *frame = own->frame;
  int64_t kind = word(own), number = word(own), offset = word(own), loops = word(own);
  char *begin = frame->arena;
  if (kind == INPUT) begin = frame->inputs[number];
  else if (kind == OUTPUT) begin = frame->outputs[number];
  else if (kind == CONSTANT) begin = frame->constants[number];
  for (int64_t loop = 0; loop < loops; ++loop) offset += word(own) * own->trips[loop];
  return begin + offset;
}

static void places(reader *own) {
  for (int64_t left = word(own); left > 0; --left) {
    int64_t position = word(own);
    own->arrays[position] = place(own);
  }
}

static void note(const reader *own, int64_t index) {
  int64_t *times = own->frame->times;
  struct timespec now;
  if (!times || clock_gettime(CLOCK_MONOTONIC, &now)) return;
  int64_t time = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
  times[index] += time - times[0];
  times[0] = time;
}

static void call(reader *own) {
  const autotune_frame *frame = own->frame;
  int64_t number = word(own), task = word(own);
  places(own);
  for (int64_t left = word(own); left > 0; --left) {
    int64_t position = word(own), fixed = word(own), each = word(own);
    own->arrays[position] = frame->scratch + fixed + each * frame->threads;
  }
  frame->programs[number](own->arrays, frame->launch, frame->pool);
  note(own, task);
}

/* An integer of so many bytes; without a sign where those are negative. */
static int64_t element(const char *data, int64_t type, int64_t at) {
  switch (type) {
    case 1: return ((const int8_t *)data)[at];
    case -1: return ((const uint8_t *)data)[at];
    case 2: return ((const int16_t *)data)[at];
    case -2: return ((const uint16_t *)data)[at];
    case 4: return ((const int32_t *)data)[at];
    case -4: return ((const uint32_t *)data)[at];
    default: return ((const int64_t *)data)[at];
  }
}

static int is_less(int64_t left, int64_t right, int64_t type) {
  return type < 0 ? (uint64_t)left < (uint64_t)right : left < right;
}

/* Whether all elements of an array are allowed: none of them 0, or each from a least to a largest
   one, which are given for `period` of them and then again. */
static int holds(reader *own) {
  int64_t type = word(own), count = word(own), nonzero = word(own), period = word(own);
  const int64_t *low = own->at, *high = low + period;
  own->at = high + period;
  const char *data = place(own);
  for (int64_t at = 0; nonzero && at < count; ++at) {
    if (element(data, type, at)) continue;
    *own->frame->failure = 0;
    return 0;
  }
  for (int64_t at = 0, in = 0; period && at < count; ++at, in = in + 1 == period ? 0 : in + 1) {
    int64_t found = element(data, type, at);
    if (!is_less(found, low[in], type) && !is_less(high[in], found, type)) continue;
    *own->frame->failure = found;
    return 0;
  }
  return 1;
}

static int run(reader *own, const int64_t *end, int64_t depth) {
  while (own->at < end) {
    int64_t kind = word(own);
    if (kind == CALL) {
      call(own);
      continue;
    }
    if (kind == REPEAT) {
      int64_t trips = word(own), size = word(own);
      const int64_t *body = own->at;
      for (int64_t trip = 0; trip < trips; ++trip) {
        own->at = body;
        own->trips[depth] = trip;
        int status = run(own, body + size, depth + 1);
        if (status) return status;
      }
      own->at = body + size;
      continue;
    }
    if (kind == COPY) {
      int64_t size = word(own);
      char *target = place(own), *source = place(own);
      memcpy(target, source, (size_t)size);
    } else {
      int64_t number = word(own);
      if (kind == CHECK && !holds(own)) return (int)(number + 1);
      if (kind == HOST) {
        places(own);
        if (own->frame->hosts[number](own->arrays, number)) return (int)(-1 - number);
      }
    }
    note(own, own->rest);
  }
  return 0;
}

int autotune_run_steps(const autotune_frame *frame) {
  const int64_t *head = frame->steps, *begin = head + 4;
  void *arrays[head[0] + 1];
  int64_t trips[head[1] + 1];
  reader own = {frame, begin, head[3], trips, arrays};
  return run(&own, begin + head[2], 0);
}
