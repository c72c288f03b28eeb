"""Where MAST's projector pools: at the end of its layers, in front of them, or with the encoder."""

from experiments.small import RATES, TOLD, Row, Small
from experiments.variants import LR
from mast.studies.experiment import NARROW

TITLES = {
    "after": "pooled after the layers (the paper's appendix A)",
    "before": "pooled before the layers",
    "average": "the encoder's average (VICReg's)",
}
# A map of 4 x 4 locations, with which "after" runs the layers sixteen times as often.
POOLING = Small(
    rows={
        f"pool_{pool}": Row(
            title,
            "mast_c5_distance_small",
            {"objective": {"projector": {"pool": pool}}},
            rates=(*RATES, 9 * LR),
            tuned=f"{TOLD}, all with the encoder's average",
        )
        for pool, title in TITLES.items()
    },
    epochs=8,
    encoder={**NARROW, "stem_stride": 1},
    results="pooling",
    title="Where MAST's projector pools",
    baseline="pool_after",
    about=(
        "All rows are MAST with exempt blocks, without uncertainty; the encoder's last map has "
        "4 x 4 locations. GeM starts at a power of 3 and learns it.",
    ),
)
