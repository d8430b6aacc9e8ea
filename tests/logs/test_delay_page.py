"""The page of ``belated delays`` in a browser, wide and on a phone."""

import numpy as np
import pandas as pd
import pytest

from belated.logs.delay_page import write_delay_page
from belated.logs.delays import delay_report


@pytest.mark.parametrize("loop", ["explicit", "conversion"])
def test_the_page_fits_a_phone(loop, tmp_path, browser):
    rng = np.random.default_rng(1)
    decided = 1_750_000_000 + np.arange(3000) * 60.0
    returned = decided + rng.exponential(7200.0, 3000)
    returned[(returned > decided[-1]) | (rng.random(3000) < 0.5)] = np.nan
    frame = pd.DataFrame({"time": decided, "reward_time": returned})
    frame["action"] = np.where(np.arange(3000) % 2, "tent", "a name of an action that is long")
    report = delay_report(frame, loop=loop, by="action")
    write_delay_page(report, "log.csv", tmp_path / "page.html")
    for width in (1200, 390):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto((tmp_path / "page.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator("figure img").count() == 3
        titles = page.locator("h2").all_inner_texts()
        assert titles == [
            "The answer",
            "Laws",
            "By action",
            "Tests",
            "Missing rewards",
            "Bad rows",
            "How it was read",
        ]
        attached = "getComputedStyle(document.querySelector('.scroll')).backgroundAttachment"
        assert (
            page.evaluate(attached) == "local, local, scroll, scroll"
        )  # a shadow where it goes on
        assert page.locator("dt", has_text="Does delay depend on the action?").count() == 1
        page.close()
