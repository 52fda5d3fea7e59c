// Operands of what is timed: random, since zeros take less power, and let the clock rise.

__device__ __forceinline__ u32 random_bits(u32 n) {  // Wang's hash
    n = (n ^ 61) ^ (n >> 16);
    n *= 9;
    n = (n ^ n >> 4) * 0x27d4eb2d;
    return n ^ n >> 15;
}

// KEEP, SET: the bits that a word keeps, and those that are set, so that floats in it lie between
// 1/8 and 1/4 and sums of their products stay finite.
__device__ __forceinline__ u32 random_word(u32 n) { return (random_bits(n) & KEEP) | SET; }

// A word that comes from memory, each thread's own: what a compiler can make anew it makes anew
// where it is needed, between the clocks.
__device__ __forceinline__ u32 loaded(u32 word, volatile u32 *place) {
    *place = word;
    return *place;
}

__device__ __forceinline__ double loaded(double value, volatile u32 *place) {
    return __hiloint2double(loaded((u32)__double2hiint(value), place),
                            loaded((u32)__double2loint(value), place));
}

__device__ __forceinline__ double random_double(u32 n) {
    return (int)random_bits(n) / 8589934592.0;  // below 1/4
}

// Of a sum, as they are: a conversion would be timed too.
__device__ __forceinline__ u32 bits_of(int sum) { return sum; }
__device__ __forceinline__ u32 bits_of(float sum) { return __float_as_uint(sum); }
__device__ __forceinline__ u32 bits_of(double sum) { return __double2loint(sum); }
