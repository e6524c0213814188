"""What every text must hold in which a pattern can match: runs of characters that stand for
themselves. Pure, and careful: of a pattern with groups, choices or rare escapes it says nothing.
"""

_CLASSES = frozenset("dDwWsSbBAZ")
"""Letters that stand for no character of their own after a backslash."""
_ENDS = frozenset(".^$")


def runs(pattern: str) -> list[str]:
    """The runs, in order; none where they are not known for certain."""
    if any(sign in pattern for sign in "(|"):
        return []
    found, at = [""], 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            sign, at = pattern[at + 1 : at + 2], at + 1
            if sign in _CLASSES and sign:
                found.append("")
            elif not sign or sign.isalnum():
                return []
            else:
                found[-1] += sign
        elif sign == "[":
            at = _end_of_set(pattern, at)
            if at < 0:
                return []
            found.append("")
        elif sign in "*?{":  # what stands before it may be missing
            found[-1] = found[-1][:-1]
            found.append("")
            if sign == "{":
                at = pattern.find("}", at)
                if at < 0:
                    return []
        elif sign == "+" or sign in _ENDS:
            found.append("")
        else:
            found[-1] += sign
        at += 1
    return [one for one in found if one]


def _end_of_set(pattern: str, at: int) -> int:
    """Where the set that begins at `at` ends; −1 for one that holds sets or does not end."""
    at += 1 + (pattern[at + 1 : at + 2] == "^")
    at += pattern[at : at + 1] == "]"  # there it stands for itself
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "[":
            return -1
        at += 1 + (pattern[at] == "\\")
    return at if at < len(pattern) else -1
