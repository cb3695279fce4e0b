"""What is told of a fuzzing run's seeds, and of oracles that only gave their opinion."""

from assay.engines.found import Found


def seeding_facts(found: Found) -> dict[str, str]:
    """How the seeds came about, and which numbers stand on labels that nobody gave."""
    told = found.seeding
    facts = {"seeds": f"{found.stats['seed_list']}, {found.seeds} worked"}
    if len(told["steps"]) > 1:
        chain = ", ".join(f"{name} {count}" for name, count in told["steps"].items())
        facts["seeds left by each step"] = f"of {told['of']}: {chain}"
    if told["levels"]:
        facts["levels of the seeds"] = ", ".join(f"{name} {level:.3f}" for name, level in told["levels"].items())
    if told["unlabelled"]:
        facts["seeds without a label"] = (
            f"{told['unlabelled']}: failures and wrong answers are by what the models say of the clean input; "
            "whether that is right needs labels"
        )
    return facts


def opinion_facts(found: Found) -> dict[str, str]:
    """How many valid cases other oracles would have called failures."""
    names = {"leaves": "cases that left the mined class", "agreed": "cases on which both models agree, wrongly"}
    return {names.get(name, f"cases that {name} calls failures"): str(n) for name, n in found.opinions.items()}
