"""Text that is shown: what comes from data is clipped, made visible and escaped; numbers in few digits."""

from __future__ import annotations

import math
import re
import unicodedata
from html import escape
from typing import Any

LABEL = 40  # characters of an id, a class or a feature that are shown
LINE = 160  # of a title or a constraint
PARAGRAPH = 4000  # of a sentence or a setting

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shown(value: Any, limit: int = PARAGRAPH) -> str:
    """The value as text that can be shown anywhere: of limited length, with what is invisible written out.

    Control characters, changes of the direction of writing and lone surrogates appear as escapes such as
    \\u202e, so that they can neither act on the text around them nor hide.
    """
    text = str(value)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(_visible(character) for character in text)


def html(value: Any, limit: int = PARAGRAPH) -> str:
    """The value as shown, for text and quoted attributes of the page."""
    return escape(shown(value, limit))


def prose(value: Any) -> str:
    """The same for sentences, in which a number and its unit stay on one line."""
    return re.sub(r"(?<=\d) (?=%)", "&nbsp;", html(value))


def number(value: float) -> str:
    """Three digits, with an exponent only where it is shorter: 3700 rather than 3.7e+03."""
    return f"{float(f'{value:.3g}'):g}" if math.isfinite(value) else "unknown"


def percent(share: float) -> str:
    """A share in two digits or more: 31 %, 4.2 %, 0.48 %; it does not break at the end of a line."""
    if not math.isfinite(share):
        return "unknown"
    digits = sum(abs(share) < limit for limit in (0.0995, 0.00995))
    return f"{100 * share:.{digits}f}\u00a0%".replace("-", "\u2212")  # a minus sign


def tick_percent(share: float) -> str:
    """A round share at a tick of an axis."""
    return f"{float(f'{100 * share:.6g}'):g}\u00a0%" if share else "0"


def tick_number(value: float) -> str:
    """A round number at a tick of an axis."""
    return f"{float(f'{value:.6g}'):g}".replace("-", "\u2212")


def power_of_ten(exponent: int) -> str:
    """10⁻³ for -3."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def count(n: int, thing: str, plural: str = "") -> str:
    """1 pair, 1,200 pairs."""
    return f"{n:,} {thing if n == 1 else plural or thing + 's'}"


def _visible(character: str) -> str:
    code = ord(character)
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code != 0xAD
    if not hidden or character in "\t\n\u200d\u200c":  # the last two join letters, and belong to words
        return character
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
