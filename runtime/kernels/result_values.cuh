// The type of C's entries, and of two neighbours that are written at once.

#ifndef SINGLE
#define SINGLE 0  // whether C is float32
#endif

#if SINGLE
typedef float Value;
typedef float2 Pair;
#else
typedef double Value;
typedef double2 Pair;
#endif
