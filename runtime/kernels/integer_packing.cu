// A matrix of integers, modulo 2^(8 COUNT), as COUNT digits of base 256 within [−128, 127].
//
// out: (steps, COUNT, padded rows, 64) bytes, the lowest digit first, each row's 64 bytes as in
// `residue_packing.cu`. "Rows" are rows of A, or columns of B. used: raised to the number of digits of the longest entry.
//
// Entry: the type of x. along: whether K is contiguous; then a warp takes 32 items of a row, else 4
// items of 8 rows. vectors: whether 16 bytes of a row can be loaded at once.

#include "launch.cuh"

constexpr int ITEM = 8, ITEMS = STEP / ITEM;
constexpr u64 HALVES = 0x8080808080808080;

extern "C" __global__ void __launch_bounds__(256)
integers(const Entry *x, unsigned char *out, int *used, long long rows, long long k,
         long long row_stride, long long k_stride, long long steps, long long padded, long long along,
         long long vectors) {
    follow();
    const int panels = (int)((rows + 31) / 32);
    const int first_row = blockIdx.x % panels * 32, first_item = blockIdx.x / panels * 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int from_row = along ? warp : warp % 4 * 8 + lane % 8, rows_apart = along ? 8 : 32;
    const int from_item = along ? lane : warp / 4 * 4 + lane / 8, items_apart = along ? 32 : 8;
    const int last_item = min(first_item + 32, (int)steps * ITEMS);
    u64 seen = 0;  // the bits of all digits
    for (int row = first_row + from_row; row < min(first_row + 32, (int)rows); row += rows_apart) {
        for (int item = first_item + from_item; item < last_item; item += items_apart) {
            const long long begin = (long long)item * ITEM;
            const Entry *from = x + row * row_stride + begin * k_stride;
            __align__(16) Entry entry[ITEM];
            if (sizeof(Entry) > 1 && vectors && begin + ITEM <= k) {
#pragma unroll
                for (int i = 0; i < ITEM; i += 16 / sizeof(Entry))
                    *(uint4 *)(entry + i) = *(const uint4 *)(from + i);
            } else {
#pragma unroll
                for (int i = 0; i < ITEM; i++)
                    entry[i] = begin + i < k ? from[i * k_stride] : (Entry)0;
            }
            u64 digits[ITEM];
#pragma unroll
            for (int i = 0; i < ITEM; i++) {
                // With half a base added to each digit, digits are the bytes of a sum.
                digits[i] = ((u64)entry[i] + HALVES) ^ HALVES;
                seen |= digits[i];
            }
            // Chunks of 16 bytes lie at c ^ (row >> 1 & 3) of a row's step.
            const int chunk = (item % ITEMS >> 1) ^ (row >> 1 & 3);
            unsigned char *to = out + ((long long)(item / ITEMS) * COUNT * padded + row) * STEP;
            to += chunk * 16 + (item & 1) * 8;
#pragma unroll
            for (int digit = 0; digit < COUNT; digit++, to += padded * STEP) {
                u32 word[2] = {};
#pragma unroll
                for (int i = 0; i < ITEM; i++)
                    word[i / 4] |= (u32)(digits[i] >> 8 * digit & 255) << i % 4 * 8;
                *(uint2 *)to = make_uint2(word[0], word[1]);
            }
        }
    }
    if (COUNT < 8) seen &= (1ull << 8 * COUNT % 64) - 1;
    const u32 high = __reduce_or_sync(~0u, (u32)(seen >> 32)), low = __reduce_or_sync(~0u, (u32)seen);
    const int count = high ? 8 - __clz(high) / 8 : 4 - __clz(low) / 8;
    if (lane == 0 && count > *(volatile int *)used) atomicMax(used, count);
}
