"""The documented commands that no test types: how each begins, why, and what checks it instead."""

from __future__ import annotations

from documented_commands import Command

ITSELF = "tests/documents/test_every_command.py"
CLUSTER = "needs a cluster"
NAMES = "tests/documents/test_kubectl_commands.py: what it names is in the manifests"

NOT_RUN: dict[str, tuple[str, str]] = {
    "make ": ("installs, builds images as root, runs all tests, or takes hours", f"{ITSELF}: `make --dry-run`; CI"),
    "VARIANT=cpu IMAGES=gpu make ": ("builds an image as root", f"{ITSELF}: `make --dry-run`, its variables"),
    "pip install ": ("needs a network", f"{ITSELF}: the extra or package is in pyproject.toml"),
    "python tests/": ("takes hours", "tests/test_mutants.py: with fewer changes"),
    "coverage run ": ("is a test itself", "every run of the tests"),
    "pytest ": ("is a test itself", "every run of the tests"),
    "STILLHOUSE_TEST_DEVICE=cpu pytest ": ("is a test itself", "every run of the tests"),
    "STILLHOUSE_RECORD=yes pytest ": ("changes what a test compares with", "tests/survival/test_versions.py"),
    "STILLHOUSE_ENGINE=ray://": (f"{CLUSTER} with KubeRay", "tests/manifests/test_ray_cluster.py: the address"),
    "kubectl api-resources ": (CLUSTER, NAMES),
    "kubectl -n stillhouse create job ": (CLUSTER, NAMES),
    "kubectl -n stillhouse wait ": (CLUSTER, NAMES),
    "kubectl -n stillhouse logs ": (CLUSTER, NAMES),
    "kubectl -n stillhouse create token ": (
        CLUSTER,
        "tests/kubeflow/pipelines/test_submit.py: the token that it writes",
    ),
    "kubectl create token ": (CLUSTER, "tests/kubeflow/pipelines/test_submit.py: the token that it writes"),
    "kubectl -n kubeflow port-forward ": (CLUSTER, "tests/documents/test_kubeflow_page.py: what uses the port"),
    "kubectl port-forward ": (CLUSTER, "tests/documents/test_kubeflow_page.py: what uses the port"),
    "kubectl delete trainjob ": (CLUSTER, NAMES),
    "kubectl label namespace ": (CLUSTER, NAMES),
    "kfp run delete RUN": (CLUSTER, "nothing: it is Kubeflow's own"),
    "stillhouse pipeline run-local train --recipe micro --folder tried": (
        "takes minutes",
        "tests/documents/test_several_processes_commands.py: the same into another folder",
    ),
    "stillhouse pipeline run-local refresh": ("begins a command", "tests/releases/refresh/test_pipeline_runs.py"),
    "stillhouse evaluate --corpus artifacts/ingest/corpus --run best=artifacts/best_run/run --run solr=": (
        "needs a run of another tool",
        "tests/pipeline/steps/test_foreign_runs.py: such runs",
    ),
    "stillhouse new asked --source path/to/articles --recipe generated": (
        "needs the package of a model",
        "tests/pipeline/test_recipe_choice.py: its recipe",
    ),
    "python -m benchmarks": ("takes minutes or hours, and the data", "tests/benchmarks: their flags"),
    "stillhouse new work --source articles/ --model Qwen/": ("fetches a model", "tests/models/test_families.py"),
    "stillhouse new work --source articles/ --model auto": (
        "depends on this machine's models",
        "tests/pipeline/test_model_choice.py: models by name",
    ),
    "stillhouse train-retriever --corpus corpus --encoder encoder": (
        "trains a large model",
        "tests/training/test_low_rank.py: these settings",
    ),
    "stillhouse train-generator --corpus labelled": (
        "needs the package of a model",
        "tests/pipeline/steps/test_local_questions.py: a small one",
    ),
    "stillhouse generate-queries --corpus passages --bm25 bm25 --queries generated --generator generator": (
        "needs what the command before it makes",
        "tests/pipeline/steps/test_local_questions.py: both",
    ),
    "stillhouse publish in-use ": ("needs a server", "tests/serving/test_stores.py: the same on PostgreSQL"),
    "stillhouse publish --": ("needs a store", "tests/serving/test_store_failures.py: the same flags with LanceDB"),
    "stillhouse serve in-use --store ": ("needs a store", "tests/serving/test_stores.py: such a service"),
    "stillhouse serve FOLDER --store URL": ("needs a store", "tests/serving/test_stores.py: such a service"),
    "curl localhost:8000/documents ": ("needs a store", "tests/serving/test_stores.py: the same request"),
    "curl -X DELETE localhost:8000/documents ": ("needs a store", "tests/serving/test_stores.py: the same request"),
    "stillhouse <": ("stands for every command", "tests/cli/test_help_pages.py"),
    "stillhouse compare --sweep …": ("stands for the sweeps of a table", "tests/experiments/test_sweep.py"),
}
EXACTLY = [start for start, (reason, _) in NOT_RUN.items() if reason == "begins a command"]
"""Entries that match only the whole text."""


def why_not(command: Command) -> str:
    """Return the entry of the table for a command, or an empty text if a test types it."""
    text = command.text
    return next((start for start in NOT_RUN if text == start or (start not in EXACTLY and text.startswith(start))), "")


def runs(command: Command) -> bool:
    """Whether a test types the command."""
    return not command.only_named and not why_not(command)
