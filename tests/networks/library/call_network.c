/* Calls a saved network as a program would: in memory and on threads of its own, in memory and
   through a callback of the program's, in a child, and with what it has to refuse. Reads the
   inputs from files input0.bin and so on, writes outputs likewise. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net.h"

enum { THREADS = 3, MOST = 8 };

static int calls;

/* Parts of a loop from its end to its beginning, each by another thread's number. */
static void launch(void *pool, autotune_network_task *task, void *const *arrays, int64_t count) {
  calls += *(int *)pool;
  for (int64_t part = THREADS - 1; part >= 0; --part)
    task(arrays, count * part / THREADS, count * (part + 1) / THREADS, part);
}

static void *aligned(size_t size) { return aligned_alloc(64, (size + 127) / 64 * 64); }

static void transfer(const char *role, int number, void *memory, size_t size) {
  char path[64];
  int is_input = !strcmp(role, "input");
  snprintf(path, sizeof path, "%s%d.bin", role, number);
  FILE *file = fopen(path, is_input ? "rb" : "wb");
  if (!file || (is_input ? fread(memory, 1, size, file) : fwrite(memory, 1, size, file)) != size)
    exit(10);
  fclose(file);
}

static void expect(int found, int wanted, const char *what) {
  if (found == wanted) return;
  fprintf(stderr, "%s: %d instead of %d: %s\n", what, found, wanted, autotune_network_error());
  exit(11);
}

int main(void) {
  const autotune_network_tensor *given, *made;
  int32_t inputs = autotune_network_inputs(&given), outputs = autotune_network_outputs(&made);
  const void *in[MOST];
  void *out[MOST], *again[MOST];
  int one = 1;

  for (int at = 0; at < inputs; ++at) {
    void *memory = aligned(given[at].bytes);
    transfer("input", at, memory, given[at].bytes);
    in[at] = memory;
  }
  for (int at = 0; at < outputs; ++at) {
    out[at] = aligned(made[at].bytes);
    again[at] = aligned(made[at].bytes);
  }

  expect(autotune_network_run(in, out), AUTOTUNE_NETWORK_OK, "a call");
  size_t size = autotune_network_workspace_bytes(THREADS);
  char *workspace = aligned(size);
  expect(autotune_network_run_in(in, again, workspace, size, THREADS, launch, &one),
         AUTOTUNE_NETWORK_OK, "a call in given memory");
  expect(calls > 0, 1, "calls of launch");
  for (int at = 0; at < outputs; ++at) {
    expect(memcmp(out[at], again[at], made[at].bytes), 0, "the same results");
    transfer("output", at, out[at], made[at].bytes);
    memset(again[at], 0, made[at].bytes);
  }

  pid_t child = fork();
  if (!child) {
    expect(autotune_network_run(in, again), AUTOTUNE_NETWORK_OK, "a call in a child");
    expect(memcmp(out[0], again[0], made[0].bytes), 0, "the results of a child");
    exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  expect(status, 0, "a child");

  expect(autotune_network_run_in(in, out, workspace, size - 1, THREADS, 0, 0),
         AUTOTUNE_NETWORK_NO_WORKSPACE, "little memory");
  expect(autotune_network_run_in(in, out, workspace + 8, size, 1, 0, 0),
         AUTOTUNE_NETWORK_NO_WORKSPACE, "memory that begins elsewhere");
  expect(autotune_network_run_in(in, out, workspace, size, 0, 0, 0),
         AUTOTUNE_NETWORK_NO_WORKSPACE, "no thread");
  expect(autotune_network_set_threads(1 << 20), AUTOTUNE_NETWORK_NO_WORKSPACE, "many threads");
  expect(autotune_network_set_threads(1), AUTOTUNE_NETWORK_OK, "one thread");
  expect((int)autotune_network_threads(), 1, "threads");
  expect(autotune_network_run(in, again), AUTOTUNE_NETWORK_OK, "a call on one thread");
  in[0] = (const char *)in[0] + 4;
  expect(autotune_network_run(in, again), 1, "an input that begins elsewhere");
  in[0] = 0;
  expect(autotune_network_run(in, again), 1, "no input");
  printf("%s %d %d %s\n", given[0].name, inputs, outputs, autotune_network_error());
  return 0;
}
