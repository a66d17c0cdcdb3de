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

from nearwise.data.numerals import number
from nearwise.data.tables import TableError

OBJECTS = ("first", "second", "third", "fourth")
ROLES = (*OBJECTS, "similar", "rating", "distance", "relation", "weight", "annotator")

_NAMES = {
    "similar": (
        "similar same match label answer verdict judgement judgment response related duplicate linked "
        "issimilar issame ismatch isduplicate"
    ),
    "dissimilar": "dissimilar different distinct isdifferent isdissimilar",
    "rating": "rating score similarity grade stars relevance points",
    "distance": "distance dist d squareddistance distancesquared dissimilarity",
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
_SAYING = {  # words in a name, the clearest first, and what they are about
    "anchor": "anchor query reference ref base probe",
    "near": (
        "nearer near closer positive pos winner chosen nearest close closest match matching matched same "
        "similar alike like best better preferred selected accepted correct duplicate related linked link "
        "equal relevant good liked genuine"
    ),
    "far": (
        "farther far further negative neg loser rejected farthest furthest different dissimilar distinct "
        "worst worse incorrect wrong odd outlier distractor distant "
        "irrelevant bad impostor imposter difference diff differ differs"
    ),
    "negation": "not non no cannot less least",
    "measure": "distance distances dist dissimilarity",
    "similarity": "similarity sim affinity proximity closeness correlation corr cosine likeness relatedness",
    "bound": "min max minimum maximum lower upper least most",
    "rank": "rank ranking position place order",
    "square": "squared square sq sqr sqd sqrd",
    "counter": "id index idx row number no nr trial task question triplet pair tripletid questionid pairid",
}
_WORDS_FOR = {meaning: words.split() for meaning, words in _SAYING.items()}
_PREFIXES = ("not", "non", "no", "un", "dis", "mis", "cannot")
_NUMBERED: list[Sequence[str]] = [
    "ijkl",
    "ijk",
    "apn",
    OBJECTS,
    OBJECTS[:3],
]  # all objects
_SQUARED = re.compile(r"²|\^ ?2|\*\*2|^sq(dist|eucl|l2)|(dist|distances?|euclid(ean)?|l2|\bd)sq$")

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
    role = named_role(title)
    return role == "dissimilar" or (role is None and says_near(title) is False)


def is_squared(title: str) -> bool:
    """Whether a column of that title holds squared distances."""
    name, words = plain(title), _words(title)
    if "root" in words or "sqrt" in name:
        return False
    return _has(title, "square") or "squared" in name or _SQUARED.search(title.casefold()) is not None


def unknown_value(titles: Sequence[str], layout: Layout, roles: Assigned, asked: Mapping[str, int]) -> str:
    """The name of a column that is read as the value though it does not say so; empty where there is none."""
    column = roles.columns.get(layout.value or "")
    if column is None or layout.value in asked or named_role(titles[column]) is not None:
        return ""
    title = titles[column]
    if layout.value == "distance":
        is_known = is_squared(title) or (_has(title, "measure") and "2" not in title)
    else:
        is_known = says_near(title) is not None
    return "" if is_known else title


def says_near(title: str) -> bool | None:
    """Whether a title is about what is near (`match`, `positive_id`), or far (`mismatch`, `less_similar`).

    None where it does not say it.
    """
    found, turned = set(), False
    words = _words(title)
    for word in words:
        if word in _WORDS_FOR["negation"]:
            turned = not turned
        elif (said := _stance(word)) is not None:
            found.add(said)
    if not found and len(words) > 1 and words[0] in ("not", "non", "cannot"):
        return False  # not_picked: whatever the other word means, it is what is near
    return found.pop() is not turned if len(found) == 1 else None


def _has(title: str, meaning: str) -> bool:
    """Whether a title has one of the words for that."""
    return not {*_words(title)}.isdisjoint(_WORDS_FOR[meaning])


def _words(title: str) -> list[str]:
    """The words of a title: `positive_id` and `positiveId` have two."""
    apart = re.sub("([a-z])([A-Z])", r"\1 \2", title)
    return re.findall("[a-z]+", apart.casefold())


def _stance(word: str) -> bool | None:
    """Whether a word is about what is near, or far; None for others."""
    if word in _WORDS_FOR["near"] or word in _WORDS_FOR["far"]:
        return word in _WORDS_FOR["near"]
    for start in _PREFIXES:
        if word.startswith(start) and (said := _stance(word.removeprefix(start))) is not None:
            return not said
    for other in (word.removeprefix("is"), word.removesuffix("id")):
        if other != word and (said := _stance(other)) is not None:
            return said
    return None


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
        found[_value_role(source, titles[free[0]], layout)] = free[0]
    if missing:
        _refuse_contradictions(source, titles, layout, found, asked)
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
    for group in _NUMBERED:
        if all(name in names for name in group):
            return [names[name] for name in group]
    near, far = (_said(titles, free, said) for said in (True, False))
    if len(free) == 4 and len(near) == len(far) == 2:
        return [*near, *far]
    if "p" in names and "n" in names:
        near, far = [names["p"]], [names["n"]]
    anchor = [column for column in free if _is_anchor(titles[column])]
    groups = [
        _clearest(columns, names, words)
        for columns, words in (
            (anchor, _WORDS_FOR["anchor"]),
            (near, _WORDS_FOR["near"]),
            (far, _WORDS_FOR["far"]),
        )
    ]
    found = [column for column in groups if column is not None]
    left = [column for column in free if column not in found]
    if len(found) == 2 and len(free) == 3:  # the third is the one that is left
        groups[groups.index(None)] = left[0]
    return [column for column in groups if column is not None] if None not in groups else []


def _said(titles: Sequence[str], free: Sequence[int], near: bool) -> list[int]:
    """The columns whose names are about what is near, or far."""
    return [k for k in free if says_near(titles[k]) is near and not _is_anchor(titles[k])]


def _is_anchor(title: str) -> bool:
    words = _words(title)
    return any(word.removesuffix("id") in _WORDS_FOR["anchor"] for word in words) and says_near(title) is None


def _clearest(columns: Sequence[int], names: Mapping[str, int], words: Sequence[str]) -> int | None:
    """The column that is called by the first of these words, or the only one that a word is in."""
    called = next((names[word] for word in words if names.get(word) in columns), None)
    return columns[0] if called is None and len(columns) == 1 else called


def _refuse_contradictions(
    source: str, titles: Sequence[str], layout: Layout, found: Mapping[str, int], asked: Mapping[str, int]
) -> None:
    """Refuse objects, taken by their position, whose names say that they are something else."""
    objects = [role for role in OBJECTS if role in found]
    answered = not {layout.value, *layout.others}.isdisjoint(found)
    for role in objects:
        title = titles[found[role]]
        if role in asked or not _is_contradicted(
            title, role, len(objects), answered, len(titles) - len(found)
        ):
            continue
        if len(objects) == 2 and says_near(title) is False:
            raise TableError(
                f"{source}: column {title!r} is about what is far, but pairs without a column of answers are "
                "similar ones; add a column 'similar' with 0 in it"
            )
        roles = " ".join(f"--role {role}=COLUMN" for role in OBJECTS[: layout.n_objects[0]])
        raise TableError(
            f"{source}: by its position, column {title!r} is the {role} object of {layout.what}, which its "
            f"name contradicts; say which are the objects, with {roles}"
        )


def _is_contradicted(title: str, role: str, n_objects: int, answered: bool, n_unused: int) -> bool:
    """Whether a name contradicts that the column is that object of a line."""
    near, name = says_near(title), plain(title)
    if near is None and named_role(title) is not None and len(name) > 1:  # an answer, a rating, ...
        return True
    if n_objects == 2:
        return (near is False and not answered) or (
            name in _WORDS_FOR["counter"] and n_unused > 0 and answered
        )
    if n_objects == 4:
        far = role in ("third", "fourth")
        return near is far or _is_anchor(title) or name in _WORDS_FOR["counter"]
    if _is_anchor(title):
        return role != "first"
    return near is not None and (role == "first" or near is (role == "third"))


def _value_role(source: str, title: str, layout: Layout) -> str:
    """The role of the only column that may be the value; refused where its name says that it is another."""
    assert layout.value is not None
    wrong = named_role(title) is not None
    if layout.value == "distance":
        wrong |= _has(title, "bound") or (_has(title, "similarity") and not _has(title, "measure"))
    elif turns(title) and not wrong:
        return "dissimilar"
    else:
        wrong |= _has(title, "rank") or _has(title, "measure")
    if wrong:
        raise TableError(
            f"{source}: no column is called {layout.value!r}, and the name of {title!r} says that it is "
            f"something else; if it is that, say so with --role {layout.value}={title}"
        )
    return layout.value


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
