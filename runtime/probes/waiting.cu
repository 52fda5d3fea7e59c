// Kernels that do nothing: at once, or for some time.

#include "clock.cuh"

extern "C" __global__ void empty() {}

// out[0], out[1]: cycles and nanoseconds of a thread that waits so many nanoseconds.
extern "C" __global__ void watch(u64 *out, u64 nanoseconds) {
    u64 began = nanoseconds_now(), begin = cycles_now(), ended;
    do ended = nanoseconds_now();
    while (ended - began < nanoseconds);
    u64 end = cycles_now();
    out[0] = end - begin;
    out[1] = ended - began;
}
