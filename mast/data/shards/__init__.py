"""Sets in shards: tars of WebDataset and Parquet files, anywhere; a training reads them in order.

Reading them needs the extra `shards`.
"""

from mast.data.shards.index import INDEX as INDEX
from mast.data.shards.index import KIND as KIND
from mast.data.shards.index import ShardIndex as ShardIndex
from mast.data.shards.index import open_index as open_index
from mast.data.shards.source import describe_shards as describe_shards
from mast.data.shards.source import open_shards as open_shards
from mast.data.shards.tar import CANVAS as CANVAS
