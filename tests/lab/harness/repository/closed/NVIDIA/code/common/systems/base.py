import re


class _Any:
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0

    def __repr__(self):
        return "MATCH_ANY"


MATCH_ANY = _Any()


def obj_to_codestr(thing):
    return re.sub(r"<(\w+)\.(\w+): [^>]*>", r"\1.\2", repr(thing))
