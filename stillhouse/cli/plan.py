"""`stillhouse plan`: writes what each stage computes; the first stage of dvc.yaml runs it."""

from collections.abc import Sequence
from pathlib import Path

from stillhouse.core.context import quiet, say
from stillhouse.core.monitoring.activity import watched
from stillhouse.pipeline.graph import ARTIFACTS, graph_of
from stillhouse.pipeline.in_process import still_to_do
from stillhouse.pipeline.parser import Parser
from stillhouse.pipeline.plan_files import write_plan
from stillhouse.pipeline.recipes import configs, load_recipe
from stillhouse.pipeline.run_progress import outlook


def main(argv: Sequence[str]) -> int:
    Parser(
        "plan",
        "Writes the settings of every stage of params.yaml, and the versions of its steps, to artifacts/plan.\nDVC's "
        "stages depend on these files, so that DVC notices a changed setting, and a release of Stillhouse that "
        "computes something else. Says how long the run will take.",
    ).parse(argv)
    params = Path("params.yaml")
    recipe = load_recipe(params)
    settings, steps = configs(recipe, str(params)), graph_of(recipe, str(params))
    with watched("plan", quiet()):
        write_plan(steps, settings, Path())
        left = still_to_do(steps, settings, ARTIFACTS)
        if left and not quiet():
            say(outlook(left, len(steps), settings, ARTIFACTS))
    return 0
