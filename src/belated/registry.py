"""Names a user can type, and where each one lives. Nothing is imported until it is asked for."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from inspect import getdoc
from typing import Any, NamedTuple

POLICIES = {
    "adaptive-thompson": "policies.adaptive_thompson:AdaptiveThompson",
    "delayed-ofu-glm": "policies.delayed_ofu_glm:DelayedOFUGLM",
    "ducb-ridge": "policies.ducb_glcb:DUCBRidge",
    "ducb-literal": "policies.ducb_glcb:DUCBLiteral",
    "linucb": "policies.linucb:LinUCB",
    "oful": "policies.oful:OFUL",
    "oful-rarely": "policies.oful:OFULRarely",
    "glm-ucb": "policies.glm_ucb:GLMUCB",
    "glm-ucb-practical": "policies.glm_ucb:GLMUCBPractical",
    "ucb-glm": "policies.ucb_glm:UCBGLM",
    "log-ucb-1": "policies.log_ucb:LogUCB1",
    "otf-lin-ucb": "policies.otf_lin:OTFLinUCB",
    "otf-lin-ts": "policies.otf_lin:OTFLinTS",
    "thompson": "policies.thompson:Thompson",
    "gloc": "policies.gloc:GLOC",
    "ada-ofu-ecolog": "policies.ecolog:AdaOFUECOLog",
    "glb-omd": "policies.glb_omd:GLBOMD",
    "lin-ts": "policies.lin_ts:LinTS",
    "inflated-ts": "policies.inflated_ts:InflatedTS",
    "evill": "policies.evill:EVILL",
    "glm-fpl": "policies.glm_fpl:GLMFPL",
    "polya-gamma": "policies.polya_gamma:PolyaGamma",
    "ofuglb-e": "policies.ofuglb_e:OFUGLBe",
    "ofuglb": "policies.ofuglb:OFUGLB",
    "ofulog-r": "policies.ofuglb:OFULogR",
    "inverse-gap": "policies.inverse_gap:InverseGap",
    "greedy": "policies.greedy:Greedy",
    "uniform": "policies.uniform:UniformPlay",
    "delayed-ucb1": "policies.arms.delayed_ucb1:DelayedUCB1",
    "delayed-kl-ucb": "policies.arms.delayed_kl_ucb:DelayedKLUCB",
    "beta-thompson": "policies.arms.beta_thompson:BetaThompson",
    "qpm-d": "policies.arms.qpm_d:QPMD",
    "bold": "policies.arms.bold:BOLD",
    "sbd": "policies.arms.sbd:SBD",
    "odaaf": "policies.arms.odaaf:ODAAF",
    "conversions-ucb": "policies.arms.conversions:ConversionsUCB",
    "conversions-kl-ucb": "policies.arms.conversions:ConversionsKLUCB",
    "patient-bandits": "policies.arms.patient_bandits:PatientBandits",
    "delayed-elimination": "policies.arms.elimination:DelayedElimination",
    "opse": "policies.arms.opse:OPSE",
    "policy-elimination": "policies.arms.policy_elimination:PolicyElimination",
}
DEFAULT_POLICY = "adaptive-thompson"
# Which policy to take: headings, advice and members. Policies that are not named here are for
# comparison.
WHICH_POLICY = {
    "What earns": (
        "Take adaptive-thompson, the default; or inverse-gap, for exact propensities. Nothing is "
        "proved of them.",
        ("adaptive-thompson", "inverse-gap"),
    ),
    "What is proved": (
        "A confidence set or a regret bound under delay. With rare rewards, Delayed OFU-GLM "
        "explores for longer than pays.",
        (
            "delayed-ofu-glm",
            "oful",
            "oful-rarely",
            "glm-ucb",
            "ucb-glm",
            "log-ucb-1",
            "gloc",
            "ada-ofu-ecolog",
            "glb-omd",
            "inflated-ts",
            "ofuglb-e",
            "ofuglb",
            "ofulog-r",
            "otf-lin-ucb",
            "delayed-ucb1",
            "delayed-kl-ucb",
            "qpm-d",
            "bold",
            "patient-bandits",
            "delayed-elimination",
        ),
    ),
}
FOR_COMPARISON = "Baselines and rules of other papers, to be played beside these: belated compare."
FAMILIES = {
    "gaussian": "families.gaussian:Gaussian",
    "bernoulli": "families.logistic:Bernoulli",
    "bounded": "families.logistic:Bounded",
    "binomial": "families.logistic:Binomial",
    "tanh": "families.tanh:Tanh",
    "probit": "families.probit:Probit",
    "poisson": "families.poisson:Poisson",
}
DELAYS = {
    "exponential": "worlds.delays:Exponential",
    "uniform": "worlds.delays:Uniform",
    "lomax": "worlds.delays:Lomax",
    "pareto": "worlds.delays:Pareto",
    "geometric": "worlds.delays:Geometric",
    "constant": "worlds.delays:Constant",
    "packet": "worlds.delays:PacketLoss",
    "empirical": "worlds.delays:Empirical",
    "never": "worlds.delays:Never",
    "informative": "worlds.delays:Informative",
}
ENVIRONMENTS = {
    "unit-ball": "worlds.environments:UnitBall",
    "unit-ball-once": "worlds.environments:UnitBallOnce",
    "sphere": "worlds.environments:Sphere",
    "fixed-arms": "worlds.environments:FixedArms",
    "one-hot": "worlds.environments:OneHot",
}
FEEDBACK = {
    "identified": "worlds.feedback:Identified",
    "conversions": "worlds.feedback:Conversions",
    "aggregated": "worlds.feedback:Aggregated",
}
WORLDS = {
    "shop": "worlds.shops.shop:Shop",
    "rare": "worlds.shops.rates:Rare",
    "frequent": "worlds.shops.rates:Frequent",
    "few-banners": "worlds.shops.sizes:FewBanners",
    "many-products": "worlds.shops.sizes:ManyProducts",
    "wide": "worlds.shops.sizes:Wide",
    "new-banners": "worlds.shops.changing:NewBanners",
    "drift": "worlds.shops.changing:Drift",
    "hours": "worlds.shops.lateness:Hours",
    "days": "worlds.shops.lateness:Days",
    "slow-banners": "worlds.shops.lateness:SlowBanners",
    "conversions": "worlds.shops.lateness:Conversions",
    "revenue": "worlds.shops.revenue:Revenue",
}
NOUNS = {  # what a member is called, in errors
    "policy": POLICIES,
    "family": FAMILIES,
    "delay": DELAYS,
    "environment": ENVIRONMENTS,
    "feedback": FEEDBACK,
    "world": WORLDS,
}


def hint(name: str, known: Iterable[str]) -> str:
    """The end of an error about a name that is not known: one that is like it, if there is one.

    >>> hint("exponentail", DELAYS)
    '; did you mean exponential?'
    """
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def load(registry: dict[str, str], name: str) -> Any:
    """The parameter type registered under ``name``.

    >>> load(FAMILIES, "poisson").__name__
    'Poisson'
    """
    if name not in registry:
        known = f"{', '.join(registry)}{hint(name, registry)}"
        raise ValueError(f"{_noun(registry)} = {name!r}: expected one of {known}")
    module, attribute = registry[name].split(":")
    return getattr(import_module(f"belated.{module}"), attribute)


def _noun(registry: dict[str, str]) -> str:
    """Returns what the members of a registry are called, in errors.

    >>> _noun(FAMILIES), _noun({})
    ('family', 'name')
    """
    return next((noun for noun, known in NOUNS.items() if known is registry), "name")


def summaries(registry: dict[str, str]) -> dict[str, str]:
    """The first line of what each one says of itself.

    >>> summaries(DELAYS)["never"]
    'No reward ever returns.'
    """
    return {name: (getdoc(load(registry, name)) or "").split("\n")[0] for name in registry}


class Advice(NamedTuple):
    """A kind of policies, advice on it in one line, and the names of its members."""

    heading: str
    advice: str
    policies: list[str]


def which_policy() -> list[Advice]:
    """Returns what earns, what is proved, and all other policies, which are for comparison.

    >>> [kind.heading for kind in which_policy()]
    ['What earns', 'What is proved', 'For comparison']
    """
    kinds = [Advice(title, line, list(names)) for title, (line, names) in WHICH_POLICY.items()]
    named = {name for kind in kinds for name in kind.policies}
    others = [name for name in POLICIES if name not in named]
    return [*kinds, Advice("For comparison", FOR_COMPARISON, others)]


def name_of(registry: dict[str, str], params: object) -> str | None:
    """The name under which the type of ``params`` is registered, if it is."""
    kind: type = getattr(params, "parameters_type", type(params))
    for name, home in registry.items():
        if home.endswith(f":{kind.__name__}") and load(registry, name) is kind:
            return name
    return None


# Parameters that came after version 0.1. Where they have their default they are left out of what
# is written: logs, saved bandits and folders of that version then still describe the same thing.
ADDED = ("max_reward",)


def values_of(params: Any) -> dict[str, Any]:
    """The parameters of a NamedTuple as logs, files and manifests hold them.

    >>> from belated.families import Gaussian
    >>> values_of(Gaussian(sd=0.5)), values_of(Gaussian(sd=0.5, max_reward=1e15))
    ({'sd': 0.5}, {'sd': 0.5, 'max_reward': 1000000000000000.0})
    """
    values = _as_set(params)
    defaults = getattr(params, "_field_defaults", {})
    kept = {
        field: value
        for field, value in values.items()
        if field not in ADDED or value != defaults.get(field)
    }
    # In version 0.1 what is derived stood among the parameters: it is written, and never read.
    return dict.fromkeys(getattr(params, "derived", ())) | kept


def parse(registry: dict[str, str], text: str) -> Any:
    """The parameters that ``text`` describes: a name, then values after a colon.

    >>> parse(DELAYS, "exponential:500")
    Exponential(expected=500.0)
    >>> parse(POLICIES, "ducb-ridge:delta=0.1,c=2").c
    2.0
    """
    name, _, rest = text.partition(":")
    kind = load(registry, name.strip())
    values: dict[str, Any] = {}
    for position, part in enumerate(filter(None, rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            if position or not kind._fields:
                raise ValueError(f"{text!r}: expected name:value or name:field=value,field=value")
            key, value = kind._fields[0], key
        if key not in kind._fields:
            known = f"({', '.join(kind._fields) or 'none'}){hint(key, kind._fields)}"
            raise ValueError(f"{key} in {text!r}: expected a parameter of {name} {known}")
        values[key] = _value(value)
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r}: {error}") from None


def parsed(registry: dict[str, str], thing: Any, argument: str | None = None) -> Any:
    """``parse`` of a text; anything else as it is. An error names the ``argument``, if given."""
    if not isinstance(thing, str):
        return thing
    try:
        return parse(registry, thing)
    except ValueError as error:
        if argument is None:
            raise
        said = str(error).removeprefix(f"{_noun(registry)} = ").removeprefix(f"{thing!r}: ")
        raise ValueError(f"{argument} = {thing!r}: {said}") from None


def _value(text: str) -> Any:
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def spell(registry: dict[str, str], params: Any) -> str:
    """Text that ``parse`` reads, for parameters that are numbers: what differs from the defaults.

    >>> from belated.worlds.delays import Exponential
    >>> spell(DELAYS, Exponential(500.0))
    'exponential:500'
    """
    name = name_of(registry, params) or type(params).__name__
    defaults = getattr(params, "_field_defaults", {})
    parts = []
    for position, (field, value) in enumerate(_as_set(params).items()):
        first_of_a_delay = position == 0 and registry is DELAYS and not isinstance(value, tuple)
        if first_of_a_delay or not _alike(value, defaults.get(field)):
            number = (
                f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else ""
            )
            parts.append((number or str(value)) if position == 0 else f"{field}={number or value}")
    return f"{name}:{','.join(parts)}" if parts else name


def _as_set(params: Any) -> dict[str, Any]:
    """The fields of a NamedTuple, or what it says was set of them."""
    values: dict[str, Any] = getattr(params, "as_set", getattr(params, "_asdict", dict))()
    return values


def _alike(a: Any, b: Any) -> bool:
    return type(a) is type(b) and str(a) == str(b)


EXAMPLES = {"horizon": 100, "window": 10, "delay": "exponential:8", "expected_delay": 8.0}


def example_policy(policy_type: Any, family: Any) -> Any:
    """The policy with its defaults, and something for what must be given and has none."""
    values = {field: value for field, value in EXAMPLES.items() if field in policy_type._fields}
    if family.R is None and "R" in policy_type._fields:
        values["R"] = 1.0
    return policy_type(**values)
