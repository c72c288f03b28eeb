"""Sets in shards, tars of WebDataset, anywhere; a training reads them in order.

Reading them needs the extra `shards`.
"""

from mast.data.shards.source import INDEX as INDEX
from mast.data.shards.source import KIND as KIND
from mast.data.shards.source import Shards as Shards
from mast.data.shards.source import describe_shards as describe_shards
from mast.data.shards.source import open_shards as open_shards
from mast.data.shards.tar import CANVAS as CANVAS
