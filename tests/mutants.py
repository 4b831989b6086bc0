"""Mutants: small wrong changes to the science that a test has to notice. Not part of `make test`.

    python tests/mutants.py                    all of them, some minutes on one core
    python tests/mutants.py "no weight decay"  some of them, by name

Each mutant is made in a copy of the project, one at a time. The tests that should notice it run there on one thread.
A mutant that survives shows a gap in the tests. Results of whole runs are in `tests/mutants.md`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("stillhouse", "tests", "pyproject.toml")
SECONDS = 300
"""A mutant that makes the tests hang for this long counts as caught too."""
PASSED, FAILED = 0, 1
"""Exit codes of pytest; any other code means that the tests did not run."""


@dataclass(frozen=True)
class Mutant:
    """Replaces `old`, which occurs once in `file` of the package, by `new`; `tests` must notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


BATCHES, STEPS = "tests/training/test_batches.py", "tests/training/test_loop.py::test_clipping_and_decay_written_out"
DECAY = "tests/training/test_weight_decay.py"
ARTIFACTS, LOSSES = "tests/core/test_artifacts.py", "tests/training/test_losses.py"
SEARCH, RUNS = "tests/search/test_exact_search.py", "tests/evaluation/test_runs.py"
FIXED = "tests/training/test_fixed_passages.py"
CORRUPTION, MEASURES = "tests/pretraining/test_corruption.py", "tests/evaluation/test_measures.py"
SIGNIFICANCE, SPLITTING = "tests/evaluation/test_significance.py", "tests/corpus/test_splitting.py"
MUTANTS = (
    # The order of the data.
    Mutant("epochs in the same order", "training/batches.py", "[seed, epoch]", "[seed, 0]", (BATCHES,)),
    Mutant(
        "examples never shuffled",
        "training/batches.py",
        "np.random.default_rng([seed, epoch]).permutation(count)",
        "np.arange(count)",
        (BATCHES,),
    ),
    Mutant(
        "buckets by length in order",
        "training/batches.py",
        "for place in random.permutation(len(parts))",
        "for place in range(len(parts))",
        (BATCHES,),
    ),
    # The optimiser.
    Mutant("gradients are not clipped", "training/loop.py", "config.max_grad_norm or math.inf", "math.inf", (STEPS,)),
    Mutant(
        "no weight decay",
        "training/loop.py",
        "decay_groups(model, config.weight_decay)",
        "decay_groups(model, 0.0)",
        (STEPS,),
    ),
    Mutant(
        "weight decay of biases too",
        "training/loop.py",
        'name.endswith("bias") or id(parameter) in of_norms',
        "id(parameter) in of_norms",
        (DECAY,),
    ),
    Mutant("the rate rises a step late", "training/loop.py", "(step + 1) / rise", "step / rise", (STEPS,)),
    # Safety after a power cut.
    Mutant(
        "a folder is renamed before it is synced",
        "core/artifacts.py",
        "                flush(staging)",
        "                pass",
        (ARTIFACTS,),
    ),
    Mutant(
        "a file is renamed before it is synced", "core/artifacts.py", "os.fsync(file.fileno())", "pass", (ARTIFACTS,)
    ),
    Mutant("a new name is not synced", "core/artifacts.py", "sync(parent)", "pass", (ARTIFACTS,)),
    # Digests.
    Mutant(
        "a changed file goes unnoticed",
        "core/artifacts.py",
        "if manifest.files.get(name) != found.get(name)",
        "if (name in manifest.files) != (name in found)",
        (ARTIFACTS,),
    ),
    Mutant(
        "a changed manifest goes unnoticed",
        "core/artifacts.py",
        "intact = _sealed(content) == data",
        "intact = True",
        (ARTIFACTS,),
    ),
    # Search and ties.
    Mutant(
        "a score 1e-6 above the last kept is dropped",
        "search/exact_search.py",
        "scores_QB > unpacked(best_QK[:, -1:])[1]",
        "scores_QB > unpacked(best_QK[:, -1:])[1] + np.float32(1e-6)",
        (SEARCH,),
    ),
    Mutant(
        "ties at the last place are dropped",
        "search/exact_search.py",
        "scores_QB >= _last_of_best",
        "scores_QB > _last_of_best",
        (SEARCH,),
    ),
    Mutant(
        "ties in the order of later passages",
        "evaluation/rankings.py",
        "np.lexsort((rows_QK, -scores_QK, padded_QK), axis=1)",
        "np.lexsort((-rows_QK, -scores_QK, padded_QK), axis=1)",
        (RUNS,),
    ),
    # Losses.
    Mutant(
        "multiplied by the temperature", "training/losses.py", "scores / temperature", "scores * temperature", (LOSSES,)
    ),
    Mutant(
        "right answers push one another away in an index",
        "training/fixed_passages.py",
        "masked_BN[_on(never_negative, scores_BN)]",
        "masked_BN[_on((never_negative[0][:0], never_negative[1][:0]), scores_BN)]",
        (FIXED,),
    ),
    Mutant(
        "queries with more answers weigh more",
        "training/fixed_passages.py",
        "(loss_P / counts_B[query_P]).sum()",
        "loss_P.sum()",
        (FIXED,),
    ),
    Mutant(
        "a sample of an index that never changes",
        "training/fixed_passages.py",
        "[self.seed, SAMPLES, step]",
        "[self.seed, SAMPLES]",
        (FIXED,),
    ),
    Mutant(
        "the contrastive loss with the other sign",
        "training/losses.py",
        "terms.logsumexp(dim=1) - positive_scores_B",
        "positive_scores_B - terms.logsumexp(dim=1)",
        (LOSSES,),
    ),
    Mutant(
        "the contrastive loss as a sum",
        "training/losses.py",
        "- positive_scores_B).mean()",
        "- positive_scores_B).sum()",
        (LOSSES,),
    ),
    Mutant(
        "right answers among the negatives of a batch",
        "training/losses.py",
        "scores.masked_fill(~negative, nothing) for",
        "scores for",
        (LOSSES,),
    ),
    Mutant(
        "the divergence the other way round",
        "training/losses.py",
        "teacher_log_BK.exp() * (teacher_log_BK - student_log_BK)",
        "student_log_BK.exp() * (student_log_BK - teacher_log_BK)",
        (LOSSES,),
    ),
    Mutant(
        "padding among the candidates",
        "training/losses.py",
        "scores_BK.masked_fill(~candidate_BK, nothing).log_softmax(dim=1)[:, 0]",
        "scores_BK.log_softmax(dim=1)[:, 0]",
        (LOSSES,),
    ),
    Mutant(
        "the correction of sampling added",
        "pretraining/pairs/sampled_softmax.py",
        "scores_QC - log_q_C",
        "scores_QC + log_q_C",
        ("tests/pretraining/pairs/test_sampled_softmax.py",),
    ),
    # Masks.
    Mutant(
        "the mean over padding too",
        "models/pooling.py",
        "mask_BL.unsqueeze(-1).to(",
        "torch.ones_like(mask_BL).unsqueeze(-1).to(",
        ("tests/models/test_encoder.py::test_mean_pooling_leaves_padding_out",),
    ),
    Mutant("importance rounded", "pretraining/corruption.py", "np.floor(", "np.rint(", (CORRUPTION,)),
    Mutant(
        "a second mask at the difference of the rates",
        "pretraining/corruption.py",
        "draw((rate - inner_rate) / (1 - inner_rate))",
        "draw(rate - inner_rate)",
        (CORRUPTION,),
    ),
    Mutant(
        "tokens hidden at a tenth less",
        "pretraining/corruption.py",
        "round(rate * 65_536)",
        "round(0.9 * rate * 65_536)",
        (CORRUPTION,),
    ),
    # Figures.
    Mutant("rankings upside down", "evaluation/measures.py", "-float(rank) for", "float(rank) for", (MEASURES,)),
    Mutant(
        "rankings cut a place early",
        "evaluation/measures.py",
        "deepest = max(cutoffs)",
        "deepest = max(cutoffs) - 1",
        (MEASURES,),
    ),
    Mutant(
        "a p-value of 0",
        "evaluation/significance.py",
        "(1 + hits_C) / (1 + samples)",
        "hits_C / samples",
        (SIGNIFICANCE,),
    ),
    Mutant(
        "Holm's correction without its steps",
        "evaluation/significance.py",
        "np.maximum.accumulate(p_C[order] * np.arange(len(p_C), 0, -1))",
        "p_C[order] * np.arange(len(p_C), 0, -1)",
        (SIGNIFICANCE,),
    ),
    # Splits and negatives.
    Mutant(
        "equal questions in two splits",
        "corpus/splitting.py",
        "texts.setdefault(normalise(corpus.queries[id].text), [])",
        "texts.setdefault(id, [])",
        (SPLITTING,),
    ),
    Mutant(
        "right answers among the mined negatives",
        "evaluation/relevance.py",
        "found[inside] = self._keys[place[inside]] == wanted[inside]",
        "found[inside] = False",
        ("tests/training/test_mining.py",),
    ),
    # Models from elsewhere.
    Mutant(
        "a layer that the weights lack is random",
        "models/transformer.py",
        "    if lacking:",
        "    if False:",
        ("tests/models/test_damaged_models.py::test_a_damaged_model_is_refused_by_every_loader",),
    ),
)


def copy_tree(into: Path) -> None:
    """Copies the parts of the working tree that the tests need, with uncommitted changes."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, into / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, into / name)


def run_tests(tree: Path, tests: tuple[str, ...]) -> int | None:
    """Return pytest's exit code in a copy of the tree, or None if it took too long."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # two mutants of a file may have the same size and second
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(words, cwd=tree, env=environment, capture_output=True, timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        return None


def verdict(tree: Path, mutant: Mutant) -> str:
    """`caught` or `SURVIVED`; `BROKEN` if the text does not occur once in the file, or the tests did not run."""
    path = tree / "stillhouse" / mutant.file
    whole = path.read_text(encoding="utf-8")
    if whole.count(mutant.old) != 1:
        return "BROKEN"
    path.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        code = run_tests(tree, mutant.tests)
    finally:
        path.write_text(whole, encoding="utf-8")
    return {PASSED: "SURVIVED", FAILED: "caught", None: "caught"}.get(code, "BROKEN")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="the mutants to try (default: all)")
    names = parser.parse_args().names
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no mutant is called {unknown[0]!r}; there are: {', '.join(known)}")
    chosen = [known[name] for name in names] or list(MUTANTS)
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place)
        copy_tree(tree)
        tests = tuple(dict.fromkeys(test for mutant in chosen for test in mutant.tests))
        if run_tests(tree, tests) != PASSED:
            print("the tests fail without any mutant; mend them first")
            return 1
        failed = 0
        for mutant in chosen:
            started = time.monotonic()
            found = verdict(tree, mutant)
            failed += found != "caught"
            print(f"{found:9}{mutant.name}  ({mutant.file}, {time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} caught")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
