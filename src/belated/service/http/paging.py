"""Lists in pages: as long as they like, they are answered in moments."""

from collections.abc import KeysView
from itertools import islice

from belated.core.arguments import shown
from belated.service.http.problems import Problem, ProblemType
from belated.wire import Paging

NO_PAGE = ProblemType(404, "unknown-page", "The list has no page that begins there")


def page_of(names: KeysView[str], query: Paging) -> tuple[list[str], str | None]:
    """Returns the names of a page, and what ``after`` has to be for the next one, if any.

    >>> page_of(dict.fromkeys("abcde").keys(), Paging(limit=2, after="b"))
    (['c', 'd'], 'd')
    >>> page_of(dict.fromkeys("abcde").keys(), Paging(limit=2, after="d"))
    (['e'], None)
    """
    left = iter(names)
    if query.after is not None:
        if query.after not in names:
            detail = f"after = {shown(query.after)}: expected `next` of a page; begin again."
            raise Problem(NO_PAGE, detail)
        while next(left) != query.after:
            pass
    page = list(islice(left, query.limit))
    more = next(left, None) is not None
    return page, page[-1] if more else None
