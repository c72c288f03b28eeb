"""Dataclasses from plain values: names and types are checked, nested ones by dotted name."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from mast.core import fields
from mast.core.errors import UserError


@dataclass
class Inner:
    spec: str = "x"
    limit: float = 1.0
    cache: Path | None = None


@dataclass
class Outer:
    data: Inner = field(default_factory=Inner)
    name: Literal["lars", "adamw"] = "lars"
    operators: tuple[str, ...] | None = None
    compile: bool = False
    count: int | None = None
    stride: Literal[1, 2] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 0:
            raise UserError(f"count must be 0 or more, got {self.count}")


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ({"count": "3"}, "count", 3),
        ({"count": "none"}, "count", None),
        ({"data": {"cache": "none"}}, "data", Inner(cache=Path("none"))),
        ({"data": Inner(limit=2.0)}, "data", Inner(limit=2.0)),
        ({"compile": "true"}, "compile", True),
        ({"operators": ["a", "b"]}, "operators", ("a", "b")),
        ({"operators": "a"}, "operators", ("a",)),
        ({"stride": "2"}, "stride", 2),
        ({"options": "{layers: [1]}"}, "options", {"layers": [1]}),
        ({"data.limit": 2}, "data", Inner(limit=2.0)),
        ({"data": {"cache": "\udcff"}}, "data", Inner(cache=Path("\udcff"))),
    ],
)
def test_values_take_their_type(values: dict[str, Any], name: str, expected: Any) -> None:
    before = Outer()
    changed = getattr(fields.change(before, values, "option"), name)
    assert changed == expected
    assert type(changed) is type(expected)
    assert before == Outer()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nam": "lars"}, "unknown option 'nam'. Did you mean 'name'"),
        ({"name": "adam"}, "unknown value of name 'adam'. Did you mean 'adamw'"),
        ({"data": {"limits": 1}}, "Did you mean 'data.limit'"),
        ({"data.limit": None}, "data.limit: expected a number, got nothing"),
        ({3: "x"}, "expected names of fields, got 3"),
        ({"data": {"limit": 1}, "data.limit": 2}, "data.limit: expected once"),
        ({"data": "folder"}, "data: expected fields by name, such as data.spec, got 'folder'"),
        ({"stride": 3}, "stride: expected 1 or 2 or none, got 3"),
        ({"count": -1}, "count must be 0 or more"),
    ],
)
def test_mistakes_name_the_field(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        fields.change(Outer(), values, "option")
