// What instructions are timed by: cycles of the multiprocessor, and nanoseconds of all of the chip.

typedef unsigned int u32;
typedef unsigned long long u64;

// Volatile and with "memory": nothing that is timed may move across it.
__device__ __forceinline__ u64 cycles_now() {
    u64 now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

__device__ __forceinline__ u64 nanoseconds_now() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}
