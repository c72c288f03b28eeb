"""Parquet files of others: what is no image counts as broken, and no file is larger than it is."""

import math
import resource
from decimal import Decimal
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from sharded import encoded, opened, trained

from mast.core.errors import UserError
from mast.data import open_source
from mast.data.shards import open_index
from mast.data.shards.sample import label_of


def written(root, table, **options):
    root.mkdir(exist_ok=True)
    parquet.write_table(table, root / "a.parquet", **options)
    return root


FILE = encoded(1)
STRUCT = pyarrow.struct([("path", pyarrow.binary()), ("bytes", pyarrow.binary())])
IMAGES: dict[str, tuple[Any, int]] = {
    "some null": (pyarrow.array([FILE, None, b"", FILE]), 2),
    "some of them null": (pyarrow.array([None, {"bytes": None}, {"bytes": FILE}, None], STRUCT), 3),
    "paths that are no text": (pyarrow.array([{"path": b"\xff", "bytes": FILE}] * 4, STRUCT), 0),
    "large": (pyarrow.array([FILE] * 4, pyarrow.large_binary()), 0),
    "a dictionary": (pyarrow.array([FILE] * 4).dictionary_encode(), 0),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_images_of_any_column_of_bytes(tmp_path, kind):
    images, broken = IMAGES[kind]
    root = written(tmp_path / "set", pyarrow.table({"image": images}), row_group_size=3)
    assert trained(root) == opened(root) == (4, broken)


def test_a_column_of_something_else_is_none(tmp_path):
    for image in (["text"], [[FILE]], [{"bytes": "text"}], pyarrow.nulls(1)):
        root = written(tmp_path / "set", pyarrow.table({"image": image}))
        with pytest.raises(UserError, match=r"a\.parquet has no column of images"):
            opened(root)


LABELS: dict[str, tuple[list[Any], list[int]]] = {
    "whole numbers": ([0, 1, -1, None], [0, 1, -1, -1]),
    "fractions": ([0.0, 1.5, math.nan, math.inf], [0, -1, -1, -1]),
    "text": (["0", "cat", "", None], [0, -1, -1, -1]),
    "either": ([True, False, None, None], [1, 0, -1, -1]),
    "decimals": ([Decimal("0.5"), Decimal("1.0"), None, None], [-1, 1, -1, -1]),
    "lists": ([[0], [1, 2], [], None], [-1] * 4),
    "structs": ([{"a": 0}] * 4, [-1] * 4),
    "nothing": ([None] * 4, [-1] * 4),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_column(tmp_path, kind):
    labels, expected = LABELS[kind]
    root = written(tmp_path / "set", pyarrow.table({"image": [FILE] * 4, "label": labels}))
    shard = open_index(f"shards:{root}", tmp_path).shards[0]
    assert [label_of(each.label) for each in shard.samples(0, 4)] == expected


def test_columns_are_found_by_their_names(tmp_path):
    """Masks and thumbnails are no images."""
    masks = pyarrow.array([{"bytes": b"mask"}] * 4, STRUCT)
    table = pyarrow.table({"mask": masks, "Image": [FILE] * 4, "Label": [0, 1, 0, 1]})
    root = written(tmp_path / "set", table)
    (root / "index.json").write_text('{"shardlist": [], "classes": ["a", "b"]}')
    assert opened(root) == (4, 0)
    assert open_source(f"shards:{root}", tmp_path).targets["class"].tolist() == [0, 1, 0, 1]
    photos = pyarrow.array([{"bytes": FILE}] * 4, STRUCT)
    table = pyarrow.table({"md5": [b"x"] * 4, "photo": photos, "Label": [9] * 4, "label": [1] * 4})
    root = written(tmp_path / "structs", table)
    (root / "index.json").write_text('{"shardlist": [], "classes": ["a", "b"]}')
    assert opened(root) == (4, 0)
    assert open_source(f"shards:{root}", tmp_path).targets["class"].tolist() == [1] * 4
    root = written(tmp_path / "other", pyarrow.table({"md5": [b"x"], "content": [FILE]}))
    with pytest.raises(UserError, match=r"several columns of images, md5, content: .*other#md5"):
        opened(root)
    assert len(open_source(f"shards:{root}#content", tmp_path)) == 1
    for look in (open_source, open_index):
        with pytest.raises(UserError, match="Choose from: md5, content"):
            look(f"shards:{root}#photo", tmp_path)


def test_row_groups_without_rows(tmp_path):
    table = pyarrow.table({"image": [FILE] * 3})
    (tmp_path / "set").mkdir()
    with parquet.ParquetWriter(tmp_path / "set" / "a.parquet", table.schema) as writer:
        for rows in (0, 2, 0, 0, 1, 0):
            writer.write_table(table[:rows], row_group_size=10)
    assert parquet.ParquetFile(tmp_path / "set" / "a.parquet").num_row_groups > 2
    assert trained(tmp_path / "set") == opened(tmp_path / "set") == (3, 0)


def test_a_small_file_that_says_that_large_images_are_equal(tmp_path):
    large = FILE + bytes(2**20)
    table = pyarrow.table({"image": pyarrow.array([large] * 100).dictionary_encode()})
    root = written(tmp_path / "set", table, dictionary_pagesize_limit=2**30)
    assert (root / "a.parquet").stat().st_size < 10**6
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    shard = open_index(f"shards:{root}", tmp_path).shards[0]
    assert all(len(each.image) == len(large) for each in shard.samples(0, 100))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 10**5  # KB
