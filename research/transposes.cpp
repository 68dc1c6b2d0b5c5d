// Two matrices side by side, transposed, by hand: what the order of tiles and the places of rows cost.
#include <immintrin.h>

#include <cstddef>

namespace {

constexpr int kLanes = 16;

// A square of 16 x 16 floats, transposed in registers, written past the caches.
void transpose_square(const float *from, size_t from_stride, float *to, size_t to_stride) {
    const auto doubles = [](__m512 value) { return _mm512_castps_pd(value); };
    const auto floats = [](__m512d value) { return _mm512_castpd_ps(value); };
    __m512 rows[kLanes], other[kLanes];
    for (int i = 0; i < kLanes; ++i) rows[i] = _mm512_loadu_ps(from + i * from_stride);
    for (int i = 0; i < kLanes; i += 2) {
        other[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
        other[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < kLanes; i += 4) {
        for (int k = 0; k < 2; ++k) {
            const __m512d low = doubles(other[i + k]), high = doubles(other[i + k + 2]);
            rows[i + 2 * k] = floats(_mm512_unpacklo_pd(low, high));
            rows[i + 2 * k + 1] = floats(_mm512_unpackhi_pd(low, high));
        }
    }
    for (int i = 0; i < 4; ++i) {
        const __m512 even = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0x88);
        const __m512 odd = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0xdd);
        const __m512 later_even = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0x88);
        const __m512 later_odd = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0xdd);
        other[i] = _mm512_shuffle_f32x4(even, later_even, 0x88);
        other[i + 4] = _mm512_shuffle_f32x4(odd, later_odd, 0x88);
        other[i + 8] = _mm512_shuffle_f32x4(even, later_even, 0xdd);
        other[i + 12] = _mm512_shuffle_f32x4(odd, later_odd, 0xdd);
    }
    for (int i = 0; i < kLanes; ++i) _mm512_stream_ps(to + i * to_stride, other[i]);
}

}  // namespace

// Copies `count` floats, a multiple of 16, in order.
extern "C" void copy(const float *from, float *to, size_t count) {
    for (size_t i = 0; i < count; i += kLanes) _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
    _mm_sfence();
}

// Transposes `rows` x `columns` floats. Rows of the input are `from_stride` floats apart, those of
// the output `to_stride`. Blocks of `high` x `wide` follow each other along columns; inside of one
// the squares do along columns of the input if `across`, else along its rows.
extern "C" void transpose(const float *from, float *to, size_t rows, size_t columns,
                          size_t from_stride, size_t to_stride, size_t high, size_t wide,
                          int across) {
    const size_t squares = (high / kLanes) * (wide / kLanes);
    for (size_t top = 0; top < rows; top += high) {
        for (size_t left = 0; left < columns; left += wide) {
            for (size_t square = 0; square < squares; ++square) {
                const size_t many = across ? wide / kLanes : high / kLanes;
                const size_t outer = square / many * kLanes, inner = square % many * kLanes;
                const size_t row = top + (across ? outer : inner);
                const size_t column = left + (across ? inner : outer);
                transpose_square(from + row * from_stride + column, from_stride,
                                 to + column * to_stride + row, to_stride);
            }
        }
    }
    _mm_sfence();
}
