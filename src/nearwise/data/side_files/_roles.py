"""Which column of a file of feedback is what: by its name where the name says it, else by its position.

Objects are two columns whose names differ as `item1` and `item2`, `left` and `right` or `one` and `other` do,
or three with names like anchor, nearer and farther. What else is known by its name: an answer, a rating, a
distance and its relation, a weight, an annotator. Other columns are not used. `answer` reads the words in a
column of answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nearwise.data.tables import TableError
from nearwise.data.tables.numerals import number

OBJECTS = ("first", "second", "third", "fourth")
ROLES = (*OBJECTS, "similar", "rating", "distance", "relation", "weight", "annotator")

_NAMES = {
    "similar": (
        "similar same match label answer verdict judgement judgment response related duplicate linked "
        "issimilar issame ismatch isduplicate"
    ),
    "dissimilar": "dissimilar different distinct isdifferent isdissimilar",
    "rating": "rating score similarity grade stars relevance points",
    "distance": "distance dist d squareddistance distancesquared",
    "relation": "relation sign operator op",
    "weight": "weight weights confidence certainty sampleweight importance w",
    "annotator": (
        "annotator rater user worker judge coder labeler labeller reviewer expert participant who person "
        "annotatorid raterid userid workerid judgeid reviewerid participantid"
    ),
}
_ROLE_OF = {name: role for role, names in _NAMES.items() for name in names.split()}
_PARTNERS = (
    ("1", "2"),
    ("a", "b"),
    ("i", "j"),
    ("x", "y"),
    ("p", "q"),
    ("u", "v"),
    ("0", "1"),
    ("left", "right"),
    ("one", "two"),
    ("one", "other"),
    ("first", "second"),
    ("source", "target"),
    ("from", "to"),
    ("query", "candidate"),
    ("query", "result"),
)
_TRIPLET = (
    ["anchor", "query", "reference", "ref", "base"],
    ["nearer", "near", "closer", "positive", "pos", "winner", "chosen"],
    ["farther", "far", "further", "negative", "neg", "loser", "rejected"],
)

_WORDS = {word: True for word in ("1", "yes", "y", "true", "similar", "same")} | {
    word: False for word in ("0", "-1", "no", "n", "false", "dissimilar", "different")
}
_PLAIN_WORDS = ("1", "0", "-1", "yes", "no", "y", "n", "true", "false")  # whose meaning turns with the title


class Layout(NamedTuple):
    """What a kind of file holds: how many objects a line, and which roles its other columns may have.

    `widths` are the numbers of columns of a file without names; `value` is what follows the objects there.
    """

    what: str
    n_objects: tuple[int, ...]
    widths: tuple[int, int]
    value: str | None
    others: tuple[str, ...] = ()


PAIRS = Layout("pairs", (2,), (2, 3), "similar", ("dissimilar", "rating"))
TRIPLETS = Layout("triplets", (3, 4), (3, 4), None)
DISTANCES = Layout("distances", (2,), (3, 4), "distance", ("relation",))


class Assigned(NamedTuple):
    """The column of every role, and whether the names of the columns say which are the objects."""

    columns: dict[str, int]
    by_name: bool


def plain(title: str) -> str:
    """A title without case, blanks and marks."""
    return re.sub("[^a-z0-9]", "", title.casefold())


def named_role(title: str) -> str | None:
    """The role, other than an object, that a title names."""
    return _ROLE_OF.get(plain(title))


def turns(title: str) -> bool:
    """Whether a column of that title says what is dissimilar, so that 1 and yes mean just this."""
    return named_role(title) == "dissimilar"


def answer(cell: str | None, turned: bool = False) -> bool | None:
    """Whether a pair is similar, by what a cell says; None for a cell that does not say."""
    text = (cell or "").casefold()
    value = number(text)
    text = str(int(value)) if value is not None and value.is_integer() else text
    said = _WORDS.get(text)
    return said if said is None or text not in _PLAIN_WORDS else said is not turned


def asked_for(titles: Sequence[str], roles: Mapping[str, str]) -> dict[str, int]:
    """The columns of roles that the user says; those that this file does not have are of other files."""
    found = {}
    for role, wanted in roles.items():
        if role not in ROLES:
            raise TableError(f"{role!r} is no role of a column; roles are {', '.join(ROLES)}")
        if wanted in titles:
            found[role] = titles.index(wanted)
    return found


def by_position(source: str, width: int, layout: Layout) -> Assigned:
    """The roles of the columns of a file without names."""
    if width not in layout.widths:
        expected = f"{layout.widths[0]} or {layout.widths[1]} are expected for {layout.what}"
        more = "; with column names in the first line there may be more" if width > layout.widths[1] else ""
        raise TableError(f"{source} has {width} columns; {expected}{more}")
    if layout.value is None:
        return Assigned(dict(zip(OBJECTS, range(width), strict=False)), False)
    roles = ("first", "second", layout.value, *layout.others[-1:])
    return Assigned(dict(zip(roles, range(width), strict=False)), False)


def by_title(source: str, titles: Sequence[str], layout: Layout, asked: Mapping[str, int]) -> Assigned:
    """The roles of columns with names; `asked` are those that the user says."""
    found = dict(asked)
    allowed = {layout.value, *layout.others, "weight", "annotator"}
    for column, title in enumerate(titles):
        role = named_role(title)
        if role in allowed and role is not None and role not in found and column not in found.values():
            found[role] = column
    free = [k for k in range(len(titles)) if titles[k] and k not in found.values()]
    objects = _objects(titles, free, layout)
    missing = [role for role in OBJECTS[: layout.n_objects[0]] if role not in found]
    by_name = bool(objects) or not missing
    if missing:
        if not objects or any(role in found for role in OBJECTS):
            objects = _in_order(source, titles, free, layout, missing)
        found |= dict(zip(missing if len(objects) == len(missing) else OBJECTS, objects, strict=False))
    free = [column for column in free if column not in found.values()]
    answered = {layout.value, *layout.others} & found.keys()
    if layout.value is not None and not answered and free:
        if len(free) > 1:
            named = ", ".join(repr(titles[column]) for column in free)
            raise TableError(
                f"{source}: no column is called {layout.value!r}; say which of {named} it is, with "
                f"--role {layout.value}=COLUMN"
            )
        found[layout.value] = free[0]
    return Assigned(found, by_name)


def _objects(titles: Sequence[str], free: Sequence[int], layout: Layout) -> list[int]:
    """The columns that are objects by their names; none where the names do not say it."""
    names = {plain(titles[column]): column for column in reversed(free)}
    if layout.n_objects == (2,):
        couples = [
            (names[one], names[other])
            for one in names
            for first, second in _PARTNERS
            for other in _counterparts(one, first, second)
            if other in names
        ]
        distinct = list(dict.fromkeys(couples))
        return list(distinct[0]) if len(distinct) == 1 else []
    if all(name in names for name in "ijkl"):
        return [names[name] for name in "ijkl"]
    if all(name in names for name in "apn"):
        return [names[name] for name in "apn"]
    found = [next((names[name] for name in group if name in names), None) for group in _TRIPLET]
    return [column for column in found if column is not None] if None not in found else []


def _counterparts(name: str, first: str, second: str) -> list[str]:
    """The names that differ from a name by having `second` at an end where it has `first`."""
    found = []
    if name.endswith(first):
        found.append(name[: len(name) - len(first)] + second)
    if name.startswith(first) and name != first:
        found.append(second + name[len(first) :])
    return found


def _in_order(
    source: str, titles: Sequence[str], free: Sequence[int], layout: Layout, missing: Sequence[str]
) -> list[int]:
    """The objects by their position, where it is clear: nothing else is there but one value."""
    most = max(layout.n_objects) if len(missing) == layout.n_objects[0] else len(missing)
    spare = 1 if layout.value is not None else 0
    if len(missing) <= len(free) <= most + spare:
        return list(free[: most if layout.value is None else len(missing)])
    named = ", ".join(map(repr, titles))
    roles = " ".join(f"--role {role}=COLUMN" for role in missing)
    raise TableError(f"{source} has the columns {named}; say which are the objects, with {roles}")
