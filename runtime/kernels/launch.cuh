// What kernels that are launched early begin with. Its text alone says that a kernel waits by itself:
// see `compile.py`.

#include "shared_constants.cuh"

#ifndef FOLLOWS
#define FOLLOWS

typedef unsigned int u32;
typedef unsigned long long u64;

// Waits for the launch before this one, where that may still run.
__device__ __forceinline__ void wait_for_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same, and lets the next one begin.
__device__ __forceinline__ void follow() {
    wait_for_launch();
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

#endif
