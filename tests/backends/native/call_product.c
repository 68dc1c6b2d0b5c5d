/* Calls an exported product as a program would: constants packed once, then calls on one thread,
   on several, and with what it has to refuse. Reads A.bin and B.bin, writes C.bin. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"

enum { M = 20, N = 96, K = 24, THREADS = 3 };

static int calls;

/* Parts of a loop from its end to its beginning, each by another thread's number. */
static void launch(void *pool, autotune_task *task, void *const *arrays, int64_t count) {
  calls += *(int *)pool;
  for (int64_t part = THREADS - 1; part >= 0; --part)
    task(arrays, count * part / THREADS, count * (part + 1) / THREADS, part);
}

static void *filled(const char *path, size_t size) {
  void *memory = aligned_alloc(64, (size + 63) / 64 * 64);
  FILE *file = fopen(path, "rb");
  if (!file || fread(memory, 1, size, file) != size) exit(10);
  fclose(file);
  return memory;
}

static void expect(int found, int wanted, const char *what) {
  if (found == wanted) return;
  fprintf(stderr, "%s: %d instead of %d\n", what, found, wanted);
  exit(11);
}

int main(void) {
  float *a = filled("A.bin", M * K * sizeof *a), *b = filled("B.bin", K * N * sizeof *b);
  size_t bytes = M * N * sizeof(float);
  float *c = aligned_alloc(64, bytes), *twice = aligned_alloc(64, bytes);
  void *packed = aligned_alloc(64, (product_packed_B_bytes() + 63) / 64 * 64);
  int one = 1;

  if (!product_variant()) return 12;
  expect(product_pack_B(b, packed), AUTOTUNE_OK, "packing");
  expect(product(a, b, c, packed, 0, 0, 1, 0, 0), AUTOTUNE_OK, "one thread");
  expect(product(a, b, twice, packed, 0, 0, THREADS, launch, &one), AUTOTUNE_OK,
         "three threads");
  expect(memcmp(c, twice, bytes), 0, "the results of one thread and of three");
  expect(calls > 0, 1, "calls of launch");

  expect(product(0, b, c, packed, 0, 0, 1, 0, 0), 1, "no A");
  expect(product(a, b + 1, c, packed, 0, 0, 1, 0, 0), 2, "B at an odd place");
  expect(product(a, b, c + 8, packed, 0, 0, 1, 0, 0), 3, "C at half a line");
  expect(product(a, b, c, 0, 0, 0, 1, 0, 0), 4, "no packed B");
  expect(product(a, b, c, packed, 0, 0, 0, 0, 0), AUTOTUNE_NO_SCRATCH, "no thread");
  expect(product_pack_B(b, 0), 2, "packing nowhere");

  FILE *file = fopen("C.bin", "wb");
  if (!file || fwrite(c, 1, bytes, file) != bytes) return 13;
  return fclose(file);
}
