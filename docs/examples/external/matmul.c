/* A matrix product with tiles: N, TILE_I, TILE_K and UNROLL come from the compiler's command line.
 *
 *   matmul OUTPUT   writes C as raw float32 to the file OUTPUT, and prints the seconds of a call
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STRINGIFY(text) #text
#define PRAGMA(text) _Pragma(STRINGIFY(text))

static float a[N][N], b[N][N], c[N][N];

static void multiply(void) {
    for (int it = 0; it < N; it += TILE_I)
        for (int kt = 0; kt < N; kt += TILE_K)
            for (int i = it; i < it + TILE_I; ++i)
                for (int k = kt; k < kt + TILE_K; ++k) {
                    PRAGMA(GCC unroll UNROLL)
                    for (int j = 0; j < N; ++j)
                        c[i][j] += a[i][k] * b[k][j];
                }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

int main(int count, char **arguments) {
    for (int i = 0; i < N; ++i)
        for (int j = 0; j < N; ++j) {
            a[i][j] = (float)((i * 7 + j * 3) % 11) - 5;
            b[i][j] = (float)((i * 5 + j * 2) % 13) - 6;
        }
    multiply();
    FILE *file = count > 1 ? fopen(arguments[1], "wb") : NULL;
    if (file != NULL) {
        fwrite(c, sizeof c, 1, file);
        fclose(file);
    }
    double best = 1e30;
    for (int repeat = 0; repeat < 5; ++repeat) {
        double begin = now();
        multiply();
        double seconds = now() - begin;
        best = seconds < best ? seconds : best;
    }
    printf("time: %.9f s\n", best);
    return 0;
}
