"""What was applied to a sample, in words."""

from mast.augment.operators import OPERATORS
from mast.augment.record import Record
from mast.core.entry import entry
from mast.core.errors import UserError


@entry()
def describe(record: Record, sample: int) -> str:
    """Describe in a line what was applied to a sample: "crop 0.42, flip, blur σ 0.8".

    The share of a crop is that of a square image.

    Args:
        record: Of the view.
        sample: Its place in the batch, from 0.
    """
    if not 0 <= sample < len(record):
        raise UserError(f"sample must be from 0 to {len(record) - 1}, got {sample}")
    single = record[sample : sample + 1]
    captions = [
        OPERATORS[name].caption(single.parameters[name])
        for k, name in enumerate(record.names)
        if single.applied_BK[0, k]
    ]
    return ", ".join(captions) or "unchanged"
