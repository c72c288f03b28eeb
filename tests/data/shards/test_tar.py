"""Tars: whole ones of all writers are read; of others nothing is lost without a word."""

import gzip
import io
import resource
import tarfile
from tarfile import GNUTYPE_LONGNAME, GNUTYPE_SPARSE, LNKTYPE, SYMTYPE, XHDTYPE, TarInfo

import pytest
from sharded import encoded, opened, trained

from mast.core.errors import UserError
from mast.data import open_source

END = bytes(1024)
GNU = tarfile.GNU_FORMAT


def member(name, content=b"", kind=b"0", size=None):
    """A header, and its content in whole blocks; the header may say another size."""
    header = TarInfo(name)
    header.type, header.size = kind, len(content) if size is None else size
    return header.tobuf(GNU) + content + bytes(-len(content) % 512)


def pax(**records):
    lines = b""
    for name, value in records.items():
        text = f" {name.replace('_', '.')}={value}\n".encode()
        length = len(text) + len(str(len(text) + 2))
        lines += str(length).encode() + text
    return member("pax", lines, XHDTYPE)


def images(*numbers):
    return b"".join(member(f"{number}.png", encoded(number)) for number in numbers)


def written(root, content):
    root.mkdir()
    (root / "a.tar").write_bytes(content)
    return root


DAMAGED = {
    "cut in a member": images(0, 1, 2)[:-100],
    "cut in a header": images(0, 1, 2)[:-600],
    "cut in its end": images(0, 1, 2) + END[:512],
    "two in one": images(0, 1) + END + images(2, 3) + END,
    "a damaged header": images(0, 1) + b"x" + images(2)[1:] + END,
    "a size of 100 GB": images(0) + member("1.png", size=10**11) + END,
    "a size below 0": images(0) + member("1.png", size=-512) + END,
    "a PAX size that is none": pax(size="many") + images(0) + END,
    "a PAX header of 8 GB": member("x", kind=XHDTYPE, size=2**33 - 1) + END,
    "a file twice": images(0, 0) + END,
    "a compressed tar": gzip.compress(images(0, 1) + END),
    "a name that is cut": member("L", kind=GNUTYPE_LONGNAME, size=2**19) + END,
    "a sample in two places": images(0, 1) + member("0.cls", b"0") + END,
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_damaged_is_named(tmp_path, case):
    root = written(tmp_path / "set", DAMAGED[case])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"set/a\.tar cannot be read"):
        opened(root)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 2**18  # KB


HOLES = b"".join(b"%011o\0" % number for number in (0, 0, 10**9, 0))


def sparse(name):
    """A file of a gigabyte of nothing, as GNU tar has it, with a further block of holes."""
    block = bytearray(member(name, kind=GNUTYPE_SPARSE))
    block[386 : 386 + len(HOLES)] = HOLES
    block[482], block[483:495] = 1, b"%011o\0" % 10**9
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(512)


ODD = {
    "a symbolic link": member("1.png", kind=SYMTYPE),
    "a hard link": member("1.png", kind=LNKTYPE, size=99),
    "a device": member("1.png", kind=tarfile.CHRTYPE),
    "an unknown kind": member("1.png", b"x" * 600, b"Z"),
    "a sparse file": sparse("1.png"),
    "a sparse file of PAX": pax(GNU_sparse_major="1", GNU_sparse_minor="0", GNU_sparse_name="1.png",
                                GNU_sparse_realsize="100000000000") + member("x", b"0\n"),
    "no image": member("1.png", b"nonsense"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_what_is_no_plain_file_is_a_broken_image(tmp_path, case):
    root = written(tmp_path / "set", images(0) + ODD[case] + images(2) + END)
    assert trained(root) == opened(root) == (3, 1)


def test_names_that_lead_elsewhere_are_names(tmp_path):
    names = ["../../etc/a.png", "/etc/b.png", "c/../../d.png"]
    content = b"".join(member(name, encoded(0)) for name in names)
    root = written(tmp_path / "set", content + member("e.png/", kind=tarfile.DIRTYPE) + END)
    source = open_source(f"shards:{root}", tmp_path)
    assert [source.identifier(index) for index in range(3)] == [
        f"a/{name.removesuffix('.png')}" for name in names
    ]
    assert trained(root) == opened(root) == (3, 0)
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_dir()) == ["set"]


def packed(root, *names):
    """A set of one tar, of files of these names."""
    root.mkdir()
    with tarfile.open(root / "a.tar", "w") as tar:
        for number, name in enumerate(names):
            member, content = TarInfo(name), encoded(number) if "cls" not in name else b"0"
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return f"shards:{root}"


def test_what_is_no_sample_is_left_out(tmp_path):
    names = ["1.png", "2.psd", "x", "3.jpg", "3.png", "3.a.png", "4.cls"]
    hidden = ["__meta__/x.png", ".DS_Store", "__end__"]  # as WebDataset leaves them out
    source = open_source(packed(tmp_path / "set", *names, *hidden, "c/d.PNG"), tmp_path)
    assert [source.identifier(index) for index in range(len(source))] == ["a/1", "a/3", "a/c/d"]


def test_shards_without_an_image_end_in_one_line(tmp_path):
    spec = packed(tmp_path / "set", "a.txt", ".hidden.png")
    with pytest.raises(UserError, match="expected images in 1 shards"):
        open_source(spec, tmp_path)
