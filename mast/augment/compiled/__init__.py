"""The kernels of the operators compiled for the CPU: one pass over an image that stays in cache.

Each kernel treats the samples of a batch that drew its operator, in place, one after the other,
and lets go of the interpreter's lock, so that threads can share a batch. Values are those of the
PyTorch kernels in `mast.augment`, which say what each computes, to float32 rounding; the tests
compare every one. Numba compiles a kernel when it is first called and keeps it on disk.

Legend of the package: B samples, N of them drawn, C channels, P canvas pixels along an axis, V
view pixels, T taps. Images are contiguous float32 planes in [0, 1].
"""
