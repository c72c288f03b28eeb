"""Any value for any option of any command gives its arguments or one line.

What the commands then do with them, `make faults` tries (`benchmarks/faults`).
"""

import json
import random
from contextlib import suppress
from unittest.mock import patch

import pytest
from faults.options import BASES, options, value
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mast.cli.verbs import TOPICS, VERBS
from mast.cli.words import arguments_of
from mast.core.errors import UserError

PAIRS = [(command, option) for command in BASES for option in options(command)]


def words_of(command: str) -> list[str]:
    return list(BASES[command][len(command.split()) :])


def read(command: str, given: list[str]) -> None:
    with suppress(UserError), patch("torch.set_num_threads"):  # of all later tests
        arguments_of(command, [*words_of(command), *given])


def test_the_commands_are_all_that_there_are() -> None:
    assert set(BASES) == {*VERBS, *(f"show {topic}" for topic in TOPICS)}


@pytest.mark.parametrize("command", BASES)
def test_what_is_small_is_understood(command: str) -> None:
    arguments_of(command, words_of(command))


@settings(max_examples=200, deadline=None, phases=(Phase.generate,))
@given(
    pair=st.sampled_from(PAIRS),
    text=st.one_of(
        st.text(max_size=30),
        st.integers().map(str),
        st.floats().map(repr),
        st.recursive(
            st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
            max_leaves=5,
        ).map(json.dumps),
        st.randoms(use_true_random=False),
    ),
)
def test_any_value_of_any_option(pair: tuple[str, str], text: str | random.Random) -> None:
    command, option = pair
    form = options(command)[option]
    if isinstance(text, random.Random):
        read(command, value(option, form, text))
    else:
        read(command, [f"{option}={text}"])
