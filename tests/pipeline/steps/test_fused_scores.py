"""Distillation scores of a teacher that combines BM25 and the student, and the gate that follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.curves import TEACHER
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.report.curves import read_curves
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.training.mine_negatives import DenseRanking
from stillhouse.training.negatives import Negatives
from stillhouse.training.teacher import CHOICE, Teacher

Run = Callable[..., dict[str, Path]]


@pytest.fixture
def inputs(run_step: Run, small_corpus: Path, retriever: Path) -> dict[str, Path]:
    corpus = {"corpus": small_corpus}
    lexical = run_step("bm25", corpus, negatives_depth=8)
    index = run_step("index", corpus | {"retriever": retriever}, precision="fp32")["index"]
    return corpus | {"negatives": lexical["negatives"], "bm25": lexical["bm25"], "retriever": retriever, "index": index}


def test_scores_are_the_weighted_sum_of_bm25_and_the_retriever(
    run_step: Run, inputs: dict[str, Path], small_corpus: Path
) -> None:
    """Every pair is compared with bm25s and sentence-transformers."""
    from test_hybrid import every_score

    made = run_step("score-pairs", inputs, kind="best", precision="fp32")["teacher"]
    choice = json.loads((made / CHOICE).read_text())
    teacher, negatives = Teacher.read(made), Negatives.read(inputs["negatives"])
    corpus = Corpus.open(small_corpus)
    seen = 0
    for split in ("train", "dev"):
        lexical, cosine = every_score(corpus, inputs["retriever"], split)
        slow = choice["weights"].get("bm25", 0.0) * lexical + choice["weights"].get("retriever", 0.0) * cosine
        chosen = np.flatnonzero((negatives.queries["split"] == split).to_numpy())
        for number, query in enumerate(chosen):
            for row, score in zip(negatives.rows_QD[query], teacher.negative_scores_QD[query]):
                if row >= 0:
                    assert score == pytest.approx(slow[number][row], abs=2e-4)
                    seen += 1
    assert seen > 50
    assert read_manifest(made).facts["ahead"] == choice["ahead"]


def test_a_teacher_needs_more_than_its_student(run_step: Run, inputs: dict[str, Path]) -> None:
    alone = {name: folder for name, folder in inputs.items() if name != "bm25"}
    with pytest.raises(InputError, match="make no teacher"):
        run_step("score-pairs", alone, "alone", kind="best")
    with pytest.raises(InputError, match="needs the input reranker"):
        run_step("score-pairs", inputs, "raw")
    with pytest.raises(InputError, match="are needed together"):
        run_step(
            "score-pairs", {name: folder for name, folder in inputs.items() if name != "index"}, "half", kind="best"
        )


def test_the_teacher_and_the_student_are_compared_on_all_mined_negatives(
    run_step: Run, inputs: dict[str, Path], small_corpus: Path, tmp_path: Path
) -> None:
    """RR@10 of BM25 and of the retriever, by sorting the scores of each dev query's positives and mined negatives. They
    and the verdict are the step's metrics."""
    from test_hybrid import every_score

    made, report = tmp_path / "made", tmp_path / "report.json"
    words = [f"--{name}={folder}" for name, folder in inputs.items()]
    words += ["--kind", "best", "--precision", "fp32", "--depth", "2"]
    assert cli.main(["score-pairs", *words, "--teacher", str(made), "--report", str(report), "--quiet"]) == 0
    metrics = json.loads(report.read_text())["metrics"]
    teacher, negatives = Teacher.read(made), Negatives.read(inputs["negatives"])
    dev = (negatives.queries["split"] == "dev").to_numpy()
    scored = ~np.isnan(teacher.negative_scores_QD)
    assert not scored[~dev, 2:].any() and scored[~dev, :2].all()
    assert (scored[dev] == (negatives.rows_QD[dev] >= 0)).all() and scored[dev, 2:].any()
    corpus = Corpus.open(small_corpus)
    offsets, positives = corpus.positives(negatives.queries["query_id"][dev])
    found = json.loads((made / CHOICE).read_text())
    for kind, scores in zip(("bm25", "retriever"), every_score(corpus, inputs["retriever"], "dev")):
        ranks = []
        for query, rows in enumerate(negatives.rows_QD[dev]):
            right = scores[query][positives[offsets[query] : offsets[query + 1]]]
            wrong = scores[query][rows[rows >= 0]]
            place = 1 + int((wrong >= right.max()).sum())
            ranks.append(1 / place if place <= 10 else 0)
        assert found["reciprocal_ranks"][kind] == pytest.approx(np.mean(ranks))
        assert metrics[f"dev_rr10_{kind}"] == pytest.approx(np.mean(ranks))
    verdict = metrics[f"dev_rr10_{found['chosen']}"] > metrics["dev_rr10_retriever"]
    assert metrics["ahead"] == float(verdict) and metrics.keys() == {
        "ahead",
        *(f"dev_rr10_{kind}" for kind in found["reciprocal_ranks"]),
    }
    assert found["queries"] == dev.sum()
    few = run_step("score-pairs", inputs, "few", kind="best", precision="fp32", depth=2, dev_negatives_scored=1)
    assert ((~np.isnan(Teacher.read(few["teacher"]).negative_scores_QD))[dev].sum(axis=1) == 1).all()


def test_a_cross_encoder_is_compared_with_its_student_and_teaches_with_its_raw_scores(
    run_step: Run,
    inputs: dict[str, Path],
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in the papers: a student changes no score. Both rank all mined negatives of the dev queries."""
    from test_hybrid import every_score

    CrossEncoder.start(tiny_model, 32).save(tmp_path / "reranker")
    alone = {"corpus": inputs["corpus"], "negatives": inputs["negatives"], "reranker": tmp_path / "reranker"}
    plain = run_step("score-pairs", alone, "plain", precision="fp32", depth=2)["teacher"]
    assert json.loads((plain / CHOICE).read_text())["reciprocal_ranks"].keys() == {"cross_encoder"}
    asked, score = [], DenseRanking.score

    def counted(self: DenseRanking, query_P: np.ndarray, row_P: np.ndarray) -> np.ndarray:
        asked.append(len(query_P))
        return score(self, query_P, row_P)

    monkeypatch.setattr(DenseRanking, "score", counted)
    both = alone | {"retriever": inputs["retriever"], "index": inputs["index"]}
    made = run_step("score-pairs", both, "made", precision="fp32", depth=2)["teacher"]
    for name in ("negative_scores.npy", "positives.parquet", "queries.parquet"):
        assert (made / name).read_bytes() == (plain / name).read_bytes()

    teacher, negatives = Teacher.read(made), Negatives.read(inputs["negatives"])
    dev = (negatives.queries["split"] == "dev").to_numpy()
    mined = negatives.rows_QD >= 0
    assert asked == [mined[dev].sum() + dev.sum()], "train pairs are not asked of the student"
    scored = ~np.isnan(teacher.negative_scores_QD)
    assert not scored[~dev, 2:].any() and (scored[dev] == mined[dev]).all() and mined[dev, 2:].any()
    _, cosines = every_score(Corpus.open(small_corpus), inputs["retriever"], "dev")
    ranks: dict[str, list[float]] = {"cross_encoder": [], "retriever": []}
    of_positive = teacher.positives.set_index("query_id")
    for query, number in enumerate(np.flatnonzero(dev)):
        right = of_positive.loc[negatives.queries["query_id"][number]]
        found = {
            "cross_encoder": (right["score"], teacher.negative_scores_QD[number][mined[number]]),
            "retriever": (cosines[query][int(right["row"])], cosines[query][negatives.rows_QD[number][mined[number]]]),
        }
        for kind, (of_right, of_wrong) in found.items():
            ranks[kind].append(1 / (1 + int((of_wrong >= of_right).sum())))
    choice = json.loads((made / CHOICE).read_text())
    means = {kind: np.mean(values) for kind, values in ranks.items()}
    assert {kind: choice["reciprocal_ranks"][kind] for kind in means} == pytest.approx(means)
    assert (choice["chosen"], choice["weights"]) == ("cross_encoder", {"cross_encoder": 1.0})
    assert choice["ahead"] == (means["cross_encoder"] > means["retriever"]) == read_manifest(made).facts["ahead"]


def with_verdict(folder: Path, target: Path, ahead: bool) -> Path:
    """Copy a teacher, and mark it as ahead of its student or not."""
    import shutil

    from stillhouse.core.artifacts import write_json, write_manifest

    made = read_manifest(folder)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("manifest.json"))
    choice = json.loads((target / CHOICE).read_text())
    write_json(target / CHOICE, choice | {"ahead": ahead})
    write_manifest(target, made.step, made.config, made.inputs, made.facts | {"ahead": ahead})
    return target


def weights_of(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_only_a_teacher_that_is_ahead_teaches(run_step: Run, inputs: dict[str, Path], tmp_path: Path) -> None:
    teacher = run_step("score-pairs", inputs, kind="best", precision="fp32")["teacher"]
    ahead, behind = (with_verdict(teacher, tmp_path / str(verdict), verdict) for verdict in (True, False))
    corpus = {"corpus": inputs["corpus"], "encoder": inputs["retriever"], "negatives": inputs["negatives"]}
    settings = {"max_steps": 2, "batch_size": 4, "negatives_per_query": 2, "learning_rate": 1e-3, "precision": "fp32"}

    def trained(name: str, **more: Path | str) -> bytes:
        folders = {port: place for port, place in more.items() if isinstance(place, Path)}
        own = {key: value for key, value in more.items() if not isinstance(value, Path)}
        made = run_step("train-retriever", corpus | folders, name, **settings, **own)["retriever"]
        return weights_of(made)

    def used(name: str) -> str:
        """What the report will say of the teacher; all else is as `score-pairs` wrote it."""
        passed_on = json.loads((tmp_path / name / "curves" / TEACHER).read_text())
        choice = json.loads(((behind if name != "ahead" else ahead) / CHOICE).read_text())
        assert passed_on == choice | {"used": passed_on["used"]}
        return str(passed_on["used"])

    plain = trained("plain")
    assert trained("behind", teacher=behind, weak_teacher="ignore") == plain
    assert not (tmp_path / "plain" / "curves" / TEACHER).exists()
    assert used("behind") == "ignored"
    taught = trained("ahead", teacher=ahead, weak_teacher="skip")
    assert taught != plain and taught == trained("always", teacher=behind)
    assert used("ahead") == used("always") == "taught"
    assert trained("skipped", teacher=behind, weak_teacher="skip") == weights_of(inputs["retriever"])
    assert read_curves(tmp_path / "skipped" / "curves").empty and used("skipped") == "skipped"
    trained("as_it_was", teacher=behind, weak_teacher="skip", similarity="dot")
    settings_of = [folder / "stillhouse.json" for folder in (tmp_path / "as_it_was" / "retriever", inputs["retriever"])]
    assert settings_of[0].read_text() == settings_of[1].read_text(), "a retriever that is kept keeps its similarity"
