"""The kernels of the operators for a GPU, in Triton: a view is drawn in a handful of launches.

Values are those of the PyTorch kernels in `mast.augment`, which say what each computes, to float32
rounding; the tests compare every one, in Triton's interpreter. Importing this needs Triton.
"""

from mast.augment.fused.chain import Chain

__all__ = ["Chain"]
