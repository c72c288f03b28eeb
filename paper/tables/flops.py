"""Operations of a training step, counted, and what GPUs compute of them."""

import warnings

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mast.augment import Pipeline, Views
from mast.config import PretrainConfig, build_method
from mast.core.errors import UserError

# Share of a GPU's peak that a run is taken to reach, and what did: Table 6, PFLOP over minutes.
REACHED = 0.3
REACHED_ONCE = "six ResNet-18 runs together reached 23 % on an H200"
# Peak dense bfloat16 operations per second, by NVIDIA's data sheets (SXM; GeForce RTX 4090).
GPUS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "RTX4090": 165e12}


def flops_an_image(config: PretrainConfig) -> float:
    """Operations of a training step for each image, of its matrix products and convolutions.

    Forward and backward, a product and its sum as two, counted on fake tensors, which have shapes
    and no numbers: an encoder or method that reads numbers is an error.
    """
    count = config.batch_size // config.accumulate
    pipeline = Pipeline(config.preset, config.size)
    records = pipeline.draw(count, torch.Generator())
    label_B = torch.zeros(count, dtype=torch.int64)
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # the counter does not know all fused kernels
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.device("meta"):
                method = build_method(config).train()
            with FakeTensorMode(allow_fallback_kernels=False, allow_non_fake_inputs=True):
                method.to_empty(device="cpu")
                shape = (count, config.encoder.channels)
                images = tuple(torch.empty(*shape, size, size) for size in pipeline.sizes)
                views = Views(images, records, torch.ones(count), label_B)
                with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                    method(views, 0.0)["loss"].backward()
    except UserError:
        raise
    except Exception as error:  # of whatever kind: an encoder's own code runs here
        raise UserError(
            f"the operations of a step of {config.encoder.name} cannot be counted "
            f"({str(error)[:200]})"
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    return counter.get_total_flops() / count
