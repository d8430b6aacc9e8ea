"""The page on all algorithms, ``docs/algorithms.md``, made from their docstrings."""

import re
from inspect import getdoc
from typing import Any

from belated import registry
from belated.model.plain_policy import is_own
from belated.model.protocols import Family, claims_set, feedback_of, radius, refuse_family

SECTIONS = ("Parameters", "Assumptions", "Cost", "Deviations", "References")
HEAD = """\
# Algorithms

Which one? In short, with reasons [on a page of their own](which-policy.md):

{advice}

Written by `belated list policies --markdown` from the docstrings; `make docs` renews it. Every
policy learns from the rewards that have returned and from nothing else. A confidence set that is
claimed is [tested](../tests/policies/test_coverage.py); what it rests on is under *Assumptions*;
what is from memory of a paper, or differs from it, is under *Deviations*. *Rewards* are those it
takes with its defaults. A policy without a set gives intervals, too: those of the posterior, of
which nothing is proved. `belated compare` plays them all on the same worlds.
"""


def sections(thing: Any) -> dict[str, str]:
    """Returns the parts of a numpydoc docstring by title; the part before the first has "".

    >>> class Thing:
    ...     '''Does little.
    ...
    ...     Cost
    ...     ----
    ...     O(1).
    ...     '''
    >>> sections(Thing)
    {'': 'Does little.', 'Cost': 'O(1).'}
    """
    parts = re.split(r"^(\w[\w ]*)\n-{3,}$", getdoc(thing) or "", flags=re.MULTILINE)
    return {"": parts[0].strip()} | {
        title: text.strip() for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def page() -> str:
    """Returns all policies of the registry in Markdown."""
    kinds = {name: registry.load(registry.POLICIES, name) for name in registry.POLICIES}
    lines = ["| policy | what it does | feedback | set |", "|---|---|---|---|"]
    for name, kind in kinds.items():
        summary = sections(kind)[""].split("\n")[0].replace("|", "\\|")
        feedback, claim = feedback_of(kind()), _claim(kind)
        lines.append(f"| [{name}](#{name}) | {summary} | {feedback} | {claim} |")
    entries = [_entry(name, kind) for name, kind in kinds.items()]
    return "\n".join([HEAD.format(advice=_advice()), *lines, "", *entries])


def _advice() -> str:
    """Returns which policy to take, one item per kind; those for comparison are not named."""
    items = []
    for heading, advice, policies in registry.which_policy():
        linked = ", ".join(f"[{name}](#{name})" for name in policies)
        members = linked if heading in registry.WHICH_POLICY else "all others"
        items.append(f"- **{heading}** ({members}): {advice}")
    return "\n".join(items)


def _entry(name: str, kind: Any) -> str:
    said = sections(kind)
    home = "belated." + registry.POLICIES[name].replace(":", ".")
    facts = [
        f"- **Class:** `{home}`",
        f"- **Feedback:** {feedback_of(kind())}",
        f"- **Confidence set:** {_claim(kind)}",
        f"- **Rewards:** {', '.join(_learns_from(kind))}",
    ]
    parts = [f"## {name}", said[""], "\n".join(facts)]
    for title in SECTIONS:
        text = said.get(title, "Not stated.")
        if title == "Parameters":
            text = _listed(text)
        elif title == "References":
            text = text.replace(".\n", ".\\\n")  # each on a line of its own
        parts += [f"**{title}**", text]
    return "\n\n".join(parts) + "\n"


def _claim(kind: Any) -> str:
    """Returns when the policy has a confidence set: by default, if ``guaranteed``, or never."""
    if claims_set(kind()):
        return "yes"
    return "if `guaranteed`" if kind in radius.cases else "no"


def _learns_from(kind: Any) -> list[str]:
    """Returns the families that the policy accepts with its defaults."""
    families = {name: registry.load(registry.FAMILIES, name)() for name in registry.FAMILIES}
    policy = registry.example_policy(kind, families["gaussian"])
    return [name for name, family in families.items() if _accepts(policy, family)]


def _accepts(policy: Any, family: Family) -> bool:
    try:
        refuse_family(policy, family)
        if not is_own(policy):
            policy.resolve(family, 2, 1.0)
    except ValueError:
        return False
    return True


def _listed(parameters: str) -> str:
    """Returns the names, which stand at the margin, as items of a list."""
    return re.sub(r"^(\S.*)\n +", _item, parameters, flags=re.MULTILINE).replace("\n    ", "\n  ")


def _item(found: "re.Match[str]") -> str:
    names = ", ".join(f"`{name.strip()}`" for name in found[1].split(":")[0].split(","))
    return f"- {names}: "
