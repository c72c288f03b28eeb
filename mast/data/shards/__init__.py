"""Sets in shards, which are read in order: tars of WebDataset and Parquet files, anywhere.

Reading them needs the extra `shards`.
"""

from mast.data.shards.index import INDEX as INDEX
from mast.data.shards.index import KIND as KIND
from mast.data.shards.index import ShardIndex as ShardIndex
from mast.data.shards.index import open_index as open_index
from mast.data.shards.shard import CANVAS as CANVAS
from mast.data.shards.stream import ShardLoader as ShardLoader
