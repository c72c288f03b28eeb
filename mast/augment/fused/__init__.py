"""The kernels of the operators for a GPU, in Triton: a view is drawn in a handful of launches.

Values are those of the PyTorch kernels in `mast.augment`, which say what each computes, to float32
rounding, but for the blur, which is cut at four sigmas as on a CPU; the tests compare every one, in
Triton's interpreter where there is no GPU. Importing this needs Triton.
"""

from mast.augment.fused.chain import draw_views, works_on

__all__ = ["draw_views", "works_on"]
