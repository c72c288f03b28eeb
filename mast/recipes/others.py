"""Recipes of all methods but MAST and VICReg, at ImageNet's scale.

Costs are estimated as for mast5. Encoder, batch and optimizer are those of vicreg5 unless a recipe
sets its own.
"""

from dataclasses import replace

from mast.config import PretrainConfig
from mast.core.optim import OptimizerConfig
from mast.methods.barlow_twins import BarlowTwinsConfig
from mast.methods.byol import BYOLConfig
from mast.methods.dino import DINOConfig
from mast.methods.distill import DistillConfig
from mast.methods.lejepa import LeJEPAConfig
from mast.methods.mae import MAEConfig
from mast.methods.moco import MoCoConfig
from mast.methods.simclr import SimCLRConfig
from mast.methods.simsiam import SimSiamConfig
from mast.methods.supervised import SupervisedConfig
from mast.methods.swav import SwAVConfig
from mast.methods.visreg import VISRegConfig
from mast.models import EncoderConfig
from mast.recipes.mast import imagenet

MEAN_OF_PATCHES = {"global_pool": "avg", "fc_norm": False}  # behind the last norm
# Of MoCo and SimSiam, which decay biases and norms, too.
SGD = OptimizerConfig("sgd", weight_decay=1e-4, treat_alike=True, warmup=0, final=0.0)


def simclr() -> PretrainConfig:
    """SimCLR on ImageNet: ResNet-50, batch 4096, 1000 epochs, with its own views.

    Its paper: linear top-1 69.3. LARS at 0.3 for 256 images, weight decay 1e-6, temperature 0.1,
    projector 2048-128. The official code's current defaults differ: three projector layers, weight
    decay 1e-4. There both views share BatchNorm statistics; here each view has its
    own.

    Cost: some 75 GPU hours.
    """
    optimizer = OptimizerConfig("lars_official", lr=0.3, weight_decay=1e-6, warmup=10, final=0.0)
    return imagenet("simclr", SimCLRConfig(), optimizer, views="simclr", batch_size=4096)


def moco_v2() -> PretrainConfig:
    """MoCo v2 on ImageNet: ResNet-50, batch 256, 800 epochs, with its own views.

    Its paper: linear top-1 71.1 (67.5 after 200 epochs). SGD at 0.03, weight decay 1e-4, no
    warm-up, temperature 0.2, a queue of 65,536 (facebookresearch/moco), where
    the weight decay acts on biases and norms, too.

    Cost: some 40 GPU hours, as one of two views has no backward pass.
    """
    optimizer = replace(SGD, lr=0.03)
    return imagenet("moco_v2", MoCoConfig(), optimizer, views="moco", epochs=800, batch_size=256)


def simsiam() -> PretrainConfig:
    """SimSiam on ImageNet: ResNet-50, batch 512, 100 epochs, with MoCo v2's views.

    Its paper: linear top-1 68.1 (71.3 after 800 epochs). SGD at 0.05 for 256 images, weight decay
    1e-4, of biases and norms, too, no warm-up, the predictor's rate constant
    (facebookresearch/simsiam).

    Cost: some 8 GPU hours.
    """
    optimizer = replace(SGD, lr=0.05)
    return imagenet("simsiam", SimSiamConfig(), optimizer, views="moco", epochs=100, batch_size=512)


def simsiam_augself() -> PretrainConfig:
    """SimSiam + AugSelf: heads predict how crop and color differ between the views.

    AugSelf (Lee et al., NeurIPS 2021) on SimSiam; heads and their loss are ours.
    """
    objective = SimSiamConfig(predicted=("position", "color"))
    return replace(simsiam(), recipe="simsiam_augself", objective=objective)


def byol() -> PretrainConfig:
    """BYOL on ImageNet: ResNet-50, batch 4096, 1000 epochs, with its own views (also VICReg's).

    Its paper: linear top-1 74.3. LARS at 0.2 for 256 images, weight decay 1.5e-6, momentum from
    0.996 (google-deepmind/deepmind-research, byol).

    Cost: some 100 GPU hours.
    """
    optimizer = OptimizerConfig("lars_official", lr=0.2, weight_decay=1.5e-6, warmup=10, final=0.0)
    return imagenet("byol", BYOLConfig(momentum=0.996), optimizer, views="vicreg", batch_size=4096)


def barlow_twins() -> PretrainConfig:
    """Barlow Twins on ImageNet: ResNet-50, batch 2048, 1000 epochs, with VICReg's views.

    Its paper: linear top-1 73.2. LARS at 0.2 for 256 images, weight decay 1e-6, projector
    8192-8192-8192 (facebookresearch/barlowtwins). Biases and norms share the weights' learning rate
    and the loss is scaled by 0.024, as in that code's first version; its current rate is 0.0048.

    Cost: some 75 GPU hours.
    """
    optimizer = OptimizerConfig("lars_official", lr=0.2, weight_decay=1e-6, warmup=10)
    return imagenet("barlow_twins", BarlowTwinsConfig(), optimizer, views="vicreg")


def lejepa() -> PretrainConfig:
    """LeJEPA on ImageNet: ResNet-50, batch 512, 100 epochs, 2 views of 224 pixels and 6 of 98.

    Its paper: linear top-1 79 of a ViT-H/14. AdamW at 5e-4 whatever the batch, weight decay 5e-4
    for a ResNet, the regularizer's weight 0.05, 1,024 directions (rbalestr-lab/lejepa).
    Differences: biases and norms have no weight decay, and no linear layer comes before the
    projector.

    Cost: some 12 GPU hours.
    """
    optimizer = OptimizerConfig("adamw", lr=2.5e-4, weight_decay=5e-4, warmup=10, final=0.001)
    return imagenet("lejepa", LeJEPAConfig(), optimizer, views="lejepa", epochs=100, batch_size=512)


def visreg() -> PretrainConfig:
    """VISReg on ImageNet, as `lejepa` but for its regularizer: weight 0.9, 4,096 directions.

    Its paper has four large views and a ViT (HaiyuWu/visreg). Cost: some 12 GPU hours.
    """
    return replace(lejepa(), recipe="visreg", objective=VISRegConfig())


def swav() -> PretrainConfig:
    """SwAV on ImageNet: ResNet-50, batch 4096, 800 epochs, 2 views of 224 pixels and 6 of 96.

    Its paper: linear top-1 75.3. LARS at 0.3 for 256 images, weight decay 1e-6, 3000 prototypes,
    which are frozen in the first epoch (facebookresearch/swav). LARS adaptation and weight decay
    also apply to biases and norms.

    Cost: some 90 GPU hours.
    """
    optimizer = OptimizerConfig("lars", lr=0.3, weight_decay=1e-6, treat_alike=True, warmup=10)
    objective = SwAVConfig(frozen=1 / 800)
    return imagenet("swav", objective, optimizer, views="multicrop", epochs=800, batch_size=4096)


def dino() -> PretrainConfig:
    """DINO on ImageNet: ViT-S/16, batch 1024, 800 epochs, 2 views of 224 pixels and 8 of 96.

    Its paper: linear top-1 77.0, of the teacher, with 10 small views. AdamW at 5e-4 for 256 images,
    the teacher's temperature from 0.04 to 0.07 in 30 epochs (facebookresearch/dino). Differences:
    number and scales of the views are that code's defaults, weight decay stays at 0.04 (theirs
    rises to 0.4), gradients are clipped at a global norm of 3 (theirs per tensor), and prototypes
    have unit length (theirs do not, for this ViT).
    """
    optimizer = OptimizerConfig("adamw", lr=5e-4, weight_decay=0.04, clip=3.0, final=0.0005)
    objective = DINOConfig(warmup=30 / 800, frozen=1 / 800)
    options = {"drop_path_rate": 0.1, "dynamic_img_size": True}
    encoder = EncoderConfig("timm:vit_small_patch16_224", options)
    config = imagenet("dino", objective, optimizer, views="dino", encoder=encoder)
    return replace(config, epochs=800, batch_size=1024)


def mae() -> PretrainConfig:
    """MAE on ImageNet: ViT-B/16, batch 4096, 800 epochs, one cropped and mirrored view.

    Its paper: fine-tuned top-1 83.6 after 1600 epochs, linear 68.0. AdamW at 1.5e-4 for 256 images
    with 40 epochs of warm-up, weight decay 0.05 (facebookresearch/mae). Differences: AdamW's
    second moment decays by 0.999 (theirs by 0.95), the encoder's position embeddings are
    learned, and the representation is the mean of the patches, as the class token does not enter
    the loss. The MAST paper does not define MAE with a ResNet-50 (Table 10).
    """
    optimizer = OptimizerConfig("adamw", lr=1.5e-4, weight_decay=0.05, warmup=40, final=0.0)
    encoder = EncoderConfig("timm:vit_base_patch16_224", MEAN_OF_PATCHES)
    config = imagenet("mae", MAEConfig(), optimizer, views="mae", encoder=encoder)
    return replace(config, epochs=800, batch_size=4096)


def distill() -> PretrainConfig:
    """A ResNet-50 that learns the features of a teacher, 100 epochs, one cropped and mirrored view.

    AdamW at 5e-4 for 256 images, weight decay 0.04.

    Cost: some 4 GPU hours, and a forward pass of the teacher.
    """
    optimizer = OptimizerConfig("adamw", lr=5e-4, weight_decay=0.04, warmup=10, final=0.0)
    return imagenet("distill", DistillConfig(), optimizer, views="mae", epochs=100, batch_size=256)


def supervised() -> PretrainConfig:
    """Supervised training on ImageNet: ResNet-50, batch 256, 90 epochs, with MAST-5's views.

    The paper: linear top-1 76.5 (Table 1). SGD at 0.1, weight decay 1e-4, as in PyTorch's reference
    training, which however has a step schedule, weight decay on biases and norms, and one cropped
    and flipped view; here, both views of an image enter the loss.

    Cost: some 7 GPU hours.
    """
    optimizer = OptimizerConfig("sgd", lr=0.1, weight_decay=1e-4, warmup=0, final=0.0)
    return imagenet("supervised", SupervisedConfig(), optimizer, epochs=90, batch_size=256)
