"""Our data classes beside the library's: whatever can be seen of them is the same."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from types import SimpleNamespace
from typing import Any, ClassVar, Dict, List, NamedTuple, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tony_core import dataclass as ours


class Pair(NamedTuple):
    """A tuple with names."""

    left: Any
    right: Any


def made_by(library: Any) -> SimpleNamespace:
    """The same classes by one of the two."""
    dataclass, field = library.dataclass, library.field

    @dataclass(frozen=True)
    class Base:
        """Frozen."""

        KIND: ClassVar[str] = "base"
        name: str
        size: int = 1
        hidden: bytes = field(default=b"", repr=False)

    @dataclass(frozen=True)
    class Derived(Base):
        """With more."""

        size: int = 7
        parts: Tuple[Any, ...] = ()
        notes: Dict[str, Any] = field(default_factory=dict, compare=False)
        memo: List[int] = field(default_factory=list, init=False, repr=False)
        count: int = field(default=3, init=False)

    @dataclass
    class Open:
        """May be changed."""

        values: List[int] = field(default_factory=list)
        after: Optional[str] = None

        def __post_init__(self) -> None:
            self.after = f"{self.after}!"

    @dataclass(eq=False)
    class Same:
        """Equal to itself alone."""

        one: int = 1

    @dataclass(frozen=True)
    class Single:
        """One field."""

        one: Any

    @dataclass(frozen=True)
    class Nothing:
        """No field."""

    @dataclass(frozen=True)
    class Spoken(Single):
        """With words of its own."""

        def __repr__(self) -> str:
            return f"spoken {self.one}"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    return SimpleNamespace(
        Base=Base, Derived=Derived, Open=Open, Same=Same, Single=Single, Nothing=Nothing,
        Spoken=Spoken,
    )  # fmt: skip


OURS, THEIRS = made_by(ours), made_by(dataclasses)
NAMES = sorted(vars(OURS))
WORDS = st.sampled_from(
    ["name", "memo", "size", "hidden", "parts", "notes", "values", "after", "one", "x"]
)
VALUES = st.one_of(st.integers(0, 2), st.text(max_size=2), st.none())
CALLS = st.tuples(st.lists(VALUES, max_size=5), st.dictionaries(WORDS, VALUES, max_size=4))


def outcome(make: Any) -> Any:
    """What it gives, or that it cannot be."""
    try:
        return make()
    except (TypeError, ValueError):
        return TypeError


@given(st.sampled_from(NAMES), CALLS, CALLS, st.dictionaries(WORDS, VALUES, max_size=2))
def test_instances_are_the_same(name: str, one: Any, two: Any, changes: Any) -> None:
    seen = []
    for classes, library in ((OURS, ours), (THEIRS, dataclasses)):
        kind = getattr(classes, name)
        first = outcome(lambda kind=kind: kind(*one[0], **one[1]))
        second = outcome(lambda kind=kind: kind(*two[0], **two[1]))
        if TypeError in (first, second):
            seen.append((first is TypeError, second is TypeError))
            continue
        changed = outcome(lambda: library.replace(first, **changes))  # noqa: B023
        seen.append(
            (
                repr(first).split(".")[-1] if name == "Same" else repr(first),
                vars(first) == vars(second),
                first == second,
                first != second,
                first == object(),
                name == "Same" or outcome(lambda: hash(first) == hash(second)),  # noqa: B023
                repr(changed).split(".")[-1],
                library.asdict(first),
                [each.name for each in library.fields(first)],
                library.is_dataclass(first),
                kind.__match_args__,
            )
        )
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_the_same(name: str) -> None:
    mine, other = getattr(OURS, name), getattr(THEIRS, name)
    assert str(inspect.signature(mine)) == str(inspect.signature(other))
    for attribute in ("name", "size", "hidden", "parts", "notes", "values", "one", "KIND"):
        assert getattr(mine, attribute, "none") == getattr(other, attribute, "none")
    assert (mine.__hash__ is None) == (other.__hash__ is None)


def test_the_library_takes_ours_for_its_own() -> None:
    one = OURS.Derived("a", parts=(OURS.Single(Pair(1, [OURS.Nothing()])),))
    assert dataclasses.is_dataclass(one)
    assert [each.name for each in dataclasses.fields(one)] == [
        "name", "size", "hidden", "parts", "notes", "memo", "count",
    ]  # fmt: skip
    assert dataclasses.replace(one, size=3) == ours.replace(one, size=3) != one
    assert dataclasses.asdict(one) == ours.asdict(one)
    assert ours.asdict(one)["parts"] == ({"one": Pair(1, [{}])},)

    @dataclasses.dataclass(frozen=True)
    class Theirs(OURS.Base):  # type: ignore[name-defined,misc]
        more: int = 2

    assert Theirs("a") == Theirs("a", 1, b"", 2)


def test_frozen_is_frozen() -> None:
    one = OURS.Base("a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="size"):
        one.size = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="size"):
        del one.size
    assert copy.deepcopy(one) == copy.copy(one) == one


def test_it_travels() -> None:
    from tony_core.job.spec import Resources

    assert pickle.loads(pickle.dumps(Resources(1, 2, 3))) == Resources(1, 2, 3)


@pytest.mark.parametrize(
    ("annotations", "space", "words"),
    [
        ({"a": "int", "b": "int"}, {"a": 1}, "b has no default"),
        ({"a": "list"}, {"a": []}, "default_factory"),
    ],
)
def test_what_the_library_refuses_is_refused(annotations: Any, space: Any, words: str) -> None:
    for library in (ours, dataclasses):
        kind = type("Wrong", (), {"__annotations__": annotations, **space})
        with pytest.raises((TypeError, ValueError)) as caught:
            library.dataclass(kind)
        if library is ours:
            assert words in str(caught.value)


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(TypeError, match=r"Base\(\) is missing 'name'"):
        OURS.Base()
    with pytest.raises(TypeError, match=r"Base\(\) has no place for 'wrong'"):
        OURS.Base("a", wrong=1)
    with pytest.raises(TypeError, match=r"Base\(\) has no place for 4 values"):
        OURS.Base(1, 2, 3, 4)
